//! The client's operations on the authority of a secure cluster.

use torc_proto::v1;
use torc_proto::v1::cluster_client::ClusterClient;
use torc_ring::NodeId;
use torc_ring::topology::RotationStep;

use crate::retry::Nature;
use crate::{Client, Error};

/// The authorities that nodes trust, and the progress of a rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorities {
    /// Number of rotations started so far.
    pub rotation: u32,
    /// Step of the last rotation; [`RotationStep::Finished`]: none is running.
    pub step: RotationStep,
    /// Certificates in PEM. The first authority issues certificates.
    pub trusted: Vec<String>,
    /// Every member.
    pub members: Vec<RotationMember>,
}

impl Authorities {
    /// Members that have not finished the step.
    pub fn waiting(&self) -> impl Iterator<Item = &RotationMember> {
        self.members.iter().filter(|member| !member.done)
    }
}

/// A member in a rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotationMember {
    /// The member.
    pub node: NodeId,
    /// host:port of its gRPC address.
    pub address: String,
    /// Whether it has done the step.
    pub done: bool,
    /// Why it does not answer; `None` if it does.
    pub problem: Option<String>,
}

/// A step of a rotation, or its abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotationAction {
    /// Create a new authority, which nodes trust beside the old one. Does nothing during a
    /// rotation.
    Begin,
    /// Let the new authority issue certificates.
    Issue,
    /// Let nodes trust the new authority alone.
    Finish,
    /// Let nodes trust the old authority alone again; only before the new one issues certificates.
    Abort,
}

fn from_wire(wire: v1::Authorities) -> Option<Authorities> {
    let step = match wire.step() {
        v1::RotationStep::Trust => RotationStep::Trust,
        v1::RotationStep::Issue => RotationStep::Issue,
        v1::RotationStep::Finished => RotationStep::Finished,
        v1::RotationStep::Unspecified => return None,
    };
    let member = |member: v1::RotationMember| RotationMember {
        node: NodeId(member.node),
        address: member.address,
        done: member.done,
        problem: Some(member.problem).filter(|text| !text.is_empty()),
    };
    Some(Authorities {
        rotation: wire.rotation,
        step,
        trusted: wire.trusted,
        members: wire.members.into_iter().map(member).collect(),
    })
}

impl Client {
    /// The authorities that nodes trust, and the progress of a rotation.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) on a cluster without an authority of its own;
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied); and as [`Client::status`].
    pub async fn authorities(&self) -> Result<Authorities, Error> {
        let message = v1::GetAuthoritiesRequest::default();
        let answer = self
            .ask(Nature::Read, message, ClusterClient::get_authorities)
            .await?;
        from_wire(answer).ok_or_else(|| Error::malformed("authorities", false))
    }

    /// Starts a step in the rotation of the cluster's authority. Returns once the nodes have agreed
    /// on it; [`Client::authorities`] shows which members have finished it. Repeating a step is
    /// harmless.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) while a member has not finished the
    /// previous step or does not answer, and on a cluster without an authority of its own;
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied); and as [`Client::status`].
    pub async fn rotate_authority(&self, action: RotationAction) -> Result<Authorities, Error> {
        let action = match action {
            RotationAction::Begin => v1::RotationAction::Begin,
            RotationAction::Issue => v1::RotationAction::Issue,
            RotationAction::Finish => v1::RotationAction::Finish,
            RotationAction::Abort => v1::RotationAction::Abort,
        };
        let message = v1::RotateAuthorityRequest {
            action: action.into(),
        };
        let answer = self
            .ask(Nature::Write, message, ClusterClient::rotate_authority)
            .await?;
        from_wire(answer).ok_or_else(|| Error::malformed("authorities", true))
    }
}
