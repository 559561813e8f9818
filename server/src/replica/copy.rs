//! Streaming a partition's slices to its new owner, byte for byte.
//!
//! The slices are those of one moment; they stay readable until the stream ends, whatever is
//! sealed, folded or dropped meanwhile. What they do not have, the new owner pulls
//! afterwards, record by record.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use futures::Stream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use torc_proto::v1::{CopySlicesRequest, CopySlicesResponse, SliceInfo};
use torc_proto::{Fault, Reason};
use torc_record::Epoch;
use torc_replication::Role;
use torc_ring::Partition;
use torc_store::{SealedPartition, SealedSlice};

use crate::gate::stale;
use crate::shared::{DEFAULT_DEADLINE, Shared, store_fault};

pub(crate) type CopyStream = Pin<Box<dyn Stream<Item = Result<CopySlicesResponse, Status>> + Send>>;

/// Bytes of slices that are read together.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes of slices in a message: buffers of this size stay in the processor's cache and are
/// used again on both sides, larger ones are mapped and cleared anew each time.
pub(crate) const MESSAGE_BYTES: usize = 1 << 17;
const MESSAGES_AHEAD: usize = 16;
/// Most slices that an asker has already.
pub(crate) const MAX_HAVE: usize = 256;

pub(super) async fn start(
    shared: &Arc<Shared>,
    request: CopySlicesRequest,
) -> Result<CopyStream, Fault> {
    if request.have.len() > MAX_HAVE {
        let what = format!("more than {MAX_HAVE} digests of slices");
        return Err(Fault::new(Reason::Invalid, what));
    }
    let mut sealed = sealed(shared, &request).await?;
    sealed.slices.retain(|slice| {
        let digest = slice.info().digest;
        !request.have.iter().any(|have| have[..] == digest)
    });
    let (messages, receiver) = mpsc::channel(MESSAGES_AHEAD);
    tokio::spawn(send(Arc::clone(shared), sealed, messages));
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

/// The partition's slices as they are in the epoch that was asked for.
async fn sealed(
    shared: &Arc<Shared>,
    request: &CopySlicesRequest,
) -> Result<SealedPartition, Fault> {
    let partition = Partition(request.partition);
    let epoch = Epoch(request.epoch);
    if let Some(registers) = shared.registers.get() {
        let sealed = registers.sealed(partition, epoch);
        let sealed = sealed.ok_or_else(|| stale(partition, epoch))?;
        return sealed.map_err(|error| store_fault(&error));
    }
    let deadline = Instant::now() + DEFAULT_DEADLINE;
    let pass = shared.gates.enter(partition, Some(epoch), deadline).await?;
    if !matches!(pass.role, Role::Lead { .. }) {
        return Err(stale(partition, pass.epoch));
    }
    let sealed = shared.store.sealed(partition);
    sealed.map_err(|error| store_fault(&error))
}

async fn send(
    shared: Arc<Shared>,
    sealed: SealedPartition,
    messages: mpsc::Sender<Result<CopySlicesResponse, Status>>,
) {
    let head = CopySlicesResponse {
        slices: sealed.slices.iter().map(info).collect(),
        through: sealed.through.0,
        incarnation: shared.identity.incarnation.0.to_vec().into(),
        bytes: bytes::Bytes::new(),
    };
    if messages.send(Ok(head)).await.is_err() {
        return;
    }
    for slice in sealed.slices {
        let len = slice.info().len;
        let mut at = 0;
        while at < len {
            let (chunk_of, from) = (slice.clone(), at);
            // The file may have to be read from the disk.
            let read = tokio::task::spawn_blocking(move || chunk_of.read(from, CHUNK_BYTES));
            let Ok(mut bytes) = read.await.map_err(drop) else {
                let fault = Fault::new(Reason::Internal, "reading a slice has failed");
                let _ = messages.send(Err(fault.into())).await;
                return;
            };
            at += bytes.len() as u64;
            shared.throttle.take(bytes.len() as u64).await;
            let sent = bytes.len() as u64;
            shared.metrics.transfer_sent_bytes.inc_by(sent);
            while !bytes.is_empty() {
                let piece = bytes.split_to(bytes.len().min(MESSAGE_BYTES));
                let message = CopySlicesResponse {
                    bytes: piece,
                    ..CopySlicesResponse::default()
                };
                if messages.send(Ok(message)).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn info(slice: &SealedSlice) -> SliceInfo {
    let info = slice.info();
    let (records, payload_bytes) = slice.sizes();
    SliceInfo {
        len: info.len,
        digest: info.digest.to_vec().into(),
        records,
        payload_bytes,
    }
}
