//! The group's connections to other nodes.
//!
//! The node's pool has them. Every call looks up the address in the topology, because members can
//! move; if the topology does not know the node (yet), it uses the address in the Raft membership.
//!
//! Absent on purpose: retries, which are up to Raft and the proposer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use openraft::BasicNode;
use openraft::error::{InstallSnapshotError, RPCError, RaftError, RemoteError, Unreachable};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::Channel;
use torc_proto::v1::topology_group_client::TopologyGroupClient;
use torc_proto::{Fault, Reason};
use torc_ring::NodeId;
use torc_ring::topology::{Boot, ClusterId, NewMember, Topology};
use torc_tls::{Pool, Traffic};

use crate::raft::TypeConfig;
use crate::wire::{Envelope, MAX_MESSAGE_LEN, decode, encode};
use crate::{Cuts, Disowned};

/// How long Raft does not contact an unreachable node.
const BACKOFF: Duration = Duration::from_millis(200);

/// The calls of the service.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rpc {
    AppendEntries,
    InstallSnapshot,
    Vote,
    Propose,
}

/// A failed call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("node {node} has no usable address (`{address}`)")]
    Address { node: NodeId, address: String },
    #[error("this node does not know its cluster yet")]
    NoCluster,
    #[error("this node must stop")]
    Disowned,
    #[error("cannot encode the message: {0}")]
    Encode(serde_json::Error),
    #[error("node {node} at {address}: {fault}")]
    Fault {
        node: NodeId,
        address: String,
        fault: Fault,
    },
    #[error("this release does not understand the answer of node {node}: {reason}")]
    Answer {
        node: NodeId,
        reason: serde_json::Error,
    },
}

impl CallError {
    /// Whether the other node may have carried out the request.
    pub(crate) fn leaves_open(&self) -> bool {
        match self {
            Self::Address { .. } | Self::NoCluster | Self::Disowned | Self::Encode(_) => false,
            Self::Fault { fault, .. } => fault.maybe_applied,
            Self::Answer { .. } => true,
        }
    }
}

/// Calls to the other nodes, and when each answered last.
pub(crate) struct Peers {
    /// As received when the node became a member; `None` for a founder.
    cluster: Option<ClusterId>,
    topology: watch::Receiver<Option<Arc<Topology>>>,
    answered: Mutex<BTreeMap<NodeId, Instant>>,
    moved: Mutex<BTreeMap<NodeId, Moved>>,
    /// Where this node serves other nodes; empty if it does not say.
    at: String,
    me: NodeId,
    boot: Boot,
    disowned: Disowned,
    /// For tests.
    cuts: Option<Cuts>,
    pool: Arc<Pool>,
}

/// A member that serves at another address than the topology has, as after a restart elsewhere. The
/// topology learns of it only by an agreement of the voters, and they may need the address to agree.
struct Moved {
    from: String,
    to: String,
}

impl Peers {
    pub(crate) fn new(
        cluster: Option<ClusterId>,
        topology: watch::Receiver<Option<Arc<Topology>>>,
        (me, boot, disowned): (NodeId, Boot, Disowned),
        pool: Arc<Pool>,
    ) -> Self {
        Self {
            cluster,
            topology,
            answered: Mutex::default(),
            moved: Mutex::default(),
            at: String::new(),
            me,
            boot,
            disowned,
            cuts: None,
            pool,
        }
    }

    /// Tells others where this node serves.
    pub(crate) fn with_address(mut self, address: String) -> Self {
        self.at = address;
        self
    }

    /// For tests: drops calls to these nodes.
    pub(crate) fn with_cuts(mut self, cuts: Option<Cuts>) -> Self {
        self.cuts = cuts;
        self
    }

    /// The cluster of sent and accepted messages.
    pub(crate) fn cluster(&self) -> Option<ClusterId> {
        self.topology
            .borrow()
            .as_ref()
            .map(|topology| topology.cluster())
            .or(self.cluster)
    }

