//! The client's operations on the authority of a secure cluster.

use torc_proto::v1;
use torc_proto::v1::cluster_client::ClusterClient;
use torc_ring::NodeId;
use torc_ring::topology::RotationStep;

use crate::call::request;
use crate::retry::Nature;
use crate::{Client, Error};

/// The authorities that nodes trust, and how far a rotation is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorities {
    /// How many rotations have begun.
    pub rotation: u32,
    /// How far the last one is; [`RotationStep::Settled`]: none is under way.
    pub step: RotationStep,
    /// Certificates in PEM. Nodes issue by the first.
    pub trusted: Vec<String>,
    /// Every member.
    pub members: Vec<RotationMember>,
}

impl Authorities {
    /// Members that have not done the step.
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
    /// Why it does not answer; none: it does.
    pub problem: Option<String>,
}

/// What to do with the authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotationAction {
    /// Make a new authority, which nodes trust beside the old one. Nothing to do while a rotation is under way.
    Begin,
    /// Let nodes issue by the new one.
    Issue,
    /// Let nodes trust the new one alone.
    Finish,
    /// Let nodes trust the old one alone again, before they issue by the new one.
    Abort,
}

fn from_wire(wire: v1::Authorities) -> Option<Authorities> {
    let step = match wire.step() {
        v1::RotationStep::Trust => RotationStep::Trust,
        v1::RotationStep::Issue => RotationStep::Issue,
        v1::RotationStep::Settled => RotationStep::Settled,
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
    /// The authorities that nodes trust, and how far a rotation is.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) on a cluster without an authority of its own;
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied); and as [`Client::status`].
    pub async fn authorities(&self) -> Result<Authorities, Error> {
        let sending = |channel, budget| async move {
            let mut client = ClusterClient::new(channel);
            let message = v1::GetAuthoritiesRequest::default();
            client.get_authorities(request(message, budget)).await
        };
        let answer = self.call(Nature::Read).on_any(sending).await?;
        from_wire(answer).ok_or_else(|| Error::malformed("authorities", false))
    }

    /// Takes a step of the rotation of the cluster's authority. Returns once it is agreed; [`Client::authorities`] says which
    /// members have done it. Repeating a step is harmless.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) while a member has not done the step before or does not answer, and
    /// on a cluster without an authority of its own; [`ErrorKind::Denied`](crate::ErrorKind::Denied); and as
    /// [`Client::status`].
    pub async fn rotate_authority(&self, action: RotationAction) -> Result<Authorities, Error> {
        let action = match action {
            RotationAction::Begin => v1::RotationAction::Begin,
            RotationAction::Issue => v1::RotationAction::Issue,
            RotationAction::Finish => v1::RotationAction::Finish,
            RotationAction::Abort => v1::RotationAction::Abort,
        };
        let sending = |channel, budget| async move {
            let mut client = ClusterClient::new(channel);
            let action = action.into();
            let message = v1::RotateAuthorityRequest { action };
            client.rotate_authority(request(message, budget)).await
        };
        let answer = self.call(Nature::Write).on_any(sending).await?;
        from_wire(answer).ok_or_else(|| Error::malformed("authorities", true))
    }
}
