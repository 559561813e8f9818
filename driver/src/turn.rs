//! One turn of a shard: inputs and all of their effects on this node, under the shard's lock.
//! Writes, messages and outcomes leave together at its end.
//!
//! Invariants:
//! * A turn hands its writes over before it releases the lock, so a replica's batches
//!   reach the store in order.
//! * The messages of one caller's turns leave together when the last turn has ended: one
//!   frame per peer, whatever the number of shards.
//! * While it holds the lock, a turn neither waits nor locks another shard.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::MutexGuard;
use torc_index::prefetch_value;
use torc_links::{Links, Parcel};
use torc_proto::TraceContext;
use torc_record::{HybridTime, ReplicaBatch};
use torc_replication::{
    Config, Coordinator, Effect, Envelope, Input, Intent, Message, Now, OpId, Operation, Outcome,
    Request, Rules, Seq, Tag,
};
use torc_ring::topology::Stage;
use torc_ring::{NodeId, Partition};
use torc_store::{Applied, Store, StoreError, StoreHealth};

use super::mailbox::Mailbox;
use super::replica_slot::{Deferred, Made, ReplicaSlot};
use super::shard::{Shard, Waiting};
use super::{Durable, Registers, disk, slices};
use torc_telemetry::spans::{OpenSpan, Span, Tracer};

pub(super) struct Turn<'a> {
    registers: &'a Registers,
    shard: MutexGuard<'a, Shard>,
    was_idle: bool,
    has_room: bool,
    /// No room because the disk is full.
    is_full: bool,
    now: Now,
    buffers: Buffers,
    outbox: Outbox,
    /// For each batch: its partition, the life of its replica, and its number there.
    batch_names: Vec<(Partition, u64, Seq)>,
    /// The span of the message that is being handled, if it is traced.
    handling: Option<TraceContext>,
    /// Spans that end when the turn's batches are stored.
    storing: Vec<TraceContext>,
}

/// What a turn fills and empties.
#[derive(Default)]
struct Buffers {
    /// Messages of this node to itself.
    heard: VecDeque<Parcel>,
    intents: Vec<Intent>,
    made: Made,
    batches: Vec<(Partition, ReplicaBatch)>,
    told: Vec<(Waiting, Outcome)>,
}

/// Messages to send, by peer. Linear search: there are few peers.
#[derive(Default)]
pub(super) struct Outbox(Vec<(NodeId, Vec<Parcel>)>);

thread_local! {
    // Empty lists that keep the capacity of the thread's last turn. Without them, each batch would grow
    // new lists, and the allocator would fetch pages from the system and return them.
    static BUFFERS: Cell<Buffers> = Cell::default();
    static OUTBOX: Cell<Outbox> = Cell::default();
}

/// How many messages ahead replicas are prefetched.
pub(super) const AHEAD: usize = 8;
/// The longest list that a thread keeps. An entry takes some 250 bytes.
const MOST_KEPT: usize = 1_024;
/// The most lists of an outbox that a thread keeps.
const PEERS_KEPT: usize = 8;

impl Buffers {
    fn of_thread() -> Self {
        BUFFERS.take()
    }

    fn keep(self) {
        let lists = [
            self.heard.capacity(),
            self.intents.capacity(),
            self.made.capacity(),
            self.batches.capacity(),
            self.told.capacity(),
        ];
        if lists.into_iter().all(|length| length <= MOST_KEPT) {
            BUFFERS.set(self);
        }
    }
}

impl Outbox {
    pub(super) fn of_thread() -> Self {
        OUTBOX.take()
    }

    fn push(&mut self, to: NodeId, parcel: Parcel) {
        match self.0.iter_mut().find(|(peer, _)| *peer == to) {
            Some((_, parcels)) => parcels.push(parcel),
            None => self.0.push((to, vec![parcel])),
        }
    }

    pub(super) fn send(mut self, links: &Links) {
        for (to, parcels) in &mut self.0 {
            if !parcels.is_empty() {
                links.send_all(*to, parcels.drain(..));
            }
        }
        self.0
            .retain(|(_, parcels)| parcels.capacity() <= MOST_KEPT);
        self.0.truncate(PEERS_KEPT);
        OUTBOX.set(self);
    }
}

impl<'a> Turn<'a> {
    pub(super) fn of(registers: &'a Registers, shard: usize) -> Self {
        Self::with(registers, shard, Outbox::of_thread())
    }

