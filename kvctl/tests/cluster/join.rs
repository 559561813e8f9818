//! Joins and leaves under load, and with processes killed in the middle.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests count small numbers"
)]

use std::cell::RefCell;
use std::collections::BTreeMap;

use torc_client::{Client, ClusterStatus, SliceVerdict};
use torc_record::{Digest, NamespaceId};
use torc_ring::NodeId;
use torc_ring::topology::Stage;

use crate::processes::{Cluster, PARTITIONS, metric, until, until_or};
use crate::traffic::Traffic;

const KEYS: usize = 2_000;
const FILLER: usize = 4_000;

pub(crate) async fn fill(client: &Client, count: usize) {
    let records = (0..count).map(|n| (format!("filler-{n}"), vec![n as u8; 512]));
    for stored in client.batch_put(records).await.unwrap() {
        stored.unwrap();
    }
}

async fn status(client: &Client) -> ClusterStatus {
    let mut last = None;
    until("the cluster tells its status", async || {
        last = client.status().await.ok();
        last.is_some()
    })
    .await;
    last.unwrap()
}

pub(crate) async fn transition_ended(client: &Client, members: usize) {
    let last = RefCell::new(None);
    let settled = async || {
        let status = client.status().await;
        let settled = status.as_ref().is_ok_and(|status| {
            let active = status.nodes.iter().filter(|node| node.partitions > 0);
            status.transition.is_none()
                && status.last_transition.is_some()
                && active.count() == members
        });
        last.replace(Some(status));
        settled
    };
    until_or("the transition has ended", settled, || format!("{last:#?}")).await;
}

/// The filler keys in slices, each with the node that leads it.
async fn sealed_keys(client: &Client, count: usize) -> BTreeMap<String, NodeId> {
    let mut sealed = BTreeMap::new();
    for number in 0..count {
        let key = format!("filler-{number}");
        let found = client.explain(key.clone()).await.unwrap();
        if found.held_in.as_deref() == Some("slice") {
            let holding = found
                .slices
                .iter()
                .filter(|slice| slice.verdict == SliceVerdict::Holds);
            assert!(holding.count() > 0, "some slice says so: {found:?}");
            sealed.insert(key, found.answered_by);
        }
    }
    sealed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_moves_slices_as_they_are() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    fill(&client, 12_000).await;
    // The newcomer copies a partition from any of its replicas.
    for node in &cluster.nodes {
        until("the node has every record", async || {
            metric(node, "torc_store_records ").await >= 12_000
        })
        .await;
    }
    assert!(cluster.kvctl(&["flush"]).status.success());
    let before = sealed_keys(&client, 600).await;
    assert_eq!(before.len(), 600);
    let spare = cluster.spare("node-4").await;
    let address = cluster.nodes[spare].grpc.to_string();
    assert!(cluster.kvctl(&["join-node", &address]).status.success());
    transition_ended(&client, 4).await;
    let log = cluster.nodes[spare].log();
    assert!(log.contains(": serving epoch="), "{log}");
    assert!(!log.contains("has removed this node"), "{log}");

    let after = sealed_keys(&client, 600).await;
    let newcomer = status(&client).await.nodes[3].member.id;
    let moved = before
        .keys()
        .filter(|key| after.get(*key) == Some(&newcomer));
    assert!(
        moved.count() > 40,
        "of {} sealed keys a quarter should be in the newcomer's slices: it has logged too \
         little to have flushed them itself",
        before.len()
    );
    let kept = before.keys().filter(|key| !after.contains_key(*key));
    assert_eq!(kept.count(), 0, "what was sealed before comes sealed");
    for number in 0..600 {
        let value = client.get(format!("filler-{number}")).await.unwrap();
        assert_eq!(&value.unwrap().value[..], vec![number as u8; 512]);
    }
}

/// Waits until some partitions have moved and some have not.
async fn midway(client: &Client) {
    until("the join is under way", async || {
        let Ok(status) = client.status().await else {
            return false;
        };
        status
            .transition
            .is_some_and(|t| t.partitions_done > t.partitions_total / 8)
    })
    .await;
}

