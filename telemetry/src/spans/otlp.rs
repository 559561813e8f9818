//! Sends spans to a collector by OTLP over gRPC, on a thread with its own runtime, so neither
//! a slow collector nor encoding delays requests.
//!
//! It sends all queued spans. Spans that the collector does not accept within a few seconds are
//! dropped and counted.

use std::io;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{self as wire, ResourceSpans, ScopeSpans};
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

use super::{LAST_SPANS, Span, SpanMetrics};
use crate::clock::unix_ns_of;

/// Limit on the spans per message.
const AT_A_TIME: usize = 512;
/// Spans that end within this time share a message.
const GATHER: Duration = Duration::from_millis(200);
/// Time limit for the collector to accept a message.
const TIME_LIMIT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Failures per line in the log.
const TELL_EVERY: u64 = 100;

/// Encodes and counts messages of spans.
pub(super) struct Exporter {
    resource: Resource,
    metrics: SpanMetrics,
    /// Consecutive failed messages.
    failures: u64,
}

/// Sends spans until `cancel`; cancels `ended` once the last spans were sent.
pub(super) fn begin(
    endpoint: String,
    exporter: Exporter,
    waiting: Receiver<Span>,
    cancel: CancellationToken,
    ended: CancellationToken,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let endpoint = Endpoint::from_shared(endpoint).map_err(io::Error::other)?;
    let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT);
    let run = move || {
        let _ended = ended.drop_guard();
        runtime.block_on(exporter.run(&endpoint, waiting, &cancel));
    };
    let thread = std::thread::Builder::new().name("otlp".to_owned());
    thread.spawn(run).map(drop)
}

impl Exporter {
    pub(super) fn new(instance: String, metrics: SpanMetrics) -> Self {
        let attributes = vec![
            text("service.name", "torc"),
            text("service.instance.id", instance),
            text("service.version", env!("CARGO_PKG_VERSION")),
        ];
        Self {
            resource: Resource {
                attributes,
                ..Resource::default()
            },
            metrics,
            failures: 0,
        }
    }

    async fn run(
        mut self,
        endpoint: &Endpoint,
        mut waiting: Receiver<Span>,
        cancel: &CancellationToken,
    ) {
        // Connects on the first message, and again after a failure.
        let mut collector = TraceServiceClient::new(endpoint.connect_lazy());
        let mut spans = Vec::with_capacity(AT_A_TIME);
        let sending = async {
            while waiting.recv_many(&mut spans, AT_A_TIME).await > 0 {
                tokio::time::sleep(GATHER).await;
                while spans.len() < AT_A_TIME
                    && let Ok(span) = waiting.try_recv()
                {
                    spans.push(span);
                }
                self.send(&mut collector, &mut spans, TIME_LIMIT).await;
            }
        };
        let _ = cancel.run_until_cancelled(sending).await;
        // Spans of an interrupted message are sent again: the collector detects duplicates by their
        // ids.
        while spans.len() < AT_A_TIME
            && let Ok(span) = waiting.try_recv()
        {
            spans.push(span);
        }
        if !spans.is_empty() {
            self.send(&mut collector, &mut spans, LAST_SPANS).await;
        }
    }

    async fn send(
        &mut self,
        collector: &mut TraceServiceClient<Channel>,
        spans: &mut Vec<Span>,
        limit: Duration,
    ) {
        let count = spans.len() as u64;
        let sent = timeout(limit, collector.export(self.message(spans))).await;
        spans.clear();
        let why = match sent {
            Ok(Ok(_)) => {
                self.failures = 0;
                self.metrics.sent.inc_by(count);
                return;
            }
            Ok(Err(status)) => torc_proto::deepest(&status),
            Err(_) => "no answer in time".to_owned(),
        };
        self.metrics.dropped_failed.inc_by(count);
        if self.failures.is_multiple_of(TELL_EVERY) {
            tracing::warn!(
                spans = count,
                why,
                "the collector of --otlp-endpoint accepts no spans: dropping them"
            );
        }
        self.failures += 1;
    }

    fn message(&self, spans: &[Span]) -> ExportTraceServiceRequest {
        let scope = InstrumentationScope {
            name: "torc".to_owned(),
            ..InstrumentationScope::default()
        };
        let spans = ScopeSpans {
            scope: Some(scope),
            spans: spans.iter().map(to_wire).collect(),
            ..ScopeSpans::default()
        };
        let resource_spans = ResourceSpans {
            resource: Some(self.resource.clone()),
            scope_spans: vec![spans],
            ..ResourceSpans::default()
        };
        ExportTraceServiceRequest {
            resource_spans: vec![resource_spans],
        }
    }
}

fn to_wire(span: &Span) -> wire::Span {
    let open = &span.open;
    let parent = open.parent.map(|parent| parent.to_vec());
    let kind = if span.is_served {
        SpanKind::Server
    } else {
        SpanKind::Internal
    };
    let code = if span.is_error {
        StatusCode::Error
    } else {
        StatusCode::Unset
    };
    let partition = span.partition.map(|it| number("torc.partition", it.0));
    let outcome = text("torc.outcome", span.outcome);
    wire::Span {
        trace_id: open.context.trace_id().to_vec(),
        span_id: open.context.span_id().to_vec(),
        parent_span_id: parent.unwrap_or_default(),
        // Sampled.
        flags: 1,
        name: open.name.to_owned(),
        kind: kind.into(),
        start_time_unix_nano: unix_ns_of(open.began),
        end_time_unix_nano: unix_ns_of(span.ended),
        attributes: partition.into_iter().chain([outcome]).collect(),
        status: Some(wire::Status {
            code: code.into(),
            ..wire::Status::default()
        }),
        ..wire::Span::default()
    }
}

fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

fn number(key: &str, value: u32) -> KeyValue {
    attribute(key, Value::IntValue(value.into()))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = AnyValue { value: Some(value) };
    KeyValue {
        key: key.to_owned(),
        value: Some(value),
        ..KeyValue::default()
    }
}
