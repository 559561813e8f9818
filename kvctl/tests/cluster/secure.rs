//! A cluster with only encrypted connections, set up with `kvctl` alone.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use torc_client::{Client, ClientTls, ErrorKind};
use torc_tls::{Authority, Key, SigningRequest};

use crate::join::some_traffic;
use crate::processes::{Kvd, kvctl, prepare, until};
use crate::tour::{blocks_of, paste};
use crate::traffic::Traffic;

/// Runs `kvctl` without a cluster.
fn run(args: &[&str]) {
    let nobody = ["127.0.0.1:1".to_owned()];
    let done = kvctl(&nobody, args);
    assert!(done.status.success(), "{done:?}");
}

/// Files of an authority and its certificates, created with `kvctl`.
struct Office(PathBuf);

impl Office {
    fn new(dir: &Path) -> Self {
        let office = Self(dir.to_owned());
        run(&["ca", "create", &office.path("")]);
        office
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn issue(&self, name: &str, holder: &[&str]) {
        let (ca, prefix) = (self.path(""), self.path(name));
        let fixed = ["cert", "issue", "--ca", &ca, &prefix];
        run(&[&fixed, holder].concat());
    }

    /// Issues a client's certificate that ends after this time, and replaces the former one.
    fn issue_briefly(&self, name: &str, life: Duration) {
        let read = |file: &str| std::fs::read_to_string(self.path(file));
        let authority = Authority::open(&read("ca.pem").unwrap(), &read("ca-key.pem").unwrap());
        let key_file = format!("{name}-key.pem");
        let key = read(&key_file)
            .map_or_else(|_| Key::new(), |pem| Key::open(&pem))
            .unwrap();
        std::fs::write(self.path(&key_file), key.pem()).unwrap();
        let request = SigningRequest::open(&key.request().unwrap()).unwrap();
        let who = format!("torc://any/client/{name}/admin").parse().unwrap();
        let signed = authority.unwrap().sign(&request, &who, &[], life).unwrap();
        std::fs::write(self.path("new.pem"), signed).unwrap();
        std::fs::rename(self.path("new.pem"), self.path(&format!("{name}.pem"))).unwrap();
    }

    fn client(&self, nodes: &[Kvd], name: &str) -> Client {
        let file = |name: String| PathBuf::from(self.path(&name));
        let (certificate, key) = (file(format!("{name}.pem")), file(format!("{name}-key.pem")));
        let tls = ClientTls::open(&file("ca.pem".into()), Some((&certificate, &key)));
        let addresses = nodes.iter().map(|node| node.grpc.to_string());
        let builder = Client::builder()
            .endpoints(addresses)
            .deadline(Duration::from_secs(60));
        builder.tls(tls.unwrap()).connect_lazy().unwrap()
    }

    /// Runs `kvctl` with a certificate.
    fn kvctl(&self, node: &Kvd, name: &str, args: &[&str]) -> Output {
        let (ca, certificate) = (self.path("ca.pem"), self.path(&format!("{name}.pem")));
        let key = self.path(&format!("{name}-key.pem"));
        let tls = [
            "--tls-ca",
            &ca,
            "--tls-cert",
            &certificate,
            "--tls-key",
            &key,
        ];
        kvctl(&[node.grpc.to_string()], &[&tls, args].concat())
    }

    /// Runs `kvctl` with a token.
    fn with_token(&self, node: &Kvd, token: &str, args: &[&str]) -> Output {
        let file = self.path("token");
        std::fs::write(&file, format!("{token}\n")).unwrap();
        let ca = self.path("ca.pem");
        let tls = ["--tls-ca", &ca, "--token-file", &file];
        kvctl(&[node.grpc.to_string()], &[&tls, args].concat())
    }

    /// Creates a token as an administrator; standard output has nothing else.
    fn token(&self, node: &Kvd, args: &[&str]) -> String {
        let created = self.kvctl(node, "admin", &[&["token", "create"], args].concat());
        is(&created, 0, "");
        let token = String::from_utf8(created.stdout).unwrap();
        let token = token.strip_suffix('\n').unwrap().to_owned();
        assert_eq!(token.len(), 81, "{token}");
        token
    }

    fn three_nodes(&self, dir: &Path) -> Vec<Kvd> {
        let mut nodes: Vec<Kvd> = (1..=3).map(|n| self.node(dir, n)).collect();
        let others = [nodes[1].grpc, nodes[2].grpc];
        nodes[0].found_with(others);
        nodes.iter_mut().try_for_each(Kvd::start).unwrap();
        nodes
    }

    fn node(&self, dir: &Path, number: usize) -> Kvd {
        let mut node = prepare(dir, &format!("node-{number}"), &["--partitions=64"]);
        for (variable, file) in [
            ("TORC_TLS_CA", "ca.pem"),
            ("TORC_TLS_CERT", "node.pem"),
            ("TORC_TLS_KEY", "node-key.pem"),
        ] {
            node.variable(variable, &self.path(file));
        }
        node
    }
}

/// Waits until the cluster has this many nodes and all of them serve.
async fn all_ready(client: &Client, count: usize) {
    until("all nodes are ready", async || {
        let status = client.with_deadline(Duration::from_secs(2)).status().await;
        let nodes = status.map(|status| status.nodes).unwrap_or_default();
        nodes.len() == count && nodes.iter().all(|node| node.ready)
    })
    .await;
}

fn is(output: &Output, code: i32, says: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    let fits = output.status.code() == Some(code) && said.contains(says);
    assert!(fits, "not {code} with `{says}`: {output:?}");
}

/// A certificate counts on its connections until it ends; then the library connects with the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_certificate_is_replaced_in_time_notices_no_end() {
    const LIFE: Duration = Duration::from_secs(12);
    let dir = tempfile::tempdir().unwrap();
    let office = Arc::new(Office::new(&dir.path().join("office")));
    office.issue("node", &["--node"]);
    let nodes = office.three_nodes(dir.path());
    office.issue_briefly("alice", LIFE);
    let renewing = Arc::clone(&office);
    let renewing = tokio::spawn(async move {
        loop {
            tokio::time::sleep(LIFE / 3).await;
            renewing.issue_briefly("alice", LIFE);
        }
    });
    let client = office.client(&nodes, "alice");
    all_ready(&client, 3).await;
    let traffic = Traffic::start(&client, "t", 200);
    tokio::time::sleep(3 * LIFE).await;
    some_traffic(&traffic).await;
    traffic.stop(&client).await.assert_flawless();
    renewing.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secure_cluster_serves_who_may_and_changes_its_certificates_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let office = Office::new(&dir.path().join("office"));
    office.issue("node", &["--node"]);
    for role in ["admin", "read", "write", "observe"] {
        office.issue(role, &["--client", "alice", "--role", role]);
    }
    let mut nodes = office.three_nodes(dir.path());
    let admin = office.client(&nodes, "admin");
    all_ready(&admin, 3).await;

