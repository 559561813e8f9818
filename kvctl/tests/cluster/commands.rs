//! The commands, their output and their exit codes.

use crate::processes::{
    Cluster, PARTITIONS, Playground, free_address, http_get, kvctl, prepare, until,
};

#[tokio::test(flavor = "multi_thread")]
async fn values_go_in_and_come_out_byte_for_byte() {
    let cluster = Cluster::start(1).await;
    let raw: Vec<u8> = (0..=255).collect();
    let file = cluster.dir.path().join("raw");
    std::fs::write(&file, &raw).unwrap();
    assert_eq!(
        cluster
            .kvctl(&["put", "k", "--file", file.to_str().unwrap()])
            .status
            .code(),
        Some(0)
    );
    let got = cluster.kvctl(&["get", "k"]);
    assert_eq!((got.status.code(), got.stdout), (Some(0), raw));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_outcome_has_its_exit_code() {
    let cluster = Cluster::start(1).await;
    let code = |args: &[&str]| cluster.kvctl(args).status.code();
    assert_eq!(code(&["get", "missing"]), Some(1));
    assert_eq!(code(&["get"]), Some(2));
    assert_eq!(code(&["put", "k", "v", "--if-absent"]), Some(0));
    assert_eq!(code(&["put", "k", "v", "--if-absent"]), Some(4));
    assert_eq!(code(&["put", "k", "v", "--if-version", "1.1.1"]), Some(4));
    assert_eq!(code(&["put", &"x".repeat(1025), "v"]), Some(6));
    assert_eq!(code(&["delete", "k"]), Some(0));
    assert_eq!(code(&["get", "k"]), Some(1));
    let closed = vec![format!("http://{}", free_address())];
    let unavailable = kvctl(&closed, &["--timeout", "1s", "get", "k"]);
    assert_eq!(unavailable.status.code(), Some(3));
    let said = String::from_utf8(unavailable.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "one line: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_http_port_says_that_it_is_not_the_grpc_port() {
    let cluster = Cluster::start(1).await;
    let http = cluster.nodes[0].http.to_string();
    for args in [&["get", "k"][..], &["status"], &["put", "k", "v"]] {
        let refused = kvctl(&[format!("http://{http}")], args);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains("not its HTTP port"), "{args:?}: {said}");
        assert!(!said.contains("tried"), "no retry helps: {said}");
    }
    let joined = cluster.kvctl(&["join-node", &http]);
    let said = String::from_utf8(joined.stderr).unwrap();
    assert!(said.contains("use the node's gRPC port"), "{said}");
    let nobody = cluster.kvctl(&["join-node", &free_address().to_string()]);
    let said = String::from_utf8(nobody.stderr).unwrap();
    assert!(said.contains("Connection refused"), "{said}");
    assert!(said.contains("Nothing was changed"), "{said}");
    assert!(!said.contains("no node answers"), "the cluster did: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_playground_soon_flushes_what_was_put() {
    let dir = tempfile::tempdir().unwrap();
    let playground = Playground::start(&dir.path().join("playground")).await;
    assert!(playground.kvctl(&["put", "k", "v"]).status.success());
    until("the key is in a slice", async || {
        let told = playground.kvctl(&["explain", "k"]);
        String::from_utf8(told.stdout).unwrap().contains("slot")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_with_a_time_to_live_expires() {
    let cluster = Cluster::start(1).await;
    assert!(
        cluster
            .kvctl(&["put", "k", "v", "--ttl", "1500ms"])
            .status
            .success()
    );
    assert!(cluster.kvctl(&["get", "k"]).status.success());
    until("the value has expired", async || {
        cluster.kvctl(&["get", "k"]).status.code() == Some(1)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_metrics_and_the_ring_are_served_over_http() {
    let cluster = Cluster::start(2).await;
    let put = cluster.kvctl(&["put", "k", "v"]);
    assert!(put.status.success(), "{put:?}");
    let http = cluster.nodes[0].http;
    assert_eq!(http_get(http, "/healthz").await, (200, "ok\n".to_owned()));
    let (code, ring) = http_get(http, "/ring").await;
    assert_eq!(code, 200);
    let ring: serde_json::Value = serde_json::from_str(&ring).unwrap();
    let same = |args: &[&str]| -> serde_json::Value {
        let told = cluster.kvctl(&[args, &["--output", "json"]].concat());
        serde_json::from_slice(&told.stdout).unwrap()
    };
    assert_eq!(ring, same(&["ring"]));
    assert_eq!(ring["positions"].as_array().unwrap().len(), 64);
    let (code, status) = http_get(http, "/status").await;
    assert_eq!(code, 200);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let names = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    let told = same(&["status"]);
    assert_eq!(names(&status), names(&told));
    assert_eq!(names(&status["nodes"][0]), names(&told["nodes"][0]));
    let partitions: u64 = status["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n["partitions"].as_u64().unwrap())
        .sum();
    assert_eq!(partitions, 2 * PARTITIONS, "both nodes have all");
    let mut metrics = String::new();
    for node in &cluster.nodes {
        metrics += &http_get(node.http, "/metrics").await.1;
    }
    assert!(
        metrics.contains("torc_operation_seconds_count{operation=\"put\"} 1"),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_stops_a_node_cleanly_and_its_data_is_there_again() {
    let mut cluster = Cluster::start(1).await;
    let put = cluster.kvctl(&["put", "k", "v"]);
    assert!(put.status.success(), "{put:?}");
    assert_eq!(
        cluster.nodes[0].terminate().unwrap(),
        Some(0),
        "{}",
        cluster.nodes[0].log()
    );
    cluster.nodes[0].start().unwrap();
    cluster.nodes[0].ready().await.unwrap();
    assert_eq!(cluster.kvctl(&["get", "k"]).stdout, b"v");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_cluster_cannot_be_joined() {
    let ours = Cluster::start(1).await;
    let theirs = Cluster::start(1).await;
    let refused = ours.kvctl(&["join-node", &theirs.nodes[0].grpc.to_string()]);
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("another cluster"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_cannot_use_the_data_directory() {
    let cluster = Cluster::start(1).await;
    let mut second = prepare(cluster.dir.path(), "second", &[]);
    second.data.clone_from(&cluster.nodes[0].data);
    assert_ne!(second.run_to_end().unwrap(), Some(0));
    assert!(
        second.log().contains("in use by another process"),
        "{}",
        second.log()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_playground_is_a_cluster_that_keeps_its_data_where_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut playground = Playground::start(dir.path()).await;
    assert!(playground.kvctl(&["put", "k", "v"]).status.success());
    let status = playground.kvctl(&["--output", "json", "status"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["nodes"].as_array().unwrap().len(), 3);
    let code = playground.restart(dir.path()).await;
    assert_eq!(code, Some(0), "Ctrl-C stops it cleanly");
    assert_eq!(playground.kvctl(&["get", "k"]).stdout, b"v");
}

#[tokio::test]
async fn a_misspelt_variable_is_refused_with_the_one_that_was_meant() {
    let dir = tempfile::tempdir().unwrap();
    let kvd = |name: &str| {
        let mut node = prepare(dir.path(), "node", &["--weight=0"]);
        node.variable(name, "a");
        assert_eq!(node.run_to_end().unwrap(), Some(1), "{}", node.log());
        node.log()
    };
    let said = kvd("TORC_ZNOE");
    assert!(
        said.contains("`TORC_ZNOE`") && said.contains("`TORC_ZONE`"),
        "{said}"
    );
    // Kubernetes sets this variable in every container beside a service named `torc`.
    let said = kvd("TORC_SERVICE_HOST");
    assert!(
        said.contains("`TORC_SERVICE_HOST`: it is not a setting"),
        "{said}"
    );
    assert!(
        said.contains("--weight"),
        "it was not refused for the variable: {said}"
    );
}
