//! The identity in a certificate.

use std::fmt;
use std::str::FromStr;

#[cfg(feature = "node")]
use rustls::pki_types::CertificateDer;
use torc_ring::topology::{Role, Roles, UnknownRole};
#[cfg(feature = "node")]
use x509_parser::extensions::GeneralName;

const SCHEME: &str = "torc://";
/// Stands for any cluster, or for any node.
const ANY: &str = "any";

/// The holder of a certificate. As a URI: `torc://CLUSTER/node/ID` or
/// `torc://CLUSTER/client/NAME/ROLE+ROLE`; `any` stands for any cluster or any node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A member of a cluster.
    Node {
        /// Its cluster, as text.
        cluster: Option<String>,
        /// Its id there.
        node: Option<u64>,
    },
    /// A client.
    Client {
        /// The cluster that it may use, as text.
        cluster: Option<String>,
        /// Its name: letters, digits, `-`, `_`, `.` and `@`, at most 64.
        name: String,
        /// Its roles there.
        roles: Roles,
    },
}

/// What is wrong with an identity. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// No such role.
    #[error(transparent)]
    Role(#[from] UnknownRole),
    /// An invalid name.
    #[error("`{0}` is not a name: use 1 to 64 letters, digits, `-`, `_`, `.` or `@`")]
    Name(String),
    /// Not a URI of ours.
    #[error("`{0}` identifies neither a node nor a client of Torc")]
    Uri(String),
    /// The certificate has no identity, or more than one.
    #[error("the certificate has {0} identities of Torc instead of one")]
    Count(usize),
    /// The certificate cannot be read.
    #[error("the certificate is unreadable")]
    Unreadable,
}

impl Identity {
    /// A client with these roles, of any cluster.
    ///
    /// # Errors
    /// [`IdentityError::Name`].
    pub fn client(name: &str, roles: Roles) -> Result<Self, IdentityError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            return Err(IdentityError::Name(name.to_owned()));
        }
        Ok(Self::Client {
            cluster: None,
            name: name.to_owned(),
            roles,
        })
    }

    /// The identity in a certificate. O(its length).
    ///
    /// # Errors
    /// [`IdentityError`] if it has no identity, several, or one in another form.
    #[cfg(feature = "node")]
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, IdentityError> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
            .map_err(|_| IdentityError::Unreadable)?;
        let names = parsed
            .subject_alternative_name()
            .map_err(|_| IdentityError::Unreadable)?;
        let names = names.iter().flat_map(|names| &names.value.general_names);
        let uris = names.filter_map(|name| match name {
            GeneralName::URI(uri) if uri.starts_with(SCHEME) => Some(*uri),
            _ => None,
        });
        let uris: Vec<&str> = uris.collect();
        match uris[..] {
            [uri] => uri.parse(),
            _ => Err(IdentityError::Count(uris.len())),
        }
    }

    /// Whether it may be used in this cluster.
    #[must_use]
    pub fn is_for(&self, cluster: &str) -> bool {
        let (Self::Node { cluster: of, .. } | Self::Client { cluster: of, .. }) = self;
        of.as_deref().is_none_or(|of| of == cluster)
    }

    /// Whether it is a node, and may be this one.
    #[must_use]
    pub fn may_be(&self, wanted: u64) -> bool {
        matches!(self, Self::Node { node, .. } if node.is_none_or(|node| node == wanted))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Node { cluster, .. } | Self::Client { cluster, .. }) = self;
        let cluster = cluster.as_deref().unwrap_or(ANY);
        match self {
            Self::Node {
                node: Some(node), ..
            } => write!(f, "{SCHEME}{cluster}/node/{node}"),
            Self::Node { node: None, .. } => write!(f, "{SCHEME}{cluster}/node/{ANY}"),
            Self::Client { name, roles, .. } => {
                write!(f, "{SCHEME}{cluster}/client/{name}/{roles}")
            }
        }
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(uri: &str) -> Result<Self, IdentityError> {
        let wrong = || IdentityError::Uri(uri.to_owned());
        let parts = uri.strip_prefix(SCHEME).ok_or_else(wrong)?;
        let parts: Vec<&str> = parts.split('/').collect();
        let cluster_of = |text: &str| (text != ANY).then(|| text.to_owned());
        match parts[..] {
            [of, "node", id] if !of.is_empty() => Ok(Self::Node {
                cluster: cluster_of(of),
                node: match id {
                    ANY => None,
                    id => Some(id.parse().map_err(|_| wrong())?),
                },
            }),
            [of, "client", name, roles] if !of.is_empty() => {
                let roles: Result<Roles, _> = roles.split('+').map(Role::from_str).collect();
                let mut client = Self::client(name, roles?)?;
                if let Self::Client { cluster, .. } = &mut client {
                    *cluster = cluster_of(of);
                }
                Ok(client)
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_as_it_is_written_and_nothing_else_is() {
        for text in [
            "torc://any/node/any",
            "torc://any/node/7",
            "torc://0123456789abcdef/node/18446744073709551615",
            "torc://any/client/alice/read",
            "torc://c1/client/bob@x/read+write+observe+admin",
        ] {
            let identity: Identity = text.parse().unwrap();
            assert_eq!(identity.to_string(), text);
        }
        for text in [
            "",
            "torc://",
            "torc:///node/1",
            "torc://any/node",
            "torc://any/node/-1",
            "torc://any/node/18446744073709551616",
            "torc://any/node/1/2",
            "torc://any/client/alice",
            "torc://any/client/alice/",
            "torc://any/client//read",
            "torc://any/client/a b/read",
            "torc://any/client/alice/read+root",
            "spiffe://any/node/1",
        ] {
            assert!(text.parse::<Identity>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_cluster_and_a_node_that_are_named_are_meant() {
        let node: Identity = "torc://c1/node/3".parse().unwrap();
        assert!(node.is_for("c1") && !node.is_for("c2"));
        assert!(node.may_be(3) && !node.may_be(4));
        let any: Identity = "torc://any/node/any".parse().unwrap();
        assert!(any.is_for("c2") && any.may_be(4));
        let client: Identity = "torc://any/client/3/admin".parse().unwrap();
        assert!(!client.may_be(3));
    }
}
