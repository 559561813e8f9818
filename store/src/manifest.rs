//! The manifest: the files of the store, and the live slices in them.
//!
//! One frame of kind `Files`; its body is
//!
//! | bytes | field |
//! |---|---|
//! | 8 | number of the first log segment that is needed |
//! | 8 | highest hybrid time of any entry the manifest covers |
//! | | entries, each after its kind (4 bytes) |
//!
//! | kind | entry |
//! |---|---|
//! | 1 | a segment: rows of its table (4), number (8), length (8), offset of the table (8), the log entry after which a drop empties it (8), then a bit for each row, set if the slice is live, in whole bytes |
//! | 2 | the sum of a partition's slices: partition (4), records (8), tombstones (8), payload bytes (8), fingerprint (16) |
//! | 3 | the facts of a partition: partition (4), facts (60, see `partition.rs`), watermark (18) |
//! | 4 | ceiling of the node's clock: zero (4), hybrid time (8) |
//! | 5 | the highest ballot of a partition that has any, after its facts: partition (4), ballot (18) |
//!
//! The frame's count is the number of entries. The header's number is the generation, one
//! higher with each manifest; its seq is the last log entry that the files cover: the first
//! needed log segment starts right after it.
//!
//! An unknown kind is refused as a newer format.

use torc_record::{Ballot, HybridTime};
use torc_ring::{Partition, Partitions};

use crate::directory::{Directory, MANIFEST};
use crate::format::{
    BALLOT_LEN, FORMAT_VERSION, FRAME_LEN, FileKind, Frame, FrameBuilder, FrameKind, HEADER_LEN,
    Header, array, ballot_at, ballot_bytes, draw_salt, u32_at, u64_at,
};
use crate::partition::{Facts, META_LEN, facts_at, facts_bytes};
use crate::segment::SegmentFile;
use crate::{PartitionSummary, Seq, StoreError};

const FIXED_LEN: usize = 16;
const SEGMENT: u32 = 1;
const SEALED: u32 = 2;
const FACTS: u32 = 3;
const CEILING: u32 = 4;
const HIGHEST: u32 = 5;
const FACTS_LEN: usize = 8 + META_LEN + BALLOT_LEN;

/// A segment, and which of its slices are live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiveSegment {
    pub(crate) file: SegmentFile,
    /// One bit per row.
    live: Vec<u8>,
}

impl LiveSegment {
    /// A segment without live slices.
    pub(crate) fn new(file: SegmentFile) -> Self {
        let live = vec![0; bitmap_len(file.rows)];
        Self { file, live }
    }

    pub(crate) fn set_live(&mut self, row: u32) {
        if let Some(byte) = self.live.get_mut(row as usize / 8) {
            *byte |= 1 << (row % 8);
        }
    }

    pub(crate) fn is_live(&self, row: u32) -> bool {
        let byte = self.live.get(row as usize / 8);
        byte.is_some_and(|byte| byte & (1 << (row % 8)) != 0)
    }
}

const fn bitmap_len(rows: u32) -> usize {
    (rows as usize).div_ceil(8)
}

/// The files of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) generation: u64,
    /// All entries up to this one are covered by the files.
    pub(crate) through: Seq,
    pub(crate) first_log: u64,
    pub(crate) highest_time: HybridTime,
    pub(crate) segments: Vec<LiveSegment>,
    /// The sums of the partitions' slices, for partitions that have any.
    pub(crate) sealed: Vec<(Partition, PartitionSummary)>,
    /// The facts when this was published, perhaps newer than `through`. The whole log from there on
    /// is replayed, so the latest facts win.
    pub(crate) facts: Vec<(Partition, Facts)>,
    pub(crate) ceiling: HybridTime,
}

impl Manifest {
    /// The manifest of an empty store.
    pub(crate) const EMPTY: Self = Self {
        generation: 1,
        through: Seq(0),
        first_log: 1,
        highest_time: HybridTime(0),
        segments: Vec::new(),
        sealed: Vec::new(),
        facts: Vec::new(),
        ceiling: HybridTime(0),
    };

    /// Reads the manifest, if there is one.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`], [`StoreError::NewerFormat`], [`StoreError::Io`].
    pub(crate) fn read(
        dir: &Directory,
        partitions: Partitions,
    ) -> Result<Option<Self>, StoreError> {
        let bytes = dir.read(MANIFEST)?;
        bytes
            .map(|bytes| Self::decode(&bytes, dir, partitions))
            .transpose()
    }

