//! Real `kvd` processes with real sockets and disks, and `kvctl`.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use torc_client::Client;

/// Time limit for a condition, which detects a hang, not slowness.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);

pub(crate) fn kvctl_path() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_kvctl"))
}

/// `kvd` is in the same directory as `kvctl`; built here if only this package was built.
pub(crate) fn kvd_path() -> &'static Path {
    static KVD: OnceLock<PathBuf> = OnceLock::new();
    KVD.get_or_init(|| {
        let path = kvctl_path().with_file_name("kvd");
        if !path.exists() {
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "-p", "torc-server", "--bin", "kvd"]);
            if !cfg!(debug_assertions) {
                build.arg("--release");
            }
            assert!(build.status().unwrap().success(), "kvd does not build");
        }
        path
    })
}

/// An unused address.
pub(crate) fn free_address() -> SocketAddr {
    torc_testkit::free_address().unwrap()
}

/// A `kvd` process, killed on drop.
pub(crate) struct Node {
    pub(crate) grpc: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) resp: SocketAddr,
    dir: PathBuf,
    data: PathBuf,
    extra: Vec<String>,
    variables: Vec<(String, String)>,
    child: Option<Child>,
}

impl Node {
    /// A node that is not running yet.
    pub(crate) fn prepare(dir: &Path, name: &str, extra: &[&str]) -> Self {
        Self {
            grpc: free_address(),
            http: free_address(),
            peer: free_address(),
            resp: free_address(),
            dir: dir.join(name),
            data: dir.join(name).join("data"),
            extra: extra.iter().map(|text| (*text).to_owned()).collect(),
            variables: Vec::new(),
            child: None,
        }
    }

