//! The stored part of a topology, for the disk and for snapshots; the rest is derived.
//!
//! The form has a version; other versions are refused. Reading checks that
//! configurations, ring and transition are consistent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use torc_record::{DigestKey, Epoch, Layer, NamespaceId};

use super::layers::Placements;
use super::{
    Authorities, BearerId, BearerToken, Boot, ClusterId, Generation, Layers, Member, MemberState,
    Move, Namespace, Outcome, Switch, Topology, Transition, TransitionKind,
};
use crate::replicas::{Config, Milestones, Stage, Votes};
use crate::{AllocateError, NodeId, NodeSpec, Partition, Partitions, Placement, Ring, allocate};

/// Version of the stored form.
pub(super) const VERSION: u32 = 9;

/// Stored bytes with the form of a topology that are inconsistent. Replace the node by
/// one with an empty data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a malformed topology: {0}")]
pub struct MalformedTopology(pub(super) &'static str);

/// The stored form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) version: u32,
    pub(super) cluster: ClusterId,
    pub(super) digest_key: DigestKey,
    pub(super) partitions: Partitions,
    /// Also implied by the namespaces: all of a layer have the layer's number of replicas.
    pub(super) layers: Layers,
    pub(super) positions: u16,
    pub(super) epoch: Epoch,
    pub(super) feature_level: u32,
    pub(super) next_node: u64,
    pub(super) next_namespace: u32,
    /// The number of the generation reserved last.
    pub(super) next_generation: u32,
    pub(super) members: BTreeMap<NodeId, Member>,
    /// The last confirmed start of each member.
    pub(super) boots: BTreeMap<NodeId, Boot>,
    pub(super) namespaces: BTreeMap<String, Namespace>,
    /// Generations by number.
    pub(super) generations: BTreeMap<u32, Generation>,
    /// The dropped namespaces whose records are being deleted, and the members that have deleted
    /// their part.
    #[serde(default)]
    pub(super) sweeps: BTreeMap<NamespaceId, BTreeSet<NodeId>>,
    /// The epoch in which leads last changed: deletions by an earlier topology do not count.
    #[serde(default)]
    pub(super) swept_since: Epoch,
    /// Switches by the namespaces whose current generation changed, or that were dropped.
    pub(super) switches: BTreeMap<String, Switch>,
    pub(super) bearer_tokens: BTreeMap<BearerId, BearerToken>,
    /// `None` until the authority is first rotated.
    #[serde(default)]
    pub(super) authorities: Option<Authorities>,
    pub(super) ring: Ring,
    /// One per partition of the layers in use, in the order of their numbers.
    pub(super) configs: Vec<Arc<Config>>,
    /// Milestones of moving partitions, and of moved partitions until a majority has adopted the
    /// epoch in which the move ended.
    pub(super) known: BTreeMap<Partition, Milestones>,
    /// Partitions whose nodes changed their order after their configuration changed, and when.
    pub(super) reordered: BTreeMap<Partition, Epoch>,
    /// Members that were declared dead.
    pub(super) dead: BTreeSet<NodeId>,
    pub(super) transition: Option<Transition>,
    pub(super) last_transition: Option<Transition>,
    /// The outcomes of the last commands that are applied once, by their requests.
    #[serde(default)]
    pub(super) recent: VecDeque<(u64, Outcome)>,
}

impl Topology {
    /// Adds the derived part.
    pub(super) fn over(stored: Stored) -> Self {
        let current = stored.placements(&stored.ring);
        let transition = stored.transition.as_ref();
        let target = transition.map(|t| stored.placements_after(&t.target, &t.kind));
        Self {
            stored,
            current,
            target,
        }
    }

