//! Numbers of replicas changed under load: a namespace with more replicas survives a lost node, and
//! one with fewer loses nothing.

#![allow(clippy::cast_possible_truncation, reason = "tests count small numbers")]

use serde_json::Value;
use torc_client::{Client, NamespaceMode};

use crate::join::{fill, some_traffic};
use crate::processes::{Cluster, until};
use crate::traffic::Traffic;

const PARTITIONS: &str = "--partitions=256";
const FILLER: usize = 2_000;
const KEYS: usize = 400;

/// Reads every filler key, and writes it again.
async fn all_are_served(client: &Client) {
    for number in 0..FILLER {
        let key = format!("filler-{number}");
        let value = client.get(key.clone()).await.unwrap();
        assert_eq!(&value.unwrap().value[..], vec![number as u8; 512], "{key}");
        client.put(key, vec![number as u8; 512]).await.unwrap();
    }
}

async fn replicas_of(client: &Client, name: &str) -> u32 {
    let namespaces = client.namespaces().await.unwrap();
    let found = namespaces.iter().find(|it| it.name == name);
    found.unwrap().replicas
}

/// Waits until the transition is running and has completed some partitions.
async fn midway(client: &Client) {
    until("the alteration is under way", async || {
        let status = client.status().await.ok();
        let running = status.and_then(|status| status.transition);
        running.is_some_and(|it| it.partitions_done > it.partitions_total / 8)
    })
    .await;
}

async fn ended(client: &Client) -> torc_client::Transition {
    let mut last = None;
    until("the alteration has ended", async || {
        let status = client.status().await.ok();
        let status = status.filter(|status| status.transition.is_none());
        last = status.and_then(|status| status.last_transition);
        last.is_some()
    })
    .await;
    last.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_one_replica_grows_to_three_under_load_and_survives_a_killed_node() {
    let mut cluster = Cluster::start_with(3, &[PARTITIONS, "--replicas=1"]).await;
    let client = cluster.client().await;
    fill(&client, FILLER).await;
    let traffic = Traffic::start(&client, "t", KEYS);
    some_traffic(&traffic).await;

    let alter = ["namespace", "alter", "default", "--replicas", "3"];
    let plan = cluster.kvctl(&[&["--output", "json"], &alter[..], &["--plan"]].concat());
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert_eq!(plan["state"], "planned");
    assert_eq!(plan["plan"]["partitions_moved"], 256);
    assert_eq!(plan["plan"]["namespaces"], serde_json::json!(["default"]));
    assert_eq!(
        replicas_of(&client, "default").await,
        1,
        "a plan alters nothing"
    );

    let altered = cluster.kvctl(&alter);
    assert!(altered.status.success(), "{altered:?}");
    let text = String::from_utf8(altered.stdout).unwrap();
    assert!(
        text.contains("alteration of `default` to 3 replicas done"),
        "{text}"
    );
    some_traffic(&traffic).await;
    traffic.stop(&client).await.assert_flawless();
    let status = client.status().await.unwrap();
    assert_eq!((status.replicas, status.under_replicated), (3, Some(0)));
    assert_eq!(replicas_of(&client, "default").await, 3);
    let again = cluster.kvctl(&alter);
    let text = String::from_utf8(again.stdout).unwrap();
    assert!(
        again.status.success() && text.contains("nothing to do"),
        "{text}"
    );

    cluster.nodes[2].kill_9();
    all_are_served(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_replicas_become_one_under_load_for_all_namespaces_that_share_partitions() {
    let cluster = Cluster::start_with(3, &[PARTITIONS]).await;
    let client = cluster.client().await;
    let linearizable = NamespaceMode::Linearizable;
    client
        .create_namespace("urls", linearizable, None)
        .await
        .unwrap();
    client
        .create_namespace("two", linearizable, Some(2))
        .await
        .unwrap();
    fill(&client, FILLER).await;
    let traffic = Traffic::start(&client, "t", KEYS);
    some_traffic(&traffic).await;

    let alter = ["namespace", "alter", "urls", "--replicas", "1"];
    let refused = cluster.kvctl(&alter);
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("default would change, too"), "{text}");
    assert!(text.contains("--with-all"), "{text}");
    let plan = cluster.kvctl(&[&alter[..], &["--plan"]].concat());
    let text = String::from_utf8(plan.stdout).unwrap();
    assert!(
        text.starts_with("alteration of `default`, `urls` to 1 replica"),
        "{text}"
    );
    let text = String::from_utf8(plan.stderr).unwrap();
    assert!(text.contains("also changes default"), "{text}");

    let altered = cluster.kvctl(&[&alter[..], &["--with-all"]].concat());
    assert!(altered.status.success(), "{altered:?}");
    some_traffic(&traffic).await;
    traffic.stop(&client).await.assert_flawless();
    for (name, replicas) in [("default", 1), ("urls", 1), ("two", 2)] {
        assert_eq!(replicas_of(&client, name).await, replicas, "{name}");
    }
    let status = client.status().await.unwrap();
    assert_eq!((status.replicas, status.under_replicated), (1, Some(0)));
    all_are_served(&client).await;
    let replicas = client.explain("filler-7").await.unwrap().replicas;
    assert_eq!(replicas.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alteration_survives_kill_9_of_a_node_and_can_be_taken_back() {
    let mut cluster = Cluster::start_with(3, &[PARTITIONS, "--replicas=1"]).await;
    let client = cluster.client().await;
    fill(&client, FILLER).await;
    let grow = [
        "namespace",
        "alter",
        "default",
        "--replicas",
        "3",
        "--no-wait",
    ];
    let grow = [&grow[..], &["--parallel", "4"]].concat();

    let traffic = Traffic::start(&client, "t", KEYS);
    some_traffic(&traffic).await;
    assert!(cluster.kvctl(&grow).status.success());
    midway(&client).await;
    let busy = cluster.kvctl(&["namespace", "alter", "default", "--replicas", "2"]);
    assert_eq!(busy.status.code(), Some(6), "{busy:?}");
    let aborted = cluster.kvctl(&["abort"]);
    assert!(aborted.status.success(), "{aborted:?}");
    assert!(ended(&client).await.aborted);
    assert_eq!(replicas_of(&client, "default").await, 1);
    some_traffic(&traffic).await;

    assert!(cluster.kvctl(&grow).status.success());
    midway(&client).await;
    cluster.nodes[2].kill_9();
    cluster.nodes[2].start().unwrap();
    cluster.nodes[2].ready().await.unwrap();
    until("it has grown to three", async || {
        ended(&client).await;
        replicas_of(&client, "default").await == 3
    })
    .await;
    some_traffic(&traffic).await;
    traffic.stop(&client).await.assert_nothing_lost();
    cluster.nodes[0].kill_9();
    all_are_served(&client).await;
}
