//! Reads partitions of a backup.
//!
//! A backup has thousands of slices, most of them short, and an object store takes a while for each
//! request. So slices that lie side by side in a pack and are wanted one after the other are read
//! together.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use bytes::Bytes;
use torc_build::Shape;
use torc_record::{Digest, DigestKey, Locator, NamespaceId, Record, State};
use torc_ring::{Partition, Partitions, Token};
use torc_store::bulk::{LooseSlice, MergedRecords};

use crate::{Backup, BackupError, Line, Location, Namespace, PackSlice};

/// Limit of all slices of a partition, bytes, which are in memory together.
const LONGEST_PARTITION: u64 = 8 << 30;
/// Bytes that are read together, unless a slice is longer.
const PIECE: u64 = 1 << 20;
/// Slices side by side are at most this far apart, because their starts are aligned.
pub(crate) const GAP: u64 = 64;

/// The checked slices of a partition.
#[derive(Debug)]
pub struct PartitionSlices {
    partition: Partition,
    slices: Vec<LooseSlice>,
    /// What the manifest says of each.
    named: Vec<PackSlice>,
}

/// Reads partitions one after the other.
#[derive(Debug)]
pub struct PartitionReader<'a> {
    backup: &'a Backup,
    location: &'a Location,
    lines: std::vec::IntoIter<Line>,
    /// Where the pieces of several slices end that begin at these offsets of packs.
    pieces: HashMap<([u8; 32], u64), u64>,
    /// Of each pack, the last piece and its offset, while slices in it are still wanted.
    ahead: HashMap<[u8; 32], (u64, Bytes)>,
}

impl<'a> PartitionReader<'a> {
    fn new(backup: &'a Backup, location: &'a Location, lines: Vec<Line>) -> Self {
        let mut pieces = HashMap::new();
        let mut last: HashMap<[u8; 32], Range<u64>> = HashMap::new();
        for slice in lines.iter().flat_map(|line| &line.slices) {
            let wanted = slice.range();
            let piece = last.entry(slice.pack).or_insert_with(|| wanted.clone());
            let is_next = (piece.end..=piece.end.saturating_add(GAP)).contains(&wanted.start);
            if is_next && wanted.end - piece.start <= PIECE {
                piece.end = wanted.end;
                pieces.insert((slice.pack, piece.start), piece.end);
            } else {
                *piece = wanted;
            }
        }
        Self {
            backup,
            location,
            lines: lines.into_iter(),
            pieces,
            ahead: HashMap::new(),
        }
    }

    /// The next partition; `None` after the last.
    ///
    /// # Errors
    /// [`BackupError::Location`].
    pub async fn next(&mut self) -> Result<Option<PartitionSlices>, BackupError> {
        let Some(line) = self.lines.next() else {
            return Ok(None);
        };
        let (backup, partition) = (self.backup, Partition(line.partition));
        let damaged = |what| Err(BackupError::damaged(&backup.plan.name, what));
        let mut lens = line.slices.iter().map(|slice| slice.len);
        let total = lens.try_fold(0_u64, u64::checked_add);
        if total.is_none_or(|total| total > LONGEST_PARTITION) {
            return damaged(format!(
                "partition {partition} has more than 8 GiB of slices"
            ));
        }
        let mut slices = Vec::with_capacity(line.slices.len());
        for slice in &line.slices {
            slices.push(self.slice(slice).await?);
        }
        let partitions = backup.partitions()?;
        let is_of = |it: &LooseSlice| it.partition() == partition && it.partitions() == partitions;
        if !slices.iter().all(is_of) {
            return damaged(format!(
                "it names slices of another partition for {partition}"
            ));
        }
        Ok(Some(PartitionSlices {
            partition,
            slices,
            named: line.slices,
        }))
    }

    async fn slice(&mut self, slice: &PackSlice) -> Result<LooseSlice, BackupError> {
        let (object, wanted) = (slice.object(), slice.range());
        let (at, bytes) = match self.ahead.remove(&slice.pack) {
            Some((at, bytes)) if at <= wanted.start && wanted.end <= at + bytes.len() as u64 => {
                (at, bytes)
            }
            _ => {
                let end = self.pieces.get(&(slice.pack, wanted.start));
                let end = end.map_or(wanted.end, |end| wanted.end.max(*end));
                let bytes = self.location.read_range(&object, wanted.start..end).await?;
                (wanted.start, bytes)
            }
        };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "both are within the piece, which is in memory"
        )]
        let (from, to) = ((wanted.start - at) as usize, (wanted.end - at) as usize);
        let own = bytes.slice(from..to);
        if to < bytes.len() {
            self.ahead.insert(slice.pack, (at, bytes));
        }
        LooseSlice::new(own, &slice.digest)
            .map_err(|what| BackupError::damaged(&object, format!("at {}: {what}", slice.at)))
    }
}

impl Backup {
    /// The number of partitions per layer.
    ///
    /// # Errors
    /// [`BackupError::Location`]: the number is impossible.
    pub fn partitions(&self) -> Result<Partitions, BackupError> {
        let partitions = Partitions::new(self.plan.partitions);
        partitions.map_err(|error| BackupError::damaged(&self.plan.name, error.to_string()))
    }

