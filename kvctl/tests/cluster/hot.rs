//! Hot keys and searching scans from the command line.

use crate::processes::{Cluster, until};

#[tokio::test(flavor = "multi_thread")]
async fn hot_keys_are_shown_with_their_shares_and_missing_nodes_are_named() {
    let mut cluster = Cluster::start_with(3, &["--hot-keys-interval-s=1"]).await;
    let client = cluster.client().await;
    client.put("busy", "v").await.unwrap();
    for number in 0..60 {
        client.get("busy").await.unwrap();
        if number % 10 == 0 {
            client.get(format!("calm-{number}")).await.unwrap();
        }
    }
    let json = |cluster: &Cluster, args: &[&str]| -> serde_json::Value {
        let output = cluster.kvctl(&[&["hot-keys", "--output", "json"], args].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    };
    until("all accesses are counted", async || {
        json(&cluster, &[])["accesses"] == 67
    })
    .await;
    let hot = json(&cluster, &["--window", "24h", "--top", "2"]);
    assert_eq!(hot["keys"].as_array().unwrap().len(), 2);
    assert_eq!(hot["keys"][0]["key"], "busy");
    assert_eq!(hot["keys"][0]["estimate"], 61, "the put is one of them");
    assert_eq!(hot["majority"]["certain"], true);
    let text = String::from_utf8(cluster.kvctl(&["hot-keys"]).stdout).unwrap();
    assert!(text.contains("busy has more than half"), "{text}");
    let node = hot["keys"][0]["nodes"][0]["node"].to_string();
    let only = json(&cluster, &["--node", &node]);
    assert_eq!(only["nodes"].as_array().unwrap().len(), 1);
    let code = |args: &[&str]| cluster.kvctl(args).status.code();
    assert_eq!(code(&["hot-keys", "--node", "99"]), Some(6));
    assert_eq!(code(&["hot-keys", "--window", "25h"]), Some(6));
    assert_eq!(code(&["--namespace", "other", "hot-keys"]), Some(6));

    cluster.nodes[2].kill_9();
    let partial = cluster.kvctl(&["hot-keys"]);
    assert!(partial.status.success(), "the others are worth showing");
    let said = String::from_utf8(partial.stderr).unwrap();
    assert!(said.starts_with("without node "), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_prints_what_contains_the_bytes() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    for number in 0..50 {
        let value = format!("value {number} -x{}", number % 5);
        client.put(format!("k{number}"), value).await.unwrap();
    }
    let lines = |args: &[&str]| {
        let output = cluster.kvctl(&[&["scan", "--keys-only"], args].concat());
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    assert_eq!(lines(&["--contains", "-x3"]), 10);
    assert_eq!(lines(&["--contains", "-x3", "--contains", "value 7 "]), 11);
    assert_eq!(lines(&["--contains-hex", "2d7833"]), 10);
    assert_eq!(lines(&["--contains", "nowhere"]), 0);
    let long = "x".repeat(65_537);
    let refused = cluster.kvctl(&["scan", "--contains", &long]);
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
}
