//! The number of keys that two sets share, from their sketches alone.

use anyhow::Result;
use torc_sketch::{CountMin, Shape};

use super::streams::{digest, seconds};
use crate::report::{Metric, Report, TORC};

const SET: u64 = 200_000;
const SHARED: u64 = 20_000;
/// Four rows of 65,536: 2 MiB per set.
const WIDTH_LOG2: u8 = 16;
const DEPTH: u8 = 4;
const CASE: &str = "overlap of two sets of 200,000 keys";

const ERROR: Metric = Metric::new("error", "%");
const STATED: Metric = Metric::new("stated_deviation", "%");
const UPPER: Metric = Metric::new("plain_minimum_error", "%");
const TIME: Metric = Metric::new("time", "ms");
const ENCODED: Metric = Metric::new("encoded", "KiB");

/// One round; sets and hashes differ by round.
pub(super) fn measure(report: &mut Report, round: u64) -> Result<()> {
    let shape = Shape::new(WIDTH_LOG2, DEPTH)?;
    let first = round * 10_000_000;
    let set = |keys: std::ops::Range<u64>| {
        let mut sketch = CountMin::new(shape, round);
        keys.for_each(|key| sketch.insert(&digest(first + key)));
        sketch
    };
    let (a, b) = (set(0..SET), set(SET - SHARED..2 * SET - SHARED));
    let (took, product) = seconds(|| a.inner_product(&b));
    let product = product?;
    report.add(CASE, TIME, TORC, took * 1e3);
    let percent = |of: f64| 100.0 * of / SHARED as f64;
    report.add(
        CASE,
        ERROR,
        TORC,
        percent((product.estimate - SHARED as f64).abs()),
    );
    report.add(CASE, STATED, TORC, percent(product.std_error));
    report.add(
        CASE,
        UPPER,
        TORC,
        percent(product.upper as f64 - SHARED as f64),
    );
    let mut encoded = Vec::new();
    a.encode(&mut encoded);
    report.add(CASE, ENCODED, TORC, encoded.len() as f64 / 1024.0);
    Ok(())
}
