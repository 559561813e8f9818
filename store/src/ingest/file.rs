//! A segment that receives ingested slices.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use torc_record::NamespaceId;
use torc_ring::{Partition, Partitions};

use crate::commit::Done;
use crate::directory::Directory;
use crate::format::{FileKind, HEADER_LEN, Header, draw_salt};
use crate::fs::FsFile;
use crate::segment::{Placed, SegmentFile, Slice, align, complete_segment};
use crate::slice::SliceHeader;
use crate::{Seq, StoreError};

/// What a receiver must know about a slice in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceInfo {
    /// Its length, bytes.
    pub len: u64,
    /// Its digest: 32 bytes of BLAKE3.
    pub digest: [u8; 32],
}

/// The space for a slice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Region {
    pub(super) at: u64,
    pub(super) info: SliceInfo,
}

/// A slice that was received completely and verified.
#[derive(Debug)]
pub(super) struct Verified {
    pub(super) at: u64,
    pub(super) header: SliceHeader,
    /// The namespace of all of its records, if they are of one and were read.
    pub(super) namespace: Option<NamespaceId>,
    pub(super) index: Vec<u8>,
}

/// The slices of a partition that wait to be put in force.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) partition: Partition,
    pub(super) verified: Vec<Verified>,
    /// The last log entry when they were handed over: a later drop of the partition also drops
    /// them.
    pub(super) after: Seq,
    pub(super) done: Done<Seq>,
}

#[derive(Debug)]
pub(super) struct IngestFile {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    file: Arc<dyn FsFile>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    end: u64,
    under_way: usize,
    ready: Vec<Ready>,
}

impl IngestFile {
    pub(super) fn create(
        dir: &Directory,
        partitions: Partitions,
        number: u64,
    ) -> Result<Self, StoreError> {
        let path = dir.segment_path(number);
        dir.remove(&path)?;
        let header = Header {
            kind: FileKind::Segment,
            number,
            seq: 0,
            salt: draw_salt(),
            partitions: partitions.count(),
        };
        let file = dir.create(&path)?;
        let written = file.write_all_at(&header.encode(), 0);
        written
            .map_err(StoreError::io("write", &path))
            .inspect_err(|_| {
                // Best effort: the next opening removes a leftover file.
                let _ = dir.remove(&path);
            })?;
        Ok(Self {
            number,
            path,
            file: Arc::from(file),
            state: Mutex::new(State {
                end: HEADER_LEN as u64,
                under_way: 0,
                ready: Vec::new(),
            }),
        })
    }

    pub(super) fn reserve(&self, slices: &[SliceInfo]) -> Vec<Region> {
        let mut state = self.state.lock();
        let (regions, end) = regions(slices, state.end);
        state.end = end;
        state.under_way += 1;
        regions
    }

    pub(super) fn write(&self, bytes: &[u8], at: u64) -> Result<(), StoreError> {
        let written = self.file.write_all_at(bytes, at);
        written.map_err(StoreError::io("write", &self.path))
    }

    pub(super) fn sync(&self) -> Result<(), StoreError> {
        let synced = self.file.sync_data();
        synced.map_err(StoreError::stopped("sync", &self.path))
    }

    pub(super) fn file(&self) -> &dyn FsFile {
        &*self.file
    }

    pub(super) fn finish(&self, ready: Ready) {
        let mut state = self.state.lock();
        state.under_way -= 1;
        state.ready.push(ready);
    }

    /// Clears the starts of slices that will not be received, so that nothing there is mistaken for
    /// a slice.
    pub(super) fn give_up(&self, regions: &[Region]) {
        for region in regions {
            // Leftovers matter only if the segment's table is damaged.
            let _ = self.file.write_all_at(&[0; 64], region.at);
        }
        self.state.lock().under_way -= 1;
    }

    /// Whether slices wait, and whether any ingest is still in progress.
    pub(super) fn progress(&self) -> (bool, bool) {
        let state = self.state.lock();
        (!state.ready.is_empty(), state.under_way > 0)
    }

    pub(super) fn take_ready(&self) -> Vec<Ready> {
        std::mem::take(&mut self.state.lock().ready)
    }

    /// Writes the table and syncs the file. Returns its slices in the order of `verified`, which is
    /// the order of their offsets.
    pub(super) fn complete(
        &self,
        verified: &[&Verified],
        after: Seq,
    ) -> Result<(Vec<Arc<Slice>>, SegmentFile), StoreError> {
        let end = self.state.lock().end;
        let placed = verified.iter().map(|one| Placed {
            at: one.at,
            header: one.header,
            index: &one.index,
        });
        complete_segment(
            &self.file,
            &self.path,
            self.number,
            end,
            &placed.collect::<Vec<_>>(),
            after,
        )
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// The regions for slices of these lengths after `end`, and the new end.
fn regions(slices: &[SliceInfo], mut end: u64) -> (Vec<Region>, u64) {
    let regions = slices.iter().map(|info| {
        let at = align(end);
        end = at + info.len;
        Region { at, info: *info }
    });
    let regions = regions.collect();
    (regions, end)
}
