//! `kvctl doctor` with real processes and real problems.

use std::collections::BTreeSet;
use std::process::Output;

use crate::processes::{Cluster, Kvd, prepare_cluster, until};

/// The checks with findings, except for the disk space of this machine.
fn checks(output: &Output) -> BTreeSet<String> {
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = told["findings"].as_array().unwrap().iter();
    let checks = findings.map(|it| it["check"].as_str().unwrap().to_owned());
    checks.filter(|check| check != "disk").collect()
}

fn doctor(cluster: &Cluster) -> Output {
    cluster.kvctl(&["doctor", "--output", "json"])
}

fn set<const N: usize>(checks: [&str; N]) -> BTreeSet<String> {
    checks.map(str::to_owned).into()
}

/// Three nodes, each with its own flags.
async fn three(flags: [&[&str]; 3], change: impl FnOnce(&mut [Kvd])) -> Cluster {
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = prepare_cluster(dir.path(), 3, &["--partitions=64"]);
    for (node, flags) in nodes.iter_mut().zip(flags) {
        node.flags
            .extend(flags.iter().map(|flag| (*flag).to_owned()));
    }
    change(&mut nodes);
    Kvd::serve(&mut nodes).await.unwrap();
    Cluster { nodes, dir }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_cluster_passes_and_a_dead_node_is_found() {
    let zones: [&[&str]; 3] = [&["--zone=a"], &["--zone=b"], &["--zone=c"]];
    let mut cluster = three(zones, |_| {}).await;
    until("nothing is wrong", async || {
        checks(&doctor(&cluster)).is_empty()
    })
    .await;
    cluster.nodes[2].kill_9();
    let mut told = doctor(&cluster);
    until("the dead node is found", async || {
        told = doctor(&cluster);
        checks(&told) == set(["dead_node", "under_replicated"])
    })
    .await;
    assert_eq!(told.status.code(), Some(4));
    let text = cluster.kvctl(&["doctor"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.starts_with("CRITICAL  node 3 ("),
        "the worst comes first: {text}"
    );
    assert!(
        text.contains("kvctl replace-node 3 HOST:PORT --dead"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_clock_one_zone_one_replica_and_an_open_door_are_found() {
    let shift = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(shift.path(), "2000").unwrap();
    let cluster = three([&[], &["--insecure"], &[]], |nodes| {
        let port = nodes[1].resp.port();
        let advertised = format!("127.0.0.1:{port}");
        nodes[1].resp = ([0, 0, 0, 0], port).into();
        nodes[1].variable("TORC_ADVERTISE_RESP_ADDR", &advertised);
        let file = shift.path().display().to_string();
        nodes[2].variable("TORC_TEST_CLOCK_SHIFT", &file);
    })
    .await;
    let create = ["namespace", "create", "cache", "--replicas", "1"];
    assert!(cluster.kvctl(&create).status.success());
    let expected = set(["clock_skew", "zones", "few_replicas", "exposed"]);
    let mut told = doctor(&cluster);
    until("all of it is found", async || {
        told = doctor(&cluster);
        checks(&told) == expected
    })
    .await;
    assert_eq!(told.status.code(), Some(4));
    let text = String::from_utf8(cluster.kvctl(&["doctor"]).stdout).unwrap();
    for part in [
        "all 3 nodes are in one zone, `default`",
        "namespace `cache` has one replica",
        "node 2 serves resp to other machines without TLS",
        "the clocks of the nodes differ by 20",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}