pub(crate) async fn some_traffic(traffic: &Traffic) {
    let before = traffic.done();
    until("traffic flows", async || traffic.done() > before + 500).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_node_joins_and_leaves_no_request_fails_and_no_read_is_older() {
    let mut cluster = Cluster::start_with(3, &["--replicas=1"]).await;
    let client = cluster.client().await;
    fill(&client, FILLER).await;
    let spare = cluster.spare("node-4").await;
    let address = cluster.nodes[spare].grpc.to_string();
    let traffic = Traffic::start(&client, "t", KEYS);
    some_traffic(&traffic).await;

    let plan = client.plan_join(&address).await.unwrap();
    let quarter = PARTITIONS / 4;
    let moved = u64::from(plan.partitions_moved);
    assert!(
        (quarter * 9 / 10..quarter * 9 / 8).contains(&moved),
        "{plan:?}"
    );
    assert!(plan.bytes > 0);
    assert!(
        status(&client).await.transition.is_none(),
        "a plan moves nothing"
    );

    let joined = cluster.kvctl(&["join-node", &address]);
    assert!(joined.status.success(), "{joined:?}");
    transition_ended(&client, 4).await;
    let last = status(&client).await.last_transition.unwrap();
    assert_eq!(
        last.partitions_total, plan.partitions_moved,
        "the plan shown is the plan run"
    );
    some_traffic(&traffic).await;

    let left = cluster.kvctl(&["leave-node", "2"]);
    assert!(left.status.success(), "{left:?}");
    transition_ended(&client, 3).await;
    some_traffic(&traffic).await;
    traffic.stop(&client).await.assert_flawless();
    let old = status(&client).await;
    assert!(
        old.nodes.iter().all(|node| node.member.id.0 != 2),
        "node 2 is no member any more"
    );
    until("node 2 says so", async || {
        cluster.nodes[1].log().contains("no longer in the cluster")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_survives_kill_9_of_the_joining_node_and_no_request_fails() {
    let mut cluster = Cluster::start_with(3, &["--replicas=1"]).await;
    let client = cluster.client().await;
    fill(&client, FILLER).await;
    let spare = cluster.spare("node-4").await;
    let address = cluster.nodes[spare].grpc.to_string();
    let traffic = Traffic::start(&client, "t", 400);
    some_traffic(&traffic).await;

    client.join(&address, None).await.unwrap();
    midway(&client).await;
    cluster.nodes[spare].kill_9();
    // Partitions that it already leads must wait for its return. Everything else continues, even
    // where writes waited for it, because it is given up for now.
    writes_led_elsewhere_go_on(&client, &address).await;
    cluster.nodes[spare].start().unwrap();
    transition_ended(&client, 4).await;
    some_traffic(&traffic).await;
    traffic.stop(&client).await.assert_nothing_lost();
}

/// Writes keys whose partitions are led by other nodes than the one at `address`.
async fn writes_led_elsewhere_go_on(client: &Client, address: &str) {
    until("no write waits for the newcomer", async || {
        let Ok(table) = client.topology().await else {
            return false;
        };
        table
            .states
            .iter()
            .all(|state| state.config.stage != Stage::WriteBothReadOld)
    })
    .await;
    let table = client.topology().await.unwrap();
    let mut written = 0;
    for number in 0..400 {
        let key = format!("elsewhere-{number}");
        let digest = Digest::of(&table.digest_key, NamespaceId::DEFAULT, key.as_bytes());
        let lead = table
            .state(table.partition_of(NamespaceId::DEFAULT, &digest))
            .unwrap()
            .lead;
        if table.members[&lead].identity.address != address {
            client.put(key, "v").await.unwrap();
            written += 1;
        }
    }
    assert!(written > 0, "the newcomer led everything");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_survives_kill_9_of_a_source() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.topology_leader().await;
    let source = (leader + 1) % 3;
    survives_kill_9(&mut cluster, source).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_survives_kill_9_of_the_topology_leader() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.topology_leader().await;
    survives_kill_9(&mut cluster, leader).await;
}

async fn survives_kill_9(cluster: &mut Cluster, victim: usize) {
    let client = cluster.client().await;
    fill(&client, FILLER).await;
    let spare = cluster.spare("node-4").await;
    let address = cluster.nodes[spare].grpc.to_string();
    let traffic = Traffic::start(&client, "t", 400);
    some_traffic(&traffic).await;

    client.join(&address, None).await.unwrap();
    midway(&client).await;
    cluster.nodes[victim].kill_9();
    cluster.nodes[victim].start().unwrap();
    cluster.nodes[victim].ready().await.unwrap();
    transition_ended(&client, 4).await;
    some_traffic(&traffic).await;
    traffic.stop(&client).await.assert_nothing_lost();
}
