//! The slots of a slice in ring order: a permutation, packed.
//!
//! Gets never read it; scans, compactions and comparisons do.

/// Bits of an entry.
const fn width(keys: usize) -> u32 {
    usize::BITS - keys.saturating_sub(1).leading_zeros()
}

/// Length of the order of this many keys, bytes.
pub(super) const fn order_len(keys: usize) -> usize {
    (keys * width(keys) as usize).div_ceil(8)
}

/// Packs slots, each less than their number.
pub(super) fn pack(slots: &[u32]) -> Vec<u8> {
    let width = width(slots.len());
    let mut out = Vec::with_capacity(order_len(slots.len()));
    let (mut word, mut filled) = (0_u64, 0);
    for slot in slots {
        word |= u64::from(*slot) << filled;
        filled += width;
        while filled >= 8 {
            out.push((word & 0xff) as u8);
            word >>= 8;
            filled -= 8;
        }
    }
    if filled > 0 {
        out.push((word & 0xff) as u8);
    }
    out
}

/// The slot at a place in ring order; `None` if the bytes are too short or contain an invalid slot.
pub(super) fn slot_at(order: &[u8], keys: usize, place: usize) -> Option<usize> {
    let width = width(keys) as usize;
    let at = place * width;
    let from = order.get(at / 8..)?;
    let mut word = [0; 8];
    let len = from.len().min(8);
    word[..len].copy_from_slice(&from[..len]);
    let slot = (u64::from_le_bytes(word) >> (at % 8)) & ((1 << width) - 1);
    let slot = torc_record::to_usize(slot);
    (place < keys && slot < keys).then_some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_place_gives_its_slot(keys in 1_usize..3000, shift: u32) {
            let slots: Vec<u32> = (0..keys as u32).map(|at| (at + shift % keys as u32) % keys as u32).collect();
            let order = pack(&slots);
            prop_assert_eq!(order.len(), order_len(keys));
            for (place, slot) in slots.iter().enumerate() {
                prop_assert_eq!(slot_at(&order, keys, place), Some(*slot as usize));
            }
            prop_assert_eq!(slot_at(&order, keys, keys), None);
        }

        #[test]
        fn any_bytes_are_safe(order: Vec<u8>, keys in 1_usize..3000, place in 0_usize..3000) {
            let slot = slot_at(&order, keys, place);
            prop_assert!(slot.is_none_or(|slot| slot < keys));
        }
    }
}
