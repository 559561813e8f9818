//! The cluster as its nodes describe it: plain types that serialise to stable JSON.
//!
//! Field names carry units. Ids are numbers; cluster ids, digests, tokens and
//! versions are text; what does not exist is `null`.

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
use torc_record::{Epoch, NodeSlot};
use torc_ring::topology::ClusterId;
use torc_ring::{NodeId, Token, Zone};

pub use explanation::{Explanation, Holding, Holds, Quorum, SliceTrace, SliceVerdict};
pub use field_join::{FieldJoin, FieldJoinEstimate, FieldJoinSide};
pub use generations::{Generation, GenerationContent, GenerationState, Reservation};
pub use hot_keys::{HotEstimate, HotHistory, HotKey, HotKeyNode, HotKeys, HotMajority, HotNode};
pub use maintenance::NodeMaintenance;
pub use namespaces::{Namespace, NamespaceMode};
pub use overlap::{Overlap, OverlapEstimate, OverlapJoin, OverlapSet};

/// What the cluster is doing, from [`Client::status`](crate::Client::status).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClusterStatus {
    /// The cluster's id.
    pub cluster_id: ClusterId,
    /// Number of the topology.
    pub epoch: Epoch,
    /// The feature level, which every member works at.
    pub feature_level: u32,
    /// The node that answered.
    pub answered_by: NodeId,
    /// Leader of the topology group, where one is known.
    pub topology_leader: Option<NodeId>,
    /// Number of partitions.
    pub partitions: u32,
    /// Replicas of every partition in which the namespace `default` lies.
    pub replicas: u32,
    /// Partitions with fewer answering replicas than configured; none if the other nodes were
    /// not asked.
    pub under_replicated: Option<u32>,
    /// Partitions of which no majority answers: their keys can be neither read nor written.
    pub without_quorum: Option<u32>,
    /// Generations of static namespaces, in the order of their numbers.
    pub generations: Vec<Generation>,
    /// Every member, those that are not reachable included.
    pub nodes: Vec<NodeStatus>,
    /// The transition that runs now.
    pub transition: Option<Transition>,
    /// The transition that ended last.
    pub last_transition: Option<Transition>,
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
    /// Where it stands.
    pub state: MemberState,
    /// What it runs, as of its last confirmed start.
    pub release: String,
    /// The lowest feature level that this works at.
    pub oldest_level: u32,
    /// The highest feature level that this works at.
    pub newest_level: u32,
}

/// Where a member stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// Has an id, but no position on the ring yet.
    Joining,
    /// Has positions on the ring.
    Active,
    /// Is handing its partitions over and will be removed.
    Leaving,
}

/// One node of a [`ClusterStatus`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct NodeStatus {
    /// Who it is.
    #[serde(flatten)]
    pub member: Member,
    /// Whether it answered the node that answered us. If not, all below is unknown
    /// and zero.
    pub reachable: bool,
    /// Whether it serves its partitions.
    pub ready: bool,
    /// Whether it votes in the topology group.
    pub voter: bool,
    /// What its process runs; if it is not reachable, its last confirmed start.
    pub version: String,
    /// Since it started.
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
    /// Why it is not ready or not reachable.
    pub problem: Option<String>,
    /// Damaged slices on its disk that have not been rewritten yet.
    pub damaged_slices: u64,
    /// Whether its disk has no space: it stores nothing until there is some.
    pub disk_full: bool,
    /// Keys that lie in slices, counted once for each slice that has them.
    pub sealed_keys: u64,
    /// Memory of the indexes of these slices: hash functions, Bloom gates, offsets, headers.
    pub index_bytes: u64,
    /// When its certificate ends, Unix time in milliseconds. None: it speaks no TLS.
    pub certificate_ends_at_ms: Option<u64>,
    /// Its wall clock as it answered, Unix milliseconds; 0 where it does not tell.
    pub clock_ms: u64,
    /// Free space of the file system of its data directory.
    pub free_bytes: Option<u64>,
    /// Memory of its memtable.
    pub memtable_bytes: u64,
    /// What that may take.
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
    /// Slices of the partition that has most.
    pub most_slices: u64,
    /// Bytes of slices on disk.
    pub slice_bytes: u64,
    /// Flushes since it started.
    pub flushes: u64,
    /// Compactions since it started.
    pub compactions: u64,
    /// What it serves to other machines without TLS: `grpc`, `http`, `resp`.
    pub exposed: Vec<String>,
    /// Nodes that it cannot reach, or that owe it an answer.
    pub out_of_reach: Vec<NodeId>,
    /// Whether it writes to a backup now.
    pub backing_up: bool,
    /// What it carried out, oldest first, where that was asked for.
    #[serde(skip)]
    pub load: Vec<LoadSample>,
}

