//! Clusters whose partitions have three replicas: clients do not notice a lost node, and every move
//! is reported.

#![allow(clippy::cast_possible_truncation, reason = "tests count small numbers")]

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use torc_client::{Client, ErrorKind, NamespaceMode, ScanOptions};
use torc_proto::Fault;
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::{GetRequest, PutRequest};
use torc_record::{Digest, NamespaceId};
use torc_ring::NodeId;
use torc_ring::topology::RoutingTable;

use crate::join::{fill, some_traffic, transition_ended};
use crate::processes::{Cluster, Kvd, kvd_path, metric, until, until_or};
use crate::traffic::Traffic;

/// Few partitions: the results do not depend on their number, the duration does.
const THREE: [&str; 2] = ["--replicas=3", "--partitions=256"];
const FILLER: usize = 2_000;

/// A dump of the cluster, as a set of lines.
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

    cluster.nodes[2].start().unwrap();
    cluster.nodes[2].ready().await.unwrap();
    // Now every quorum needs the node that was away.
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
    transition_ended(&client, 4).await;
    some_traffic(&traffic).await;
    let leave = cluster.kvctl(&["leave-node", "2"]);
    assert!(leave.status.success(), "{leave:?}");
    transition_ended(&client, 3).await;
    some_traffic(&traffic).await;

    traffic.stop(&client).await.assert_hardly_in_doubt();
    assert_eq!(dumped(&cluster), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_batch_of_gets_is_one_request_to_the_nodes_in_turn_or_goes_to_the_leads() {
    let mut cluster = Cluster::start_with(3, &THREE).await;
    let client = cluster.client().await;
    fill(&client, 100).await;
    let keys: Vec<usize> = (0..100).collect();
    let batches = "torc_operation_seconds_count{operation=\"batch_get\"} ";
    for node in &cluster.nodes {
        assert_eq!(metric(node, batches).await, 0);
    }
    for _ in 0..3 {
        all_read(&client, &keys, true).await;
    }
    for node in &cluster.nodes {
        assert_eq!(metric(node, batches).await, 1);
    }
    let made = client.create_namespace("recent", NamespaceMode::Eventual, None);
    made.await.unwrap();
    let recent = client.namespace("recent");
    recent
        .batch_get(keys.iter().map(ToString::to_string))
        .await
        .unwrap();
    for node in &cluster.nodes {
        assert_eq!(
            metric(node, batches).await,
            2,
            "its leads have the latest writes"
        );
    }
    cluster.nodes[1].kill_9();
    for _ in 0..3 {
        all_read(&client, &keys, true).await;
    }
}

/// Seals the 8,000 keys of these nodes. A replica may get the last of them after a flush.
async fn seal(cluster: &Cluster, nodes: &[&Kvd]) {
    for node in nodes {
        until("all keys are sealed", async || {
            let flush = cluster.kvctl(&["flush"]);
            assert!(flush.status.success(), "{flush:?}");
            metric(node, "torc_store_sealed_keys ").await >= 8_000
        })
        .await;
    }
}

/// Checks that a newcomer got slices, not single records through its log.
async fn holds_slices(newcomer: &Kvd, at_least: u64) {
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
    seal(&cluster, &cluster.nodes.iter().collect::<Vec<_>>()).await;
    let spare = cluster.spare_with("node-4", &THREE).await;
    let address = cluster.nodes[spare].grpc.to_string();
    let join = cluster.kvctl(&["join-node", &address]);
    assert!(join.status.success(), "{join:?}");
    transition_ended(&client, 4).await;
    // Three quarters of all.
    holds_slices(&cluster.nodes[spare], 5_000).await;
    assert_eq!(dumped(&cluster), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_merges_several_replicas_takes_their_slices_as_they_are() {
    let mut cluster = Cluster::start_with(2, &THREE).await;
    let client = cluster.client().await;
    fill(&client, 8_000).await;
    let before = dumped(&cluster);
    seal(&cluster, &[&cluster.nodes[0], &cluster.nodes[1]]).await;
    // A third copy displaces no node: it is what the majority of two holds together.
    let third = cluster.spare_with("node-3", &THREE).await;
    let address = cluster.nodes[third].grpc.to_string();
    let join = cluster.kvctl(&["join-node", &address]);
    assert!(join.status.success(), "{join:?}");
    transition_ended(&client, 3).await;
    holds_slices(&cluster.nodes[third], 7_999).await;
    assert_eq!(dumped(&cluster), before);

    // A dead node cannot transfer anything to its successor.
    cluster.nodes[0].kill_9();
    let fourth = cluster.spare_with("node-4", &THREE).await;
    let address = cluster.nodes[fourth].grpc.to_string();
    let replace = ["replace-node", "1", &address, "--dead"];
    until("its death is seen", async || {
        cluster.kvctl(&replace).status.success()
    })
    .await;
    transition_ended(&client, 3).await;
    holds_slices(&cluster.nodes[fourth], 7_999).await;
    assert_eq!(dumped(&cluster), before);
}

/// A dump of a namespace, as a set of lines.
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
    transition_ended(&client, 4).await;
    let leave = cluster.kvctl(&["leave-node", "2"]);
    assert!(leave.status.success(), "{leave:?}");
    transition_ended(&client, 3).await;
    assert!(all(&cluster) == before, "nothing was lost on the way");

    cluster.nodes[2].kill_9();
    let fifth = cluster.spare_with("node-5", &THREE).await;
    let address = cluster.nodes[fifth].grpc.to_string();
    let replace = ["replace-node", "3", &address, "--dead"];
    until("its death is seen, and that it is missed", async || {
        let refused = cluster.kvctl(&replace);
        String::from_utf8_lossy(&refused.stderr).contains("force the change")
    })
    .await;
    let replaced = cluster.kvctl(&[&replace[..], &["--force"]].concat());
    assert!(replaced.status.success(), "{replaced:?}");
    transition_ended(&client, 3).await;
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

/// Founds the topology group again from this stopped node, or only shows the plan.
fn try_to_recover(node: &Kvd, flags: &[&str]) -> Output {
    let mut recover = Command::new(kvd_path());
    recover.args(["recover", "--data-dir"]).arg(&node.data);
    recover.args(flags).output().unwrap()
}

/// The output of `kvd recover`.
fn recover(node: &Kvd, flags: &[&str]) -> String {
    let recovered = try_to_recover(node, flags);
    assert!(recovered.status.success(), "{recovered:?}");
    String::from_utf8(recovered.stdout).unwrap()
}

/// The end of a node's topology log in a preview: term and entry.
fn log_end(preview: &str) -> (u64, u64) {
    let end = preview.split_once("ends with term ").unwrap().1;
    let (end, _) = end.split_once('\n').unwrap();
    let (term, entry) = end.split_once(", entry ").unwrap();
    (term.parse().unwrap(), entry.parse().unwrap())
}

/// Waits until these keys all have their values, or none.
/// The nodes that have a key of [`fill`].
fn replicas_of(table: &RoutingTable, n: usize) -> Vec<NodeId> {
    let key = format!("filler-{n}");
    let digest = Digest::of(&table.digest_key, NamespaceId::DEFAULT, key.as_bytes());
    let state = table.state(table.partition_of(NamespaceId::DEFAULT, &digest));
    state.unwrap().nodes.to_vec()
}

async fn all_read(client: &Client, keys: &[usize], present: bool) {
    until("every key is read", async || {
        let names = keys.iter().map(|n| format!("filler-{n}"));
        let Ok(values) = client.batch_get(names).await else {
            return false;
        };
        values.into_iter().zip(keys).all(|(value, n)| {
            let Ok(value) = value else { return false };
            let expected = present.then(|| vec![*n as u8; 512]);
            assert_eq!(value.map(|it| it.value.to_vec()), expected, "filler-{n}");
            true
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_of_five_nodes_lost_for_good_are_recovered_from_the_others() {
    const KEYS: usize = 1_000;
    let mut cluster = Cluster::start_with(5, &THREE).await;
    let client = cluster.client().await;
    fill(&client, KEYS).await;
    until("every replica has every record", async || {
        let mut records = 0;
        for node in &cluster.nodes {
            records += metric(node, "torc_store_records ").await;
        }
        records as usize == 3 * KEYS
    })
    .await;
    let table = client.topology().await.unwrap();
    let (kept, lost): (Vec<usize>, Vec<usize>) = (0..KEYS).partition(|n| {
        let nodes = replicas_of(&table, *n);
        nodes.iter().any(|node| node.0 >= 4)
    });
    assert!(kept.len() > KEYS / 2 && !lost.is_empty());

    let running = try_to_recover(&cluster.nodes[3], &["--force"]);
    let why = String::from_utf8_lossy(&running.stderr).into_owned();
    assert!(!running.status.success(), "it runs: {running:?}");
    assert!(why.contains("Nothing was changed"), "{why}");
    for lost in 0..3 {
        cluster.nodes[lost].wipe().unwrap();
    }
    for survivor in [3, 4] {
        assert_eq!(cluster.nodes[survivor].terminate().unwrap(), Some(0));
    }
    let end_of = |at: usize| log_end(&recover(&cluster.nodes[at], &[]));
    let (first, second) = if end_of(3) >= end_of(4) {
        (3, 4)
    } else {
        (4, 3)
    };
    let keep = format!("--keep={}", second + 1);
    let preview = recover(&cluster.nodes[first], &[&keep]);
    assert!(preview.contains("kept:             4, 5\n"), "{preview}");
    assert!(preview.contains("written off:      1, 2, 3\n"), "{preview}");
    let (shown, advice) = preview.split_once("\nNothing was changed").unwrap();
    assert!(advice.contains("--force"), "{preview}");
    let told = recover(&cluster.nodes[first], &[&keep, "--force"]);
    assert!(told.starts_with(shown), "what was shown is done: {told}");
    cluster.nodes[first].start().unwrap();
    cluster.nodes[second].start().unwrap();
    for survivor in [first, second] {
        cluster.nodes[survivor].ready().await.unwrap();
    }

    all_read(&client, &kept, true).await;
    let written = client.put(format!("filler-{}", kept[0]), vec![kept[0] as u8; 512]);
    written.await.unwrap();
    let mut empty = None;
    until("the status is that of the recovered cluster", async || {
        let Ok(status) = client.status().await else {
            return false;
        };
        assert_eq!(status.cluster_id, table.cluster);
        assert!(status.epoch.0 > table.epoch.0 + 1_000_000, "{status:?}");
        empty = status.without_quorum;
        let down = status.nodes.iter().filter(|node| !node.reachable);
        status.topology_leader == Some(NodeId(first as u64 + 1))
            && down.map(|node| node.member.id.0).eq([1, 2, 3])
            && empty.is_some_and(|empty| shown.contains(&format!(" {empty} keep none\n")))
    })
    .await;
    assert!(empty > Some(0), "the preview told how many have no replica");

    let sixth = cluster.spare_with("node-6", &THREE).await;
    let address = cluster.nodes[sixth].grpc.to_string();
    for change in [
        &["replace-node", "1", &address][..],
        &["leave-node", "2"],
        &["leave-node", "3"],
    ] {
        let changed = cluster.kvctl(&[change, &["--dead", "--force"]].concat());
        assert!(changed.status.success(), "{changed:?}");
    }
    transition_ended(&client, 3).await;
    all_read(&client, &kept, true).await;
    all_read(&client, &lost, false).await;
    fill(&client, KEYS).await;
    all_read(&client, &lost, true).await;
    until("every partition has all its replicas", async || {
        let status = client.status().await.ok();
        status.is_some_and(|it| (it.under_replicated, it.without_quorum) == (Some(0), Some(0)))
    })
    .await;
    assert!(cluster.kvctl(&["status"]).status.success());
}

/// Gets and puts a key at one node. Returns whether it did both, and panics unless it is certain.
async fn gets_and_puts(node: &mut KvClient<Channel>, n: usize) -> bool {
    let get = node.get(GetRequest {
        key: format!("filler-{n}").into(),
        ..GetRequest::default()
    });
    let got = get.await.map(|found| found.into_inner().value);
    let put = node.put(PutRequest {
        key: format!("filler-{n}").into(),
        value: vec![n as u8; 512].into(),
        ..PutRequest::default()
    });
    match (got, put.await) {
        (Ok(value), Ok(_)) => {
            assert_eq!(value, vec![n as u8; 512]);
            true
        }
        (Err(get), Err(put)) => {
            for refused in [get, put] {
                let fault = Fault::from_status(&refused);
                assert_eq!(refused.code(), Code::Unavailable, "{fault}");
                assert!(!fault.maybe_applied, "{fault}");
            }
            false
        }
        (got, put) => panic!("filler-{n}: {got:?}, {put:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_two_of_five_nodes_away_only_partitions_without_a_quorum_fail_and_at_once() {
    const KEYS: usize = 300;
    let mut cluster = Cluster::start_with(5, &THREE).await;
    let client = cluster.client().await;
    fill(&client, KEYS).await;
    let table = client.topology().await.unwrap();
    let has_quorum = |n: &usize| {
        let nodes = replicas_of(&table, *n);
        nodes.iter().filter(|it| it.0 <= 2).count() < 2
    };
    let (served, lost): (Vec<usize>, Vec<usize>) = (0..KEYS).partition(has_quorum);
    assert!(served.len() > KEYS / 2 && lost.len() > KEYS / 10);
    let survivor = connections(&cluster.nodes[2]).await;
    for away in 0..2 {
        cluster.nodes[away].kill_9();
    }
    let doubtful = puts_in_doubt(&survivor, &lost);
    for survivor in &cluster.nodes[2..] {
        let endpoint = Endpoint::from_shared(survivor.endpoint()).unwrap();
        let mut node = KvClient::connect(endpoint).await.unwrap();
        until("the node knows who is away", async || {
            !gets_and_puts(&mut node, lost[0]).await
        })
        .await;
        for n in &served {
            assert!(gets_and_puts(&mut node, *n).await, "filler-{n}");
        }
        let begun = Instant::now();
        for n in &lost {
            assert!(!gets_and_puts(&mut node, *n).await, "filler-{n}");
        }
        // Each request would wait for 5 s, the default of nodes.
        let took = begun.elapsed();
        assert!(
            took < Duration::from_secs(5 * lost.len() as u64),
            "{took:?}"
        );
    }
    drop(doubtful);
    let client = client.with_deadline(Duration::from_secs(10));
    the_library_gives_up_soon(&client, &lost).await;
}

/// Connections for more operations than a node has places.
async fn connections(node: &Kvd) -> Vec<KvClient<Channel>> {
    let mut nodes = Vec::new();
    for _ in 0..8 {
        let endpoint = Endpoint::from_shared(node.endpoint()).unwrap();
        nodes.push(KvClient::connect(endpoint).await.unwrap());
    }
    nodes
}

/// Sends more puts than a node has places, before it knows that their keys lack a quorum. With a minute of time each,
/// they would hold all places when others need them.
fn puts_in_doubt(nodes: &[KvClient<Channel>], keys: &[usize]) -> JoinSet<()> {
    const PUTS: usize = 1_600;
    let mut puts = JoinSet::new();
    for (n, node) in keys.iter().cycle().zip(nodes.iter().cycle()).take(PUTS) {
        let mut request = tonic::Request::new(PutRequest {
            key: format!("filler-{n}").into(),
            value: vec![*n as u8; 512].into(),
            ..PutRequest::default()
        });
        request.set_timeout(Duration::from_secs(60));
        let mut node = node.clone();
        puts.spawn(async move { drop(node.put(request).await) });
    }
    puts
}

/// The library asks a second node, and then gives up: in the usual time of an operation, nodes that have been away for
/// long are not back.
async fn the_library_gives_up_soon(client: &Client, lost: &[usize]) {
    let key = |n: usize| format!("filler-{n}");
    until("the nodes know that this lasts", async || {
        let failed = client.get(key(lost[0])).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Unavailable, "{failed}");
        failed.to_string().contains("for some time")
    })
    .await;
    let begun = Instant::now();
    for n in lost {
        let failed = client.get(key(*n)).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Unavailable, "{failed}");
        let failed = client.put(key(*n), "x").await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Unavailable, "{failed}");
    }
    let mut scan = client.scan(ScanOptions::default());
    let ended = loop {
        match scan.next().await.unwrap() {
            Ok(_) => {}
            Err(failed) => break failed,
        }
    };
    assert!(ended.to_string().contains("too few replicas"), "{ended}");
    // Each of them would have used the 10 s of an operation.
    let took = begun.elapsed();
    assert!(
        took < Duration::from_secs(5 * lost.len() as u64),
        "{took:?}"
    );
}

/// Flips a bit of every second of these keys' values in the slices of a running node. Returns their
/// number.
fn flip_values(node: &Kvd) -> usize {
    let mut flipped = 0;
    for entry in std::fs::read_dir(node.data.join("store")).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_name().to_string_lossy().starts_with("segment-") {
            continue;
        }
        let bytes = std::fs::read(entry.path()).unwrap();
        let file = std::fs::File::options().write(true).open(entry.path());
        let file = file.unwrap();
        let is_key = |at: &usize| bytes[*at..].starts_with(b"filler-");
        for key in (0..bytes.len()).filter(is_key).step_by(2) {
            let at = key + 100;
            if let Some(byte) = bytes.get(at) {
                file.write_all_at(&[byte ^ 1], at as u64).unwrap();
                flipped += 1;
            }
        }
    }
    flipped
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bits_that_flip_under_a_running_node_are_never_served_and_are_repaired() {
    let cluster = Cluster::start_with(3, &THREE).await;
    let client = cluster.client().await;
    fill(&client, FILLER).await;
    let before = dumped(&cluster);
    let node = &cluster.nodes[1];
    until("the node has every record", async || {
        metric(node, "torc_store_records ").await >= FILLER as u64
    })
    .await;
    assert!(cluster.kvctl(&["flush"]).status.success());
    let flipped = flip_values(node);
    assert!(flipped > FILLER / 3, "{flipped}");
    // The node itself coordinates these gets, and asks its own replica for values first.
    let endpoint = Endpoint::from_shared(node.endpoint()).unwrap();
    let mut kv = KvClient::connect(endpoint).await.unwrap();
    let mut damaged = 0;
    until("the node has found the damage", async || {
        for n in (0..FILLER).step_by(7) {
            let key = format!("filler-{n}").into();
            let get = kv.get(GetRequest {
                key,
                ..GetRequest::default()
            });
            assert_eq!(get.await.unwrap().into_inner().value, vec![n as u8; 512]);
        }
        damaged = metric(node, "torc_store_damaged_slices ")
            .await
            .max(damaged);
        damaged > 0
    })
    .await;
    let repaired = async || metric(node, "torc_store_damaged_slices ").await == 0;
    until_or("it is repaired", repaired, || node.log()).await;
    assert_eq!(dumped(&cluster), before);
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
