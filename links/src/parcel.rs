//! A message between replicas, with the span of its operation.

use torc_proto::TraceContext;
use torc_replication::Envelope;

/// What a link carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// The message.
    pub envelope: Envelope,
    /// The span of its operation, if traced. Few are.
    pub trace: Option<Box<TraceContext>>,
}

impl From<Envelope> for Parcel {
    fn from(envelope: Envelope) -> Self {
        Self {
            envelope,
            trace: None,
        }
    }
}
