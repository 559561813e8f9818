//! One replica of one partition.
//!
//! Implements R1 to R3, R8 and R9: fences epochs, promises, accepts, learns, abstains,
//! copies as a newcomer, serves copies, takes part in collection and comparison.
//!
//! Invariants:
//! * No message leaves before the batch that it depends on is durable: every `Send`
//!   names this batch. Records on their way to the disk count as held, so a promise
//!   never overlooks an accept that is about to be durable.
//! * The replica acts in a new epoch only once it is durable. Batches become durable
//!   in order, so by then every accept of the previous epoch is on disk or lost.
//! * Every promise of the adopted epoch is below the durable `ceiling`, and every accepted ballot is that
//!   of a record that the disk has had. After a restart, the replica refuses everything up to the
//!   ceiling and the latest of these, and knows that an unreadable record is no newer.
//!
//! Absent on purpose: callers, the wire, and timers.

mod adopt;
mod collect;
mod confirm;
mod eventual;
mod newcomer;
mod parked;
mod reads;
mod register;
mod repair;
mod slices;

use std::collections::VecDeque;
use std::sync::Arc;

use torc_record::{
    Ballot, Epoch, HybridClock, HybridTime, NodeSlot, Record, ReplicaBatch, ReplicaFacts, State,
    StoredVersion, StoredVersions,
};
use torc_ring::topology::Stage;
use torc_ring::{NodeId, Partition};

use crate::locator::LocatorTable;
use crate::promise::Promises;
use crate::recent::Recent;
use crate::{
    Config, Effect, Envelope, KeyId, Locator, LogPosition, Lookup, Message, Milestone, Mutation,
    Mutations, Outcome, Readout, Seq, Storage, Tag, Votes,
};
use newcomer::Pulling;
use parked::Parked;

/// How far ahead of use to reserve the ceiling, milliseconds. Less than the clock skew that
/// peers tolerate, or a restarted replica refuses writes for as long.
const CEILING_AHEAD_MS: u64 = 200;
/// Limit on the messages kept until their epoch is known.
const MOST_PARKED: usize = 64;

/// The time on two clocks, so setting the wall clock cannot disturb timers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of the monotonic clock.
    pub elapsed_ms: u64,
    /// The wall clock, Unix milliseconds.
    pub unix_ms: u64,
}

/// Limits of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaOptions {
    /// Limit on the promises in memory.
    pub promises: usize,
    /// Limit on the versions that it remembers, to tell whether a write in doubt reached it. 32 bytes
    /// each.
    pub recent: usize,
    /// Records per page of a copy.
    pub page_records: usize,
    /// Limit on the bytes of messages kept until their epoch is adopted. A longer message is dropped.
    pub parked_bytes: usize,
    /// Whether a newcomer first copies sealed slices, then only the tail.
    pub copies_slices: bool,
}

impl Default for ReplicaOptions {
    fn default() -> Self {
        Self {
            promises: 4_096,
            // Those of a few seconds if 30,000 writes per second are spread over 4,096 partitions.
            recent: 32,
            page_records: 1_024,
            parked_bytes: 64 << 10,
            copies_slices: true,
        }
    }
}

/// Inputs of a replica.
#[derive(Debug, Clone)]
pub enum Input {
    /// A message arrived.
    Message {
        /// The sender.
        from: NodeId,
        /// The message.
        envelope: Envelope,
    },
    /// A message from [`Effect::Fetch`](crate::Effect::Fetch). It is handled now, whether or not
    /// its keys are at hand.
    Fetched {
        /// The sender.
        from: NodeId,
        /// The message.
        envelope: Envelope,
    },
    /// All batches up to this one are durable.
    Persisted(Seq),
    /// The partition's configuration, in any order; repeated after a restart.
    Topology(Arc<Config>),
    /// The slices requested by [`Effect::CopySlices`](crate::Effect::CopySlices) are durable and in
    /// force.
    SlicesCopied {
        /// Their source.
        from: NodeId,
        /// The epoch of the request.
        epoch: Epoch,
        /// Records missing in them are after this position of `from`'s log.
        through: LogPosition,
    },
    /// Slices are unavailable: copy records instead.
    NoSlices {
        /// The epoch of the request.
        epoch: Epoch,
    },
    /// The result of [`Effect::Read`](crate::Effect::Read).
    Read(Readout),
    /// A periodic tick, to repeat unanswered questions.
    Tick,
    /// Delete all records, if this node is no longer a member.
    Discard,
}

