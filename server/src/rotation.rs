//! This node's part in a rotation of the cluster's authority.
//!
//! The topology names the trusted authorities and the issuing one
//! ([`torc_ring::topology::Authorities`]). A node that lacks an authority's key asks the other
//! members for it, over connections on which both sides have proved to be nodes. It stores what the
//! step requires, starts to use it, and only then reports the step to the topology group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use torc_access::tls_dir::{OwnAuthority, TlsDirError};
use torc_group::TopologyGroup;
use torc_member::LocalMember;
use torc_member::peers::within;
use torc_proto::v1::{GiveAuthorityRequest, GiveAuthorityResponse};
use torc_proto::{Fault, Reason};
use torc_ring::NodeId;
use torc_ring::topology::{Authorities, Command, RotationStep};
use torc_tls::{Authority, AuthorityDigest, CertificateFacts};

const ASK_TIME: Duration = Duration::from_secs(2);
const PROPOSE_TIME: Duration = Duration::from_secs(5);
/// Intervals between checks while a rotation is under way, and while none is.
const LOOK_SOON: Duration = Duration::from_millis(500);
const LOOK_LATER: Duration = Duration::from_secs(2);

/// What the current step requires of this node.
#[derive(Clone)]
pub(crate) struct Turn {
    authorities: Authorities,
    /// The keys of authorities that the node lacked.
    keys: Vec<String>,
}

impl Turn {
    /// `None` if no rotation has ever begun.
    pub(crate) async fn of(
        own: Arc<OwnAuthority>,
        member: &LocalMember,
        group: &TopologyGroup,
    ) -> Option<Self> {
        let authorities = group.topology()?.authorities()?.clone();
        let trusted = authorities.trusted.clone();
        let lacking = tokio::task::spawn_blocking(move || own.lacking(&trusted)).await;
        let lacking = lacking.ok()?.inspect_err(|error| {
            tracing::warn!(%error, "cannot rotate the authority on this node");
        });
        let mut keys = Vec::new();
        for certificate in lacking.unwrap_or_default() {
            if let Some(key) = ask_all(member, &certificate).await {
                keys.push(key);
            } else {
                tracing::warn!("no member has sent the key of the new authority yet");
            }
        }
        Some(Self { authorities, keys })
    }

    /// Applies the step to the directory; returns whether it has what the step requires.
    pub(crate) fn follow(&self, own: &OwnAuthority) -> Result<bool, TlsDirError> {
        let Authorities { trusted, step, .. } = &self.authorities;
        own.follow(trusted, *step, &self.keys)
    }

    /// Reports the step to the topology group, unless the group knows already.
    pub(crate) async fn done(&self, member: &LocalMember, group: &TopologyGroup) {
        let (rotation, step) = (self.authorities.rotation, self.authorities.step);
        let Some(node) = member.identity.node() else {
            return;
        };
        let topology = group.topology();
        let is_waited_for = topology.is_some_and(|it| it.rotation_waits_for().contains(&node));
        if !is_waited_for {
            return;
        }
        let command = Command::RotationDone {
            node,
            rotation,
            step,
        };
        match group.propose(command, Instant::now() + PROPOSE_TIME).await {
            Ok(_) => tracing::info!(rotation, %step, "finished a step of the authority's rotation"),
            Err(error) => {
                tracing::debug!(%error, "could not report a step of a rotation yet; retrying");
            }
        }
    }

    pub(crate) const fn look_again(&self) -> Duration {
        match self.authorities.step {
            RotationStep::Trust | RotationStep::Issue => LOOK_SOON,
            RotationStep::Finished => LOOK_LATER,
        }
    }
}

/// The key of an authority, from any member that has it.
async fn ask_all(member: &LocalMember, certificate: &str) -> Option<String> {
    let facts = CertificateFacts::of_pem(certificate, "the topology".as_ref()).ok()?;
    let digest = facts.first()?.digest;
    let table = member.routing().ok()?;
    let me = member.identity.node();
    let others = table.members.keys().filter(|node| Some(**node) != me);
    for node in others {
        match ask(member, *node, digest).await {
            Ok(key) if Authority::open(certificate, &key).is_ok() => return Some(key),
            Ok(_) => tracing::warn!(%node, "a member sent a key that is not the authority's"),
            Err(fault) => {
                tracing::debug!(%node, %fault, "a member did not send the authority's key");
            }
        }
    }
    None
}

async fn ask(member: &LocalMember, node: NodeId, digest: AuthorityDigest) -> Result<String, Fault> {
    let mut client = member.peers.replica(&member.recipient(node)?)?;
    let request = GiveAuthorityRequest {
        digest: digest.as_bytes().to_vec().into(),
    };
    let answer = client.give_authority(within(ASK_TIME, request)).await;
    let answer = answer.map_err(|status| Fault::from_status(&status))?;
    Ok(answer.into_inner().key)
}

/// Answers another member's request for a key.
pub(crate) fn give(
    own: Option<&OwnAuthority>,
    request: &GiveAuthorityRequest,
) -> Result<GiveAuthorityResponse, Fault> {
    let digest = <[u8; 32]>::try_from(&request.digest[..]);
    let digest = digest.map_err(|_| Fault::new(Reason::Invalid, "a digest has 32 bytes"))?;
    let key = own.and_then(|own| own.key_of(digest.into()));
    let key = key.ok_or_else(|| {
        let message = "this node lacks the key of that authority: ask another member, or retry";
        Fault::new(Reason::NotServing, message)
    })?;
    Ok(GiveAuthorityResponse { key })
}
