//! The running operations and their wake-ups.
//!
//! A wake-up is not removed when its operation ends or gets another one: it is skipped when
//! due. Obsolete wake-ups are removed before they outnumber the operations.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::eventual::EventualOp;
use super::{Op, RegisterOp};
use crate::OpId;
use crate::locator::NumberTable;

/// Wake-ups allowed beyond twice the number of operations before obsolete ones are removed.
const SLACK: usize = 1_024;

/// An operation under the rules of its namespace's mode.
#[derive(Debug)]
pub(super) enum Pending {
    Register(Box<RegisterOp>),
    Eventual(Box<EventualOp>),
}

impl From<Box<RegisterOp>> for Pending {
    fn from(op: Box<RegisterOp>) -> Self {
        Self::Register(op)
    }
}

impl From<Box<EventualOp>> for Pending {
    fn from(op: Box<EventualOp>) -> Self {
        Self::Eventual(op)
    }
}

impl Pending {
    const fn wake_ms(&self) -> u64 {
        match self {
            Self::Register(op) => op.wake_ms,
            Self::Eventual(op) => op.wake_ms,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    ops: NumberTable<OpId, Pending>,
    wakes: BinaryHeap<Reverse<(u64, OpId)>>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.ops.len()
    }

    pub(super) fn get(&self, id: OpId) -> Option<&Pending> {
        self.ops.get(&id)
    }

    /// Stores an operation until its wake-up, or until it is taken out.
    pub(super) fn put<R>(&mut self, mut op: Box<Op<R>>)
    where
        Box<Op<R>>: Into<Pending>,
    {
        let id = op.id;
        if op.noted_ms != op.wake_ms {
            op.noted_ms = op.wake_ms;
            self.wakes.push(Reverse((op.wake_ms, id)));
        }
        self.ops.insert(id, op.into());
        if self.wakes.len() > 2 * self.ops.len() + SLACK {
            let ops = &self.ops;
            let is_due = |at: u64, id: &OpId| ops.get(id).is_some_and(|op| op.wake_ms() == at);
            self.wakes.retain(|Reverse((at, id))| is_due(*at, id));
        }
    }

    pub(super) fn take(&mut self, id: OpId) -> Option<Pending> {
        self.ops.remove(&id)
    }

    /// The matching operations, in the order of their start.
    pub(super) fn ids_where(&self, concerns: impl Fn(&Pending) -> bool) -> Vec<OpId> {
        let ids = self.ops.iter().filter(|(_, op)| concerns(op));
        let mut ids: Vec<_> = ids.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// All operations; for mutants, which modify running operations.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Pending> {
        self.ops.values_mut()
    }

    /// The time of the first wake-up, which may be obsolete.
    pub(super) fn next_wake_ms(&self) -> Option<u64> {
        self.wakes.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes out the next operation that is due.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Option<Pending> {
        while let Some(Reverse((at, id))) = self.wakes.peek().copied() {
            let is_void = self.ops.get(&id).is_none_or(|op| op.wake_ms() != at);
            if !is_void && at > now_ms {
                return None;
            }
            self.wakes.pop();
            if !is_void {
                return self.take(id);
            }
        }
        None
    }
}