/// What a node carried out in five seconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadSample {
    /// When they began, Unix milliseconds.
    pub from_ms: u64,
    /// Requests: gets, puts, deletes, batches of gets, batches of puts, scans, commands of Redis
    /// clients.
    pub requests: [u64; 7],
    /// Requests that failed.
    pub faults: u64,
    /// How long gets took, by bucket.
    pub get_times: Vec<u64>,
    /// How long puts and deletes took, by bucket.
    pub write_times: Vec<u64>,
    /// Bytes of keys and values that came in with moving partitions.
    pub received_bytes: u64,
}

impl LoadSample {
    /// The time it is of.
    pub const LENGTH: Duration = Duration::from_secs(5);

    /// What a share of these times are at most, microseconds; at most twice too high.
    #[must_use]
    pub fn percentile_us(times: &[u64], share: f64) -> Option<u64> {
        torc_proto::load::percentile_us(times, share)
    }
}

/// A change of the topology, while it runs or after it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Transition {
    /// Its number.
    pub id: u64,
    /// What it changes.
    pub kind: ChangeKind,
    /// The node that comes, goes or changes; of a replacement, the one that comes. None
    /// where replicas are altered.
    pub node: Option<NodeId>,
    /// Of a replacement: the node that goes.
    pub replaced: Option<NodeId>,
    /// Where replicas are altered: the namespaces that change, by name.
    pub namespaces: Vec<String>,
    /// Where replicas are altered: how many each key has afterwards.
    pub replicas_after: Option<u32>,
    /// Whether it was aborted and goes back, or went.
    pub aborted: bool,
    /// Nodes that go and were declared dead.
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
    /// Key and value bytes to move, as planned when it began.
    pub bytes_planned: u64,
    /// Records to move, as planned when it began.
    pub records_planned: u64,
    /// When it began, Unix milliseconds.
    pub started_at_ms: u64,
    /// When it ended, Unix milliseconds; none while it runs.
    pub ended_at_ms: Option<u64>,
}

/// What a change of the topology does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// A node comes.
    Join,
    /// A node goes.
    Leave,
    /// A node comes in the place of another.
    Replace,
    /// A node gets another share.
    Reweight,
    /// Keys of namespaces get another number of replicas.
    Alter,
}

/// What a change will move, from [`Client::plan_join`](crate::Client::plan_join) and its like.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// The topology it was made on.
    pub based_on_epoch: Epoch,
    /// What it changes.
    pub kind: ChangeKind,
    /// The node that comes, goes or changes; none for a node that has no id yet, and where
    /// replicas are altered.
    pub node: Option<NodeId>,
    /// Of a replacement: the node that goes.
    pub replaced: Option<NodeId>,
    /// host:port of gRPC of the node that comes, goes or changes; empty where there is none.
    pub address: String,
    /// Where replicas are altered: the namespaces that change, by name. More than one share
    /// their partitions, so they change together.
    pub namespaces: Vec<String>,
    /// Where replicas are altered: how many each key has before.
    pub replicas_before: Option<u32>,
    /// Where replicas are altered: how many each key has afterwards.
    pub replicas_after: Option<u32>,
    /// Replicas of partitions that get another owner.
    pub partitions_moved: u32,
    /// The fewest that would have to: the fair share of the node that comes or goes.
    pub minimum_moved: f64,
    /// Key and value bytes that will travel, as of now.
    pub bytes: u64,
    /// Records that will travel, as of now.
    pub records: u64,
    /// Replica load of the busiest node over the mean, before.
    pub peak_to_mean_before: f64,
    /// Replica load of the busiest node over the mean, after.
    pub peak_to_mean_after: f64,
    /// What every node gives and takes.
    pub shares: Vec<NodeShare>,
    /// Where the node that goes is dead: what is lost without it and without `lost_with`, per
    /// number of replicas.
    pub losses: Vec<Losses>,
    /// Members that were written off, or do not answer now either.
    pub lost_with: Vec<NodeId>,
    /// The transition that has to end before this one begins; nothing else is planned then.
    pub waits_for: Option<u64>,
}

/// Partitions with one number of replicas, by what is left of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// Replicas that each is to have.
    pub replicas: u32,
    /// Those with a majority: nothing is lost.
    pub majority: u32,
    /// Those with fewer: writes that only the dead had acknowledged are lost.
    pub minority: u32,
    /// Those with no replica: all their keys are lost.
    pub none: u32,
}

/// One node's part in a [`Plan`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeShare {
    /// Which node.
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

/// A change that was committed; watch it with
/// [`Client::status`](crate::Client::status).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// What it moves.
    pub plan: Plan,
    /// Its number; none when there was nothing to do.
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

/// Stage of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Served by its preference list alone.
    Stable,
    /// Newcomers copy; the old nodes serve.
    Copying,
    /// Writes go to old and new nodes, reads to the old.
    WriteBothReadOld,
    /// Writes go to old and new nodes, reads to the new.
    WriteBothReadNew,
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
