//! Clusters whose partitions have three replicas: nobody is missed, and nothing moves unseen.

use std::collections::BTreeSet;

use crate::join::{fill, settled, some_traffic};
use crate::processes::{Cluster, Node, http_get, ready, until};
use crate::traffic::Traffic;

/// Few partitions: what is shown does not depend on their number, what it takes does.
const THREE: [&str; 2] = ["--replicas=3", "--partitions=256"];
const FILLER: usize = 2_000;

/// What a dump of the cluster has, line by line.
fn dumped(cluster: &Cluster) -> BTreeSet<String> {
    let dump = cluster.kvctl(&["dump"]);
    assert!(dump.status.success(), "{dump:?}");
    let text = String::from_utf8(dump.stdout).unwrap();
    text.lines()
        .filter(|line| line.contains("filler-"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_killed_takes_nothing_with_it_and_catches_up() {
    let mut cluster = Cluster::start_with(3, &THREE).await;
    let client = cluster.client().await;
    fill(&client, FILLER).await;
    let before = dumped(&cluster);
    assert_eq!(before.len(), FILLER);

    cluster.nodes[2].kill_9();
    assert_eq!(dumped(&cluster), before, "two of three have everything");
    let put = cluster.kvctl(&["put", "while-away", "written"]);
    assert!(put.status.success(), "{put:?}");
    let unmet = cluster.kvctl(&["put", "while-away", "again", "--if-absent"]);
    assert_eq!(unmet.status.code(), Some(4), "{unmet:?}");

    cluster.nodes[2].start();
    ready(&cluster.nodes[2]).await;
    // Now the one that was away is needed for every quorum.
    cluster.nodes[0].kill_9();
    let endpoints = cluster.endpoints();
    let got = crate::processes::kvctl(&endpoints[1..], &["get", "while-away"]);
    assert_eq!(got.stdout, b"written", "{got:?}");
    cluster.nodes[1].kill_9();
    let alone = crate::processes::kvctl(&endpoints[2..], &["--timeout", "2s", "get", "while-away"]);
    assert_eq!(
        alone.status.code(),
        Some(3),
        "one of three is no quorum: {alone:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_three_replicas_a_join_and_a_leave_fail_nothing_and_lose_nothing() {
    let mut cluster = Cluster::start_with(3, &THREE).await;
    let client = cluster.client().await;
    fill(&client, FILLER).await;
    let before = dumped(&cluster);
    let spare = cluster.spare_with("node-4", &THREE).await;
    let address = cluster.nodes[spare].grpc.to_string();
    let traffic = Traffic::start(&client, "t", 400);
    some_traffic(&traffic).await;

    let join = cluster.kvctl(&["join-node", &address]);
    assert!(join.status.success(), "{join:?}");
    settled(&client, 4).await;
    some_traffic(&traffic).await;
    let leave = cluster.kvctl(&["leave-node", "2"]);
    assert!(leave.status.success(), "{leave:?}");
    settled(&client, 3).await;
    some_traffic(&traffic).await;

    traffic.stop(&client).await.assert_hardly_in_doubt();
    assert_eq!(dumped(&cluster), before);
}

/// A counter or gauge of a node without labels.
async fn metric(node: &Node, name: &str) -> u64 {
    let text = http_get(node.http, "/metrics").await.1;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|rest| rest.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Most keys of these nodes are sealed.
async fn sealed(nodes: &[&Node]) {
    for node in nodes {
        until("most keys are sealed", async || {
            metric(node, "torc_store_sealed_keys ").await > 6_000
        })
        .await;
    }
}

/// What a newcomer holds came as slices, not record by record through its log.
async fn holds_slices(newcomer: &Node, at_least: u64) {
    let held = metric(newcomer, "torc_store_records ").await;
    assert!(held > at_least, "it holds {held}");
    let logged = metric(newcomer, "torc_store_log_records_total ").await;
    assert!(
        logged < held / 2,
        "of {held} records {logged} were logged, the others came sealed"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_three_replicas_a_join_moves_slices_as_they_are() {
    let mut cluster = Cluster::start_with(3, &THREE).await;
    let client = cluster.client().await;
    fill(&client, 8_000).await;
    let before = dumped(&cluster);
    sealed(&cluster.nodes.iter().collect::<Vec<_>>()).await;
    let spare = cluster.spare_with("node-4", &THREE).await;
    let address = cluster.nodes[spare].grpc.to_string();
    let join = cluster.kvctl(&["join-node", &address]);
    assert!(join.status.success(), "{join:?}");
    settled(&client, 4).await;
    // Three of four parts of all.
    holds_slices(&cluster.nodes[spare], 5_000).await;
    assert_eq!(dumped(&cluster), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_merges_several_replicas_takes_their_slices_as_they_are() {
    let mut cluster = Cluster::start_with(2, &THREE).await;
    let client = cluster.client().await;
    fill(&client, 8_000).await;
    let before = dumped(&cluster);
    sealed(&[&cluster.nodes[0], &cluster.nodes[1]]).await;
    // A third copy displaces nobody: it is what a majority of two holds together.
    let third = cluster.spare_with("node-3", &THREE).await;
    let address = cluster.nodes[third].grpc.to_string();
    let join = cluster.kvctl(&["join-node", &address]);
    assert!(join.status.success(), "{join:?}");
    settled(&client, 3).await;
    holds_slices(&cluster.nodes[third], 7_999).await;
    assert_eq!(dumped(&cluster), before);

    // Nor does the dead tell its successor anything.
    cluster.nodes[0].kill_9();
    let fourth = cluster.spare_with("node-4", &THREE).await;
    let address = cluster.nodes[fourth].grpc.to_string();
    let replace = ["replace-node", "1", &address, "--dead"];
    until("its death is seen", async || {
        cluster.kvctl(&replace).status.success()
    })
    .await;
    settled(&client, 3).await;
    holds_slices(&cluster.nodes[fourth], 7_999).await;
    assert_eq!(dumped(&cluster), before);
}

/// What a namespace has, line by line.
fn dumped_of(cluster: &Cluster, namespace: &str) -> BTreeSet<String> {
    let dump = cluster.kvctl(&["--namespace", namespace, "dump"]);
    assert!(dump.status.success(), "{dump:?}");
    let text = String::from_utf8(dump.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_keep_their_own_number_of_replicas_and_force_replaces_what_they_wait_for() {
    let mut cluster = Cluster::start_with(3, &THREE).await;
    let client = cluster.client().await;
    let too_many = cluster.kvctl(&["namespace", "create", "five", "--replicas", "5"]);
    assert_eq!(too_many.status.code(), Some(6), "{too_many:?}");
    let file = cluster.dir.path().join("records.ndjson");
    let records = (0..FILLER).map(|n| format!("{{\"key\":\"filler-{n}\",\"value\":\"v{n}\"}}\n"));
    std::fs::write(&file, records.collect::<String>()).unwrap();
    for (name, replicas) in [("one", "1"), ("two", "2")] {
        let created = ["namespace", "create", name, "--replicas", replicas];
        assert!(cluster.kvctl(&created).status.success());
        let load = ["--namespace", name, "load", file.to_str().unwrap()];
        let loaded = cluster.kvctl(&load);
        assert!(loaded.status.success(), "{loaded:?}");
    }
    fill(&client, FILLER).await;
    let all = |cluster: &Cluster| ["default", "one", "two"].map(|name| dumped_of(cluster, name));
    let before = all(&cluster);
    assert!(before.iter().all(|dump| dump.len() == FILLER));

    let fourth = cluster.spare_with("node-4", &THREE).await;
    let address = cluster.nodes[fourth].grpc.to_string();
    let join = cluster.kvctl(&["join-node", &address]);
    assert!(join.status.success(), "{join:?}");
    settled(&client, 4).await;
    let leave = cluster.kvctl(&["leave-node", "2"]);
    assert!(leave.status.success(), "{leave:?}");
    settled(&client, 3).await;
    assert!(all(&cluster) == before, "nothing was lost on the way");

    cluster.nodes[2].kill_9();
    let fifth = cluster.spare_with("node-5", &THREE).await;
    let address = cluster.nodes[fifth].grpc.to_string();
    let replace = ["replace-node", "3", &address, "--dead"];
    until("its death is seen, and that it is missed", async || {
        let refused = cluster.kvctl(&replace);
        String::from_utf8_lossy(&refused.stderr).contains("force it")
    })
    .await;
    let replaced = cluster.kvctl(&[&replace[..], &["--force"]].concat());
    assert!(replaced.status.success(), "{replaced:?}");
    settled(&client, 3).await;
    let [default, one, two] = all(&cluster);
    assert!(default == before[0] && two == before[2], "a copy was left");
    assert!(one.is_subset(&before[1]) && !one.is_empty() && one.len() < FILLER);
    let put = ["--namespace", "one", "load", file.to_str().unwrap()];
    assert!(
        cluster.kvctl(&put).status.success(),
        "it takes writes again"
    );
    assert!(dumped_of(&cluster, "one") == before[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_three_nodes_lost_for_good_are_recovered_from_the_third() {
    let mut cluster = Cluster::start_with(3, &THREE).await;
    let client = cluster.client().await;
    fill(&client, 1_000).await;
    let running = cluster.nodes[2].recover();
    assert!(!running.status.success(), "it runs: {running:?}");

    for lost in [0, 1] {
        cluster.nodes[lost].wipe(&[]);
    }
    assert_eq!(cluster.nodes[2].terminate(), Some(0));
    let recovered = cluster.nodes[2].recover();
    assert!(recovered.status.success(), "{recovered:?}");
    let told = String::from_utf8_lossy(&recovered.stdout).into_owned();
    assert!(told.contains("before: 1, 2, 3"), "{told}");
    cluster.nodes[2].start();

    let fourth = cluster.spare_with("node-4", &THREE).await;
    let address = cluster.nodes[fourth].grpc.to_string();
    let force = ["--dead", "--force"];
    let replace = [&["replace-node", "1", &address][..], &force].concat();
    let mut plan = String::new();
    until("the third tells what is lost", async || {
        let planned = cluster.kvctl(&[&replace[..], &["--plan"]].concat());
        plan = String::from_utf8_lossy(&planned.stdout).into_owned();
        planned.status.success()
    })
    .await;
    assert!(plan.contains("without nodes 1, 2 (dead"), "{plan}");
    assert!(
        plan.contains("3 replicas: 0 keep a majority, 256 have fewer left, 0 have none"),
        "{plan}"
    );
    let replaced = cluster.kvctl(&[&replace[..], &["--no-wait"]].concat());
    assert!(replaced.status.success(), "{replaced:?}");

    // The replacement waits for the second, which is not known to be lost.
    let leave = [&["leave-node", "2"][..], &force].concat();
    let plan = cluster.kvctl(&[&leave[..], &["--plan"]].concat());
    let plan = String::from_utf8_lossy(&plan.stdout).into_owned();
    assert!(plan.contains("256 have fewer left"), "{plan}");
    assert!(plan.contains("has to end before"), "{plan}");
    let refused = cluster.kvctl(&leave);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(6), "{why}");
    assert!(why.contains("node 2 is written off"), "{why}");
    until(
        "the replacement has ended and the second left",
        async || cluster.kvctl(&leave).status.success(),
    )
    .await;
    settled(&client, 2).await;
    let keys = (0..1_000).map(|n| format!("filler-{n}"));
    let values = client.batch_get(keys).await.unwrap();
    assert_eq!(values.len(), 1_000);
    for (n, value) in values.into_iter().enumerate() {
        let value = value.unwrap().expect("every key came back");
        assert_eq!(value.value, vec![n as u8; 512], "filler-{n}");
    }
    let put = cluster.kvctl(&["put", "after", "written"]);
    assert!(put.status.success(), "{put:?}");
    let got = cluster.kvctl(&["get", "after"]);
    assert_eq!(got.stdout, b"written", "{got:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_founded_with_one_replica_has_a_namespace_that_outlives_a_node() {
    let mut cluster = Cluster::start_with(3, &["--replicas=1", "--partitions=256"]).await;
    let created = cluster.kvctl(&["namespace", "create", "safe", "--replicas", "3"]);
    assert!(created.status.success(), "{created:?}");
    let file = cluster.dir.path().join("records.ndjson");
    let records = (0..500).map(|n| format!("{{\"key\":\"k{n}\",\"value\":\"v{n}\"}}\n"));
    std::fs::write(&file, records.collect::<String>()).unwrap();
    let load = ["--namespace", "safe", "load", file.to_str().unwrap()];
    let loaded = cluster.kvctl(&load);
    assert!(loaded.status.success(), "{loaded:?}");
    cluster.nodes[2].kill_9();
    for number in (0..500).step_by(25) {
        let key = format!("k{number}");
        let got = cluster.kvctl(&["--namespace", "safe", "get", &key]);
        assert_eq!(got.stdout, format!("v{number}").as_bytes(), "{got:?}");
    }
    let loaded = cluster.kvctl(&load);
    assert!(loaded.status.success(), "it takes writes: {loaded:?}");
}
