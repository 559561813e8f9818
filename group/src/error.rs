//! Why the topology group could not do what it was asked to.

use std::path::PathBuf;
use std::time::Duration;

use torc_proto::{Fault, Reason};
use torc_ring::NodeId;
use torc_ring::topology::TopologyError;

/// How long a caller had better wait while the group elects a leader.
const ELECTION_ADVICE: Duration = Duration::from_millis(500);

/// A failure of the topology group. Unless a variant says otherwise, the topology is unchanged.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A setting of the group makes no sense together with the others.
    #[error("the topology group's settings do not fit together: {reason}")]
    Options {
        /// What does not fit.
        reason: String,
    },
    /// The directory cannot be made or opened. Check its owner and the disk.
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
    /// Written by a newer version, which this one cannot read. Start that version.
    #[error(
        "the topology group's store has format {found}, and this version reads up to {supported}: start a newer version"
    )]
    NewerFormat {
        /// The format on disk.
        found: u32,
        /// The newest format that this version reads.
        supported: u32,
    },
    /// What is on disk is not what was written. Nothing was changed; replace the node
    /// by one with an empty data directory.
    #[error(
        "the topology group's store is damaged ({what}): replace this node by one with an empty data directory"
    )]
    Corrupt {
        /// What is damaged, and how.
        what: String,
    },
    /// The store belongs to another node or another cluster than the one asked for.
    #[error("the topology group's store belongs to {stored}, not to {asked}")]
    OtherIdentity {
        /// Whose it is.
        stored: String,
        /// For whom it was asked.
        asked: String,
    },
    /// The founding of a cluster was begun in this directory and not finished. Found
    /// again, or start with an empty data directory.
    #[error(
        "the founding of a cluster was begun here and not finished: start with --bootstrap again, or with an empty data directory"
    )]
    HalfFounded,
    /// This node is no member of a cluster yet.
    #[error("this node is no member of a cluster yet")]
    NotStarted,
    /// The group was shut down.
    #[error("this node is stopping")]
    Stopped,
    /// The group stopped by itself, and does not start again in this process: a write of
    /// its store failed, or it found itself in a state that must not be. A command that
    /// was under way may have been committed.
    #[error("the topology group stopped: {reason}")]
    Failed {
        /// What went wrong.
        reason: String,
    },
    /// The topology does not allow it.
    #[error(transparent)]
    Refused(#[from] TopologyError),
    /// No leader was found in time, so nothing was proposed. Try again.
    #[error("the topology group has no leader that can be reached: try again")]
    NoLeader,
    /// A leader had the command, but no majority answered in time: it may be committed
    /// yet. Commands can be repeated, so try again.
    #[error(
        "no majority of the topology group answered in time; the change may still happen: check `status`, or repeat it"
    )]
    Unavailable,
    /// This node did not catch up with the leader in time, so it cannot say what is current.
    #[error("this node has not caught up with the topology group's leader: try again")]
    Lagging,
    /// The command is larger than a message may be. Split it.
    #[error("the command takes {len} bytes, and {max} are allowed: split it")]
    TooLarge {
        /// Length of the command as JSON, bytes.
        len: usize,
        /// The limit, bytes.
        max: usize,
    },
    /// Another node sent what this version does not understand. Let all nodes run one version.
    #[error("node {node} answered in a way that this version does not understand: {reason}")]
    Peer {
        /// The other node.
        node: NodeId,
        /// What was wrong.
        reason: String,
    },
}

impl GroupError {
    /// Whether the same call can succeed later. A command may be repeated whatever became
    /// of it the first time.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NoLeader | Self::Unavailable | Self::Lagging | Self::NotStarted => true,
            Self::Options { .. }
            | Self::Open { .. }
            | Self::Locked { .. }
            | Self::NewerFormat { .. }
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
            | Self::Failed { .. }
            | Self::Peer { .. } => Reason::Internal,
        }
    }
}

/// Whether the topology refuses for ever, or as it is now.
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
