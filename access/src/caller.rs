//! Identifies and authorises callers.
//!
//! Without TLS, callers have no identity and may do everything: such a node serves loopback or a
//! trusted network. With TLS, a caller's bearer token names it; without a token, the certificate of
//! its connection does.
//!
//! Each call is checked twice: [`Caller::check`] checks roles before the message is read;
//! [`Caller::check_reach`] checks the keys in the message against the scopes of the token. Both
//! give the same answer whether or not a key exists. Long-lived calls repeat
//! [`Caller::check_counts`], because tokens are revoked and expire, and because a certificate
//! counts only for a while on its connection.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Instant;

use torc_proto::{Access, Fault, Reason};
use torc_ring::NodeId;
use torc_ring::topology::{ClusterId, Holder, Role};
use torc_tls::Identity;

/// The peer of a connection, or the sender of a request.
#[derive(Debug, Clone)]
pub struct Caller {
    who: Who,
    /// The address of the connection.
    pub from: IpAddr,
    /// Whether it connected to the peer port.
    pub is_on_peer_port: bool,
}

#[derive(Debug, Clone)]
enum Who {
    /// The connection is not encrypted, so callers have no identity.
    Anyone,
    /// The peer presented no certificate.
    Unknown,
    /// The certificate that the peer presented.
    Certificate(Arc<Known>),
    /// The holder of the request's token.
    Bearer(Arc<Holder>),
}

/// A certificate that one of this node's authorities has signed.
#[derive(Debug)]
struct Known {
    identity: Identity,
    /// `None` if it is valid for any cluster.
    cluster: Option<ClusterId>,
    /// Until when it counts on its connection.
    ends: Instant,
}

impl Caller {
    /// The caller of a request without a connection.
    #[must_use]
    pub const fn nobody() -> Self {
        Self {
            who: Who::Unknown,
            from: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            is_on_peer_port: false,
        }
    }

    /// The caller on a connection without TLS.
    #[must_use]
    pub const fn anyone(from: IpAddr) -> Self {
        Self {
            who: Who::Anyone,
            from,
            is_on_peer_port: false,
        }
    }

    /// The caller by its TLS certificate, which counts on this connection until the given time.
    ///
    /// # Errors
    /// A message if the certificate names a malformed cluster id.
    pub fn of(certificate: Option<(Identity, Instant)>, from: IpAddr) -> Result<Self, String> {
        let of = |who| Self {
            who,
            from,
            is_on_peer_port: false,
        };
        let Some((identity, ends)) = certificate else {
            return Ok(of(Who::Unknown));
        };
        let (Identity::Node { cluster, .. } | Identity::Client { cluster, .. }) = &identity;
        let cluster = cluster.as_deref().map(ClusterId::from_str).transpose();
        let cluster = cluster.map_err(|_| format!("{identity} names no cluster"))?;
        Ok(of(Who::Certificate(Arc::new(Known {
            identity,
            cluster,
            ends,
        }))))
    }

    /// Until when its certificate counts. `None` for callers that are not known by a certificate.
    #[must_use]
    pub fn ends(&self) -> Option<Instant> {
        match &self.who {
            Who::Certificate(known) => Some(known.ends),
            Who::Anyone | Who::Unknown | Who::Bearer(_) => None,
        }
    }

    /// The holder of a token, on the same connection.
    #[must_use]
    pub const fn with_token(&self, holder: Arc<Holder>) -> Self {
        Self {
            who: Who::Bearer(holder),
            ..*self
        }
    }

    /// Whether callers have no identity; tokens have no meaning then.
    #[must_use]
    pub const fn is_anyone(&self) -> bool {
        matches!(self.who, Who::Anyone)
    }

    /// Whether it is another node.
    #[must_use]
    pub fn is_node(&self) -> bool {
        matches!(&self.who, Who::Certificate(known) if matches!(known.identity, Identity::Node { .. }))
    }

    /// Whether the caller may reach some keys of a namespace and not others.
    #[must_use]
    pub const fn is_scoped(&self) -> bool {
        matches!(self.who, Who::Bearer(_))
    }

