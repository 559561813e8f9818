//! Hot keys and searching scans from the command line.

use std::cell::RefCell;

use torc_client::ErrorKind;

use crate::processes::{Cluster, until, until_or};

#[tokio::test(flavor = "multi_thread")]
async fn hot_keys_are_shown_with_their_shares_and_missing_nodes_are_named() {
    let mut cluster = Cluster::start_with(3, &["--hot-keys-interval-s=1"]).await;
    let client = cluster.client().await;
    client.put("busy", "v").await.unwrap();
    for number in 0..60 {
        client.get("busy").await.unwrap();
        if number % 10 == 0 {
            client.get(format!("calm-{number}")).await.unwrap();
        }
    }
    let json = |cluster: &Cluster, args: &[&str]| -> serde_json::Value {
        let output = cluster.kvctl(&[&["hot-keys", "--output", "json"], args].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    };
    // An operation that the library repeats counts twice.
    let repeats = |count: &serde_json::Value, once: u64| {
        (once..=2 * once).contains(&count.as_u64().unwrap_or_default())
    };
    let seen = RefCell::new(serde_json::Value::Null);
    let counted = async || {
        // On a busy machine a short window ends before all are counted.
        let hot = json(&cluster, &["--window", "24h", "--top", "2"]);
        let counted = repeats(&hot["accesses"], 67);
        seen.replace(hot);
        counted
    };
    until_or("all accesses are counted", counted, || format!("{seen:?}")).await;
    // A later answer may be without a node that was slow.
    let hot = seen.into_inner();
    assert_eq!(hot["keys"].as_array().unwrap().len(), 2);
    assert_eq!(hot["keys"][0]["key"], "busy");
    let busy = &hot["keys"][0]["estimate"];
    assert!(repeats(busy, 61), "{busy}: the put is one of them");
    assert_eq!(hot["majority"]["certain"], true);
    let text = String::from_utf8(cluster.kvctl(&["hot-keys", "--window", "24h"]).stdout).unwrap();
    assert!(text.contains("busy has more than half"), "{text}");
    let dir = tempfile::tempdir().unwrap();
    let drawn = dir.path().join("hot.svg");
    let plotted = cluster.kvctl(&["hot-keys", "--plot", drawn.to_str().unwrap()]);
    assert!(plotted.status.success(), "{plotted:?}");
    let drawn = std::fs::read_to_string(drawn).unwrap();
    assert!(
        drawn.starts_with("<svg ") && drawn.contains(">busy<"),
        "{drawn}"
    );
    let nowhere = cluster.kvctl(&["hot-keys", "--plot", "/nowhere/hot.svg"]);
    assert_eq!(nowhere.status.code(), Some(2), "{nowhere:?}");
    let node = hot["keys"][0]["nodes"][0]["node"].to_string();
    let only = json(&cluster, &["--node", &node]);
    assert_eq!(only["nodes"].as_array().unwrap().len(), 1);
    let code = |args: &[&str]| cluster.kvctl(args).status.code();
    assert_eq!(code(&["hot-keys", "--node", "99"]), Some(6));
    assert_eq!(code(&["hot-keys", "--window", "25h"]), Some(6));
    assert_eq!(code(&["--namespace", "other", "hot-keys"]), Some(6));

    for node in [0, 2] {
        cluster.nodes[node].kill_9();
    }
    let partial = cluster.kvctl(&["hot-keys"]);
    assert!(partial.status.success(), "the others are worth showing");
    let said = String::from_utf8(partial.stderr).unwrap();
    assert!(said.starts_with("without node "), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_prints_what_contains_the_bytes() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    for number in 0..50 {
        let value = format!("value {number} -x{}", number % 5);
        client.put(format!("k{number}"), value).await.unwrap();
    }
    let lines = |args: &[&str]| {
        let output = cluster.kvctl(&[&["scan", "--keys-only"], args].concat());
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    assert_eq!(lines(&["--contains", "-x3"]), 10);
    assert_eq!(lines(&["--contains", "-x3", "--contains", "value 7 "]), 11);
    let found = cluster.kvctl(&[
        "scan",
        "--contains",
        "-x",
        "--contains",
        "e 7 ",
        "--limit",
        "60",
    ]);
    let found = String::from_utf8(found.stdout).unwrap();
    assert!(found.contains("k7\tvalue 7 -x2\t4:1 8:0\n"), "{found}");
    assert_eq!(lines(&["--contains-hex", "2d7833"]), 10);
    assert_eq!(lines(&["--contains", "nowhere"]), 0);
    let long = "x".repeat(65_537);
    let refused = cluster.kvctl(&["scan", "--contains", &long]);
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overlap_of_two_namespaces_is_told_with_its_error_and_of_all_partitions_or_not_at_all()
{
    let settings = ["--partitions=256", "--hot-keys-interval-s=1"];
    let mut cluster = Cluster::start_with(3, &settings).await;
    let client = cluster.client().await;
    let spaces = ["left", "right"].map(|name| client.namespace(name));
    for name in ["left", "right"] {
        let created = cluster.kvctl(&["namespace", "create", name]);
        assert!(created.status.success(), "{created:?}");
    }
    for (space, keys) in spaces.iter().zip([0..2_000, 1_500..3_000]) {
        let records = keys.map(|key: u32| (format!("key-{key}"), "v"));
        for stored in space.batch_put(records).await.unwrap() {
            stored.unwrap();
        }
    }
    spaces[0].delete("key-3").await.unwrap();
    for _ in 0..50 {
        for space in &spaces {
            space.get("key-1700").await.unwrap();
        }
    }
    let overlap = ["namespace", "overlap", "left", "right", "--output", "json"];
    let mut json = serde_json::Value::Null;
    until("all accesses are counted", async || {
        let output = cluster.kvctl(&overlap);
        json = serde_json::from_slice(&output.stdout).unwrap_or_default();
        // The put is one more access. The accesses of other keys may be counted before all of this
        // key's are.
        json["join"]["upper"].as_f64() >= Some(51.0 * 51.0)
    })
    .await;
    assert_eq!(json["a"]["keys"], 1_999, "one was deleted");
    assert_eq!(json["b"]["keys"], 1_500);
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let shared = &json["shared_keys"];
    let off = (number(&shared["estimate"]) - 500.0).abs();
    // Six deviations, because the cluster's hash differs in every run.
    assert!(off <= 2.0 * number(&shared["error"]), "{shared}");
    assert!(number(&shared["error"]) <= 50.0, "{shared}");
    assert_eq!(json["nodes"], 3);
    let text = cluster.kvctl(&overlap[..4]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with("shared keys  "), "{text}");

    let unknown = cluster.kvctl(&["namespace", "overlap", "left", "nowhere"]);
    assert_eq!(unknown.status.code(), Some(6), "{unknown:?}");
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert!(said.contains("`nowhere`"), "{said}");

    cluster.nodes[1].kill_9();
    until("others tell of the dead one's partitions", async || {
        let output = cluster.kvctl(&overlap);
        json = serde_json::from_slice(&output.stdout).unwrap_or_default();
        json["nodes"] == 2 && json["a"]["keys"] == 1_999 && json["b"]["keys"] == 1_500
    })
    .await;
    assert!(
        json["join"].is_null(),
        "accesses were counted there too: {json}"
    );
    for node in [0, 2] {
        cluster.nodes[node].kill_9();
    }
    let partial = cluster.kvctl(&[&overlap[..], &["--timeout", "3s"]].concat());
    assert_eq!(partial.status.code(), Some(3), "{partial:?}");
    assert!(partial.stdout.is_empty(), "no answer in part");
}

/// The lecture's tables, and records without a partner in the join.
#[tokio::test(flavor = "multi_thread")]
async fn the_join_of_two_namespaces_on_a_field_counts_pairs_of_rows() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    for name in ["clubs", "courses"] {
        let created = cluster.kvctl(&["namespace", "create", name]);
        assert!(created.status.success(), "{created:?}");
    }
    let clubs = [
        r#"{"student":1,"club":"A"}"#,
        r#"{"student":1.0,"club":"B"}"#,
        r#"{"student":2,"club":"A"}"#,
        r#"{"student":"1"}"#,
        r#"{"club":"B"}"#,
        "no JSON",
        r#"{"student":null}"#,
    ];
    let courses = [
        r#"{"student":1,"course":"X","grade":100}"#,
        r#"{"student":1,"course":"Y","grade":95}"#,
        r#"{"student":2,"course":"X","grade":90}"#,
        r#"{"student":2,"course":"Y","grade":80}"#,
    ];
    for (name, rows) in [("clubs", &clubs[..]), ("courses", &courses)] {
        for (number, row) in rows.iter().enumerate() {
            let client = client.namespace(name);
            client.put(format!("row-{number}"), *row).await.unwrap();
        }
    }
    let args = [
        "namespace",
        "overlap",
        "clubs",
        "courses",
        "--on",
        "student",
    ];
    let mut json = serde_json::Value::Null;
    // A replica may lack the latest writes.
    until("all rows are read", async || {
        let output = cluster.kvctl(&[&args[..], &["--output", "json"]].concat());
        json = serde_json::from_slice(&output.stdout).unwrap_or_default();
        json["records_read"] == 11
    })
    .await;
    assert_eq!(
        (&json["a"]["rows"], &json["b"]["rows"]),
        (&4.into(), &4.into())
    );
    for reason in ["not_json", "without_field", "not_scalar"] {
        assert_eq!(
            (&json["a"][reason], &json["b"][reason]),
            (&1.into(), &0.into())
        );
    }
    assert_eq!(
        json["size"]["upper"], 6,
        "2 of student 1 by 2, 1 of 2 by 2: {json}"
    );
    assert_eq!(json["size"]["estimate"], 6);
    let text = String::from_utf8(cluster.kvctl(&args).stdout).unwrap();
    assert!(text.starts_with("join on student  6 ± 1 pairs"), "{text}");
    let long = "x".repeat(1_025);
    let refused = cluster.kvctl(&[&args[..5], &[&long]].concat());
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_key_is_read_at_all_its_replicas_and_never_older_than_what_was_acknowledged() {
    let settings = ["--partitions=256", "--hot-keys-interval-s=2"];
    let cluster = Cluster::start_with(3, &settings).await;
    let client = cluster.client().await;
    client.put("busy", "0").await.unwrap();
    until("the client is told", async || {
        for value in client.batch_get(vec!["busy"; 1_000]).await.unwrap() {
            value.unwrap();
        }
        client.hot_gets().hints > 0
    })
    .await;
    for number in 1..=60_u32 {
        // On a busy machine, a write may be in doubt; this one may be repeated.
        while let Err(error) = client.put("busy", number.to_string()).await {
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        }
        let gets = (0..8).map(|_| client.get("busy"));
        for value in futures::future::join_all(gets).await {
            let value = value.unwrap().unwrap().value;
            assert_eq!(value, number.to_string(), "acknowledged before it began");
        }
    }
    let met = client.hot_gets();
    assert!(met.spread > 0 && met.coalesced > 0, "{met:?}");
    until("all nodes have answered gets of it", async || {
        let output = cluster.kvctl(&["hot-keys", "--window", "24h", "--output", "json"]);
        let hot: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let nodes = hot["keys"][0]["nodes"].as_array();
        nodes.is_some_and(|nodes| nodes.len() == 3)
    })
    .await;
}
