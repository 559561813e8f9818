//! Admits nodes that present a join token.
//!
//! This is the only call without authentication, so cheap checks come first: attempts by address,
//! then lengths, then the token, in constant time. Only then does the node verify a signature, ask
//! the topology group and sign a certificate.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use torc_access::caller::Caller;
use torc_access::tls_dir::OwnAuthority;
use torc_group::GroupError;
use torc_proto::v1::{EnrolNodeRequest, EnrolNodeResponse};
use torc_proto::{Fault, Reason};
use torc_ring::topology::{Bearer, Command, KeyDigest, TopologyError};
use torc_telemetry::clock::unix_ms;
use torc_tls::{AuthorityDigest, SigningRequest, TlsError};

use super::node::ClusterNode;

pub(super) const CALL: &str = "Cluster/EnrolNode";
const MAX_NAMES: usize = 16;
/// The limit of DNS.
const MAX_NAME_LEN: usize = 253;
/// A token is an id and a secret.
const MAX_TOKEN_LEN: usize = 128;

pub(super) async fn enrol(
    this: &ClusterNode,
    caller: &Caller,
    request: EnrolNodeRequest,
    deadline: Instant,
) -> Result<EnrolNodeResponse, Fault> {
    let vetted = vet(this, caller, &request);
    // Strangers can cause these faults, so they count as denials, whose log lines are limited.
    let (own, bearer, signing_request) =
        vetted.inspect_err(|fault| this.kv.denied(caller, CALL, fault))?;
    let act = this.act(caller, CALL, &format_args!("{} {request:?}", bearer.id()));
    let admitted = admit(this, own, &bearer, &signing_request, &request, deadline).await;
    act.ends(admitted.as_ref().err());
    admitted
}

/// All checks that this node can make on its own.
fn vet<'a>(
    this: &'a ClusterNode,
    caller: &Caller,
    request: &EnrolNodeRequest,
) -> Result<(&'a OwnAuthority, Bearer, SigningRequest), Fault> {
    let own = own_authority(this)?;
    if !this.attempts.may(caller.from, Instant::now()) {
        let message = "too many join attempts from this address: retry later";
        let fault = Fault::new(Reason::Overloaded, message);
        return Err(fault.retry_after(Duration::from_secs(1)));
    }
    let invalid = |message: String| Fault::new(Reason::Invalid, message);
    let is_long = |name: &String| name.len() > MAX_NAME_LEN;
    if request.token.len() > MAX_TOKEN_LEN
        || request.names.len() > MAX_NAMES
        || request.names.iter().any(is_long)
    {
        let message = format!("a node has at most {MAX_NAMES} names of {MAX_NAME_LEN} bytes");
        return Err(invalid(message));
    }
    if let Some(name) = request.names.iter().find(|name| !is_name(name)) {
        return Err(invalid(format!(
            "`{name}` is neither a hostname nor an IP address"
        )));
    }
    let unknown = || denied(&TopologyError::UnknownJoinToken);
    let bearer: Bearer = request.token.parse().map_err(|_| unknown())?;
    let topology = this.group.topology().ok_or_else(|| {
        let message = "this node belongs to no cluster yet: use another node, or wait";
        Fault::new(Reason::NotServing, message).retry_after(Duration::from_millis(500))
    })?;
    // The key is not checked here: a used token is accepted if the same node presents it again.
    match topology.check_join_token(bearer.id(), bearer.hash(), KeyDigest([0; 32]), unix_ms()) {
        Ok(()) | Err(TopologyError::JoinTokenUsed { .. }) => {}
        Err(error) => return Err(denied(&error)),
    }
    let signing_request = SigningRequest::open(&request.signing_request);
    let signing_request = signing_request.map_err(|error| invalid(error.to_string()))?;
    let by = KeyDigest(signing_request.key_digest());
    topology
        .check_join_token(bearer.id(), bearer.hash(), by, unix_ms())
        .map_err(|error| denied(&error))?;
    Ok((own, bearer, signing_request))
}

/// The authority that nodes share.
pub(super) fn own_authority(this: &ClusterNode) -> Result<&OwnAuthority, Fault> {
    this.own_authority.as_deref().ok_or_else(|| {
        let message = if this.entrance.tls.is_some() {
            "the nodes of this cluster use certificate files (--tls-cert) and cannot issue certificates: ask the person who \
             has the authority to issue one (`kvctl cert issue --node`)"
        } else {
            "this cluster runs without TLS and needs no join token: start the node without --join, then add it with \
             `kvctl join-node`"
        };
        Fault::new(Reason::Refused, message)
    })
}

/// The digest by which joining nodes recognise the authority.
pub(crate) fn issuer_of(own: &OwnAuthority) -> Result<AuthorityDigest, Fault> {
    let digest = own.digest();
    digest.map_err(|error| Fault::new(Reason::Internal, error.to_string()))
}

async fn admit(
    this: &ClusterNode,
    own: &OwnAuthority,
    bearer: &Bearer,
    signing_request: &SigningRequest,
    request: &EnrolNodeRequest,
    deadline: Instant,
) -> Result<EnrolNodeResponse, Fault> {
    let command = Command::UseJoinToken {
        id: bearer.id(),
        hash: bearer.hash(),
        by: KeyDigest(signing_request.key_digest()),
        at_ms: unix_ms(),
    };
    match this.group.propose(command, deadline).await {
        Err(GroupError::Refused(error)) => return Err(denied(&error)),
        done => done?,
    };
    let refused = |error: TlsError| Fault::new(Reason::Invalid, error.to_string());
    let admitted = own
        .admit(signing_request, &request.names)
        .map_err(refused)?;
    Ok(EnrolNodeResponse {
        certificate: admitted.certificate,
        authority: admitted.authority,
        authority_key: admitted.authority_key,
    })
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    name.parse::<IpAddr>().is_ok() || (!name.is_empty() && name.bytes().all(is_plain))
}

fn denied(error: &TopologyError) -> Fault {
    let reason = match error {
        TopologyError::UnknownJoinToken => Reason::Unauthenticated,
        _ => Reason::PermissionDenied,
    };
    Fault::new(reason, error.to_string())
}
