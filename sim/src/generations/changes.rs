//! What administrators and faults change: generations, members, nodes that are lost for good.

use torc_record::NamespaceId;
use torc_ring::NodeId;
use torc_ring::topology::{
    Arcs, Command, GenerationContent, GenerationShape, GenerationState, Outcome, Proposal, Sizes,
    TransitionKind,
};

use super::nodes::Node;
use super::{Broken, NAME, World, has_key, member};

impl World {
    /// Reserves, builds and attaches a generation, or attaches a rolled-back one again.
    pub(super) fn build(&mut self) {
        let back = self.any_generation().filter(|(number, _)| {
            let state = self.group.generation(*number).map(|it| it.state);
            state == Some(GenerationState::RolledBack)
        });
        let number = if let Some((number, _)) = back {
            number
        } else {
            let reserve = Command::ReserveGeneration {
                namespace: NAME.to_owned(),
                merge: false,
                at_ms: 1,
                digests: None,
            };
            let Some(Outcome::Reserved { number }) = self.commit(reserve) else {
                return;
            };
            number
        };
        let Some(id) = self.group.generation(number).map(|it| it.id) else {
            return;
        };
        let partitions = self.group.partitions();
        let some = partitions.iter().filter(|it| has_key(id, *it));
        let content = GenerationContent {
            manifest: [number as u8; 32],
            source: String::new(),
            records: 1,
            bytes: 1,
            arcs: Arcs::of(partitions, some),
            shape: GenerationShape::Values,
        };
        self.sources.insert(id);
        self.commit(Command::AttachGeneration { number, content });
    }

    pub(super) fn promote(&mut self) {
        let Some((number, id)) = self.any_generation() else {
            return;
        };
        let was = self.group.current_generation(NAME).map(|it| it.id);
        let promoted = self.commit(Command::PromoteGeneration { number });
        if promoted.is_some() && was != Some(id) {
            self.switched.push(id);
            self.check_held(id);
        }
    }

    pub(super) fn check_held(&mut self, id: NamespaceId) {
        for state in &self.group.routing().states {
            let partition = state.config.partition;
            let lacks = |node: &&NodeId| {
                let node = self.nodes.get(node);
                node.is_some_and(|node| !node.slices.contains(&(partition, id)))
            };
            if let Some(node) = state
                .nodes
                .iter()
                .find(lacks)
                .filter(|_| has_key(id, partition))
            {
                self.fail(format!(
                    "node {node} lacks {partition} of a promoted generation"
                ));
            }
        }
    }

    pub(super) fn roll_back(&mut self) {
        let namespace = NAME.to_owned();
        if self.commit(Command::RollBack { namespace }).is_some()
            && let Some(current) = self.group.current_generation(NAME)
        {
            self.switched.push(current.id);
        }
    }

    /// The administrator learns that no member answers from an older generation any more.
    pub(super) fn note_returned(&mut self) {
        let is_heard = self.group.unconfirmed(NAME).is_empty();
        let all = self.switched.len() as u64;
        if (is_heard || self.is_broken(Broken::ReturnsAtOnce)) && self.returned < all {
            self.summary.switches += all - self.returned;
            self.returned = all;
        }
    }

    /// Deletes a build directory once nodes hold the generation.
    pub(super) fn lose_source(&mut self) {
        if !self.group.written_off().is_empty() {
            return;
        }
        let ready = self
            .group
            .generations()
            .find(|it| it.is_held() && self.group.not_ready(it).is_empty());
        if let Some(id) = ready.map(|it| it.id) {
            self.sources.remove(&id);
        }
    }

    pub(super) fn change_members(&mut self) {
        if self.group.transition().is_some() || self.remove_lost() {
            return;
        }
        let active: Vec<_> = self.group.members().keys().copied().collect();
        let kind = if active.len() < 5 && self.rng.chance(600) {
            let enrol = Command::Enrol(member(self.next_member));
            let Some(Outcome::Enrolled { node, .. }) = self.commit(enrol) else {
                return;
            };
            self.next_member = self.next_member.wrapping_add(1);
            self.nodes.insert(node, Node::by(&self.group));
            TransitionKind::Join(node)
        } else {
            match self.rng.pick(&active) {
                Some(node) => TransitionKind::Leave(node),
                None => return,
            }
        };
        self.begin(kind, false);
    }

    pub(super) fn begin(&mut self, kind: TransitionKind, force: bool) {
        let proposal = Proposal {
            kind,
            based_on: self.group.epoch(),
            parallel: 2,
            planned: Sizes::default(),
            at_ms: 1,
            force,
        };
        self.commit(Command::Begin(proposal));
    }

    /// Removes a node that was written off. Returns whether there is one.
    pub(super) fn remove_lost(&mut self) -> bool {
        let lost = self.group.written_off().first().copied();
        if let Some(node) = lost {
            self.begin(TransitionKind::Leave(node), true);
        }
        lost.is_some()
    }

    /// A node is lost for good and written off, unless a slice would be lost with it, or a move could
    /// only go there.
    pub(super) fn lose_node(&mut self) {
        let Some(node) = self.any_node() else {
            return;
        };
        let is_safe = self.nodes[&node].slices.iter().all(|(_, id)| {
            self.sources.contains(id) || self.group.generation(id.number()).is_none()
        });
        if is_safe
            && self.nodes.len() > 2
            && self.group.transition().is_none()
            && self.group.written_off().is_empty()
            && self.commit(Command::WriteOff { node, at_ms: 1 }).is_some()
        {
            self.nodes.remove(&node);
        }
    }
}
