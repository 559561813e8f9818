//! Reading stored topologies, and converting those of former releases.
//!
//! Before configurations a partition had an epoch, one replica, and a stage beside its
//! move. Such a topology becomes one of today's in the same epochs and stages, with the
//! same facts known; of its past nothing is claimed ([`Config::assumed`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use torc_record::{DigestKey, Epoch, NamespaceId};

use super::layers::Placements;
use super::stored::{Stored, VERSION};
use super::{
    ClusterId, MalformedTopology, Member, Move, Namespace, NamespaceMode, Sizes, Topology,
    Transition, TransitionKind,
};
use crate::replicas::{Config, Milestone, Milestones, Stage};
use crate::{NodeId, Partition, Partitions, Ring};

/// A stored topology of any version.
#[derive(Deserialize)]
pub(super) struct Readable {
    #[serde(default)]
    version: u32,
    cluster: ClusterId,
    digest_key: DigestKey,
    partitions: Partitions,
    replicas: u8,
    positions: u16,
    epoch: Epoch,
    next_node: u64,
    #[serde(default)]
    next_namespace: Option<u32>,
    members: BTreeMap<NodeId, Member>,
    namespaces: BTreeMap<String, ReadableNamespace>,
    ring: Ring,
    #[serde(default)]
    configs: Vec<Arc<Config>>,
    #[serde(default)]
    known: BTreeMap<Partition, Milestones>,
    #[serde(default)]
    reordered: BTreeMap<Partition, Epoch>,
    /// Former.
    #[serde(default)]
    epochs: Vec<Epoch>,
    transition: Option<ReadableTransition>,
    last_transition: Option<ReadableTransition>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ReadableNamespace {
    Present(Namespace),
    Former(NamespaceId),
}

#[derive(Deserialize)]
struct ReadableTransition {
    id: u64,
    kind: TransitionKind,
    target: Ring,
    parallel: u32,
    moves: BTreeMap<Partition, ReadableMove>,
    total: u32,
    planned: Sizes,
    moved: Sizes,
    started_at_ms: u64,
    ended_at_ms: Option<u64>,
    #[serde(default)]
    dead: BTreeSet<NodeId>,
    #[serde(default)]
    aborted: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ReadableMove {
    Present(Move),
    Former(FormerMove),
}

#[derive(Deserialize)]
struct FormerMove {
    stage: FormerStage,
    #[serde(default)]
    copied: BTreeSet<NodeId>,
    #[serde(default)]
    snapshotted: BTreeSet<NodeId>,
    #[serde(default)]
    adopted: BTreeSet<NodeId>,
}

#[derive(Clone, Copy, Deserialize)]
enum FormerStage {
    Waiting,
    Copying,
    WriteBothReadOld,
    WriteBothReadNew,
    Done,
}

impl TryFrom<Readable> for Topology {
    type Error = MalformedTopology;

    fn try_from(readable: Readable) -> Result<Self, MalformedTopology> {
        let is_former = match readable.version {
            0 => true,
            VERSION => false,
            _ => return Err(MalformedTopology("of a later release: upgrade this node")),
        };
        let Some(last_namespace) = readable
            .namespaces
            .values()
            .map(ReadableNamespace::id)
            .max()
        else {
            return Err(MalformedTopology("no namespaces"));
        };
        let replicas = readable.replicas;
        let (transition, former_moves) = readable.transition.map(present).unzip();
        let stored = Stored {
            version: VERSION,
            cluster: readable.cluster,
            digest_key: readable.digest_key,
            partitions: readable.partitions,
            replicas,
            positions: readable.positions,
            epoch: readable.epoch,
            next_node: readable.next_node,
            next_namespace: readable.next_namespace.unwrap_or(last_namespace.0 + 1),
            members: readable.members,
            namespaces: readable
                .namespaces
                .into_iter()
                .map(|(name, namespace)| (name, namespace.into_present(replicas)))
                .collect(),
            ring: readable.ring,
            configs: readable.configs,
            known: readable.known,
            reordered: readable.reordered,
            transition,
            last_transition: readable.last_transition.map(|last| present(last).0),
        };
        let mut topology = Self::over(stored);
        if is_former {
            topology.convert(&readable.epochs, &former_moves.unwrap_or_default())?;
        }
        topology.checked()
    }
}

impl ReadableNamespace {
    const fn id(&self) -> NamespaceId {
        match self {
            Self::Present(Namespace { id, .. }) | Self::Former(id) => *id,
        }
    }

