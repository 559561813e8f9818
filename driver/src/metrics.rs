//! Metrics of registers: `torc_register_*`, and for `eventual` namespaces `torc_eventual_*`
//! and `torc_hints_*`.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use torc_replication::Outcome;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    kind: &'static str,
    path: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhyLabels {
    why: &'static str,
}

/// Counts of operations of one kind, by how they ended.
#[derive(Debug, Clone)]
struct Paths {
    /// Completed in one round trip.
    fast: Counter,
    slow: Counter,
}

/// Counts of hints, by what became of them.
#[derive(Debug, Clone)]
pub(super) struct HintMetrics {
    pub(super) held: Gauge,
    pub(super) held_bytes: Gauge,
    pub(super) sent: Counter,
    pub(super) dropped: Counter,
}

/// Counts of operations in `eventual` namespaces.
#[derive(Debug, Clone)]
pub(super) struct EventualMetrics {
    reads: Counter,
    writes: Counter,
    unknown: Counter,
    unavailable: Counter,
    reconciled: Counter,
}

impl EventualMetrics {
    /// Counts an operation that has ended.
    fn count(&self, is_write: bool, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Unknown | Outcome::Overtaken => &self.unknown,
            Outcome::Unavailable | Outcome::OutOfSpace | Outcome::Refused => &self.unavailable,
            Outcome::Reconciled => &self.reconciled,
            _ if is_write => &self.writes,
            _ => &self.reads,
        };
        counter.inc();
    }
}

/// The counters of a node's registers. Cloning shares them.
#[derive(Debug, Clone)]
pub struct RegisterMetrics {
    reads: Paths,
    writes: Paths,
    unknown: Counter,
    unavailable: Counter,
    reconciled: Counter,
    pub(super) reconciles_dropped: Counter,
    /// Seconds of reading to compare replicas.
    pub(super) compared_s: Counter<f64, AtomicU64>,
    pub(super) fetched: Counter,
    pub(super) fetches_dropped: Counter,
    pub(super) foreign_digests: Counter,
    /// Writes that this replica declined because the memtable was full.
    pub(super) declined_memory: Counter,
    /// The same because the disk was full.
    pub(super) declined_disk: Counter,
    eventual: EventualMetrics,
    pub(super) hints: HintMetrics,
}

impl RegisterMetrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let operations = Family::<Labels, Counter>::default();
        registry.register(
            "register_operations",
            "Operations that this node coordinated to the end; fast ones took one round trip",
            operations.clone(),
        );
        let of = |kind, path| operations.get_or_create(&Labels { kind, path }).clone();
        let paths = |kind| Paths {
            fast: of(kind, "fast"),
            slow: of(kind, "slow"),
        };
        let (reads, writes) = (paths("read"), paths("write"));
        let (eventual, hints) = (eventual(registry), hints(registry));
        let compared_s = Counter::<f64, AtomicU64>::default();
        registry.register(
            "register_compared_seconds",
            "Seconds of reading to compare replicas",
            compared_s.clone(),
        );
        let declined = Family::<WhyLabels, Counter>::default();
        registry.register(
            "register_declined",
            "Requests to write that this replica declined for lack of memory or disk space",
            declined.clone(),
        );
        let declined = |why| declined.get_or_create(&WhyLabels { why }).clone();
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
                "Writes whose outcome was unknown at the deadline",
            ),
            unavailable: counter(
                "register_unavailable",
                "Operations that changed nothing, for lack of a quorum or of disk space",
            ),
            reconciled: counter(
                "register_reconciled",
                "Keys reconciled because replicas held different versions",
            ),
            reconciles_dropped: counter(
                "register_reconciles_dropped",
                "Keys to reconcile that a full queue dropped; a later comparison finds them again",
            ),
            compared_s,
            fetched: counter(
                "register_fetched",
                "Messages that had to wait for a disk read",
            ),
            fetches_dropped: counter(
                "register_fetches_dropped",
                "Messages that found no room to wait for a disk read; their senders ask again",
            ),
            foreign_digests: counter(
                "register_foreign_digests",
                "Records found under the digest of another key",
            ),
            declined_memory: declined("memory"),
            declined_disk: declined("disk"),
            eventual,
            hints,
        }
    }

    /// Counts an operation that has ended.
    pub(super) fn count(&self, is_write: bool, is_eventual: bool, outcome: &Outcome) {
        if is_eventual {
            return self.eventual.count(is_write, outcome);
        }
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
            // A mismatch first completes an unfinished accept.
            Outcome::Mismatch { .. } => &paths.slow,
            Outcome::Unknown | Outcome::Overtaken => &self.unknown,
            Outcome::Unavailable | Outcome::OutOfSpace | Outcome::Refused => &self.unavailable,
            Outcome::Reconciled => &self.reconciled,
        };
        counter.inc();
    }
}

fn eventual(registry: &mut Registry) -> EventualMetrics {
    let operations = Family::<KindLabels, Counter>::default();
    registry.register(
        "eventual_operations",
        "Operations of eventual namespaces that this node coordinated to the end",
        operations.clone(),
    );
    let of = |kind| operations.get_or_create(&KindLabels { kind }).clone();
    let (reads, writes) = (of("read"), of("write"));
    let mut counter = |name: &str, help: &str| {
        let counter = Counter::default();
        registry.register(name, help, counter.clone());
        counter
    };
    EventualMetrics {
        reads,
        writes,
        unknown: counter(
            "eventual_unknown",
            "Writes of eventual namespaces that too few replicas had confirmed in time",
        ),
        unavailable: counter(
            "eventual_unavailable",
            "Operations of eventual namespaces that changed nothing, for lack of a quorum or of disk space",
        ),
        reconciled: counter(
            "eventual_reconciled",
            "Keys of eventual namespaces reconciled because replicas held different versions",
        ),
    }
}

fn hints(registry: &mut Registry) -> HintMetrics {
    let (held, held_bytes) = (Gauge::default(), Gauge::default());
    registry.register(
        "hints_held",
        "Versions kept for nodes that have missed them",
        held.clone(),
    );
    registry.register(
        "hints_held_bytes",
        "Bytes of keys and values in hints",
        held_bytes.clone(),
    );
    let mut counter = |name: &str, help: &str| {
        let counter = Counter::default();
        registry.register(name, help, counter.clone());
        counter
    };
    HintMetrics {
        held,
        held_bytes,
        sent: counter("hints_sent", "Hints that their node has accepted"),
        dropped: counter(
            "hints_dropped",
            "Hints dropped for lack of space, or because their node no longer needs them",
        ),
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
        metrics.count(true, false, &Outcome::Absent { fast: true });
        metrics.count(false, false, &Outcome::Absent { fast: false });
        metrics.count(true, false, &Outcome::Unknown);
        let text = text();
        for line in [
            &format!("{fast_writes} 1")[..],
            "torc_register_operations_total{kind=\"read\",path=\"slow\"} 1",
            "torc_register_unknown_total 1",
            "torc_register_unavailable_total 0",
            "torc_register_reconciles_dropped_total 0",
        ] {
            assert!(text.contains(line), "{line} is missing:\n{text}");
        }
    }
}
