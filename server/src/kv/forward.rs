//! Operations whose sender left the routing to us: carried out here or sent to the
//! node that leads the partition, and tried again while the topology moves.
//!
//! Where partitions have several replicas the lead is only the cheapest. What it certainly
//! did not do, and a get that it does not answer soon, is carried out here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tonic::Status;
use torc_proto::v1::{
    self, DeleteRequest, DeleteResponse, GetRequest, GetResponse, PutRequest, PutResponse, Route,
};
use torc_proto::{Fault, Reason};
use torc_record::Epoch;
use torc_replication::Quorum;

use super::operate;
use super::request::{Agreement, Target};
use crate::peers::within;
use crate::shared::Shared;

const BACKOFF: Duration = Duration::from_millis(5);
const LONGEST_BACKOFF: Duration = Duration::from_millis(200);
/// How long the lead has for a get before it is carried out here.
pub(super) const LEAD_TIME: Duration = Duration::from_millis(250);

pub(super) async fn get(
    shared: &Arc<Shared>,
    namespace: &str,
    target: &Target,
    deadline: Instant,
) -> Result<GetResponse, Fault> {
    let mut attempts = Attempts::new(deadline);
    loop {
        let place = Place::of(shared, target)?;
        let result = match &place.address {
            None => operate::get_here(shared, &place.target(target), deadline).await,
            Some(address) => {
                let request = GetRequest {
                    namespace: namespace.to_owned(),
                    key: target.key.clone().into_bytes(),
                    digest: target.digest.0.to_vec().into(),
                    route: Some(place.route(target)),
                    consistency: 0,
                    quorum: quorum_of(target).into(),
                };
                let mut client = shared.peers.kv(address)?;
                let left = attempts.left()?;
                let limit = if shared.any_node_can() {
                    left.min(LEAD_TIME)
                } else {
                    left
                };
                let sent = client.get(within(limit, request)).await;
                // Nothing changes by reading twice, so a read is never in doubt.
                let answer = received(shared, sent).map_err(|f| Fault {
                    maybe_applied: false,
                    ..f
                });
                match answer {
                    Err(fault) if shared.any_node_can() && lead_failed(&fault) => {
                        operate::get_here(shared, &place.target(target), deadline).await
                    }
                    answer => answer,
                }
            }
        };
        match result {
            Err(fault) if attempts.may_retry(&fault) => attempts.wait(shared).await?,
            result => return result,
        }
    }
}

pub(super) async fn put(
    shared: &Arc<Shared>,
    target: &Target,
    request: PutRequest,
    deadline: Instant,
) -> Result<PutResponse, Fault> {
    let mut attempts = Attempts::new(deadline);
    loop {
        let place = Place::of(shared, target)?;
        let mut request = request.clone();
        let result = match &place.address {
            None => operate::put_here(shared, &place.target(target), request, deadline).await,
            Some(address) => {
                request.route = Some(place.route(target));
                request.digest = target.digest.0.to_vec().into();
                let mut client = shared.peers.kv(address)?;
                let sent = client.put(within(attempts.left()?, request.clone())).await;
                match received(shared, sent) {
                    Err(fault) if shared.any_node_can() && certainly_not_done(&fault) => {
                        let target = place.target(target);
                        operate::put_here(shared, &target, request, deadline).await
                    }
                    answer => answer,
                }
            }
        };
        match result {
            Err(fault) if attempts.may_retry(&fault) => attempts.wait(shared).await?,
            result => return result,
        }
    }
}

pub(super) async fn delete(
    shared: &Arc<Shared>,
    target: &Target,
    request: DeleteRequest,
    deadline: Instant,
) -> Result<DeleteResponse, Fault> {
    let mut attempts = Attempts::new(deadline);
    loop {
        let place = Place::of(shared, target)?;
        let mut request = request.clone();
        let result = match &place.address {
            None => operate::delete_here(shared, &place.target(target), request, deadline).await,
            Some(address) => {
                request.route = Some(place.route(target));
                request.digest = target.digest.0.to_vec().into();
                let mut client = shared.peers.kv(address)?;
                let sent = client
                    .delete(within(attempts.left()?, request.clone()))
                    .await;
                match received(shared, sent) {
                    Err(fault) if shared.any_node_can() && certainly_not_done(&fault) => {
                        let target = place.target(target);
                        operate::delete_here(shared, &target, request, deadline).await
                    }
                    answer => answer,
                }
            }
        };
        match result {
            Err(fault) if attempts.may_retry(&fault) => attempts.wait(shared).await?,
            result => return result,
        }
    }
}