    fn into_present(self, replicas: u8) -> Namespace {
        match self {
            Self::Present(namespace) => namespace,
            Self::Former(id) => Namespace {
                id,
                mode: NamespaceMode::Linearizable,
                replicas,
            },
        }
    }
}

fn present(readable: ReadableTransition) -> (Transition, BTreeMap<Partition, FormerMove>) {
    let mut former = BTreeMap::new();
    let mut moves = BTreeMap::new();
    for (partition, moving) in readable.moves {
        let at = match &moving {
            ReadableMove::Present(at) => *at,
            ReadableMove::Former(moving) => moving.stage.progress(),
        };
        moves.insert(partition, at);
        if let ReadableMove::Former(moving) = moving {
            former.insert(partition, moving);
        }
    }
    let transition = Transition {
        id: readable.id,
        kind: readable.kind,
        target: readable.target,
        parallel: readable.parallel,
        moves,
        total: readable.total,
        planned: readable.planned,
        moved: readable.moved,
        started_at_ms: readable.started_at_ms,
        ended_at_ms: readable.ended_at_ms,
        dead: readable.dead,
        aborted: readable.aborted,
    };
    (transition, former)
}

impl FormerStage {
    const fn progress(self) -> Move {
        match self {
            Self::Waiting => Move::Waiting,
            Self::Copying | Self::WriteBothReadOld | Self::WriteBothReadNew => Move::Moving,
            Self::Done => Move::Done,
        }
    }

    const fn stage(self) -> Stage {
        match self {
            Self::Waiting | Self::Done => Stage::Stable,
            Self::Copying => Stage::Copying,
            Self::WriteBothReadOld => Stage::WriteBothReadOld,
            Self::WriteBothReadNew => Stage::WriteBothReadNew,
        }
    }
}

impl FormerMove {
    fn milestones(&self, config: &Config) -> Milestones {
        let mut known = Milestones::default();
        let mut note = |nodes: &BTreeSet<NodeId>, milestone: Milestone| {
            for node in nodes {
                known.note(config, *node, milestone);
            }
        };
        note(&self.adopted, Milestone::Adopted(config.epoch));
        note(&self.copied, Milestone::Copied(config.epoch));
        note(&self.snapshotted, Milestone::Snapshotted(config.epoch));
        known
    }
}

impl Topology {
    /// Gives a former topology its configurations.
    fn convert(
        &mut self,
        epochs: &[Epoch],
        moves: &BTreeMap<Partition, FormerMove>,
    ) -> Result<(), MalformedTopology> {
        if epochs.len() != self.stored.partitions.count() as usize {
            return Err(MalformedTopology("not one epoch a partition"));
        }
        for (partition, epoch) in self.stored.partitions.iter().zip(epochs) {
            let moving = moves.get(&partition);
            let stage = moving.map_or(FormerStage::Waiting, |moving| moving.stage);
            let of = |placements: &Option<Placements>| {
                let placements = placements.as_ref().unwrap_or(&self.current);
                placements.nodes(partition).to_vec()
            };
            let (old, new) = match stage {
                FormerStage::Waiting => (of(&None), Vec::new()),
                FormerStage::Done => (of(&self.target), Vec::new()),
                _ => (of(&None), of(&self.target)),
            };
            let config = Config::assumed(partition, *epoch, stage.stage(), &old, &new)
                .map_err(|_| MalformedTopology("a move that no stages lead through"))?;
            if let (Some(moving), Move::Moving) = (moving, stage.progress()) {
                let known = moving.milestones(&config);
                self.stored.known.insert(partition, known);
            }
            self.stored.configs.push(Arc::new(config));
        }
        Ok(())
    }
}