    /// Reads these partitions into memory, one after the other.
    #[must_use]
    pub fn read_partitions<'a>(
        &'a self,
        location: &'a Location,
        lines: impl IntoIterator<Item = Line>,
    ) -> PartitionReader<'a> {
        PartitionReader::new(self, location, lines.into_iter().collect())
    }

    /// The record of a key, tombstones included; its value as a get gives it. Reads the slices of one
    /// partition.
    ///
    /// # Errors
    /// [`BackupError::Location`].
    pub async fn get(
        &self,
        location: &Location,
        namespace: &Namespace,
        key: &[u8],
    ) -> Result<Option<Record>, BackupError> {
        let generation = namespace.generation.as_ref();
        let namespace = NamespaceId(namespace.id);
        let digest = match generation {
            Some(generation) => generation.digests().digest(key),
            None => Digest::of(&DigestKey(self.plan.digest_key), namespace, key),
        };
        let at = Locator {
            digest,
            namespace,
            key,
        };
        let partition = self.partitions()?.holding(namespace, Token::of(&at.digest));
        let wanted = BTreeSet::from([namespace]);
        let mut line = self.line(partition);
        if let Some(line) = &mut line {
            line.slices.retain(|slice| slice.holds(&wanted));
        }
        let mut reader = self.read_partitions(location, line);
        let Some(slices) = reader.next().await? else {
            return Ok(None);
        };
        let mut newest: Option<Record> = None;
        for slice in &slices.slices {
            let found = slice.get(at);
            let found = found.map_err(|what| slices.damaged(what))?;
            if let Some(found) = found
                && newest
                    .as_ref()
                    .is_none_or(|newest| found.supersedes(newest))
            {
                newest = Some(found);
            }
        }
        if let Some(newest) = &mut newest
            && generation.is_some_and(|generation| generation.shape == Shape::Ids)
        {
            self.number(partition, newest)
                .map_err(|what| slices.damaged(what))?;
        }
        Ok(newest)
    }

    /// Replaces the slot of a key, as its slice gives it, by the key's id.
    fn number(&self, partition: Partition, record: &mut Record) -> Result<(), &'static str> {
        let State::Value { value, .. } = &mut record.state else {
            return Ok(());
        };
        let slot = <[u8; 4]>::try_from(&value[..]).map_err(|_| "a key without its slot")?;
        let wanted = BTreeSet::from([record.namespace]);
        let earlier = self
            .lines_of(&wanted)
            .filter(|it| it.partition < partition.0);
        let counts = earlier.flat_map(|line| line.slices).map(|it| it.count());
        let before = counts.fold(0, u64::saturating_add);
        let id = before.saturating_add(u32::from_le_bytes(slot).into());
        *value = id.to_string().into();
        Ok(())
    }
}

/// Compares the records of each namespace in a slice with those that the manifest says.
fn check_counts(found: &BTreeMap<NamespaceId, u64>, named: &PackSlice) -> Result<(), BackupError> {
    let said = named.records.iter();
    let said: BTreeMap<_, _> = said
        .map(|(id, records)| (NamespaceId(*id), *records))
        .collect();
    let ids: BTreeSet<&NamespaceId> = found.keys().chain(said.keys()).collect();
    let of = |counts: &BTreeMap<_, u64>, id| counts.get(id).copied().unwrap_or_default();
    let differs = ids.into_iter().find(|id| of(found, *id) != of(&said, *id));
    let Some(id) = differs else {
        return Ok(());
    };
    let what = format!(
        "at {}: it has {} records of the namespace with id {}, and the manifest says {}",
        named.at,
        of(found, id),
        id.0,
        of(&said, id)
    );
    Err(BackupError::damaged(&named.object(), what))
}

impl PartitionSlices {
    /// The slices.
    #[must_use]
    pub fn slices(&self) -> &[LooseSlice] {
        &self.slices
    }

    /// The records in ring order: of each key the newest, tombstones included.
    ///
    /// # Errors
    /// [`BackupError::Location`].
    pub fn records(
        &self,
    ) -> Result<impl Iterator<Item = Result<Record, BackupError>> + '_, BackupError> {
        let merged = MergedRecords::of(&self.slices).map_err(|what| self.damaged(what))?;
        Ok(merged.map(|record| record.map_err(|what| self.damaged(what))))
    }

    /// Whether each record is as it was written, has the digest of its key, and is found by it; and whether
    /// each namespace has as many of them as the manifest says.
    pub(crate) fn verify(&self, cluster: &DigestKey) -> Result<(), BackupError> {
        let digest_of = |namespace, key: &[u8]| Some(Digest::of(cluster, namespace, key));
        for (slice, named) in self.slices.iter().zip(&self.named) {
            slice.verify(digest_of).map_err(|what| self.damaged(what))?;
            let counts = slice.namespaces().map_err(|what| self.damaged(what))?;
            check_counts(&counts, named)?;
        }
        Ok(())
    }

    fn damaged(&self, what: &str) -> BackupError {
        BackupError::damaged(&format!("partition {}", self.partition), what)
    }
}
