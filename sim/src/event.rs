//! The events of a run.

use std::sync::Arc;

use torc_record::{Epoch, Record};
use torc_replication::{
    Config, Envelope, LogPosition, Lookup, Milestone, OpId, Operation, Reading, Readout, Tag,
};
use torc_ring::NodeId;

use crate::disk::Disk;

/// The possible events.
#[derive(Debug)]
pub(crate) enum Event {
    Deliver {
        from: NodeId,
        to: NodeId,
        envelope: Envelope,
    },
    Synced {
        node: usize,
        boot: u32,
    },
    Wake {
        node: usize,
        boot: u32,
    },
    Beat {
        node: usize,
        boot: u32,
    },
    Start {
        node: usize,
    },
    Topology {
        node: usize,
        config: Arc<Config>,
    },
    Report {
        from: NodeId,
        milestone: Milestone,
    },
    Discard {
        node: usize,
    },
    Slices {
        node: usize,
        boot: u32,
        from: NodeId,
        epoch: Epoch,
        slices: Option<(Vec<Record>, LogPosition)>,
    },
    Read {
        node: usize,
        boot: u32,
        late: Late,
    },
    /// The next step of a get that the only reader answers.
    Alone {
        node: usize,
        boot: u32,
        alone: Box<Alone>,
    },
    /// A scan's round has not ended in time.
    ScanLate {
        tag: Tag,
    },
    /// A caller abandons its operation.
    Cancel {
        node: usize,
        op: OpId,
    },
    /// A replica takes the records of a new namespace.
    Take {
        node: usize,
    },
    /// A node learns of a new namespace.
    Know {
        node: usize,
    },
    Client(usize),
    Group,
    Chaos,
}

/// A read that a replica has requested, in progress.
#[derive(Debug)]
pub(crate) enum Late {
    /// Read at once, delivered later.
    Done(Readout),
    /// Read later.
    ToRead(Reading),
    /// The disk changes during the read, after this many pages.
    Torn(Reading, Box<Disk>, u32),
    /// The keys of a message were read.
    Fetched(NodeId, Envelope),
}

/// A get on its way from the disk.
#[derive(Debug)]
pub(crate) struct Alone {
    pub(crate) op: OpId,
    pub(crate) operation: Operation,
    pub(crate) epoch: Epoch,
    pub(crate) read: Option<Lookup>,
}
