//! Memory per key: kvd processes with sealed records beside redis and memcached, which hold their
//! records in memory.
//!
//! Torc runs as a default cluster of three nodes that each hold every key, and as one node with one
//! replica; `kvctl load` fills both. The peers are loaded over the wire with the same keys and
//! values. For the peers, the cost of a key beyond its payload is the growth of the process minus
//! the payload. For kvd, whose payload is on disk, it is the growth of its own memory per sealed
//! key, at the node that grew most. Mapped files are page cache, which the kernel reclaims
//! when it needs room; the report shows them separately.
//!
//! A node is measured when it is idle, before any data is stored; when the load is flushed, without
//! a restart; and restarted after a kill. Gets follow on the latter two, because gets need memory
//! of their own: figures per key are those after gets; memory beyond the allowance is reported
//! before and after gets.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use torc_client::Client;
use torc_testkit::Kvd;

use super::data::Data;
use super::peers;
use super::subject::Subject;
use crate::kvd::{self, REPLICAS_NOTE, Readings, Replicas};
use crate::options::Options;
use crate::process::{self, Resident};
use crate::records::{self, Random};
use crate::report::{Metric, Prediction, Report};

/// The peers, which hold keys only in memory.
const PEERS: [&str; 2] = ["redis", "memcached"];
/// Records generated at a time.
const PART: u64 = 100_000;
/// Time without requests after which nodes count as idle.
const IDLE_AFTER: Duration = Duration::from_secs(10);
/// Batched gets before the memory is read.
const GETS: u64 = 500;
const KEYS: u64 = 100;
const OVERHEAD: Metric = Metric::new("overhead_per_key", "bytes");

const MIB: f64 = 1_048_576.0;
const BEYOND_WITH_GETS: Metric = Metric::new("beyond_after_gets", "MiB");
/// Anonymous memory beyond that of the idle node and four bytes per sealed key.
const BEYOND: Metric = Metric::new("beyond_idle_and_4_per_key", "MiB");

const IDLE: &str = "idle";
const RSS: Metric = Metric::new("rss", "MiB");
const ANONYMOUS: Metric = Metric::new("anonymous", "MiB");

const PREDICTIONS: &[Prediction] = &[
    Prediction {
        case: IDLE,
        metric: RSS.name,
        expected: "at most 48",
    },
    Prediction {
        case: "1000000 keys",
        metric: BEYOND.name,
        expected: "at most 32",
    },
    Prediction {
        case: "10000000 keys",
        metric: BEYOND.name,
        expected: "at most 32",
    },
    Prediction {
        case: "10000000 keys",
        metric: OVERHEAD.name,
        expected: "4 to 10; redis 91 to 99, memcached 63 to 66",
    },
    Prediction {
        case: "10000000 keys",
        metric: "index_per_key",
        expected: "below 4",
    },
    Prediction {
        case: "10000000 keys, restarted",
        metric: OVERHEAD.name,
        expected: "4 to 6",
    },
];

/// What to measure of memory.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Args {
    /// Leave the peers out: they would not fit into memory
    #[arg(long)]
    torc_only: bool,
}

/// Measures memory.
///
/// # Errors
/// kvd does not build or start; an installed server does not work.
pub(crate) fn run(args: Args, options: &Options) -> Result<Report> {
    let keys = options.records_or(1_000_000);
    let scratch = options.scratch()?;
    let suite = Suite {
        kvd: kvd::program(options)?,
        kvctl: kvd::kvctl(options)?,
        file: scratch.path().join("records.ndjson"),
        keys,
    };
    kvd::write_file(&suite.file, keys)?;
    let mut report = Report::new("ram", PREDICTIONS);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(async {
        for _ in 0..options.rounds() {
            for replicas in Replicas::ALL {
                suite.torc(&mut report, options, replicas).await?;
            }
            if !args.torc_only {
                peers(&mut report, options).await?;
            }
        }
        anyhow::Ok(())
    });
    report.ended(outcome);
    report.note(format!("{REPLICAS_NOTE}, on three nodes: figures are those of the node that grew most; torc, 1 replica: one node"));
    report.note("beyond_idle_and_4_per_key: anonymous memory of a node less what it had when idle and 4 bytes for each of its sealed keys, before any get; beyond_after_gets: the same after 50,000 gets");
    report.note("nodes flush 2 s after the last write and compact after 4 s without writes, instead of 300 s and 10 s");
    report.note("overhead_per_key: redis and memcached, growth of the process less 132 bytes of payload; torc, growth of its anonymous memory, for its payload is on the disk");
    report.note("mapped_page_cache_per_key: pages of slices that gets have touched; the kernel takes them back when it needs room");
    Ok(report)
}

