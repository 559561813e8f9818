//! Nodes that are stopped with SIGTERM and restarted, under load.

use std::process::Command;
use std::time::{Duration, Instant};

use tonic::transport::Endpoint;
use torc_client::ErrorKind;
use torc_proto::v1::StatusRequest;
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::{Fault, Reason};

use crate::processes::{Cluster, Kvd, PARTITIONS, Signal, TIMEOUT, http_get, kvctl, until};
use crate::traffic::Traffic;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_fails_nothing_and_leaves_nothing_in_doubt() {
    restart_each_node(Cluster::start(3).await).await;
}

/// A key has no other replica that could take a write meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_with_one_replica_leaves_nothing_in_doubt() {
    restart_each_node(Cluster::start_with(3, &["--replicas=1"]).await).await;
}

async fn restart_each_node(mut cluster: Cluster) {
    let client = cluster.client().await;
    let traffic = Traffic::start(&client, "r", 400);
    for node in 0..3 {
        let before = traffic.done();
        until("traffic flows", async || traffic.done() > before + 400).await;
        let node = &mut cluster.nodes[node];
        assert_eq!(node.terminate().unwrap(), Some(0), "{}", node.log());
        assert!(
            !node.log().contains("did not finish in time"),
            "{}",
            node.log()
        );
        node.start().unwrap();
        node.ready().await.unwrap();
    }
    traffic.stop(&client).await.assert_flawless();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_killed_and_started_again_and_again_is_the_same_member() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    let traffic = Traffic::start(&client, "r", 100);
    for round in 0..20 {
        let before = traffic.done();
        cluster.nodes[2].kill_9();
        cluster.nodes[2].start().unwrap();
        // Sometimes before its start was confirmed, sometimes after.
        if round % 3 != 0 {
            cluster.nodes[2].ready().await.unwrap();
        }
        until("traffic flows", async || traffic.done() > before + 100).await;
    }
    cluster.nodes[2].ready().await.unwrap();
    traffic.stop(&client).await.assert_nothing_lost();
}

/// As from a snapshot of a machine: no start tells the copy from the original.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_of_the_directory_of_a_running_node_is_refused() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    let traffic = Traffic::start(&client, "r", 100);
    let flows = async |more: u64| {
        let before = traffic.done();
        until("traffic flows", async || traffic.done() > before + more).await;
    };
    flows(400).await;
    let node = &mut cluster.nodes[2];
    let (data, copy) = (node.data.clone(), node.dir.join("copy"));
    node.signal(Signal::STOP).unwrap();
    let copied = Command::new("cp").arg("-r").args([&data, &copy]).status();
    node.signal(Signal::CONT).unwrap();
    assert!(copied.unwrap().success());
    // The copy knows of the clock readings that the node had reserved.
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(1) {
        flows(400).await;
    }
    node.kill_9();
    let aside = node.dir.join("aside");
    std::fs::rename(&data, &aside).unwrap();
    std::fs::rename(&copy, &data).unwrap();
    node.start().unwrap();
    until("it has ended", async || node.has_ended().is_some()).await;
    let log = node.log();
    assert!(log.contains("the directory is an older copy"), "{log}");
    node.kill_9();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&aside, &data).unwrap();
    node.start().unwrap();
    node.ready().await.unwrap();
    flows(400).await;
    traffic.stop(&client).await.assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_partitions_have_no_quorum_is_not_ready_and_says_why() {
    let mut cluster = Cluster::start(3).await;
    let says = async |node: &Kvd| http_get(node.http, "/readyz").await;
    cluster.nodes[1].kill_9();
    until("one of the three is missed", async || {
        let (_, status) = http_get(cluster.nodes[0].http, "/status").await;
        status.contains(&format!("\"under_replicated\":{PARTITIONS}"))
    })
    .await;
    assert_eq!(
        says(&cluster.nodes[0]).await.0,
        200,
        "two of three are a quorum"
    );
    cluster.nodes[2].kill_9();
    until("the one that is left is not ready", async || {
        says(&cluster.nodes[0]).await.0 == 503
    })
    .await;
    let (_, why) = says(&cluster.nodes[0]).await;
    assert!(
        why.contains("no partition of this node has a quorum"),
        "{why}"
    );
    assert!(why.contains("do not answer: 2, 3."), "{why}");
    let status = kvctl(&[cluster.nodes[0].endpoint()], &["status"]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        status.contains("node 1: no partition of this node has a quorum"),
        "{status}"
    );
    // A node without a majority still answers a plain status, but not one that must be current.
    let alone = torc_client::Client::builder().endpoints([cluster.nodes[0].endpoint()]);
    let alone = alone.deadline(Duration::from_secs(1));
    let alone = alone.connect_lazy().unwrap();
    assert_eq!(alone.status().await.unwrap().nodes.len(), 3);
    let refused = alone.current_status().await.unwrap_err();
    let kinds = [ErrorKind::Unavailable, ErrorKind::Deadline];
    assert!(kinds.contains(&refused.kind()), "{refused:?}");

    cluster.nodes[2].start().unwrap();
    cluster.nodes[0].ready().await.unwrap();
    cluster.nodes[2].ready().await.unwrap();
    let epoch = alone.status().await.unwrap().epoch;
    let current = alone.with_deadline(TIMEOUT).current_status().await.unwrap();
    assert!(current.epoch >= epoch, "{} < {epoch}", current.epoch);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_requests_wait_for_a_current_status_and_any_other_status_is_answered() {
    let cluster = Cluster::start(3).await;
    for node in &cluster.nodes[1..] {
        node.signal(Signal::STOP).unwrap();
    }
    let channel = Endpoint::from_shared(cluster.nodes[0].endpoint()).unwrap();
    let channel = channel.connect().await.unwrap();
    let ask = |current| {
        let request = StatusRequest {
            current,
            ..StatusRequest::default()
        };
        let mut cluster = ClusterClient::new(channel.clone());
        async move { cluster.status(request).await }
    };
    let waiting: Vec<_> = (0..64).map(|_| tokio::spawn(ask(true))).collect();
    let status = ask(false).await.unwrap().into_inner();
    assert_eq!(status.nodes.len(), 3);
    let mut refused = 0;
    for answer in waiting {
        let fault = Fault::from_status(&answer.await.unwrap().unwrap_err());
        refused += usize::from(fault.reason == Reason::Overloaded);
    }
    assert!(refused > 0, "64 requests waited");
}
