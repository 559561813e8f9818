//! One `kvd` process.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use torc_client::{ClientTls, NodeId};
use torc_sim::Rng;
use torc_testkit::{Kvd, SMALL_DATA, Signal};

use super::Error;
use super::disk::SmallDisk;
use super::network::{Namespace, Network};

/// The first bytes of a segment are never damaged.
const SECTOR: u64 = 4_096;

/// Time limit for a node to detect that it must stop.
const REFUSAL: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// The program that nodes run.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) kvd: PathBuf,
    /// The rule that it breaks.
    pub(super) mutant: Option<String>,
    /// Limit on its open files; by default that of this program.
    pub(super) descriptors: Option<u32>,
    /// Its certificates, and those of clients; plain text without.
    pub(super) tls: Option<Certificates>,
}

/// The certificates of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Certificates {
    /// The variables that name a node's files.
    pub(crate) of_nodes: Vec<(&'static str, PathBuf)>,
    /// Those of a client that may do everything.
    pub(crate) of_client: ClientTls,
}

/// Links of one node that are cut or slow.
#[derive(Debug, Clone, Default)]
pub(super) struct LinkFaults {
    /// Nodes that it cannot send to.
    pub(super) drop_to: Vec<u64>,
    /// Nodes that it cannot receive from.
    pub(super) drop_from: Vec<u64>,
    /// Delays in milliseconds, by node.
    pub(super) delay_ms: BTreeMap<String, u64>,
    /// Nodes to which it sends no calls of the topology group.
    pub(super) group_drop_to: Vec<u64>,
}

/// One node of the cluster; killed when dropped.
pub(super) struct Process {
    /// Its number in the run, which no other process ever has.
    pub(super) number: u32,
    /// Its id in the cluster; `None` until it is a member with positions on the ring.
    pub(super) id: Option<NodeId>,
    /// Whether it is about to leave or to be replaced.
    pub(super) is_going: bool,
    /// Whether its wall clock was once ahead. Its ballots then stay ahead of what others follow
    /// (R10) until time has caught up, so it is not required to coordinate writes any more.
    pub(super) was_ahead: bool,
    pub(super) kvd: Kvd,
    /// The disk of its data, if that can be filled. Unmounted after the process has been killed.
    pub(super) disk: Option<SmallDisk>,
    /// The network namespace that it runs in, if it has its own.
    network: Option<Namespace>,
}

impl Process {
    /// A process that is not started yet.
    pub(super) fn prepare(
        program: &Program,
        number: u32,
        within: &Path,
        network: Option<&Network>,
        flags: &[String],
    ) -> Result<Self, Error> {
        let dir = within.join(format!("node-{number}"));
        let kvd = Kvd::prepare(&program.kvd, dir, flags);
        let mut kvd = kvd.map_err(Error::io("preparing a node"))?;
        let network = network.map(|network| network.join(number).map_err(Error::NoNetwork));
        let network = network.transpose()?;
        if let Some(network) = &network {
            let at = |port| (network.address(), port).into();
            [kvd.grpc, kvd.peer, kvd.http, kvd.resp] = [7400, 7500, 7480, 7463].map(at);
            // Binding an address that others can reach requires an explicit flag.
            kvd.flags.push("--insecure".to_owned());
            kvd.run_by(network.entering());
        }
        for (name, file) in program.tls.iter().flat_map(|tls| &tls.of_nodes) {
            kvd.variable(name, &file.to_string_lossy());
        }
        if let Some(most) = program.descriptors {
            kvd.limit_files(most);
        }
        for (name, value) in SMALL_DATA {
            kvd.variable(name, value);
        }
        kvd.variable("TORC_MEMTABLE_LIMIT_MIB", "64");
        kvd.variable("TORC_LOG_SEGMENT_MIB", "8");
        kvd.variable("RUST_LOG", "info,openraft=error");
        for (name, file) in [
            ("TORC_TEST_LINK_FAULTS", "faults.json"),
            ("TORC_TEST_CLOCK_SHIFT", "clock.txt"),
            ("TORC_TEST_DISK_FAULTS", "disk.json"),
        ] {
            let file = kvd.dir.join(file);
            kvd.variable(name, &file.to_string_lossy());
        }
        if let Some(mutant) = &program.mutant {
            kvd.variable("TORC_TEST_MUTANT", mutant);
        }
        Ok(Self {
            number,
            id: None,
            is_going: false,
            was_ahead: false,
            kvd,
            disk: None,
            network,
        })
    }

