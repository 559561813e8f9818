//! One `kvd` process.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::Error;

/// The `kvd` that was built beside this program.
pub(super) fn beside_this_program() -> Result<PathBuf, Error> {
    let own = std::env::current_exe().map_err(Error::io("finding this program"))?;
    Ok(own.with_file_name("kvd"))
}

/// Links of one node that are cut or slow.
#[derive(Debug, Clone, Default)]
pub(super) struct LinkFaults {
    /// Nodes to which nothing gets through.
    pub(super) drop_to: Vec<u64>,
    /// Nodes from which nothing gets through.
    pub(super) drop_from: Vec<u64>,
    /// Milliseconds, by node.
    pub(super) delay_ms: BTreeMap<String, u64>,
}

/// One node of the cluster; killed when dropped.
pub(super) struct Process {
    pub(super) grpc: SocketAddr,
    http: SocketAddr,
    kvd: PathBuf,
    dir: PathBuf,
    extra: Vec<String>,
    child: Option<Child>,
}

impl Process {
    /// One that does not run yet.
    pub(super) fn prepare(kvd: &Path, dir: PathBuf) -> Result<Self, Error> {
        std::fs::create_dir_all(&dir).map_err(Error::io("making a node's directory"))?;
        Ok(Self {
            grpc: free_address()?,
            http: free_address()?,
            kvd: kvd.to_owned(),
            dir,
            extra: Vec::new(),
            child: None,
        })
    }

    pub(super) fn also(&mut self, flag: String) {
        self.extra.push(flag);
    }

    pub(super) fn start(&mut self) -> Result<(), Error> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("log.txt"))
            .map_err(Error::io("opening a node's log"))?;
        let child = Command::new(&self.kvd)
            .args(["serve", "--grpc-addr", &self.grpc.to_string()])
            .args(["--http-addr", &self.http.to_string(), "--data-dir"])
            .arg(self.dir.join("data"))
            .args(&self.extra)
            .env("TORC_TEST_LINK_FAULTS", self.dir.join("faults.json"))
            // So that slices come about and fold with the little data of a test.
            .env("TORC_SEAL_LOG_MIB", "1")
            .env("TORC_FOLD_WHEN_IDLE_S", "1")
            .env("RUST_LOG", "info,openraft=error")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::from(log))
            .spawn()
            .map_err(Error::io("starting kvd"))?;
        self.child = Some(child);
        Ok(())
    }

    /// SIGKILL, as a crash does it.
    pub(super) fn kill_9(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Gone already, by itself: `has_ended` told.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// How it ended by itself, if it did.
    pub(super) fn has_ended(&mut self) -> Option<String> {
        let ended = self.child.as_mut()?.try_wait().ok()??;
        Some(ended.to_string())
    }

    pub(super) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    pub(super) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.as_ref().map(Child::id);
        if let Some(pid) = id.and_then(|id| Pid::from_raw(id as i32)) {
            // A process that has ended cannot be stopped.
            let _ = kill_process(pid, signal);
        }
    }

    /// Puts these faults in force; the node notices within 100 ms.
    pub(super) fn cut_links(&self, faults: &LinkFaults) -> Result<(), Error> {
        use std::io::Write as _;
        let text = json!({
            "drop_to": faults.drop_to,
            "drop_from": faults.drop_from,
            "delay_ms": faults.delay_ms,
        });
        let beside = self.dir.join("faults.new");
        let write = || {
            write!(File::create(&beside)?, "{text}")?;
            std::fs::rename(&beside, self.dir.join("faults.json"))
        };
        write().map_err(Error::io("cutting links"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_9();
    }
}

/// An address that nobody uses right now.
fn free_address() -> Result<SocketAddr, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::io("finding a port"))?;
    listener.local_addr().map_err(Error::io("finding a port"))
}
