//! Real `kvd` processes with real sockets and disks, and `kvctl`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;
use torc_client::Client;
pub(crate) use torc_testkit::{Kvd, Signal, TIMEOUT, until, until_or};
use torc_testkit::{Process, SMALL_DATA};

pub(crate) fn kvctl_path() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_kvctl"))
}

pub(crate) fn kvd_path() -> PathBuf {
    torc_testkit::program("kvd").unwrap()
}

/// An unused address.
pub(crate) fn free_address() -> SocketAddr {
    torc_testkit::free_address().unwrap()
}

/// A node that is not running yet.
pub(crate) fn prepare(dir: &Path, name: &str, flags: &[&str]) -> Kvd {
    for_tests(Kvd::prepare(&kvd_path(), dir.join(name), flags).unwrap())
}

/// Nodes that found a cluster when they are started.
pub(crate) fn prepare_cluster(dir: &Path, count: usize, flags: &[&str]) -> Vec<Kvd> {
    let nodes = Kvd::cluster(&kvd_path(), dir, count, flags).unwrap();
    nodes.into_iter().map(for_tests).collect()
}

/// Fewer than by default: a node built without optimisation spends most of its time on them.
pub(crate) const PARTITIONS: u64 = 1_024;

fn for_tests(mut node: Kvd) -> Kvd {
    // A flag overrides it.
    node.variable("TORC_PARTITIONS", &PARTITIONS.to_string());
    for (name, value) in SMALL_DATA {
        node.variable(name, value);
    }
    node.variable(
        "RUST_LOG",
        "info,torc_server=debug,torc_transfers=debug,torc_access=debug,torc_driver=debug,torc_hot=debug,torc_group=debug,torc_links=debug,openraft=error",
    );
    node
}

/// Nodes that were founded as one cluster.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Kvd>,
    pub(crate) dir: TempDir,
}

impl Cluster {
    /// Starts `count` nodes that found a cluster together, and waits until it serves.
    pub(crate) async fn start(count: usize) -> Self {
        Self::start_with(count, &[]).await
    }

    pub(crate) async fn start_with(count: usize, extra: &[&str]) -> Self {
        Self::prepare(count, extra).started().await
    }

    /// Three nodes. The clock of the last one is off by this many milliseconds; nodes tolerate 500.
    pub(crate) async fn with_a_clock_off_by(ms: &str) -> Self {
        // Few partitions, so that collection soon comes to all of them.
        let mut cluster = Self::prepare(3, &["--partitions=64"]);
        let shift = cluster.dir.path().join("shift.txt");
        std::fs::write(&shift, ms).unwrap();
        cluster.nodes[2].variable("TORC_TEST_CLOCK_SHIFT", shift.to_str().unwrap());
        cluster.started().await
    }

    fn prepare(count: usize, extra: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let nodes = prepare_cluster(dir.path(), count, extra);
        Self { nodes, dir }
    }

    async fn started(mut self) -> Self {
        Kvd::serve(&mut self.nodes).await.unwrap();
        self
    }

    /// Starts an empty node that belongs to no cluster yet.
    pub(crate) async fn spare(&mut self, name: &str) -> usize {
        self.spare_with(name, &[]).await
    }

    pub(crate) async fn spare_with(&mut self, name: &str, extra: &[&str]) -> usize {
        let mut node = prepare(self.dir.path(), name, extra);
        node.start().unwrap();
        node.listens().await.unwrap();
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(Kvd::endpoint).collect()
    }

    pub(crate) async fn client(&self) -> Client {
        let builder = Client::builder()
            .endpoints(self.endpoints())
            .deadline(TIMEOUT / 5);
        builder.connect().await.unwrap()
    }

    /// Runs `kvctl` against this cluster.
    pub(crate) fn kvctl(&self, args: &[&str]) -> Output {
        kvctl(&self.endpoints(), args)
    }

