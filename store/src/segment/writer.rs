//! Writes a segment, slice after slice.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a segment has fewer than 2^32 slices, usize has 64 bits, and a rate is an estimate"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use torc_ring::Partitions;

use super::align;
use super::slice::{Content, IndexMemory, Segment, SegmentFile, Slice};
use super::table::{self, Row};
use crate::directory::Directory;
use crate::format::{FileKind, Header, draw_salt};
use crate::fs::FsFile;
use crate::slice::{BuiltSlice, Heads, IndexParts, SliceHeader};
use crate::{Seq, StoreError};

/// Bytes that are gathered for one write.
const BUFFER_LEN: usize = 256 << 10;
/// Bytes between syncs: a sync of the log may find this much ahead of it in the disk's queue.
const SYNC_BYTES: u64 = 4 << 20;
/// After each sync the writer rests for as long as the sync took, up to this time. So background
/// writes take at most half of the disk, whatever its speed.
const LONGEST_REST: Duration = Duration::from_millis(50);

/// The rate limit of a segment's writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateLimit {
    /// Also limits the CPU time.
    pub(crate) bytes_per_s: u64,
}

/// A segment being written. It takes effect only once the manifest names it.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    number: u64,
    path: PathBuf,
    file: Arc<dyn FsFile>,
    buffer: Vec<u8>,
    /// File offset of the buffer.
    at: u64,
    synced_to: u64,
    rows: Vec<Row>,
    indexes: Vec<(SliceHeader, Vec<u8>)>,
    rate_limit: RateLimit,
    started: Instant,
}

/// A complete and durable segment. Only its name in the directory may not be durable yet.
#[derive(Debug)]
pub(crate) struct Written {
    /// In the order in which they were written.
    pub(crate) slices: Vec<Arc<Slice>>,
    pub(crate) file: SegmentFile,
}

/// A slice in a segment.
pub(crate) struct Placed<'a> {
    pub(crate) at: u64,
    pub(crate) header: SliceHeader,
    /// Header, gate, MPHF and offsets, checked.
    pub(crate) index: &'a [u8],
}

