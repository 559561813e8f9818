//! A client that shares no code with Torc: handwritten HTTP/2, gRPC and protobuf in Python, unary
//! calls to random nodes. Its observations are linearizable, even while nodes are killed.
//!
//! `TORC_FOREIGN_OPERATIONS` sets the number of operations, 1,500 by default. Without `python3`,
//! the test is skipped with a message.
#![allow(clippy::cast_possible_truncation, reason = "tests count small numbers")]
#![cfg(feature = "cluster")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value as Json;
use torc_sim::check::{Verdict, check, check_by_configurations};
use torc_sim::history::{KeyHistory, Kind, Operation, Seen};
use torc_testkit::Kvd;

/// A node is killed and restarted after this many reported operations.
const KILL_EVERY: usize = 300;

#[expect(
    clippy::disallowed_methods,
    reason = "a test may be told how long to run"
)]
fn operations() -> u64 {
    let told = std::env::var("TORC_FOREIGN_OPERATIONS").ok();
    told.and_then(|text| text.parse().ok()).unwrap_or(1_500)
}

fn number(told: &Json, name: &str) -> u64 {
    told[name].as_u64().unwrap()
}

fn operation(told: &Json) -> Operation {
    let value = number(told, "value") as u32;
    let kind = match told["kind"].as_str().unwrap() {
        "get" => Kind::Get,
        "put" => Kind::Put(value),
        "put_if_absent" => Kind::PutIfAbsent(value),
        "cas" => Kind::Cas(number(told, "expected") as u32, value),
        _ => Kind::Erase,
    };
    let is_unknown = told["outcome"] == "unknown";
    Operation {
        kind,
        seen: match kind {
            _ if is_unknown => Seen::Unknown,
            Kind::Get => Seen::Value(number(told, "found") as u32),
            _ => Seen::Done,
        },
        call: number(told, "call"),
        ret: if is_unknown {
            u64::MAX
        } else {
            number(told, "ret")
        },
        ret_ms: 0,
    }
}

#[test]
fn a_foreign_client_sees_linearizable_histories_while_nodes_are_killed() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let kvd = torc_testkit::program("kvd").unwrap();
    let mut nodes = Kvd::cluster(&kvd, dir.path(), 3, &["--partitions=64"]).unwrap();
    nodes.iter_mut().try_for_each(Kvd::start).unwrap();
    let mut client = Command::new("python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign.py"))
        .args(["1", &operations().to_string()])
        .args(nodes.iter().map(|node| node.grpc.to_string()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = BTreeMap::<String, KeyHistory>::new();
    let mut answered = 0;
    let told = BufReader::new(client.stdout.take().unwrap()).lines();
    for (place, line) in told.enumerate() {
        let told: Json = serde_json::from_str(&line.unwrap()).unwrap();
        let operation = operation(&told);
        answered += usize::from(operation.seen != Seen::Unknown);
        let key = told["key"].as_str().unwrap();
        let history = keys.entry(key.to_owned()).or_default();
        history.operations.push(operation);
        let node = &mut nodes[1 + place / KILL_EVERY % 2];
        match place % KILL_EVERY {
            150 => node.kill_9(),
            200 => node.start().unwrap(),
            _ => {}
        }
    }
    assert!(client.wait().unwrap().success());
    assert!(answered > keys.len(), "{answered} operations were answered");
    for (key, history) in &mut keys {
        history.operations.sort_by_key(|operation| operation.call);
        for verdict in [check(history), check_by_configurations(history)] {
            assert_ne!(verdict, Verdict::Violation, "{key}: {history:?}");
        }
    }
}
