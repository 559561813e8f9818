//! The pages of the book: their commands can be pasted, and failures look as described.

use std::path::Path;

use crate::enrolment::login_of;
use crate::processes::{Cluster, Kvd, Playground, prepare, until};
use crate::tour::{blocks_of, paste};

const SECURE: [&str; 2] = ["--partitions=64", "--replicas=1"];

fn page(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    std::fs::read_to_string(root.join("docs").join(name)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_the_concepts_and_the_sizing_can_be_pasted() {
    let dir = tempfile::tempdir().unwrap();
    let playground = Playground::start(&dir.path().join("playground")).await;
    for name in ["quick-start.md", "concepts.md", "sizing.md"] {
        let blocks = blocks_of(&page(name), "sh");
        assert!(!blocks.is_empty());
        for block in blocks {
            paste(&block, dir.path(), &playground.endpoint());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn growing_can_be_pasted() {
    let dir = tempfile::tempdir().unwrap();
    let playground = Playground::start(&dir.path().join("playground")).await;
    // As many as the playground has.
    let mut spare = prepare(dir.path(), "node-4", &["--partitions=4096"]);
    spare.start().unwrap();
    spare.listens().await.unwrap();
    let shown: Vec<String> = blocks_of(&page("growing.md"), "sh")
        .iter()
        .map(|block| format!("NEW_NODE={}\n{block}", spare.grpc))
        .map(|block| paste(&block, dir.path(), &playground.endpoint()))
        .collect();
    let [plan, joined, left] = &shown[..] else {
        panic!("three blocks: {shown:?}");
    };
    assert!(plan.contains("partitions"), "{plan}");
    assert!(joined.contains(&spare.grpc.to_string()), "{joined}");
    assert!(left.contains("removal of node 4 done"), "{left}");
}

/// Whether a text has these lines, in which `…` matches anything.
fn has_lines(text: &str, lines: &str) -> bool {
    let mut rest = text;
    lines.lines().flat_map(|line| line.split('…')).all(|part| {
        let found = rest.split_once(part);
        rest = found.map_or(rest, |(_, behind)| behind);
        found.is_some()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_look_as_the_book_says() {
    let blocks = blocks_of(&page("failures.md"), "text");
    let [one_dead, two_dead, ..] = &blocks[..] else {
        panic!("two blocks and more: {blocks:?}");
    };
    let mut cluster = Cluster::start(3).await;
    let doctor_says = |cluster: &Cluster, lines: &str| {
        let doctor = cluster.kvctl(&["doctor", "--timeout", "5s"]);
        doctor.status.code() == Some(4)
            && has_lines(&String::from_utf8_lossy(&doctor.stdout), lines)
    };
    assert!(!doctor_says(&cluster, one_dead));
    cluster.nodes[2].kill_9();
    until("the doctor sees that one is dead", async || {
        doctor_says(&cluster, one_dead)
    })
    .await;
    assert!(cluster.kvctl(&["put", "a", "b"]).status.success());
    cluster.nodes[1].kill_9();
    until("the doctor sees that two are dead", async || {
        doctor_says(&cluster, two_dead)
    })
    .await;
    let get = cluster.kvctl(&["get", "a", "--timeout", "2s"]);
    assert_eq!(get.status.code(), Some(3), "{get:?}");
    cluster.nodes[2].start().unwrap();
    until("everything goes on", async || {
        cluster.kvctl(&["get", "a"]).stdout == b"b"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_can_be_pasted() {
    let dir = tempfile::tempdir().unwrap();
    let playground = Playground::start(&dir.path().join("playground")).await;
    let backups = dir.path().join("backups");
    let shown: Vec<String> = blocks_of(&page("backup.md"), "sh")
        .iter()
        .map(|block| format!("BACKUPS=file://{}\n{block}", backups.display()))
        .map(|block| paste(&block, dir.path(), &playground.endpoint()))
        .collect();
    let [_, _, key, restored, _] = &shown[..] else {
        panic!("five blocks: {shown:?}");
    };
    assert!(key.ends_with("hello"), "{key}");
    assert!(restored.contains("hello"), "{restored}");
}

/// A node that founded a secure cluster, and the administrator's token.
async fn found_secure(dir: &Path) -> (Kvd, String) {
    let flags = [&SECURE[..], &["--bootstrap", "--secure"]].concat();
    let mut founder = prepare(dir, "node-1", &flags);
    founder.start().unwrap();
    until("the first tokens are printed", async || {
        founder.out().contains("kvctl join-node")
    })
    .await;
    let (_, admin) = login_of(&founder.out());
    (founder, admin)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secure_cluster_can_be_pasted() {
    let text = page("security.md");
    for told in [
        "--bootstrap --secure ",
        "TORC_JOIN=$(cat join.token) kvd serve ",
    ] {
        assert!(text.contains(told), "{told}");
    }
    let dir = tempfile::tempdir().unwrap();
    let (founder, admin) = found_secure(dir.path()).await;
    let mut other = prepare(dir.path(), "node-2", &SECURE);
    let before = format!(
        "unset TORC_ENDPOINTS; export XDG_CONFIG_HOME=$PWD; NODE={} OTHER={}",
        founder.grpc, other.grpc
    );
    let paste = |block: &str| paste(&format!("{before}\n{block}\n"), dir.path(), "");
    let blocks = blocks_of(&text, "sh");
    let [login, first, token, join, rest @ ..] = &blocks[..] else {
        panic!("more blocks: {blocks:?}");
    };
    // The typed input is in the script itself, after the command that reads it.
    paste(&format!("{login}\n{admin}"));
    paste(first);
    paste(token);
    let join_token = std::fs::read_to_string(dir.path().join("join.token")).unwrap();
    other.variable("TORC_JOIN", join_token.trim());
    other.start().unwrap();
    until("the second node waits to be joined", async || {
        other.log().contains("not in a cluster yet")
    })
    .await;
    paste(join);
    for block in rest {
        paste(block);
    }
}

/// What this machine lacks to build and run a program of the page.
fn lacks(programs: &[&str], libraries: &str) -> Option<String> {
    let path = std::env::var("PATH").unwrap();
    let is_there = |name: &str| std::env::split_paths(&path).any(|dir| dir.join(name).exists());
    let missing = programs.iter().find(|name| !is_there(name));
    let missing = missing.copied();
    let missing = missing.or_else(|| (!Path::new(libraries).exists()).then_some(libraries));
    missing.map(str::to_owned)
}

/// Each program counts ten times on the same key. The one in Go also counts in a secure cluster;
/// Debian's gRPC for Java does not support TLS.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_several_languages_count_on_one_key() {
    let dir = tempfile::tempdir().unwrap();
    let playground = Playground::start(&dir.path().join("playground")).await;
    let (founder, admin) = found_secure(dir.path()).await;
    let (token, _digest) = admin.rsplit_once('.').unwrap();
    let secure = format!(
        "export TORC_ENDPOINTS={} TORC_TOKEN={token} TORC_TLS_CA={}",
        founder.grpc,
        founder.data.join("tls/ca.pem").display()
    );
    let text = page("clients.md");
    let blocks = blocks_of(&text, "sh");
    let [go, java, redis] = &blocks[..] else {
        panic!("three blocks: {blocks:?}");
    };
    let go_lacks = lacks(
        &["go", "protoc"],
        "/usr/share/gocode/src/google.golang.org/grpc",
    );
    let java_lacks = lacks(
        &["java", "javac", "protoc", "grpc_java_plugin"],
        "/usr/share/java/perfmark-api.jar",
    );
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let before = format!(
        "TORC={} RESP_PORT={}; export GOCACHE=$PWD/go-cache",
        root.display(),
        playground.first_resp_port
    );
    let paste = |block: &str| {
        let block = format!("{before}\n{block}\n");
        paste(&block, dir.path(), &playground.endpoint())
    };
    let mut sum = 0;
    for (name, block, lacks) in [("Go", go, go_lacks), ("Java", java, java_lacks)] {
        if let Some(missing) = lacks {
            eprintln!("skipped, the program in {name}: there is no {missing}");
            continue;
        }
        sum += 10;
        assert!(paste(block).ends_with(&format!("{sum}\n")), "{name}");
        if name == "Go" {
            let run = block.lines().last().unwrap();
            let counted = paste(&format!("{secure}\n{run}"));
            assert!(counted.ends_with("10\n"), "{counted}");
        }
    }
    if let Some(missing) = lacks(&["redis-cli"], "/") {
        eprintln!("skipped: there is no {missing}");
    } else {
        sum += 1;
        assert_eq!(paste(redis), format!("{sum}\n"));
    }
    let endpoint = playground.endpoint();
    let arguments = ["--endpoint", &endpoint, "visits", "10"];
    let (counted, _) = torc_testkit::example_output("torc-client", "counter", &arguments, "");
    assert!(counted.ends_with(&format!("{}\n", sum + 10)), "{counted}");
}
