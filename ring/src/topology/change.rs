//! Starts transitions, advances their stages, retreats, aborts and ends them.
//!
//! One command advances any number of partitions, all to one epoch. [`Config`] decides
//! whether a step is allowed; this module, which step comes next.

use std::collections::BTreeSet;
use std::sync::Arc;

use torc_record::{Epoch, Layer};

use super::stored::{is_in, lacks_only};
use super::{
    MemberState, Move, Outcome, PartitionState, Proposal, Report, Topology, TopologyError,
    Transition, TransitionKind,
};
use crate::replicas::{Config, Milestones, MoveError, Mutations, Stage};
use crate::{NodeId, Partition, Ring};

/// Commands.
impl Topology {
    pub(super) fn begin(&mut self, proposal: &Proposal) -> Result<Outcome, TopologyError> {
        let kind = proposal.kind;
        if let Some(running) = &self.stored.transition
            && running.kind == kind
            && !running.aborted
        {
            return Ok(Outcome::Begun {
                transition: running.id,
            });
        }
        if proposal.based_on != self.stored.epoch {
            return Err(TopologyError::StalePlan {
                based_on: proposal.based_on,
                current: self.stored.epoch,
            });
        }
        let target = self.target_ring(&kind, proposal.force)?;
        let after = self.stored.placements_after(&target, &kind);
        let plan = self.current.plan_to(&after);
        if let Some(node) = kind.removes() {
            self.stored.set_state(node, MemberState::Leaving);
        }
        let epoch = self.advance_epoch();
        let mut transition = Transition::new(epoch.0, proposal, target, &plan);
        let removed = kind.removes();
        transition.dead = removed
            .filter(|it| self.stored.dead.contains(it))
            .into_iter()
            .collect();
        let altered = kind.alters().map(|layer| self.namespaces_in(layer));
        transition.namespaces = altered.unwrap_or_default();
        self.stored.transition = Some(transition);
        self.target = Some(after);
        self.begin_due_moves();
        self.finish_if_done(proposal.at_ms);
        Ok(Outcome::Begun {
            transition: epoch.0,
        })
    }

    pub(super) fn report(&mut self, node: NodeId, reports: &[Report]) -> Outcome {
        let epoch = Epoch(self.stored.epoch.0 + 1);
        let (mut advanced, mut at_ms) = (false, 0);
        for report in reports {
            at_ms = at_ms.max(report.at_ms);
            let Some(config) = self.note(node, report) else {
                continue;
            };
            let known = self.stored.known.get(&report.partition);
            let may_advance = known.is_some_and(|k| k.may_advance(&config, Mutations::NONE));
            if may_advance && let Ok(next) = config.advance(epoch, Mutations::NONE) {
                self.enter(next);
                advanced = true;
            }
        }
        if advanced {
            self.stored.epoch = epoch;
            self.begin_due_moves();
            self.finish_if_done(at_ms);
        }
        Outcome::Done
    }

    /// Returns the moves whose writes need this newcomer to the copying stage: an abort
    /// and a new start, an epoch each.
    pub(super) fn retreat(&mut self, node: NodeId) -> Outcome {
        let back = Epoch(self.stored.epoch.0 + 1);
        let again = Epoch(back.0 + 1);
        let held_up = |(_, config): &(Partition, Arc<Config>)| config.waits_for(node);
        let held_up: Vec<_> = self.moving().filter(held_up).collect();
        let mut retreated = false;
        for (partition, config) in held_up {
            let Ok(stable) = config.abort(back, Mutations::NONE) else {
                continue;
            };
            if let Ok(copying) = self.first_step(partition, &stable, again, None) {
                self.enter(copying);
                retreated = true;
            }
        }
        if retreated {
            self.stored.epoch = again;
        }
        Outcome::Done
    }

