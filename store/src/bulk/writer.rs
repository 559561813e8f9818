//! Writing a file of slices.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a file has fewer than 2^32 slices, and usize has 64 bits"
)]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use torc_index::prefetch;
use torc_record::{Ballot, Digest, NamespaceId};
use torc_ring::{Partition, Partitions};

use super::{LooseSlice, PackedRecord};
use crate::format::{FileKind, Header};
use crate::ingest::SealedSlice;
use crate::segment::{Row, align, encode_table};
use crate::slice::{
    BuiltSlice, GateRates, KeylessInput, KeylessLayout, Kind, SLICE_DIGEST_LEN, SliceInput,
};
use crate::{PartitionSummary, StoreError};

/// Bytes that are gathered for one write, and read at a time.
const BUFFER_LEN: usize = 1 << 20;
/// Records whose memory is fetched before they are read: it may be anywhere.
const AHEAD: usize = 16;

/// A file of slices that is being written. It is valid once [`finish`](Self::finish) has returned.
#[derive(Debug)]
pub struct SliceFileWriter {
    path: PathBuf,
    file: BufWriter<File>,
    hasher: blake3::Hasher,
    at: u64,
    rows: Vec<Row>,
    digests: Vec<(Partition, [u8; 32])>,
    partitions: Partitions,
    gate_rate: f64,
    gates: GateRates,
    summary: PartitionSummary,
}

/// A complete and durable file of slices. Only its name in the directory may not be durable yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceFileInfo {
    /// BLAKE3 of all its bytes.
    pub digest: [u8; 32],
    /// Its length, bytes.
    pub len: u64,
    /// Where its table starts.
    pub table_at: u64,
    /// Number of slices.
    pub slices: u32,
    /// The sum of its records.
    pub summary: PartitionSummary,
}

/// The place and digest of a slice in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Where it starts.
    pub at: u64,
    /// Its length, bytes.
    pub len: u64,
    /// Its digest.
    pub digest: [u8; 32],
}

impl SliceFileWriter {
    /// Starts a file, and replaces an existing one. Gates have the false positive rate `gate_rate`,
    /// 0.0001 to 0.5.
    ///
    /// # Errors
    /// [`StoreError::OutOfSpace`], [`StoreError::Io`].
    pub fn create(path: &Path, partitions: Partitions, gate_rate: f64) -> Result<Self, StoreError> {
        let file = File::create(path).map_err(StoreError::io("create", path))?;
        let mut writer = Self {
            path: path.to_owned(),
            file: BufWriter::with_capacity(BUFFER_LEN, file),
            hasher: blake3::Hasher::new(),
            at: 0,
            rows: Vec::new(),
            digests: Vec::new(),
            partitions,
            gate_rate,
            gates: GateRates::default(),
            summary: PartitionSummary::default(),
        };
        let header = Header {
            kind: FileKind::Segment,
            number: 0,
            seq: 0,
            salt: 0,
            partitions: partitions.count(),
        };
        writer.put(&header.encode())?;
        Ok(writer)
    }

