//! Processes that are started here end as they should, and errors say what happened to them.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, test_kill_process};
use torc_testkit::{Kvd, Process};

#[test]
fn a_dropped_process_is_gone() {
    let mut process = Process::start(Command::new("sleep").arg("600")).unwrap();
    let pid = Pid::from_child(process.child());
    assert!(test_kill_process(pid).is_ok());
    drop(process);
    assert!(test_kill_process(pid).is_err());
}

#[tokio::test]
async fn a_node_that_ends_is_not_waited_for_and_the_last_setting_wins() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("node");
    let mut node = Kvd::prepare(Path::new("kvd"), dir, &["--zone=a"]).unwrap();
    node.run_by(["sh", "-c", "echo $SETTING $@ >&2; exit 3"]);
    node.variable("SETTING", "of the harness");
    node.variable("SETTING", "of the test");
    node.found_with([node.grpc]);
    node.start().unwrap();
    let why = node.ready().await.unwrap_err().to_string();
    assert!(why.contains("has ended (exit status: 3)"), "{why}");
    assert!(why.contains("\nof the test serve --grpc-addr"), "{why}");
    let flags = format!(" --zone=a --bootstrap --found-with={}", node.grpc);
    assert!(why.ends_with(&flags), "{why}");
}
