//! Refuses requests that are meant for another node or cluster, and callers without permission.
//!
//! The check precedes every service and reads only headers. Requests of nodes name cluster and
//! recipient, those of the client library name the cluster; a request that names neither (from any
//! gRPC client) is for any node. Streams are checked once at their start: their connection ends
//! with the process that it leads to.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::Either;
use http::{HeaderMap, HeaderValue, Request, Response};
use tonic::Status;
use tonic::body::Body;
use torc_member::identity::Membership;
use torc_proto::{Access, CLUSTER_HEADER, Fault, NODE_HEADER, Reason, wrong_cluster};
use torc_ring::topology::ClusterId;
use tower_layer::Layer;
use tower_service::Service;

use crate::bearers::{Bearers, holder_of};
use crate::kv::KvNode;
use crate::own_node::ReachedAt;
use torc_limits::connections::{Peer, caller_of};

/// The only call between nodes that the client port also serves: it lets a caller with one address
/// of a node learn the other.
const IDENTIFY: &str = "/torc.v1.Replica/Identify";

/// A layer that wraps the services in [`Checked`].
#[derive(Clone)]
pub(crate) struct CheckRecipient {
    pub(crate) kv: Arc<KvNode>,
    pub(crate) bearers: Arc<Bearers>,
    pub(crate) reached_at: Arc<ReachedAt>,
}

impl<S> Layer<S> for CheckRecipient {
    type Service = Checked<S>;

    fn layer(&self, inner: S) -> Checked<S> {
        Checked {
            check: self.clone(),
            inner,
        }
    }
}

/// Services that answer only requests meant for this node.
#[derive(Clone)]
pub(crate) struct Checked<S> {
    check: CheckRecipient,
    inner: S,
}

impl<S, B> Service<Request<B>> for Checked<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<S::Response, S::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let membership = self.check.kv.member.identity.membership();
        let allowed = self
            .check
            .may_call(&mut request, membership.map(|it| it.cluster));
        let path = request.uri().path();
        match allowed.and_then(|()| check(membership, path, request.headers())) {
            Ok(()) => Either::Left(self.inner.call(request)),
            Err(fault) => Either::Right(ready(Ok(Status::from(fault).into_http()))),
        }
    }
}

impl CheckRecipient {
    /// Identifies the caller, adds it to the request for the services, and refuses callers without
    /// permission.
    fn may_call<B>(
        &self,
        request: &mut Request<B>,
        cluster: Option<ClusterId>,
    ) -> Result<(), Fault> {
        let path = request.uri().path();
        let (peer, caller) = (
            request.extensions().get::<Peer>(),
            caller_of(request.extensions()),
        );
        let accepted = |is_known| {
            if let Some(peer) = peer {
                peer.accepted(is_known);
            }
        };
        if caller.is_on_peer_port {
            check_is_of_nodes(path, request.headers())?;
        }
        // Health checks are open to all, because probes have no certificate.
        if let Some(method) = path.strip_prefix("/grpc.health.v1.Health/") {
            // A watch lasts, and has a permit.
            accepted(method == "Watch");
            return Ok(());
        }
        let needed = Access::to(path).unwrap_or(Access::Client);
        let holder = holder_of(&self.bearers, caller, request.headers())
            .inspect_err(|fault| self.kv.denied(caller, path, fault))?;
        let who = holder.as_ref().unwrap_or(caller);
        who.check(needed, cluster)
            .inspect_err(|fault| self.kv.denied(who, path, fault))?;
        if needed == Access::Node && !caller.is_on_peer_port && path != IDENTIFY {
            let address = &self.reached_at.peers;
            let message = format!(
                "only the peer port serves nodes, and this is the port of clients: call {address}"
            );
            return Err(Fault::new(Reason::PermissionDenied, message));
        }
        accepted(needed != Access::Anyone);
        if let Some(holder) = holder {
            request.extensions_mut().insert(holder);
        }
        Ok(())
    }
}

/// Refuses requests that a client may have sent: a node that forwards a client's request names its
/// recipient.
fn check_is_of_nodes(path: &str, headers: &HeaderMap) -> Result<(), Fault> {
    let names_both = [CLUSTER_HEADER, NODE_HEADER]
        .iter()
        .all(|name| headers.contains_key(*name));
    match Access::to(path) {
        Some(Access::Node) => Ok(()),
        Some(_) if names_both => Ok(()),
        _ => {
            let message = "only nodes call the peer port (--peer-addr): use the node's gRPC address \
                           for clients (--grpc-addr)";
            Err(Fault::new(Reason::PermissionDenied, message))
        }
    }
}

