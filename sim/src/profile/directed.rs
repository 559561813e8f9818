//! Faults for one group of rules each.

use super::{Faults, Profile};
use crate::rng::Rng;

impl Profile {
    pub(super) fn directed(self, base: Faults, rng: &mut Rng) -> Faults {
        let one_key = Faults { keys: 1, ..base };
        let moving = moving(one_key);
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
        let moving = moving(one_key);
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
        let moving = moving(one_key);
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
            Self::Creations => Faults {
                creation: true,
                keys: 3,
                clients: 5,
                operations: 150,
                collect: 400,
                delete: 350,
                compare: 150,
                get: 350,
                moves: if rng.chance(500) { 200 } else { 0 },
                slices: rng.chance(300),
                crash: 15,
                cut: 40,
                split: 20,
                outside: 200,
                affinity: 0,
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
            Self::EventualLate => Faults {
                late: 350,
                late_ms: 250,
                get: 600,
                delete: 300,
                collect: 500,
                expiry: 0,
                cut: 0,
                crash: 0,
                keys: 1,
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

fn moving(one_key: Faults) -> Faults {
    Faults {
        moves: 500,
        late: 40,
        split: 60,
        ..one_key
    }
}
