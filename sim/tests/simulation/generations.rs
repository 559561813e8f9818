//! Generations of static namespaces: seeds with all rules intact, and with each rule broken.
//!
//! `TORC_SIM_SEEDS` sets the number of seeds.

#![allow(clippy::panic, reason = "a test fails where it panics")]

use torc_sim::generations::{Broken, Summary, run};

#[expect(
    clippy::disallowed_methods,
    reason = "long runs are asked for by the environment"
)]
fn count() -> u64 {
    let set = std::env::var("TORC_SIM_SEEDS").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(300)
}

#[test]
fn with_every_rule_holding_no_seed_shows_a_violation() {
    let mut all = Summary::default();
    for seed in 0..count() {
        let one = run(seed, None);
        assert_eq!(one.violation, None, "seed {seed}");
        all.gets += one.gets;
        all.switches += one.switches;
        all.transitions += one.transitions;
    }
    // Checks would be useless if nothing happened.
    assert!(all.gets > 5 * count() && all.switches > count(), "{all:?}");
    assert!(all.transitions > count() / 2, "{all:?}");
}

/// A node that had left answered from its old state; nodes that are no longer members are now
/// stopped. A late report made a node ready that had got a lost node's partition (37).
#[test]
fn seeds_that_showed_a_violation_once_show_none() {
    for seed in [10_061, 13_719, 37] {
        assert_eq!(run(seed, None).violation, None, "seed {seed}");
    }
}

#[test]
fn each_broken_rule_is_noticed() {
    for broken in Broken::ALL {
        let noticed = (0..2_000).find(|seed| run(*seed, Some(broken)).violation.is_some());
        assert!(noticed.is_some(), "{broken:?} is not noticed");
    }
}
