//! Who may run rounds that write a key: one operation of this coordinator at a time.
//!
//! Two of them side by side would be safe, but refuse each other. Those that wait stand in
//! line, in the order in which they came. Blind writes that stand next to each other share a
//! round: the last one is written, the others are as if they had been written just before and
//! overwritten at once. All of them are under way then, so that is an order in which they may
//! have happened.

use std::collections::VecDeque;

use crate::locator::LocatorTable;
use crate::{Locator, OpId};

/// The keys that are being written, and who waits for them.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: LocatorTable<Line>,
}

#[derive(Debug)]
struct Line {
    holder: OpId,
    waiting: VecDeque<(OpId, Sharing)>,
}

/// Whether an operation may share its round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    Blind,
    Alone,
}

/// Who comes next, and who shares its round.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) sharers: Vec<OpId>,
    pub(super) holder: Option<OpId>,
}

impl Lines {
    /// Whether somebody writes the key.
    pub(super) fn is_taken(&self, at: &Locator) -> bool {
        self.lines.contains_key(at)
    }

    /// Takes the key, or waits for it; whether the operation may go on.
    pub(super) fn enter(&mut self, at: &Locator, op: OpId, sharing: Sharing) -> bool {
        if let Some(line) = self.lines.get_mut(at) {
            if line.holder != op {
                line.waiting.push_back((op, sharing));
            }
            return line.holder == op;
        }
        let line = Line {
            holder: op,
            waiting: VecDeque::new(),
        };
        self.lines.insert(at.clone(), line);
        true
    }

    /// Breaks the order on purpose: the blind writes that stand first leave the line.
    pub(super) fn take_blind(&mut self, at: &Locator) -> Vec<OpId> {
        let Some(line) = self.lines.get_mut(at) else {
            return Vec::new();
        };
        let blind = line.waiting.iter();
        let blind = blind.take_while(|(_, sharing)| *sharing == Sharing::Blind);
        let together = blind.count();
        line.waiting.drain(..together).map(|(op, _)| op).collect()
    }

    /// Breaks the order on purpose: the first of those who share a round holds the key.
    pub(super) fn first_holds(&mut self, at: &Locator, next: &mut Next) {
        if let (Some(line), Some(holder)) = (self.lines.get_mut(at), &mut next.holder)
            && let Some(first) = next.sharers.first_mut()
        {
            std::mem::swap(holder, first);
            line.holder = *holder;
        }
    }

    /// Leaves the key or its line. If the key is free now, those who come next: the last of
    /// the blind writes that stand first holds it, or the one other operation that does.
    pub(super) fn leave(&mut self, at: &Locator, op: OpId) -> Next {
        let Some(line) = self.lines.get_mut(at) else {
            return Next::default();
        };
        if line.holder != op {
            line.waiting.retain(|(waiting, _)| *waiting != op);
            return Next::default();
        }
        let blind = line.waiting.iter();
        let blind = blind.take_while(|(_, sharing)| *sharing == Sharing::Blind);
        let together = blind.count().max(1).min(line.waiting.len());
        let mut sharers: Vec<_> = line.waiting.drain(..together).map(|(op, _)| op).collect();
        let holder = sharers.pop();
        match holder {
            Some(holder) => line.holder = holder,
            None => {
                self.lines.remove(at);
            }
        }
        Next { sharers, holder }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_record::{Digest, Key, NamespaceId};

    #[test]
    fn blind_writes_that_wait_share_a_round_and_others_keep_their_turn() {
        let at = Locator {
            namespace: NamespaceId::DEFAULT,
            digest: Digest([1; 16]),
            key: Key::new(&b"k"[..]).unwrap(),
        };
        let mut lines = Lines::default();
        assert!(lines.enter(&at, OpId(1), Sharing::Alone), "nobody is there");
        for (op, sharing) in [
            (2, Sharing::Blind),
            (3, Sharing::Blind),
            (4, Sharing::Alone),
            (5, Sharing::Blind),
        ] {
            assert!(!lines.enter(&at, OpId(op), sharing));
        }
        let next = |holder: u64, sharers: &[u64]| Next {
            sharers: sharers.iter().copied().map(OpId).collect(),
            holder: Some(OpId(holder)),
        };
        assert_eq!(lines.leave(&at, OpId(1)), next(3, &[2]));
        assert!(lines.enter(&at, OpId(3), Sharing::Blind), "it has its turn");
        assert_eq!(lines.leave(&at, OpId(3)), next(4, &[]));
        assert_eq!(lines.leave(&at, OpId(5)), Next::default(), "it gave up");
        assert_eq!(lines.leave(&at, OpId(4)), Next::default());
        assert!(lines.lines.is_empty(), "a key at rest costs nothing");
    }
}