    /// Adds the slice of a partition: its records in ring order, one for each digest. Takes about
    /// 0.3 us per record.
    ///
    /// # Errors
    /// [`StoreError::Unflushable`]: there is no record, there are more than 2^30, or two have the
    /// same digest. [`StoreError::OutOfSpace`], [`StoreError::Io`].
    pub fn push(
        &mut self,
        partition: Partition,
        records: &[PackedRecord<'_>],
    ) -> Result<Placed, StoreError> {
        self.push_as(Kind::Records, partition, records)
    }

    /// As [`push`](Self::push), for records without values: lookups give the slot of the key as its
    /// value, as four little-endian bytes.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_numbered(
        &mut self,
        partition: Partition,
        records: &[PackedRecord<'_>],
    ) -> Result<Placed, StoreError> {
        let no_value = |record: &PackedRecord<'_>| record.payload_len() == record.key().len();
        if !records.iter().all(no_value) {
            return Err(StoreError::Unflushable {
                why: "numbered keys have no values".into(),
            });
        }
        self.push_as(Kind::Numbered, partition, records)
    }

    /// Adds the keyless slice of a partition. `keys` has the namespace and the version of all keys;
    /// rows are digests in ring order, each with its payload. Takes about 0.2 us per row.
    ///
    /// # Errors
    /// [`StoreError::Unflushable`]: there is no row, there are more than 2^30, two have the same
    /// digest, or the widths are impossible. [`StoreError::OutOfSpace`], [`StoreError::Io`].
    pub fn push_keyless(
        &mut self,
        partition: Partition,
        (namespace, ballot): (NamespaceId, Ballot),
        layout: KeylessLayout,
        rows: &[(Digest, &[u8])],
    ) -> Result<Placed, StoreError> {
        let input = KeylessInput {
            partition,
            partitions: self.partitions,
            namespace,
            ballot,
            layout,
            rows,
        };
        let built = input.build()?;
        self.write(partition, &built)
    }

    /// Adds a keyless slice of a generation as one of another generation that has the same digests. Copies it, and
    /// changes its namespace and version.
    ///
    /// # Errors
    /// [`StoreError::Unflushable`]: it is not keyless, or not of a generation. [`StoreError::OutOfSpace`],
    /// [`StoreError::Io`].
    pub fn push_moved(
        &mut self,
        slice: &LooseSlice,
        (namespace, ballot): (NamespaceId, Ballot),
    ) -> Result<(Partition, Placed), StoreError> {
        let moved = slice.moved(namespace, ballot);
        let moved = moved.ok_or_else(|| StoreError::Unflushable {
            why: "only keyless slices of generations can move to another generation".into(),
        })?;
        let partition = moved.header.partition;
        Ok((partition, self.write(partition, &moved)?))
    }

    fn push_as(
        &mut self,
        kind: Kind,
        partition: Partition,
        records: &[PackedRecord<'_>],
    ) -> Result<Placed, StoreError> {
        let digest = |(number, record): (usize, &PackedRecord<'_>)| {
            if let Some(later) = records.get(number + AHEAD) {
                let bytes = later.bytes();
                for line in [0, 64, 128] {
                    prefetch(bytes, line);
                }
            }
            record.digest()
        };
        let digests: Vec<Digest> = records.iter().enumerate().map(digest).collect();
        if !digests.is_sorted_by(|one, other| one < other) {
            return Err(StoreError::Unflushable {
                why: "the records of a slice are not in ring order, or have a digest twice".into(),
            });
        }
        let input = SliceInput {
            kind,
            partition,
            partitions: self.partitions,
            records: records.iter().map(|record| record.bytes()).collect(),
            digests,
            layer: 0,
            salt: None,
            gate_rate: self.gate_rate,
        };
        let mut gates = std::mem::take(&mut self.gates);
        let built = input.build(&mut gates);
        self.gates = gates;
        self.write(partition, &built?)
    }

    fn write(
        &mut self,
        partition: Partition,
        built: &BuiltSlice<'_>,
    ) -> Result<Placed, StoreError> {
        let zeros = [0; 64];
        self.put(&zeros[..(align(self.at) - self.at) as usize])?;
        let at = self.at;
        let mut digest = [0; SLICE_DIGEST_LEN];
        built.write(|piece| {
            if let Ok(last) = piece.try_into() {
                digest = last;
            }
            self.put(piece)
        })?;
        self.digests.push((partition, digest));
        self.summary.merge(&built.header.held());
        self.rows.push(Row {
            partition,
            at,
            len: self.at - at,
            highest: built.header.highest(),
            is_generation: built.header.generation().is_some(),
        });
        Ok(Placed {
            at,
            len: self.at - at,
            digest,
        })
    }

    /// Adds a slice of a store unchanged. Compares the copy with the slice's digest, and refuses a
    /// slice that the disk returns differently.
    ///
    /// # Errors
    /// [`StoreError::Damaged`]: discard the file. [`StoreError::OutOfSpace`], [`StoreError::Io`].
    pub fn push_sealed(&mut self, slice: &SealedSlice) -> Result<Placed, StoreError> {
        let zeros = [0; 64];
        self.put(&zeros[..(align(self.at) - self.at) as usize])?;
        let start = self.at;
        let info = slice.info()?;
        let content_len = info.len.saturating_sub(SLICE_DIGEST_LEN as u64);
        let (mut at, mut hasher) = (0, blake3::Hasher::new());
        while at < info.len {
            let bytes = slice.read(at, BUFFER_LEN)?;
            let content = content_len.saturating_sub(at).min(bytes.len() as u64);
            hasher.update(&bytes[..content as usize]);
            self.put(&bytes)?;
            at += bytes.len() as u64;
        }
        if *hasher.finalize().as_bytes() != info.digest {
            return Err(slice.note_damage());
        }
        let partition = slice.0.partition();
        self.digests.push((partition, info.digest));
        if let Some(header) = slice.0.header() {
            self.summary.merge(&header.held());
        }
        self.rows.push(Row {
            partition,
            at: start,
            len: info.len,
            highest: slice.0.highest(),
            is_generation: slice.0.is_generation(),
        });
        Ok(Placed {
            at: start,
            len: info.len,
            digest: info.digest,
        })
    }

    /// The slices so far, each with its digest, which is its last 32 bytes.
    #[must_use]
    pub fn digests(&self) -> &[(Partition, [u8; 32])] {
        &self.digests
    }

    /// Bytes so far.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.at
    }

    /// Whether it has no slice yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Completes the file and syncs it.
    ///
    /// # Errors
    /// [`StoreError::OutOfSpace`], [`StoreError::Io`].
    pub fn finish(mut self) -> Result<SliceFileInfo, StoreError> {
        let zeros = [0; 64];
        self.put(&zeros[..(align(self.at) - self.at) as usize])?;
        let table_at = self.at;
        self.put(&encode_table(&self.rows, 0))?;
        let flushed = self
            .file
            .flush()
            .and_then(|()| self.file.get_ref().sync_all());
        flushed.map_err(StoreError::io("sync", &self.path))?;
        Ok(SliceFileInfo {
            digest: *self.hasher.finalize().as_bytes(),
            len: self.at,
            table_at,
            slices: self.rows.len() as u32,
            summary: self.summary,
        })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.hasher.update(bytes);
        let written = self.file.write_all(bytes);
        written.map_err(StoreError::io("write", &self.path))?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}
