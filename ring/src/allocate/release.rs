//! A node gives up positions: leaves, or shrinks to a lower weight.
//!
//! Each of its borders is dropped, so that the arc falls to its successors, or handed
//! to the node that makes loads most even; each in turn, until no choice changes or
//! the rounds are over.

use super::board::{Board, Border, Spot};
use super::score::Score;
use crate::walk::Member;

/// How often at most every border is reconsidered.
const ROUNDS: usize = 12;

/// Hands `borders` on or drops them, whatever evens the loads most. `keeper` is the
/// member that may keep them, if any.
pub(super) fn release(board: &mut Board<'_>, borders: &[Border], keeper: Option<Member>) {
    let mut score = board.score();
    let mut holders = vec![keeper; borders.len()];
    for _ in 0..ROUNDS {
        let mut changed = false;
        for (border, holder) in borders.iter().zip(&mut holders) {
            let next = reconsider(board, &mut score, *border, *holder, keeper);
            changed |= next != *holder;
            *holder = next;
        }
        if !changed {
            break;
        }
    }
}

/// Chooses who holds a border now.
fn reconsider(
    board: &mut Board<'_>,
    score: &mut Score,
    border: Border,
    holder: Option<Member>,
    keeper: Option<Member>,
) -> Option<Member> {
    if holder.is_some() {
        board.clear(border);
    }
    let (at, offset) = board.offset_of(border);
    let effect = |member, score: &Score| board.effect(Spot::Within(at), member, score);
    if let Some(holder) = holder {
        let effect = effect(holder, score);
        score.revert(&effect, offset);
    }
    let members = board.levels().members().iter();
    let gain = |member| (score.gain(&effect(member, score), offset), Some(member));
    // Dropping the border comes first, so that it wins ties, and keeping it second.
    let choices = std::iter::once((0, None)).chain(keeper.map(gain)).chain(members.map(gain));
    let (_, next) = choices.min_by_key(|(gain, _)| *gain)?;
    if let Some(member) = next {
        let effect = effect(member, score);
        score.apply(&effect, offset);
        board.put(border, member);
    }
    next
}