    /// Notes where a member says that it serves.
    pub(crate) fn serves_at(&self, node: NodeId, address: &str) {
        let topology = self.topology.borrow().clone();
        let members = topology.as_ref().map(|topology| topology.members());
        let Some(member) = members.and_then(|members| members.get(&node)) else {
            return;
        };
        let known = &member.identity.peer_address;
        let mut moved = self.moved.lock();
        if known == address || address.is_empty() || address.len() > NewMember::MAX_ADDRESS_LEN {
            moved.remove(&node);
            return;
        }
        moved.retain(|id, _| members.is_some_and(|members| members.contains_key(id)));
        let (from, to) = (known.clone(), address.to_owned());
        moved.insert(node, Moved { from, to });
    }

    /// The last confirmed start of a node.
    fn known_boot(&self, node: NodeId) -> Option<Boot> {
        let topology = self.topology.borrow();
        topology.as_ref().and_then(|topology| topology.boot(node))
    }

    /// Refuses messages if either side knows a later start of the other: that one has an older
    /// copy or a clone of its data directory, and has forgotten votes that it gave.
    pub(crate) fn check_boots<T>(&self, envelope: &Envelope<T>) -> Result<(), Fault> {
        if let Some(known) = envelope.known
            && self.boot.is_superseded_by(known)
        {
            let _ = self
                .disowned
                .set(Fault::superseded(self.me, self.boot, known).message);
        }
        self.check_disowned()?;
        match self.known_boot(envelope.from) {
            Some(known) if envelope.boot.is_superseded_by(known) => {
                Err(Fault::superseded(envelope.from, envelope.boot, known))
            }
            _ => Ok(()),
        }
    }

    fn check_disowned(&self) -> Result<(), Fault> {
        let why = self.disowned.get();
        why.map_or(Ok(()), |why| {
            Err(Fault::new(Reason::NotServing, why.clone()))
        })
    }

    /// When `node` last answered a call.
    pub(crate) fn answered(&self, node: NodeId) -> Option<Instant> {
        self.answered.lock().get(&node).copied()
    }

    /// Calls `node`, at `fallback` if the topology does not know its address.
    pub(crate) async fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        node: NodeId,
        fallback: &str,
        rpc: Rpc,
        question: Q,
        within: Duration,
    ) -> Result<A, CallError> {
        self.check_disowned().map_err(|_| CallError::Disowned)?;
        let cluster = self.cluster().ok_or(CallError::NoCluster)?;
        let envelope = Envelope {
            cluster,
            to: node,
            known: self.known_boot(node),
            from: self.me,
            boot: self.boot,
            at: self.at.clone(),
            body: question,
        };
        let mut request = tonic::Request::new(encode(&envelope).map_err(CallError::Encode)?);
        request.set_timeout(within);
        let (address, channel) = self.channel(node, fallback)?;
        if self.cuts.as_ref().is_some_and(|cuts| cuts.has(node)) {
            tokio::time::sleep(within).await;
            let fault = Fault::from_status(&tonic::Status::unavailable("cut off by a test"));
            return Err(CallError::Fault {
                node,
                address,
                fault,
            });
        }
        let mut client = TopologyGroupClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_LEN)
            .max_encoding_message_size(MAX_MESSAGE_LEN);
        let answer = match rpc {
            Rpc::AppendEntries => client.append_entries(request).await,
            Rpc::InstallSnapshot => client.install_snapshot(request).await,
            Rpc::Vote => client.vote(request).await,
            Rpc::Propose => client.propose(request).await,
        };
        let answer = answer.map_err(|status| {
            let fault = Fault::from_status(&status);
            if fault.reason == Reason::Superseded {
                let _ = self.disowned.set(fault.message.clone());
            }
            CallError::Fault {
                node,
                address,
                fault,
            }
        })?;
        self.answered.lock().insert(node, Instant::now());
        decode(answer.get_ref()).map_err(|reason| CallError::Answer { node, reason })
    }

    fn channel(&self, node: NodeId, fallback: &str) -> Result<(String, Channel), CallError> {
        let address = self.address(node, fallback);
        match self.pool.channel(&address, Traffic::Prompt) {
            Ok(channel) => Ok((address, channel)),
            Err(_) => Err(CallError::Address { node, address }),
        }
    }

    fn address(&self, node: NodeId, fallback: &str) -> String {
        let topology = self.topology.borrow().clone();
        let members = topology.as_ref().map(|topology| topology.members());
        let is_member = |id: &NodeId| members.is_some_and(|members| members.contains_key(id));
        self.answered
            .lock()
            .retain(|id, _| is_member(id) || *id == node);
        let member = members.and_then(|members| members.get(&node));
        let address = member.map_or(fallback, |member| member.identity.peer_address.as_str());
        let moved = self.moved.lock();
        let moved = moved.get(&node).filter(|moved| moved.from == address);
        moved.map_or(address, |moved| moved.to.as_str()).to_owned()
    }
}

