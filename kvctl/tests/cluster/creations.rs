//! Namespaces that are created with records which were built outside the cluster, on real processes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::SystemTime;

use torc_client::{Condition, ErrorKind, PutOptions};

use crate::backup::contents;
use crate::processes::{Cluster, metric, until};

const KEYS: u64 = 2_000;

fn ok(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Standard error of a command that was refused.
fn refused(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn key(number: u64) -> String {
    format!("key-{number}")
}

fn value(of: &str, number: u64) -> String {
    format!("{of} {number} ").repeat(40)
}

/// Every tenth value expires in an hour, and `gone` has expired.
fn rows(dir: &Path, of: &str) -> PathBuf {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = u64::try_from(now.unwrap().as_millis()).unwrap();
    let mut text = String::new();
    for number in 0..KEYS {
        let expires = match number % 10 {
            0 => format!(r#","expires_at_ms":{}"#, now + 3_600_000),
            _ => String::new(),
        };
        let (key, value) = (key(number), value(of, number));
        writeln!(text, r#"{{"key":"{key}","value":"{value}"{expires}}}"#).unwrap();
    }
    writeln!(text, r#"{{"key":"gone","value":"x","expires_at_ms":1}}"#).unwrap();
    let path = dir.join(format!("{of}.ndjson"));
    std::fs::write(&path, text).unwrap();
    path
}

fn wanted(of: &str) -> BTreeMap<String, String> {
    (0..KEYS).map(|it| (key(it), value(of, it))).collect()
}

#[track_caller]
fn assert_same(found: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) {
    let differs = |(key, value): &(&String, &String)| found.get(*key) != Some(value);
    let wrong: Vec<_> = wanted.iter().filter(differs).map(|(key, _)| key).collect();
    let more: Vec<_> = found
        .keys()
        .filter(|key| !wanted.contains_key(*key))
        .collect();
    assert!(
        wrong.is_empty() && more.is_empty(),
        "wrong or missing: {wrong:?}; not wanted: {more:?}"
    );
}

fn generations(cluster: &Cluster) -> Vec<serde_json::Value> {
    let listed = ok(&cluster.kvctl(&["--output", "json", "generation", "list"]));
    let lines = listed.lines();
    lines.map(|it| serde_json::from_str(it).unwrap()).collect()
}

/// The command that builds it; the caller adds `--attach` or `--promote`.
fn build<'a>(from: &'a str, out: &'a str) -> Vec<&'a str> {
    vec![
        "build",
        "--from",
        from,
        "--into",
        "urls",
        "--create",
        "linearizable",
        "--out",
        out,
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_appears_with_all_of_its_records_and_is_then_like_any_other() {
    let flags = ["--partitions=64", "--transfer-mib-per-s=1"];
    let mut cluster = Cluster::start_with(3, &flags).await;
    let spare = cluster.spare_with("spare", &flags).await;
    let dir = cluster.dir.path().to_owned();
    let (from, out) = (rows(&dir, "built"), dir.join("built"));
    let (from, out) = (from.to_str().unwrap(), out.to_str().unwrap());
    let client = cluster.client().await.namespace("urls");

    // A node is killed while all of them fetch.
    let attaching = cluster.kvctl_spawned(&[&build(from, out)[..], &["--attach"]].concat());
    until("nodes fetch", async || {
        let attached = generations(&cluster);
        let is_begun = attached.iter().any(|it| it["state"] == "attached");
        is_begun && metric(&cluster.nodes[1], "torc_transfer_received_records_total ").await > 0
    })
    .await;
    cluster.nodes[1].kill_9();
    cluster.nodes[1].start().unwrap();
    ok(&attaching.wait_with_output().unwrap());

    // Nobody can use it, and nothing moves.
    let missing = client.get(key(1)).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NoSuchNamespace);
    let put = client.put(key(1), "early").await.unwrap_err();
    assert_eq!(put.kind(), ErrorKind::NoSuchNamespace);
    assert!(!ok(&cluster.kvctl(&["namespace", "list"])).contains("urls"));
    let number = generations(&cluster)[0]["number"].to_string();
    let said = refused(&cluster.kvctl(&["namespace", "create", "urls"]));
    assert!(said.contains(&format!("generation {number}")), "{said}");
    let endpoint = cluster.nodes[spare].grpc.to_string();
    let join = ["join-node", &endpoint];
    let said = refused(&cluster.kvctl(&join));
    assert!(
        said.contains(&format!("promote generation {number}")),
        "{said}"
    );

    ok(&cluster.kvctl(&["generation", "promote", &number]));
    assert!(generations(&cluster).is_empty(), "it is done");
    assert_same(&contents(&client).await, &wanted("built"));
    assert!(
        client.get("gone").await.unwrap().is_none(),
        "it has expired"
    );

    // Registers like any others, whose first versions are below all others.
    let first = client.get(key(1)).await.unwrap().unwrap().version;
    let absent = PutOptions {
        condition: Some(Condition::IfAbsent),
        ..PutOptions::default()
    };
    let unmet = client.put_with(key(1), "no", absent).await.unwrap_err();
    assert_eq!(unmet.kind(), ErrorKind::ConditionNotMet);
    let second = client.put(key(1), "changed").await.unwrap();
    assert!(second > first, "{second} after {first}");
    let stale = PutOptions {
        condition: Some(Condition::IfVersion(first)),
        ..PutOptions::default()
    };
    let unmet = client.put_with(key(1), "no", stale).await.unwrap_err();
    assert_eq!(unmet.kind(), ErrorKind::ConditionNotMet);
    assert!(client.delete_with(key(2), None).await.unwrap().existed);
    client.put("new", "new").await.unwrap();
    let mut now = wanted("built");
    now.insert(key(1), "changed".into());
    now.insert("new".into(), "new".into());
    now.remove(&key(2));
    assert_same(&contents(&client).await, &now);

    // It moves, and is still there when nodes are lost and start again.
    ok(&cluster.kvctl(&join));
    assert_same(&contents(&client).await, &now);
    cluster.nodes[0].kill_9();
    assert_same(&contents(&client).await, &now);
    cluster.nodes[0].start().unwrap();
    for node in &mut cluster.nodes {
        node.terminate().unwrap();
        node.start().unwrap();
        node.ready().await.unwrap();
    }
    ok(&cluster.kvctl(&["flush"]));
    ok(&cluster.kvctl(&["compact"]));
    assert_eq!(
        contents(&cluster.client().await.namespace("urls")).await,
        now
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creation_that_is_dropped_leaves_nothing_to_the_next_one() {
    let mut cluster = Cluster::start_with(3, &["--partitions=64"]).await;
    let dir = cluster.dir.path().to_owned();
    let (one, two) = (rows(&dir, "one"), rows(&dir, "two"));
    let out = |name: &str| dir.join(format!("built-{name}")).display().to_string();
    let attach = |from: &Path, out: &str, cluster: &Cluster| {
        let from = from.to_str().unwrap();
        ok(&cluster.kvctl(&[&build(from, out)[..], &["--attach"]].concat()));
        generations(cluster)[0]["number"].to_string()
    };
    let first = attach(&one, &out("one"), &cluster);
    ok(&cluster.kvctl(&["generation", "drop", &first]));
    let gone = cluster.kvctl(&["generation", "promote", &first]);
    assert!(refused(&gone).contains("no generation"));
    let second = attach(&two, &out("two"), &cluster);
    // The topology outlives its nodes' processes.
    for node in &mut cluster.nodes {
        node.kill_9();
    }
    for node in &mut cluster.nodes {
        node.start().unwrap();
    }
    for node in &mut cluster.nodes {
        node.ready().await.unwrap();
    }
    ok(&cluster.kvctl(&["generation", "promote", &second]));
    let client = cluster.client().await.namespace("urls");
    assert_same(&contents(&client).await, &wanted("two"));

    // Mistakes change nothing.
    let from = one.to_str().unwrap();
    let other = out("three");
    let again = [&build(from, &other)[..], &["--promote"]].concat();
    let said = refused(&cluster.kvctl(&again));
    assert!(said.contains("urls"), "{said}");
    let ids = [&build(from, &other)[..], &["--shape", "ids"]].concat();
    let said = refused(&cluster.kvctl(&ids));
    assert!(said.contains("--create needs --shape values"), "{said}");
    assert_same(&contents(&client).await, &wanted("two"));
    let expires = async |number| {
        client
            .get(key(number))
            .await
            .unwrap()
            .unwrap()
            .expires_at_ms
    };
    assert!(expires(10).await.is_some());
    assert!(expires(11).await.is_none());
}
