//! Streams a partition's slices to its new owner, byte for byte.
//!
//! The slices are a snapshot: they stay readable until the stream ends, despite flushes,
//! compactions or drops meanwhile. The new owner then pulls the remaining records one by one.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use torc_member::fault::{stale, store_fault};
use torc_proto::v1::{CopySlicesRequest, CopySlicesResponse, SliceInfo};
use torc_proto::{Fault, MAX_HAVE, MESSAGE_BYTES, Reason};
use torc_record::{Epoch, NamespaceId};
use torc_ring::Partition;
use torc_store::{SealedPartition, SealedSlice, StoreError};

use crate::{Transfers, failed};

/// The slices, announced by the first message.
pub type CopyStream = Pin<Box<dyn Stream<Item = Result<CopySlicesResponse, Status>> + Send>>;

/// Bytes of slices that are read at a time.
const CHUNK_BYTES: usize = 1 << 20;
const MESSAGES_AHEAD: usize = 16;
/// Interval between messages while many transfers share a low limit; a receiver gives up after
/// several of them.
const STILL_HERE: Duration = Duration::from_secs(4);

/// Begins to send the slices that the receiver does not have.
///
/// # Errors
/// The fault of the request. Later faults end the stream.
pub async fn start(
    transfers: &Arc<Transfers>,
    request: &CopySlicesRequest,
) -> Result<CopyStream, Fault> {
    if request.have.len() > MAX_HAVE {
        let what = format!("send at most {MAX_HAVE} digests of slices");
        return Err(Fault::new(Reason::Invalid, what));
    }
    let sealed = sealed(transfers, request).await?;
    let (through, have) = (sealed.through.0, request.have.clone());
    let slices = from_disk(move || lacking(sealed.slices, &have)).await?;
    let (messages, receiver) = mpsc::channel(MESSAGES_AHEAD);
    tokio::spawn(send(Arc::clone(transfers), slices, through, messages));
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

/// The partition's slices in the requested epoch.
async fn sealed(
    transfers: &Transfers,
    request: &CopySlicesRequest,
) -> Result<SealedPartition, Fault> {
    let partition = Partition(request.partition);
    let generation = NamespaceId(request.generation);
    if generation.is_generation() {
        return Ok(of_generation(transfers, partition, generation));
    }
    let epoch = Epoch(request.epoch);
    let sealed = transfers.member.registers()?.sealed(partition, epoch).await;
    let sealed = sealed.ok_or_else(|| stale(partition, epoch))?;
    sealed.map_err(|error| store_fault(&error))
}

/// The slices of a generation, which never change and so may be copied in any epoch.
fn of_generation(transfers: &Transfers, partition: Partition, id: NamespaceId) -> SealedPartition {
    let slice = transfers.store.generation(partition, id);
    SealedPartition::of(slice.into_iter().collect())
}

async fn send(
    transfers: Arc<Transfers>,
    slices: Vec<(SealedSlice, SliceInfo)>,
    through: u64,
    messages: mpsc::Sender<Result<CopySlicesResponse, Status>>,
) {
    let head = CopySlicesResponse {
        slices: slices.iter().map(|(_, info)| info.clone()).collect(),
        through,
        bytes: bytes::Bytes::new(),
    };
    if messages.send(Ok(head)).await.is_err() {
        return;
    }
    for (slice, SliceInfo { len, .. }) in slices {
        let mut at = 0;
        while at < len {
            let (chunk_of, from) = (slice.clone(), at);
            let mut bytes = match from_disk(move || chunk_of.read(from, CHUNK_BYTES)).await {
                Ok(bytes) => bytes,
                Err(fault) => return drop(messages.send(Err(fault.into())).await),
            };
            at += bytes.len() as u64;
            while !bytes.is_empty() {
                let piece = bytes.split_to(bytes.len().min(MESSAGE_BYTES));
                let len = piece.len() as u64;
                if !wait_for_turn(&transfers, &messages, len).await {
                    return;
                }
                transfers.metrics.sent_bytes.inc_by(len);
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

/// Waits as the limit on transfers demands, and tells the receiver so from time to time: an empty
/// message. Returns false once the receiver is gone.
async fn wait_for_turn(
    transfers: &Transfers,
    messages: &mpsc::Sender<Result<CopySlicesResponse, Status>>,
    bytes: u64,
) -> bool {
    let mut taking = pin!(transfers.throttle.take(bytes));
    loop {
        tokio::select! {
            () = &mut taking => return true,
            () = messages.closed() => return false,
            () = tokio::time::sleep(STILL_HERE) => {
                // A receiver with messages left to read needs no other one.
                let _ = messages.try_send(Ok(CopySlicesResponse::default()));
            }
        }
    }
}

/// Reads on a blocking thread.
async fn from_disk<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(read).await;
    let done = done.map_err(|_| failed("reading a slice"))?;
    done.map_err(|error| store_fault(&error))
}

/// The slices whose digests the receiver does not have.
fn lacking(
    slices: Vec<SealedSlice>,
    have: &[bytes::Bytes],
) -> Result<Vec<(SealedSlice, SliceInfo)>, StoreError> {
    let mut lacking = Vec::with_capacity(slices.len());
    for slice in slices {
        let info = info(&slice)?;
        if !have.contains(&info.digest) {
            lacking.push((slice, info));
        }
    }
    Ok(lacking)
}

fn info(slice: &SealedSlice) -> Result<SliceInfo, StoreError> {
    let info = slice.info()?;
    let (records, payload_bytes) = slice.sizes();
    Ok(SliceInfo {
        len: info.len,
        digest: info.digest.to_vec().into(),
        records,
        payload_bytes,
    })
}
