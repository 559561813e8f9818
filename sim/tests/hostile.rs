//! Hostile clients against real processes, each kind at least once.
//!
//! `TORC_HOSTILE_ROUNDS` sets how often each kind runs, 1 by default.
#![cfg(feature = "cluster")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

/// The output of `torc-sim hostile`, and whether it succeeded.
fn hostile(args: &[&str]) -> (bool, String) {
    let run = Command::new(env!("CARGO_BIN_EXE_torc-sim"))
        .args(["hostile", "--json"])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&run.stdout);
    let errors = String::from_utf8_lossy(&run.stderr);
    (run.status.success(), format!("{told}{errors}"))
}

/// The names of kinds, and whether the service is known not to withstand them.
fn kinds() -> Vec<(String, bool)> {
    let (_, told) = hostile(&["--list"]);
    let kinds = told.lines().map(|line| {
        let kind: serde_json::Value = serde_json::from_str(line).unwrap();
        (
            kind["kind"].as_str().unwrap().to_owned(),
            !kind["known"].is_null(),
        )
    });
    kinds.collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test may be told how long to run"
)]
fn rounds() -> String {
    std::env::var("TORC_HOSTILE_ROUNDS").unwrap_or_else(|_| "1".to_owned())
}

#[test]
fn there_are_many_kinds_and_each_has_a_name_of_its_own() {
    let kinds = kinds();
    let names: BTreeSet<_> = kinds.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), kinds.len(), "a name is given twice");
    // Kinds that do not follow from the descriptors are listed one by one.
    let of_doors = [
        "h2.", "flood.", "grpc.", "http.", "link.", "raft.", "resp.", "sockets.",
    ];
    let by_hand = names
        .iter()
        .filter(|name| of_doors.iter().any(|door| name.starts_with(door)));
    assert!(by_hand.count() >= 60);
    for rpc in [
        "kv.put.",
        "cluster.sketch-keys.",
        "replica.link.",
        "topology-group.vote.",
    ] {
        assert!(
            names.iter().any(|name| name.starts_with(rpc)),
            "{rpc} is not covered"
        );
    }
}

/// The rows of the README's table: the beginnings of names, and how many kinds have them.
fn rows_of_the_readme() -> Vec<(Vec<String>, usize)> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = std::fs::read_to_string(readme).unwrap();
    let (_, table) = text.split_once("\n| names | kinds |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let rows = table.lines().skip(2).map(|row| {
        let cells: Vec<&str> = row.split(" | ").collect();
        let names = cells[0].split('`').skip(1).step_by(2);
        let names = names.map(|name| name.strip_suffix('*').unwrap().to_owned());
        (names.collect(), cells[1].parse().unwrap())
    });
    rows.collect()
}

#[test]
fn the_documents_count_every_kind() {
    let kinds = kinds();
    let mut counted = 0;
    for (beginnings, number) in rows_of_the_readme() {
        let fits = |name: &str| beginnings.iter().any(|it| name.starts_with(it));
        let found = kinds.iter().filter(|(name, _)| fits(name)).count();
        assert_eq!(found, number, "{beginnings:?}");
        counted += number;
    }
    assert_eq!(counted, kinds.len(), "the table of README.md lacks some");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(root.join(document)).unwrap();
        let said = format!("{counted} kinds of hostile clients");
        assert!(text.contains(&said), "{document}: {said}");
    }
}

#[test]
fn hostile_clients_are_refused_while_an_honest_one_is_served() {
    every_kind_fails(&[]);
}

/// A client that may read, write and observe turns hostile.
#[test]
fn hostile_customers_of_a_cluster_with_tls_are_refused_too() {
    every_kind_fails(&["--secure", "customer"]);
}

#[test]
fn hostile_strangers_to_a_cluster_with_tls_are_refused_too() {
    every_kind_fails(&["--secure", "stranger"]);
}

fn every_kind_fails(as_whom: &[&str]) {
    let kvd = torc_testkit::program("kvd").unwrap();
    let kvd = kvd.to_str().unwrap();
    // More than the default, because an unoptimised node frees memory later.
    let budget = ["--budget-mib", "768"];
    let args = [
        "--seed",
        "7",
        "--rest-seconds",
        "2",
        "--connections",
        "8",
        "--kvd",
        kvd,
    ];
    let args = [&args[..], &budget, as_whom].concat();
    let (is_good, told) = hostile(&[&args[..], &["--rounds", &rounds()]].concat());
    let report: serde_json::Value = serde_json::from_str(&told).unwrap_or_default();
    let is_empty = |field: &str| {
        let object = &report[field];
        object.as_object().is_some_and(serde_json::Map::is_empty)
            || object.as_array().is_some_and(Vec::is_empty)
    };
    assert!(is_empty("unexpected"), "not as expected: {told}");
    assert!(is_empty("troubles"), "{told}");
    assert!(is_good, "{told}");
    assert_eq!(report["lost"], 0, "{told}");
    assert!(
        report["under"]["acknowledged_writes"].as_u64() > Some(0),
        "nobody was served: {told}"
    );
    for (kind, is_known) in kinds() {
        assert!(
            is_known || report["kinds"].get(&kind).is_some(),
            "{kind} was not run"
        );
    }
    for node in report["memory"].as_array().unwrap() {
        assert!(
            node["grown_mib"].as_u64() <= report["budget_mib"].as_u64(),
            "{told}"
        );
    }
}

#[test]
fn a_run_of_requests_ends_when_the_nodes_have_received_them() {
    let kvd = torc_testkit::program("kvd").unwrap();
    let kvd = kvd.to_str().unwrap();
    let args = [
        "--requests",
        "5000",
        "--only",
        "names.kv,route,h2.ping",
        "--rest-seconds",
        "1",
    ];
    let (is_good, told) = hostile(&[&args[..], &["--kvd", kvd]].concat());
    let report: serde_json::Value = serde_json::from_str(&told).unwrap_or_default();
    assert!(is_good, "{told}");
    let requests = report["requests"].as_u64();
    assert!(
        (5_000..6_000).contains(&requests.unwrap()),
        "at most what was in flight is more: {told}"
    );
    assert!(
        report["fewest_of_a_fast_kind"]["requests"].is_u64(),
        "{told}"
    );
    let dealt =
        report["kinds"].as_object().unwrap().len() as u64 * report["rounds"].as_u64().unwrap();
    assert!(
        requests > Some(2 * dealt),
        "a go is more than one request: {told}"
    );
}
