//! Nodes of a test cluster, each with its own store, socket and threads.
//!
//! A node that crashes loses its threads and connections at once and leaves on disk what it had
//! written; it restarts under the same address. The number and cluster that a node got when it was
//! enlisted stand in for the rest of its data directory.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch::Receiver;
use tokio::time::timeout;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use torc_proto::{Fault, Reason};
use torc_ring::NodeId;
use torc_ring::topology::{
    ClusterId, Command, Founding, Member, NewMember, Outcome, Proposal, Sizes, Topology,
    TransitionKind,
};

use super::fixture::{founding, member, next_reports};
use crate::raft::Metrics;
use crate::{Enlister, GroupError, GroupMetrics, GroupOptions, TopologyGroup, keep_membership};

/// Long enough for any machine; a test waits this long only to fail.
pub(super) const TIMEOUT: Duration = Duration::from_secs(120);

/// The part of a data directory that outlives a crash, besides the store.
type Papers = Arc<Mutex<Option<(NodeId, ClusterId)>>>;

/// The running nodes by address.
type Directory = Arc<Mutex<BTreeMap<String, (TopologyGroup, Papers, Handle)>>>;

/// Replaces the nodes' own way to enlist each other.
struct TestEnlister {
    cluster: ClusterId,
    directory: Directory,
}

impl Enlister for TestEnlister {
    fn enlist<'a>(&'a self, node: NodeId, member: &'a Member) -> BoxFuture<'a, Result<(), Fault>> {
        let there = self
            .directory
            .lock()
            .get(&member.identity.peer_address)
            .cloned();
        Box::pin(async move {
            let gone = || Fault::new(Reason::OwnerUnreachable, "nobody listens there");
            let (group, papers, handle) = there.ok_or_else(gone)?;
            let cluster = self.cluster;
            papers.lock().get_or_insert((node, cluster));
            let started = handle.spawn(async move { group.start(node, cluster).await });
            started.await.map_err(|_| gone())?.map_err(Fault::from)
        })
    }
}

/// A running node.
struct Up {
    group: TopologyGroup,
    runtime: Runtime,
}

/// A node, up or down.
pub(super) struct Node {
    number: u8,
    address: SocketAddr,
    dir: TempDir,
    papers: Papers,
    up: Option<Up>,
}

/// A cluster of nodes numbered from 1, which are members in this order.
pub(super) struct Cluster {
    nodes: Vec<Node>,
    directory: Directory,
    options: GroupOptions,
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(up) = self.up.take() {
            up.runtime.shutdown_background();
        }
    }
}

/// Settings with short elections.
pub(super) fn options(dir: &Path) -> GroupOptions {
    GroupOptions {
        dir: dir.to_owned(),
        heartbeat_ms: 100,
        election_timeout_ms: (300, 600),
        departure_grace_ms: 1_000,
        ..GroupOptions::default()
    }
}

/// Starts and stops nodes.
impl Cluster {
    /// `nodes` nodes that listen and belong to no cluster.
    pub(super) async fn of(nodes: u8, options: GroupOptions) -> Self {
        let mut cluster = Self {
            nodes: Vec::new(),
            directory: Directory::default(),
            options,
        };
        for _ in 0..nodes {
            cluster.grow().await;
        }
        cluster
    }

    /// A founded cluster whose founding members have all answered.
    pub(super) async fn founded(nodes: u8) -> Self {
        let cluster = Self::of(nodes, options(Path::new(""))).await;
        cluster.found(nodes).await.unwrap();
        cluster
    }

    /// Starts another node that listens and belongs to no cluster; returns its number.
    pub(super) async fn grow(&mut self) -> u8 {
        let number = self.nodes.len() as u8 + 1;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        self.nodes.push(Node {
            number,
            address: listener.local_addr().unwrap(),
            dir: tempfile::tempdir().unwrap(),
            papers: Papers::default(),
            up: None,
        });
        self.bring_up(number, listener).await;
        number
    }

    /// Kills the node at once, like `kill -9`.
    pub(super) fn crash(&mut self, number: u8) {
        let node = &mut self.nodes[usize::from(number) - 1];
        self.directory.lock().remove(&node.address.to_string());
        let Some(up) = node.up.take() else { return };
        let left = tempfile::tempdir().unwrap();
        up.group.inner.store.abandon(node.dir.path(), left.path());
        node.dir = left;
        up.runtime.shutdown_background();
    }

    /// Stops the node, like SIGTERM.
    pub(super) async fn stop(&mut self, number: u8) {
        let node = &mut self.nodes[usize::from(number) - 1];
        self.directory.lock().remove(&node.address.to_string());
        let Some(up) = node.up.take() else { return };
        up.group.shutdown().await;
        up.runtime.shutdown_background();
    }