    /// Excludes a displaced node from every running move; refuses if no majority is
    /// left without it.
    pub(super) fn exclude(&mut self, node: NodeId) -> Result<Outcome, TopologyError> {
        let running = self.running()?;
        if running.dead.contains(&node) {
            return Ok(Outcome::Done);
        }
        let epoch = Epoch(self.stored.epoch.0 + 1);
        let mut displaced = false;
        let mut excluding = Vec::new();
        for (&partition, at) in &running.moves {
            let Some(config) = self.config(partition) else {
                continue;
            };
            let goes = config.index(node).is_some() && !self.destination(partition).contains(&node);
            let step = match at {
                Move::Moving if goes => config.exclude(epoch, node),
                Move::Waiting if goes => self.first_step(partition, config, epoch, Some(node)),
                Move::Moving | Move::Waiting | Move::Done => continue,
            };
            displaced = true;
            match step {
                Ok(next) if *at == Move::Moving => excluding.push(next),
                // Moves that begin later leave out the node; moves that read the new set end soon;
                // a written-off node is excluded already.
                Ok(_) | Err(MoveError::TooLate | MoveError::NoChange) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !displaced {
            return Err(MoveError::NotDisplaced { node }.into());
        }
        let before = self.states();
        if let Some(transition) = &mut self.stored.transition {
            transition.dead.insert(node);
        }
        self.advance_epoch();
        for next in excluding {
            self.enter(next);
        }
        self.note_reordered(&before);
        Ok(Outcome::Done)
    }

    /// Reverses the transition.
    pub(super) fn abort(&mut self, number: u64, at_ms: u64) -> Result<Outcome, TopologyError> {
        let running = self.running()?;
        if running.id != number {
            return Err(TopologyError::Busy {
                transition: running.id,
            });
        }
        if running.aborted {
            return Ok(Outcome::Done);
        }
        let moves = running.moves.clone();
        let gone = |(partition, at): (&Partition, &Move)| {
            let back = self.current.nodes(*partition).iter();
            let mut dead = back.filter(|node| running.dead.contains(node));
            dead.next().copied().filter(|_| *at == Move::Done)
        };
        if let Some(node) = moves.iter().find_map(gone) {
            return Err(TopologyError::CannotGoBack { node });
        }
        if let Some(transition) = &mut self.stored.transition {
            transition.aborted = true;
        }
        let epoch = self.advance_epoch();
        for (partition, at) in moves {
            let config = self.config(partition);
            if at == Move::Moving
                && let Some(Ok(next)) = config.map(|it| it.abort(epoch, Mutations::NONE))
            {
                self.enter(next);
            }
            // A write-off in the meantime may have left the partition on replicas of neither
            // placement: it then waits for another move.
            match self.config(partition) {
                Some(config) if config.stage != Stage::Stable => {}
                Some(config) if self.is_where_it_was(config) => self.mark(partition, Move::Done),
                _ => self.mark(partition, Move::Waiting),
            }
        }
        let running = self.stored.transition.as_ref();
        if running.is_some_and(|it| !it.due().is_empty()) {
            // A partition that returned in this epoch moves on in a later one.
            self.advance_epoch();
        }
        self.begin_due_moves();
        self.finish_if_done(at_ms);
        Ok(Outcome::Done)
    }
}

/// Parts of commands.
impl Topology {
    /// Whether the partition's replicas are those of the ring before the change, except nodes
    /// declared dead.
    fn is_where_it_was(&self, config: &Config) -> bool {
        let nodes = self.current.nodes(config.partition);
        let may_lack = |node: &NodeId| self.stored.dead.contains(node);
        lacks_only(nodes, config, config.old, may_lack)
    }

    fn running(&self) -> Result<&Transition, TopologyError> {
        let running = self.stored.transition.as_ref();
        running.ok_or(TopologyError::NoTransition)
    }

    pub(super) fn moving(&self) -> impl Iterator<Item = (Partition, Arc<Config>)> + '_ {
        let moves = self.stored.transition.iter().flat_map(|t| &t.moves);
        let moving = moves.filter(|(_, at)| **at == Move::Moving);
        moving.filter_map(|(&partition, _)| {
            let config = Arc::clone(self.config(partition)?);
            Some((partition, config))
        })
    }

    /// The replicas of a partition after its move, without nodes declared dead. If all of them
    /// are dead, it stays on its surviving replicas that stay members.
    pub(super) fn destination(&self, partition: Partition) -> Vec<NodeId> {
        let forward = self.stored.transition.as_ref().filter(|t| !t.aborted);
        let placement = self.target.as_ref().filter(|_| forward.is_some());
        let placed = placement.unwrap_or(&self.current).nodes(partition);
        let living = self.stored.living(placed);
        if !living.is_empty() {
            return living;
        }
        let config = self.config(partition);
        let holders = config.map_or_else(Vec::new, |it| it.nodes(it.old).collect());
        let mut left = self.stored.living(&holders);
        let goes = forward.and_then(|running| running.kind.removes());
        left.retain(|node| Some(*node) != goes);
        if left.is_empty() {
            placed.to_vec()
        } else {
            left
        }
    }

    pub(super) fn mark(&mut self, partition: Partition, at: Move) {
        if let Some(transition) = &mut self.stored.transition {
            transition.set(partition, at);
        }
    }

    /// Puts a configuration in force, and forgets the progress in the previous one.
    pub(super) fn enter(&mut self, mut next: Config) {
        let partition = next.partition;
        let layer = self.stored.partitions.layer(partition);
        next.merging = layer.is_some_and(|layer| self.is_merging(layer));
        self.stored.known.insert(partition, Milestones::default());
        self.stored.reordered.remove(&partition);
        let at = if next.stage == Stage::Stable {
            Move::Done
        } else {
            Move::Moving
        };
        self.mark(partition, at);
        let at = self.stored.layers.index(self.stored.partitions, partition);
        if let Some(config) = at.and_then(|at| self.stored.configs.get_mut(at)) {
            let before = std::mem::replace(config, Arc::new(next));
            self.note_uncopied(&before);
        }
    }

    /// Replicas that serve a partition without having copied it lack its slices of generations.
    fn note_uncopied(&mut self, before: &Config) {
        let partition = before.partition;
        let copied = !matches!(before.stage, Stage::Stable | Stage::Copying);
        let Some(now) = self.config(partition).cloned() else {
            return;
        };
        if copied || now.stage != Stage::Stable {
            return;
        }
        let new = now
            .nodes(now.old)
            .filter(|node| !is_in(before, before.old, *node));
        let new: Vec<NodeId> = new.collect();
        if new.is_empty() {
            return;
        }
        let partitions = self.stored.partitions;
        for generation in self.stored.generations.values_mut() {
            if generation.has_keys_in(partitions, partition) {
                generation.ready.retain(|node| !new.contains(node));
                generation.ready_since = now.epoch;
            }
        }
    }

    /// Records a milestone. Returns its configuration, unless the milestone is void.
    fn note(&mut self, node: NodeId, report: &Report) -> Option<Arc<Config>> {
        let partition = report.partition;
        let config = Arc::clone(self.config(partition)?);
        let known = self.stored.known.get_mut(&partition)?;
        if !known.note(&config, node, report.reached) {
            return None;
        }
        if known.may_discard(&config) {
            self.stored.known.remove(&partition);
        }
        // The staying members of a shrinking set received no data.
        let comes = !config.nodes(config.old).any(|member| member == node);
        if let Some(transition) = &mut self.stored.transition
            && comes
        {
            transition.moved += report.moved;
        }
        Some(config)
    }

    fn first_step(
        &self,
        partition: Partition,
        stable: &Config,
        epoch: Epoch,
        also_dead: Option<NodeId>,
    ) -> Result<Config, MoveError> {
        let to = self.destination(partition);
        let dead = self.stored.transition.iter().flat_map(|t| &t.dead);
        let dead: BTreeSet<_> = dead.chain(&self.stored.dead).chain(&also_dead).collect();
        let goes = |node: &NodeId| stable.index(*node).is_some() && !to.contains(node);
        let dead: Vec<NodeId> = dead.into_iter().copied().filter(goes).collect();
        stable.begin(epoch, &to, &dead)
    }

    /// Starts waiting moves until as many are in flight as the transition allows.
    pub(super) fn begin_due_moves(&mut self) {
        let epoch = self.stored.epoch;
        // A move that completes at once makes room for another.
        let mut some_done = true;
        while some_done {
            some_done = false;
            let due = self.stored.transition.as_ref().map(Transition::due);
            for partition in due.unwrap_or_default() {
                some_done |= self.begin_move(partition, epoch);
            }
        }
    }

    /// Starts a waiting move. Returns whether it is already done.
    fn begin_move(&mut self, partition: Partition, epoch: Epoch) -> bool {
        let Some(stable) = self.config(partition).cloned() else {
            return false;
        };
        match self.first_step(partition, &stable, epoch, None) {
            Ok(copying) => {
                self.enter(copying);
                false
            }
            // The partition's survivors are already its intended replicas.
            Err(MoveError::NoChange) => {
                self.mark(partition, Move::Done);
                true
            }
            // The partition has no survivors.
            Err(MoveError::NoMajority) => {
                let empty = self.go_on(partition, epoch);
                let is_done = empty.is_some();
                if let Some(empty) = empty {
                    self.enter(empty);
                }
                is_done
            }
            Err(_) => false,
        }
    }

    /// Ends the transition once every move is done: the target ring becomes the ring,
    /// unless it was aborted.
    pub(super) fn finish_if_done(&mut self, at_ms: u64) {
        let running = self.stored.transition.as_ref();
        if !running.is_some_and(Transition::is_done) {
            return;
        }
        let before = self.states();
        let (Some(mut transition), Some(target)) =
            (self.stored.transition.take(), self.target.take())
        else {
            return;
        };
        if transition.aborted {
            if let Some(node) = transition.kind.removes() {
                self.stored.set_state(node, MemberState::Active);
            }
        } else {
            self.current = target;
            self.stored.adopt_target(&transition);
        }
        // An abort, too, gives partitions to members that have swept without them.
        self.stored.sweep_anew();
        transition.end(at_ms);
        self.stored.last_transition = Some(transition);
        self.note_reordered(&before);
        // The removed member may have been the last with an older release.
        self.raise_level();
    }

    /// Records partitions whose lead or order of nodes has changed, but not their
    /// configuration.
    pub(super) fn note_reordered(&mut self, before: &[PartitionState]) {
        let epoch = self.stored.epoch;
        for (before, after) in before.iter().zip(self.states()) {
            if !before.same_placement(&after) && before.config.epoch == after.config.epoch {
                self.stored.reordered.insert(after.config.partition, epoch);
            }
        }
    }

    pub(super) fn target_ring(
        &self,
        kind: &TransitionKind,
        force: bool,
    ) -> Result<Ring, TopologyError> {
        if let Some(running) = &self.stored.transition {
            return Err(TopologyError::Busy {
                transition: running.id,
            });
        }
        self.check_not_creating()?;
        let state_of = |node: NodeId| {
            let member = self.stored.members.get(&node);
            member
                .map(|member| member.state)
                .ok_or(TopologyError::UnknownNode { node })
        };
        let expect = |node: NodeId, wanted: MemberState| match state_of(node)? {
            state if state == wanted => Ok(()),
            state => Err(TopologyError::WrongState { node, state }),
        };
        match *kind {
            TransitionKind::Leave(node) if state_of(node)? == MemberState::Joining => {
                return Ok(self.stored.ring.clone());
            }
            TransitionKind::Leave(node) => {
                expect(node, MemberState::Active)?;
                self.check_may_shrink(force)?;
            }
            TransitionKind::Join(node) => expect(node, MemberState::Joining)?,
            TransitionKind::Replace { old, new } => {
                expect(old, MemberState::Active)?;
                expect(new, MemberState::Joining)?;
            }
            TransitionKind::Reweight { node, .. } => expect(node, MemberState::Active)?,
            TransitionKind::Alter { layer, replicas } => self.check_may_alter(layer, replicas)?,
        }
        self.stored.allocate(kind).map_err(Into::into)
    }

    fn check_may_shrink(&self, force: bool) -> Result<(), TopologyError> {
        let namespaces = self.stored.namespaces.values();
        let replicas = namespaces.map(|namespace| namespace.replicas).max();
        let replicas = replicas.unwrap_or(self.replicas_in(Layer::BASE));
        let active = self.stored.active();
        if active <= usize::from(replicas) && !force {
            return Err(TopologyError::TooFewNodes { active, replicas });
        }
        Ok(())
    }

    pub(super) fn advance_epoch(&mut self) -> Epoch {
        self.stored.epoch.0 += 1;
        self.stored.epoch
    }
}
