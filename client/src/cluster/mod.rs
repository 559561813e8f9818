//! The cluster as its nodes describe it: plain types that serialise to stable JSON.
//!
//! Field names carry units. Ids are numbers; cluster ids, digests, tokens and versions
//! are text; missing values are `null`.

mod explanation;
mod field_join;
mod from_wire;
mod generations;
mod hot_keys;
mod maintenance;
mod namespaces;
mod overlap;

use std::time::Duration;

use serde::Serialize;
use torc_proto::WireError;
use torc_record::{Epoch, NodeSlot};
use torc_ring::topology::ClusterId;
pub use torc_ring::topology::{MemberState, NamespaceMode, Stage};
use torc_ring::{NodeId, Token, Zone};

pub use explanation::{Explanation, Quorum, RecordKind, ReplicaRecord, SliceTrace, SliceVerdict};
pub use field_join::{FieldJoin, FieldJoinEstimate, FieldJoinSide};
pub use generations::{
    Generation, GenerationContent, GenerationShape, GenerationState, Reservation,
};
pub use hot_keys::{HotEstimate, HotHistory, HotKey, HotKeyNode, HotKeys, HotMajority, HotNode};
pub use maintenance::NodeMaintenance;
pub use namespaces::Namespace;
pub use overlap::{Overlap, OverlapEstimate, OverlapJoin, OverlapSet};

/// A converted answer, or the field that is wrong.
type Checked<T> = Result<T, WireError>;

const fn missing(field: &'static str) -> WireError {
    WireError::Field { field }
}

/// The state of the cluster, from [`Client::status`](crate::Client::status).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClusterStatus {
    /// The cluster's id.
    pub cluster_id: ClusterId,
    /// Epoch of the topology.
    pub epoch: Epoch,
    /// The feature level that every member supports.
    pub feature_level: u32,
    /// The node that answered.
    pub answered_by: NodeId,
    /// Leader of the topology group, if known.
    pub topology_leader: Option<NodeId>,
    /// Number of partitions.
    pub partitions: u32,
    /// Replicas of the partitions that hold the namespace `default`.
    pub replicas: u32,
    /// The partitions by their number of replicas: a layer holds the namespaces with the same.
    pub layers: Vec<LayerStatus>,
    /// Partitions with fewer live replicas than configured; `None` if the node asked no
    /// others.
    pub under_replicated: Option<u32>,
    /// Partitions without a live majority: their keys can be neither read nor written.
    pub without_quorum: Option<u32>,
    /// Generations of static namespaces, in the order of their numbers.
    pub generations: Vec<Generation>,
    /// Every member, unreachable ones included.
    pub nodes: Vec<NodeStatus>,
    /// The running transition.
    pub transition: Option<Transition>,
    /// The transition that ended last.
    pub last_transition: Option<Transition>,
}

/// The partitions of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LayerStatus {
    /// Number of partitions.
    pub partitions: u32,
    /// Replicas of each.
    pub replicas: u32,
}

/// A member and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Member {
    /// Its id.
    pub id: NodeId,
    /// Its number in versions.
    pub slot: NodeSlot,
    /// host:port of gRPC.
    pub address: String,
    /// host:port for other nodes.
    pub peer_address: String,
    /// host:port of HTTP.
    pub http_address: String,
    /// Failure domain.
    pub zone: Zone,
    /// Share of the load, percent of a normal node.
    pub weight_percent: u32,
    /// Its state.
    #[serde(serialize_with = "as_text")]
    pub state: MemberState,
    /// Its release, as of its last confirmed start.
    pub release: String,
    /// The lowest feature level that the release supports.
    pub oldest_level: u32,
    /// The highest feature level that the release supports.
    pub newest_level: u32,
}

