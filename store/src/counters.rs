//! Counters behind [`StoreStats`](crate::StoreStats).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Histogram;

/// Upper bounds of the buckets for sync times, seconds.
const SYNC_BOUNDS: [f64; 14] = [
    0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0,
];

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) fsyncs: SyncTimes,
    pub(crate) batches: Counter,
    pub(crate) batch_records: Counter,
    pub(crate) memtable_refusals: Counter,
    pub(crate) space_refusals: Counter,
    pub(crate) flushes: Counter,
    pub(crate) flush_failures: Counter,
    pub(crate) flushed_records: Counter,
    pub(crate) flush_nanos: Counter,
    pub(crate) compactions: Counter,
    pub(crate) compaction_failures: Counter,
    pub(crate) compacted_records: Counter,
    pub(crate) compaction_nanos: Counter,
    /// When it was last reported that keys share a digest.
    pub(crate) shared_digests: Mutex<Option<Instant>>,
}

/// Times of syncs.
#[derive(Debug, Default)]
pub(crate) struct SyncTimes {
    buckets: [Counter; SYNC_BOUNDS.len() + 1],
    nanos: Counter,
}

impl SyncTimes {
    pub(crate) fn record(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = SYNC_BOUNDS.partition_point(|bound| *bound < seconds);
        self.buckets[bucket].add(1);
        self.nanos
            .add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::get).sum()
    }

    pub(crate) fn histogram(&self) -> Histogram {
        Histogram {
            bounds: &SYNC_BOUNDS,
            counts: self.buckets.iter().map(Counter::get).collect(),
            sum: Duration::from_nanos(self.nanos.get()).as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_first_bucket_whose_bound_it_does_not_exceed() {
        let times = SyncTimes::default();
        for micros in [50, 51, 2_000_000] {
            times.record(Duration::from_micros(micros));
        }
        let histogram = times.histogram();
        assert_eq!(histogram.counts.len(), histogram.bounds.len() + 1);
        assert_eq!((histogram.counts[0], histogram.counts[1]), (1, 1));
        assert_eq!(histogram.counts.last(), Some(&1));
        assert_eq!(times.count(), 3);
        assert!((histogram.sum - 2.000_101).abs() < 1e-9);
    }
}
