//! The index of a slice: size, build and lookups of the minimal perfect hash function, beside its
//! peers.
//!
//! Torc's function is measured in two forms: through its table of partitions, as self-contained
//! parts of about a given number of keys, and as one function of all keys, the only form that the
//! peers have. Every function is built on one thread from sorted digests. Lookups take digests,
//! which no function hashes again.

mod digests;
mod gigahash;
mod ours;
#[cfg(feature = "peers")]
mod peers;
mod subject;

use std::time::Instant;

use anyhow::Result;
use torc_record::Digest;

use crate::options::{NOT_BUILT_IN, Options};
use crate::report::{Metric, Prediction, Report, TORC};
use ours::{OneFunction, Parts};
use subject::Function;

const SIZE: Metric = Metric::new("size", "bits/key");
const BUILD: Metric = Metric::new("build", "ns/key");
const DEPENDENT: Metric = Metric::new("dependent_lookup", "ns");
const BATCHED: Metric = Metric::new("batched_lookup", "ns");

/// Keys for the measurement of sizes, as a power of two, so that parts of exactly 2 K, 16 K and 64
/// K keys on average cover them.
const SIZED: u32 = 23;
/// Average keys per part, as powers of two, for the measurement of sizes.
const PART_BITS: [u32; 3] = [11, 14, 16];
/// The number of keys looked up.
const LARGE: Case = Case {
    keys: 10_000_000,
    name: "10 M keys",
};
const SMALL: Case = Case {
    keys: 1_000_000,
    name: "1 M keys",
};
const QUERIES: usize = 1 << 21;

const PREDICTIONS: &[Prediction] = &[
    predicted("parts of 2048 keys", "size", "2.4; at most 3.0"),
    predicted("parts of 16384 keys", "size", "2.1; at most 2.3"),
    predicted("parts of 65536 keys", "size", "2.05; at most 2.1"),
    predicted(
        "10 M keys, 512 partitions",
        "build",
        "35 to 50; at most 100",
    ),
    predicted(
        "10 M keys, 512 partitions",
        "dependent_lookup",
        "15 to 22; as the fastest",
    ),
    predicted(
        "10 M keys, 512 partitions",
        "batched_lookup",
        "2.3 to 3.2; as the fastest",
    ),
    predicted(
        "10 M keys, one function",
        "dependent_lookup",
        "as the fastest",
    ),
    predicted(
        "10 M keys, one function",
        "batched_lookup",
        "as the fastest",
    ),
];

const fn predicted(case: &'static str, metric: &'static str, expected: &'static str) -> Prediction {
    Prediction {
        case,
        metric,
        expected,
    }
}

/// What to measure of the index.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Args {
    /// The Table 1 of the GigaHash paper instead
    #[arg(long)]
    pub(crate) gigahash: bool,
}

/// A number of keys, and its name.
#[derive(Debug, Clone, Copy)]
struct Case {
    keys: usize,
    name: &'static str,
}

/// Measures the index.
///
/// # Errors
/// A function cannot be built.
pub(crate) fn run(args: Args, options: &Options) -> Result<Report> {
    let predictions = if args.gigahash {
        gigahash::PREDICTIONS
    } else {
        PREDICTIONS
    };
    let mut report = Report::new("index", predictions);
    if args.gigahash {
        gigahash::run(&mut report, options)?;
        return Ok(report);
    }
    sizes(&mut report, if options.quick { SIZED - 6 } else { SIZED })?;
    if cfg!(not(feature = "peers")) {
        report.skip("ptr_hash, sux and ph", NOT_BUILT_IN);
    }
    for case in [SMALL, LARGE] {
        let keys = if options.quick {
            case.keys / 50
        } else {
            case.keys
        };
        let keys = digests::sorted(keys);
        for _ in 0..options.rounds() {
            round(&mut report, case, &keys)?;
        }
    }
    report.note("dependent: each lookup waits for the one before it; batched: 32 at a time");
    report.note(
        "ph has no batched lookup; peers have one function of all keys, torc one part a partition, asked through their table, but where it says one function",
    );
    Ok(report)
}

/// Bits per key of self-contained parts, by the average size of a part.
fn sizes(report: &mut Report, bits: u32) -> Result<()> {
    let keys = digests::sorted(1 << bits);
    for part_bits in PART_BITS {
        let parts = Parts::build(&keys, bits - part_bits)?;
        let case = format!("parts of {} keys", 1_u32 << part_bits);
        report.add(
            &case,
            SIZE,
            TORC,
            bits_per_key(&parts.stitch()?, keys.len()),
        );
    }
    Ok(())
}

/// Builds and measures every subject once. The peers have no partitions, so their figures are
/// repeated beside each number of partitions.
fn round(report: &mut Report, case: Case, keys: &[Digest]) -> Result<()> {
    let queries = digests::queries(keys, QUERIES);
    let bits = PART_BITS.into_iter().chain([u32::BITS]);
    let mut bits: Vec<u32> = bits.map(|part| partition_bits(keys.len(), part)).collect();
    bits.dedup();
    let name = |bits: &u32| format!("{}, {} partitions", case.name, 1 << bits);
    let mut cases: Vec<String> = bits.iter().map(name).collect();
    cases.push(format!("{}, one function", case.name));
    let mut turn = Turn {
        report,
        cases: &cases,
        subject: TORC,
        keys: keys.len(),
        queries: &queries,
    };
    for (bits, case) in bits.iter().zip(&cases) {
        turn.cases = std::slice::from_ref(case);
        let parts = turn.build(|| Parts::build(keys, *bits))?;
        turn.ask(&parts.stitch()?);
    }
    turn.cases = &cases[bits.len()..];
    let one = turn.build(|| OneFunction::build(keys))?;
    turn.ask(&one.view()?);
    #[cfg(feature = "peers")]
    {
        turn.cases = &cases;
        peers::measure(&mut turn, keys)?;
    }
    Ok(())
}

/// The number of partitions, as a power of two, whose parts have closest to 2^`part_bits` keys.
fn partition_bits(keys: usize, part_bits: u32) -> u32 {
    let parts = keys.checked_shr(part_bits).unwrap_or(0);
    // The geometric mean separates two powers of two.
    (parts * 181 / 128).checked_ilog2().unwrap_or(0)
}

/// One subject's turn in a round.
struct Turn<'a> {
    report: &'a mut Report,
    /// The cases to which its figures belong.
    cases: &'a [String],
    subject: &'static str,
    keys: usize,
    queries: &'a [Digest],
}

impl Turn<'_> {
    fn add(&mut self, metric: Metric, value: f64) {
        for case in self.cases {
            self.report.add(case, metric, self.subject, value);
        }
    }

    fn build<T>(&mut self, build: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let built = build()?;
        let took = started.elapsed().as_secs_f64() * 1e9 / self.keys as f64;
        self.add(BUILD, took);
        Ok(built)
    }

    fn ask(&mut self, function: &impl Function) {
        let size = bits_per_key(function, self.keys);
        self.add(SIZE, size);
        let took = subject::dependent(function, self.queries);
        self.add(DEPENDENT, took);
        if let Some(took) = subject::batched(function, self.queries) {
            self.add(BATCHED, took);
        }
    }
}

fn bits_per_key(function: &impl Function, keys: usize) -> f64 {
    function.bytes() as f64 * 8.0 / keys as f64
}