/// One node of a [`ClusterStatus`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct NodeStatus {
    /// The member.
    #[serde(flatten)]
    pub member: Member,
    /// Whether it answered the node that answered the client. If not, all fields below
    /// are unknown and zero.
    pub reachable: bool,
    /// Whether it serves its partitions.
    pub ready: bool,
    /// Whether it votes in the topology group.
    pub voter: bool,
    /// Its release; if it is unreachable, that of its last confirmed start.
    pub version: String,
    /// Time since its start.
    pub uptime_ms: u64,
    /// The topology it has adopted.
    pub epoch: Epoch,
    /// Partitions it holds.
    pub partitions: u32,
    /// Partitions it leads.
    pub leads: u32,
    /// Records it holds, tombstones excluded.
    pub records: u64,
    /// Tombstones it holds.
    pub tombstones: u64,
    /// Key and value bytes it holds.
    pub payload_bytes: u64,
    /// Size of its commit log.
    pub log_bytes: u64,
    /// Memory of its process.
    pub rss_bytes: u64,
    /// Why it is not ready or unreachable.
    pub problem: Option<String>,
    /// Damaged slices on its disk that have not been rewritten yet.
    pub damaged_slices: u64,
    /// Whether its disk is full: it then refuses writes until there is space.
    pub disk_full: bool,
    /// Keys in slices, counted once per slice.
    pub sealed_keys: u64,
    /// Memory of the indexes of these slices: hash functions, Bloom gates, offsets, headers.
    pub index_bytes: u64,
    /// Expiry of its certificate, Unix milliseconds; `None` without TLS.
    pub certificate_ends_at_ms: Option<u64>,
    /// Its wall clock when it answered, Unix milliseconds; 0 if unknown.
    pub clock_ms: u64,
    /// Free space of the file system of its data directory.
    pub free_bytes: Option<u64>,
    /// Memory of its memtable.
    pub memtable_bytes: u64,
    /// Memory limit of its memtable.
    pub memtable_limit_bytes: u64,
    /// Memory of the minimal perfect hash functions of its slices.
    pub mphf_bytes: u64,
    /// Memory of their Bloom gates.
    pub gate_bytes: u64,
    /// Memory of their record offsets.
    pub offset_bytes: u64,
    /// Memory of their headers.
    pub header_bytes: u64,
    /// Slices it holds.
    pub slices: u64,
    /// Slices of the partition with the most.
    pub most_slices: u64,
    /// Bytes of slices on disk.
    pub slice_bytes: u64,
    /// Flushes since its start.
    pub flushes: u64,
    /// Compactions since its start.
    pub compactions: u64,
    /// Ports open to other machines without TLS: `grpc`, `http`, `resp`.
    pub exposed: Vec<String>,
    /// Nodes that it cannot reach, or whose answers are overdue.
    pub out_of_reach: Vec<NodeId>,
    /// Whether it is writing a backup.
    pub backing_up: bool,
    /// Generations with slices that it should hold and could not fetch.
    pub missing_slices: Vec<MissingSlices>,
    /// Its operations, oldest sample first, if requested.
    #[serde(skip)]
    pub load: Vec<LoadSample>,
    /// Present accesses per second, in thousandths, by equal parts of the token circle, if requested.
    #[serde(skip)]
    pub heat: Vec<u32>,
}

/// Slices of a generation that a node could not fetch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingSlices {
    /// Number of the generation.
    pub generation: u32,
    /// Why it could not fetch them when it last tried.
    pub problem: String,
}

/// The operations of a node in five seconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadSample {
    /// Start of the sample, Unix milliseconds.
    pub from_ms: u64,
    /// Requests: gets, puts, deletes, batches of gets, batches of puts, scans, commands of Redis
    /// clients.
    pub requests: [u64; 7],
    /// Requests that failed.
    pub faults: u64,
    /// Latencies of gets, by bucket.
    pub get_times: Vec<u64>,
    /// Latencies of puts and deletes, by bucket.
    pub write_times: Vec<u64>,
    /// Bytes of keys and values received with moving partitions.
    pub received_bytes: u64,
}

impl LoadSample {
    /// The time that a sample covers.
    pub const LENGTH: Duration = Duration::from_secs(5);

    /// The latency that this share of `times` does not exceed, microseconds; at most twice too
    /// high.
    #[must_use]
    pub fn percentile_us(times: &[u64], share: f64) -> Option<u64> {
        torc_proto::load::percentile_us(times, share)
    }
}