    pub(super) fn start(&mut self) -> Result<(), Error> {
        self.kvd.start().map_err(Error::io("starting kvd"))
    }

    pub(super) fn signal(&self, signal: Signal) {
        // Fails if the process has exited.
        let _ = self.kvd.signal(signal);
    }

    /// How it exited, if it did so without being killed.
    pub(super) fn has_ended(&mut self) -> Option<String> {
        let ended = self.kvd.has_ended()?;
        Some(format!("node {} ended: {ended}", self.number))
    }

    /// Applies these faults: to the node's packets if `members` have their own addresses, otherwise
    /// to its links, which it notices within 100 ms.
    pub(super) fn cut(
        &self,
        faults: &LinkFaults,
        members: &BTreeMap<u64, Ipv4Addr>,
    ) -> Result<(), Error> {
        let Some(network) = &self.network else {
            return self.cut_links(faults);
        };
        let of = |nodes: &[u64]| {
            let addresses = nodes.iter().filter_map(|id| members.get(id).copied());
            addresses.collect::<Vec<_>>()
        };
        let (to, from) = (of(&faults.drop_to), of(&faults.drop_from));
        let dropped = network.drop_packets(&to, &from);
        let delay_ms = faults.delay_ms.values().next().copied();
        let done = dropped.and_then(|()| network.delay_packets(delay_ms));
        done.map_err(Error::NoNetwork)
    }

    /// Its own address; `None` if it shares this machine's.
    pub(super) fn own_address(&self) -> Option<Ipv4Addr> {
        self.network.as_ref().map(Namespace::address)
    }

    pub(super) fn cut_links(&self, faults: &LinkFaults) -> Result<(), Error> {
        let text = json!({
            "drop_to": faults.drop_to,
            "drop_from": faults.drop_from,
            "delay_ms": faults.delay_ms,
            "group_drop_to": faults.group_drop_to,
        });
        let written = self.replace_file("faults.json", &text.to_string());
        written.map_err(Error::io("cutting links"))
    }

    /// Sets the node's wall clock ahead; the node notices within 100 ms.
    pub(super) fn shift_clock(&self, ahead_ms: i64) -> Result<(), Error> {
        let written = self.replace_file("clock.txt", &ahead_ms.to_string());
        written.map_err(Error::io("setting a clock"))
    }

    /// Makes its disk slow or faulty from now on; nothing restores it.
    pub(super) fn hurt_disk(&self, faults: &serde_json::Value) -> Result<(), Error> {
        let written = self.replace_file("disk.json", &faults.to_string());
        written.map_err(Error::io("hurting a disk"))
    }

