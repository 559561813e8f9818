//! Bearer tokens with real nodes: what they allow, and that everything they opened ends with them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request};
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::session_request::Operation;
use torc_proto::v1::session_response::Outcome;
use torc_proto::v1::{
    BatchPutRequest, CreateNamespaceRequest, CreateTokenRequest, DeleteRequest, GetRequest,
    GetTopologyRequest, ListTokensRequest, PutRequest, PutResult, RevokeTokenRequest, ScanRequest,
    SessionRequest, SketchKeysRequest, SketchedNamespace, put_result,
};
use torc_proto::{Fault, Reason};
use torc_server::Node;
use torc_server::config::RawSettings;
use torc_testkit::redis::Redis;
use tower_service::Service as _;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::common::office::{Office, browser, channel, http_lines, with_token};
use crate::common::{Servers, found, until};

/// Three nodes, one of which votes from the start; namespaces `sessions` and `urls`.
async fn cluster(office: &Office) -> (Vec<Node>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let settings = |number: &str| RawSettings {
        resp_db: Some(vec!["1=sessions".into(), "2=urls".into()]),
        ..office.settings(dir.path().join(number))
    };
    let nodes = found(["1", "2", "3"].map(settings)).await;
    let mut admin = ClusterClient::new(channel(&nodes[0], &office.client("admin")).await);
    for name in ["sessions", "urls"] {
        let request = CreateNamespaceRequest {
            name: name.into(),
            ..CreateNamespaceRequest::default()
        };
        admin.create_namespace(request).await.unwrap();
    }
    (nodes, dir)
}

async fn stop(nodes: Vec<Node>) {
    for node in nodes {
        node.stop().await.unwrap();
    }
}

fn put(namespace: &str, key: &str) -> PutRequest {
    PutRequest {
        namespace: namespace.into(),
        key: key.to_owned().into(),
        value: "v".into(),
        ..PutRequest::default()
    }
}

fn get(namespace: &str, key: &str) -> GetRequest {
    GetRequest {
        namespace: namespace.into(),
        key: key.to_owned().into(),
        ..GetRequest::default()
    }
}

fn scan(namespace: &str) -> ScanRequest {
    ScanRequest {
        namespace: namespace.into(),
        ..ScanRequest::default()
    }
}

const DENIED: Code = Code::PermissionDenied;

