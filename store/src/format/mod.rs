//! The byte layout of every file of the store: a header, then frames.
//!
//! `FORMAT.md` in this crate describes the same in prose; golden bytes in the tests and the fixture
//! directories check both. All numbers are little-endian.
//!
//! Header, 64 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic: `TORCLOG\0`, `TORCMAN\0`, `TORCMETA` or `TORCSEG\0` |
//! | 8 | 4 | version of the layout: 3 |
//! | 12 | 4 | CRC32C of bytes 0 to 12 and 16 to 64 |
//! | 16 | 8 | number: of the segment, the manifest's generation; else 0 |
//! | 24 | 8 | seq: a segment's first entry will have the one after it; a manifest covers all entries up to it; else 0 |
//! | 32 | 4 | salt |
//! | 36 | 4 | number of partitions |
//! | 40 | 24 | zero |
//!
//! Frame, 32 bytes and a body:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `TFRM` |
//! | 4 | 4 | CRC32C, continued from the salt, of bytes 8 to 32 |
//! | 8 | 4 | CRC32C, continued from the salt, of the body |
//! | 12 | 4 | length of the body, at most 16 MiB; in the manifest and in a segment's table 256 MiB |
//! | 16 | 4 | count of what is in the body |
//! | 20 | 4 | kind of frame, see [`FrameKind`] |
//! | 24 | 8 | seq of the first entry in a batch; in an end of log, of the next entry; 0 elsewhere |
//! | 32 | | body |
//!
//! Invariants:
//! * Every length is checked against its bound and against the file before it is used.
//! * The salt is drawn for each file and never leaves the node: bytes that a client
//!   stores cannot pass for a frame, nor can blocks of a file that was deleted.

use torc_record::{Ballot, Epoch, HybridTime, NodeSlot};

mod entry;
mod frame;
mod header;
mod reader;

pub(crate) use entry::Entry;
pub(crate) use frame::{FRAME_LEN, Frame, FrameBuilder, FrameKind};
pub(crate) use header::{FORMAT_VERSION, FileKind, HEADER_LEN, Header, draw_salt};
pub(crate) use reader::{FrameReader, Next};

/// Longest body of a frame in the log and in metadata, bytes.
pub(crate) const MAX_BODY_LEN: usize = 16 << 20;
/// Longest body of a frame that lists slices or files, bytes: several times what a store with
/// 65,536 partitions in each layer writes.
pub(crate) const MAX_LIST_LEN: usize = 256 << 20;

/// `N` bytes from `at`; the caller guarantees that they exist.
#[inline]
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// Epoch, hybrid time, node slot: 18 bytes.
pub(crate) const BALLOT_LEN: usize = 18;

pub(crate) fn ballot_bytes(ballot: Ballot) -> [u8; BALLOT_LEN] {
    let mut out = [0; BALLOT_LEN];
    out[..8].copy_from_slice(&ballot.epoch.0.to_le_bytes());
    out[8..16].copy_from_slice(&ballot.time.0.to_le_bytes());
    out[16..].copy_from_slice(&ballot.slot.0.to_le_bytes());
    out
}

#[inline]
pub(crate) fn ballot_at(bytes: &[u8], at: usize) -> Ballot {
    Ballot {
        epoch: Epoch(u64_at(bytes, at)),
        time: HybridTime(u64_at(bytes, at + 8)),
        slot: NodeSlot(u16::from_le_bytes(array(bytes, at + 16))),
    }
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}
