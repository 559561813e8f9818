//! Keyless sets: each member is found at its own number; false positives occur at the stated rate;
//! hostile bytes are harmless.

#![allow(clippy::cast_precision_loss, reason = "tests count small numbers")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use torc_index::{KeylessError, KeylessSet, KeylessViewError};
use torc_record::Digest;

/// SplitMix64's finalizer (Steele, Lea, Flood 2014) of two words.
fn digest(key: u64) -> Digest {
    let word = |z: u64| {
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let high = word(key.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15));
    let low = word(high ^ key);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&high.to_be_bytes());
    bytes[8..].copy_from_slice(&low.to_be_bytes());
    Digest(bytes)
}

fn sorted(keys: impl Iterator<Item = u64>) -> Vec<Digest> {
    let digests: BTreeSet<Digest> = keys.map(digest).collect();
    digests.into_iter().collect()
}

/// 400,000 other keys pass with probability 2^-f each: the count deviates by at most 5 standard
/// deviations of the binomial.
#[test]
fn strangers_are_taken_for_members_as_rarely_as_stated() {
    let members = sorted(0..20_000);
    for bits in [1, 4, 8, 13] {
        let bytes = KeylessSet::build(&members, bits, 1).unwrap();
        let set = KeylessSet::view(&bytes).unwrap();
        let strangers = 400_000.0;
        let found = (1 << 40..(1 << 40) + 400_000).filter(|key| set.contains(&digest(*key)));
        let (found, rate) = (found.count() as f64, set.rate());
        let tolerance = 5.0 * (strangers * rate * (1.0 - rate)).sqrt();
        assert!(
            (found - strangers * rate).abs() < tolerance,
            "{bits} bits: {found}, not {} ± {tolerance}",
            strangers * rate
        );
        let per_key = 8.0 * bytes.len() as f64 / 20_000.0;
        assert!(per_key < 2.3 + f64::from(bits), "{per_key} bits a key");
    }
}

#[test]
fn fingerprints_of_no_or_too_many_bits_are_named() {
    for bits in [0, 33] {
        let refused = KeylessSet::build(&[], bits, 1);
        assert_eq!(refused, Err(KeylessError::Bits { bits }));
    }
    let refused = KeylessSet::build(&[digest(1), digest(1)], 8, 1);
    assert!(matches!(refused, Err(KeylessError::Function(_))));
    let bytes = KeylessSet::build(&[], 8, 1).unwrap();
    let empty = KeylessSet::view(&bytes).unwrap();
    assert!(empty.is_empty() && !empty.contains(&digest(1)));
}

#[test]
fn bytes_that_were_cut_are_refused() {
    let bytes = KeylessSet::build(&sorted(0..100), 8, 1).unwrap();
    for len in 0..bytes.len() {
        assert!(KeylessSet::view(&bytes[..len]).is_err(), "{len} bytes");
    }
    let longer = [&bytes[..], &[0]].concat();
    let (expected, found) = (100, 101);
    assert_eq!(
        KeylessSet::view(&longer).map(|_| ()),
        Err(KeylessViewError::Fingerprints { expected, found })
    );
}

proptest! {
    #[test]
    fn every_member_has_a_number_of_its_own(keys in prop::collection::btree_set(any::<u64>(), 0..600), bits in 1_u32..=32) {
        let members = sorted(keys.into_iter());
        let bytes = KeylessSet::build(&members, bits, 7).unwrap();
        let set = KeylessSet::view(&bytes).unwrap();
        let numbers: BTreeSet<usize> = members.iter().map(|member| set.find(member).unwrap()).collect();
        prop_assert!(numbers.into_iter().eq(0..members.len()));
    }

    #[test]
    fn any_bytes_are_refused_or_answer(mut bytes in prop::collection::vec(any::<u8>(), 0..200), flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), built: bool) {
        if built {
            bytes = KeylessSet::build(&sorted(0..50), 9, 1).unwrap();
            for (at, byte) in flips { let at = at.index(bytes.len()); bytes[at] = byte; }
        }
        if let Ok(set) = KeylessSet::view(&bytes) {
            prop_assert!(set.find(&digest(1)).is_none_or(|number| number < set.len()));
        }
    }
}
