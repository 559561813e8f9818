//! Errors of the topology group.

use std::path::PathBuf;
use std::time::Duration;

use torc_proto::{Fault, Reason};
use torc_ring::NodeId;
use torc_ring::topology::TopologyError;

/// Advised wait while the group elects a leader.
const ELECTION_ADVICE: Duration = Duration::from_millis(500);

/// A failure of the topology group. Unless a variant says otherwise, the topology is unchanged.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A setting of the group contradicts the others.
    #[error("contradictory settings of the topology group: {reason}")]
    Options {
        /// The contradiction.
        reason: String,
    },
    /// The directory cannot be created or opened. Check its owner and the disk.
    #[error("cannot open the topology group's store {}: {reason}", path.display())]
    Open {
        /// The directory or file.
        path: PathBuf,
        /// What the system or the store said.
        reason: String,
    },
    /// Another process has the store open. Stop it first.
    #[error("another process has {} open. Nothing was changed: stop that process first", path.display())]
    Locked {
        /// The store's file.
        path: PathBuf,
    },
    /// A newer release wrote the store. Start that release.
    #[error(
        "the topology group's store has format {found}, but this release reads up to {supported}: start a newer release"
    )]
    NewerFormat {
        /// The format on disk.
        found: u32,
        /// The newest format that this release reads.
        supported: u32,
    },
    /// An earlier build wrote the store. Nothing was changed.
    #[error(
        "the topology group's store has format {found}, but this release reads {supported}; nothing was changed: dump the data with the release that wrote it, or let the node join again with an empty directory"
    )]
    OlderFormat {
        /// The format on disk.
        found: u32,
        /// The format that this release reads.
        supported: u32,
    },
    /// The store is damaged. Nothing was changed; replace the node by one with an empty
    /// data directory.
    #[error(
        "the topology group's store is damaged ({what}): replace this node by one with an empty data directory"
    )]
    Corrupt {
        /// What is damaged, and how.
        what: String,
    },
    /// The store belongs to a different node or cluster.
    #[error("the topology group's store belongs to {stored}, not to {asked}")]
    OtherIdentity {
        /// Its owner.
        stored: String,
        /// The requested owner.
        asked: String,
    },
    /// The founding of a cluster in this directory is unfinished. Found again, or start
    /// with an empty data directory.
    #[error(
        "the founding of a cluster here is unfinished: start with --bootstrap again, or with an empty data directory"
    )]
    HalfFounded,
    /// This node is not a member of a cluster yet.
    #[error("this node is not a member of a cluster yet")]
    NotStarted,
    /// The group was shut down.
    #[error("this node is stopping")]
    Stopped,
    /// The group stopped by itself and does not start again in this process: a write to
    /// its store failed, or it found an invalid state. A command in progress may have
    /// been committed.
    #[error("the topology group stopped: {reason}")]
    Failed {
        /// What went wrong.
        reason: String,
    },
    /// The topology refuses the command.
    #[error(transparent)]
    Refused(#[from] TopologyError),
    /// No leader was found in time, so nothing was proposed. Retry.
    #[error("the topology group has no reachable leader: retry")]
    NoLeader,
    /// A leader had the command, but no majority answered in time: it may still be
    /// committed. Commands are idempotent, so retry.
    #[error(
        "no majority of the topology group answered in time; the change may still happen: check `kvctl status`, or repeat it"
    )]
    Unavailable,
    /// This node did not catch up with the leader in time, so it does not know the current
    /// topology.
    #[error("this node has not caught up with the topology group's leader: retry")]
    Lagging,
    /// The command exceeds the limit of messages. Split it.
    #[error("the command takes {len} bytes, but at most {max} are allowed: split it")]
    TooLarge {
        /// Length of the command as JSON, bytes.
        len: usize,
        /// The limit, bytes.
        max: usize,
    },
    /// Another node sent an answer that this release does not understand. Run the same release on
    /// all nodes.
    #[error("this release does not understand the answer of node {node}: {reason}")]
    Peer {
        /// The other node.
        node: NodeId,
        /// The problem.
        reason: String,
    },
}

impl GroupError {
    /// Whether a retry may succeed. Commands are idempotent.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NoLeader | Self::Unavailable | Self::Lagging | Self::NotStarted => true,
            Self::Options { .. }
            | Self::Open { .. }
            | Self::Locked { .. }
            | Self::NewerFormat { .. }
            | Self::OlderFormat { .. }
            | Self::Corrupt { .. }
            | Self::OtherIdentity { .. }
            | Self::HalfFounded
            | Self::Stopped
            | Self::Failed { .. }
            | Self::Refused(_)
            | Self::TooLarge { .. }
            | Self::Peer { .. } => false,
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::Refused(error) => refusal(error),
            Self::NoLeader | Self::Unavailable => Reason::NoTopologyLeader,
            Self::Lagging | Self::NotStarted | Self::Stopped => Reason::NotServing,
            Self::Corrupt { .. } => Reason::Corrupt,
            Self::TooLarge { .. } => Reason::Invalid,
            Self::OtherIdentity { .. } | Self::HalfFounded => Reason::Refused,
            Self::Options { .. }
            | Self::Open { .. }
            | Self::Locked { .. }
            | Self::NewerFormat { .. }
            | Self::OlderFormat { .. }
            | Self::Failed { .. }
            | Self::Peer { .. } => Reason::Internal,
        }
    }
}

/// Whether the refusal is final or depends on the current topology.
fn refusal(error: &TopologyError) -> Reason {
    match error {
        TopologyError::UnknownNode { .. } => Reason::NoSuchNode,
        TopologyError::UnknownNamespace { .. } => Reason::NoSuchNamespace,
        TopologyError::Setting { .. } => Reason::Invalid,
        _ => Reason::Refused,
    }
}

impl From<GroupError> for Fault {
    fn from(error: GroupError) -> Self {
        let fault = Self {
            maybe_applied: matches!(error, GroupError::Unavailable | GroupError::Failed { .. }),
            ..Self::new(error.reason(), error.to_string())
        };
        if error.is_retryable() {
            fault.retry_after(ELECTION_ADVICE)
        } else {
            fault
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_outcome_is_never_told_as_a_clean_failure() {
        let fault = Fault::from(GroupError::Unavailable);
        assert!(fault.maybe_applied);
        assert!(
            !fault.is_retryable(),
            "only the caller knows that commands can be repeated"
        );
        let fault = Fault::from(GroupError::NoLeader);
        assert!(!fault.maybe_applied && fault.is_retryable());
        assert_eq!(fault.retry_after, Some(ELECTION_ADVICE));
    }

    #[test]
    fn a_refusal_tells_what_the_topology_said() {
        let refused = GroupError::from(TopologyError::UnknownNode { node: NodeId(9) });
        let fault = Fault::from(refused.clone());
        assert_eq!(fault.reason, Reason::NoSuchNode);
        assert!(
            fault.message.contains("no member has the id 9"),
            "{}",
            fault.message
        );
        assert!(!refused.is_retryable());
    }
}
