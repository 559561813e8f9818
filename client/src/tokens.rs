//! The client's operations on bearer tokens.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};
use torc_proto::v1;
use torc_proto::v1::cluster_client::ClusterClient;
use torc_ring::NodeId;
use torc_ring::topology::{Bearer, BearerId, Role, Roles, Scope};
use torc_tls::{JoinToken, PinnedToken};

use crate::retry::Nature;
use crate::{Client, Error};

/// A bearer token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenInfo {
    /// Its id, to revoke it.
    pub id: BearerId,
    /// A name for people.
    pub name: String,
    /// Roles in every namespace: `read`, `write`, `observe`, `admin`.
    #[serde(serialize_with = "as_names")]
    pub roles: Roles,
    /// Roles in single namespaces, as `ROLE:NAMESPACE` or `ROLE:NAMESPACE/PREFIX`.
    #[serde(serialize_with = "as_texts")]
    pub scopes: Vec<Scope>,
    /// Unix milliseconds.
    pub created_at_ms: u64,
    /// Expiry, Unix milliseconds; `None`: valid until revoked.
    pub expires_at_ms: Option<u64>,
    /// Number of nodes that it admits; `None`: it is not a join token.
    pub join_uses: Option<u32>,
    /// Number of nodes that it has admitted.
    pub joined: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn as_names<S: Serializer>(roles: &Roles, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(roles.iter().map(Role::name))
}

fn as_texts<S: Serializer>(scopes: &[Scope], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(scopes.iter().map(ToString::to_string))
}

/// A token to create.
#[derive(Debug, Clone, Default)]
pub struct NewToken {
    /// A name for people: 1 to 64 letters, digits, `-`, `_`, `.` and `@`.
    pub name: String,
    /// Roles in every namespace.
    pub roles: Roles,
    /// Roles in single namespaces; at most 16.
    pub scopes: Vec<Scope>,
    /// Lifetime by the nodes' clocks; `None`: until revoked.
    pub lifetime: Option<Duration>,
}

/// A new token with its secret, which the cluster cannot show again.
#[derive(Clone)]
pub struct CreatedToken {
    /// The token without its secret.
    pub info: TokenInfo,
    bearer: Bearer,
}

impl CreatedToken {
    /// The token itself, `id.secret`.
    #[must_use]
    pub fn reveal(&self) -> String {
        self.bearer.reveal()
    }
}

impl fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("CreatedToken");
        shown.field("info", &self.info).finish_non_exhaustive()
    }
}

/// A new join token with its secret, which the cluster cannot show again.
#[derive(Debug, Clone)]
pub struct CreatedJoinToken {
    /// The token without its secret.
    pub info: TokenInfo,
    /// The token for the new node. `Debug` hides its secret.
    pub token: JoinToken,
}

impl TokenInfo {
    fn from_wire(wire: v1::BearerToken) -> Option<Self> {
        let roles: Result<Roles, _> = wire.roles.iter().map(|name| name.parse::<Role>()).collect();
        let scope = |scope: v1::Scope| {
            Some(Scope {
                role: scope.role.parse().ok()?,
                namespace: scope.namespace,
                prefix: scope.prefix.to_vec(),
            })
        };
        Some(Self {
            id: wire.id.parse().ok()?,
            name: wire.name,
            roles: roles.ok()?,
            scopes: wire.scopes.into_iter().map(scope).collect::<Option<_>>()?,
            created_at_ms: wire.created_at_ms,
            expires_at_ms: Some(wire.expires_at_ms).filter(|at_ms| *at_ms != 0),
            join_uses: Some(wire.join_uses).filter(|uses| *uses != 0),
            joined: wire.joined,
        })
    }
}