/// The growth of a process.
#[derive(Debug, Clone, Copy)]
struct Grown {
    before: Resident,
    after: Resident,
    keys: u64,
}

impl Grown {
    fn tell(&self, report: &mut Report, case: &str, name: &'static str, payload: u64) {
        let per_key = |after: u64, before: u64| (after as f64 - before as f64) / self.keys as f64;
        let all = per_key(self.after.bytes, self.before.bytes);
        let own = self.own_per_key();
        let mut add = |metric, value| report.add(case, metric, name, value);
        add(OVERHEAD, own - payload as f64);
        add(Metric::new("ram_per_key", "bytes"), all);
        add(Metric::new("anonymous_ram_per_key", "bytes"), own);
        add(Metric::new("mapped_page_cache_per_key", "bytes"), all - own);
        let empty = self.before.bytes as f64 / MIB;
        add(Metric::new("ram_when_empty", "MiB"), empty);
    }

    /// Own memory per key.
    fn own_per_key(&self) -> f64 {
        let (after, before) = (self.after.anonymous_bytes, self.before.anonymous_bytes);
        (after as f64 - before as f64) / self.keys as f64
    }

    /// See [`BEYOND`].
    fn beyond(&self) -> f64 {
        (self.own_per_key() - 4.0) * self.keys as f64 / MIB
    }
}

/// The programs and the data that they store.
struct Suite {
    kvd: PathBuf,
    kvctl: PathBuf,
    file: PathBuf,
    keys: u64,
}

impl Suite {
    async fn torc(&self, report: &mut Report, options: &Options, replicas: Replicas) -> Result<()> {
        let scratch = options.scratch()?;
        let nodes = match replicas {
            Replicas::Default => 3,
            Replicas::One => 1,
        };
        let mut settings = kvd::SETTLING.map(str::to_owned).to_vec();
        settings.extend(replicas.settings());
        let mut nodes = kvd::found(&self.kvd, scratch.path(), nodes, &settings).await?;
        tokio::time::sleep(IDLE_AFTER).await;
        let idle: Result<Vec<Resident>> = nodes.iter().map(resident).collect();
        let idle = idle?;
        tell_of_idle(report, replicas.subject(), &idle);
        let name = replicas.subject();
        let rate = kvd::load_file(&self.kvctl, &nodes, &self.file, self.keys)?;
        let loaded = format!("{} keys", self.keys);
        report.add(&loaded, Metric::new("load", "keys/s"), name, rate);
        try_join_all(nodes.iter().map(|node| kvd::settled(node, self.keys))).await?;
        for case in [loaded.clone(), format!("{loaded}, restarted")] {
            self.look(report, &case, name, &nodes, &idle).await?;
            nodes.iter_mut().for_each(Kvd::kill_9);
            Kvd::serve(&mut nodes).await?;
        }
        Ok(())
    }

    /// Reports what each node holds, and all figures of the node that grew most.
    async fn look(
        &self,
        report: &mut Report,
        case: &str,
        name: &'static str,
        nodes: &[Kvd],
        idle: &[Resident],
    ) -> Result<()> {
        let flushed = grown(nodes, idle).await?;
        let client = Client::builder().endpoints(nodes.iter().map(Kvd::endpoint));
        let client = client.deadline(Duration::from_secs(60)).connect().await?;
        get_some(&client, self.keys).await?;
        let with_gets = grown(nodes, idle).await?;
        let by_beyond =
            |(_, a): &(_, &Grown), (_, b): &(_, &Grown)| a.beyond().total_cmp(&b.beyond());
        let most = nodes.iter().zip(&with_gets).max_by(by_beyond);
        let (node, most) = most.context("no node")?;
        let worst = flushed.iter().map(Grown::beyond).max_by(f64::total_cmp);
        report.add(case, BEYOND, name, worst.context("no node")?);
        report.add(case, BEYOND_WITH_GETS, name, most.beyond());
        most.tell(report, case, name, 0);
        tell_of_index(report, case, name, node).await?;
        for (number, (flushed, with_gets)) in (1..).zip(flushed.iter().zip(&with_gets)) {
            let case = format!("{case}, node {number}");
            tell_of_memory(report, &case, name, flushed.after);
            report.add(&case, BEYOND, name, flushed.beyond());
            report.add(&case, BEYOND_WITH_GETS, name, with_gets.beyond());
        }
        Ok(())
    }
}

