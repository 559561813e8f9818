//! Streaming a partition to its new owner.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use futures::Stream;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use torc_proto::v1::{self, PullRequest, PullResponse};
use torc_proto::{Fault, Reason, record_to_wire};
use torc_record::Epoch;
use torc_replication::Role;
use torc_ring::Partition;
use torc_store::{Cursor, ScanLimits, Seq};

use crate::gate::stale;
use crate::shared::{DEFAULT_DEADLINE, Shared, store_fault};

pub(crate) type PullStream = Pin<Box<dyn Stream<Item = Result<PullResponse, Status>> + Send>>;

const PAGE: ScanLimits = ScanLimits {
    records: 4_000,
    bytes: 1 << 20,
};
const PAGES_AHEAD: usize = 2;

pub(super) fn start(shared: &Arc<Shared>, request: &PullRequest) -> Result<PullStream, Fault> {
    let after = if request.after.is_empty() {
        None
    } else {
        let cursor = Cursor::from_bytes(&request.after);
        Some(cursor.map_err(|error| Fault::new(Reason::Invalid, error.to_string()))?)
    };
    let pull = Pull {
        shared: Arc::clone(shared),
        partition: Partition(request.partition),
        epoch: Epoch(request.epoch),
        since: Seq(request.since),
        after,
    };
    let (pages, receiver) = mpsc::channel(PAGES_AHEAD);
    tokio::spawn(pull.run(pages));
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

struct Pull {
    shared: Arc<Shared>,
    partition: Partition,
    epoch: Epoch,
    since: Seq,
    after: Option<Cursor>,
}

impl Pull {
    async fn run(mut self, pages: mpsc::Sender<Result<PullResponse, Status>>) {
        let mut first = true;
        loop {
            let page = self.page(first).await;
            let last = page.as_ref().map_or(true, |page| page.done);
            first = false;
            let gone = pages.send(page.map_err(Status::from)).await.is_err();
            if last || gone {
                return;
            }
        }
    }

    /// One page, read in the epoch that was asked for: when that is over, so is the pull.
    async fn page(&mut self, first: bool) -> Result<PullResponse, Fault> {
        let deadline = Instant::now() + DEFAULT_DEADLINE;
        let pass = self
            .shared
            .gates
            .enter(self.partition, Some(self.epoch), deadline)
            .await?;
        if !matches!(pass.role, Role::Lead { .. }) {
            return Err(stale(self.partition, pass.epoch));
        }
        // Taken before the first record is read: what changes later is in the tail.
        let sequence = if first {
            self.shared.store.last_seq().0
        } else {
            0
        };
        let page =
            self.shared
                .store
                .scan_since(self.partition, self.since, self.after.as_ref(), PAGE);
        let page = page.map_err(|error| store_fault(&error))?;
        drop(pass);
        let last = page.records.last().map(Cursor::of);
        let records: Vec<v1::Record> = page.records.into_iter().map(record_to_wire).collect();
        let (checksum, bytes) = checksum(&records);
        self.shared.throttle.take(bytes).await;
        self.shared.metrics.transfer_sent_bytes.inc_by(bytes);
        if let Some(next) = page.next.or(last) {
            self.after = Some(next);
        }
        Ok(PullResponse {
            records,
            cursor: self
                .after
                .as_ref()
                .map(Cursor::to_bytes)
                .unwrap_or_default()
                .into(),
            sequence,
            done: page.done,
            checksum,
            incarnation: if first {
                self.shared.identity.incarnation.0.to_vec().into()
            } else {
                bytes::Bytes::new()
            },
        })
    }
}

/// CRC-32C over the records as they are encoded, and how many bytes that is.
pub(crate) fn checksum(records: &[v1::Record]) -> (u32, u64) {
    let mut buffer = Vec::new();
    let (mut crc, mut bytes) = (0, 0);
    for record in records {
        buffer.clear();
        // Encoding into a vector cannot run out of room.
        let _ = record.encode(&mut buffer);
        crc = crc32c::crc32c_append(crc, &buffer);
        bytes += buffer.len() as u64;
    }
    (crc, bytes)
}
