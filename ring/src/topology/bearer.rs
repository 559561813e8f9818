//! Bearer tokens: secrets that identify clients, with their permissions.
//!
//! A token is shown once, as `id.secret`; the topology keeps a hash of the secret. One BLAKE3 is
//! enough: a secret has 256 random bits, which nobody can guess, so a slow hash would only slow
//! down requests.
//!
//! * The permissions of a token never change. Revoking removes it.
//! * The routing table contains neither ids nor hashes: clients never get them.
//! * A *join token* only admits nodes. It keeps their keys, so a node that asks again does not
//!   count twice.
//! * The topology keeps the expiry; each node judges it by its wall clock
//!   ([`BearerToken::is_expired`]).
//!
//! *Token* alone means a position on the ring; these are called bearer tokens.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ids::is_digit;
use super::{
    BearerId, MAX_BEARER_TOKENS, MalformedBearer, Outcome, Role, Roles, Topology, TopologyError,
    UnknownRole,
};

/// Most nodes that one join token admits.
pub const MAX_JOIN_USES: u32 = 64;
/// Most scopes of a token.
pub const MAX_SCOPES: usize = 16;
/// Longest prefix of a scope.
pub const MAX_SCOPE_PREFIX_LEN: usize = 256;
/// Limit of all names and scopes, bytes: each node writes them with every topology.
const MAX_BYTES: usize = 1 << 20;
const MAX_NAME_LEN: usize = 64;

pub(super) const SECRET_LEN: usize = 64;

/// A bearer token with its secret. Neither `Debug` nor errors show the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Bearer {
    id: BearerId,
    /// 64 hexadecimal digits.
    secret: String,
}

impl Bearer {
    /// From a random id and 256 random bits.
    #[must_use]
    pub fn new(id: u64, secret: [u8; 32]) -> Self {
        let digit = |byte: u8| char::from_digit(byte.into(), 16).unwrap_or('0');
        let digits = secret.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        Self {
            id: BearerId(id),
            secret: digits.map(digit).collect(),
        }
    }

    /// Its public half.
    #[must_use]
    pub const fn id(&self) -> BearerId {
        self.id
    }

    /// All of it, secret included, as `id.secret`.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    /// The hash that the topology keeps. About 100 ns.
    #[must_use]
    pub fn hash(&self) -> SecretHash {
        SecretHash::of(&self.secret)
    }
}

impl FromStr for Bearer {
    type Err = MalformedBearer;

    fn from_str(text: &str) -> Result<Self, MalformedBearer> {
        let (id, secret) = split(text)?;
        Ok(Self {
            id,
            secret: secret.to_owned(),
        })
    }
}

/// A token's halves.
fn split(text: &str) -> Result<(BearerId, &str), MalformedBearer> {
    let (id, secret) = text.split_once('.').ok_or(MalformedBearer)?;
    Ok((id.parse()?, checked_secret(secret)?))
}

fn checked_secret(secret: &str) -> Result<&str, MalformedBearer> {
    let is_one = secret.len() == SECRET_LEN && secret.bytes().all(is_digit);
    is_one.then_some(secret).ok_or(MalformedBearer)
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bearer({}.…)", self.id)
    }
}

/// BLAKE3 of a secret's digits. Compared in constant time.
#[derive(Clone, Copy, Eq, Serialize, Deserialize)]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    pub(super) fn of(secret: &str) -> Self {
        Self(*blake3::hash(secret.as_bytes()).as_bytes())
    }
}

impl PartialEq for SecretHash {
    fn eq(&self, other: &Self) -> bool {
        blake3::Hash::from_bytes(self.0) == blake3::Hash::from_bytes(other.0)
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash(..)")
    }
}

/// A role in one namespace, or for its keys with a prefix: `read:sessions`,
/// `write:sessions/user:`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// [`Role::Read`] or [`Role::Write`].
    pub role: Role,
    /// Name of the namespace, which may not exist yet.
    pub namespace: String,
    /// Prefix of the keys; empty: every key.
    pub prefix: Vec<u8>,
}

