//! The sealed part of a partition, for copying it to another node.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::SliceInfo;
use crate::segment::Slice;
use crate::slice::SliceHeader;
use crate::{PartitionSummary, Seq, StoreError};

/// The slices of a partition at one moment. They stay readable as long as this lives, also
/// when they were folded or dropped meanwhile.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SealedPartition {
    /// Its slices; their order means nothing.
    pub slices: Vec<SealedSlice>,
    /// What they come to, superseded versions left out.
    pub summary: PartitionSummary,
    /// What is not in the slices has an entry above this one in the log:
    /// [`Store::scan_since`](crate::Store::scan_since) gives it.
    pub through: Seq,
}

/// A slice, readable byte for byte.
#[derive(Debug, Clone)]
pub struct SealedSlice(pub(crate) Arc<Slice>);

impl SealedSlice {
    /// What a receiver must know first.
    #[must_use]
    pub fn info(&self) -> SliceInfo {
        SliceInfo {
            len: self.0.len(),
            digest: self.0.digest(),
        }
    }

    /// Records in it, and bytes of their keys and values.
    #[must_use]
    pub fn sizes(&self) -> (u64, u64) {
        let held = self.0.header().map(SliceHeader::held);
        held.map_or((0, 0), |held| (held.records, held.payload_bytes))
    }

    /// Number of its segment and its row there, for people.
    #[must_use]
    pub fn id(&self) -> (u64, u32) {
        self.0.id()
    }

    /// Up to `len` of its bytes from `at` on; none at the end. May wait for the disk. They are
    /// not copied: they keep the slice readable as long as they live, and whoever reads them
    /// much later may wait for the disk again.
    #[must_use]
    pub fn read(&self, at: u64, len: usize) -> Bytes {
        let all = self.0.bytes().len();
        let at = usize::try_from(at).map_or(all, |at| at.min(all));
        let piece = Piece {
            slice: Arc::clone(&self.0),
            range: at..all.min(at.saturating_add(len)),
        };
        if at == 0 {
            self.0.will_need();
        }
        // Brings every page into memory here, where waiting is allowed.
        let pages = piece.as_ref().iter().step_by(PAGE);
        std::hint::black_box(pages.fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
        Bytes::from_owner(piece)
    }

    /// Remembers that a receiver found it damaged: it is refused from now on.
    #[must_use]
    pub fn note_damage(&self) -> StoreError {
        self.0
            .note_damage("a node that it was sent to found it damaged")
    }
}

/// No page of memory is smaller.
const PAGE: usize = 4096;

/// Bytes of a slice where they lie.
#[derive(Debug)]
struct Piece {
    slice: Arc<Slice>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.slice
            .bytes()
            .get(self.range.clone())
            .unwrap_or_default()
    }
}
