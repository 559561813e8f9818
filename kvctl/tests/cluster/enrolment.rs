//! Secure clusters built from scratch: tokens instead of files.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use torc_client::{Client, ClientTls};

use crate::join::some_traffic;
use crate::processes::{Kvd, Playground, kvctl_path, prepare, prepare_cluster, until};
use crate::traffic::Traffic;

const FLAGS: [&str; 2] = ["--partitions=64", "--replicas=3"];

/// A secure cluster founded by one node, and a user who only uses `kvctl`.
pub(crate) struct Secure {
    pub(crate) nodes: Vec<Kvd>,
    pub(crate) admin: String,
    pub(crate) join: String,
    pub(crate) dir: tempfile::TempDir,
}

impl Secure {
    pub(crate) async fn found(variables: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let flags = [&FLAGS[..], &["--bootstrap", "--secure"]].concat();
        let mut founder = prepare(dir.path(), "node-1", &flags);
        for (name, value) in variables {
            founder.variable(name, value);
        }
        founder.start().unwrap();
        until("the first tokens are printed", async || {
            founder.out().contains("kvctl join-node")
        })
        .await;
        let out = founder.out();
        let (_, join) = out.split_once(" --join ").unwrap();
        Self {
            admin: login_of(&out).1,
            join: join.lines().next().unwrap().to_owned(),
            nodes: vec![founder],
            dir,
        }
    }

    pub(crate) fn secret(&self) -> &str {
        self.admin.split('.').nth(1).unwrap()
    }

    /// A node that is not running yet, with this token.
    pub(crate) fn newcomer(&self, name: &str, token: &str) -> Kvd {
        let flags = [&FLAGS[..], &["--join", token]].concat();
        prepare(self.dir.path(), name, &flags)
    }

    fn kvctl_typing(&self, typed: &str, args: &[&str]) -> Output {
        kvctl_typing(&self.config(), typed, args)
    }

    pub(crate) fn kvctl(&self, args: &[&str]) -> Output {
        self.kvctl_typing("", args)
    }

