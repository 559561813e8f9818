//! The audit log: changes of the cluster and denied requests, with their callers.
//!
//! A separate thread appends one JSON object per line, so no request waits for the log. Waiting
//! lines are bounded, and so are denials per second, because strangers can cause them; the next
//! line counts the lines left out. A full file is renamed to `….1`, the former `….1` to `….2`, and
//! so on; the oldest is deleted. Lines are not synced.
//!
//! No line contains keys, values or secrets.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::Serialize;
use torc_proto::Fault;
use torc_ring::NodeId;
use torc_telemetry::clock::unix_ms;

use crate::caller::Caller;

/// Capacity of the queue of lines.
const MOST_WAITING: usize = 1_024;
/// Denials written at once, and then per second.
const BURST: f64 = 100.0;
const A_SECOND: f64 = 10.0;
/// Limit on the bytes written of a text that a caller sent.
const MOST_TOLD: usize = 512;
const FILE_BYTES: u64 = 16 << 20;
const FILES: usize = 8;

/// Metrics of the audit log.
#[derive(Debug, Clone, Default)]
pub struct AuditMetrics {
    denied: Counter,
    lines: Counter,
    left_out: Counter,
    failing: Gauge,
}

impl AuditMetrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let mut counter = |name: &str, help: &str, counter: &Counter| {
            registry.register(name, help, counter.clone());
        };
        counter("denied", "Requests denied to their caller", &metrics.denied);
        counter(
            "audit_lines",
            "Lines written to the audit log",
            &metrics.lines,
        );
        let help = "Lines missing in the audit log, because of the rate limit or a failed disk";
        counter("audit_left_out", help, &metrics.left_out);
        let help = "1 if writing the last line of the audit log failed";
        registry.register("audit_failing", help, metrics.failing.clone());
        metrics
    }
}

/// A line of the log.
#[derive(Debug, Default, Serialize)]
struct Line {
    /// Unix milliseconds.
    at_ms: u64,
    node: u64,
    event: &'static str,
    who: String,
    from: String,
    call: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    request: String,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    /// Lines dropped before this one.
    #[serde(skip_serializing_if = "is_zero")]
    left_out: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A token bucket that limits denials.
#[derive(Debug)]
struct Bucket {
    room: f64,
    at: Instant,
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.room = (self.room + since * A_SECOND).min(BURST);
        self.at = now;
        let has_room = self.room >= 1.0;
        if has_room {
            self.room -= 1.0;
        }
        has_room
    }
}

/// The audit log of a node.
pub struct Audit {
    metrics: AuditMetrics,
    bucket: Mutex<Bucket>,
    /// `None` once it is closed.
    writer: Mutex<Option<(SyncSender<Line>, JoinHandle<()>)>>,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Audit(..)")
    }
}

impl Audit {
    /// Begins to write to a file. The first line creates the file and its directory. Failed writes
    /// are counted and logged.
    ///
    /// # Errors
    /// The system's error if it cannot start a thread.
    pub fn begin(path: PathBuf, metrics: AuditMetrics) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(MOST_WAITING);
        let mut log = Log::new(path, FILE_BYTES, FILES);
        let counted = metrics.clone();
        let thread = std::thread::Builder::new().name("torc-audit".to_owned());
        let thread = thread.spawn(move || write_all(&waiting, &mut log, &counted))?;
        Ok(Self {
            metrics,
            bucket: Mutex::new(Bucket {
                room: BURST,
                at: Instant::now(),
            }),
            writer: Mutex::new(Some((lines, thread))),
        })
    }

    /// Records a denied request.
    pub fn denied(&self, node: Option<NodeId>, caller: &Caller, call: &str, fault: &Fault) {
        self.metrics.denied.inc();
        if !self.bucket.lock().take(Instant::now()) {
            self.metrics.left_out.inc();
            return;
        }
        self.write(Line {
            event: "denied",
            call: shortened(format_args!("{call}")),
            outcome: "denied",
            ..Line::of(node, caller, Some(fault))
        });
    }

    fn write(&self, line: Line) {
        let writer = self.writer.lock();
        let is_sent = writer
            .as_ref()
            .is_some_and(|(lines, _)| lines.try_send(line).is_ok());
        if !is_sent {
            self.metrics.left_out.inc();
        }
    }

    /// Writes the waiting lines, and accepts no more. Blocks on the disk.
    pub fn close(&self) {
        let writer = self.writer.lock().take();
        if let Some((lines, thread)) = writer {
            drop(lines);
            // Fails only if the thread panicked, which the log shows.
            let _ = thread.join();
        }
    }
}

