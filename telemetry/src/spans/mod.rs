//! Traces of single operations, as spans that a collector assembles.
//!
//! A span is the work of one part of one node for an operation: serving the request, the
//! coordinator, a replica, the sync of the log. Spans of one trace come from several nodes.
//!
//! * The decision to trace an operation comes before its first span: the caller's trace context
//!   decides, or else a random draw. An untraced operation costs a comparison.
//! * Finished spans wait in a bounded queue for `otlp`, a thread with its own runtime that
//!   sends them. No request waits: spans that do not fit are dropped and counted.
//! * State machines do not know about spans. Their drivers keep track of the span of each
//!   operation and message (`torc-driver`).
//!
//! Spans contain no keys and no values.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a share of all traces; `as` saturates"
)]

mod metrics;
#[cfg(feature = "otlp")]
mod otlp;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;
use torc_proto::{Fault, TRACEPARENT, TraceContext};
use torc_ring::Partition;

pub use metrics::SpanMetrics;

/// Capacity of the queue of spans, about 150 bytes each.
const MOST_WAITING: usize = 8_192;
/// Items of a batch that are traced: a few show what happens to the others.
pub const TRACED_ITEMS: usize = 8;
/// Time to send the last spans when the node stops.
const LAST_SPANS: Duration = Duration::from_secs(1);

/// Where to send spans, and the fraction of operations to trace.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceSettings {
    /// A collector that speaks OTLP by gRPC, `http://host:port`.
    pub endpoint: String,
    /// Fraction of the operations whose callers send no trace context: 0 for none, 1 for all.
    pub ratio: f64,
}

/// A span that has not ended.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(
    not(feature = "otlp"),
    expect(dead_code, reason = "only a build that sends spans reads them")
)]
pub struct OpenSpan {
    /// What it is.
    pub name: &'static str,
    /// Its own place in the trace.
    pub context: TraceContext,
    /// `None` for the first span of its trace.
    parent: Option<[u8; 8]>,
    began: Instant,
}

impl OpenSpan {
    /// A child of another span.
    #[must_use]
    pub fn child(parent: TraceContext, name: &'static str, began: Instant) -> Self {
        let (span_id, parent_id) = (rand::random(), parent.span_id());
        Self {
            name,
            // An invalid id of all zeros has probability 2^-64.
            context: parent.with_span(span_id).unwrap_or(parent),
            parent: Some(parent_id),
            began,
        }
    }

    fn root(name: &'static str, began: Instant) -> Option<Self> {
        Some(Self {
            name,
            context: TraceContext::new(rand::random(), rand::random(), true)?,
            parent: None,
            began,
        })
    }

    /// Ends the span now.
    #[must_use]
    pub fn end(self, outcome: &'static str) -> Span {
        Span {
            ended: Instant::now(),
            is_served: false,
            is_error: false,
            partition: None,
            open: self,
            outcome,
        }
    }
}

/// A span that has ended.
#[derive(Debug, Clone)]
pub struct Span {
    /// What it was.
    pub open: OpenSpan,
    /// When it ended.
    pub ended: Instant,
    /// Whether it serves a request, rather than part of one.
    pub is_served: bool,
    /// Whether it failed.
    pub is_error: bool,
    /// The partition, if it is about one.
    pub partition: Option<Partition>,
    /// How it ended.
    pub outcome: &'static str,
}

/// Records the spans of a node.
#[derive(Debug)]
pub struct Tracer {
    /// An operation without a caller's trace context is traced if a random 64-bit number is below
    /// this.
    threshold: u64,
    queue: mpsc::Sender<Span>,
    metrics: SpanMetrics,
    /// Cancelled once the last spans were sent.
    ended: CancellationToken,
}

