//! `kvctl plan`: estimates the memory and disk of a cluster.
//!
//! It measures instead of guessing: it builds one slice of sample records as nodes do, grows a ring
//! to the number of nodes as clusters do, and takes the busiest node. The rest are a store's
//! defaults.

use std::path::Path;

use bytes::Bytes;
use serde::Serialize;
use torc_build::{Build, BuildError, BuildOptions, Generation, Target};
use torc_ring::{DEFAULT_REPLICAS, Growth, Partitions, simulate};
use torc_store::StoreOptions;

use super::generate_urls::Random;
use super::simulate::partitions;
use crate::failure::Failure;
use crate::global::Global;
use crate::out::Out;
use crate::table::{Align, Table};
use crate::text;

/// Most records of the sample. Larger indexes take the same space per key.
const SAMPLE_RECORDS: u64 = 1 << 16;
/// Approximate limit of the sample, bytes.
const SAMPLE_BYTES: u64 = 64 << 20;
const LEAST_RECORDS: u64 = 16;

/// Estimate the memory and disk that a cluster needs; works offline.
///
/// Builds one slice of sample records as nodes do, measures it, and grows a ring to --nodes. All
/// figures are for the busiest node, after compaction, with default settings. A second column
/// shows one node fewer, if the replicas still fit. Plan for that column: when a node leaves, or dies
/// without a replacement, the other nodes take over its share.
///
/// Memory covers indexes and a full memtable. The process needs some more, for connections and
/// requests; the system uses the rest to cache files. Disk covers slices, one segment and one flush
/// of the commit log, and the space of one compaction. It leaves out overwritten values before
/// compaction, and the temporary copies while a dead node is replaced: at most as much again.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of keys, for example 1000000 or 1e9.
    #[arg(long, value_name = "N", value_parser = keys)]
    keys: u64,
    /// Average length of a value, bytes.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    value_bytes: u32,
    /// Average length of a key, bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 32, value_parser = clap::value_parser!(u16).range(8..=1024))]
    key_bytes: u16,
    /// Number of nodes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500))]
    nodes: u32,
    /// Replicas of each key.
    #[arg(long, value_name = "R", default_value_t = DEFAULT_REPLICAS, value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: u8,
    /// Number of partitions, a power of two.
    #[arg(long, value_name = "P", default_value_t = Partitions::DEFAULT, value_parser = partitions)]
    partitions: Partitions,
}

/// A whole number, also as in 1e9.
fn keys(text: &str) -> Result<u64, String> {
    const MOST: f64 = 1e15;
    let number = text.replace(['_', ','], "").parse::<f64>();
    let is_whole = |number: &f64| number.fract() == 0.0 && (1.0..=MOST).contains(number);
    let number = number.ok().filter(is_whole);
    number
        .map(|number| number as u64)
        .ok_or_else(|| "use a whole number from 1 to 1e15, for example 1000000 or 1e9".to_owned())
}

/// The sample slice.
#[derive(Debug, Clone, Copy)]
struct Sample {
    records: u64,
    index_bytes: u64,
    file_bytes: u64,
}

/// The size of a record, per key.
#[derive(Debug, Clone, Copy)]
struct PerKey {
    index_bytes: f64,
    file_bytes: f64,
}

impl Sample {
    fn per_key(self) -> PerKey {
        let records = self.records.max(1) as f64;
        PerKey {
            index_bytes: self.index_bytes as f64 / records,
            file_bytes: self.file_bytes as f64 / records,
        }
    }
}

/// The busiest node of a cluster of some size, as `--output json` prints it.
#[derive(Debug, Clone, Serialize)]
struct Busiest {
    nodes: u32,
    peak_to_mean: f64,
    records: u64,
    index_bytes: u64,
    memtable_bytes: u64,
    memory_bytes: u64,
    slice_bytes: u64,
    /// Log and compaction.
    work_bytes: u64,
    disk_bytes: u64,
}

