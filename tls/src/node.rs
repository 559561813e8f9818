//! A node's certificate, key and authorities, replaced while it serves.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::any_node::AnyNode;
use crate::pem::{self, TlsError};
use crate::{CertificateFacts, Connector, Identity, IdentityError, provider, versions};

/// The paths of a node's certificate, its key and the authorities that it trusts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// Its certificate, and the intermediate certificates up to the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities of nodes and clients.
    pub authorities: PathBuf,
}

/// What a port serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// HTTP/2 only, for clients.
    Grpc,
    /// HTTP/2 only, for other nodes, which must present a certificate.
    Peer,
    /// HTTP/1 only.
    Http,
    /// The protocol of Redis clients, which name no protocol in the handshake.
    Resp,
}

/// A node's side of TLS. New connections use the content that was read last.
#[derive(Debug)]
pub struct NodeTls {
    files: Files,
    tls12: bool,
    now: ArcSwap<Loaded>,
}

/// The contents of the files, read together.
#[derive(Debug)]
struct Loaded {
    /// The bytes of the three files, to detect changes.
    contents: [Vec<u8>; 3],
    grpc: Arc<ServerConfig>,
    peer: Arc<ServerConfig>,
    http: Arc<ServerConfig>,
    resp: Arc<ServerConfig>,
    to_nodes: Arc<ClientConfig>,
    expires: SystemTime,
}

impl NodeTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`] naming the file.
    pub fn open(files: Files, tls12: bool) -> Result<Arc<Self>, TlsError> {
        let loaded = load(&files, contents(&files)?, tls12)?;
        Ok(Arc::new(Self {
            files,
            tls12,
            now: ArcSwap::from_pointee(loaded),
        }))
    }

    /// Reads the files again; returns whether they had changed. Unusable files, such as a key that
    /// does not fit its certificate yet, leave everything unchanged.
    ///
    /// # Errors
    /// [`TlsError`] naming the file.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let contents = contents(&self.files)?;
        if contents == self.now.load().contents {
            return Ok(false);
        }
        let loaded = load(&self.files, contents, self.tls12)?;
        self.now.store(Arc::new(loaded));
        Ok(true)
    }

    /// When the certificate expires.
    #[must_use]
    pub fn expires(&self) -> SystemTime {
        self.now.load().expires
    }

    /// Performs the handshake with a client. Only [`Door::Peer`] requires a certificate, but any
    /// certificate presented must come from an authority and contain an identity. The caller must
    /// check that identity.
    ///
    /// # Errors
    /// Why the handshake failed; the connection is then closed. The caller bounds the time.
    pub async fn accept(
        &self,
        stream: TcpStream,
        door: Door,
    ) -> io::Result<(TlsStream<TcpStream>, Option<(Identity, SystemTime)>)> {
        let loaded = self.now.load_full();
        let config = match door {
            Door::Grpc => &loaded.grpc,
            Door::Peer => &loaded.peer,
            Door::Http => &loaded.http,
            Door::Resp => &loaded.resp,
        };
        let acceptor = TlsAcceptor::from(Arc::clone(config));
        let stream = acceptor.accept(stream).await?;
        let shown = stream.get_ref().1.peer_certificates();
        let shown = shown.and_then(<[_]>::first).map(|certificate| {
            let facts = CertificateFacts::of(certificate).ok_or(IdentityError::Unreadable)?;
            Ok((Identity::of(certificate)?, facts.not_after))
        });
        let shown = shown.transpose();
        let shown = shown
            .map_err(|error: IdentityError| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok((stream, shown))
    }

    /// Connects to other nodes: accepts any peer with a node's certificate from an authority,
    /// whatever its hostname. Requests name the intended node, and the recipient checks that.
    #[must_use]
    pub fn connector(self: &Arc<Self>) -> Connector {
        let node = Arc::clone(self);
        Connector::new(move || Arc::clone(&node.now.load().to_nodes))
    }
}

fn contents(files: &Files) -> Result<[Vec<u8>; 3], TlsError> {
    Ok([
        pem::read(&files.certificate)?,
        pem::read(&files.key)?,
        pem::read(&files.authorities)?,
    ])
}

fn load(files: &Files, contents: [Vec<u8>; 3], tls12: bool) -> Result<Loaded, TlsError> {
    let file = &files.certificate;
    let chain = pem::chain(file, &contents[0])?;
    let key = pem::key(&files.key, &contents[1])?;
    let roots = pem::roots(&files.authorities, &contents[2])?;
    let identity = Identity::of(&chain[0]).map_err(|source| TlsError::Identity {
        file: file.clone(),
        source,
    })?;
    if !matches!(identity, Identity::Node { .. }) {
        return Err(TlsError::NotANode {
            file: file.clone(),
            found: identity.to_string(),
        });
    }
    let refused = |source| TlsError::Refused {
        file: file.clone(),
        source,
    };
    let verifier = |door| {
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider());
        let builder = match door {
            Door::Peer => builder,
            Door::Grpc | Door::Http | Door::Resp => builder.allow_unauthenticated(),
        };
        builder.build().map_err(|error| {
            let source = rustls::Error::General(error.to_string());
            TlsError::Refused {
                file: files.authorities.clone(),
                source,
            }
        })
    };
    let server = |door| {
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(versions(tls12));
        let builder = builder.map_err(refused)?;
        let builder = builder.with_client_cert_verifier(verifier(door)?);
        let mut config = builder
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(refused)?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    };
    let (mut grpc, mut peer) = (server(Door::Grpc)?, server(Door::Peer)?);
    let (mut http, resp) = (server(Door::Http)?, server(Door::Resp)?);
    grpc.alpn_protocols = vec![b"h2".to_vec()];
    peer.alpn_protocols = vec![b"h2".to_vec()];
    http.alpn_protocols = vec![b"http/1.1".to_vec()];
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(versions(tls12));
    let builder = builder.map_err(refused)?.dangerous();
    let builder = builder.with_custom_certificate_verifier(Arc::new(AnyNode::of(roots)));
    let mut to_nodes = builder
        .with_client_auth_cert(chain.clone(), key.clone_key())
        .map_err(refused)?;
    to_nodes.alpn_protocols = vec![b"h2".to_vec()];
    to_nodes.resumption = rustls::client::Resumption::disabled();
    let facts = CertificateFacts::of(&chain[0]).ok_or_else(|| TlsError::Malformed {
        file: file.clone(),
        what: "certificate",
    })?;
    Ok(Loaded {
        contents,
        grpc: Arc::new(grpc),
        peer: Arc::new(peer),
        http: Arc::new(http),
        resp: Arc::new(resp),
        to_nodes: Arc::new(to_nodes),
        expires: facts.not_after,
    })
}
