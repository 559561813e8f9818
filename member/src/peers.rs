//! Connections to the other nodes.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::timeout_at;

use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Response, Status};
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::replica_client::ReplicaClient;
use torc_proto::{Fault, MAX_MESSAGE_LEN, Names, Reason};
use torc_ring::NodeId;
use torc_ring::topology::{ClusterId, RoutingTable};
use torc_session::{Accepting, Session, SessionPermit, Unsent};
use torc_tls::{Pool, Traffic};

/// Messages between nodes may be larger than those of clients, because they carry whole pages.
const MAX_PEER_MESSAGE_LEN: usize = 2 * MAX_MESSAGE_LEN;

/// A channel whose requests name their recipient.
pub type Named = InterceptedService<Channel, Names>;

/// Most operations in flight at another node on this node's session with it.
const WINDOW: usize = 512;

/// Clients of the other nodes' services.
#[derive(Debug)]
pub struct Peers {
    pool: Arc<Pool>,
    sessions: Mutex<BTreeMap<Recipient, Open>>,
}

/// A session with another node.
#[derive(Debug, Clone)]
struct Open {
    session: Arc<Session>,
    window: Arc<Semaphore>,
}

impl Peers {
    /// Clients that use the node's connections.
    #[must_use]
    pub fn new(pool: Arc<Pool>) -> Self {
        Self {
            pool,
            sessions: Mutex::default(),
        }
    }

    fn channel(&self, address: &str) -> Result<Channel, Fault> {
        self.pool.channel(address, Traffic::Bulk).map_err(|error| {
            Fault::new(
                Reason::Invalid,
                format!("`{address}` is not host:port: {error}"),
            )
        })
    }

    /// A channel to a node that may not be a member, to identify or enlist it.
    ///
    /// # Errors
    /// `INVALID` if the address is not HOST:PORT.
    pub fn stranger(&self, address: &str) -> Result<ReplicaClient<Channel>, Fault> {
        Ok(ReplicaClient::new(self.channel(address)?))
    }

    fn named(&self, to: &Recipient) -> Result<Named, Fault> {
        let channel = self.channel(to.address())?;
        Ok(InterceptedService::new(channel, to.names()))
    }

    /// The service `Replica` of a member.
    ///
    /// # Errors
    /// `INVALID` if its address is not HOST:PORT.
    pub fn replica(&self, to: &Recipient) -> Result<ReplicaClient<Named>, Fault> {
        Ok(ReplicaClient::new(self.named(to)?)
            .max_decoding_message_size(MAX_PEER_MESSAGE_LEN)
            .max_encoding_message_size(MAX_PEER_MESSAGE_LEN))
    }

    /// The service `Kv` of a member.
    ///
    /// # Errors
    /// `INVALID` if its address is not HOST:PORT.
    pub fn kv(&self, to: &Recipient) -> Result<KvClient<Named>, Fault> {
        Ok(KvClient::new(self.named(to)?)
            .max_decoding_message_size(MAX_PEER_MESSAGE_LEN)
            .max_encoding_message_size(MAX_PEER_MESSAGE_LEN))
    }