#[derive(Debug, Clone)]
struct InFlight {
    seq: Seq,
    record: Record,
}

/// One replica of one partition. All input goes through [`step`](Self::step).
#[derive(Debug)]
pub struct Replica {
    me: NodeId,
    partition: Partition,
    options: ReplicaOptions,
    mutations: Mutations,
    /// As last handed to the disk.
    meta: ReplicaFacts,
    config: Option<Arc<Config>>,
    adopting: Option<(Seq, Arc<Config>)>,
    floor: Ballot,
    promises: Promises,
    recent: Recent,
    /// In the order of their batches. A list, because a replica writes few keys at a time.
    in_flight: VecDeque<InFlight>,
    /// Unreadable records that are being replaced.
    unreadable: LocatorTable<eventual::UnreadableRecord>,
    /// Upper bound of the ballots here, except for slices that arrived in the epoch that copies, in
    /// which this replica accepts nothing.
    top: Ballot,
    last_seq: Seq,
    /// The batch with the current facts.
    meta_seq: Seq,
    /// The last batch that raised `collecting`: answers that tell it wait for this batch.
    collecting_seq: Seq,
    durable: Seq,
    clock: HybridClock,
    pulling: Option<Pulling>,
    /// The sources of slices, and the log positions that these slices reach.
    slices: Vec<(NodeId, LogPosition)>,
    expiries: collect::Expiries,
    /// Collections whose floor is not durable yet.
    summing: Vec<(Seq, NodeId, Ballot)>,
    reached: Vec<(Seq, Milestone)>,
    parked: Parked,
}

/// What a replica's disk knows when the replica starts.
#[derive(Debug, Clone, Copy)]
pub struct Recovered<'a> {
    /// Its facts; all zero for a new one.
    pub facts: ReplicaFacts,
    /// At least the time of every ballot of its epoch under which it has stored a record.
    pub highest: HybridTime,
    /// The versions that it stored.
    pub stored: &'a StoredVersions,
}

impl Replica {
    /// Restores a replica from its disk.
    #[must_use]
    pub fn recover(
        me: NodeId,
        partition: Partition,
        recovered: Recovered<'_>,
        options: ReplicaOptions,
        mutations: Mutations,
    ) -> Self {
        let Recovered {
            facts: mut meta,
            highest,
            stored,
        } = recovered;
        if meta.epoch > Epoch(0) && !mutations.has(Mutation::AcceptsForgotten) {
            meta.ceiling = meta.ceiling.max(highest);
        }
        let forgets = mutations.has(Mutation::PromisesForgotten);
        let floor = if meta.ceiling == HybridTime::default() || forgets {
            Ballot::default()
        } else {
            ceiling_ballot(&meta)
        };
        let stored = if mutations.has(Mutation::DeniesEarlierLife) {
            &StoredVersions::default()
        } else {
            stored
        };
        Self {
            me,
            partition,
            options,
            mutations,
            meta,
            config: None,
            adopting: None,
            floor,
            promises: Promises::new(options.promises),
            recent: Recent::resume(meta.epoch, meta.ceiling, stored, options.recent),
            in_flight: VecDeque::new(),
            unreadable: LocatorTable::default(),
            top: ceiling_ballot(&meta),
            last_seq: Seq(0),
            meta_seq: Seq(0),
            collecting_seq: Seq(0),
            durable: Seq(0),
            clock: HybridClock::resume(meta.ceiling),
            pulling: None,
            slices: Vec::new(),
            expiries: collect::Expiries::default(),
            summing: Vec::new(),
            reached: Vec::new(),
            parked: Parked::default(),
        }
    }

