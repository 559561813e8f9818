//! The faults of a run, and their rates.
//!
//! `mixed` draws its faults for every seed, each kind absent from about half of the
//! runs, because some bugs need a fault to be absent (Groce et al., "Swarm Testing",
//! 2012). Each of the other profiles targets one group of rules.

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

/// A named way to draw [`Faults`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// Anything.
    Mixed,
    /// Moves, aborts and dead replicas.
    Moves,
    /// Live replicas declared dead.
    Dead,
    /// Sets that grow and shrink.
    Resize,
    /// Aborts of moves that read the new set.
    Aborts,
    /// Deletes and collection.
    Collection,
    /// Expiry and collection.
    Expiry,
    /// Crashes and slow disks.
    Crashes,
    /// Short crashes, with earlier messages still on their way.
    Restarts,
    /// Records that become unreadable.
    Damage,
    /// Wiped nodes.
    Wipes,
    /// Lost messages, one coordinator per key.
    Warm,
    /// Comparisons with much loss.
    Repair,
    /// Slices copied while tombstones are collected and moves aborted.
    Slices,
    /// Scans while values are written, moved and expire.
    Scans,
    /// Sets of one replica that grow and move, with gets from the disk alone.
    Alone,
    /// Several keys and their collection while replicas move.
    Copies,
    /// Keys that share a digest, and records with a wrong one.
    Digests,
    /// Many writers at few coordinators, several operations at once, cancelled callers.
    Lines,
    /// Keys of `eventual` namespaces, and collection.
    Eventual,
    /// The same while replicas move.
    EventualMoves,
    /// The same with records that become unreadable.
    EventualDamage,
    /// Late learning, with records that become unreadable.
    Learns,
    /// The same with keys of `eventual` namespaces.
    EventualLearns,
    /// Expiring keys of `eventual` namespaces, on nodes whose clocks differ and go back.
    EventualExpiry,
    /// The same with crashes, lost batches and slow disks.
    EventualCrashes,
    /// Sets of one replica whose slices are copied before all nodes know that it moves.
    StaleSlices,
    /// Epochs that become durable slowly, and that nodes hear of late.
    Adoptions,
    /// Slow disk reads while replicas move.
    SlowReads,
    /// Keys that must be fetched from the disk, while disks are full and replicas move and crash.
    Cold,
    /// Merges into keys that are written, deleted, collected and moved.
    Merges,
    /// Batches that disks do not store, under running coordinators.
    LostBatches,
    /// Records with digests of other keys in sets that grow and shrink.
    Foreign,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 33] = [
        Self::Mixed,
        Self::Moves,
        Self::Dead,
        Self::Resize,
        Self::Aborts,
        Self::Collection,
        Self::Expiry,
        Self::Crashes,
        Self::Restarts,
        Self::Damage,
        Self::Wipes,
        Self::Warm,
        Self::Repair,
        Self::Slices,
        Self::Scans,
        Self::Alone,
        Self::Copies,
        Self::Digests,
        Self::Lines,
        Self::Eventual,
        Self::EventualMoves,
        Self::EventualDamage,
        Self::Learns,
        Self::EventualLearns,
        Self::EventualExpiry,
        Self::EventualCrashes,
        Self::StaleSlices,
        Self::Adoptions,
        Self::SlowReads,
        Self::Cold,
        Self::Merges,
        Self::LostBatches,
        Self::Foreign,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Moves => "moves",
            Self::Dead => "dead",
            Self::Resize => "resize",
            Self::Aborts => "aborts",
            Self::Collection => "collection",
            Self::Expiry => "expiry",
            Self::Crashes => "crashes",
            Self::Restarts => "restarts",
            Self::Damage => "damage",
            Self::Wipes => "wipes",
            Self::Warm => "warm",
            Self::Repair => "repair",
            Self::Slices => "slices",
            Self::Scans => "scans",
            Self::Alone => "alone",
            Self::Copies => "copies",
            Self::Digests => "digests",
            Self::Lines => "lines",
            Self::Eventual => "eventual",
            Self::EventualMoves => "eventual-moves",
            Self::EventualDamage => "eventual-damage",
            Self::Learns => "learns",
            Self::EventualLearns => "eventual-learns",
            Self::EventualExpiry => "eventual-expiry",
            Self::EventualCrashes => "eventual-crashes",
            Self::StaleSlices => "stale-slices",
            Self::Adoptions => "adoptions",
            Self::SlowReads => "slow-reads",
            Self::Cold => "cold",
            Self::Merges => "merges",
            Self::LostBatches => "lost-batches",
            Self::Foreign => "foreign",
        }
    }

    /// The profile of a campaign's seed: half are mixed, the others alternate.
    #[must_use]
    pub const fn of_seed(seed: u64) -> Self {
        if seed.is_multiple_of(2) {
            return Self::Mixed;
        }
        Self::ALL[1 + (seed / 2 % (Self::ALL.len() as u64 - 1)) as usize]
    }

    /// The faults of a run.
    pub fn draw(self, rng: &mut Rng) -> Faults {
        let base = Faults {
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
        };
        match self {
            Self::Mixed => mixed(base, rng),
            _ => self.directed(base, rng),
        }
    }

    fn directed(self, base: Faults, rng: &mut Rng) -> Faults {
        let one_key = Faults { keys: 1, ..base };
        let moving = Faults {
            moves: 500,
            late: 40,
            split: 60,
            ..one_key
        };
        match self {
            Self::Mixed => base,
            Self::Moves => Faults {
                crash: 10,
                dead: 50,
                ..moving
            },
            Self::Dead => Faults {
                dead: 1000,
                moves: 1000,
                split: 0,
                ambush: 700,
                haste: 100,
                late: 0,
                get: 700,
                delete: 0,
                affinity: 900,
                compare: 0,
                ..moving
            },
            Self::Resize => Faults {
                replicas: [1, 2, 3, 3, 3, 4][rng.below(6) as usize],
                resize: 1000,
                drop: 40,
                split: 0,
                ambush: 800,
                haste: 150,
                late: 0,
                delete: 0,
                get: 700,
                affinity: 900,
                compare: 0,
                ..moving
            },
            Self::Aborts => Faults {
                abort: 150,
                haste: 150,
                get: 750,
                moves: 1000,
                split: 0,
                ambush: 600,
                compare: 0,
                late: 0,
                affinity: 0,
                ..moving
            },
            Self::Slices => Faults {
                slices: true,
                abort: 100,
                crash: 20,
                collect: 500,
                delete: 500,
                split: 30,
                ..moving
            },
            _ => self.directed_at_rules(one_key, rng),
        }
    }

    fn directed_at_rules(self, one_key: Faults, rng: &mut Rng) -> Faults {
        match self {
            Self::Collection => Faults {
                collect: 500,
                delete: 400,
                get: 200,
                drop: 60,
                late: 150,
                cut: 100,
                outside: 500,
                affinity: 0,
                ..one_key
            },
            Self::Expiry => Faults {
                collect: 400,
                expiry: 800,
                skew_ms: 100,
                drop: 100,
                get: 700,
                affinity: 0,
                compare: 100,
                cut: 40,
                ..one_key
            },
            Self::Crashes => Faults {
                crash: 150,
                down_ms: 8,
                late: 100,
                drop: 60,
                compare: 0,
                affinity: 0,
                sync_us: 12_000,
                promises: 2,
                clock: 40,
                get: 200,
                ..one_key
            },
            Self::Restarts => Faults {
                crash: 350,
                down_ms: 2,
                late: 250,
                late_ms: 14,
                compare: 0,
                affinity: 300,
                conditional: 600,
                get: 300,
                sync_us: 400,
                ..one_key
            },
            Self::Damage => Faults {
                corrupt: 300,
                crash: 30,
                drop: 150,
                late: 200,
                late_ms: 50,
                compare: 30,
                affinity: 0,
                ..one_key
            },
            Self::Wipes => Faults {
                wipe: 80,
                drop: 200,
                cut: 40,
                compare: 0,
                get: 500,
                ..one_key
            },
            Self::Warm => Faults {
                affinity: 900,
                conditional: 700,
                drop: 80,
                crash: 60,
                down_ms: 8,
                late: 100,
                get: 200,
                ..one_key
            },
            Self::Repair => Faults {
                compare: 300,
                drop: 200,
                cut: 120,
                get: 500,
                affinity: 0,
                ..one_key
            },
            _ => self.directed_at_doors(one_key, rng),
        }
    }

    fn directed_at_doors(self, one_key: Faults, rng: &mut Rng) -> Faults {
        let moving = Faults {
            moves: 500,
            late: 40,
            split: 60,
            ..one_key
        };
        match self {
            Self::Scans => Faults {
                keys: 4,
                scan: 350,
                get: 150,
                expiry: 150,
                collect: 100,
                cut: 60,
                drop: 60,
                affinity: 0,
                ..moving
            },
            Self::Alone => Faults {
                replicas: 1,
                resize: 400,
                alone: 900,
                get: 600,
                expiry: 200,
                affinity: 0,
                clock: 20,
                skew_ms: 100,
                ..moving
            },
            Self::Copies => Faults {
                keys: 4,
                delete: 400,
                collect: 500,
                get: 450,
                drop: 80,
                abort: 60,
                crash: 15,
                slices: rng.chance(300),
                ..moving
            },
            Self::Digests => Faults {
                keys: 3,
                twins: true,
                foreign: 150,
                scan: 100,
                get: 200,
                drop: 100,
                crash: 20,
                sync_us: 6_000,
                moves: 200,
                ..one_key
            },
            Self::Lines => Faults {
                batch: 400,
                cancel: 150,
                peers: 200,
                affinity: 800,
                conditional: 150,
                get: 300,
                drop: 60,
                cut: 40,
                ..one_key
            },
            _ => self.directed_at_disks(one_key, rng),
        }
    }

    fn directed_at_disks(self, one_key: Faults, rng: &mut Rng) -> Faults {
        let moving = Faults {
            moves: 500,
            late: 40,
            split: 60,
            ..one_key
        };
        match self {
            Self::Merges => Faults {
                keys: 3,
                clients: 5,
                operations: 120,
                merge: 300,
                collect: 400,
                delete: 250,
                expiry: if rng.chance(300) { 200 } else { 0 },
                get: 200,
                moves: if rng.chance(500) { 150 } else { 0 },
                crash: 15,
                cut: 40,
                split: 30,
                outside: 200,
                affinity: 0,
                deaf_us: if rng.chance(500) { 20_000 } else { 500 },
                ..one_key
            },
            Self::Cold => Faults {
                far: 400,
                full: 40,
                crash: 30,
                abort: 60,
                collect: 200,
                delete: 200,
                slices: rng.chance(300),
                ..moving
            },
            Self::Learns => Faults {
                corrupt: 500,
                crash: 20,
                drop: 200,
                late: 350,
                late_ms: 40,
                duplicate: 300,
                compare: 0,
                delete: 30,
                get: 600,
                affinity: 300,
                operations: 110,
                ..one_key
            },
            Self::StaleSlices => Faults {
                replicas: 1,
                clients: 3,
                slices: true,
                moves: 300,
                collect: 1_000,
                delete: 500,
                conditional: 0,
                get: 150,
                drop: 0,
                affinity: 1_000,
                compare: 0,
                deaf_us: 60_000,
                operations: 120,
                ..one_key
            },
            Self::Adoptions => Faults {
                moves: 1_000,
                crash: 120,
                down_ms: 2,
                split: 60,
                late: 20,
                conditional: 0,
                compare: 0,
                affinity: 0,
                get: 400,
                delete: 0,
                sync_us: 25_000,
                read_us: 300,
                deaf_us: 25_000,
                ..one_key
            },
            Self::SlowReads => Faults {
                read_us: 60_000,
                ambush: 500,
                compare: 0,
                affinity: 0,
                get: 500,
                delete: 0,
                drop: 60,
                ..moving
            },
            _ => self.directed_at_records(one_key, rng),
        }
    }

    fn directed_at_records(self, one_key: Faults, rng: &mut Rng) -> Faults {
        match self {
            Self::LostBatches => Faults {
                lost: 60,
                affinity: 800,
                conditional: 500,
                drop: 60,
                late: 60,
                crash: 15,
                sync_us: 6_000,
                delete: 150,
                collect: 100,
                get: 250,
                eventual: if rng.chance(300) { 1_000 } else { 0 },
                moves: if rng.chance(300) { 300 } else { 0 },
                ..one_key
            },
            Self::Foreign => Faults {
                replicas: [1, 2, 3, 3, 3, 4][rng.below(6) as usize],
                keys: 2,
                foreign: 150,
                moves: 700,
                resize: 700,
                collect: 200,
                delete: 200,
                expiry: 100,
                eventual: [0, 0, 1_000][rng.below(3) as usize],
                slices: rng.chance(300),
                ..one_key
            },
            _ => self.directed_at_eventual(one_key, rng),
        }
    }

    fn directed_at_eventual(self, one_key: Faults, rng: &mut Rng) -> Faults {
        let eventual = Faults {
            eventual: 1_000,
            keys: 2,
            scan: 30,
            collect: 300,
            compare: 100,
            delete: 250,
            expiry: 150,
            skew_ms: 30,
            late: 60,
            late_ms: 120,
            cut: 60,
            crash: 25,
            ..one_key
        };
        match self {
            Self::EventualLearns => Faults {
                eventual: 1_000,
                corrupt: 700,
                drop: 250,
                late: 300,
                late_ms: 60,
                compare: 0,
                delete: 100,
                get: 500,
                operations: 110,
                ..one_key
            },
            Self::EventualExpiry => Faults {
                expiry: 700,
                skew_ms: 100,
                clock: 30,
                get: 600,
                delete: 50,
                collect: 60,
                scan: 60,
                moves: if rng.chance(400) { 400 } else { 0 },
                slices: rng.chance(500),
                keys: 1,
                ..eventual
            },
            Self::EventualCrashes => Faults {
                expiry: 900,
                skew_ms: 100,
                get: 700,
                delete: 50,
                collect: if rng.chance(300) { 60 } else { 0 },
                compare: 0,
                drop: 150,
                crash: 150,
                down_ms: 2,
                lost: if rng.chance(500) { 40 } else { 0 },
                sync_us: 25_000,
                keys: 1,
                ..eventual
            },
            Self::Eventual => eventual,
            Self::EventualMoves => Faults {
                moves: 500,
                abort: 60,
                haste: 300,
                split: 30,
                slices: true,
                collect: 400,
                ..eventual
            },
            Self::EventualDamage => Faults {
                corrupt: 250,
                drop: 150,
                crash: 40,
                compare: 40,
                collect: 50,
                ..eventual
            },
            _ => one_key,
        }
    }
}

