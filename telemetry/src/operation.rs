//! The kinds of requests that are counted and timed.

use std::fmt;

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
use torc_proto::load::BUCKETS;

/// A client's operation.
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
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Get,
        Self::Put,
        Self::Delete,
        Self::BatchGet,
        Self::BatchPut,
        Self::Scan,
    ];
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
        }
    }

    /// The name of its spans: the name of its call.
    #[must_use]
    pub const fn span(self) -> &'static str {
        match self {
            Self::Get => "torc.v1.Kv/Get",
            Self::Put => "torc.v1.Kv/Put",
            Self::Delete => "torc.v1.Kv/Delete",
            Self::BatchGet => "torc.v1.Kv/BatchGet",
            Self::BatchPut => "torc.v1.Kv/BatchPut",
            Self::Scan => "torc.v1.Kv/Scan",
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
