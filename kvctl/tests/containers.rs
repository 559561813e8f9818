//! The clusters of `docker-compose.yml` with `deploy/redis.yml` and with `deploy/secure.yml`, in
//! containers from the image that `deploy/Dockerfile` makes of the binaries built here.
//!
//! Runs if a Docker engine and docker-compose (1.29 or v2) answer. Otherwise it reports why it
//! skips, or fails if `TORC_REQUIRE_CONTAINERS` is set. It pulls nothing, so it needs no registry.
//! Project, volumes, ports and image belong to this run and are removed at its end, even after a
//! failure, which prints the nodes' logs first.
//!
//! All waiting is for a condition, with a deadline that only a broken cluster misses. The tests run one after the
//! other, and beside no other tests: a restart under load leaves operations little time where two processors do more
//! than they can.
#![allow(missing_docs)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

const SERVICES: [&str; 4] = ["torc-1", "torc-2", "torc-3", "torc-4"];
const FOUNDERS: [&str; 3] = ["torc-1", "torc-2", "torc-3"];
/// The user of the image's processes.
const CONTAINERS_USER: u32 = 10_001;
/// The exit status of a `kvctl` that no node answers in time.
const UNAVAILABLE: i32 = 3;
const TIMEOUT: Duration = Duration::from_secs(300);
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// Held by the test that runs.
static RUNNING: Mutex<()> = Mutex::new(());

#[test]
fn a_cluster_of_containers_grows_and_loses_nothing_by_a_kill_a_cut_or_a_restart() {
    let Some(engine) = Engine::find_or_skip() else {
        return;
    };
    let image = Image::build("plain");
    let files = vec![repository().join("deploy/redis.yml")];
    let cluster = Cluster::start(&engine, &image, files);
    let mut records = Records::default();

    founders_form_a_cluster_by_themselves_and_the_fourth_waits(&cluster);
    records.load(&cluster, 0..300);
    records.are_all_there(&cluster);

    the_fourth_joins_and_takes_its_share(&cluster);
    records.are_all_there(&cluster);
    redis_clients_reach_every_node(&cluster, &records);

    a_rolling_restart_under_load_fails_no_operation(&cluster);
    records.are_all_there(&cluster);

    // A kill could lose the last acknowledged writes.
    records.load(&cluster, 300..400);
    a_killed_node_comes_back_with_everything(&cluster, &records);
    a_node_cut_off_is_missed_by_nobody(&cluster, &records);
    the_whole_cluster_stops_cleanly_and_starts_again(&cluster);
    records.are_all_there(&cluster);
}

/// As deploy/README.md describes it.
#[test]
fn a_secure_cluster_of_containers_serves_who_has_a_token_and_nobody_else() {
    let Some(engine) = Engine::find_or_skip() else {
        return;
    };
    let image = Image::build("secure");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let ca = dir.path().join("ca");
    let mut create = Command::new(env!("CARGO_BIN_EXE_kvctl"));
    create.args(["ca", "create"]).arg(&ca);
    Ended::of(create, &[]).succeeds();
    let key = ca.join("ca-key.pem");
    // Only root may give it to the containers' user.
    std::os::unix::fs::chown(&key, Some(CONTAINERS_USER), None)
        .or_else(|_| std::fs::set_permissions(&key, Permissions::from_mode(0o644)))
        .unwrap();
    // The same with the directory of this test.
    let elsewhere = dir.path().join("elsewhere.yml");
    let mounted = serde_json::json!({ "volumes": [format!("{}:/etc/torc/ca:ro", ca.display())] });
    let services: Value = SERVICES
        .map(|service| (service.to_owned(), mounted.clone()))
        .into_iter()
        .collect();
    std::fs::write(
        &elsewhere,
        serde_json::json!({ "services": services }).to_string(),
    )
    .unwrap();
    let files = vec![repository().join("deploy/secure.yml"), elsewhere];
    let mut cluster = Cluster::start(&engine, &image, files);
    founders_are_healthy(&cluster);

    let plain = cluster.kvctl("torc-1", &["status"]);
    assert_eq!(plain.code(), Some(UNAVAILABLE), "{plain}");
    assert!(plain.to_string().contains("--tls-ca"), "{plain}");
    cluster.identity = vec![
        "--tls-ca".to_owned(),
        ca.join("ca.pem").display().to_string(),
    ];
    let nobody = cluster.kvctl("torc-1", &["put", "k", "v"]);
    assert_eq!(nobody.code(), Some(6), "{nobody}");

    let exec = ["exec", "-T", "torc-1", "kvctl"];
    let create = ["token", "create", "me", "--role", "admin"];
    let token = cluster.compose(&[&exec[..], &create].concat()).succeeds();
    let file = dir.path().join("token");
    std::fs::write(&file, token).unwrap();
    cluster
        .identity
        .extend(["--token-file".to_owned(), file.display().to_string()]);

    let mut records = Records::default();
    records.load(&cluster, 0..300);
    records.are_all_there(&cluster);
    the_fourth_joins_and_takes_its_share(&cluster);
    records.are_all_there(&cluster);
    cluster.compose(&["restart", "torc-2"]).succeeds();
    cluster.becomes_healthy("torc-2");
    let (key, value) = records.0.first_key_value().unwrap();
    assert_eq!(&cluster.kvctl("torc-2", &["get", key]).succeeds(), value);
}

