//! Counts, traces and logs an operation from its arrival to its end.

use std::time::Instant;

use torc_proto::{Fault, TraceContext};
use torc_ring::Partition;

use crate::metrics::Operation;
use crate::shared::{CallContext, Shared};
use crate::slow::Ended;
use crate::spans::Serving;

/// An operation that has begun.
pub(super) struct Started {
    pub(super) operation: Operation,
    at: Instant,
    /// As its caller has it.
    trace: Option<TraceContext>,
    /// None: it is not traced.
    serving: Option<Box<Serving>>,
}

impl Started {
    /// It begins now; `trace` is what its caller says, if anybody wants to know.
    pub(super) fn now(
        shared: &Shared,
        operation: Operation,
        trace: impl FnOnce() -> Option<TraceContext>,
    ) -> Self {
        let is_of_use = shared.tracer.is_some() || shared.slow.is_on();
        let trace = is_of_use.then(trace).flatten();
        Self {
            operation,
            at: Instant::now(),
            trace,
            serving: Serving::begin(shared.tracer.as_ref(), trace, operation.span()),
        }
    }

    /// For what is done for it.
    pub(super) fn call(&self, deadline: Instant) -> CallContext {
        CallContext {
            deadline,
            trace: self.serving.as_ref().map(|it| it.context()),
        }
    }

    /// It has ended.
    pub(super) fn end(
        self,
        shared: &Shared,
        fault: Option<&Fault>,
        partition: impl FnOnce() -> Option<Partition>,
    ) {
        let took = self.at.elapsed();
        shared.metrics.ended(self.operation, took, fault);
        let trace = self.serving.as_ref().map(|it| it.context());
        let ended = Ended {
            operation: self.operation,
            took,
            fault,
            trace: trace.or(self.trace),
        };
        shared.slow.note(ended, partition);
        if let Some(serving) = self.serving {
            serving.end(fault);
        }
    }
}
