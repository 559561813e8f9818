//! Mixed releases: real nodes and real sockets, with fictional releases.

use crate::common::{Servers, settings, until, value_of};
use torc_proto::v1::{
    GetRequest, JoinRequest, PutRequest, ReplaceRequest, StatusRequest, StatusResponse,
};
use torc_proto::{Fault, Reason};
use torc_ring::topology::{Levels, Release};
use torc_server::{Node, NodeError};

fn release(version: &str, oldest: u32, newest: u32) -> Release {
    Release {
        version: version.to_owned(),
        levels: Levels { oldest, newest },
    }
}

/// Starts a node on a data directory of the cluster as if it were another release.
async fn start_as(servers: &Servers, dir: &str, release: Release) -> Result<Node, NodeError> {
    let mut settings = settings(servers.dir.path().join(dir)).check().unwrap();
    settings.release = release;
    Node::start(settings).await
}

async fn restart_as(servers: &mut Servers, index: usize, release: Release) {
    servers.nodes.remove(index).stop().await.unwrap();
    let node = start_as(servers, &(index + 1).to_string(), release).await;
    servers.nodes.insert(index, node.unwrap());
    servers.formed().await;
}

async fn status(servers: &Servers) -> StatusResponse {
    let mut cluster = servers.cluster(0).await;
    let status = cluster.status(StatusRequest::default()).await;
    status.unwrap().into_inner()
}

/// Every node writes keys that every node then reads.
async fn all_serve(servers: &Servers, round: &str) {
    for writer in 0..servers.nodes.len() {
        let key = format!("{round}-{writer}");
        let put = PutRequest {
            key: key.clone().into(),
            value: key.clone().into(),
            ..PutRequest::default()
        };
        servers.kv(writer).await.put(put).await.unwrap();
        for reader in 0..servers.nodes.len() {
            let get = GetRequest {
                key: key.clone().into(),
                ..GetRequest::default()
            };
            let value = value_of(&mut servers.kv(reader).await, get).await;
            assert_eq!(value.as_ref(), Some(&key), "node {reader}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_level_is_refused_by_name_and_the_cluster_goes_on() {
    let mut servers = Servers::start().await;
    let before = status(&servers).await;
    let level = Levels::OURS.newest;
    assert_eq!(before.feature_level, level);

    let stranger = start_as(&servers, "4", release("9.0.0", level + 1, level + 2)).await;
    let stranger = stranger.unwrap();
    let address = stranger.grpc_addr().to_string();
    let join = JoinRequest {
        address: address.clone(),
        ..JoinRequest::default()
    };
    let replace = ReplaceRequest {
        old: 3,
        address: address.clone(),
        ..ReplaceRequest::default()
    };
    let mut cluster = servers.cluster(0).await;
    for refused in [cluster.join(join).await, cluster.replace(replace).await] {
        let fault = Fault::from_status(&refused.unwrap_err());
        assert_eq!(fault.reason, Reason::Refused, "{fault:?}");
        assert!(!fault.maybe_applied, "{fault:?}");
        for said in [&address, "release 9.0.0", "levels 2 to 3", "at level 1"] {
            assert!(fault.message.contains(said), "{said}: {fault:?}");
        }
    }
    let after = status(&servers).await;
    assert_eq!((after.epoch, after.nodes.len()), (before.epoch, 3));
    stranger.stop().await.unwrap();

    // A member that was upgraded too far does not start, and starts again with its former release.
    servers.nodes.remove(2).stop().await.unwrap();
    let refused = start_as(&servers, "3", release("9.0.0", level + 1, level + 2)).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("release 9.0.0"), "{text}");
    assert!(text.contains("the cluster is at level 1"), "{text}");
    let again = start_as(&servers, "3", Release::ours()).await.unwrap();
    servers.nodes.push(again);
    servers.formed().await;
    all_serve(&servers, "after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_releases_work_together_and_the_level_rises_when_the_last_was_upgraded() {
    let mut servers = Servers::start().await;
    let level = Levels::OURS.newest;
    let later = || release("0.9.0", level, level + 1);
    for index in [2, 1] {
        restart_as(&mut servers, index, later()).await;
        all_serve(&servers, &format!("mixed-{index}")).await;
        assert_eq!(status(&servers).await.feature_level, level);
    }
    until("the status tells what each member runs", async || {
        let nodes = status(&servers).await.nodes;
        let release = |node: &torc_proto::v1::NodeStatus| node.member.clone().unwrap().release;
        let releases: Vec<_> = nodes.iter().map(release).collect();
        releases == [Release::ours().version.as_str(), "0.9.0", "0.9.0"]
    })
    .await;

    restart_as(&mut servers, 0, later()).await;
    until("the level has risen", async || {
        status(&servers).await.feature_level == level + 1
    })
    .await;
    all_serve(&servers, "risen").await;

    // A release that only supports the former level cannot be used again.
    servers.nodes.remove(0).stop().await.unwrap();
    let refused = start_as(&servers, "1", Release::ours()).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("the cluster is at level 2"), "{text}");
}
