//! Envelopes in one buffer.

use bytes::{Bytes, BytesMut};
use prost::Message as _;
use torc_replication::Envelope;
use torc_ring::Partitions;

use super::list::{push, split};
use super::{
    MAX_BATCH_ENVELOPES, MAX_BATCH_LEN, MAX_ENVELOPE_LEN, envelope_from_wire, envelope_to_wire,
};
use crate::{TraceContext, WireError, v1};

/// Adds an envelope to `batch`, which is split off and sent as `LinkRequest.envelopes`. A batch has
/// at most [`MAX_BATCH_ENVELOPES`].
///
/// `trace` is the span of the envelope's operation.
pub fn push_envelope(batch: &mut BytesMut, envelope: Envelope, trace: Option<&TraceContext>) {
    let mut wire = envelope_to_wire(envelope);
    if let Some(trace) = trace {
        wire.trace = trace.to_wire();
    }
    push(batch, &wire);
}

/// Cuts a batch into its envelopes, without copying or decoding.
///
/// # Errors
/// [`WireError::TooLong`], [`WireError::TooMany`] or [`WireError::Malformed`]: no part of the batch
/// can be trusted.
pub fn split_batch(batch: Bytes) -> Result<Vec<Bytes>, WireError> {
    bounded("envelopes", batch.len(), MAX_BATCH_LEN)?;
    split("envelopes", batch, MAX_BATCH_ENVELOPES).collect()
}

/// Decodes one envelope of a batch, and the span of its operation. Its keys and values share
/// `bytes`. Ignores a malformed span.
///
/// # Errors
/// [`WireError`] for anything that is missing, out of bounds, or belongs to another partition.
pub fn envelope_from_bytes(
    bytes: Bytes,
    partitions: Partitions,
) -> Result<(Envelope, Option<TraceContext>), WireError> {
    bounded("envelope", bytes.len(), MAX_ENVELOPE_LEN)?;
    let wire = v1::Envelope::decode(bytes)?;
    let trace = TraceContext::from_wire(&wire.trace);
    Ok((envelope_from_wire(wire, partitions)?, trace))
}

fn bounded(what: &'static str, len: usize, limit: usize) -> Result<(), WireError> {
    if len > limit {
        return Err(WireError::TooLong { what, len, limit });
    }
    Ok(())
}