/// Writes the table after the slices, which are in the order of their offsets, and syncs the file.
///
/// # Errors
/// [`StoreError::OutOfSpace`], [`StoreError::Io`], [`StoreError::Failed`].
pub(crate) fn complete_segment(
    file: &Arc<dyn FsFile>,
    path: &Path,
    number: u64,
    end: u64,
    placed: &[Placed<'_>],
    after: Seq,
) -> Result<(Vec<Arc<Slice>>, SegmentFile), StoreError> {
    let rows: Vec<Row> = placed
        .iter()
        .map(|one| Row {
            partition: one.header.partition,
            at: one.at,
            len: one.header.len(),
            highest: one.header.highest(),
            is_generation: one.header.generation().is_some(),
        })
        .collect();
    let table_at = align(end);
    let table = table::encode(&rows, number);
    let written = file.write_all_at(&table, table_at);
    written.map_err(StoreError::io("write", path))?;
    let synced = file.sync_data();
    synced.map_err(StoreError::stopped("sync", path))?;
    let segment_file = SegmentFile {
        number,
        len: table_at + table.len() as u64,
        table_at,
        after,
        rows: rows.len() as u32,
    };
    // The headers are kept in a more compact form.
    let lookups = placed
        .iter()
        .map(|one| IndexParts::of(&one.header, one.index).unwrap_or_default());
    let (index, places) = IndexMemory::of(lookups);
    let segment = Segment::new(
        segment_file.clone(),
        path.to_owned(),
        Arc::clone(file),
        index,
    );
    let segment = Arc::new(segment);
    let contents = placed.iter().zip(places).map(|(one, place)| {
        Ok(Content {
            heads: Heads::read(&one.header, one.index)?,
            header: one.header,
            place: place?,
        })
    });
    let slices = (0..)
        .zip(rows)
        .zip(contents)
        .map(|((row, place), content)| {
            Arc::new(Slice::new(Arc::clone(&segment), row, place, content))
        });
    Ok((slices.collect(), segment_file))
}

impl SegmentWriter {
    /// Starts a segment.
    ///
    /// # Errors
    /// [`StoreError::OutOfSpace`], [`StoreError::Io`].
    pub(crate) fn create(
        dir: &Directory,
        partitions: Partitions,
        number: u64,
        rate_limit: RateLimit,
    ) -> Result<Self, StoreError> {
        let path = dir.segment_path(number);
        // A failed attempt may have left one, which no manifest names.
        dir.remove(&path)?;
        let file = dir.create(&path);
        let header = Header {
            kind: FileKind::Segment,
            number,
            seq: 0,
            salt: draw_salt(),
            partitions: partitions.count(),
        };
        Ok(Self {
            number,
            file: Arc::from(file?),
            path,
            buffer: header.encode().to_vec(),
            at: 0,
            synced_to: 0,
            rows: Vec::new(),
            indexes: Vec::new(),
            rate_limit,
            started: Instant::now(),
        })
    }

    /// Bytes so far.
    fn len(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    /// Adds a new slice.
    ///
    /// # Errors
    /// [`StoreError::OutOfSpace`], [`StoreError::Io`], [`StoreError::Failed`].
    pub(crate) fn push(&mut self, mut built: BuiltSlice<'_>) -> Result<(), StoreError> {
        let at = self.begin()?;
        built.write(|piece| self.put(piece))?;
        let header = built.header;
        self.end(at, header, std::mem::take(&mut built.index))
    }

    /// Adds the bytes of a slice unchanged; the caller has checked them.
    ///
    /// # Errors
    /// As [`SegmentWriter::push`].
    pub(crate) fn push_bytes(
        &mut self,
        header: SliceHeader,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        let at = self.begin()?;
        for piece in bytes.chunks(BUFFER_LEN) {
            self.put(piece)?;
        }
        let index = bytes.get(..header.index_len()).unwrap_or_default().to_vec();
        self.end(at, header, index)
    }

    fn begin(&mut self) -> Result<u64, StoreError> {
        let at = align(self.len());
        let zeros = [0; 64];
        let len = (at - self.len()) as usize;
        self.put(&zeros[..len])?;
        Ok(at)
    }

    fn end(&mut self, at: u64, header: SliceHeader, index: Vec<u8>) -> Result<(), StoreError> {
        let len = self.len() - at;
        self.rows.push(Row {
            partition: header.partition,
            at,
            len,
            highest: header.highest(),
            is_generation: header.generation().is_some(),
        });
        self.indexes.push((header, index));
        self.rest()
    }

    /// Completes the segment, whose slices have the effects of entries up to `after`.
    ///
    /// # Errors
    /// As [`SegmentWriter::push`].
    pub(crate) fn finish(mut self, after: Seq) -> Result<Written, StoreError> {
        self.write_out()?;
        let placed = self.rows.iter().zip(&self.indexes);
        let placed = placed.map(|(row, (header, index))| Placed {
            at: row.at,
            header: *header,
            index,
        });
        let (slices, file) = complete_segment(
            &self.file,
            &self.path,
            self.number,
            self.at,
            &placed.collect::<Vec<_>>(),
            after,
        )?;
        Ok(Written { slices, file })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_LEN {
            self.write_out()?;
        }
        Ok(())
    }

    fn write_out(&mut self) -> Result<(), StoreError> {
        let written = self.file.write_all_at(&self.buffer, self.at);
        written.map_err(StoreError::io("write", &self.path))?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let synced = self.file.sync_data();
        synced.map_err(StoreError::stopped("sync", &self.path))?;
        self.synced_to = self.at;
        Ok(())
    }

    /// Leaves the disk to the log after each sync, and obeys the rate limit.
    fn rest(&mut self) -> Result<(), StoreError> {
        if self.at - self.synced_to < SYNC_BYTES {
            return Ok(());
        }
        let start = Instant::now();
        self.sync()?;
        std::thread::sleep(start.elapsed().min(LONGEST_REST));
        let due =
            Duration::from_secs_f64(self.at as f64 / self.rate_limit.bytes_per_s.max(1) as f64);
        let early = due.saturating_sub(self.started.elapsed());
        std::thread::sleep(early);
        Ok(())
    }
}
