//! A node's reaction to a data directory that lost a part, is an older copy, or is a clone.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{Servers, settings, until, value_of};
use torc_proto::v1::{
    CreateNamespaceRequest, GetRequest, NamespaceMode, PutRequest, StatusRequest,
};
use torc_server::config::RawSettings;
use torc_server::{Node, NodeError};

async fn start(dir: &Path, bootstrap: bool) -> Result<Node, NodeError> {
    let raw = RawSettings {
        bootstrap: Some(bootstrap),
        ..settings(dir.to_owned())
    };
    Node::start(raw.check().unwrap()).await
}

/// The error of a node that does not start.
async fn refused(dir: &Path, bootstrap: bool) -> String {
    let error = start(dir, bootstrap).await.unwrap_err();
    let said = error.to_string();
    assert!(said.contains("kvctl replace-node"), "{said}");
    said
}

/// Every file with its content, except those that opening a store or a database rewrites.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            files.extend(contents(&path));
        } else if !name.starts_with("log-") && name != "meta-log" && name != "LOCK" {
            let is_database = name == "topology.redb";
            let content = if is_database {
                Vec::new()
            } else {
                std::fs::read(&path).unwrap()
            };
            files.push((path, content));
        }
    }
    files.sort();
    files
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_lost_a_part_of_its_data_directory_does_not_start() {
    let mut servers = Servers::start().await;
    servers.nodes.remove(2).stop().await.unwrap();
    let whole = servers.dir.path().join("3");
    // A follower that forgets what it acknowledged breaks the leader's Raft.
    let lost = [
        "topology/topology.redb",
        "topology",
        "store",
        "store/FORMAT",
        "store/meta-incarnation",
        "store/meta-membership",
    ];
    for (number, part) in lost.into_iter().enumerate() {
        let dir = servers.dir.path().join(format!("lost-{number}"));
        copy(&whole, &dir);
        let gone = dir.join(part);
        if gone.is_dir() {
            std::fs::remove_dir_all(&gone).unwrap();
        } else {
            std::fs::remove_file(&gone).unwrap();
        }
        let before = contents(&dir);
        let said = refused(&dir, false).await;
        assert!(said.contains(part), "{part}: {said}");
        assert_eq!(contents(&dir), before, "{part}: nothing was changed");
    }
    let is_ready = |node: &torc_server::Node| node.ready().is_ok();
    assert!(servers.nodes.iter().all(is_ready));
    for node in servers.nodes {
        node.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_founder_without_its_topology_does_not_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path(), true).await.unwrap();
    crate::common::until("it is founded", async || node.ready().is_ok()).await;
    node.stop().await.unwrap();
    std::fs::remove_dir_all(dir.path().join("topology")).unwrap();
    for _ in 0..2 {
        let said = refused(dir.path(), true).await;
        assert!(said.contains("topology.redb is missing"), "{said}");
    }
    assert!(!dir.path().join("topology").exists());
}

#[tokio::test]
async fn parts_of_two_data_directories_do_not_make_one() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    for dir in [&one, &other] {
        let node = start(dir, true).await.unwrap();
        crate::common::until("it is founded", async || node.ready().is_ok()).await;
        node.stop().await.unwrap();
    }
    std::fs::remove_dir_all(one.join("topology")).unwrap();
    copy(&other.join("topology"), &one.join("topology"));
    let said = refused(&one, true).await;
    assert!(said.contains("different data directories"), "{said}");
}

#[tokio::test]
async fn an_older_topology_beside_the_current_store_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, older) = (dir.path().join("node"), dir.path().join("older"));
    for _ in 0..2 {
        let node = start(&whole, true).await.unwrap();
        crate::common::until("its start is confirmed", async || node.ready().is_ok()).await;
        node.stop().await.unwrap();
        // Of the first start only.
        if !older.exists() {
            copy(&whole.join("topology"), &older);
        }
    }
    let current = dir.path().join("current");
    std::fs::rename(whole.join("topology"), &current).unwrap();
    copy(&older, &whole.join("topology"));
    let said = refused(&whole, true).await;
    assert!(said.contains("is older than"), "{said}");
    std::fs::remove_dir_all(whole.join("topology")).unwrap();
    std::fs::rename(&current, whole.join("topology")).unwrap();
    let node = start(&whole, true).await.unwrap();
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_topology_of_before_the_cluster_does_not_start_beside_the_current_store() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, unbound) = (dir.path().join("node"), dir.path().join("unbound"));
    start(&whole, false).await.unwrap().stop().await.unwrap();
    copy(&whole.join("topology"), &unbound);
    let node = start(&whole, true).await.unwrap();
    crate::common::until("its start is confirmed", async || node.ready().is_ok()).await;
    node.stop().await.unwrap();
    std::fs::remove_dir_all(whole.join("topology")).unwrap();
    copy(&unbound, &whole.join("topology"));
    for _ in 0..2 {
        let said = refused(&whole, true).await;
        assert!(said.contains("is older than"), "{said}");
    }
}

