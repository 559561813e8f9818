//! A node takes positions: joins, or grows to a higher weight.
//!
//! First greedily, each position where it evens the loads most; then each position
//! is taken back in turn and put where it is best now, until none wants to move or
//! the rounds are over. Among equally good borders a fixed shuffle decides, so that
//! they are not all taken at one end of the ring.

use super::board::{Board, Border, Spot};
use super::score::{Effect, Gain, Score};
use crate::walk::Member;

/// How often at most every position is reconsidered.
const ROUNDS: usize = 12;

/// A position taken, and who had it before.
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
    /// Effects of a position within each arc, and instead of each position.
    within: Vec<Option<Effect>>,
    instead: Vec<Option<Effect>>,
}

/// Gives a member `count` more positions. With `take_over` it may get positions of
/// others; otherwise free borders alone, and fewer positions if these run out.
pub(super) fn claim(board: &mut Board<'_>, member: Member, count: usize, take_over: bool) {
    let unknown = vec![None; board.len()];
    let mut claim = Claim {
        score: board.score(),
        board,
        member,
        take_over,
        within: unknown.clone(),
        instead: unknown,
    };
    let mut seats = Vec::with_capacity(count);
    while let (true, Some((border, _))) = (seats.len() < count, claim.best()) {
        seats.push(claim.sit(border));
    }
    for _ in 0..ROUNDS {
        let moved = seats
            .iter_mut()
            .filter_map(|seat| claim.reconsider(seat))
            .count();
        if moved == 0 {
            break;
        }
    }
}

impl Claim<'_, '_> {
    /// The border where one more position evens the loads most.
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
            if self.take_over && self.board.owner(at) != self.member {
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
        self.forget(at, at + 1);
        Seat { border, from }
    }

    /// Gives a border back and says what taking it again would gain.
    fn rise(&mut self, seat: Seat) -> Gain {
        let at = self.board.index_of(seat.border);
        if let Some(owner) = seat.from {
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

    /// Moves a seat to where it is best now; `None` if that is where it is.
    fn reconsider(&mut self, seat: &mut Seat) -> Option<()> {
        let stay = self.rise(*seat);
        let better = self.best().filter(|(_, gain)| *gain < stay);
        let border = better.map_or(seat.border, |(border, _)| border);
        *seat = self.sit(border);
        better.map(|_| ())
    }

    /// Forgets the effects that a change at an index may alter; `after` is the first
    /// position behind the change.
    fn forget(&mut self, at: usize, after: usize) {
        let count = self.board.len();
        let at = at % count;
        let (back, ahead) = self.board.reach(at, after % count);
        for steps in 0..=back {
            self.forget_one(self.board.before(at, steps));
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