    /// Starts a turn that adds to the messages of earlier turns of the same caller.
    pub(super) fn with(registers: &'a Registers, shard: usize, outbox: Outbox) -> Self {
        let has_room = registers.store.room();
        let is_full = !has_room && registers.store.health() == StoreHealth::OutOfSpace;
        let mut shard = registers.shards[shard].lock();
        if is_full {
            shard.coordinator.on_full(registers.me.node);
        }
        Self {
            was_idle: shard.is_idle(),
            has_room,
            is_full,
            // Read under the lock, so that time does not go back from turn to turn.
            now: registers.now(),
            registers,
            shard,
            buffers: Buffers::of_thread(),
            outbox,
            batch_names: Vec::new(),
            handling: None,
            storing: Vec::new(),
        }
    }

    pub(super) const fn now(&self) -> Now {
        self.now
    }

    /// A partition's replica, created if this node has not heard of the partition before.
    pub(super) fn slot(&mut self, partition: Partition) -> &mut ReplicaSlot {
        let registers = self.registers;
        let slots = &mut self.shard.slots;
        slots
            .entry(partition)
            .or_insert_with(|| Box::new(registers.new_slot(partition, 0)))
    }

    /// The partitions that are not stable here.
    pub(super) fn moving(&self) -> Vec<Partition> {
        self.shard.moving.iter().copied().collect()
    }

    /// A partition's replica, if this node has heard of the partition.
    pub(super) fn known_slot(&self, partition: Partition) -> Option<&ReplicaSlot> {
        self.shard.slots.get(&partition).map(|slot| &**slot)
    }

    /// The configuration that operations of a partition start in.
    pub(super) fn config(&self, partition: Partition) -> Option<&Arc<Config>> {
        self.shard.coordinator.config(partition)
    }

    pub(super) fn keys(&self) -> arc_swap::Guard<Arc<super::Keys>> {
        self.registers.keys.load()
    }

    pub(super) fn store(&self) -> &Store {
        &self.registers.store
    }

    /// Starts operations, some of them traced. Reports the id that the shard gives to each.
    pub(super) fn start(
        &mut self,
        mailbox: &Arc<Mailbox>,
        operations: Vec<(u32, Operation)>,
        traced: &[(u32, TraceContext)],
        mut started: impl FnMut(u32, OpId),
    ) {
        let held = self.held_of(&operations);
        // `traced` is in the order of the operations.
        let mut traced = traced.iter().peekable();
        let mut named = Vec::with_capacity(operations.len());
        for ((number, operation), held) in operations.into_iter().zip(held) {
            let op = self.shard.next_op();
            let waiting = Waiting {
                is_write: operation.request.is_write(),
                is_eventual: matches!(operation.rules, Rules::Eventual(_)),
                is_counted: !matches!(
                    operation.request,
                    Request::HandOver(_) | Request::Reconcile { .. }
                ),
                mailbox: Arc::clone(mailbox),
                number,
            };
            if let Some((_, trace)) = traced.next_if(|(it, _)| *it == number) {
                let at = (operation.partition, operation.at.digest);
                let spans = &mut self.shard.spans;
                spans.begin(op, *trace, waiting.is_write, at);
            }
            self.shard.waiting.insert(op, waiting);
            named.push((op, operation, held));
            started(number, op);
        }
        let now = self.now;
        self.coordinate(|coordinator, out| coordinator.start_many(now, named, out));
    }

    /// The caller no longer waits for this operation. Returns whether it had no outcome.
    pub(super) fn abandon(&mut self, op: OpId) -> bool {
        let Some(waiting) = self.shard.waiting.remove(&op) else {
            return false;
        };
        self.shard.spans.end(op, None);
        let (now, mut is_open) = (self.now, false);
        self.coordinate(|coordinator, out| is_open = coordinator.abandon(now, op, out));
        if is_open && waiting.is_write {
            let metrics = &self.registers.metrics;
            metrics.count(waiting.is_write, waiting.is_eventual, &Outcome::Unknown);
        }
        true
    }

    /// Calls the coordinator and performs its intents.
    pub(super) fn coordinate(&mut self, act: impl FnOnce(&mut Coordinator, &mut Vec<Intent>)) {
        let mut intents = std::mem::take(&mut self.buffers.intents);
        act(&mut self.shard.coordinator, &mut intents);
        for intent in intents.drain(..) {
            match intent {
                Intent::Send { to, envelope } => self.send(to, envelope),
                Intent::Done { op, outcome } => {
                    // The caller may have abandoned the operation.
                    if let Some(waiting) = self.shard.waiting.remove(&op) {
                        if !self.shard.spans.is_idle() {
                            self.shard.spans.end(op, Some(&outcome));
                        }
                        self.buffers.told.push((waiting, outcome));
                    }
                }
                Intent::Reserve(ceiling) => self.registers.reserve(ceiling),
                Intent::Keep(hint) => self.registers.hints.keep(hint),
                // The group sends every topology to every member.
                Intent::NeedTopology { .. } => {}
            }
        }
        self.buffers.intents = intents;
    }

