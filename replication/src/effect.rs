//! Effects of a replica.

use torc_record::{Epoch, ReplicaBatch};
use torc_ring::NodeId;

use crate::{Envelope, Locator, Milestone, Reading, Seq};

/// An intention of a replica. The edge performs them in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Make this durable, after all earlier batches, then pass
    /// [`Input::Persisted`](crate::Input::Persisted).
    Persist {
        /// Its number.
        seq: Seq,
        /// The changes.
        batch: ReplicaBatch,
    },
    /// Send, but not before batch `after` is durable. May be lost like any message.
    Send {
        /// The receiver.
        to: NodeId,
        /// The batch that must be durable first.
        after: Seq,
        /// The message.
        envelope: Envelope,
    },
    /// The partition has an epoch that this replica does not know: fetch the topology.
    NeedTopology {
        /// The lowest epoch that suffices.
        epoch: Epoch,
    },
    /// Report to the topology group. Repeated until the epoch is over.
    Report {
        /// The batch that must be durable first.
        after: Seq,
        /// The milestone.
        milestone: Milestone,
    },
    /// Copy the sealed slices of a partition from this node, which serves them if its replica
    /// [may](crate::Replica::serves_slices), and put them in force if this replica
    /// [may](crate::Replica::takes_slices) still take them; then pass
    /// [`Input::SlicesCopied`](crate::Input::SlicesCopied). Repeated until then. A gathering replica
    /// asks several nodes.
    CopySlices {
        /// The source.
        from: NodeId,
        /// The epoch of the copy.
        epoch: Epoch,
    },
    /// A key of this message is not [at hand](crate::Storage::is_at_hand): read its
    /// [keys](crate::Message::keys) in the background, then pass
    /// [`Input::Fetched`](crate::Input::Fetched). May be lost like any message.
    Fetch {
        /// The sender of the message.
        from: NodeId,
        /// The message.
        envelope: Envelope,
    },
    /// Read this in the background, then pass [`Input::Read`](crate::Input::Read).
    Read(Reading),
    /// Run an operation that brings all replicas of this key to one version, see
    /// [`Request::Reconcile`](crate::Request::Reconcile).
    Reconcile {
        /// The key.
        at: Locator,
        /// Whether this replica's record is unreadable and must be replaced.
        rewrite: bool,
    },
}