    /// The durable facts, as last handed to the disk.
    #[must_use]
    pub const fn meta(&self) -> &ReplicaFacts {
        &self.meta
    }

    /// This replica's configuration, once known after its start.
    #[must_use]
    pub const fn config(&self) -> Option<&Arc<Config>> {
        self.config.as_ref()
    }

    /// Whether it waits for a configuration to become durable.
    #[must_use]
    pub const fn is_adopting(&self) -> bool {
        self.adopting.is_some()
    }

    /// The replica's floor: ballots at or below are refused.
    #[must_use]
    pub const fn floor(&self) -> Ballot {
        self.floor
    }

    /// When the first value expires, Unix milliseconds: a collection up to that time is
    /// useful, as it is if there are tombstones. Zero if unknown, which the next collection
    /// determines; the maximum if none expires.
    #[must_use]
    pub const fn first_expiry_ms(&self) -> u64 {
        self.expiries.first_ms()
    }

    /// The epoch in which this replica is the only reader, if so: a get may then read the
    /// disk, check this again, and answer with [`alone`](Self::alone) if nothing has
    /// changed. A quorum of one proves its versions (R5).
    #[must_use]
    pub fn reads_alone(&self) -> Option<Epoch> {
        let config = self.config.as_ref().filter(|_| self.adopting.is_none())?;
        let only = config.readers() == Votes::one(config.index(self.me)?);
        (only && config.stage == Stage::Stable).then_some(config.epoch)
    }

    /// The answer of the only reader, from its disk; `None` if a get must take the
    /// ordinary path, because an expired value must first become absent for all readers, or because the
    /// replica is not the only reader any more. `before` is what [`reads_alone`](Self::reads_alone) said
    /// before the read, and `after` what it said after it.
    #[must_use]
    pub fn alone(
        lookup: Lookup,
        now: Now,
        collecting: HybridTime,
        (before, after): (Epoch, Option<Epoch>),
        mutations: Mutations,
    ) -> Option<Outcome> {
        if after != Some(before) && !mutations.has(Mutation::AloneUnchecked) {
            return None;
        }
        let fast = true;
        let record = match lookup {
            Lookup::Absent => return Some(Outcome::Absent { fast }),
            Lookup::Unreadable => return None,
            Lookup::Found(record) => record,
        };
        let version = record.version();
        let State::Value {
            value,
            expires_at_ms,
        } = record.state
        else {
            return Some(Outcome::Absent { fast });
        };
        let time_ms = now.unix_ms.max(collecting.unix_ms());
        if expires_at_ms.is_some_and(|at| at <= time_ms) {
            let as_is = mutations.has(Mutation::AloneExpiredAsIs);
            return as_is.then_some(Outcome::Absent { fast });
        }
        Some(Outcome::Found {
            value,
            version,
            expires_at_ms,
            fast,
        })
    }

    /// Handles one input; appends the effects to `out`.
    pub fn step(&mut self, now: Now, input: Input, disk: &impl Storage, out: &mut Vec<Effect>) {
        match input {
            Input::Message { from, envelope } if self.must_fetch(&envelope.message, disk) => {
                out.push(Effect::Fetch { from, envelope });
            }
            Input::Message { from, envelope } | Input::Fetched { from, envelope } => {
                self.on_message(now, from, envelope, disk, out);
            }
            Input::Persisted(seq) => self.on_persisted(now, seq, disk, out),
            Input::Topology(config) => self.on_topology(config, out),
            Input::SlicesCopied {
                from,
                epoch,
                through,
            } => self.on_slices(from, epoch, through, out),
            Input::NoSlices { epoch } => self.on_no_slices(epoch, out),
            Input::Read(readout) => self.on_read_out(readout, disk, out),
            Input::Tick => self.on_tick(out),
            Input::Discard => self.on_discard(out),
        }
    }

