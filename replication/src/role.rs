//! What a node does for a partition, in each stage of a move.

use torc_ring::NodeId;
use torc_ring::topology::{PartitionState, Stage};

/// A node's part in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Orders the writes and answers the reads. `partner` must accept every write
    /// before it is acknowledged, or applied here.
    Lead {
        /// The other side of a move.
        partner: Option<NodeId>,
        /// The lead before us may still serve in an older epoch: it must have adopted
        /// this one before we answer anything.
        displaces: Option<NodeId>,
    },
    /// Accepts what the lead sends; serves nobody.
    Follower {
        /// The node that serves.
        lead: NodeId,
    },
    /// Copies the partition from `source`; takes no writes yet.
    Newcomer {
        /// Where to copy from.
        source: NodeId,
    },
    /// Has nothing to do with the partition, and holds nothing of it.
    Outsider,
}

impl Role {
    /// The part of `me` in a partition of this state.
    #[must_use]
    pub fn of(me: NodeId, state: &PartitionState) -> Self {
        let next_lead = || {
            state
                .next
                .as_ref()
                .and_then(torc_ring::PreferenceList::primary)
        };
        let leads = state.lead == me;
        match state.stage {
            Stage::Stable | Stage::Copying if leads => Self::Lead {
                partner: None,
                displaces: None,
            },
            Stage::Copying if next_lead() == Some(me) => Self::Newcomer { source: state.lead },
            Stage::WriteBothReadOld if leads => Self::Lead {
                partner: next_lead(),
                displaces: None,
            },
            Stage::WriteBothReadNew if leads => {
                let old = state.nodes.primary();
                Self::Lead {
                    partner: old,
                    displaces: old,
                }
            }
            Stage::WriteBothReadOld if next_lead() == Some(me) => {
                Self::Follower { lead: state.lead }
            }
            Stage::WriteBothReadNew if state.nodes.primary() == Some(me) => {
                Self::Follower { lead: state.lead }
            }
            _ => Self::Outsider,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_record::Epoch;
    use torc_ring::Partition;
    use torc_ring::replicas::Config;

    const OLD: NodeId = NodeId(1);
    const NEW: NodeId = NodeId(2);
    const OTHER: NodeId = NodeId(3);

    fn state(stage: Stage, lead: NodeId) -> PartitionState {
        let config = Config::assumed(Partition(0), Epoch(1), stage, &[OLD], &[NEW]);
        PartitionState::of(config.unwrap(), lead)
    }

    #[test]
    fn in_every_stage_exactly_one_node_leads() {
        let stages = [
            (Stage::Stable, OLD),
            (Stage::Copying, OLD),
            (Stage::WriteBothReadOld, OLD),
            (Stage::WriteBothReadNew, NEW),
        ];
        for (stage, lead) in stages {
            let state = state(stage, lead);
            let leads = |node: &NodeId| matches!(Role::of(*node, &state), Role::Lead { .. });
            let found: Vec<_> = [OLD, NEW, OTHER].into_iter().filter(leads).collect();
            assert_eq!(found, [lead], "{stage:?}");
        }
    }

    #[test]
    fn in_both_write_both_stages_the_lead_needs_the_other_side() {
        let before = Role::of(OLD, &state(Stage::WriteBothReadOld, OLD));
        assert_eq!(
            before,
            Role::Lead {
                partner: Some(NEW),
                displaces: None
            }
        );
        let after = Role::of(NEW, &state(Stage::WriteBothReadNew, NEW));
        assert_eq!(
            after,
            Role::Lead {
                partner: Some(OLD),
                displaces: Some(OLD)
            }
        );
    }

    #[test]
    fn while_copying_nobody_waits_for_the_newcomer() {
        let state = state(Stage::Copying, OLD);
        assert_eq!(
            Role::of(OLD, &state),
            Role::Lead {
                partner: None,
                displaces: None
            }
        );
        assert_eq!(Role::of(NEW, &state), Role::Newcomer { source: OLD });
    }

    #[test]
    fn a_stranger_has_no_part_in_any_stage() {
        for stage in [
            Stage::Copying,
            Stage::WriteBothReadOld,
            Stage::WriteBothReadNew,
        ] {
            assert_eq!(
                Role::of(OTHER, &state(stage, OLD)),
                Role::Outsider,
                "{stage:?}"
            );
        }
    }
}
