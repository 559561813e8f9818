//! Founding a cluster with settings that people get wrong.

use std::net::SocketAddr;
use std::path::Path;

use torc_proto::v1::StatusRequest;
use torc_server::Node;
use torc_server::config::RawSettings;

use crate::common::{Servers, settings};

fn addresses_of(node: &Node) -> [SocketAddr; 2] {
    [node.grpc_addr(), node.peer_addr()]
}

async fn start_at(
    dir: &Path,
    [grpc, peer]: [SocketAddr; 2],
    found_with: Option<&[String]>,
) -> Node {
    let raw = RawSettings {
        grpc_addr: Some(grpc),
        peer_addr: Some(peer),
        bootstrap: Some(found_with.is_some()),
        found_with: found_with.map(<[String]>::to_vec),
        ..settings(dir.to_owned())
    };
    Node::start(raw.check().unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_were_all_started_as_founders_found_one_cluster_once_a_single_one_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let dirs = [dir.path().join("1"), dir.path().join("2")];
    let mut addresses = Vec::new();
    for dir in &dirs {
        let node = Node::start(settings(dir.clone()).check().unwrap()).await;
        let node = node.unwrap();
        addresses.push(addresses_of(&node));
        node.stop().await.unwrap();
    }
    // The same list for all, with each node's gRPC and peer address.
    let all = addresses.iter().flatten().map(ToString::to_string);
    let all: Vec<_> = all.collect();
    let mut nodes = Vec::new();
    for (dir, at) in dirs.iter().zip(&addresses) {
        nodes.push(start_at(dir, *at, Some(&all)).await);
    }
    let second = nodes.pop().unwrap();
    assert!(second.ready().is_err() && nodes[0].ready().is_err());
    second.stop().await.unwrap();
    nodes.push(start_at(&dirs[1], addresses[1], None).await);
    let servers = Servers { nodes, dir };
    servers.formed().await;
    let mut cluster = servers.cluster(1).await;
    let status = cluster.status(StatusRequest::default()).await;
    let status = status.unwrap().into_inner();
    assert_eq!(status.nodes.len(), 2, "{:?}", status.nodes);
}
