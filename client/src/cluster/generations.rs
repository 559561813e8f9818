//! Generations: the content of static namespaces.

use std::fmt::Write as _;

use serde::Serialize;
use torc_proto::v1::GenerationKind;
use torc_proto::{WireError, v1, version_from_wire};
use torc_record::{DigestKey, NamespaceId};
use torc_ring::topology::{Arcs, Counts};
use torc_ring::{NodeId, Partition, Partitions};

use super::missing;
use crate::Version;

/// A generation of a static namespace, the first records of an ordinary one, or a merge into a linearizable one, from [`Client::generations`](crate::Client::generations).
#[derive(Debug, Clone, PartialEq, Serialize)]
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
    /// Whether its promotion creates its namespace, which is an ordinary one.
    pub creates: bool,
    /// What it keeps of each key; `None` while it is reserved.
    pub shape: Option<GenerationShape>,
    /// The probability that a get of an absent key finds a value; zero unless it is keyless.
    pub false_positive_rate: f64,
    /// The digest of its manifest, as hexadecimal digits; empty while it is reserved.
    pub manifest: String,
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
    pub unconfirmed: Vec<NodeId>,
}

fn as_text<S: serde::Serializer>(version: &Version, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(version)
}

/// What a generation keeps of each key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum GenerationShape {
    /// The key and its value.
    Values,
    /// A fingerprint of the key, and a payload. A present key is always found; an absent key looks
    /// present with probability 2^-`fingerprint_bits`. Keys cannot be listed.
    Keyless {
        /// 1 to 32.
        fingerprint_bits: u8,
        /// Bytes of each value, 0 to 64.
        payload_bytes: u8,
    },
    /// The key and an id, 0 to n - 1. The value of a key is its id in decimal digits;
    /// [`Client::key_of`](crate::Client::key_of) gives the key of an id.
    Ids,
}

impl GenerationShape {
    /// The probability that an absent key looks present.
    #[must_use]
    pub fn false_positive_rate(self) -> f64 {
        match self {
            Self::Values | Self::Ids => 0.0,
            Self::Keyless {
                fingerprint_bits, ..
            } => 0.5_f64.powi(i32::from(fingerprint_bits)),
        }
    }

    fn from_wire(wire: &v1::GenerationShape) -> Result<Self, WireError> {
        let byte = |number, field| u8::try_from(number).map_err(|_| missing(field));
        let kind = GenerationKind::try_from(wire.kind).map_err(|_| missing("kind"))?;
        Ok(match kind {
            GenerationKind::Unspecified => Self::Values,
            GenerationKind::Keyless => Self::Keyless {
                fingerprint_bits: byte(wire.fingerprint_bits, "fingerprint_bits")?,
                payload_bytes: byte(wire.payload_bytes, "payload_bytes")?,
            },
            GenerationKind::Ids => Self::Ids,
        })
    }

    /// `counts`: of the keys of each arc.
    fn to_wire(self, counts: &Counts) -> v1::GenerationShape {
        let kind = |kind: GenerationKind| v1::GenerationShape {
            kind: kind.into(),
            ..v1::GenerationShape::default()
        };
        match self {
            Self::Values => kind(GenerationKind::Unspecified),
            Self::Keyless {
                fingerprint_bits,
                payload_bytes,
            } => v1::GenerationShape {
                fingerprint_bits: fingerprint_bits.into(),
                payload_bytes: payload_bytes.into(),
                ..kind(GenerationKind::Keyless)
            },
            Self::Ids => v1::GenerationShape {
                counts: counts.to_bytes().into(),
                ..kind(GenerationKind::Ids)
            },
        }
    }
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
#[derive(Debug, Clone, PartialEq)]
pub struct Reservation {
    /// The reserved generation.
    pub generation: Generation,
    /// The key of its digests: different for each generation, and that of the cluster if it creates a namespace.
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
    /// Where every node can read it: the URL of its manifest, or of the directory of
    /// `generation.json`. `file:///…`, or `s3://…`, `gs://…` or `az://…` if nodes have the feature.
    pub source: String,
    /// Its keys.
    pub records: u64,
    /// Bytes of its keys and values.
    pub payload_bytes: u64,
    /// The partitions in which it has keys, each with their number.
    pub partitions: Vec<(Partition, u32)>,
    /// What it keeps of each key.
    pub shape: GenerationShape,
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
        let shape = wire.shape.as_ref().map(GenerationShape::from_wire);
        let shape = shape.transpose()?;
        Ok(Self {
            creates: wire.creates,
            shape,
            false_positive_rate: shape.map_or(0.0, GenerationShape::false_positive_rate),
            number: wire.number,
            namespace: wire.namespace,
            id: NamespaceId(wire.id),
            version: version_from_wire(&version)?,
            state,
            manifest: hex(&wire.manifest),
            source: wire.source,
            records: wire.records,
            payload_bytes: wire.payload_bytes,
            not_ready: wire.not_ready.into_iter().map(NodeId).collect(),
            unconfirmed: wire.unconfirmed.into_iter().map(NodeId).collect(),
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
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
        let some = self.partitions.iter().map(|(partition, _)| *partition);
        let arcs = Arcs::of(partitions, some);
        let counts = Counts::of(partitions, self.partitions.iter().copied());
        v1::AttachGeneration {
            number,
            manifest: self.manifest.to_vec().into(),
            source: self.source.clone(),
            records: self.records,
            payload_bytes: self.payload_bytes,
            arcs: arcs.as_bytes().to_vec().into(),
            shape: Some(self.shape.to_wire(&counts)),
        }
    }
}
