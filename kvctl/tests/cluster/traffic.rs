//! Traffic that checks its own reads.
//!
//! Every key has one writer, which writes 1, 2, 3, … Before each read, a reader notes the highest
//! number that was acknowledged or that any reader has seen: a lower answer would be an outdated
//! value, and an answer above the writer's last number would be invented.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use torc_client::{Client, ErrorKind};

const WRITERS: usize = 8;
const READERS: usize = 8;
/// What each of them waits between operations, so that they leave time for what is tested.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Register {
    begun: AtomicU64,
    /// Acknowledged, or seen by a reader.
    known: AtomicU64,
}

/// The result of the traffic.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) unknown: u64,
    /// The messages of the first operations in doubt.
    pub(crate) doubts: Vec<String>,
    pub(crate) failures: Vec<String>,
    pub(crate) violations: Vec<String>,
}

pub(crate) struct Traffic {
    registers: Arc<Vec<Register>>,
    prefix: String,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
    report: Arc<Mutex<Report>>,
}

impl Traffic {
    /// Starts writers and readers over `keys` keys.
    pub(crate) fn start(client: &Client, prefix: &str, keys: usize) -> Self {
        let registers: Vec<Register> = (0..keys).map(|_| Register::default()).collect();
        let mut traffic = Self {
            registers: Arc::new(registers),
            prefix: prefix.to_owned(),
            stop: Arc::default(),
            tasks: JoinSet::new(),
            report: Arc::default(),
        };
        for writer in 0..WRITERS {
            traffic.spawn_writer(client.clone(), writer);
        }
        for reader in 0..READERS {
            traffic.spawn_reader(client.clone(), reader);
        }
        traffic
    }

    fn spawn_writer(&mut self, client: Client, writer: usize) {
        let (registers, report) = (Arc::clone(&self.registers), Arc::clone(&self.report));
        let (stop, prefix) = (Arc::clone(&self.stop), self.prefix.clone());
        self.tasks.spawn(async move {
            let mine: Vec<usize> = (writer..registers.len()).step_by(WRITERS).collect();
            for index in mine.iter().cycle() {
                tokio::time::sleep(PAUSE).await;
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let register = &registers[*index];
                let next = register.begun.fetch_add(1, Ordering::SeqCst) + 1;
                let put = client
                    .put(format!("{prefix}{index}"), next.to_string())
                    .await;
                let mut report = report.lock();
                match put {
                    Ok(_) => {
                        register.known.fetch_max(next, Ordering::SeqCst);
                        report.writes += 1;
                    }
                    Err(error) if error.kind() == ErrorKind::OutcomeUnknown => {
                        report.unknown += 1;
                        if report.doubts.len() < 5 {
                            report.doubts.push(format!("put {prefix}{index}: {error}"));
                        }
                    }
                    Err(error) => report
                        .failures
                        .push(format!("put {prefix}{index}: {error}")),
                }
            }
        });
    }

    fn spawn_reader(&mut self, client: Client, reader: usize) {
        let (registers, report) = (Arc::clone(&self.registers), Arc::clone(&self.report));
        let (stop, prefix) = (Arc::clone(&self.stop), self.prefix.clone());
        self.tasks.spawn(async move {
            // A different sequence for each reader; 7 and 13 share no factor with the number of
            // keys.
            let mut index = reader * 13;
            while !stop.load(Ordering::Relaxed) {
                tokio::time::sleep(PAUSE).await;
                index = (index + 7) % registers.len();
                let register = &registers[index];
                let least = register.known.load(Ordering::SeqCst);
                let got = client.get(format!("{prefix}{index}")).await;
                let most = register.begun.load(Ordering::SeqCst);
                match got {
                    Ok(value) => {
                        let seen = value.map_or(0, |value| {
                            String::from_utf8_lossy(&value.value).parse().unwrap()
                        });
                        register.known.fetch_max(seen, Ordering::SeqCst);
                        let mut report = report.lock();
                        report.reads += 1;
                        if seen < least || seen > most {
                            report.violations.push(format!(
                                "{prefix}{index}: read {seen}, expected {least} to {most}"
                            ));
                        }
                    }
                    Err(error) => {
                        report
                            .lock()
                            .failures
                            .push(format!("get {prefix}{index}: {error}"));
                    }
                }
            }
        });
    }

    /// Number of successful operations so far.
    pub(crate) fn done(&self) -> u64 {
        let report = self.report.lock();
        report.reads + report.writes
    }

    /// Stops, then reads every key once more: acknowledged writes must be there.
    pub(crate) async fn stop(mut self, client: &Client) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        let mut report = std::mem::take(&mut *self.report.lock());
        for (index, register) in self.registers.iter().enumerate() {
            let least = register.known.load(Ordering::SeqCst);
            let value = client.get(format!("{}{index}", self.prefix)).await.unwrap();
            let seen: u64 = value.map_or(0, |value| {
                String::from_utf8_lossy(&value.value).parse().unwrap()
            });
            if seen < least {
                let lost = format!("{}{index}: {seen} at the end, {least} known", self.prefix);
                report.violations.push(lost);
            }
        }
        report
    }
}

impl Report {
    /// Asserts that nothing failed or was in doubt, and that no read was outdated.
    pub(crate) fn assert_flawless(&self) {
        assert!(
            self.violations.is_empty(),
            "{:?}",
            &self.violations[..self.violations.len().min(5)]
        );
        assert!(
            self.failures.is_empty(),
            "{:?}",
            &self.failures[..self.failures.len().min(5)]
        );
        assert_eq!(
            self.unknown, 0,
            "no outcome may be in doubt when nobody dies: {:?}",
            self.doubts
        );
        assert!(
            self.reads > 0 && self.writes > 0,
            "there was no traffic: {self:?}"
        );
    }

    /// Asserts that nothing failed or was lost. With several replicas, two nodes may coordinate a
    /// key while its lead moves, and a write that meets another one then may end in doubt: at most
    /// one in a hundred.
    pub(crate) fn assert_hardly_in_doubt(&self) {
        self.assert_nothing_lost();
        assert!(self.unknown * 100 <= self.writes, "{self:?}");
    }

    /// Asserts that nothing was lost; outcomes may be in doubt when a process is killed.
    pub(crate) fn assert_nothing_lost(&self) {
        assert!(
            self.violations.is_empty(),
            "{:?}",
            &self.violations[..self.violations.len().min(5)]
        );
        assert!(
            self.failures.is_empty(),
            "{:?}",
            &self.failures[..self.failures.len().min(5)]
        );
        assert!(
            self.reads > 0 && self.writes > 0,
            "there was no traffic: {self:?}"
        );
    }
}