    /// The output of a command, which must succeed.
    pub(crate) fn told(&self, args: &[&str]) -> String {
        let output = self.kvctl(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("config")
    }

    pub(crate) fn log_in(&self) {
        let address = self.nodes[0].grpc.to_string();
        let output = self.kvctl_typing(&format!("{}\n", self.admin), &["login", &address]);
        assert!(output.status.success(), "{output:?}");
    }

    pub(crate) fn join_token(&self, options: &[&str]) -> String {
        let create = [&["token", "create", "--join"], options].concat();
        self.told(&create).trim().to_owned()
    }

    /// Starts a node with a token, and joins it.
    pub(crate) async fn grow(&mut self, mut node: Kvd) {
        node.start().unwrap();
        listens(&node).await;
        self.told(&["join-node", &node.grpc.to_string()]);
        self.nodes.push(node);
        self.all_ready().await;
    }

    pub(crate) async fn all_ready(&self) {
        until("all nodes are ready", async || {
            let status = self.kvctl(&["--timeout", "5s", "status", "--output", "json"]);
            let status: serde_json::Value =
                serde_json::from_slice(&status.stdout).unwrap_or_default();
            let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
            nodes.len() == self.nodes.len() && nodes.iter().all(|node| node["ready"] == true)
        })
        .await;
    }

    pub(crate) fn client(&self) -> Client {
        let ca = self.nodes[0].data.join("tls/ca.pem");
        let (token, _digest) = self.admin.rsplit_once('.').unwrap();
        let addresses = self.nodes.iter().map(|node| node.grpc.to_string());
        let builder = Client::builder().endpoints(addresses).token(token);
        let builder = builder.deadline(Duration::from_secs(60));
        let tls = ClientTls::open(&ca, None).unwrap();
        builder.tls(tls).connect_lazy().unwrap()
    }
}

/// `kvctl` of a user with a separate configuration and this input.
pub(crate) fn kvctl_typing(config: &Path, typed: &str, args: &[&str]) -> Output {
    let mut child = Command::new(kvctl_path())
        .args(args)
        .env("XDG_CONFIG_HOME", config)
        .env_remove("TORC_ENDPOINTS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Not every command reads its input.
    let _ = child.stdin.take().unwrap().write_all(typed.as_bytes());
    child.wait_with_output().unwrap()
}

/// The address and the token after `kvctl login`, as a user would paste them.
pub(crate) fn login_of(text: &str) -> (String, String) {
    let mut lines = text.lines().map(str::trim);
    let address = lines.find_map(|line| line.strip_prefix("kvctl login "));
    (
        address.unwrap().to_owned(),
        lines.next().unwrap().to_owned(),
    )
}

/// As in `deploy/secure.yml` and `deploy/kubernetes/torc.yaml`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_share_an_authority_found_a_secure_cluster_together() {
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca").display().to_string();
    let config = dir.path().join("config");
    let kvctl = |args: &[&str]| {
        let output = kvctl_typing(&config, "", args);
        assert!(output.status.success(), "{args:?}: {output:?}");
    };
    kvctl(&["ca", "create", &ca]);
    let flags = [&FLAGS[..], &["--secure", "--authority", &ca]].concat();
    let mut nodes = prepare_cluster(dir.path(), 3, &flags);
    let file = |node: &Kvd, name| node.data.join("tls").join(name).display().to_string();
    for node in &mut nodes {
        for (variable, name) in [
            ("TORC_TLS_CA", "ca.pem"),
            ("TORC_TLS_CERT", "node.pem"),
            ("TORC_TLS_KEY", "node-key.pem"),
        ] {
            let file = file(node, name);
            node.variable(variable, &file);
        }
        node.start().unwrap();
    }
    let [ca, certificate, key] =
        ["ca.pem", "node.pem", "node-key.pem"].map(|name| file(&nodes[1], name));
    let endpoint = nodes[1].grpc.to_string();
    let as_node = [
        "--endpoint",
        &endpoint,
        "--tls-ca",
        &ca,
        "--tls-cert",
        &certificate,
        "--tls-key",
        &key,
    ];
    until("the cluster serves", async || {
        let put = [&as_node[..], &["--timeout", "5s", "put", "k", "v"]].concat();
        kvctl_typing(&config, "", &put).status.success()
    })
    .await;
    kvctl(&[&as_node[..], &["token", "create", "me", "--role", "read"]].concat());
    assert!(
        nodes[0].out().is_empty(),
        "no first tokens: {}",
        nodes[0].out()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secure_playground_says_how_to_log_in_and_comes_back_secure() {
    let dir = tempfile::tempdir().unwrap();
    let (data, config) = (dir.path().join("data"), dir.path().join("config"));
    let mut playground = Playground::start_secure(&data).await;
    let (address, token) = login_of(&playground.welcome);
    let kvctl = |typed: &str, args: &[&str]| {
        let output = kvctl_typing(&config, typed, args);
        assert!(output.status.success(), "{args:?}: {output:?}");
    };
    kvctl(&token, &["login", &address]);
    kvctl("", &["put", "greeting", "hello"]);
    assert_eq!(playground.restart(&data).await, Some(0));
    assert!(!playground.welcome.contains("kvctl login"), "once");
    assert!(playground.welcome.contains("https://"));
    kvctl("", &["get", "greeting"]);
}

pub(crate) async fn listens(node: &Kvd) {
    until("the node listens", async || {
        tokio::net::TcpStream::connect(node.grpc).await.is_ok()
            && node.log().contains("not in a cluster yet")
    })
    .await;
}

pub(crate) fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

pub(crate) fn certificate(node: &Kvd) -> String {
    std::fs::read_to_string(node.data.join("tls/node.pem")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secure_cluster_of_three_grows_from_nothing_by_tokens() {
    let mut cluster = Secure::found(&[]).await;
    cluster.log_in();
    assert_eq!(mode(&cluster.config().join("torc/profiles.json")), 0o600);
    cluster.told(&["put", "greeting", "hello"]);

    let second = cluster.newcomer("node-2", &cluster.join);
    cluster.grow(second).await;
    let token = cluster.join_token(&[]);
    let third = cluster.newcomer("node-3", &token);
    cluster.grow(third).await;
    assert_eq!(cluster.told(&["get", "greeting"]).trim(), "hello");
    let list = cluster.told(&["token", "list"]);
    assert_eq!(list.matches("join (1 of 1 used)").count(), 2, "{list}");

    for node in &cluster.nodes {
        let tls = node.data.join("tls");
        assert_eq!(mode(&tls), 0o700);
        for file in ["ca-key.pem", "node-key.pem", "node.pem"] {
            assert_eq!(mode(&tls.join(file)), 0o600, "{file}");
        }
        let told = node.log()
            + &std::fs::read_to_string(node.data.join("audit/audit.log")).unwrap_or_default();
        for secret in [&*cluster.admin, &cluster.join, &token] {
            let secret = secret.split('.').nth(1).unwrap();
            assert!(!told.contains(secret), "{told}");
        }
    }
    let audit = cluster.nodes[0].data.join("audit/audit.log");
    let audit = std::fs::read_to_string(audit).unwrap();
    assert!(audit.contains("Cluster/EnrolNode"), "{audit}");

    // Restarts need only the directory, whatever their flags, and print the tokens only once.
    cluster.nodes[0].set_flags(&["--partitions=64"]);
    for at in 0..3 {
        let before = certificate(&cluster.nodes[at]);
        assert_eq!(cluster.nodes[at].terminate().unwrap(), Some(0));
        cluster.nodes[at].start().unwrap();
        cluster.all_ready().await;
        assert_eq!(certificate(&cluster.nodes[at]), before, "it was not due");
        assert_eq!(cluster.told(&["get", "greeting"]).trim(), "hello");
    }
    assert_eq!(cluster.nodes[0].out().matches("printed once").count(), 1);

    // What kvctl stores, and what it does not need.
    let digest = cluster.admin.rsplit('.').next().unwrap();
    let shown = cluster.told(&["ca", "show"]);
    assert!(shown.contains(digest), "{shown}");
    let profiles = cluster.told(&["profile", "list", "--output", "json"]);
    assert!(
        profiles.contains(digest) && !profiles.contains(cluster.secret()),
        "{profiles}"
    );
    let name = cluster.nodes[0].grpc.to_string();
    cluster.told(&["profile", "use", &name]);
    cluster.told(&["profile", "remove", &name]);
    assert_eq!(
        cluster
            .kvctl(&["--profile", &name, "get", "greeting"])
            .status
            .code(),
        Some(2)
    );
    let other = format!("{}0", &cluster.admin[..cluster.admin.len() - 1]);
    let other = if other == cluster.admin {
        other.replace('0', "1")
    } else {
        other
    };
    let refused = cluster.kvctl_typing(&other, &["login", &name]);
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
    let (bare, _) = cluster.admin.rsplit_once('.').unwrap();
    let unsure = cluster.kvctl_typing(bare, &["login", &name]);
    assert_eq!(unsure.status.code(), Some(2), "{unsure:?}");
    for way in [&["--ca-digest", digest][..], &["--trust-on-first-use"]] {
        let done = cluster.kvctl_typing(bare, &[&["login", &name], way].concat());
        assert!(done.status.success(), "{done:?}");
        assert_eq!(cluster.told(&["get", "greeting"]).trim(), "hello");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_come_is_told_why_and_leaves_nothing_behind() {
    let cluster = Secure::found(&[]).await;
    cluster.log_in();
    let revoked = cluster.join_token(&[]);
    cluster.told(&["token", "revoke", revoked.split('.').next().unwrap()]);
    let expired = cluster.join_token(&["--expires", "1ms"]);
    let fresh = cluster.join_token(&["--uses", "2"]);
    let (start, address) = fresh.split_once('@').unwrap();
    let (bearer, digest) = start.rsplit_once('.').unwrap();
    let (id, secret) = bearer.split_once('.').unwrap();
    let flipped = |text: &str| {
        let last = if text.ends_with('0') { '1' } else { '0' };
        format!("{}{last}", &text[..text.len() - 1])
    };
    let nobody = crate::processes::free_address();
    let admin = format!("{}@{address}", cluster.admin);
    let cases = [
        (
            format!("{id}.{}.{digest}@{address}", flipped(secret)),
            "is not known here or was revoked",
        ),
        (revoked, "is not known here or was revoked"),
        (admin, "is not known here or was revoked"),
        (expired, "has expired"),
        (
            format!("{bearer}.{}@{address}", flipped(digest)),
            "has no certificate of the expected authority",
        ),
        (format!("{start}@{nobody}"), "check the address"),
        ("nonsense".to_owned(), "expected ID.SECRET.DIGEST@HOST:PORT"),
    ];
    for (at, (token, why)) in cases.iter().enumerate() {
        let mut node = cluster.newcomer(&format!("stranger-{at}"), token);
        assert_eq!(node.run_to_end().unwrap(), Some(1), "{why}: {}", node.log());
        let log = node.log();
        assert!(log.contains(why), "not `{why}`: {log}");
        assert!(!node.data.join("tls/ca.pem").exists() && !node.data.join("store").exists());
        if let Some(secret) = token.split('.').nth(1) {
            assert!(!log.contains(secret), "{log}");
        }
    }
    let mut lost = prepare(cluster.dir.path(), "lost", &["--secure"]);
    assert_eq!(lost.run_to_end().unwrap(), Some(1));
    assert!(
        lost.log().contains("has no certificates yet"),
        "{}",
        lost.log()
    );

    // The same token is still valid.
    let mut late = cluster.newcomer("late", &fresh);
    late.start().unwrap();
    listens(&late).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_that_race_with_one_token_one_gets_in_also_after_it_was_killed() {
    let cluster = Secure::found(&[]).await;
    let mut nodes = ["one", "two"].map(|name| cluster.newcomer(name, &cluster.join));
    nodes.iter_mut().try_for_each(Kvd::start).unwrap();
    let is_in = |node: &Kvd| node.data.join("tls/ca.pem").exists();
    let is_out = |node: &Kvd| node.log().contains("was used by 1 other node");
    until("both know", async || {
        nodes.iter().all(|node| is_in(node) || is_out(node))
    })
    .await;
    let [one, two] = &mut nodes;
    let (winner, loser) = if is_in(one) { (one, two) } else { (two, one) };
    assert!(is_in(winner) && !is_in(loser) && is_out(loser));
    listens(winner).await;

    // As if it had been killed after the cluster had admitted it, and before it had stored that.
    winner.kill_9();
    for entry in std::fs::read_dir(&winner.data).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("tls") {
            for file in ["ca.pem", "ca-key.pem", "node.pem"] {
                std::fs::remove_file(path.join(file)).unwrap();
            }
        } else {
            std::fs::remove_dir_all(path).unwrap();
        }
    }
    winner.start().unwrap();
    until("it gets in again", async || is_in(winner)).await;
    loser.kill_9();
    assert_eq!(loser.run_to_end().unwrap(), Some(1), "the other one never");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_renew_their_certificates_under_load_and_nobody_notices() {
    let short = [("TORC_TEST_CERTIFICATE_LIFE_S", "24")];
    let mut cluster = Secure::found(&short).await;
    cluster.log_in();
    let mut token = cluster.join.clone();
    for name in ["node-2", "node-3"] {
        let mut node = cluster.newcomer(name, &token);
        node.variable(short[0].0, short[0].1);
        cluster.grow(node).await;
        token = cluster.join_token(&[]);
    }
    let client = cluster.client();
    let traffic = Traffic::start(&client, "t", 200);
    some_traffic(&traffic).await;
    let first: Vec<String> = cluster.nodes.iter().map(certificate).collect();
    until("all have renewed theirs", async || {
        let mut both = cluster.nodes.iter().zip(&first);
        both.all(|(node, first)| {
            certificate(node) != *first && node.log().contains("use the replaced certificate files")
        })
    })
    .await;
    let second: Vec<String> = cluster.nodes.iter().map(certificate).collect();
    until("and again, when the first ones have ended", async || {
        let mut both = cluster.nodes.iter().zip(&second);
        both.all(|(node, second)| certificate(node) != *second)
    })
    .await;
    // New connections in all directions.
    for at in 0..cluster.nodes.len() {
        some_traffic(&traffic).await;
        assert_eq!(cluster.nodes[at].terminate().unwrap(), Some(0));
        cluster.nodes[at].start().unwrap();
        cluster.all_ready().await;
    }
    traffic.stop(&client).await.assert_flawless();
}