impl Busiest {
    /// The busiest node of a cluster with `copies` records, replicas included.
    fn of(nodes: u32, peak_to_mean: f64, copies: f64, per_key: PerKey) -> Self {
        let store = StoreOptions::new(Path::new(""));
        let records = copies / f64::from(nodes) * peak_to_mean;
        let index_bytes = (records * per_key.index_bytes) as u64;
        let slice_bytes = (records * per_key.file_bytes) as u64;
        let work_bytes = store.flush_log_bytes + store.log_segment_bytes + store.compact_job_bytes;
        Self {
            nodes,
            peak_to_mean,
            records: records as u64,
            index_bytes,
            memtable_bytes: store.memtable_limit_bytes,
            memory_bytes: index_bytes + store.memtable_limit_bytes,
            slice_bytes,
            work_bytes,
            disk_bytes: slice_bytes + work_bytes,
        }
    }
}

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Plan {
    keys: u64,
    key_bytes: u16,
    value_bytes: u32,
    replicas: u8,
    partitions: u32,
    sample_records: u64,
    index_bits_per_key: f64,
    disk_bytes_per_key: f64,
    /// The requested cluster, then the one with a node less.
    clusters: Vec<Busiest>,
    /// The amount that an additional node would take over.
    join_bytes: u64,
}

pub(crate) fn run(args: &Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    if u32::from(args.replicas) > args.nodes {
        let (replicas, nodes) = (args.replicas, args.nodes);
        let message = format!("{replicas} replicas need {replicas} nodes, but --nodes is {nodes}");
        return Err(Failure::Usage(message));
    }
    let sample = sample(args)?;
    let plan = plan(args, sample, &peaks(args)?);
    if global.json() {
        out.json(&plan)
    } else {
        out.line(plan.describe())
    }
}

/// The busiest node over the mean, for each number of nodes from 1.
fn peaks(args: &Args) -> Result<Vec<f64>, Failure> {
    let growth = Growth {
        nodes: args.nodes,
        replicas: args.replicas,
        partitions: args.partitions,
        ..Growth::default()
    };
    let rows: Result<Vec<_>, _> = simulate(growth).collect();
    let rows = rows.map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(rows.iter().map(|row| row.replica_peak_to_mean).collect())
}

fn plan(args: &Args, sample: Sample, peaks: &[f64]) -> Plan {
    let per_key = sample.per_key();
    let copies = args.keys as f64 * f64::from(args.replicas);
    let sizes = (u32::from(args.replicas)..=args.nodes).rev().take(2);
    let busiest = |nodes: u32| {
        let peak = peaks.get(nodes as usize - 1).copied().unwrap_or(1.0);
        Busiest::of(nodes, peak, copies, per_key)
    };
    Plan {
        keys: args.keys,
        key_bytes: args.key_bytes,
        value_bytes: args.value_bytes,
        replicas: args.replicas,
        partitions: args.partitions.count(),
        sample_records: sample.records,
        index_bits_per_key: per_key.index_bytes * 8.0,
        disk_bytes_per_key: per_key.file_bytes,
        clusters: sizes.map(busiest).collect(),
        join_bytes: (copies * per_key.file_bytes / f64::from(args.nodes + 1)) as u64,
    }
}

/// Builds a slice with as many records as a partition will have, up to [`SAMPLE_RECORDS`].
fn sample(args: &Args) -> Result<Sample, Failure> {
    let dir = tempfile::tempdir().map_err(|source| Failure::File {
        action: "write",
        path: std::env::temp_dir().display().to_string(),
        source,
    })?;
    let record_bytes = u64::from(args.key_bytes) + u64::from(args.value_bytes);
    let most = (SAMPLE_BYTES / record_bytes).clamp(LEAST_RECORDS, SAMPLE_RECORDS);
    let records = (args.keys / u64::from(args.partitions.count())).clamp(LEAST_RECORDS, most);
    let built = build(args, records, &dir.path().join("sample"));
    built.map_err(|error| super::generation::failure(error).after("no sample was built"))
}

fn build(args: &Args, records: u64, dir: &Path) -> Result<Sample, BuildError> {
    let target = Target {
        partitions: Partitions::new(1).unwrap_or(Partitions::DEFAULT),
        ..Target::offline([0; 32])
    };
    let mut build = Build::create(dir, target, BuildOptions::default())?;
    for number in 0..records {
        let mut random = Random::of(1, number);
        let mut key = number.to_be_bytes().to_vec();
        key.resize(usize::from(args.key_bytes), b'k');
        let words = std::iter::repeat_with(|| random.next().to_le_bytes());
        let value: Bytes = words.flatten().take(args.value_bytes as usize).collect();
        build.push(key.into(), value)?;
    }
    let manifest = build.finish(|_| {})?;
    Ok(Sample {
        records,
        index_bytes: Generation::open(dir)?.index_bytes(),
        file_bytes: manifest.files.iter().map(|file| file.len).sum(),
    })
}

