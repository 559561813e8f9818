//! A segment being written.

use std::path::{Path, PathBuf};
use std::time::Instant;

use torc_ring::Partitions;

use crate::directory::Directory;
use crate::error::is_out_of_space;
use crate::format::{FileKind, HEADER_LEN, Header, draw_salt};
use crate::fs::FsFile;
use crate::{LogSync, StoreError};

/// The segment at the end of the log.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    path: PathBuf,
    file: Box<dyn FsFile>,
    pub(super) salt: u32,
    /// Offset of the next frame.
    pub(super) at: u64,
    /// Bytes reserved.
    pub(super) reserved: u64,
    /// Whether the reserved space after `at` was released because a write did not fit.
    is_cut: bool,
}

impl Segment {
    /// Writes and syncs a frame; returns the time of the sync.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<LogSync, StoreError> {
        if let Err(error) = self.file.write_all_at(bytes, self.at) {
            if is_out_of_space(&error) {
                // The partial frame must not reappear: followed by zeros, it could pass for a
                // complete one.
                self.cut()?;
                self.is_cut = true;
                return Err(StoreError::OutOfSpace);
            }
            return Err(StoreError::stopped("write", &self.path)(error));
        }
        let start = Instant::now();
        self.sync()?;
        self.at += bytes.len() as u64;
        Ok(LogSync {
            began: start,
            took: start.elapsed(),
        })
    }

    /// Reserves the space again that a failed write released.
    pub(super) fn reserve_again(&mut self) -> Result<(), StoreError> {
        if self.is_cut {
            let reserved = self.file.preallocate(self.reserved);
            reserved.map_err(StoreError::io("reserve space in", &self.path))?;
            self.sync()?;
            self.is_cut = false;
        }
        Ok(())
    }

    /// Reserves `needed` more bytes.
    pub(super) fn extend(&mut self, needed: u64) -> Result<(), StoreError> {
        let len = self.at + needed;
        let reserved = self.file.preallocate(len);
        reserved.map_err(StoreError::io("reserve space in", &self.path))?;
        self.reserved = len;
        Ok(())
    }

    /// Renames a prepared segment to its final name, replacing a segment without entries.
    pub(super) fn put_in_place(&self, dir: &Directory) -> Result<(), StoreError> {
        let from = temporary_path(dir, self.number);
        let renamed = dir.fs().rename(&from, &self.path);
        renamed.map_err(StoreError::stopped("rename", &from))?;
        dir.sync()
    }

    /// Cuts the file after its last frame.
    pub(super) fn cut(&mut self) -> Result<(), StoreError> {
        let cut = self.file.set_len(self.at);
        cut.map_err(StoreError::stopped("cut", &self.path))?;
        self.sync()
    }

    fn sync(&self) -> Result<(), StoreError> {
        let synced = self.file.sync_data();
        synced.map_err(StoreError::stopped("sync", &self.path))
    }
}

/// Parameters of a new segment.
pub(super) struct Prepare<'a> {
    pub(super) dir: &'a Directory,
    pub(super) partitions: Partitions,
    pub(super) number: u64,
    pub(super) next_seq: u64,
}

impl Prepare<'_> {
    /// A synced segment under a temporary name.
    pub(super) fn segment(&self, reserved: u64) -> Result<Segment, StoreError> {
        let path = temporary_path(self.dir, self.number);
        self.dir.remove(&path)?;
        let prepared = self.write(&path, reserved);
        if prepared.is_err() {
            // Best effort: a leftover file is removed on the next attempt or opening.
            let _ = self.dir.fs().remove(&path);
        }
        prepared
    }

    fn write(&self, path: &Path, reserved: u64) -> Result<Segment, StoreError> {
        let salt = draw_salt();
        let header = Header {
            kind: FileKind::Log,
            number: self.number,
            seq: self.next_seq - 1,
            salt,
            partitions: self.partitions.count(),
        };
        let file = self.dir.create(path)?;
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
