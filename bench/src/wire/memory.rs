//! Memory for each key: a kvd process whose records are sealed beside redis and memcached,
//! which hold theirs in memory.
//!
//! All are loaded over the wire with the same keys and values. What a key costs beyond its
//! payload is, for the peers, what their process has grown by less the payload; for kvd,
//! whose payload is on the disk, all that its own memory has grown by. Mapped files are page
//! cache, which the kernel takes back when it needs room: told beside it.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use torc_client::Client;

use super::data::Data;
use super::server;
use super::subject::Subject;
use crate::cli::Options;
use crate::kvd::{self, Node};
use crate::process::{self, Resident};
use crate::records::{self, Random};
use crate::report::{Metric, Prediction, Report, TORC};

/// The peers that hold keys in memory and nothing else.
const PEERS: [&str; 2] = ["redis", "memcached"];
/// Records made at a time.
const PART: u64 = 100_000;
/// Batched gets before the memory is read, of so many keys each.
const GETS: u64 = 500;
const KEYS: u64 = 100;
const OVERHEAD: Metric = Metric::new("overhead_per_key", "bytes");

const PREDICTIONS: &[Prediction] = &[
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
/// kvd does not build or start; a server that is installed does not work.
pub(crate) fn run(args: Args, options: &Options) -> Result<Report> {
    let program = kvd::program(options)?;
    let mut report = Report::new("ram", PREDICTIONS);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        for _ in 0..options.rounds {
            torc(&mut report, options, &program).await?;
            if !args.torc_only {
                peers(&mut report, options).await?;
            }
        }
        anyhow::Ok(())
    })?;
    report.note("overhead_per_key: redis and memcached, growth of the process less 132 bytes of payload; torc, growth of its anonymous memory, for its payload is on the disk");
    report.note("mapped_page_cache_per_key: pages of slices that gets have touched; the kernel takes them back when it needs room");
    Ok(report)
}

/// What a process has grown by.
struct Grown {
    before: Resident,
    after: Resident,
    keys: u64,
}

impl Grown {
    fn tell(&self, report: &mut Report, case: &str, name: &'static str, payload: u64) {
        let per_key = |after: u64, before: u64| (after as f64 - before as f64) / self.keys as f64;
        let all = per_key(self.after.bytes, self.before.bytes);
        let own = per_key(self.after.anonymous_bytes, self.before.anonymous_bytes);
        let mut add = |metric, value| report.add(case, metric, name, value);
        add(OVERHEAD, own - payload as f64);
        add(Metric::new("ram_per_key", "bytes"), all);
        add(Metric::new("anonymous_ram_per_key", "bytes"), own);
        add(Metric::new("mapped_page_cache_per_key", "bytes"), all - own);
        let empty = self.before.bytes as f64 / f64::from(1 << 20);
        add(Metric::new("ram_when_empty", "MiB"), empty);
    }
}

async fn torc(report: &mut Report, options: &Options, program: &Path) -> Result<()> {
    let keys = options.records_or(1_000_000);
    let scratch = options.scratch()?;
    let mut settings = Node::SETTLING.map(str::to_owned).to_vec();
    settings.push("--bootstrap".to_owned());
    let mut node = Node::prepare(program, scratch.path().join("torc"), settings)?;
    node.start()?;
    node.ready().await?;
    let client = Client::connect([node.endpoint()]).await?;
    let before = process::resident(node.id()?)?;
    let started = Instant::now();
    kvd::load(&client, keys).await?;
    let rate = keys as f64 / started.elapsed().as_secs_f64();
    let case = format!("{keys} keys");
    report.add(&case, Metric::new("load", "keys/s"), TORC, rate);
    node.settled(keys).await?;
    for case in [case, format!("{keys} keys, restarted")] {
        get_some(&client, keys).await?;
        let after = process::resident(node.id()?)?;
        let grown = Grown {
            before,
            after,
            keys,
        };
        grown.tell(report, &case, TORC, 0);
        tell_of_index(report, &case, &node).await?;
        node.kill_9()?;
        node.start()?;
        node.ready().await?;
    }
    Ok(())
}

async fn tell_of_index(report: &mut Report, case: &str, node: &Node) -> Result<()> {
    let readings = node.readings().await?;
    let sealed = readings.value("store_sealed_keys")?.max(1.0);
    let mut sum = 0.0;
    for part in ["header", "gate", "mphf", "offset"] {
        sum += readings.value(&format!("store_index_{part}_bytes"))?;
    }
    let mut add = |name, unit, value| report.add(case, Metric::new(name, unit), TORC, value);
    add("index_per_key", "bytes", sum / sealed);
    let share = sealed / readings.value("store_records")?.max(1.0);
    add("sealed", "ratio", share);
    add("slices", "slices", readings.value("store_slices")?);
    add(
        "overlay",
        "MiB",
        readings.value("store_overlay_bytes")? / f64::from(1 << 20),
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
    let peers = server::PEERS.iter();
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
        // What was stored first is what a full memory would have lost first.
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

/// Stores all, part by part; the last part.
async fn load(peer: &dyn Subject, keys: u64) -> Result<Data> {
    let mut part = Data::of(0..0);
    for first in (0..keys).step_by(PART as usize) {
        part = Data::of(first..(first + PART).min(keys));
        peer.load(&part).await?;
    }
    Ok(part)
}

/// Gets some of the records; an error if one is not there.
async fn check(peer: &dyn Subject, data: &Data) -> Result<()> {
    let work = super::case::Work::GetBatches { in_flight: 1 };
    let time = std::time::Duration::from_millis(100);
    peer.run(work, data, time).await?;
    Ok(())
}
