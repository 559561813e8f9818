//! Reads the log back when the store opens.

use torc_ring::Partitions;

use crate::directory::Directory;
use crate::format::{Entry, FileKind, Frame, FrameKind, FrameReader, Next};
use crate::log::SegmentInfo;
use crate::{LogTail, Seq, StoreError};

/// The part of the log to read back.
#[derive(Debug)]
pub(crate) struct Replay<'a> {
    pub(crate) dir: &'a Directory,
    pub(crate) partitions: Partitions,
    /// Number of the first segment that is needed.
    pub(crate) first: u64,
    /// The last entry before that segment.
    pub(crate) after: Seq,
    /// The segments that exist, ascending.
    pub(crate) segments: &'a [u64],
    /// Whether to cut a damaged last batch that was once complete.
    pub(crate) cuts_damaged: bool,
    /// Whether the store may be so new that it has no segment yet.
    pub(crate) may_be_empty: bool,
    /// A segment that was in place once, with every one before it.
    pub(crate) newest: Option<u64>,
}

/// The end of the log.
#[derive(Debug, Default)]
pub(crate) struct LogEnd {
    pub(crate) last_seq: u64,
    pub(crate) entries: u64,
    /// Bytes of the batches read.
    pub(crate) bytes: u64,
    pub(crate) tail: LogTail,
    pub(crate) segments: Vec<SegmentInfo>,
    unsettled: Option<Unsettled>,
}

/// The last segment, whose end may not be durable yet.
#[derive(Debug)]
struct Unsettled {
    reader: FrameReader,
    /// Offset of the last frame.
    last_frame: Option<u64>,
}

impl Replay<'_> {
    /// Passes every entry to `apply`, in order. Changes nothing; see [`LogEnd::settle`].
    ///
    /// A batch that was once complete may have been acknowledged, and a node that forgets it must not
    /// continue as if nothing had happened. So such a batch is left out only on request.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] and [`StoreError::LostBatch`] with file and offset,
    /// [`StoreError::NewerFormat`], [`StoreError::Io`].
    pub(crate) fn run(&self, mut apply: impl FnMut(Seq, Entry)) -> Result<LogEnd, StoreError> {
        let mut end = LogEnd {
            last_seq: self.after.0,
            ..LogEnd::default()
        };
        let needed = self.segments.iter().filter(|number| **number >= self.first);
        let mut expected = self.first;
        for number in needed.clone() {
            if *number != expected {
                return Err(self.missing(expected));
            }
            expected += 1;
            let is_last = Some(number) == self.segments.last();
            self.segment(*number, is_last, &mut end, &mut apply)?;
        }
        if expected == self.first && !self.may_be_empty {
            return Err(self.missing(expected));
        }
        if let Some(newest) = self.newest.filter(|newest| *newest >= expected) {
            return Err(self.missing(newest));
        }
        Ok(end)
    }

    fn missing(&self, number: u64) -> StoreError {
        StoreError::corrupt(&self.dir.log_path(number), 0, "this segment is missing")
    }

    fn segment(
        &self,
        number: u64,
        is_last: bool,
        end: &mut LogEnd,
        apply: &mut impl FnMut(Seq, Entry),
    ) -> Result<(), StoreError> {
        let path = self.dir.log_path(number);
        let mut reader = FrameReader::open(&**self.dir.fs(), &path, FileKind::Log)?;
        let header = *reader.header();
        let fits = header.number == number && header.partitions == self.partitions.count();
        if !fits {
            return Err(StoreError::corrupt(&path, 0, "it belongs to another store"));
        }
        if header.seq != end.last_seq {
            return Err(StoreError::corrupt(
                &path,
                0,
                "entries before it are missing",
            ));
        }
        let stop = self.batches(&mut reader, &path, end, apply)?;
        end.segments.push(SegmentInfo {
            number,
            bytes: reader.at(),
        });
        if let Some(what) = stop.bad {
            if !is_last {
                return Err(reader.corrupt(what));
            }
            end.tail = self.tail(&mut reader, what)?;
        }
        if is_last {
            let last_frame = stop.last_frame;
            end.unsettled = Some(Unsettled { reader, last_frame });
        }
        Ok(())
    }

    /// What the bad bytes at the end of the log are.
    fn tail(&self, reader: &mut FrameReader, what: &'static str) -> Result<LogTail, StoreError> {
        let tail = reader.examine_tail()?;
        if tail.has_later_frame {
            return Err(reader.corrupt(what));
        }
        match tail.used_bytes {
            0 => Ok(LogTail::Whole),
            _ if tail.was_whole && !self.cuts_damaged => Err(lost_batch(reader)),
            bytes if tail.was_whole => Ok(LogTail::Damaged { bytes }),
            bytes => Ok(LogTail::Torn { bytes }),
        }
    }

    /// Applies batches up to the end of the file or the first bad bytes.
    fn batches(
        &self,
        reader: &mut FrameReader,
        path: &std::path::Path,
        end: &mut LogEnd,
        apply: &mut impl FnMut(Seq, Entry),
    ) -> Result<Stop, StoreError> {
        let mut stop = Stop::default();
        let mut is_closed = false;
        loop {
            match reader.next()? {
                Next::End => return Ok(stop),
                Next::Bad(what) => {
                    stop.bad = Some(what);
                    return Ok(stop);
                }
                Next::Frame(frame, body, at) => {
                    stop.last_frame = Some(at);
                    if is_closed || frame.number != end.last_seq + 1 {
                        return Err(StoreError::corrupt(path, at, "a batch out of order"));
                    }
                    match frame.kind {
                        FrameKind::Batch => self
                            .batch(frame, body, end, apply)
                            .map_err(|what| StoreError::corrupt(path, at, what))?,
                        FrameKind::LogEnd => is_closed = true,
                        _ => return Err(StoreError::corrupt(path, at, "a frame of another kind")),
                    }
                }
            }
        }
    }

    fn batch(
        &self,
        frame: Frame,
        mut body: &[u8],
        end: &mut LogEnd,
        apply: &mut impl FnMut(Seq, Entry),
    ) -> Result<(), &'static str> {
        end.bytes += body.len() as u64;
        for _ in 0..frame.count {
            let entry = Entry::take(&mut body)?;
            let named = entry.partition();
            if named.is_some_and(|partition| !self.partitions.contains(partition)) {
                return Err("a partition that does not exist");
            }
            end.last_seq += 1;
            end.entries += 1;
            apply(Seq(end.last_seq), entry);
        }
        if body.is_empty() {
            Ok(())
        } else {
            Err("a batch of more entries than it says")
        }
    }
}

