//! Many runs, and the hunt for mutants.

use torc_replication::{Mutation, Mutations};

use crate::profile::Profile;
use crate::run::{Report, Violation, run};
use crate::trace::Trace;
use crate::world::Counts;

/// Runs one seed of the ordinary campaign, every rule holding.
#[must_use]
pub fn run_seed(seed: u64) -> Report {
    run(
        seed,
        Profile::of_seed(seed),
        Mutations::NONE,
        Trace::hashing(),
    )
}

/// What many runs add up to.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Runs.
    pub seeds: u64,
    /// Client operations.
    pub operations: u64,
    /// Failing seeds.
    pub violations: Vec<u64>,
    /// Keys whose check was given up.
    pub undecided: u64,
    /// Operations answered after one round.
    pub fast: u64,
    /// Operations answered.
    pub answered: u64,
    /// Operations whose outcome nobody knows.
    pub unknown: u64,
    /// Faults by name.
    pub faults: Counts,
}

impl Tally {
    /// Adds a run.
    pub fn add(&mut self, seed: u64, report: &Report) {
        self.seeds += 1;
        self.operations += report.operations;
        self.undecided += report.undecided;
        self.fast += report.fast;
        self.answered += report.answered;
        self.unknown += report.unknown;
        self.faults.merge(&report.faults);
        if report.violation.is_some() {
            self.violations.push(seed);
        }
    }

    /// Adds another tally.
    pub fn merge(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.operations += other.operations;
        self.undecided += other.undecided;
        self.fast += other.fast;
        self.answered += other.answered;
        self.unknown += other.unknown;
        self.faults.merge(&other.faults);
        self.violations.extend(other.violations);
    }
}

/// How a mutant is hunted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hunt {
    /// The broken rule.
    pub mutation: Mutation,
    /// Where it shows most.
    pub profile: Profile,
    /// A seed of that profile known to show it.
    pub known: u64,
}

/// A mutant that was caught.
#[derive(Debug, Clone)]
pub struct Caught {
    /// The failing seed.
    pub seed: u64,
    /// Seeds run until then.
    pub seeds: u64,
    /// How it failed.
    pub violation: Violation,
}

/// Runs seeds from `first` until one fails or `go_on` says no.
pub fn hunt(hunt: Hunt, first: u64, mut go_on: impl FnMut() -> bool) -> Option<Caught> {
    let mutations = Mutations::only(hunt.mutation);
    for seeds in 1.. {
        if !go_on() {
            return None;
        }
        let seed = first.wrapping_add(seeds - 1);
        let report = run(seed, hunt.profile, mutations, Trace::hashing());
        if let Some(violation) = report.violation {
            return Some(Caught {
                seed,
                seeds,
                violation,
            });
        }
    }
    None
}

/// The plan for a mutation.
#[must_use]
pub fn plan_of(mutation: Mutation) -> Option<Hunt> {
    PLAN.iter().copied().find(|hunt| hunt.mutation == mutation)
}

const fn plan(mutation: Mutation, profile: Profile, known: u64) -> Hunt {
    Hunt {
        mutation,
        profile,
        known,
    }
}

/// Every mutation, with the profile it shows in and a seed that shows it. The seeds are
/// remade by `cargo run --release -p torc-sim -- mutants --plan` whenever a change shifts
/// what seeds do.
pub const PLAN: [Hunt; Mutation::ALL.len()] = [
    plan(Mutation::NoEpochFence, Profile::Moves, 931),
    plan(Mutation::StreamFromSurvivor, Profile::Moves, 704),
    plan(Mutation::DirectSwitch, Profile::Moves, 17),
    plan(Mutation::NoReadNewStage, Profile::Aborts, 0),
    plan(Mutation::PromisesForgotten, Profile::Restarts, 20),
    plan(Mutation::GetWithoutWriteBack, Profile::Mixed, 106),
    plan(Mutation::CasMissUnchosen, Profile::Warm, 0),
    plan(Mutation::RetryReapplies, Profile::Warm, 1),
    plan(Mutation::PushUnchosen, Profile::Repair, 2396),
    plan(Mutation::CollectOnQuorum, Profile::Collection, 0),
    plan(Mutation::NoFloorAtCollection, Profile::Collection, 377),
    plan(Mutation::LastWriterWins, Profile::Mixed, 1),
    plan(Mutation::WipedKeepsId, Profile::Wipes, 3),
    plan(Mutation::MixedEpochs, Profile::Moves, 921),
    plan(Mutation::AckBeforeDurable, Profile::Crashes, 10),
    plan(Mutation::OneAckQuorum, Profile::Mixed, 1),
    plan(Mutation::DeadVotes, Profile::Dead, 354),
    plan(Mutation::TransitionalChosen, Profile::Aborts, 12),
    plan(Mutation::AbsentZero, Profile::Collection, 3214),
    plan(Mutation::AbortInOneStep, Profile::Aborts, 296),
    plan(Mutation::ExpiryUnsettled, Profile::Expiry, 8),
    plan(Mutation::UnreadableIsAbsent, Profile::Damage, 1),
    plan(Mutation::GrowthStartsEmpty, Profile::Resize, 47),
    plan(Mutation::ShrinkWithoutMerge, Profile::Resize, 7424),
    plan(Mutation::GrowthCopiesVote, Profile::Resize, 1798),
    plan(Mutation::BulkIsSnapshot, Profile::Moves, 83),
    plan(Mutation::WarmAfterRefusal, Profile::Warm, 0),
    plan(Mutation::SlicesOfAnyEpoch, Profile::Slices, 13031),
    plan(Mutation::IdentityRenames, Profile::Mixed, 4),
    plan(Mutation::TailForgotten, Profile::Slices, 938),
];
