//! The authorities that nodes trust, and the steps of a rotation. The module `rotation` does each
//! node's part of a step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use torc_access::tls_dir::OwnAuthority;
use torc_group::GroupError;
use torc_proto::v1::{self, RotationAction};
use torc_proto::{Fault, Reason};
use torc_ring::NodeId;
use torc_ring::topology::{Authorities, Command, RotationStep, Topology, TopologyError};

use super::namespace::all_heard;
use super::node::ClusterNode;
use super::status;

/// Time for members to learn of a step.
const HEAR_TIME: Duration = Duration::from_secs(5);

pub(super) async fn show(this: &ClusterNode, deadline: Instant) -> Result<v1::Authorities, Fault> {
    let own = rotatable(this)?;
    let topology = this.group.read_current(deadline).await?;
    let known = topology.authorities();
    let step = match known.map_or(RotationStep::Finished, |known| known.step) {
        RotationStep::Trust => v1::RotationStep::Trust,
        RotationStep::Issue => v1::RotationStep::Issue,
        RotationStep::Finished => v1::RotationStep::Finished,
    };
    Ok(v1::Authorities {
        rotation: known.map_or(0, |known| known.rotation),
        step: step.into(),
        trusted: known.map_or_else(|| own.trusted(), |known| known.trusted.clone()),
        members: members(this, &topology).await,
    })
}

/// Each member, whether it has completed the step, and whether it answers.
async fn members(this: &ClusterNode, topology: &Topology) -> Vec<v1::RotationMember> {
    let late = topology.rotation_waits_for();
    let table = topology.routing();
    let asked = table.members.iter().map(async |(node, member)| {
        let is_me = this.member.identity.node() == Some(*node);
        let problem = if is_me {
            String::new()
        } else {
            let answer = status::ask(this, *node).await;
            answer.err().map_or_else(String::new, |fault| fault.message)
        };
        v1::RotationMember {
            node: node.0,
            address: member.identity.address.clone(),
            done: !late.contains(node),
            problem,
        }
    });
    join_all(asked).await
}

pub(super) async fn rotate(
    this: &ClusterNode,
    action: RotationAction,
    deadline: Instant,
) -> Result<v1::Authorities, Fault> {
    let own = rotatable(this)?;
    let topology = this.group.read_current(deadline).await?;
    let known = topology.authorities();
    let under_way = |known: &&Authorities| known.step != RotationStep::Finished;
    let number = || {
        let none = GroupError::Refused(TopologyError::NoRotation);
        known.map(|known| known.rotation).ok_or(none)
    };
    let command = match action {
        RotationAction::Unspecified => {
            return Err(Fault::new(Reason::Invalid, "`action` is missing"));
        }
        RotationAction::Begin if known.is_some_and(|known| under_way(&known)) => None,
        RotationAction::Begin => Some(begin(own, known).await?),
        RotationAction::Issue | RotationAction::Finish => {
            let to = match action {
                RotationAction::Issue => RotationStep::Issue,
                _ => RotationStep::Finished,
            };
            let rotation = number()?;
            if known.is_some_and(|known| known.step < to) {
                all_answer(this, &topology).await?;
            }
            Some(Command::Rotate { rotation, to })
        }
        RotationAction::Abort => Some(Command::AbortRotation {
            rotation: number()?,
        }),
    };
    let Some(command) = command else {
        return show(this, deadline).await;
    };
    match this.group.propose(command, deadline).await {
        // Another caller began a rotation at the same time; its rotation serves as well.
        Err(GroupError::Refused(TopologyError::Rotating)) => {}
        done => {
            done?;
        }
    }
    let shown = async {
        all_heard(this, HEAR_TIME, deadline).await?;
        show(this, deadline).await
    };
    shown.await.map_err(Fault::after_change)
}

/// Creates the new authority. Its key stays on this node until members ask for it.
async fn begin(own: &Arc<OwnAuthority>, known: Option<&Authorities>) -> Result<Command, Fault> {
    let trusted = known.map_or_else(
        || own.trusted().into_iter().take(1).collect(),
        |known| known.trusted.clone(),
    );
    let (drafting, current) = (Arc::clone(own), trusted.clone());
    let drafted = tokio::task::spawn_blocking(move || drafting.draft(&current)).await;
    let failed = |error: &dyn std::fmt::Display| Fault::new(Reason::Internal, error.to_string());
    let new = drafted
        .map_err(|error| failed(&error))?
        .map_err(|error| failed(&error))?;
    if let (Some(old), Some(new)) = (trusted.into_iter().next(), new) {
        return Ok(Command::BeginRotation { old, new });
    }
    let message = "this node has not finished the previous rotation, or its ca.pem holds further authorities: retry, or \
                   ask another node";
    let fault = Fault::new(Reason::NotServing, message);
    Err(fault.retry_after(Duration::from_secs(1)))
}

/// Refuses a step while any member does not answer, even one that has completed the current step:
/// an operator who takes a step should know that every node is up. The topology itself refuses a
/// step that a member has not completed.
async fn all_answer(this: &ClusterNode, topology: &Topology) -> Result<(), Fault> {
    let members = members(this, topology).await;
    let silent = members.iter().filter(|member| !member.problem.is_empty());
    let waiting: Vec<NodeId> = silent.map(|member| NodeId(member.node)).collect();
    if waiting.is_empty() {
        return Ok(());
    }
    Err(GroupError::Refused(TopologyError::RotationWaits { waiting }).into())
}

fn rotatable(this: &ClusterNode) -> Result<&Arc<OwnAuthority>, Fault> {
    this.own_authority.as_ref().ok_or_else(|| {
        let message = if this.entrance.tls.is_some() {
            "the nodes of this cluster use certificate files (--tls-cert), so Torc does not rotate their authority: \
             put both authorities into the --tls-ca file of every node and client, then replace the certificates, then remove the \
             old authority; nodes reload replaced files within 10 s"
        } else {
            "this cluster runs without TLS and has no authority"
        };
        Fault::new(Reason::Refused, message)
    })
}
