//! The bearer tokens that this node accepts.
//!
//! They are part of the topology, which reaches every node, voter or not: a revocation takes effect
//! here once this node has adopted it. Once per second the node checks expiries by its wall clock,
//! so an error of the clock makes it early or late by as much. A node that is cut off from the
//! topology group learns of revocations only when it reconnects.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use torc_access::caller::Caller;
use torc_group::TopologyGroup;
use torc_proto::{Fault, Reason, bearer_of};
use torc_record::Epoch;
use torc_ring::topology::{Holder, Holders, Topology};
use torc_telemetry::clock::unix_ms;

/// Interval of the check for expired tokens.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Bearers {
    holders: ArcSwap<Holders>,
    /// The epoch of the topology that they come from.
    epoch: Mutex<Epoch>,
}

impl Bearers {
    /// Takes the tokens of a topology, unless a later one was seen.
    pub(crate) fn renew(&self, topology: &Topology) {
        let mut epoch = self.epoch.lock();
        if topology.epoch() < *epoch {
            return;
        }
        *epoch = topology.epoch();
        let next = self
            .holders
            .load()
            .next(topology.bearer_tokens(), unix_ms());
        if let Some(next) = next {
            self.holders.store(Arc::new(next));
        }
    }

    /// The holder of the token `id.secret`.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`.
    pub(crate) fn find(&self, text: &str) -> Result<Arc<Holder>, Fault> {
        let found = self.holders.load().find(text).map(Arc::clone);
        found.ok_or_else(|| {
            let message = "the token is unknown, revoked or expired: use another one";
            Fault::new(Reason::Unauthenticated, message)
        })
    }
}

/// Removes expired tokens for ever.
pub(crate) async fn run(bearers: Arc<Bearers>, group: TopologyGroup) {
    loop {
        if let Some(topology) = group.topology() {
            bearers.renew(&topology);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The holder of the token in a request's headers. `None` without a token, and on a connection
/// without TLS, where tokens have no meaning.
///
/// # Errors
/// `UNAUTHENTICATED`.
pub(crate) fn holder_of(
    bearers: &Bearers,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<Option<Caller>, Fault> {
    let Some(value) = headers.get(AUTHORIZATION).filter(|_| !caller.is_anyone()) else {
        return Ok(None);
    };
    let token = value.to_str().ok().and_then(bearer_of);
    let token = token.ok_or_else(|| {
        let message = "malformed authorization header: send `Bearer ID.SECRET`";
        Fault::new(Reason::Unauthenticated, message)
    })?;
    let holder = bearers.find(token)?;
    Ok(Some(caller.with_token(holder)))
}