    /// Sends an operation on the session with a member, once it has a place in the window.
    ///
    /// # Errors
    /// The fault says whether the member may have carried the operation out. `OWNER_UNREACHABLE`,
    /// not carried out, if the session ended before.
    pub async fn on_session<T>(
        &self,
        to: &Recipient,
        deadline: Instant,
        send: impl AsyncFnOnce(SessionPermit, Duration) -> Result<Response<T>, Status>,
    ) -> Result<T, Fault> {
        let node = to.node();
        let unsent = || {
            let message = format!(
                "the deadline passed before the operation was sent to node {node}: allow more time"
            );
            Fault::new(Reason::Deadline, message)
        };
        let window = self.open(to)?.window;
        let place = timeout_at(deadline.into(), window.acquire_owned()).await;
        // No code closes the semaphore.
        let place = place.ok().and_then(Result::ok).ok_or_else(unsent)?;
        // The former one may have ended meanwhile.
        let permit = self.open(to)?.session.permit(place);
        let ticket = permit.ticket();
        let left = deadline.saturating_duration_since(Instant::now());
        let mut sending = pin!(send(permit, left));
        match timeout_at(deadline.into(), &mut sending).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) if Unsent::is_cause_of(&status) => {
                let message = format!("node {node}: {Unsent}");
                Err(Fault::new(Reason::OwnerUnreachable, message))
            }
            Ok(Err(status)) => Err(Fault::from_status(&status)),
            Err(_) if ticket.withdraw() => Err(unsent()),
            Err(_) => Err(Fault {
                maybe_applied: true,
                ..Fault::new(
                    Reason::Deadline,
                    format!("node {node} did not answer in time"),
                )
            }),
        }
    }

    /// The session with a member. An ended one is replaced.
    fn open(&self, to: &Recipient) -> Result<Open, Fault> {
        let mut sessions = self.sessions.lock();
        if let Some(open) = sessions.get(to).filter(|open| open.session.is_open()) {
            return Ok(open.clone());
        }
        let window = sessions.get(to).map(|former| Arc::clone(&former.window));
        // Ended sessions with former members go, too.
        sessions.retain(|_, open| open.session.is_open());
        let mut kv = self.kv(to)?;
        let call =
            move |requests| -> Accepting { Box::pin(async move { kv.session(requests).await }) };
        let open = Open {
            session: Session::open(call, Arc::default()),
            window: window.unwrap_or_else(|| Arc::new(Semaphore::new(WINDOW))),
        };
        sessions.insert(to.clone(), open.clone());
        Ok(open)
    }

    /// The service `Cluster` of a member.
    ///
    /// # Errors
    /// `INVALID` if its address is not HOST:PORT.
    pub fn cluster(&self, to: &Recipient) -> Result<ClusterClient<Named>, Fault> {
        Ok(ClusterClient::new(self.named(to)?)
            .max_decoding_message_size(MAX_PEER_MESSAGE_LEN)
            .max_encoding_message_size(MAX_PEER_MESSAGE_LEN))
    }
}

/// A member of this node's cluster, to send a request to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Recipient {
    cluster: ClusterId,
    node: NodeId,
    address: String,
}

impl Recipient {
    /// A member of the topology.
    ///
    /// # Errors
    /// `OWNER_UNREACHABLE` if the node is not a member.
    pub fn of(table: &RoutingTable, node: NodeId) -> Result<Self, Fault> {
        let address = table.peer_address(node).ok_or_else(|| {
            let message =
                format!("node {node} is no longer a member: refresh the topology and retry");
            Fault::new(Reason::OwnerUnreachable, message)
        })?;
        Ok(Self {
            cluster: table.cluster,
            node,
            address: address.to_owned(),
        })
    }

    /// The node to which a request is passed on for a caller that cannot reach it. A request is
    /// passed on once.
    ///
    /// # Errors
    /// `STALE_EPOCH` if it was passed on already, or if the node is not a member.
    pub fn passed_on(
        table: &RoutingTable,
        node: NodeId,
        was_passed_on: bool,
    ) -> Result<Self, Fault> {
        let recipient = Self::of(table, node).ok().filter(|_| !was_passed_on);
        recipient.ok_or_else(|| {
            let message = format!("there is no node {node} at this address: refresh the topology");
            Fault::new(Reason::StaleEpoch, message).at(table.epoch)
        })
    }

    /// Its id.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Where its peer port is reached.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What requests to it must name.
    #[must_use]
    pub fn names(&self) -> Names {
        Names::of_node(self.cluster, self.node)
    }
}

/// A request to another node that must be answered within `limit`.
pub fn within<T>(limit: Duration, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(limit);
    request
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use torc_proto::v1::PutRequest;

    use super::*;

    async fn put_at(address: String, within: Duration) -> Fault {
        let peers = Peers::new(Arc::default());
        let to = Recipient {
            cluster: ClusterId([1; 16]),
            node: NodeId(2),
            address,
        };
        let send =
            async |permit: SessionPermit, left| permit.put(PutRequest::default(), left).await;
        let sent = peers.on_session(&to, Instant::now() + within, send).await;
        sent.unwrap_err()
    }

    /// The kernel of a stopped process still accepts connections.
    #[tokio::test]
    async fn what_a_silent_node_never_accepted_was_not_carried_out() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let fault = put_at(address, Duration::from_millis(50)).await;
        assert_eq!(fault.reason, Reason::Deadline);
        assert!(!fault.maybe_applied, "{fault}");
    }

    #[tokio::test]
    async fn what_finds_nobody_was_not_carried_out() {
        let nobody = tokio::net::TcpSocket::new_v4().unwrap();
        nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = nobody.local_addr().unwrap().to_string();
        let fault = put_at(address, Duration::from_secs(30)).await;
        assert_eq!(fault.reason, Reason::OwnerUnreachable);
        assert!(!fault.maybe_applied, "{fault}");
    }
}
