//! The types that the group's Raft is made of.

use std::io::Cursor;

use openraft::error::{ClientWriteError, Fatal, RaftError};
use openraft::{BasicNode, StoredMembership};
use torc_ring::topology::{Command, Outcome, TopologyError};

/// What applying a command gives: the same on every node.
pub(super) type Applied = Result<Outcome, TopologyError>;

openraft::declare_raft_types!(
    /// Raft over topology commands. A node's number in Raft is its [`torc_ring::NodeId`].
    pub(super) TypeConfig:
        D = Command,
        R = Applied,
        NodeId = u64,
        Node = BasicNode,
        Entry = openraft::Entry<TypeConfig>,
        SnapshotData = Cursor<Vec<u8>>,
        Responder = openraft::impls::OneshotResponder<TypeConfig>,
        AsyncRuntime = openraft::TokioRuntime,
);

pub(super) type Entry = openraft::Entry<TypeConfig>;
pub(super) type LogId = openraft::LogId<u64>;
pub(super) type Membership = StoredMembership<u64, BasicNode>;
pub(super) type Metrics = openraft::RaftMetrics<u64, BasicNode>;
pub(super) type Raft = openraft::Raft<TypeConfig>;
pub(super) type RaftFatal = Fatal<u64>;
pub(super) type Snapshot = openraft::Snapshot<TypeConfig>;
pub(super) type SnapshotMeta = openraft::SnapshotMeta<u64, BasicNode>;
pub(super) type StorageError = openraft::StorageError<u64>;
pub(super) type Vote = openraft::Vote<u64>;
pub(super) type WriteError = RaftError<u64, ClientWriteError<u64, BasicNode>>;