    pub(super) fn send(&mut self, to: NodeId, envelope: Envelope) {
        let spans = &mut self.shard.spans;
        let trace = if spans.is_idle() {
            None
        } else {
            spans.sent(to, &envelope.message)
        };
        let parcel = Parcel { envelope, trace };
        if to == self.registers.me.node {
            self.buffers.heard.push_back(parcel);
        } else {
            self.outbox.push(to, parcel);
        }
    }

    /// Handles messages for this node.
    pub(super) fn deliver_all(&mut self, from: NodeId, parcels: Vec<Parcel>) {
        let mut parcels = parcels.into_iter();
        for parcel in parcels.as_slice().iter().take(AHEAD) {
            self.prefetch(parcel.envelope.partition);
        }
        while let Some(parcel) = parcels.next() {
            if let Some(later) = parcels.as_slice().get(AHEAD - 1) {
                self.prefetch(later.envelope.partition);
            }
            self.deliver(from, parcel);
        }
    }

    /// Prefetches a partition's replica, which is seldom in the processor's cache: a node has thousands.
    pub(super) fn prefetch(&self, partition: Partition) {
        if let Some(slot) = self.known_slot(partition) {
            prefetch_value(slot);
        }
    }

    /// Handles a message for this node.
    fn deliver(&mut self, from: NodeId, parcel: Parcel) {
        self.handling = self.begin_span(from, &parcel);
        self.handle(from, parcel.envelope);
        self.handling = None;
    }

    /// Begins the span of a message, if it is traced.
    pub(super) fn begin_span(&mut self, from: NodeId, parcel: &Parcel) -> Option<TraceContext> {
        let trace = parcel.trace.as_deref()?;
        self.registers.tracer.as_ref()?;
        self.shard.spans.received(from, &parcel.envelope, *trace)
    }

    fn handle(&mut self, from: NodeId, envelope: Envelope) {
        let now = self.now;
        match envelope.message {
            ref message if message.answers().is_some() => {
                self.coordinate(|coordinator, out| {
                    coordinator.on_message(now, from, envelope, out);
                });
            }
            Message::Confirm { tag, ref claims } => self.confirm(from, tag, claims),
            Message::GcSum { .. } => self.on_sum(from, &envelope),
            Message::Page { .. } | Message::SamePage { .. }
                if self.registers.listings.take(from, &envelope) => {}
            Message::Store { ref record, .. } => {
                self.shard.coordinator.observe(now, record.ballot.time);
                self.step(envelope.partition, Input::Message { from, envelope });
            }
            _ => self.step(envelope.partition, Input::Message { from, envelope }),
        }
    }

    /// The tag of a request for which there is no room.
    const fn lacks_room_for(&self, message: &Message) -> Option<Tag> {
        match message {
            Message::Accept { tag, .. } | Message::Store { tag, .. } if !self.has_room => {
                Some(*tag)
            }
            // A promise needs disk space too.
            Message::Prepare { tag, .. } if self.is_full => Some(*tag),
            _ => None,
        }
    }

    /// Abstains as if the key were unreadable, so the coordinator continues without this replica.
    fn decline(&mut self, to: NodeId, tag: Tag, asked: &Envelope) {
        let is_full = self.is_full;
        let metrics = &self.registers.metrics;
        let declined = if is_full {
            &metrics.declined_disk
        } else {
            &metrics.declined_memory
        };
        declined.inc();
        let reply = Envelope {
            partition: asked.partition,
            epoch: asked.epoch,
            message: Message::Abstain { tag, is_full },
        };
        self.send(to, reply);
    }

    fn on_sum(&mut self, from: NodeId, envelope: &Envelope) {
        let Message::GcSum {
            upto,
            sum,
            collected,
        } = envelope.message
        else {
            return;
        };
        self.registers.floors.take(envelope.partition, from, upto);
        let slot = self.slot(envelope.partition);
        let Some(collector) = &mut slot.collector else {
            return;
        };
        let sends = collector.on_sum(from, upto, sum, collected);
        if !sends.is_empty() {
            slot.collector = None;
        }
        for (to, envelope) in sends {
            self.send(to, envelope);
        }
    }

