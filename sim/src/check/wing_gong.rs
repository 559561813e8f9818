//! The search of Wing and Gong ("Testing and Verifying Concurrent Objects", 1993), with the memo of
//! Lowe ("Testing for Linearizability", 2017): a combination of placed operations and register
//! value is never tried twice.

use std::collections::HashSet;

use super::{MAX_OPERATIONS, Verdict};
use crate::history::{KeyHistory, Operation, Seen, Value};

/// Steps after which the search gives up.
const MAX_STEPS: u64 = 2_000_000;

struct Search<'a> {
    history: &'a KeyHistory,
    operations: &'a [Operation],
    /// For each operation, those that must be placed before it.
    before: Vec<u128>,
    /// Operations with a known outcome, all of which must be placed.
    required: u128,
    tried: HashSet<(u128, Value)>,
    steps: u64,
}

/// Checks one key's history; the initial value is `absent`.
#[must_use]
pub fn check(history: &KeyHistory) -> Verdict {
    let pruned = history.pruned().sorted();
    let operations = &pruned.operations[..];
    if operations.len() > MAX_OPERATIONS {
        return Verdict::Undecided;
    }
    let known = |(index, operation): (usize, &Operation)| {
        let bit = u128::from(operation.seen != Seen::Unknown);
        bit << index
    };
    let required = operations.iter().enumerate().map(known).sum();
    let mut search = Search {
        history: &pruned,
        operations,
        before: pruned.before(),
        required,
        tried: HashSet::new(),
        steps: 0,
    };
    match search.place(0, 0) {
        Some(true) => Verdict::Linearizable,
        Some(false) => Verdict::Violation,
        None => Verdict::Undecided,
    }
}

impl Search<'_> {
    /// Whether the operations not in `placed` can follow a register with `state`; `None` if the
    /// search took too long.
    fn place(&mut self, placed: u128, state: Value) -> Option<bool> {
        if placed & self.required == self.required {
            return Some(true);
        }
        if !self.tried.insert((placed, state)) {
            return Some(false);
        }
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return None;
        }
        let deadline = self.first_return(placed);
        for index in 0..self.operations.len() {
            let operation = self.operations[index];
            if operation.call > deadline {
                break;
            }
            if placed >> index & 1 == 1 || self.before[index] & !placed != 0 {
                continue;
            }
            if let Some(after) = self.history.step(&operation, state)
                && self.place(placed | 1 << index, after)?
            {
                return Some(true);
            }
        }
        Some(false)
    }

    /// An operation called after this time may not come next, because another one has returned
    /// before.
    fn first_return(&self, placed: u128) -> u64 {
        let missing = self.required & !placed;
        let returns = (0..self.operations.len())
            .filter(|index| missing >> index & 1 == 1)
            .map(|index| self.operations[index].ret);
        returns.min().unwrap_or(u64::MAX)
    }
}
