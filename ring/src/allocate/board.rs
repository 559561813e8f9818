//! The ring as a sorted table of borders, and the effects of a change on the preference
//! lists.

use super::levels::{LevelWalk, Levels};
use super::score::{Effect, Score};
use crate::walk::Member;
use crate::{Partition, Partitions, Ring, RingError};

/// A border: the index of the partition that ends there.
pub(super) type Border = u32;

/// Positions in ring order, and the rules by which walks pick.
#[derive(Debug, Clone)]
pub(super) struct Board<'a> {
    partitions: Partitions,
    levels: &'a Levels<'a>,
    positions: Vec<(Border, Member)>,
}

/// A possible place for a position. The number is the index of a position on the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spot {
    /// Inside the arc that ends at this position, splitting it.
    Within(usize),
    /// Instead of the node at this position.
    InsteadOf(usize),
}

/// Partitions with the same walk, seen from a spot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stretch {
    /// The arc that the spot splits, up to the new position.
    Head,
    /// The rest of that arc, when walks from it go all the way around.
    Tail(usize),
    /// The whole arc that ends at this position.
    Arc(usize),
}

impl<'a> Board<'a> {
    /// The positions of the levels' members; others are left out.
    pub(super) fn new(
        ring: &Ring,
        partitions: Partitions,
        levels: &'a Levels<'a>,
    ) -> Result<Self, RingError> {
        ring.check_borders(partitions)?;
        let placed = |(token, node)| {
            let member = levels.members().find(node)?;
            Some((partitions.of(token).0, member))
        };
        Ok(Self {
            partitions,
            levels,
            positions: ring.iter().filter_map(placed).collect(),
        })
    }

    pub(super) fn to_ring(&self) -> Result<Ring, RingError> {
        let mut ring = Ring::new();
        for &(border, member) in &self.positions {
            let token = self.partitions.end(Partition(border));
            ring.insert(token, self.levels.members().id(member))?;
        }
        Ok(ring)
    }

    pub(super) fn levels(&self) -> &'a Levels<'a> {
        self.levels
    }

    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    pub(super) fn free_borders(&self) -> usize {
        self.partitions.count() as usize - self.positions.len()
    }

    pub(super) fn owner(&self, at: usize) -> Member {
        self.positions[at].1
    }

    /// How many positions each member has.
    pub(super) fn held(&self) -> Vec<usize> {
        let mut held = vec![0; self.levels.members().len()];
        for &(_, owner) in &self.positions {
            held[owner as usize] += 1;
        }
        held
    }

