//! Connects to a node by its hostname, as a client does, or as another node.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

use crate::last_words::LastWords;
use crate::pem::{self, TlsError};
use crate::{provider, versions};

/// A client's side of TLS: the authorities that it trusts, and its own certificate if it has one.
#[derive(Debug, Clone)]
pub struct ClientTls(Source);

#[derive(Debug, Clone)]
enum Source {
    Text(Arc<ClientConfig>),
    Files(Arc<ClientFiles>),
}

/// The files of a client, and their last usable content.
#[derive(Debug)]
struct ClientFiles {
    authorities: PathBuf,
    own: Option<[PathBuf; 2]>,
    now: Mutex<(Contents, Arc<ClientConfig>)>,
}

/// The contents of the files: authorities, certificate and key.
type Contents = (Vec<u8>, Option<[Vec<u8>; 2]>);

impl ClientFiles {
    /// The present content of the files, or the previous content if they are unusable.
    fn config(&self) -> Arc<ClientConfig> {
        let own = self
            .own
            .as_ref()
            .map(|[certificate, key]| (&**certificate, &**key));
        // Still valid after a panic: no code panics while it replaces the value.
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(contents) = read(&self.authorities, own)
            && contents != now.0
            && let Ok(config) = configure(&self.authorities, own, &contents)
        {
            *now = (contents, config);
        }
        Arc::clone(&now.1)
    }
}

fn read(authorities: &Path, own: Option<(&Path, &Path)>) -> Result<Contents, TlsError> {
    let own = match own {
        None => None,
        Some((certificate, key)) => Some([pem::read(certificate)?, pem::read(key)?]),
    };
    Ok((pem::read(authorities)?, own))
}

fn configure(
    authorities: &Path,
    own: Option<(&Path, &Path)>,
    contents: &Contents,
) -> Result<Arc<ClientConfig>, TlsError> {
    let own = match (own, &contents.1) {
        (Some((certificate, key)), Some([chain, private])) => Some((
            certificate,
            pem::chain(certificate, chain)?,
            pem::key(key, private)?,
        )),
        _ => None,
    };
    ClientTls::configured(authorities, &contents.0, own)
}

impl ClientTls {
    /// Reads the files; `own` is the certificate and its key. Reads them again before each
    /// connection, so you can replace an authority or renew a certificate while the client runs.
    /// Unusable files leave everything unchanged.
    ///
    /// # Errors
    /// [`TlsError`] naming the file.
    pub fn open(authorities: &Path, own: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        let contents = read(authorities, own)?;
        let config = configure(authorities, own, &contents)?;
        Ok(Self(Source::Files(Arc::new(ClientFiles {
            authorities: authorities.to_owned(),
            own: own.map(|(certificate, key)| [certificate.to_owned(), key.to_owned()]),
            now: Mutex::new((contents, config)),
        }))))
    }

    /// Trusts these authorities, in PEM, and has no certificate. `file` names their origin in
    /// errors.
    ///
    /// # Errors
    /// [`TlsError`] naming the file.
    pub fn trusting(authorities: &str, file: &Path) -> Result<Self, TlsError> {
        let config = Self::configured(file, authorities.as_bytes(), None);
        Ok(Self(Source::Text(config?)))
    }

    fn configured(
        file: &Path,
        authorities: &[u8],
        own: Option<(&Path, Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    ) -> Result<Arc<ClientConfig>, TlsError> {
        let roots = pem::roots(file, authorities)?;
        let refused = |file: &Path, source| TlsError::Refused {
            file: file.to_owned(),
            source,
        };
        // Nodes decide whether to allow 1.2.
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(versions(true));
        let builder = builder.map_err(|source| refused(file, source))?;
        let builder = builder.with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, chain, key)) => {
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(|source| refused(certificate, source))?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(config))
    }

    /// Connects with it.
    #[must_use]
    pub fn connector(&self) -> Connector {
        let source = self.0.clone();
        Connector::new(move || match &source {
            Source::Text(config) => Arc::clone(config),
            Source::Files(files) => files.config(),
        })
    }
}

