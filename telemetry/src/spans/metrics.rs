//! Metrics of spans: `torc_spans_*`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    reason: &'static str,
}

/// The counters of a node's spans. Cloning shares them.
#[derive(Debug, Clone, Default)]
#[cfg_attr(
    not(feature = "otlp"),
    expect(dead_code, reason = "only a build that sends spans counts them")
)]
pub struct SpanMetrics {
    pub(super) sent: Counter,
    /// Spans dropped because the queue was full.
    pub(super) dropped_full: Counter,
    /// Spans dropped because the collector did not accept them.
    pub(super) dropped_failed: Counter,
}

impl SpanMetrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let sent = Counter::default();
        let help = "Spans that a collector accepted";
        registry.register("spans_sent", help, sent.clone());
        let dropped = Family::<Labels, Counter>::default();
        let help = "Spans lost, because the queue was full or no collector accepted them";
        registry.register("spans_dropped", help, dropped.clone());
        let of = |reason| dropped.get_or_create(&Labels { reason }).clone();
        Self {
            sent,
            dropped_full: of("full"),
            dropped_failed: of("failed"),
        }
    }
}
