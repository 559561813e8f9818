//! The topology group: a reliable log of configurations, and an operator who moves
//! replicas.

use std::sync::Arc;

use torc_record::Epoch;
use torc_replication::{Config, Milestone, Milestones, Mutation, Mutations};
use torc_ring::NodeId;
use torc_ring::topology::Stage;

use crate::history::MAX_MERGES;
use crate::node::PARTITION;
use crate::profile::Faults;
use crate::rng::Rng;

/// What the operator knows about the nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Staff {
    /// Nodes that are alive and could join.
    pub(crate) spare: Vec<NodeId>,
    /// Members whose disk is lost.
    pub(crate) lost: Vec<NodeId>,
    /// Whether the run is ending, so that no new moves begin.
    pub(crate) healing: bool,
    /// Whether replicas take the records of a new namespace, so that no moves begin.
    pub(crate) creating: bool,
}

/// The committed topology of the one partition.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) config: Arc<Config>,
    known: Milestones,
    mutations: Mutations,
    pub(crate) moves: u64,
    pub(crate) aborts: u64,
    pub(crate) excluded: u64,
    /// Checks since the last commit.
    looks: u32,
    /// Merges reserved.
    pub(crate) merges: u8,
}

/// A move that has not advanced for this many checks, 1 to 5 ms apart, counts as stuck.
const STANDS_AFTER: u32 = 60;

impl Group {
    pub(crate) fn new(nodes: &[NodeId], mutations: Mutations) -> Self {
        Self {
            config: Arc::new(Config::founded(PARTITION, Epoch(1), nodes)),
            known: Milestones::default(),
            mutations,
            moves: 0,
            aborts: 0,
            excluded: 0,
            looks: 0,
            merges: 0,
        }
    }

    pub(crate) fn note(&mut self, node: NodeId, milestone: Milestone) {
        self.known.note(&self.config, node, milestone);
    }

    pub(crate) fn may_discard(&self) -> bool {
        self.known.may_discard(&self.config)
    }

    /// Commits at most one next configuration; returns whether it did.
    pub(crate) fn step(&mut self, staff: &Staff, faults: &Faults, rng: &mut Rng) -> bool {
        self.looks += 1;
        let next = if self.config.stage == Stage::Stable {
            self.begin(staff, faults, rng)
        } else {
            self.go_on(staff, faults, rng)
        };
        let Some(next) = next else {
            return false;
        };
        self.config = Arc::new(next);
        self.known = Milestones::default();
        self.looks = 0;
        true
    }

    fn epoch(&self, rng: &mut Rng) -> Epoch {
        // Other partitions use epochs in between.
        Epoch(self.config.epoch.0 + rng.between(1, 3))
    }

    fn go_on(&mut self, staff: &Staff, faults: &Faults, rng: &mut Rng) -> Option<Config> {
        let epoch = self.epoch(rng);
        let displaced = self.config.old.without(self.config.new);
        let lost: Vec<_> = self
            .config
            .nodes(displaced.without(self.config.excluded))
            .filter(|node| staff.lost.contains(node) || rng.chance(faults.dead / 20))
            .collect();
        if let Some(node) = rng.pick(&lost)
            && let Ok(next) = self.config.exclude(epoch, node)
        {
            self.excluded += 1;
            return Some(next);
        }
        let lost_newcomer = self
            .config
            .nodes(self.config.copiers())
            .any(|node| staff.lost.contains(&node));
        // With one replica excluded and another one's record unreadable, there is no majority: an
        // operator who sees a move stuck aborts it.
        let stands = self.looks > STANDS_AFTER;
        let stuck = staff.healing && !self.config.excluded.is_empty() && stands;
        let late = self.config.stage == Stage::WriteBothReadNew;
        let abort = if late {
            faults.abort
        } else {
            faults.abort / 30
        };
        if (rng.chance(abort) && !staff.healing) || lost_newcomer || stuck {
            let aborted = self.config.abort(epoch, self.mutations);
            if let Ok(next) = aborted {
                self.aborts += 1;
                return Some(next);
            }
        }
        let ready = self.known.may_advance(&self.config, self.mutations);
        if ready && (staff.healing || !late || rng.chance(faults.haste)) {
            return self.config.advance(epoch, self.mutations).ok();
        }
        None
    }

    fn begin(&mut self, staff: &Staff, faults: &Faults, rng: &mut Rng) -> Option<Config> {
        if staff.creating {
            return None;
        }
        let epoch = self.epoch(rng);
        if faults.merge > 0
            && let Some(merging) = self.reserve_or_end(staff, faults, rng)
        {
            self.merges += u8::from(merging);
            return self.config.renew(epoch, merging).ok();
        }
        let members: Vec<NodeId> = self.config.nodes(self.config.old).collect();
        let lost = members.iter().copied().find(|m| staff.lost.contains(m));
        let wanted = rng.chance(faults.moves / 4) && !staff.healing;
        if lost.is_none() && !wanted {
            return None;
        }
        let (mut to, mut dead) = (members.clone(), Vec::new());
        let newcomer = rng.pick(&staff.spare);
        if let Some(lost) = lost {
            to.retain(|node| *node != lost);
            to.push(newcomer?);
        } else if rng.chance(faults.resize) {
            let may_shrink = faults.corrupt == 0;
            resize(&mut to, &staff.spare, may_shrink, rng);
        } else {
            let at = rng.below(to.len() as u64) as usize;
            to[at] = newcomer?;
            if rng.chance(faults.dead / 2) {
                dead.push(members[at]);
            }
        }
        let next = self.config.begin(epoch, &to, &dead).ok()?;
        self.moves += 1;
        Some(next)
    }

    /// Whether to reserve a merge now, or to end the open one.
    fn reserve_or_end(&self, staff: &Staff, faults: &Faults, rng: &mut Rng) -> Option<bool> {
        if self.config.merging {
            return (staff.healing || rng.chance(faults.merge / 20)).then_some(false);
        }
        let may = self.merges < MAX_MERGES && !staff.healing && staff.lost.is_empty();
        (may && rng.chance(faults.merge / 4)).then_some(true)
    }

    pub(crate) fn breaks(&self, mutation: Mutation) -> bool {
        self.mutations.has(mutation)
    }
}

/// If one of two replicas cannot read its record, they are not a majority: an operator checks that
/// before shrinking a set.
fn resize(to: &mut Vec<NodeId>, spare: &[NodeId], may_shrink: bool, rng: &mut Rng) {
    if may_shrink && to.len() > 1 && rng.chance(400) {
        to.remove(rng.below(to.len() as u64) as usize);
        return;
    }
    let more = rng.between(1, 2) as usize;
    to.extend(
        spare
            .iter()
            .copied()
            .take(more.min(5_usize.saturating_sub(to.len()))),
    );
}
