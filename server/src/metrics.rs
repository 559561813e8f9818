//! The metrics of a node, by Prometheus' conventions: names `torc_*`, base units, and
//! no key material in labels.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use torc_access::audit::AuditMetrics;
use torc_driver::RegisterMetrics;
use torc_links::LinkMetrics;
use torc_redis::RespMetrics;
use torc_telemetry::operation::{OperationMetrics, Totals};
use torc_telemetry::spans::SpanMetrics;
use torc_transfers::metrics::TransferMetrics;

/// All metrics of a node.
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) keys: Arc<KeyMetrics>,
    pub(crate) slow: Counter,
    pub(crate) connections_refused: Counter,
    pub(crate) handshakes_failed: Counter,
    pub(crate) tls_files_refused: Counter,
    pub(crate) tls_certificate_end: Gauge,
    pub(crate) dropped_records_deleted: Counter,
    pub(crate) topology_epoch: Gauge,
    pub(crate) links: LinkMetrics,
    pub(crate) registers: RegisterMetrics,
    pub(crate) transfers: TransferMetrics,
    pub(crate) resp: Arc<RespMetrics>,
    pub(crate) audit: AuditMetrics,
    pub(crate) spans: SpanMetrics,
    readouts: Readouts,
}

/// Those of the operations on keys.
pub(crate) struct KeyMetrics {
    pub(crate) operations: OperationMetrics,
    pub(crate) forwarded: Counter,
    pub(crate) cold_reads: Counter,
    pub(crate) scan_searched_bytes: Counter,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics(..)")
    }
}

/// Figures kept elsewhere, read whenever the metrics are rendered.
#[derive(Default)]
struct Readouts {
    gauges: Vec<(Gauge, Read)>,
    /// Behind a lock, so that two concurrent readers do not add the same increase twice.
    counters: Mutex<Vec<(Counter, Read)>>,
    seconds: Mutex<Vec<(Counter<f64, AtomicU64>, ReadSeconds)>>,
}

/// The values of the gauges.
pub(crate) struct Readings {
    pub(crate) store: torc_store::StoreStats,
    pub(crate) scratch_losses: u64,
    pub(crate) resident_memory_bytes: u64,
    pub(crate) ready: bool,
    pub(crate) leader: bool,
    pub(crate) hot: torc_hot::HotStats,
    pub(crate) in_flight_bytes: u64,
    pub(crate) in_flight_limit_bytes: u64,
    pub(crate) in_flight_refused: u64,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("torc");
        let operations = OperationMetrics::register(&mut registry);
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let forwarded = counter(
            "operations_forwarded",
            "Operations sent on to the node that leads the key",
        );
        let cold_reads = counter(
            "stale_gets_from_disk",
            "Stale gets that read the disk, on a thread that serves no requests",
        );
        let slow = counter(
            "slow_operations",
            "Operations that took --slow-ms or longer; 0 without it",
        );
        let connections_refused = counter(
            "connections_refused",
            "Connections closed at once, because there were too many",
        );
        let handshakes_failed = counter(
            "tls_handshakes_failed",
            "Failed TLS handshakes: too slow, or with a refused certificate",
        );
        let tls_files_refused = counter(
            "tls_files_refused",
            "Replaced certificate files that could not be used",
        );
        let dropped_records_deleted = counter(
            "dropped_records_deleted",
            "Records of dropped namespaces that this node has deleted",
        );
        let scan_searched_bytes = counter(
            "scan_searched_bytes",
            "Bytes of values that scans searched for byte strings",
        );
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let tls_certificate_end = gauge(
            "tls_certificate_end_seconds",
            "Expiry of this node's certificate, Unix time; 0 without TLS",
        );
        let topology_epoch = gauge("topology_epoch", "Epoch of the adopted topology");
        Self {
            links: LinkMetrics::register(&mut registry),
            registers: RegisterMetrics::register(&mut registry),
            transfers: TransferMetrics::register(&mut registry),
            resp: Arc::new(RespMetrics::register(&mut registry)),
            audit: AuditMetrics::register(&mut registry),
            spans: SpanMetrics::register(&mut registry),
            readouts: Readouts::register(&mut registry),
            registry,
            keys: Arc::new(KeyMetrics {
                operations,
                forwarded,
                cold_reads,
                scan_searched_bytes,
            }),
            slow,
            connections_refused,
            handshakes_failed,
            tls_files_refused,
            tls_certificate_end,
            dropped_records_deleted,
            topology_epoch,
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals {
            times: self.keys.operations.times(),
            faults: self.keys.operations.failed(),
            commands: self.resp.commands(),
        }
    }

