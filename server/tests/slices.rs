//! Sectors that rot under the slices of a node: what it lost comes back from the others.
#![allow(missing_docs)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::net::SocketAddr;
use std::path::Path;

use common::{Servers, settings, until, value_of};
use torc_proto::Names;
use torc_proto::v1::replica_client::ReplicaClient;
use torc_proto::v1::{
    Consistency, CreateNamespaceRequest, GetRequest, GetTopologyRequest, NamespaceMode, PutRequest,
    SummarizeRequest,
};
use torc_ring::topology::ClusterId;
use torc_ring::{NodeId, Partitions};
use torc_server::Node;
use torc_server::config::RawSettings;
use torc_store::{Store, StoreOptions};

/// As `settings` founds the cluster.
const PARTITIONS: u32 = 64;
const KEYS: usize = 60;
const DAMAGED: &str = "torc_store_damaged_slices ";

fn key(number: usize) -> String {
    format!("the key {number:03}")
}

fn put(namespace: &str, number: usize) -> PutRequest {
    PutRequest {
        namespace: namespace.into(),
        key: key(number).into(),
        value: format!("value {number}").into(),
        ..PutRequest::default()
    }
}

fn get(namespace: &str, number: usize, consistency: Consistency) -> GetRequest {
    GetRequest {
        namespace: namespace.into(),
        key: key(number).into(),
        consistency: consistency.into(),
        ..GetRequest::default()
    }
}

/// Writes what the store of a stopped node has into slices.
async fn seal(dir: &Path) {
    let mut options = StoreOptions::new(dir.join("store"));
    options.partitions = Partitions::new(PARTITIONS).unwrap();
    let (store, _) = Store::open(options).unwrap();
    store.seal().await.unwrap();
    store.close().await.unwrap();
}

/// Flips a bit of every key in the slices; how many.
fn flip_keys(dir: &Path) -> usize {
    let mut flipped = 0;
    for entry in std::fs::read_dir(dir.join("store")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("segment-") {
            continue;
        }
        let mut bytes = std::fs::read(&path).unwrap();
        let is_key = |at: &usize| bytes[*at..].starts_with(b"the key ");
        let keys: Vec<_> = (0..bytes.len()).filter(is_key).collect();
        for at in &keys {
            bytes[at + 4] ^= 1;
        }
        flipped += keys.len();
        std::fs::write(path, bytes).unwrap();
    }
    flipped
}

impl Servers {
    async fn start_at(&mut self, number: usize, address: SocketAddr) {
        let raw = RawSettings {
            grpc_addr: Some(address),
            ..settings(self.dir.path().join(number.to_string()))
        };
        let node = Node::start(raw.check().unwrap()).await.unwrap();
        self.nodes.insert(number - 1, node);
        self.formed().await;
    }

    /// What a node's copies come to, partition by partition.
    async fn sums(&self, index: usize) -> Vec<(u32, u64, Vec<u8>)> {
        let mut cluster = self.cluster(0).await;
        let topology = cluster.get_topology(GetTopologyRequest::default());
        let topology = topology.await.unwrap().into_inner();
        let cluster = ClusterId(
            topology.topology.unwrap().cluster_id[..]
                .try_into()
                .unwrap(),
        );
        let names = Names::of_node(cluster, NodeId(index as u64 + 1));
        let mut replica = ReplicaClient::with_interceptor(self.channel(index).await, names);
        let partitions = (0..PARTITIONS).collect();
        let answer = replica.summarize(SummarizeRequest { partitions }).await;
        let summaries = answer.unwrap().into_inner().summaries.into_iter();
        summaries
            .map(|one| (one.partition, one.records, one.fingerprint.to_vec()))
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_replica_lost_with_its_keys_is_never_absent_and_comes_back_from_the_others() {
    let mut servers = Servers::start().await;
    let logs = CreateNamespaceRequest {
        name: "logs".into(),
        mode: NamespaceMode::Eventual.into(),
        replicas: 0,
    };
    servers
        .cluster(0)
        .await
        .create_namespace(logs)
        .await
        .unwrap();
    let mut kv = servers.kv(0).await;
    for number in 0..KEYS {
        for namespace in ["", "logs"] {
            until("the write is acknowledged", async || {
                kv.put(put(namespace, number)).await.is_ok()
            })
            .await;
        }
    }
    until("all replicas hold everything", async || {
        let sums = [servers.sums(0).await, servers.sums(1).await];
        sums[0] == sums[1] && sums[0] == servers.sums(2).await
    })
    .await;

    let node = servers.nodes.pop().unwrap();
    let address = node.grpc_addr();
    node.stop().await.unwrap();
    let dir = servers.dir.path().join("3");
    seal(&dir).await;
    assert_eq!(flip_keys(&dir), 2 * KEYS);
    servers.start_at(3, address).await;

    let mut met = 0;
    for number in 0..KEYS {
        for (index, namespace) in [(0, ""), (2, ""), (1, "logs"), (2, "logs")] {
            let mut kv = servers.kv(index).await;
            until("a quorum of the others answers", async || {
                let request = get(namespace, number, Consistency::Unspecified);
                let Ok(answer) = kv.get(request).await else {
                    return false;
                };
                let answer = answer.into_inner();
                assert!(answer.found, "key {number} of {namespace:?} at {index}");
                true
            })
            .await;
        }
        met = servers.metric(2, DAMAGED).await.max(met);
    }
    assert!(met > 0, "nothing was damaged");

    until("the damaged slices are gone", async || {
        servers.metric(2, DAMAGED).await == 0
    })
    .await;
    until("the copies are equal", async || {
        servers.sums(0).await == servers.sums(2).await
    })
    .await;
    let mut kv = servers.kv(2).await;
    for number in 0..KEYS {
        for namespace in ["", "logs"] {
            let own = value_of(&mut kv, get(namespace, number, Consistency::Stale)).await;
            assert_eq!(own, Some(format!("value {number}")), "{namespace:?}");
        }
    }
}