impl Tracer {
    /// Begins to send spans until `cancel`; `instance` identifies this node.
    ///
    /// # Errors
    /// The system's error if it cannot start a thread.
    #[cfg_attr(
        not(feature = "otlp"),
        expect(
            unused_variables,
            clippy::needless_pass_by_value,
            reason = "nothing is sent"
        )
    )]
    pub fn begin(
        settings: &TraceSettings,
        instance: String,
        metrics: SpanMetrics,
        cancel: &CancellationToken,
    ) -> std::io::Result<Arc<Self>> {
        let (queue, waiting) = mpsc::channel(MOST_WAITING);
        let ended = CancellationToken::new();
        #[cfg(feature = "otlp")]
        {
            let exporter = otlp::Exporter::new(instance, metrics.clone());
            let (cancel, ended) = (cancel.clone(), ended.clone());
            otlp::begin(settings.endpoint.clone(), exporter, waiting, cancel, ended)?;
        }
        Ok(Arc::new(Self {
            threshold: (settings.ratio * u64::MAX as f64) as u64,
            queue,
            metrics,
            ended,
        }))
    }

    /// Waits briefly until the last spans were sent.
    pub async fn close(&self) {
        // Spans still unsent are lost.
        let _ = tokio::time::timeout(2 * LAST_SPANS, self.ended.cancelled()).await;
    }

    /// Decides whether an operation is traced.
    fn open(&self, parent: Option<TraceContext>, name: &'static str) -> Option<OpenSpan> {
        match parent {
            Some(parent) => parent
                .is_sampled()
                .then(|| OpenSpan::child(parent, name, Instant::now())),
            None if self.threshold > 0 && rand::random::<u64>() <= self.threshold => {
                OpenSpan::root(name, Instant::now())
            }
            None => None,
        }
    }

    /// Queues a span for sending, or drops it. Never waits.
    pub fn record(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.metrics.dropped_full.inc();
        }
    }
}

/// A traced request being served. Dropping it records that the caller has abandoned it.
#[derive(Debug)]
pub struct Serving {
    tracer: Arc<Tracer>,
    open: OpenSpan,
    fault: Option<&'static str>,
    is_over: bool,
}

impl Serving {
    /// `None` if the request is not traced.
    #[must_use]
    pub fn begin(
        tracer: Option<&Arc<Tracer>>,
        parent: Option<TraceContext>,
        name: &'static str,
    ) -> Option<Box<Self>> {
        let tracer = tracer?;
        Some(Box::new(Self {
            open: tracer.open(parent, name)?,
            tracer: Arc::clone(tracer),
            fault: None,
            is_over: false,
        }))
    }

    /// The trace context for work on behalf of this request.
    #[must_use]
    pub const fn context(&self) -> TraceContext {
        self.open.context
    }

    /// Ends it: `None` is success.
    pub fn end(mut self, fault: Option<&Fault>) {
        self.is_over = true;
        self.fault = fault.map(|fault| fault.reason.as_str_name());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let outcome = self.fault.unwrap_or("OK");
        let outcome = if self.is_over { outcome } else { "CANCELLED" };
        self.tracer.record(Span {
            is_served: true,
            is_error: outcome != "OK",
            ..self.open.end(outcome)
        });
    }
}

/// The trace context of a call; `None` if it is malformed.
#[must_use]
pub fn context_of(metadata: &MetadataMap) -> Option<TraceContext> {
    TraceContext::parse(metadata.get(TRACEPARENT)?.to_str().ok()?)
}

/// Adds the trace context to a call.
pub fn add_context(metadata: &mut MetadataMap, trace: Option<TraceContext>) {
    if let Some(value) = trace.and_then(|trace| trace.to_traceparent().try_into().ok()) {
        metadata.insert(TRACEPARENT, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracer(ratio: f64) -> (Tracer, mpsc::Receiver<Span>) {
        let (queue, waiting) = mpsc::channel(2);
        let tracer = Tracer {
            threshold: (ratio * u64::MAX as f64) as u64,
            queue,
            metrics: SpanMetrics::default(),
            ended: CancellationToken::new(),
        };
        (tracer, waiting)
    }

    #[test]
    fn a_caller_decides_for_its_operation_and_the_ratio_for_the_others() {
        let asked = |is_sampled| TraceContext::new([1; 16], [2; 8], is_sampled);
        for (ratio, drawn) in [(0.0, 0..=0), (0.5, 4_500..=5_500), (1.0, 10_000..=10_000)] {
            let (tracer, _waiting) = tracer(ratio);
            let span = tracer.open(asked(true), "span").unwrap();
            assert_eq!(span.context.trace_id(), [1; 16]);
            assert_eq!(span.parent, Some([2; 8]));
            assert_ne!(span.context.span_id(), [2; 8], "a span of its own");
            assert!(tracer.open(asked(false), "span").is_none());
            let traced = (0..10_000).filter(|_| tracer.open(None, "span").is_some());
            assert!(drawn.contains(&traced.count()), "{ratio}");
        }
    }

    #[test]
    fn what_finds_no_room_is_dropped_and_counted() {
        let (tracer, mut waiting) = tracer(1.0);
        for _ in 0..5 {
            tracer.record(tracer.open(None, "span").unwrap().end("OK"));
        }
        assert_eq!(tracer.metrics.dropped_full.get(), 3);
        assert!(waiting.try_recv().is_ok());
    }
}