impl Line {
    fn of(node: Option<NodeId>, caller: &Caller, fault: Option<&Fault>) -> Self {
        Self {
            at_ms: unix_ms(),
            node: node.map_or(0, |node| node.0),
            who: caller.to_string(),
            from: caller.from.to_string(),
            reason: fault.map(|fault| fault.reason.as_str_name()),
            message: fault.map_or_else(String::new, |fault| {
                shortened(format_args!("{}", fault.message))
            }),
            ..Self::default()
        }
    }

    fn act(
        event: &'static str,
        node: Option<NodeId>,
        caller: &Caller,
        call: &str,
        request: &impl fmt::Debug,
    ) -> Self {
        Self {
            event,
            call: call.to_owned(),
            request: shortened(format_args!("{request:?}")),
            ..Self::of(node, caller, None)
        }
    }
}

/// The beginning of a text. Formatting ends there, because it would take long for a long request.
fn shortened(text: fmt::Arguments<'_>) -> String {
    let mut beginning = Beginning {
        text: String::new(),
        left: MOST_TOLD,
    };
    if fmt::Write::write_fmt(&mut beginning, text).is_err() {
        beginning.text.push('…');
    }
    beginning.text
}

struct Beginning {
    text: String,
    left: usize,
}

impl fmt::Write for Beginning {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        for char in more.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            self.text.push(char);
        }
        Ok(())
    }
}

/// A request of an administrator or a node. Dropping it before `ends` records that the caller
/// disconnected.
pub struct Act {
    audit: Arc<Audit>,
    /// `None` if another node records it, or once it is recorded.
    line: Option<Line>,
}

impl Act {
    /// For a forwarded request, only the node that the administrator called writes a line. Nodes
    /// forward to the peer port: a node's certificate on the client port is an administrator's.
    pub fn begin(
        audit: &Arc<Audit>,
        node: Option<NodeId>,
        caller: &Caller,
        call: &str,
        request: &impl fmt::Debug,
    ) -> Self {
        let is_forwarded = caller.is_node() && caller.is_on_peer_port;
        let line = (!is_forwarded).then(|| Line::act("admin", node, caller, call, request));
        Self {
            audit: Arc::clone(audit),
            line,
        }
    }

    /// A request that another node makes of its own accord.
    pub fn of_a_node(
        audit: &Arc<Audit>,
        node: Option<NodeId>,
        caller: &Caller,
        call: &str,
        request: &impl fmt::Debug,
    ) -> Self {
        Self {
            audit: Arc::clone(audit),
            line: Some(Line::act("node", node, caller, call, request)),
        }
    }

    /// Records the outcome.
    pub fn ends(mut self, fault: Option<&Fault>) {
        if let Some(line) = self.line.take() {
            let outcome = match fault {
                None => "done",
                Some(fault) if fault.maybe_applied => "unknown",
                Some(_) => "failed",
            };
            self.audit.write(Line {
                outcome,
                reason: fault.map(|fault| fault.reason.as_str_name()),
                message: fault.map_or_else(String::new, |fault| {
                    shortened(format_args!("{}", fault.message))
                }),
                ..line
            });
        }
    }
}

impl Drop for Act {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            self.audit.write(Line {
                outcome: "unknown",
                message: "the caller disconnected before the request completed".to_owned(),
                ..line
            });
        }
    }
}

