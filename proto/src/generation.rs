//! Generations on the wire.

use std::collections::BTreeSet;

use torc_ring::NodeId;
use torc_ring::topology::{Counts, Generation, GenerationShape, GenerationState, Topology};

use crate::v1::{self, GenerationKind};
use crate::{WireError, version_to_wire};

/// The shape that a builder states.
///
/// # Errors
/// The field that does not fit.
pub fn generation_shape_from_wire(
    wire: &v1::GenerationShape,
) -> Result<GenerationShape, WireError> {
    let bad = |field| WireError::Field { field };
    let kind = GenerationKind::try_from(wire.kind).map_err(|_| bad("kind"))?;
    Ok(match kind {
        GenerationKind::Unspecified => GenerationShape::Values,
        GenerationKind::Keyless => GenerationShape::Keyless {
            fingerprint_bits: u8::try_from(wire.fingerprint_bits)
                .map_err(|_| bad("fingerprint_bits"))?,
            payload_bytes: u8::try_from(wire.payload_bytes).map_err(|_| bad("payload_bytes"))?,
        },
        GenerationKind::Ids => {
            let counts = Counts::from_bytes(&wire.counts);
            GenerationShape::Ids(counts.ok_or_else(|| bad("counts"))?)
        }
    })
}

fn shape_to_wire(shape: &GenerationShape) -> v1::GenerationShape {
    let (kind, fingerprint_bits, payload_bytes) = match shape {
        GenerationShape::Values => (GenerationKind::Unspecified, 0, 0),
        GenerationShape::Keyless {
            fingerprint_bits,
            payload_bytes,
        } => (GenerationKind::Keyless, *fingerprint_bits, *payload_bytes),
        GenerationShape::Ids(_) => (GenerationKind::Ids, 0, 0),
    };
    v1::GenerationShape {
        kind: kind.into(),
        fingerprint_bits: fingerprint_bits.into(),
        payload_bytes: payload_bytes.into(),
        counts: bytes::Bytes::new(),
    }
}

/// A generation, and which members are not ready to serve it or have not confirmed its switch.
#[must_use]
pub fn generation_to_wire(topology: &Topology, generation: &Generation) -> v1::Generation {
    let state = match generation.state {
        GenerationState::Reserved => v1::GenerationState::Reserved,
        GenerationState::Attached => v1::GenerationState::Attached,
        GenerationState::Current => v1::GenerationState::Current,
        GenerationState::Previous(_) => v1::GenerationState::Previous,
        GenerationState::RolledBack => v1::GenerationState::RolledBack,
        GenerationState::Merging => v1::GenerationState::Merging,
    };
    let ids = |nodes: BTreeSet<NodeId>| nodes.into_iter().map(|node| node.0).collect::<Vec<_>>();
    let content = generation.content.as_ref();
    let switches = matches!(
        generation.state,
        GenerationState::Current | GenerationState::Merging
    );
    v1::Generation {
        number: generation.id.number(),
        namespace: generation.namespace.clone(),
        id: generation.id.0,
        version: Some(version_to_wire(generation.ballot)),
        state: state.into(),
        manifest: content.map_or_else(Default::default, |it| it.manifest.to_vec().into()),
        source: content.map_or_else(String::new, |it| it.source.clone()),
        records: content.map_or(0, |it| it.records),
        payload_bytes: content.map_or(0, |it| it.bytes),
        not_ready: if generation.is_held() {
            ids(topology.not_ready(generation))
        } else {
            Vec::new()
        },
        unconfirmed: if switches {
            ids(topology.unconfirmed(&generation.namespace))
        } else {
            Vec::new()
        },
        partitions: topology.partitions().count(),
        shape: generation.shape().map(shape_to_wire),
        creates: generation.creates.is_some(),
    }
}