    /// Restarts the node at the same address with its own store.
    pub(super) async fn restart(&mut self, number: u8) {
        let address = self.nodes[usize::from(number) - 1].address;
        let listener = loop {
            match std::net::TcpListener::bind(address) {
                Ok(listener) => break listener,
                // A short-lived connection of another test holds the port.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        self.bring_up(number, listener).await;
    }

    /// Restarts the node at another address, without informing any other node.
    pub(super) async fn move_away(&mut self, number: u8) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        self.nodes[usize::from(number) - 1].address = address;
        self.bring_up(number, listener).await;
        address.to_string()
    }

    /// Restarts two nodes that are down, each at the address of the other, without informing any other
    /// node.
    pub(super) async fn exchange(&mut self, (one, other): (u8, u8)) {
        let index = |number: u8| usize::from(number) - 1;
        let (of_one, of_other) = (
            self.nodes[index(one)].address,
            self.nodes[index(other)].address,
        );
        self.nodes[index(one)].address = of_other;
        self.nodes[index(other)].address = of_one;
        self.restart(one).await;
        self.restart(other).await;
    }

    async fn bring_up(&mut self, number: u8, listener: std::net::TcpListener) {
        let node = &mut self.nodes[usize::from(number) - 1];
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let dir = node.dir.path().to_owned();
        let group = TopologyGroup::open(GroupOptions {
            dir,
            address: node.address.to_string(),
            // A connection ends with the runtime of the node that opened it.
            pool: Arc::default(),
            ..self.options.clone()
        })
        .unwrap();
        let address = node.address.to_string();
        let entry = (group.clone(), node.papers.clone(), runtime.handle().clone());
        self.directory.lock().insert(address, entry);
        let enlister = Arc::new(TestEnlister {
            cluster: founding(1).cluster,
            directory: self.directory.clone(),
        });
        let papers = *node.papers.lock();
        let serving = group.clone();
        let ready = runtime.spawn(async move {
            listener.set_nonblocking(true).unwrap();
            let listener = TcpListener::from_std(listener).unwrap();
            let sockets = TcpListenerStream::new(listener).map(|socket| {
                let socket = socket?;
                socket.set_nodelay(true)?;
                Ok::<_, std::io::Error>(socket)
            });
            let server = Server::builder().add_service(serving.service());
            tokio::spawn(server.serve_with_incoming(sockets));
            tokio::spawn(keep_membership(
                serving.clone(),
                enlister,
                CancellationToken::new(),
            ));
            if let Some((node, cluster)) = papers {
                serving.start(node, cluster).await.unwrap();
            }
        });
        ready.await.unwrap();
        node.up = Some(Up { group, runtime });
    }
}

/// Observation.
impl Cluster {
    pub(super) fn group(&self, number: u8) -> TopologyGroup {
        let up = self.nodes[usize::from(number) - 1].up.as_ref();
        up.expect("the node is up").group.clone()
    }

    /// Directory of the node's store.
    pub(super) fn dir(&self, number: u8) -> &Path {
        self.nodes[usize::from(number) - 1].dir.path()
    }

    pub(super) fn new_member(&self, number: u8) -> NewMember {
        member(
            number,
            &self.nodes[usize::from(number) - 1].address.to_string(),
        )
    }

    fn up(&self) -> impl Iterator<Item = (u8, &Up)> {
        self.nodes
            .iter()
            .filter_map(|node| Some((node.number, node.up.as_ref()?)))
    }

    /// Running nodes that have been enlisted.
    fn started(&self) -> impl Iterator<Item = (u8, Receiver<Metrics>)> {
        self.up().filter_map(|(number, up)| {
            let running = up.group.running().ok()?;
            Some((number, running.raft.metrics()))
        })
    }

    /// The leader on which the running nodes agree, once it is one of them.
    pub(super) async fn leader(&self) -> u8 {
        let up: BTreeSet<u64> = self
            .started()
            .map(|(number, _)| u64::from(number))
            .collect();
        let mut metrics: Vec<_> = self.started().map(|(_, metrics)| metrics).collect();
        let agree = async {
            loop {
                let leaders: BTreeSet<Option<u64>> =
                    metrics.iter().map(|m| m.borrow().current_leader).collect();
                if let (1, Some(Some(leader))) = (leaders.len(), leaders.first())
                    && up.contains(leader)
                {
                    return *leader as u8;
                }
                let changes = metrics.iter_mut().map(|m| Box::pin(m.changed()));
                futures::future::select_all(changes).await.0.unwrap();
            }
        };
        timeout(TIMEOUT, agree)
            .await
            .expect("the nodes do not agree on a leader")
    }

