//! A node takes positions: joins, or grows to a higher weight.
//!
//! It first places each position greedily where it balances the loads most. Then it
//! takes back each position in turn and puts it where it is best now, until none moves
//! or the rounds are over. A fixed shuffle decides between equally good borders, so
//! they are not all taken at one end of the ring.

use super::board::{Board, Border, Spot};
use super::score::{Effect, Gain, Score};
use crate::walk::Member;

/// Most rounds of reconsidering every position.
const MAX_ROUNDS: usize = 12;

/// Approximate limit of arcs to examine in all rounds. With 32 positions per node, it
/// suffices for all rounds up to 300 nodes; it limits the time of a join on rings with
/// very many positions, where the greedy choice is already closer.
const ARCS_LOOKED_AT: usize = 1 << 22;

/// A taken position and its previous owner.
#[derive(Debug, Clone, Copy)]
struct Seat {
    border: Border,
    from: Option<Member>,
}

struct Claim<'b, 'a> {
    board: &'b mut Board<'a>,
    score: Score,
    member: Member,
    /// Whether positions of others may be taken over.
    take_over: bool,
    /// Positions per member. A member's last position is never taken over.
    held: Vec<usize>,
    /// Effects of a position within each arc, and instead of each position.
    within: Vec<Option<Effect>>,
    instead: Vec<Option<Effect>>,
}

/// Gives a member `count` more positions. With `take_over`, it may get positions of
/// others; otherwise only free borders, and fewer positions if these run out.
pub(super) fn claim(board: &mut Board<'_>, member: Member, count: usize, take_over: bool) {
    let mut claim = Claim::new(board, member, take_over);
    let mut seats = Vec::with_capacity(count);
    while let (true, Some((border, _))) = (seats.len() < count, claim.best()) {
        seats.push(claim.sit(border));
    }
    let arcs_a_round = (seats.len() * claim.board.len()).max(1);
    for _ in 0..(ARCS_LOOKED_AT / arcs_a_round).clamp(1, MAX_ROUNDS) {
        let mut moved = false;
        for seat in &mut seats {
            moved |= claim.reconsider(seat);
        }
        if !moved {
            break;
        }
    }
}

impl<'b, 'a> Claim<'b, 'a> {
    fn new(board: &'b mut Board<'a>, member: Member, take_over: bool) -> Self {
        let unknown = vec![None; board.len()];
        Self {
            score: board.score(),
            member,
            take_over,
            held: board.held(),
            within: unknown.clone(),
            instead: unknown,
            board,
        }
    }

    /// The border where one more position balances the loads most.
    fn best(&mut self) -> Option<(Border, Gain)> {
        let mut best: Option<(Gain, u32, Border)> = None;
        let mut consider = |gain, border| {
            let candidate = (gain, shuffled(border), border);
            if best.is_none_or(|best| candidate < best) {
                best = Some(candidate);
            }
        };
        for at in 0..self.board.len() {
            let len = self.board.arc_len(at);
            if len > 1 {
                let effect = self.within[at].get_or_insert_with(|| {
                    self.board
                        .effect(Spot::Within(at), self.member, &self.score)
                });
                let (offset, gain) = self.score.best_within(effect, len);
                consider(gain, self.board.border_within(at, offset));
            }
            let owner = self.board.owner(at);
            if self.take_over && owner != self.member && self.held[owner as usize] > 1 {
                let effect = self.instead[at].get_or_insert_with(|| {
                    self.board
                        .effect(Spot::InsteadOf(at), self.member, &self.score)
                });
                consider(self.score.gain(effect, 0), self.board.border(at));
            }
        }
        best.map(|(gain, _, border)| (border, gain))
    }

    /// Takes a border.
    fn sit(&mut self, border: Border) -> Seat {
        let at = self.board.index_of(border);
        if self.board.is_at(at, border) {
            let effect = self
                .board
                .effect(Spot::InsteadOf(at), self.member, &self.score);
            self.score.apply(&effect, 0);
        } else {
            let (arc, offset) = self.board.offset_of(border);
            let effect = self
                .board
                .effect(Spot::Within(arc), self.member, &self.score);
            self.score.apply(&effect, offset);
            self.within.insert(at, None);
            self.instead.insert(at, None);
        }
        let from = self.board.put(border, self.member);
        if let Some(owner) = from {
            self.held[owner as usize] -= 1;
        }
        self.held[self.member as usize] += 1;
        self.forget(at, at + 1);
        Seat { border, from }
    }

    /// Gives up a seat; returns the gain of taking it again.
    fn rise(&mut self, seat: Seat) -> Gain {
        let at = self.board.index_of(seat.border);
        self.held[self.member as usize] -= 1;
        if let Some(owner) = seat.from {
            self.held[owner as usize] += 1;
            self.board.put(seat.border, owner);
            self.forget(at, at + 1);
            let effect = self
                .board
                .effect(Spot::InsteadOf(at), self.member, &self.score);
            self.score.revert(&effect, 0);
            return self.score.gain(&effect, 0);
        }
        self.board.clear(seat.border);
        self.within.remove(at);
        self.instead.remove(at);
        self.forget(at, at);
        let (arc, offset) = self.board.offset_of(seat.border);
        let effect = self
            .board
            .effect(Spot::Within(arc), self.member, &self.score);
        self.score.revert(&effect, offset);
        self.score
            .gain_within(&effect, offset, self.board.arc_len(arc))
    }

    /// Moves a seat to the best border now. Returns whether it moved.
    fn reconsider(&mut self, seat: &mut Seat) -> bool {
        let stay = self.rise(*seat);
        let better = self.best().filter(|(_, gain)| *gain < stay);
        let border = better.map_or(seat.border, |(border, _)| border);
        *seat = self.sit(border);
        better.is_some()
    }

    /// Discards the cached effects that a change at an index may alter; `after` is the first
    /// position behind the change.
    fn forget(&mut self, at: usize, after: usize) {
        let count = self.board.len();
        let at = at % count;
        let (back, ahead) = self.board.reach(at, after % count);
        for steps in 0..=back {
            self.forget_one(self.board.step_back(at, steps));
        }
        for steps in 0..=ahead.min(count) {
            self.forget_one((after + steps) % count);
        }
    }

    fn forget_one(&mut self, at: usize) {
        self.within[at] = None;
        self.instead[at] = None;
    }
}

/// A fixed shuffle of borders (Fibonacci hashing).
const fn shuffled(border: Border) -> u32 {
    border.wrapping_mul(0x9E37_79B9)
}
