//! Replicas whose disks are full.
//!
//! A replica without space declines to promise or accept, and says why. An accept that it declined is
//! still in doubt (R7): a copy of the message may arrive once there is space. So while too few replicas
//! have space, every write, even a blind one, asks for promises first. If they are declined, the write ends
//! before it sent anything that could be accepted; if they are given, there is space again.
//!
//! A node whose own disk is full gets no clock readings: its operations end before anything is sent.

use std::collections::BTreeSet;

use torc_ring::NodeId;

use super::{Coordinator, Intent, Outcome, RegisterOp};
use crate::{Config, Message, Now, Votes};

#[derive(Debug, Default)]
pub(super) struct Full {
    /// Those that declined last for want of space.
    nodes: BTreeSet<NodeId>,
    /// A reservation of the clock has just found no space: who waits for it ends.
    pub(super) is_here: bool,
}

impl Full {
    /// Of nodes out of reach nothing is known.
    pub(super) fn forget(&mut self, lost: &BTreeSet<NodeId>) {
        self.nodes.retain(|node| !lost.contains(node));
    }
}

impl Coordinator {
    /// A reservation of the clock found no space on the disk: operations that wait for it end, unless they
    /// may take effect.
    pub fn unreserved(&mut self, now: Now, out: &mut Vec<Intent>) {
        self.full.is_here = true;
        self.wake_waiting(now, None, out);
        self.take_turns(now, out);
        // Operations after these ask again.
        self.full.is_here = false;
        self.clock.unreserved();
    }

    /// The disk of the replica at this node is full: what is sent there would be declined.
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

    /// The members whose disks are full.
    pub(super) fn full(&self, config: &Config) -> Votes {
        let members = config.members.iter().enumerate();
        members
            .filter(|(_, member)| self.full.nodes.contains(&member.node))
            .fold(Votes::NONE, |full, (index, _)| {
                full.union(Votes::one(index))
            })
    }

    /// Whether those with space are no write quorum.
    pub(super) fn lacks_space(&self, config: &Config) -> bool {
        let here = config.acceptors().without(self.full(config));
        !self.full.nodes.is_empty() && !config.may_accept(here, self.mutations)
    }

    /// What an operation is told that ends before it changed anything.
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
