//! Real processes that are killed, stopped and cut off, while clients record what they see.
//!
//! `TORC_CLUSTER_SECONDS` sets the duration, 15 by default; `TORC_CLUSTER_MUTANT` names a rule that
//! all nodes break. One test needs root and network namespaces, and reports if it is skipped.
#![cfg(feature = "cluster")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Runs a cluster; returns whether it succeeded, its report, and all its output.
fn run(program: &str, args: &[&str]) -> (bool, serde_json::Value, String) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let run = Command::new(env!("CARGO_BIN_EXE_torc-sim"))
        .args(["cluster", "--json", "--kvd"])
        .arg(torc_testkit::program(program).unwrap())
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&run.stdout);
    let all = format!("{told}{}", String::from_utf8_lossy(&run.stderr));
    let report = serde_json::from_str(&told).unwrap_or_default();
    (run.status.success(), report, all)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test may be told how long to run, and what"
)]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[test]
fn every_key_is_linearizable_while_nodes_are_killed_stopped_and_cut_off() {
    let told = setting("TORC_CLUSTER_SECONDS");
    let seconds: f64 = told.and_then(|text| text.parse().ok()).unwrap_or(15.0);
    let minutes = (seconds / 60.0).to_string();
    let faults = ["--only", "kill,stop,cut,cut-one-way"];
    let args = [&["--seed", "15", "--minutes", &minutes], &faults[..]].concat();
    let (is_good, report, told) = run("kvd", &args);
    assert!(is_good, "{told}");
    assert_eq!(report["violations"], 0, "{told}");
    assert!(
        report["written"].as_u64() > Some(0),
        "nothing was tested: {told}"
    );
}

/// A node that had lost its questions to a peer sent it none any more, and never noticed that the peer was back.
#[test]
fn nodes_that_lose_messages_of_the_only_replica_of_a_key_reach_it_again() {
    let faults = ["--only", "cut", "--replicas", "1", "--clients", "6"];
    let args = [&["--seed", "501", "--minutes", "0.15"], &faults[..]].concat();
    let (is_good, report, told) = run("kvd", &args);
    assert!(is_good, "{told}");
    assert_eq!(report["violations"], 0, "{told}");
    assert_ne!(report["faults"]["cut"], 0, "nothing was tested: {told}");
}

/// Packets of nodes in network namespaces are cut and slowed, including those of the topology
/// group.
#[test]
fn every_key_is_linearizable_while_packets_of_nodes_are_lost() {
    let faults = ["--only", "cut,cut-one-way,deaf,halves,delay,kill"];
    let seconds = ["--seed", "23", "--minutes", "0.25", "--real-network"];
    let (is_good, report, told) = run("kvd", &[&seconds[..], &faults].concat());
    if told.contains("cannot create network namespaces") {
        eprintln!("skipped: {told}");
        return;
    }
    assert!(is_good, "{told}");
    assert_eq!(report["violations"], 0, "{told}");
    assert!(
        report["written"].as_u64() > Some(0),
        "nothing was tested: {told}"
    );
}

#[test]
fn no_get_is_answered_from_an_older_generation_while_nodes_are_killed_stopped_and_cut_off() {
    let faults = ["--only", "kill,stop,halves,group-halves", "--generations"];
    let (is_good, report, told) = run(
        "kvd",
        &[&["--seed", "31", "--minutes", "0.25"], &faults[..]].concat(),
    );
    assert!(is_good, "{told}");
    assert!(report["generations"].as_u64() > Some(1), "{told}");
    assert!(
        report["generation_answers"].as_u64() > Some(1_000),
        "{told}"
    );
}

#[test]
fn nodes_that_join_leave_and_are_replaced_lose_nothing() {
    let (is_good, report, told) = run("kvd", &["--changes", "2", "--seed", "3", "--clients", "4"]);
    assert!(is_good, "{told}");
    assert_eq!(report["violations"], 0, "{told}");
    assert!(report["written"].as_u64() > Some(0), "{told}");
}

/// A single run may miss it, because the behaviour depends on timing.
#[test]
fn a_cluster_that_breaks_a_rule_is_found_out() {
    let Some(rule) = setting("TORC_CLUSTER_MUTANT") else {
        eprintln!("skipped: TORC_CLUSTER_MUTANT=one-ack-quorum builds and runs such a cluster");
        return;
    };
    let mutants = ["--bin", "kvd-mutant", "--features", "torc-server/mutants"];
    torc_testkit::build(&[&["--workspace"], &mutants[..]].concat()).unwrap();
    let broken = ["--mutant", &rule, "--only", "cut,deaf,kill"];
    let mut told = String::new();
    for seed in ["1", "2", "3", "4", "5"] {
        let args = [&["--minutes", "0.25", "--seed", seed], &broken[..]].concat();
        let (is_good, report, all) = run("kvd-mutant", &args);
        if let Some(kept) = report["kept"].as_str() {
            // The reason of the failure is known, so the kept run is not needed.
            let _ = std::fs::remove_dir_all(kept);
        }
        if report["violations"].as_u64() > Some(0) {
            return assert!(!is_good, "a violation is a failure: {all}");
        }
        told.push_str(&all);
    }
    panic!("a broken rule was not missed: {told}");
}