    /// Refuses a caller that may not do this to any key of the cluster.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` or `PERMISSION_DENIED`, before any lookup.
    pub fn check(&self, needed: Access, cluster: Option<ClusterId>) -> Result<(), Fault> {
        if needed == Access::Anyone {
            return Ok(());
        }
        match &self.who {
            Who::Anyone => return Ok(()),
            Who::Unknown => {
                let message = "this cluster requires authentication, but the request has neither a certificate nor a token: \
                               use a certificate of the cluster's authority (kvctl: \
                               --tls-cert and --tls-key), or a token (kvctl: --token)";
                return Err(Fault::new(Reason::Unauthenticated, message));
            }
            Who::Certificate(known) => {
                if known.cluster.is_some() && known.cluster != cluster {
                    let who = &known.identity;
                    return denied(format!("the certificate of {who} is for another cluster"));
                }
                self.check_counts()?;
                if matches!(known.identity, Identity::Node { .. }) {
                    return Ok(());
                }
            }
            Who::Bearer(_) => self.check_counts()?,
        }
        let roles_that_may: &[Role] = match needed {
            Access::Anyone | Access::Client => return Ok(()),
            Access::Read => &[Role::Read],
            Access::Write => &[Role::Write],
            Access::ReadOrWrite => &[Role::Read, Role::Write],
            Access::Observe => &[Role::Observe],
            Access::Admin => &[Role::Admin],
            Access::Node => return denied("only nodes of the cluster may call this".to_owned()),
        };
        if roles_that_may.iter().any(|role| self.has_somewhere(*role)) {
            return Ok(());
        }
        let names: Vec<_> = roles_that_may.iter().map(|role| role.name()).collect();
        let names = names.join(" or ");
        denied(match &self.who {
            Who::Bearer(holder) => format!(
                "the token `{}` has {}, but this call needs {names}, and nothing was done: get a \
                 token with that role",
                holder.name, holder.grants
            ),
            _ => format!(
                "{self} lacks the role for this call, {names}, and nothing was done: get a \
                 certificate with that role"
            ),
        })
    }

    /// Refuses a caller whose role covers other keys only. An empty key stands for all keys of the
    /// namespace.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, before any lookup.
    pub fn check_reach(&self, role: Role, namespace: &str, key: &[u8]) -> Result<(), Fault> {
        let Who::Bearer(holder) = &self.who else {
            return Ok(());
        };
        if holder.grants.allow(role, namespace_of(namespace), key) {
            return Ok(());
        }
        denied(format!(
            "the scopes of the token `{}` are {}, and nothing was done: get a token with \
             `{role}` for these keys",
            holder.name, holder.grants
        ))
    }

    /// Refuses the holder of a token that was revoked or has expired meanwhile, and a certificate
    /// that is no longer accepted on its connection.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`.
    pub fn check_counts(&self) -> Result<(), Fault> {
        match &self.who {
            Who::Bearer(holder) if holder.has_ended() => {
                let name = &holder.name;
                let message =
                    format!("the token `{name}` was revoked or has expired: use another one");
                Err(Fault::new(Reason::Unauthenticated, message))
            }
            Who::Certificate(known) if known.ends <= Instant::now() => {
                Err(Fault::connect_again(format!(
                    "the certificate of {} is no longer valid on this connection, and nothing was \
                     done: connect again",
                    known.identity
                )))
            }
            _ => Ok(()),
        }
    }

    fn has_somewhere(&self, role: Role) -> bool {
        match &self.who {
            Who::Anyone => true,
            Who::Unknown => false,
            Who::Certificate(known) => match &known.identity {
                Identity::Node { .. } => true,
                Identity::Client { roles, .. } => roles.allow(role),
            },
            Who::Bearer(holder) => holder.grants.allow_somewhere(role),
        }
    }

    /// Whether it may learn the key of the digests.
    #[must_use]
    pub fn may_learn_digests(&self) -> bool {
        self.has_somewhere(Role::Read)
    }

