//! The topology, on which the topology group agrees.
//!
//! A deterministic state machine. [`Topology::apply`] takes a [`Command`] that the
//! group has committed and either changes the topology or refuses and changes
//! nothing; the same commands in the same order give the same topology on every
//! node. It knows no network, clock or disk: times come in commands, the group's
//! log and the nodes' transfers are the server's.
//!
//! Invariants:
//! * The topology's epoch grows with every change that a router could see.
//! * A partition's epoch changes exactly when its [`Config`] changes, by one of the steps
//!   that the simulation proved (see [`crate::replicas`]), and then becomes the topology's
//!   new epoch. Another order of the same nodes, or another lead among them, makes no epoch.
//! * While nothing moves, the replicas of a partition are the nodes that the ring places
//!   it on, or the survivors of these if some were written off; its preference list and lead
//!   are always derived, never stored.
//! * At most one transition runs at a time; a plan made on an older epoch is refused.
//! * Node ids, slots and namespace ids are assigned only once.

mod alter;
mod bearer;
mod change;
mod command;
mod creation;
mod error;
mod feature;
mod generation;
mod holders;
mod ids;
mod layers;
mod member;
mod members;
mod merge;
mod namespace;
mod namespaces;
mod outcome;
mod read_generations;
mod release;
mod role;
mod rotation;
mod routing;
mod states;
mod stored;
mod summary;
mod transition;
mod writeoff;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use torc_record::NamespaceId;

pub use crate::replicas::Stage;
pub use bearer::{
    Bearer, BearerToken, Grants, JoinUses, KeyDigest, MAX_JOIN_USES, MAX_SCOPE_PREFIX_LEN,
    MAX_SCOPES, Scope, ScopeError, SecretHash,
};
pub use command::{Command, Founding, Report};
pub use error::TopologyError;
pub use generation::{
    Arcs, Counts, Creation, Generation, GenerationContent, GenerationShape, GenerationState, Switch,
};
pub use holders::{Holder, Holders};
pub use ids::{BearerId, Boot, ClusterId, Incarnation, MalformedBearer};
pub use layers::Layers;
pub use member::{Member, NewMember};
pub use namespace::{
    Namespace, NamespaceMode, NewNamespace, dropped_name, is_dropped_name, is_hidden_name,
    is_new_name,
};
pub use outcome::Outcome;
pub use read_generations::ReadGenerations;
pub use release::{Levels, Release};
pub use role::{Role, Roles, UnknownRole};
pub use rotation::{Authorities, MAX_AUTHORITY_LEN};
pub use routing::{PartitionState, RoutingTable};
pub use states::{MemberState, RotationStep};
pub use stored::MalformedTopology;
pub use summary::{MovingPartition, NodeSummary, Position, RingSummary, Stages};
pub use torc_record::Epoch;
pub use transition::{Move, Proposal, Sizes, Transition, TransitionKind};
pub use writeoff::Losses;

use crate::replicas::{Config, Votes};
use crate::{NodeId, Partition, Partitions, PreferenceList, Ring, TransitionPlan};

use layers::Placements;
use stored::{Stored, is_in, lacks_only};

/// Most members a cluster may have.
pub const MAX_MEMBERS: usize = 1 << 12;

/// Most namespaces of a cluster.
pub const MAX_NAMESPACES: usize = 1_000;
/// Most generations that are not dropped, of all namespaces.
pub const MAX_GENERATIONS: usize = 256;
/// Most bearer tokens of a cluster.
pub const MAX_BEARER_TOKENS: usize = 1 << 12;

/// Commands whose outcomes are remembered. A node repeats a command for a minute at most.
const MAX_RECENT: usize = 128;

/// The agreed state of a cluster: members, ring, configurations and the running transition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Topology {
    stored: Stored,
    /// Derived from the ring; never stored.
    current: Placements,
    /// Derived from the transition's kind and target ring; never stored.
    target: Option<Placements>,
}

