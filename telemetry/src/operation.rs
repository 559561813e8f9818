//! The kinds of requests that are counted and timed, and their metrics.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use torc_proto::load::BUCKETS;
use torc_proto::{Fault, Reason};

use crate::latencies::Latencies;

/// A client's operation. Those of Redis clients are on one key each: a command may need a get and a
/// put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A get.
    Get,
    /// A put.
    Put,
    /// A delete.
    Delete,
    /// A batch of gets.
    BatchGet,
    /// A batch of puts.
    BatchPut,
    /// A scan.
    Scan,
    /// A get for a Redis client.
    RedisGet,
    /// A put for a Redis client.
    RedisPut,
    /// A delete for a Redis client.
    RedisDelete,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Get,
        Self::Put,
        Self::Delete,
        Self::BatchGet,
        Self::BatchPut,
        Self::Scan,
        Self::RedisGet,
        Self::RedisPut,
        Self::RedisDelete,
    ];
    /// How many of them, the first ones, gRPC clients call.
    pub const CALLS: usize = 6;
}

impl Operation {
    /// Its name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::BatchGet => "batch_get",
            Self::BatchPut => "batch_put",
            Self::Scan => "scan",
            Self::RedisGet => "redis_get",
            Self::RedisPut => "redis_put",
            Self::RedisDelete => "redis_delete",
        }
    }

    /// The name of its spans: that of its call, if it has one.
    #[must_use]
    pub const fn span(self) -> &'static str {
        match self {
            Self::Get => "torc.v1.Kv/Get",
            Self::Put => "torc.v1.Kv/Put",
            Self::Delete => "torc.v1.Kv/Delete",
            Self::BatchGet => "torc.v1.Kv/BatchGet",
            Self::BatchPut => "torc.v1.Kv/BatchPut",
            Self::Scan => "torc.v1.Kv/Scan",
            Self::RedisGet => "resp get",
            Self::RedisPut => "resp put",
            Self::RedisDelete => "resp delete",
        }
    }
}

impl EncodeLabelValue for Operation {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), fmt::Error> {
        EncodeLabelValue::encode(&self.name(), encoder)
    }
}

/// Totals of clients' requests since the start.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Histograms of request times, by operation.
    pub times: [[u64; BUCKETS]; Operation::ALL.len()],
    /// Requests that failed.
    pub faults: u64,
    /// Number of commands of Redis clients.
    pub commands: u64,
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

type Histograms = Family<OperationLabels, Latencies>;

/// Metrics of the operations of clients: `torc_operation_*`.
pub struct OperationMetrics {
    /// By operation.
    seconds: [Latencies; Operation::ALL.len()],
    failed: AtomicU64,
    faults: Family<FaultLabels, Counter>,
}

impl OperationMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let seconds = Histograms::default();
        registry.register_with_unit(
            "operation",
            "Time from the arrival of a request to its answer",
            Unit::Seconds,
            seconds.clone(),
        );
        let faults = fault_counters();
        registry.register(
            "operation_faults",
            "Operations that failed, by reason",
            faults.clone(),
        );
        Self {
            seconds: Operation::ALL.map(|operation| {
                seconds
                    .get_or_create(&OperationLabels { operation })
                    .clone()
            }),
            failed: AtomicU64::new(0),
            faults,
        }
    }

    /// Starts to time an operation.
    #[must_use]
    pub fn start(&self, operation: Operation) -> Timer<'_> {
        Timer {
            metrics: self,
            operation,
            started: Instant::now(),
        }
    }

    /// Counts an operation that has ended, and its duration.
    pub fn ended(&self, operation: Operation, took: Duration, fault: Option<&Fault>) {
        self.seconds[operation as usize].observe(took);
        if let Some(fault) = fault {
            self.failed.fetch_add(1, Ordering::Relaxed);
            let reason = name_of(fault.reason);
            let labels = FaultLabels { operation, reason };
            self.faults.get_or_create(&labels).inc();
        }
    }

    /// Histograms of request times, by operation.
    #[must_use]
    pub fn times(&self) -> [[u64; BUCKETS]; Operation::ALL.len()] {
        std::array::from_fn(|operation| self.seconds[operation].counts())
    }

    /// Operations that failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// Creates all fault counters at the start: `rate()` would miss the first fault of a series that
/// begins with it.
fn fault_counters() -> Family<FaultLabels, Counter> {
    let faults = Family::<FaultLabels, Counter>::default();
    for operation in Operation::ALL {
        for reason in (1..).map_while(|number| Reason::try_from(number).ok()) {
            let reason = name_of(reason);
            let _ = faults.get_or_create(&FaultLabels { operation, reason });
        }
    }
    faults
}

/// Times one operation.
pub struct Timer<'a> {
    metrics: &'a OperationMetrics,
    operation: Operation,
    started: Instant,
}

impl Timer<'_> {
    /// Counts the operation, which has this result.
    pub fn stop<T>(self, result: &Result<T, Fault>) {
        let fault = result.as_ref().err();
        self.metrics
            .ended(self.operation, self.started.elapsed(), fault);
    }
}

fn name_of(reason: Reason) -> String {
    reason.as_str_name().to_ascii_lowercase()
}