fn founders_are_healthy(cluster: &Cluster) {
    for service in FOUNDERS {
        cluster.becomes_healthy(service);
    }
}

fn founders_form_a_cluster_by_themselves_and_the_fourth_waits(cluster: &Cluster) {
    founders_are_healthy(cluster);
    let fourth = cluster.inspect("torc-4");
    assert_eq!(fourth["Running"], true, "{fourth}");
    assert_ne!(
        fourth["Health"]["Status"], "healthy",
        "it belongs to no cluster yet"
    );
    let status = cluster.status("torc-1");
    let nodes = status["nodes"].as_array().unwrap();
    let addresses: Vec<_> = nodes
        .iter()
        .map(|node| node["address"].as_str().unwrap())
        .collect();
    assert_eq!(addresses, ["torc-1:7400", "torc-2:7400", "torc-3:7400"]);
}

fn the_fourth_joins_and_takes_its_share(cluster: &Cluster) {
    // From outside, where the name does not resolve: only the nodes must know it.
    // On a busy machine the nodes may need longer than usual to agree on it.
    let join = ["--timeout", "2m", "join-node", "torc-4:7400"];
    let arguments = [&join[..], &["--parallel", "256"]].concat();
    cluster.kvctl("torc-1", &arguments).succeeds();
    cluster.becomes_healthy("torc-4");
    // The node that leads the change knows first that it is done.
    eventually("torc-4 knows that it has joined", || {
        let node = node_at(&cluster.status("torc-4"), "torc-4:7400").clone();
        (node["state"] == "active")
            .then_some(())
            .ok_or_else(|| node.to_string())
    });
    let status = cluster.status("torc-4");
    let partitions = status["partitions"].as_u64().unwrap();
    let node = node_at(&status, "torc-4:7400");
    let leads = node["leads"].as_u64().unwrap();
    assert!(
        4 * leads > partitions * 9 / 10,
        "{leads} of {partitions} with three equal nodes"
    );
    assert!(node["records"].as_u64().unwrap() > 0, "{node}");
}

fn redis_clients_reach_every_node(cluster: &Cluster, records: &Records) {
    let (key, value) = records.0.first_key_value().unwrap();
    for service in SERVICES {
        let mut stream = TcpStream::connect(cluster.published(service, "7463/tcp")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let get = format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
        stream.write_all(get.as_bytes()).unwrap();
        let expected = format!("${}\r\n{value}\r\n", value.len());
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), expected, "{service}");
    }
}

