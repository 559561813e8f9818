//! Nodes with TLS, and their clients: with certificates, with tokens, over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use futures::{Stream, stream};
use http::uri::PathAndQuery;
use prost::Message as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use torc_proto::FILE_DESCRIPTOR_SET;
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::v1::{self, CreateTokenRequest, RevokeTokenRequest};
use torc_server::Node;
use torc_server::config::RawSettings;
use torc_tls::{Authority, ClientTls, Connector, Files, Identity, Key, SigningRequest};

use super::until;

/// An authority and its certificates, in a directory.
pub(crate) struct Office {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) authority: Authority,
}

impl Office {
    pub(crate) fn new() -> Self {
        let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new().unwrap());
        std::fs::write(dir.path().join("ca.pem"), authority.certificate()).unwrap();
        Self { dir, authority }
    }

    pub(crate) fn files(&self, name: &str) -> Files {
        let file = |end: &str| self.dir.path().join(format!("{name}{end}.pem"));
        Files {
            certificate: file(""),
            key: file("-key"),
            authorities: self.dir.path().join("ca.pem"),
        }
    }

    pub(crate) fn issue(&self, name: &str, who: &str) -> Files {
        self.issue_for(30, name, who)
    }

    pub(crate) fn issue_for(&self, days: u32, name: &str, who: &str) -> Files {
        let files = self.files(name);
        let names = ["127.0.0.1".to_owned()];
        let who: Identity = who.parse().unwrap();
        let issued = self.authority.issue(&who, &names, days).unwrap();
        std::fs::write(&files.certificate, issued.certificate).unwrap();
        std::fs::write(&files.key, issued.key).unwrap();
        files
    }

    /// Issues a certificate that ends after this time.
    pub(crate) fn issue_briefly(&self, name: &str, who: &str, life: Duration) -> Files {
        let files = self.files(name);
        let key = Key::new().unwrap();
        let request = SigningRequest::open(&key.request().unwrap()).unwrap();
        let signed = self
            .authority
            .sign(&request, &who.parse().unwrap(), &[], life);
        std::fs::write(&files.certificate, signed.unwrap()).unwrap();
        std::fs::write(&files.key, key.pem()).unwrap();
        files
    }

    pub(crate) fn client(&self, roles: &str) -> Connector {
        let files = self.issue(roles, &format!("torc://any/client/alice/{roles}"));
        Self::connector(&files)
    }

    pub(crate) fn connector(files: &Files) -> Connector {
        let own = Some((&*files.certificate, &*files.key));
        let tls = ClientTls::open(&files.authorities, own);
        tls.unwrap().connector()
    }

    pub(crate) async fn admin(&self, node: &Node) -> ClusterClient<Channel> {
        ClusterClient::new(channel(node, &self.client("admin")).await)
    }

    pub(crate) fn nobody(&self) -> Connector {
        let authorities = self.dir.path().join("ca.pem");
        ClientTls::open(&authorities, None).unwrap().connector()
    }

    pub(crate) fn settings(&self, dir: PathBuf) -> RawSettings {
        let files = self.issue("node", "torc://any/node/any");
        RawSettings {
            tls_cert: Some(files.certificate),
            tls_key: Some(files.key),
            tls_ca: Some(files.authorities),
            ..super::settings(dir)
        }
    }

    pub(crate) async fn node(&self) -> (Node, tempfile::TempDir) {
        let data = tempfile::tempdir().unwrap();
        let settings = RawSettings {
            bootstrap: Some(true),
            ..self.settings(data.path().to_owned())
        };
        let node = Node::start(settings.check().unwrap()).await.unwrap();
        until("it serves", async || node.ready().is_ok()).await;
        (node, data)
    }

    /// Creates a token as an administrator.
    pub(crate) async fn token(
        &self,
        node: &Node,
        name: &str,
        roles: &[&str],
        scopes: &[&str],
    ) -> String {
        let scope = |text: &&str| {
            let scope: torc_ring::topology::Scope = text.parse().unwrap();
            v1::Scope {
                role: scope.role.to_string(),
                namespace: scope.namespace,
                prefix: scope.prefix.into(),
            }
        };
        let request = CreateTokenRequest {
            name: name.replace('+', "-"),
            roles: roles.iter().map(ToString::to_string).collect(),
            scopes: scopes.iter().map(scope).collect(),
            ..CreateTokenRequest::default()
        };
        let mut admin = ClusterClient::new(channel(node, &self.client("admin")).await);
        admin
            .create_token(request)
            .await
            .unwrap()
            .into_inner()
            .bearer
    }

    /// Revokes a token as an administrator.
    pub(crate) async fn revoke(&self, node: &Node, token: &str) {
        let id = token.split('.').next().unwrap().to_owned();
        let mut admin = ClusterClient::new(channel(node, &self.client("admin")).await);
        admin.revoke_token(RevokeTokenRequest { id }).await.unwrap();
    }
}

