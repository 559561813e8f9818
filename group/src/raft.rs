//! The types of the group's Raft.

use std::io::Cursor;

use openraft::error::{ClientWriteError, Fatal, RaftError};
use openraft::{BasicNode, StoredMembership};
use torc_ring::topology::{Command, Outcome, TopologyError};

/// The result of applying a command: the same on every node.
pub(crate) type Applied = Result<Outcome, TopologyError>;

openraft::declare_raft_types!(
    /// Raft over topology commands. A node's number in Raft is its [`torc_ring::NodeId`].
    pub(crate) TypeConfig:
        D = Command,
        R = Applied,
        NodeId = u64,
        Node = BasicNode,
        Entry = openraft::Entry<TypeConfig>,
        SnapshotData = Cursor<Vec<u8>>,
        Responder = openraft::impls::OneshotResponder<TypeConfig>,
        AsyncRuntime = openraft::TokioRuntime,
);

pub(crate) type Entry = openraft::Entry<TypeConfig>;
pub(crate) type LogId = openraft::LogId<u64>;
pub(crate) type Membership = StoredMembership<u64, BasicNode>;
pub(crate) type Metrics = openraft::RaftMetrics<u64, BasicNode>;
pub(crate) type Raft = openraft::Raft<TypeConfig>;
pub(crate) type RaftFatal = Fatal<u64>;
pub(crate) type Snapshot = openraft::Snapshot<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<u64, BasicNode>;
pub(crate) type StorageError = openraft::StorageError<u64>;
pub(crate) type Vote = openraft::Vote<u64>;
pub(crate) type WriteError = RaftError<u64, ClientWriteError<u64, BasicNode>>;