fn a_rolling_restart_under_load_fails_no_operation(cluster: &Cluster) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let restarts = SetWhenDropped(&done);
        let load = scope.spawn(|| {
            let mut operations = 0;
            while !done.load(Ordering::SeqCst) {
                let report = cluster.load_for("15s");
                assert_eq!(report["failed"], 0, "{report}");
                operations += report["operations"].as_u64().unwrap();
            }
            operations
        });
        for service in SERVICES {
            cluster.compose(&["restart", service]).succeeds();
            cluster.becomes_healthy(service);
            eventually("every partition has all of its replicas", || {
                let asked = cluster.kvctl(service, &["status", "--output", "json"]);
                let is_silent = asked.code() == Some(UNAVAILABLE);
                let status = (!is_silent).then(|| serde_json::from_str(&asked.succeeds()).unwrap());
                let status: Value = status.ok_or_else(|| asked.to_string())?;
                let mut nodes = status["nodes"].as_array().unwrap().iter();
                let is_whole =
                    status["under_replicated"] == 0 && nodes.all(|it| it["ready"] == true);
                is_whole.then_some(()).ok_or_else(|| status.to_string())
            });
        }
        drop(restarts);
        assert!(load.join().unwrap() > 0, "there was load");
    });
}

/// Also if a check fails: a load that went on would keep the test from ending.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn a_killed_node_comes_back_with_everything(cluster: &Cluster, records: &Records) {
    // The founder: it must return as a member, and not found a second cluster.
    let cluster_id = cluster.status("torc-2")["cluster_id"].clone();
    let elsewhere = records.led_by(cluster, "torc-2", "torc-4:7400");
    docker(&["kill", "--signal", "KILL", cluster.container("torc-1")]).succeeds();
    records.is_there(cluster, "torc-2", &elsewhere);

    cluster.compose(&["start", "torc-1"]).succeeds();
    cluster.becomes_healthy("torc-1");
    records.are_all_there(cluster);
    assert_eq!(cluster.status("torc-1")["cluster_id"], cluster_id);
}

fn a_node_cut_off_is_missed_by_nobody(cluster: &Cluster, records: &Records) {
    let cut_off = records.led_by(cluster, "torc-1", "torc-3:7400");
    let elsewhere = records.led_by(cluster, "torc-1", "torc-2:7400");
    let container = cluster.container("torc-3");
    docker(&["network", "disconnect", &cluster.network(), container]).succeeds();

    records.is_there(cluster, "torc-1", &elsewhere);
    // Its lead is cut off, but two of its three replicas are not.
    records.is_there(cluster, "torc-1", &cut_off);
    let put = cluster.kvctl("torc-1", &["put", &cut_off, "new", "--if-absent"]);
    // Before the nodes detect its silence, the write may be on its way to it: then the outcome is
    // unknown.
    assert!(
        matches!(put.code(), Some(4 | 5)),
        "the others know that the key is there: {put}"
    );

    alerts_and_dashboard_name_only_what_nodes_report(cluster);

    let alias = [
        "network",
        "connect",
        "--alias",
        "torc-3",
        &cluster.network(),
        container,
    ];
    docker(&alias).succeeds();
    cluster.becomes_healthy("torc-3");
    records.are_all_there(cluster);
}

/// All counters exist from the start, at zero.
fn alerts_and_dashboard_name_only_what_nodes_report(cluster: &Cluster) {
    let reported = cluster.metrics("torc-1");
    let reported: BTreeSet<_> = metric_names(&reported).collect();
    for file in ["deploy/prometheus/alerts.yml", "deploy/grafana/torc.json"] {
        let text = std::fs::read_to_string(repository().join(file)).unwrap();
        let named: BTreeSet<_> = metric_names(&text).collect();
        assert!(!named.is_empty(), "{file}");
        let unknown: Vec<_> = named.difference(&reported).collect();
        assert!(unknown.is_empty(), "{file}: no node reports {unknown:?}");
    }
}

fn metric_names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("torc_"))
}

fn the_whole_cluster_stops_cleanly_and_starts_again(cluster: &Cluster) {
    cluster.compose(&["stop"]).succeeds();
    for service in SERVICES {
        let state = cluster.inspect(service);
        assert_eq!(
            state["ExitCode"], 0,
            "{service} ends by itself when told to: {state}"
        );
    }
    cluster.compose(&["start"]).succeeds();
    for service in SERVICES {
        cluster.becomes_healthy(service);
    }
}