    fn handle(
        &mut self,
        now: Now,
        from: NodeId,
        message: Message,
        disk: &impl Storage,
        out: &mut Vec<Effect>,
    ) {
        if message.would_change_a_generation() {
            // A correct peer never sends this.
            return;
        }
        match message {
            Message::Read {
                tag,
                at,
                want_value,
                closes,
            } => self.on_read(now, from, (tag, closes), &at, want_value, disk, out),
            Message::Prepare {
                tag,
                at,
                ballot,
                doubted,
            } => self.on_prepare(now, from, tag, &at, (ballot, doubted), disk, out),
            Message::Accept { tag, record, next } => {
                self.on_accept(now, from, tag, record, next, disk, out);
            }
            Message::Learn { record } => self.on_learn(record, disk, out),
            Message::Store { tag, record } => self.on_store(now, from, tag, record, disk, out),
            Message::Pull {
                tag,
                after,
                since,
                known,
            } => self.on_pull(from, tag, after, (since, known), out),
            Message::Repair {
                record,
                collected,
                closed,
            } => self.on_repair(now, record, (collected, closed), disk, out),
            page @ Message::Page { .. } => self.on_page(from, page, disk, out),
            Message::GcFloor { upto } => self.on_gc_floor(now, from, upto, out),
            Message::GcPurge { upto } => self.on_gc_purge(upto, out),
            Message::Compare { collected, sums } => {
                self.on_compare(from, collected, sums, out);
            }
            Message::List { listing } => self.on_list(from, listing, out),
            Message::Holding { .. }
            | Message::Promised { .. }
            | Message::Accepted { .. }
            | Message::Nack { .. }
            | Message::Abstain { .. }
            | Message::Confirm { .. }
            | Message::Confirmed { .. }
            | Message::SamePage { .. }
            | Message::GcSum { .. }
            | Message::Epoch { .. } => {}
        }
    }

    /// Whether handling a message would wait for the disk.
    fn must_fetch(&self, message: &Message, disk: &impl Storage) -> bool {
        let is_far = |at: &Locator| self.flying(at).is_none() && !disk.is_at_hand(at);
        match message {
            Message::Read { at, .. } | Message::Prepare { at, .. } => is_far(at),
            Message::Accept { record, .. } if self.is_above_all(record.ballot) => false,
            Message::Page { .. } if self.pulling.is_none() => false,
            other => other.keys().iter().any(is_far),
        }
    }

    fn on_persisted(&mut self, now: Now, seq: Seq, disk: &impl Storage, out: &mut Vec<Effect>) {
        self.durable = self.durable.max(seq);
        let durable = self.in_flight.iter().take_while(|it| it.seq <= seq).count();
        self.in_flight.drain(..durable);
        if self.in_flight.is_empty() {
            // A node has thousands of replicas, few of which are written to at a time.
            self.in_flight = VecDeque::new();
        }
        self.finish_adoption(now, disk, out);
        self.finish_summing(out);
    }

    fn on_tick(&mut self, out: &mut Vec<Effect>) {
        self.pull_again(out);
        for (after, milestone) in &self.reached {
            out.push(Effect::Report {
                after: *after,
                milestone: *milestone,
            });
        }
        if let Some(epoch) = self
            .parked
            .highest_epoch()
            .filter(|epoch| *epoch > self.meta.epoch)
        {
            out.push(Effect::NeedTopology { epoch });
        }
    }
}

/// Building blocks of rules.
impl Replica {
    /// A key's version, and the batch that must be durable before it may be sent.
    fn look_up(&self, at: &Locator, disk: &impl Storage) -> (Lookup, Seq) {
        if let Some(flying) = self.flying(at) {
            return (Lookup::Found(flying.record.clone()), flying.seq);
        }
        let lookup = match disk.get(at) {
            Lookup::Unreadable if self.mutations.has(Mutation::UnreadableIsAbsent) => {
                Lookup::Absent
            }
            lookup => lookup,
        };
        (lookup, Seq(0))
    }

