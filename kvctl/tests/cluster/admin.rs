//! Changes of a cluster whose partitions have three replicas: replace, leave, reweight, abort; and
//! namespaces.

use serde_json::Value;

use crate::processes::{Cluster, until};

const SETTINGS: [&str; 2] = ["--replicas=3", "--partitions=64"];
const KEYS: usize = 60;

async fn filled(count: usize) -> Cluster {
    let cluster = Cluster::start_with(count, &SETTINGS).await;
    let client = cluster.client().await;
    for number in 0..KEYS {
        client.put(format!("k{number}"), "v").await.unwrap();
    }
    cluster
}

/// Checks that all keys are present, read by a quorum.
async fn check(cluster: &Cluster) {
    let client = cluster.client().await;
    for number in 0..KEYS {
        let value = client.get(format!("k{number}")).await.unwrap();
        assert_eq!(value.unwrap().value, "v", "k{number}");
    }
}

fn json(cluster: &Cluster, args: &[&str]) -> Value {
    let args = [&["--output", "json", "--timeout", "30s"], args].concat();
    let output = cluster.kvctl(&args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn ids(status: &Value) -> Vec<u64> {
    let nodes = status["nodes"].as_array().unwrap();
    nodes
        .iter()
        .map(|node| node["id"].as_u64().unwrap())
        .collect()
}

fn refused(cluster: &Cluster, args: &[&str], why: &str) {
    let output = cluster.kvctl(args);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(6), "{args:?}: {said}");
    assert!(said.contains(why), "{args:?}: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_are_created_listed_and_apart() {
    let cluster = Cluster::start_with(3, &SETTINGS).await;
    refused(
        &cluster,
        &["--namespace", "urls", "put", "k", "v"],
        "kvctl namespace create urls",
    );
    let created = json(&cluster, &["namespace", "create", "urls"]);
    assert_eq!(
        (&created["id"], &created["replicas"]),
        (&2.into(), &3.into())
    );
    let listed = cluster.kvctl(&["namespace", "list"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.lines().count() == 3 && listed.contains("default"),
        "{listed}"
    );

    let in_urls = |args: &[&str]| cluster.kvctl(&[&["--namespace", "urls"], args].concat());
    assert!(cluster.kvctl(&["put", "k", "default"]).status.success());
    assert_eq!(in_urls(&["get", "k"]).status.code(), Some(1));
    let file = cluster.dir.path().join("urls.ndjson");
    std::fs::write(&file, "{\"key\":\"k\",\"value\":\"urls\"}\n").unwrap();
    let loaded = in_urls(&["load", file.to_str().unwrap()]);
    assert!(loaded.status.success(), "{loaded:?}");
    assert_eq!(in_urls(&["get", "k"]).stdout, b"urls");
    assert_eq!(cluster.kvctl(&["get", "k"]).stdout, b"default");
    let dumped = String::from_utf8(in_urls(&["dump"]).stdout).unwrap();
    assert!(
        dumped.lines().count() == 1 && dumped.contains("urls"),
        "{dumped}"
    );
    let scanned = String::from_utf8(in_urls(&["scan"]).stdout).unwrap();
    assert_eq!(scanned.lines().count(), 1, "{scanned}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_dropped_while_a_node_is_down_which_is_named() {
    let mut cluster = Cluster::start_with(3, &SETTINGS).await;
    json(&cluster, &["namespace", "create", "urls"]);
    let in_urls = |cluster: &Cluster, args: &[&str]| {
        cluster.kvctl(&[&["--namespace", "urls"], args].concat())
    };
    assert!(in_urls(&cluster, &["put", "k", "v"]).status.success());
    let unsure = cluster.kvctl(&["namespace", "drop", "urls"]);
    assert_eq!(unsure.status.code(), Some(2), "{unsure:?}");
    assert_eq!(in_urls(&cluster, &["get", "k"]).stdout, b"v");
    refused(
        &cluster,
        &["namespace", "drop", "default", "--yes"],
        "default",
    );
    refused(&cluster, &["namespace", "drop", "none", "--yes"], "`none`");

    cluster.nodes[2].kill_9();
    let drop = ["--timeout", "4s", "--output", "json", "namespace", "drop"];
    let dropped = cluster.kvctl(&[&drop[..], &["urls", "--yes"]].concat());
    assert!(dropped.status.success(), "{dropped:?}");
    let told: Value = serde_json::from_slice(&dropped.stdout).unwrap();
    assert_eq!(
        told,
        serde_json::json!({"name": "urls", "unconfirmed": [3]})
    );
    let said = String::from_utf8(dropped.stderr).unwrap();
    assert!(said.contains("node 3 does not respond"), "{said}");
    let listed = cluster.kvctl(&["namespace", "list"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("~2 (dropped)"), "{listed}");
    refused(&cluster, &["--namespace", "urls", "get", "k"], "`urls`");

    cluster.nodes[2].start().unwrap();
    until("the node that was down knows", async || {
        let third = [cluster.nodes[2].endpoint()];
        let got = crate::processes::kvctl(&third, &["--namespace", "urls", "get", "k"]);
        got.status.code() == Some(6)
    })
    .await;
    json(&cluster, &["namespace", "create", "urls"]);
    assert_eq!(in_urls(&cluster, &["get", "k"]).status.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_is_replaced_once_it_was_declared_dead() {
    let mut cluster = filled(3).await;
    let spare = cluster.spare_with("spare", &SETTINGS).await;
    let address = cluster.nodes[spare].grpc.to_string();
    cluster.nodes[2].kill_9();
    until("its silence is seen", async || {
        let status = json(&cluster, &["status"]);
        status["under_replicated"] == 64 && status["without_quorum"] == 0
    })
    .await;
    refused(&cluster, &["replace-node", "3", &address], "--dead");
    let leave = cluster.kvctl(&["leave-node", "3", "--dead"]);
    assert_eq!(leave.status.code(), Some(6), "two nodes for three replicas");
    let plan = json(&cluster, &["replace-node", "3", &address, "--plan"]);
    assert_eq!(plan["plan"]["partitions_moved"], 64);
    assert_eq!(ids(&json(&cluster, &["status"])), [1, 2, 3], "only planned");

    let done = json(&cluster, &["replace-node", "3", &address, "--dead"]);
    assert_eq!(
        (&done["state"], &done["plan"]["kind"]),
        (&"done".into(), &"replace".into())
    );
    assert_eq!(done["plan"]["replaced"], 3);
    assert_eq!(done["transition"]["dead"], serde_json::json!([3]));
    let status = json(&cluster, &["status"]);
    assert_eq!(ids(&status), [1, 2, 4]);
    assert_eq!(status["under_replicated"], 0);
    check(&cluster).await;
    let again = ["replace-node", "3", &address, "--dead"];
    refused(&cluster, &again, "no member has the id 3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_living_node_is_replaced_and_its_entry_is_gone() {
    let mut cluster = filled(3).await;
    let spare = cluster.spare_with("spare", &SETTINGS).await;
    let address = cluster.nodes[spare].grpc.to_string();
    let done = json(&cluster, &["replace-node", "1", &address]);
    assert_eq!(done["state"], "done");
    assert_eq!(done["transition"]["dead"], serde_json::json!([]));
    until("everybody knows", async || {
        ids(&json(&cluster, &["status"])) == [2, 3, 4]
    })
    .await;
    check(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fewer_nodes_than_replicas_have_to_be_forced() {
    let cluster = filled(3).await;
    refused(&cluster, &["leave-node", "2"], "join another node first");
    refused(
        &cluster,
        &["leave-node", "2", "--plan"],
        "join another node first",
    );
    let done = json(&cluster, &["leave-node", "2", "--force"]);
    assert_eq!(done["state"], "done");
    let status = json(&cluster, &["status"]);
    assert_eq!(ids(&status), [1, 3]);
    assert_eq!(
        status["under_replicated"], 64,
        "two replicas are fewer than three"
    );
    assert_eq!(status["without_quorum"], 0);
    check(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_another_share() {
    let cluster = filled(4).await;
    let plan = json(&cluster, &["reweight-node", "4", "50", "--plan"]);
    assert_eq!(
        (&plan["state"], &plan["plan"]["kind"]),
        (&"planned".into(), &"reweight".into())
    );
    let share = |outcome: &Value, which: &str| {
        let shares = outcome["plan"]["shares"].as_array().unwrap();
        let mine = shares.iter().find(|share| share["node"] == 4).unwrap();
        mine[which].as_u64().unwrap()
    };
    assert!(share(&plan, "partitions_after") < share(&plan, "partitions_before"));
    let done = json(&cluster, &["reweight-node", "4", "50"]);
    assert_eq!(done["state"], "done");
    let status = json(&cluster, &["status"]);
    let node = &status["nodes"][3];
    assert_eq!(node["weight_percent"], 50);
    assert_eq!(
        node["partitions"].as_u64(),
        Some(share(&plan, "partitions_after"))
    );
    let again = json(&cluster, &["reweight-node", "4", "50"]);
    assert_eq!(again["state"], "nothing_to_do");
    check(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_change_is_taken_back() {
    for settings in [&SETTINGS[..], &["--replicas=1", "--partitions=64"]] {
        let mut cluster = Cluster::start_with(3, settings).await;
        let client = cluster.client().await;
        for number in 0..KEYS {
            client.put(format!("k{number}"), "v").await.unwrap();
        }
        refused(&cluster, &["abort"], "is running");
        let spare = cluster.spare_with("spare", settings).await;
        let address = cluster.nodes[spare].grpc.to_string();
        let before = json(&cluster, &["ring"])["nodes"].clone();
        let one_by_one = ["join-node", &address, "--parallel", "1", "--no-wait"];
        let begun = json(&cluster, &one_by_one);
        assert_eq!(begun["state"], "started");
        until("something has moved", async || {
            let status = json(&cluster, &["status"]);
            status["transition"]["partitions_done"].as_u64() >= Some(2)
        })
        .await;
        let aborted = json(&cluster, &["abort"]);
        assert_eq!(aborted["state"], "done", "{aborted}");
        assert_eq!(aborted["transition"]["id"], begun["transition_id"]);
        assert_eq!(aborted["transition"]["aborted"], true);
        check(&cluster).await;
        let removed = json(&cluster, &["leave-node", "4"]);
        assert_eq!(removed["transition"]["partitions_total"], 0);
        let after = json(&cluster, &["ring"])["nodes"].clone();
        assert_eq!(before, after, "as if nothing had been");
        check(&cluster).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eventual_namespace_is_listed_as_one_and_asks_as_many_replicas_as_wanted() {
    let cluster = Cluster::start_with(3, &SETTINGS).await;
    let create = ["namespace", "create", "logs", "--mode", "eventual"];
    let created = json(&cluster, &create);
    assert_eq!(created["mode"], "eventual", "{created}");
    let listed = cluster.kvctl(&["namespace", "list"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    let line = listed.lines().find(|line| line.starts_with("logs"));
    assert!(
        line.is_some_and(|line| line.contains("eventual")),
        "{listed}"
    );
    refused(&cluster, &["namespace", "create", "logs"], "logs");

    let logs = |args: &[&str]| {
        let args: Vec<_> = ["--namespace", "logs"]
            .iter()
            .chain(args)
            .copied()
            .collect();
        cluster.kvctl(&args)
    };
    for quorum in ["one", "majority", "all"] {
        let put = logs(&["put", "k", quorum, "--quorum", quorum]);
        assert!(put.status.success(), "{put:?}");
    }
    let put = logs(&["put", "plain", "p"]);
    assert!(put.status.success(), "{put:?}");
    for quorum in ["one", "majority", "all"] {
        let got = logs(&["get", "k", "--quorum", quorum]);
        assert_eq!(got.stdout, b"all", "{got:?}");
    }
    let deleted = logs(&["delete", "k", "--quorum", "all"]);
    assert_eq!(deleted.stdout, b"deleted\n", "{deleted:?}");
    assert_eq!(logs(&["get", "k"]).status.code(), Some(1));
    let scanned = logs(&["dump"]);
    let scanned = String::from_utf8(scanned.stdout).unwrap();
    assert!(
        scanned.lines().count() == 1 && scanned.contains("plain"),
        "{scanned}"
    );

    for (args, why) in [
        (
            &["--namespace", "logs", "put", "k", "v", "--if-absent"][..],
            "does not support conditions",
        ),
        (
            &[
                "--namespace",
                "logs",
                "get",
                "k",
                "--consistency",
                "linearizable",
            ],
            "linearizabl",
        ),
        (
            &["put", "k", "v", "--quorum", "one"],
            "only eventual namespaces",
        ),
        (&["get", "k", "--quorum", "one"], "only eventual namespaces"),
        (
            &["delete", "k", "--quorum", "one"],
            "only eventual namespaces",
        ),
    ] {
        refused(&cluster, args, why);
    }
}
