//! Accepts any node of certain authorities, under any hostname. The authorities are known, or
//! recognised when a node presents its own.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
};
use tonic::transport::Channel;

use crate::{AuthorityDigest, Connector, Identity, connect, endpoint, provider, versions};

/// Selects the trusted authorities, given the certificates that a node sends after its own.
type Anchors =
    dyn Fn(&[CertificateDer<'_>]) -> Result<Arc<RootCertStore>, rustls::Error> + Send + Sync;

/// Verifies that the peer is a node of a trusted authority.
pub(crate) struct AnyNode {
    anchors: Box<Anchors>,
    provider: Arc<CryptoProvider>,
    /// Whether a peer was refused because it is not a node of the authorities.
    refused: Arc<AtomicBool>,
}

impl fmt::Debug for AnyNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyNode").finish_non_exhaustive()
    }
}

impl AnyNode {
    /// Trusts these authorities.
    pub(crate) fn of(roots: Arc<RootCertStore>) -> Self {
        Self::choosing(move |_| Ok(Arc::clone(&roots)))
    }

    fn choosing(
        anchors: impl Fn(&[CertificateDer<'_>]) -> Result<Arc<RootCertStore>, rustls::Error>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self {
            anchors: Box::new(anchors),
            provider: provider(),
            refused: Arc::default(),
        }
    }

    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let roots = (self.anchors)(intermediates)?;
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, now, algorithms)?;
        match Identity::of(certificate) {
            Ok(Identity::Node { .. }) => Ok(ServerCertVerified::assertion()),
            _ => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }
}

impl ServerCertVerifier for AnyNode {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _hostname: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.verify(certificate, intermediates, now);
        verified.inspect_err(|_| self.refused.store(true, Ordering::Relaxed))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// How to recognise an authority whose certificate is not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// By its digest, known from elsewhere.
    Digest(AuthorityDigest),
    /// Not at all: trusts the authority that the first node presents. A man in the middle can
    /// present another.
    FirstUse,
}

/// The node presented no authority that may be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the node has no certificate of the expected authority")]
struct OtherAuthority;

/// Why no node was contacted. Nothing was sent to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IntroductionError {
    /// TLS cannot be configured, or the address is invalid.
    #[error("cannot connect to {address}: {cause}")]
    Settings {
        /// The address.
        address: String,
        /// What is wrong.
        cause: String,
    },
    /// The connection failed.
    #[error(
        "cannot reach {address} ({cause}): check the address, and that a node with TLS runs there"
    )]
    Unreachable {
        /// The address.
        address: String,
        /// Why it failed.
        cause: String,
    },
    /// The node is not of the expected authority.
    #[error(
        "the node at {address} has no certificate of the expected authority, so nothing was sent to it: check the \
         address, and whether the token or digest belongs to this cluster and its present authority"
    )]
    OtherAuthority {
        /// The address.
        address: String,
    },
}

/// Connects to a node whose authority is not known yet. Trusts no data of the node before its
/// authority is recognised and has verified its certificate.
#[derive(Debug)]
pub struct Introduction {
    connector: Connector,
    found: Arc<OnceLock<CertificateDer<'static>>>,
    refused: Arc<AtomicBool>,
}

impl Introduction {
    /// Connects to a node of an authority that is recognised in this way. Presents no certificate.
    ///
    /// # Errors
    /// When TLS cannot be configured.
    fn new(trust: Trust) -> Result<Self, rustls::Error> {
        let found = Arc::new(OnceLock::new());
        let shown = Arc::clone(&found);
        let verifier = AnyNode::choosing(move |intermediates| {
            let mut candidates = intermediates.iter().rev();
            let authority = candidates.find(|it| match trust {
                Trust::Digest(digest) => AuthorityDigest::of(it) == digest,
                Trust::FirstUse => true,
            });
            let authority = authority
                .ok_or_else(|| CertificateError::Other(OtherError(Arc::new(OtherAuthority))))?;
            let mut roots = RootCertStore::empty();
            roots.add(authority.clone().into_owned())?;
            // The first recognised authority is kept.
            let _ = shown.set(authority.clone().into_owned());
            Ok(Arc::new(roots))
        });
        let refused = Arc::clone(&verifier.refused);
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(versions(true))?;
        let builder = builder.dangerous();
        let builder = builder.with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        let config = Arc::new(config);
        Ok(Self {
            connector: Connector::new(move || Arc::clone(&config)),
            found,
            refused,
        })
    }

    /// Connects to the node at a `host:port`, and returns the connection and the authority that
    /// verified it.
    ///
    /// # Errors
    /// [`IntroductionError`].
    pub async fn meet(
        address: &str,
        trust: Trust,
        time: Duration,
    ) -> Result<(Channel, CertificateDer<'static>), IntroductionError> {
        let address = address.to_owned();
        let settings = |error: &dyn std::error::Error| IntroductionError::Settings {
            address: address.clone(),
            cause: error.to_string(),
        };
        let this = Self::new(trust).map_err(|error| settings(&error))?;
        let endpoint =
            endpoint(&address, Some(&this.connector)).map_err(|error| settings(&error))?;
        let endpoint = endpoint.connect_timeout(time);
        let connected = connect(&endpoint, Some(&this.connector)).await;
        let other = || IntroductionError::OtherAuthority {
            address: address.clone(),
        };
        let channel = connected.map_err(|error| {
            if this.refused.load(Ordering::Relaxed) {
                return other();
            }
            IntroductionError::Unreachable {
                address: address.clone(),
                cause: deepest(&error),
            }
        })?;
        let authority = this.found.get().cloned().ok_or_else(other)?;
        Ok((channel, authority))
    }
}

/// The cause at the end of the chain.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
