//! Compares `kvctl plan` with the content of the node after the change.

use serde_json::Value;

use crate::processes::{Cluster, until};

fn json(cluster: &Cluster, args: &[&str]) -> Value {
    let done = cluster.kvctl(&[args, &["--output", "json"]].concat());
    assert!(done.status.success(), "{done:?}");
    serde_json::from_slice(&done.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_takes_what_was_planned() {
    let cluster = Cluster::start_with(1, &["--partitions=16"]).await;
    let keys = ["--keys", "20000", "--value-size", "100"];
    json(
        &cluster,
        &[&["bench", "--mix", "1/0", "--operations", "1"], &keys[..]].concat(),
    );
    json(&cluster, &["flush"]);
    let node = || json(&cluster, &["status"])["nodes"][0].clone();
    until("each partition is one slice", async || {
        json(&cluster, &["compact"]);
        node()["most_slices"] == 1
    })
    .await;
    let node = node();
    assert_eq!(node["sealed_keys"], 20_000, "{node}");

    let size = ["--keys", "2e4", "--key-bytes", "18", "--value-bytes", "100"];
    let ring = ["--nodes", "1", "--replicas", "1", "--partitions", "16"];
    let plan = json(&cluster, &[&["plan"], &size[..], &ring[..]].concat());
    let planned = &plan["clusters"][0];
    for name in ["index_bytes", "slice_bytes"] {
        let (wanted, found) = (
            planned[name].as_f64().unwrap(),
            node[name].as_f64().unwrap(),
        );
        let ratio = found / wanted;
        assert!(
            (0.9..1.1).contains(&ratio),
            "{name}: {found}, planned {wanted}"
        );
    }
}
