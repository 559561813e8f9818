//! Lets one operation of this coordinator at a time run rounds that write a key.
//!
//! Concurrent ones would be safe but refuse each other. Waiting operations stand in line, in
//! order of arrival. Adjacent blind writes share a round: the last one is written, as if the
//! others had been written just before and overwritten at once. This is a valid order,
//! because all of them are in progress.

use std::collections::VecDeque;

use crate::locator::LocatorTable;
use crate::{Locator, OpId};

/// The keys being written, and the operations that wait for them.
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

/// The next operation, and those that share its round.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) sharers: Vec<OpId>,
    pub(super) holder: Option<OpId>,
}

impl Lines {
    /// Whether an operation is writing the key.
    pub(super) fn is_taken(&self, at: &Locator) -> bool {
        self.lines.contains_key(at)
    }

    /// The operations that wait for the key.
    pub(super) fn waiting(&self, at: &Locator) -> impl Iterator<Item = OpId> {
        let line = self.lines.get(at);
        line.into_iter()
            .flat_map(|line| line.waiting.iter().map(|(op, _)| *op))
    }

    /// Takes the key, or waits for it. Returns whether the operation may continue.
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

    /// For mutants: removes the first blind writes from the line.
    pub(super) fn take_blind(&mut self, at: &Locator) -> Vec<OpId> {
        let Some(line) = self.lines.get_mut(at) else {
            return Vec::new();
        };
        let blind = line.waiting.iter();
        let blind = blind.take_while(|(_, sharing)| *sharing == Sharing::Blind);
        let together = blind.count();
        line.waiting.drain(..together).map(|(op, _)| op).collect()
    }

    /// For mutants: the first operation that shares a round holds the key.
    pub(super) fn first_holds(&mut self, at: &Locator, next: &mut Next) {
        if let (Some(line), Some(holder)) = (self.lines.get_mut(at), &mut next.holder)
            && let Some(first) = next.sharers.first_mut()
        {
            std::mem::swap(holder, first);
            line.holder = *holder;
        }
    }

    /// Leaves the key or its line. If the key is now free, returns the next operations: the
    /// last of the first adjacent blind writes holds it, or the first other operation.
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
