//! The second checker: replays the history in real time, and keeps every possible configuration of
//! the register.
//!
//! A configuration is the register's value and the set of running operations that have taken
//! effect. When an operation returns, only configurations in which it has taken effect remain. It
//! neither prunes nor searches backwards: it shares only the register's rule with the first
//! checker.

use std::collections::{BTreeMap, BTreeSet};

use super::{MAX_OPERATIONS, Verdict};
use crate::history::{KeyHistory, Kind, Seen, Value};

/// Number of configurations at which it gives up.
const MAX_CONFIGURATIONS: usize = 4_000;

/// Checks one key's history.
#[must_use]
pub fn check_by_configurations(history: &KeyHistory) -> Verdict {
    if history.operations.len() > MAX_OPERATIONS {
        return Verdict::Undecided;
    }
    let mut moments = BTreeMap::new();
    for (index, operation) in history.operations.iter().enumerate() {
        // A read without an answer changes nothing.
        if operation.kind == Kind::Get && operation.seen == Seen::Unknown {
            continue;
        }
        moments.insert((operation.call, 0_u8, index), true);
        if operation.seen != Seen::Unknown {
            moments.insert((operation.ret, 1, index), false);
        }
    }
    let before = history.before();
    let mut open: u128 = 0;
    let mut configurations: BTreeSet<(Value, u128)> = BTreeSet::from([(0, 0)]);
    for ((_, _, index), begins) in moments {
        if begins {
            open |= 1 << index;
            continue;
        }
        let Some(closed) = close(history, &before, &configurations, open) else {
            return Verdict::Undecided;
        };
        // Operations that have returned need not be distinguished any more.
        configurations = closed
            .into_iter()
            .filter(|(_, done)| done >> index & 1 == 1)
            .map(|(state, done)| (state, done & !(1 << index)))
            .collect();
        open &= !(1 << index);
        if configurations.is_empty() {
            return Verdict::Violation;
        }
    }
    Verdict::Linearizable
}

/// All configurations that running operations can lead to.
fn close(
    history: &KeyHistory,
    before: &[u128],
    from: &BTreeSet<(Value, u128)>,
    open: u128,
) -> Option<BTreeSet<(Value, u128)>> {
    let mut reached = from.clone();
    let mut todo: Vec<_> = from.iter().copied().collect();
    while let Some((state, done)) = todo.pop() {
        for (index, operation) in history.operations.iter().enumerate() {
            // Operations that have returned are complete and no longer open.
            let missing = before[index] & open & !done;
            if (open & !done) >> index & 1 == 0 || missing != 0 {
                continue;
            }
            if let Some(after) = history.step(operation, state) {
                let next = (after, done | 1 << index);
                if reached.insert(next) {
                    todo.push(next);
                }
            }
        }
        if reached.len() > MAX_CONFIGURATIONS {
            return None;
        }
    }
    Some(reached)
}
