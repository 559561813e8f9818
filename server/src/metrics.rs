//! What a node counts, in Prometheus' terms: names `torc_*`, base units, and no key
//! material in any label.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::EncodeLabelValue;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use torc_proto::{Fault, Reason};

/// A client's operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Operation {
    Get,
    Put,
    Delete,
    BatchGet,
    BatchPut,
    Scan,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: Operation,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FaultLabels {
    operation: Operation,
    reason: String,
}

type Histograms = Family<OperationLabels, Histogram, fn() -> Histogram>;

/// All counters of a node.
pub(crate) struct Metrics {
    registry: Registry,
    seconds: Histograms,
    faults: Family<FaultLabels, Counter>,
    pub(crate) forwarded: Counter,
    pub(crate) topology_epoch: Gauge,
    pub(crate) transfer_sent_bytes: Counter,
    pub(crate) transfer_received_bytes: Counter,
    pub(crate) transfer_received_records: Counter,
    pub(crate) transfer_retries: Counter,
    store: StoreGauges,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics(..)")
    }
}

/// Figures of the store, read when the metrics are asked for.
#[derive(Default)]
struct StoreGauges {
    records: Gauge,
    tombstones: Gauge,
    payload_bytes: Gauge,
    overlay_bytes: Gauge,
    log_bytes: Gauge,
    log_segments: Gauge,
    log_syncs: Gauge,
    log_sync_seconds: Gauge<f64, AtomicU64>,
    log_batch_records: Gauge,
    checkpoints: Gauge,
    write_stalls: Gauge,
    advisory_losses: Gauge,
    resident_memory_bytes: Gauge,
    ready: Gauge,
    leader: Gauge,
}

/// What the gauges show.
pub(crate) struct Readings {
    pub(crate) store: torc_store::StoreStats,
    pub(crate) advisory_losses: u64,
    pub(crate) resident_memory_bytes: u64,
    pub(crate) ready: bool,
    pub(crate) leader: bool,
}

fn latency_histogram() -> Histogram {
    // 10 us to 10 s.
    Histogram::new(exponential_buckets(1e-5, 2.0, 21))
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("torc");
        let seconds = Histograms::new_with_constructor(latency_histogram);
        registry.register_with_unit(
            "operation",
            "Time from the arrival of a request to its answer",
            Unit::Seconds,
            seconds.clone(),
        );
        let faults = Family::<FaultLabels, Counter>::default();
        registry.register(
            "operation_faults",
            "Operations that failed, by reason",
            faults.clone(),
        );
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let forwarded = counter(
            "operations_forwarded",
            "Operations sent on to the node that leads the key",
        );
        let transfer_sent_bytes =
            counter("transfer_sent_bytes", "Bytes of records sent to new owners");
        let transfer_received_bytes = counter(
            "transfer_received_bytes",
            "Bytes of keys and values received as a new owner",
        );
        let transfer_received_records = counter(
            "transfer_received_records",
            "Records received as a new owner",
        );
        let transfer_retries = counter("transfer_retries", "Steps of a transfer tried again");
        let topology_epoch = Gauge::default();
        registry.register(
            "topology_epoch",
            "Epoch of the adopted topology",
            topology_epoch.clone(),
        );
        let store = StoreGauges::register(&mut registry);
        Self {
            registry,
            seconds,
            faults,
            forwarded,
            topology_epoch,
            transfer_sent_bytes,
            transfer_received_bytes,
            transfer_received_records,
            transfer_retries,
            store,
        }
    }

    pub(crate) fn start(&self, operation: Operation) -> Timer<'_> {
        Timer {
            metrics: self,
            operation,
            started: Instant::now(),
        }
    }

    /// The text that Prometheus reads.
    pub(crate) fn render(&self, readings: &Readings) -> Result<String, fmt::Error> {
        self.store.set(readings);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Times one operation.
pub(crate) struct Timer<'a> {
    metrics: &'a Metrics,
    operation: Operation,
    started: Instant,
}

impl Timer<'_> {
    pub(crate) fn stop<T>(self, result: &Result<T, Fault>) {
        let elapsed = self.started.elapsed().as_secs_f64();
        let labels = OperationLabels {
            operation: self.operation,
        };
        self.metrics.seconds.get_or_create(&labels).observe(elapsed);
        if let Err(fault) = result {
            let reason = name_of(fault.reason);
            let labels = FaultLabels {
                operation: self.operation,
                reason,
            };
            self.metrics.faults.get_or_create(&labels).inc();
        }
    }
}

fn name_of(reason: Reason) -> String {
    reason.as_str_name().to_ascii_lowercase()
}

impl StoreGauges {
    fn register(registry: &mut Registry) -> Self {
        let gauges = Self::default();
        let mut gauge = |name: &str, help: &str, gauge: &Gauge| {
            registry.register(name, help, gauge.clone());
        };
        gauge(
            "store_records",
            "Records held, tombstones included",
            &gauges.records,
        );
        gauge("store_tombstones", "Tombstones held", &gauges.tombstones);
        gauge(
            "store_payload_bytes",
            "Bytes of keys and values held",
            &gauges.payload_bytes,
        );
        gauge(
            "store_overlay_bytes",
            "Memory of the overlay, estimated",
            &gauges.overlay_bytes,
        );
        gauge(
            "store_log_bytes",
            "Bytes of the commit log on disk",
            &gauges.log_bytes,
        );
        gauge(
            "store_log_segments",
            "Segments of the commit log",
            &gauges.log_segments,
        );
        gauge(
            "store_log_syncs",
            "Syncs of the commit log since the start",
            &gauges.log_syncs,
        );
        gauge(
            "store_log_records",
            "Records logged since the start",
            &gauges.log_batch_records,
        );
        gauge(
            "store_checkpoints",
            "Checkpoints written since the start",
            &gauges.checkpoints,
        );
        gauge(
            "store_write_stalls",
            "Writes that waited for room",
            &gauges.write_stalls,
        );
        gauge(
            "advisory_losses",
            "Times the advisory state was set aside",
            &gauges.advisory_losses,
        );
        gauge(
            "resident_memory_bytes",
            "Resident memory",
            &gauges.resident_memory_bytes,
        );
        gauge(
            "ready",
            "1 when the node serves its partitions",
            &gauges.ready,
        );
        gauge(
            "topology_leader",
            "1 when the node leads the topology group",
            &gauges.leader,
        );
        registry.register(
            "store_log_sync_seconds",
            "Time spent syncing the commit log since the start",
            gauges.log_sync_seconds.clone(),
        );
        gauges
    }

    fn set(&self, readings: &Readings) {
        let stats = &readings.store;
        let pairs = [
            (&self.records, stats.records),
            (&self.tombstones, stats.tombstones),
            (&self.payload_bytes, stats.payload_bytes),
            (&self.overlay_bytes, stats.overlay_bytes),
            (&self.log_bytes, stats.log_bytes),
            (&self.log_segments, stats.log_segments),
            (&self.log_syncs, stats.fsyncs),
            (&self.log_batch_records, stats.batch_records),
            (&self.checkpoints, stats.checkpoints),
            (&self.write_stalls, stats.write_stalls),
            (&self.advisory_losses, readings.advisory_losses),
            (&self.resident_memory_bytes, readings.resident_memory_bytes),
            (&self.ready, u64::from(readings.ready)),
            (&self.leader, u64::from(readings.leader)),
        ];
        for (gauge, value) in pairs {
            gauge.set(value as i64);
        }
        self.log_sync_seconds.set(stats.fsync_seconds.sum);
    }
}
