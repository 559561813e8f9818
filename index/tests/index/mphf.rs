//! The minimal perfect hash function through its public interface.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "tests count small numbers"
)]
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use proptest::prelude::*;
use torc_index::paper::{StitchError, Stitched};
use torc_index::{BuildError, Mphf, PerfectHash, ViewError};
use torc_record::Digest;

use crate::words::{Words, digest};

/// Random digests in ascending order that share their first `bits` bits.
fn digests(count: usize, bits: u32, seed: u64) -> Vec<Digest> {
    let mut random = Words(seed);
    let prefix = random.next().checked_shl(64 - bits).unwrap_or(0);
    let one = |_| digest(prefix | random.next() >> bits, random.next());
    let mut digests: Vec<Digest> = (0..count).map(one).collect();
    digests.sort_unstable();
    digests
}

fn slots(function: &Mphf, digests: &[Digest]) -> Vec<usize> {
    digests.iter().map(|digest| function.slot(digest)).collect()
}

fn assert_perfect(digests: &[Digest], seed: u64) {
    let bytes = Mphf::build(digests, seed).unwrap();
    let function = Mphf::view(&bytes).unwrap();
    assert_eq!(function.len(), digests.len());
    assert_eq!(function.is_empty(), digests.is_empty());
    let mut slots = slots(&function, digests);
    slots.sort_unstable();
    let all: Vec<usize> = (0..digests.len()).collect();
    assert_eq!(
        slots, all,
        "each digest has a slot of its own, and no slot is left over"
    );
}

fn bits_per_key(count: usize) -> f64 {
    let bytes = Mphf::build(&digests(count, 12, 5), 1).unwrap();
    bytes.len() as f64 * 8.0 / count as f64
}

#[test]
fn parts_of_every_size_are_minimal_and_perfect() {
    let sizes = [
        0, 1, 2, 3, 4, 7, 16, 24, 31, 48, 49, 64, 127, 400, 401, 1_200, 2_048, 6_001,
    ];
    for count in sizes
        .into_iter()
        .chain([16_384, 65_535, 65_536, 65_537, 100_003])
    {
        assert_perfect(&digests(count, 12, count as u64), 1);
    }
}

#[test]
fn every_small_part_is_minimal_and_perfect() {
    for count in 0..130 {
        assert_perfect(&digests(count, 10, 77 + count as u64), 3);
    }
}

#[test]
fn a_function_of_nothing_answers_0() {
    let bytes = Mphf::build(&[], 1).unwrap();
    let function = Mphf::view(&bytes).unwrap();
    assert!(function.is_empty());
    assert_eq!(function.slot(&digest(1, 2)), 0);
}

#[test]
fn digests_that_are_no_hashes_get_a_function_too() {
    let only_low = |at| digest(7, at);
    assert_perfect(&(0..700).map(only_low).collect::<Vec<_>>(), 1);
    let only_high = |at| digest(at, 7);
    assert_perfect(&(0..700).map(only_high).collect::<Vec<_>>(), 1);
    let two_heaps = |at: u64| digest(((at % 2) << 63) | at, 0);
    let mut heaps: Vec<Digest> = (0..5_000).map(two_heaps).collect();
    heaps.sort_unstable();
    assert_perfect(&heaps, 1);
    assert_perfect(&[digest(0, 0), digest(u64::MAX, u64::MAX)], 1);
}

#[test]
fn sizes_stay_within_what_was_promised() {
    for (count, most) in [(24, 8.0), (2_048, 2.6), (16_384, 2.2), (65_536, 2.1)] {
        let bits = bits_per_key(count);
        assert!(bits <= most, "{bits} bits a key of {count}, at most {most}");
    }
}

#[test]
fn unsorted_digests_are_refused() {
    let mut digests = digests(100, 0, 1);
    digests.swap(41, 42);
    assert_eq!(
        Mphf::build(&digests, 1),
        Err(BuildError::NotSorted { at: 42 })
    );
}