    // Allowed and denied callers.
    let denied = "for this call";
    is(&office.kvctl(&nodes[0], "write", &["put", "k", "v"]), 0, "");
    is(&office.kvctl(&nodes[1], "read", &["get", "k"]), 0, "");
    is(
        &office.kvctl(&nodes[1], "read", &["put", "k", "w"]),
        6,
        denied,
    );
    is(&office.kvctl(&nodes[1], "write", &["get", "k"]), 6, denied);
    is(&office.kvctl(&nodes[2], "observe", &["status"]), 0, "");
    is(&office.kvctl(&nodes[2], "read", &["status"]), 6, denied);
    let create = ["namespace", "create", "n"];
    is(&office.kvctl(&nodes[2], "observe", &create), 6, denied);
    let endpoint = [nodes[0].grpc.to_string()];
    let ca = office.path("ca.pem");
    let nobody = kvctl(&endpoint, &["--tls-ca", &ca, "get", "k"]);
    is(&nobody, 6, "neither a certificate nor a token");
    is(&kvctl(&endpoint, &["get", "k"]), 3, "--tls-ca");
    let strangers = Office::new(&dir.path().join("strangers"));
    strangers.issue("admin", &["--client", "eve", "--role", "admin"]);
    std::fs::copy(office.path("ca.pem"), strangers.path("ca.pem")).unwrap();
    let eve = strangers.kvctl(&nodes[0], "admin", &["put", "k", "v"]);
    is(&eve, 6, "does not accept the certificate");

    // Another authority takes over: first everyone trusts both.
    let next = Office::new(&dir.path().join("next"));
    next.issue("node", &["--node"]);
    next.issue("bob", &["--client", "bob", "--role", "admin"]);
    let read = |file: String| std::fs::read_to_string(file).unwrap();
    let both = read(office.path("ca.pem")) + &read(next.path("ca.pem"));
    for office in [&office, &next] {
        std::fs::write(office.path("ca.pem"), &both).unwrap();
    }
    let admin = office.client(&nodes, "admin");
    for file in ["bob.pem", "bob-key.pem"] {
        std::fs::copy(next.path(file), office.path(file)).unwrap();
    }
    let bob = office.client(&nodes, "bob");
    all_ready(&bob, 3).await;
    // A node with the next authority's certificate would be cut off from one that does not trust it yet.
    until("every node trusts both", async || {
        let trusts = |node: &Kvd| node.log().contains("use the replaced certificate files");
        nodes.iter().all(trusts)
    })
    .await;
    // Then the nodes get its certificates, without an interruption.
    let traffic = Traffic::start(&admin, "t", 200);
    some_traffic(&traffic).await;
    for file in ["node-key.pem", "node.pem"] {
        std::fs::copy(next.path(file), office.path(file)).unwrap();
    }
    // New connections in all directions.
    for node in &mut nodes {
        some_traffic(&traffic).await;
        assert_eq!(node.terminate().unwrap(), Some(0), "{}", node.log());
        node.start().unwrap();
        all_ready(&bob, 3).await;
    }
    traffic.stop(&admin).await.assert_flawless();
}

