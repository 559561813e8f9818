//! Writes that only the newcomer of a move has, as a lead leaves them behind that crashes
//! between the newcomer's acceptance and its own.
//!
//! Nobody was told of such a write, so it may still happen: on both sides, or it would
//! keep the copies from ever being equal and the move from ending.
#![allow(missing_docs)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use tonic::transport::Channel;
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::replica_client::ReplicaClient;
use torc_proto::v1::{
    AcceptRequest, GetRequest, GetTopologyRequest, JoinRequest, Record, Stage, StatusRequest,
    Version,
};
use torc_record::{Digest, DigestKey, NamespaceId};
use torc_server::Node;
use torc_server::config::RawSettings;

const PATIENCE: Duration = Duration::from_secs(60);
const PARTITIONS: u32 = 256;

async fn node(dir: &Path, bootstrap: bool) -> Node {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = RawSettings {
        data_dir: Some(dir.to_owned()),
        grpc_addr: Some(any),
        http_addr: Some(any),
        bootstrap: Some(bootstrap),
        partitions: Some(PARTITIONS),
        replicas: Some(1),
        ..RawSettings::default()
    };
    Node::start(settings.check().unwrap()).await.unwrap()
}

async fn channel(node: &Node) -> Channel {
    let url = format!("http://{}", node.grpc_addr());
    Channel::from_shared(url).unwrap().connect().await.unwrap()
}

/// A counter of the node's metrics.
async fn counter(node: &Node, name: &str) -> u64 {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(node.http_addr())
        .await
        .unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let line = answer.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// One key in each partition, with its digest.
fn keys(digest_key: &DigestKey) -> BTreeMap<u32, (String, Digest)> {
    let mut keys = BTreeMap::new();
    for number in 0_u32.. {
        let key = format!("orphan-{number}");
        let digest = Digest::of(digest_key, NamespaceId::DEFAULT, key.as_bytes());
        let partition = (digest.high() >> (64 - PARTITIONS.ilog2())) as u32;
        keys.entry(partition).or_insert((key, digest));
        if keys.len() == PARTITIONS as usize {
            break;
        }
    }
    keys
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_only_the_newcomer_has_happens_on_both_sides_and_the_move_ends() {
    let dir = tempfile::tempdir().unwrap();
    let old = node(&dir.path().join("old"), true).await;
    let new = node(&dir.path().join("new"), false).await;
    let deadline = Instant::now() + PATIENCE;
    while old.ready().is_err() {
        assert!(Instant::now() < deadline, "the cluster does not form");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut cluster = ClusterClient::new(channel(&old).await);
    let mut newcomer = ReplicaClient::new(channel(&new).await);
    let address = new.grpc_addr().to_string();
    cluster
        .join(JoinRequest {
            address,
            parallel: 1,
            ..JoinRequest::default()
        })
        .await
        .unwrap();

    let mut known_epoch = 0;
    let mut keys_by_partition = BTreeMap::new();
    let mut orphans = Vec::new();
    loop {
        assert!(Instant::now() < deadline, "the join does not end");
        let request = GetTopologyRequest { known_epoch };
        let answer = cluster.get_topology(request).await.unwrap().into_inner();
        let topology = answer.topology.unwrap();
        if keys_by_partition.is_empty() {
            keys_by_partition = keys(&DigestKey(topology.digest_key[..].try_into().unwrap()));
        }
        known_epoch = topology.epoch;
        for state in topology.changed {
            if state.stage() != Stage::WriteBothReadOld {
                continue;
            }
            let (key, digest) = &keys_by_partition[&state.partition];
            let record = Record {
                namespace: 1,
                digest: digest.0.to_vec().into(),
                key: key.clone().into(),
                version: Some(Version {
                    epoch: state.epoch,
                    time: 1 << 40,
                    slot: 0,
                }),
                value: key.clone().into(),
                ..Record::default()
            };
            let (partition, epoch) = (state.partition, state.epoch);
            let request = AcceptRequest {
                partition,
                epoch,
                records: vec![record],
            };
            if newcomer.accept(request).await.is_ok() {
                orphans.push(key.clone());
            }
        }
        let request = StatusRequest { local: true };
        let status = cluster.status(request).await.unwrap().into_inner();
        if status.transition.is_none() && status.last_transition.is_some() {
            break;
        }
    }
    assert!(
        !orphans.is_empty(),
        "no write came in time: the test showed nothing"
    );
    let mut kv = KvClient::new(channel(&old).await);
    for key in &orphans {
        let got = kv
            .get(GetRequest {
                key: key.clone().into(),
                ..GetRequest::default()
            })
            .await;
        let got = got.unwrap().into_inner();
        assert_eq!((got.found, &got.value[..]), (true, key.as_bytes()), "{key}");
    }
    let differences = counter(&new, "torc_transfer_differences_total").await;
    assert!(
        differences > 0,
        "every write came after the comparison: the test showed nothing"
    );
}
