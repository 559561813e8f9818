//! Copying one partition from its lead, resumably, until both copies are equal.
//!
//! A transfer begins with the source's slices, byte for byte ([`super::slices`]): the bulk.
//! What they do not have comes in passes. A pass pulls, in ring order, every record that
//! the source stored after the sequence number up to which the slices and earlier passes
//! are complete. A pass begun in the epoch in which the source sends us every write is the
//! last one needed, and then the copies are compared.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

use torc_proto::v1::{AcceptRequest, PullRequest, PullResponse, VerifyRequest};
use torc_proto::{Fault, Reason, record_to_wire};
use torc_record::Epoch;
use torc_ring::topology::Sizes;
use torc_ring::{NodeId, Partition};
use torc_store::{Cursor, ScanLimits};

use crate::peers::within;
use crate::replica::{pull_checksum, records_of};
use crate::shared::{Shared, store_fault};

const CURSORS: &str = "transfers";
const VERIFY_TIMEOUT: Duration = Duration::from_secs(5);
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(10);
/// A page that takes longer than this has lost its connection.
const PAGE_TIMEOUT: Duration = Duration::from_secs(20);

/// How far a transfer is. Losing it costs copying again, nothing else.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Progress {
    /// The source's data directory, which the sequence numbers belong to.
    source: Vec<u8>,
    /// Its slices have been copied.
    #[serde(default)]
    has_slices: bool,
    /// Everything the source stored up to here has been copied.
    complete_to: u64,
    /// The pass under way: what it will make complete, and the epoch it began in.
    pass: Option<Pass>,
    /// Copied since the last report.
    unreported: Sizes,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pass {
    completes_to: u64,
    epoch: Epoch,
    after: Vec<u8>,
}

/// One partition on its way to this node, in one epoch.
pub(super) struct Transfer<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) partition: Partition,
    pub(super) epoch: Epoch,
    source: NodeId,
    progress: Progress,
}

impl<'a> Transfer<'a> {
    /// Goes on where an earlier transfer of the partition stopped.
    pub(super) async fn resume(
        shared: &'a Arc<Shared>,
        partition: Partition,
        epoch: Epoch,
        source: NodeId,
    ) -> Self {
        let kept = shared
            .advisory
            .get(CURSORS, &partition.0.to_be_bytes())
            .await;
        let progress = kept.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self {
            shared,
            partition,
            epoch,
            source,
            progress: progress.unwrap_or_default(),
        }
    }

    /// Drops the cursor of a partition that has arrived.
    pub(super) async fn forget(shared: &Shared, partition: Partition) {
        shared
            .advisory
            .delete(CURSORS, &partition.0.to_be_bytes())
            .await;
    }

    async fn keep(&self) {
        // A cursor that cannot be written down costs copying again.
        let Ok(json) = serde_json::to_vec(&self.progress) else {
            return;
        };
        self.shared
            .advisory
            .put(CURSORS, &self.partition.0.to_be_bytes(), &json)
            .await;
    }

    /// What was copied since the last time this was asked.
    pub(super) async fn take_sizes(&mut self) -> Sizes {
        let sizes = std::mem::take(&mut self.progress.unreported);
        self.keep().await;
        sizes
    }

    /// Whether nothing was copied yet.
    pub(super) fn wants_slices(&self) -> bool {
        let progress = &self.progress;
        !progress.has_slices && progress.complete_to == 0 && progress.pass.is_none()
    }

    /// Remembers that the source's slices are here.
    pub(super) async fn note_slices(&mut self, source: Vec<u8>, through: u64, sizes: Sizes) {
        self.progress.source = source;
        self.progress.has_slices = true;
        self.progress.complete_to = through;
        self.progress.unreported += sizes;
        self.keep().await;
    }

    /// Finishes the pass under way, or makes one.
    pub(super) async fn pass(&mut self) -> Result<(), Fault> {
        let pass = self.progress.pass.clone();
        let request = PullRequest {
            partition: self.partition.0,
            epoch: self.epoch.0,
            since: self.progress.complete_to,
            after: pass.map(|pass| pass.after).unwrap_or_default().into(),
        };
        let mut client = self.shared.peers.replica(&self.source_address()?)?;
        let pages = client
            .pull(request)
            .await
            .map_err(|status| Fault::from_status(&status))?;
        let mut pages = pages.into_inner();
        loop {
            let page = tokio::time::timeout(PAGE_TIMEOUT, pages.message()).await;
            let page = page
                .map_err(|_| Fault::new(Reason::OwnerUnreachable, "the source has fallen silent"))?
                .map_err(|status| Fault::from_status(&status))?
                .ok_or_else(|| Fault::new(Reason::OwnerUnreachable, "the source hung up"))?;
            if self.take(page).await? {
                return Ok(());
            }
        }
    }