    pub(super) fn borders_of(&self, member: Member) -> impl Iterator<Item = Border> + '_ {
        let of_member =
            move |(border, owner): &(Border, Member)| (*owner == member).then_some(*border);
        self.positions.iter().filter_map(of_member)
    }

    /// Index of the first position at or after a border, or the number of positions.
    pub(super) fn index_of(&self, border: Border) -> usize {
        self.positions
            .partition_point(|(position, _)| *position < border)
    }

    /// Partitions of the arc that ends at a position.
    pub(super) fn arc_len(&self, at: usize) -> i64 {
        let end = i64::from(self.positions[at].0);
        let previous = i64::from(self.positions[self.step_back(at, 1)].0);
        let all = i64::from(self.partitions.count());
        match (end - previous).rem_euclid(all) {
            0 => all,
            len => len,
        }
    }

    /// The border `offset` partitions into the arc that ends at a position.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is less than the number of partitions"
    )]
    pub(super) fn border_within(&self, at: usize, offset: i64) -> Border {
        let start = i64::from(self.positions[at].0) - self.arc_len(at);
        (start + offset).rem_euclid(i64::from(self.partitions.count())) as Border
    }

    /// How far into its arc a free border is, in partitions.
    pub(super) fn offset_of(&self, border: Border) -> (usize, i64) {
        let at = self.index_of(border) % self.positions.len();
        let start = i64::from(self.positions[at].0) - self.arc_len(at);
        let all = i64::from(self.partitions.count());
        (at, (i64::from(border) - start).rem_euclid(all))
    }

    /// Whether the position at an index exists and is at this border.
    pub(super) fn is_at(&self, at: usize, border: Border) -> bool {
        self.positions
            .get(at)
            .is_some_and(|(position, _)| *position == border)
    }

    pub(super) fn border(&self, at: usize) -> Border {
        self.positions[at].0
    }

    /// Puts a member at a border and returns the member that it replaces.
    pub(super) fn put(&mut self, border: Border, member: Member) -> Option<Member> {
        let at = self.index_of(border);
        match self.positions.get_mut(at) {
            Some((position, owner)) if *position == border => {
                Some(std::mem::replace(owner, member))
            }
            _ => {
                self.positions.insert(at, (border, member));
                None
            }
        }
    }

    /// Removes the position at a border.
    pub(super) fn clear(&mut self, border: Border) {
        self.positions.retain(|(position, _)| *position != border);
    }

    /// Computes all loads.
    pub(super) fn score(&self) -> Score {
        let mut score = Score::new(self.levels, self.partitions);
        let mut walk = self.levels.walk();
        for at in 0..self.len() {
            walk.restart();
            self.go_on(&mut walk, at, self.len());
            let mut loads = Effect::default();
            for level in 0..self.levels.depth() {
                for member in walk.list(level) {
                    loads.add(score.slot(level, *member), self.arc_len(at), 0);
                }
            }
            score.apply(&loads, 0);
        }
        score
    }

    /// How the loads change if a member gets a position at a spot; within an arc, as a function of
    /// the offset from the arc's start.
    pub(super) fn effect(&self, spot: Spot, member: Member, score: &Score) -> Effect {
        let mut effect = Effect::default();
        self.changes(spot, member, |stretch, before, after| {
            let (fixed, sliding) = match stretch {
                Stretch::Head => (0, 1),
                Stretch::Tail(arc) => (self.arc_len(arc), -1),
                Stretch::Arc(arc) => (self.arc_len(arc), 0),
            };
            for level in 0..self.levels.depth() {
                let (old, new) = (before.list(level), after.list(level));
                for member in old.iter().filter(|member| !new.contains(member)) {
                    effect.add(score.slot(level, *member), -fixed, -sliding);
                }
                for member in new.iter().filter(|member| !old.contains(member)) {
                    effect.add(score.slot(level, *member), fixed, sliding);
                }
            }
        });
        effect
    }

    /// Visits every stretch of partitions whose walks pass a spot, with the present walks and those
    /// if a member got a position there.
    ///
    /// Steps back from the spot arc by arc, until walks end before they reach it.
    pub(super) fn changes(
        &self,
        spot: Spot,
        member: Member,
        mut visit: impl FnMut(Stretch, &LevelWalk<'_>, &LevelWalk<'_>),
    ) {
        let (at, replaced) = match spot {
            Spot::Within(at) => (at, None),
            Spot::InsteadOf(at) => (at, Some(self.owner(at))),
        };
        let next = at + usize::from(replaced.is_some());
        let others = self.len() - usize::from(replaced.is_some());
        let mut walk = self.levels.walk();
        let (mut before, mut after) = (walk.clone(), walk.clone());
        for back in 0..=others {
            let start = self.step_back(at, back);
            walk.restart();
            self.go_on(&mut walk, start, back);
            if walk.is_complete() {
                break;
            }
            before.resume(&walk);
            after.resume(&walk);
            replaced.inspect(|owner| before.offer(*owner));
            after.offer(member);
            self.go_on(&mut before, next, others - back);
            self.go_on(&mut after, next, others - back);
            let stretch = match spot {
                Spot::Within(_) if back == 0 => Stretch::Head,
                Spot::Within(_) if back == self.len() => Stretch::Tail(start),
                _ => Stretch::Arc(start),
            };
            visit(stretch, &before, &after);
        }
    }

    /// How many positions before an index, and how many from it on, get a different outcome if the
    /// position at `at` or its arc changes.
    pub(super) fn reach(&self, at: usize, after: usize) -> (usize, usize) {
        let mut walk = self.levels.walk();
        let seen_from = |back: &usize| {
            walk.restart();
            self.go_on(&mut walk, self.step_back(at, *back), *back);
            !walk.is_complete()
        };
        let back = (1..self.len()).take_while(seen_from).count();
        let mut walk = self.levels.walk();
        let mut ahead = 0;
        while ahead < self.len() && !walk.is_complete() {
            walk.offer(self.owner((after + ahead) % self.len()));
            ahead += 1;
        }
        (back, ahead)
    }

    /// Index of the position `steps` before another, around the ring.
    pub(super) fn step_back(&self, at: usize, steps: usize) -> usize {
        (at + 2 * self.len() - steps) % self.len()
    }

    /// Continues a walk over at most `count` positions from `start`.
    fn go_on(&self, walk: &mut LevelWalk<'_>, start: usize, count: usize) {
        for step in 0..count {
            if walk.is_complete() {
                return;
            }
            walk.offer(self.owner((start + step) % self.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::Members;
    use crate::{NodeId, NodeSpec, Weight, Zone};
    use proptest::prelude::*;

    const PARTITIONS: u32 = 64;

    /// Up to 7 nodes in up to 3 zones, some of them on a ring.
    fn any_ring() -> impl Strategy<Value = (Members, Vec<(Border, Member)>, u8)> {
        let zones = proptest::collection::vec(0_u8..3, 1..8);
        let owners = proptest::collection::btree_map(0..PARTITIONS, 0_u32..8, 1..20);
        (zones, owners, 1_u8..=4).prop_map(|(zones, owners, depth)| {
            let spec = |(id, zone): (u64, &u8)| NodeSpec {
                id: NodeId(id),
                zone: Zone::new(format!("z{zone}")).unwrap(),
                weight: Weight::new(50 + 30 * id as u32).unwrap(),
            };
            let specs: Vec<_> = (0..).zip(&zones).map(spec).collect();
            let count = zones.len() as u32;
            let positions = owners
                .into_iter()
                .map(|(border, owner)| (border, owner % count));
            (Members::new(specs.iter()), positions.collect(), depth)
        })
    }

    fn board<'a>(levels: &'a Levels<'a>, positions: Vec<(Border, Member)>) -> Board<'a> {
        Board {
            partitions: Partitions::new(PARTITIONS).unwrap(),
            levels,
            positions,
        }
    }

    /// All excesses over fair shares.
    fn excesses(score: &Score, levels: &Levels<'_>) -> Vec<i64> {
        let of_level = |level| levels.members().iter().map(move |m| score.excess(level, m));
        (0..levels.depth()).flat_map(of_level).collect()
    }

    proptest! {
        #[test]
        fn an_effect_is_the_difference_between_two_counts(
            (members, positions, depth) in any_ring(), border in 0..PARTITIONS, member: Member,
        ) {
            let member = member % members.len() as Member;
            let levels = Levels::new(&members, depth);
            let mut board = board(&levels, positions);
            let mut score = board.score();
            let at = board.index_of(border);
            if board.is_at(at, border) {
                let effect = board.effect(Spot::InsteadOf(at), member, &score);
                score.apply(&effect, 0);
            } else {
                let (arc, offset) = board.offset_of(border);
                prop_assert_eq!(board.border_within(arc, offset), border);
                let effect = board.effect(Spot::Within(arc), member, &score);
                score.apply(&effect, offset);
            }
            board.put(border, member);
            prop_assert_eq!(excesses(&score, &levels), excesses(&board.score(), &levels));
        }

        #[test]
        fn the_best_offset_is_the_best_of_all(
            (members, positions, depth) in any_ring(), at: usize, member: Member,
        ) {
            let member = member % members.len() as Member;
            let levels = Levels::new(&members, depth);
            let board = board(&levels, positions);
            let (score, at) = (board.score(), at % board.len());
            let len = board.arc_len(at);
            prop_assume!(len > 1);
            let effect = board.effect(Spot::Within(at), member, &score);
            let (offset, gain) = score.best_within(&effect, len);
            let gains = (1..len).map(|offset| score.gain_within(&effect, offset, len));
            prop_assert!((1..len).contains(&offset));
            prop_assert_eq!(Some(gain), gains.min());
        }
    }
}