/// Records that were stored and must be found.
#[derive(Default)]
struct Records(BTreeMap<String, String>);

impl Records {
    /// Stores records with these numbers through the first node.
    fn load(&mut self, cluster: &Cluster, numbers: std::ops::Range<u32>) {
        let mut lines = String::new();
        for number in numbers {
            let (key, value) = (format!("user/{number}"), format!("the value of {number}"));
            lines += &serde_json::json!({ "key": key, "value": value }).to_string();
            lines.push('\n');
            self.0.insert(key, value);
        }
        let load = ["load", "-", "--format", "ndjson"];
        cluster
            .kvctl_reading("torc-1", &load, lines.as_bytes())
            .succeeds();
    }

    /// Reads everything through the first node until all of it is there. Retries only if a node is
    /// unavailable: a wrong or missing record fails at once.
    fn are_all_there(&self, cluster: &Cluster) {
        let dump = eventually("everything can be read", || {
            let dump = cluster.kvctl("torc-1", &["dump"]);
            if dump.code() == Some(UNAVAILABLE) {
                Err(dump.to_string())
            } else {
                Ok(dump)
            }
        });
        let mut found = BTreeMap::new();
        for line in dump.succeeds().lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            let text = |field: &str| record[field].as_str().unwrap_or_default().to_owned();
            let twice = found.insert(text("key"), text("value"));
            assert_eq!(twice, None, "twice in the dump: {line}");
        }
        assert!(
            found == self.0,
            "{} records of {}",
            found.len(),
            self.0.len()
        );
    }

    /// Reads one record from outside through `service`, which need not be its lead.
    fn is_there(&self, cluster: &Cluster, service: &str, key: &str) {
        assert_eq!(
            cluster.kvctl(service, &["get", key]).succeeds(),
            self.0[key]
        );
    }

    /// A key whose lead is the node at `address`, according to `service`.
    fn led_by(&self, cluster: &Cluster, service: &str, address: &str) -> String {
        let status = cluster.status(service);
        let id = node_at(&status, address)["id"].as_u64().unwrap();
        let leads = |key: &&String| cluster.json(service, &["explain", key])["lead"] == id;
        let found = self.0.keys().find(leads);
        found.expect("each node leads a fourth of the keys").clone()
    }
}

fn node_at<'a>(status: &'a Value, address: &str) -> &'a Value {
    let nodes = status["nodes"].as_array().unwrap();
    let found = nodes.iter().find(|node| node["address"] == address);
    found.unwrap_or_else(|| panic!("no node at {address}: {status}"))
}

/// The running project of `docker-compose.yml`; removed on drop.
struct Cluster {
    compose: Vec<&'static str>,
    /// What is added to `docker-compose.yml`.
    files: Vec<PathBuf>,
    /// Flags of kvctl that say who calls.
    identity: Vec<String>,
    project: String,
    image: String,
    containers: HashMap<&'static str, String>,
}

impl Cluster {
    fn start(engine: &Engine, image: &Image, files: Vec<PathBuf>) -> Self {
        let mut cluster = Self {
            compose: engine.compose.clone(),
            files,
            identity: Vec::new(),
            project: image.name.clone(),
            image: image.name.clone(),
            containers: HashMap::new(),
        };
        cluster
            .compose(&["up", "--detach", "--no-build"])
            .succeeds();
        for service in SERVICES {
            let id = cluster
                .compose(&["ps", "--all", "--quiet", service])
                .succeeds();
            cluster.containers.insert(service, id.trim().to_owned());
        }
        cluster
    }

    fn compose(&self, arguments: &[&str]) -> Ended {
        let mut command = Command::new(self.compose[0]);
        command.args(&self.compose[1..]);
        command
            .arg("--file")
            .arg(repository().join("docker-compose.yml"));
        for file in &self.files {
            command.arg("--file").arg(file);
        }
        command
            .args(["--project-name", &self.project])
            .args(arguments);
        command.env("TORC_IMAGE", &self.image);
        for number in 1..=SERVICES.len() {
            // Any free port.
            command.env(format!("TORC_GRPC_PORT_{number}"), "");
            command.env(format!("TORC_HTTP_PORT_{number}"), "");
            command.env(format!("TORC_RESP_PORT_{number}"), "");
        }
        Ended::of(command, &[])
    }

