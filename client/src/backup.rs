//! Requests to nodes to write a backup.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};
use tonic::Streaming;
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::{Fault, Reason, v1};
use torc_ring::{NodeId, Partition};

use crate::call::Call;
use crate::naming::Connection;
use crate::peer::Peer;
use crate::peer::attempt::{attempt, failure, no_answer};
use crate::retry::{Failure, Nature};
use crate::{Client, Error};

/// What a node should copy, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupRequest {
    /// Where the backups are: `file:///DIR`; or `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or
    /// `az://CONTAINER/PREFIX`, if nodes were built with the feature `s3`, `gcs` or `azure`.
    pub url: String,
    /// The backup's name; its plan must exist.
    pub name: String,
    /// The partitions to copy, without duplicates.
    pub partitions: Vec<Partition>,
    /// Limit of the bytes of packs that the node writes to its disk, and of those that it sends; `None`: the
    /// limit of transfers between nodes.
    pub bytes_per_second: Option<u64>,
}

/// A node's progress, from [`Client::write_backup`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackupProgress {
    /// Partitions whose slices were copied.
    pub partitions: u32,
    /// Records in these slices, superseded ones and tombstones included.
    pub records: u64,
    /// Bytes of slices that were copied.
    pub copied_bytes: u64,
    /// Bytes of slices that an earlier backup has.
    pub known_bytes: u64,
}

/// Backups.
impl Client {
    /// Fails if a node cannot use the URL for backups. Writes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for such a URL; and those of
    /// [`write_backup`](Self::write_backup).
    pub async fn check_backup(&self, node: NodeId, url: &str) -> Result<(), Error> {
        let request = BackupRequest {
            url: url.to_owned(),
            name: String::new(),
            partitions: Vec::new(),
            bytes_per_second: None,
        };
        let mut call = self.call(Nature::Read);
        let opened = self.open_part(node, request, &mut call).await;
        opened
            .map(drop)
            .map_err(|failure| call.error(failure.fault))
    }

    /// Makes a node copy some partitions to a backup: its own records, and those that it lacks but
    /// a quorum knows. Returns the name of the part that it has written; an unused part does no
    /// harm. Nodes report once per second; the deadline is the longest silence. The library does not retry this.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for a URL that the node cannot use;
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if the backup does not exist or belongs to
    /// another cluster; [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) and other
    /// retryable kinds if the node cannot do it now: it or a quorum is unreachable, a partition has
    /// moved, or the node is writing another backup. No error changes anything.
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
        let silence = self.deadline();
        let (peer, mut messages) = self.open_part(node, request, call).await?;
        loop {
            let message = timeout_at(Instant::now() + silence, messages.message()).await;
            let message = message.map_err(|_| no_answer(&peer))?;
            let message = message.map_err(|status| failure(&peer, &status))?;
            let message = message.ok_or_else(|| {
                let message = format!("{peer} ended its answer too early");
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

    async fn open_part(
        &self,
        node: NodeId,
        request: BackupRequest,
        call: &mut Call<'_>,
    ) -> Result<(Arc<Peer>, Streaming<v1::WriteBackupResponse>), Failure> {
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
        let opened = attempt(&peer, Instant::now() + silence, sending).await;
        Ok((peer, opened?))
    }
}
