//! Metrics of transfers: `torc_transfer_*`.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// The counters. Cloning shares them.
#[derive(Debug, Clone)]
pub struct TransferMetrics {
    /// Bytes of slices sent to other nodes.
    pub sent_bytes: Counter,
    /// Bytes of slices received from other nodes and from sources of generations.
    pub received_bytes: Counter,
    /// Their records.
    pub received_records: Counter,
    /// Copies that failed and are tried again.
    pub retries: Counter,
}

impl TransferMetrics {
    /// Registers the counters.
    pub fn register(registry: &mut Registry) -> Self {
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        Self {
            sent_bytes: counter("transfer_sent_bytes", "Bytes of records sent to new owners"),
            received_bytes: counter(
                "transfer_received_bytes",
                "Bytes of keys and values received as a new owner",
            ),
            received_records: counter(
                "transfer_received_records",
                "Records received as a new owner",
            ),
            retries: counter("transfer_retries", "Retried steps of transfers"),
        }
    }
}
