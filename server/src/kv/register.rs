//! Get, put and delete of a cluster with several replicas: this node coordinates.

use std::sync::Arc;
use std::time::Instant;

use torc_proto::v1::{DeleteResponse, GetResponse, PutResponse};
use torc_proto::{Fault, Reason, version_to_wire};
use torc_record::{Ballot, State};
use torc_replication as replication;
use torc_replication::{Locator, Outcome, Request};
use torc_ring::Partition;

use super::operate::count;
use super::request::{Condition, Target};
use crate::gate::stale;
use crate::registers::Registers;
use crate::shared::Shared;

pub(super) async fn get(
    shared: &Arc<Shared>,
    registers: &Registers,
    target: &Target,
    deadline: Instant,
) -> Result<GetResponse, Fault> {
    check_route(shared, target)?;
    count(target);
    let outcome = operate(registers, target, Request::Get, deadline).await;
    match outcome {
        Outcome::Found {
            value,
            version,
            expires_at_ms,
            ..
        } => Ok(GetResponse {
            found: true,
            value,
            version: Some(version_to_wire(version)),
            expires_at_ms: expires_at_ms.unwrap_or(0),
            hot: false,
        }),
        Outcome::Absent { .. } => Ok(GetResponse::default()),
        other => Err(fault_of(&other, target)),
    }
}

/// Writes a value or a tombstone, and returns the version.
async fn write(
    shared: &Arc<Shared>,
    registers: &Registers,
    target: &Target,
    request: Request,
    deadline: Instant,
) -> Result<Outcome, Fault> {
    check_route(shared, target)?;
    let waiting = shared.order.hold(&target.digest, true);
    let order = tokio::time::timeout_at(deadline.into(), waiting).await;
    let _order = order.map_err(|_| fault_of(&Outcome::Unavailable, target))?;
    count(target);
    Ok(operate(registers, target, request, deadline).await)
}

pub(super) async fn put(
    shared: &Arc<Shared>,
    registers: &Registers,
    target: &Target,
    (condition, state): (Option<Condition>, State),
    deadline: Instant,
) -> Result<PutResponse, Fault> {
    let State::Value {
        value,
        expires_at_ms,
    } = state
    else {
        return Err(Fault::new(Reason::Internal, "a put without a value"));
    };
    let request = Request::Put {
        value,
        expires_at_ms,
        condition: condition_of(condition),
    };
    match write(shared, registers, target, request, deadline).await? {
        Outcome::Written { version, .. } => Ok(PutResponse {
            version: Some(version_to_wire(version)),
        }),
        other => Err(refused(other, condition, target)),
    }
}

pub(super) async fn delete(
    shared: &Arc<Shared>,
    registers: &Registers,
    target: &Target,
    condition: Option<Condition>,
    deadline: Instant,
) -> Result<DeleteResponse, Fault> {
    let request = Request::Delete {
        condition: condition_of(condition),
    };
    match write(shared, registers, target, request, deadline).await? {
        Outcome::Written { version, .. } => Ok(DeleteResponse {
            existed: true,
            version: Some(version_to_wire(version)),
        }),
        Outcome::Absent { .. } => Ok(DeleteResponse {
            existed: false,
            version: Some(version_to_wire(Ballot::default())),
        }),
        other => Err(refused(other, condition, target)),
    }
}

async fn operate(
    registers: &Registers,
    target: &Target,
    request: Request,
    deadline: Instant,
) -> Outcome {
    let at = Locator {
        namespace: target.namespace,
        digest: target.digest,
        key: target.key.clone(),
    };
    registers
        .operate(target.partition, at, request, deadline)
        .await
}

/// Whoever routed by an older topology than ours, and to a node that does not lead, is told
/// so: its next operations go where they are cheaper.
pub(super) fn check_route(shared: &Shared, target: &Target) -> Result<(), Fault> {
    let Some(epoch) = target.epoch else {
        return Ok(());
    };
    let table = shared.routing()?;
    let Some(state) = table.state(target.partition) else {
        return Ok(());
    };
    if epoch < state.epoch && shared.identity.node() != Some(state.lead) {
        return Err(stale(target.partition, state.epoch));
    }
    Ok(())
}

const fn condition_of(condition: Option<Condition>) -> replication::Condition {
    match condition {
        None => replication::Condition::None,
        Some(Condition::IfAbsent) => replication::Condition::Absent,
        Some(Condition::IfVersion(version)) => replication::Condition::Version(version),
    }
}

fn refused(outcome: Outcome, condition: Option<Condition>, target: &Target) -> Fault {
    let Outcome::Mismatch { current } = outcome else {
        return fault_of(&outcome, target);
    };
    let unmet = match (condition, current) {
        (Some(Condition::IfVersion(wanted)), Some((_, version))) => {
            format!("the key is at version {version}, not {wanted}")
        }
        (Some(Condition::IfVersion(wanted)), None) => {
            format!("the key has no value, so it is not at version {wanted}")
        }
        _ => "the key has a value already".to_owned(),
    };
    Fault::new(Reason::ConditionNotMet, unmet)
}

fn fault_of(outcome: &Outcome, target: &Target) -> Fault {
    match outcome {
        Outcome::Unknown => unknown(),
        _ => no_quorum(target.partition),
    }
}

pub(super) fn unknown() -> Fault {
    Fault::unknown(
        "too few replicas answered in time; the write may or may not take effect: read the key \
         before deciding",
    )
}

pub(super) fn no_quorum(partition: Partition) -> Fault {
    let message = format!(
        "too few replicas of partition {partition} answered in time, and nothing was changed: \
         try again"
    );
    Fault::new(Reason::OwnerUnreachable, message)
}
