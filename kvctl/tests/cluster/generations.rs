//! Static namespaces on real processes: generations are built, attached, promoted and rolled back,
//! while clients read, and nodes are killed and join.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::StreamExt as _;
use tokio::task::JoinSet;
use torc_client::{Client, Generation};
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::{BatchGetRequest, GetRequest, get_result};

use crate::processes::{Cluster, TIMEOUT, http_get, until, until_or};

const NAME: &str = "pages";
const KEYS: u64 = 400;
const READERS: u64 = 4;

fn ok(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn key(number: u64) -> String {
    format!("page-{number}")
}

/// Generation `n` has all keys except multiples of `n`.
fn has(generation: u64, number: u64) -> bool {
    !number.is_multiple_of(generation + 1)
}

fn rows(dir: &Path, generation: u64) -> PathBuf {
    let mut text = String::new();
    for number in (0..KEYS).filter(|number| has(generation, *number)) {
        let key = key(number);
        writeln!(text, r#"{{"key":"{key}","value":"{generation}"}}"#).unwrap();
    }
    let path = dir.join(format!("rows-{generation}.ndjson"));
    std::fs::write(&path, text).unwrap();
    path
}

/// Builds and attaches a generation; returns its build directory.
fn attach(cluster: &Cluster, generation: u64) -> PathBuf {
    let from = rows(cluster.dir.path(), generation);
    let out = cluster.dir.path().join(format!("built-{generation}"));
    let (from, to) = (from.to_str().unwrap(), out.to_str().unwrap());
    ok(&cluster.kvctl(&[
        "build", "--from", from, "--key", "key", "--value", "value", "--into", NAME, "--out", to,
        "--attach",
    ]));
    out
}

fn promote(cluster: &Cluster, number: u64) {
    ok(&cluster.kvctl(&["generation", "promote", &number.to_string()]));
}

/// The state of readers: what they may see, and what they saw.
#[derive(Default)]
struct Seen {
    /// The generation whose promotion returned last.
    floor: AtomicU64,
    is_over: AtomicBool,
    gets: AtomicU64,
    batches: AtomicU64,
    scans: AtomicU64,
}

/// The generation of a value.
fn generation_of(value: &[u8]) -> u64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

async fn read(client: Client, seen: Arc<Seen>, first: u64) {
    let mut last = 0;
    for number in first.. {
        if seen.is_over.load(Ordering::Relaxed) {
            return;
        }
        let number = number % KEYS;
        let floor = seen.floor.load(Ordering::SeqCst).max(last);
        match number % 20 {
            0 => {
                let keys: Vec<String> = (number..number + 20).map(key).collect();
                let found = client.batch_get(keys).await.unwrap();
                let found: Vec<_> = found.into_iter().map(Result::unwrap).collect();
                let values = found.iter().flatten().map(|it| generation_of(&it.value));
                let values: Vec<u64> = values.collect();
                let one = values[0];
                assert!(one >= floor, "a batch of {one} after {floor}");
                assert!(
                    values.iter().all(|it| *it == one),
                    "of two generations: {values:?}"
                );
                for (at, found) in found.iter().enumerate() {
                    assert_eq!(found.is_some(), has(one, number + at as u64), "{one}");
                }
                last = one;
                seen.batches.fetch_add(1, Ordering::Relaxed);
            }
            10 => {
                let mut scan = client.scan(torc_client::ScanOptions::default());
                let (mut count, mut one) = (0, None);
                while let Some(entry) = scan.next().await {
                    let of = generation_of(&entry.unwrap().value);
                    assert!(*one.get_or_insert(of) == of, "a scan of two generations");
                    count += 1;
                }
                let one = one.unwrap();
                assert!(one >= floor, "a scan of {one} after {floor}");
                let wanted = (0..KEYS).filter(|number| has(one, *number)).count();
                assert_eq!(count, wanted, "a scan of {one}");
                seen.scans.fetch_add(1, Ordering::Relaxed);
            }
            _ => {
                let found = client.get(key(number)).await.unwrap();
                if let Some(found) = found {
                    let of = generation_of(&found.value);
                    assert!(of >= floor, "{of} after {floor}");
                    assert!(has(of, number));
                    last = of;
                } else {
                    // The key is missing only in a generation that is not older and lacks it.
                    assert!(
                        (floor..floor + 3).any(|of| !has(of, number)),
                        "{floor}, {number}"
                    );
                }
                seen.gets.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The generation that a scan reads.
async fn scanned(client: &Client) -> u64 {
    let mut scan = client.scan(torc_client::ScanOptions::default());
    let mut one = None;
    while let Some(entry) = scan.next().await {
        let of = generation_of(&entry.unwrap().value);
        assert!(*one.get_or_insert(of) == of, "a scan of two generations");
    }
    one.unwrap()
}

async fn all_there(cluster: &Cluster, generation: u64) {
    let client = cluster.client().await.namespace(NAME);
    for number in 0..KEYS {
        let found = client.get(key(number)).await.unwrap();
        let found = found.map(|it| generation_of(&it.value));
        assert_eq!(
            found,
            has(generation, number).then_some(generation),
            "{number}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_is_seen_by_every_get_that_begins_later_whatever_is_killed_or_joins() {
    let mut cluster = Cluster::start(3).await;
    ok(&cluster.kvctl(&["namespace", "create", NAME, "--mode", "static"]));
    let empty = cluster.kvctl(&["--namespace", NAME, "get", "x"]);
    assert_eq!(empty.status.code(), Some(6), "there is nothing to get yet");
    attach(&cluster, 1);
    promote(&cluster, 1);
    // This client only scans, so nothing tells it of a promotion.
    let scanning = cluster.client().await.namespace(NAME);
    assert_eq!(scanned(&scanning).await, 1);
    let seen = Arc::new(Seen::default());
    seen.floor.store(1, Ordering::SeqCst);
    let mut readers = JoinSet::new();
    for reader in 0..READERS {
        // Each reader has its own client and topology.
        let client = cluster.client().await.namespace(NAME);
        readers.spawn(read(client, Arc::clone(&seen), reader * 97));
    }
    for generation in 2..=4 {
        let victim = (generation % 3) as usize;
        cluster.nodes[victim].kill_9();
        // A node is missing: nothing is promoted, and the current generation stays available.
        let from = rows(cluster.dir.path(), generation);
        let out = cluster.dir.path().join(format!("built-{generation}"));
        let build = [
            "build",
            "--from",
            from.to_str().unwrap(),
            "--key",
            "key",
            "--value",
            "value",
            "--into",
            NAME,
            "--out",
            out.to_str().unwrap(),
        ];
        let mut built = cluster.kvctl(&build);
        // The leader of the topology group may have been killed: a build can be repeated.
        for _ in 0..20 {
            if built.status.code() == Some(5) {
                built = cluster.kvctl(&build);
            }
        }
        ok(&built);
        cluster.nodes[victim].start().unwrap();
        let attached = cluster.kvctl(&["generation", "attach", out.to_str().unwrap()]);
        ok(&attached);
        promote(&cluster, generation);
        assert_eq!(scanned(&scanning).await, generation);
        seen.floor.store(generation, Ordering::SeqCst);
        // The build directory is no longer needed.
        std::fs::remove_dir_all(&out).unwrap();
        cluster.nodes[victim].ready().await.unwrap();
    }
    let spare = cluster.spare("node-4").await;
    let address = cluster.nodes[spare].grpc.to_string();
    ok(&cluster.kvctl(&["join-node", &address]));
    cluster.nodes[spare].kill_9();
    cluster.nodes[spare].start().unwrap();
    cluster.nodes[spare].ready().await.unwrap();
    until("readers have read on", async || {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let enough = count(&seen.gets) > 100 && count(&seen.batches) > 5 && count(&seen.scans) > 2;
        enough || readers.try_join_next().is_some()
    })
    .await;
    seen.is_over.store(true, Ordering::Relaxed);
    while let Some(reader) = readers.join_next().await {
        reader.unwrap();
    }
    all_there(&cluster, 4).await;

    // The rollback: the previous generation is complete on every node, including the new one.
    let mut halfway = scanning.scan(torc_client::ScanOptions::default());
    // The position after a record, not between two arcs.
    while halfway.cursor().as_bytes().len() == 8 {
        halfway.next().await.unwrap().unwrap();
    }
    ok(&cluster.kvctl(&["generation", "rollback", NAME]));
    assert_eq!(scanned(&scanning).await, 3);
    let mut of_another = scanning.scan(torc_client::ScanOptions {
        after: Some(halfway.cursor()),
        ..torc_client::ScanOptions::default()
    });
    let refused = of_another.next().await.unwrap().unwrap_err();
    assert_eq!(refused.kind(), torc_client::ErrorKind::Invalid, "{refused}");
    all_there(&cluster, 3).await;
    let back = cluster.kvctl(&["generation", "promote", "4"]);
    assert_eq!(back.status.code(), Some(6), "it has to be attached anew");
    let current = cluster.kvctl(&["generation", "drop", "3"]);
    assert_eq!(current.status.code(), Some(6), "gets are answered from it");
    for number in ["1", "2", "4"] {
        ok(&cluster.kvctl(&["generation", "drop", number]));
    }
    let list = ok(&cluster.kvctl(&["--output", "json", "generation", "list"]));
    let left: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(
        (left["number"].as_u64(), left["state"].as_str()),
        (Some(3), Some("current"))
    );
    let put = cluster.kvctl(&["--namespace", NAME, "put", "page-1", "x"]);
    assert_eq!(put.status.code(), Some(6), "nothing is written to it");
    all_there(&cluster, 3).await;
}

/// Gets all keys in batches without digests, so that the node looks up the generation. Counts them.
async fn read_in_batches(endpoint: String, batches: Arc<AtomicU64>) {
    let channel = tonic::transport::Endpoint::from_shared(endpoint).unwrap();
    let mut node = KvClient::connect(channel).await.unwrap();
    let get = |number| GetRequest {
        namespace: NAME.to_owned(),
        key: key(number).into(),
        ..GetRequest::default()
    };
    let items: Vec<_> = (0..KEYS).map(get).collect();
    loop {
        let items = items.clone();
        let answer = node.batch_get(BatchGetRequest { items }).await.unwrap();
        let mut seen = BTreeSet::new();
        for result in answer.into_inner().results {
            let Some(get_result::Outcome::Ok(found)) = result.outcome else {
                panic!("{result:?}");
            };
            seen.extend(found.found.then(|| generation_of(&found.value)));
        }
        assert_eq!(seen.len(), 1, "one batch of the generations {seen:?}");
        batches.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_a_node_reads_in_parts_is_of_one_generation() {
    let cluster = Cluster::start(1).await;
    ok(&cluster.kvctl(&["namespace", "create", NAME, "--mode", "static"]));
    for generation in 1..=6 {
        attach(&cluster, generation);
    }
    promote(&cluster, 1);
    let batches = Arc::new(AtomicU64::new(0));
    let mut readers = JoinSet::new();
    for _ in 0..2 {
        let endpoint = cluster.nodes[0].endpoint();
        readers.spawn(read_in_batches(endpoint, Arc::clone(&batches)));
    }
    let client = cluster.client().await;
    for generation in 2..=6 {
        let before = batches.load(Ordering::Relaxed);
        until("more batches are read", async || {
            assert!(readers.try_join_next().is_none(), "a reader has failed");
            batches.load(Ordering::Relaxed) > before + 4
        })
        .await;
        client.promote(generation, false).await.unwrap();
    }
    let before = batches.load(Ordering::Relaxed);
    until("more batches are read", async || {
        assert!(readers.try_join_next().is_none(), "a reader has failed");
        batches.load(Ordering::Relaxed) > before + 4
    })
    .await;
}

/// Promotes a generation. On a busy machine, the topology group may lose its leader for a while.
async fn promoted(client: &Client, number: u32) -> Generation {
    let mut promoted = None;
    until("it is promoted", async || {
        promoted = client.promote(number, false).await.ok();
        promoted.is_some()
    })
    .await;
    promoted.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_waits_for_a_node_that_is_down_and_names_it() {
    let mut cluster = Cluster::start(3).await;
    ok(&cluster.kvctl(&["namespace", "create", NAME, "--mode", "static"]));
    attach(&cluster, 1);
    promote(&cluster, 1);
    // The same command again, as after a kill.
    ok(&cluster.kvctl(&["namespace", "create", "other", "--mode", "static"]));
    let from = cluster.dir.path().join("rows-1.ndjson");
    let out = cluster.dir.path().join("built-1");
    let (from, out) = (from.to_str().unwrap(), out.to_str().unwrap());
    let build = [
        "build", "--from", from, "--key", "key", "--value", "value", "--out", out,
    ];
    let endpoints = cluster.endpoints();
    let again = |into: &str| {
        let args = [&build[..], &["--promote", "--into", into]].concat();
        crate::processes::kvctl(&endpoints, &args)
    };
    ok(&again(NAME));
    let refused = again("other");
    assert_eq!(refused.status.code(), Some(2), "built for another");
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("another target"), "{told}");
    attach(&cluster, 2);
    // A voter that is not the leader, so that the group continues at once.
    let leader = cluster.topology_leader().await;
    let victim = (leader + 1) % 3;
    cluster.nodes[victim].kill_9();
    let client = cluster.client().await.with_deadline(TIMEOUT / 10);
    let promoted = promoted(&client, 2).await;
    assert_eq!(
        promoted.unconfirmed.len(),
        1,
        "the killed one may be back with what it knew"
    );
    // A repeated build waits for the killed node, too, and holds its directory meanwhile.
    let (from, out) = (
        from.replace("rows-1", "rows-2"),
        out.replace("built-1", "built-2"),
    );
    let build = [
        "build",
        "--from",
        &from,
        "--key",
        "key",
        "--value",
        "value",
        "--out",
        &out,
        "--into",
        NAME,
        "--promote",
    ];
    let mut waiting = cluster.kvctl_spawned(&build);
    let mut told = String::new();
    let mut stderr = BufReader::new(waiting.stderr.take().unwrap());
    stderr.read_line(&mut told).unwrap();
    assert!(
        told.contains("generation 2 is current; waiting for"),
        "{told}"
    );
    let second = cluster.kvctl(&build);
    let told = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(2), "{told}");
    assert!(told.contains("cannot lock"), "{told}");
    let status = ok(&cluster.kvctl(&["--output", "json", "status"]));
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let current = &status["generations"][1];
    assert_eq!(
        (&current["number"], &current["state"]),
        (&2.into(), &"current".into())
    );
    assert_eq!(current["unconfirmed"], serde_json::json!([victim + 1]));
    let other = cluster.nodes[(victim + 1) % cluster.nodes.len()].http;
    let seen: serde_json::Value =
        serde_json::from_str(&http_get(other, "/status").await.1).unwrap();
    let names = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(names(&seen["generations"][1]), names(current));
    let told = ok(&cluster.kvctl(&["status"]));
    let line = format!("node {} may answer from an older one", victim + 1);
    assert!(
        told.contains("generation 2 of `") && told.contains(&line),
        "{told}"
    );
    // Of two voters on a busy machine, the group may have no leader for a while.
    let refused = decided("a newer one is current", || again(NAME)).await;
    assert!(refused.contains("kvctl generation rollback"), "{refused}");
    let drop_first = || cluster.kvctl(&["generation", "drop", "1"]);
    decided("it may still be answered from", drop_first).await;
    cluster.nodes[victim].start().unwrap();
    cluster.nodes[victim].ready().await.unwrap();
    assert!(waiting.wait().unwrap().success());
    promote(&cluster, 2);
    let behind = Client::builder().endpoints([cluster.nodes[victim].endpoint()]);
    let behind = behind.connect().await.unwrap().namespace(NAME);
    let found = behind.get(key(1)).await.unwrap().unwrap();
    assert_eq!(generation_of(&found.value), 2);
    stays_rolled_back(&cluster, &build, &out);
    ok(&cluster.kvctl(&["generation", "drop", "1"]));
}

/// Repeats a command whose outcome is unknown or that reached no node. Returns why the cluster refused it.
async fn decided(why: &str, command: impl Fn() -> Output) -> String {
    let last = RefCell::new(None);
    let is_decided = async || {
        let output = command();
        let code = output.status.code();
        last.replace(Some(output));
        !matches!(code, Some(3 | 5))
    };
    until_or("the command is decided", is_decided, || format!("{last:?}")).await;
    let output = last.into_inner().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(6), "{why}: {told}");
    told
}

/// Whoever repeats a build does not undo a rollback.
fn stays_rolled_back(cluster: &Cluster, build: &[&str], out: &str) {
    ok(&cluster.kvctl(&["generation", "rollback", NAME]));
    let refused = cluster.kvctl(build);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(6), "{told}");
    assert!(told.contains("generation 2 was rolled back"), "{told}");
    ok(&cluster.kvctl(&["generation", "attach", out]));
    promote(cluster, 2);
}

/// The number and state of each generation.
fn generations(cluster: &Cluster) -> Vec<(u64, String)> {
    let listed = ok(&cluster.kvctl(&["--output", "json", "generation", "list"]));
    let rows = listed.lines().map(|line| {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let state = row["state"].as_str().unwrap().to_owned();
        (row["number"].as_u64().unwrap(), state)
    });
    rows.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_build_drops_what_it_reserved_or_says_how() {
    let cluster = Cluster::start_with(1, &["--partitions=64"]).await;
    ok(&cluster.kvctl(&["namespace", "create", NAME, "--mode", "static"]));
    let path = |name: &str| cluster.dir.path().join(name).to_str().unwrap().to_owned();
    let build = |from: &str, out: &str| {
        let line = "build --key url --value v --format csv --into pages --from";
        let args = line.split(' ').chain([from, "--out", out]);
        args.map(str::to_owned).collect::<Vec<_>>()
    };
    // A key twice, and a row that only the build itself reads.
    for (name, rows) in [("twice", "a,1\na,2\n"), ("bad", "a,1\n,2\n")] {
        let (from, out) = (path(&format!("{name}.csv")), path(name));
        std::fs::write(&from, format!("url,v\n{rows}")).unwrap();
        let args = build(&from, &out);
        let refused = cluster.kvctl(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let told = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success(), "{told}");
        assert!(told.contains("dropped the reservation of"), "{told}");
        assert_eq!(generations(&cluster), [], "{name}");
    }
    // A directory that holds something else: nothing is begun there.
    let from = path("good.csv");
    std::fs::write(&from, "url,v\na,1\n").unwrap();
    let args = build(&from, cluster.dir.path().to_str().unwrap());
    let refused = cluster.kvctl(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(!refused.status.success(), "{refused:?}");
    assert_eq!(generations(&cluster), []);

    // A repeated build of a pipe uses the reservation, with other rows.
    let out = path("piped");
    let piped = |rows: &str| {
        use std::io::Write as _;
        let args = build("-", &out);
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let mut child = cluster.kvctl_spawned(&args);
        let mut stdin = child.stdin.take().unwrap();
        stdin
            .write_all(format!("url,v\n{rows}").as_bytes())
            .unwrap();
        drop(stdin);
        child.wait_with_output().unwrap()
    };
    let refused = piped("a,1\na,2\n");
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{told}");
    let kept = generations(&cluster);
    let drop_it = format!("`kvctl generation drop {}`", kept[0].0);
    assert!(told.contains(&drop_it), "{told}");
    ok(&piped("a,1\nb,2\n"));
    assert_eq!(generations(&cluster), kept, "the same one");
}

/// Only the logs of nodes said it, while the attachment waited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attachment_says_why_nodes_lack_slices() {
    let cluster = Cluster::start_with(1, &["--partitions=64"]).await;
    ok(&cluster.kvctl(&["namespace", "create", NAME, "--mode", "static"]));
    let from = rows(cluster.dir.path(), 1);
    let path = |name: &str| cluster.dir.path().join(name).to_str().unwrap().to_owned();
    let (from, out) = (from.to_str().unwrap(), path("built"));
    ok(&cluster.kvctl(&[
        "build", "--from", from, "--key", "key", "--value", "value", "--into", NAME, "--out", &out,
    ]));
    let nowhere = format!("file://{}", path("nowhere"));
    let attach = ["generation", "attach", &out, "--source", &nowhere];
    let mut waiting = cluster.kvctl_spawned(&attach);
    let said = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let said = said.map(Result::unwrap).find(|it| it.contains("nowhere"));
    let why = "node 1 lacks slices of generation 1: ";
    assert!(said.unwrap().contains(why));
    let list = || ok(&cluster.kvctl(&["generation", "list"]));
    assert!(list().contains(why), "{}", list());

    ok(&cluster.kvctl(&["generation", "attach", &out]));
    ok(&waiting.wait_with_output().unwrap());
    assert!(!list().contains(why), "{}", list());
}
