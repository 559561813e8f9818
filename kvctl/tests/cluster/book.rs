//! The pages of the book: their commands can be pasted, and failures look as they say.

use std::path::Path;

use crate::processes::{Cluster, Node, Playground, until};
use crate::tour::{blocks_of, paste};

fn page(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    std::fs::read_to_string(root.join("docs").join(name)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_and_the_sizing_can_be_pasted() {
    let dir = tempfile::tempdir().unwrap();
    let playground = Playground::start(&dir.path().join("playground")).await;
    for name in ["quick-start.md", "sizing.md"] {
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
    let mut spare = Node::prepare(dir.path(), "node-4", &[]);
    spare.start();
    until("the fourth node listens", async || {
        tokio::net::TcpStream::connect(spare.grpc).await.is_ok()
    })
    .await;
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
    assert!(left.contains("leave of node 4 done"), "{left}");
}

/// Whether a text has these lines, where `…` stands for anything.
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
    let [one_dead, two_dead] = &blocks[..] else {
        panic!("two blocks: {blocks:?}");
    };
    let mut cluster = Cluster::start_with(3, &["--replicas=3"]).await;
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
    cluster.nodes[2].start();
    until("everything goes on", async || {
        cluster.kvctl(&["get", "a"]).stdout == b"b"
    })
    .await;
}
