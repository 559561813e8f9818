//! Faults drawn for every seed.

use super::Faults;
use crate::rng::Rng;

pub(super) fn draw(base: Faults, rng: &mut Rng) -> Faults {
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
