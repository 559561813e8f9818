//! One kvd process: its own data directory, free ports, and its log kept.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::cleanup;
use crate::ports::free_address;
use crate::process::Process;

/// Longer than a sound node ever takes.
const PATIENCE: Duration = Duration::from_secs(300);
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// A node, running or not. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Node {
    program: PathBuf,
    dir: PathBuf,
    pub(crate) grpc: SocketAddr,
    http: SocketAddr,
    extra: Vec<String>,
    process: Option<Process>,
}

impl Node {
    /// A node that is not running yet and has nothing in its directory.
    ///
    /// # Errors
    /// No free address, or the directory cannot be made.
    pub(crate) fn prepare(program: &Path, dir: PathBuf, extra: Vec<String>) -> Result<Self> {
        std::fs::create_dir_all(&dir)?;
        Ok(Self {
            program: program.to_owned(),
            dir,
            grpc: free_address()?,
            http: free_address()?,
            extra,
            process: None,
        })
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
                .args(["serve", "--grpc-addr", &self.grpc.to_string()])
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

    /// SIGKILL.
    ///
    /// # Errors
    /// What the system said.
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
    /// It has ended, or does not get there; with the end of its log.
    pub(crate) async fn ready(&mut self) -> Result<()> {
        self.until("ready", |node| {
            let http = node.http;
            async move { is_ready(http).await }
        })
        .await
    }

    /// Waits until the node listens, member of a cluster or not.
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

    async fn until<F>(&mut self, what: &str, holds: impl Fn(&Self) -> F) -> Result<()>
    where
        F: Future<Output = bool>,
    {
        let give_up = Instant::now() + PATIENCE;
        while !holds(self).await {
            let ended = self.process.as_mut().and_then(Process::ended);
            if let Some(status) = ended {
                bail!("kvd has ended ({status}): {}", self.end_of_log());
            }
            if Instant::now() > give_up {
                bail!(
                    "kvd is not {what} after {PATIENCE:?}: {}",
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

/// Whether `/readyz` says 200.
async fn is_ready(http: SocketAddr) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(http).await.ok()?;
        let request = "GET /readyz HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        Some(answer.starts_with(b"HTTP/1.1 200"))
    };
    ask.await.unwrap_or(false)
}