/// Bearer tokens.
impl Client {
    /// Creates a bearer token. When this returns, every member that answers accepts it; the others
    /// do once they learn of it. If the answer is lost, the token exists but its secret is lost:
    /// revoke it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for values beyond their limits;
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) on a cluster without TLS, or if it has the
    /// maximum number of tokens; [`ErrorKind::Denied`](crate::ErrorKind::Denied); and as
    /// [`Client::status`].
    pub async fn create_token(&self, new: &NewToken) -> Result<CreatedToken, Error> {
        let scope = |scope: &Scope| v1::Scope {
            role: scope.role.to_string(),
            namespace: scope.namespace.clone(),
            prefix: scope.prefix.clone().into(),
        };
        let message = v1::CreateTokenRequest {
            name: new.name.clone(),
            roles: new.roles.iter().map(|role| role.to_string()).collect(),
            scopes: new.scopes.iter().map(scope).collect(),
            lifetime_ms: new
                .lifetime
                .map_or(0, |time| time.as_millis().try_into().unwrap_or(u64::MAX)),
            join_uses: 0,
        };
        let (info, bearer, _) = self.create(message).await?;
        Ok(CreatedToken { info, bearer })
    }

    /// Creates a join token, with which a number of nodes (at most 64) can join a secure cluster
    /// (`kvd serve --join`). If the answer is lost, the token exists but its secret is lost: revoke
    /// it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for values beyond their limits;
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) on a cluster that was not founded with
    /// `--secure`, or if it has the maximum number of tokens;
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied); and as [`Client::status`].
    pub async fn create_join_token(
        &self,
        name: &str,
        uses: u32,
        lifetime: Duration,
    ) -> Result<CreatedJoinToken, Error> {
        let message = v1::CreateTokenRequest {
            name: name.to_owned(),
            lifetime_ms: lifetime.as_millis().try_into().unwrap_or(u64::MAX),
            join_uses: uses,
            ..v1::CreateTokenRequest::default()
        };
        let (info, bearer, answer) = self.create(message).await?;
        let digest = <[u8; 32]>::try_from(&answer.authority_digest[..]);
        let authority = digest.map_err(|_| Error::malformed("a join token", true))?;
        Ok(CreatedJoinToken {
            info,
            token: JoinToken {
                token: PinnedToken {
                    bearer,
                    authority: authority.into(),
                },
                address: answer.address,
            },
        })
    }

    async fn create(
        &self,
        message: v1::CreateTokenRequest,
    ) -> Result<(TokenInfo, Bearer, v1::CreateTokenResponse), Error> {
        // A created token is not created again.
        let mut answer = self
            .ask(Nature::Write, message, ClusterClient::create_token)
            .await?;
        let malformed = || Error::malformed("a token", true);
        let bearer = answer.bearer.parse().map_err(|_| malformed())?;
        let info = answer
            .token
            .take()
            .and_then(TokenInfo::from_wire)
            .ok_or_else(malformed)?;
        Ok((info, bearer, answer))
    }

    /// All bearer tokens in the order of their ids, expired ones included.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub async fn tokens(&self) -> Result<Vec<TokenInfo>, Error> {
        let message = v1::ListTokensRequest::default();
        let answer = self
            .ask(Nature::Read, message, ClusterClient::list_tokens)
            .await?;
        let tokens = answer.tokens.into_iter().map(TokenInfo::from_wire);
        tokens
            .collect::<Option<_>>()
            .ok_or_else(|| Error::malformed("a token", false))
    }

    /// Revokes a bearer token. Returns once every member refuses it and has closed what it opened,
    /// or after five seconds, with the members that may still accept it: they do not respond, or
    /// are cut off from the topology group, and refuse it when they learn of it. Repeating it is
    /// harmless, and so is an unknown id.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub async fn revoke_token(&self, id: BearerId) -> Result<Vec<NodeId>, Error> {
        let message = v1::RevokeTokenRequest { id: id.to_string() };
        // Revoking twice changes nothing.
        let answer = self
            .ask(Nature::Repeatable, message, ClusterClient::revoke_token)
            .await?;
        Ok(answer.unconfirmed.into_iter().map(NodeId).collect())
    }
}