/// A change of the topology, running or ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Transition {
    /// Its number.
    pub id: u64,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The node that joins, leaves or changes; for a replacement, the new node. `None`
    /// for an alteration.
    pub node: Option<NodeId>,
    /// For a replacement: the old node.
    pub replaced: Option<NodeId>,
    /// For an alteration: the names of the namespaces that change.
    pub namespaces: Vec<String>,
    /// For an alteration: the number of replicas afterwards.
    pub replicas_after: Option<u32>,
    /// Whether it was aborted.
    pub aborted: bool,
    /// Leaving nodes that were declared dead.
    pub dead: Vec<NodeId>,
    /// Partitions it moves.
    pub partitions_total: u32,
    /// Partitions that have moved.
    pub partitions_done: u32,
    /// Partitions that are moving now.
    pub partitions_active: u32,
    /// Key and value bytes received so far by their new owners.
    pub bytes_moved: u64,
    /// Records received so far by their new owners.
    pub records_moved: u64,
    /// Key and value bytes to move, as planned at the start.
    pub bytes_planned: u64,
    /// Records to move, as planned at the start.
    pub records_planned: u64,
    /// When it started, Unix milliseconds.
    pub started_at_ms: u64,
    /// When it ended, Unix milliseconds; `None` while it runs.
    pub ended_at_ms: Option<u64>,
}

/// The kind of a topology change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// A node joins.
    Join,
    /// A node leaves.
    Leave,
    /// A node replaces another.
    Replace,
    /// A node's weight changes.
    Reweight,
    /// The number of replicas of namespaces changes.
    Alter,
}

/// The plan of a change, from [`Client::plan_join`](crate::Client::plan_join) and similar calls.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// Epoch of the topology that it is based on.
    pub based_on_epoch: Epoch,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The node that joins, leaves or changes; `None` if it has no id yet, and for an
    /// alteration.
    pub node: Option<NodeId>,
    /// For a replacement: the old node.
    pub replaced: Option<NodeId>,
    /// gRPC host:port of the node that joins, leaves or changes; empty if there is none.
    pub address: String,
    /// For an alteration: the names of the namespaces that change. Several share their
    /// partitions, so they change together.
    pub namespaces: Vec<String>,
    /// For an alteration: the number of replicas before.
    pub replicas_before: Option<u32>,
    /// For an alteration: the number of replicas afterwards.
    pub replicas_after: Option<u32>,
    /// Partition replicas that change their owner.
    pub partitions_moved: u32,
    /// The minimum that must move: the fair share of the joining or leaving node.
    pub minimum_moved: f64,
    /// Key and value bytes to move, as of now.
    pub bytes: u64,
    /// Records to move, as of now.
    pub records: u64,
    /// Replica load of the busiest node over the mean, before.
    pub peak_to_mean_before: f64,
    /// Replica load of the busiest node over the mean, after.
    pub peak_to_mean_after: f64,
    /// Every node's part.
    pub shares: Vec<NodeShare>,
    /// If the leaving node is dead: the losses without it and without `lost_with`, per number
    /// of replicas.
    pub losses: Vec<Losses>,
    /// Other members that were declared dead or do not answer.
    pub lost_with: Vec<NodeId>,
    /// The transition that must end before this one can start; if set, nothing else is planned.
    pub waits_for: Option<u64>,
}

/// Partitions with the same number of replicas, by the replicas left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// Their number of replicas.
    pub replicas: u32,
    /// Partitions with a majority left: nothing is lost.
    pub majority: u32,
    /// Partitions with fewer left: writes that only dead nodes acknowledged are lost.
    pub minority: u32,
    /// Partitions with no replica left: all their keys are lost.
    pub none: u32,
}

/// One node's part in a [`Plan`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeShare {
    /// The node.
    pub node: NodeId,
    /// Partitions it holds before.
    pub partitions_before: u32,
    /// Partitions it holds after.
    pub partitions_after: u32,
    /// Key and value bytes it receives.
    pub bytes_in: u64,
    /// Key and value bytes it sends.
    pub bytes_out: u64,
}

/// A committed change; watch it with
/// [`Client::status`](crate::Client::status).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Its plan.
    pub plan: Plan,
    /// Number of the transition; `None` if there was nothing to do.
    pub transition: Option<u64>,
}

/// A node's position on the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Position {
    /// Where.
    #[serde(serialize_with = "as_text")]
    pub token: Token,
    /// Who.
    pub node: NodeId,
}

fn as_text<T, S>(value: &T, serializer: S) -> Result<S::Ok, S::Error>
where
    T: std::fmt::Display,
    S: serde::Serializer,
{
    serializer.collect_str(value)
}

#[allow(clippy::ref_option, reason = "the signature is serde's")]
fn as_optional_text<T, S>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error>
where
    T: std::fmt::Display,
    S: serde::Serializer,
{
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}
