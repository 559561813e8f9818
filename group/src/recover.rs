//! Founds the group again from one voter, after the majority of the voters is lost for good.
//!
//! Recovery applies the stopped node's log to its end, committed or not, because committed
//! entries may be in it. It declares the lost nodes dead, raises the epoch above everything that
//! the lost majority may have committed, and makes the result the state of a new log, in a
//! higher term and at an index beyond every old log, with this node as its only voter. So every
//! other node accepts that state as a snapshot, whatever its own log holds. See
//! `docs/decisions/recover.md`.
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

/// Log entries that a recovery skips: another surviving node may have more entries than this
/// one, and Raft treats the entries that it has committed as the leader's.
const INDEX_GAP: u64 = 1 << 20;

/// Why a recovery failed. Unless a variant says otherwise, nothing was changed.
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
        "this is the data directory of node {node}, which is not a member of cluster {cluster}. \
         Nothing was changed: recover a member"
    )]
    NoMember {
        /// The directory's node.
        node: NodeId,
        /// The cluster.
        cluster: ClusterId,
    },
    /// A node of --keep is unknown.
    #[error(
        "--keep {node}: no such member. The members are {}. Nothing was changed",
        list(members)
    )]
    UnknownNode {
        /// As asked.
        node: NodeId,
        /// The members.
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
    /// The store has changed since the preview.
    #[error("the topology has changed since the preview. Nothing was changed now: retry")]
    Outdated,
    /// Writing failed. The recovery was stored completely or not at all; a preview shows which.
    #[error(
        "cannot write the recovery: {reason}. It was stored completely or not at all: run this again \
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

/// The effects and possible losses of a recovery. Its text is for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// The cluster, before and after.
    pub cluster: ClusterId,
    /// The node whose data directory this is. It votes alone afterwards.
    pub node: NodeId,
    /// The voters before.
    pub voters: BTreeSet<NodeId>,
    /// Members that stay, this one included.
    pub kept: BTreeSet<NodeId>,
    /// Members that the recovery declares dead.
    pub written_off: BTreeSet<NodeId>,
    /// Term and index of the last log entry.
    pub log_end: (u64, u64),
    /// The topology's epoch now.
    pub epoch: Epoch,
    /// The topology's epoch afterwards.
    pub next_epoch: Epoch,
    /// The losses with these members, if this topology was the last.
    pub losses: Vec<Losses>,
}

/// A recovery, and the state that it writes.
struct Planned {
    recovery: Recovery,
    topology: Topology,
    at: LogId,
}

impl TopologyGroup {
    /// Previews the recovery of the store in `dir` with these surviving members and the directory's
    /// own. `now_ms`: Unix milliseconds. Changes nothing. Blocks on the disk.
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

    /// Carries out the recovery that [`TopologyGroup::preview_recovery`] showed, durably and
    /// atomically. No node declared dead may ever run again. `now_ms`: Unix milliseconds.
    /// Blocks on the disk.
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
