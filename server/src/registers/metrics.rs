//! What registers count: `torc_register_*`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use torc_replication::Outcome;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    kind: &'static str,
    path: &'static str,
}

/// How operations of one kind went.
#[derive(Debug, Clone)]
struct Paths {
    /// In one round trip.
    fast: Counter,
    slow: Counter,
}

/// The counters of a node's registers. Cloning shares them.
#[derive(Debug, Clone)]
pub(crate) struct RegisterMetrics {
    reads: Paths,
    writes: Paths,
    unknown: Counter,
    unavailable: Counter,
    settled: Counter,
    pub(super) settles_dropped: Counter,
}

impl RegisterMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let operations = Family::<Labels, Counter>::default();
        registry.register(
            "register_operations",
            "Operations that this node coordinated to their end: fast ones took one round trip",
            operations.clone(),
        );
        let of = |kind, path| operations.get_or_create(&Labels { kind, path }).clone();
        let paths = |kind| Paths {
            fast: of(kind, "fast"),
            slow: of(kind, "slow"),
        };
        let (reads, writes) = (paths("read"), paths("write"));
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        Self {
            reads,
            writes,
            unknown: counter(
                "register_unknown",
                "Writes whose outcome stayed open when their time was over",
            ),
            unavailable: counter(
                "register_unavailable",
                "Operations that changed nothing for want of a quorum",
            ),
            settled: counter(
                "register_settled",
                "Keys that were brought together where replicas differed",
            ),
            settles_dropped: counter(
                "register_settles_dropped",
                "Keys that were to be brought together and had to wait for the next time",
            ),
        }
    }

    /// Counts an operation that ended.
    pub(super) fn count(&self, is_write: bool, outcome: &Outcome) {
        let paths = if is_write { &self.writes } else { &self.reads };
        let counter = match outcome {
            Outcome::Found { fast, .. }
            | Outcome::Absent { fast }
            | Outcome::Written { fast, .. } => {
                if *fast {
                    &paths.fast
                } else {
                    &paths.slow
                }
            }
            // A miss completes an accept first.
            Outcome::Mismatch { .. } => &paths.slow,
            Outcome::Unknown => &self.unknown,
            Outcome::Unavailable => &self.unavailable,
            Outcome::Settled => &self.settled,
        };
        counter.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    #[test]
    fn a_series_is_there_before_its_first_operation_and_counts_by_kind_and_path() {
        let mut registry = Registry::with_prefix("torc");
        let metrics = RegisterMetrics::register(&mut registry);
        let text = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        let fast_writes = "torc_register_operations_total{kind=\"write\",path=\"fast\"}";
        assert!(text().contains(&format!("{fast_writes} 0")), "{}", text());
        metrics.count(true, &Outcome::Absent { fast: true });
        metrics.count(false, &Outcome::Absent { fast: false });
        metrics.count(true, &Outcome::Unknown);
        let text = text();
        for line in [
            &format!("{fast_writes} 1")[..],
            "torc_register_operations_total{kind=\"read\",path=\"slow\"} 1",
            "torc_register_unknown_total 1",
            "torc_register_unavailable_total 0",
            "torc_register_settles_dropped_total 0",
        ] {
            assert!(text.contains(line), "{line} is missing:\n{text}");
        }
    }
}