/// A node that has forgotten what it has accepted must not vote on it.
#[tokio::test]
async fn a_store_that_has_lost_its_log_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    for starts in 1..3 {
        let node = start(dir.path(), true).await.unwrap();
        crate::common::until("its start is confirmed", async || node.ready().is_ok()).await;
        node.stop().await.unwrap();
        let logs = std::fs::read_dir(&store).unwrap();
        let logs = logs.map(|entry| entry.unwrap().path());
        let is_log = |path: &std::path::PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with("log-")
        };
        let mut logs: Vec<_> = logs.filter(is_log).collect();
        logs.sort();
        // The newest alone, then all of them.
        let lost = if starts == 1 { logs.len() - 1 } else { 0 };
        let lost = &logs[lost..];
        assert!(!lost.is_empty());
        let kept: Vec<_> = lost.iter().map(|log| std::fs::read(log).unwrap()).collect();
        for log in lost {
            std::fs::remove_file(log).unwrap();
        }
        let said = refused(dir.path(), true).await;
        assert!(said.contains("is missing"), "{said}");
        let newest = lost[lost.len() - 1].file_name().unwrap().to_str().unwrap();
        let names_one = lost.iter().any(|log| {
            let name = log.file_name().unwrap().to_str().unwrap();
            said.contains(name)
        });
        assert!(names_one, "{said}, not {newest}");
        for (log, bytes) in lost.iter().zip(kept) {
            std::fs::write(log, bytes).unwrap();
        }
    }
}

/// The error of a running node that has detected that it must stop.
async fn ends(node: Node) -> String {
    let failed = tokio::time::timeout(Duration::from_secs(60), node.failed());
    let said = failed.await.unwrap();
    assert!(node.ready().is_err(), "it is a replica in spite of: {said}");
    node.stop().await.unwrap();
    assert!(said.contains("kvctl replace-node"), "{said}");
    assert!(said.contains("Nothing was changed"), "{said}");
    said
}

/// The error of a copy: it refuses to start if others know of later writes, or stops once others know of a later start.
async fn comes_to_an_end(copy: &Path) -> String {
    match start(copy, false).await {
        Ok(node) => ends(node).await,
        Err(error) => {
            let said = error.to_string();
            assert!(said.contains("kvctl replace-node"), "{said}");
            said
        }
    }
}

async fn put(servers: &Servers, index: usize, key: &str, value: &str) {
    let request = PutRequest {
        key: key.as_bytes().to_vec().into(),
        value: value.as_bytes().to_vec().into(),
        ..PutRequest::default()
    };
    let mut kv = servers.kv(index).await;
    until("the write is acknowledged", async || {
        kv.put(request.clone()).await.is_ok()
    })
    .await;
}

async fn get(servers: &Servers, index: usize, key: &str) -> Option<String> {
    let request = GetRequest {
        key: key.as_bytes().to_vec().into(),
        ..GetRequest::default()
    };
    value_of(&mut servers.kv(index).await, request).await
}

