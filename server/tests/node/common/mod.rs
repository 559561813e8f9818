//! A cluster of three real nodes in this process, with the default of three replicas.
pub(crate) mod office;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt as _;
use tonic::Request;
use tonic::transport::Channel;
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::{GetRequest, JoinRequest, NodeStatus, Plan, ScanRequest, StatusRequest};
use torc_server::Node;
use torc_server::config::RawSettings;
pub(crate) use torc_testkit::until;
use torc_testkit::{free_address, http_get};

pub(crate) struct Servers {
    pub(crate) nodes: Vec<Node>,
    pub(crate) dir: tempfile::TempDir,
}

/// The addresses of a node that is started again stay free for it.
pub(crate) fn settings(dir: PathBuf) -> RawSettings {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    RawSettings {
        test_link_faults: Some(dir.join("link-faults.json")),
        data_dir: Some(dir),
        grpc_addr: Some(free_address().unwrap()),
        peer_addr: Some(free_address().unwrap()),
        http_addr: Some(any),
        resp_addr: Some(any),
        partitions: Some(64),
        ..RawSettings::default()
    }
}

/// Starts nodes that found a cluster together, and waits until all are ready. The first one is the
/// founder.
pub(crate) async fn found(settings: impl IntoIterator<Item = RawSettings>) -> Vec<Node> {
    let mut settings = settings.into_iter();
    let founder = settings.next().unwrap();
    let mut nodes = Vec::new();
    for settings in settings {
        nodes.push(Node::start(settings.check().unwrap()).await.unwrap());
    }
    let others = nodes.iter().map(|node| node.grpc_addr().to_string());
    let founder = RawSettings {
        bootstrap: Some(true),
        found_with: Some(others.collect()),
        ..founder
    };
    nodes.insert(0, Node::start(founder.check().unwrap()).await.unwrap());
    formed(&nodes).await;
    nodes
}

async fn formed(nodes: &[Node]) {
    until("the cluster forms", async || {
        nodes.iter().all(|node| node.ready().is_ok())
    })
    .await;
}

impl Servers {
    pub(crate) async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), None).await
    }

    /// Each node has a separate directory there, named by its number.
    pub(crate) async fn start_in(dir: tempfile::TempDir, log_segment_mib: Option<u64>) -> Self {
        let with_segments = |settings| RawSettings {
            log_segment_mib,
            ..settings
        };
        Self::start_with(dir, with_segments).await
    }

    /// Starts with other settings than usual.
    pub(crate) async fn start_with(
        dir: tempfile::TempDir,
        change: impl Fn(RawSettings) -> RawSettings,
    ) -> Self {
        let settings = |number: &str| change(settings(dir.path().join(number)));
        let nodes = found(["1", "2", "3"].map(settings)).await;
        Self { nodes, dir }
    }

    pub(crate) async fn formed(&self) {
        formed(&self.nodes).await;
    }

    /// Joins another node; returns the plan once the join has ended and all nodes know.
    pub(crate) async fn join(&mut self) -> Plan {
        let number = self.nodes.len() + 1;
        let settings = settings(self.dir.path().join(number.to_string()));
        self.nodes
            .push(Node::start(settings.check().unwrap()).await.unwrap());
        let join = JoinRequest {
            address: self.nodes[number - 1].grpc_addr().to_string(),
            ..JoinRequest::default()
        };
        let begun = self.cluster(0).await.join(join).await.unwrap();
        until("it has joined, and all know", async || {
            let mut cluster = self.cluster(number - 1).await;
            let status = cluster.status(StatusRequest::default()).await;
            status.is_ok_and(|status| {
                let status = status.into_inner();
                let knows = |node: &NodeStatus| node.epoch == status.epoch;
                let is_over = status.transition.is_none() && status.last_transition.is_some();
                is_over && status.nodes.len() == number && status.nodes.iter().all(knows)
            })
        })
        .await;
        begun.into_inner().plan.unwrap()
    }

    pub(crate) async fn channel(&self, index: usize) -> Channel {
        let url = format!("http://{}", self.nodes[index].grpc_addr());
        Channel::from_shared(url).unwrap().connect().await.unwrap()
    }

    pub(crate) async fn kv(&self, index: usize) -> KvClient<Channel> {
        KvClient::new(self.channel(index).await)
    }

    pub(crate) async fn cluster(&self, index: usize) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel(index).await)
    }

    /// Cuts or heals a node's links; returns once the node has applied that.
    pub(crate) fn link_faults(&self, index: usize, faults: &str) {
        let dir = self.dir.path().join((index + 1).to_string());
        std::fs::write(dir.join("new.json"), faults).unwrap();
        std::fs::rename(dir.join("new.json"), dir.join("link-faults.json")).unwrap();
    }

    /// The metrics of a node, as text.
    pub(crate) async fn metrics(&self, index: usize) -> String {
        let metrics = http_get(self.nodes[index].http_addr(), "/metrics");
        metrics.await.unwrap().1
    }

    /// The first of a node's metrics whose line begins like this.
    pub(crate) async fn metric(&self, index: usize, name: &str) -> u64 {
        let metrics = self.metrics(index).await;
        let line = metrics.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{name} is missing:\n{metrics}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

/// A request with a short deadline, for calls that must fail.
pub(crate) fn timed<T>(request: T) -> Request<T> {
    let mut request = Request::new(request);
    request.set_timeout(Duration::from_millis(800));
    request
}

pub(crate) async fn value_of(kv: &mut KvClient<Channel>, request: GetRequest) -> Option<String> {
    let answer = kv.get(request).await.unwrap().into_inner();
    let value = String::from_utf8(answer.value.to_vec()).unwrap();
    answer.found.then_some(value)
}

/// The result of a scan of a namespace, in key order.
pub(crate) async fn entries_of(
    kv: &mut KvClient<Channel>,
    namespace: &str,
) -> Vec<(String, String)> {
    let request = ScanRequest {
        namespace: namespace.into(),
        ..ScanRequest::default()
    };
    let pages = kv.scan(request).await.unwrap().into_inner();
    let pages: Vec<_> = pages.map(Result::unwrap).collect().await;
    let entries = pages.iter().flat_map(|page| &page.entries);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut entries: Vec<_> = entries
        .map(|entry| (text(&entry.key), text(&entry.value)))
        .collect();
    entries.sort();
    entries
}
