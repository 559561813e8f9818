//! Addresses that come to belong to another cluster, whose nodes must never answer for this one.

use std::time::Duration;

use futures::future::join_all;
use torc_client::{Client, ErrorKind};

use crate::processes::{Cluster, Kvd, kvctl};

/// For operations that cannot succeed.
const BRIEF: Duration = Duration::from_secs(2);

async fn cluster_at(endpoint: String) -> String {
    let client = Client::connect([endpoint]).await.unwrap();
    client.known_topology().unwrap().cluster.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_founded_anew_at_the_same_addresses_never_answers_for_the_old_one() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    for key in &keys {
        client.put(key.clone(), "value").await.unwrap();
    }

    for node in &mut cluster.nodes[..2] {
        node.wipe().unwrap();
        node.set_flags(&["--replicas=2"]);
    }
    let second = cluster.nodes[1].grpc;
    cluster.nodes[0].found_with([second]);
    Kvd::serve(&mut cluster.nodes[..2]).await.unwrap();

    let survivor = [cluster.nodes[2].endpoint()];
    let brief = client.with_deadline(BRIEF);
    for got in join_all(keys.iter().map(|key| brief.get(key.clone()))).await {
        let error = got.expect_err("its replicas are gone, which is not the same as absent");
        let passing = [
            ErrorKind::Unavailable,
            ErrorKind::Refused,
            ErrorKind::Deadline,
        ];
        assert!(passing.contains(&error.kind()), "{error:?}");
    }
    for key in &keys[..2] {
        let got = kvctl(&survivor, &["get", key, "--timeout", "2s"]);
        assert!(matches!(got.status.code(), Some(3 | 6)), "{got:?}");
        let put = kvctl(&survivor, &["put", key, "other", "--timeout", "2s"]);
        assert!(matches!(put.status.code(), Some(3 | 5 | 6)), "{put:?}");
    }
    let status = kvctl(&survivor, &["status", "--output", "json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    for node in &status["nodes"].as_array().unwrap()[..2] {
        assert_eq!(
            node["reachable"], false,
            "a stranger is not our node: {node}"
        );
        let problem = node["problem"].as_str().unwrap();
        assert!(problem.contains("belongs to cluster"), "{problem}");
    }

    cluster.nodes[2].kill_9();
    let error = brief.get(keys[0].clone()).await.unwrap_err();
    let ours = client.known_topology().unwrap().cluster.to_string();
    let theirs = cluster_at(cluster.nodes[0].endpoint()).await;
    let told = |what: &str| error.message().contains(what);
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(
        told(&ours) && told(&theirs) && told("127.0.0.1:"),
        "{error}"
    );
}
