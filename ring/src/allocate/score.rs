//! How uneven a ring is, as one number, and how a change would alter it.
//!
//! The score is the sum, over nodes and levels ([`super::levels`]), of the squared
//! distance between load and fair share in relation to the share. All levels count
//! the same, so that one ring suits namespaces with fewer replicas too, and so that
//! no node runs out of partitions in which it is the last of the list: these are the
//! ones a newcomer can relieve it of.
//!
//! Everything is integers: every machine gets the same sums.

use super::levels::Levels;
use crate::Partitions;
use crate::share::{self, UNITS};
use crate::walk::{Member, Spread};

/// A difference in score; negative is better.
pub(super) type Gain = i128;

/// How loads change with a change of the ring: `fixed + offset * sliding`
/// partitions, where the offset is where in an arc the change is made.
#[derive(Debug, Clone, Default)]
pub(super) struct Effect {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, Copy)]
struct Term {
    /// Level and member.
    slot: usize,
    fixed: i64,
    sliding: i64,
}

impl Effect {
    pub(super) fn add(&mut self, slot: usize, fixed: i64, sliding: i64) {
        match self.terms.iter_mut().find(|term| term.slot == slot) {
            Some(term) => {
                term.fixed += fixed;
                term.sliding += sliding;
            }
            None => self.terms.push(Term { slot, fixed, sliding }),
        }
    }
}

/// Loads and fair shares of all members at all levels.
#[derive(Debug, Clone)]
pub(super) struct Score {
    members: usize,
    /// Load minus fair share, in [`UNITS`] of a partition.
    excess: Vec<i64>,
    /// What a squared excess costs: inverse to the fair share.
    price: Vec<i64>,
}

impl Score {
    /// The score of a ring on which nobody holds anything yet.
    pub(super) fn new(levels: &Levels<'_>, partitions: Partitions) -> Self {
        let members = levels.members();
        let all = i64::from(partitions.count()) * UNITS as i64;
        let shares: Vec<i64> = (1..=levels.depth() as u8)
            .map(|replicas| Spread::new(members, replicas))
            .flat_map(|spread| share::of_replicas(members, &spread, partitions))
            .map(|share| share.max(1) as i64)
            .collect();
        Self {
            members: members.len(),
            price: shares.iter().map(|share| (all << 16) / share).collect(),
            excess: shares.iter().map(|share| -share).collect(),
        }
    }

    pub(super) fn slot(&self, level: usize, member: Member) -> usize {
        level * self.members + member as usize
    }

    /// Load minus fair share at a level, in [`UNITS`] of a partition.
    pub(super) fn excess(&self, level: usize, member: Member) -> i64 {
        self.excess[self.slot(level, member)]
    }

    /// Counts an effect at `offset` as having happened.
    pub(super) fn apply(&mut self, effect: &Effect, offset: i64) {
        for term in &effect.terms {
            self.excess[term.slot] += (term.fixed + offset * term.sliding) * UNITS as i64;
        }
    }

    /// Counts an effect at `offset` as undone.
    pub(super) fn revert(&mut self, effect: &Effect, offset: i64) {
        for term in &effect.terms {
            self.excess[term.slot] -= (term.fixed + offset * term.sliding) * UNITS as i64;
        }
    }

    /// What an effect at `offset` would do to the score.
    pub(super) fn gain(&self, effect: &Effect, offset: i64) -> Gain {
        let gain = |term: &Term| {
            let change = i128::from(term.fixed + offset * term.sliding) * i128::from(UNITS);
            let excess = i128::from(self.excess[term.slot]);
            change * (2 * excess + change) * i128::from(self.price[term.slot])
        };
        effect.terms.iter().map(gain).sum()
    }

    /// The best offset from 1 to `last`: the gain is a parabola in the offset.
    pub(super) fn best_offset(&self, effect: &Effect, last: i64) -> (i64, Gain) {
        let (mut linear, mut square) = (0_i128, 0_i128);
        for term in effect.terms.iter().filter(|term| term.sliding != 0) {
            let slope = i128::from(term.sliding) * i128::from(UNITS);
            let fixed = i128::from(term.fixed) * i128::from(UNITS);
            let price = i128::from(self.price[term.slot]);
            linear += 2 * slope * (i128::from(self.excess[term.slot]) + fixed) * price;
            square += slope * slope * price;
        }
        let bottom = if square == 0 { 1 } else { (-linear).div_euclid(2 * square) };
        let below = bottom.clamp(1, i128::from(last)) as i64;
        let above = (below + 1).min(last);
        let at = |offset| (offset, self.gain(effect, offset));
        let (below, above) = (at(below), at(above));
        if above.1 < below.1 { above } else { below }
    }
}
