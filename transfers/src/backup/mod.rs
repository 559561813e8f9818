//! Backups: copies some partitions from this node to the backup's storage.
//!
//! A replica's slices are not the whole acknowledged state: they may lack records that other
//! replicas accepted. So for each partition this node first asks whether a quorum holds exactly the
//! records of its store. If not, it lists the quorum's records, as a scan does, and writes those
//! that its own replica lacks into a separate slice (`lacking`). Then it flushes, and copies the
//! slices of its store except those that an earlier backup has.
//!
//! Why a backup has every write acknowledged before it started: a later listing returns that write,
//! or a newer one of its key. Either the replica already had it, so its slices have it after a
//! still later flush; or the backup has it from the listing. A replica replaces records only by
//! newer ones while the node is a reader of the partition in the same epoch; the node checks this
//! again once it holds the slices.
//!
//! A backup of selected namespaces uses listings alone, because slices mix the records of all
//! namespaces.
//!
//! Of static namespaces it copies the generations that the plan names, which stay the same ones if
//! another is promoted meanwhile.
//!
//! A node writes one backup at a time, on threads that serve no requests, at the rate limit of transfers or
//! the lower one of the request. Each byte of a pack waits for its time before the node writes it to its disk, and
//! again before the node sends it, if the backup's directory cannot take the file itself. A slice is written at
//! once when all of its bytes have had their time. It streams its progress to the caller and stops when the caller disconnects; a later
//! request reuses the packs sent so far.
//!
//! Absent on purpose: the assignment of partitions to nodes, and when a backup is complete (`kvctl
//! backup create`, `torc-backup`).

mod lacking;
mod writing;

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use torc_backup::Location;
use torc_limits::classes::Class;
use torc_member::fault::stale;
use torc_member::peers::Recipient;
use torc_proto::v1::{WriteBackupRequest, WriteBackupResponse};
use torc_proto::{Fault, Reason};
use torc_ring::topology::RoutingTable;
use torc_ring::{NodeId, Partition};

use self::writing::Writing;
use crate::throttle::Throttle;
use crate::{Transfers, object_fault};

/// The progress of a backup; the last message has the part.
pub type BackupStream = Pin<Box<dyn Stream<Item = Result<WriteBackupResponse, Status>> + Send>>;

const LONGEST_URL: usize = 4096;
/// Interval of progress messages to the caller.
const TOLD_EVERY: Duration = Duration::from_secs(1);
/// Begins to write this node's part, if `class` has a permit. Ends early once the node is `closing`.
///
/// # Errors
/// The fault of the request. Later faults end the stream.
pub async fn start(
    transfers: &Arc<Transfers>,
    class: &Class,
    closing: &CancellationToken,
    request: WriteBackupRequest,
) -> Result<BackupStream, Fault> {
    let table = transfers.member.routing()?;
    let node = NodeId(request.node);
    if node != transfers.member.node()? {
        return pass_on(transfers, &table, node, request).await;
    }
    if request.url.len() > LONGEST_URL {
        return Err(Fault::new(
            Reason::Invalid,
            "the URL of a backup is too long",
        ));
    }
    let partitions = checked_partitions(&table, node, &request.partitions)?;
    let location = Location::open(&request.url);
    let location = location.map_err(|error| object_fault(&error))?;
    let data_dir = &transfers.data_dir;
    let within = location.is_within(data_dir);
    if within.map_err(|error| object_fault(&error))? {
        let message = format!(
            "{} is in the data directory of node {node}, which empties parts of it: choose another \
             directory",
            request.url
        );
        return Err(Fault::new(Reason::Invalid, message));
    }
    if partitions.is_empty() {
        return Ok(Box::pin(futures::stream::empty()));
    }
    let place = class.enter()?;
    let rate = (request.bytes_per_second > 0).then_some(request.bytes_per_second);
    let (messages, receiver) = mpsc::channel(1);
    let writing = Writing {
        transfers: Arc::clone(transfers),
        location,
        name: request.name,
        rate: rate.map(|rate| Throttle::new(rate, Instant::now())),
        only: None,
        generations: BTreeSet::new(),
        messages,
        progress: Arc::default(),
    };
    let cancel = closing.clone();
    tokio::spawn(async move {
        let messages = writing.messages.clone();
        let telling = tell(messages.clone(), Arc::clone(&writing.progress));
        let running = Box::pin(writing.run(partitions));
        let ended = tokio::select! {
            ended = cancel.run_until_cancelled(running) => ended,
            () = telling => None,
        };
        let stopping = || Err(Fault::new(Reason::NotServing, "the node is stopping"));
        let ended = ended.unwrap_or_else(stopping);
        // Released first, because the caller may send its next request immediately.
        drop(place);
        // Fails only if the caller has disconnected.
        let _ = messages.send(ended.map_err(Status::from)).await;
    });
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

/// Forwards the request to another node, for a caller that cannot reach it.
async fn pass_on(
    transfers: &Transfers,
    table: &RoutingTable,
    node: NodeId,
    request: WriteBackupRequest,
) -> Result<BackupStream, Fault> {
    let recipient = Recipient::passed_on(table, node, request.passed_on)?;
    let mut client = transfers.member.peers.cluster(&recipient)?;
    let passed_on = true;
    let asked = client.write_backup(WriteBackupRequest {
        passed_on,
        ..request
    });
    let answer = asked.await.map_err(|status| Fault::of_harmless(&status))?;
    let messages = answer.into_inner();
    let messages =
        messages.map(|message| message.map_err(|status| Fault::of_harmless(&status).into()));
    Ok(Box::pin(messages))
}

/// Refuses duplicates, and partitions without a replica on this node.
fn checked_partitions(
    table: &RoutingTable,
    me: NodeId,
    wanted: &[u32],
) -> Result<BTreeSet<Partition>, Fault> {
    let partitions: BTreeSet<Partition> = wanted.iter().copied().map(Partition).collect();
    if partitions.len() != wanted.len() {
        let message = "the request lists a partition twice";
        return Err(Fault::new(Reason::Invalid, message));
    }
    for partition in &partitions {
        let state = table.state(*partition);
        let state = state.ok_or_else(|| {
            let message = format!("there is no partition {partition}");
            Fault::new(Reason::Invalid, message)
        })?;
        if state.config.index(me).is_none() {
            return Err(stale(*partition, table.epoch));
        }
    }
    Ok(partitions)
}

/// Sends the progress every second, even while a large pack is sent slowly. Never ends: `Writing`
/// notices when the caller has disconnected.
async fn tell(
    messages: mpsc::Sender<Result<WriteBackupResponse, Status>>,
    progress: Arc<Mutex<WriteBackupResponse>>,
) {
    loop {
        tokio::time::sleep(TOLD_EVERY).await;
        let now = progress.lock().clone();
        let _ = messages.send(Ok(now)).await;
    }
}
