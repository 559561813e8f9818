//! Seeds of the ordinary campaign, within the time of a test run.
//!
//! `TORC_SIM_SEEDS` sets the number of seeds; the command line runs more, see `torc-sim run`.

use torc_replication::Mutations;
use torc_sim::{Profile, Trace, run, run_seed};

#[expect(
    clippy::disallowed_methods,
    reason = "long runs are asked for by the environment"
)]
fn count() -> u64 {
    let set = std::env::var("TORC_SIM_SEEDS").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(250)
}

#[test]
fn with_every_rule_holding_no_seed_shows_a_violation() {
    for seed in 0..count() {
        let report = run_seed(seed);
        assert_eq!(
            report.violation, None,
            "torc-sim replay --seed {seed} shows how"
        );
        assert_eq!(report.undecided, 0, "seed {seed}: a check was given up");
    }
}

/// Seeds from long runs that once showed a violation.
const FOUND: [(Profile, u64); 17] = [
    // A version that the successor of a dead replica had gathered was considered chosen; then the
    // move was aborted, and the dead replica returned without it.
    (Profile::Mixed, 890_540),
    // A staying member asked its source again without end for a record that it had collected, and the
    // source had not: the move never ended.
    (Profile::Alone, 105_763),
    // An unreadable record was newer than the repair that replaced it.
    (Profile::EventualDamage, 281),
    // A replica stored a write and lost the record. Its refusal of the resent write was mistaken
    // for an answer to the first request, so the write was reported as unavailable.
    (Profile::EventualLearns, 20_427_501),
    // A repaired replica counted as agreeing on the expiry.
    (Profile::EventualExpiry, 20_471_519),
    // The time of a collection was that of the highest ballot instead of the latest time.
    (Profile::EventualExpiry, 20_037_754),
    // A record that one replica held before a collection was considered newer than its absence
    // after it: in a read, in a scan, and by a page whose watermark was newer than its records.
    (Profile::Eventual, 20_049_009),
    (Profile::EventualExpiry, 20_056_682),
    (Profile::EventualDamage, 20_063_670),
    // A write was confirmed by a replica that was closed above it and held something newer, or that
    // had received it by a repair after it was closed.
    (Profile::EventualLearns, 20_003_904),
    (Profile::EventualLearns, 20_022_545),
    // The first expiry was lost when two collections to the same ballot overlapped.
    (Profile::Eventual, 20_033_321),
    (Profile::Eventual, 20_093_655),
    // A page of an older version was on its way to the disk when slices brought a later one: the
    // simulated disk took the older, which a store does not.
    (Profile::Mixed, 64_504_626),
    (Profile::Mixed, 64_731_628),
    // Faults of the simulation itself: the healed cluster got collections faster than they could
    // end, and moves were aborted before they were stuck.
    (Profile::Adoptions, 20_055_611),
    (Profile::Mixed, 20_353_668),
];

#[test]
fn what_long_runs_found_does_not_come_back() {
    for (profile, seed) in FOUND {
        let report = run(seed, profile, Mutations::NONE, Trace::hashing());
        assert_eq!(report.violation, None, "seed {seed} of {profile:?}");
    }
}

#[test]
fn one_seed_is_one_run() {
    for (seed, profile) in (0..24).zip(Profile::ALL.into_iter().cycle()) {
        let again = || run(seed, profile, Mutations::NONE, Trace::hashing());
        let (first, second) = (again(), again());
        assert_eq!(first.hash, second.hash, "seed {seed} of {profile:?}");
        assert_eq!(first.operations, second.operations);
        let written = run(seed, profile, Mutations::NONE, Trace::writing());
        assert_eq!(first.hash, written.hash, "writing changes nothing");
        assert!(!written.trace.is_empty());
    }
    assert_ne!(run_seed(1).hash, run_seed(3).hash, "seeds differ");
}

#[test]
fn the_campaign_has_every_fault_and_both_fast_paths() {
    let mut tally = torc_sim::Tally::default();
    for seed in 0..count().min(150) {
        tally.add(seed, &run_seed(seed));
    }
    for name in [
        "aborted",
        "batch lost",
        "clock set",
        "collected",
        "compared",
        "corrupted",
        "crashed",
        "cut",
        "disk full",
        "dropped",
        "duplicated",
        "excluded",
        "late",
        "moved",
        "slow",
        "split",
        "wiped",
    ] {
        assert!(
            tally.faults.0.get(name).is_some_and(|count| *count > 0),
            "no run had the fault `{name}`"
        );
    }
    assert!(
        tally.fast * 5 > tally.answered,
        "one round is the common case"
    );
}
