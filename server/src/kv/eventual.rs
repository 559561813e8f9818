//! Get, put and delete of an `eventual` namespace, in a cluster with several replicas: this
//! node coordinates.

use std::sync::Arc;
use std::time::Instant;

use torc_proto::v1::{DeleteResponse, GetResponse, PutResponse};
use torc_proto::{Fault, version_to_wire};
use torc_record::{Ballot, State};
use torc_replication::{EventualOutcome, EventualRequest, Locator, Quorum};

use super::operate::count;
use super::register::{check_route, no_quorum, unknown};
use super::request::Target;
use crate::registers::Registers;
use crate::shared::Shared;

/// What is operated on, and how many replicas must answer.
type Asked<'a> = (&'a Target, Quorum);

pub(super) async fn get(
    shared: &Arc<Shared>,
    registers: &Registers,
    asked: Asked<'_>,
    deadline: Instant,
) -> Result<GetResponse, Fault> {
    check_route(shared, asked.0)?;
    count(asked.0);
    match read(registers, asked, deadline).await {
        EventualOutcome::Found {
            value,
            version,
            expires_at_ms,
        } => Ok(GetResponse {
            found: true,
            value,
            version: Some(version_to_wire(version)),
            expires_at_ms: expires_at_ms.unwrap_or(0),
            hot: false,
        }),
        EventualOutcome::Absent => Ok(GetResponse::default()),
        other => Err(fault_of(&other, asked.0)),
    }
}

pub(super) async fn put(
    shared: &Arc<Shared>,
    registers: &Registers,
    asked: Asked<'_>,
    state: State,
    deadline: Instant,
) -> Result<PutResponse, Fault> {
    check_route(shared, asked.0)?;
    count(asked.0);
    let version = write(registers, asked, state, deadline).await?;
    Ok(PutResponse {
        version: Some(version_to_wire(version)),
    })
}

/// Asks first, to be able to tell whether there was something; a tombstone is written in any
/// case, because others may hold what those who answered do not.
pub(super) async fn delete(
    shared: &Arc<Shared>,
    registers: &Registers,
    asked: Asked<'_>,
    deadline: Instant,
) -> Result<DeleteResponse, Fault> {
    check_route(shared, asked.0)?;
    count(asked.0);
    let existed = match read(registers, asked, deadline).await {
        EventualOutcome::Found { .. } => true,
        EventualOutcome::Absent => false,
        other => return Err(fault_of(&other, asked.0)),
    };
    let version = write(registers, asked, State::Tombstone, deadline).await?;
    Ok(DeleteResponse {
        existed,
        version: Some(version_to_wire(version)),
    })
}

async fn read(registers: &Registers, asked: Asked<'_>, deadline: Instant) -> EventualOutcome {
    let (target, quorum) = asked;
    let request = EventualRequest::Read { quorum };
    registers
        .operate_eventual(target.partition, locator(target), request, deadline)
        .await
}

async fn write(
    registers: &Registers,
    asked: Asked<'_>,
    state: State,
    deadline: Instant,
) -> Result<Ballot, Fault> {
    let (target, quorum) = asked;
    let request = EventualRequest::Write { state, quorum };
    let outcome = registers
        .operate_eventual(target.partition, locator(target), request, deadline)
        .await;
    match outcome {
        EventualOutcome::Written { version } => Ok(version),
        other => Err(fault_of(&other, target)),
    }
}

fn locator(target: &Target) -> Locator {
    Locator {
        namespace: target.namespace,
        digest: target.digest,
        key: target.key.clone(),
    }
}

fn fault_of(outcome: &EventualOutcome, target: &Target) -> Fault {
    match outcome {
        EventualOutcome::Unknown => unknown(),
        _ => no_quorum(target.partition),
    }
}