async fn epoch(servers: &Servers, index: usize) -> u64 {
    let local = StatusRequest {
        local: true,
        ..StatusRequest::default()
    };
    let status = servers.cluster(index).await.status(local).await.unwrap();
    status.into_inner().epoch
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_of_a_data_directory_does_not_come_back_however_often_it_is_started() {
    let mut servers = Servers::start().await;
    let original = servers.dir.path().join("3");
    let older = servers.dir.path().join("older");
    put(&servers, 0, "k", "before").await;
    servers.nodes.pop().unwrap().stop().await.unwrap();
    copy(&original, &older);
    for value in ["one", "two"] {
        servers.nodes.push(start(&original, false).await.unwrap());
        servers.formed().await;
        put(&servers, 2, "k", value).await;
        servers.nodes.pop().unwrap().stop().await.unwrap();
    }
    // A service manager restarts it repeatedly: these starts must not count.
    for _ in 0..3 {
        let said = comes_to_an_end(&older).await;
        assert!(said.contains("node 3"), "{said}");
        assert!(said.contains("an older copy"), "{said}");
    }
    assert_eq!(get(&servers, 0, "k").await.as_deref(), Some("two"));
    servers.nodes.push(start(&original, false).await.unwrap());
    servers.formed().await;
    assert_eq!(get(&servers, 2, "k").await.as_deref(), Some("two"));
    put(&servers, 1, "k", "after").await;
    assert_eq!(get(&servers, 2, "k").await.as_deref(), Some("after"));
}

fn addresses_of(node: &Node) -> [SocketAddr; 2] {
    [node.grpc_addr(), node.peer_addr()]
}

/// Starts a node at the addresses where others expect it.
async fn start_at(dir: &Path, [grpc, peer]: [SocketAddr; 2]) -> Node {
    let raw = RawSettings {
        grpc_addr: Some(grpc),
        peer_addr: Some(peer),
        ..settings(dir.to_owned())
    };
    Node::start(raw.check().unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_of_a_voter_gets_no_vote_where_the_others_have_no_quorum_yet() {
    let mut servers = Servers::start().await;
    let dir = |name: &str| servers.dir.path().join(name);
    let (first, original, older) = (dir("1"), dir("3"), dir("older"));
    let addresses: Vec<_> = servers.nodes.iter().map(addresses_of).collect();
    servers.nodes.pop().unwrap().stop().await.unwrap();
    copy(&original, &older);
    servers.nodes.push(start_at(&original, addresses[2]).await);
    servers.formed().await;
    // Applied by node 1 after the start of node 3.
    let before = epoch(&servers, 0).await;
    let logs = CreateNamespaceRequest {
        name: "logs".into(),
        mode: NamespaceMode::Eventual.into(),
        replicas: 0,
    };
    let created = servers.cluster(0).await.create_namespace(logs).await;
    created.unwrap();
    until("node 1 has applied it", async || {
        epoch(&servers, 0).await > before
    })
    .await;
    for node in servers.nodes.drain(..) {
        node.stop().await.unwrap();
    }
    // Together with the copy alone: two of three would elect a leader.
    servers.nodes.push(start_at(&first, addresses[0]).await);
    let said = comes_to_an_end(&older).await;
    assert!(said.contains("node 3"), "{said}");
    assert!(servers.nodes[0].ready().is_err(), "a quorum with the copy");
    servers.nodes.push(start_at(&original, addresses[2]).await);
    servers.formed().await;
    put(&servers, 0, "k", "v").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clone_does_not_start_beside_the_running_node() {
    let mut servers = Servers::start().await;
    put(&servers, 0, "k", "before").await;
    let original = servers.dir.path().join("3");
    let clone = servers.dir.path().join("clone");
    copy(&original, &clone);
    for _ in 0..2 {
        let said = refused(&clone, false).await;
        assert!(said.contains("clone"), "{said}");
        let address = servers.nodes[2].peer_addr().to_string();
        assert!(said.contains(&address), "{said}");
    }
    put(&servers, 2, "k", "after").await;
    assert!(servers.nodes[2].ready().is_ok());
    // From the next start of the original on, the clone is an older copy.
    servers.nodes.pop().unwrap().stop().await.unwrap();
    servers.nodes.push(start(&original, false).await.unwrap());
    servers.formed().await;
    servers.nodes.pop().unwrap().stop().await.unwrap();
    comes_to_an_end(&clone).await;
    assert_eq!(get(&servers, 0, "k").await.as_deref(), Some("after"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_cluster_that_restarts_comes_up() {
    let mut servers = Servers::start().await;
    let addresses: Vec<_> = servers.nodes.iter().map(addresses_of).collect();
    for round in ["one", "two", "three"] {
        put(&servers, 0, "k", round).await;
        for node in servers.nodes.drain(..) {
            node.stop().await.unwrap();
        }
        for (number, address) in (1..=3).zip(&addresses) {
            let dir = servers.dir.path().join(number.to_string());
            servers.nodes.push(start_at(&dir, *address).await);
        }
        servers.formed().await;
        assert_eq!(get(&servers, 1, "k").await.as_deref(), Some(round));
    }
}
