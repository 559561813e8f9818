//! Finds a smaller run that fails the same way.
//!
//! It reduces operations, clients, keys and kinds of faults, one at a time, as long as the run
//! still fails. Every change shifts all random choices, so it tries a few seeds for each.

use torc_replication::Mutations;

use crate::profile::{Faults, Profile};
use crate::rng::Rng;
use crate::run::{Report, run_with};
use crate::trace::Trace;

/// A smaller failing run.
#[derive(Debug, Clone)]
pub struct Shrunk {
    /// Its seed.
    pub seed: u64,
    /// Its faults.
    pub faults: Faults,
    /// Its result, with the text.
    pub report: Report,
}

/// Seeds tried for each change.
const TRIES: u64 = 40;

/// Makes a failing run smaller; `None` if it does not fail.
#[must_use]
pub fn shrink(seed: u64, profile: Profile, mutations: Mutations) -> Option<Shrunk> {
    let mut faults = profile.draw(&mut Rng::new(seed));
    // The generator continues from where drawing the faults left it.
    let mut rng = Rng::new(seed);
    let _ = profile.draw(&mut rng);
    let report = run_with(seed, faults, mutations, rng, Trace::hashing());
    report.violation.as_ref()?;
    let mut best_seed = None;
    loop {
        let smaller = changes(&faults).into_iter().find_map(|candidate| {
            let fails = |seed: &u64| attempt(*seed, candidate, mutations).violation.is_some();
            let found = (seed..seed + TRIES).find(fails);
            found.map(|seed| (candidate, seed))
        });
        let Some((candidate, found)) = smaller else {
            break;
        };
        faults = candidate;
        best_seed = Some(found);
    }
    let seed = best_seed?;
    let report = run_with(seed, faults, mutations, Rng::new(seed), Trace::writing());
    Some(Shrunk {
        seed,
        faults,
        report,
    })
}

fn attempt(seed: u64, faults: Faults, mutations: Mutations) -> Report {
    run_with(seed, faults, mutations, Rng::new(seed), Trace::hashing())
}

fn changes(faults: &Faults) -> Vec<Faults> {
    let mut all = Vec::new();
    let mut add = |changed: Faults| {
        if changed != *faults {
            all.push(changed);
        }
    };
    add(Faults {
        operations: faults.operations / 2,
        ..*faults
    });
    add(Faults {
        operations: faults.operations - faults.operations.min(3),
        ..*faults
    });
    add(Faults { keys: 1, ..*faults });
    add(Faults {
        clients: faults.clients.saturating_sub(1).max(2),
        ..*faults
    });
    let off: [fn(&mut Faults); 17] = [
        |f| f.duplicate = 0,
        |f| f.late = 0,
        |f| f.gray = 0,
        |f| f.clock = 0,
        |f| f.wipe = 0,
        |f| f.corrupt = 0,
        |f| f.full = 0,
        |f| f.collect = 0,
        |f| f.compare = 0,
        |f| f.expiry = 0,
        |f| f.crash = 0,
        |f| f.moves = 0,
        |f| f.cut = 0,
        |f| f.split = 0,
        |f| f.ambush = 0,
        |f| f.drop = 0,
        |f| f.delete = 0,
    ];
    for change in off {
        let mut changed = *faults;
        change(&mut changed);
        add(changed);
    }
    all
}