/// A figure of a node as text.
type Cell = fn(&Busiest) -> String;

impl Plan {
    fn describe(&self) -> String {
        let columns = [
            ("busiest node", Align::Left),
            ("of all", Align::Right),
            ("one node less", Align::Right),
        ];
        let mut table = Table::new(&columns[..=self.clusters.len().min(2)]);
        let rows: [(&str, Cell); 8] = [
            ("nodes", |it| text::count(it.nodes.into())),
            ("records", |it| text::count(it.records)),
            ("memory: indexes", |it| text::bytes(it.index_bytes)),
            ("memory: memtable, at most", |it| {
                text::bytes(it.memtable_bytes)
            }),
            ("memory", |it| text::bytes(it.memory_bytes)),
            ("disk: slices", |it| text::bytes(it.slice_bytes)),
            ("disk: log, compaction", |it| text::bytes(it.work_bytes)),
            ("disk", |it| text::bytes(it.disk_bytes)),
        ];
        for (name, cell) in rows {
            let mut row = vec![name.to_owned()];
            row.extend(self.clusters.iter().map(cell));
            table.row(row);
        }
        format!(
            "{} of {} with values of {}, {}, {} partitions\n\n{table}\n\nEach replica of a key takes {:.1} bits of index and {} on \
             disk, measured on a slice of {} records. An additional node takes over {}.",
            text::counted(self.keys, "key"),
            text::bytes(self.key_bytes.into()),
            text::bytes(self.value_bytes.into()),
            text::replicas(self.replicas.into()),
            text::count(self.partitions.into()),
            self.index_bits_per_key,
            text::bytes(self.disk_bytes_per_key.round() as u64),
            text::count(self.sample_records),
            text::bytes(self.join_bytes),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(nodes: u32, replicas: u8) -> Args {
        Args {
            keys: 6_000_000,
            value_bytes: 100,
            key_bytes: 32,
            nodes,
            replicas,
            partitions: Partitions::DEFAULT,
        }
    }

    const SAMPLE: Sample = Sample {
        records: 1_000,
        index_bytes: 3_000,
        file_bytes: 180_000,
    };

    #[test]
    fn numbers_of_keys_may_be_powers_of_ten() {
        assert_eq!(keys("1e9"), Ok(1_000_000_000));
        assert_eq!(keys("2.5e3"), Ok(2_500));
        assert_eq!(keys("1_000"), Ok(1_000));
        for bad in ["0", "1.5", "-1", "1e16", "nan", "many"] {
            assert!(keys(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_busiest_node_counts_and_so_does_one_node_less() {
        let plan = plan(&args(6, 3), SAMPLE, &[1.0, 1.0, 1.0, 1.0, 1.1, 1.02]);
        let [six, five] = &plan.clusters[..] else {
            panic!("{plan:?}");
        };
        // 18 M copies on six nodes, plus two percent.
        assert_eq!((six.nodes, six.records), (6, 3_060_000));
        assert_eq!(six.index_bytes, 3 * six.records);
        assert_eq!(six.slice_bytes, 180 * six.records);
        assert_eq!(six.memory_bytes, six.index_bytes + (512 << 20));
        assert_eq!((five.nodes, five.records), (5, 3_960_000));
        assert_eq!(plan.join_bytes, 18_000_000 * 180 / 7);
        crate::out::assert_documented_under("`plan`", &plan);
    }

    #[test]
    fn a_cluster_that_cannot_lose_a_node_has_no_second_column() {
        let plan = plan(&args(3, 3), SAMPLE, &[1.0, 1.0, 1.0]);
        assert_eq!(plan.clusters.len(), 1);
        let text = plan.describe();
        let head = "6,000,000 keys of 32 B with values of 100 B, 3 replicas, 4,096 partitions";
        assert!(text.starts_with(head), "{text}");
    }

    #[test]
    fn a_sample_is_a_real_slice() {
        let sample = sample(&args(6, 3)).unwrap();
        assert_eq!(sample.records, 6_000_000 / 4_096);
        let per_key = sample.per_key();
        // Key, value and the record's overhead; a function with 2.1 bits or more, and a gate of 1
        // %.
        assert!((132.0..260.0).contains(&per_key.file_bytes), "{per_key:?}");
        assert!((1.5..6.0).contains(&per_key.index_bytes), "{per_key:?}");
    }
}