    /// The report of `kvctl bench` from a separate container, which reaches every node by its name.
    fn load_for(&self, time: &str) -> Value {
        let network = self.network();
        let run = [
            "run",
            "--rm",
            "--network",
            &network,
            "--entrypoint",
            "kvctl",
        ];
        let nodes = SERVICES.map(|service| format!("{service}:7400")).join(",");
        let kvctl = ["--endpoint", &nodes, "--timeout", "60s", "--output", "json"];
        let bench = [
            "bench",
            "--duration",
            time,
            "--rate",
            "300",
            "--keys",
            "500",
            "--clean-up",
        ];
        let report = docker(&[&run[..], &[&self.image], &kvctl, &bench].concat()).succeeds();
        serde_json::from_str(&report).unwrap()
    }

    fn container(&self, service: &str) -> &str {
        &self.containers[service]
    }

    fn network(&self) -> String {
        format!("{}_default", self.project)
    }

    /// The engine's description of the container's state.
    fn inspect(&self, service: &str) -> Value {
        let form = [
            "inspect",
            "--format",
            "{{json .State}}",
            self.container(service),
        ];
        serde_json::from_str(&docker(&form).succeeds()).unwrap()
    }

    fn becomes_healthy(&self, service: &str) {
        eventually(&format!("{service} is healthy"), || {
            let state = self.inspect(service);
            let healthy = state["Health"]["Status"] == "healthy";
            if healthy {
                Ok(())
            } else {
                Err(state.to_string())
            }
        });
    }

    /// The local address of a port. Query it each time: the engine assigns another address when a
    /// container restarts.
    fn published(&self, service: &str, port: &str) -> String {
        let addresses = docker(&["port", self.container(service), port]).succeeds();
        let first = addresses.lines().next();
        first.expect("the port is published").to_owned()
    }

    /// The service's `/metrics`.
    fn metrics(&self, service: &str) -> String {
        let mut stream = TcpStream::connect(self.published(service, "7480/tcp")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.lines().next().unwrap().contains(" 200 "), "{head}");
        body.to_owned()
    }

    /// Runs kvctl on this machine against a service's published port.
    fn kvctl(&self, service: &str, arguments: &[&str]) -> Ended {
        self.kvctl_reading(service, arguments, &[])
    }

    fn kvctl_reading(&self, service: &str, arguments: &[&str], input: &[u8]) -> Ended {
        let address = self.published(service, "7400/tcp");
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvctl"));
        command
            .args(["--endpoint", &address])
            .args(&self.identity)
            .args(arguments);
        Ended::of(command, input)
    }

    fn json(&self, service: &str, arguments: &[&str]) -> Value {
        let printed = self
            .kvctl(service, &[arguments, &["--output", "json"]].concat())
            .succeeds();
        serde_json::from_str(&printed).unwrap()
    }

    fn status(&self, service: &str) -> Value {
        self.json(service, &["status"])
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.compose(&["ps"]));
            eprintln!("{}", self.compose(&["logs", "--no-color", "--tail", "60"]));
        }
        let down = self.compose(&["down", "--volumes", "--remove-orphans", "--timeout", "1"]);
        if down.code() != Some(0) {
            eprintln!("the cluster was not taken down: {down}");
        }
    }
}

/// An image of the kvd and kvctl built here; removed on drop.
struct Image {
    name: String,
}

impl Image {
    fn build(variant: &str) -> Self {
        let name = format!("torc-test-{variant}-{}", std::process::id());
        let kvd = torc_testkit::program("kvd").unwrap();
        let binaries = kvd.parent().unwrap();
        let context = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut make_root = Command::new(repository().join("deploy/make-root"));
        make_root.arg(binaries).arg(context.path());
        Ended::of(make_root, &[]).succeeds();
        // For S3 over HTTPS. The programs built here do not have S3.
        let authorities = "etc/ssl/certs/ca-certificates.crt";
        let root = context.path().join("deploy/image/root");
        assert_eq!(
            root.join(authorities).exists(),
            Path::new("/").join(authorities).exists()
        );

        let image = Self { name };
        let mut build = Command::new("docker");
        build.args(["build", "--force-rm", "--target", "prebuilt"]);
        build.args(["--tag", &image.name, "--file"]);
        build
            .arg(repository().join("deploy/Dockerfile"))
            .arg(context.path());
        Ended::of(build, &[]).succeeds();
        image
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let removed = docker(&["image", "rm", "--force", &self.name]);
        if removed.code() != Some(0) {
            eprintln!("the image was not removed: {removed}");
        }
    }
}

