//! Asking nodes to write to a backup.

use tokio::time::{Instant, timeout_at};
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::{Fault, Reason, v1};
use torc_ring::{NodeId, Partition};

use crate::call::{Call, attempt, failure, no_answer};
use crate::naming::Connection;
use crate::retry::{Failure, Nature};
use crate::{Client, Error};

/// What a node is to copy, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupRequest {
    /// Where backups lie: `file:///DIR`, or `s3://BUCKET/PREFIX` where nodes were built for it.
    pub url: String,
    /// The backup's name; its plan must be there.
    pub name: String,
    /// What to copy, each once.
    pub partitions: Vec<Partition>,
    /// None: as fast as transfers between nodes go.
    pub bytes_per_second: Option<u64>,
}

/// How far a node is, from [`Client::write_backup`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupProgress {
    /// Partitions whose slices were copied.
    pub partitions: u32,
    /// Records in these slices, superseded ones and tombstones included.
    pub records: u64,
    /// Bytes of slices that were copied.
    pub copied_bytes: u64,
    /// Bytes of slices that the backup before has.
    pub known_bytes: u64,
}

/// Backups.
impl Client {
    /// Has a node copy what it holds of some partitions, and what others know besides, to where a backup lies. Gives the
    /// name of the part it has written; one that nobody takes does no harm. The deadline is the longest time without
    /// progress. Nothing is tried again here.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for a URL that the node cannot use;
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if there is no such backup, or it is another cluster's;
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) and others that may pass when the node cannot do it now: it
    /// or a quorum is out of reach, a partition has moved, it writes to another backup. None changes anything.
    pub async fn write_backup(
        &self,
        node: NodeId,
        request: BackupRequest,
        told: impl FnMut(BackupProgress),
    ) -> Result<(String, BackupProgress), Error> {
        let mut call = self.call(Nature::Read);
        let writing = self.write_part(node, request, told, &mut call).await;
        writing.map_err(|failure| call.error(failure.fault))
    }

    async fn write_part(
        &self,
        node: NodeId,
        request: BackupRequest,
        mut told: impl FnMut(BackupProgress),
        call: &mut Call<'_>,
    ) -> Result<(String, BackupProgress), Failure> {
        let view = call.view().await;
        let view = view.map_err(|error| {
            Failure::connecting(Fault::new(Reason::OwnerUnreachable, error.to_string()))
        })?;
        let peer = self.core().towards(&view, node, call.attempts());
        let silence = self.deadline();
        let message = v1::WriteBackupRequest {
            node: node.0,
            passed_on: false,
            url: request.url,
            name: request.name,
            partitions: request.partitions.iter().map(|it| it.0).collect(),
            bytes_per_second: request.bytes_per_second.unwrap_or(0),
        };
        let sending = |channel: Connection, _| async move {
            ClusterClient::new(channel).write_backup(message).await
        };
        let opening = attempt(&peer, Instant::now() + silence, sending);
        let mut messages = opening.await?;
        loop {
            let message = timeout_at(Instant::now() + silence, messages.message()).await;
            let message = message.map_err(|_| no_answer(&peer))?;
            let message = message.map_err(|status| failure(&peer, &status))?;
            let message = message.ok_or_else(|| {
                let message = format!("{peer} ended its answer early");
                Failure::sent(Fault::new(Reason::OwnerUnreachable, message))
            })?;
            let progress = BackupProgress {
                partitions: message.partitions,
                records: message.records,
                copied_bytes: message.copied_bytes,
                known_bytes: message.known_bytes,
            };
            told(progress);
            if !message.part.is_empty() {
                return Ok((message.part, progress));
            }
        }
    }
}
