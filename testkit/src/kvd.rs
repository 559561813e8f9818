//! `kvd` processes. Every test and tool that runs nodes as processes starts them here.
//!
//! [`Kvd::prepare`] makes one node and [`Kvd::cluster`] several that found a cluster. Their fields
//! are what may differ: addresses, data directory, flags, variables. Then [`Kvd::start`] them and
//! wait until they are [ready](Kvd::ready).
//!
//! Nodes have `kvd`'s defaults, three replicas among them, except for what the fields say.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::process::Signal;
use tokio::net::TcpStream;

use super::ports::free_address;
use super::process::Process;
use super::wait::{TIMEOUT, http_get, pause};

/// Variables that make nodes flush and compact despite the small amount of data in a test.
pub const SMALL_DATA: [(&str, &str); 2] = [
    ("TORC_FLUSH_LOG_MIB", "1"),
    ("TORC_COMPACT_WHEN_IDLE_S", "1"),
];

/// Lines of a log that errors quote.
const QUOTED: usize = 40;

/// A node, running or not. Killed when dropped.
#[derive(Debug)]
pub struct Kvd {
    /// The address for clients.
    pub grpc: SocketAddr,
    /// The address for other nodes.
    pub peer: SocketAddr,
    /// The address for HTTP.
    pub http: SocketAddr,
    /// The address for Redis clients.
    pub resp: SocketAddr,
    /// Has `log.txt` and `out.txt`, to which every start appends.
    pub dir: PathBuf,
    /// The data directory; `data` in [`dir`](Self::dir) unless changed.
    pub data: PathBuf,
    /// Flags besides those of addresses and the data directory.
    pub flags: Vec<String>,
    variables: Vec<(String, String)>,
    /// The program, after the words that run it.
    command: Vec<OsString>,
    process: Option<Process>,
}

impl Kvd {
    /// A node that is not running yet, with free addresses on this machine.
    ///
    /// # Errors
    /// No free address, or the directory cannot be created.
    pub fn prepare<S: AsRef<str>>(program: &Path, dir: PathBuf, flags: &[S]) -> io::Result<Self> {
        std::fs::create_dir_all(&dir)?;
        let mut node = Self {
            grpc: free_address()?,
            peer: free_address()?,
            http: free_address()?,
            resp: free_address()?,
            data: dir.join("data"),
            dir,
            flags: Vec::new(),
            variables: Vec::new(),
            command: vec![program.into()],
            process: None,
        };
        node.set_flags(flags);
        Ok(node)
    }

    /// Nodes that found a cluster once all are started. The first one is the founder.
    ///
    /// # Errors
    /// As [`Kvd::prepare`].
    pub fn cluster<S: AsRef<str>>(
        program: &Path,
        dir: &Path,
        count: usize,
        flags: &[S],
    ) -> io::Result<Vec<Self>> {
        let nodes = (1..=count).map(|number| dir.join(format!("node-{number}")));
        let nodes = nodes.map(|dir| Self::prepare(program, dir, flags));
        let mut nodes = nodes.collect::<io::Result<Vec<_>>>()?;
        if let Some((founder, others)) = nodes.split_first_mut() {
            founder.found_with(others.iter().map(|node| node.grpc));
        }
        Ok(nodes)
    }

    /// Makes it found a cluster with the nodes at these addresses.
    pub fn found_with(&mut self, others: impl IntoIterator<Item = SocketAddr>) {
        let others: Vec<_> = others.into_iter().map(|it| it.to_string()).collect();
        self.flags.push("--bootstrap".to_owned());
        if !others.is_empty() {
            let others = others.join(",");
            self.flags.push(format!("--found-with={others}"));
        }
    }

    /// Replaces [`flags`](Self::flags).
    pub fn set_flags<S: AsRef<str>>(&mut self, flags: &[S]) {
        self.flags = flags.iter().map(|flag| flag.as_ref().to_owned()).collect();
    }