/// Getters.
impl Topology {
    /// The cluster's name for itself.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.stored.cluster
    }

    /// Number of the committed topology.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.stored.epoch
    }

    /// The ring positions of a node of normal weight, fixed when the cluster was created.
    #[must_use]
    pub fn positions(&self) -> u16 {
        self.stored.positions
    }

    /// The partitions of each layer, fixed when the cluster was created.
    #[must_use]
    pub fn partitions(&self) -> Partitions {
        self.stored.partitions
    }

    /// Every partition of the layers in use, in the order of their numbers.
    pub fn partitions_in_use(&self) -> impl Iterator<Item = Partition> + use<> {
        self.stored.layers.partitions(self.stored.partitions)
    }

    /// Members by id, joining and leaving ones included.
    #[must_use]
    pub fn members(&self) -> &BTreeMap<NodeId, Member> {
        &self.stored.members
    }

    /// Whether this id was ever given to a node, which may have left since.
    #[must_use]
    pub fn has_assigned(&self, node: NodeId) -> bool {
        node.0 < self.stored.next_node
    }

    /// The member whose data directory has this incarnation.
    #[must_use]
    pub fn member_by_incarnation(&self, incarnation: Incarnation) -> Option<(NodeId, &Member)> {
        self.stored
            .members
            .iter()
            .find(|(_, member)| member.identity.incarnation == incarnation)
            .map(|(id, member)| (*id, member))
    }

    /// The last confirmed start of a member.
    #[must_use]
    pub fn boot(&self, node: NodeId) -> Option<Boot> {
        self.stored.boots.get(&node).copied()
    }

    /// The running transition.
    #[must_use]
    pub fn transition(&self) -> Option<&Transition> {
        self.stored.transition.as_ref()
    }

    /// The transition that ended last.
    #[must_use]
    pub fn last_transition(&self) -> Option<&Transition> {
        self.stored.last_transition.as_ref()
    }

    /// The replicas of one partition; `None` if the partition is not in use.
    #[must_use]
    pub fn config(&self, partition: Partition) -> Option<&Arc<Config>> {
        let layers = self.stored.layers;
        let at = layers.index(self.stored.partitions, partition)?;
        self.stored.configs.get(at)
    }

    /// State of one partition: stage, lead, preference lists; `None` if the partition is
    /// not in use.
    #[must_use]
    pub fn state(&self, partition: Partition) -> Option<PartitionState> {
        self.config(partition).map(|config| self.state_of(config))
    }

    fn state_of(&self, config: &Arc<Config>) -> PartitionState {
        let (config, partition) = (Arc::clone(config), config.partition);
        let reordered = self.stored.reordered.get(&partition);
        let list = |set| self.in_order(&config, set);
        PartitionState {
            changed: reordered.map_or(config.epoch, |at| config.epoch.max(*at)),
            lead: self.lead(&config),
            nodes: list(config.old),
            next: (!config.new.is_empty()).then(|| list(config.new)),
            config,
        }
    }

    /// Whether former replicas may delete their data of a partition: it is stable, and
    /// a majority of its replicas has adopted that.
    #[must_use]
    pub fn may_discard(&self, partition: Partition) -> bool {
        let config = self.config(partition);
        let stable = config.is_some_and(|config| config.stage == Stage::Stable);
        stable && !self.stored.known.contains_key(&partition)
    }

    /// Newcomers, and nodes that stay in a shrinking set, that writes to some partition need: if
    /// one of them does not answer, use [`Command::Retreat`].
    #[must_use]
    pub fn awaited_copiers(&self) -> BTreeSet<NodeId> {
        let awaited = |(_, config): (Partition, Arc<Config>)| {
            let copiers: Vec<_> = config.nodes(config.copiers()).collect();
            copiers
                .into_iter()
                .filter(move |node| config.waits_for(*node))
        };
        self.moving().flat_map(awaited).collect()
    }

    /// The routing table for nodes and clients.
    #[must_use]
    pub fn routing(&self) -> RoutingTable {
        let stored = &self.stored;
        RoutingTable {
            cluster: stored.cluster,
            digest_key: stored.digest_key,
            epoch: stored.epoch,
            feature_level: stored.feature_level,
            partitions: stored.partitions,
            layers: stored.layers,
            members: stored.members.clone(),
            ring: stored.ring.clone(),
            states: self.states(),
            namespaces: self.routed_namespaces(),
            generations: self.held_generations(),
            restored: self.restored_digests(),
            authorities: self
                .authorities()
                .map_or_else(Vec::new, |it| it.trusted.clone()),
        }
    }

    fn routed_namespaces(&self) -> BTreeMap<String, Namespace> {
        let all = self.stored.namespaces.iter();
        all.map(|(name, it)| (name.clone(), self.as_routed(name, *it)))
            .collect()
    }

    /// Of every partition in use.
    fn states(&self) -> Vec<PartitionState> {
        let configs = self.stored.configs.iter();
        configs.map(|config| self.state_of(config)).collect()
    }

    /// The nodes of a set in the order of the ring that placed them.
    fn in_order(&self, config: &Config, set: Votes) -> PreferenceList {
        match self.placed(config, set) {
            Some(placement) => {
                let list = placement.list(config.partition);
                if list.len() == set.count() as usize {
                    return list;
                }
                let present = list.iter().filter(|node| is_in(config, set, **node));
                present.copied().collect::<Vec<_>>().into()
            }
            None => config.nodes(set).collect::<Vec<_>>().into(),
        }
    }

    fn placed(&self, config: &Config, set: Votes) -> Option<&Placements> {
        let mut placements = std::iter::once(&self.current).chain(&self.target);
        placements.find(|placement| self.gives(placement, config, set))
    }

    /// Whether a set equals the ring's nodes for a partition, except nodes declared dead or
    /// excluded: a partition continues without the former and keeps the latter.
    fn gives(&self, placement: &Placements, config: &Config, set: Votes) -> bool {
        let nodes = placement.nodes(config.partition);
        lacks_only(nodes, config, set, |node| self.may_lack(*node))
    }

    /// Whether a node was declared dead or excluded.
    fn may_lack(&self, node: NodeId) -> bool {
        let excluded = self.stored.transition.as_ref().map(|t| &t.dead);
        self.stored.dead.contains(&node) || excluded.is_some_and(|it| it.contains(&node))
    }

    /// The ring's lead, if it counts and was not written off; else the first such node.
    fn lead(&self, config: &Config) -> NodeId {
        let readers = config.readers();
        let counts = |node: &NodeId| is_in(config, readers.without(config.excluded), *node);
        let lives = |node: &NodeId| counts(node) && !self.stored.dead.contains(node);
        let placed = self.placed(config, readers);
        let lead = placed.and_then(|placement| placement.lead(config.partition));
        let another = || {
            let nodes = self.in_order(config, readers);
            let first = nodes.iter().find(|node| lives(node));
            first
                .or_else(|| nodes.iter().find(|node| counts(node)))
                .copied()
        };
        // A set has a majority that counts, so there is one; 0 is no node's id.
        lead.filter(lives).or_else(another).unwrap_or(NodeId(0))
    }
}

