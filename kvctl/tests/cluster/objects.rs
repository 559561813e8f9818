//! Generations and backups that are sent to a directory, or to an object store if `TORC_TEST_S3` names
//! one, and fetched from there, while the tool and nodes are killed. The object store is behind a proxy that
//! fails, is slow, and lets requests be carried out twice.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use torc_objects::Location;

use crate::processes::{Cluster, Kvd, kvctl_path, until, until_or};
use crate::proxy::Proxy;

const NAME: &str = "pages";
const KEYS: u64 = 12_000;
/// The exit code if the object store fails.
const UNAVAILABLE: i32 = 3;
const VALUE_LEN: usize = 1_500;

fn key(number: u64) -> String {
    format!("page-{number}")
}

fn value(generation: u64, number: u64) -> String {
    format!("{generation}/{number}/{}", "v".repeat(VALUE_LEN))
}

/// A cluster with a static namespace, and a place for generations.
struct Fixture {
    cluster: Cluster,
    url: String,
    /// What kvctl and the nodes have in their environment.
    variables: Vec<(String, String)>,
    proxy: Option<Proxy>,
}

impl Fixture {
    async fn start() -> Self {
        let mut variables = Vec::new();
        let mut proxy = None;
        let bucket = std::env::var("TORC_TEST_S3").ok();
        if bucket.is_some() {
            let store = std::env::var("AWS_ENDPOINT").unwrap();
            let store = store.strip_prefix("http://").unwrap().parse().unwrap();
            let started = Proxy::start(store);
            let endpoint = format!("http://{}", started.address);
            variables.push(("AWS_ENDPOINT".to_owned(), endpoint));
            proxy = Some(started);
        }
        // Slow enough to kill a node that is fetching.
        let flags = ["--replicas=2", "--transfer-mib-per-s=4"];
        let mut cluster = Cluster::start_with(3, &flags).await;
        for node in &mut cluster.nodes {
            for (name, value) in &variables {
                node.kill_9();
                node.variable(name, value);
                node.start().unwrap();
            }
        }
        for node in &mut cluster.nodes {
            node.ready().await.unwrap();
        }
        let unique = cluster.dir.path().file_name().unwrap().to_str().unwrap();
        let url = match bucket {
            Some(bucket) => format!("{bucket}/{unique}/pages"),
            None => format!("file://{}", cluster.dir.path().join("objects").display()),
        };
        let this = Self {
            cluster,
            url,
            variables,
            proxy,
        };
        this.ok(&["namespace", "create", NAME, "--mode", "static"]);
        this
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(kvctl_path());
        command.args(args);
        command.env("TORC_ENDPOINTS", self.cluster.endpoints().join(","));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Repeats a command that failed because the object store did, as a user does.
    fn repeated(&self, args: &[&str]) -> String {
        for _ in 0..50 {
            let output = self.command(args).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(0) => return String::from_utf8(output.stdout).unwrap(),
                Some(UNAVAILABLE) if self.proxy.is_some() => eprintln!("again: {stderr}"),
                _ => panic!("{args:?}: {stderr}"),
            }
        }
        panic!("{args:?} fails for ever");
    }

    fn path(&self, name: &str) -> String {
        let path = self.cluster.dir.path().join(name);
        path.to_str().unwrap().to_owned()
    }