#[test]
fn a_digest_that_occurs_twice_is_refused() {
    let mut digests = digests(100, 0, 1);
    digests[42] = digests[41];
    assert_eq!(
        Mphf::build(&digests, 1),
        Err(BuildError::Duplicate { at: 42 })
    );
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let digests = digests(1_000, 12, 1);
    let bytes = Mphf::build(&digests, 1).unwrap();
    assert_eq!(bytes, Mphf::build(&digests, 1).unwrap());
    assert_ne!(bytes, Mphf::build(&digests, 2).unwrap());
    assert_ne!(
        bytes,
        Mphf::build(&digests, 1 << 40).unwrap(),
        "all of the seed counts"
    );
}

/// Created by this program; a change means that functions encoded earlier cannot be read.
#[test]
fn golden_bytes_do_not_change() {
    let small = Mphf::build(&digests(40, 12, 1), 0x1234_5678_9abc_def0).unwrap();
    assert_eq!(small, GOLDEN_40);
    let fnv = |bytes: &[u8]| {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
    };
    let wide = Mphf::build(&digests(70_000, 12, 1), 9).unwrap();
    assert_eq!((wide.len(), fnv(&wide)), GOLDEN_70_000);
}

const GOLDEN_40: [u8; 31] = [
    0x01, 0x0c, 0x28, 0x00, 0x05, 0x00, 0x00, 0x00, 0xd6, 0xe0, 0x00, 0x01, 0xa0, 0x34, 0x4e, 0xa6,
    0xda, 0x00, 0x38, 0x00, 0x02, 0x00, 0x08, 0x00, 0x00, 0x00, 0x27, 0x02, 0x00, 0x6d, 0x01,
];
const GOLDEN_70_000: (usize, u64) = (18_256, 14_021_708_379_893_716_008);

#[test]
fn golden_functions_answer_what_they_were_built_for() {
    let function = Mphf::view(&GOLDEN_40).unwrap();
    let mut slots = slots(&function, &digests(40, 12, 1));
    slots.sort_unstable();
    assert!(slots.into_iter().eq(0..40));
}

#[test]
fn a_length_that_is_not_exact_is_refused() {
    for count in [0, 1, 24, 500, 65_536] {
        let mut bytes = Mphf::build(&digests(count, 12, 3), 1).unwrap();
        for cut in (0..bytes.len()).step_by(bytes.len() / 40 + 1) {
            assert!(
                Mphf::view(&bytes[..cut]).is_err(),
                "{cut} of {} bytes",
                bytes.len()
            );
        }
        let expected = bytes.len() as u64;
        bytes.push(0);
        let refused = ViewError::Length {
            bytes: bytes.len(),
            expected,
        };
        assert_eq!(Mphf::view(&bytes).unwrap_err(), refused);
    }
}

#[test]
fn another_version_is_refused() {
    let mut bytes = Mphf::build(&digests(24, 12, 3), 1).unwrap();
    bytes[0] ^= 3;
    assert_eq!(
        Mphf::view(&bytes).unwrap_err(),
        ViewError::Version { version: 2 }
    );
}

#[test]
fn no_flipped_bit_makes_a_function_panic_or_answer_beyond_its_slots() {
    for count in [1, 2, 24, 400] {
        let digests = digests(count, 12, 11);
        let bytes = Mphf::build(&digests, 1).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_safe(&flipped, &digests);
        }
    }
}

/// Neither panics nor answers outside the slots.
fn assert_safe(bytes: &[u8], digests: &[Digest]) {
    let Ok(function) = Mphf::view(bytes) else {
        return;
    };
    for digest in digests {
        let slot = function.slot(digest);
        assert!(
            slot < function.len() || function.is_empty() && slot == 0,
            "slot {slot} of {}",
            function.len()
        );
        function.prefetch(digest);
    }
}

#[test]
fn parts_are_stitched_only_in_powers_of_two_and_when_they_can_be_viewed() {
    let part = Mphf::build(&digests(10, 2, 1), 1).unwrap();
    let part = part.as_slice();
    assert_eq!(
        Stitched::view(&[]).unwrap_err(),
        StitchError::Count { parts: 0 }
    );
    assert_eq!(
        Stitched::view(&[part; 3]).unwrap_err(),
        StitchError::Count { parts: 3 }
    );
    let source = ViewError::Truncated { bytes: 0 };
    let refused = StitchError::Part {
        partition: 1,
        source,
    };
    assert_eq!(Stitched::view(&[part, &[]]).unwrap_err(), refused);
}

