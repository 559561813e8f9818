//! The imbalance of a ring as one number, and the effect of a change on it.
//!
//! The score is the sum, over nodes and levels ([`super::levels`]), of the squared
//! distance between load and fair share in relation to the share. All levels count,
//! so that one ring suits namespaces with fewer replicas too, and so that no node
//! runs out of partitions in which it is the last of the list: these are the ones a
//! newcomer can relieve it of. Primaries count double: their shares are the smallest,
//! so one partition more weighs most there.
//!
//! A little is added for long arcs. It decides where loads leave the choice, above
//! all while there are no more nodes than replicas, and keeps arcs similar, so that
//! later newcomers find arcs to split everywhere.
//!
//! Everything is integers: every machine gets the same sums.

use super::levels::Levels;
use crate::Partitions;
use crate::share::{self, UNITS};
use crate::walk::{Member, Spread};

/// What a squared excess costs at each level, in units of 1/(fair share / all).
const LEVEL_PRICE: i64 = 1 << 16;

/// What the squared length of an arc costs: a quarter of what a squared excess does
/// to a node whose share is everything.
const ARC_PRICE: i128 = (LEVEL_PRICE / 4) as i128 * (UNITS * UNITS) as i128;

/// A difference in score; negative is better.
pub(super) type Gain = i128;

/// How a change of the ring changes loads: `fixed + offset * sliding` partitions, where the offset
/// is the change's place within an arc.
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
            None => self.terms.push(Term {
                slot,
                fixed,
                sliding,
            }),
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
    price: Vec<i128>,
    price_of_move: i128,
}

impl Score {
    /// The score of a ring without positions.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a depth is a number of replicas, a u8"
    )]
    pub(super) fn new(levels: &Levels<'_>, partitions: Partitions) -> Self {
        let members = levels.members();
        let all = i64::from(partitions.count()) * UNITS.cast_signed();
        let mut score = Self {
            members: members.len(),
            excess: Vec::new(),
            price: Vec::new(),
            price_of_move: i128::from(all) * i128::from(UNITS) * i128::from(LEVEL_PRICE) / 4,
        };
        for replicas in 1..=levels.depth() as u8 {
            let spread = Spread::new(members, replicas);
            let price = if replicas == 1 {
                2 * LEVEL_PRICE
            } else {
                LEVEL_PRICE
            };
            for share in share::of_replicas(members, &spread, partitions) {
                let share = share.max(1).cast_signed();
                score.excess.push(-share);
                score
                    .price
                    .push(i128::from(all) * i128::from(price) / i128::from(share));
            }
        }
        score
    }

    pub(super) fn slot(&self, level: usize, member: Member) -> usize {
        level * self.members + member as usize
    }

    /// Load minus fair share at a level, in [`UNITS`] of a partition.
    pub(super) fn excess(&self, level: usize, member: Member) -> i64 {
        self.excess[self.slot(level, member)]
    }

    /// Adds an effect at `offset` to the loads.
    pub(super) fn apply(&mut self, effect: &Effect, offset: i64) {
        for term in &effect.terms {
            self.excess[term.slot] += (term.fixed + offset * term.sliding) * UNITS.cast_signed();
        }
    }

    /// Subtracts an effect at `offset` from the loads.
    pub(super) fn revert(&mut self, effect: &Effect, offset: i64) {
        for term in &effect.terms {
            self.excess[term.slot] -= (term.fixed + offset * term.sliding) * UNITS.cast_signed();
        }
    }

    /// What an effect at `offset` would do to the score.
    pub(super) fn gain(&self, effect: &Effect, offset: i64) -> Gain {
        let gain = |term: &Term| {
            let change = i128::from(term.fixed + offset * term.sliding) * i128::from(UNITS);
            let excess = i128::from(self.excess[term.slot]);
            change * (2 * excess + change) * self.price[term.slot]
        };
        effect.terms.iter().map(gain).sum()
    }

    /// The price of replicas that move unnecessarily: that of one partition too many on
    /// a node that is an eighth above its share.
    pub(super) fn price_of_moves(&self, replicas: i64) -> Gain {
        self.price_of_move * i128::from(replicas)
    }

    /// What an effect at `offset` into an arc of `len` partitions would do to the score, including
    /// the split of the arc there.
    pub(super) fn gain_within(&self, effect: &Effect, offset: i64, len: i64) -> Gain {
        self.gain(effect, offset) - ARC_PRICE * i128::from(offset * (len - offset))
    }

    /// The best offset inside an arc of `len` partitions, at least 2: the gain is a parabola in the
    /// offset.
    pub(super) fn best_within(&self, effect: &Effect, len: i64) -> (i64, Gain) {
        let (mut linear, mut square) = (-ARC_PRICE * i128::from(len), ARC_PRICE);
        for term in effect.terms.iter().filter(|term| term.sliding != 0) {
            let slope = i128::from(term.sliding) * i128::from(UNITS);
            let fixed = i128::from(term.fixed) * i128::from(UNITS);
            let price = self.price[term.slot];
            linear += 2 * slope * (i128::from(self.excess[term.slot]) + fixed) * price;
            square += slope * slope * price;
        }
        let bottom = (-linear).div_euclid(2 * square);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is clamped below `len`, an i64"
        )]
        let below = bottom.clamp(1, i128::from(len - 1)) as i64;
        let above = (below + 1).min(len - 1);
        let at = |offset| (offset, self.gain_within(effect, offset, len));
        let (below, above) = (at(below), at(above));
        if above.1 < below.1 { above } else { below }
    }
}
