//! Who calls, and what they may do.
//!
//! Without TLS nobody is told apart, and everybody may do everything: such a node serves loopback,
//! or a network that somebody trusts. With TLS a connection is whoever its certificate names.

use std::str::FromStr as _;
use std::sync::Arc;

use torc_proto::{Access, Fault, Reason};
use torc_ring::NodeId;
use torc_ring::topology::ClusterId;
use torc_tls::{Identity, Role};

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// The connection is not encrypted: nobody is told apart.
    Anyone,
    /// It showed no certificate.
    Unknown,
    /// It showed this one.
    Known(Arc<Known>),
}

/// A certificate that an authority of this node vouches for.
#[derive(Debug)]
pub(crate) struct Known {
    identity: Identity,
    /// None: any.
    cluster: Option<ClusterId>,
}

impl Caller {
    /// By the certificate that a TLS connection showed.
    ///
    /// # Errors
    /// When it is for a cluster whose name is none.
    pub(crate) fn of(identity: Option<Identity>) -> Result<Self, String> {
        let Some(identity) = identity else {
            return Ok(Self::Unknown);
        };
        let (Identity::Node { cluster, .. } | Identity::Client { cluster, .. }) = &identity;
        let cluster = cluster.as_deref().map(ClusterId::from_str).transpose();
        let cluster = cluster.map_err(|_| format!("{identity} names no cluster"))?;
        Ok(Self::Known(Arc::new(Known { identity, cluster })))
    }

    /// Refuses whoever may not do this in this cluster.
    ///
    /// # Errors
    /// UNAUTHENTICATED, PERMISSION_DENIED; nothing was looked up.
    pub(crate) fn check(&self, needed: Access, cluster: Option<ClusterId>) -> Result<(), Fault> {
        let known = match self {
            Self::Anyone => return Ok(()),
            Self::Unknown => {
                let message = "the cluster asks for a certificate, and none was shown: use one \
                               that its authority issued (kvctl: --tls-cert and --tls-key)";
                return Err(Fault::new(Reason::Unauthenticated, message));
            }
            Self::Known(known) => known,
        };
        let denied = |why: String| Err(Fault::new(Reason::PermissionDenied, why));
        if known.cluster.is_some() && known.cluster != cluster {
            return denied(format!(
                "the certificate of {} is for another cluster",
                known.identity
            ));
        }
        let Identity::Client { name, roles, .. } = &known.identity else {
            return Ok(());
        };
        let roles_that_may: &[Role] = match needed {
            Access::Client => return Ok(()),
            Access::Read => &[Role::Read],
            Access::Write => &[Role::Write],
            Access::ReadOrWrite => &[Role::Read, Role::Write],
            Access::Observe => &[Role::Observe],
            Access::Admin => &[Role::Admin],
            Access::Node => return denied("only nodes of the cluster may call this".to_owned()),
        };
        if roles_that_may.iter().any(|role| roles.allow(*role)) {
            return Ok(());
        }
        let names: Vec<_> = roles_that_may.iter().map(|role| role.name()).collect();
        denied(format!(
            "`{name}` has the role {roles}, and this takes {}: nothing was looked up; ask for a \
             certificate with that role",
            names.join(" or ")
        ))
    }

    /// Whether it may be this node.
    pub(crate) fn may_be(&self, node: NodeId) -> bool {
        match self {
            Self::Anyone => true,
            Self::Unknown => false,
            Self::Known(known) => known.identity.may_be(node.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(uri: &str) -> Caller {
        Caller::of(Some(uri.parse().unwrap())).unwrap()
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
            let caller = match roles {
                "node" => caller("torc://any/node/any"),
                roles => caller(&format!("torc://any/client/alice/{roles}")),
            };
            for access in all {
                let may = caller.check(access, OURS);
                assert_eq!(may.is_ok(), allowed.contains(&access), "{roles} {access:?}");
                if let Err(fault) = may {
                    assert_eq!(fault.reason, Reason::PermissionDenied);
                    assert!(!fault.maybe_applied && !fault.is_retryable());
                }
            }
        }
        for access in all {
            assert!(Caller::Anyone.check(access, OURS).is_ok());
            let refused = Caller::Unknown.check(access, OURS).unwrap_err();
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
        assert!(Caller::of(Some(unreadable)).is_err());
    }

    #[test]
    fn only_a_node_may_be_one() {
        let three = NodeId(3);
        assert!(caller("torc://any/node/3").may_be(three));
        assert!(caller("torc://any/node/any").may_be(three));
        assert!(!caller("torc://any/node/4").may_be(three));
        assert!(!caller("torc://any/client/alice/admin").may_be(three));
        assert!(Caller::Anyone.may_be(three) && !Caller::Unknown.may_be(three));
    }
}
