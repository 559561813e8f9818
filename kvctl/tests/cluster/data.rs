//! A whole data set through the cluster: what was loaded is what is dumped.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::processes::{Cluster, ready};

/// Records of the data set; the full million takes a release build and some minutes.
fn count() -> String {
    std::env::var("TORC_TEST_RECORDS").unwrap_or_else(|_| "20000".to_owned())
}

fn sorted(ndjson: &[u8]) -> BTreeMap<String, String> {
    let text = std::str::from_utf8(ndjson).unwrap();
    let record = |line: &str| {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        (
            json["key"].as_str().unwrap().to_owned(),
            json["value"].to_string(),
        )
    };
    text.lines().map(record).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_equals_the_load_before_and_after_a_join_and_kill_9_of_every_node() {
    let mut cluster = Cluster::start(3).await;
    let generated = cluster.kvctl(&["generate-urls", "--count", &count()]);
    assert!(generated.status.success(), "{generated:?}");
    let file: PathBuf = cluster.dir.path().join("urls.ndjson");
    std::fs::write(&file, &generated.stdout).unwrap();
    let loaded = sorted(&generated.stdout);

    let load = cluster.kvctl(&["load", file.to_str().unwrap()]);
    assert!(load.status.success(), "{load:?}");
    let dumped = |cluster: &Cluster| sorted(&cluster.kvctl(&["dump"]).stdout);
    assert!(dumped(&cluster) == loaded, "before the join");

    let spare = cluster.spare("node-4").await;
    let address = cluster.nodes[spare].grpc.to_string();
    let joined = cluster.kvctl(&["join-node", &address]);
    assert!(joined.status.success(), "{joined:?}");
    assert!(dumped(&cluster) == loaded, "after the join");

    for victim in 0..cluster.nodes.len() {
        cluster.nodes[victim].kill_9();
        cluster.nodes[victim].start();
        ready(&cluster.nodes[victim]).await;
        assert!(
            dumped(&cluster) == loaded,
            "after kill -9 of node {}",
            victim + 1
        );
    }
}