pub(crate) async fn channel(node: &Node, tls: &Connector) -> Channel {
    channel_to(node.grpc_addr(), tls).await
}

/// Connects to any port.
pub(crate) async fn channel_to(address: SocketAddr, tls: &Connector) -> Channel {
    let address = address.to_string();
    let endpoint = torc_tls::endpoint(&address, Some(tls)).unwrap();
    torc_tls::connect(&endpoint, Some(tls)).await.unwrap()
}

/// A codec that passes bytes unchanged.
#[derive(Debug, Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// The paths of all calls in the interface.
pub(crate) fn calls() -> Vec<String> {
    let set = prost_types::FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let services = set.file.iter().flat_map(|file| &file.service);
    let calls = services.flat_map(|service| {
        let methods = service.method.iter();
        methods.map(|method| format!("/torc.v1.{}/{}", service.name(), method.name()))
    });
    calls.collect()
}

/// A request with a token.
pub(crate) fn with_token<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    let value = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", value);
    request
}

/// A connection, and the token of its requests.
pub(crate) struct Door {
    channel: Channel,
    token: Option<String>,
}

impl Door {
    pub(crate) async fn new(node: &Node, tls: &Connector, token: Option<&str>) -> Self {
        Self {
            channel: channel(node, tls).await,
            token: token.map(ToOwned::to_owned),
        }
    }

    /// Connects to any port.
    pub(crate) async fn at(address: SocketAddr, tls: &Connector) -> Self {
        Self {
            channel: channel_to(address, tls).await,
            token: None,
        }
    }

    /// The status of a call with one empty message; calls whose answer does not end are abandoned.
    pub(crate) async fn ends(&self, path: &str) -> Code {
        self.call(path, stream::iter([Bytes::new()])).await
    }

    /// The status of a call without a message.
    pub(crate) async fn begins(&self, path: &str) -> Code {
        self.call(path, stream::pending()).await
    }

    async fn call(&self, path: &str, messages: impl Stream<Item = Bytes> + Send + 'static) -> Code {
        let mut client = tonic::client::Grpc::new(self.channel.clone());
        client.ready().await.unwrap();
        let path: PathAndQuery = path.parse().unwrap();
        let mut request = match &self.token {
            Some(token) => with_token(messages, token),
            None => Request::new(messages),
        };
        request.set_timeout(Duration::from_secs(20));
        match client.streaming(request, path, Raw).await {
            Err(status) => status.code(),
            Ok(mut answers) => match answers.get_mut().message().await {
                Err(status) => status.code(),
                Ok(_) => Code::Ok,
            },
        }
    }
}

/// TLS as in a browser; without roles, it presents no certificate.
pub(crate) fn browser(office: &Office, roles: Option<&str>) -> TlsConnector {
    let issue = |roles| office.issue(roles, &format!("torc://any/client/alice/{roles}"));
    connects_as(office, roles.map(issue).as_ref())
}

/// A connector that trusts the authority and presents this certificate.
pub(crate) fn connects_as(office: &Office, own: Option<&Files>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let authorities = office.dir.path().join("ca.pem");
    for authority in CertificateDer::pem_file_iter(authorities).unwrap() {
        roots.add(authority.unwrap()).unwrap();
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(files) => {
            let chain = CertificateDer::pem_file_iter(&files.certificate).unwrap();
            let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
            config
                .with_client_auth_cert(chain.map(Result::unwrap).collect(), key)
                .unwrap()
        }
    };
    TlsConnector::from(Arc::new(config))
}

/// The status line of the answer to an HTTP request.
pub(crate) async fn http_status(node: &Node, browser: &TlsConnector, path: &str) -> String {
    http_lines(node, browser, path, None).await.0
}

/// The status line and the rest of the answer. `header` is a whole line.
pub(crate) async fn http_lines(
    node: &Node,
    browser: &TlsConnector,
    path: &str,
    header: Option<&str>,
) -> (String, impl AsyncBufRead + Unpin + use<>) {
    let address = node.http_addr();
    let stream = TcpStream::connect(address).await.unwrap();
    let stream = browser.connect(address.ip().into(), stream).await.unwrap();
    let mut stream = BufReader::new(stream);
    let header = header.map_or_else(String::new, |header| format!("{header}\r\n"));
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    (line, stream)
}
