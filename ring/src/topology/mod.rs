//! The topology: what the topology group agrees on.
//!
//! A deterministic state machine. [`Topology::apply`] takes a [`Command`] that the
//! group has committed and either changes the topology or refuses and changes
//! nothing; the same commands in the same order give the same topology on every
//! node. It knows no network, clock or disk: times come in commands, the group's
//! log and the nodes' transfers are the server's.
//!
//! Invariants:
//! * The topology's epoch grows by one with every change that a router could see.
//! * A partition's epoch changes exactly when its [`PartitionState`] changes, and
//!   then becomes the topology's new epoch.
//! * A partition moves through its stages in order (see [`Stage`]); each stage is an
//!   epoch of its own, left only when the facts that make it safe were reported.
//! * At most one transition runs at a time; a plan made on an older epoch is refused.

mod command;
mod error;
mod member;
mod routing;
mod stored;
mod transition;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use torc_record::{Epoch, NamespaceId};

pub use command::{Command, Fact, Founding, Outcome, Proposal, Report, Sizes};
pub use error::TopologyError;
pub use member::{ClusterId, Incarnation, Member, MemberState, NewMember};
pub use routing::{PartitionState, RoutingTable, Stage};
pub use stored::MalformedTopology;
pub use transition::{Move, MoveStage, Transition, TransitionKind};

use crate::{Change, NodeId, Partition, Partitions, Placement, Ring, TransitionPlan};

use stored::Stored;

/// Most members a cluster may have: their slots fit a ballot.
pub const MAX_MEMBERS: usize = 1 << 12;

/// The agreed state of a cluster: members, ring, epochs and the running transition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Topology {
    stored: Stored,
    /// Derived from the ring; never stored.
    current: Placement,
    /// Derived from the transition's target ring; never stored.
    target: Option<Placement>,
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

    /// The partitions, fixed when the cluster was created.
    #[must_use]
    pub fn partitions(&self) -> Partitions {
        self.stored.partitions
    }

    /// Members by id, joining and leaving ones included.
    #[must_use]
    pub fn members(&self) -> &BTreeMap<NodeId, Member> {
        &self.stored.members
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

    /// The transition that runs.
    #[must_use]
    pub fn transition(&self) -> Option<&Transition> {
        self.stored.transition.as_ref()
    }

    /// The transition that ended last.
    #[must_use]
    pub fn last_transition(&self) -> Option<&Transition> {
        self.stored.last_transition.as_ref()
    }

    /// State of one partition: stage, lead, preference lists.
    #[must_use]
    pub fn state(&self, partition: Partition) -> PartitionState {
        let index = partition.0 as usize;
        let epoch = self.stored.epochs[index];
        let stage = self
            .move_of(partition)
            .map_or(MoveStage::Waiting, |m| m.stage);
        PartitionState::new(epoch, stage, &self.current, self.target.as_ref(), partition)
    }

    /// What nodes and clients route by.
    #[must_use]
    pub fn routing(&self) -> RoutingTable {
        let stored = &self.stored;
        RoutingTable {
            cluster: stored.cluster,
            digest_key: stored.digest_key,
            epoch: stored.epoch,
            partitions: stored.partitions,
            replicas: stored.replicas,
            members: stored.members.clone(),
            ring: stored.ring.clone(),
            states: stored
                .partitions
                .iter()
                .map(|partition| self.state(partition))
                .collect(),
            namespaces: stored.namespaces.clone(),
        }
    }

    fn move_of(&self, partition: Partition) -> Option<&Move> {
        self.stored
            .transition
            .as_ref()
            .and_then(|t| t.moves.get(&partition))
    }
}

/// Commands.
impl Topology {
    /// The first topology of a new cluster, epoch 1, its members sharing the ring.
    ///
    /// # Errors
    /// [`TopologyError`] when the settings are out of range or no ring fits.
    pub fn found(founding: Founding) -> Result<Self, TopologyError> {
        founding.check()?;
        let count = founding.partitions.count() as usize;
        let mut stored = Stored {
            cluster: founding.cluster,
            digest_key: founding.digest_key,
            partitions: founding.partitions,
            replicas: founding.replicas,
            positions: founding.positions,
            epoch: Epoch(1),
            next_node: 1,
            members: BTreeMap::new(),
            namespaces: BTreeMap::from([("default".to_owned(), NamespaceId::DEFAULT)]),
            ring: Ring::default(),
            epochs: vec![Epoch(1); count],
            transition: None,
            last_transition: None,
        };
        for member in founding.members {
            let id = stored.admit(member, MemberState::Active)?;
            stored.ring = stored.allocate(Change::Join(id))?;
        }
        Ok(Self::over(stored))
    }

