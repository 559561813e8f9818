//! Appending to the log.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use torc_ring::Partitions;

use crate::StoreError;
use crate::directory::Directory;
use crate::error::is_out_of_space;
use crate::format::{FRAME_LEN, FileKind, FrameBuilder, FrameKind, HEADER_LEN, Header, draw_salt};
use crate::fs::FsFile;

/// A segment that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentInfo {
    pub(crate) number: u64,
    /// Bytes used, header included.
    pub(crate) bytes: u64,
}

/// The end of the log. One thread owns it.
#[derive(Debug)]
pub(crate) struct LogWriter {
    dir: Arc<Directory>,
    partitions: Partitions,
    segment_bytes: u64,
    next_seq: u64,
    segment: Segment,
}

#[derive(Debug)]
struct Segment {
    number: u64,
    path: PathBuf,
    file: Box<dyn FsFile>,
    salt: u32,
    /// Where the next frame goes.
    at: u64,
    /// Bytes reserved.
    reserved: u64,
    /// Whether the space behind `at` was given up after a write that did not fit.
    is_cut: bool,
}

impl LogWriter {
    /// Starts a segment with this number, whose first entry will be `next_seq`.
    ///
    /// # Errors
    /// [`StoreError::OutOfSpace`], [`StoreError::Io`], [`StoreError::Failed`].
    pub(crate) fn start(
        dir: Arc<Directory>,
        partitions: Partitions,
        segment_bytes: u64,
        number: u64,
        next_seq: u64,
    ) -> Result<Self, StoreError> {
        let prepare = Prepare {
            dir: &dir,
            partitions,
            number,
            next_seq,
        };
        let segment = prepare.segment(segment_bytes)?;
        put_in_place(&dir, &segment)?;
        Ok(Self {
            dir,
            partitions,
            segment_bytes,
            next_seq,
            segment,
        })
    }

    /// The number the next entry gets.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The segment being written.
    pub(crate) fn current(&self) -> SegmentInfo {
        SegmentInfo {
            number: self.segment.number,
            bytes: self.segment.at,
        }
    }

    /// Writes a batch and syncs it. Returns the number of its first entry and how long
    /// the sync took. The caller has made room for it.
    ///
    /// # Errors
    /// [`StoreError::OutOfSpace`]: the log is as it was. [`StoreError::Failed`]: the log
    /// must not be used again.
    pub(crate) fn append(
        &mut self,
        batch: &mut FrameBuilder,
    ) -> Result<(u64, Duration), StoreError> {
        let first_seq = self.next_seq;
        let count = u64::from(batch.count());
        let bytes = batch.seal(FrameKind::Batch, first_seq, self.segment.salt);
        let took = self.segment.append(bytes)?;
        self.next_seq += count;
        Ok((first_seq, took))
    }

    /// Sees to it that a frame of `len` bytes fits the current segment, if need be by
    /// starting the next one. Returns the segment that was completed then.
    ///
    /// # Errors
    /// As [`LogWriter::append`].
    pub(crate) fn make_room(&mut self, len: usize) -> Result<Option<SegmentInfo>, StoreError> {
        self.segment.reserve_again()?;
        let needed = (len + FRAME_LEN) as u64;
        if self.segment.at + needed <= self.segment.reserved {
            return Ok(None);
        }
        self.rotate(needed).map(Some)
    }

    /// Completes the current segment and starts the next, with room for `needed` bytes.
    /// Returns the completed one.
    ///
    /// # Errors
    /// As [`LogWriter::append`].
    pub(crate) fn rotate(&mut self, needed: u64) -> Result<SegmentInfo, StoreError> {
        let prepare = Prepare {
            dir: &self.dir,
            partitions: self.partitions,
            number: self.segment.number + 1,
            next_seq: self.next_seq,
        };
        // The next segment is ready before this one is given up: when there is no space
        // for it, this one can still be written.
        let next = prepare.segment(self.segment_bytes.max(HEADER_LEN as u64 + needed))?;
        self.segment.cut()?;
        put_in_place(&self.dir, &next)?;
        let completed = self.current();
        self.segment = next;
        Ok(completed)
    }