    /// Durably replaces the last manifest by this one.
    ///
    /// # Errors
    /// [`StoreError::ManifestTooLong`]: nothing was changed. Those of [`Directory::publish`].
    pub(crate) fn publish(
        &self,
        dir: &Directory,
        partitions: Partitions,
    ) -> Result<(), StoreError> {
        dir.publish(MANIFEST, &self.encode(partitions, draw_salt())?)
    }

    fn encode(&self, partitions: Partitions, salt: u32) -> Result<Vec<u8>, StoreError> {
        let header = Header {
            kind: FileKind::Manifest,
            number: self.generation,
            seq: self.through.0,
            salt,
            partitions: partitions.count(),
        };
        let mut frame = FrameBuilder::default();
        frame.extend(|body| put_u64s(body, &[self.first_log, self.highest_time.0]));
        for segment in &self.segments {
            let file = &segment.file;
            frame.push(|body| {
                put_u32s(body, [SEGMENT, file.rows]);
                put_u64s(body, &[file.number, file.len, file.table_at, file.after.0]);
                body.extend_from_slice(&segment.live);
            });
        }
        for (partition, sealed) in &self.sealed {
            frame.push(|body| {
                put_u32s(body, [SEALED, partition.0]);
                let numbers = [sealed.records, sealed.tombstones, sealed.payload_bytes];
                put_u64s(body, &numbers);
                body.extend_from_slice(&sealed.fingerprint.to_le_bytes());
            });
        }
        for (partition, facts) in &self.facts {
            frame.push(|body| {
                put_u32s(body, [FACTS, partition.0]);
                body.extend_from_slice(&facts_bytes(&facts.meta));
                body.extend_from_slice(&ballot_bytes(facts.watermark));
            });
            if facts.highest > Ballot::default() {
                frame.push(|body| {
                    put_u32s(body, [HIGHEST, partition.0]);
                    body.extend_from_slice(&ballot_bytes(facts.highest));
                });
            }
        }
        if self.ceiling > HybridTime(0) {
            frame.push(|body| put_u64s(body, &[u64::from(CEILING), self.ceiling.0]));
        }
        // A longer one could not be read again.
        let (len, max) = (frame.len(), FRAME_LEN + FrameKind::Files.max_body_len());
        if len > max {
            return Err(StoreError::ManifestTooLong { len, max });
        }
        let mut bytes = header.encode().to_vec();
        bytes.extend_from_slice(frame.finish(FrameKind::Files, 0, salt));
        Ok(bytes)
    }

    fn decode(bytes: &[u8], dir: &Directory, partitions: Partitions) -> Result<Self, StoreError> {
        let path = dir.join(MANIFEST);
        let corrupt = |offset, what| StoreError::corrupt(&path, offset as u64, what);
        let head = bytes.first_chunk::<HEADER_LEN>();
        let head = head.ok_or_else(|| corrupt(0, "the header is cut off"))?;
        let header = Header::decode(FileKind::Manifest, head, &path)?;
        let body = single_frame(bytes, &header, FrameKind::Files)
            .map_err(|what| corrupt(HEADER_LEN, what))?;
        let (fixed, mut entries) = body
            .split_first_chunk::<FIXED_LEN>()
            .ok_or_else(|| corrupt(HEADER_LEN, "the list of files is cut off"))?;
        if header.partitions != partitions.count() {
            return Err(corrupt(0, "it belongs to another store"));
        }
        let mut manifest = Self {
            generation: header.number,
            through: Seq(header.seq),
            first_log: u64_at(fixed, 0),
            highest_time: HybridTime(u64_at(fixed, 8)),
            segments: Vec::new(),
            sealed: Vec::new(),
            facts: Vec::new(),
            ceiling: HybridTime(0),
        };
        while !entries.is_empty() {
            let taken = manifest.take(&mut entries, partitions);
            match taken.map_err(|what| corrupt(HEADER_LEN, what))? {
                Taken::Known => {}
                Taken::Unknown => {
                    return Err(StoreError::NewerFormat {
                        file: path,
                        found: FORMAT_VERSION + 1,
                        supported: FORMAT_VERSION,
                    });
                }
            }
        }
        Ok(manifest)
    }