/// The quorum as it was asked for.
const fn quorum_of(target: &Target) -> v1::Quorum {
    match target.agreement {
        Agreement::Register => v1::Quorum::Unspecified,
        Agreement::Eventual(Quorum::One) => v1::Quorum::One,
        Agreement::Eventual(Quorum::Majority) => v1::Quorum::Majority,
        Agreement::Eventual(Quorum::All) => v1::Quorum::All,
    }
}

/// Whether a get failed of the lead, and not of the key or the request.
fn lead_failed(fault: &Fault) -> bool {
    let lost = matches!(fault.reason, Reason::Deadline | Reason::OutcomeUnknown);
    lost || certainly_not_done(fault)
}

/// Whether the lead, or the way to it, failed before anything was changed.
fn certainly_not_done(fault: &Fault) -> bool {
    let by_the_lead = matches!(fault.reason, Reason::NotServing | Reason::OwnerUnreachable);
    by_the_lead && !fault.maybe_applied
}

fn received<T>(shared: &Shared, sent: Result<tonic::Response<T>, Status>) -> Result<T, Fault> {
    shared.metrics.forwarded.inc();
    sent.map(tonic::Response::into_inner)
        .map_err(|status| Fault::from_status(&status))
}

/// Where an operation goes, by our routing table.
struct Place {
    /// None: here.
    address: Option<String>,
    epoch: Epoch,
}

impl Place {
    fn of(shared: &Shared, target: &Target) -> Result<Self, Fault> {
        let table = shared.routing()?;
        let state = table.state(target.partition).ok_or_else(|| {
            Fault::new(
                Reason::Internal,
                "the topology lacks a partition: report this",
            )
        })?;
        let here = shared.goes_here(state.lead);
        let address = if here {
            None
        } else {
            let address = table.address(state.lead).ok_or_else(|| {
                Fault::new(Reason::OwnerUnreachable, "the leading node left: try again")
            })?;
            Some(address.to_owned())
        };
        Ok(Self {
            address,
            epoch: state.epoch,
        })
    }

    fn route(&self, target: &Target) -> Route {
        Route {
            partition: target.partition.0,
            epoch: self.epoch.0,
        }
    }

    fn target(&self, target: &Target) -> Target {
        Target {
            epoch: Some(self.epoch),
            ..target.clone()
        }
    }
}

/// Bounds the tries of one operation.
pub(super) struct Attempts {
    deadline: Instant,
    backoff: Duration,
}

impl Attempts {
    pub(super) fn new(deadline: Instant) -> Self {
        Self {
            deadline,
            backoff: BACKOFF,
        }
    }

    pub(super) fn left(&self) -> Result<Duration, Fault> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Fault::new(Reason::Deadline, "the time is over: try again"));
        }
        Ok(left)
    }

    /// An overloaded node is left to the caller, who can wait for it without keeping this
    /// one busy.
    pub(super) fn may_retry(&self, fault: &Fault) -> bool {
        let is_overloaded = fault.reason == Reason::Overloaded;
        fault.is_retryable() && !is_overloaded && Instant::now() + self.backoff < self.deadline
    }

    /// Waits for a change of the topology, or a little.
    pub(super) async fn wait(&mut self, shared: &Shared) -> Result<(), Fault> {
        let mut changes = shared.gates.subscribe();
        let _ = tokio::time::timeout(self.backoff, changes.changed()).await;
        self.backoff = (self.backoff * 2).min(LONGEST_BACKOFF);
        self.left().map(drop)
    }
}
