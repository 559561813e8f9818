//! The rates of a run's faults and operations.

use crate::rng::Rng;

/// A mix of faults. Chances are per mille of the possible moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// Replicas at the start.
    pub replicas: u8,
    /// Keys.
    pub keys: u8,
    /// Clients, each with one operation at a time.
    pub clients: u8,
    /// Operations of all clients together.
    pub operations: u16,
    /// Messages lost.
    pub drop: u32,
    /// Messages delivered twice.
    pub duplicate: u32,
    /// Messages delivered long after.
    pub late: u32,
    /// Longest such delay, milliseconds.
    pub late_ms: u64,
    /// Links cut, one way or both.
    pub cut: u32,
    /// The cluster cut in two, one side out of reach of the topology group.
    pub split: u32,
    /// Steps of a move at which one staying replica and the new ones are cut off from the others,
    /// where votes and copies can diverge.
    pub ambush: u32,
    /// Nodes crashed.
    pub crash: u32,
    /// Longest time a crashed node is down, milliseconds.
    pub down_ms: u64,
    /// Nodes that lose their disk.
    pub wipe: u32,
    /// Nodes made slow.
    pub gray: u32,
    /// Clocks set to another time.
    pub clock: u32,
    /// Constant clock error of a node, at most, milliseconds.
    pub skew_ms: u64,
    /// Keys that a replica must fetch from its disk before it can handle a message.
    pub far: u32,
    /// Records that become unreadable.
    pub corrupt: u32,
    /// Disks full for a while.
    pub full: u32,
    /// Batches of a replica that its disk does not store.
    pub lost: u32,
    /// Moves begun.
    pub moves: u32,
    /// Stages that are left as soon as possible.
    pub haste: u32,
    /// Moves aborted.
    pub abort: u32,
    /// Moves that change the number of replicas.
    pub resize: u32,
    /// Displaced replicas declared dead.
    pub dead: u32,
    /// Whether newcomers copy sealed slices.
    pub slices: bool,
    /// Collections begun.
    pub collect: u32,
    /// Merges reserved and ended, and puts among the operations that are part of one.
    pub merge: u32,
    /// Whether a namespace is created with records.
    pub creation: bool,
    /// Comparisons begun.
    pub compare: u32,
    /// Puts that expire.
    pub expiry: u32,
    /// Deletes among the operations.
    pub delete: u32,
    /// Conditional puts among the operations.
    pub conditional: u32,
    /// Gets among the operations.
    pub get: u32,
    /// Clients' turns that scan.
    pub scan: u32,
    /// Clients' turns with several operations at once.
    pub batch: u32,
    /// Operations that their caller abandons midway.
    pub cancel: u32,
    /// Gets that the only reader of the partition answers from its disk.
    pub alone: u32,
    /// Moments at which a node is told which peers are out of reach, rightly or wrongly.
    pub peers: u32,
    /// Records of a key with another key's digest.
    pub foreign: u32,
    /// Whether the first two keys have the same digest.
    pub twins: bool,
    /// Keys of `eventual` namespaces.
    pub eventual: u32,
    /// Operations that go to the key's usual coordinator.
    pub affinity: u32,
    /// Operations that go to a node that is no replica.
    pub outside: u32,
    /// Promises that a replica keeps.
    pub promises: u16,
    /// Longest time a write to the disk takes, microseconds.
    pub sync_us: u64,
    /// Longest time until a node hears of the topology (or of a new epoch, if that is unusually
    /// long), microseconds.
    pub deaf_us: u64,
    /// Longest time to read a stretch of the disk, microseconds.
    pub read_us: u64,
}

impl Faults {
    /// What most profiles have in common.
    pub(super) fn base(rng: &mut Rng) -> Self {
        Self {
            replicas: 3,
            keys: rng.between(1, 3) as u8,
            clients: rng.between(3, 6) as u8,
            operations: 80,
            drop: 20,
            duplicate: 20,
            late: 10,
            late_ms: 90,
            cut: 0,
            split: 0,
            ambush: 0,
            crash: 0,
            down_ms: 60,
            wipe: 0,
            gray: 0,
            clock: 0,
            skew_ms: 5,
            far: 0,
            corrupt: 0,
            full: 0,
            lost: 0,
            moves: 0,
            haste: 1_000,
            abort: 0,
            resize: 0,
            dead: 0,
            slices: false,
            collect: 0,
            merge: 0,
            creation: false,
            compare: 20,
            expiry: 0,
            delete: 100,
            conditional: 250,
            get: 350,
            scan: 0,
            batch: 0,
            cancel: 0,
            alone: 0,
            peers: 0,
            foreign: 0,
            twins: false,
            eventual: 0,
            affinity: 500,
            outside: 0,
            promises: 64,
            sync_us: 2_000,
            deaf_us: 500,
            read_us: 6_000,
        }
    }
}