/// Text that is not a scope. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// Without a namespace.
    #[error(
        "`{0}` is not a scope: use ROLE:NAMESPACE or ROLE:NAMESPACE/PREFIX, for example read:sessions/user:"
    )]
    Form(String),
    /// No role.
    #[error(transparent)]
    Role(#[from] UnknownRole),
}

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let (role, keys) = text
            .split_once(':')
            .ok_or_else(|| ScopeError::Form(text.to_owned()))?;
        let (namespace, prefix) = keys.split_once('/').unwrap_or((keys, ""));
        if namespace.is_empty() {
            return Err(ScopeError::Form(text.to_owned()));
        }
        Ok(Self {
            role: role.parse()?,
            namespace: namespace.to_owned(),
            prefix: prefix.as_bytes().to_vec(),
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.role, self.namespace)?;
        if !self.prefix.is_empty() {
            write!(f, "/{}", self.prefix.escape_ascii())?;
        }
        Ok(())
    }
}

/// The permissions of a bearer token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grants {
    /// Roles in every namespace.
    pub everywhere: Roles,
    /// Roles in single namespaces.
    pub scopes: Vec<Scope>,
}

impl Grants {
    /// Whether it has a role for some key.
    #[must_use]
    pub fn allow_somewhere(&self, role: Role) -> bool {
        self.everywhere.allow(role) || self.scopes.iter().any(|scope| scope.role == role)
    }

    /// Whether it has a role for a key. O(scopes), at most 16.
    #[must_use]
    pub fn allow(&self, role: Role, namespace: &str, key: &[u8]) -> bool {
        self.everywhere.allow(role)
            || self.scopes.iter().any(|scope| {
                scope.role == role && key.starts_with(&scope.prefix) && scope.namespace == namespace
            })
    }

    /// Whether it may know that a namespace of this name exists.
    #[must_use]
    pub fn know_of(&self, namespace: &str) -> bool {
        let is_meant = |scope: &Scope| scope.namespace == namespace;
        !self.everywhere.is_empty() || self.scopes.iter().any(is_meant)
    }

    fn check(&self) -> Result<(), TopologyError> {
        let refused = |allowed: &str| Err(TopologyError::setting("scopes", allowed));
        if self.everywhere.is_empty() && self.scopes.is_empty() {
            return Err(TopologyError::setting(
                "roles",
                "at least one role or scope",
            ));
        }
        if self.scopes.len() > MAX_SCOPES {
            return refused("at most 16");
        }
        for scope in &self.scopes {
            if !matches!(scope.role, Role::Read | Role::Write) {
                return refused(
                    "only the roles `read` and `write`: the others are for the whole cluster",
                );
            }
            if self.everywhere.allow(scope.role) {
                return refused("only roles that are not already given for every namespace");
            }
            if scope.namespace.is_empty() || scope.namespace.len() > MAX_NAME_LEN {
                return refused("namespaces with names of 1 to 64 bytes");
            }
            if scope.prefix.len() > MAX_SCOPE_PREFIX_LEN {
                return refused("prefixes of at most 256 bytes");
            }
        }
        Ok(())
    }
}

impl fmt::Display for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles = (!self.everywhere.is_empty()).then(|| self.everywhere.to_string());
        let scopes = self.scopes.iter().map(ToString::to_string);
        let all: Vec<_> = roles.into_iter().chain(scopes).collect();
        f.write_str(&all.join(" "))
    }
}

/// SHA-256 of a node's public key.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyDigest(pub [u8; 32]);

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The uses of a join token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinUses {
    /// Number of nodes that it admits, 1 to 64.
    pub most: u32,
    /// Keys of the admitted nodes.
    pub by: Vec<KeyDigest>,
}

/// A bearer token as the topology knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BearerToken {
    /// For people: 1 to 64 letters, digits, `-`, `_`, `.` and `@`.
    pub name: String,
    /// Hash of its secret.
    pub hash: SecretHash,
    /// Its permissions.
    pub grants: Grants,
    /// When it was created, Unix milliseconds.
    pub created_at_ms: u64,
    /// Expiry, Unix milliseconds; `None`: valid until revoked.
    pub expires_at_ms: Option<u64>,
    /// The uses, if it is a join token.
    pub join: Option<JoinUses>,
}

impl BearerToken {
    /// Whether it has expired by this clock.
    #[must_use]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }

    pub(super) fn check(&self) -> Result<(), TopologyError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
        if !(1..=MAX_NAME_LEN).contains(&self.name.len()) || !self.name.bytes().all(is_plain) {
            let allowed = "1 to 64 letters, digits, `-`, `_`, `.` or `@`";
            return Err(TopologyError::setting("name", allowed));
        }
        if self.is_expired(self.created_at_ms) {
            return Err(TopologyError::setting("expiry", "a time after now"));
        }
        match &self.join {
            None => self.grants.check(),
            Some(join) => self.check_join(join),
        }
    }

    fn check_join(&self, join: &JoinUses) -> Result<(), TopologyError> {
        if !(1..=MAX_JOIN_USES).contains(&join.most) || !join.by.is_empty() {
            return Err(TopologyError::setting("uses", "1 to 64"));
        }
        if self.expires_at_ms.is_none() {
            return Err(TopologyError::setting(
                "expiry",
                "a time after now, which a join token needs",
            ));
        }
        if self.grants == Grants::default() {
            return Ok(());
        }
        let allowed = "none for a join token, which only admits nodes";
        Err(TopologyError::setting("roles", allowed))
    }

    fn bytes(&self) -> usize {
        let of = |scope: &Scope| scope.namespace.len() + scope.prefix.len();
        let keys = self.join.as_ref().map_or(0, |join| join.most as usize);
        let scopes: usize = self.grants.scopes.iter().map(of).sum();
        self.name.len() + scopes + keys * size_of::<KeyDigest>()
    }
}

impl Topology {
    /// Bearer tokens by their ids, expired ones included.
    #[must_use]
    pub fn bearer_tokens(&self) -> &BTreeMap<BearerId, BearerToken> {
        &self.stored.bearer_tokens
    }

    /// Adds a token. If there is no room, first removes tokens that had expired when this one was
    /// created.
    pub(super) fn create_bearer_token(
        &mut self,
        id: BearerId,
        new: BearerToken,
    ) -> Result<Outcome, TopologyError> {
        let tokens = &mut self.stored.bearer_tokens;
        match tokens.get(&id) {
            Some(known) if *known == new => return Ok(Outcome::Done),
            Some(_) => return Err(TopologyError::setting("id", "a new id")),
            None => {}
        }
        let has_room = |tokens: &BTreeMap<BearerId, BearerToken>| {
            let bytes: usize = tokens.values().map(BearerToken::bytes).sum();
            tokens.len() < MAX_BEARER_TOKENS && bytes + new.bytes() <= MAX_BYTES
        };
        if !has_room(tokens) {
            let now_ms = new.created_at_ms;
            let mut left = tokens.clone();
            left.retain(|_, token| !token.is_expired(now_ms));
            if !has_room(&left) {
                return Err(TopologyError::TooManyBearerTokens);
            }
            *tokens = left;
        }
        tokens.insert(id, new);
        self.advance_epoch();
        Ok(Outcome::Done)
    }

    /// Checks that a node with this key may use a join token. Repeating it is harmless.
    ///
    /// # Errors
    /// [`TopologyError::UnknownJoinToken`], also for a wrong secret or a client's token;
    /// [`TopologyError::JoinTokenExpired`], [`TopologyError::JoinTokenUsed`].
    pub fn check_join_token(
        &self,
        id: BearerId,
        hash: SecretHash,
        by: KeyDigest,
        at_ms: u64,
    ) -> Result<(), TopologyError> {
        let token = self.stored.bearer_tokens.get(&id);
        let token = token.filter(|token| token.hash == hash);
        let join = token.and_then(|token| Some((token, token.join.as_ref()?)));
        let (token, join) = join.ok_or(TopologyError::UnknownJoinToken)?;
        if token.is_expired(at_ms) {
            return Err(TopologyError::JoinTokenExpired { id });
        }
        if !join.by.contains(&by) && join.by.len() >= join.most as usize {
            return Err(TopologyError::JoinTokenUsed {
                id,
                most: join.most,
            });
        }
        Ok(())
    }

    pub(super) fn use_join_token(
        &mut self,
        id: BearerId,
        hash: SecretHash,
        by: KeyDigest,
        at_ms: u64,
    ) -> Result<Outcome, TopologyError> {
        self.check_join_token(id, hash, by, at_ms)?;
        let token = self.stored.bearer_tokens.get_mut(&id);
        let join = token.and_then(|token| token.join.as_mut());
        if let Some(join) = join.filter(|join| !join.by.contains(&by)) {
            join.by.push(by);
            self.advance_epoch();
        }
        Ok(Outcome::Done)
    }

    /// Removes a token, if it exists.
    pub(super) fn revoke_bearer_token(&mut self, id: BearerId) -> Outcome {
        if self.stored.bearer_tokens.remove(&id).is_some() {
            self.advance_epoch();
        }
        Outcome::Done
    }
}