    /// The newest version of a key that is on its way to the disk.
    fn flying(&self, at: &Locator) -> Option<&InFlight> {
        let any_key = self.mutations.has(Mutation::DigestIsKey);
        let is_it = |flying: &&InFlight| {
            let record = &flying.record;
            at.id() == KeyId::of(record) && (at.key == record.key || any_key)
        };
        self.in_flight.iter().rfind(is_it)
    }

    /// Raises the ceiling above `time` in this batch, some way ahead (R3).
    fn reserve(&mut self, time: HybridTime, batch: &mut ReplicaBatch) {
        if time <= self.meta.ceiling {
            return;
        }
        let ahead = CEILING_AHEAD_MS << 16;
        self.meta.ceiling = HybridTime(time.0.saturating_add(ahead));
        batch.meta = Some(self.meta);
    }

    /// Puts a record into a batch.
    fn store(&mut self, record: Record, batch: &mut ReplicaBatch) {
        let seq = Seq(self.last_seq.0 + 1);
        let flying = InFlight {
            seq,
            record: record.clone(),
        };
        self.top = self.top.max(record.ballot);
        self.recent.note(StoredVersion::from(&record));
        if !self.mutations.has(Mutation::ExpiryUnnoted) {
            self.expiries.note(&record);
        }
        if !self.unreadable.is_empty() {
            self.unreadable.remove(&Locator::of(&record));
        }
        // One, not the four that a list begins with: nearly all have one.
        if self.in_flight.capacity() == 0 {
            self.in_flight.reserve_exact(1);
        }
        self.in_flight.push_back(flying);
        if batch.records.capacity() == 0 {
            batch.records.reserve_exact(1);
        }
        batch.records.push(record);
    }

    /// Passes a batch to the disk. Returns its number, or 0 if it is empty.
    fn persist(&mut self, batch: ReplicaBatch, out: &mut Vec<Effect>) -> Seq {
        if batch.is_empty() {
            return Seq(0);
        }
        self.last_seq.0 += 1;
        let seq = self.last_seq;
        if batch.meta.is_some() {
            self.meta_seq = seq;
        }
        out.push(Effect::Persist { seq, batch });
        seq
    }

    fn raise_floor(&mut self, ballot: Ballot) {
        self.floor = self.floor.max(ballot);
    }

    fn send(&self, to: NodeId, after: Seq, message: Message, out: &mut Vec<Effect>) {
        let envelope = Envelope {
            partition: self.partition,
            epoch: self.meta.epoch,
            message,
        };
        out.push(Effect::Send {
            to,
            after,
            envelope,
        });
    }

    fn refuse(&self, to: NodeId, tag: Tag, highest: Ballot, out: &mut Vec<Effect>) {
        self.send(to, Seq(0), Message::Nack { tag, highest }, out);
    }

    /// Abstains from this key, and requests its repair (R9).
    fn abstain(&self, to: NodeId, tag: Tag, at: &Locator, out: &mut Vec<Effect>) {
        self.send(
            to,
            Seq(0),
            Message::Abstain {
                tag,
                is_full: false,
            },
            out,
        );
        // A missing slice of a generation is fetched as a whole.
        if !at.namespace.is_generation() {
            out.push(Effect::Reconcile {
                at: at.clone(),
                rewrite: true,
            });
        }
    }

    /// At least as high as any ballot that this replica has promised or accepted in its
    /// epoch or before.
    fn upper_bound(&self) -> Ballot {
        self.floor.max(ceiling_ballot(&self.meta)).max(self.top)
    }
}

/// The highest ballot that `ceiling` covers.
fn ceiling_ballot(meta: &ReplicaFacts) -> Ballot {
    Ballot {
        epoch: meta.epoch,
        time: meta.ceiling,
        slot: NodeSlot(u16::MAX),
    }
}

#[cfg(test)]
mod tests;