/// Writes lines until the queue is closed.
fn write_all(waiting: &Receiver<Line>, log: &mut Log, metrics: &AuditMetrics) {
    let mut told = 0;
    while let Ok(mut line) = waiting.recv() {
        let left_out = metrics.left_out.get();
        line.left_out = left_out.saturating_sub(told);
        let Ok(mut text) = serde_json::to_vec(&line) else {
            continue;
        };
        text.push(b'\n');
        let written = log.write(&text);
        let failed = written.is_err();
        let was_failing = metrics.failing.set(failed.into()) != 0;
        match written {
            Ok(()) => {
                told = left_out;
                metrics.lines.inc();
                if was_failing {
                    tracing::info!("writing the audit log works again");
                }
            }
            Err(error) => {
                metrics.left_out.inc();
                if !was_failing {
                    let path = log.path.display();
                    tracing::error!(%error, %path, "cannot write the audit log: serving requests without it");
                }
            }
        }
    }
}

/// The files of the log.
struct Log {
    path: PathBuf,
    /// Size in bytes at which a file is renamed, and the number of files.
    most: u64,
    files: usize,
    /// `None` if the file must be opened.
    open: Option<(File, u64)>,
    /// The last line was written only in part.
    is_torn: bool,
}

impl Log {
    const fn new(path: PathBuf, most: u64, files: usize) -> Self {
        Self {
            path,
            most,
            files,
            open: None,
            is_torn: false,
        }
    }