/// How to call docker-compose.
struct Engine {
    compose: Vec<&'static str>,
    /// No other test of this file runs meanwhile.
    _alone: MutexGuard<'static, ()>,
}

impl Engine {
    /// An engine and the right to use it, or a message that says why the test is skipped.
    fn find_or_skip() -> Option<Self> {
        match Self::find() {
            Ok(engine) => Some(engine),
            Err(why) if std::env::var_os("TORC_REQUIRE_CONTAINERS").is_some() => panic!("{why}"),
            Err(why) => {
                // Bypasses the test harness, which hides the output of passing tests.
                let told = writeln!(std::io::stderr(), "containers: skipped: {why}");
                told.ok().and(None)
            }
        }
    }

    /// An engine on this machine that can run what is built here, or why there is none.
    fn find() -> Result<Self, String> {
        let remote = |host: &String| !host.starts_with("unix://");
        if let Some(host) = std::env::var("DOCKER_HOST").ok().filter(remote) {
            return Err(format!(
                "the Docker engine at {host} may be another machine's"
            ));
        }
        let version = ["version", "--format", "{{.Server.Os}}/{{.Server.Arch}}"];
        let platform = succeeded("docker", &version)
            .ok_or("no Docker engine answers (`docker version` failed)")?;
        let ours = match std::env::consts::ARCH {
            "x86_64" => "linux/amd64",
            "aarch64" => "linux/arm64",
            other => other,
        };
        if !cfg!(target_os = "linux") || platform.trim() != ours {
            let (platform, os) = (platform.trim(), std::env::consts::OS);
            return Err(format!(
                "the engine runs {platform}, these binaries are for {os} {ours}"
            ));
        }
        let compose = [vec!["docker", "compose"], vec!["docker-compose"]];
        let answers =
            |call: &Vec<&str>| succeeded(call[0], &[&call[1..], &["version"]].concat()).is_some();
        let compose = compose.into_iter().find(answers);
        let compose = compose.ok_or("neither `docker compose` nor `docker-compose` answers")?;
        let alone = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Self {
            compose,
            _alone: alone,
        })
    }
}

fn succeeded(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn docker(arguments: &[&str]) -> Ended {
    let mut command = Command::new("docker");
    command.args(arguments);
    Ended::of(command, &[])
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// A command that has exited.
struct Ended {
    command: String,
    output: Output,
}

impl Ended {
    fn of(mut command: Command, input: &[u8]) -> Self {
        let shown = format!("{command:?}");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{shown}: {error}"));
        // The input fits in a pipe, or the command reads it before it prints anything. A command
        // that exits without reading reports the reason itself.
        let mut pipe = child.stdin.take().unwrap();
        let _ = pipe.write_all(input);
        drop(pipe);
        let output = child.wait_with_output().unwrap();
        Self {
            command: shown,
            output,
        }
    }

    fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    /// Its output; fails if the command failed.
    #[track_caller]
    fn succeeds(&self) -> String {
        assert!(self.output.status.success(), "{self}");
        String::from_utf8(self.output.stdout.clone()).unwrap()
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&self.output.stdout), text(&self.output.stderr));
        write!(
            f,
            "{}: {}\n{stdout}{stderr}",
            self.command, self.output.status
        )
    }
}

/// Polls until there is a result.
#[track_caller]
fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match look() {
            Ok(found) => return found,
            Err(last) if Instant::now() > deadline => panic!("never so: {what}; last: {last}"),
            Err(_) => std::thread::sleep(BETWEEN_LOOKS),
        }
    }
}
