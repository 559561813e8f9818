//! Backups of real processes that are written to, killed and behind, and restores into other
//! clusters.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::StreamExt as _;
use torc_client::{Client, Epoch, ScanOptions};
use torc_record::Digest;

use torc_testkit::Process;

use crate::processes::{Cluster, Signal, kvctl_path, until};

const KEYS: u64 = 3_000;

fn ok(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

/// `kvctl backup create`, to be killed.
fn begin(cluster: &Cluster, url: &str) -> Child {
    let mut command = Command::new(kvctl_path());
    command.args(["backup", "create", url]);
    command.env("TORC_ENDPOINTS", cluster.endpoints().join(","));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn below(dir: &Path, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.join(name));
    let entries = entries.into_iter().flatten().map(|it| it.unwrap().path());
    entries.collect()
}

pub(crate) async fn contents(client: &Client) -> BTreeMap<String, String> {
    let mut scan = client.scan(ScanOptions::default());
    let mut all = BTreeMap::new();
    while let Some(entry) = scan.next().await {
        let entry = entry.unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        all.insert(text(&entry.key), text(&entry.value));
    }
    all
}

async fn put_all(client: &Client, pairs: impl Iterator<Item = (String, String)>) {
    let stored = client.batch_put(pairs).await.unwrap();
    for stored in stored {
        stored.unwrap();
    }
}

fn key(number: u64) -> String {
    format!("key-{number}")
}

/// The tool is killed, then a node, and the backup is resumed; returns its name.
async fn killed_and_resumed(cluster: &mut Cluster, backups: &Path, url: &str) -> String {
    let mut tool = begin(cluster, url);
    let mut name = String::new();
    until("a part was written", async || {
        let found = below(backups, "backups").pop();
        let found = found.and_then(|it| Some(it.file_name()?.to_str()?.to_owned()));
        name = found.unwrap_or_default();
        !name.is_empty() && !below(backups, &format!("backups/{name}/parts")).is_empty()
    })
    .await;
    tool.kill().unwrap();
    tool.wait().unwrap();
    let listed = ok(&cluster.kvctl(&["--output", "json", "backup", "list", url]));
    assert_eq!(json(&listed)["complete"], false);
    cluster.nodes[1].kill_9();
    let resuming = {
        let endpoints = cluster.endpoints();
        let (url, name) = (url.to_owned(), name.clone());
        tokio::task::spawn_blocking(move || {
            let args = ["backup", "create", &url, "--resume", &name];
            crate::processes::kvctl(&endpoints, &args)
        })
    };
    cluster.nodes[1].start().unwrap();
    ok(&resuming.await.unwrap());
    name
}

/// Damage is reported before anything is changed.
fn damage_is_named(
    cluster: &Cluster,
    other: &Cluster,
    backups: &Path,
    url: &str,
    names: [&str; 2],
) {
    // A slice of the first backup: what a killed tool left behind belongs to no backup.
    let Damaged { pack, digest, .. } = damage_one(backups, names[0], 1);
    let hurt = pack.file_name().unwrap().to_str().unwrap();
    let mut named = 0;
    for backup in names {
        let verified = cluster.kvctl(&["backup", "verify", url, "--backup", backup]);
        if verified.status.success() {
            continue;
        }
        named += 1;
        assert_eq!(verified.status.code(), Some(4));
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        assert!(said.contains(hurt), "{said}");
        let manifest = backups.join(format!("backups/{backup}/manifest.ndjson"));
        if !std::fs::read_to_string(manifest).unwrap().contains(&digest) {
            continue;
        }
        let args = [
            "restore", url, "--backup", backup, "--only", "default", "--into", "fresh",
        ];
        assert_eq!(other.kvctl(&args).status.code(), Some(4));
        let fresh = other.kvctl(&["--namespace", "fresh", "get", "key-1"]);
        assert_eq!(fresh.status.code(), Some(6), "it was not even created");
    }
    assert!(named > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_has_what_was_acknowledged_before_it_and_goes_into_another_cluster() {
    let mut cluster = Cluster::start(3).await;
    let backups = cluster.dir.path().join("backups");
    let url = format!("file://{}", backups.display());
    let client = cluster.client().await;
    put_all(&client, (0..KEYS).map(|it| (key(it), "old".into()))).await;
    ok(&cluster.kvctl(&["flush"]));
    ok(&cluster.kvctl(&["namespace", "create", "other", "--replicas", "2"]));
    ok(&cluster.kvctl(&["--namespace", "other", "put", "x", "y"]));
    ok(&cluster.kvctl(&["namespace", "create", "another"]));
    ok(&cluster.kvctl(&["put", "short-lived", "v", "--ttl", "1ms"]));

    // Records that one node lacks: two of three acknowledge.
    cluster.nodes[2].kill_9();
    let mut wanted: BTreeMap<String, String> =
        (0..KEYS).map(|it| (key(it), "old".into())).collect();
    let changed = (0..KEYS).step_by(10);
    put_all(&client, changed.clone().map(|it| (key(it), "new".into()))).await;
    wanted.extend(changed.map(|it| (key(it), "new".into())));
    for number in (5..KEYS).step_by(100) {
        client.delete(key(number)).await.unwrap();
        wanted.remove(&key(number));
    }
    cluster.nodes[2].start().unwrap();
    cluster.nodes[2].ready().await.unwrap();

    // A client writes during the whole test.
    let (acknowledged, is_over) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let writer = {
        let (client, acknowledged) = (client.clone(), Arc::clone(&acknowledged));
        let is_over = Arc::clone(&is_over);
        tokio::spawn(async move {
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // When a node is killed, the outcome of some writes is unknown.
                let done = client.put(format!("late-{number}"), "late").await;
                if done.is_ok() && acknowledged.load(Ordering::SeqCst) == number {
                    acknowledged.store(number + 1, Ordering::SeqCst);
                }
            }
        })
    };
    until("some were written", async || {
        acknowledged.load(Ordering::SeqCst) > 50
    })
    .await;
    let before = acknowledged.load(Ordering::SeqCst);

    let name = killed_and_resumed(&mut cluster, &backups, &url).await;
    is_over.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    cluster.nodes[1].ready().await.unwrap();

    let checked = cluster.kvctl(&[
        "--output", "json", "backup", "verify", &url, "--depth", "restore",
    ]);
    assert_eq!(json(&ok(&checked))["name"], name.as_str());
    let get = |key: &str| cluster.kvctl(&["backup", "get", &url, key]);
    assert_eq!(ok(&get("key-20")), "new");
    assert_eq!(ok(&get("key-21")), "old");
    assert_eq!(get("key-105").status.code(), Some(1), "it was deleted");

    // One node, a different number of partitions, and a different digest key.
    let other = Cluster::start_with(1, &["--partitions=256"]).await;
    let restored = ok(&other.kvctl(&["--output", "json", "restore", &url]));
    assert_eq!(restored.lines().count(), 3, "{restored}");
    let mut found = contents(&other.client().await).await;
    for number in 0..before {
        let late = found.remove(&format!("late-{number}"));
        assert!(late.is_some(), "late-{number} was acknowledged before");
    }
    found.retain(|key, _| !key.starts_with("late-"));
    let differs = wanted
        .iter()
        .find(|(key, value)| found.get(*key) != Some(value));
    assert_eq!((differs, found.len()), (None, wanted.len()));
    let there = contents(&other.client().await.namespace("other")).await;
    assert_eq!(there, BTreeMap::from([("x".into(), "y".into())]));
    ok(&other.kvctl(&["namespace", "drop", "another", "--yes"]));
    let refused = other.kvctl(&["restore", &url]);
    assert_eq!(refused.status.code(), Some(6), "it is not empty");
    let names = ok(&other.kvctl(&["namespace", "list"]));
    assert!(!names.contains("another"), "nothing was changed: {names}");
    ok(&other.kvctl(&["restore", &url, "--overwrite"]));
    // What came meanwhile goes with the namespace that is replaced.
    let fresh = other.client().await;
    fresh.put("stray", "stray").await.unwrap();
    let replaced = ["restore", &url, "--only", "default", "--replace"];
    ok(&other.kvctl(&replaced));
    let mut found = contents(&other.client().await).await;
    found.retain(|key, _| !key.starts_with("late-"));
    assert_eq!(found, wanted);
    assert!(
        fresh.get("stray").await.unwrap().is_none(),
        "by an older client"
    );

    let small = ok(&cluster.kvctl(&["--output", "json", "backup", "create", &url]));
    let small = json(&small);
    let bytes = |what: &str| small[what].as_u64().unwrap();
    // Slices that were compacted or moved to another node are copied again.
    assert_eq!(bytes("copied_bytes") + bytes("known_bytes"), bytes("bytes"));
    let names = [name.as_str(), small["name"].as_str().unwrap()];
    damage_is_named(&cluster, &other, &backups, &url, names);
}

const FEW: u64 = 300;
/// Static namespaces with the options that build them.
const STATIC: [(&str, &[&str]); 4] = [
    ("pages", &[]),
    ("words", &["--shape", "ids"]),
    ("links", &["--shape", "keyless", "--payload-bytes", "4"]),
    ("seen", &["--shape", "set", "--fingerprint-bits", "32"]),
];

fn four(number: u64) -> String {
    format!("{number:04}")
}

/// Builds and promotes a generation of each shape, from the same rows.
fn build_all(cluster: &Cluster) {
    let dir = cluster.dir.path();
    let from = dir.join("rows.ndjson");
    let mut rows = String::new();
    for number in 0..FEW {
        let (key, value) = (key(number), four(number));
        writeln!(rows, r#"{{"key":"{key}","value":"{value}"}}"#).unwrap();
    }
    std::fs::write(&from, rows).unwrap();
    for (name, options) in STATIC {
        let out = dir.join(name);
        ok(&cluster.kvctl(&["namespace", "create", name, "--mode", "static"]));
        let (from, out) = (from.to_str().unwrap(), out.to_str().unwrap());
        let args = ["build", "--from", from, "--into", name, "--out", out];
        ok(&cluster.kvctl(&[&args[..], &["--promote"], options].concat()));
    }
}

/// Every key of `pages` and `words` answers as it should, and no other does.
async fn answer(client: &Client, pages: &str, words: &str) {
    let values = contents(&client.namespace(pages)).await;
    let wanted: BTreeMap<_, _> = (0..FEW).map(|it| (key(it), four(it))).collect();
    assert_eq!(values, wanted);
    let client = client.namespace(words);
    let ids = contents(&client).await;
    assert!(ids.keys().eq(wanted.keys()));
    let mut numbers: Vec<u64> = ids.values().map(|it| it.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..FEW), "ids are dense");
    for number in 0..FEW {
        let found = client.get(key(number)).await.unwrap().unwrap();
        let id = std::str::from_utf8(&found.value).unwrap().parse().unwrap();
        let (back, _) = client.key_of(id).await.unwrap().unwrap();
        assert_eq!(back, key(number).as_bytes());
    }
    assert_eq!(client.get("absent").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn static_namespaces_are_backed_up_and_come_back_as_static_ones() {
    let cluster = Cluster::start_with(3, &["--partitions=64"]).await;
    let backups = cluster.dir.path().join("backups");
    let url = format!("file://{}", backups.display());
    build_all(&cluster);
    let create = ["--output", "json", "backup", "create", &url];
    let first = json(&ok(&cluster.kvctl(&create)));
    assert_eq!(first["records"], 4 * FEW, "{first}");
    let second = json(&ok(&cluster.kvctl(&create)));
    assert_eq!(second["copied_bytes"], 0, "{second}");
    assert_eq!(second["bytes"], first["bytes"]);
    ok(&cluster.kvctl(&["backup", "verify", &url, "--depth", "restore"]));
    let client = cluster.client().await;
    for (name, _) in STATIC {
        let got = cluster.kvctl(&["--namespace", name, "backup", "get", &url, "key-7"]);
        let wanted = client.namespace(name).get("key-7").await.unwrap().unwrap();
        assert_eq!(ok(&got).as_bytes(), wanted.value, "{name}");
        let absent = cluster.kvctl(&["--namespace", name, "backup", "get", &url, "absent"]);
        assert_eq!(absent.status.code(), Some(1), "{name}");
    }

    // Fewer nodes, another number of partitions, and another digest key.
    let other = Cluster::start_with(1, &["--partitions=16"]).await;
    let work = other.dir.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let nowhere = other.dir.path().join("nowhere");
    let refused = other.kvctl(&["restore", &url, "--work", nowhere.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("nothing was changed"), "{told}");
    let table = other.client().await.topology().await.unwrap();
    assert!(!table.namespaces.contains_key("pages"));
    let restore = ["restore", &url, "--work", work.to_str().unwrap()];
    let restored = other.kvctl(&restore);
    assert_eq!(restored.status.code(), Some(6));
    let told = String::from_utf8_lossy(&restored.stderr);
    let last = told.lines().last().unwrap();
    let expected = "kvctl: incomplete: 2 namespaces not restored, because their generations keep no keys, and this \
                    cluster has 16 partitions instead of 64: `links`, `seen`. Build each again";
    assert_eq!(last, expected);
    let there = other.client().await;
    answer(&there, "pages", "words").await;
    let table = there.topology().await.unwrap();
    assert!(!table.namespaces.contains_key("links"));
    // Versions are above all of the backup.
    let before = client
        .namespace("pages")
        .get(key(1))
        .await
        .unwrap()
        .unwrap();
    let after = there.namespace("pages").get(key(1)).await.unwrap().unwrap();
    assert!(after.version > before.version);
    // Nothing stays behind.
    let left = |dir: &Path| std::fs::read_dir(dir).unwrap().count();
    assert_eq!(left(&work), 0);
    assert!(!backups.join("restores").exists());
    let pruned = ["--output", "json", "backup", "prune", &url, "--keep", "9"];
    assert_eq!(json(&ok(&other.kvctl(&pruned)))["restores"], 0);
    std::fs::create_dir_all(backups.join("restores/x-1")).unwrap();
    std::fs::write(backups.join("restores/x-1/a.part"), "left").unwrap();
    assert_eq!(json(&ok(&other.kvctl(&pruned)))["restores"], 1);
    assert!(!backups.join("restores/x-1/a.part").exists());

    // Over what is there: only if asked for, and the old generation stays.
    assert_eq!(other.kvctl(&restore).status.code(), Some(6));
    let words = ["--only", "words", "--into", "pages", "--overwrite"];
    ok(&other.kvctl(&[&restore[..], &words].concat()));
    ok(&other.kvctl(&["generation", "rollback", "pages"]));
    answer(&there, "pages", "words").await;
    // A static namespace stays one.
    let into = ["--only", "pages", "--into", "default"];
    let refused = other.kvctl(&[&restore[..], &into].concat());
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let keyless = other.kvctl(&[&restore[..], &["--only", "seen"]].concat());
    assert_eq!(keyless.status.code(), Some(2), "{keyless:?}");
    // A copy in the cluster of the backup, of a backup of one namespace.
    let create = ["--output", "json", "backup", "create", &url];
    let only = ["--only", "pages", "--only", "words"];
    let created = json(&ok(&cluster.kvctl(&[&create[..], &only].concat())));
    assert_eq!(created["copied_bytes"], 0, "the first has these slices");
    for name in ["pages", "words"] {
        let copy = format!("{name}-copy");
        let only = ["restore", &url, "--only", name, "--into", &copy];
        let place = ["--work", work.to_str().unwrap()];
        ok(&cluster.kvctl(&[&only[..], &place].concat()));
    }
    answer(&client, "pages-copy", "words-copy").await;
}

/// What gets of some keys find, most of them absent.
async fn found(client: &Client) -> BTreeMap<String, bytes::Bytes> {
    let keys: Vec<_> = (0..FEW).map(key).collect();
    let absent = (0..FEW).map(|number| format!("absent-{number}"));
    let keys: Vec<_> = keys.into_iter().chain(absent).collect();
    let values = client.batch_get(keys.clone()).await.unwrap();
    let pairs = keys.into_iter().zip(values);
    let found = pairs.filter_map(|(key, value)| Some((key, value.unwrap()?.value)));
    let found: BTreeMap<_, _> = found.collect();
    for number in 0..FEW {
        let single = client.get(key(number)).await.unwrap();
        assert_eq!(single.map(|it| it.value).as_ref(), found.get(&key(number)));
    }
    found
}

/// Beside a newer generation, a restored one would be mistaken for the one that it is a copy of.
async fn beside_a_newer_one(
    cluster: &Cluster,
    again: &[&str],
    build: &[&str],
    rough: &BTreeMap<String, bytes::Bytes>,
) {
    let client = cluster.client().await;
    let table = client.topology().await.unwrap();
    let number = table.namespace_id("rough").unwrap().number().to_string();
    let newer = cluster.dir.path().join("newer");
    let newer = ["--out", newer.to_str().unwrap(), "--promote"];
    ok(&cluster.kvctl(&[build, &newer].concat()));
    let refused = cluster.kvctl(again);
    let told = String::from_utf8_lossy(&refused.stderr);
    let advice = format!("kvctl generation drop {number}");
    assert!(
        !refused.status.success() && told.contains(&advice),
        "{told}"
    );
    let client = client.namespace("rough");
    assert_ne!(&found(&client).await, rough);
    ok(&cluster.kvctl(&["generation", "drop", &number]));
    ok(&cluster.kvctl(again));
    assert_eq!(&found(&client).await, rough);
    ok(&cluster.kvctl(&["generation", "rollback", "rough"]));
    assert_ne!(&found(&client).await, rough);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generations_without_keys_come_back_in_a_cluster_with_as_many_partitions() {
    const NAMES: [&str; 3] = ["links", "seen", "rough"];
    let cluster = Cluster::start_with(3, &["--partitions=64"]).await;
    let backups = cluster.dir.path().join("backups");
    let url = format!("file://{}", backups.display());
    build_all(&cluster);
    // One in sixteen absent keys looks present.
    let rows = cluster.dir.path().join("rows.ndjson");
    let built = cluster.dir.path().join("rough");
    let (rows, built) = (rows.to_str().unwrap(), built.to_str().unwrap());
    let shape = [
        "--shape",
        "keyless",
        "--payload-bytes",
        "4",
        "--fingerprint-bits",
        "4",
    ];
    let build = [
        "build",
        "--from",
        rows,
        "--into",
        "rough",
        "--out",
        built,
        "--promote",
    ];
    ok(&cluster.kvctl(&["namespace", "create", "rough", "--mode", "static"]));
    ok(&cluster.kvctl(&[&build[..], &shape].concat()));
    ok(&cluster.kvctl(&["backup", "create", &url]));
    let client = cluster.client().await;
    let mut wanted = BTreeMap::new();
    for name in NAMES {
        let found = found(&client.namespace(name)).await;
        assert!(found.len() as u64 >= FEW, "{name}");
        wanted.insert(name, found);
    }
    let rough = &wanted["rough"];
    assert!(rough.len() as u64 > FEW + 3, "some only look present");

    // Other nodes, another digest key, other numbers of generations, another layer.
    let mut other = Cluster::start_with(1, &["--partitions=64", "--replicas=1"]).await;
    ok(&other.kvctl(&["namespace", "create", "first", "--mode", "static"]));
    let file = other.dir.path().join("reservation");
    ok(&other.kvctl(&[
        "generation",
        "reserve",
        "first",
        "--to",
        file.to_str().unwrap(),
    ]));
    let node = other.spare_with("second", &["--partitions=64"]).await;
    let address = other.nodes[node].grpc.to_string();
    ok(&other.kvctl(&["join-node", &address]));
    ok(&other.kvctl(&[
        "namespace",
        "create",
        "rough",
        "--mode",
        "static",
        "--replicas",
        "2",
    ]));
    let work = ["--work", other.dir.path().to_str().unwrap()];
    let restored = other.kvctl(&[&["restore", &url], &work[..]].concat());
    ok(&restored);
    let told = String::from_utf8_lossy(&restored.stderr);
    assert!(!told.contains("incomplete"), "{told}");
    let there = other.client().await;
    answer(&there, "pages", "words").await;
    for name in NAMES {
        assert_eq!(found(&there.namespace(name)).await, wanted[name], "{name}");
    }
    let explained = ok(&other.kvctl(&["--namespace", "rough", "explain", "key-7"]));
    assert!(explained.contains("probably a value"), "{explained}");

    // The same again changes nothing.
    let again = ["restore", &url, "--only", "rough", "--overwrite"];
    for of in [&cluster, &other] {
        let before = ok(&of.kvctl(&["generation", "list", "rough"]));
        let unchanged = of.kvctl(&again);
        ok(&unchanged);
        let told = String::from_utf8_lossy(&unchanged.stderr);
        assert!(told.contains("`rough` is unchanged"), "{told}");
        assert_eq!(ok(&of.kvctl(&["generation", "list", "rough"])), before);
    }

    // A backup of what was restored is as good.
    let url = format!("file://{}", other.dir.path().join("backups").display());
    ok(&other.kvctl(&["backup", "create", &url]));
    ok(&other.kvctl(&["backup", "verify", &url, "--depth", "restore"]));
    let got = other.kvctl(&["--namespace", "rough", "backup", "get", &url, "key-7"]);
    assert_eq!(ok(&got), four(7));
    ok(&cluster.kvctl(&["restore", &url, "--only", "rough", "--into", "copy"]));
    assert_eq!(&found(&client.namespace("copy")).await, rough);

    beside_a_newer_one(&cluster, &again, &[&build[..5], &shape].concat(), rough).await;
}

/// It is interrupted, and then killed, while nodes fetch slowly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_of_a_static_namespace_is_interrupted_killed_and_repeated() {
    const LARGE: u64 = 1_000;
    let flags = ["--partitions=64", "--transfer-mib-per-s=1"];
    let cluster = Cluster::start_with(3, &flags).await;
    let dir = cluster.dir.path();
    let backups = dir.join("backups");
    let url = format!("file://{}", backups.display());
    let value = |number: u64| four(number).repeat(1_024);
    let mut rows = String::new();
    for number in 0..LARGE {
        let (key, value) = (key(number), value(number));
        writeln!(rows, r#"{{"key":"{key}","value":"{value}"}}"#).unwrap();
    }
    let (from, out) = (dir.join("rows.ndjson"), dir.join("built"));
    std::fs::write(&from, rows).unwrap();
    let (from, out) = (from.to_str().unwrap(), out.to_str().unwrap());
    ok(&cluster.kvctl(&["namespace", "create", "pages", "--mode", "static"]));
    let build = ["build", "--from", from, "--into", "pages", "--out", out];
    ok(&cluster.kvctl(&[&build[..], &["--promote"]].concat()));
    ok(&cluster.kvctl(&["backup", "create", &url]));
    let work = ["--work", dir.to_str().unwrap()];
    let only = ["restore", &url, "--only", "pages", "--into", "copy"];
    let restore = [&only[..], &["--overwrite"], &work].concat();
    let states = || {
        let listed = ok(&cluster.kvctl(&["--output", "json", "generation", "list"]));
        let listed = listed.lines().map(json);
        let copies = listed.filter(|it| it["namespace"] == "copy");
        copies.map(|it| it["state"].clone()).collect::<Vec<_>>()
    };
    let begin = async || {
        let mut command = Command::new(kvctl_path());
        command.args(&restore).stdout(Stdio::null());
        command.stderr(Stdio::null());
        command.env("TORC_ENDPOINTS", cluster.endpoints().join(","));
        let restoring = Process::start(&mut command).unwrap();
        until("nodes fetch it", async || states() == ["attached"]).await;
        restoring
    };
    let mut restoring = begin().await;
    restoring.signal(Signal::INT).unwrap();
    assert_eq!(restoring.wait().unwrap().code(), Some(130));
    assert!(states().is_empty(), "it has dropped what it reserved");
    assert!(!backups.join("restores").exists());

    drop(begin().await);
    let left = ok(&cluster.kvctl(&["--output", "json", "generation", "list", "copy"]));
    let number = json(&left)["number"].to_string();
    ok(&cluster.kvctl(&restore));
    assert_eq!(states(), ["attached", "current"]);
    ok(&cluster.kvctl(&["generation", "drop", &number]));
    let prune = ["--output", "json", "backup", "prune", &url, "--keep", "9"];
    let pruned = json(&ok(&cluster.kvctl(&prune)));
    assert!(pruned["restores"].as_u64() > Some(0), "{pruned}");
    let found = contents(&cluster.client().await.namespace("copy")).await;
    let wanted = (0..LARGE).map(|number| (key(number), value(number)));
    assert!(found == wanted.collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_of_a_static_namespace_is_named_before_a_restore_changes_anything() {
    let cluster = Cluster::start_with(1, &["--partitions=16"]).await;
    let backups = cluster.dir.path().join("backups");
    let url = format!("file://{}", backups.display());
    build_all(&cluster);
    let made = json(&ok(
        &cluster.kvctl(&["--output", "json", "backup", "create", &url])
    ));
    let name = made["name"].as_str().unwrap();
    let table = cluster.client().await.topology().await.unwrap();
    for (namespace, _) in STATIC {
        let id = table.namespace_id(namespace).unwrap();
        let Damaged { pack, before, .. } = damage_one(&backups, name, id.0);
        let hurt = pack.file_name().unwrap().to_str().unwrap();
        let verify = cluster.kvctl(&["backup", "verify", &url]);
        assert_eq!(verify.status.code(), Some(4), "{namespace}");
        let told = String::from_utf8_lossy(&verify.stderr);
        assert!(told.contains(hurt), "{told}");
        if ["pages", "words"].contains(&namespace) {
            let args = ["restore", &url, "--only", namespace, "--into", "fresh"];
            let refused = cluster.kvctl(&args);
            let told = String::from_utf8_lossy(&refused.stderr);
            assert_eq!(refused.status.code(), Some(4), "{told}");
            assert!(
                told.contains(hurt) && told.contains("nothing was changed"),
                "{told}"
            );
        }
        std::fs::write(&pack, before).unwrap();
    }
    let after = cluster.client().await.topology().await.unwrap();
    assert!(!after.namespaces.contains_key("fresh"));
    let generations = ok(&cluster.kvctl(&["--output", "json", "generation", "list"]));
    assert_eq!(generations.lines().count(), STATIC.len());
    let foreign = Cluster::start_with(1, &[]).await;
    let refused = foreign.kvctl(&["backup", "create", &url, "--resume", name]);
    assert_eq!(refused.status.code(), Some(2), "it is finished");
}

struct Damaged {
    pack: PathBuf,
    /// What the pack held before.
    before: Vec<u8>,
    /// The digest of the slice.
    digest: String,
}

/// Damages a slice that only has records of a namespace.
fn damage_one(backups: &Path, name: &str, namespace: u32) -> Damaged {
    let manifest = backups.join(format!("backups/{name}/manifest.ndjson"));
    let manifest = std::fs::read_to_string(manifest).unwrap();
    let lines = manifest.lines().map(json);
    let slices = lines.filter_map(|line| line["slices"].as_array().cloned());
    let is_only = |slice: &serde_json::Value| {
        let records = slice["records"].as_array().unwrap();
        records.iter().all(|held| held[0] == namespace)
    };
    let slice = slices.flatten().find(is_only).unwrap();
    let pack = slice["pack"].as_str().unwrap();
    let pack = backups.join(format!("packs/{pack}.pack"));
    let before = std::fs::read(&pack).unwrap();
    let mut damaged = before.clone();
    let middle = slice["at"].as_u64().unwrap() + slice["len"].as_u64().unwrap() / 2;
    damaged[usize::try_from(middle).unwrap()] ^= 1;
    std::fs::write(&pack, damaged).unwrap();
    let digest = slice["digest"].as_str().unwrap().to_owned();
    Damaged {
        pack,
        before,
        digest,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_namespace_is_backed_up_alone() {
    let cluster = Cluster::start_with(3, &["--partitions=64"]).await;
    let url = format!("file://{}/backups", cluster.dir.path().display());
    let client = cluster.client().await;
    put_all(&client, (0..KEYS).map(|it| (key(it), "default".into()))).await;
    ok(&cluster.kvctl(&["namespace", "create", "urls", "--replicas", "2"]));
    let urls = client.namespace("urls");
    put_all(&urls, (0..FEW).map(|it| (key(it), "urls".into()))).await;
    // Deleted records, in a slice or not, are not in the backup.
    ok(&cluster.kvctl(&["flush"]));
    urls.delete(key(0)).await.unwrap();

    // The node would empty that directory.
    let within = format!("file://{}/backup", cluster.nodes[0].data.display());
    let refused = cluster.kvctl(&["backup", "create", &within]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(6), "{told}");
    assert!(told.contains("in the data directory of node"), "{told}");
    assert!(!told.contains("--resume"), "{told}");
    let left = cluster.nodes[0].data.join("backup/backups");
    assert!(!left.exists(), "no node has written anything");

    let unknown = cluster.kvctl(&["backup", "create", &url, "--only", "none"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    let args = [
        "--output", "json", "backup", "create", &url, "--only", "urls",
    ];
    let made = json(&ok(&cluster.kvctl(&args)));
    assert_eq!(made["records"], FEW - 1, "{made}");
    ok(&cluster.kvctl(&["backup", "verify", &url, "--depth", "restore"]));
    let listed = json(&ok(
        &cluster.kvctl(&["--output", "json", "backup", "list", &url])
    ));
    assert_eq!(listed["namespaces"], serde_json::json!(["urls"]));

    let other = Cluster::start_with(1, &["--partitions=16", "--replicas=1"]).await;
    ok(&other.kvctl(&["restore", &url, "--only", "urls", "--into", "again"]));
    let again = other.client().await.namespace("again");
    let wanted: BTreeMap<_, _> = (1..FEW).map(|it| (key(it), "urls".to_owned())).collect();
    assert_eq!(contents(&again).await, wanted);
    assert!(contents(&other.client().await).await.is_empty());

    // A backup of everything is not based on a partial one, so it copies everything.
    let args = ["--output", "json", "backup", "create", &url];
    let whole = json(&ok(&cluster.kvctl(&args)));
    assert_eq!(whole["known_bytes"], 0, "{whole}");

    // Damage elsewhere does not keep a namespace from being restored.
    let newest = whole["name"].as_str().unwrap();
    let backups = cluster.dir.path().join("backups");
    let default = client.topology().await.unwrap();
    let default = default.namespace_id("default").unwrap();
    let Damaged { pack, before, .. } = damage_one(&backups, newest, default.0);
    let name = pack.file_name().unwrap().to_str().unwrap();
    let only = |from: &str, to: &str| {
        let args = ["--backup", newest, "--only", from, "--into", to];
        other.kvctl(&[&["restore", &url][..], &args].concat())
    };
    ok(&only("urls", "healthy"));
    let healthy = other.client().await.namespace("healthy");
    assert_eq!(contents(&healthy).await, wanted);
    let verify = cluster.kvctl(&["backup", "verify", &url, "--backup", newest]);
    for refused in [only("default", "damaged"), verify] {
        let told = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(4), "{told}");
        assert!(told.contains(name), "{told}");
    }
    let table = other.client().await.topology().await.unwrap();
    assert_eq!(table.namespace_id("damaged"), None, "nothing was changed");
    std::fs::write(&pack, before).unwrap();

    // The newest is damaged: an older one is not taken in its place.
    let plan = cluster
        .dir
        .path()
        .join(format!("backups/backups/{newest}/plan.json"));
    std::fs::write(plan, "{").unwrap();
    for command in [
        &["backup", "verify", &url][..],
        &["backup", "prune", &url, "--keep", "1"],
    ] {
        let refused = cluster.kvctl(command);
        let told = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(4), "{command:?}: {told}");
        assert!(told.contains(newest), "{told}");
    }
    let older = made["name"].as_str().unwrap();
    ok(&cluster.kvctl(&["backup", "verify", &url, "--backup", older]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backups_of_single_namespaces_or_other_clusters_do_not_pass_for_whole_ones() {
    let flags = ["--partitions=16", "--replicas=1"];
    let cluster = Cluster::start_with(1, &flags).await;
    let url = format!("file://{}/backups", cluster.dir.path().display());
    ok(&cluster.kvctl(&["put", "a", "1"]));
    ok(&cluster.kvctl(&["namespace", "create", "urls"]));
    ok(&cluster.kvctl(&["--namespace", "urls", "put", "b", "2"]));
    let create = |only: &[&str]| {
        let args = ["--output", "json", "backup", "create", &url];
        let made = json(&ok(&cluster.kvctl(&[&args[..], only].concat())));
        made["name"].as_str().unwrap().to_owned()
    };
    ok(&cluster.kvctl(&["namespace", "create", "empty"]));
    let older = create(&["--only", "urls"]);
    let said = String::from_utf8(cluster.kvctl(&["restore", &url]).stderr).unwrap();
    assert!(said.contains("only backups of other namespaces"), "{said}");
    let whole = create(&[]);
    create(&["--only", "urls"]);

    // The newest has only `urls`.
    assert_eq!(ok(&cluster.kvctl(&["backup", "get", &url, "a"])), "1");
    let other = Cluster::start_with(1, &flags).await;
    ok(&other.kvctl(&["restore", &url]));
    assert_eq!(ok(&other.kvctl(&["get", "a"])), "1");
    assert_eq!(ok(&other.kvctl(&["--namespace", "urls", "get", "b"])), "2");
    // What has no records replaces some, too.
    ok(&other.kvctl(&["--namespace", "empty", "put", "c", "3"]));
    let of_nothing = ["--backup", &whole, "--only", "empty", "--replace"];
    ok(&other.kvctl(&[&["restore", &url][..], &of_nothing].concat()));
    let gone = other.kvctl(&["--namespace", "empty", "get", "c"]);
    assert_eq!(gone.status.code(), Some(1));
    let prune = ["--output", "json", "backup", "prune", &url, "--keep", "1"];
    let pruned = json(&ok(&cluster.kvctl(&prune)));
    assert_eq!(pruned["backups"], serde_json::json!([older]));

    // Another cluster's backup is newer, and nearly empty.
    ok(&other.kvctl(&["backup", "create", &url]));
    let refused = other.kvctl(&["restore", &url, "--replace"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("backups of several clusters"), "{said}");
    let pruned = json(&ok(&cluster.kvctl(&prune)));
    assert_eq!(pruned["backups"], serde_json::json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_records_have_versions_above_all_of_the_backup() {
    let old = Cluster::start(1).await;
    let backups = old.dir.path().join("backups");
    let url = format!("file://{}", backups.display());
    let client = old.client().await;
    // A cluster that has seen many changes.
    let unconfirmed = client.raise_epoch("default", Epoch(5_000)).await.unwrap();
    assert!(unconfirmed.is_empty());
    put_all(&client, (0..50).map(|it| (key(it), "old".into()))).await;
    let before = client.get(key(7)).await.unwrap().unwrap().version;
    assert!(before.epoch > Epoch(5_000));
    ok(&old.kvctl(&["backup", "create", &url]));

    let mut young = Cluster::start(3).await;
    ok(&young.kvctl(&["restore", &url]));
    let restored = young.client().await;
    for number in 0..50 {
        let found = restored.get(key(number)).await.unwrap().unwrap();
        assert!(found.version > before, "{} after {before}", found.version);
    }
    // A second restore only waits for all members: no epoch of a partition rises.
    let first = restored.get(key(7)).await.unwrap().unwrap().version;
    ok(&young.kvctl(&["restore", &url, "--overwrite"]));
    let second = restored.get(key(7)).await.unwrap().unwrap().version;
    assert!(second > first);
    assert_eq!(second.epoch, first.epoch);
    // A node that was down starts in the raised epoch.
    young.nodes[1].kill_9();
    young.nodes[1].start().unwrap();
    young.nodes[1].ready().await.unwrap();
    let version = restored.put(key(7), "new").await.unwrap();
    assert!(version > before);
}

/// Builds and promotes a generation of `pages`, whose keys begin with its name.
fn promote(cluster: &Cluster, name: &str) {
    let dir = cluster.dir.path();
    let (from, out) = (dir.join(format!("{name}.csv")), dir.join(name));
    let row = |number| format!("{name}-{number},{number}\n");
    let rows: String = (0..100).map(row).collect();
    std::fs::write(&from, format!("key,value\n{rows}")).unwrap();
    let (from, out) = (from.to_str().unwrap(), out.to_str().unwrap());
    ok(&cluster.kvctl(&[
        "build",
        "--from",
        from,
        "--into",
        "pages",
        "--out",
        out,
        "--promote",
    ]));
}

/// A backup that has a plan and no parts: a file is where the packs should be. Returns its name.
async fn only_planned(cluster: &Cluster, backups: &Path, url: &str) -> String {
    std::fs::create_dir_all(backups).unwrap();
    std::fs::write(backups.join("packs"), "no directory").unwrap();
    let mut tool = begin(cluster, url);
    let mut name = String::new();
    until("the plan is there", async || {
        let planned = below(backups, "backups").pop();
        let planned = planned.filter(|it| it.join("plan.json").exists());
        name = planned.map_or_else(String::new, |it| {
            it.file_name().unwrap().to_str().unwrap().to_owned()
        });
        !name.is_empty()
    })
    .await;
    tool.kill().unwrap();
    tool.wait().unwrap();
    name
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_has_the_generations_of_its_plan_or_is_refused() {
    let cluster = Cluster::start_with(1, &["--partitions=64"]).await;
    let backups = cluster.dir.path().join("backups");
    let url = format!("file://{}", backups.display());
    ok(&cluster.kvctl(&["namespace", "create", "pages", "--mode", "static"]));
    promote(&cluster, "first");
    let name = only_planned(&cluster, &backups, &url).await;
    promote(&cluster, "second");
    std::fs::remove_file(backups.join("packs")).unwrap();
    ok(&cluster.kvctl(&["backup", "create", &url, "--resume", &name]));
    ok(&cluster.kvctl(&["restore", &url, "--only", "pages", "--into", "copy"]));
    let copied = contents(&cluster.client().await.namespace("copy")).await;
    assert_eq!(copied.len(), 100);
    assert_eq!(copied.get("first-7").map(String::as_str), Some("7"));

    let backups = cluster.dir.path().join("others");
    let url = format!("file://{}", backups.display());
    let name = only_planned(&cluster, &backups, &url).await;
    promote(&cluster, "third");
    ok(&cluster.kvctl(&["generation", "drop", "2"]));
    std::fs::remove_file(backups.join("packs")).unwrap();
    let resume = ["backup", "create", &url, "--resume", &name];
    let refused = cluster.kvctl(&resume);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(6), "{told}");
    assert!(told.contains("generation 2 is gone"), "{told}");

    // By this plan, the records of `default` would be in no namespace.
    let plan = backups.join(format!("backups/{name}/plan.json"));
    let text = std::fs::read_to_string(&plan).unwrap();
    let altered = text.replacen("\"id\":1,", "\"id\":3,", 1);
    assert_ne!(altered, text);
    std::fs::write(&plan, altered).unwrap();
    let refused = cluster.kvctl(&resume);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(4), "{told}");
    assert!(told.contains("plan.json is damaged"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_does_not_build_on_one_whose_packs_are_missing() {
    let cluster = Cluster::start_with(1, &["--partitions=64"]).await;
    let backups = cluster.dir.path().join("backups");
    let url = format!("file://{}", backups.display());
    put_all(
        &cluster.client().await,
        (0..100).map(|it| (key(it), "v".into())),
    )
    .await;
    ok(&cluster.kvctl(&["backup", "create", &url]));
    std::fs::remove_dir_all(backups.join("packs")).unwrap();
    let made = cluster.kvctl(&["backup", "create", &url]);
    ok(&made);
    let told = String::from_utf8_lossy(&made.stderr);
    assert!(told.contains("does not build on it"), "{told}");
    ok(&cluster.kvctl(&["backup", "verify", &url, "--depth", "restore"]));

    for command in [
        &["backup", "create", &url][..],
        &["restore", &url, "--overwrite"],
    ] {
        let refused = cluster.kvctl(&[&["--namespace", "default"], command].concat());
        let told = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{told}");
        assert!(told.contains("--only"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_partition_is_several_slices_and_a_slow_backup_is_not_silent() {
    const MIB: usize = 1 << 20;
    const LARGE: u64 = 20;
    let cluster = Cluster::start_with(1, &["--partitions=1"]).await;
    let url = format!("file://{}/backups", cluster.dir.path().display());
    let client = cluster.client().await;
    for number in 0..LARGE {
        client.put(key(number), vec![b'v'; MIB]).await.unwrap();
    }
    let create = ["--output", "json", "backup", "create", &url];
    let only = json(&ok(
        &cluster.kvctl(&[&create[..], &["--only", "default"]].concat())
    ));
    assert_eq!(only["records"], LARGE);
    assert_eq!(only["slices"], 2, "of 16 MiB and the rest");
    ok(&cluster.kvctl(&["backup", "verify", &url, "--depth", "restore"]));

    // A slice waits for longer than kvctl waits for a message.
    let slow = ["--timeout", "4s", "--rate", "1536KiB"];
    let slow = cluster.kvctl(&[&create[..], &slow].concat());
    let told = String::from_utf8_lossy(&slow.stderr);
    assert!(!told.contains("retrying"), "{told}");
    let slow = json(&ok(&slow));
    assert_eq!(slow["records"], LARGE);
    is_within(&slow, 1_536.0 * 1_024.0);
}

/// A backup took at least as long as a node needs for its bytes.
fn is_within(made: &serde_json::Value, bytes_per_s: f64) {
    let (copied, took) = (&made["copied_bytes"], &made["seconds"]);
    let least = copied.as_f64().unwrap() / bytes_per_s;
    assert!(took.as_f64().unwrap() >= least, "{made}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rate_limits_all_requests_of_a_backup_together() {
    // 256 partitions for each request, each with less than a piece that is sent at a time.
    let cluster = Cluster::start_with(1, &["--partitions=1024"]).await;
    let url = format!("file://{}/backups", cluster.dir.path().display());
    let value = "v".repeat(4 << 10);
    let pairs = (0..400).map(|it| (key(it), value.clone()));
    put_all(&cluster.client().await, pairs).await;
    let create = ["--output", "json", "backup", "create", &url];
    // Slices, and listed records.
    for how in [&["--full"][..], &["--only", "default"]] {
        let rate = ["--rate", "512KiB"];
        let made = json(&ok(&cluster.kvctl(&[&create[..], how, &rate].concat())));
        assert!(made["copied_bytes"].as_u64().unwrap() > 1 << 20, "{made}");
        is_within(&made, 512.0 * 1_024.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_a_damaged_slice_come_from_other_replicas() {
    let cluster = Cluster::start_with(3, &["--partitions=64"]).await;
    let url = format!("file://{}/backups", cluster.dir.path().display());
    let client = cluster.client().await;
    let long = |number| format!("the key {number:08}");
    put_all(&client, (0..KEYS).map(|it| (long(it), "v".into()))).await;
    ok(&cluster.kvctl(&["flush"]));
    let table = client.topology().await.unwrap();
    let lead = table.states[0].lead;
    let address = &table.members[&lead].identity.address;
    let mut nodes = cluster.nodes.iter();
    let node = nodes.find(|it| it.endpoint().ends_with(address)).unwrap();
    let (mut hurt, namespace) = (None, table.namespace_id("default").unwrap());
    for path in below(&node.data, "store") {
        let bytes = std::fs::read(&path).unwrap();
        let is_led = |number: &u64| {
            let digest = Digest::of(&table.digest_key, namespace, long(*number).as_bytes());
            let partition = table.partition_of(namespace, &digest);
            table.state(partition).unwrap().lead == lead
        };
        let place = |number: u64| {
            let wanted = long(number);
            let found = bytes
                .windows(wanted.len())
                .position(|it| it == wanted.as_bytes());
            found.map(|at| (number, at))
        };
        if !path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("segment-")
        {
            continue;
        }
        if let Some((number, at)) = (0..KEYS).filter(is_led).find_map(place) {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_at(b"X", at as u64).unwrap();
            hurt = Some(number);
            break;
        }
    }
    let hurt = hurt.unwrap();
    ok(&cluster.kvctl(&["backup", "create", &url]));
    assert!(node.log().contains("a slice is damaged"), "{}", node.log());
    ok(&cluster.kvctl(&["backup", "verify", &url, "--depth", "restore"]));
    let got = cluster.kvctl(&["backup", "get", &url, &long(hurt)]);
    assert_eq!(ok(&got), "v");
}
