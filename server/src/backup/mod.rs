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
//! A node writes one backup at a time, at the rate limit of transfers, on threads that serve no
//! requests. It streams its progress to the caller and stops when the caller disconnects; a later
//! request reuses the packs sent so far.
//!
//! Absent on purpose: the assignment of partitions to nodes, and when a backup is complete (`kvctl
//! backup create`, `torc-backup`).

mod lacking;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::{Stream, StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use torc_backup::{Backup, BackupError, Known, Location, PackWriter, Plan};
use torc_driver::NoQuorum;
use torc_proto::v1::{WriteBackupRequest, WriteBackupResponse};
use torc_proto::{Fault, Reason};
use torc_record::{Epoch, NamespaceId, Record};
use torc_ring::topology::{Generation, GenerationShape, RoutingTable};
use torc_ring::{NodeId, Partition};
use torc_store::{SealedSlice, StoreError};

use crate::moves::Throttle;
use crate::recipient::Recipient;
use crate::shared::{Shared, object_fault, stale, store_fault};

use lacking::Ours;

pub(crate) type BackupStream =
    Pin<Box<dyn Stream<Item = Result<WriteBackupResponse, Status>> + Send>>;

const LONGEST_URL: usize = 4096;
/// Interval of progress messages to the caller.
const HEARD_EVERY: Duration = Duration::from_secs(1);
/// A page of a listing that takes longer has no quorum.
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts per partition that moves meanwhile.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// Partitions listed at a time.
const LISTED_TOGETHER: usize = 16;

/// # Errors
/// The fault of the request. Later faults end the stream.
pub(crate) async fn start(
    shared: &Arc<Shared>,
    request: WriteBackupRequest,
) -> Result<BackupStream, Fault> {
    let table = shared.routing()?;
    let node = NodeId(request.node);
    if node != shared.node()? {
        return pass_on(shared, &table, node, request).await;
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
    let data_dir = &shared.settings.data_dir;
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
    let place = shared.classes.backups.enter()?;
    let rate = (request.bytes_per_second > 0).then_some(request.bytes_per_second);
    let (messages, receiver) = mpsc::channel(1);
    let writing = Writing {
        shared: Arc::clone(shared),
        location,
        name: request.name,
        rate: rate.map(|rate| Throttle::new(rate, Instant::now())),
        only: None,
        messages,
        done: 0,
    };
    tokio::spawn(async move {
        let cancel = writing.shared.closing.clone();
        let messages = writing.messages.clone();
        let running = Box::pin(writing.run(partitions));
        let ended = cancel.run_until_cancelled(running).await;
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
    shared: &Shared,
    table: &RoutingTable,
    node: NodeId,
    request: WriteBackupRequest,
) -> Result<BackupStream, Fault> {
    let recipient = Recipient::of(table, node)
        .ok()
        .filter(|_| !request.passed_on);
    let recipient = recipient.ok_or_else(|| {
        let message = format!("there is no node {node} at this address: refresh the topology");
        Fault::new(Reason::StaleEpoch, message).at(table.epoch)
    })?;
    let mut client = shared.peers.cluster(&recipient)?;
    let passed_on = true;
    let asked = client.write_backup(WriteBackupRequest {
        passed_on,
        ..request
    });
    let answer = asked.await.map_err(|status| harmless(&status))?;
    let messages = answer.into_inner();
    let messages = messages.map(|message| message.map_err(|status| harmless(&status).into()));
    Ok(Box::pin(messages))
}

/// Writing twice gives the same packs, so nothing is ever in doubt.
fn harmless(status: &Status) -> Fault {
    Fault {
        maybe_applied: false,
        ..Fault::from_status(status)
    }
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

/// A request under way.
struct Writing {
    shared: Arc<Shared>,
    location: Location,
    name: String,
    /// The requested rate limit, if it is lower than that of transfers.
    rate: Option<Throttle>,
    /// The wanted namespaces; `None` for all.
    only: Option<BTreeSet<NamespaceId>>,
    messages: mpsc::Sender<Result<WriteBackupResponse, Status>>,
    /// Partitions whose slices are in packs.
    done: u32,
}

/// What this node has of a partition.
#[derive(Default)]
struct Held {
    /// Its slices, and those of current generations.
    slices: Vec<SealedSlice>,
    /// No ballot of the generations is above it.
    epoch: Epoch,
    /// Slices of records are damaged and not among them, and other replicas have these records.
    is_damaged: bool,
}

/// The records of a partition that this replica lacks, and the epoch in which the node was a
/// reader.
struct Listed {
    partition: Partition,
    epoch: Epoch,
    lacking: Vec<Record>,
}

impl Writing {
    async fn run(mut self, partitions: BTreeSet<Partition>) -> Result<WriteBackupResponse, Fault> {
        let known = self.known(&partitions).await?;
        let dir = self.empty_dir().await?;
        let mut writer = PackWriter::new(&dir, self.shared.settings.partitions, known);
        let mut since: Vec<(Partition, Epoch)> = Vec::with_capacity(partitions.len());
        {
            let this = &self;
            let listing = partitions.into_iter().map(|it| this.list(it));
            let mut listing = stream::iter(listing).buffered(LISTED_TOGETHER);
            let mut heard = Instant::now();
            while let Some(listed) = listing.next().await {
                let listed = listed?;
                since.push((listed.partition, listed.epoch));
                writer = this.add(listed, writer).await?;
                this.tell(&writer, &mut heard).await?;
            }
        }
        self.flush().await?;
        let mut heard = Instant::now();
        for (partition, epoch) in since {
            writer = Box::pin(self.copy(partition, epoch, writer)).await?;
            self.done += 1;
            self.tell(&writer, &mut heard).await?;
        }
        let mut last = self.progress(&writer);
        let part = writer.finish(&self.location, &self.name, self.pace());
        last.part = part.await.map_err(|error| fault_of(&error))?;
        // Failure costs only disk space.
        let _ = tokio::fs::remove_dir_all(&dir).await;
        Ok(last)
    }

    /// Slices that an earlier backup of this cluster already has.
    async fn known(&mut self, partitions: &BTreeSet<Partition>) -> Result<Known, Fault> {
        let plan = Plan::read(&self.location, &self.name).await;
        let plan = plan.map_err(|error| fault_of(&error))?;
        let cluster = self
            .shared
            .identity
            .membership()
            .map(|it| it.cluster.to_string());
        if cluster.as_ref() != Some(&plan.cluster) {
            let message = format!("backup {} belongs to cluster {}", plan.name, plan.cluster);
            return Err(Fault::new(Reason::Refused, message));
        }
        if plan.only {
            let ids = plan.namespaces.iter().map(|it| NamespaceId(it.id));
            self.only = Some(ids.collect());
        }
        let Some(base) = plan.base else {
            return Ok(Known::default());
        };
        let base = Backup::read(&self.location, &base).await;
        let base = base.map_err(|error| fault_of(&error))?;
        Ok(Known::of(&base, partitions))
    }

    /// An empty directory for packs; nothing in it outlives the request.
    async fn empty_dir(&self) -> Result<PathBuf, Fault> {
        let dir = self.shared.settings.data_dir.join("backup");
        let made = {
            let dir = dir.clone();
            spawn_blocking(move || make_empty(&dir)).await
        };
        made.map_err(|_| failed("making a directory"))?
            .map_err(|source| {
                let error = StoreError::Io {
                    action: "make the directory of packs in",
                    file: dir.clone(),
                    source: source.into(),
                };
                store_fault(&error)
            })?;
        Ok(dir)
    }

    /// The records of a partition that a quorum knows and this replica lacks.
    async fn list(&self, partition: Partition) -> Result<Listed, Fault> {
        let epoch = self.epoch(partition)?;
        let mut lacking = Vec::new();
        if self.only.is_some() {
            lacking = self.lacking(partition, Ours::default()).await?;
        } else if !self.is_alone(partition)? && !self.holds_the_same(partition).await? {
            let store = self.shared.store.clone();
            let reading = spawn_blocking(move || Ours::read(&store, partition)).await;
            let ours = match reading.map_err(|_| failed("reading a partition"))? {
                Ok(ours) => ours,
                // The slices are unusable, so the listing supplies all records.
                Err(StoreError::Damaged { .. }) => Ours::default(),
                Err(error) => return Err(store_fault(&error)),
            };
            lacking = self.lacking(partition, ours).await?;
        }
        Ok(Listed {
            partition,
            epoch,
            lacking,
        })
    }

    /// Whether this replica holds exactly what a quorum knows, which makes a listing unnecessary.
    async fn holds_the_same(&self, partition: Partition) -> Result<bool, Fault> {
        let registers = Arc::clone(self.shared.registers()?);
        let until = Instant::now() + PAGE_TIMEOUT;
        let same = registers.holds_the_same(partition, until).await;
        same.map_err(|NoQuorum| unreachable(partition))
    }

    fn is_wanted(&self, namespace: NamespaceId) -> bool {
        let only = self.only.as_ref();
        only.is_none_or(|only| only.contains(&namespace))
    }

    async fn add(&self, listed: Listed, mut writer: PackWriter) -> Result<PackWriter, Fault> {
        let Listed {
            partition, lacking, ..
        } = listed;
        writer.begin(partition, listed.epoch);
        if lacking.is_empty() {
            return Ok(writer);
        }
        let pushing = spawn_blocking(move || {
            let pushed = writer.push_records(partition, &lacking);
            pushed.map(|()| writer)
        });
        let pushed = pushing.await.map_err(|_| failed("writing a pack"))?;
        self.send_if_full(pushed.map_err(|error| fault_of(&error))?)
            .await
    }

    async fn lacking(&self, partition: Partition, mut ours: Ours) -> Result<Vec<Record>, Fault> {
        let registers = Arc::clone(self.shared.registers()?);
        let (mut lacking, mut after) = (Vec::new(), None);
        loop {
            let until = Instant::now() + PAGE_TIMEOUT;
            let page = registers.list(partition, after, until).await;
            let page = page.map_err(|NoQuorum| unreachable(partition))?;
            let pages = page.records.into_iter();
            let pages = pages.filter(|record| self.is_wanted(record.namespace));
            lacking.extend(pages.filter(|record| ours.lack(record)));
            self.listen()?;
            match page.next {
                Some(at) => after = Some(at.id()),
                None => break,
            }
        }
        lacking.extend(ours.gone());
        Ok(lacking)
    }

    async fn flush(&self) -> Result<(), Fault> {
        let flushed = self.shared.store.flush().await;
        flushed.map(drop).map_err(|error| store_fault(&error))
    }

    /// Adds the slices of a partition, including those of current generations.
    async fn copy(
        &self,
        partition: Partition,
        mut epoch: Epoch,
        mut writer: PackWriter,
    ) -> Result<PackWriter, Fault> {
        let mut attempt = 0;
        let held = loop {
            let held = self.held(partition);
            if self.epoch(partition)? == epoch {
                break held?;
            }
            // The partition has moved meanwhile: start again with what is here now.
            attempt += 1;
            if attempt == ATTEMPTS {
                return Err(stale(partition, epoch));
            }
            tokio::time::sleep(PAUSE).await;
            let listed = self.list(partition).await?;
            epoch = listed.epoch;
            writer = self.add(listed, writer).await?;
            self.flush().await?;
        };
        if held.is_damaged {
            // The listing of the other replicas replaces the slices.
            let listed = Listed {
                partition,
                epoch,
                lacking: self.lacking(partition, Ours::default()).await?,
            };
            writer = self.add(listed, writer).await?;
        }
        // A generation may be reserved in a later epoch than the partition's.
        writer.begin(partition, held.epoch);
        for slice in held.slices {
            let pushing = spawn_blocking(move || {
                let pushed = writer.push_sealed(partition, &slice);
                pushed.map(|()| writer)
            });
            let pushed = pushing.await.map_err(|_| failed("writing a pack"))?;
            writer = pushed.map_err(|error| fault_of(&error))?;
            writer = self.send_if_full(writer).await?;
        }
        Ok(writer)
    }

    fn held(&self, partition: Partition) -> Result<Held, Fault> {
        let mut held = Held::default();
        match self.shared.store.sealed(partition) {
            _ if self.only.is_some() => {}
            Ok(sealed) => held.slices = sealed.slices,
            Err(StoreError::Damaged { .. }) if !self.is_alone(partition)? => held.is_damaged = true,
            Err(error) => return Err(store_fault(&error)),
        }
        let table = self.shared.routing()?;
        let current = table.namespaces.values().map(|it| it.id);
        let current: BTreeSet<_> = current.filter(|id| self.is_wanted(*id)).collect();
        let generations = table.generations_in(partition);
        // A restore writes records with values, which other shapes do not have.
        let has_values = |it: &&Arc<Generation>| it.shape() == Some(&GenerationShape::Values);
        let generations = generations.filter(has_values);
        for generation in generations.filter(|it| current.contains(&it.id)) {
            let slice = self.shared.store.generation(partition, generation.id);
            held.epoch = held.epoch.max(generation.ballot.epoch);
            held.slices.push(slice.ok_or_else(|| {
                let message = format!(
                    "this node does not have the slice of generation {} in partition {partition} yet: retry",
                    generation.id.number()
                );
                Fault::new(Reason::NotServing, message)
            })?);
        }
        Ok(held)
    }

    /// The epoch in which this node is a reader of a partition.
    fn epoch(&self, partition: Partition) -> Result<Epoch, Fault> {
        let config = self.shared.registers()?.config(partition);
        let me = self.shared.node()?;
        let config = config.filter(|config| {
            let index = config.index(me);
            index.is_some_and(|index| config.readers().contains(index))
        });
        let config = config.ok_or_else(|| {
            let epoch = self.shared.routing().map(|table| table.epoch);
            stale(partition, epoch.unwrap_or_default())
        })?;
        Ok(config.epoch)
    }

    /// Whether this node is the only replica.
    fn is_alone(&self, partition: Partition) -> Result<bool, Fault> {
        let config = self.shared.registers()?.config(partition);
        Ok(config.is_some_and(|config| config.members.len() == 1))
    }

    async fn send_if_full(&self, mut writer: PackWriter) -> Result<PackWriter, Fault> {
        if writer.is_full() {
            let sent = writer.send(&self.location, self.pace()).await;
            sent.map_err(|error| fault_of(&error))?;
        }
        Ok(writer)
    }

    /// Waits as the rate limit of transfers or the requested one demands.
    fn pace<'a>(&'a self) -> impl Fn(u64) -> BoxFuture<'a, ()> + Send {
        move |bytes| {
            Box::pin(async move {
                self.shared.throttle.take(bytes).await;
                if let Some(rate) = &self.rate {
                    rate.take(bytes).await;
                }
            })
        }
    }

    /// Sends progress from time to time.
    async fn tell(&self, writer: &PackWriter, heard: &mut Instant) -> Result<(), Fault> {
        self.listen()?;
        if heard.elapsed() < HEARD_EVERY {
            return Ok(());
        }
        *heard = Instant::now();
        let sent = self.messages.send(Ok(self.progress(writer))).await;
        sent.map_err(|_| gone())
    }

    fn progress(&self, writer: &PackWriter) -> WriteBackupResponse {
        let counts = writer.counts();
        WriteBackupResponse {
            partitions: self.done,
            records: counts.records,
            copied_bytes: counts.copied,
            known_bytes: counts.known,
            part: String::new(),
        }
    }

    /// Fails if the caller has disconnected.
    fn listen(&self) -> Result<(), Fault> {
        if self.messages.is_closed() {
            return Err(gone());
        }
        Ok(())
    }
}

fn make_empty(dir: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::create_dir_all(dir)
}

fn gone() -> Fault {
    Fault::new(Reason::Deadline, "the caller has disconnected")
}

fn unreachable(partition: Partition) -> Fault {
    let message = format!("too few replicas of partition {partition} respond: retry");
    Fault::new(Reason::OwnerUnreachable, message)
}

fn failed(what: &str) -> Fault {
    Fault::new(Reason::Internal, format!("{what} failed: report this"))
}

fn fault_of(error: &BackupError) -> Fault {
    let reason = match error {
        BackupError::Store(error) => return store_fault(error),
        BackupError::Location(error) => return object_fault(error),
        BackupError::Name { .. } => Reason::Invalid,
        BackupError::NoBackup { .. } => Reason::Refused,
        _ => Reason::NotServing,
    };
    Fault::new(reason, error.to_string())
}
