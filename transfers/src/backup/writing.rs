//! Writes this node's part of a backup.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tonic::Status;
use torc_backup::{Backup, BackupError, Known, Location, PackWriter, Plan};
use torc_driver::NoQuorum;
use torc_member::fault::{stale, store_fault};
use torc_proto::v1::WriteBackupResponse;
use torc_proto::{Fault, Reason};
use torc_record::{Epoch, NamespaceId, Record};
use torc_ring::Partition;
use torc_store::{SealedSlice, StoreError};

use super::lacking::Ours;
use crate::throttle::Throttle;
use crate::{Transfers, failed, object_fault};

/// A page of a listing that takes longer has no quorum.
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts per partition that moves meanwhile.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// Partitions compared with the other replicas at a time.
const COMPARED_TOGETHER: usize = 16;
/// Bytes that wait for their time together, so that other transfers get theirs between them.
const PACED_TOGETHER: u64 = 1 << 20;
/// The least bytes of a listed record besides its key and value.
const RECORD_BYTES: usize = 44;
/// Keys and values of a slice of listed records, bytes. Twice as much is in memory.
const LISTED_SLICE_BYTES: usize = 16 << 20;

/// A request under way.
pub(super) struct Writing {
    pub(super) transfers: Arc<Transfers>,
    pub(super) location: Location,
    pub(super) name: String,
    /// The requested rate limit. It is of this request: no request leaves bytes whose time has not passed.
    pub(super) rate: Option<Throttle>,
    /// The wanted namespaces; `None` for all.
    pub(super) only: Option<BTreeSet<NamespaceId>>,
    /// The generations that the plan names.
    pub(super) generations: BTreeSet<NamespaceId>,
    pub(super) messages: mpsc::Sender<Result<WriteBackupResponse, Status>>,
    pub(super) progress: Arc<Mutex<WriteBackupResponse>>,
}

/// What this node has of a partition.
#[derive(Default)]
struct Held {
    /// Its slices, and those of the generations.
    slices: Vec<SealedSlice>,
    /// No ballot of the generations is above it.
    epoch: Epoch,
    /// Slices of records are damaged and not among them, and other replicas have these records.
    is_damaged: bool,
}

/// Why the part cannot be written.
enum Stopped {
    Fault(Fault),
    /// A slice turned out to be damaged. From now on it is marked, so the next attempt does without.
    Damaged(Fault),
}

impl From<BackupError> for Stopped {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Store(StoreError::Damaged { .. }) => Self::Damaged(fault_of(&error)),
            error => Self::Fault(fault_of(&error)),
        }
    }
}

impl From<Fault> for Stopped {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Writing {
    pub(super) async fn run(
        mut self,
        partitions: BTreeSet<Partition>,
    ) -> Result<WriteBackupResponse, Fault> {
        let known = self.known(&partitions).await?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            match Box::pin(self.write(&partitions, known.clone())).await {
                Ok(last) => return Ok(last),
                Err(Stopped::Damaged(_)) if attempt < ATTEMPTS => {}
                Err(Stopped::Fault(fault) | Stopped::Damaged(fault)) => return Err(fault),
            }
        }
    }

    async fn write(
        &self,
        partitions: &BTreeSet<Partition>,
        known: Known,
    ) -> Result<WriteBackupResponse, Stopped> {
        let dir = self.empty_dir().await?;
        let mut writer = PackWriter::new(&dir, self.transfers.partitions, known);
        let mut since: Vec<(Partition, Epoch)> = Vec::with_capacity(partitions.len());
        {
            let comparing = partitions.clone().into_iter().map(|it| self.compare(it));
            let mut comparing = stream::iter(comparing).buffered(COMPARED_TOGETHER);
            while let Some(compared) = comparing.next().await {
                let (partition, epoch, is_same) = compared?;
                since.push((partition, epoch));
                writer.begin(partition, epoch);
                if !is_same {
                    writer = self.add_lacking(partition, writer).await?;
                }
                self.note(0, &writer)?;
            }
        }
        self.flush().await?;
        for (done, (partition, epoch)) in (1..).zip(since) {
            writer = Box::pin(self.copy(partition, epoch, writer)).await?;
            self.note(done, &writer)?;
        }
        let part = writer.finish(&self.location, &self.name, self.pace());
        let part = part.await.map_err(|error| fault_of(&error))?;
        // Failure costs only disk space.
        let _ = tokio::fs::remove_dir_all(&dir).await;
        let progress = self.progress.lock().clone();
        Ok(WriteBackupResponse { part, ..progress })
    }