    fn take(&mut self, bytes: &mut &[u8], partitions: Partitions) -> Result<Taken, &'static str> {
        const CUT: &str = "an entry of the list of files is cut off";
        let kind = bytes.first_chunk().ok_or(CUT)?;
        match u32::from_le_bytes(*kind) {
            SEGMENT => {
                let entry = take_bytes(bytes, 40).ok_or(CUT)?;
                let file = SegmentFile {
                    rows: u32_at(entry, 4),
                    number: u64_at(entry, 8),
                    len: u64_at(entry, 16),
                    table_at: u64_at(entry, 24),
                    after: Seq(u64_at(entry, 32)),
                };
                let live = take_bytes(bytes, bitmap_len(file.rows)).ok_or(CUT)?;
                let live = live.to_vec();
                self.segments.push(LiveSegment { file, live });
            }
            SEALED => {
                let entry = take_bytes(bytes, 48).ok_or(CUT)?;
                let partition = Partition(u32_at(entry, 4));
                if !partitions.contains(partition) {
                    return Err("a partition that does not exist");
                }
                let sealed = PartitionSummary {
                    records: u64_at(entry, 8),
                    tombstones: u64_at(entry, 16),
                    payload_bytes: u64_at(entry, 24),
                    fingerprint: u128::from_le_bytes(array(entry, 32)),
                };
                self.sealed.push((partition, sealed));
            }
            FACTS => {
                let entry = take_bytes(bytes, FACTS_LEN).ok_or(CUT)?;
                let partition = Partition(u32_at(entry, 4));
                if !partitions.contains(partition) {
                    return Err("a partition that does not exist");
                }
                let facts = Facts {
                    meta: facts_at(entry, 8),
                    watermark: ballot_at(entry, 8 + META_LEN),
                    highest: Ballot::default(),
                };
                self.facts.push((partition, facts));
            }
            HIGHEST => {
                let entry = take_bytes(bytes, 8 + BALLOT_LEN).ok_or(CUT)?;
                let partition = Partition(u32_at(entry, 4));
                let facts = self.facts.last_mut().filter(|(it, _)| *it == partition);
                let (_, facts) = facts.ok_or("a highest ballot without the facts before it")?;
                facts.highest = ballot_at(entry, 8);
            }
            CEILING => {
                let entry = take_bytes(bytes, 16).ok_or(CUT)?;
                self.ceiling = HybridTime(u64_at(entry, 8));
            }
            _ => return Ok(Taken::Unknown),
        }
        Ok(Taken::Known)
    }
}

enum Taken {
    Known,
    Unknown,
}

fn take_bytes<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