impl LogEnd {
    /// Cuts the last segment after its last valid frame, and makes that frame durable, so that
    /// everything read is durable before anything relies on it.
    ///
    /// The writer may have stopped because a sync failed. The page cache then shows data that the disk
    /// never got, marked as clean, so another sync would not write it. Only the last frame can be
    /// affected: each frame was written after the one before was synced. Overwriting it with itself is
    /// safe, even if that write is interrupted.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Failed`].
    pub(crate) fn settle(&mut self) -> Result<(), StoreError> {
        let Some(Unsettled {
            mut reader,
            last_frame,
        }) = self.unsettled.take()
        else {
            return Ok(());
        };
        // Must precede the cut, because the reader's window assumes the old length of the file.
        let last = match last_frame {
            Some(from) => Some((from, reader.bytes_since(from)?)),
            None => None,
        };
        let cut = reader.file().set_len(reader.at());
        cut.map_err(StoreError::stopped("cut", reader.path()))?;
        if let Some((from, bytes)) = last {
            let written = reader.file().write_all_at(&bytes, from);
            written.map_err(StoreError::io("write", reader.path()))?;
        }
        let synced = reader.file().sync_data();
        synced.map_err(StoreError::stopped("sync", reader.path()))
    }
}

/// The end of a segment's valid frames.
#[derive(Debug, Default)]
struct Stop {
    /// Offset of the last frame.
    last_frame: Option<u64>,
    /// The problem with the bytes after it; `None` at the end of the file.
    bad: Option<&'static str>,
}

fn lost_batch(reader: &FrameReader) -> StoreError {
    StoreError::LostBatch {
        file: reader.path().to_owned(),
        offset: reader.at(),
    }
}
