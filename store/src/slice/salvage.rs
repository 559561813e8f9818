//! The records of a slice whose index is damaged.
//!
//! The records are stored in slot order, each aligned, with its length and a checksum that
//! depends on its slot. So they can be found without the index. If all of them are intact and their
//! sum equals the header's, nothing was lost.

use super::header::{SLICE_HEADER_LEN, SliceHeader};
use super::rest::{Reader, Rest};
use super::view::checked;
use super::{Damage, RECORD_CRC_LEN};
use crate::PartitionSummary;
use crate::packed::{HEAD_LEN, Packed, PackedRef};

/// Passes the records of a slice, given all its bytes, to `take` in slot order. Reads the bytes
/// once.
///
/// # Errors
/// Some records are missing; discard those passed so far.
pub(crate) fn salvage(
    all: Rest<'_>,
    mut take: impl FnMut(PackedRef<'_>),
) -> Result<SliceHeader, Damage> {
    let header = SliceHeader::decode(&all.copy(0, SLICE_HEADER_LEN)?)?;
    if header.keyless().is_some() {
        return Err("a keyless slice has no records");
    }
    let mut reader = Reader::new(all);
    let records_at = header.records_at() as u64;
    let mut at = records_at;
    let mut held = PartitionSummary::default();
    for slot in 0..header.keys() {
        let head_at = at + RECORD_CRC_LEN as u64;
        let head = reader.bytes(head_at..head_at + HEAD_LEN as u64)?;
        let end = head_at + Packed::len_by_head(head)? as u64;
        let record = checked(header.salt, slot, reader.bytes(at..end)?)?;
        held.add_ref(record);
        take(record);
        at = records_at + (end - records_at).next_multiple_of(header.alignment().bytes());
    }
    let is_all = at == records_at + header.records_len && held == header.held();
    is_all
        .then_some(header)
        .ok_or("the records do not match the totals in the slice's header")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sample_slice;

    #[test]
    fn all_records_are_found_without_the_index_or_none_count() {
        let good = sample_slice(40).unwrap();
        let header = SliceHeader::decode(&good).unwrap();
        let salvaged = |bytes: &[u8]| {
            let mut keys = Vec::new();
            let header = salvage(Rest::Memory(bytes), |one| keys.push(one.key().to_vec()));
            header.map(|_| keys)
        };
        let keys = salvaged(&good).unwrap();
        assert_eq!(keys.len(), 40);
        let mut bad = good.clone();
        bad[SLICE_HEADER_LEN..header.records_at()].fill(0xA5);
        assert_eq!(salvaged(&bad), Ok(keys.clone()), "index and order are gone");
        for at in (0..SLICE_HEADER_LEN).chain(header.records_at()..good.len()) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            let Ok(found) = salvaged(&bad) else { continue };
            assert_eq!(found, keys, "byte {at}: nothing depends on it");
        }
        for len in [0, 100, good.len() / 2] {
            assert!(salvaged(&good[..len]).is_err(), "cut to {len}");
        }
    }
}
