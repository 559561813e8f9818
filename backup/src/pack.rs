//! Writes packs: a node's part in a backup.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use torc_objects::ObjectError;
use torc_record::{Epoch, NamespaceId, Record};
use torc_ring::{Partition, Partitions};
use torc_store::bulk::{PackedRecord, Placed, SliceFileWriter, pack};
use torc_store::{SealedSlice, StoreError};

use crate::manifest::{pack_object, write_part};
use crate::verify::check_pack;
use crate::{Backup, BackupError, Depth, Line, Location, PackSlice};

/// A pack of this length is complete.
const PACK_LEN: u64 = 256 << 20;
/// Only `kvctl backup get` uses the gates of these slices.
const GATE_RATE: f64 = 0.01;

/// Slices that an earlier backup has.
#[derive(Debug, Clone, Default)]
pub struct Known(BTreeMap<[u8; 32], PackSlice>);

impl Known {
    /// The slices of some partitions.
    #[must_use]
    pub fn of(backup: &Backup, partitions: &BTreeSet<Partition>) -> Self {
        let lines = partitions.iter().filter_map(|it| backup.line(*it));
        let slices = lines.flat_map(|line| line.slices);
        Self(slices.map(|slice| (slice.digest, slice)).collect())
    }
}

/// Writes a node's records of some partitions: one pack at a time, first into a local directory,
/// then to the backup's location.
#[derive(Debug)]
pub struct PackWriter {
    dir: PathBuf,
    partitions: Partitions,
    known: Known,
    pack: Option<SliceFileWriter>,
    /// The content of the current pack.
    placed: Vec<InPack>,
    lines: BTreeMap<Partition, (Epoch, Vec<PackSlice>)>,
    counts: Part,
}

/// A slice in the current pack.
#[derive(Debug)]
struct InPack {
    partition: Partition,
    placed: Placed,
    /// Its records by the id of their namespace.
    records: Vec<(u32, u64)>,
}

/// Totals of a part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Part {
    /// Records in the slices, those that an earlier backup has included.
    pub records: u64,
    /// Bytes of slices that were copied.
    pub copied: u64,
    /// Bytes of slices that an earlier backup has.
    pub known: u64,
}

impl PackWriter {
    /// A writer that has written nothing yet. `dir` exists and holds no other data.
    #[must_use]
    pub fn new(dir: &Path, partitions: Partitions, known: Known) -> Self {
        Self {
            dir: dir.to_owned(),
            partitions,
            known,
            pack: None,
            placed: Vec::new(),
            lines: BTreeMap::new(),
            counts: Part::default(),
        }
    }

    /// The totals so far.
    #[must_use]
    pub const fn counts(&self) -> Part {
        self.counts
    }

    /// Adds a partition to the part, even if it holds no records. No ballot in its slices is above
    /// this epoch.
    pub fn begin(&mut self, partition: Partition, epoch: Epoch) {
        let (known, _) = self.lines.entry(partition).or_default();
        *known = epoch.max(*known);
    }

    /// Bytes that [`push_sealed`](Self::push_sealed) would write of a slice: 0 if an earlier backup has it.
    /// Reads its digest.
    ///
    /// # Errors
    /// [`BackupError::Store`].
    pub fn lacks(&self, slice: &SealedSlice) -> Result<u64, BackupError> {
        let info = slice.info()?;
        let is_known = self.known.0.contains_key(&info.digest);
        Ok(if is_known { 0 } else { info.len })
    }

    /// Adds a slice of the node's store, unless an earlier backup has it. Reads and writes files.
    ///
    /// # Errors
    /// [`BackupError::Store`]: the pack is useless afterwards.
    pub fn push_sealed(
        &mut self,
        partition: Partition,
        slice: &SealedSlice,
    ) -> Result<(), BackupError> {
        let info = slice.info()?;
        if let Some(known) = self.known.0.get(&info.digest) {
            self.counts.records += known.count();
            self.counts.known += known.len;
            let (_, slices) = self.lines.entry(partition).or_default();
            slices.push(known.clone());
            return Ok(());
        }
        let placed = self.pack()?.push_sealed(slice)?;
        let records = slice.namespaces()?;
        self.place(partition, placed, records);
        Ok(())
    }

