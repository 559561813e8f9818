//! Who is admitted and who is reached, over real sockets.
#![allow(missing_docs)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use torc_tls::{
    Authority, AuthorityDigest, ClientTls, Connector, Door, Files, Identity, Introduction,
    IntroductionError, NodeTls, Role, TlsError, Trust,
};
use tower_service::Service as _;

/// An authority in a directory, and the certificates that it issued there.
struct Office {
    dir: tempfile::TempDir,
    authority: Authority,
}

impl Office {
    fn new() -> Self {
        let office = Self {
            dir: tempfile::tempdir().unwrap(),
            authority: Authority::new().unwrap(),
        };
        std::fs::write(office.file("ca.pem"), office.authority.certificate()).unwrap();
        office
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn issue(&self, name: &str, identity: &Identity, days: u32) {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let issued = self.authority.issue(identity, &names, days).unwrap();
        std::fs::write(self.file(&format!("{name}.pem")), issued.certificate).unwrap();
        std::fs::write(self.file(&format!("{name}-key.pem")), issued.key).unwrap();
    }

    fn files(&self, name: &str) -> Files {
        Files {
            certificate: self.file(&format!("{name}.pem")),
            key: self.file(&format!("{name}-key.pem")),
            authorities: self.file("ca.pem"),
        }
    }

    fn node(&self) -> Arc<NodeTls> {
        self.issue("node", &node(), 30);
        NodeTls::open(self.files("node"), false).unwrap()
    }

    fn client(&self, own: Option<&str>) -> Connector {
        let files = own.map(|name| self.files(name));
        let own = files.as_ref().map(|it| (&*it.certificate, &*it.key));
        ClientTls::open(&self.file("ca.pem"), own)
            .unwrap()
            .connector()
    }
}

fn node() -> Identity {
    "torc://any/node/any".parse().unwrap()
}

fn alice() -> Identity {
    Identity::client("alice", [Role::Read, Role::Write].into_iter().collect()).unwrap()
}

/// A client that trusts `office` and has a certificate of `other`.
fn forged(office: &Office, other: &Office) -> Connector {
    other.issue("alice", &alice(), 1);
    let files = other.files("alice");
    let own = Some((&*files.certificate, &*files.key));
    let forged = ClientTls::open(&office.file("ca.pem"), own);
    forged.unwrap().connector()
}

/// Makes one connection to a host; returns whom the node saw, or why the connection failed on
/// either side.
async fn meet(
    node: &NodeTls,
    host: &str,
    mut client: Connector,
) -> Result<Option<Identity>, (String, String)> {
    let bound = if host == "localhost" {
        "127.0.0.1"
    } else {
        host
    };
    let listener = TcpListener::bind((bound, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let accepting = async {
        let (stream, _) = listener.accept().await.unwrap();
        let (mut stream, certificate) = node.accept(stream, Door::Grpc).await?;
        let identity = certificate.map(|(identity, _)| identity);
        stream.write_all(b"hi").await?;
        stream.flush().await?;
        Ok::<_, std::io::Error>((identity, stream))
    };
    let connecting = async {
        let uri = format!("http://{host}:{port}").parse().unwrap();
        let stream = client.call(uri).await?;
        let mut stream = stream.into_inner();
        let mut heard = [0; 2];
        stream.read_exact(&mut heard).await?;
        Ok::<_, std::io::Error>(heard)
    };
    let meeting = async { tokio::join!(accepting, connecting) };
    let met = tokio::time::timeout(Duration::from_secs(60), meeting).await;
    match met.expect("both ends") {
        (Ok((identity, _stream)), Ok(heard)) => {
            assert_eq!(&heard, b"hi");
            Ok(identity)
        }
        (node, client) => {
            let text = |error: Option<std::io::Error>| error.map_or("-".into(), |e| e.to_string());
            Err((text(node.err()), text(client.err())))
        }
    }
}

#[tokio::test]
async fn clients_are_who_their_certificate_names_and_nobody_without_one() {
    let office = Office::new();
    let server = office.node();
    assert_eq!(
        meet(&server, "127.0.0.1", office.client(None)).await,
        Ok(None)
    );
    office.issue("alice", &alice(), 1);
    let client = office.client(Some("alice"));
    assert_eq!(meet(&server, "localhost", client).await, Ok(Some(alice())));
    assert_eq!(
        meet(&server, "127.0.0.1", server.connector()).await,
        Ok(Some(node())),
        "a node"
    );
}

#[tokio::test]
async fn strangers_certificates_names_and_dates_are_refused() {
    let (office, other) = (Office::new(), Office::new());
    let server = office.node();
    let forged = forged(&office, &other);
    let (seen, _) = meet(&server, "127.0.0.1", forged).await.unwrap_err();
    assert!(seen.contains("certificate"), "{seen}");

    let (_, seen) = meet(&server, "127.0.0.1", other.client(None))
        .await
        .unwrap_err();
    assert!(seen.contains("UnknownIssuer"), "{seen}");
    // Loopback, under a name that is not in the certificate: clients refuse it, nodes do not.
    let (_, seen) = meet(&server, "127.0.0.2", office.client(None))
        .await
        .unwrap_err();
    assert!(seen.contains("not valid for"), "{seen}");
    assert!(meet(&server, "127.0.0.2", server.connector()).await.is_ok());
    // Expired when it was issued.
    office.issue("late", &alice(), 0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let late = office.client(Some("late"));
    let (seen, _) = meet(&server, "127.0.0.1", late).await.unwrap_err();
    assert!(seen.contains("xpired"), "{seen}");
}

/// A client's write may fail before it has read the node's alert.
#[tokio::test]
async fn a_refused_client_learns_why_also_after_its_writes_failed() {
    let (office, other) = (Office::new(), Office::new());
    let server = office.node();
    let mut forged = forged(&office, &other);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    // A thread of its own, which goes on while this one is blocked.
    let serving = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = TcpListener::from_std(listener).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            server.accept(stream, Door::Grpc).await.map(|_| ()).is_err()
        })
    });
    let connected = forged.call(uri.parse().unwrap()).await;
    let mut stream = connected.unwrap().into_inner();
    assert!(serving.join().unwrap(), "the node refuses it");
    // Blocks the thread, so that the runtime does not learn of the end before the writes do.
    for _ in 0..20 {
        stream.write_all(b"a request").await.unwrap();
        stream.flush().await.unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    let reason = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
    let reason = reason.to_string();
    assert!(torc_tls::refusal(&reason).is_some(), "{reason}");
}

/// A write's failure is the reader's end if the peer said nothing.
#[tokio::test]
async fn a_client_whose_connection_is_cut_is_told_so() {
    let office = Office::new();
    let server = office.node();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let mut connector = office.client(None);
    let (accepted, connected) = tokio::join!(
        async {
            let (stream, _) = listener.accept().await.unwrap();
            server.accept(stream, Door::Grpc).await.unwrap().0
        },
        connector.call(uri.parse().unwrap())
    );
    let mut stream = connected.unwrap().into_inner();
    drop(accepted);
    stream.write_all(b"a request").await.unwrap();
    stream.write_all(b"another").await.unwrap();
    let ended = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
    let cut = [
        std::io::ErrorKind::BrokenPipe,
        std::io::ErrorKind::ConnectionReset,
        std::io::ErrorKind::UnexpectedEof,
    ];
    assert!(cut.contains(&ended.kind()), "{ended:?}");
}

#[tokio::test]
async fn a_client_cannot_stand_in_for_a_node() {
    let office = Office::new();
    office.issue("alice", &alice(), 1);
    let refused = NodeTls::open(office.files("alice"), false).unwrap_err();
    assert!(matches!(refused, TlsError::NotANode { .. }), "{refused}");

    // A server presents a client's certificate to a node.
    let read = |name: &str| std::fs::read(office.file(name)).unwrap();
    let chain = rustls::pki_types::CertificateDer::pem_slice_iter(&read("alice.pem"))
        .collect::<Result<Vec<_>, _>>()
        .unwrap();
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(&read("alice-key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let mut connector = office.node().connector();
    let accepting = async { acceptor.accept(listener.accept().await.unwrap().0).await };
    let (_, connected) = tokio::join!(accepting, connector.call(uri.parse().unwrap()));
    assert!(connected.is_err());
}

#[tokio::test]
async fn files_are_replaced_while_serving_and_a_half_written_pair_changes_nothing() {
    let office = Office::new();
    let server = office.node();
    assert!(!server.reload().unwrap(), "nothing changed");
    let before = server.expires();
    let read = |file: &Path| std::fs::read(file).unwrap();
    let files = office.files("node");
    let old_key = read(&files.key);
    office.issue("node", &node(), 60);
    let new_key = read(&files.key);
    std::fs::write(&files.key, old_key).unwrap();
    assert!(server.reload().is_err(), "the key is not the certificate's");
    std::fs::write(&files.key, &new_key[..new_key.len() / 2]).unwrap();
    assert!(server.reload().is_err(), "the key is cut off");
    assert_eq!(server.expires(), before);
    assert!(
        meet(&server, "127.0.0.1", office.client(None))
            .await
            .is_ok()
    );
    std::fs::write(&files.key, new_key).unwrap();
    assert!(server.reload().unwrap());
    let days =
        |time: SystemTime| time.duration_since(SystemTime::now()).unwrap().as_secs() / 86_400;
    assert_eq!((days(before), days(server.expires())), (29, 59));
    assert!(
        meet(&server, "127.0.0.1", office.client(None))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn two_authorities_are_trusted_while_one_replaces_the_other() {
    let (old, new) = (Office::new(), Office::new());
    let server = old.node();
    new.issue("alice", &alice(), 1);
    let files = new.files("alice");
    let own = Some((&*files.certificate, &*files.key));
    let client = ClientTls::open(&old.file("ca.pem"), own).unwrap();
    assert!(
        meet(&server, "127.0.0.1", client.connector())
            .await
            .is_err()
    );
    let both = [old.authority.certificate(), new.authority.certificate()].concat();
    std::fs::write(old.file("ca.pem"), both).unwrap();
    assert!(server.reload().unwrap());
    let seen = meet(&server, "127.0.0.1", client.connector()).await;
    assert_eq!(seen, Ok(Some(alice())));
}

/// Appends further text to a file.
fn append(file: &Path, text: &str) {
    let before = std::fs::read_to_string(file).unwrap();
    std::fs::write(file, before + text).unwrap();
}

#[tokio::test]
async fn what_a_new_authority_issues_is_believed_where_only_the_old_one_is_known() {
    let (old, new) = (Office::new(), Office::new());
    let server = new.node();
    let refused = meet(&server, "127.0.0.1", old.client(None)).await;
    assert!(refused.is_err(), "nobody vouches for it");
    let certified = new.authority.certified_by(&old.authority).unwrap();
    let chain = [
        &*certified,
        old.authority.certificate(),
        new.authority.certificate(),
    ]
    .concat();
    append(&new.file("node.pem"), &chain);
    assert!(server.reload().unwrap());
    for office in [&old, &new] {
        let seen = meet(&server, "127.0.0.1", office.client(None)).await;
        assert_eq!(seen, Ok(None));
        let digest = office.authority.digest().unwrap();
        let met = introduced(Arc::clone(&server), Trust::Digest(digest)).await;
        assert_eq!(met, Ok(digest), "as a join token has it");
    }
    let first = introduced(server, Trust::FirstUse).await;
    assert_eq!(first, Ok(new.authority.digest().unwrap()), "it stays");

    // The cross-certificate also admits clients of the new authority.
    new.issue("alice", &alice(), 1);
    append(&new.file("alice.pem"), &certified);
    let (files, server) = (new.files("alice"), old.node());
    let own = Some((&*files.certificate, &*files.key));
    let client = ClientTls::open(&old.file("ca.pem"), own).unwrap();
    let seen = meet(&server, "127.0.0.1", client.connector()).await;
    assert_eq!(seen, Ok(Some(alice())));
    // The cross-certificate does not make the new authority's clients trust the old one.
    let strange = meet(&server, "127.0.0.1", new.client(None)).await;
    assert!(strange.is_err());
}

#[tokio::test]
async fn a_client_reads_its_files_again_and_keeps_them_where_they_are_broken() {
    let (old, new) = (Office::new(), Office::new());
    let [before, after] = [&old, &new].map(Office::node);
    let client = old.client(None);
    let reaches = async |node| meet(node, "127.0.0.1", client.clone()).await.is_ok();
    assert!(reaches(&before).await && !reaches(&after).await);
    std::fs::write(old.file("ca.pem"), "half a file").unwrap();
    assert!(reaches(&before).await);
    std::fs::write(old.file("ca.pem"), new.authority.certificate()).unwrap();
    assert!(!reaches(&before).await && reaches(&after).await);
}

/// Connects to a node knowing only its address.
async fn introduced(
    node: Arc<NodeTls>,
    trust: Trust,
) -> Result<AuthorityDigest, IntroductionError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let accepting = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let accepted = node.accept(stream, Door::Grpc).await;
        // Keeps the connection open until the peer has seen enough.
        std::future::pending::<()>().await;
        drop(accepted);
    });
    let met = Introduction::meet(&address, trust, Duration::from_secs(60)).await;
    accepting.abort();
    met.map(|(_, authority)| AuthorityDigest::of(&authority))
}

#[tokio::test]
async fn a_newcomer_believes_the_authority_that_it_was_told_of_and_nobody_who_only_shows_it() {
    let [office, others] = [(); 2].map(|()| Office::new());
    let digest = |office: &Office| office.authority.digest().unwrap();
    // A node with a certificate of one authority, which presents another one.
    let node = |of: &Office, shown: Option<&Office>| {
        of.issue("node", &node(), 30);
        let files = of.files("node");
        let mut chain = std::fs::read_to_string(&files.certificate).unwrap();
        chain.extend(shown.map(|office| office.authority.certificate()));
        std::fs::write(&files.certificate, chain).unwrap();
        NodeTls::open(files, false).unwrap()
    };
    let told = Trust::Digest(digest(&office));
    let honest = introduced(node(&office, Some(&office)), told).await;
    assert_eq!(honest, Ok(digest(&office)));
    for (who, node) in [
        ("an impostor", node(&others, Some(&office))),
        ("another cluster", node(&others, Some(&others))),
        ("a node that shows no authority", node(&office, None)),
    ] {
        let refused = introduced(node, told).await;
        let is_other = matches!(refused, Err(IntroductionError::OtherAuthority { .. }));
        assert!(is_other, "{who}: {refused:?}");
    }
    let first = introduced(node(&others, Some(&others)), Trust::FirstUse).await;
    assert_eq!(first, Ok(digest(&others)));
}