    /// Checks the consistency.
    fn checked(self) -> Result<Self, MalformedTopology> {
        let stored = &self.stored;
        let base = stored.layers.replicas(Layer::BASE);
        if Layers::of(base, &stored.namespaces) != Some(stored.layers) {
            return Err(MalformedTopology(
                "a namespace in a layer of another number of replicas",
            ));
        }
        if !stored.all_work_at_the_level() {
            return Err(MalformedTopology(
                "a member that does not support the cluster's feature level",
            ));
        }
        let wanted = stored.layers.count() * stored.partitions.count() as usize;
        if stored.configs.len() != wanted {
            return Err(MalformedTopology("not one configuration per partition"));
        }
        stored.check_ring(&stored.ring)?;
        if let Some(transition) = &stored.transition {
            stored.check_ring(&transition.target)?;
        }
        for (partition, config) in self.partitions_in_use().zip(&stored.configs) {
            self.check_config(partition, config)?;
        }
        Ok(self)
    }

    fn check_config(&self, partition: Partition, config: &Config) -> Result<(), MalformedTopology> {
        if config.partition != partition || config.epoch > self.stored.epoch {
            return Err(MalformedTopology("a configuration out of place or time"));
        }
        let moves = self.stored.transition.as_ref().map(|t| &t.moves);
        let at = moves.and_then(|moves| moves.get(&partition)).copied();
        if (config.stage != Stage::Stable) != (at == Some(Move::Moving)) {
            return Err(MalformedTopology("a stage that no transition led to"));
        }
        if config.stage != Stage::Stable && !self.stored.known.contains_key(&partition) {
            return Err(MalformedTopology("a move of which nothing is known"));
        }
        let target = self.target.as_ref().filter(|_| at.is_some());
        let placed = |set: Votes| {
            let mut placements = std::iter::once(&self.current).chain(target);
            // A partition without survivors keeps its replicas.
            let nobody_is_left = |placement: &Placements| {
                let nodes = placement.nodes(partition);
                self.stored.living(nodes).is_empty()
            };
            let may_be = |it| self.gives(it, config, set) || nobody_is_left(it);
            set.is_empty() || placements.any(may_be) || self.survives_of_both(config, set)
        };
        if placed(config.old) && placed(config.new) {
            return Ok(());
        }
        Err(MalformedTopology("replicas where the ring has none"))
    }

    /// Whether a set consists of the survivors of a partition's replicas before and after its move.
    fn survives_of_both(&self, config: &Config, set: Votes) -> bool {
        let placements = std::iter::once(&self.current).chain(&self.target);
        let nodes = placements.flat_map(|placement| placement.nodes(config.partition));
        let nodes: BTreeSet<NodeId> = nodes.copied().collect();
        let nodes: Vec<_> = nodes.into_iter().collect();
        lacks_only(&nodes, config, set, |node| self.may_lack(*node))
    }
}

/// Whether a node is a member of the set.
pub(super) fn is_in(config: &Config, set: Votes, node: NodeId) -> bool {
    config.index(node).is_some_and(|index| set.contains(index))
}

/// Whether the set consists of these nodes, and contains all of them except those that it may lack.
pub(super) fn lacks_only(
    nodes: &[NodeId],
    config: &Config,
    set: Votes,
    may_lack: impl Fn(&NodeId) -> bool,
) -> bool {
    let present = nodes.iter().filter(|it| is_in(config, set, **it)).count();
    let may_be = |node: &NodeId| is_in(config, set, *node) || may_lack(node);
    present == set.count() as usize && nodes.iter().all(may_be)
}

impl TryFrom<Stored> for Topology {
    type Error = MalformedTopology;

    fn try_from(stored: Stored) -> Result<Self, MalformedTopology> {
        match stored.version {
            VERSION => Self::over(stored).checked(),
            0..VERSION => Err(MalformedTopology(
                "of an earlier release, which this one does not read",
            )),
            _ => Err(MalformedTopology("of a later release: upgrade this node")),
        }
    }
}

impl From<Topology> for Stored {
    fn from(topology: Topology) -> Self {
        topology.stored
    }
}

impl Stored {
    fn check_ring(&self, ring: &Ring) -> Result<(), MalformedTopology> {
        if ring.is_empty() {
            return Err(MalformedTopology("a ring without positions"));
        }
        let unknown = |node: NodeId| !self.members.contains_key(&node);
        if ring.nodes().into_iter().any(unknown) {
            return Err(MalformedTopology("a position of a node that is no member"));
        }
        Ok(())
    }