#[test]
fn stitched_parts_are_one_minimal_and_perfect_function() {
    for (bits, count) in [(0_u32, 500), (3, 4_000), (6, 40), (10, 100)] {
        let digests = digests(count, 0, u64::from(bits));
        let of = |digest: &Digest| (digest.high() >> 1) >> (63 - bits);
        let mut parts = Vec::new();
        for partition in 0..1 << bits {
            let mine: Vec<Digest> = digests
                .iter()
                .filter(|d| of(d) == partition)
                .copied()
                .collect();
            parts.push(Mphf::build(&mine, 1).unwrap());
        }
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let function = Stitched::view(&parts).unwrap();
        let slots: Vec<usize> = digests.iter().map(|digest| function.slot(digest)).collect();
        let mut batched = Vec::new();
        function.slots(&digests, &mut batched);
        assert!(
            slots
                .iter()
                .copied()
                .eq(batched.iter().map(|slot| *slot as usize))
        );
        let mut random = Words(9);
        for _ in 0..1_000 {
            let slot = function.slot(&digest(random.next(), random.next()));
            assert!(slot < count, "a stranger's slot, of an empty partition too");
        }
        batched.sort_unstable();
        assert!(
            batched.into_iter().eq(0..count as u32),
            "{count} digests in 2^{bits} parts"
        );
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a long run is asked for from outside"
)]
fn cases() -> ProptestConfig {
    let cases = std::env::var("TORC_PROPTEST_CASES").ok();
    ProptestConfig::with_cases(cases.and_then(|cases| cases.parse().ok()).unwrap_or(64))
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn random_parts_are_minimal_and_perfect(count in 0_usize..3_000, bits in 0_u32..=24, of in any::<u64>(), seed in any::<u64>()) {
        assert_perfect(&digests(count, bits, of), seed);
    }

    #[test]
    fn strangers_stay_below_the_slots(count in 1_usize..600, bits in 0_u32..=24, of in any::<u64>()) {
        let bytes = Mphf::build(&digests(count, bits, of), 1).unwrap();
        let function = Mphf::view(&bytes).unwrap();
        for stranger in digests(200, 0, !of) {
            prop_assert!(function.slot(&stranger) < count);
        }
    }

    #[test]
    fn a_batch_answers_as_single_lookups_do(count in 1_usize..600, asked in 0_usize..100, of in any::<u64>()) {
        let digests = digests(count, 5, of);
        let bytes = Mphf::build(&digests, 1).unwrap();
        let function = Mphf::view(&bytes).unwrap();
        let asked = &digests[..asked.min(count)];
        let mut batched = vec![99];
        function.slots(asked, &mut batched);
        prop_assert_eq!(batched[0], 99, "slots are appended");
        prop_assert!(batched[1..].iter().map(|slot| *slot as usize).eq(slots(&function, asked)));
        let of_trait: &dyn PerfectHash = &function;
        let mut batched_of_trait = vec![99];
        of_trait.slots(asked, &mut batched_of_trait);
        prop_assert_eq!(batched_of_trait, batched);
    }

    #[test]
    fn any_bytes_are_safe(bytes in proptest::collection::vec(any::<u8>(), 0..200), of in any::<u64>()) {
        assert_safe(&bytes, &digests(20, 0, of));
    }

    /// Valid headers over random bytes, because random bytes hardly ever have a valid header.
    #[test]
    fn any_bytes_behind_a_header_are_safe(count in 0_usize..600, shared in 0_u8..64, of in any::<u64>()) {
        let mut bytes = Mphf::build(&digests(count, 12, of), of).unwrap();
        let mut random = Words(of);
        bytes[1] = shared;
        bytes[8..].fill_with(|| random.next() as u8);
        prop_assert!(Mphf::view(&bytes).is_ok());
        assert_safe(&bytes, &digests(100, 0, of));
    }
}