/// Makes Raft's connections.
pub(crate) struct Network(pub(crate) Arc<Peers>);

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Connection;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Connection {
        Connection {
            peers: Arc::clone(&self.0),
            target: NodeId(target),
            address: node.addr.clone(),
        }
    }
}

/// Raft's connection to one node.
pub(crate) struct Connection {
    peers: Arc<Peers>,
    target: NodeId,
    /// As in the Raft membership.
    address: String,
}

impl Connection {
    async fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        rpc: Rpc,
        question: Q,
        option: &RPCOption,
    ) -> Result<A, CallError> {
        self.peers
            .call(self.target, &self.address, rpc, question, option.hard_ttl())
            .await
    }
}

/// Raft does not contact a node that does not answer for a while, whatever the cause.
fn unreachable<E: std::error::Error>(error: &CallError) -> RPCError<u64, BasicNode, E> {
    Unreachable::new(error).into()
}

impl RaftNetwork<TypeConfig> for Connection {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        let answer = self.call(Rpc::AppendEntries, rpc, &option).await;
        answer.map_err(|error| unreachable(&error))
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<
        InstallSnapshotResponse<u64>,
        RPCError<u64, BasicNode, RaftError<u64, InstallSnapshotError>>,
    > {
        let answer = self.call(Rpc::InstallSnapshot, rpc, &option).await;
        let answer: Result<_, InstallSnapshotError> =
            answer.map_err(|error| unreachable(&error))?;
        answer
            .map_err(|refused| RemoteError::new(self.target.0, RaftError::APIError(refused)).into())
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        let answer = self.call(Rpc::Vote, rpc, &option).await;
        answer.map_err(|error| unreachable(&error))
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(BACKOFF))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(cluster: Option<ClusterId>) -> Peers {
        let me = (NodeId(1), Boot::default(), Disowned::default());
        let topology = watch::Sender::new(None).subscribe();
        Peers::new(cluster, topology, me, Arc::default())
    }

    #[tokio::test]
    async fn a_node_that_was_never_reached_did_nothing() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let peers = peers(Some(ClusterId([1; 16])));
        let within = Duration::from_secs(10);
        let address = closed.to_string();
        let call = peers.call::<_, ()>(NodeId(2), &address, Rpc::Vote, (), within);
        let error = call.await.unwrap_err();
        assert!(matches!(error, CallError::Fault { .. }), "{error}");
        assert!(!error.leaves_open(), "{error}");
        assert_eq!(peers.answered(NodeId(2)), None);
    }

    #[tokio::test]
    async fn a_call_to_a_node_that_is_cut_off_is_lost_and_may_have_done_anything() {
        let cuts = Cuts::new(|node| node == NodeId(2));
        let peers = peers(Some(ClusterId([1; 16]))).with_cuts(Some(cuts));
        let within = Duration::from_millis(10);
        let call = |node| peers.call::<_, ()>(node, "127.0.0.1:1", Rpc::Vote, (), within);
        let error = call(NodeId(2)).await.unwrap_err();
        assert!(error.to_string().contains("cut off by a test"), "{error}");
        assert!(error.leaves_open(), "{error}");
        let error = call(NodeId(3)).await.unwrap_err();
        assert!(!error.to_string().contains("cut off"), "{error}");
    }

    #[tokio::test]
    async fn nothing_is_sent_without_a_cluster_or_an_address() {
        let within = Duration::from_secs(10);
        let call = |peers: Peers, address: &'static str| async move {
            peers
                .call::<_, ()>(NodeId(2), address, Rpc::Vote, (), within)
                .await
                .unwrap_err()
        };
        let error = call(peers(None), "127.0.0.1:1").await;
        assert!(matches!(error, CallError::NoCluster), "{error}");
        let error = call(peers(Some(ClusterId([1; 16]))), "no address").await;
        assert!(matches!(error, CallError::Address { .. }), "{error}");
    }
}
