//! One kvd process with its own data directory, free ports, and a log.

use std::ffi::OsString;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Readings;
use crate::cleanup;
use crate::process::Process;
use torc_testkit::free_address;

/// Time limit for a node to start serving.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// Time limit for a node to flush and compact a load.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1_800);
const ASK_AGAIN: Duration = Duration::from_millis(5);
const ASK_RARELY: Duration = Duration::from_millis(250);
/// Less than this may remain in the memtable indefinitely.
const LEFT_BYTES: f64 = 5_242_880.0;
/// Longer than the interval between two steps of a flush or compaction.
const REST: Duration = Duration::from_secs(10);

/// A node, running or not. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Node {
    program: PathBuf,
    /// Arguments before kvd's own, if another program runs it.
    leading: Vec<OsString>,
    dir: PathBuf,
    pub(crate) grpc: SocketAddr,
    peer: SocketAddr,
    http: SocketAddr,
    extra: Vec<String>,
    process: Option<Process>,
}

impl Node {
    /// Settings that flush and compact records soon after a load, however few remain.
    pub(crate) const SETTLING: [&str; 2] = ["--flush-after-s=2", "--compact-when-idle-s=4"];

    /// A node that is not running yet and has an empty directory.
    ///
    /// # Errors
    /// No free address, or the directory cannot be created.
    pub(crate) fn prepare(program: &Path, dir: PathBuf, extra: Vec<String>) -> Result<Self> {
        std::fs::create_dir_all(&dir)?;
        Ok(Self {
            program: program.to_owned(),
            leading: Vec::new(),
            dir,
            grpc: free_address()?,
            peer: free_address()?,
            http: free_address()?,
            extra,
            process: None,
        })
    }

    /// Lets another program, such as valgrind, run kvd: `program arguments kvd serve …`.
    pub(crate) fn run_by(&mut self, program: &Path, arguments: &[String]) {
        let kvd = std::mem::replace(&mut self.program, program.to_owned());
        self.leading = arguments.iter().map(OsString::from).collect();
        self.leading.push(kvd.into_os_string());
    }

    /// # Errors
    /// The program cannot be run.
    pub(crate) fn start(&mut self) -> Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file())?;
        let process = Process::start(
            cleanup::bound(&self.program)?
                .args(&self.leading)
                .arg("serve")
                .args(["--grpc-addr", &self.grpc.to_string()])
                .args(["--peer-addr", &self.peer.to_string()])
                .args(["--http-addr", &self.http.to_string()])
                .arg("--data-dir")
                .arg(self.dir.join("data"))
                .args(&self.extra)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::from(log)),
        )?;
        self.process = Some(process);
        Ok(())
    }

    /// Sends SIGKILL.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn kill_9(&mut self) -> Result<()> {
        self.process
            .take()
            .map_or(Ok(()), |mut process| process.kill_9())
    }

    /// # Errors
    /// It is not running.
    pub(crate) fn id(&self) -> Result<u32> {
        let process = self.process.as_ref().context("the node is not running")?;
        Ok(process.id())
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.grpc)
    }

    /// Waits until the node serves its partitions.
    ///
    /// # Errors
    /// It has ended, or does not become ready in time; with the end of its log.
    pub(crate) async fn ready(&mut self) -> Result<()> {
        self.until("ready", |node| {
            let http = node.http;
            async move { is_ready(http).await }
        })
        .await
    }

    /// Waits until the node listens, whether or not it is a member of a cluster.
    ///
    /// # Errors
    /// As [`Node::ready`].
    pub(crate) async fn listens(&mut self) -> Result<()> {
        self.until("listening", |node| {
            let grpc = node.grpc;
            async move { TcpStream::connect(grpc).await.is_ok() }
        })
        .await
    }

    /// The node's present metrics.
    ///
    /// # Errors
    /// It does not respond.
    pub(crate) async fn readings(&self) -> Result<Readings> {
        Ok(Readings::of(ask(self.http, "/metrics").await?))
    }

    /// Waits until the records of a load are flushed and compaction is idle. The node must have
    /// been started with [`SETTLING`](Self::SETTLING).
    ///
    /// # Errors
    /// It does not become idle in time.
    pub(crate) async fn settled(&self, records: u64) -> Result<()> {
        let give_up = Instant::now() + SETTLE_TIMEOUT;
        let (mut before, mut since) = (None, Instant::now());
        while Instant::now() < give_up {
            let now = self.readings().await?;
            let count = |name| anyhow::Ok(now.value(name)? as u64);
            let (slices, compacted) = (count("store_slices")?, count("store_compaction_records")?);
            let is_flushed = now.value("store_memtable_bytes")? < LEFT_BYTES
                && now.value("store_records")? >= records as f64;
            if !is_flushed || before != Some((slices, compacted)) {
                (before, since) = (Some((slices, compacted)), Instant::now());
            }
            if since.elapsed() > REST {
                return Ok(());
            }
            tokio::time::sleep(ASK_RARELY).await;
        }
        bail!("the records are not flushed after {SETTLE_TIMEOUT:?}")
    }

    async fn until<F>(&mut self, what: &str, holds: impl Fn(&Self) -> F) -> Result<()>
    where
        F: Future<Output = bool>,
    {
        let give_up = Instant::now() + START_TIMEOUT;
        while !holds(self).await {
            let ended = self.process.as_mut().and_then(Process::ended);
            if let Some(status) = ended {
                bail!("kvd has ended ({status}): {}", self.end_of_log());
            }
            if Instant::now() > give_up {
                bail!(
                    "kvd is not {what} after {START_TIMEOUT:?}: {}",
                    self.end_of_log()
                );
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
        Ok(())
    }

    fn log_file(&self) -> PathBuf {
        self.dir.join("log.txt")
    }

    fn end_of_log(&self) -> String {
        let log = std::fs::read_to_string(self.log_file()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

/// Whether `/readyz` returns 200.
async fn is_ready(http: SocketAddr) -> bool {
    let answer = ask(http, "/readyz").await;
    answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// An HTTP response, including its head.
async fn ask(http: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(http).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