/// `writer` may write in every namespace; `scoped` may read `sessions`, and write keys there that
/// begin with `user:`.
fn do_what_they_allow(office: &Office, node: &Kvd, (writer, scoped): (&str, &str), rows: &str) {
    // It does not get the key of the digests, so any node computes them.
    let as_writer = |args: &[&str]| office.with_token(node, writer, args);
    is(&as_writer(&["put", "k", "v"]), 0, "");
    is(&as_writer(&["delete", "gone"]), 0, "");
    is(&as_writer(&["load", rows]), 0, "");
    is(&as_writer(&["get", "k"]), 6, "`loader` has write");
    is(
        &as_writer(&["--namespace", "none-such", "put", "k", "v"]),
        6,
        "there is no namespace",
    );
    is(&as_writer(&["status"]), 6, "this call needs observe");
    is(&as_writer(&["token", "list"]), 6, "this call needs admin");
    let as_scoped = |namespace, args: &[&str]| {
        office.with_token(node, scoped, &[&["--namespace", namespace], args].concat())
    };
    is(&as_scoped("sessions", &["put", "user:1", "v"]), 0, "");
    is(&as_scoped("sessions", &["get", "user:1"]), 0, "");
    is(
        &as_scoped("sessions", &["put", "admin:1", "v"]),
        6,
        "the scopes of the token",
    );
    is(&as_scoped("sessions", &["scan"]), 0, "");
    let other = if scoped.ends_with('0') { '1' } else { '0' };
    let wrong = office.with_token(node, &format!("{}{other}", &scoped[..80]), &["get", "k"]);
    is(&wrong, 6, "is unknown, revoked or expired");
    let plain = kvctl(&[node.grpc.to_string()], &["--token", writer, "get", "k"]);
    is(&plain, 6, "a token needs TLS");
    for hidden in ["urls", "default", "none-such"] {
        is(
            &as_scoped(hidden, &["get", "k"]),
            6,
            "the scopes of the token",
        );
        is(&as_scoped(hidden, &["scan"]), 6, "the scopes of the token");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_do_what_they_allow_at_every_node_until_they_are_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let office = Office::new(&dir.path().join("office"));
    office.issue("node", &["--node"]);
    office.issue("admin", &["--client", "alice", "--role", "admin"]);
    let mut nodes = office.three_nodes(dir.path());
    let admin = office.client(&nodes, "admin");
    all_ready(&admin, 3).await;
    for name in ["sessions", "urls"] {
        is(
            &office.kvctl(&nodes[0], "admin", &["namespace", "create", name]),
            0,
            "",
        );
    }

    let writer = office.token(
        &nodes[1],
        &["loader", "--role", "write", "--expires", "30d"],
    );
    let scopes = [
        "--scope",
        "read:sessions",
        "--scope",
        "write:sessions/user:",
    ];
    let scoped = office.token(&nodes[2], &[&["alice"], &scopes[..]].concat());
    let lines: Vec<String> = (0..50)
        .map(|n| format!("{{\"key\":\"l{n}\",\"value\":\"v\"}}\n"))
        .collect();
    let rows = dir.path().join("rows.ndjson");
    std::fs::write(&rows, lines.concat()).unwrap();
    let rows = rows.display().to_string();
    for node in &nodes {
        do_what_they_allow(&office, node, (&writer, &scoped), &rows);
    }
    assert_eq!(&admin.get("l7").await.unwrap().unwrap().value[..], b"v");
    let shown = office.with_token(&nodes[0], &scoped, &["namespace", "list"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("sessions") && !shown.contains("urls"),
        "{shown}"
    );

    // A client that keeps its connections.
    let ca = PathBuf::from(office.path("ca.pem"));
    let addresses = nodes.iter().map(|node| node.grpc.to_string());
    let builder = Client::builder().endpoints(addresses).token(&writer);
    let builder = builder.tls(ClientTls::open(&ca, None).unwrap());
    let client = builder.connect().await.unwrap();
    for n in 0..100 {
        client.put(format!("c{n}"), "v").await.unwrap();
    }
    let list = office.kvctl(&nodes[0], "admin", &["token", "list", "--output", "json"]);
    let list = String::from_utf8(list.stdout).unwrap();
    let (id, secret) = writer.split_once('.').unwrap();
    assert!(
        list.contains(id) && list.contains("loader") && !list.contains(secret),
        "{list}"
    );
    is(
        &office.kvctl(&nodes[2], "admin", &["token", "revoke", id]),
        0,
        "",
    );
    for n in 0..100 {
        let refused = client.put(format!("c{n}"), "w").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    }
    for node in &nodes {
        is(
            &office.with_token(node, &writer, &["put", "k", "w"]),
            6,
            "revoked",
        );
        let told =
            node.log() + &std::fs::read_to_string(node.data.join("audit/audit.log")).unwrap();
        assert!(told.contains("denied") && !told.contains(secret), "{told}");
    }
    is(
        &office.kvctl(&nodes[0], "admin", &["token", "revoke", id]),
        0,
        "",
    );
    // The same holds after a restart.
    assert_eq!(nodes[1].terminate().unwrap(), Some(0));
    nodes[1].start().unwrap();
    all_ready(&admin, 3).await;
    is(
        &office.with_token(&nodes[1], &writer, &["put", "k", "w"]),
        6,
        "revoked",
    );
    let get = ["--namespace", "sessions", "get", "user:1"];
    is(&office.with_token(&nodes[1], &scoped, &get), 0, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_node_of_the_authority_joins() {
    let dir = tempfile::tempdir().unwrap();
    let office = Office::new(&dir.path().join("office"));
    office.issue("node", &["--node"]);
    office.issue("admin", &["--client", "alice", "--role", "admin"]);
    let mut founder = office.node(dir.path(), 1);
    founder.found_with([]);
    founder.start().unwrap();
    let mut nodes = vec![founder];
    let admin = office.client(&nodes, "admin");
    all_ready(&admin, 1).await;
    admin.put("k", "v").await.unwrap();
    let rotate = office.kvctl(&nodes[0], "admin", &["ca", "rotate"]);
    is(&rotate, 6, "put both authorities into the --tls-ca file");

    let strangers = Office::new(&dir.path().join("strangers"));
    strangers.issue("node", &["--node"]);
    let mut plain = prepare(dir.path(), "plain", &["--partitions=64"]);
    let mut foreign = strangers.node(dir.path(), 2);
    for (stranger, why) in [
        (&mut plain, "does not speak TLS"),
        (&mut foreign, "certificate"),
    ] {
        stranger.start().unwrap();
        until("the stranger listens", async || {
            tokio::net::TcpStream::connect(stranger.grpc).await.is_ok()
        })
        .await;
        let address = stranger.grpc.to_string();
        let join = office.kvctl(&nodes[0], "admin", &["join-node", &address]);
        assert!(!join.status.success(), "{join:?}");
        let said = String::from_utf8_lossy(&join.stderr);
        assert!(said.contains(why), "{said}");
        all_ready(&admin, 1).await;
    }

    let mut fourth = office.node(dir.path(), 4);
    fourth.start().unwrap();
    until("it listens", async || {
        tokio::net::TcpStream::connect(fourth.grpc).await.is_ok()
    })
    .await;
    let address = fourth.grpc.to_string();
    let join = office.kvctl(&nodes[0], "admin", &["join-node", &address]);
    is(&join, 0, "");
    nodes.push(fourth);
    all_ready(&admin, 2).await;
    assert_eq!(&admin.get("k").await.unwrap().unwrap().value[..], b"v");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_ones_own_can_be_pasted() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let (_, text) = readme
        .split_once("#### With certificates of your own\n")
        .unwrap();
    let blocks = blocks_of(text, "sh");
    let [certificates, tokens, ..] = &blocks[..] else {
        panic!("two blocks: {blocks:?}");
    };
    let (issue, use_them) = certificates.split_once("kvd serve ").unwrap();
    let (_, use_them) = use_them.split_once('\n').unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let flags = [
        "--partitions=64",
        "--bootstrap",
        &format!("--tls-cert={}", file("node-1.pem")),
        &format!("--tls-key={}", file("node-1-key.pem")),
        &format!("--tls-ca={}", file("ca/ca.pem")),
    ];
    let mut node = prepare(dir.path(), "node", &flags);
    let address = node.grpc.to_string();
    let issue = issue.replace("db-1.example", "127.0.0.1");
    paste(&issue, dir.path(), &address);
    node.start().unwrap();
    let alice = [
        ["--tls-ca", &file("ca/ca.pem")],
        ["--tls-cert", &file("alice.pem")],
        ["--tls-key", &file("alice-key.pem")],
    ];
    let get = [&alice.concat()[..], &["get", "greeting"]].concat();
    until("the node serves", async || {
        kvctl(std::slice::from_ref(&address), &get).status.code() == Some(1)
    })
    .await;
    paste(use_them, dir.path(), &address);
    let tokens = tokens.replace("revoke ID", "revoke \"$(cut -d. -f1 loader.token)\"");
    paste(&tokens, dir.path(), &address);
}
