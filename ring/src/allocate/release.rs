//! A node gives up positions: leaves, or shrinks to a lower weight.
//!
//! It drops each border, so the arc falls to its successors, or hands it to the node
//! that balances loads most; each in turn, until no choice changes or the rounds are
//! over.
//!
//! If two borders on one walk go to different nodes, a third node drops off the end of
//! the preference list: a move between two staying nodes. The score allows this at a
//! price.

use super::board::{Board, Border, Spot, Stretch};
use super::score::{Gain, Score};
use crate::walk::Member;
use crate::{NodeId, Placement};

/// Most rounds of reconsidering every border.
const MAX_ROUNDS: usize = 12;

/// Approximate limit of choices in all rounds. A normal node that leaves a ring of 100
/// gets all rounds; it limits the time for very heavy nodes.
const CHOICES_TRIED: usize = 1 << 17;

/// The preference list of every partition before the change, without the releasing
/// node.
pub(super) struct Homes {
    level: usize,
    lists: Vec<Vec<Member>>,
}

impl Homes {
    /// The lists of a placement, without `leaver`, as members of the board.
    pub(super) fn new(before: &Placement, leaver: NodeId, board: &Board<'_>) -> Self {
        let members = board.levels().members();
        let stays = |node: &NodeId| members.find(*node).filter(|_| *node != leaver);
        let list = |partition| before.nodes(partition).iter().filter_map(stays).collect();
        Self {
            level: usize::from(before.replicas()) - 1,
            lists: before.partitions().iter().map(list).collect(),
        }
    }

    /// How many more replicas would leave their homes if `member` got a position
    /// `offset` partitions into the arc that ends at `at`.
    fn driven_out(&self, board: &Board<'_>, (at, offset): (usize, i64), member: Member) -> i64 {
        let mut driven_out = 0;
        board.changes(Spot::Within(at), member, |stretch, before, after| {
            let (before, after) = (before.list(self.level), after.list(self.level));
            if after.iter().all(|member| before.contains(member)) {
                return;
            }
            let (arc, skipped, len) = match stretch {
                Stretch::Head => (at, 0, offset),
                Stretch::Tail(arc) => (arc, offset, board.arc_len(arc) - offset),
                Stretch::Arc(arc) => (arc, 0, board.arc_len(arc)),
            };
            for step in 1..=len {
                let home = &self.lists[board.border_within(arc, skipped + step) as usize];
                let missing = |list: &[Member]| {
                    home.iter()
                        .map(|m| i64::from(!list.contains(m)))
                        .sum::<i64>()
                };
                driven_out += missing(after) - missing(before);
            }
        });
        driven_out
    }
}

/// Hands `borders` to other members or drops them, whichever balances the loads most.
/// `keeper` is the member that may keep them, if any; it keeps at least one.
pub(super) fn release(
    board: &mut Board<'_>,
    borders: &[Border],
    keeper: Option<Member>,
    homes: &Homes,
) {
    let choices_a_round = (borders.len() * board.levels().members().len()).max(1);
    let score = board.score();
    let mut release = Release {
        board,
        score,
        homes,
    };
    let mut holders = vec![keeper; borders.len()];
    for _ in 0..(CHOICES_TRIED / choices_a_round).clamp(1, MAX_ROUNDS) {
        let mut changed = false;
        for at in 0..borders.len() {
            let kept = holders.iter().filter(|holder| **holder == keeper).count();
            if keeper.is_some() && holders[at] == keeper && kept == 1 {
                continue;
            }
            let next = release.reconsider(borders[at], holders[at], keeper);
            changed |= next != holders[at];
            holders[at] = next;
        }
        if !changed {
            break;
        }
    }
}

struct Release<'b, 'a> {
    board: &'b mut Board<'a>,
    score: Score,
    homes: &'b Homes,
}

impl Release<'_, '_> {
    /// Chooses the new owner of a border.
    fn reconsider(
        &mut self,
        border: Border,
        holder: Option<Member>,
        keeper: Option<Member>,
    ) -> Option<Member> {
        if holder.is_some() {
            self.board.clear(border);
        }
        let (at, offset) = self.board.offset_of(border);
        if let Some(holder) = holder {
            let effect = self.board.effect(Spot::Within(at), holder, &self.score);
            self.score.revert(&effect, offset);
        }
        let members = self.board.levels().members().iter();
        let gain = |member| (self.gain((at, offset), member), Some(member));
        // Dropping the border comes first, so that it wins ties, and keeping it second.
        let choices = std::iter::once((0, None))
            .chain(keeper.map(gain))
            .chain(members.map(gain));
        let (_, next) = choices.min_by_key(|(gain, _)| *gain)?;
        if let Some(member) = next {
            let effect = self.board.effect(Spot::Within(at), member, &self.score);
            self.score.apply(&effect, offset);
            self.board.put(border, member);
        }
        next
    }

    fn gain(&self, (at, offset): (usize, i64), member: Member) -> Gain {
        let effect = self.board.effect(Spot::Within(at), member, &self.score);
        let driven_out = self.homes.driven_out(self.board, (at, offset), member);
        self.score.gain(&effect, offset) + self.score.price_of_moves(driven_out)
    }
}