    pub(crate) fn start(&mut self) {
        assert!(self.child.is_none(), "started already");
        std::fs::create_dir_all(&self.dir).unwrap();
        let appended = |name| {
            let mut file = File::options();
            let file = file.create(true).append(true);
            file.open(self.dir.join(name)).unwrap()
        };
        let (log, out) = (appended("log.txt"), appended("out.txt"));
        let child = Command::new(kvd_path())
            .args(["serve", "--grpc-addr", &self.grpc.to_string()])
            .args(["--peer-addr", &self.peer.to_string()])
            .args(["--http-addr", &self.http.to_string()])
            .args(["--resp-addr", &self.resp.to_string()])
            .arg("--data-dir")
            .arg(&self.data)
            .args(&self.extra)
            // Makes nodes flush, compact and move slices despite the small amount of data in a
            // test.
            .env("TORC_FLUSH_LOG_MIB", "1")
            .env("TORC_COMPACT_WHEN_IDLE_S", "1")
            .env(
                "RUST_LOG",
                "info,torc_server=debug,torc_transfers=debug,torc_access=debug,torc_driver=debug,torc_hot=debug,torc_group=debug,torc_links=debug,openraft=error",
            )
            // After the others, which they may override.
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::from(out))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    /// Sets this variable for later starts.
    pub(crate) fn variable(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// Uses another node's data directory.
    pub(crate) fn share_data_of(&mut self, other: &Self) {
        self.data.clone_from(&other.data);
    }

    /// Starts the process and waits until it exits; returns the exit code.
    pub(crate) fn run_to_end(&mut self) -> Option<i32> {
        self.start();
        self.child
            .take()
            .and_then(|mut child| child.wait().unwrap().code())
    }

    /// Founds the topology group again from this stopped node, or only shows the plan.
    pub(crate) fn recover(&self, flags: &[&str]) -> Output {
        let mut recover = Command::new(kvd_path());
        recover.args(["recover", "--data-dir"]).arg(&self.data);
        recover.args(flags);
        recover.output().unwrap()
    }

    /// Deletes its data directory after killing it; later starts use these flags.
    pub(crate) fn wipe(&mut self, extra: &[&str]) {
        self.kill_9();
        std::fs::remove_dir_all(&self.data).unwrap();
        self.extra = extra.iter().map(|text| (*text).to_owned()).collect();
    }

    /// SIGKILL, like a crash.
    pub(crate) fn kill_9(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// SIGTERM; the exit code.
    pub(crate) fn terminate(&mut self) -> Option<i32> {
        self.signal("-TERM");
        let mut child = self.child.take().expect("running");
        child.wait().unwrap().code()
    }

    /// Sends a signal by its name for `kill`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.as_ref().expect("running").id().to_string();
        let sent = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.grpc)
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Sets these flags for later starts.
    pub(crate) fn flags(&mut self, extra: &[&str]) {
        self.extra = extra.iter().map(|text| (*text).to_owned()).collect();
    }

    /// The node's output.
    pub(crate) fn out(&self) -> String {
        std::fs::read_to_string(self.dir.join("out.txt")).unwrap_or_default()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log.txt")).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill_9();
    }
}

/// Nodes that were founded as one cluster.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
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
        let mut cluster = Self::prepare(3, &["--replicas=3", "--partitions=64"]);
        let shift = cluster.dir.path().join("shift.txt");
        std::fs::write(&shift, ms).unwrap();
        cluster.nodes[2].variable("TORC_TEST_CLOCK_SHIFT", shift.to_str().unwrap());
        cluster.started().await
    }

    fn prepare(count: usize, extra: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut nodes: Vec<Node> = (1..=count)
            .map(|number| Node::prepare(dir.path(), &format!("node-{number}"), extra))
            .collect();
        let others: Vec<String> = nodes[1..]
            .iter()
            .map(|node| node.grpc.to_string())
            .collect();
        nodes[0].extra.push("--bootstrap".to_owned());
        if !others.is_empty() {
            nodes[0]
                .extra
                .push(format!("--found-with={}", others.join(",")));
        }
        Self { nodes, dir }
    }

    async fn started(mut self) -> Self {
        self.nodes.iter_mut().for_each(Node::start);
        for node in &self.nodes {
            ready(node).await;
        }
        self
    }

    /// Starts an empty node that belongs to no cluster yet.
    pub(crate) async fn spare(&mut self, name: &str) -> usize {
        self.spare_with(name, &[]).await
    }

    pub(crate) async fn spare_with(&mut self, name: &str, extra: &[&str]) -> usize {
        let mut node = Node::prepare(self.dir.path(), name, extra);
        node.start();
        until("the spare node listens", async || {
            tokio::net::TcpStream::connect(node.grpc).await.is_ok()
        })
        .await;
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(Node::endpoint).collect()
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
    child: Child,
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
        let child = Command::new(kvd_path())
            .args([
                "playground",
                "--first-grpc-port",
                &first_grpc_port.to_string(),
            ])
            .args(["--first-peer-port", &first_peer_port.to_string()])
            .args([
                "--first-http-port",
                &first_http_port.to_string(),
                "--first-resp-port",
                &first_resp_port.to_string(),
                "--data-dir",
            ])
            .arg(data_dir)
            .args(extra)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut playground = Self {
            log,
            child,
            first_grpc_port,
            first_peer_port,
            first_http_port,
            first_resp_port,
            welcome: String::new(),
        };
        let welcome = playground.child.stdout.take().unwrap();
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
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
        assert!(sent.success());
        let code = self.child.wait().unwrap().code();
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

impl Drop for Playground {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `/readyz` reports ready; on failure, prints the end of the node's log.
pub(crate) async fn ready(node: &Node) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let (status, answer) = http_get(node.http, "/readyz").await;
        if status == 200 {
            return;
        }
        if Instant::now() >= deadline {
            let log = node.log();
            let lines: Vec<&str> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(40)..].join("\n");
            panic!("{} is not ready: {status} {answer}\n{end}", node.grpc);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A plain HTTP GET; returns status and body.
pub(crate) async fn http_get(address: SocketAddr, path: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect(address).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1)?.parse().ok()?;
        let body = answer
            .split_once("\r\n\r\n")
            .map(|(_, body)| body.to_owned());
        Some((status, body.unwrap_or_default()))
    };
    ask.await.unwrap_or((0, String::new()))
}

/// Waits for a condition by polling.
pub(crate) async fn until(what: &str, condition: impl AsyncFnMut() -> bool) {
    until_or(what, condition, String::new).await;
}

/// Waits for a condition by polling, ever less often: polls take time from what they wait for. If it
/// is never met, the message ends with what `seen` says.
pub(crate) async fn until_or(
    what: &str,
    mut condition: impl AsyncFnMut() -> bool,
    seen: impl FnOnce() -> String,
) {
    let begun = Instant::now();
    while !condition().await {
        let waited = begun.elapsed();
        assert!(waited < TIMEOUT, "waited in vain until {what}; {}", seen());
        let pause = (waited / 20).clamp(Duration::from_millis(20), Duration::from_millis(500));
        tokio::time::sleep(pause).await;
    }
}