    /// Ends the log in order, so that the next opening can tell damage from a torn tail.
    ///
    /// # Errors
    /// [`StoreError::Failed`]; every batch was synced before.
    pub(crate) fn finish(mut self) -> Result<(), StoreError> {
        let mut end = FrameBuilder::default();
        let bytes = end.seal(FrameKind::LogEnd, self.next_seq, self.segment.salt);
        match self
            .segment
            .reserve_again()
            .and_then(|()| self.segment.append(bytes))
        {
            // Without room for it the log ends as after a crash: nothing is lost.
            Ok(_) | Err(StoreError::OutOfSpace) => self.segment.cut(),
            Err(error) => Err(error),
        }
    }
}

impl Segment {
    fn append(&mut self, bytes: &[u8]) -> Result<Duration, StoreError> {
        if let Err(error) = self.file.write_all_at(bytes, self.at) {
            if is_out_of_space(&error) {
                // What was written of it must not come back: with zeros behind it, a part
                // can pass for the whole.
                self.cut()?;
                self.is_cut = true;
                return Err(StoreError::OutOfSpace);
            }
            return Err(StoreError::stopped("write", &self.path)(error));
        }
        let start = Instant::now();
        self.sync()?;
        self.at += bytes.len() as u64;
        Ok(start.elapsed())
    }

    fn reserve_again(&mut self) -> Result<(), StoreError> {
        if self.is_cut {
            let reserved = self.file.preallocate(self.reserved);
            reserved.map_err(StoreError::io("reserve space in", &self.path))?;
            self.sync()?;
            self.is_cut = false;
        }
        Ok(())
    }

    /// Ends the file with its last frame.
    fn cut(&mut self) -> Result<(), StoreError> {
        let cut = self.file.set_len(self.at);
        cut.map_err(StoreError::stopped("cut", &self.path))?;
        self.sync()
    }

    fn sync(&self) -> Result<(), StoreError> {
        let synced = self.file.sync_data();
        synced.map_err(StoreError::stopped("sync", &self.path))
    }
}

struct Prepare<'a> {
    dir: &'a Directory,
    partitions: Partitions,
    number: u64,
    next_seq: u64,
}

impl Prepare<'_> {
    /// A synced segment under a temporary name.
    fn segment(&self, reserved: u64) -> Result<Segment, StoreError> {
        let path = temporary_path(self.dir, self.number);
        self.dir.remove(&path)?;
        let prepared = self.write(&path, reserved);
        if prepared.is_err() {
            // Best effort: what stays is removed on the next attempt or opening.
            let _ = self.dir.fs().remove(&path);
        }
        prepared
    }

    fn write(&self, path: &std::path::Path, reserved: u64) -> Result<Segment, StoreError> {
        let salt = draw_salt();
        let header = Header {
            kind: FileKind::Log,
            number: self.number,
            seq: self.next_seq - 1,
            salt,
            partitions: self.partitions.count(),
        };
        let file = self.dir.fs().create(path);
        let file = file.map_err(StoreError::io("create", path))?;
        file.preallocate(reserved)
            .map_err(StoreError::io("reserve space in", path))?;
        file.write_all_at(&header.encode(), 0)
            .map_err(StoreError::io("write", path))?;
        file.sync_data()
            .map_err(StoreError::stopped("sync", path))?;
        Ok(Segment {
            number: self.number,
            path: self.dir.log_path(self.number),
            file,
            salt,
            at: HEADER_LEN as u64,
            reserved,
            is_cut: false,
        })
    }
}

fn temporary_path(dir: &Directory, number: u64) -> PathBuf {
    dir.log_path(number).with_extension("tmp")
}

fn put_in_place(dir: &Directory, segment: &Segment) -> Result<(), StoreError> {
    let from = temporary_path(dir, segment.number);
    let renamed = dir.fs().rename(&from, &segment.path);
    renamed.map_err(StoreError::stopped("rename", &from))?;
    dir.sync()
}
