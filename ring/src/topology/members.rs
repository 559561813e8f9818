//! Commands about members and their addresses.
//!
//! A slot is assigned only once: ballots of a removed node stay on disk, and two
//! writers with one slot could make the same ballot.

use torc_record::NodeSlot;

use super::stored::Stored;
use super::{
    Boot, Incarnation, MAX_MEMBERS, Member, MemberState, NewMember, Outcome, Release, Topology,
    TopologyError,
};
use crate::NodeId;

impl Topology {
    pub(super) fn enrol(&mut self, new: NewMember) -> Result<Outcome, TopologyError> {
        new.check_works_at(self.feature_level())?;
        if let Some((node, member)) = self.member_by_incarnation(new.incarnation) {
            return Ok(Outcome::Enrolled {
                node,
                slot: member.slot,
            });
        }
        self.check_free(&new.address, &new.peer_address)?;
        let node = self.stored.admit(new, MemberState::Joining)?;
        self.advance_epoch();
        let slot = self.stored.members[&node].slot;
        Ok(Outcome::Enrolled { node, slot })
    }

    /// Another member may still have the address: members that exchange addresses report them one
    /// after the other. Requests name their recipient, so until then a shared address reaches only
    /// one of them and is never mistaken for the other.
    pub(super) fn relocate(
        &mut self,
        node: NodeId,
        address: String,
        peer_address: String,
        http_address: String,
    ) -> Result<Outcome, TopologyError> {
        let member = self
            .stored
            .members
            .get_mut(&node)
            .ok_or(TopologyError::UnknownNode { node })?;
        let identity = &mut member.identity;
        let known = [
            &identity.address,
            &identity.peer_address,
            &identity.http_address,
        ];
        if known != [&address, &peer_address, &http_address] {
            identity.address = address;
            identity.peer_address = peer_address;
            identity.http_address = http_address;
            self.advance_epoch();
        }
        Ok(Outcome::Done)
    }

    /// Refuses an address that a member has.
    fn check_free(&self, address: &str, peer_address: &str) -> Result<(), TopologyError> {
        for Member { identity, .. } in self.stored.members.values() {
            let pairs = [
                (&identity.address, address),
                (&identity.peer_address, peer_address),
            ];
            if let Some((taken, _)) = pairs.iter().find(|(theirs, ours)| *theirs == ours) {
                return Err(TopologyError::AddressTaken {
                    address: (*taken).clone(),
                });
            }
        }
        Ok(())
    }
}

impl Topology {
    pub(super) fn booted(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        boot: Boot,
        release: Release,
    ) -> Result<Outcome, TopologyError> {
        let member = self.stored.members.get(&node).map(|it| &it.identity);
        let Some(member) = member.filter(|it| it.incarnation == incarnation) else {
            return Err(TopologyError::UnknownNode { node });
        };
        let who = format!("node {node} ({})", member.address);
        let is_upgraded = member.release != release;
        let known = self.boot(node).unwrap_or_default();
        if boot.is_superseded_by(known) {
            return Err(TopologyError::Superseded {
                node,
                known,
                asked: boot,
            });
        }
        release.check_works_at(self.feature_level(), who)?;
        self.stored.boots.insert(node, boot);
        if is_upgraded && let Some(member) = self.stored.members.get_mut(&node) {
            member.identity.release = release;
            self.advance_epoch();
            self.raise_level();
        }
        Ok(Outcome::Done)
    }
}

impl Stored {
    /// Gives a node the next id and a slot.
    pub(super) fn admit(
        &mut self,
        new: NewMember,
        state: MemberState,
    ) -> Result<NodeId, TopologyError> {
        if self.members.len() >= MAX_MEMBERS {
            return Err(TopologyError::TooManyMembers);
        }
        // Ids start at 1 and each one had a slot below it, so this slot was never assigned.
        let slot = u16::try_from(self.next_node - 1).map_err(|_| TopologyError::NoSlotLeft)?;
        let id = NodeId(self.next_node);
        self.next_node += 1;
        let member = Member {
            slot: NodeSlot(slot),
            state,
            identity: new,
        };
        self.members.insert(id, member);
        Ok(id)
    }

    /// The number of members that have ring positions and keep them.
    pub(super) fn active(&self) -> usize {
        let members = self.members.values();
        members.filter(|m| m.state == MemberState::Active).count()
    }

    pub(super) fn set_state(&mut self, node: NodeId, state: MemberState) {
        if let Some(member) = self.members.get_mut(&node) {
            member.state = state;
        }
    }
}
