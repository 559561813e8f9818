//! A cluster with TLS, and what hostile clients show of themselves.

use std::fs::write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use torc_client::ClientTls;
use torc_tls::{Authority, Identity, Issued, TlsError};

use super::Error;
use super::connect::Disguises;
use crate::cluster::Certificates;

/// Days for which certificates are valid.
const DAYS: u32 = 30;
const EVE: &str = "torc://any/client/eve/admin";

/// Who hostile clients are in a cluster with TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Attacker {
    /// Nobody: without a certificate.
    Stranger,
    /// A client that may read, write and observe.
    Customer,
}

/// The certificates of a run.
pub(crate) struct Office {
    /// Those of the nodes and of the honest client.
    pub(crate) cluster: Certificates,
    attacker: Arc<ClientConfig>,
    impostor: Arc<ClientConfig>,
    /// A node's: it may ask the nodes who they are.
    pub(crate) node: Arc<ClientConfig>,
}

impl Office {
    /// Creates an authority and certificates of the cluster in this directory.
    #[expect(clippy::disallowed_methods, reason = "files for the nodes of this run")]
    pub(crate) fn open(dir: &Path, attacker: Attacker) -> Result<Self, Error> {
        let authority = Authority::new()?;
        let file = |name: &str, text: &str| -> Result<PathBuf, Error> {
            let file = dir.join(name);
            write(&file, text).map_err(Error::Files)?;
            Ok(file)
        };
        let node = issue(&authority, "torc://any/node/any")?;
        let honest = issue(&authority, "torc://any/client/honest/admin")?;
        let customer = issue(&authority, "torc://any/client/customer/read+write+observe")?;
        let roots = file("ca.pem", authority.certificate())?;
        let own = (
            file("honest.pem", &honest.certificate)?,
            file("honest-key.pem", &honest.key)?,
        );
        let shown = match attacker {
            Attacker::Stranger => None,
            Attacker::Customer => Some(&customer),
        };
        Ok(Self {
            cluster: Certificates {
                of_client: ClientTls::open(&roots, Some((&own.0, &own.1)))?,
                of_nodes: vec![
                    ("TORC_TLS_CA", roots),
                    ("TORC_TLS_CERT", file("node.pem", &node.certificate)?),
                    ("TORC_TLS_KEY", file("node-key.pem", &node.key)?),
                ],
            },
            attacker: config(&authority, shown)?,
            impostor: config(&authority, Some(&issue(&Authority::new()?, EVE)?))?,
            node: config(&authority, Some(&node))?,
        })
    }

    /// The configurations of hostile clients.
    pub(crate) fn disguises(&self) -> Disguises {
        Disguises {
            usual: Arc::clone(&self.attacker),
            impostor: Arc::clone(&self.impostor),
        }
    }
}

/// The configuration of a client whose authority the cluster does not know.
pub(crate) fn foreign() -> Result<Arc<ClientConfig>, Error> {
    let authority = Authority::new()?;
    let foreign = issue(&authority, EVE)?;
    config(&authority, Some(&foreign))
}

fn issue(authority: &Authority, identity: &str) -> Result<Issued, Error> {
    let identity: Identity = identity.parse()?;
    Ok(authority.issue(&identity, &["127.0.0.1".to_owned()], DAYS)?)
}

/// Offers no protocol, so that it fits every port.
fn config(authority: &Authority, own: Option<&Issued>) -> Result<Arc<ClientConfig>, Error> {
    let mut roots = RootCertStore::empty();
    for root in certificates(authority.certificate())? {
        roots.add(root).map_err(Error::Tls)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]);
    let builder = builder.map_err(Error::Tls)?.with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).map_err(Error::Pem)?;
            let chain = certificates(&own.certificate)?;
            let config = builder.with_client_auth_cert(chain, key);
            config.map_err(Error::Tls)?
        }
    };
    Ok(Arc::new(config))
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes());
    all.collect::<Result<_, _>>().map_err(Error::Pem)
}

impl From<TlsError> for Error {
    fn from(error: TlsError) -> Self {
        Self::Certificates(error)
    }
}
