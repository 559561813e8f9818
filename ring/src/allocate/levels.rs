//! Preference lists for every replica count from 1 to a depth, in one walk where
//! that is possible.
//!
//! Level `l` is the preference list for `l + 1` replicas. In one zone, and with at
//! least as many zones as the deepest level has replicas, the shallower lists are heads
//! of the deepest. In between they are not (two zones and three replicas may give `a a
//! b`, two replicas give `a b`), so every level walks by itself.

use crate::walk::{Member, Members, Spread, Walk};

/// How each level picks.
#[derive(Debug, Clone)]
pub(super) struct Levels<'a> {
    members: &'a Members,
    depth: usize,
    /// One per level, or only the deepest.
    spreads: Vec<Spread>,
}

impl<'a> Levels<'a> {
    pub(super) fn new(members: &'a Members, depth: u8) -> Self {
        let zones = members.zone_sizes().len();
        let are_heads = zones <= 1 || zones >= usize::from(depth);
        let first = if are_heads { depth } else { 1 };
        Self {
            members,
            depth: usize::from(depth),
            spreads: (first..=depth)
                .map(|replicas| Spread::new(members, replicas))
                .collect(),
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn members(&self) -> &'a Members {
        self.members
    }

    pub(super) fn walk(&self) -> LevelWalk<'_> {
        let walks = self
            .spreads
            .iter()
            .map(|spread| Walk::new(self.members, spread));
        LevelWalk {
            walks: walks.collect(),
        }
    }
}

/// A walk of all levels.
#[derive(Debug, Clone)]
pub(super) struct LevelWalk<'a> {
    walks: Vec<Walk<'a>>,
}

impl LevelWalk<'_> {
    pub(super) fn restart(&mut self) {
        self.walks.iter_mut().for_each(Walk::restart);
    }

    pub(super) fn resume(&mut self, other: &Self) {
        for (walk, other) in self.walks.iter_mut().zip(&other.walks) {
            walk.resume(other);
        }
    }

    pub(super) fn offer(&mut self, node: Member) {
        for walk in &mut self.walks {
            walk.offer(node);
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.walks.iter().all(Walk::is_complete)
    }

    /// The nodes picked so far for `level + 1` replicas.
    pub(super) fn list(&self, level: usize) -> &[Member] {
        match self.walks.as_slice() {
            [deepest] => &deepest.picked()[..(level + 1).min(deepest.picked().len())],
            walks => walks[level].picked(),
        }
    }
}