    /// Starts `kvctl` against this cluster; its streams are pipes.
    pub(crate) fn kvctl_spawned(&self, args: &[&str]) -> Child {
        Command::new(kvctl_path())
            .args(args)
            .env("TORC_ENDPOINTS", self.endpoints().join(","))
            .env_remove("TORC_NAMESPACE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// The index of the node that leads the topology group.
    pub(crate) async fn topology_leader(&self) -> usize {
        let client = self.client().await;
        let mut leader = None;
        until("there is a topology leader", async || {
            let Ok(status) = client.status().await else {
                return false;
            };
            let Some(id) = status.topology_leader else {
                return false;
            };
            let found = status.nodes.iter().find(|node| node.member.id == id);
            let address = found
                .map(|node| node.member.address.clone())
                .unwrap_or_default();
            leader = self
                .nodes
                .iter()
                .position(|node| node.grpc.to_string() == address);
            leader.is_some()
        })
        .await;
        leader.unwrap()
    }
}

pub(crate) fn kvctl(endpoints: &[String], args: &[&str]) -> Output {
    let output = Command::new(kvctl_path())
        .args(args)
        .env("TORC_ENDPOINTS", endpoints.join(","))
        .env_remove("TORC_NAMESPACE")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        eprintln!("kvctl {args:?}: {}: {said}", output.status);
    }
    output
}

/// A `kvd playground`, killed on drop.
pub(crate) struct Playground {
    process: Process,
    first_grpc_port: u16,
    first_peer_port: u16,
    first_http_port: u16,
    pub(crate) first_resp_port: u16,
    /// Its output.
    pub(crate) welcome: String,
    log: PathBuf,
}

impl Playground {
    const NODES: u16 = 3;

    /// Starts one on free ports, and waits for its welcome text.
    pub(crate) async fn start(data_dir: &Path) -> Self {
        let free_run = || torc_testkit::free_run(Self::NODES).unwrap();
        let ports = [free_run(), free_run(), free_run(), free_run()];
        Self::start_on(ports, data_dir, &[]).await
    }

    /// Starts a secure one.
    pub(crate) async fn start_secure(data_dir: &Path) -> Self {
        let free_run = || torc_testkit::free_run(Self::NODES).unwrap();
        let extra = ["--secure"];
        let ports = [free_run(), free_run(), free_run(), free_run()];
        Self::start_on(ports, data_dir, &extra).await
    }

    async fn start_on(ports: [u16; 4], data_dir: &Path, extra: &[&str]) -> Self {
        let [
            first_grpc_port,
            first_peer_port,
            first_http_port,
            first_resp_port,
        ] = ports;
        let log = data_dir.with_extension("log");
        let mut command = Command::new(kvd_path());
        command
            .arg("playground")
            .args(["--first-grpc-port", &first_grpc_port.to_string()])
            .args(["--first-peer-port", &first_peer_port.to_string()])
            .args(["--first-http-port", &first_http_port.to_string()])
            .args(["--first-resp-port", &first_resp_port.to_string()])
            .arg("--data-dir")
            .arg(data_dir)
            .args(extra)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap());
        let mut playground = Self {
            log,
            process: Process::start(&mut command).unwrap(),
            first_grpc_port,
            first_peer_port,
            first_http_port,
            first_resp_port,
            welcome: String::new(),
        };
        let welcome = playground.process.child().stdout.take().unwrap();
        let read_to_the_end_of_it = tokio::task::spawn_blocking(move || {
            let lines = std::io::BufRead::lines(std::io::BufReader::new(welcome));
            let (mut text, mut is_whole) = (String::new(), false);
            for line in lines.map(Result::unwrap) {
                text.extend([&line, "\n"]);
                is_whole = line.contains("Ctrl-C");
                if is_whole {
                    break;
                }
            }
            (text, is_whole)
        });
        let (welcome, is_whole) = read_to_the_end_of_it.await.unwrap();
        let said = playground.said();
        assert!(
            is_whole,
            "it ended before it was a cluster: {welcome}{said}"
        );
        playground.welcome = welcome;
        playground
    }

    /// What it has written to the standard error so far.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.first_grpc_port)
    }

    pub(crate) fn kvctl(&self, args: &[&str]) -> Output {
        kvctl(&[self.endpoint()], args)
    }

    /// Ctrl-C, then a restart with the same ports and data.
    pub(crate) async fn restart(&mut self, data_dir: &Path) -> Option<i32> {
        self.process.signal(Signal::INT).unwrap();
        let code = self.process.wait().unwrap().code();
        *self = {
            let ports = [
                self.first_grpc_port,
                self.first_peer_port,
                self.first_http_port,
                self.first_resp_port,
            ];
            Self::start_on(ports, data_dir, &[]).await
        };
        code
    }
}

/// A plain HTTP GET; returns status and body, or 0 if there is no response.
pub(crate) async fn http_get(address: SocketAddr, path: &str) -> (u16, String) {
    let response = torc_testkit::http_get(address, path).await;
    response.unwrap_or_default()
}

/// A node's counter or gauge without labels.
pub(crate) async fn metric(node: &Kvd, name: &str) -> u64 {
    let text = http_get(node.http, "/metrics").await.1;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|rest| rest.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in {text}"))
}
