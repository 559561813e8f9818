//! Nodes with TLS: which callers may make which calls, for all calls.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::session_request::Operation;
use torc_proto::v1::session_response::Outcome;
use torc_proto::v1::{
    CreateTokenRequest, EnrolNodeRequest, GetRequest, PutRequest, SessionRequest,
};
use torc_proto::{Access, Fault, Reason};
use torc_server::Node;
use torc_server::config::{ConfigError, RawSettings};
use torc_testkit::redis::Redis;
use torc_tls::NodeTls;

use crate::common::office::{
    Door, Office, browser, calls, channel, connects_as, http_lines, http_status,
};
use crate::common::until;
use crate::ports::PREFACE;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_is_open_to_the_roles_that_it_is_for_and_to_nobody_else() {
    let office = Office::new();
    let (node, data) = office.node().await;
    let calls = calls();
    assert!(calls.len() > 30, "{calls:?}");
    for roles in ["nobody", "read", "write", "observe", "admin"] {
        let callers = match roles {
            "nobody" => vec![Door::new(&node, &office.nobody(), None).await],
            roles => {
                let token = office.token(&node, roles, &[roles], &[]).await;
                vec![
                    Door::new(&node, &office.client(roles), None).await,
                    Door::new(&node, &office.nobody(), Some(&token)).await,
                    // The token counts, not the certificate.
                    Door::new(&node, &office.client("admin+read"), Some(&token)).await,
                ]
            }
        };
        for (door, path) in callers
            .iter()
            .flat_map(|it| calls.iter().map(move |path| (it, path)))
        {
            let may = match (roles, Access::to(path).unwrap()) {
                (_, Access::Anyone) => true,
                ("nobody", _) | (_, Access::Node) => false,
                (_, Access::Client) | ("admin", _) => true,
                (_, Access::ReadOrWrite) => roles != "observe",
                (_, Access::Read) => roles == "read",
                (_, Access::Write) => roles == "write",
                (_, Access::Observe) => roles == "observe",
                (_, Access::Admin) => false,
            };
            let refused = match roles {
                "nobody" => Code::Unauthenticated,
                _ => Code::PermissionDenied,
            };
            // A caller without permission is refused before a message has arrived.
            let code = if may {
                door.ends(path).await
            } else {
                door.begins(path).await
            };
            assert_eq!(code == refused, !may, "{roles} {path}: {code:?}");
            let is_refusal = matches!(code, Code::Unauthenticated | Code::PermissionDenied);
            assert_eq!(is_refusal, !may, "{roles} {path}: {code:?}");
        }
        for door in callers {
            let health = door.ends("/grpc.health.v1.Health/Check").await;
            assert_eq!(health, Code::Ok, "{roles}");
        }
    }
    node.stop().await.unwrap();
    // All calls of administrators are logged, with each kind of authentication.
    let audit = std::fs::read_to_string(data.path().join("audit/audit.log")).unwrap();
    for path in calls
        .iter()
        .filter(|path| Access::to(path) == Some(Access::Admin))
    {
        let call = path.strip_prefix("/torc.v1.").unwrap();
        let is_of_it = |line: &&str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["event"] == "admin" && line["call"] == call
        };
        let count = audit.lines().filter(is_of_it).count();
        assert!(count >= 3, "{call}: {count} in {audit}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_that_watch_the_health_take_no_room_from_clients() {
    let office = Office::new();
    let data = tempfile::tempdir().unwrap();
    let settings = RawSettings {
        bootstrap: Some(true),
        in_flight_mib: Some(64),
        ..office.settings(data.path().to_owned())
    };
    let node = Node::start(settings.check().unwrap()).await.unwrap();
    until("it serves", async || node.ready().is_ok()).await;
    let (mut open, mut refused) = (Vec::new(), 0);
    // At 16 KiB each, 4,096 calls would fill the 64 MiB.
    for _ in 0..18 {
        let mut stranger = HealthClient::new(channel(&node, &office.nobody()).await);
        for _ in 0..250 {
            match stranger.watch(HealthCheckRequest::default()).await {
                Ok(answers) => open.push(answers),
                Err(status) => {
                    assert_eq!(Fault::from_status(&status).reason, Reason::Overloaded);
                    refused += 1;
                }
            }
        }
    }
    let put = PutRequest {
        key: "k".into(),
        value: "v".into(),
        ..PutRequest::default()
    };
    let mut kv = KvClient::new(channel(&node, &office.client("admin")).await);
    kv.put(put).await.expect("the room of clients is free");
    assert_eq!((open.len(), refused), (64, 18 * 250 - 64));
    let mut stranger = HealthClient::new(channel(&node, &office.nobody()).await);
    let checked = stranger.check(HealthCheckRequest::default()).await;
    checked.expect("checks need no permit");
    drop(open);
    until("the permits are free again", async || {
        let watched = stranger.watch(HealthCheckRequest::default()).await;
        watched.is_ok()
    })
    .await;
    node.stop().await.unwrap();
}

/// With certificates from files, no node can be admitted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_an_authority_of_its_own_lets_nobody_in_and_says_why() {
    let office = Office::new();
    let (node, _data) = office.node().await;
    let request = || EnrolNodeRequest {
        token: format!("{:016x}.{}", 1, "c0".repeat(32)),
        ..EnrolNodeRequest::default()
    };
    let mut stranger = ClusterClient::new(channel(&node, &office.nobody()).await);
    let refused = stranger.enrol_node(request()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("certificate files"), "{refused}");
    // Refused before it is read completely.
    let long = EnrolNodeRequest {
        signing_request: "x".repeat(20 << 10),
        ..request()
    };
    let refused = stranger.enrol_node(long).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let join = CreateTokenRequest {
        name: "join".into(),
        join_uses: 1,
        lifetime_ms: 1_000,
        ..CreateTokenRequest::default()
    };
    let mut admin = ClusterClient::new(channel(&node, &office.client("admin")).await);
    let refused = admin.create_token(join).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    node.stop().await.unwrap();

    let data = tempfile::tempdir().unwrap();
    let plain = crate::common::settings(data.path().to_owned())
        .check()
        .unwrap();
    let plain = Node::start(plain).await.unwrap();
    let address = format!("http://{}", plain.grpc_addr());
    let mut stranger = ClusterClient::connect(address).await.unwrap();
    let refused = stranger.enrol_node(request()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("without TLS"), "{refused}");
    plain.stop().await.unwrap();
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
    // What clients send before any command with a key needs no particular role.
    let connecting = &["INFO", "CONFIG GET save", "CLUSTER SLOTS"][..];
    let cases: [(&str, &[&str]); 5] = [
        ("read", &["GET k", "SCAN 0"]),
        ("write", &["SET k v"]),
        (
            "read+write",
            &["GET k", "SET k v", "SET k v GET", "INCR n", "SCAN 0"],
        ),
        ("observe", &[]),
        ("admin", all),
    ];
    let cases = cases.map(|(roles, allowed)| (roles, [allowed, connecting].concat()));
    let cases = cases.into_iter().chain([("", Vec::new())]);
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
            let may = command == "PING" || allowed.contains(&command);
            assert_eq!(is_denied, !may, "{roles}: {command}: {told}");
            assert!(
                is_denied || !told.starts_with('-'),
                "{roles}: {command}: {told}"
            );
        }
    }
    // Connections without TLS are refused.
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
async fn a_redis_client_sends_little_before_it_has_authenticated() {
    use tower_service::Service as _;

    let office = Office::new();
    let (node, _data) = office.node().await;
    let token = office.token(&node, "writer", &["write"], &[]).await;
    let uri: http::Uri = format!("https://{}", node.resp_addr().unwrap())
        .parse()
        .unwrap();
    let mut nobody = office.nobody();
    for announced in ["*2\r\n$4\r\nECHO\r\n$1000000\r\n", "*11\r\n"] {
        let stream = nobody.call(uri.clone()).await.unwrap();
        let mut stranger = Redis::over(stream.into_inner());
        stranger.send_bytes(announced.as_bytes()).await;
        let refused = stranger.receive().await;
        assert!(refused.is_error(), "{announced:?}: {refused:?}");
        assert_eq!(stranger.try_receive().await, None, "it is closed");
    }
    let stream = nobody.call(uri).await.unwrap();
    let mut client = Redis::over(stream.into_inner());
    let value = vec![7; 1_000_000];
    assert_eq!(client.told(&format!("AUTH {token}")).await, "+OK");
    let put = client.call_words(&[b"SET", b"k", &value]).await;
    assert!(!put.is_error(), "{put:?}");
    client.told("RESET").await;
    client.send_bytes(b"*11\r\n").await;
    assert!(client.receive().await.is_error());
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
async fn a_certificate_that_has_ended_counts_no_longer_on_open_connections() {
    let office = Office::new();
    let (node, _data) = office.node().await;
    let who = "torc://any/client/alice/admin";
    let files = office.issue_briefly("alice", who, Duration::from_secs(4));
    let over = Instant::now() + Duration::from_secs(4);
    let put = || PutRequest {
        key: "k".into(),
        value: "v".into(),
        ..PutRequest::default()
    };
    let mut kv = KvClient::new(channel(&node, &Office::connector(&files)).await);
    let (requests, sent) = tokio::sync::mpsc::unbounded_channel();
    let sent = tokio_stream::wrappers::UnboundedReceiverStream::new(sent);
    let mut session = kv.session(sent).await.unwrap().into_inner();
    let mut answer = async || {
        let operation = Some(Operation::Put(put()));
        let request = SessionRequest {
            operation,
            ..SessionRequest::default()
        };
        requests.send(request).unwrap();
        session.message().await.unwrap().unwrap().outcome
    };
    let browser = connects_as(&office, Some(&files));
    let (status, mut events) = http_lines(&node, &browser, "/console/events", None).await;
    assert!(status.contains(" 200 "), "{status}");
    assert!(matches!(answer().await, Some(Outcome::Put(_))));
    kv.put(put()).await.unwrap();

    tokio::time::sleep_until(over.into()).await;
    let Some(Outcome::Fault(fault)) = answer().await else {
        panic!("the session goes on");
    };
    assert_eq!(fault.reason, i32::from(Reason::Unauthenticated));
    assert!(fault.message.contains("connect again"), "{fault:?}");
    let refused = kv.put(put()).await.unwrap_err();
    assert!(Fault::from_status(&refused).wants_connection(), "{refused}");
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(torc_testkit::TIMEOUT, events.read_to_end(&mut rest)).await;
    // Without a farewell of TLS.
    let _ = ended.expect("the console's stream ends");
    let tls = Office::connector(&files);
    let endpoint = torc_tls::endpoint(&node.grpc_addr().to_string(), Some(&tls)).unwrap();
    let again = torc_tls::connect(&endpoint, Some(&tls)).await;
    let again = match again {
        Ok(channel) => KvClient::new(channel).put(put()).await.map(drop).is_ok(),
        Err(_) => false,
    };
    assert!(!again, "the handshake refuses it");
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
        ..crate::common::settings(data.path().join("d"))
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
    // A node's private side refuses a client's certificate.
    let alice = office.issue("alice", "torc://any/client/alice/admin");
    assert!(NodeTls::open(alice, false).is_err());
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
            // Hot keys are available once every worker counts.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_authenticate_before_long_is_disconnected() {
    let office = Office::new();
    let data = tempfile::tempdir().unwrap();
    let settings = RawSettings {
        bootstrap: Some(true),
        test_idle_time_ms: Some(3_000),
        ..office.settings(data.path().to_owned())
    };
    let node = Node::start(settings.check().unwrap()).await.unwrap();
    until("it serves", async || node.ready().is_ok()).await;
    let token = office.token(&node, "reader", &["read"], &[]).await;
    let connect = async |to: SocketAddr| {
        let stream = TcpStream::connect(to).await.unwrap();
        let tls = connects_as(&office, None);
        tls.connect(to.ip().into(), stream).await.unwrap()
    };
    let resp = node.resp_addr().unwrap();
    let mut known = Redis::over(connect(resp).await);
    assert_eq!(known.told(&format!("AUTH {token}")).await, "+OK");
    let mut stranger = Redis::over(connect(resp).await);
    assert_eq!(stranger.told("PING").await, "+PONG");
    let mut silent = connect(node.grpc_addr()).await;
    silent.write_all(PREFACE).await.unwrap();
    let ended = async {
        assert!(stranger.try_receive().await.is_none());
        let mut heard = Vec::new();
        // Perhaps without the end of TLS.
        let _ = silent.read_to_end(&mut heard).await;
        assert!(!heard.is_empty(), "it was greeted");
    };
    tokio::time::timeout(torc_testkit::TIMEOUT, ended)
        .await
        .unwrap();
    assert_eq!(known.told("PING").await, "+PONG");
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_tells_that_the_certificate_ends_soon() {
    let office = Office::new();
    for (days, told) in [
        (30, "ready\n"),
        (5, "ready; the certificate ends in 4 days\n"),
    ] {
        let data = tempfile::tempdir().unwrap();
        let settings = RawSettings {
            bootstrap: Some(true),
            ..office.settings(data.path().to_owned())
        };
        office.issue_for(days, "node", "torc://any/node/any");
        let node = Node::start(settings.check().unwrap()).await.unwrap();
        until("it serves", async || node.ready().is_ok()).await;
        let browser = browser(&office, None);
        let close = Some("Connection: close");
        let (status, mut rest) = http_lines(&node, &browser, "/readyz", close).await;
        assert!(status.contains(" 200 "), "{status}");
        let mut answer = String::new();
        rest.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with(&format!("\r\n\r\n{told}")), "{answer}");
        node.stop().await.unwrap();
    }
}