    /// Waits until it has exited, for this reason.
    pub(super) async fn ends_by_itself(&mut self, because: &str) -> Result<(), String> {
        let until = Instant::now() + REFUSAL;
        while self.kvd.has_ended().is_none() {
            if Instant::now() > until {
                return Err(format!("node {} goes on, {because}", self.number));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    fn replace_file(&self, name: &str, text: &str) -> std::io::Result<()> {
        let beside = self.kvd.dir.join("new");
        File::create(&beside)?.write_all(text.as_bytes())?;
        std::fs::rename(&beside, self.kvd.dir.join(name))
    }

    /// Gives the node a disk that can be filled. Call it before the first start.
    pub(super) fn use_small_disk(&mut self) -> Result<(), String> {
        self.disk = Some(SmallDisk::mount(&self.kvd.data)?);
        Ok(())
    }

    /// Flips bytes of the slices on its disk, like rotting sectors: `count` of them, each within
    /// this part of a file. Returns the number of files hit.
    pub(super) fn rot(
        &self,
        count: u64,
        part: std::ops::Range<f64>,
        rng: &mut Rng,
    ) -> std::io::Result<u64> {
        let mut files = Vec::new();
        // A node that starts for the first time has no store yet.
        let entries = std::fs::read_dir(self.kvd.data.join("store"));
        for entry in entries.into_iter().flatten() {
            let entry = entry?;
            let is_segment = entry.file_name().to_string_lossy().starts_with("segment-");
            // The file may be gone already.
            let is_long = entry.metadata().is_ok_and(|it| it.len() > 2 * SECTOR);
            if is_segment && is_long {
                files.push(entry.path());
            }
        }
        files.sort();
        let files: Vec<_> = files.iter().collect();
        let mut hit = 0;
        for _ in 0..count {
            let index = rng.below(files.len().max(1) as u64) as usize;
            let Some(path) = files.get(index) else {
                break;
            };
            // The file may have been compacted into another one meanwhile.
            let Ok(file) = File::options().read(true).write(true).open(path) else {
                continue;
            };
            let len = file.metadata()?.len() as f64;
            let (first, last) = ((len * part.start) as u64, (len * part.end) as u64);
            let at = rng.between(first.max(SECTOR), last.max(SECTOR + 1));
            let mut byte = [0];
            if file.read_at(&mut byte, at)? == 1 {
                file.write_all_at(&[byte[0] ^ 0x10], at)?;
                hit += 1;
            }
        }
        Ok(hit)
    }

    /// Kills the node and deletes all its data.
    pub(super) fn lose_data(&mut self) -> Result<(), Error> {
        self.kvd.kill_9();
        self.disk = None;
        self.kvd.wipe().map_err(Error::io("wiping a disk"))
    }

    /// Copies its data. It must not be running.
    pub(super) fn copy_data(&self) -> Result<(), Error> {
        let copied = Command::new("cp")
            .arg("-a")
            .args([&self.kvd.data, &self.copy()])
            .status();
        let copied = copied.and_then(|status| {
            let failed = || std::io::Error::other(format!("cp: {status}"));
            status.success().then_some(()).ok_or_else(failed)
        });
        copied.map_err(Error::io("copying a data directory"))
    }

    /// Exchanges its data and the copy. It must not be running.
    pub(super) fn exchange_data(&self) -> Result<(), Error> {
        let (data, copy, aside) = (&self.kvd.data, self.copy(), self.kvd.dir.join("aside"));
        let exchanged = std::fs::rename(data, &aside)
            .and_then(|()| std::fs::rename(&copy, data))
            .and_then(|()| std::fs::rename(&aside, &copy));
        exchanged.map_err(Error::io("exchanging data directories"))
    }

    pub(super) fn drop_copy(&self) -> Result<(), Error> {
        let removed = std::fs::remove_dir_all(self.copy());
        removed.map_err(Error::io("removing a copy of a data directory"))
    }

    fn copy(&self) -> PathBuf {
        self.kvd.dir.join("copy")
    }

    /// Starts it with an older copy of its data directory, and waits until it has exited and
    /// reported that.
    pub(super) async fn refuse_older_copy(&mut self) -> Result<(), String> {
        let before = self.kvd.log().len();
        self.start().map_err(|error| error.to_string())?;
        self.ends_by_itself("with an older copy of its data directory")
            .await?;
        let log = self.kvd.log();
        let said = log.get(before..).unwrap_or_default();
        if said.contains("copy") && said.contains("kvctl replace-node") {
            return Ok(());
        }
        let number = self.number;
        Err(format!(
            "node {number} ended with an older copy of its data directory, and did not say why"
        ))
    }

    /// Stops it, and copies the contents of an in-memory disk to the kept directory.
    pub(super) fn rescue(&mut self) {
        self.kvd.kill_9();
        if self.disk.is_some() {
            let copied = self.kvd.dir.join("data-of-small-disk");
            // Logs and histories are kept in any case.
            let _ = Command::new("cp")
                .arg("-r")
                .arg(&self.kvd.data)
                .arg(copied)
                .output();
            self.disk = None;
        }
    }
}