    /// Adds a slice of records, one per key, in any order.
    ///
    /// # Errors
    /// [`BackupError::Store`]: the pack is useless afterwards.
    pub fn push_records(
        &mut self,
        partition: Partition,
        records: &[Record],
    ) -> Result<(), BackupError> {
        if records.is_empty() {
            return Ok(());
        }
        let epochs = records.iter().map(|record| record.ballot.epoch);
        self.begin(partition, epochs.max().unwrap_or_default());
        let mut packed = Vec::with_capacity(records.len());
        let mut counts: BTreeMap<NamespaceId, u64> = BTreeMap::new();
        for record in records {
            *counts.entry(record.namespace).or_default() += 1;
            let mut bytes = Vec::new();
            pack(record, &mut bytes).map_err(|error| StoreError::Unflushable {
                why: error.to_string().into(),
            })?;
            packed.push((record.digest, bytes));
        }
        packed.sort_unstable_by_key(|(digest, _)| *digest);
        let refs: Result<Vec<_>, _> = packed
            .iter()
            .map(|(_, bytes)| PackedRecord::at_start_of(bytes))
            .collect();
        let refs = refs.map_err(|why| StoreError::Unflushable { why: why.into() })?;
        let placed = self.pack()?.push(partition, &refs)?;
        self.place(partition, placed, counts);
        Ok(())
    }

    fn pack(&mut self) -> Result<&mut SliceFileWriter, BackupError> {
        let writer = match self.pack.take() {
            Some(writer) => writer,
            None => SliceFileWriter::create(&self.path(), self.partitions, GATE_RATE)?,
        };
        Ok(self.pack.insert(writer))
    }

    fn path(&self) -> PathBuf {
        self.dir.join("next.pack")
    }

    fn place(&mut self, partition: Partition, placed: Placed, records: BTreeMap<NamespaceId, u64>) {
        self.counts.records += records.values().sum::<u64>();
        self.counts.copied += placed.len;
        let records = records.into_iter().map(|(id, records)| (id.0, records));
        self.placed.push(InPack {
            partition,
            placed,
            records: records.collect(),
        });
    }

    /// Whether the pack should be sent before more is added.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.pack
            .as_ref()
            .is_some_and(|pack| pack.len() >= PACK_LEN)
    }

    /// Completes and sends the current pack, if any. Awaits `pace` before it sends each piece; a directory that
    /// takes the file itself gets nothing sent. If the
    /// pack is there already, it is read back, and replaced if it is damaged.
    ///
    /// # Errors
    /// [`BackupError::Store`], [`BackupError::Location`], [`BackupError::Io`].
    pub async fn send<F: Future<Output = ()> + Send>(
        &mut self,
        location: &Location,
        pace: impl Fn(u64) -> F + Send,
    ) -> Result<(), BackupError> {
        let Some(pack) = self.pack.take() else {
            return Ok(());
        };
        let finished = tokio::task::spawn_blocking(move || pack.finish()).await;
        let info = finished.map_err(|error| {
            BackupError::io("write a pack")(std::io::Error::other(error.to_string()))
        })??;
        match check_pack(location, &info.digest, info.len, Depth::Bytes).await {
            Ok(_) => {}
            Err(BackupError::Location(ObjectError::Damaged { .. })) => {
                let object = pack_object(&info.digest);
                location.remove(&object).await?;
                location.hand_over(&object, &self.path(), pace).await?;
            }
            Err(error) => return Err(error),
        }
        for in_pack in std::mem::take(&mut self.placed) {
            let InPack {
                partition,
                placed,
                records,
            } = in_pack;
            let slice = PackSlice {
                pack: info.digest,
                at: placed.at,
                len: placed.len,
                digest: placed.digest,
                records,
            };
            self.lines.entry(partition).or_default().1.push(slice);
        }
        Ok(())
    }

    /// Sends the rest, writes the part and returns its name.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn finish<F: Future<Output = ()> + Send>(
        mut self,
        location: &Location,
        name: &str,
        pace: impl Fn(u64) -> F + Send,
    ) -> Result<String, BackupError> {
        self.send(location, pace).await?;
        let lines = self.lines.into_iter();
        let lines: Vec<Line> = lines
            .map(|(partition, (epoch, slices))| Line {
                partition: partition.0,
                epoch: epoch.0,
                slices,
            })
            .collect();
        write_part(location, name, &lines).await
    }
}
