//! Replicas whose disks are full.
//!
//! A replica without space declines to promise or accept, and says why. A declined accept is still
//! in doubt (R7): a copy of the message may arrive once there is space. So while too few replicas
//! have space, every write, even a blind one, first asks for promises. If replicas decline, the
//! write ends before it has sent anything that could be accepted; if they promise, there is space
//! again.
//!
//! A node whose own disk is full gets no clock readings, so its operations end before they send
//! anything.

use std::collections::BTreeSet;

use torc_ring::NodeId;

use super::{Coordinator, Intent, Outcome, RegisterOp};
use crate::{Config, Message, Now, Votes};

#[derive(Debug, Default)]
pub(super) struct Full {
    /// Replicas that last declined for lack of space.
    nodes: BTreeSet<NodeId>,
    /// A clock reservation has just found no space: operations that wait for it end.
    pub(super) is_here: bool,
}

impl Full {
    /// Forgets unreachable nodes, whose state is unknown.
    pub(super) fn forget(&mut self, lost: &BTreeSet<NodeId>) {
        self.nodes.retain(|node| !lost.contains(node));
    }
}

impl Coordinator {
    /// A clock reservation found no disk space: operations that wait for it end, unless they may
    /// have taken effect.
    pub fn unreserved(&mut self, now: Now, out: &mut Vec<Intent>) {
        self.full.is_here = true;
        self.wake_waiting(now, None, out);
        self.take_turns(now, out);
        // Later operations try again.
        self.full.is_here = false;
        self.clock.unreserved();
    }

    /// The disk of this node's replica is full: it would decline messages.
    pub fn on_full(&mut self, node: NodeId) {
        self.full.nodes.insert(node);
    }

    pub(super) fn note_space(&mut self, from: NodeId, message: &Message) {
        match message {
            Message::Abstain { is_full: true, .. } => {
                self.full.nodes.insert(from);
            }
            Message::Promised { .. } | Message::Accepted { .. } | Message::Nack { .. } => {
                self.full.nodes.remove(&from);
            }
            _ => {}
        }
    }

    /// The members whose disks are known to be full.
    pub(super) fn full(&self, config: &Config) -> Votes {
        config.members_where(|node| self.full.nodes.contains(&node))
    }

    /// Whether replicas with space are not a write quorum.
    pub(super) fn lacks_space(&self, config: &Config) -> bool {
        let here = config.acceptors().without(self.full(config));
        !self.full.nodes.is_empty() && !config.may_accept(here, self.mutations)
    }

    /// The outcome of an operation that ends before it changed anything.
    pub(super) fn unavailable(&self, op: &RegisterOp) -> Outcome {
        let config = self.configs.get(&op.partition);
        let is_write = op.request.is_write() || op.own.slow;
        if is_write && config.is_some_and(|config| self.lacks_space(config)) {
            Outcome::OutOfSpace
        } else {
            Outcome::Unavailable
        }
    }

    /// Waits for the clock, if there is space for its reservation.
    pub(super) fn await_clock(&mut self, now: Now, op: Box<RegisterOp>, out: &mut Vec<Intent>) {
        if self.full.is_here && op.own.mine.is_empty() {
            return self.finish(&op, Outcome::OutOfSpace, out);
        }
        self.wait(now, op, self.options.round_ms);
    }
}
