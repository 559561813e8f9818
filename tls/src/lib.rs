//! TLS of Torc: identities in certificates, an authority that issues them, and connections.
//!
//! A certificate identifies its holder by a URI ([`Identity`]): a node of a cluster, or a client
//! with its [`Roles`]. Nodes check nothing else of each other, neither address nor hostname;
//! clients verify a node's names as usual. A serving node reloads its files, and new connections
//! use them.
//!
//! Sessions are never resumed, because a resumed session would not check the client's certificate
//! again.

#[cfg(feature = "node")]
mod any_node;
#[cfg(feature = "authority")]
mod authority;
mod connect;
mod digest;
#[cfg(feature = "node")]
mod facts;
mod identity;
mod last_words;
#[cfg(feature = "node")]
mod node;
mod pem;
mod pool;

#[cfg(feature = "node")]
pub use any_node::{Introduction, IntroductionError, Trust};
#[cfg(feature = "authority")]
pub use authority::{Authority, Issued, Key, SigningRequest};
pub use connect::{ClientTls, Connector, InUse, channel, connect, endpoint, refusal};
pub use digest::{AuthorityDigest, JoinToken, MalformedToken, PinnedToken};
#[cfg(feature = "node")]
pub use facts::CertificateFacts;
pub use identity::{Identity, IdentityError};
#[cfg(feature = "node")]
pub use node::{Door, Files, NodeTls};
pub use pem::{TlsError, blocks};
pub use pool::{Pool, Traffic};
#[cfg(feature = "node")]
pub use tokio_rustls::server::TlsStream;
pub use torc_ring::topology::{Role, Roles};

use std::sync::Arc;

use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;

/// The provider of cryptography, given to every configuration: never the process's default, which
/// another crate could have set.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// TLS 1.3, and 1.2 only on request.
const fn versions(tls12: bool) -> &'static [&'static SupportedProtocolVersion] {
    const ONLY_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
    if tls12 { rustls::ALL_VERSIONS } else { ONLY_13 }
}
