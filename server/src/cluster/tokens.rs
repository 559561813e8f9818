//! Creates, lists and revokes bearer tokens.

#![expect(
    clippy::cast_possible_truncation,
    reason = "no more nodes join by a token than a u32 allows"
)]

use std::time::{Duration, Instant};

use torc_proto::v1::{
    self, CreateTokenRequest, CreateTokenResponse, ListTokensResponse, RevokeTokenRequest,
    RevokeTokenResponse,
};
use torc_proto::{Fault, Reason};
use torc_ring::topology::{
    Bearer, BearerId, BearerToken, Command, Grants, JoinUses, Role, Roles, Scope, UnknownRole,
};
use torc_telemetry::clock::unix_ms;

use super::enrol::{issuer_of, own_authority};
use super::namespace::all_heard;
use super::node::ClusterNode;

/// Time for members to learn of a new or revoked token.
const HEAR_TIME: Duration = Duration::from_secs(5);

pub(crate) async fn create(
    this: &ClusterNode,
    request: CreateTokenRequest,
    deadline: Instant,
) -> Result<CreateTokenResponse, Fault> {
    if this.entrance.tls.is_none() {
        let message = "without TLS, a token protects nothing, and nodes refuse tokens: start the nodes \
                       with --secure, or with --tls-cert, --tls-key and --tls-ca";
        return Err(Fault::new(Reason::Refused, message));
    }
    let join = (request.join_uses != 0).then(|| own_authority(this).and_then(issuer_of));
    let join = join.transpose()?;
    let bearer = Bearer::new(rand::random(), rand::random());
    let token = token_of(request, &bearer, unix_ms())?;
    let command = Command::CreateBearerToken {
        id: bearer.id(),
        token: token.clone(),
    };
    this.group.propose(command, deadline).await?;
    let heard = all_heard(this, HEAR_TIME, deadline).await;
    heard.map_err(Fault::after_change)?;
    Ok(CreateTokenResponse {
        token: Some(to_wire(bearer.id(), &token)),
        bearer: bearer.reveal(),
        authority_digest: join
            .map_or_else(Vec::new, |digest| digest.as_bytes().to_vec())
            .into(),
        address: join.map_or_else(String::new, |_| this.reached_at.grpc.clone()),
    })
}

/// The topology checks the bounds.
fn token_of(
    request: CreateTokenRequest,
    bearer: &Bearer,
    now_ms: u64,
) -> Result<BearerToken, Fault> {
    let unknown = |error: UnknownRole| Fault::new(Reason::Invalid, error.to_string());
    let role = |name: &String| name.parse::<Role>();
    let everywhere: Roles = request
        .roles
        .iter()
        .map(role)
        .collect::<Result<_, _>>()
        .map_err(unknown)?;
    let scope = |scope: v1::Scope| {
        Ok(Scope {
            role: scope.role.parse()?,
            namespace: scope.namespace,
            prefix: scope.prefix.to_vec(),
        })
    };
    let scopes: Result<_, _> = request.scopes.into_iter().map(scope).collect();
    let lifetime_ms = Some(request.lifetime_ms).filter(|ms| *ms != 0);
    Ok(BearerToken {
        name: request.name,
        hash: bearer.hash(),
        grants: Grants {
            everywhere,
            scopes: scopes.map_err(unknown)?,
        },
        created_at_ms: now_ms,
        expires_at_ms: lifetime_ms.map(|ms| now_ms.saturating_add(ms)),
        join: (request.join_uses != 0).then(|| JoinUses {
            most: request.join_uses,
            by: Vec::new(),
        }),
    })
}

fn to_wire(id: BearerId, token: &BearerToken) -> v1::BearerToken {
    let scope = |scope: &Scope| v1::Scope {
        role: scope.role.to_string(),
        namespace: scope.namespace.clone(),
        prefix: scope.prefix.clone().into(),
    };
    v1::BearerToken {
        id: id.to_string(),
        name: token.name.clone(),
        roles: token
            .grants
            .everywhere
            .iter()
            .map(|it| it.to_string())
            .collect(),
        scopes: token.grants.scopes.iter().map(scope).collect(),
        created_at_ms: token.created_at_ms,
        expires_at_ms: token.expires_at_ms.unwrap_or(0),
        join_uses: token.join.as_ref().map_or(0, |join| join.most),
        joined: token.join.as_ref().map_or(0, |join| join.by.len() as u32),
    }
}

pub(super) async fn list(
    this: &ClusterNode,
    deadline: Instant,
) -> Result<ListTokensResponse, Fault> {
    let topology = this.group.read_current(deadline).await?;
    let tokens = topology.bearer_tokens().iter();
    Ok(ListTokensResponse {
        tokens: tokens.map(|(id, token)| to_wire(*id, token)).collect(),
    })
}

pub(super) async fn revoke(
    this: &ClusterNode,
    request: RevokeTokenRequest,
    deadline: Instant,
) -> Result<RevokeTokenResponse, Fault> {
    let id: BearerId = request.id.parse().map_err(|_| {
        // The caller may have sent the whole token, so the message does not repeat it.
        let message = "the id of a token has 16 hexadecimal digits: see `kvctl token list`";
        Fault::new(Reason::Invalid, message)
    })?;
    let command = Command::RevokeBearerToken { id };
    this.group.propose(command, deadline).await?;
    let heard = all_heard(this, HEAR_TIME, deadline).await;
    let (_, unconfirmed) = heard.map_err(Fault::after_change)?;
    Ok(RevokeTokenResponse {
        unconfirmed: unconfirmed.into_iter().map(|node| node.0).collect(),
    })
}