    /// Appends a line. After a failure, the next call opens the file again.
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let len = line.len() as u64;
        let (mut file, at) = match self.open.take() {
            Some(open) => open,
            None => self.open()?,
        };
        if at > 0 && at + len > self.most && file.metadata()?.is_file() {
            drop(file);
            self.rotate()?;
            let open = self.open()?;
            return self.append(open, line);
        }
        if self.is_torn {
            file.write_all(b"\n")?;
            self.is_torn = false;
        }
        self.append((file, at), line)
    }

    fn append(&mut self, (mut file, at): (File, u64), line: &[u8]) -> io::Result<()> {
        self.is_torn = true;
        file.write_all(line)?;
        self.is_torn = false;
        self.open = Some((file, at + line.len() as u64));
        Ok(())
    }

    fn open(&self) -> io::Result<(File, u64)> {
        if let Some(dir) = self.path.parent() {
            fs::create_dir_all(dir)?;
        }
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&self.path)?;
        let len = file.metadata()?.len();
        Ok((file, len))
    }

    fn rotate(&self) -> io::Result<()> {
        for number in (1..self.files).rev() {
            let from = match number {
                1 => self.path.clone(),
                number => numbered(&self.path, number - 1),
            };
            match fs::rename(from, numbered(&self.path, number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use torc_proto::Reason;

    use super::*;

    fn stranger() -> Caller {
        Caller::of(None, IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap()
    }

    fn fault() -> Fault {
        Fault::new(Reason::Unauthenticated, "who are you?")
    }

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(path).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    }

    /// Debug output of requests of 2 MiB took the threads that serve others 20 ms each.
    #[test]
    fn a_long_request_is_formatted_no_further_than_it_is_told() {
        struct Long<'a>(&'a std::cell::Cell<usize>);
        impl fmt::Debug for Long<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (0..1 << 20).try_for_each(|_| {
                    self.0.set(self.0.get() + 1);
                    f.write_str("ä")
                })
            }
        }
        let written = std::cell::Cell::new(0);
        let told = shortened(format_args!("{:?}", Long(&written)));
        assert_eq!(told, "ä".repeat(MOST_TOLD) + "…");
        assert_eq!(written.get(), MOST_TOLD + 1);
        assert_eq!(shortened(format_args!("short")), "short");
    }

    #[test]
    fn a_line_says_who_did_what_and_how_it_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit/audit.log");
        let audit = Arc::new(Audit::begin(path.clone(), AuditMetrics::default()).unwrap());
        let node = Some(NodeId(3));
        let act = || {
            Act::begin(
                &audit,
                node,
                &stranger(),
                "Cluster/Leave",
                &"Leave { node: 2 }",
            )
        };
        act().ends(None);
        act().ends(Some(&fault()));
        drop(act());
        audit.denied(node, &stranger(), &"Kv/Get".repeat(200), &fault());
        audit.close();
        audit.denied(node, &stranger(), "Kv/Get", &fault());
        let lines = lines(&path);
        let outcomes: Vec<_> = lines
            .iter()
            .map(|line| line["outcome"].as_str().unwrap())
            .collect();
        assert_eq!(outcomes, ["done", "failed", "unknown", "denied"]);
        assert_eq!(lines[0]["who"], "unknown");
        assert_eq!(lines[0]["from"], "127.0.0.1");
        assert_eq!(lines[0]["node"], 3);
        assert_eq!(lines[1]["reason"], "UNAUTHENTICATED");
        assert!(lines[3]["call"].as_str().unwrap().chars().count() <= MOST_TOLD + 1);
    }

    #[test]
    fn only_requests_that_a_node_forwards_are_left_to_the_node_that_received_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let audit = Arc::new(Audit::begin(path.clone(), AuditMetrics::default()).unwrap());
        let ends = Instant::now() + std::time::Duration::from_secs(60);
        let who = Some(("torc://any/node/2".parse().unwrap(), ends));
        let mut caller = Caller::of(who, IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        Act::begin(
            &audit,
            None,
            &caller,
            "Cluster/Leave",
            &"on the client port",
        )
        .ends(None);
        caller.is_on_peer_port = true;
        Act::begin(&audit, None, &caller, "Cluster/Leave", &"forwarded").ends(None);
        Act::of_a_node(&audit, None, &caller, "Replica/GiveAuthority", &"").ends(None);
        audit.close();
        let lines = lines(&path);
        let acts: Vec<_> = lines
            .iter()
            .map(|line| {
                (
                    line["event"].as_str().unwrap(),
                    line["call"].as_str().unwrap(),
                )
            })
            .collect();
        let expected = [
            ("admin", "Cluster/Leave"),
            ("node", "Replica/GiveAuthority"),
        ];
        assert_eq!(acts, expected);
    }

    #[test]
    fn denials_are_bounded_and_the_next_line_counts_those_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let metrics = AuditMetrics::default();
        let audit = Arc::new(Audit::begin(path.clone(), metrics.clone()).unwrap());
        for _ in 0..10_000 {
            audit.denied(None, &stranger(), "Kv/Get", &fault());
        }
        Act::begin(&audit, None, &stranger(), "Cluster/Join", &"").ends(None);
        audit.close();
        let lines = lines(&path);
        assert!(lines.len() < 5_000, "{}", lines.len());
        let told: u64 = lines
            .iter()
            .map(|line| line["left_out"].as_u64().unwrap_or(0))
            .sum();
        assert_eq!(told + lines.len() as u64, 10_001);
        assert_eq!(
            lines.last().unwrap()["event"],
            "admin",
            "an act is always written"
        );
        assert_eq!(
            (metrics.denied.get(), metrics.left_out.get()),
            (10_000, told)
        );
    }

    #[test]
    fn files_are_bounded_in_size_and_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let mut log = Log::new(path.clone(), 100, 3);
        for number in 0..100 {
            log.write(format!("{number:029}\n").as_bytes()).unwrap();
        }
        // A new process continues where the last one stopped.
        let mut log = Log::new(path, 100, 3);
        log.write(&[b'x'; 300]).unwrap();
        let mut files: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|it| it.unwrap())
            .collect();
        files.sort_by_key(fs::DirEntry::path);
        let sizes: Vec<_> = files
            .iter()
            .map(|it| it.metadata().unwrap().len())
            .collect();
        assert_eq!(sizes, [300, 30, 90], "{files:?}");
    }

    #[test]
    fn a_full_disk_is_counted_and_stops_nobody() {
        let metrics = AuditMetrics::default();
        let audit = Arc::new(Audit::begin("/dev/full".into(), metrics.clone()).unwrap());
        for _ in 0..3 {
            Act::begin(&audit, None, &stranger(), "Cluster/Join", &"").ends(None);
        }
        audit.close();
        assert_eq!((metrics.lines.get(), metrics.failing.get()), (0, 1));
        assert_eq!(metrics.left_out.get(), 3);
    }
}
