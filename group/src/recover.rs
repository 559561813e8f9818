//! Founding the group again from one voter, where the majority of the voters is lost for good.
//!
//! The stopped node's log is applied to its end, committed or not, for what was committed may be
//! in it. The lost nodes are written off, the epoch is raised above all that the lost majority
//! may have committed, and the result becomes the state of a new log, in a higher term and at an
//! index beyond every old log, with this node as its only voter. So every other node takes that
//! state as a snapshot, whatever its own log holds. See `docs/decisions/recover.md`.
//!
//! Invariant: a preview runs on a copy in memory and changes no byte of the directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use openraft::{BasicNode, CommittedLeaderId, Membership};
use torc_ring::NodeId;
use torc_ring::topology::{ClusterId, Epoch, Losses, Topology, TopologyError};

use crate::raft::LogId;
use crate::storage::{Standing, Store, StoreError};
use crate::{GroupError, TopologyGroup, broken};

/// Log entries that a recovery leaves out: a node that is left may have more than this one, and
/// Raft takes what it has committed for the leader's.
const INDEX_GAP: u64 = 1 << 20;

/// Why a data directory is not recovered. Unless a variant says otherwise, nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// The directory belongs to no cluster.
    #[error("{} holds no topology. Nothing was changed: name the data directory of a member", dir.display())]
    NoTopology {
        /// Where the topology group's store was expected.
        dir: PathBuf,
    },
    /// The node left its cluster, or was replaced.
    #[error(
        "this is the data directory of node {node}, which is no member of cluster {cluster}. \
         Nothing was changed: recover a member"
    )]
    NoMember {
        /// The directory's node.
        node: NodeId,
        /// The cluster.
        cluster: ClusterId,
    },
    /// A node that is to be kept is unknown.
    #[error(
        "--keep {node}: no such member. The members are {}. Nothing was changed",
        list(members)
    )]
    UnknownNode {
        /// As asked.
        node: NodeId,
        /// Who could be kept.
        members: BTreeSet<NodeId>,
    },
    /// The group is not lost.
    #[error(
        "this node and those of --keep are a majority of the voters ({}), so the topology group \
         is not lost. Nothing was changed: start these nodes",
        list(voters)
    )]
    HasMajority {
        /// Who votes.
        voters: BTreeSet<NodeId>,
    },
    /// The store is not as it was when the recovery was shown.
    #[error("the topology changed since this was shown. Nothing was changed now: try again")]
    Outdated,
    /// Writing failed. The recovery is stored whole or not at all; a preview tells which.
    #[error(
        "cannot write the recovery: {reason}. It was stored whole or not at all: run this again \
         without --force to see which"
    )]
    Write {
        /// What the system or the store said.
        reason: String,
    },
    /// The store could not be read.
    #[error(transparent)]
    Group(#[from] GroupError),
}

/// What a recovery does and may lose. Its text is for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// The cluster, before and after.
    pub cluster: ClusterId,
    /// The node whose data directory this is. It votes alone afterwards.
    pub node: NodeId,
    /// The voters before.
    pub voters: BTreeSet<NodeId>,
    /// Members that go on, this one included.
    pub kept: BTreeSet<NodeId>,
    /// Members that are written off now.
    pub written_off: BTreeSet<NodeId>,
    /// Term and index of the last log entry.
    pub log_end: (u64, u64),
    /// The topology's epoch now.
    pub epoch: Epoch,
    /// The topology's epoch afterwards.
    pub next_epoch: Epoch,
    /// What is lost with those that are written off, if this topology was the last.
    pub losses: Vec<Losses>,
}

/// A recovery and what it writes.
struct Planned {
    recovery: Recovery,
    topology: Topology,
    at: LogId,
}

impl TopologyGroup {
    /// What recovering the store in `dir` would do, where of its members only these and the
    /// directory's own are left. `now_ms`: Unix milliseconds. Changes nothing. Blocks for the disk.
    ///
    /// # Errors
    /// [`RecoverError`].
    pub fn preview_recovery(
        dir: &Path,
        keep: &BTreeSet<NodeId>,
        now_ms: u64,
    ) -> Result<Recovery, RecoverError> {
        if !Self::file(dir).exists() {
            return Err(RecoverError::NoTopology { dir: dir.into() });
        }
        Ok(plan(&Store::peek(dir)?, dir, keep, now_ms)?.recovery)
    }