    /// Whether it may learn that a namespace of this name exists.
    #[must_use]
    pub fn may_know_of(&self, namespace: &str) -> bool {
        match &self.who {
            Who::Bearer(holder) => holder.grants.know_of(namespace),
            _ => true,
        }
    }

    /// Whether its identity allows it to act as this node.
    #[must_use]
    pub fn may_be(&self, node: NodeId) -> bool {
        match &self.who {
            Who::Anyone => true,
            Who::Unknown | Who::Bearer(_) => false,
            Who::Certificate(known) => known.identity.may_be(node.0),
        }
    }
}

/// Requests may name the default namespace by the empty string.
fn namespace_of(name: &str) -> &str {
    if name.is_empty() { "default" } else { name }
}

fn denied(why: String) -> Result<(), Fault> {
    Err(Fault::new(Reason::PermissionDenied, why))
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.who {
            Who::Anyone => f.write_str("anyone"),
            Who::Unknown => f.write_str("unknown"),
            Who::Certificate(known) => write!(f, "{}", known.identity),
            Who::Bearer(holder) => write!(f, "token {} {}", holder.id, holder.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use torc_ring::topology::{Bearer, BearerToken, Grants, Holders};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn caller(uri: &str) -> Caller {
        caller_until(uri, Instant::now() + Duration::from_secs(3_600))
    }

    fn caller_until(uri: &str, ends: Instant) -> Caller {
        Caller::of(Some((uri.parse().unwrap(), ends)), HERE).unwrap()
    }

    fn bearer(roles: &[Role], scopes: &[&str]) -> (Caller, Holders) {
        let bearer = Bearer::new(1, [1; 32]);
        let token = BearerToken {
            name: "alice".to_owned(),
            hash: bearer.hash(),
            grants: Grants {
                everywhere: roles.iter().copied().collect(),
                scopes: scopes.iter().map(|text| text.parse().unwrap()).collect(),
            },
            created_at_ms: 0,
            expires_at_ms: None,
            join: None,
        };
        let tokens = BTreeMap::from([(bearer.id(), token)]);
        let holders = Holders::default().next(&tokens, 1).unwrap();
        let holder = Arc::clone(holders.find(&bearer.reveal()).unwrap());
        (Caller::anyone(HERE).with_token(holder), holders)
    }

    const OURS: Option<ClusterId> = Some(ClusterId([7; 16]));

    #[test]
    fn each_role_may_call_what_it_is_for_and_nothing_else() {
        use Access::{Admin, Client, Node, Observe, Read, ReadOrWrite, Write};
        let all = [Client, Read, Write, ReadOrWrite, Observe, Admin, Node];
        let cases: [(&str, &[Access]); 6] = [
            ("read", &[Client, Read, ReadOrWrite]),
            ("write", &[Client, Write, ReadOrWrite]),
            ("read+write", &[Client, Read, Write, ReadOrWrite]),
            ("observe", &[Client, Observe]),
            ("admin", &[Client, Read, Write, ReadOrWrite, Observe, Admin]),
            ("node", &all),
        ];
        for (roles, allowed) in cases {
            let callers = match roles {
                "node" => vec![caller("torc://any/node/any")],
                roles => {
                    let held: Vec<Role> = roles.split('+').map(|it| it.parse().unwrap()).collect();
                    let by_certificate = caller(&format!("torc://any/client/alice/{roles}"));
                    vec![by_certificate, bearer(&held, &[]).0]
                }
            };
            for (caller, access) in callers.iter().flat_map(|it| all.map(|access| (it, access))) {
                let may = caller.check(access, OURS);
                assert_eq!(
                    may.is_ok(),
                    allowed.contains(&access),
                    "{caller} {access:?}"
                );
                if let Err(fault) = may {
                    assert_eq!(fault.reason, Reason::PermissionDenied);
                    assert!(!fault.maybe_applied && !fault.is_retryable());
                }
            }
        }
        let unknown = Caller::of(None, HERE).unwrap();
        assert!(unknown.check(Access::Anyone, OURS).is_ok());
        for access in all {
            assert!(Caller::anyone(HERE).check(access, OURS).is_ok());
            let refused = unknown.check(access, OURS).unwrap_err();
            assert_eq!(refused.reason, Reason::Unauthenticated);
        }
    }

    #[test]
    fn a_certificate_of_another_cluster_opens_nothing() {
        let ours = ClusterId([7; 16]);
        for who in ["node/any", "client/alice/admin"] {
            let caller = caller(&format!("torc://{ours}/{who}"));
            assert!(caller.check(Access::Read, OURS).is_ok());
            for other in [Some(ClusterId([8; 16])), None] {
                let refused = caller.check(Access::Read, other).unwrap_err();
                assert_eq!(refused.reason, Reason::PermissionDenied);
            }
        }
        let unreadable: Identity = "torc://c1/node/1".parse().unwrap();
        assert!(Caller::of(Some((unreadable, Instant::now())), HERE).is_err());
    }

    #[test]
    fn a_certificate_counts_for_a_while_on_its_connection() {
        for who in ["node/any", "client/alice/admin"] {
            let caller = caller_until(&format!("torc://any/{who}"), Instant::now());
            for refused in [caller.check_counts(), caller.check(Access::Read, OURS)] {
                let fault = refused.unwrap_err();
                assert_eq!(fault.reason, Reason::Unauthenticated);
                assert!(fault.wants_connection() && !fault.maybe_applied, "{fault}");
                assert!(fault.message.contains("connect again"), "{fault}");
            }
            assert!(caller.check(Access::Anyone, OURS).is_ok());
        }
        let over = caller_until("torc://any/client/alice/read", Instant::now());
        let Who::Bearer(holder) = bearer(&[Role::Read], &[]).0.who else {
            panic!("a token");
        };
        let by_token = over.with_token(holder);
        assert!(
            by_token.check(Access::Read, OURS).is_ok(),
            "the token counts"
        );
        let not_yet = caller("torc://any/client/alice/read");
        assert!(not_yet.check_counts().is_ok() && not_yet.ends().is_some());
    }

    #[test]
    fn only_a_node_may_be_one() {
        let three = NodeId(3);
        assert!(caller("torc://any/node/3").may_be(three));
        assert!(caller("torc://any/node/any").may_be(three));
        assert!(!caller("torc://any/node/4").may_be(three));
        assert!(!caller("torc://any/client/alice/admin").may_be(three));
        assert!(Caller::anyone(HERE).may_be(three));
        assert!(!Caller::of(None, HERE).unwrap().may_be(three));
        assert!(!bearer(&[Role::Admin], &[]).0.may_be(three));
    }

    #[test]
    fn a_token_reaches_the_keys_of_its_scopes_and_learns_of_no_other_namespace() {
        let (caller, _holders) = bearer(&[], &["read:sessions", "write:default/user:"]);
        for (role, namespace, key, may) in [
            (Role::Read, "sessions", "k", true),
            (Role::Read, "sessions", "", true),
            (Role::Read, "", "k", false),
            (Role::Write, "", "user:1", true),
            (Role::Write, "default", "user:1", true),
            (Role::Write, "default", "user", false),
            (Role::Write, "sessions", "user:1", false),
        ] {
            let reach = caller.check_reach(role, namespace, key.as_bytes());
            assert_eq!(reach.is_ok(), may, "{role} {namespace}/{key}");
        }
        assert!(caller.check(Access::Read, OURS).is_ok());
        assert!(caller.check(Access::Observe, OURS).is_err());
        assert!(caller.may_know_of("sessions") && !caller.may_know_of("urls"));
        assert!(caller.may_learn_digests());
        assert!(!bearer(&[Role::Observe], &["write:n"]).0.may_learn_digests());
    }

    #[test]
    fn a_token_that_was_revoked_opens_nothing_any_more() {
        let (caller, holders) = bearer(&[Role::Admin], &[]);
        assert!(caller.check_counts().is_ok());
        holders.next(&BTreeMap::new(), 1).unwrap();
        for refused in [caller.check_counts(), caller.check(Access::Client, OURS)] {
            assert_eq!(refused.unwrap_err().reason, Reason::Unauthenticated);
        }
    }
}
