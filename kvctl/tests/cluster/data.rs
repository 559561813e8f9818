//! A whole data set through the cluster: a dump equals the data that was loaded.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Child;
use std::sync::mpsc;

use crate::processes::{Cluster, until};

/// Records of the data set; the full million needs a release build and some minutes.
fn count() -> String {
    std::env::var("TORC_TEST_RECORDS").unwrap_or_else(|_| "20000".to_owned())
}

fn sorted(ndjson: &[u8]) -> BTreeMap<String, String> {
    let text = std::str::from_utf8(ndjson).unwrap();
    let record = |line: &str| {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        (
            json["key"].as_str().unwrap().to_owned(),
            json["value"].to_string(),
        )
    };
    text.lines().map(record).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_equals_the_load_before_and_after_a_join_and_kill_9_of_every_node() {
    let mut cluster = Cluster::start(3).await;
    let generated = cluster.kvctl(&["generate-urls", "--count", &count()]);
    assert!(generated.status.success(), "{generated:?}");
    let file: PathBuf = cluster.dir.path().join("urls.ndjson");
    std::fs::write(&file, &generated.stdout).unwrap();
    let loaded = sorted(&generated.stdout);

    let load = cluster.kvctl(&["load", file.to_str().unwrap()]);
    assert!(load.status.success(), "{load:?}");
    let dumped = |cluster: &Cluster| sorted(&cluster.kvctl(&["dump"]).stdout);
    assert!(dumped(&cluster) == loaded, "before the join");

    let spare = cluster.spare("node-4").await;
    let address = cluster.nodes[spare].grpc.to_string();
    let joined = cluster.kvctl(&["join-node", &address]);
    assert!(joined.status.success(), "{joined:?}");
    assert!(dumped(&cluster) == loaded, "after the join");

    for victim in 0..cluster.nodes.len() {
        cluster.nodes[victim].kill_9();
        cluster.nodes[victim].start().unwrap();
        cluster.nodes[victim].ready().await.unwrap();
        assert!(
            dumped(&cluster) == loaded,
            "after kill -9 of node {}",
            victim + 1
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_stops_at_a_row_that_it_cannot_read_or_sets_it_aside() {
    let cluster = Cluster::start(1).await;
    let in_dir = |name: &str| cluster.dir.path().join(name).to_str().unwrap().to_owned();
    let (file, bad) = (in_dir("rows.csv"), in_dir("bad.csv"));
    let row = |row| format!("k{row},{}v{row}\n", if row == 499 { "\"" } else { "" });
    let rows: String = (0..1_000).map(row).collect();
    std::fs::write(&file, format!("key,value\n{rows}")).unwrap();
    let value_of = |key: &str| cluster.kvctl(&["get", key]).stdout;

    let stopped = cluster.kvctl(&["load", &file]);
    assert_eq!(stopped.status.code(), Some(2), "{stopped:?}");
    let said = String::from_utf8(stopped.stderr).unwrap();
    assert!(
        said.contains("rows.csv: line 501: the quote that opens here is never closed"),
        "{said}"
    );
    assert!(said.contains("stored 499 records"), "{said}");
    assert!(said.contains("--from-line 501"), "{said}");
    assert_eq!(value_of("k498"), b"v498");
    assert_eq!(value_of("k499"), b"", "the bad row is not stored");
    assert_eq!(value_of("k500"), b"", "nothing behind it is stored");

    let went_on = cluster.kvctl(&["load", &file, "--from-line", "501", "--skip-bad", &bad]);
    assert!(went_on.status.success(), "{went_on:?}");
    let said = String::from_utf8(went_on.stdout).unwrap();
    assert!(said.starts_with("stored 500 records"), "{said}");
    assert!(said.contains("skipped 1 bad row: see"), "{said}");
    assert_eq!(value_of("k499"), b"");
    assert_eq!(value_of("k999"), b"v999");
    let bad = std::fs::read_to_string(bad).unwrap();
    assert_eq!(bad.lines().nth(1), Some("k499,\"v499"), "{bad}");
}

/// Writes the rows of a load as fast as they are read, but the last row only after the other end
/// was dropped.
fn type_rows(mut into: impl std::io::Write + Send + 'static, until_dropped: mpsc::Receiver<()>) {
    std::thread::spawn(move || {
        for row in 0..ROWS {
            if row + 1 == ROWS {
                let _ = until_dropped.recv();
            }
            // A load that has ended no longer reads.
            if writeln!(into, "{{\"key\":\"k{row}\",\"value\":\"v{row}\"}}").is_err() {
                return;
            }
        }
    });
}

/// A `kvctl load` that has stored some of its rows, and cannot end before the sender is dropped.
async fn load_under_way(cluster: &Cluster, args: &[&str]) -> (Child, mpsc::Sender<()>) {
    let mut load = cluster.kvctl_spawned(&[&["load", "-", "--format", "ndjson"], args].concat());
    let (end, until_end) = mpsc::channel();
    type_rows(load.stdin.take().unwrap(), until_end);
    let client = cluster.client().await;
    until("some rows are stored", async || {
        matches!(client.get("k1000").await, Ok(Some(_)))
    })
    .await;
    (load, end)
}

const ROWS: usize = 20_000;

fn assert_all_there(cluster: &Cluster) {
    let there = sorted(&cluster.kvctl(&["dump"]).stdout);
    assert_eq!(there.len(), ROWS);
    for row in 0..ROWS {
        assert_eq!(there[&format!("k{row}")], format!("\"v{row}\""));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_goes_on_by_itself_when_a_node_dies_in_the_middle() {
    let mut cluster = Cluster::start(3).await;
    let (load, end) = load_under_way(&cluster, &["--timeout", "5s", "--output", "json"]).await;
    cluster.nodes[1].kill_9();
    drop(end);
    let load = load.wait_with_output().unwrap();
    assert!(load.status.success(), "{load:?}");
    let said: serde_json::Value = serde_json::from_slice(&load.stdout).unwrap();
    assert_eq!(said["records"], ROWS);
    assert_eq!(said["unknown"], 0);
    assert_all_there(&cluster);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_whose_quorum_is_gone_ends_and_what_it_says_completes_it() {
    let mut cluster = Cluster::start(3).await;
    let brief = ["--timeout", "3s", "--retry-for", "6s", "--output", "json"];
    let (load, end) = load_under_way(&cluster, &brief).await;
    cluster.nodes[1].kill_9();
    cluster.nodes[2].kill_9();
    drop(end);
    let load = load.wait_with_output().unwrap();
    assert!(matches!(load.status.code(), Some(3 | 5)), "{load:?}");
    let said: serde_json::Value = serde_json::from_slice(&load.stdout).unwrap();
    let line = said["resume_line"].to_string();
    let error = String::from_utf8(load.stderr).unwrap();
    assert!(error.contains("; retrying"), "{error}");
    assert!(error.contains(&format!("--from-line {line}")), "{error}");

    for node in [1, 2] {
        cluster.nodes[node].start().unwrap();
        cluster.nodes[node].ready().await.unwrap();
    }
    let mut rest =
        cluster.kvctl_spawned(&["load", "-", "--format", "ndjson", "--from-line", &line]);
    type_rows(rest.stdin.take().unwrap(), mpsc::channel().1);
    let rest = rest.wait_with_output().unwrap();
    assert!(rest.status.success(), "{rest:?}");
    assert_all_there(&cluster);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_that_is_loaded_expires_when_the_original_does() {
    let cluster = Cluster::start(1).await;
    let ok = |args: &[&str]| {
        let done = cluster.kvctl(args);
        assert!(done.status.success(), "{done:?}");
        done.stdout
    };
    ok(&["put", "short", "v", "--ttl", "1h"]);
    ok(&["put", "long", "v"]);
    ok(&["namespace", "create", "copy"]);
    ok(&["--namespace", "copy", "put", "gone", "earlier"]);
    let dumped = ok(&["dump"]);
    assert!(String::from_utf8_lossy(&dumped).contains("expires_at_ms"));
    let file = cluster.dir.path().join("rows.ndjson");
    let gone = br#"{"key":"gone","value":"v","expires_at_ms":1}"#;
    std::fs::write(&file, [&dumped[..], gone].concat()).unwrap();
    let file = file.to_str().unwrap();
    let loaded = ok(&["--namespace", "copy", "--output", "json", "load", file]);
    let loaded: serde_json::Value = serde_json::from_slice(&loaded).unwrap();
    assert_eq!(
        (&loaded["records"], &loaded["expired"]),
        (&2.into(), &1.into())
    );
    let lines = |bytes: &[u8]| {
        let mut lines: Vec<_> = bytes.split(|it| *it == b'\n').map(<[u8]>::to_vec).collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(&ok(&["--namespace", "copy", "dump"])), lines(&dumped));
}