/// Reports what idle nodes hold: the largest, then each.
fn tell_of_idle(report: &mut Report, name: &'static str, idle: &[Resident]) {
    if let Some(largest) = idle.iter().max_by_key(|resident| resident.bytes) {
        tell_of_memory(report, IDLE, name, *largest);
    }
    for (number, resident) in (1..).zip(idle) {
        tell_of_memory(report, &format!("{IDLE}, node {number}"), name, *resident);
    }
}

fn tell_of_memory(report: &mut Report, case: &str, name: &'static str, resident: Resident) {
    report.add(case, RSS, name, resident.bytes as f64 / MIB);
    report.add(case, ANONYMOUS, name, resident.anonymous_bytes as f64 / MIB);
}

/// The growth of each node since it was idle.
async fn grown(nodes: &[Kvd], idle: &[Resident]) -> Result<Vec<Grown>> {
    let mut each = Vec::new();
    for (node, before) in nodes.iter().zip(idle) {
        let sealed = Readings::of(node).await?.value("store_sealed_keys")?;
        each.push(Grown {
            before: *before,
            after: resident(node)?,
            keys: (sealed as u64).max(1),
        });
    }
    Ok(each)
}

fn resident(node: &Kvd) -> Result<Resident> {
    process::resident(node.pid()?)
}

async fn tell_of_index(
    report: &mut Report,
    case: &str,
    subject: &'static str,
    node: &Kvd,
) -> Result<()> {
    let readings = Readings::of(node).await?;
    let sealed = readings.value("store_sealed_keys")?.max(1.0);
    let mut sum = 0.0;
    for part in ["header", "gate", "mphf", "offset"] {
        sum += readings.value(&format!("store_index_{part}_bytes"))?;
    }
    let mut add = |name, unit, value| report.add(case, Metric::new(name, unit), subject, value);
    add("index_per_key", "bytes", sum / sealed);
    let share = sealed / readings.value("store_records")?.max(1.0);
    add("sealed", "ratio", share);
    add("slices", "slices", readings.value("store_slices")?);
    add(
        "memtable",
        "MiB",
        readings.value("store_memtable_bytes")? / MIB,
    );
    Ok(())
}

async fn get_some(client: &Client, records: u64) -> Result<()> {
    let mut random = Random::of(21);
    for _ in 0..GETS {
        let keys = (0..KEYS).map(|_| records::key(random.below(records)));
        for found in client.batch_get(keys).await? {
            ensure!(found?.is_some(), "a key was not found");
        }
    }
    Ok(())
}

async fn peers(report: &mut Report, options: &Options) -> Result<()> {
    let keys = options.records_or(1_000_000);
    let peers = peers::PEERS.iter();
    for (name, start) in peers.filter(|(name, _)| PEERS.contains(name)) {
        let scratch = options.scratch()?;
        let Some(peer) = start(scratch.path()).await? else {
            report.skip(name, "not installed");
            continue;
        };
        let before = process::resident(peer.process()?)?;
        let started = Instant::now();
        let last = load(&*peer, keys).await?;
        let rate = keys as f64 / started.elapsed().as_secs_f64();
        let case = format!("{keys} keys");
        report.add(&case, Metric::new("load", "keys/s"), name, rate);
        // A full memory would have evicted the records stored first.
        check(&*peer, &Data::of(0..PART.min(keys))).await?;
        check(&*peer, &last).await?;
        let after = process::resident(peer.process()?)?;
        let grown = Grown {
            before,
            after,
            keys,
        };
        grown.tell(report, &case, name, records::LEN as u64);
    }
    Ok(())
}

/// Stores all records, part by part; returns the last part.
async fn load(peer: &dyn Subject, keys: u64) -> Result<Data> {
    let mut part = Data::of(0..0);
    for first in (0..keys).step_by(PART as usize) {
        part = Data::of(first..(first + PART).min(keys));
        peer.load(&part).await?;
    }
    Ok(part)
}

/// Gets some of the records; fails if one is missing.
async fn check(peer: &dyn Subject, data: &Data) -> Result<()> {
    let work = super::case::Work::GetBatches { in_flight: 1 };
    let time = std::time::Duration::from_millis(100);
    peer.run(work, data, time).await?;
    Ok(())
}
