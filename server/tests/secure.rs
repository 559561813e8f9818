//! Nodes with TLS: who may call what, by every call that there is.
#![allow(missing_docs)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use futures::stream;
use http::uri::PathAndQuery;
use prost::Message as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::session_request::Operation;
use torc_proto::v1::session_response::Outcome;
use torc_proto::v1::{GetRequest, PutRequest, SessionRequest};
use torc_proto::{Access, FILE_DESCRIPTOR_SET, Reason};
use torc_server::Node;
use torc_server::config::{ConfigError, RawSettings};
use torc_testkit::redis::Redis;
use torc_tls::{Authority, ClientTls, Connector, Files, Identity, NodeTls};

use common::until;

/// An authority and what it issued, in a directory.
struct Office {
    dir: tempfile::TempDir,
    authority: Authority,
}

impl Office {
    fn new() -> Self {
        let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new().unwrap());
        std::fs::write(dir.path().join("ca.pem"), authority.certificate()).unwrap();
        Self { dir, authority }
    }

    fn files(&self, name: &str) -> Files {
        let file = |end: &str| self.dir.path().join(format!("{name}{end}.pem"));
        Files {
            certificate: file(""),
            key: file("-key"),
            authorities: self.dir.path().join("ca.pem"),
        }
    }

    fn issue(&self, name: &str, who: &str) -> Files {
        let files = self.files(name);
        let names = ["127.0.0.1".to_owned()];
        let who: Identity = who.parse().unwrap();
        let issued = self.authority.issue(&who, &names, 30).unwrap();
        std::fs::write(&files.certificate, issued.certificate).unwrap();
        std::fs::write(&files.key, issued.key).unwrap();
        files
    }

    fn client(&self, roles: &str) -> Connector {
        let files = self.issue(roles, &format!("torc://any/client/alice/{roles}"));
        let own = Some((&*files.certificate, &*files.key));
        ClientTls::open(&files.authorities, own)
            .unwrap()
            .connector()
    }

    fn nobody(&self) -> Connector {
        let authorities = self.dir.path().join("ca.pem");
        ClientTls::open(&authorities, None).unwrap().connector()
    }

    async fn node(&self) -> (Node, tempfile::TempDir) {
        let data = tempfile::tempdir().unwrap();
        let files = self.issue("node", "torc://any/node/any");
        let settings = RawSettings {
            bootstrap: Some(true),
            tls_cert: Some(files.certificate),
            tls_key: Some(files.key),
            tls_ca: Some(files.authorities),
            ..common::settings(data.path().to_owned())
        };
        let node = Node::start(settings.check().unwrap()).await.unwrap();
        until("it serves", async || node.ready().is_ok()).await;
        (node, data)
    }
}

async fn channel(node: &Node, tls: &Connector) -> Channel {
    let address = node.grpc_addr().to_string();
    let endpoint = torc_tls::endpoint(&address, Some(tls)).unwrap();
    torc_tls::connect(&endpoint, Some(tls)).await.unwrap()
}

/// Messages as they are.
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

/// Every call of the interface, by its path.
fn calls() -> Vec<String> {
    let set = prost_types::FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let services = set.file.iter().flat_map(|file| &file.service);
    let calls = services.flat_map(|service| {
        let methods = service.method.iter();
        methods.map(|method| format!("/torc.v1.{}/{}", service.name(), method.name()))
    });
    calls.collect()
}

