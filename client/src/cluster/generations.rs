//! Generations: the content of static namespaces.

use serde::Serialize;
use torc_proto::{WireError, v1, version_from_wire};
use torc_record::{DigestKey, NamespaceId};
use torc_ring::topology::Arcs;
use torc_ring::{NodeId, Partition, Partitions};

use super::from_wire::missing;
use crate::Version;

/// A generation of a static namespace, or a merge into a linearizable one, from [`Client::generations`](crate::Client::generations).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Generation {
    /// Its number, unique in the cluster.
    pub number: u32,
    /// Its namespace.
    pub namespace: String,
    /// The id under which its records are stored.
    pub id: NamespaceId,
    /// The version of all of its records; of a merge, the version below which it replaces others.
    #[serde(serialize_with = "as_text")]
    pub version: Version,
    /// Its state.
    pub state: GenerationState,
    /// Where nodes fetch it from; empty while it is reserved.
    pub source: String,
    /// Its keys.
    pub records: u64,
    /// Bytes of its keys and values.
    pub payload_bytes: u64,
    /// Members that do not hold all of their share yet.
    pub not_ready: Vec<NodeId>,
    /// For the current one: members that may still serve an older one. For a merge: members that may
    /// still write below its version.
    pub unheard: Vec<NodeId>,
}

fn as_text<S: serde::Serializer>(version: &Version, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(version)
}

/// The state of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GenerationState {
    /// Reserved, so it can be built.
    Reserved,
    /// Nodes hold or fetch it.
    Attached,
    /// Nodes answer gets from it.
    Current,
    /// It was current before the current one.
    Previous,
    /// It was rolled back: attach it again before you promote it.
    RolledBack,
    /// A merge into a linearizable namespace.
    Merging,
}

/// A reserved generation, and the parameters to build it with, from
/// [`Client::reserve_generation`](crate::Client::reserve_generation).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The reserved generation.
    pub generation: Generation,
    /// The key of its digests, different for each generation.
    pub digest_key: DigestKey,
    /// Partitions of the cluster.
    pub partitions: Partitions,
}

/// The content of a built generation, for
/// [`Client::attach_generation`](crate::Client::attach_generation).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationContent {
    /// BLAKE3 of its manifest.
    pub manifest: [u8; 32],
    /// A directory that every node can read: `file:///DIR`.
    pub source: String,
    /// Its keys.
    pub records: u64,
    /// Bytes of its keys and values.
    pub payload_bytes: u64,
    /// The partitions in which it has keys.
    pub partitions: Vec<Partition>,
}

impl Generation {
    pub(crate) fn from_wire(wire: Option<v1::Generation>) -> Result<Self, WireError> {
        let wire = wire.ok_or(missing("generation"))?;
        let state = match wire.state() {
            v1::GenerationState::Reserved => GenerationState::Reserved,
            v1::GenerationState::Attached => GenerationState::Attached,
            v1::GenerationState::Current => GenerationState::Current,
            v1::GenerationState::Previous => GenerationState::Previous,
            v1::GenerationState::RolledBack => GenerationState::RolledBack,
            v1::GenerationState::Merging => GenerationState::Merging,
            v1::GenerationState::Unspecified => return Err(missing("state")),
        };
        let version = wire.version.ok_or(missing("version"))?;
        Ok(Self {
            number: wire.number,
            namespace: wire.namespace,
            id: NamespaceId(wire.id),
            version: version_from_wire(&version)?,
            state,
            source: wire.source,
            records: wire.records,
            payload_bytes: wire.payload_bytes,
            not_ready: wire.not_ready.into_iter().map(NodeId).collect(),
            unheard: wire.unheard.into_iter().map(NodeId).collect(),
        })
    }
}

impl Reservation {
    pub(crate) fn from_wire(wire: v1::ChangeGenerationResponse) -> Result<Self, WireError> {
        let partitions = wire.generation.as_ref().map_or(0, |it| it.partitions);
        let digest_key = <[u8; 32]>::try_from(&wire.digest_key[..]);
        Ok(Self {
            generation: Generation::from_wire(wire.generation)?,
            digest_key: DigestKey(digest_key.map_err(|_| missing("digest_key"))?),
            partitions: Partitions::new(partitions).map_err(|_| missing("partitions"))?,
        })
    }
}

impl GenerationContent {
    pub(crate) fn to_wire(&self, number: u32, partitions: Partitions) -> v1::AttachGeneration {
        let arcs = Arcs::of(partitions, self.partitions.iter().copied());
        v1::AttachGeneration {
            number,
            manifest: self.manifest.to_vec().into(),
            source: self.source.clone(),
            records: self.records,
            payload_bytes: self.payload_bytes,
            arcs: arcs.as_bytes().to_vec().into(),
        }
    }
}
