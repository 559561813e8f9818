//! Merges into a namespace that clients use meanwhile, on real processes: later writes win, whatever
//! is killed and whatever a clock says.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use torc_client::{Client, PutOptions};

use crate::processes::{Cluster, until};

/// Keys of each kind.
const KEYS: usize = 40;
/// Each kind has another past and another expected end.
const KINDS: [(&str, Option<&str>); 8] = [
    ("untouched", Some("merged")),
    ("expired", Some("merged")),
    ("changed", Some("later")),
    ("deleted", None),
    ("short-lived", None),
    ("absent", Some("merged")),
    ("absent-created", Some("later")),
    ("absent-deleted", None),
];

fn ok(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

fn key(kind: &str, number: usize) -> String {
    format!("{kind}-{number}")
}

async fn put(client: &Client, kind: &str, value: &str, ttl: Option<Duration>) {
    let pairs = (0..KEYS).map(|number| {
        let options = PutOptions {
            ttl,
            ..PutOptions::default()
        };
        (key(kind, number), value.to_owned(), options)
    });
    for stored in client.batch_put_with(pairs).await.unwrap() {
        stored.unwrap();
    }
}

async fn delete(client: &Client, kind: &str, existed: bool) {
    for number in 0..KEYS {
        let deleted = client.delete_with(key(kind, number), None).await.unwrap();
        assert_eq!(deleted.existed, existed, "{kind}-{number}");
    }
}

async fn contents(client: &Client) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (kind, _) in KINDS {
        let keys: Vec<String> = (0..KEYS).map(|number| key(kind, number)).collect();
        let found = client.batch_get(keys.clone()).await.unwrap();
        for (key, found) in keys.into_iter().zip(found) {
            if let Some(found) = found.unwrap() {
                let value = String::from_utf8(found.value.to_vec()).unwrap();
                all.insert(key, value);
            }
        }
    }
    all
}

fn rows(cluster: &Cluster) -> PathBuf {
    let mut text = String::new();
    for number in 0..KEYS {
        for (kind, _) in KINDS {
            let key = key(kind, number);
            writeln!(text, r#"{{"key":"{key}","value":"merged"}}"#).unwrap();
        }
    }
    let path = cluster.dir.path().join("rows.ndjson");
    std::fs::write(&path, text).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_after_the_reservation_wins_whatever_is_killed_and_whatever_clocks_say() {
    let mut cluster = Cluster::with_a_clock_off_by("-400").await;
    let client = cluster.client().await;
    for kind in ["untouched", "changed", "deleted", "short-lived"] {
        put(&client, kind, "earlier", None).await;
    }
    let short = Some(Duration::from_millis(1));
    put(&client, "expired", "earlier", short).await;

    let reserved = ok(&cluster.kvctl(&[
        "--output",
        "json",
        "generation",
        "reserve",
        "default",
        "--merge",
    ]));
    let reserved = json(&reserved);
    assert_eq!(reserved["state"], "merging");
    let number = reserved["number"].to_string();

    // Each client has its own topology, that of before the reservation at first.
    put(&client, "changed", "later", None).await;
    put(&client, "absent-created", "later", None).await;
    put(&client, "short-lived", "later", short).await;
    delete(&client, "deleted", true).await;
    delete(&client, "absent-deleted", false).await;

    // The tool is killed, then a node.
    let path = rows(&cluster);
    let file = path.to_str().unwrap();
    let slowly = ["--batch", "1", "--concurrency", "1"];
    let load = ["load", file, "--merge", &number];
    let elsewhere = cluster.kvctl(&[&load[..], &["--namespace", "other"]].concat());
    assert_eq!(elsewhere.status.code(), Some(2), "it is into `default`");
    let mut tool = cluster.kvctl_spawned(&[&load[..], &slowly[..]].concat());
    until("the first rows are merged", async || {
        let found = client.get(key("absent", 2)).await.unwrap();
        found.is_some()
    })
    .await;
    tool.kill().unwrap();
    tool.wait().unwrap();
    cluster.nodes[1].kill_9();
    let loading = {
        let endpoints = cluster.endpoints();
        let (file, number) = (file.to_owned(), number.clone());
        tokio::task::spawn_blocking(move || {
            let args = ["--output", "json", "load", &file, "--merge", &number];
            crate::processes::kvctl(&endpoints, &args)
        })
    };
    cluster.nodes[1].start().unwrap();
    let summary = json(&ok(&loading.await.unwrap()));
    let count = |name: &str| summary[name].as_u64().unwrap();
    let all = (KINDS.len() * KEYS) as u64;
    assert_eq!(count("records") + count("superseded"), all, "{summary}");
    assert!(
        count("superseded") > 5 * KEYS as u64,
        "and what the killed one merged"
    );

    let mut wanted = BTreeMap::new();
    for (kind, value) in KINDS {
        for number in 0..KEYS {
            wanted.extend(value.map(|value| (key(kind, number), value.to_owned())));
        }
    }
    cluster.nodes[1].ready().await.unwrap();
    assert_eq!(contents(&client).await, wanted);

    // A second load changes nothing.
    let again = ok(&cluster.kvctl(&["--output", "json", "load", file, "--merge", &number]));
    let again = json(&again);
    assert_eq!(
        (&again["records"], &again["superseded"]),
        (&0.into(), &all.into())
    );
    let status = ok(&cluster.kvctl(&["status"]));
    let open = format!("merge {number} into `default` is open");
    assert!(status.contains(&open), "{status}");

    // After the merge, deleted keys are collected again.
    let ended = cluster.kvctl(&["generation", "drop", &number]);
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        ended.status.success() && told.contains("ended merge"),
        "{told}"
    );
    let refused = cluster.kvctl(&["load", file, "--merge", &number]);
    assert_eq!(refused.status.code(), Some(2), "it is over");
    until("deleted keys are collected", async || {
        let status = client.status().await.unwrap();
        let nodes = status.nodes.iter();
        nodes.map(|node| node.tombstones).sum::<u64>() == 0
    })
    .await;
    assert_eq!(contents(&client).await, wanted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reservation_waits_for_a_node_that_is_down_and_names_it() {
    let mut cluster = Cluster::start(3).await;
    let create = ["namespace", "create", "recent", "--mode", "eventual"];
    ok(&cluster.kvctl(&create));
    let refused = cluster.kvctl(&["generation", "reserve", "recent", "--merge"]);
    assert_eq!(refused.status.code(), Some(6), "the last writer wins there");
    // A voter that is not the leader, so that the group continues at once.
    let victim = (cluster.topology_leader().await + 1) % 3;
    cluster.nodes[victim].kill_9();
    let client = cluster.client().await;
    let impatient = client.with_deadline(Duration::from_secs(5));
    let merge = impatient.reserve_merge("default").await.unwrap();
    assert_eq!(
        merge.unconfirmed.len(),
        1,
        "it may write in the earlier epoch"
    );
    let status = ok(&cluster.kvctl(&["status"]));
    let line = format!("node {} may not know of it", victim + 1);
    assert!(status.contains(&line), "{status}");
    cluster.nodes[victim].start().unwrap();
    until("all nodes know of it", async || {
        let merges = client.generations(None).await.unwrap();
        merges[0].unconfirmed.is_empty()
    })
    .await;
    client.drop_generation(merge.number).await.unwrap();
    assert!(client.generations(None).await.unwrap().is_empty());
}