/// How a call with one empty message ends; those that answer without an end are left.
async fn ends(channel: Channel, path: &str) -> Code {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let path: PathAndQuery = path.parse().unwrap();
    let mut request = Request::new(stream::iter([Bytes::new()]));
    request.set_timeout(Duration::from_secs(20));
    match client.streaming(request, path, Raw).await {
        Err(status) => status.code(),
        Ok(mut answers) => match answers.get_mut().message().await {
            Err(status) => status.code(),
            Ok(_) => Code::Ok,
        },
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_is_open_to_the_roles_that_it_is_for_and_to_nobody_else() {
    let office = Office::new();
    let (node, _data) = office.node().await;
    let calls = calls();
    assert!(calls.len() > 30, "{calls:?}");
    for roles in ["nobody", "read", "write", "observe", "admin"] {
        let tls = match roles {
            "nobody" => office.nobody(),
            roles => office.client(roles),
        };
        let channel = channel(&node, &tls).await;
        for path in &calls {
            let may = match (roles, Access::to(path).unwrap()) {
                ("nobody", _) | (_, Access::Node) => false,
                (_, Access::Client) | ("admin", _) => true,
                (_, Access::ReadOrWrite) => roles != "observe",
                (_, Access::Read) => roles == "read",
                (_, Access::Write) => roles == "write",
                (_, Access::Observe) => roles == "observe",
                (_, Access::Admin) => false,
            };
            // What is allowed may go on and change the cluster: only that it is refused is tried
            // of those.
            if may && Access::to(path) == Some(Access::Admin) {
                continue;
            }
            let code = ends(channel.clone(), path).await;
            let refused = match roles {
                "nobody" => Code::Unauthenticated,
                _ => Code::PermissionDenied,
            };
            assert_eq!(code == refused, !may, "{roles} {path}: {code:?}");
            assert!(may || code == refused, "{roles} {path}: {code:?}");
        }
        let health = ends(channel, "/grpc.health.v1.Health/Check").await;
        assert_eq!(health, Code::Ok, "{roles}");
    }
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_carries_what_each_of_its_messages_may_do() {
    let office = Office::new();
    let (node, _data) = office.node().await;
    let put = Operation::Put(PutRequest {
        key: "k".into(),
        value: "v".into(),
        ..PutRequest::default()
    });
    let get = Operation::Get(GetRequest {
        key: "k".into(),
        ..GetRequest::default()
    });
    for (roles, may) in [
        ("write", [true, false]),
        ("read", [false, true]),
        ("read+write", [true, true]),
    ] {
        let tls = office.client(roles);
        let mut kv = KvClient::new(channel(&node, &tls).await);
        let requests = [put.clone(), get.clone()];
        let requests = requests
            .into_iter()
            .zip(0..)
            .map(|(operation, id)| SessionRequest {
                id,
                operation: Some(operation),
                ..SessionRequest::default()
            });
        let answers = kv.session(stream::iter(requests)).await.unwrap();
        let mut answers = answers.into_inner();
        let mut allowed = [None; 2];
        while allowed.contains(&None) {
            let answer = answers.message().await.unwrap().expect("an answer to each");
            let is_denied = matches!(&answer.outcome, Some(Outcome::Fault(fault))
                if fault.reason == Reason::PermissionDenied as i32);
            allowed[usize::try_from(answer.id).unwrap()] = Some(!is_denied);
        }
        assert_eq!(allowed, may.map(Some), "{roles}");
    }
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_client_may_do_what_its_certificate_says() {
    use tower_service::Service as _;

    let office = Office::new();
    let (node, _data) = office.node().await;
    let address = node.resp_addr().unwrap();
    let commands = [
        "PING",
        "GET k",
        "SET k v",
        "SET k v GET",
        "INCR n",
        "SCAN 0",
        "INFO",
        "CONFIG GET save",
        "CLUSTER SLOTS",
    ];
    let all = &commands[..];
    let observing = ["PING", "INFO", "CONFIG GET save", "CLUSTER SLOTS"];
    let cases: [(&str, &[&str]); 6] = [
        ("read", &["PING", "GET k", "SCAN 0"]),
        ("write", &["PING", "SET k v"]),
        (
            "read+write",
            &[
                "PING",
                "GET k",
                "SET k v",
                "SET k v GET",
                "INCR n",
                "SCAN 0",
            ],
        ),
        ("observe", &observing),
        ("admin", all),
        ("", &["PING"]),
    ];
    for (roles, allowed) in cases {
        let mut tls = match roles {
            "" => office.nobody(),
            roles => office.client(roles),
        };
        let stream = tls.call(format!("https://{address}").parse().unwrap());
        let mut client = Redis::over(stream.await.unwrap().into_inner());
        assert_eq!(
            client.told("HELLO 2").await.split(' ').next(),
            Some("[server")
        );
        for command in commands {
            let told = client.told(command).await;
            let is_denied = told.starts_with("-NOPERM ") || told.starts_with("-NOAUTH ");
            assert_eq!(
                is_denied,
                !allowed.contains(&command),
                "{roles}: {command}: {told}"
            );
            assert!(
                is_denied || !told.starts_with('-'),
                "{roles}: {command}: {told}"
            );
        }
    }
    // Without TLS nobody gets in.
    let mut plain = Redis::connect(address).await;
    plain.send(&[b"PING"]).await;
    assert!(
        plain
            .try_receive_bytes()
            .await
            .is_none_or(|byte| byte != b'+')
    );
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_files_serve_new_connections_and_old_ones_go_on() {
    let office = Office::new();
    let (node, _data) = office.node().await;
    let (alice, stranger) = (office.client("admin"), Office::new());
    let mut kv = KvClient::new(channel(&node, &alice).await);
    // Another authority takes over: first both are trusted, then it issues the node's certificate.
    let authorities = office.dir.path().join("ca.pem");
    let both = [
        office.authority.certificate(),
        stranger.authority.certificate(),
    ]
    .concat();
    std::fs::write(&authorities, &both).unwrap();
    let fresh = stranger.issue("node", "torc://any/node/any");
    let move_to = |from: PathBuf, to: PathBuf| std::fs::copy(from, to).unwrap();
    let files = office.files("node");
    move_to(fresh.key, files.key);
    move_to(fresh.certificate, files.certificate);
    let bob = stranger.client("read");
    let address = node.grpc_addr().to_string();
    let endpoint = torc_tls::endpoint(&address, Some(&bob)).unwrap();
    until("the new certificate is shown", async || {
        torc_tls::connect(&endpoint, Some(&bob)).await.is_ok()
    })
    .await;
    let put = PutRequest {
        key: "k".into(),
        value: "v".into(),
        ..PutRequest::default()
    };
    kv.put(put).await.expect("the old connection goes on");
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_its_files_does_not_start_and_says_which() {
    let office = Office::new();
    let data = tempfile::tempdir().unwrap();
    let files = office.issue("node", "torc://any/node/any");
    let settings = |key: &Path| RawSettings {
        tls_cert: Some(files.certificate.clone()),
        tls_key: Some(key.to_owned()),
        tls_ca: Some(files.authorities.clone()),
        ..common::settings(data.path().join("d"))
    };
    let missing = office.dir.path().join("missing.pem");
    let refused = Node::start(settings(&missing).check().unwrap()).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("missing.pem"), "{refused}");
    let other = office.issue("other", "torc://any/node/any");
    let refused = Node::start(settings(&other.key).check().unwrap()).await;
    assert!(refused.is_err(), "another certificate's key");
    let without = RawSettings {
        tls_key: None,
        ..settings(&files.key)
    };
    assert!(matches!(without.check(), Err(ConfigError::Setting { .. })));
    assert!(!data.path().join("d").exists(), "nothing was made");
    // A node's own side is refused to a client's certificate.
    let alice = office.issue("alice", "torc://any/client/alice/admin");
    assert!(NodeTls::open(alice, false).is_err());
}

/// What a browser connects with; without roles it shows no certificate.
fn browser(office: &Office, roles: Option<&str>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let authorities = office.dir.path().join("ca.pem");
    for authority in CertificateDer::pem_file_iter(authorities).unwrap() {
        roots.add(authority.unwrap()).unwrap();
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match roles {
        None => config.with_no_client_auth(),
        Some(roles) => {
            let files = office.issue(roles, &format!("torc://any/client/alice/{roles}"));
            let chain = CertificateDer::pem_file_iter(files.certificate).unwrap();
            let key = PrivateKeyDer::from_pem_file(files.key).unwrap();
            config
                .with_client_auth_cert(chain.map(Result::unwrap).collect(), key)
                .unwrap()
        }
    };
    TlsConnector::from(Arc::new(config))
}

/// The first line of the answer to an HTTP request.
async fn http_status(node: &Node, browser: &TlsConnector, path: &str) -> String {
    let address = node.http_addr();
    let stream = TcpStream::connect(address).await.unwrap();
    let stream = browser.connect(address.ip().into(), stream).await.unwrap();
    let mut stream = BufReader::new(stream);
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    line
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_and_its_json_are_for_those_who_may_observe() {
    let office = Office::new();
    let (node, _data) = office.node().await;
    let callers = [
        (None, " 401 "),
        (Some("read+write"), " 403 "),
        (Some("observe"), " 200 "),
    ];
    for (roles, expected) in callers {
        let browser = browser(&office, roles);
        for path in [
            "/",
            "/console/console.js",
            "/console/state",
            "/console/history",
            "/console/explain?key=k",
            "/console/events",
            "/status",
            "/ring",
            "/hot-keys",
            "/metrics",
        ] {
            let mut status = String::new();
            // Hot keys are told once every worker counts.
            until("it serves", async || {
                status = http_status(&node, &browser, path).await;
                !status.contains(" 503 ")
            })
            .await;
            assert!(status.contains(expected), "{roles:?} {path}: {status}");
        }
        let health = http_status(&node, &browser, "/healthz").await;
        assert!(health.contains(" 200 "), "{health}");
    }
    node.stop().await.unwrap();
}
