//! Slices of running nodes: outside the page cache, and damaged by rotting sectors.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::common::{Servers, settings, until, value_of};
use torc_proto::Names;
use torc_proto::v1::replica_client::ReplicaClient;
use torc_proto::v1::{
    Consistency, CreateNamespaceRequest, GetRequest, GetTopologyRequest, NamespaceMode, PutRequest,
    StatusRequest, SummarizeRequest,
};
use torc_ring::topology::ClusterId;
use torc_ring::{NodeId, Partitions};
use torc_server::Node;
use torc_server::config::RawSettings;
use torc_store::{Store, StoreOptions};

/// As configured in `settings`.
const PARTITIONS: u32 = 64;
const KEYS: usize = 150;
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

/// Writes the records of a stopped node to slices.
async fn flush(dir: &Path) {
    let mut options = StoreOptions::new(dir.join("store"));
    options.partitions = Partitions::new(PARTITIONS).unwrap();
    let (store, _) = Store::open(options).unwrap();
    store.flush().await.unwrap();
    store.close().await.unwrap();
}

/// The files that contain slices.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir.join("store")).unwrap();
    let paths = files.map(|entry| entry.unwrap().path());
    let is_segment = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("segment-")
    };
    paths.filter(is_segment).collect()
}

/// Flips a bit of every second key in the slices, so that some places have intact ones before and
/// after them; returns their number.
fn flip_keys(dir: &Path) -> usize {
    let mut flipped = 0;
    for path in segments(dir) {
        let mut bytes = std::fs::read(&path).unwrap();
        let is_key = |at: &usize| bytes[*at..].starts_with(b"the key ");
        let keys: Vec<_> = (0..bytes.len()).filter(is_key).collect();
        for at in keys.iter().step_by(2) {
            bytes[at + 4] ^= 1;
            flipped += 1;
        }
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

    /// The number of damaged slices of each node, according to the first one.
    async fn damaged(&self) -> Vec<u64> {
        let mut cluster = self.cluster(0).await;
        let status = cluster.status(StatusRequest::default()).await.unwrap();
        let nodes = status.into_inner().nodes.into_iter();
        nodes.map(|node| node.damaged_slices).collect()
    }

    /// The sums of a node's partitions.
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
        let url = format!("http://{}", self.nodes[index].peer_addr());
        let channel = tonic::transport::Channel::from_shared(url)
            .unwrap()
            .connect()
            .await
            .unwrap();
        let mut replica = ReplicaClient::with_interceptor(channel, names);
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
    flush(&dir).await;
    assert_eq!(flip_keys(&dir), KEYS);
    servers.start_at(3, address).await;

    let (mut met, mut told) = (0, Vec::new());
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
        told = servers.damaged().await.max(told);
    }
    assert!(met > 0, "nothing was damaged");
    assert!(
        matches!(told[..], [0, 0, 1..=u64::MAX]),
        "the status tells of the damage and where it is: {told:?}"
    );

    until("the damaged slices are gone", async || {
        servers.metric(2, DAMAGED).await == 0 && servers.damaged().await == [0, 0, 0]
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_get_of_a_cold_record_is_read_where_nobody_is_served() {
    const TMPFS: i64 = 0x0102_1994;
    const FROM_DISK: &str = "torc_stale_gets_from_disk_total ";
    let mut servers = Servers::start().await;
    let dir = servers.dir.path().join("3");
    if rustix::fs::statfs(&dir).unwrap().f_type == TMPFS {
        eprintln!("skipped: this file system has no page that is not in memory");
        return;
    }
    let mut kv = servers.kv(2).await;
    for number in 0..KEYS {
        until("the write is acknowledged", async || {
            kv.put(put("", number)).await.is_ok()
        })
        .await;
    }
    until("node 3 holds everything", async || {
        servers.sums(0).await == servers.sums(2).await
    })
    .await;
    let node = servers.nodes.pop().unwrap();
    let address = node.grpc_addr();
    node.stop().await.unwrap();
    flush(&dir).await;
    servers.start_at(3, address).await;

    let mut kv = servers.kv(2).await;
    let stale = |number| get("", number, Consistency::Stale);
    assert_eq!(servers.metric(2, FROM_DISK).await, 0);
    until("a record is read from the disk", async || {
        for path in segments(&dir) {
            let file = File::open(path).unwrap();
            file.sync_all().unwrap();
            let advice = rustix::fs::Advice::DontNeed;
            rustix::fs::fadvise(&file, 0, None, advice).unwrap();
        }
        let value = value_of(&mut kv, stale(0)).await;
        assert_eq!(value.as_deref(), Some("value 0"));
        servers.metric(2, FROM_DISK).await > 0
    })
    .await;
    for number in 0..KEYS {
        let value = value_of(&mut kv, stale(number)).await;
        assert_eq!(value, Some(format!("value {number}")));
    }
    let absent = value_of(&mut kv, stale(KEYS)).await;
    assert_eq!(absent, None);
}
