//! Appends to the log.

use std::sync::Arc;

use torc_ring::Partitions;

use super::newest;
use super::segment::{Prepare, Segment};
use crate::directory::Directory;
use crate::error::is_out_of_descriptors;
use crate::format::{FRAME_LEN, FrameBuilder, FrameKind, HEADER_LEN};
use crate::{LogSync, StoreError};

/// An existing segment.
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
    /// Number of the current segment, or of the next one if there is none.
    number: u64,
    /// `None` while a store opened on a full disk has not found space for a segment.
    segment: Option<Segment>,
}

impl LogWriter {
    /// A log that continues with the segment `number`, whose first entry will be `next_seq`.
    /// [`LogWriter::make_room`] creates the segment.
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

    /// The number of the next entry.
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

    /// Writes and syncs a batch. Returns the number of its first entry, and the sync. The caller
    /// has made room for it.
    ///
    /// # Errors
    /// [`StoreError::OutOfSpace`]: the log is unchanged. [`StoreError::Failed`]: the log must not
    /// be used again.
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

    /// Makes room for a frame of `len` bytes, starting the next segment if necessary. Returns the
    /// segment completed thereby, if any. If there is no descriptor for the next segment, extends
    /// the current one.
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

    /// Completes the current segment, if there is one, and starts the next, with room for `needed`
    /// bytes. Returns the completed one.
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
        // Prepares the next segment first: if there is no space for it, the current one stays
        // usable.
        let next = prepare.segment(self.segment_bytes.max(HEADER_LEN as u64 + needed))?;
        if let Some(segment) = &mut self.segment {
            segment.cut()?;
        }
        next.put_in_place(&self.dir)?;
        self.number = next.number;
        self.segment = Some(next);
        if let Err(error) = newest::note(&self.dir, self.number) {
            // Only the loss of this segment would go unnoticed.
            tracing::warn!(%error, "could not note the number of the newest log segment");
        }
        self.dir.hold_spare();
        Ok(completed)
    }

    /// Ends the log properly, so that the next opening can tell damage from a torn tail.
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
            // Without room for the end frame, the log ends as after a crash: nothing is lost.
            Ok(_) | Err(StoreError::OutOfSpace) => segment.cut(),
            Err(error) => Err(error),
        }
    }
}
