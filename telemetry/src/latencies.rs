//! A lock-free histogram of request times, readable as numbers and by Prometheus.

#![expect(clippy::cast_precision_loss, reason = "figures")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};
use torc_proto::load::{BUCKETS, bound_us, bucket_of};

/// The histogram. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct Latencies(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Latencies {
    /// Counts a request.
    pub fn observe(&self, elapsed: Duration) {
        // Rounded up, so that each time is at most the bound of its bucket.
        let bucket =
            bucket_of(u64::try_from(elapsed.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX));
        self.0.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.0.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Counts by bucket, since the start.
    #[must_use]
    pub fn counts(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|bucket| self.0.buckets[bucket].load(Ordering::Relaxed))
    }
}

impl TypedMetric for Latencies {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Latencies {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), fmt::Error> {
        let counts = self.counts();
        let bound_s = |bucket| match bucket {
            last if last + 1 == BUCKETS => f64::INFINITY,
            bucket => bound_us(bucket) as f64 / 1e6,
        };
        let buckets: Vec<_> = (0..BUCKETS).map(|it| (bound_s(it), counts[it])).collect();
        let sum_s = self.0.sum_ns.load(Ordering::Relaxed) as f64 / 1e9;
        encoder.encode_histogram::<NoLabelSet>(sum_s, counts.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    #[test]
    fn prometheus_reads_what_was_counted() {
        let (mut registry, latencies) = (Registry::default(), Latencies::default());
        registry.register("took", "How long it took", latencies.clone());
        for us in [9, 10, 11, 1_000_000, 60_000_000] {
            latencies.observe(Duration::from_micros(us));
        }
        latencies.observe(Duration::from_nanos(10_001));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "took_sum 61.000040001",
            "took_count 6",
            "took_bucket{le=\"0.00001\"} 2",
            "took_bucket{le=\"0.00002\"} 4",
            "took_bucket{le=\"10.48576\"} 5",
            "took_bucket{le=\"+Inf\"} 6",
        ] {
            assert!(text.contains(line), "{line}:\n{text}");
        }
    }
}
