//! A new authority replaces that of a secure cluster in steps.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::enrolment::{Secure, kvctl_typing, listens, mode};
use crate::join::some_traffic;
use crate::processes::{Kvd, kvctl_path, until};
use crate::traffic::Traffic;

async fn three() -> Secure {
    let mut cluster = Secure::found(&[]).await;
    cluster.log_in();
    let second = cluster.newcomer("node-2", &cluster.join);
    cluster.grow(second).await;
    let token = cluster.join_token(&[]);
    let third = cluster.newcomer("node-3", &token);
    cluster.grow(third).await;
    cluster
}

/// The rotation according to the last line of `ca show`.
fn rotation(cluster: &Secure) -> Value {
    let shown = cluster.told(&["ca", "show", "--output", "json"]);
    serde_json::from_str(shown.lines().last().unwrap()).unwrap()
}

fn trusted(cluster: &Secure) -> Vec<String> {
    let state = rotation(cluster);
    let digests = state["authorities"].as_array().unwrap().iter();
    digests.map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// A user who trusts the authorities in a file, and has a token.
fn trusting(cluster: &Secure, file: &Path, args: &[&str]) -> Output {
    let (token, _) = cluster.admin.rsplit_once('.').unwrap();
    let address = cluster.nodes[1].grpc.to_string();
    let file = file.display().to_string();
    let global = ["--endpoint", &address, "--tls-ca", &file, "--token", token];
    kvctl_typing(&cluster.config(), "", &[&global[..], args].concat())
}

/// A user with a certificate of the cluster's present authority.
struct Certified {
    certificate: PathBuf,
    key: PathBuf,
}

impl Certified {
    fn issue(cluster: &Secure, name: &str) -> Self {
        let prefix = cluster.dir.path().join(name);
        let tls = cluster.nodes[0].data.join("tls").display().to_string();
        let path = prefix.display().to_string();
        let roles = ["--client", name, "--role", "read,write"];
        cluster.told(&[&["cert", "issue", "--ca", &tls], &roles[..], &[&path]].concat());
        Self {
            certificate: prefix.with_extension("pem"),
            key: cluster.dir.path().join(format!("{name}-key.pem")),
        }
    }

    fn get(&self, cluster: &Secure, authorities: &Path) -> Output {
        let [ca, certificate, key] =
            [authorities, &*self.certificate, &*self.key].map(|it| it.display().to_string());
        let address = cluster.nodes[1].grpc.to_string();
        let global = [
            "--endpoint",
            &address,
            "--tls-ca",
            &ca,
            "--tls-cert",
            &certificate,
        ];
        let get = ["--tls-key", &key, "--timeout", "5s", "get", "greeting"];
        kvctl_typing(&cluster.config(), "", &[&global[..], &get].concat())
    }
}

fn keys(node: &Kvd) -> String {
    std::fs::read_to_string(node.data.join("tls/ca-key.pem")).unwrap()
}

/// The secret parts of keys, line by line.
fn secrets(keys: &str) -> Vec<&str> {
    keys.lines().filter(|line| !line.starts_with('-')).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_authority_of_a_cluster_is_rotated_under_load_and_nothing_fails() {
    let mut cluster = three().await;
    cluster.told(&["put", "greeting", "hello"]);
    let dir = cluster.dir.path().to_owned();
    let old_only = dir.join("old.pem");
    std::fs::copy(cluster.nodes[0].data.join("tls/ca.pem"), &old_only).unwrap();
    let left_behind = dir.join("left-behind");
    std::fs::create_dir_all(left_behind.join("torc")).unwrap();
    let profiles = cluster.config().join("torc/profiles.json");
    std::fs::copy(profiles, left_behind.join("torc/profiles.json")).unwrap();
    let alice = Certified::issue(&cluster, "alice");
    let (early, unused) = (cluster.join_token(&[]), cluster.join_token(&[]));
    let old = trusted(&cluster);
    assert_eq!(
        (old.len(), &rotation(&cluster)["step"]),
        (1, &"finished".into())
    );
    let client = cluster.client();
    let traffic = Traffic::start(&client, "t", 200);
    some_traffic(&traffic).await;

    let text = cluster.told(&["ca", "rotate"]);
    assert!(text.contains("step 1 of 3"), "{text}");
    let both = trusted(&cluster);
    assert_eq!((both.len(), &both[0]), (2, &old[0]), "the old one issues");
    let shared = keys(&cluster.nodes[0]);
    for node in &cluster.nodes {
        assert_eq!(keys(node), shared, "every node has both keys");
        assert_eq!(mode(&node.data.join("tls/ca-key.pem")), 0o600);
    }
    some_traffic(&traffic).await;

    let text = cluster.told(&["ca", "rotate", "--issue"]);
    assert!(text.contains("step 2 of 3"), "{text}");
    assert_eq!(trusted(&cluster), [&*both[1], &*both[0]]);
    let get = ["get", "greeting"];
    let done = trusting(&cluster, &old_only, &get);
    assert!(
        done.status.success(),
        "the old one vouches for the new: {done:?}"
    );
    let bundle = dir.join("both.pem");
    std::fs::write(&bundle, cluster.told(&["ca", "show", "--pem"])).unwrap();
    let bob = Certified::issue(&cluster, "bob");
    for (who, authorities) in [(&alice, &bundle), (&alice, &old_only), (&bob, &bundle)] {
        let done = who.get(&cluster, authorities);
        assert!(done.status.success(), "{done:?}");
    }
    // Its token has the digest of the old authority.
    let newcomer = cluster.newcomer("node-4", &early);
    cluster.grow(newcomer).await;
    some_traffic(&traffic).await;

    // Waits until the newcomer has also completed the step.
    cluster.told(&["ca", "rotate", "--issue"]);
    cluster.told(&["ca", "rotate", "--finish"]);
    assert_eq!(trusted(&cluster), [&*both[1]]);
    // New connections in all directions.
    for at in 0..cluster.nodes.len() {
        some_traffic(&traffic).await;
        assert_eq!(cluster.nodes[at].terminate().unwrap(), Some(0));
        cluster.nodes[at].start().unwrap();
        cluster.all_ready().await;
    }
    let new_only = dir.join("new.pem");
    std::fs::write(&new_only, cluster.told(&["ca", "show", "--pem"])).unwrap();
    let refused = trusting(
        &cluster,
        &old_only,
        &[&["--timeout", "3s"], &get[..]].concat(),
    );
    assert!(!refused.status.success(), "{refused:?}");
    for file in [&new_only, &bundle] {
        let done = trusting(&cluster, file, &get);
        assert!(done.status.success(), "{done:?}");
    }
    let refused = alice.get(&cluster, &new_only);
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
    let done = bob.get(&cluster, &new_only);
    assert!(done.status.success(), "{done:?}");
    let stale = kvctl_typing(&left_behind, "", &["--timeout", "3s", "get", "greeting"]);
    assert!(!stale.status.success(), "{stale:?}");
    assert_eq!(
        cluster.told(&get).trim(),
        "hello",
        "this profile has learned"
    );

    let mut late = cluster.newcomer("late", &unused);
    assert_eq!(late.run_to_end().unwrap(), Some(1), "{}", late.log());
    assert!(late.log().contains("token or digest"), "{}", late.log());
    let token = cluster.join_token(&[]);
    assert!(token.contains(&both[1]));
    let newcomer = cluster.newcomer("node-5", &token);
    cluster.grow(newcomer).await;
    traffic.stop(&client).await.assert_flawless();

    assert_told_of(&cluster, &shared);
}

/// Checks the log lines about a completed rotation: they contain no keys, and one key is gone.
fn assert_told_of(cluster: &Secure, shared: &str) {
    let mut audit = String::new();
    for node in &cluster.nodes {
        assert_eq!(
            keys(node).matches("BEGIN").count(),
            1,
            "the old key is gone"
        );
        let log = std::fs::read_to_string(node.data.join("audit/audit.log"));
        audit += &log.unwrap_or_default();
        audit += &node.log();
    }
    for said in ["Cluster/RotateAuthority", "sent the key of an authority"] {
        assert!(audit.contains(said), "{audit}");
    }
    for secret in secrets(shared) {
        assert!(!audit.contains(secret), "{audit}");
    }
}

fn rotate(cluster: &Secure, args: &[&str]) -> Output {
    cluster.kvctl(&[&["ca", "rotate"], args].concat())
}

/// Several operators at the same time.
fn at_once(cluster: &Secure, args: &[&str]) -> Vec<Output> {
    let operators: Vec<_> = (0..2)
        .map(|_| {
            let mut command = Command::new(kvctl_path());
            command.args(["ca", "rotate"]).args(args);
            command.env("XDG_CONFIG_HOME", cluster.config());
            command.env_remove("TORC_ENDPOINTS");
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let outputs = operators.into_iter().map(Child::wait_with_output);
    outputs.map(Result::unwrap).collect()
}

fn assert_waits_for(output: &Output, node: &Value) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    assert!(said.contains(&format!("these nodes: {node};")), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_waits_for_nodes_that_were_killed_and_goes_on_when_they_are_back() {
    let mut cluster = three().await;
    cluster.told(&["put", "greeting", "hello"]);
    let node_of = |cluster: &Secure, at: usize| {
        let state = rotation(cluster);
        let address = cluster.nodes[at].grpc.to_string();
        let nodes = state["nodes"].as_array().unwrap().clone();
        let node = nodes.into_iter().find(|it| it["address"] == *address);
        node.unwrap()
    };
    let reader = cluster.told(&["token", "create", "reader", "--role", "read,write,observe"]);
    let denied = rotate(
        &cluster,
        &[
            "--token",
            reader.trim(),
            "--profile",
            &cluster.nodes[0].grpc.to_string(),
        ],
    );
    assert_eq!(denied.status.code(), Some(6), "{denied:?}");
    assert_eq!(rotation(&cluster)["rotation"], 0);
    assert_eq!(
        rotate(&cluster, &["--issue"]).status.code(),
        Some(6),
        "none"
    );

    cluster.nodes[2].kill_9();
    assert!(rotate(&cluster, &["--no-wait"]).status.success());
    until("two nodes trust both", async || {
        (0..2).all(|at| node_of(&cluster, at)["done"] == true)
    })
    .await;
    let third = node_of(&cluster, 2);
    assert!(
        third["done"] == false && third["problem"].is_string(),
        "{third}"
    );
    assert_waits_for(&rotate(&cluster, &["--issue"]), &third["node"]);
    cluster.nodes[2].start().unwrap();
    cluster.told(&["ca", "rotate"]);
    let state = rotation(&cluster);
    assert_eq!(
        (&state["rotation"], &state["step"]),
        (&1.into(), &"trust".into())
    );

    cluster.nodes[1].kill_9();
    let second = node_of(&cluster, 1);
    assert_eq!(second["done"], true, "what it did is on its disk");
    assert_waits_for(&rotate(&cluster, &["--issue"]), &second["node"]);
    cluster.nodes[1].start().unwrap();
    cluster.all_ready().await;
    assert!(rotate(&cluster, &["--issue", "--no-wait"]).status.success());
    // In the middle of the rotation.
    cluster.nodes[1].kill_9();
    assert_waits_for(&rotate(&cluster, &["--finish"]), &second["node"]);
    assert_eq!(
        rotate(&cluster, &["--abort"]).status.code(),
        Some(6),
        "too late"
    );
    cluster.nodes[1].start().unwrap();
    cluster.told(&["ca", "rotate", "--issue"]);
    for done in at_once(&cluster, &["--finish"]) {
        assert!(done.status.success(), "{done:?}");
    }
    for at in 0..3 {
        cluster.nodes[at].kill_9();
        cluster.nodes[at].start().unwrap();
    }
    cluster.all_ready().await;
    assert_eq!(cluster.told(&["get", "greeting"]).trim(), "hello");

    // Two operators start another rotation, then undo it.
    let before = trusted(&cluster);
    for done in at_once(&cluster, &[]) {
        assert!(done.status.success(), "{done:?}");
    }
    let state = rotation(&cluster);
    assert_eq!(
        (&state["rotation"], trusted(&cluster).len()),
        (&2.into(), 2)
    );
    cluster.told(&["ca", "rotate", "--abort"]);
    assert_eq!(trusted(&cluster), before);
    for node in &cluster.nodes {
        assert_eq!(keys(node).matches("BEGIN").count(), 1);
    }
    let mut idle = cluster.newcomer("idle", &cluster.join_token(&[]));
    idle.start().unwrap();
    listens(&idle).await;
}