/// Connects by TLS. Clones share everything.
#[derive(Clone)]
pub struct Connector {
    tcp: HttpConnector,
    config: Arc<dyn Fn() -> Arc<ClientConfig> + Send + Sync>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

/// The certificate and the authorities that a connector uses; equal until they are replaced.
#[derive(Clone)]
pub struct InUse(Arc<ClientConfig>);

impl PartialEq for InUse {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InUse(..)")
    }
}

impl Connector {
    /// What it uses now. A connection that was made with another certificate counts only until
    /// that one ends: make a new one in time. Costs nothing for a node; a client's connector reads
    /// its files.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        InUse((self.config)())
    }

    pub(crate) fn new(config: impl Fn() -> Arc<ClientConfig> + Send + Sync + 'static) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        Self {
            tcp,
            config: Arc::new(config),
        }
    }
}

type Connected = TokioIo<LastWords<TlsStream<TcpStream>>>;
type Connecting = Pin<Box<dyn Future<Output = io::Result<Connected>> + Send + 'static>>;

impl Service<Uri> for Connector {
    type Response = Connected;
    type Error = io::Error;
    type Future = Connecting;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp.poll_ready(context).map_err(io::Error::other)
    }

    fn call(&mut self, to: Uri) -> Connecting {
        let config = (self.config)();
        let host = to.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other);
        let tcp = self.tcp.call(to);
        Box::pin(async move {
            let tcp = tcp.await.map_err(io::Error::other)?.into_inner();
            let connected = TlsConnector::from(config).connect(name?, tcp).await;
            let connected = connected.map(LastWords::of).map(TokioIo::new);
            connected.map_err(explained)
        })
    }
}

/// Adds the meaning of an error to rustls's text, which only names what rustls read.
fn explained(error: io::Error) -> io::Error {
    let cause = error.get_ref();
    let cause = cause.and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidMessage(_)) => {
            io::Error::new(error.kind(), "the server does not speak TLS")
        }
        _ => error,
    }
}

/// The prefix of rustls's text for an alert of the peer. HTTP/2 preserves only the text.
const ALERT: &str = "received fatal alert: ";

/// A node's reason for refusing this client's certificate, taken from the text of a connection
/// error. With TLS 1.3, the refusal arrives after the first request was sent; the node has not
/// processed that request.
#[must_use]
pub fn refusal(cause: &str) -> Option<&str> {
    let alert = cause.strip_prefix(ALERT)?;
    let of_certificates = ["UnknownCA", "BadCertificate", "UnsupportedCertificate"];
    let of_times = [
        "CertificateExpired",
        "CertificateRevoked",
        "CertificateUnknown",
    ];
    let known = of_certificates.iter().chain(&of_times);
    known.copied().find(|known| *known == alert)
}

/// The endpoint of a `host:port`.
///
/// # Errors
/// If the address is invalid.
pub fn endpoint(
    address: &str,
    tls: Option<&Connector>,
) -> Result<Endpoint, tonic::transport::Error> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    Ok(Endpoint::from_shared(format!("{scheme}://{address}"))?.tcp_nodelay(true))
}

/// A channel that connects on first use; in plain text without a connector.
#[must_use]
pub fn channel(endpoint: &Endpoint, tls: Option<&Connector>) -> Channel {
    match tls {
        None => endpoint.connect_lazy(),
        Some(tls) => endpoint.connect_with_connector_lazy(tls.clone()),
    }
}

/// A connected channel; in plain text without a connector.
///
/// # Errors
/// Why the connection failed.
pub async fn connect(
    endpoint: &Endpoint,
    tls: Option<&Connector>,
) -> Result<Channel, tonic::transport::Error> {
    match tls {
        None => endpoint.connect().await,
        Some(tls) => endpoint.connect_with_connector(tls.clone()).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::AlertDescription;

    #[test]
    fn what_rustls_says_of_a_refused_certificate_is_known() {
        let of = |alert| refusal(&rustls::Error::AlertReceived(alert).to_string()).map(str::len);
        assert_eq!(of(AlertDescription::UnknownCA), Some(9));
        assert_eq!(of(AlertDescription::CertificateExpired), Some(18));
        assert_eq!(of(AlertDescription::BadCertificate), Some(14));
        assert_eq!(of(AlertDescription::InternalError), None);
        assert_eq!(refusal("broken pipe"), None);
    }
}
