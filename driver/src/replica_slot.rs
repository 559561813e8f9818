//! A replica slot: one partition's replica at this node, and the messages that wait for its
//! batches.

use std::sync::Arc;

use torc_record::{Epoch, ReplicaBatch};
use torc_replication::{
    Collector, Config, Effect, Envelope, Input, Milestone, Now, Reading, Recovered, Replica,
    ReplicaOptions, Seq,
};
use torc_ring::topology::Stage;
use torc_ring::{NodeId, Partition};
use torc_store::{CompactionHold, Store};

use super::disk::Disk;
use crate::mutants::broken_rules;

/// A milestone to report to the topology group.
pub type Reached = (Partition, Milestone);

pub(super) struct ReplicaSlot {
    pub(super) replica: Replica,
    /// The newest configuration it was given.
    configured: Option<Arc<Config>>,
    /// Incremented when the replica restarts after a lost batch, as after a crash.
    pub(super) life: u64,
    pub(super) durable: Seq,
    /// Batches handed to the store and neither durable nor failed yet.
    on_their_way: u64,
    /// A batch was lost, so no later batch may reach the disk either.
    is_lost: bool,
    /// The life before ended because its epoch could not be stored.
    is_retrying: bool,
    /// In step order; each waits for a batch to become durable.
    sends: Vec<(Seq, NodeId, Envelope)>,
    reports: Vec<(Seq, Milestone)>,
    /// A collection that this node drives.
    pub(super) collector: Option<Collector>,
    /// Held while the partition's slices are copied.
    pinned: Option<CompactionHold>,
}

/// An action that a step defers to its caller, because the step has only its own replica.
pub(super) enum Deferred {
    Send(NodeId, Envelope),
    Report(Milestone),
    Reconcile(torc_replication::Locator, bool),
    CopySlices(NodeId, Epoch),
    Read(Reading),
    Fetch(NodeId, Envelope),
}

/// What steps make. Their caller empties it and uses it again.
#[derive(Default)]
pub(super) struct Made {
    effects: Vec<Effect>,
    /// Writes, in order.
    pub(super) batches: Vec<(Seq, ReplicaBatch)>,
    /// Actions that need not wait for them.
    pub(super) deferred: Vec<Deferred>,
}

impl Made {
    /// Of the longest list.
    pub(super) fn capacity(&self) -> usize {
        let batches_and_deferred = self.batches.capacity().max(self.deferred.capacity());
        self.effects.capacity().max(batches_and_deferred)
    }
}

impl ReplicaSlot {
    pub(super) fn recover(
        me: NodeId,
        partition: Partition,
        recovered: Recovered<'_>,
        options: ReplicaOptions,
        life: u64,
    ) -> Self {
        Self {
            replica: Replica::recover(me, partition, recovered, options, broken_rules()),
            configured: None,
            life,
            durable: Seq(0),
            on_their_way: 0,
            is_lost: false,
            is_retrying: false,
            sends: Vec::new(),
            reports: Vec::new(),
            collector: None,
            pinned: None,
        }
    }

    /// Whether answers wait for batches to become durable.
    pub(super) const fn owes_answers(&self) -> bool {
        !self.sends.is_empty()
    }

    /// Whether this node is no longer a member but still has the partition's records.
    pub(super) fn is_left_over(&self, me: NodeId) -> bool {
        let config = self.replica.config();
        let is_outside = config.is_some_and(|config| config.index(me).is_none());
        is_outside && self.replica.meta().since != Epoch(0)
    }

    /// Notes that a batch is durable or lost. Returns whether the replica must restart now: a batch
    /// was lost, and none is on its way that would show in the store only later.
    pub(super) fn on_batch_ended(&mut self, is_durable: bool) -> bool {
        self.on_their_way -= 1;
        self.is_lost |= !is_durable;
        self.is_retrying &= !is_durable;
        self.is_lost && self.on_their_way == 0
    }

    /// Whether a lost batch is news: the last attempt to store the replica's epoch did not fail as
    /// well.
    pub(super) const fn is_loss_new(&self) -> bool {
        !self.is_lost && !self.is_retrying
    }

    /// Begins the next life. If this one acted in a configuration, returns what the next one begins
    /// with. If not, the disk takes no epoch now: [`to_adopt`](Self::to_adopt) tells it later.
    pub(super) fn begin_life(&mut self, next: Self) -> Option<Arc<Config>> {
        let before = std::mem::replace(self, next);
        let has_acted = before.replica.config().is_some();
        self.is_retrying = !has_acted;
        if has_acted {
            return before.configured;
        }
        self.configured = before.configured;
        None
    }

    /// The configuration that it acts in no more or not yet, if no batch is on its way that would
    /// change this.
    pub(super) fn to_adopt(&self) -> Option<Arc<Config>> {
        let is_idle = self.on_their_way == 0 && self.replica.config().is_none();
        self.configured.clone().filter(|_| is_idle)
    }

    /// Whether the replica may answer with the store's records of the partition in this epoch.
    pub(super) fn vouches_in(&self, epoch: Epoch) -> bool {
        !self.is_lost && self.replica.vouches_in(epoch)
    }

    /// Whether the slices that it asked for may still be put in force.
    pub(super) fn takes_slices(&self, from: NodeId, epoch: Epoch) -> bool {
        !self.is_lost && self.replica.takes_slices(from, epoch)
    }

