//! Heavy hitters beside two other ways to find them.

use std::collections::HashMap;

use anyhow::Result;
use datasketches::frequencies::{ErrorType, FrequentItemsSketch};
use heavykeeper::TopK;
use torc_record::{Digest, NamespaceId};
use torc_sketch::HeavyHitters;
use torc_sketch::hot_keys::{HotKeys, HotKeysOptions, KeyName};

use super::streams::{Stopwatch, Stream, digest};
use super::{DATASKETCHES, DEPTH, HEAVYKEEPER, K, MEMORY, RECALL, UPDATE, WIDTH_LOG2, shape};
use crate::report::{Metric, Report, TORC};

const HEAVY: Metric = Metric::new("heavy_keys", "keys");
const REPORTED: Metric = Metric::new("reported", "keys");
const LARGEST_ERROR: Metric = Metric::new("largest_error", "ppm of accesses");

/// Entries of the peer's map; it uses three quarters of them, and errs by 3.5 / 8192 of the
/// accesses, less than the others.
const MAP_SIZE: usize = 8192;
/// The value that the peer's documentation recommends.
const DECAY: f64 = 0.9;

/// One round.
pub(super) fn measure(report: &mut Report, mut stream: Stream, accesses: u64) -> Result<()> {
    let case = format!("{}: heavy hitters", stream.kind.name());
    let mut ours = HeavyHitters::new(K, shape()?, 1);
    let mut hot = HotKeys::new(&HotKeysOptions::usual(1), 0);
    let mut frequent = FrequentItemsSketch::<u64>::new(MAP_SIZE)?;
    let mut keeper = TopK::<u64>::new(K as usize, 1 << WIDTH_LOG2, DEPTH.into(), DECAY);
    let mut took: [Stopwatch; 4] = Default::default();
    let exact = stream.for_each_block(accesses, |block| {
        took[0].each(&block.digests, |digest| {
            ours.insert(digest);
        });
        took[1].each(&block.digests, |digest| hot.record(digest, || name(digest)));
        took[2].each(&block.keys, |&key| frequent.update(key));
        took[3].each(&block.keys, |key| keeper.add(key, 1));
    });
    report.add(&case, UPDATE, TORC, took[0].ns());
    report.add(&case, UPDATE, DATASKETCHES, took[2].ns());
    report.add(&case, UPDATE, HEAVYKEEPER, took[3].ns());
    let of_candidates = ours.candidates() * size_of::<Digest>();
    report.add(
        &case,
        MEMORY,
        TORC,
        (ours.sketch().bytes() + of_candidates) as f64 / 1024.0,
    );
    report.add(
        &case,
        MEMORY,
        DATASKETCHES,
        frequent.estimated_size() as f64 / 1024.0,
    );
    report.add(
        &case,
        MEMORY,
        HEAVYKEEPER,
        keeper.mem_bytes(|_| 0) as f64 / 1024.0,
    );

    let hot_case = format!("{}: hot keys", stream.kind.name());
    report.add(&hot_case, UPDATE, TORC, took[1].ns());
    report.add(&hot_case, MEMORY, TORC, hot.bytes() as f64 / 1024.0);

    let truth = Truth::new(&exact);
    let by_digest: HashMap<Digest, u64> =
        truth.counts.keys().map(|&key| (digest(key), key)).collect();
    let answer = ours.answer();
    // A reported key without a number is none of the keys of interest.
    let answer = answer
        .iter()
        .map(|hitter| (by_digest.get(&hitter.digest).copied(), hitter.estimate));
    truth.compare(report, &case, TORC, answer);
    let rows =
        frequent.frequent_items_with_threshold(ErrorType::NoFalseNegatives, truth.threshold - 1);
    truth.compare(
        report,
        &case,
        DATASKETCHES,
        rows.iter().map(|row| (Some(*row.item()), row.estimate())),
    );
    let nodes = keeper
        .list()
        .into_iter()
        .filter(|node| node.count >= truth.threshold);
    truth.compare(
        report,
        &case,
        HEAVYKEEPER,
        nodes.map(|node| (Some(node.item), node.count)),
    );
    Ok(())
}

/// A key of 40 bytes, as a node would record it.
pub(super) fn name(digest: &Digest) -> KeyName {
    let mut key = [b'k'; 40];
    key[..16].copy_from_slice(&digest.0);
    KeyName {
        namespace: NamespaceId::DEFAULT,
        key: Some(Box::from(key)),
    }
}

/// Exact counts.
pub(super) struct Truth {
    total: u64,
    /// The lowest heavy count.
    pub(super) threshold: u64,
    /// Counts of the heavy keys.
    pub(super) counts: HashMap<u64, u64>,
}

impl Truth {
    pub(super) fn new(exact: &[u64]) -> Self {
        let total: u64 = exact.iter().sum();
        let threshold = total.div_ceil(K.into());
        let heavy = (0..).zip(exact).filter(|&(_, &count)| count >= threshold);
        let counts = heavy.map(|(key, &count)| (key, count)).collect();
        Self {
            total,
            threshold,
            counts,
        }
    }

    /// Compares a subject's report with the truth.
    pub(super) fn compare(
        &self,
        report: &mut Report,
        case: &str,
        subject: &'static str,
        reported: impl Iterator<Item = (Option<u64>, u64)>,
    ) {
        let (mut found, mut count, mut largest) = (0, 0, 0);
        for (key, estimate) in reported {
            count += 1;
            if let Some(&exact) = key.and_then(|key| self.counts.get(&key)) {
                found += 1;
                largest = largest.max(estimate.abs_diff(exact));
            }
        }
        let heavy = self.counts.len();
        let recall = if heavy == 0 {
            100.0
        } else {
            100.0 * f64::from(found) / heavy as f64
        };
        report.add(case, HEAVY, subject, heavy as f64);
        report.add(case, RECALL, subject, recall);
        report.add(case, REPORTED, subject, f64::from(count));
        report.add(
            case,
            LARGEST_ERROR,
            subject,
            1e6 * f64::from(largest as u32) / self.total as f64,
        );
    }
}