    /// The command that builds a generation and sends it.
    fn build(&self, generation: u64) -> Vec<String> {
        let rows = self.path(&format!("rows-{generation}.ndjson"));
        if !Path::new(&rows).exists() {
            let mut text = String::new();
            for number in 0..KEYS {
                let (key, value) = (key(number), value(generation, number));
                writeln!(text, r#"{{"key":"{key}","value":"{value}"}}"#).unwrap();
            }
            std::fs::write(&rows, text).unwrap();
        }
        let reservation = self.path(&format!("reservation-{generation}"));
        if !Path::new(&reservation).exists() {
            self.ok(&["generation", "reserve", NAME, "--to", &reservation]);
        }
        let work = self.path(&format!("work-{generation}"));
        [
            "--output",
            "json",
            "build",
            "--from",
            &rows,
            "--key",
            "key",
            "--value",
            "value",
            "--reservation",
            &reservation,
            "--out",
            &self.url,
            "--work",
            &work,
        ]
        .map(str::to_owned)
        .into()
    }

    fn location(&self) -> Location {
        Location::open(&self.url).unwrap()
    }

    async fn objects(&self, ending: &str) -> BTreeSet<String> {
        let names = self.location().names().await.unwrap();
        names
            .into_iter()
            .filter(|name| name.strip_suffix(ending).is_some())
            .collect()
    }

    async fn all_there(&self, generation: u64) {
        let client = self.cluster.client().await.namespace(NAME);
        for number in (0..KEYS).step_by(7) {
            let found = client.get(key(number)).await.unwrap().unwrap();
            assert_eq!(found.value, value(generation, number), "{number}");
        }
        assert_eq!(client.get("page-none").await.unwrap(), None);
    }

    fn attaching(&self, url: &str) -> std::process::Child {
        let mut attach = self.command(&["generation", "attach", url]);
        attach.stdout(Stdio::null()).stderr(Stdio::null());
        attach.spawn().unwrap()
    }
}

fn args(of: &[String]) -> Vec<&str> {
    of.iter().map(String::as_str).collect()
}

/// Kills the tool while it builds and sends, until it has completed; returns the manifest's URL.
async fn killed_again_and_again(fixture: &Fixture, generation: u64) -> String {
    let build = fixture.build(generation);
    let before = fixture.objects(".json").await;
    let mut kills = 0;
    let plan = fixture.path(&format!("work-{generation}/plan.json"));
    for is_sending in [false, true, true] {
        let sent = fixture.objects(".part").await;
        let mut command = fixture.command(&args(&build));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut tool = command.spawn().unwrap();
        until("it builds, or sends", async || {
            let is_far = if is_sending {
                fixture.objects(".part").await != sent
            } else {
                Path::new(&plan).exists()
            };
            is_far || tool.try_wait().unwrap().is_some()
        })
        .await;
        kills += u32::from(tool.try_wait().unwrap().is_none());
        tool.kill().unwrap();
        tool.wait().unwrap();
    }
    assert!(kills > 0, "nothing was killed");
    let built: serde_json::Value = serde_json::from_str(&fixture.repeated(&args(&build))).unwrap();
    assert_eq!(built["records"], KEYS);
    let url = built["url"].as_str().unwrap().to_owned();
    let after = fixture.objects(".json").await;
    let new: Vec<_> = after.difference(&before).collect();
    assert_eq!(
        new.len(),
        1,
        "one manifest, however often it began: {new:?}"
    );
    assert!(url.ends_with(new[0].as_str()), "{url}");
    let work = fixture.path(&format!("work-{generation}"));
    assert!(!Path::new(&work).exists(), "it is of no more use");
    url
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_is_sent_and_fetched_whatever_is_killed_or_fails() {
    let mut fixture = Fixture::start().await;
    let first = killed_again_and_again(&fixture, 1).await;
    fixture.repeated(&["generation", "verify", &first, "--depth", "records"]);

    let data = fixture.cluster.nodes[1].data.clone();
    let before = bytes_below(&data);
    let mut attaching = fixture.attaching(&first);
    until("the node is fetching", async || {
        bytes_below(&data) > before + (1 << 20)
    })
    .await;
    fixture.cluster.nodes[1].kill_9();
    fixture.cluster.nodes[1].start().unwrap();
    fixture.cluster.nodes[1].ready().await.unwrap();
    // It may have failed meanwhile, because a node was killed.
    let _ = attaching.wait();
    fixture.repeated(&["generation", "attach", &first]);
    fixture.ok(&["generation", "promote", "1"]);
    fixture.all_there(1).await;

    // A file that is cut off is named, and harms nothing. Its location is named without its manifest.
    let second = killed_again_and_again(&fixture, 2).await;
    let location = fixture.location();
    let manifest = torc_build::Published::open(&second).await.unwrap();
    let file = manifest.manifest().files[0].clone();
    let whole = location
        .read(&file.name(), u64::MAX)
        .await
        .unwrap()
        .unwrap();
    let slice = file.slices[file.slices.len() / 2];
    let cut = usize::try_from(slice.at + slice.len / 2).unwrap();
    replace(&fixture, &file.name(), &whole[..cut]).await;
    let verified = fixture.command(&["generation", "verify", &second, "--depth", "bytes"]);
    let verified = { verified }.output().unwrap();
    assert_eq!(verified.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&verified.stderr).contains(&file.name()));
    let mut attaching = fixture.attaching(&fixture.url);
    // A run of slices is read at once, and then slice by slice.
    let told = format!("{}: the slice of partition ", file.name());
    let log = || {
        let nodes = fixture.cluster.nodes.iter();
        nodes.map(Kvd::log).collect::<String>()
    };
    until_or("the node names it", async || log().contains(&told), log).await;
    assert!(attaching.try_wait().unwrap().is_none(), "it waits");
    fixture.all_there(1).await;
    replace(&fixture, &file.name(), &whole).await;
    assert!(attaching.wait().unwrap().success());
    fixture.ok(&["generation", "promote", "2"]);
    fixture.all_there(2).await;
    if let Some(proxy) = &fixture.proxy {
        assert!(proxy.troubles() > 10, "the store has not failed");
    }
}

/// Copies rows to objects, and builds from there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_is_built_from_objects() {
    let fixture = Fixture::start().await;
    fixture.build(1);
    let rows = std::fs::read_to_string(fixture.path("rows-1.ndjson")).unwrap();
    let from = format!("{}-rows", fixture.url);
    let location = Location::open(&from).unwrap();
    let lines: Vec<&str> = rows.lines().collect();
    for (number, lines) in lines.chunks(lines.len().div_ceil(2)).enumerate() {
        let path = fixture.path("part");
        std::fs::write(&path, lines.join("\n")).unwrap();
        let object = format!("deep/part-{number}.ndjson");
        let pace = |_| std::future::ready(());
        let sent = location.upload(&object, Path::new(&path), pace).await;
        assert!(sent.unwrap());
    }
    let out = fixture.path("built");
    let build = ["build", "--output", "json", "--from", &from, "--out", &out];
    let built: serde_json::Value = serde_json::from_str(&fixture.repeated(&build)).unwrap();
    assert_eq!(built["records"], KEYS);
    for number in [0, KEYS / 2, KEYS - 1] {
        let got = fixture.ok(&["generation", "get", &out, &key(number)]);
        assert_eq!(got, value(1, number));
    }
    let verified = fixture.ok(&["generation", "verify", &out]);
    assert!(verified.contains(" is intact: 12,000 keys"), "{verified}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_sent_and_restored() {
    let fixture = Fixture::start().await;
    let client = fixture.cluster.client().await;
    let pairs = (0..KEYS).map(|number| (key(number), number.to_string()));
    for stored in client.batch_put(pairs).await.unwrap() {
        stored.unwrap();
    }
    let built = fixture.repeated(&args(&fixture.build(1)));
    let built: serde_json::Value = serde_json::from_str(&built).unwrap();
    fixture.repeated(&["generation", "attach", built["url"].as_str().unwrap()]);
    fixture.ok(&["generation", "promote", "1"]);
    let url = format!("{}-backups", fixture.url);
    fixture.repeated(&["backup", "create", &url]);
    fixture.repeated(&["backup", "verify", &url, "--depth", "restore"]);
    fixture.ok(&["namespace", "create", "copy"]);
    let restore = ["restore", &url, "--only", "default", "--into", "copy"];
    fixture.repeated(&[&restore[..], &["--overwrite"]].concat());
    let copy = client.namespace("copy");
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let values = copy.batch_get(keys).await.unwrap();
    for (number, value) in values.into_iter().enumerate() {
        assert_eq!(value.unwrap().unwrap().value, number.to_string());
    }
    let (work, copy) = (fixture.path("restoring"), "pages-copy");
    std::fs::create_dir(&work).unwrap();
    let restore = ["restore", &url, "--only", NAME, "--into", copy];
    let place = ["--overwrite", "--work", &work];
    fixture.repeated(&[&restore[..], &place].concat());
    let copy = client.namespace(copy);
    for number in (0..KEYS).step_by(7) {
        let found = copy.get(key(number)).await.unwrap().unwrap();
        assert_eq!(found.value, value(1, number), "{number}");
    }
    let location = Location::open(&url).unwrap();
    let left = location.list("restores").await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

async fn replace(fixture: &Fixture, object: &str, bytes: &[u8]) {
    let path = fixture.path("replacement");
    std::fs::write(&path, bytes).unwrap();
    let location = fixture.location();
    location.remove(object).await.unwrap();
    let sent = location.upload(object, Path::new(&path), |_| std::future::ready(()));
    assert!(sent.await.unwrap());
}

fn bytes_below(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    let entries = entries.filter_map(Result::ok);
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_below(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}

#[tokio::test]
async fn a_url_that_nodes_cannot_use_is_refused_at_once() {
    let fixture = Fixture::start().await;
    let build = fixture.build(1);
    let built: serde_json::Value = serde_json::from_str(&fixture.repeated(&args(&build))).unwrap();
    let url = built["url"].as_str().unwrap();
    for (source, says) in [
        ("s3://bucket:9000/pages", "and nothing more"),
        ("http://169.254.169.254/latest", "is not supported"),
        ("pages", "not a usable location"),
    ] {
        let attach = ["generation", "attach", url, "--source", source];
        let refused = fixture.command(&attach).output().unwrap();
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && stderr.contains(says),
            "{stderr}"
        );
    }
    let other = fixture.command(&["build", "--from", "x.csv", "--out", "ftp://host/dir"]);
    let other = { other }.output().unwrap();
    let stderr = String::from_utf8_lossy(&other.stderr);
    assert_eq!(other.status.code(), Some(2), "{stderr}");
    assert!(!Path::new("dir.build").exists());
    // Without a variable of the service, nothing is asked for credentials.
    let mut bare = fixture.command(&["backup", "list", "s3://bucket/prefix"]);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AWS_") {
            bare.env_remove(name);
        }
    }
    let bare = bare.env_remove("AWS_ENDPOINT").output().unwrap();
    let stderr = String::from_utf8_lossy(&bare.stderr);
    assert_eq!(bare.status.code(), Some(2), "{stderr}");
    let says = match fixture.proxy {
        Some(_) => "no AWS_… environment variables",
        None => "without the feature `s3`",
    };
    assert!(stderr.contains(says), "{stderr}");
}