    /// The metrics in the text format of Prometheus.
    pub(crate) fn render(&self, readings: &Readings) -> Result<String, fmt::Error> {
        self.readouts.set(readings);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Readouts {
    fn register(registry: &mut Registry) -> Self {
        let mut gauges: Vec<(Gauge, Read)> = Vec::new();
        for (name, help, read) in GAUGES {
            let gauge = Gauge::default();
            registry.register(*name, *help, gauge.clone());
            gauges.push((gauge, *read));
        }
        let mut counters: Vec<(Counter, Read)> = Vec::new();
        for (name, help, read) in COUNTERS {
            let counter = Counter::default();
            registry.register(*name, *help, counter.clone());
            counters.push((counter, *read));
        }
        let mut seconds: Vec<(Counter<f64, AtomicU64>, ReadSeconds)> = Vec::new();
        for (name, help, read) in SECONDS {
            let counter = Counter::default();
            registry.register_with_unit(*name, *help, Unit::Seconds, counter.clone());
            seconds.push((counter, *read));
        }
        Self {
            gauges,
            counters: Mutex::new(counters),
            seconds: Mutex::new(seconds),
        }
    }

    fn set(&self, readings: &Readings) {
        for (gauge, read) in &self.gauges {
            gauge.set(read(readings).cast_signed());
        }
        let counters = self.counters.lock();
        for (counter, read) in counters.iter() {
            counter.inc_by(read(readings).saturating_sub(counter.get()));
        }
        for (counter, read) in self.seconds.lock().iter() {
            counter.inc_by((read(readings) - counter.get()).max(0.0));
        }
    }
}

/// Reads one figure.
type Read = fn(&Readings) -> u64;
/// Reads a time, in seconds.
type ReadSeconds = fn(&Readings) -> f64;
/// Name, help, figure.
type Readout = (&'static str, &'static str, Read);

const GAUGES: &[Readout] = &[
    (
        "in_flight_bytes",
        "Bytes of clients' requests and answers in memory",
        |r| r.in_flight_bytes,
    ),
    (
        "in_flight_limit_bytes",
        "Limit on bytes of clients' requests and answers in memory",
        |r| r.in_flight_limit_bytes,
    ),
    ("store_records", "Records held, tombstones included", |r| {
        r.store.records
    }),
    ("store_tombstones", "Tombstones held", |r| {
        r.store.tombstones
    }),
    (
        "store_payload_bytes",
        "Bytes of keys and values held",
        |r| r.store.payload_bytes,
    ),
    (
        "store_memtable_bytes",
        "Memory of the memtable, estimated",
        |r| r.store.memtable_bytes,
    ),
    (
        "store_memtable_limit_bytes",
        "Memory limit of the memtable",
        |r| r.store.memtable_limit_bytes,
    ),
    ("store_log_bytes", "Bytes of the commit log on disk", |r| {
        r.store.log_bytes
    }),
    ("store_log_segments", "Segments of the commit log", |r| {
        r.store.log_segments
    }),
    (
        "store_sealed_keys",
        "Keys in slices, counted once per slice",
        |r| r.store.sliced.keys,
    ),
    ("store_slices", "Slices", |r| r.store.sliced.slices),
    (
        "store_most_slices",
        "Slices of the partition with the most",
        |r| r.store.sliced.most_slices,
    ),
    ("store_slice_bytes", "Bytes of slices on disk", |r| {
        r.store.sliced.slice_bytes
    }),
    ("store_segments", "Segments that hold slices", |r| {
        r.store.sliced.segments
    }),
    (
        "store_segment_bytes",
        "Bytes of segments on disk, obsolete slices included",
        |r| r.store.sliced.segment_bytes,
    ),
    (
        "store_index_header_bytes",
        "Memory of the headers of slices",
        |r| r.store.sliced.header_bytes,
    ),
    ("store_index_gate_bytes", "Memory of Bloom gates", |r| {
        r.store.sliced.gate_bytes
    }),
    (
        "store_index_mphf_bytes",
        "Memory of minimal perfect hash functions",
        |r| r.store.sliced.mphf_bytes,
    ),
    (
        "store_index_offset_bytes",
        "Memory of record offsets",
        |r| r.store.sliced.offset_bytes,
    ),
    ("store_damaged_slices", "Slices found damaged", |r| {
        r.store.sliced.damaged
    }),
    (
        "store_shared_digests",
        "Sealed records that share their digest with another key's record",
        |r| r.store.sliced.shared_digests,
    ),
    ("resident_memory_bytes", "Resident memory", |r| {
        r.resident_memory_bytes
    }),
    ("ready", "1 when the node serves its partitions", |r| {
        u64::from(r.ready)
    }),
    (
        "topology_leader",
        "1 when the node leads the topology group",
        |r| u64::from(r.leader),
    ),
    (
        "hot_keys_interval_bytes",
        "Bytes of the last interval of access counts",
        |r| r.hot.interval_bytes,
    ),
    (
        "hot_keys_history_bytes",
        "Bytes of the history of hot keys",
        |r| r.hot.history_bytes,
    ),
    (
        "hot_keys_history_intervals",
        "Intervals in the history of hot keys",
        |r| r.hot.history_intervals,
    ),
    (
        "hot_keys_majority",
        "1 if one key had more than half of the accesses of the last interval, which had 1,000 or more",
        |r| u64::from(r.hot.majority),
    ),
    (
        "hot_keys_hinted",
        "Keys that answers currently mark as hot",
        |r| r.hot.hinted_keys,
    ),
];

const COUNTERS: &[Readout] = &[
    (
        "in_flight_refused",
        "Requests, values and pages refused because too many bytes were in flight",
        |r| r.in_flight_refused,
    ),
    (
        "hot_keys_accesses",
        "Accesses until the end of the last interval",
        |r| r.hot.accesses,
    ),
    (
        "hot_keys_hints",
        "Answers that marked their key as hot",
        |r| r.hot.hints,
    ),
    ("store_log_syncs", "Syncs of the commit log", |r| {
        r.store.fsyncs
    }),
    ("store_log_records", "Records logged", |r| {
        r.store.batch_records
    }),
    ("store_flushes", "Flushes published", |r| r.store.flushes),
    ("store_flush_failures", "Flushes that failed", |r| {
        r.store.flush_failures
    }),
    ("store_flush_records", "Records flushed", |r| {
        r.store.flushed_records
    }),
    ("store_compactions", "Compactions published", |r| {
        r.store.compactions
    }),
    (
        "store_compaction_failures",
        "Compactions that failed",
        |r| r.store.compaction_failures,
    ),
    ("store_compaction_records", "Records compacted", |r| {
        r.store.compacted_records
    }),
    ("store_gets", "Gets of the store, single and batched", |r| {
        r.store.sliced.gets
    }),
    (
        "store_memtable_hits",
        "Gets answered by the memtable",
        |r| r.store.sliced.memtable_hits,
    ),
    (
        "store_gate_negatives",
        "Absent keys that a Bloom gate recognised",
        |r| r.store.sliced.gate_negatives,
    ),
    (
        "store_gate_false_positives",
        "False positives of Bloom gates",
        |r| r.store.sliced.gate_false_positives,
    ),
    ("store_record_reads", "Sealed records read by gets", |r| {
        r.store.sliced.record_reads
    }),
    (
        "store_cold_reads",
        "Gets whose record was not in the page cache, on threads that do not wait for the disk",
        |r| r.store.sliced.cold_reads,
    ),
    (
        "store_memtable_refusals",
        "Writes refused for lack of memory",
        |r| r.store.memtable_refusals,
    ),
    (
        "store_space_refusals",
        "Writes refused for lack of disk space",
        |r| r.store.space_refusals,
    ),
    (
        "scratch_losses",
        "Times a damaged scratch store was set aside",
        |r| r.scratch_losses,
    ),
];

const SECONDS: &[(&str, &str, ReadSeconds)] = &[
    ("store_log_sync", "Time spent syncing the commit log", |r| {
        r.store.fsync_seconds.sum
    }),
    ("store_flush", "Time spent flushing", |r| {
        r.store.flush_seconds
    }),
    ("store_compaction", "Time spent on compaction", |r| {
        r.store.compaction_seconds
    }),
];
