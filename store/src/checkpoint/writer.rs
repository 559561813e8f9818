//! Writing a checkpoint, as format 1 did: for the tests of the reader.

use std::path::PathBuf;

use torc_ring::Partitions;

use super::encode_totals;
use crate::directory::Directory;
use crate::format::{FileKind, FrameBuilder, FrameKind, HEADER_LEN, Header, draw_salt};
use crate::fs::FsFile;
use crate::packed::Packed;
use crate::{PartitionSummary, Seq, StoreError};

/// A frame is written when it has reached this length.
const FRAME_BYTES: usize = 256 << 10;

/// A checkpoint being written. It counts only once the manifest names it.
#[derive(Debug)]
pub(crate) struct CheckpointWriter {
    path: PathBuf,
    file: Box<dyn FsFile>,
    salt: u32,
    at: u64,
    frame: FrameBuilder,
    frames: u64,
    totals: PartitionSummary,
}

impl CheckpointWriter {
    /// Starts the checkpoint that goes with the log segment of this number.
    ///
    /// # Errors
    /// [`StoreError::OutOfSpace`], [`StoreError::Io`].
    pub(crate) fn create(
        dir: &Directory,
        partitions: Partitions,
        number: u64,
        through: Seq,
    ) -> Result<Self, StoreError> {
        let path = dir.checkpoint_path(number);
        // Left by an attempt that failed; the manifest does not name it.
        dir.remove(&path)?;
        let header = Header {
            kind: FileKind::Checkpoint,
            number,
            seq: through.0,
            salt: draw_salt(),
            partitions: partitions.count(),
        };
        let file = dir.fs().create(&path);
        let mut writer = Self {
            file: file.map_err(StoreError::io("create", &path))?,
            path,
            salt: header.salt,
            at: 0,
            frame: FrameBuilder::default(),
            frames: 0,
            totals: PartitionSummary::default(),
        };
        writer.write(&header.encode())?;
        debug_assert_eq!(writer.at, HEADER_LEN as u64);
        Ok(writer)
    }

    /// Adds the next record in ring order.
    ///
    /// # Errors
    /// [`StoreError::OutOfSpace`], [`StoreError::Io`], [`StoreError::Failed`].
    pub(crate) fn push(&mut self, seq: Seq, packed: &Packed) -> Result<(), StoreError> {
        super::count(&mut self.totals, packed);
        self.frame.push(|body| {
            body.extend_from_slice(&seq.0.to_le_bytes());
            body.extend_from_slice(packed.bytes());
        });
        if self.frame.len() >= FRAME_BYTES {
            self.flush(FrameKind::Records)?;
        }
        Ok(())
    }

    /// Writes the totals and syncs the file. Returns them and its length.
    ///
    /// # Errors
    /// As [`CheckpointWriter::push`].
    pub(crate) fn finish(mut self) -> Result<(PartitionSummary, u64), StoreError> {
        if self.frame.count() > 0 {
            self.flush(FrameKind::Records)?;
        }
        let totals = encode_totals(&self.totals);
        self.frame.push(|body| body.extend_from_slice(&totals));
        self.flush(FrameKind::Totals)?;
        self.sync()?;
        Ok((self.totals, self.at))
    }

    fn flush(&mut self, kind: FrameKind) -> Result<(), StoreError> {
        let mut frame = std::mem::take(&mut self.frame);
        let written = self.write(frame.seal(kind, self.frames, self.salt));
        frame.clear();
        self.frame = frame;
        self.frames += 1;
        written?;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let written = self.file.write_all_at(bytes, self.at);
        written.map_err(StoreError::io("write", &self.path))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let synced = self.file.sync_data();
        synced.map_err(StoreError::stopped("sync", &self.path))?;
        Ok(())
    }
}