    /// Passes one input to a partition's replica.
    pub(super) fn step(&mut self, partition: Partition, input: Input) {
        if !self.has_room && comes_again(&input) {
            return;
        }
        // There may have been room when a message came whose keys had to be fetched.
        if let Input::Message { from, envelope } | Input::Fetched { from, envelope } = &input
            && let Some(tag) = self.lacks_room_for(&envelope.message)
        {
            return self.decline(*from, tag, envelope);
        }
        let registers = self.registers;
        if let Input::Topology(config) = &input {
            if config.stage == Stage::Stable {
                self.shard.moving.remove(&partition);
            } else {
                self.shard.moving.insert(partition);
            }
        }
        if let Input::Fetched { from, envelope } = &input {
            self.handling = self.shard.spans.handling(*from, &envelope.message);
        }
        let is_about_a_key = matches!(&input, Input::Message { envelope, .. } | Input::Fetched { envelope, .. }
            if envelope.message.is_about_a_key());
        let disk = disk::Disk::new(&registers.store, &registers.keys, partition);
        let now = self.now;
        let mut made = std::mem::take(&mut self.buffers.made);
        let slot = self.slot(partition);
        // Such a batch ends no adoption.
        let is_of_keys = matches!(input, Input::Persisted(_)) && !slot.replica.is_adopting();
        slot.step(now, input, &disk, &mut made);
        let life = slot.life;
        registers.note_alone(partition, &slot.replica, is_about_a_key || is_of_keys);
        self.take_made(partition, life, made);
    }

    /// Performs the effects of a call of a replica.
    pub(super) fn perform(&mut self, partition: Partition, effects: Vec<Effect>) {
        let mut made = std::mem::take(&mut self.buffers.made);
        let slot = self.slot(partition);
        slot.perform(effects.into_iter(), &mut made);
        let life = slot.life;
        self.take_made(partition, life, made);
    }

    fn take_made(&mut self, partition: Partition, life: u64, mut made: Made) {
        if !made.batches.is_empty() {
            self.storing.extend(self.handling);
        }
        for (seq, batch) in made.batches.drain(..) {
            self.buffers.batches.push((partition, batch));
            self.batch_names.push((partition, life, seq));
        }
        self.perform_deferred(partition, &mut made.deferred);
        self.buffers.made = made;
    }

    fn perform_deferred(&mut self, partition: Partition, deferred: &mut Vec<Deferred>) {
        for action in deferred.drain(..) {
            match action {
                Deferred::Send(to, envelope) => self.send(to, envelope),
                Deferred::Report(milestone) => {
                    // Fails only while the node stops.
                    let _ = self.registers.reports.send((partition, milestone));
                }
                Deferred::CopySlices(from, epoch) => {
                    let wanted = slices::WantedSlices {
                        partition,
                        from,
                        epoch,
                    };
                    // The replica asks again if there is no room.
                    let _ = self.registers.slices.try_send(wanted);
                }
                Deferred::Reconcile(at, rewrite) => {
                    self.registers.reconcile_later(partition, &at, rewrite);
                }
                Deferred::Read(reading) => {
                    let registers = self.registers;
                    let disk = disk::Disk::new(&registers.store, &registers.keys, partition);
                    match reading.at_once(&disk) {
                        Some(readout) => self.step(partition, Input::Read(readout)),
                        None => registers.readings.push(partition, reading),
                    }
                }
                Deferred::Fetch(from, envelope) => {
                    if !self.registers.fetches.push(from, envelope) {
                        self.registers.metrics.fetches_dropped.inc();
                    }
                }
            }
        }
    }

    /// A replica's batch is durable or lost. After a loss the replica restarts from the store, as
    /// after a crash, once none of its batches is on the way to the disk.
    pub(super) fn on_batch_ended(
        &mut self,
        (partition, life, seq): (Partition, u64, Seq),
        lost: Option<&StoreError>,
    ) {
        let registers = self.registers;
        let slot = self.slot(partition);
        if slot.life != life {
            return;
        }
        // A full disk fails all partitions of a node again and again.
        if let Some(error) = lost.filter(|_| slot.is_loss_new()) {
            tracing::warn!(%partition, %error, "could not store a replica's batch");
        }
        if slot.on_batch_ended(lost.is_none()) {
            // Fails only if the store has failed for good and accepts no more writes.
            let _ = registers.store.resume(partition);
            let next = registers.new_slot(partition, life + 1);
            match slot.begin_life(next) {
                Some(config) => self.step(partition, Input::Topology(config)),
                None => {
                    self.shard.moving.insert(partition);
                }
            }
        } else if lost.is_none() {
            self.step(partition, Input::Persisted(seq));
        }
    }

