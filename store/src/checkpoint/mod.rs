//! Checkpoints: all records in ring order, so that the log can be cut.
//!
//! Where cold records live until sealed slices replace this file. A checkpoint is fuzzy:
//! it is written, partition by partition, while the log goes on. What makes that right:
//!
//! * First the log is rotated, after entry `through`. Of each record the checkpoint holds
//!   the version of an entry up to `through`, or none: a record whose entry is later is
//!   left out, for it is in the log behind the rotation.
//! * Recovery reads the checkpoint and replays the log from the rotation on, whole and in
//!   order. A record that is missing from the checkpoint was, by then, superseded by an
//!   entry of that log or dropped by one; either way the replay ends where the store was.
//! * A drop removes what has a lower number. In the replay all that precedes it in the
//!   log, and all of the checkpoint, has; a copy that came back later has not.
//!
//! The file has a header (its number is that of the segment the rotation began), frames of
//! kind `Records`, indexed from 0, and one of kind `Totals`: records (8 bytes),
//! tombstones (8), payload bytes (8) and fingerprint (16). The totals prove that no
//! record went missing.

mod reader;
mod thread;
mod writer;

pub(crate) use reader::read;
pub(crate) use thread::{Requests, run};
use writer::CheckpointWriter;

use crate::PartitionSummary;
use crate::format::{array, u64_at};

const TOTALS_LEN: usize = 40;

/// The body of the frame that ends a checkpoint.
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
