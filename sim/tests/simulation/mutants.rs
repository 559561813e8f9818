//! Every rule that is broken on purpose must be detected by the simulation.
//!
//! Each mutant has a seed in `PLAN` that is known to show it; a change of the protocol or of the
//! simulation affects what seeds do. Then find new seeds with `cargo run --release -p torc-sim --
//! mutants --plan`, and copy its output.

use torc_replication::{Mutation, Mutations};
use torc_sim::{PLAN, Trace, plan_of, run};

#[test]
fn every_mutant_is_caught_by_its_known_seed() {
    let missed: Vec<_> = PLAN
        .into_iter()
        .filter(|hunt| {
            let mutations = Mutations::only(hunt.mutation);
            let report = run(hunt.known, hunt.profile, mutations, Trace::hashing());
            report.violation.is_none()
        })
        .collect();
    assert!(missed.is_empty(), "remake the plan: {missed:?}");
}

#[test]
fn such_seeds_show_nothing_while_the_rules_hold() {
    for hunt in PLAN.into_iter().step_by(4) {
        let report = run(hunt.known, hunt.profile, Mutations::NONE, Trace::hashing());
        assert_eq!(report.violation, None, "{hunt:?}");
    }
}

#[test]
fn every_mutation_has_a_plan() {
    for mutation in Mutation::ALL {
        assert!(plan_of(mutation).is_some(), "{mutation:?}");
    }
}
