//! Metrics of the group.

use std::collections::BTreeSet;

use openraft::ServerState;
use torc_ring::NodeId;

use crate::raft::Metrics;

/// A node's role in the group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GroupRole {
    /// Not started, or stopped.
    #[default]
    Stopped,
    /// Follows and does not vote.
    Learner,
    /// Follows and votes.
    Follower,
    /// Asks for votes.
    Candidate,
    /// Leads.
    Leader,
}

/// Figures of a node's part in the group, as it knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupMetrics {
    /// Its role.
    pub role: GroupRole,
    /// The leader.
    pub leader: Option<NodeId>,
    /// Elections so far, roughly.
    pub term: u64,
    /// Index of the last log entry on disk.
    pub last_log_index: Option<u64>,
    /// Index of the last entry applied to the topology.
    pub last_applied: Option<u64>,
    /// Index of the last entry in the last snapshot.
    pub snapshot: Option<u64>,
    /// Index up to which the log was purged.
    pub purged: Option<u64>,
    /// Members that vote; while their set changes, those of both sets.
    pub voters: BTreeSet<NodeId>,
    /// Whether the set of voters is changing: until then, commits need a majority of
    /// the old set and one of the new set.
    pub changing: bool,
    /// Members that follow without a vote.
    pub learners: BTreeSet<NodeId>,
    /// On the leader: milliseconds since a majority last answered.
    pub majority_silent_ms: Option<u64>,
}

impl From<&Metrics> for GroupMetrics {
    fn from(metrics: &Metrics) -> Self {
        let membership = metrics.membership_config.membership();
        Self {
            role: match metrics.state {
                ServerState::Learner => GroupRole::Learner,
                ServerState::Follower => GroupRole::Follower,
                ServerState::Candidate => GroupRole::Candidate,
                ServerState::Leader => GroupRole::Leader,
                ServerState::Shutdown => GroupRole::Stopped,
            },
            leader: metrics.current_leader.map(NodeId),
            term: metrics.current_term,
            last_log_index: metrics.last_log_index,
            last_applied: metrics.last_applied.map(|id| id.index),
            snapshot: metrics.snapshot.map(|id| id.index),
            purged: metrics.purged.map(|id| id.index),
            voters: membership.voter_ids().map(NodeId).collect(),
            changing: membership.get_joint_config().len() > 1,
            learners: membership.learner_ids().map(NodeId).collect(),
            majority_silent_ms: metrics.millis_since_quorum_ack,
        }
    }
}