    /// Pins the partition's slices until the partition is stable, so that they are not compacted.
    pub(super) fn pin_slices(&mut self, store: &Store, partition: Partition) {
        self.pinned.get_or_insert_with(|| store.hold(partition));
    }

    /// Handles one input. After a lost batch, the input is ignored.
    pub(super) fn step(&mut self, now: Now, input: Input, disk: &Disk<'_>, made: &mut Made) {
        if let Input::Persisted(seq) = input {
            self.durable = self.durable.max(seq);
        }
        if let Input::Topology(config) = &input {
            if config.stage == Stage::Stable {
                self.pinned = None;
            }
            self.configured = Some(Arc::clone(config));
        }
        if self.is_lost {
            return;
        }
        let mut effects = std::mem::take(&mut made.effects);
        self.replica.step(now, input, disk, &mut effects);
        self.perform(effects.drain(..), made);
        made.effects = effects;
        self.release(&mut made.deferred);
    }

    /// Performs the effects of a call of the replica.
    pub(super) fn perform(&mut self, effects: impl Iterator<Item = Effect>, made: &mut Made) {
        let Made {
            batches, deferred, ..
        } = made;
        for effect in effects {
            match effect {
                Effect::Persist { .. } if self.is_lost => {}
                Effect::Persist { seq, batch } => {
                    self.on_their_way += 1;
                    batches.push((seq, batch));
                }
                Effect::Send {
                    to,
                    after,
                    envelope,
                } if after <= self.durable => {
                    deferred.push(Deferred::Send(to, envelope));
                }
                Effect::Send {
                    to,
                    after,
                    envelope,
                } => {
                    // One, not the four that a list begins with: thousands of slots have one at a time.
                    if self.sends.capacity() == 0 {
                        self.sends.reserve_exact(1);
                    }
                    self.sends.push((after, to, envelope));
                }
                Effect::Report { after, milestone } if after <= self.durable => {
                    deferred.push(Deferred::Report(milestone));
                }
                Effect::Report { after, milestone } => self.reports.push((after, milestone)),
                Effect::CopySlices { from, epoch } => {
                    deferred.push(Deferred::CopySlices(from, epoch));
                }
                Effect::Reconcile { at, rewrite } => {
                    deferred.push(Deferred::Reconcile(at, rewrite));
                }
                Effect::Read(reading) => deferred.push(Deferred::Read(reading)),
                Effect::Fetch { from, envelope } => deferred.push(Deferred::Fetch(from, envelope)),
                // The group sends every topology to every member.
                Effect::NeedTopology { .. } => {}
            }
        }
    }

    fn release(&mut self, deferred: &mut Vec<Deferred>) {
        let durable = self.durable;
        let sends = self.sends.extract_if(.., |(after, ..)| *after <= durable);
        deferred.extend(sends.map(|(_, to, envelope)| Deferred::Send(to, envelope)));
        let reports = self.reports.extract_if(.., |(after, _)| *after <= durable);
        deferred.extend(reports.map(|(_, milestone)| Deferred::Report(milestone)));
        if self.sends.is_empty() {
            self.sends = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arc_swap::ArcSwap;
    use torc_record::{Epoch, HybridTime, ReplicaFacts, StoredVersions};
    use torc_store::StoreOptions;

    const ME: NodeId = NodeId(1);
    const HERE: Partition = Partition(0);

    fn recover(life: u64) -> ReplicaSlot {
        let recovered = Recovered {
            facts: ReplicaFacts::default(),
            highest: HybridTime::default(),
            stored: &StoredVersions::UNKNOWN,
        };
        ReplicaSlot::recover(ME, HERE, recovered, ReplicaOptions::default(), life)
    }

    fn adopting(epoch: u64) -> Input {
        let nodes = [ME, NodeId(2), NodeId(3)];
        Input::Topology(Arc::new(Config::founded(HERE, Epoch(epoch), &nodes)))
    }

    /// A replica whose batches are dropped. Returns the number of batches of a step.
    fn step(slot: &mut ReplicaSlot, store: &Store, input: Input) -> usize {
        let keys = ArcSwap::default();
        let (disk, mut made) = (Disk::new(store, &keys, HERE), Made::default());
        slot.step(Now::default(), input, &disk, &mut made);
        made.batches.len()
    }

    #[test]
    fn a_replica_that_lost_a_batch_starts_over_only_when_nothing_is_on_its_way() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(StoreOptions::new(dir.path())).unwrap();
        let mut slot = recover(0);
        assert_eq!(step(&mut slot, &store, adopting(1)), 1);
        assert_eq!(step(&mut slot, &store, adopting(2)), 1);
        assert!(
            !slot.on_batch_ended(false),
            "the second is on its way, and will be seen later"
        );
        assert_eq!(
            step(&mut slot, &store, adopting(3)),
            0,
            "what follows a lost batch must not reach the disk"
        );
        assert!(
            slot.on_batch_ended(false),
            "now the store shows all there will be"
        );
        let next = recover(1);
        assert!(slot.begin_life(next).is_none(), "the disk took no epoch");
        let configured = slot.to_adopt().map(|config| config.epoch);
        assert_eq!(
            configured,
            Some(Epoch(3)),
            "the next life begins with the newest"
        );
    }
}
