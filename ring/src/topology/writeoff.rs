//! Nodes that are written off: declared dead for good, even if this loses data.
//!
//! A change excludes a dead, displaced node from its moves as long as a majority is left
//! without it (`change.rs`). With several dead nodes, no majority may be left, and the running
//! change may not displace all of them. So a write-off changes every partition that needs it, at
//! once: one with its quorums keeps the node as a replica that does not answer, and gets another
//! lead; one without them continues with the set that still has a majority, if it has all writes
//! ([`Config::left_without`]), else with its survivors; one without survivors continues empty, where
//! the running change places it. If all nodes of the ring's placement are dead, a partition stays on
//! its surviving replicas until the ring places it elsewhere.

use std::collections::BTreeSet;
use std::sync::Arc;

use torc_record::{Epoch, Layer};

use super::{MemberState, Move, Outcome, Topology, TopologyError};
use crate::replicas::{Config, Milestones, Mutations, Stage};
use crate::{NodeId, Partition};

/// Epochs that a recovery skips: the lost majority may have committed some of them, and an
/// epoch must not name two topologies.
pub(super) const RECOVERY_GAP: u64 = 1 << 20;
/// More namespaces or generations than could have been created in missing log entries.
const ID_GAP: u32 = 1 << 16;

/// The losses of partitions with the same number of replicas without some nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Losses {
    /// Their number of replicas.
    pub replicas: u8,
    /// Partitions that keep a majority of complete replicas: nothing is lost.
    pub majority: u32,
    /// Partitions with replicas left but no majority: writes that only dead nodes, and newcomers that
    /// still copy, acknowledged are lost.
    pub minority: u32,
    /// Partitions without any replica left: all their keys are lost.
    pub none: u32,
}

impl Topology {
    /// Nodes that were written off but are still members.
    #[must_use]
    pub fn written_off(&self) -> &BTreeSet<NodeId> {
        &self.stored.dead
    }

    /// The losses of writing off these nodes too; one entry per layer in use. O(partitions).
    #[must_use]
    pub fn losses(&self, nodes: &BTreeSet<NodeId>) -> Vec<Losses> {
        let dead = &self.stored.dead | nodes;
        let of_layer = |layer: Layer| {
            let mut losses = Losses {
                replicas: self.stored.layers.replicas(layer),
                majority: 0,
                minority: 0,
                none: 0,
            };
            for arc in self.stored.partitions.iter() {
                let partition = self.stored.partitions.in_layer(layer, arc);
                let Some(config) = self.config(partition) else {
                    continue;
                };
                match config.left_without(&dead) {
                    _ if config.loses_nothing_without(&dead) => losses.majority += 1,
                    Some(left) if left.is_empty() => losses.none += 1,
                    Some(_) | None => losses.minority += 1,
                }
            }
            losses
        };
        self.stored.layers.iter().map(of_layer).collect()
    }

    /// Continues after the loss of the topology group's majority, in an epoch above all that it
    /// may have committed, with these members written off, joining ones included. Not a command:
    /// it is not in a log.
    ///
    /// # Errors
    /// [`TopologyError::UnknownNode`]; nothing was changed.
    pub fn recover(&mut self, dead: &BTreeSet<NodeId>, at_ms: u64) -> Result<(), TopologyError> {
        let unknown = |node: &&NodeId| !self.stored.members.contains_key(node);
        if let Some(&node) = dead.iter().find(unknown) {
            return Err(TopologyError::UnknownNode { node });
        }
        self.stored.epoch.0 += RECOVERY_GAP;
        self.renew_all();
        // Ids assigned in the lost entries may be on disk.
        self.stored.next_namespace += ID_GAP;
        self.stored.next_generation += ID_GAP;
        self.count_out(&(dead - &self.stored.dead), at_ms);
        Ok(())
    }

    /// Puts every partition in the present epoch, above the lost ones: a replica may have adopted one of
    /// those, and ignores earlier ones.
    fn renew_all(&mut self) {
        let epoch = self.stored.epoch;
        for config in &mut self.stored.configs {
            if let Ok(next) = config.recover(epoch) {
                *config = Arc::new(next);
            }
        }
        self.stored.sweep_anew();
        self.stored.reordered.clear();
        for known in self.stored.known.values_mut() {
            *known = Milestones::default();
        }
    }

    pub(super) fn write_off(&mut self, node: NodeId, at_ms: u64) -> Result<Outcome, TopologyError> {
        let member = self.stored.members.get(&node);
        let state = member.ok_or(TopologyError::UnknownNode { node })?.state;
        if state == MemberState::Joining {
            return Err(TopologyError::WrongState { node, state });
        }
        self.count_out(&(&BTreeSet::from([node]) - &self.stored.dead), at_ms);
        Ok(Outcome::Done)
    }

    /// Writes off living nodes together: no partition continues on one of the others.
    fn count_out(&mut self, nodes: &BTreeSet<NodeId>, at_ms: u64) {
        if nodes.is_empty() {
            return;
        }
        let before = self.states();
        self.stored.dead.extend(nodes);
        for node in nodes {
            self.leave_out(*node);
        }
        self.stored.sweep_anew();
        self.note_reordered(&before);
        // A partition that continues in this epoch moves on in a later one.
        self.advance_epoch();
        self.begin_due_moves();
        self.finish_if_done(at_ms);
    }

    /// Changes the partitions that cannot continue as they are without a node.
    fn leave_out(&mut self, node: NodeId) {
        if let Some(running) = &mut self.stored.transition
            && running.kind.removes() == Some(node)
        {
            running.dead.insert(node);
        }
        let epoch = self.advance_epoch();
        let partitions: Vec<_> = self.partitions_in_use().collect();
        for partition in partitions {
            if let Some(next) = self.without(partition, node, epoch) {
                let is_there = next.stage != Stage::Stable || self.is_at_home(&next);
                self.enter(next);
                if !is_there {
                    self.mark(partition, Move::Waiting);
                }
            }
        }
    }

    /// A partition's new configuration without a node that was just written off; `None` if it does
    /// not change.
    fn without(&self, partition: Partition, node: NodeId, epoch: Epoch) -> Option<Config> {
        let config = self.config(partition)?;
        let index = config.index(node)?;
        if config.left_without(&self.stored.dead).is_some() {
            return self.go_on(partition, epoch);
        }
        // A move that waits for a dead node's copy would wait for ever: it starts again without the
        // node.
        let is_copying = matches!(config.stage, Stage::Copying | Stage::WriteBothReadOld);
        if is_copying && !config.returning && config.copiers().contains(index) {
            return config.abort(epoch, Mutations::NONE).ok();
        }
        config.exclude(epoch, node).ok()
    }

    /// The new configuration of a partition that lost its quorums to nodes written off: on
    /// its survivors, or empty on its destination; `None` if it does not change.
    pub(super) fn go_on(&self, partition: Partition, epoch: Epoch) -> Option<Config> {
        let config = self.config(partition)?;
        let mut to = config.left_without(&self.stored.dead)?;
        if to.is_empty() {
            let running = self.stored.transition.as_ref()?;
            running.moves.get(&partition)?;
            to = self.stored.living_or_all(&self.destination(partition));
        }
        config.go_on_with(epoch, &to).ok()
    }

    /// Whether its replicas are its destination.
    fn is_at_home(&self, config: &Config) -> bool {
        let to = self.destination(config.partition);
        let is_in = |node: &NodeId| super::stored::is_in(config, config.old, *node);
        to.len() == config.old.count() as usize && to.iter().all(is_in)
    }
}
