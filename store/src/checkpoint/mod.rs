//! Checkpoints: all records in ring order, as stores of format 1 have them.
//!
//! They are read, so that such a store can be opened; the first seal makes slices of their
//! records and the file is removed. None is written any more.
//!
//! A checkpoint was written, partition by partition, while the log went on. Of each record
//! it holds the version of an entry up to its seq, or none: a record whose entry is later is
//! in the log behind it. Recovery reads the checkpoint and replays that log, whole and in
//! order.
//!
//! The file has a header (its number is that of the segment the rotation began), frames of
//! kind `Records`, indexed from 0, and one of kind `Totals`: records (8 bytes),
//! tombstones (8), payload bytes (8) and fingerprint (16). The totals prove that no
//! record went missing.

mod reader;
#[cfg(test)]
mod writer;

pub(crate) use reader::read;
#[cfg(test)]
use writer::CheckpointWriter;

use crate::PartitionSummary;
use crate::format::{array, u64_at};
use crate::packed::Packed;

const TOTALS_LEN: usize = 40;

/// Counts a record. The fingerprint of format 1 is the sum of the first 16 bytes of each
/// record's BLAKE3 hash.
fn count(totals: &mut PartitionSummary, packed: &Packed) {
    let before = totals.fingerprint;
    totals.add(packed);
    let hash = u128::from_le_bytes(array(blake3::hash(packed.bytes()).as_bytes(), 0));
    totals.fingerprint = before.wrapping_add(hash);
}

/// The body of the frame that ends a checkpoint.
#[cfg(test)]
fn encode_totals(totals: &PartitionSummary) -> [u8; TOTALS_LEN] {
    let mut out = [0; TOTALS_LEN];
    out[..8].copy_from_slice(&totals.records.to_le_bytes());
    out[8..16].copy_from_slice(&totals.tombstones.to_le_bytes());
    out[16..24].copy_from_slice(&totals.payload_bytes.to_le_bytes());
    out[24..].copy_from_slice(&totals.fingerprint.to_le_bytes());
    out
}

fn decode_totals(bytes: &[u8]) -> Option<PartitionSummary> {
    let bytes: &[u8; TOTALS_LEN] = bytes.try_into().ok()?;
    Some(PartitionSummary {
        records: u64_at(bytes, 0),
        tombstones: u64_at(bytes, 8),
        payload_bytes: u64_at(bytes, 16),
        fingerprint: u128::from_le_bytes(array(bytes, 24)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_totals_do_not_change() {
        let totals = PartitionSummary {
            records: 1,
            tombstones: 2,
            payload_bytes: 3,
            fingerprint: 4,
        };
        let golden = "0100000000000000 0200000000000000 0300000000000000
             04000000000000000000000000000000";
        assert_eq!(
            encode_totals(&totals)[..],
            crate::packed::tests::unhex(golden)
        );
        assert_eq!(decode_totals(&encode_totals(&totals)), Some(totals));
        assert_eq!(decode_totals(&[0; 39]), None);
    }
}