    /// Repeats what a replica that is not stable has asked for, or its adoption if the disk did not
    /// take it.
    pub(super) fn repeat(&mut self, partition: Partition) {
        let config = self.slot(partition).to_adopt();
        let input = config.map_or(Input::Tick, Input::Topology);
        self.step(partition, input);
    }

    pub(super) fn configure(&mut self, config: &Arc<Config>) {
        let now = self.now;
        self.step(config.partition, Input::Topology(Arc::clone(config)));
        self.coordinate(|coordinator, out| coordinator.on_topology(now, config, out));
    }

    /// A clock reading is durable; `None` if there was no space for it.
    pub(super) fn reserved(&mut self, ceiling: Option<HybridTime>) {
        let now = self.now;
        self.coordinate(|coordinator, out| match ceiling {
            Some(ceiling) => coordinator.reserved(now, ceiling, out),
            None => coordinator.unreserved(now, out),
        });
    }

    /// Ends the only or last turn of its caller.
    pub(super) fn end(self) {
        let links = &self.registers.links;
        self.close().send(links);
    }

    /// Delivers this node's messages to itself until none is left, hands batches to the store,
    /// releases the shard, and delivers outcomes. Returns the messages to send.
    pub(super) fn close(mut self) -> Outbox {
        while let Some(parcel) = self.buffers.heard.pop_front() {
            if let Some(later) = self.buffers.heard.get(AHEAD - 1) {
                self.prefetch(later.envelope.partition);
            }
            self.deliver(self.registers.me.node, parcel);
        }
        let Self {
            registers,
            mut shard,
            was_idle,
            mut buffers,
            outbox,
            batch_names,
            storing,
            ..
        } = self;
        if !buffers.batches.is_empty() {
            let durable = registers.durable.clone();
            let tracer = registers.tracer.clone().filter(|_| !storing.is_empty());
            registers
                .store
                .apply_many(buffers.batches.drain(..), move |applied| {
                    if let Some(tracer) = tracer {
                        record_sync(&tracer, &storing, &applied);
                    }
                    // Fails only while the node stops.
                    let _ = durable.send(Durable::Batches(batch_names, applied.failed));
                });
        }
        let is_idle = shard.is_idle();
        let spans = shard.spans.take_ended();
        drop(shard);
        if let Some(tracer) = &registers.tracer {
            for span in spans {
                tracer.record(span);
            }
        }
        if was_idle && !is_idle {
            registers.busy.notify_one();
        }
        let is_counted = |(waiting, outcome): &&(Waiting, Outcome)| {
            waiting.is_counted || matches!(outcome, Outcome::Reconciled)
        };
        for (waiting, outcome) in buffers.told.iter().filter(is_counted) {
            let metrics = &registers.metrics;
            metrics.count(waiting.is_write, waiting.is_eventual, outcome);
        }
        let mut told = buffers.told.drain(..).peekable();
        while let Some((first, outcome)) = told.next() {
            let rest = std::iter::from_fn(|| {
                told.next_if(|(waiting, _)| Arc::ptr_eq(&waiting.mailbox, &first.mailbox))
            });
            let rest = rest.map(|(waiting, outcome)| (waiting.number, outcome));
            first
                .mailbox
                .tell(std::iter::once((first.number, outcome)).chain(rest));
        }
        drop(told);
        buffers.keep();
        outbox
    }
}

/// Whether the records of this input come again if it is ignored: a newcomer repeats its request
/// for a page, and comparison finds differences again.
const fn comes_again(input: &Input) -> bool {
    let (Input::Message { envelope, .. } | Input::Fetched { envelope, .. }) = input else {
        return false;
    };
    matches!(
        envelope.message,
        Message::Page { .. } | Message::Learn { .. } | Message::Repair { .. }
    )
}

/// Records the sync of the log that made batches durable.
fn record_sync(tracer: &Tracer, storing: &[TraceContext], applied: &Applied) {
    let Some(sync) = applied.sync else {
        return;
    };
    for replica in storing {
        let open = OpenSpan::child(*replica, "log sync", sync.began);
        tracer.record(Span {
            ended: sync.began + sync.took,
            ..open.end("ok")
        });
    }
}

#[cfg(test)]
mod tests;
