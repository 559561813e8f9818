//! The sketches: the cost of counting, its error, and the recall.
//!
//! Streams are Zipf and uniform accesses to a million keys, with exact counts for comparison. Torc
//! counts the digests that operations carry; the peers get a number for each key and hash it, which
//! is cheaper for them than a key of bytes. Each block of accesses is generated first and then
//! counted by each subject in turn, so the figures exclude generation. Times are processor time of
//! the only thread.
//!
//! `datasketches` (Apache): count-min with the same rows and counters, and frequent items by Misra
//! and Gries. `heavykeeper`: the most frequent keys, with decaying counters; it may miss some.
//! `aho-corasick` and `fastcdc` search and cut text.

mod cluster;
mod counting;
mod heavy;
mod overlap;
pub(crate) mod streams;
mod text;

use anyhow::Result;
use torc_sketch::Shape;

use crate::options::Options;
use crate::report::{Metric, Prediction, Report};
use streams::{Kind, Stream};

/// The peers' names.
const DATASKETCHES: &str = "datasketches";
const HEAVYKEEPER: &str = "heavykeeper";
const AHO_CORASICK: &str = "aho-corasick";
const FASTCDC: &str = "fastcdc";

const UPDATE: Metric = Metric::new("update", "ns");
const QUERY: Metric = Metric::new("query", "ns");
const MEMORY: Metric = Metric::new("memory", "KiB");
/// The share of the keys with 1/k of the accesses that are found.
const RECALL: Metric = Metric::new("recall", "%");

/// Counters per row, and rows, as in a node's count of hot keys: ε = 1/2048 and δ = 1/32.
const WIDTH_LOG2: u8 = 12;
const DEPTH: u8 = 5;
/// Keys with a thousandth of the accesses are heavy.
const K: u32 = 1000;
/// Distinct keys.
const KEYS: u64 = 1_000_000;

const PREDICTIONS: &[Prediction] = &[
    Prediction {
        case: "zipf 1.1: hot keys",
        metric: "update",
        expected: "12 to 28, 2 % of a streamed get",
    },
    Prediction {
        case: "zipf 1.1: heavy hitters",
        metric: "recall",
        expected: "100, always",
    },
    Prediction {
        case: "zipf 1.1: 5 nodes",
        metric: "recall",
        expected: "100, always",
    },
    Prediction {
        case: "overlap of two sets of 200,000 keys",
        metric: "error",
        expected: "within 10 %",
    },
];

/// What to measure of the sketches.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Args {
    /// Accesses of each stream; without it, 10,000,000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(10_000..=10_000_000_000))]
    pub(crate) accesses: Option<u64>,
}

/// Measures the sketches.
///
/// # Errors
/// A subject cannot be created, or two parts of it cannot be merged.
pub(crate) fn run(args: Args, options: &Options) -> Result<Report> {
    let mut report = Report::new("sketch", PREDICTIONS);
    let usual = if options.quick { 100_000 } else { 10_000_000 };
    let accesses = args.accesses.unwrap_or(usual);
    for round in 0..u64::from(options.rounds()) {
        for kind in [Kind::Zipf, Kind::Uniform] {
            let stream = || Stream::new(kind, KEYS, round);
            counting::measure(&mut report, stream(), accesses)?;
            heavy::measure(&mut report, stream(), accesses)?;
            cluster::measure(&mut report, stream(), accesses)?;
        }
        overlap::measure(&mut report, round)?;
        text::measure(
            &mut report,
            round,
            if options.quick { 1 << 20 } else { 64 << 20 },
        )?;
    }
    report.note(format!(
        "{accesses} accesses to {KEYS} keys; {DEPTH} rows of {} counters; heavy is 1/{K} of the accesses",
        1 << WIDTH_LOG2
    ));
    report.note(
        "torc counts digests, which an operation has anyway; the peers hash 8 bytes themselves",
    );
    report.note("heavykeeper counts the candidates of other keys down: it may miss and undercount");
    Ok(report)
}

/// Rows and counters of every sketch that counts accesses.
fn shape() -> Result<Shape> {
    Ok(Shape::new(WIDTH_LOG2, DEPTH)?)
}