    /// Sets an environment variable, which overrides the value of an earlier call.
    pub fn variable(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// Lets another program run `kvd`, as in `ip netns exec NAME kvd serve`. The program of an
    /// earlier call runs that of a later one.
    pub fn run_by<S: Into<OsString>>(&mut self, words: impl IntoIterator<Item = S>) {
        let last = self.command.len() - 1;
        let words = words.into_iter().map(Into::into);
        self.command.splice(last..last, words);
    }

    /// Limits its open files.
    pub fn limit_files(&mut self, most: u32) {
        let script = format!("ulimit -n {most} && exec \"$0\" \"$@\"");
        self.run_by(["sh", "-c", &script]);
    }

    /// # Errors
    /// It is started already, or cannot be run.
    pub fn start(&mut self) -> io::Result<()> {
        if self.process.is_some() {
            return Err(io::Error::other("kvd is started already"));
        }
        let mut file = File::options();
        let file = file.create(true).append(true);
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .args(["serve", "--grpc-addr", &self.grpc.to_string()])
            .args(["--peer-addr", &self.peer.to_string()])
            .args(["--http-addr", &self.http.to_string()])
            .args(["--resp-addr", &self.resp.to_string(), "--data-dir"])
            .arg(&self.data)
            .args(&self.flags)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(file.open(self.dir.join("out.txt"))?)
            .stderr(file.open(self.dir.join("log.txt"))?);
        self.process = Some(Process::start(&mut command)?);
        Ok(())
    }

    /// Starts it and waits until it has ended; returns the exit code.
    ///
    /// # Errors
    /// As [`Kvd::start`].
    pub fn run_to_end(&mut self) -> io::Result<Option<i32>> {
        self.start()?;
        self.wait()
    }

    /// Sends SIGKILL, like a crash, if it is running.
    pub fn kill_9(&mut self) {
        self.process = None;
    }

    /// Kills it and deletes its data: the next start is that of an empty node, which founds nothing.
    ///
    /// # Errors
    /// It has no data, or the data cannot be deleted.
    pub fn wipe(&mut self) -> io::Result<()> {
        self.kill_9();
        let is_of_founding = |it: &String| it == "--bootstrap" || it.starts_with("--found-with");
        self.flags.retain(|flag| !is_of_founding(flag));
        std::fs::remove_dir_all(&self.data)
    }

    /// Sends SIGTERM and waits until it has ended; returns the exit code.
    ///
    /// # Errors
    /// It is not running.
    pub fn terminate(&mut self) -> io::Result<Option<i32>> {
        self.signal(Signal::TERM)?;
        self.wait()
    }

    fn wait(&mut self) -> io::Result<Option<i32>> {
        let process = self.process.take();
        process.map_or(Ok(None), |mut process| Ok(process.wait()?.code()))
    }

    /// # Errors
    /// It is not running.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.process()?.signal(signal)
    }

    /// Its process id.
    ///
    /// # Errors
    /// It was not started, or killed since.
    pub fn pid(&self) -> io::Result<u32> {
        self.process().map(Process::id)
    }

    fn process(&self) -> io::Result<&Process> {
        let process = self.process.as_ref();
        process.ok_or_else(|| io::Error::other("kvd is not running"))
    }

    /// The exit status, if it has ended without being killed.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut()?.ended()
    }

    /// The URL for clients.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.grpc)
    }

    /// Its standard output so far, over all starts.
    #[must_use]
    pub fn out(&self) -> String {
        std::fs::read_to_string(self.dir.join("out.txt")).unwrap_or_default()
    }

    /// Its log so far, over all starts.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log.txt")).unwrap_or_default()
    }

    /// Waits until it listens, whether or not it is a member of a cluster.
    ///
    /// # Errors
    /// It has ended, or does not listen within [`TIMEOUT`]; with the end of its log.
    pub async fn listens(&mut self) -> io::Result<()> {
        let grpc = self.grpc;
        let listens = async || TcpStream::connect(grpc).await.is_ok();
        self.until("listening", listens).await
    }

    /// Waits until it serves its partitions: until `/readyz` returns 200.
    ///
    /// # Errors
    /// It has ended, or is not ready within [`TIMEOUT`]; with the end of its log.
    pub async fn ready(&mut self) -> io::Result<()> {
        let http = self.http;
        let is_ready = async || matches!(http_get(http, "/readyz").await, Ok((200, _)));
        self.until("ready", is_ready).await
    }

    /// Starts nodes and waits until all are ready.
    ///
    /// # Errors
    /// As [`Kvd::start`] and [`Kvd::ready`].
    pub async fn serve(nodes: &mut [Self]) -> io::Result<()> {
        nodes.iter_mut().try_for_each(Self::start)?;
        for node in nodes {
            node.ready().await?;
        }
        Ok(())
    }

    async fn until(&mut self, what: &str, condition: impl AsyncFn() -> bool) -> io::Result<()> {
        let begun = Instant::now();
        while !condition().await {
            let (waited, ended) = (begun.elapsed(), self.has_ended());
            if ended.is_some() || waited > TIMEOUT {
                let ended = ended.map_or_else(String::new, |it| format!(", it has ended ({it})"));
                let log = self.log();
                let lines: Vec<_> = log.lines().collect();
                let end = lines[lines.len().saturating_sub(QUOTED)..].join("\n");
                let why = format!("kvd is not {what} after {waited:?}{ended}; its log:\n{end}");
                return Err(io::Error::other(why));
            }
            tokio::time::sleep(pause(waited)).await;
        }
        Ok(())
    }
}