    /// Stores a page, durably, then moves the cursor. True at the end of the pass.
    async fn take(&mut self, page: PullResponse) -> Result<bool, Fault> {
        if !page.incarnation.is_empty() {
            let begun = self.begin_pass(&page);
            if begun.is_err() {
                self.keep().await;
            }
            begun?;
        }
        if pull_checksum(&page.records).0 != page.checksum {
            return Err(Fault::new(
                Reason::Corrupt,
                "a page of records was damaged on the way",
            ));
        }
        let records = records_of(self.shared, self.partition, page.records)?;
        let bytes: usize = records.iter().map(torc_record::Record::payload_len).sum();
        self.progress.unreported += Sizes {
            records: records.len() as u64,
            bytes: bytes as u64,
        };
        self.shared
            .metrics
            .transfer_received_bytes
            .inc_by(bytes as u64);
        self.shared
            .metrics
            .transfer_received_records
            .inc_by(records.len() as u64);
        if !records.is_empty() {
            let stored = self.shared.store.write_batch(records).await;
            stored.map_err(|error| store_fault(&error))?;
        }
        if let Some(pass) = &mut self.progress.pass {
            pass.after = page.cursor.to_vec();
            if page.done {
                self.progress.complete_to = pass.completes_to;
                self.progress.pass = None;
            }
        }
        self.keep().await;
        Ok(page.done)
    }

    /// The first page tells whose sequence numbers these are. Those of another data
    /// directory mean nothing: then all is copied anew.
    fn begin_pass(&mut self, page: &PullResponse) -> Result<(), Fault> {
        if self.progress.source != page.incarnation {
            let fresh = self.progress.source.is_empty();
            self.progress = Progress {
                source: page.incarnation.to_vec(),
                unreported: self.progress.unreported,
                ..Progress::default()
            };
            if !fresh {
                let message = "the source has another data directory: copying from the start";
                return Err(Fault::new(Reason::StaleEpoch, message));
            }
        }
        if self.progress.pass.is_none() {
            self.progress.pass = Some(Pass {
                completes_to: page.sequence,
                epoch: self.epoch,
                after: Vec::new(),
            });
        }
        Ok(())
    }

    /// Makes passes until one has begun in this epoch, in which the source sends us
    /// every write, then has the copies compared.
    pub(super) async fn until_equal(&mut self) -> Result<(), Fault> {
        if self
            .progress
            .pass
            .as_ref()
            .is_some_and(|pass| pass.epoch != self.epoch)
        {
            self.pass().await?;
        }
        self.pass().await?;
        if self.verify().await? {
            return Ok(());
        }
        tracing::info!(partition = %self.partition, "copies differ after the tail: copying all again");
        self.progress.complete_to = 0;
        self.pass().await?;
        if self.verify().await? {
            return Ok(());
        }
        // We may hold a write that its lead lost in a crash before anybody was told of
        // it: an unknown outcome, which may still happen. Let it happen on both sides.
        self.give_back().await?;
        if self.verify().await? {
            return Ok(());
        }
        Err(Fault::new(
            Reason::Corrupt,
            "the copies of the partition differ; comparing again",
        ))
    }

    async fn verify(&self) -> Result<bool, Fault> {
        let newcomer = self.shared.node()?.0;
        let request = VerifyRequest {
            partition: self.partition.0,
            epoch: self.epoch.0,
            newcomer,
        };
        let mut client = self.shared.peers.replica(&self.source_address()?)?;
        let answer = client.verify(within(VERIFY_TIMEOUT, request)).await;
        let answer = answer
            .map_err(|status| Fault::from_status(&status))?
            .into_inner();
        if !answer.equal {
            self.shared.metrics.transfer_differences.inc();
        }
        Ok(answer.equal)
    }

    /// Sends our whole copy to the source, which keeps what is newer.
    async fn give_back(&self) -> Result<(), Fault> {
        let mut after: Option<Cursor> = None;
        loop {
            let limits = ScanLimits::default();
            let page = self
                .shared
                .store
                .scan(self.partition, after.as_ref(), limits);
            let page = page.map_err(|error| store_fault(&error))?;
            let request = AcceptRequest {
                partition: self.partition.0,
                epoch: self.epoch.0,
                records: page.records.into_iter().map(record_to_wire).collect(),
            };
            let mut client = self.shared.peers.replica(&self.source_address()?)?;
            let accepted = client.accept(within(ACCEPT_TIMEOUT, request)).await;
            accepted.map_err(|status| Fault::from_status(&status))?;
            if page.done {
                return Ok(());
            }
            after = page.next;
        }
    }

    pub(super) fn source_address(&self) -> Result<String, Fault> {
        let table = self.shared.routing()?;
        table
            .address(self.source)
            .map(str::to_owned)
            .ok_or_else(|| {
                Fault::new(
                    Reason::NoSuchNode,
                    format!("node {} is not a member", self.source),
                )
            })
    }
}
