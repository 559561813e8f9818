//! Appending to the log.

use std::sync::Arc;

use torc_ring::Partitions;

use super::segment::{Prepare, Segment};
use crate::directory::Directory;
use crate::error::is_out_of_descriptors;
use crate::format::{FRAME_LEN, FrameBuilder, FrameKind, HEADER_LEN};
use crate::{LogSync, StoreError};

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
    /// Of the current segment; without one, of the next.
    number: u64,
    /// None while a store that was opened on a full disk has not found space for one.
    segment: Option<Segment>,
}

impl LogWriter {
    /// A log that goes on with a segment of this number, whose first entry will be
    /// `next_seq`. [`LogWriter::make_room`] starts it.
    pub(crate) fn new(
        dir: Arc<Directory>,
        partitions: Partitions,
        segment_bytes: u64,
        number: u64,
        next_seq: u64,
    ) -> Self {
        Self {
            dir,
            partitions,
            segment_bytes,
            next_seq,
            number,
            segment: None,
        }
    }

    /// The number the next entry gets.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Whether there is a segment to write to.
    pub(crate) fn has_segment(&self) -> bool {
        self.segment.is_some()
    }

    /// The segment being written.
    pub(crate) fn current(&self) -> SegmentInfo {
        SegmentInfo {
            number: self.number,
            bytes: self.segment.as_ref().map_or(0, |segment| segment.at),
        }
    }

    /// Writes a batch and syncs it. Returns the number of its first entry, and the
    /// sync. The caller has made room for it.
    ///
    /// # Errors
    /// [`StoreError::OutOfSpace`]: the log is as it was. [`StoreError::Failed`]: the log
    /// must not be used again.
    pub(crate) fn append(
        &mut self,
        batch: &mut FrameBuilder,
    ) -> Result<(u64, LogSync), StoreError> {
        let segment = self.segment.as_mut().ok_or(StoreError::OutOfSpace)?;
        let first_seq = self.next_seq;
        let bytes = batch.finish(FrameKind::Batch, first_seq, segment.salt);
        let sync = segment.append(bytes)?;
        self.next_seq += u64::from(batch.count());
        Ok((first_seq, sync))
    }

    /// Sees to it that a frame of `len` bytes fits the current segment, if need be by
    /// starting the next one. Returns the segment that was completed then. While there is no
    /// descriptor for the next one, this one grows.
    ///
    /// # Errors
    /// As [`LogWriter::append`].
    pub(crate) fn make_room(&mut self, len: usize) -> Result<Option<SegmentInfo>, StoreError> {
        let needed = (len + FRAME_LEN) as u64;
        if let Some(segment) = &mut self.segment {
            segment.reserve_again()?;
            if segment.at + needed <= segment.reserved {
                return Ok(None);
            }
        }
        match (self.rotate(needed), &mut self.segment) {
            (Err(StoreError::Io { source, .. }), Some(segment))
                if is_out_of_descriptors(&source) =>
            {
                segment.extend(needed)?;
                Ok(None)
            }
            (rotated, _) => rotated,
        }
    }

    /// Completes the current segment, if there is one, and starts the next, with room for
    /// `needed` bytes. Returns the completed one.
    ///
    /// # Errors
    /// As [`LogWriter::append`].
    pub(crate) fn rotate(&mut self, needed: u64) -> Result<Option<SegmentInfo>, StoreError> {
        let completed = self.segment.is_some().then(|| self.current());
        let prepare = Prepare {
            dir: &self.dir,
            partitions: self.partitions,
            number: self.number + u64::from(completed.is_some()),
            next_seq: self.next_seq,
        };
        // The next segment is ready before this one is given up: when there is no space
        // for it, this one can still be written.
        let next = prepare.segment(self.segment_bytes.max(HEADER_LEN as u64 + needed))?;
        if let Some(segment) = &mut self.segment {
            segment.cut()?;
        }
        next.put_in_place(&self.dir)?;
        self.number = next.number;
        self.segment = Some(next);
        self.dir.hold_spare();
        Ok(completed)
    }

    /// Ends the log in order, so that the next opening can tell damage from a torn tail.
    ///
    /// # Errors
    /// [`StoreError::Failed`]; every batch was synced before.
    pub(crate) fn finish(self) -> Result<(), StoreError> {
        let Some(mut segment) = self.segment else {
            return Ok(());
        };
        let mut end = FrameBuilder::default();
        let bytes = end.finish(FrameKind::LogEnd, self.next_seq, segment.salt);
        match segment.reserve_again().and_then(|()| segment.append(bytes)) {
            // Without room for it the log ends as after a crash: nothing is lost.
            Ok(_) | Err(StoreError::OutOfSpace) => segment.cut(),
            Err(error) => Err(error),
        }
    }
}