    /// Applies a committed command. An error means that nothing changed.
    ///
    /// # Errors
    /// [`TopologyError`], the same on every node.
    pub fn apply(&mut self, command: Command) -> Result<Outcome, TopologyError> {
        match command {
            Command::Found(_) => Err(TopologyError::AlreadyFounded),
            Command::Enrol(member) => self.enrol(member),
            Command::Relocate {
                node,
                address,
                http_address,
            } => self.relocate(node, address, http_address),
            Command::Begin(proposal) => self.begin(&proposal),
            Command::Report { node, reports } => Ok(self.report(node, &reports)),
            Command::Retreat { node } => Ok(self.retreat(node)),
        }
    }

    /// What a change would move: exactly what [`Command::Begin`] will do when
    /// it is committed at this epoch.
    ///
    /// # Errors
    /// [`TopologyError`] when the change is not possible now.
    pub fn plan(&self, change: &TransitionKind) -> Result<TransitionPlan, TopologyError> {
        let target = self.target_ring(change)?;
        let after = self.stored.placement(&target);
        Ok(TransitionPlan::between(&self.current, &after))
    }

    fn enrol(&mut self, new: NewMember) -> Result<Outcome, TopologyError> {
        new.check()?;
        if let Some((node, member)) = self.member_by_incarnation(new.incarnation) {
            return Ok(Outcome::Enrolled {
                node,
                slot: member.slot,
            });
        }
        if self
            .stored
            .members
            .values()
            .any(|m| m.identity.address == new.address)
        {
            return Err(TopologyError::AddressTaken {
                address: new.address,
            });
        }
        let node = self.stored.admit(new, MemberState::Joining)?;
        self.advance_epoch();
        let slot = self.stored.members[&node].slot;
        Ok(Outcome::Enrolled { node, slot })
    }

    fn relocate(
        &mut self,
        node: NodeId,
        address: String,
        http_address: String,
    ) -> Result<Outcome, TopologyError> {
        let taken = |(id, m): (&NodeId, &Member)| *id != node && m.identity.address == address;
        if self.stored.members.iter().any(taken) {
            return Err(TopologyError::AddressTaken { address });
        }
        let member = self
            .stored
            .members
            .get_mut(&node)
            .ok_or(TopologyError::UnknownNode { node })?;
        if member.identity.address != address || member.identity.http_address != http_address {
            member.identity.address = address;
            member.identity.http_address = http_address;
            self.advance_epoch();
        }
        Ok(Outcome::Done)
    }

    fn begin(&mut self, proposal: &Proposal) -> Result<Outcome, TopologyError> {
        if let Some(running) = &self.stored.transition
            && running.kind == proposal.kind
        {
            return Ok(Outcome::Begun {
                transition: running.id,
            });
        }
        if proposal.based_on != self.stored.epoch {
            let current = self.stored.epoch;
            return Err(TopologyError::StalePlan {
                based_on: proposal.based_on,
                current,
            });
        }
        let target = self.target_ring(&proposal.kind)?;
        let after = self.stored.placement(&target);
        let plan = TransitionPlan::between(&self.current, &after);
        if let TransitionKind::Leave(node) = proposal.kind
            && let Some(member) = self.stored.members.get_mut(&node)
        {
            member.state = MemberState::Leaving;
        }
        let epoch = self.advance_epoch();
        self.stored.transition = Some(Transition::new(epoch.0, proposal, target, &plan));
        self.target = Some(after);
        self.activate_moves();
        self.finish_if_done(proposal.at_ms);
        Ok(Outcome::Begun {
            transition: epoch.0,
        })
    }

