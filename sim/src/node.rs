//! One simulated node: the real state machines over a simulated disk and clock.

use std::sync::Arc;

use torc_record::{HybridTime, NodeSlot, StoredVersions};
use torc_replication::{
    Collector, Config, Coordinator, CoordinatorOptions, Envelope, EventualOptions, Hints, Locator,
    Milestone, Mutation, Mutations, Now, OpId, Recovered, Replica, ReplicaOptions, Seq,
};
use torc_ring::{NodeId, Partition};

use crate::disk::Disk;

/// The only partition of a run, because partitions are independent of each other.
pub(crate) const PARTITION: Partition = Partition(0);
/// Simulated Unix time at the start of a run, milliseconds.
pub(crate) const START_MS: u64 = 1_700_000_000_000;

/// The running parts of a node.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) replica: Replica,
    pub(crate) coordinator: Coordinator,
    /// The newest configuration that the node was told.
    pub(crate) configured: Option<Arc<Config>>,
    pub(crate) collector: Option<Collector>,
    /// When the last collection began, microseconds.
    pub(crate) collecting_since_us: u64,
    pub(crate) durable: Seq,
    pub(crate) sends: Vec<(Seq, NodeId, Envelope)>,
    pub(crate) reports: Vec<(Seq, Milestone)>,
    /// Writes of `eventual` keys that replicas have missed.
    pub(crate) hints: Hints,
    /// Keys being reconciled, so that one reconciliation runs per key.
    pub(crate) reconciling: Vec<(OpId, Locator)>,
    /// When the coordinator wakes up next, microseconds.
    pub(crate) wake_us: u64,
}

/// A node for its whole life, which ends when it loses its disk.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) slot: NodeSlot,
    pub(crate) disk: Disk,
    /// Incremented with every crash: events of an earlier process are void.
    pub(crate) boot: u32,
    pub(crate) process: Option<Process>,
    /// Whether its disk is lost: it never returns.
    pub(crate) gone: bool,
    pub(crate) clock_error_ms: i64,
    pub(crate) disk_free_us: u64,
    pub(crate) slow_until_us: u64,
    pub(crate) full_until_us: u64,
    pub(crate) asked_topology_us: u64,
    pub(crate) no_group_until_us: u64,
}

impl Node {
    pub(crate) fn new(number: u64, clock_error_ms: i64, mutations: Mutations) -> Self {
        let mut disk = Disk::default();
        disk.splits_digests = mutations.has(Mutation::PageSplitsDigest);
        disk.is_checked = mutations == Mutations::NONE;
        Self {
            id: NodeId(number),
            slot: NodeSlot(number as u16),
            disk,
            boot: 0,
            process: None,
            gone: false,
            clock_error_ms,
            disk_free_us: 0,
            slow_until_us: 0,
            full_until_us: 0,
            asked_topology_us: 0,
            no_group_until_us: 0,
        }
    }

    pub(crate) const fn is_up(&self) -> bool {
        self.process.is_some()
    }

    pub(crate) const fn is_full(&self, us: u64) -> bool {
        self.full_until_us > us
    }

    pub(crate) const fn now(&self, us: u64) -> Now {
        let true_ms = START_MS + us / 1_000;
        Now {
            elapsed_ms: us / 1_000,
            unix_ms: true_ms.saturating_add_signed(self.clock_error_ms),
        }
    }

    /// Starts from the state of the disk.
    pub(crate) fn start(&mut self, promises: usize, copies_slices: bool, mutations: Mutations) {
        let coordinating = CoordinatorOptions {
            round_ms: 8,
            hedge_ms: 2,
            // Half of the nodes use each option, so that both are tested.
            near: self.slot.0.is_multiple_of(2).then_some(self.id),
            pause_ms: 1,
            warm_keys: 2,
            doubtful: 2,
            eventual: EventualOptions {
                resend_ms: 6,
                reconcile_ms: 20,
                linger_ms: 20,
                lingering: 4,
            },
        };
        let ceiling: HybridTime = self.disk.clock;
        self.process = Some(Process {
            replica: self.replica(&self.disk.stored, promises, copies_slices, mutations),
            coordinator: Coordinator::new(self.slot, ceiling, coordinating, mutations),
            configured: None,
            collector: None,
            collecting_since_us: 0,
            durable: Seq(0),
            sends: Vec::new(),
            reports: Vec::new(),
            hints: Hints::new(8, 1 << 20),
            reconciling: Vec::new(),
            wake_us: u64::MAX,
        });
    }

    /// Restarts the replica from the state of the disk, under its running coordinator. Returns the
    /// configuration to begin with.
    pub(crate) fn restart_replica(
        &mut self,
        promises: usize,
        copies_slices: bool,
        mutations: Mutations,
    ) -> Option<Arc<Config>> {
        let unknown = &StoredVersions::UNKNOWN;
        let replica = self.replica(unknown, promises, copies_slices, mutations);
        let process = self.process.as_mut()?;
        process.replica = replica;
        process.collector = None;
        process.durable = Seq(0);
        process.sends.clear();
        process.reports.clear();
        process.configured.clone()
    }

    fn replica(
        &self,
        stored: &StoredVersions,
        promises: usize,
        copies_slices: bool,
        mutations: Mutations,
    ) -> Replica {
        let options = ReplicaOptions {
            promises,
            copies_slices,
            recent: promises.clamp(1, 32),
            page_records: 2,
            ..ReplicaOptions::default()
        };
        let recovered = Recovered {
            facts: self.disk.meta,
            highest: self.disk.highest_in(self.disk.meta.epoch),
            stored,
        };
        Replica::recover(self.id, PARTITION, recovered, options, mutations)
    }
}
