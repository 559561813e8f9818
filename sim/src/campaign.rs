//! Runs many seeds, and hunts mutants.

use torc_replication::{Mutation, Mutations};

use crate::profile::Profile;
use crate::run::{Report, Violation, run};
use crate::trace::Trace;
use crate::world::Counts;

/// Runs one seed of the ordinary campaign, with all rules intact.
#[must_use]
pub fn run_seed(seed: u64) -> Report {
    run(
        seed,
        Profile::of_seed(seed),
        Mutations::NONE,
        Trace::hashing(),
    )
}

/// The sum of many runs.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Runs.
    pub seeds: u64,
    /// Client operations.
    pub operations: u64,
    /// Failing seeds.
    pub violations: Vec<u64>,
    /// Keys whose check was abandoned.
    pub undecided: u64,
    /// Operations answered after one round.
    pub fast: u64,
    /// Operations answered.
    pub answered: u64,
    /// Operations with unknown outcome.
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

/// How to hunt a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hunt {
    /// The broken rule.
    pub mutation: Mutation,
    /// The profile that shows it most.
    pub profile: Profile,
    /// A seed of that profile that is known to show it.
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

/// Runs seeds from `first` until one fails or `go_on` returns false.
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

/// Every mutation, with the profile and a seed that show it. `cargo run --release -p torc-sim --
/// mutants --plan` finds new seeds whenever a change affects what seeds do.
pub const PLAN: [Hunt; Mutation::ALL.len()] = [
    plan(Mutation::NoEpochFence, Profile::Moves, 186),
    plan(Mutation::StreamFromSurvivor, Profile::Moves, 1_028),
    plan(Mutation::DirectSwitch, Profile::Moves, 12),
    plan(Mutation::NoReadNewStage, Profile::Aborts, 0),
    plan(Mutation::PromisesForgotten, Profile::Restarts, 175),
    plan(Mutation::AcceptsForgotten, Profile::Restarts, 370),
    plan(Mutation::GetWithoutWriteBack, Profile::Mixed, 162),
    plan(Mutation::CasMissUnchosen, Profile::Warm, 61),
    plan(Mutation::RetryReapplies, Profile::Warm, 4),
    plan(Mutation::PushUnchosen, Profile::Repair, 6_562),
    plan(Mutation::CollectOnQuorum, Profile::Collection, 4),
    plan(Mutation::NoFloorAtCollection, Profile::Collection, 866),
    plan(Mutation::LastWriterWins, Profile::Mixed, 2),
    plan(Mutation::WipedKeepsId, Profile::Wipes, 2),
    plan(Mutation::MixedEpochs, Profile::Moves, 2_129),
    plan(Mutation::AckBeforeDurable, Profile::Crashes, 2),
    plan(Mutation::OneAckQuorum, Profile::Mixed, 9),
    plan(Mutation::DeadVotes, Profile::Dead, 0),
    plan(Mutation::TransitionalChosen, Profile::Aborts, 45),
    plan(Mutation::AbsentZero, Profile::Collection, 253),
    plan(Mutation::AbortInOneStep, Profile::Aborts, 1_800),
    plan(Mutation::ExpiryUnwritten, Profile::Expiry, 3),
    plan(Mutation::UnreadableIsAbsent, Profile::Damage, 0),
    plan(Mutation::GrowthStartsEmpty, Profile::Resize, 112),
    plan(Mutation::ShrinkWithoutGather, Profile::Resize, 18_129),
    plan(Mutation::GrowthCopiesVote, Profile::Resize, 319),
    plan(Mutation::BulkIsSnapshot, Profile::Moves, 60),
    plan(Mutation::WarmAfterRefusal, Profile::Warm, 42),
    plan(Mutation::IdentityRenames, Profile::Mixed, 3),
    plan(Mutation::TailForgotten, Profile::Slices, 353),
    plan(Mutation::AcceptUnseen, Profile::Mixed, 24),
    plan(Mutation::AcceptBelowPromise, Profile::Warm, 6),
    plan(Mutation::BlindRefusedIsClean, Profile::Mixed, 4),
    plan(Mutation::DeniesForgotten, Profile::Mixed, 24),
    plan(Mutation::DeniesEarlierLife, Profile::Mixed, 2_222),
    plan(Mutation::OneDenialIsEnough, Profile::Mixed, 1_110),
    plan(Mutation::OneMemoryIsEnough, Profile::Mixed, 67),
    plan(Mutation::BuildsOnUnproven, Profile::Mixed, 11_899),
    plan(Mutation::DigestIsKey, Profile::Digests, 0),
    plan(Mutation::ScanUnproven, Profile::Scans, 1),
    plan(Mutation::ScanExpiredAsIs, Profile::Scans, 947),
    plan(Mutation::AloneUnchecked, Profile::Alone, 3_546),
    plan(Mutation::AloneExpiredAsIs, Profile::Alone, 151),
    plan(Mutation::ConfirmsAnyVersion, Profile::Mixed, 8),
    plan(Mutation::SharesEarlierRound, Profile::Lines, 1),
    plan(Mutation::ScanAnyRound, Profile::Scans, 23),
    plan(Mutation::PageSplitsDigest, Profile::Digests, 3),
    plan(Mutation::NewcomerTakesOld, Profile::EventualMoves, 6_915),
    plan(Mutation::BlindTriesAgain, Profile::Mixed, 24),
    plan(Mutation::MismatchLeavesWish, Profile::Warm, 255),
    plan(Mutation::UnknownIsUnavailable, Profile::Mixed, 4),
    plan(Mutation::FirstSharerWins, Profile::Lines, 0),
    plan(Mutation::NobodyWaits, Profile::Lines, 0),
    plan(Mutation::OneReplyQuorum, Profile::Mixed, 3),
    plan(Mutation::AcceptOverUnreadable, Profile::Damage, 112),
    plan(Mutation::NextUnpromised, Profile::Warm, 42),
    plan(Mutation::MembershipKeeps, Profile::Copies, 579),
    plan(Mutation::CollectingUntold, Profile::Expiry, 3_481),
    plan(Mutation::ScanBeyondShortest, Profile::Scans, 56),
    plan(Mutation::ScanOnePage, Profile::Scans, 3),
    plan(Mutation::ScanSameByCount, Profile::Scans, 0),
    plan(Mutation::FilterHidesUnproven, Profile::Scans, 1_687),
    plan(Mutation::SameByOne, Profile::Scans, 0),
    plan(Mutation::ScanByDigest, Profile::Digests, 0),
    plan(Mutation::EventualOneAnswer, Profile::Eventual, 3),
    plan(Mutation::EventualReissue, Profile::EventualMoves, 0),
    plan(Mutation::EventualOldSetOnly, Profile::EventualMoves, 141),
    plan(Mutation::EventualLostIsUnavailable, Profile::Eventual, 2),
    plan(Mutation::StoreRevives, Profile::Eventual, 69),
    plan(Mutation::RepairRevives, Profile::Eventual, 664),
    plan(Mutation::MinorityRepairs, Profile::EventualDamage, 3_642),
    plan(
        Mutation::RepairOverUnreadable,
        Profile::EventualDamage,
        1_631,
    ),
    plan(Mutation::RepairsUnclosed, Profile::EventualLearns, 97),
    plan(Mutation::StoreOverUnreadable, Profile::EventualDamage, 35),
    plan(Mutation::ClosedBeforeDurable, Profile::EventualCrashes, 177),
    plan(Mutation::OlderStoreWins, Profile::Eventual, 0),
    plan(Mutation::EventualOutdated, Profile::EventualLate, 12_366),
    plan(Mutation::SlicesOfAnyEpoch, Profile::StaleSlices, 11_316),
    plan(Mutation::LearnOverUnreadable, Profile::Learns, 2_160),
    plan(Mutation::ActsBeforeDurable, Profile::Adoptions, 8_315),
    plan(Mutation::ReadoutOfAnyEpoch, Profile::SlowReads, 1_935),
    plan(Mutation::EventualExpiryOpen, Profile::EventualExpiry, 3),
    plan(Mutation::ExpiryUnnoted, Profile::Eventual, 44),
    plan(Mutation::ReservesUnheard, Profile::Merges, 2),
    plan(Mutation::CollectsDuringMerge, Profile::Merges, 470),
    plan(Mutation::MergesOverTombstones, Profile::Merges, 1),
    plan(Mutation::UnrecordedDeletes, Profile::Merges, 257),
    plan(Mutation::TakesUnadopted, Profile::Creations, 32),
    plan(Mutation::CreatesUnready, Profile::Creations, 14),
    plan(Mutation::ReconcilesFirstRecords, Profile::Creations, 32),
    plan(Mutation::ForeignCounts, Profile::Foreign, 16),
    plan(Mutation::ClockForgotten, Profile::EventualCrashes, 19),
    plan(Mutation::LearnRevives, Profile::Collection, 2_347),
    plan(Mutation::SumsBeforeDurable, Profile::Collection, 2_145),
    plan(Mutation::CollectingGoesBack, Profile::EventualExpiry, 28),
    plan(Mutation::SlicesLackTombstones, Profile::Slices, 957),
];