    /// Slices that an earlier backup of this cluster already has.
    async fn known(&mut self, partitions: &BTreeSet<Partition>) -> Result<Known, Fault> {
        let plan = Plan::read(&self.location, &self.name).await;
        let plan = plan.map_err(|error| fault_of(&error))?;
        let membership = self.transfers.member.identity.membership();
        let cluster = membership.map(|it| it.cluster.to_string());
        if cluster.as_ref() != Some(&plan.cluster) {
            let message = format!("backup {} belongs to cluster {}", plan.name, plan.cluster);
            return Err(Fault::new(Reason::Refused, message));
        }
        let ids = plan.namespaces.iter().map(|it| NamespaceId(it.id));
        self.generations = ids.clone().filter(|it| it.is_generation()).collect();
        self.only = plan.only.then(|| ids.collect());
        let Some(base) = plan.base else {
            return Ok(Known::default());
        };
        let base = Backup::read(&self.location, &base).await;
        let base = base.map_err(|error| fault_of(&error))?;
        Ok(Known::of(&base, partitions))
    }

    /// An empty directory for packs; nothing in it outlives the request.
    async fn empty_dir(&self) -> Result<PathBuf, Fault> {
        let dir = self.transfers.data_dir.join("backup");
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

    /// The epoch in which this node is a reader of a partition; and whether its slices are all that
    /// the backup needs of it.
    async fn compare(&self, partition: Partition) -> Result<(Partition, Epoch, bool), Fault> {
        let epoch = self.epoch(partition)?;
        let is_same = self.only.is_none()
            && (self.is_alone(partition)? || self.holds_the_same(partition).await?);
        Ok((partition, epoch, is_same))
    }

    /// Whether this replica holds exactly what a quorum knows, which makes a listing unnecessary.
    async fn holds_the_same(&self, partition: Partition) -> Result<bool, Fault> {
        let registers = Arc::clone(self.transfers.member.registers()?);
        let until = Instant::now() + PAGE_TIMEOUT;
        let same = registers.holds_the_same(partition, until).await;
        same.map_err(|NoQuorum| unreachable(partition))
    }

    fn is_wanted(&self, namespace: NamespaceId) -> bool {
        let only = self.only.as_ref();
        only.is_none_or(|only| only.contains(&namespace))
    }

    /// Adds the records of a partition that a quorum knows and this replica lacks.
    async fn add_lacking(
        &self,
        partition: Partition,
        writer: PackWriter,
    ) -> Result<PackWriter, Fault> {
        let mut ours = Ours::default();
        if self.only.is_none() {
            let store = self.transfers.store.clone();
            let read = move || Ours::read(&store, partition);
            match self
                .transfers
                .in_background("reading a partition", read)
                .await?
            {
                Ok(read) => ours = read,
                // The slices are unusable, so the listing supplies all records.
                Err(StoreError::Damaged { .. }) => {}
                Err(error) => return Err(store_fault(&error)),
            }
        }
        Box::pin(self.add_listed(partition, ours, writer)).await
    }

    /// Adds the listed records that are newer than `ours`, in slices of bounded length.
    async fn add_listed(
        &self,
        partition: Partition,
        mut ours: Ours,
        mut writer: PackWriter,
    ) -> Result<PackWriter, Fault> {
        let registers = Arc::clone(self.transfers.member.registers()?);
        let (mut records, mut bytes, mut after) = (Vec::new(), 0, None);
        loop {
            let until = Instant::now() + PAGE_TIMEOUT;
            let page = registers.list(partition, after, until).await;
            let page = page.map_err(|NoQuorum| unreachable(partition))?;
            let listed = page.records.into_iter();
            let listed = listed.filter(|record| self.is_wanted(record.namespace));
            for record in listed.filter(|record| ours.lack(record)) {
                bytes += record.payload_len();
                records.push(record);
            }
            self.listen()?;
            if bytes >= LISTED_SLICE_BYTES {
                writer = self
                    .push(partition, std::mem::take(&mut records), writer)
                    .await?;
                bytes = 0;
            }
            match page.next {
                Some(at) => after = Some(at.id()),
                None => break,
            }
        }
        records.extend(ours.gone());
        self.push(partition, records, writer).await
    }

    /// Adds a slice of records.
    async fn push(
        &self,
        partition: Partition,
        records: Vec<Record>,
        mut writer: PackWriter,
    ) -> Result<PackWriter, Fault> {
        let lens = records.iter().map(|it| it.payload_len() + RECORD_BYTES);
        let paid = lens.sum::<usize>() as u64;
        self.pay(paid).await?;
        let before = writer.counts().copied;
        let push = move || {
            let pushed = writer.push_records(partition, &records);
            pushed.map(|()| writer)
        };
        let pushed = self.transfers.in_background("writing a pack", push).await?;
        let writer = pushed.map_err(|error| fault_of(&error))?;
        // The index of the slice, whose length was not known.
        let written = writer.counts().copied - before;
        self.pay(written.saturating_sub(paid)).await?;
        self.send_if_full(writer).await
    }

    async fn flush(&self) -> Result<(), Fault> {
        let flushed = self.transfers.store.flush().await;
        flushed.map(drop).map_err(|error| store_fault(&error))
    }

    /// Adds the slices of a partition, including those of the generations.
    async fn copy(
        &self,
        partition: Partition,
        mut epoch: Epoch,
        mut writer: PackWriter,
    ) -> Result<PackWriter, Stopped> {
        let mut attempt = 0;
        let held = loop {
            let held = self.held(partition);
            if self.epoch(partition)? == epoch {
                break held?;
            }
            // The partition has moved meanwhile: start again with what is here now.
            attempt += 1;
            if attempt == ATTEMPTS {
                return Err(stale(partition, epoch).into());
            }
            tokio::time::sleep(PAUSE).await;
            let (_, now, is_same) = self.compare(partition).await?;
            epoch = now;
            writer.begin(partition, epoch);
            if !is_same {
                writer = self.add_lacking(partition, writer).await?;
            }
            self.flush().await?;
        };
        if held.is_damaged {
            // The listing of the other replicas replaces the slices.
            let listing = self.add_listed(partition, Ours::default(), writer);
            writer = Box::pin(listing).await?;
        }
        // A generation may be reserved in a later epoch than the partition's.
        writer.begin(partition, held.epoch);
        for slice in held.slices {
            self.pay(writer.lacks(&slice)?).await?;
            let push = move || {
                let pushed = writer.push_sealed(partition, &slice);
                pushed.map(|()| writer)
            };
            let pushed = self.transfers.in_background("writing a pack", push).await?;
            writer = self.send_if_full(pushed?).await?;
        }
        Ok(writer)
    }

    fn held(&self, partition: Partition) -> Result<Held, Fault> {
        let mut held = Held::default();
        match self.transfers.store.sealed(partition) {
            _ if self.only.is_some() => {}
            Ok(sealed) => held.slices = sealed.slices,
            Err(StoreError::Damaged { .. }) if !self.is_alone(partition)? => held.is_damaged = true,
            Err(error) => return Err(store_fault(&error)),
        }
        let table = self.transfers.member.routing()?;
        for id in &self.generations {
            let generation = table.generations.get(id).ok_or_else(|| {
                let message = format!(
                    "generation {} is gone, which backup {} was to hold: begin a new backup",
                    id.number(),
                    self.name
                );
                Fault::new(Reason::Refused, message)
            })?;
            if !generation.has_keys_in(table.partitions, partition) {
                continue;
            }
            let slice = self.transfers.store.generation(partition, *id);
            held.epoch = held.epoch.max(generation.ballot.epoch);
            held.slices.push(slice.ok_or_else(|| {
                let message = format!(
                    "this node does not have the slice of generation {} in partition {partition} yet: retry",
                    id.number()
                );
                Fault::new(Reason::NotServing, message)
            })?);
        }
        Ok(held)
    }

    /// The epoch in which this node is a reader of a partition.
    fn epoch(&self, partition: Partition) -> Result<Epoch, Fault> {
        let config = self.transfers.member.registers()?.config(partition);
        let me = self.transfers.member.node()?;
        let config = config.filter(|config| {
            let index = config.index(me);
            index.is_some_and(|index| config.readers().contains(index))
        });
        let config = config.ok_or_else(|| {
            let epoch = self.transfers.member.routing().map(|table| table.epoch);
            stale(partition, epoch.unwrap_or_default())
        })?;
        Ok(config.epoch)
    }

    /// Whether this node is the only replica.
    fn is_alone(&self, partition: Partition) -> Result<bool, Fault> {
        let config = self.transfers.member.registers()?.config(partition);
        Ok(config.is_some_and(|config| config.members.len() == 1))
    }

    async fn send_if_full(&self, mut writer: PackWriter) -> Result<PackWriter, Fault> {
        if writer.is_full() {
            let sent = writer.send(&self.location, self.pace()).await;
            sent.map_err(|error| fault_of(&error))?;
        }
        Ok(writer)
    }

    /// Waits before a piece of a pack is sent.
    fn pace<'a>(&'a self) -> impl Fn(u64) -> BoxFuture<'a, ()> + Send {
        move |bytes| Box::pin(self.wait(bytes))
    }

    /// Waits before a slice is written into a pack. Fails if the caller has disconnected.
    async fn pay(&self, bytes: u64) -> Result<(), Fault> {
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(PACED_TOGETHER);
            self.wait(piece).await;
            left -= piece;
            self.listen()?;
        }
        Ok(())
    }

    /// Waits as the rate limit of transfers and the requested one demand.
    async fn wait(&self, bytes: u64) {
        self.transfers.throttle.take(bytes).await;
        if let Some(rate) = &self.rate {
            rate.take(bytes).await;
        }
    }

    /// Notes the progress, of which `tell` informs the caller. Fails if it has disconnected.
    fn note(&self, partitions: u32, writer: &PackWriter) -> Result<(), Fault> {
        let counts = writer.counts();
        *self.progress.lock() = WriteBackupResponse {
            partitions,
            records: counts.records,
            copied_bytes: counts.copied,
            known_bytes: counts.known,
            part: String::new(),
        };
        self.listen()
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