    /// Waits until every participating node has a topology that satisfies `wanted`.
    pub(super) async fn all_have(&self, what: &str, wanted: impl Fn(&Topology) -> bool) {
        for (number, _) in self.started() {
            let mut topology = self.group(number).watch();
            let has = topology.wait_for(|t| t.as_deref().is_some_and(&wanted));
            let waited = timeout(TIMEOUT, has).await;
            waited
                .unwrap_or_else(|_| panic!("node {number} never saw {what}"))
                .unwrap();
        }
    }

    /// Waits until the node has started and its figures satisfy `wanted`.
    pub(super) async fn metrics_of(
        &self,
        number: u8,
        what: &str,
        wanted: impl Fn(&GroupMetrics) -> bool,
    ) -> GroupMetrics {
        let group = self.group(number);
        let reached = async {
            let mut metrics = loop {
                match group.running() {
                    Ok(running) => break running.raft.metrics(),
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            };
            let reached = metrics.wait_for(|m| wanted(&GroupMetrics::from(m))).await;
            GroupMetrics::from(&*reached.unwrap())
        };
        timeout(TIMEOUT, reached)
            .await
            .unwrap_or_else(|_| panic!("node {number} never had {what}: {:?}", group.metrics()))
    }

    /// Waits until every participating node has exactly these voters and learners.
    pub(super) async fn membership_becomes(&self, voters: &[u8], learners: &[u8]) {
        let set = |nodes: &[u8]| nodes.iter().map(|n| NodeId(u64::from(*n))).collect();
        let (voters, learners): (BTreeSet<NodeId>, BTreeSet<NodeId>) = (set(voters), set(learners));
        let what = format!("voters {voters:?} and learners {learners:?}");
        let wanted = |m: &GroupMetrics| !m.changing && m.voters == voters && m.learners == learners;
        self.membership_is(&what, wanted).await;
        for node in voters.union(&learners) {
            self.metrics_of(node.0 as u8, &what, wanted).await;
        }
    }

    /// Waits until every participating node has a settled membership that satisfies `wanted`.
    pub(super) async fn membership_is(&self, what: &str, wanted: impl Fn(&GroupMetrics) -> bool) {
        let wanted = |m: &GroupMetrics| !m.changing && wanted(m);
        for (number, _) in self.started() {
            self.metrics_of(number, what, wanted).await;
        }
    }
}

/// Commands.
impl Cluster {
    pub(super) fn founding(&self, nodes: u8) -> Founding {
        let members = (1..=nodes).map(|number| self.new_member(number)).collect();
        Founding {
            members,
            ..founding(1)
        }
    }

    /// Founds the cluster on node 1 with the first nodes as members.
    pub(super) async fn found(&self, nodes: u8) -> Result<(), GroupError> {
        let founding = self.founding(nodes);
        let first = &self.nodes[0];
        *first.papers.lock() = Some((NodeId(1), founding.cluster));
        let up = first.up.as_ref().expect("node 1 is up");
        let group = up.group.clone();
        up.runtime
            .spawn(async move { group.found(NodeId(1), founding).await })
            .await
            .unwrap()
    }

    /// Proposes through a node, without a short deadline.
    pub(super) async fn propose(&self, number: u8, command: Command) -> Outcome {
        self.group(number).propose(command, TIMEOUT).await.unwrap()
    }

    /// Makes a node a member without positions on the ring.
    pub(super) async fn enrol(&self, through: u8, number: u8) {
        let command = Command::Enrol(self.new_member(number));
        let Outcome::Enrolled { node, .. } = self.propose(through, command).await else {
            panic!("another outcome")
        };
        assert_eq!(
            node,
            NodeId(u64::from(number)),
            "members are enrolled in order"
        );
    }
}

/// Joins and leaves, with the reports that nodes would send.
impl Cluster {
    pub(super) async fn join(&self, through: u8, number: u8) {
        self.enrol(through, number).await;
        self.run(through, TransitionKind::Join(NodeId(u64::from(number))))
            .await;
    }

    pub(super) async fn leave(&self, through: u8, number: u8) {
        self.run(through, TransitionKind::Leave(NodeId(u64::from(number))))
            .await;
    }

    async fn run(&self, through: u8, kind: TransitionKind) {
        let group = self.group(through);
        let topology = group.read_current(TIMEOUT).await.unwrap();
        let proposal = Proposal {
            kind,
            based_on: topology.epoch(),
            parallel: 1024,
            planned: Sizes::default(),
            at_ms: 1,
            force: false,
        };
        self.propose(through, Command::Begin(proposal)).await;
        loop {
            let topology = group.read_current(TIMEOUT).await.unwrap();
            let reports = next_reports(&topology);
            if reports.is_empty() {
                return;
            }
            for report in reports {
                self.propose(through, report).await;
            }
        }
    }
}