/// Node 3 responds, but the topology group does not reach it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_names_the_nodes_that_have_not_heard_of_it() {
    let office = Office::new();
    let files = office.issue("node", "torc://any/node/any");
    let secure = |settings| RawSettings {
        tls_cert: Some(files.certificate.clone()),
        tls_key: Some(files.key.clone()),
        tls_ca: Some(files.authorities.clone()),
        ..settings
    };
    let servers = Servers::start_with(tempfile::tempdir().unwrap(), secure).await;
    let token = office
        .token(&servers.nodes[0], "writer", &["write"], &[])
        .await;
    let id = token.split('.').next().unwrap().to_owned();
    let cut = r#"{"group_drop_to": [3]}"#;
    for (index, faults) in [cut, cut, r#"{"group_drop_to": [1, 2]}"#]
        .into_iter()
        .enumerate()
    {
        servers.link_faults(index, faults);
    }
    // The files are read every 100 ms.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut admin = office.admin(&servers.nodes[0]).await;
    let mut revoke = async || {
        let revoked = admin.revoke_token(RevokeTokenRequest { id: id.clone() });
        revoked.await.map(|answer| answer.into_inner().unconfirmed)
    };
    until("the others have a leader", async || {
        revoke().await.is_ok_and(|unconfirmed| unconfirmed == [3])
    })
    .await;
    let get = GetRequest {
        key: "k".into(),
        ..GetRequest::default()
    };
    let mut kv = KvClient::new(channel(&servers.nodes[1], &office.nobody()).await);
    let refused = kv.get(with_token(get, &token)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    for index in 0..3 {
        servers.link_faults(index, "{}");
    }
    until("all have heard", async || {
        revoke()
            .await
            .is_ok_and(|unconfirmed| unconfirmed.is_empty())
    })
    .await;
    for node in servers.nodes {
        node.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scope_bounds_every_way_to_a_key() {
    let office = Office::new();
    let (nodes, _dir) = cluster(&office).await;
    let scopes = ["read:sessions", "write:sessions/user:"];
    let token = office.token(&nodes[0], "alice", &[], &scopes).await;
    let mut kv = KvClient::new(channel(&nodes[1], &office.nobody()).await);
    macro_rules! code {
        ($method:ident, $message:expr) => {
            kv.$method(with_token($message, &token))
                .await
                .map_or_else(|it| it.code(), |_| Code::Ok)
        };
    }
    assert_eq!(code!(put, put("sessions", "user:1")), Code::Ok);
    assert_eq!(code!(get, get("sessions", "user:1")), Code::Ok);
    assert_eq!(code!(put, put("sessions", "admin:1")), DENIED);
    assert_eq!(code!(put, put("", "user:1")), DENIED);
    let delete = |key: &'static str| DeleteRequest {
        namespace: "sessions".into(),
        key: key.into(),
        ..DeleteRequest::default()
    };
    assert_eq!(code!(delete, delete("user:2")), Code::Ok);
    assert_eq!(code!(delete, delete("admin:2")), DENIED);
    // The answers do not reveal which keys or namespaces exist.
    let mut messages = Vec::new();
    for namespace in ["urls", "none-such"] {
        let denied = kv
            .get(with_token(get(namespace, "k"), &token))
            .await
            .unwrap_err();
        messages.push(Fault::from_status(&denied).message);
    }
    assert_eq!(messages[0], messages[1]);

    // Each item of a batch is checked.
    let items = ["user:3", "admin:3", "user:4"].map(|key| put("sessions", key));
    let batch = BatchPutRequest {
        items: items.into(),
    };
    let answer = kv
        .batch_put(with_token(batch, &token))
        .await
        .unwrap()
        .into_inner();
    let is_denied = |result: &PutResult| {
        matches!(&result.outcome, Some(put_result::Outcome::Fault(fault))
            if fault.reason == Reason::PermissionDenied as i32)
    };
    let denied: Vec<_> = answer.results.iter().map(is_denied).collect();
    assert_eq!(denied, [false, true, false]);

    // So is each message of a session.
    let asked = [
        Operation::Put(put("sessions", "user:5")),
        Operation::Put(put("sessions", "admin:5")),
        Operation::Get(get("sessions", "admin:5")),
        Operation::Get(get("urls", "k")),
    ];
    let messages = asked
        .into_iter()
        .zip(0..)
        .map(|(operation, id)| SessionRequest {
            id,
            operation: Some(operation),
            ..SessionRequest::default()
        });
    let messages: Vec<_> = messages.collect();
    let answers = kv
        .session(with_token(stream::iter(messages), &token))
        .await
        .unwrap();
    let answers: Vec<_> = answers.into_inner().take(4).collect().await;
    let mut denied: Vec<_> = answers
        .into_iter()
        .map(|answer| {
            let answer = answer.unwrap();
            let denied = matches!(&answer.outcome, Some(Outcome::Fault(fault))
            if fault.reason == Reason::PermissionDenied as i32);
            (answer.id, denied)
        })
        .collect();
    denied.sort_unstable();
    assert_eq!(denied, [(0, false), (1, true), (2, false), (3, true)]);

    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_tells_of_all_keys_takes_the_whole_namespace() {
    let office = Office::new();
    let (nodes, _dir) = cluster(&office).await;
    let scopes = ["read:sessions", "write:sessions"];
    let token = office.token(&nodes[0], "alice", &[], &scopes).await;
    let mut kv = KvClient::new(channel(&nodes[1], &office.nobody()).await);
    for number in 1..=4 {
        let put = put("sessions", &format!("user:{number}"));
        kv.put(with_token(put, &token)).await.unwrap();
    }
    // Positions of scans are keys.
    let mut pages = kv
        .scan(with_token(scan("sessions"), &token))
        .await
        .unwrap()
        .into_inner();
    let mut keys = 0;
    while let Some(page) = pages.message().await.unwrap() {
        keys += page.entries.len();
    }
    assert_eq!(keys, 4);
    let denied = kv.scan(with_token(scan("urls"), &token)).await.map(|_| ());
    assert_eq!(denied.unwrap_err().code(), DENIED);
    let part = office
        .token(&nodes[0], "part", &[], &["read:sessions/user:"])
        .await;
    let denied = kv
        .scan(with_token(scan("sessions"), &part))
        .await
        .map(|_| ())
        .unwrap_err();
    assert_eq!(denied.code(), DENIED);
    let mut cluster = ClusterClient::new(channel(&nodes[1], &office.nobody()).await);
    let sketch = SketchKeysRequest {
        namespaces: vec![SketchedNamespace {
            name: "sessions".into(),
            ..SketchedNamespace::default()
        }],
        ..SketchKeysRequest::default()
    };
    let denied = cluster
        .sketch_keys(with_token(sketch, &part))
        .await
        .map(|_| ());
    assert_eq!(denied.unwrap_err().code(), DENIED);
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_topology_tells_a_client_what_it_may_know() {
    let office = Office::new();
    let (nodes, _dir) = cluster(&office).await;
    let scoped = office
        .token(&nodes[0], "scoped", &[], &["write:sessions"])
        .await;
    let reader = office.token(&nodes[0], "reader", &["read"], &[]).await;
    let mut cluster = ClusterClient::new(channel(&nodes[2], &office.nobody()).await);
    let mut told = Vec::new();
    for token in [&scoped, &reader] {
        let request = with_token(GetTopologyRequest::default(), token);
        let answer = cluster.get_topology(request).await.unwrap().into_inner();
        let topology = answer.topology.unwrap();
        let mut names: Vec<_> = topology
            .namespaces
            .iter()
            .map(|it| it.name.clone())
            .collect();
        names.sort();
        told.push((topology.digest_key.len(), names));
    }
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(told[0], (0, names(&["#1", "#3", "sessions"])));
    assert_eq!(told[1], (32, names(&["default", "sessions", "urls"])));
    // A certificate that may not read gets no digest key either.
    let mut writer = ClusterClient::new(channel(&nodes[2], &office.client("write")).await);
    let answer = writer
        .get_topology(GetTopologyRequest::default())
        .await
        .unwrap();
    assert!(answer.into_inner().topology.unwrap().digest_key.is_empty());
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_ends_what_is_open_on_every_node() {
    let office = Office::new();
    let (nodes, _dir) = cluster(&office).await;
    let token = office
        .token(&nodes[0], "alice", &["read", "write", "observe"], &[])
        .await;
    let mut admin = KvClient::new(channel(&nodes[0], &office.client("admin")).await);
    // More than a connection's window can hold.
    for number in 0..40 {
        let mut large = put("", &format!("k{number}"));
        large.value = vec![7; 1 << 20].into();
        admin.put(large).await.unwrap();
    }
    let browser = browser(&office, None);
    let mut open = Vec::new();
    for node in &nodes {
        let mut kv = KvClient::new(channel(node, &office.nobody()).await);
        let (asking, messages) = tokio::sync::mpsc::channel(4);
        let messages = with_token(ReceiverStream::new(messages), &token);
        let mut answers = kv.session(messages).await.unwrap().into_inner();
        let message = |id| SessionRequest {
            id,
            operation: Some(Operation::Put(put("", "k"))),
            ..SessionRequest::default()
        };
        asking.send(message(0)).await.unwrap();
        let answer = answers.message().await.unwrap().unwrap();
        assert!(
            matches!(answer.outcome, Some(Outcome::Put(_))),
            "{answer:?}"
        );
        let mut pages = kv
            .scan(with_token(scan(""), &token))
            .await
            .unwrap()
            .into_inner();
        pages.message().await.unwrap().unwrap();
        let header = format!("Authorization: Bearer {token}");
        let events = http_lines(node, &browser, "/console/events", Some(&header));
        let (status, events) = events.await;
        assert!(status.contains(" 200 "), "{status}");
        open.push((kv, asking, message, answers, pages, events));
    }
    office.revoke(&nodes[0], &token).await;
    // Without waiting: the revocation was reported as effective everywhere.
    for (mut kv, asking, message, mut answers, mut pages, mut events) in open {
        asking.send(message(1)).await.unwrap();
        let answer = answers.message().await.unwrap().unwrap();
        let is_refused = matches!(&answer.outcome, Some(Outcome::Fault(fault))
            if fault.reason == Reason::Unauthenticated as i32);
        assert!(is_refused, "{answer:?}");
        let ended = loop {
            match pages.message().await {
                Ok(page) => assert!(!page.expect("it does not end well").done),
                Err(status) => break status.code(),
            }
        };
        assert_eq!(ended, Code::Unauthenticated);
        let again = kv.get(with_token(get("", "k"), &token)).await.unwrap_err();
        assert_eq!(again.code(), Code::Unauthenticated);
        let mut rest = Vec::new();
        let ends = tokio::time::timeout(torc_testkit::TIMEOUT, events.read_to_end(&mut rest));
        ends.await
            .expect("the console's stream ends")
            .unwrap_or_default();
    }
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_ends_when_it_expires() {
    let office = Office::new();
    let (node, _data) = office.node().await;
    let mut admin = ClusterClient::new(channel(&node, &office.client("admin")).await);
    let request = CreateTokenRequest {
        name: "short".into(),
        roles: vec!["read".into()],
        lifetime_ms: 1_500,
        ..CreateTokenRequest::default()
    };
    let token = admin
        .create_token(request)
        .await
        .unwrap()
        .into_inner()
        .bearer;
    let mut kv = KvClient::new(channel(&node, &office.nobody()).await);
    kv.get(with_token(get("", "k"), &token)).await.unwrap();
    until("it has ended", async || {
        let refused = kv.get(with_token(get("", "k"), &token)).await;
        refused.is_err_and(|status| status.code() == Code::Unauthenticated)
    })
    .await;
    let listed = admin
        .list_tokens(ListTokensRequest::default())
        .await
        .unwrap();
    assert_eq!(
        listed.into_inner().tokens.len(),
        1,
        "it is shown until it is revoked"
    );
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_clients_bring_tokens_with_auth() {
    let office = Office::new();
    let (nodes, _dir) = cluster(&office).await;
    let scopes = [
        "read:sessions/user:",
        "write:sessions/user:",
        "read:default",
    ];
    let token = office.token(&nodes[0], "alice", &[], &scopes).await;
    let (id, secret) = token.split_once('.').unwrap();
    let connect = async || {
        let address = nodes[1].resp_addr().unwrap();
        let stream = office
            .nobody()
            .call(format!("https://{address}").parse().unwrap())
            .await;
        Redis::over(stream.unwrap().into_inner())
    };
    for login in [
        format!("AUTH {id} {secret}"),
        format!("AUTH {token}"),
        format!("AUTH default {token}"),
        format!("HELLO 2 AUTH {id} {secret}"),
    ] {
        let mut client = connect().await;
        assert!(client.told("GET k").await.starts_with("-NOAUTH "));
        assert!(!client.told(&login).await.starts_with('-'), "a login");
        for (command, told) in [
            ("GET k", "nil"),
            ("SET k v", "-NOPERM "),
            ("SCAN 0", "["),
            ("SELECT 2", "-NOPERM "),
            ("SELECT 9", "-NOPERM "),
            ("SELECT 1", "OK"),
            ("SET user:1 v", "OK"),
            ("GET user:1", "v"),
            ("GET admin:1", "-NOPERM "),
            ("MGET user:1 admin:1", "-NOPERM "),
            ("MSET user:2 v admin:2 v", "-NOPERM "),
            ("GET user:2", "nil"),
            ("SCAN 0", "-NOPERM "),
            ("DBSIZE", "-NOPERM "),
            ("INFO", "redis_version"),
            ("CLUSTER SLOTS", "127.0.0.1"),
        ] {
            let answer = client.told(command).await;
            assert!(
                answer.to_lowercase().contains(&told.to_lowercase()),
                "{command}: {answer}"
            );
        }
        assert!(
            client
                .told(&format!("AUTH {id} {}", "0".repeat(64)))
                .await
                .starts_with("-WRONGPASS ")
        );
        assert_eq!(
            client.told("GET user:1").await,
            "v",
            "a failed login changes nothing"
        );
        client.told("RESET").await;
        assert!(client.told("GET user:1").await.starts_with("-NOAUTH "));
        client.told("SELECT 1").await;
        client.told(&format!("AUTH {token}")).await;
        client.told("DEL user:1").await;
    }
    let mut client = connect().await;
    client.told(&format!("AUTH {token}")).await;
    assert!(!client.told("GET k").await.starts_with('-'));
    office.revoke(&nodes[2], &token).await;
    assert!(
        client.told("GET k").await.starts_with("-NOAUTH "),
        "an open connection"
    );
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_takes_tokens_that_may_observe() {
    let office = Office::new();
    let (node, _data) = office.node().await;
    let observer = office.token(&node, "observer", &["observe"], &[]).await;
    let reader = office.token(&node, "reader", &["read"], &[]).await;
    let browser = browser(&office, None);
    for (header, expected) in [
        (format!("Authorization: Bearer {observer}"), " 200 "),
        (format!("authorization: bearer {observer}"), " 200 "),
        (format!("Authorization: Bearer {reader}"), " 403 "),
        (format!("Authorization: Bearer {observer}0"), " 401 "),
        (format!("Authorization: Basic {observer}"), " 401 "),
        ("Authorization: Bearer".to_owned(), " 401 "),
    ] {
        for path in ["/status", "/metrics", "/"] {
            let (status, _) = http_lines(&node, &browser, path, Some(&header)).await;
            assert!(status.contains(expected), "{header} {path}: {status}");
        }
    }
    node.stop().await.unwrap();
}

/// Captures the log at every level.
#[derive(Debug, Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Logged {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_in_no_log_metric_or_error() {
    let logged = Logged::default();
    // Also captures what other tests log meanwhile.
    let (filter, capturing) = reload::Layer::new(LevelFilter::DEBUG);
    let log = tracing_subscriber::fmt::layer().with_writer(logged.clone());
    tracing_subscriber::registry().with(filter).with(log).init();
    let office = Office::new();
    let (node, data) = office.node().await;
    let token = office
        .token(&node, "alice", &["observe"], &["read:default"])
        .await;
    let (id, secret) = token.split_once('.').unwrap();
    let mut kv = KvClient::new(channel(&node, &office.nobody()).await);
    let mut told = Vec::new();
    kv.get(with_token(get("", "k"), &token)).await.unwrap();
    for refused in [
        kv.put(with_token(put("", "k"), &token)).await.map(|_| ()),
        kv.get(with_token(get("", "k"), &format!("{token}0")))
            .await
            .map(|_| ()),
        kv.get(with_token(get("", "k"), &format!("0{token}")))
            .await
            .map(|_| ()),
    ] {
        told.push(format!("{:?}", refused.unwrap_err()));
    }
    let address = node.resp_addr().unwrap();
    let stream = office
        .nobody()
        .call(format!("https://{address}").parse().unwrap())
        .await;
    let mut redis = Redis::over(stream.unwrap().into_inner());
    for command in [
        format!("AUTH {id} {secret}"),
        format!("AUTH x {secret}"),
        "CLIENT INFO".into(),
    ] {
        told.push(redis.told(&command).await);
    }
    let header = format!("Authorization: Bearer {token}");
    for path in ["/metrics", "/status"] {
        let found = http_lines(&node, &browser(&office, None), path, Some(&header)).await;
        let (status, mut rest) = found;
        assert!(status.contains(" 200 "), "{status}");
        let mut line = String::new();
        while rest.read_line(&mut line).await.unwrap() > 2 {
            told.push(std::mem::take(&mut line));
        }
    }
    let mut admin = ClusterClient::new(channel(&node, &office.client("admin")).await);
    let request = Request::new(CreateTokenRequest {
        name: "bob".into(),
        roles: vec!["read".into()],
        ..CreateTokenRequest::default()
    });
    let created = admin.create_token(request).await.unwrap().into_inner();
    told.push(format!("{created:?}"));
    let other = created.bearer.split_once('.').unwrap().1.to_owned();
    let listed = admin.list_tokens(ListTokensRequest::default()).await;
    told.push(format!("{:?}", listed.unwrap()));
    node.stop().await.unwrap();
    capturing.reload(LevelFilter::OFF).unwrap();
    told.push(std::fs::read_to_string(data.path().join("audit/audit.log")).unwrap());
    told.push(String::from_utf8_lossy(&logged.0.lock().unwrap()).into_owned());
    let told = told.concat();
    assert!(
        told.contains(id) && told.contains("alice"),
        "the public half is shown"
    );
    for secret in [secret, &other] {
        assert!(!told.contains(secret));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_tls_makes_no_tokens_and_asks_for_none() {
    let servers = crate::common::Servers::start().await;
    let address = servers.nodes[0].grpc_addr();
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    let channel = channel.connect().await.unwrap();
    let request = CreateTokenRequest {
        name: "alice".into(),
        roles: vec!["read".into()],
        ..CreateTokenRequest::default()
    };
    let refused = ClusterClient::new(channel.clone())
        .create_token(request)
        .await
        .unwrap_err();
    assert!(refused.message().contains("TLS"), "{refused}");
    let mut kv = KvClient::new(channel);
    kv.get(with_token(get("", "k"), "nobody's")).await.unwrap();
    stop(servers.nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_log_on_a_full_disk_stops_nobody() {
    let office = Office::new();
    let data = tempfile::tempdir().unwrap();
    let settings = RawSettings {
        bootstrap: Some(true),
        audit_log: Some("/dev/full".into()),
        ..office.settings(data.path().to_owned())
    };
    let node = Node::start(settings.check().unwrap()).await.unwrap();
    until("it serves", async || node.ready().is_ok()).await;
    let token = office
        .token(&node, "alice", &["read", "write", "observe"], &[])
        .await;
    let mut kv = KvClient::new(channel(&node, &office.nobody()).await);
    kv.put(with_token(put("", "k"), &token)).await.unwrap();
    kv.get(with_token(get("", "k"), &token)).await.unwrap();
    let header = format!("Authorization: Bearer {token}");
    let browser = browser(&office, None);
    until("the metrics say so", async || {
        let (_, mut rest) = http_lines(&node, &browser, "/metrics", Some(&header)).await;
        let mut line = String::new();
        while rest.read_line(&mut line).await.unwrap_or(0) > 0 {
            if line.starts_with("torc_audit_failing 1") {
                return true;
            }
            if line.starts_with("# EOF") {
                return false;
            }
            line.clear();
        }
        false
    })
    .await;
    node.stop().await.unwrap();
}
