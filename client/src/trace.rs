//! Traces: operations that belong to a span, and the client's own spans.
//!
//! The library exports no spans. An application that exports its own spans gets the client's
//! through [`ClientBuilder::on_span`](crate::ClientBuilder::on_span).

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use torc_proto::TraceContext;

use crate::retry::Nature;
use crate::{Error, ErrorKind};

/// The client's part in one traced operation, with all its retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientSpan {
    /// `client read` or `client write`.
    pub name: &'static str,
    /// The trace, and the span's own id.
    pub context: TraceContext,
    /// The application's span; `None`: this span starts the trace.
    pub parent: Option<[u8; 8]>,
    /// Start of the span.
    pub began: SystemTime,
    /// Its duration.
    pub took: Duration,
    /// Why the operation failed, if it did.
    pub error: Option<ErrorKind>,
}

/// Receives finished spans.
#[derive(Clone)]
pub(crate) struct SpanSink(Arc<dyn Fn(ClientSpan) + Send + Sync>);

impl SpanSink {
    pub(crate) fn new(sink: impl Fn(ClientSpan) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }
}

impl fmt::Debug for SpanSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpanSink(..)")
    }
}

/// How operations are traced.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TraceMode {
    /// As part of this span.
    PartOf(TraceContext),
    /// Each in its own trace.
    Sampled,
}

/// The trace of one operation.
#[derive(Debug)]
pub(crate) struct Tracing {
    /// The context for nodes.
    pub(crate) context: TraceContext,
    own: Option<Own>,
}

/// The client's own span.
#[derive(Debug)]
struct Own {
    sink: SpanSink,
    parent: Option<[u8; 8]>,
    began: SystemTime,
}

impl Tracing {
    /// Without a sink for spans, the client propagates no span of its own, because no collector
    /// would know this parent.
    pub(crate) fn begin(mode: Option<TraceMode>, sink: Option<&SpanSink>) -> Option<Self> {
        let own = |parent| {
            sink.map(|sink| Own {
                sink: sink.clone(),
                parent,
                began: SystemTime::now(),
            })
        };
        match mode? {
            TraceMode::Sampled => Some(Self {
                context: TraceContext::new(rand::random(), rand::random(), true)?,
                own: own(None),
            }),
            TraceMode::PartOf(parent) if parent.is_sampled() && sink.is_some() => Some(Self {
                context: parent.with_span(rand::random())?,
                own: own(Some(parent.span_id())),
            }),
            TraceMode::PartOf(parent) => Some(Self {
                context: parent,
                own: None,
            }),
        }
    }

    /// Ends the operation.
    pub(crate) fn end<T>(self, nature: Nature, began: Instant, outcome: &Result<T, Error>) {
        let Some(own) = self.own else {
            return;
        };
        own.sink.0(ClientSpan {
            name: match nature {
                Nature::Read => "client read",
                Nature::Repeatable | Nature::Write => "client write",
            },
            context: self.context,
            parent: own.parent,
            began: own.began,
            took: began.elapsed(),
            error: outcome.as_ref().err().map(Error::kind),
        });
    }
}