    /// These nodes without those declared dead, in the same order.
    pub(super) fn living(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let living = nodes.iter().filter(|node| !self.dead.contains(node));
        living.copied().collect()
    }

    /// The same, but all of them if every one was declared dead, because a partition in use
    /// needs nodes.
    pub(super) fn living_or_all(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let living = self.living(nodes);
        if living.is_empty() {
            nodes.to_vec()
        } else {
            living
        }
    }

    fn specs(&self) -> BTreeMap<NodeId, NodeSpec> {
        self.members
            .iter()
            .map(|(id, member)| (*id, member.spec(*id)))
            .collect()
    }

    pub(super) fn placements(&self, ring: &Ring) -> Placements {
        self.placements_of(ring, self.layers, &self.specs())
    }

    fn placements_of(
        &self,
        ring: &Ring,
        layers: Layers,
        specs: &BTreeMap<NodeId, NodeSpec>,
    ) -> Placements {
        Placements::new(layers, |layer| {
            Placement::compute(ring, self.partitions, layers.replicas(layer), specs)
        })
    }

    /// The placements on the ring that a change leads to.
    pub(super) fn placements_after(&self, ring: &Ring, kind: &TransitionKind) -> Placements {
        let (mut specs, mut layers) = (self.specs(), self.layers);
        match *kind {
            TransitionKind::Reweight { node, weight } => {
                if let Some(spec) = specs.get_mut(&node) {
                    spec.weight = weight;
                }
            }
            TransitionKind::Alter { layer, replicas } => layers = layers.with(layer, replicas),
            TransitionKind::Join(_) | TransitionKind::Leave(_) | TransitionKind::Replace { .. } => {
            }
        }
        self.placements_of(ring, layers, &specs)
    }

    /// The ring after a change: the same ring if only the number of replicas changes.
    pub(super) fn allocate(&self, kind: &TransitionKind) -> Result<Ring, AllocateError> {
        let Some(change) = kind.change() else {
            return Ok(self.ring.clone());
        };
        let mut specs = self.specs();
        let weight = match kind {
            TransitionKind::Reweight { weight, .. } => Some(*weight),
            // Exactly the positions of the replaced node, whatever the new node's own weight would
            // give.
            TransitionKind::Replace { old, .. } => specs.get(old).map(|spec| spec.weight),
            TransitionKind::Join(_) | TransitionKind::Leave(_) | TransitionKind::Alter { .. } => {
                None
            }
        };
        let changed = kind.node().and_then(|node| specs.get_mut(&node));
        if let (Some(spec), Some(weight)) = (changed, weight) {
            spec.weight = weight;
        }
        allocate(
            &self.ring,
            self.partitions,
            self.layers.replicas(Layer::BASE),
            self.positions,
            &specs,
            change,
        )
    }

    /// Switches up to this epoch no longer wait for a member.
    pub(super) fn stop_waiting_for(&mut self, node: NodeId, upto: Epoch) {
        self.switches.retain(|_, switch| {
            if switch.epoch <= upto {
                switch.waiting.remove(&node);
            }
            !switch.waiting.is_empty()
        });
    }

    /// Makes the target of a finished transition the present state.
    pub(super) fn adopt_target(&mut self, transition: &Transition) {
        self.ring = transition.target.clone();
        if let Some(node) = transition.kind.admits() {
            self.set_state(node, MemberState::Active);
        }
        if let Some(node) = transition.kind.removes() {
            self.members.remove(&node);
            self.boots.remove(&node);
            self.dead.remove(&node);
            self.stop_waiting_for(node, self.epoch);
        }
        if let TransitionKind::Reweight { node, weight } = transition.kind
            && let Some(member) = self.members.get_mut(&node)
        {
            member.identity.weight = weight;
        }
        if let TransitionKind::Alter { layer, replicas } = transition.kind {
            self.layers = self.layers.with(layer, replicas);
            for namespace in self.namespaces.values_mut() {
                if namespace.id.layer() == layer {
                    namespace.replicas = replicas;
                }
            }
        }
    }
}
