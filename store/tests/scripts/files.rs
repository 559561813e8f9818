//! Describes a manifest in words, by FORMAT.md and without the code that writes it; also forges
//! one.

use std::fmt::Write as _;

const HEADER_LEN: usize = 64;
const FRAME_LEN: usize = 32;
/// The fixed part of the body: the first log segment, and the highest time.
const FIXED_LEN: usize = 16;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes[at..].first_chunk().copied();
    word.map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..].first_chunk().copied();
    word.map_or(0, u64::from_le_bytes)
}

/// `1 slice`, `2 slices`
pub(crate) fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// The content of a manifest, one line per entry.
pub(crate) fn say(bytes: &[u8]) -> String {
    let body = &bytes[HEADER_LEN + FRAME_LEN..];
    let mut said = format!(
        "manifest {} covers entries up to {}, the log begins with log-{}\n",
        u64_at(bytes, 16),
        u64_at(bytes, 24),
        u64_at(body, 0)
    );
    let mut at = FIXED_LEN;
    while at < body.len() {
        let entry = &body[at..];
        let (number, len) = match u32_at(entry, 0) {
            1 => (u64_at(entry, 8), 40 + u32_at(entry, 4).div_ceil(8) as usize),
            2 => (u64::from(u32_at(entry, 4)), 48),
            3 => (u64::from(u32_at(entry, 4)), 86),
            5 => (u64::from(u32_at(entry, 4)), 26),
            _ => (u64_at(entry, 8), 16),
        };
        let _ = match u32_at(entry, 0) {
            1 => {
                let rows = u32_at(entry, 4);
                let counts = |row: &u32| entry[40 + *row as usize / 8] & (1 << (row % 8)) != 0;
                let live = (0..rows).filter(counts).count();
                writeln!(
                    said,
                    "  segment-{number}: slices that count: {live} of {rows}"
                )
            }
            2 => {
                let records = count(u64_at(entry, 8), "record");
                let tombstones = count(u64_at(entry, 16), "tombstone");
                writeln!(
                    said,
                    "  partition {number}: {records} in slices, {tombstones}"
                )
            }
            3 => writeln!(
                said,
                "  partition {number}: collected up to {}",
                u64_at(entry, 76)
            ),
            5 => writeln!(
                said,
                "  partition {number}: no ballot above epoch {}, time {}",
                u64_at(entry, 8),
                u64_at(entry, 16)
            ),
            _ => writeln!(said, "  ceiling {number}"),
        };
        at += len;
    }
    said
}

/// Appends an entry and corrects the checksums.
pub(crate) fn forge(manifest: &[u8], kind: u32) -> Vec<u8> {
    let mut bytes = manifest.to_vec();
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&[0; 20]);
    let salt = u32_at(&bytes, 32);
    let (body_len, count) = (
        bytes.len() - HEADER_LEN - FRAME_LEN,
        u32_at(&bytes, HEADER_LEN + 16) + 1,
    );
    let frame = &mut bytes[HEADER_LEN..];
    let body_crc = crc32c::crc32c_append(salt, &frame[FRAME_LEN..]);
    frame[8..12].copy_from_slice(&body_crc.to_le_bytes());
    frame[12..16].copy_from_slice(&u32::try_from(body_len).unwrap().to_le_bytes());
    frame[16..20].copy_from_slice(&count.to_le_bytes());
    let head_crc = crc32c::crc32c_append(salt, &frame[8..FRAME_LEN]);
    frame[4..8].copy_from_slice(&head_crc.to_le_bytes());
    bytes
}
