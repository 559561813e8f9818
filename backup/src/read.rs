//! Reads partitions of a backup.
//!
//! A backup has thousands of slices, most of them short, and an object store takes a while for each
//! request. So slices of a pack that are close to each other and are wanted one after the other are
//! read together, and the next pieces are read ahead.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt as _};
use torc_build::Shape;
use torc_objects::ObjectError;
use torc_record::{Digest, DigestKey, Locator, NamespaceId, Record, State, to_usize};
use torc_ring::{Partition, Partitions, Token};
use torc_store::bulk::{LooseSlice, MergedRecords};

use crate::manifest::pack_object;
use crate::{Backup, BackupError, Line, Location, Namespace, PackSlice};

/// Limit of all slices of a partition, bytes, which are in memory together.
const LONGEST_PARTITION: u64 = 8 << 30;
/// Bytes that are read together, unless a slice is longer.
const PIECE: u64 = 1 << 20;
/// Bytes that are read and not wanted, rather than requesting twice.
pub(crate) const GAP: u64 = 16 << 10;
/// Pieces that are read at a time.
const AHEAD: u64 = 8;
/// Limit of their bytes, unless one is longer.
const AHEAD_BYTES: u64 = 8 << 20;

/// Records of ordinary namespaces stored under the digest of another key. They belong to no key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Foreign {
    /// Their number, superseded ones and tombstones included.
    pub records: u64,
    /// The first of them.
    pub first: Option<Locator>,
}

/// The checked slices of a partition.
#[derive(Debug)]
pub struct PartitionSlices {
    partition: Partition,
    /// The key of digests in ordinary namespaces.
    digest_key: DigestKey,
    slices: Vec<LooseSlice>,
    /// What the manifest says of each.
    named: Vec<PackSlice>,
}

/// Part of a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    pack: [u8; 32],
    range: Range<u64>,
}

fn is_too_long(line: &Line) -> bool {
    let mut lens = line.slices.iter().map(|slice| slice.len);
    let total = lens.try_fold(0_u64, u64::checked_add);
    total.is_none_or(|total| total > LONGEST_PARTITION)
}

/// The pieces that hold these slices, in the order in which their first slices are wanted.
fn pieces<'a>(slices: impl Iterator<Item = &'a PackSlice>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut last: HashMap<[u8; 32], usize> = HashMap::new();
    for slice in slices {
        let wanted = slice.range();
        let piece = last.get(&slice.pack).map(|index| &mut pieces[*index].range);
        if let Some(piece) = piece
            && (piece.end..=piece.end.saturating_add(GAP)).contains(&wanted.start)
            && wanted.end - piece.start <= PIECE
        {
            piece.end = wanted.end;
            continue;
        }
        last.insert(slice.pack, pieces.len());
        pieces.push(Piece {
            pack: slice.pack,
            range: wanted,
        });
    }
    pieces
}

/// Reads partitions one after the other.
pub struct PartitionReader<'a> {
    backup: &'a Backup,
    lines: std::vec::IntoIter<Line>,
    /// The bytes of the pieces, in order.
    read: BoxStream<'a, Result<Bytes, ObjectError>>,
    /// Of each pack, the current piece and its offset, while slices in it are still wanted.
    current: HashMap<[u8; 32], (u64, Bytes)>,
}

impl fmt::Debug for PartitionReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionReader").finish_non_exhaustive()
    }
}

