//! The bulk of a transfer: receives the source's slices byte for byte.

use std::time::Duration;

use torc_member::peers::Recipient;
use torc_proto::v1::{CopySlicesRequest, CopySlicesResponse, SliceInfo};
use torc_proto::{Fault, Reason};
use torc_record::DigestKey;
use torc_ring::Partition;
use torc_ring::topology::Sizes;
use torc_store::Ingest;

use crate::Transfers;

/// A stream without a message for this time has lost its connection.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of messages that are written at a time.
const TOGETHER: u64 = 1 << 20;

/// Received and verified slices, and what they cover.
pub(crate) struct Received {
    /// `None` if there are no slices.
    pub(crate) ingest: Option<Ingest>,
    pub(crate) sizes: Sizes,
    /// Records that are not in the slices are later in the source's log than this.
    pub(crate) through: u64,
}

/// Receives and verifies slices of a partition without putting them in force.
pub(crate) async fn receive(
    transfers: &Transfers,
    source: &Recipient,
    request: CopySlicesRequest,
) -> Result<Received, Fault> {
    let partition = Partition(request.partition);
    let mut client = transfers.member.peers.replica(source)?;
    let messages = client.copy_slices(request).await;
    let mut messages = messages
        .map_err(|status| Fault::from_status(&status))?
        .into_inner();
    let head = next(&mut messages).await?.ok_or_else(hung_up)?;
    let (infos, sizes) = announced(&head.slices)?;
    let mut received = Received {
        ingest: None,
        sizes,
        through: head.through,
    };
    if infos.is_empty() {
        return Ok(received);
    }
    let key: DigestKey = transfers.member.routing()?.digest_key;
    let announced: u64 = infos.iter().map(|info| info.len).sum();
    let store = transfers.store.clone();
    let begin = move || store.ingest(partition, &infos);
    let mut ingest = transfers.ingest(begin).await?;
    let mut taken = 0;
    while taken < announced {
        let mut pieces = Vec::new();
        let together = announced.min(taken + TOGETHER);
        while taken < together {
            let bytes = next(&mut messages).await?.ok_or_else(hung_up)?.bytes;
            let metrics = &transfers.metrics;
            metrics.received_bytes.inc_by(bytes.len() as u64);
            taken += bytes.len() as u64;
            // An empty message says that the source waits for its turn.
            if !bytes.is_empty() {
                pieces.push(bytes);
            }
        }
        ingest = transfers
            .ingest(move || {
                for bytes in pieces {
                    ingest.write(bytes)?;
                }
                if taken >= announced {
                    // Immediately, while the last bytes are still in the CPU cache.
                    ingest.verify(Some(&key))?;
                }
                Ok(ingest)
            })
            .await?;
    }
    if next(&mut messages).await?.is_some() {
        let message = "the source sent more than it had announced";
        return Err(Fault::new(Reason::Corrupt, message));
    }
    received.ingest = Some(ingest);
    Ok(received)
}

fn announced(slices: &[SliceInfo]) -> Result<(Vec<torc_store::SliceInfo>, Sizes), Fault> {
    let mut sizes = Sizes::default();
    let infos = slices.iter().map(|slice| {
        sizes += Sizes {
            records: slice.records,
            bytes: slice.payload_bytes,
        };
        let digest = <[u8; 32]>::try_from(&slice.digest[..]);
        Ok(torc_store::SliceInfo {
            len: slice.len,
            digest: digest.map_err(|_| torc_proto::WireError::Field { field: "digest" })?,
        })
    });
    let infos: Result<_, Fault> = infos.collect();
    Ok((infos?, sizes))
}

async fn next(
    messages: &mut tonic::Streaming<CopySlicesResponse>,
) -> Result<Option<CopySlicesResponse>, Fault> {
    let message = tokio::time::timeout(MESSAGE_TIMEOUT, messages.message()).await;
    message
        .map_err(|_| Fault::new(Reason::OwnerUnreachable, "the source stopped sending"))?
        .map_err(|status| Fault::from_status(&status))
}

fn hung_up() -> Fault {
    Fault::new(Reason::OwnerUnreachable, "the source closed the stream")
}