    /// Does what [`TopologyGroup::preview_recovery`] told, durably and at once. No node that is
    /// written off may run ever again. `now_ms`: Unix milliseconds. Blocks for the disk.
    ///
    /// # Errors
    /// [`RecoverError`].
    pub fn recover(dir: &Path, shown: &Recovery, now_ms: u64) -> Result<(), RecoverError> {
        let store = Store::open(dir)?;
        let planned = plan(&store, dir, &shown.kept, now_ms)?;
        if planned.recovery != *shown {
            return Err(RecoverError::Outdated);
        }
        let me = shown.node;
        let address = planned.topology.members().get(&me);
        let address = address.map_or("", |member| member.identity.peer_address.as_str());
        let alone = Membership::new(
            vec![BTreeSet::from([me.0])],
            BTreeMap::from([(me.0, BasicNode::new(address))]),
        );
        let written = store.begin_again(planned.at, alone, &planned.topology);
        store.close();
        written.map_err(|error| RecoverError::Write {
            reason: error.to_string(),
        })
    }
}

fn plan(
    store: &Store,
    dir: &Path,
    keep: &BTreeSet<NodeId>,
    now_ms: u64,
) -> Result<Planned, RecoverError> {
    let no_topology = || RecoverError::NoTopology { dir: dir.into() };
    let failed = |error: StoreError| RecoverError::Group(broken(error));
    let identity = store.identity().map_err(failed)?;
    let node = identity.ok_or_else(no_topology)?.node;
    let before = store.topology_at_end().map_err(failed)?;
    let before = before.ok_or_else(no_topology)?;
    let (cluster, epoch) = (before.cluster(), before.epoch());
    let members: BTreeSet<NodeId> = before.members().keys().copied().collect();
    if !members.contains(&node) {
        return Err(RecoverError::NoMember { node, cluster });
    }
    let kept = keep | &BTreeSet::from([node]);
    if let Some(node) = kept.difference(&members).next().copied() {
        return Err(RecoverError::UnknownNode { node, members });
    }
    let Standing { last, vote, voters } = store.standing().map_err(failed)?;
    let is_kept = |voter: &&u64| kept.contains(&NodeId(**voter));
    let has_majority = |set: &BTreeSet<u64>| set.iter().filter(is_kept).count() * 2 > set.len();
    let all_voters = voters.iter().flatten().copied().map(NodeId).collect();
    if voters.iter().all(has_majority) {
        return Err(RecoverError::HasMajority { voters: all_voters });
    }
    let dead = &members - &kept;
    let mut topology = before.clone();
    let recovered = topology.recover(&dead, now_ms);
    recovered.map_err(|error: TopologyError| GroupError::from(error))?;
    let (log_term, index) = last.map_or((0, 0), |last| (last.leader_id.term, last.index));
    let term = vote.map_or(0, |vote| vote.leader_id().term).max(log_term) + 1;
    Ok(Planned {
        at: LogId::new(CommittedLeaderId::new(term, node.0), index + INDEX_GAP),
        recovery: Recovery {
            cluster,
            node,
            voters: all_voters,
            kept,
            log_end: (log_term, index),
            epoch,
            next_epoch: topology.epoch(),
            losses: before.losses(&dead),
            written_off: dead,
        },
        topology,
    })
}

fn list(nodes: &BTreeSet<NodeId>) -> String {
    let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    if nodes.is_empty() {
        "none".to_owned()
    } else {
        nodes.join(", ")
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (term, index) = self.log_end;
        write!(
            f,
            "\
Node {} founds the topology group of cluster {} again, as its only voter.
  voters before:    {}
  kept:             {}
  written off:      {}
  epoch:            {} now, {} afterwards
  log of this node: ends with term {term}, entry {index}

What may be lost:
",
            self.node,
            self.cluster,
            list(&self.voters),
            list(&self.kept),
            list(&self.written_off),
            self.epoch,
            self.next_epoch
        )?;
        for it in &self.losses {
            writeln!(
                f,
                "  partitions with {} {}: {} keep a majority, {} keep a minority, {} keep none",
                it.replicas,
                if it.replicas == 1 {
                    "replica"
                } else {
                    "replicas"
                },
                it.majority,
                it.minority,
                it.none
            )?;
        }
        write!(
            f,
            "  Majority kept: no acknowledged write is lost.
  Minority kept: writes that only the written-off nodes had acknowledged are lost.
  None kept: all keys are lost. Requests fail until a written-off node is replaced or removed.
  This node knows the topology of epoch {}. If only written-off nodes know a later one, it is
  lost: namespaces and members since then, and the writes of partitions that moved since then.

Check first:
  Stop all kept nodes, and show this on each of them. Recover the one whose log ends last: the
  highest term, then the highest entry. Recover only one node.
  A written-off node must never start again with its data directory.
",
            self.epoch
        )
    }
}