impl<'a> PartitionReader<'a> {
    fn new(backup: &'a Backup, location: &'a Location, lines: Vec<Line>) -> Self {
        // A line that is refused ends the reading.
        let readable = lines.iter().take_while(|line| !is_too_long(line));
        let pieces = pieces(readable.flat_map(|line| &line.slices));
        let lens = pieces.iter().map(|it| it.range.end - it.range.start);
        let longest = lens.max().unwrap_or_default().max(1);
        let at_a_time = (AHEAD_BYTES / longest).clamp(1, AHEAD);
        let reading = futures::stream::iter(pieces).map(async |piece| {
            let object = pack_object(&piece.pack);
            location.read_range(&object, piece.range).await
        });
        Self {
            backup,
            lines: lines.into_iter(),
            read: reading.buffered(to_usize(at_a_time)).boxed(),
            current: HashMap::new(),
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
        if is_too_long(&line) {
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
            digest_key: DigestKey(backup.plan.digest_key),
            slices,
            named: line.slices,
        }))
    }

    async fn slice(&mut self, slice: &PackSlice) -> Result<LooseSlice, BackupError> {
        let (object, wanted) = (slice.object(), slice.range());
        let (at, bytes) = match self.current.remove(&slice.pack) {
            Some(current) => current,
            // The next piece begins with this slice.
            None => match self.read.next().await {
                Some(read) => (wanted.start, read?),
                None => return Err(BackupError::damaged(&object, "a slice was not read")),
            },
        };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "both are within the piece, which is in memory"
        )]
        let (from, to) = ((wanted.start - at) as usize, (wanted.end - at) as usize);
        let own = bytes.slice(from..to);
        if to < bytes.len() {
            self.current.insert(slice.pack, (at, bytes));
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

    /// Whether a record of an ordinary namespace is stored under the digest of another key. It belongs to no
    /// key, so it must not be restored.
    #[must_use]
    pub fn is_foreign(&self, record: &Record) -> bool {
        let (namespace, key) = (record.namespace, record.key.as_bytes());
        !namespace.is_generation() && record.digest != Digest::of(&self.digest_key, namespace, key)
    }

    /// Whether each record is as it was written and is found by its digest, which in a generation is that of
    /// its key; and whether each namespace has as many of them as the manifest says. Adds to `foreign`.
    pub(crate) fn verify(&self, foreign: &mut Foreign) -> Result<(), BackupError> {
        let digest_of = |namespace: NamespaceId, key: &[u8]| {
            let is_strict = namespace.is_generation();
            is_strict.then(|| Digest::of(&self.digest_key, namespace, key))
        };
        for (slice, named) in self.slices.iter().zip(&self.named) {
            slice.verify(digest_of).map_err(|what| self.damaged(what))?;
            let counts = slice.namespaces().map_err(|what| self.damaged(what))?;
            check_counts(&counts, named)?;
            if counts.keys().all(|id| id.is_generation()) {
                continue;
            }
            let records = MergedRecords::of(std::slice::from_ref(slice));
            for record in records.map_err(|what| self.damaged(what))? {
                let record = record.map_err(|what| self.damaged(what))?;
                if self.is_foreign(&record) {
                    foreign.records += 1;
                    let first = || Locator::of(&record).detached();
                    foreign.first.get_or_insert_with(first);
                }
            }
        }
        Ok(())
    }

    fn damaged(&self, what: &str) -> BackupError {
        BackupError::damaged(&format!("partition {}", self.partition), what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(pack: u8, at: u64, len: u64) -> PackSlice {
        PackSlice {
            pack: [pack; 32],
            at,
            len,
            digest: [0; 32],
            records: Vec::new(),
        }
    }

    #[test]
    fn slices_that_are_close_are_one_piece_and_pieces_come_as_they_are_wanted() {
        let slices = [
            slice(1, 0, 100),
            slice(2, 50, 10),
            // Directly behind, and behind slices of another namespace.
            slice(1, 100, 100),
            slice(2, 60 + GAP, 10),
            // Too far, then before it.
            slice(1, 201 + GAP, 10),
            slice(2, 0, 10),
            slice(1, 211 + GAP, PIECE),
            slice(1, 211 + GAP + PIECE, 1),
        ];
        let expected = [
            (1, 0..200),
            (2, 50..70 + GAP),
            (1, 201 + GAP..211 + GAP),
            (2, 0..10),
            (1, 211 + GAP..211 + GAP + PIECE),
            (1, 211 + GAP + PIECE..212 + GAP + PIECE),
        ];
        let expected = expected.map(|(pack, range)| Piece {
            pack: [pack; 32],
            range,
        });
        assert_eq!(pieces(slices.iter()), expected);
    }
}
