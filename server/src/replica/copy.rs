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

/// Bytes of slices in a message.
const CHUNK_BYTES: usize = 1 << 20;
const CHUNKS_AHEAD: usize = 4;
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
    let (messages, receiver) = mpsc::channel(CHUNKS_AHEAD);
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
            let Ok(bytes) = read.await.map_err(drop) else {
                let fault = Fault::new(Reason::Internal, "reading a slice has failed");
                let _ = messages.send(Err(fault.into())).await;
                return;
            };
            at += bytes.len() as u64;
            shared.throttle.take(bytes.len() as u64).await;
            let sent = bytes.len() as u64;
            shared.metrics.transfer_sent_bytes.inc_by(sent);
            let message = CopySlicesResponse {
                bytes,
                ..CopySlicesResponse::default()
            };
            if messages.send(Ok(message)).await.is_err() {
                return;
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
