//! Which faults a run has, and how often.
//!
//! `mixed` draws its faults anew for every seed, each kind being absent from about half
//! of the runs: some bugs need a fault to be missing (Groce et al., "Swarm Testing",
//! 2012). The other profiles are directed at one group of rules.

use crate::rng::Rng;

/// A mix of faults. Chances are per mille of the moments at which they can happen.
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
    /// Steps of a move at which one replica that stays, with those who come, is cut off
    /// from the others: where votes and copies can come apart.
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
    /// Records that become unreadable.
    pub corrupt: u32,
    /// Moves begun.
    pub moves: u32,
    /// Stages left at each moment at which they may be.
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
    /// Operations that go to the key's usual coordinator.
    pub affinity: u32,
    /// Operations that go to a node that is no replica.
    pub outside: u32,
    /// Promises a replica keeps.
    pub promises: u16,
    /// Longest time a write to the disk takes, microseconds.
    pub sync_us: u64,
}

/// A named way to draw [`Faults`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// Anything.
    Mixed,
    /// Moves, aborts and dead replicas.
    Moves,
    /// Replicas declared dead that are not.
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
    /// Short crashes, while messages of before them are on their way.
    Restarts,
    /// Records that become unreadable.
    Damage,
    /// Wiped nodes.
    Wipes,
    /// Lost messages, one coordinator a key.
    Warm,
    /// Comparisons with much loss.
    Repair,
    /// Slices copied while tombstones are collected and moves aborted.
    Slices,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 14] = [
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
        }
    }

    /// The profile of a run of a campaign: half are mixed, the others take turns.
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
            corrupt: 0,
            moves: 0,
            haste: 1_000,
            abort: 0,
            resize: 0,
            dead: 0,
            slices: false,
            collect: 0,
            compare: 20,
            expiry: 0,
            delete: 100,
            conditional: 250,
            get: 350,
            affinity: 500,
            outside: 0,
            promises: 64,
            sync_us: 2_000,
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
            _ => self.directed_at_rules(one_key),
        }
    }

    fn directed_at_rules(self, one_key: Faults) -> Faults {
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
                conditional: 500,
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
            Self::Mixed | Self::Moves | Self::Dead | Self::Resize | Self::Aborts | Self::Slices => {
                one_key
            }
        }
    }
}

fn mixed(base: Faults, rng: &mut Rng) -> Faults {
    // Of a copy: what the others draw does not depend on it.
    let slices = rng.clone().chance(500);
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
        affinity: some(1000),
        outside: some(300),
        promises: 1 + some(64) as u16,
        sync_us: 500 + u64::from(some(10_000)),
        replicas: [1, 2, 3, 3, 3, 3, 3, 5][rng.below(8) as usize],
        slices,
        ..base
    }
}