/// Commands.
impl Topology {
    /// The first topology of a new cluster, epoch 1, whose members share the ring.
    ///
    /// # Errors
    /// [`TopologyError`] when the settings are out of range or no ring fits.
    pub fn found(founding: Founding) -> Result<Self, TopologyError> {
        founding.check()?;
        let default = Namespace {
            id: NamespaceId::DEFAULT,
            mode: NamespaceMode::Linearizable,
            replicas: founding.replicas,
        };
        let levels = founding.members.iter().map(|it| it.release.levels.newest);
        let feature_level = levels.min().unwrap_or(Levels::OURS.newest);
        let mut members = founding.members.iter();
        members.try_for_each(|member| member.check_works_at(feature_level))?;
        let mut stored = Stored {
            version: stored::VERSION,
            cluster: founding.cluster,
            digest_key: founding.digest_key,
            partitions: founding.partitions,
            layers: Layers::base(founding.replicas),
            positions: founding.positions,
            epoch: Epoch(1),
            feature_level,
            next_node: 1,
            next_namespace: NamespaceId::DEFAULT.0 + 1,
            next_generation: 0,
            members: BTreeMap::new(),
            boots: BTreeMap::new(),
            namespaces: BTreeMap::from([("default".to_owned(), default)]),
            generations: BTreeMap::new(),
            sweeps: BTreeMap::new(),
            swept_since: Epoch::default(),
            switches: BTreeMap::new(),
            bearer_tokens: BTreeMap::new(),
            authorities: None,
            ring: Ring::default(),
            configs: Vec::new(),
            known: BTreeMap::new(),
            reordered: BTreeMap::new(),
            dead: BTreeSet::new(),
            transition: None,
            last_transition: None,
            recent: VecDeque::new(),
        };
        for member in founding.members {
            let id = stored.admit(member, MemberState::Active)?;
            stored.ring = stored.allocate(&TransitionKind::Join(id))?;
        }
        let placements = stored.placements(&stored.ring);
        let founded = |p| Arc::new(Config::founded(p, Epoch(1), placements.nodes(p)));
        stored.configs = stored.partitions.iter().map(founded).collect();
        Ok(Self::over(stored))
    }

