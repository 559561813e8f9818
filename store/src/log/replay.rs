//! Reading the log back on opening.

use torc_ring::Partitions;

use crate::directory::Directory;
use crate::format::{Entry, FileKind, Frame, FrameKind, FrameReader, Next};
use crate::log::SegmentInfo;
use crate::{Seq, StoreError};

/// What is to be read back.
#[derive(Debug)]
pub(crate) struct Replay<'a> {
    pub(crate) dir: &'a Directory,
    pub(crate) partitions: Partitions,
    /// Number of the first segment that is needed.
    pub(crate) first: u64,
    /// The last entry before it.
    pub(crate) after: Seq,
    /// The segments that exist, ascending.
    pub(crate) segments: &'a [u64],
    /// Whether the store may be so young that it has no segment yet.
    pub(crate) may_be_empty: bool,
}

/// Where the log ends.
#[derive(Debug, Default)]
pub(crate) struct LogEnd {
    pub(crate) last_seq: u64,
    pub(crate) entries: u64,
    /// Bytes of the batches read.
    pub(crate) bytes: u64,
    pub(crate) torn_bytes: u64,
    pub(crate) segments: Vec<SegmentInfo>,
}

impl Replay<'_> {
    /// Gives every entry to `apply`, in order. Cuts a torn tail and syncs the last
    /// segment, so that what was read is durable before anything is built on it.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] with the place, [`StoreError::NewerFormat`],
    /// [`StoreError::Io`], [`StoreError::Failed`].
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
            return Err(StoreError::corrupt(
                &path,
                0,
                "it does not fit the store it is in",
            ));
        }
        if header.seq != end.last_seq {
            return Err(StoreError::corrupt(
                &path,
                0,
                "entries before it are missing",
            ));
        }
        let stopped_by = self.batches(&mut reader, &path, end, apply)?;
        if is_last {
            end.torn_bytes = cut_tail(&mut reader, stopped_by)?;
        } else if let Some(what) = stopped_by {
            return Err(reader.corrupt(what));
        }
        end.segments.push(SegmentInfo {
            number,
            bytes: reader.at(),
        });
        Ok(())
    }

    /// Applies batches up to the end of the file or to what is none; says what that is.
    fn batches(
        &self,
        reader: &mut FrameReader,
        path: &std::path::Path,
        end: &mut LogEnd,
        apply: &mut impl FnMut(Seq, Entry),
    ) -> Result<Option<&'static str>, StoreError> {
        let mut is_closed = false;
        loop {
            match reader.next()? {
                Next::End => return Ok(None),
                Next::Bad(what) => return Ok(Some(what)),
                Next::Frame(frame, body, at) => {
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

/// Ends the last segment with its last good frame and syncs it. Returns the bytes lost.
fn cut_tail(reader: &mut FrameReader, stopped_by: Option<&'static str>) -> Result<u64, StoreError> {
    let mut torn_bytes = 0;
    if let Some(what) = stopped_by {
        let tail = reader.examine_tail()?;
        if tail.has_later_frame {
            return Err(reader.corrupt(what));
        }
        torn_bytes = tail.used_bytes;
    }
    let cut = reader.file().set_len(reader.at());
    cut.map_err(StoreError::stopped("cut", reader.path()))?;
    let synced = reader.file().sync_data();
    synced.map_err(StoreError::stopped("sync", reader.path()))?;
    Ok(torn_bytes)
}
