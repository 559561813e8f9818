//! Count-min beside a peer's count-min of the same size.

use std::hint::black_box;

use anyhow::Result;
use datasketches::countmin::CountMinSketch;
use torc_sketch::lecture::MajorityBits;
use torc_sketch::{CountMin, MajorityCounter};

use super::streams::{Stopwatch, Stream, digest};
use super::{DATASKETCHES, DEPTH, MEMORY, QUERY, UPDATE, WIDTH_LOG2, shape};
use crate::report::{Metric, Report, TORC};

const MEAN_ERROR: Metric = Metric::new("mean_error", "ppm of accesses");
const LARGEST_ERROR: Metric = Metric::new("largest_error", "ppm of accesses");
const BEYOND: Metric = Metric::new("beyond_bound", "% of keys");
const ENCODED: Metric = Metric::new("encoded", "KiB");
const BY_COUNTER: Metric = Metric::new("by_counter", "ns");
const BY_BITS: Metric = Metric::new("by_bits", "ns");

/// One round.
pub(super) fn measure(report: &mut Report, mut stream: Stream, accesses: u64) -> Result<()> {
    let case = format!("{}: count-min", stream.kind.name());
    let mut ours = CountMin::new(shape()?, 1);
    let mut peer = CountMinSketch::<i64>::new(DEPTH, 1 << WIDTH_LOG2)?;
    let (mut counter, mut bits) = (MajorityCounter::new(), MajorityBits::new());
    let mut took: [Stopwatch; 6] = Default::default();
    let exact = stream.for_each_block(accesses, |block| {
        took[0].each(&block.digests, |digest| ours.insert(digest));
        took[1].each(&block.keys, |key| peer.update(key));
        took[2].each(&block.digests, |digest| {
            black_box(ours.estimate(digest));
        });
        took[3].each(&block.keys, |key| {
            black_box(peer.estimate(key));
        });
        took[4].each(&block.digests, |digest| counter.insert(digest));
        took[5].each(&block.digests[..block.digests.len() / 16], |digest| {
            bits.insert(digest);
        });
    });
    black_box((counter.candidate(), bits.candidate()));
    report.add(&case, UPDATE, TORC, took[0].ns());
    report.add(&case, UPDATE, DATASKETCHES, took[1].ns());
    report.add(&case, QUERY, TORC, took[2].ns());
    report.add(&case, QUERY, DATASKETCHES, took[3].ns());
    report.add(&case, MEMORY, TORC, ours.bytes() as f64 / 1024.0);
    report.add(
        &case,
        MEMORY,
        DATASKETCHES,
        peer.estimated_size() as f64 / 1024.0,
    );
    let mut encoded = Vec::new();
    ours.encode(&mut encoded);
    report.add(&case, ENCODED, TORC, encoded.len() as f64 / 1024.0);
    report.add(
        &case,
        ENCODED,
        DATASKETCHES,
        peer.serialize().len() as f64 / 1024.0,
    );
    errors(report, &case, TORC, &exact, |key| {
        ours.estimate(&digest(key))
    });
    errors(report, &case, DATASKETCHES, &exact, |key| {
        peer.estimate(key)
    });
    let majority = format!("{}: majority", stream.kind.name());
    report.add(&majority, BY_COUNTER, TORC, took[4].ns());
    report.add(&majority, BY_BITS, TORC, took[5].ns());
    Ok(())
}

/// The excess of estimates over the truth, over all keys that occurred.
fn errors(
    report: &mut Report,
    case: &str,
    subject: &'static str,
    exact: &[u64],
    estimate: impl Fn(u64) -> i64,
) {
    let total = exact.iter().sum::<u64>() as f64;
    let occurred = (0..).zip(exact).filter(|&(_, &count)| count > 0);
    let excess = occurred.map(|(key, &count)| (estimate(key) - count as i64) as f64 / total);
    let excess: Vec<f64> = excess.collect();
    let bound = 2.0 / f64::from(1_u32 << WIDTH_LOG2);
    let keys = excess.len() as f64;
    let beyond = excess.iter().filter(|&&excess| excess > bound).count() as f64;
    let largest = excess.iter().copied().fold(0.0, f64::max);
    report.add(
        case,
        MEAN_ERROR,
        subject,
        1e6 * excess.iter().sum::<f64>() / keys,
    );
    report.add(case, LARGEST_ERROR, subject, 1e6 * largest);
    report.add(case, BEYOND, subject, 100.0 * beyond / keys);
}
