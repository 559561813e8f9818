//! A write on its way to being durable.
//!
//! A write is done when a majority of every replica set concerned has accepted it:
//! one set in the stable and copying stages, the old and the new one in the stages
//! that write to both. With one replica a set's majority is its only node.
//!
//! The order matters with a single lead: the partner accepts first, the lead applies
//! last. So what the lead shows to readers is always at the partner already, and a
//! partner that refuses (it is in a later epoch) leaves the lead's copy as it was.

use torc_ring::NodeId;

/// What a write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Send it to this node and wait for its answer.
    Ask(NodeId),
    /// The partner has it: apply it here.
    ApplyHere,
    /// Durable wherever it must be: acknowledge.
    Done,
}

/// One write of a lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOp {
    partner: Option<NodeId>,
    accepted: bool,
    applied: bool,
}

impl WriteOp {
    /// A write of a lead with this partner, see [`crate::Role::Lead`].
    #[must_use]
    pub const fn new(partner: Option<NodeId>) -> Self {
        Self {
            partner,
            accepted: false,
            applied: false,
        }
    }

    /// What to do next.
    #[must_use]
    pub const fn next(&self) -> Progress {
        match (self.partner, self.accepted, self.applied) {
            (Some(partner), false, _) => Progress::Ask(partner),
            (_, _, false) => Progress::ApplyHere,
            (_, _, true) => Progress::Done,
        }
    }

    /// `node` has accepted the write durably. An answer of anyone else than the
    /// partner, or a second one, counts for nothing.
    pub fn on_accepted(&mut self, node: NodeId) {
        self.accepted |= self.partner == Some(node);
    }

    /// The write is durable here. It counts only after the partner's.
    pub fn on_applied(&mut self) {
        self.applied |= self.partner.is_none() || self.accepted;
    }

    /// Whether giving up now leaves the outcome open: somebody may have it already.
    /// `asked` tells whether the partner was asked and has not refused.
    #[must_use]
    pub const fn is_ambiguous(&self, asked: bool) -> bool {
        self.accepted || self.applied || asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTNER: NodeId = NodeId(2);

    #[test]
    fn during_a_move_the_partner_accepts_before_the_lead_applies() {
        let mut write = WriteOp::new(Some(PARTNER));
        assert_eq!(write.next(), Progress::Ask(PARTNER));
        write.on_applied();
        assert_eq!(
            write.next(),
            Progress::Ask(PARTNER),
            "applying early counts for nothing"
        );
        write.on_accepted(NodeId(9));
        assert_eq!(
            write.next(),
            Progress::Ask(PARTNER),
            "a stranger's answer counts for nothing"
        );
        write.on_accepted(PARTNER);
        assert_eq!(write.next(), Progress::ApplyHere);
        write.on_applied();
        assert_eq!(write.next(), Progress::Done);
    }

    #[test]
    fn without_a_move_the_lead_alone_decides() {
        let mut write = WriteOp::new(None);
        assert_eq!(write.next(), Progress::ApplyHere);
        write.on_applied();
        assert_eq!(write.next(), Progress::Done);
    }

    #[test]
    fn a_write_that_nobody_was_asked_to_accept_can_be_given_up() {
        let write = WriteOp::new(Some(PARTNER));
        assert!(
            !write.is_ambiguous(false),
            "nothing was sent, or the partner refused"
        );
        assert!(write.is_ambiguous(true), "the partner may have accepted");
    }
}