    fn report(&mut self, node: NodeId, reports: &[Report]) -> Outcome {
        let Some(transition) = &mut self.stored.transition else {
            return Outcome::Done;
        };
        let mut advanced = Vec::new();
        let mut at_ms = 0;
        for report in reports {
            let index = report.partition.0 as usize;
            if self.stored.epochs.get(index) != Some(&report.epoch) {
                continue;
            }
            let Some(moving) = transition.moves.get_mut(&report.partition) else {
                continue;
            };
            at_ms = at_ms.max(report.at_ms);
            transition.moved += moving.record(node, report.fact);
            if moving.advance(self.current.nodes(report.partition)) {
                advanced.push(report.partition);
            }
        }
        if !advanced.is_empty() {
            let epoch = self.advance_epoch();
            for partition in advanced {
                self.stored.epochs[partition.0 as usize] = epoch;
            }
            self.activate_moves();
            self.finish_if_done(at_ms);
        }
        Outcome::Done
    }

    /// Takes the moves towards an unreachable newcomer back to the copying stage,
    /// one epoch on, so that writes no longer wait for it.
    fn retreat(&mut self, node: NodeId) -> Outcome {
        let Some(transition) = &mut self.stored.transition else {
            return Outcome::Done;
        };
        let mut retreated = Vec::new();
        for (partition, moving) in &mut transition.moves {
            let gained = moving.gained.contains(&node);
            if gained && moving.stage == MoveStage::WriteBothReadOld {
                moving.enter(MoveStage::Copying);
                retreated.push(*partition);
            }
        }
        if !retreated.is_empty() {
            let epoch = self.advance_epoch();
            for partition in retreated {
                self.stored.epochs[partition.0 as usize] = epoch;
            }
        }
        Outcome::Done
    }
}

/// Steps that commands are made of.
impl Topology {
    fn advance_epoch(&mut self) -> Epoch {
        self.stored.epoch.0 += 1;
        self.stored.epoch
    }

    /// Starts waiting moves until as many are active as the transition allows.
    fn activate_moves(&mut self) {
        let epoch = self.stored.epoch;
        if let Some(transition) = &mut self.stored.transition {
            for partition in transition.activate() {
                self.stored.epochs[partition.0 as usize] = epoch;
            }
        }
    }

    /// Ends the transition once every move is done: the target ring becomes the ring.
    fn finish_if_done(&mut self, at_ms: u64) {
        if !self
            .stored
            .transition
            .as_ref()
            .is_some_and(Transition::is_done)
        {
            return;
        }
        let before: Vec<_> = self
            .stored
            .partitions
            .iter()
            .map(|p| self.state(p))
            .collect();
        let Some(mut transition) = self.stored.transition.take() else {
            return;
        };
        let Some(target) = self.target.take() else {
            return;
        };
        self.current = target;
        self.stored.ring = transition.target.clone();
        match transition.kind {
            TransitionKind::Join(node) => {
                if let Some(member) = self.stored.members.get_mut(&node) {
                    member.state = MemberState::Active;
                }
            }
            TransitionKind::Leave(node) => {
                self.stored.members.remove(&node);
            }
        }
        transition.end(at_ms);
        self.stored.last_transition = Some(transition);
        let epoch = self.stored.epoch;
        for (partition, before) in self.stored.partitions.iter().zip(before) {
            if !self.state(partition).same_placement(&before) {
                self.stored.epochs[partition.0 as usize] = epoch;
            }
        }
    }

    fn target_ring(&self, kind: &TransitionKind) -> Result<Ring, TopologyError> {
        if let Some(running) = &self.stored.transition {
            return Err(TopologyError::Busy {
                transition: running.id,
            });
        }
        let node = kind.node();
        let member = self
            .stored
            .members
            .get(&node)
            .ok_or(TopologyError::UnknownNode { node })?;
        match (kind, member.state) {
            (TransitionKind::Leave(_), MemberState::Active) => {
                let active = self.active().count();
                if active <= usize::from(self.stored.replicas) {
                    let replicas = self.stored.replicas;
                    return Err(TopologyError::TooFewNodes { active, replicas });
                }
            }
            (TransitionKind::Join(_) | TransitionKind::Leave(_), MemberState::Joining) => {}
            (_, state) => return Err(TopologyError::WrongState { node, state }),
        }
        if matches!(kind, TransitionKind::Leave(_)) && member.state == MemberState::Joining {
            return Ok(self.stored.ring.clone());
        }
        self.stored.allocate(kind.change()).map_err(Into::into)
    }

    fn active(&self) -> impl Iterator<Item = &Member> {
        self.stored
            .members
            .values()
            .filter(|member| member.state == MemberState::Active)
    }
}

#[cfg(test)]
mod tests;