fn put_u32s(out: &mut Vec<u8>, numbers: [u32; 2]) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn put_u64s(out: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

/// The body of the only frame in a small file.
///
/// # Errors
/// The problem with the file.
pub(crate) fn single_frame<'a>(
    file: &'a [u8],
    header: &Header,
    kind: FrameKind,
) -> Result<&'a [u8], &'static str> {
    let frame = file.get(HEADER_LEN..).unwrap_or_default();
    if frame.len() < FRAME_LEN {
        return Err("its frame is cut off");
    }
    let (head, body) = frame.split_at(FRAME_LEN);
    let frame = Frame::decode(&array(head, 0), header.salt)?;
    if frame.kind != kind {
        return Err("a frame of another kind");
    }
    if !frame.fits(body, header.salt) {
        return Err("the body of its frame fails its checksum");
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::MAX_LIST_LEN;
    use crate::partition::tests::meta;
    use crate::testing::CrashFs;
    use std::path::Path;
    use std::sync::Arc;

    fn full() -> Manifest {
        let mut segment = LiveSegment::new(SegmentFile {
            number: 9,
            len: 4096,
            table_at: 4000,
            after: Seq(70),
            rows: 10,
        });
        segment.set_live(0);
        segment.set_live(9);
        let sealed = PartitionSummary {
            records: 2,
            tombstones: 1,
            payload_bytes: 3,
            fingerprint: 4,
        };
        Manifest {
            generation: 3,
            through: Seq(77),
            first_log: 5,
            highest_time: HybridTime(99),
            segments: vec![segment],
            sealed: vec![(Partition(6), sealed)],
            facts: vec![(
                Partition(8),
                Facts {
                    meta: meta(),
                    watermark: meta().collected,
                    highest: meta().collecting,
                },
            )],
            ceiling: HybridTime(0x99),
        }
    }

    fn dir(fs: &CrashFs) -> Directory {
        Directory::open(Arc::new(fs.clone()), Path::new("/d")).unwrap()
    }

    #[test]
    fn a_manifest_is_read_as_it_was_published() {
        let fs = CrashFs::new();
        let dir = dir(&fs);
        let partitions = Partitions::new(64).unwrap();
        assert_eq!(Manifest::read(&dir, partitions).unwrap(), None);
        for manifest in [Manifest::EMPTY, full()] {
            manifest.publish(&dir, partitions).unwrap();
            let read = Manifest::read(&dir, partitions).unwrap();
            assert_eq!(read.as_ref(), Some(&manifest));
        }
        assert!(Manifest::read(&dir, Partitions::DEFAULT).is_err());
    }

    #[test]
    fn a_manifest_of_many_partitions_is_read_as_it_was_published() {
        let fs = CrashFs::new();
        let dir = dir(&fs);
        let partitions = Partitions::new(Partitions::MAX_COUNT).unwrap();
        let mut manifest = full();
        let (segment, sealed, facts) = (
            manifest.segments.remove(0),
            manifest.sealed.remove(0).1,
            manifest.facts.remove(0).1,
        );
        let ids = (0..1 << 17).map(Partition);
        assert!(ids.clone().all(|id| partitions.contains(id)));
        manifest.sealed = ids.clone().map(|id| (id, sealed)).collect();
        manifest.facts = ids.map(|id| (id, facts)).collect();
        manifest.segments = vec![segment; 1 << 17];
        manifest.publish(&dir, partitions).unwrap();
        let read = Manifest::read(&dir, partitions).unwrap();
        assert!(read == Some(manifest));
    }

    #[test]
    fn a_manifest_that_could_not_be_read_again_leaves_the_old_one() {
        let fs = CrashFs::new();
        let dir = dir(&fs);
        full().publish(&dir, Partitions::DEFAULT).unwrap();
        let mut too_long = full();
        let file = SegmentFile {
            rows: 8 * (MAX_LIST_LEN as u32 + 1),
            ..too_long.segments[0].file.clone()
        };
        too_long.segments.push(LiveSegment::new(file));
        let refused = too_long.publish(&dir, Partitions::DEFAULT).unwrap_err();
        assert!(
            matches!(refused, StoreError::ManifestTooLong { .. }),
            "{refused}"
        );
        let read = Manifest::read(&dir, Partitions::DEFAULT).unwrap();
        assert_eq!(read, Some(full()));
    }

    #[test]
    fn a_row_counts_when_its_bit_is_set() {
        let segment = &full().segments[0];
        let live: Vec<u32> = (0..100).filter(|row| segment.is_live(*row)).collect();
        assert_eq!(live, [0, 9], "and none beyond the rows there are");
    }

    #[test]
    fn the_list_of_files_does_not_change() {
        let bytes = full().encode(Partitions::DEFAULT, 1).unwrap();
        let golden = crate::packed::tests::unhex(
            "0500000000000000 6300000000000000
             01000000 0a000000 0900000000000000 0010000000000000 a00f000000000000
             4600000000000000 0102
             02000000 06000000 0200000000000000 0100000000000000 0300000000000000
             04000000000000000000000000000000
             03000000 08000000 0100000000000000 0200000000000000 0300000000000000
             0400000000000000 0500000000000000 0600 0400000000000000 0500000000000000 0700
             0400000000000000 0500000000000000 0600
             05000000 08000000 0400000000000000 0500000000000000 0700
             04000000 00000000 9900000000000000",
        );
        assert_eq!(bytes[HEADER_LEN + FRAME_LEN..], golden);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        let fs = CrashFs::new();
        let dir = dir(&fs);
        let good = full().encode(Partitions::DEFAULT, 7).unwrap();
        let decode = |bytes: &[u8]| Manifest::decode(bytes, &dir, Partitions::DEFAULT);
        assert_eq!(decode(&good).unwrap(), full());
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(decode(&good[..len]).is_err(), "cut to {len}");
        }
    }
}