fn mixed(base: Faults, rng: &mut Rng) -> Faults {
    // A copy, so that the other draws do not depend on it.
    let mut other = rng.clone();
    let slices = other.chance(500);
    let twins = other.chance(120);
    let keys = if twins { 2 } else { 1 } + other.below(3) as u8;
    let eventual = [0, 0, 0, 0, 0, 300, 700, 1_000][other.below(8) as usize];
    let far = [0, 0, 0, 50, 400][other.below(5) as usize];
    let lost = [0, 0, 0, 10, 40][other.below(5) as usize];
    let mut some = |most: u64| {
        let present = rng.chance(500);
        let drawn = rng.below(most + 1) as u32;
        if present { drawn } else { 0 }
    };
    Faults {
        drop: some(200),
        duplicate: some(100),
        late: some(100),
        late_ms: 6 + u64::from(some(90)),
        cut: some(100),
        split: some(60),
        ambush: some(500),
        crash: some(60),
        down_ms: 3 + u64::from(some(60)),
        wipe: some(20),
        gray: some(60),
        clock: some(30),
        skew_ms: u64::from(some(60)),
        corrupt: some(60),
        moves: some(500),
        haste: 1_000 - some(900),
        abort: some(300),
        resize: some(500),
        dead: some(500),
        collect: some(200),
        compare: some(200),
        expiry: some(300),
        delete: some(300),
        conditional: some(500),
        get: 100 + some(500),
        scan: some(80),
        batch: some(150),
        cancel: some(60),
        alone: some(1000),
        peers: some(100),
        foreign: some(40),
        twins,
        keys,
        far,
        lost,
        eventual,
        affinity: some(1000),
        outside: some(300),
        promises: 1 + some(64) as u16,
        sync_us: 500 + u64::from(some(10_000)),
        replicas: [1, 2, 3, 3, 3, 3, 3, 5][rng.below(8) as usize],
        slices,
        ..base
    }
}