fn check(me: Option<Membership>, path: &str, headers: &HeaderMap) -> Result<(), Fault> {
    let (cluster, node) = (headers.get(CLUSTER_HEADER), headers.get(NODE_HEADER));
    if (cluster.is_none() || node.is_none()) && must_name_both(path) {
        let message = format!(
            "a request between nodes must name its cluster and recipient \
             (`{CLUSTER_HEADER}`, `{NODE_HEADER}`), but this one does not"
        );
        return Err(Fault::new(Reason::Invalid, message));
    }
    if cluster.is_none() && node.is_none() {
        return Ok(());
    }
    let me = me.ok_or_else(|| {
        let message = "this node belongs to no cluster: bootstrap it, or join it to one";
        Fault::new(Reason::NotServing, message)
    })?;
    if let Some(wanted) = cluster.map(text)
        && wanted.parse() != Ok(me.cluster)
    {
        let who = format_args!("node {}", me.node);
        return Err(wrong_cluster(who, me.cluster, wanted));
    }
    if let Some(wanted) = node.map(text)
        && wanted.parse() != Ok(me.node.0)
    {
        let message = format!(
            "the request is for node {wanted}, but this is node {}, and nothing was changed: refresh the \
             topology and retry",
            me.node
        );
        return Err(Fault::new(Reason::WrongNode, message));
    }
    Ok(())
}

/// Whether a request comes only from nodes and must name both cluster and recipient. Excludes
/// requests that ask for a node's identity, and those whose message names the recipient.
fn must_name_both(path: &str) -> bool {
    let method = path.strip_prefix("/torc.v1.Replica/");
    method.is_some_and(|method| !matches!(method, "Identify" | "Enlist" | "Link"))
}

/// The value of a header, if it can be a name.
fn text(value: &HeaderValue) -> &str {
    let text = value.to_str().unwrap_or("?");
    text.get(..64).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_ring::NodeId;

    const ME: Membership = Membership {
        cluster: ClusterId([7; 16]),
        node: NodeId(3),
    };

    fn headers(cluster: Option<u8>, node: Option<u64>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(byte) = cluster {
            let text = ClusterId([byte; 16]).to_string();
            headers.insert(CLUSTER_HEADER, text.parse().unwrap());
        }
        if let Some(node) = node {
            headers.insert(NODE_HEADER, node.into());
        }
        headers
    }

    fn reason(me: Option<Membership>, path: &str, headers: &HeaderMap) -> Option<Reason> {
        check(me, path, headers).err().map(|fault| {
            assert!(!fault.maybe_applied, "{fault}");
            fault.reason
        })
    }

    #[test]
    fn a_request_for_another_cluster_or_another_node_is_refused_by_every_service() {
        for path in [
            "/torc.v1.Kv/Get",
            "/torc.v1.Cluster/Status",
            "/torc.v1.Replica/Summarize",
        ] {
            let answer =
                |cluster, node| reason(Some(ME), path, &headers(Some(cluster), Some(node)));
            assert_eq!(answer(7, 3), None);
            assert_eq!(answer(8, 3), Some(Reason::WrongCluster));
            assert_eq!(answer(7, 4), Some(Reason::WrongNode));
        }
    }

    #[test]
    fn nodes_must_name_both_and_clients_may_name_neither() {
        for names in [
            headers(None, None),
            headers(Some(7), None),
            headers(None, Some(3)),
        ] {
            let answer = |path| reason(Some(ME), path, &names);
            assert_eq!(answer("/torc.v1.Replica/CopySlices"), Some(Reason::Invalid));
            assert_eq!(answer("/torc.v1.Replica/Identify"), None);
            assert_eq!(answer("/torc.v1.Kv/Get"), None);
        }
    }

    #[test]
    fn a_node_of_no_cluster_serves_nobody_who_means_one() {
        let answer = reason(None, "/torc.v1.Kv/Get", &headers(Some(7), None));
        assert_eq!(answer, Some(Reason::NotServing));
        assert_eq!(reason(None, "/torc.v1.Kv/Get", &headers(None, None)), None);
    }

    #[test]
    fn a_name_that_is_none_is_anothers() {
        let mut names = headers(None, None);
        names.insert(
            CLUSTER_HEADER,
            HeaderValue::from_bytes(&[0xff; 200]).unwrap(),
        );
        assert_eq!(
            reason(Some(ME), "/torc.v1.Kv/Get", &names),
            Some(Reason::WrongCluster)
        );
    }
}