    /// Applies a committed command. An error means that nothing changed.
    ///
    /// # Errors
    /// [`TopologyError`], the same on every node.
    pub fn apply(&mut self, command: Command) -> Result<Outcome, TopologyError> {
        command.check()?;
        match command {
            Command::Found(_) => Err(TopologyError::AlreadyFounded),
            Command::Enrol(member) => self.enrol(member),
            Command::Relocate {
                node,
                address,
                peer_address,
                http_address,
            } => self.relocate(node, address, peer_address, http_address),
            Command::Booted {
                node,
                incarnation,
                boot,
                release,
            } => self.booted(node, incarnation, boot, release),
            Command::Begin(proposal) => self.begin(&proposal),
            Command::Report { node, reports } => Ok(self.report(node, &reports)),
            Command::Retreat { node } => Ok(self.retreat(node)),
            Command::Exclude { node } => self.exclude(node),
            Command::WriteOff { node, at_ms } => self.write_off(node, at_ms),
            Command::Abort { transition, at_ms } => self.abort(transition, at_ms),
            Command::CreateNamespace(new) => self.create_namespace(new),
            Command::DropNamespace { name } => self.drop_namespace(&name),
            Command::Swept {
                node,
                namespace,
                epoch,
            } => Ok(self.swept(node, namespace, epoch)),
            Command::ReserveGeneration {
                namespace,
                merge: true,
                at_ms: _,
                digests: _,
            } => self.reserve_merge(namespace),
            Command::ReserveGeneration {
                namespace,
                merge: false,
                at_ms,
                digests,
            } => self.reserve_generation(namespace, digests, at_ms),
            Command::ReserveNamespace {
                new,
                above,
                replaces,
            } => self.reserve_namespace(&new, above, replaces),
            Command::AttachGeneration { number, content } => {
                self.attach_generation(number, content)
            }
            Command::HoldsGeneration {
                node,
                number,
                epoch,
            } => Ok(self.holds_generation(node, number, epoch)),
            Command::PromoteGeneration { number } => self.promote_generation(number),
            Command::RollBack { namespace } => self.roll_back(&namespace),
            Command::DropGeneration { number } => self.drop_generation(number),
            Command::RaiseEpoch { namespace, above } => self.raise_epoch(&namespace, above),
            Command::Adopted { node, epoch } => Ok(self.told_of_switches(node, epoch)),
            Command::StopWaiting { namespace } => Ok(self.stop_waiting(&namespace)),
            Command::CreateBearerToken { id, token } => self.create_bearer_token(id, token),
            Command::UseJoinToken {
                id,
                hash,
                by,
                at_ms,
            } => self.use_join_token(id, hash, by, at_ms),
            Command::RevokeBearerToken { id } => Ok(self.revoke_bearer_token(id)),
            Command::BeginRotation { old, new } => self.begin_rotation(old, new),
            Command::Rotate { rotation, to } => self.rotate(rotation, to),
            Command::AbortRotation { rotation } => self.abort_rotation(rotation),
            Command::RotationDone {
                node,
                rotation,
                step,
            } => Ok(self.rotation_done(node, rotation, step)),
            Command::Once { request, command } => self.once(request, *command),
        }
    }

    /// Applies a command, unless it was applied before.
    fn once(&mut self, request: u64, command: Command) -> Result<Outcome, TopologyError> {
        let mut recent = self.stored.recent.iter();
        if let Some((_, outcome)) = recent.find(|(known, _)| *known == request) {
            return Ok(outcome.clone());
        }
        let outcome = self.apply(command)?;
        if self.stored.recent.len() >= MAX_RECENT {
            self.stored.recent.pop_front();
        }
        self.stored.recent.push_back((request, outcome.clone()));
        Ok(outcome)
    }

    /// Plans a change: exactly what [`Command::Begin`] will do if it is committed at
    /// this epoch.
    ///
    /// # Errors
    /// [`TopologyError`] if the change is not possible now, or not without `force`.
    pub fn plan(
        &self,
        change: &TransitionKind,
        force: bool,
    ) -> Result<TransitionPlan, TopologyError> {
        let target = self.target_ring(change, force)?;
        let after = self.stored.placements_after(&target, change);
        Ok(self.current.plan_to(&after))
    }
}

#[cfg(test)]
mod alter_tests;
#[cfg(test)]
mod bearer_tests;
#[cfg(test)]
mod creation_tests;
#[cfg(test)]
mod drop_tests;
#[cfg(test)]
mod feature_tests;
#[cfg(test)]
mod generation_tests;
#[cfg(test)]
mod layer_tests;
#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod replica_tests;
#[cfg(test)]
mod rotation_tests;
#[cfg(test)]
mod tests;
