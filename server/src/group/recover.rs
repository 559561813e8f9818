//! Making one voter the only one, where the majority of the voters is lost for good.
//!
//! Without a majority of its voters the topology group can agree on nothing, so the loss
//! could not even be repaired. The one that is left gets a log entry that says that it votes
//! alone, in a term above all that it knows; it elects itself then, and what its log has is
//! committed. What the lost majority had committed without it is lost.

use std::collections::{BTreeMap, BTreeSet};

use openraft::{BasicNode, CommittedLeaderId, EntryPayload, RaftLogId as _};
use torc_ring::NodeId;

use super::raft::{Entry, LogId, Vote};
use super::storage::{Standing, Store, StoreError};
use super::{GroupError, GroupOptions, TopologyGroup, broken};

/// Who voted, and who votes now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The node whose data directory this is, which votes alone.
    pub node: NodeId,
    /// The voters before.
    pub voters: BTreeSet<NodeId>,
}

impl TopologyGroup {
    /// Makes the node whose store this is the only voter, durably. The node must not run, and
    /// the other voters must never run again: they could elect a leader of their own. Blocks
    /// for the disk.
    ///
    /// # Errors
    /// [`GroupError::Locked`] while the node runs; [`GroupError::NotStarted`] where the store
    /// belongs to no cluster. Nothing was changed.
    pub fn recover(options: &GroupOptions) -> Result<Recovered, GroupError> {
        if !Self::file(&options.dir).exists() {
            return Err(GroupError::NotStarted);
        }
        let store = Store::open(&options.dir)?;
        let identity = store.identity().map_err(broken)?;
        let topology = store.topology().ok_or(GroupError::NotStarted)?;
        let node = identity.ok_or(GroupError::NotStarted)?.node;
        let member = topology.members().get(&node);
        let member = member.ok_or(GroupError::NotStarted)?;
        let address = BasicNode::new(&member.identity.address);
        let voters = vote_alone(&store, node, address).map_err(broken)?;
        store.close();
        Ok(Recovered { node, voters })
    }
}

fn vote_alone(
    store: &Store,
    node: NodeId,
    address: BasicNode,
) -> Result<BTreeSet<NodeId>, StoreError> {
    let Standing { last, vote, voters } = store.standing()?;
    let known = [
        last.map_or(0, |last| last.leader_id.term),
        vote.map_or(0, |vote| vote.leader_id().term),
    ];
    let term = known.into_iter().max().unwrap_or_default() + 1;
    let alone = openraft::Membership::new(
        vec![BTreeSet::from([node.0])],
        BTreeMap::from([(node.0, address)]),
    );
    let index = last.map_or(0, |last| last.index + 1);
    let mut entry = Entry {
        log_id: LogId::default(),
        payload: EntryPayload::Membership(alone),
    };
    entry.set_log_id(&LogId::new(CommittedLeaderId::new(term, node.0), index));
    store.stand(&entry, &Vote::new(term, node.0))?;
    Ok(voters.into_iter().map(NodeId).collect())
}
