//! Counts, traces and logs an operation from its arrival to its end.

use std::time::Instant;

use torc_proto::{Fault, TraceContext};
use torc_ring::Partition;
use torc_telemetry::slow::Ended;
use torc_telemetry::spans::Serving;

use super::node::KvNode;
use crate::call::CallContext;
use torc_telemetry::operation::Operation;

/// An operation that has started.
pub(super) struct Started {
    pub(super) operation: Operation,
    at: Instant,
    /// The caller's trace context.
    trace: Option<TraceContext>,
    /// `None` if the operation is not traced.
    serving: Option<Box<Serving>>,
}

impl Started {
    /// Starts now. `trace` is the caller's trace context, if tracing is on.
    pub(super) fn now(
        node: &KvNode,
        operation: Operation,
        trace: impl FnOnce() -> Option<TraceContext>,
    ) -> Self {
        let is_of_use = node.tracer.is_some() || node.slow.is_on();
        let trace = is_of_use.then(trace).flatten();
        Self {
            operation,
            at: Instant::now(),
            trace,
            serving: Serving::begin(node.tracer.as_ref(), trace, operation.span()),
        }
    }

    /// The context for calls made on behalf of the operation.
    pub(super) fn call(&self, deadline: Instant) -> CallContext {
        CallContext {
            deadline,
            trace: self.serving.as_ref().map(|it| it.context()),
        }
    }

    /// Ends the operation.
    pub(super) fn end(
        self,
        node: &KvNode,
        fault: Option<&Fault>,
        partition: impl FnOnce() -> Option<Partition>,
    ) {
        let took = self.at.elapsed();
        node.metrics.operations.ended(self.operation, took, fault);
        let trace = self.serving.as_ref().map(|it| it.context());
        let ended = Ended {
            operation: self.operation,
            took,
            fault,
            trace: trace.or(self.trace),
        };
        node.slow.note(ended, partition);
        if let Some(serving) = self.serving {
            serving.end(fault);
        }
    }
}
