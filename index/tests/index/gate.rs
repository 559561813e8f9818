//! The Bloom gate keeps its promises: no false negatives, and false positives at most at the
//! requested rate.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "tests count small numbers"
)]
#![expect(clippy::unwrap_used, reason = "a helper that fails is a failing test")]

use proptest::prelude::*;
use torc_index::gate::sizing::{self, GateSize};
use torc_index::gate::{MAX_RATE, MIN_RATE};
use torc_index::{Gate, GateError};
use torc_record::Digest;

use crate::words::{Words, digest};

impl Words {
    /// A digest whose first 12 bits are those of partition 1,234 of 4,096.
    fn digest(&mut self) -> Digest {
        digest((1234 << 52) | (self.next() >> 12), self.next())
    }

    fn digests(&mut self, n: usize) -> Vec<Digest> {
        (0..n).map(|_| self.digest()).collect()
    }
}

/// The false positive rate over `gates` gates of `n` keys each, with `strangers` queries per gate.
fn measured_rate(n: usize, rate: f64, gates: u64, strangers: u32) -> f64 {
    let mut passed = 0_u64;
    for seed in 0..gates {
        let mut words = Words(seed << 32 | n as u64);
        let bytes = Gate::build(&words.digests(n), rate).unwrap();
        let gate = Gate::view(&bytes).unwrap();
        passed += (0..strangers)
            .filter(|_| gate.may_contain(&words.digest()))
            .count() as u64;
    }
    passed as f64 / (gates * u64::from(strangers)) as f64
}

/// 300,000 draws at 1 % have a standard deviation of 1.8 % of the rate: a factor of 1.1 is five of
/// them above a filter that exactly meets its rate.
#[test]
fn at_1_percent_strangers_pass_within_a_tenth_of_the_promise() {
    for (n, gates, strangers) in [
        (24, 3_000, 100),
        (100, 600, 500),
        (2_048, 60, 5_000),
        (65_536, 3, 100_000),
    ] {
        let measured = measured_rate(n, 0.01, gates, strangers);
        assert!(measured <= 0.011, "{n} keys: {measured}");
        assert!(
            measured >= 0.008 || n < 200,
            "{n} keys: {measured}: larger than it need be"
        );
    }
}

#[test]
fn a_million_keys_at_1_percent_take_under_10_bits_each_and_keep_the_promise() {
    let size = Gate::size_bytes(1_000_000, 0.01).unwrap();
    assert!(size * 8 < 10_000_000, "{size} bytes");
    let measured = measured_rate(1_000_000, 0.01, 1, 300_000);
    assert!((0.009..=0.011).contains(&measured), "{measured}");
}

#[test]
fn other_rates_are_kept_too() {
    for n in [24, 500, 20_000] {
        let gates = 200_000 / n as u64;
        let measured = measured_rate(n, 0.05, gates, 5 * n as u32);
        assert!(measured <= 0.055, "{n} keys at 5 %: {measured}");
        let measured = measured_rate(n, 0.001, gates, 10 * n as u32);
        assert!(
            measured <= 0.00115,
            "{n} keys at 0.1 %, 2 million draws: {measured}"
        );
    }
}

/// D. Lemire on hash tables without keys: a good 64-bit hash need not have two good 32-bit halves.
/// Both families below have 8 bits in each probe part, and a full 32 in the block part. In one
/// family the parts are independent; in the other, the same 8 bits of the key determine both, as
/// when a multiplicative hash of aligned numbers is split into halves. Then a block of about 50
/// keys has only 256 sequences, not 65,536.
#[test]
fn dependent_halves_break_the_promise_and_independent_ones_of_equal_size_keep_it() {
    let family = |dependent: bool, seed: u64| {
        let mut words = Words(seed);
        move || {
            let (block, key) = (words.next() >> 32, words.next());
            let g1 = (key & 0xff).wrapping_mul(0x9e37_79b1) & 0xffff_ffff;
            let g2_source = if dependent {
                key & 0xff
            } else {
                key >> 8 & 0xff
            };
            let g2 = g2_source.wrapping_mul(0x85eb_ca77) & 0xffff_ffff;
            digest(g2, block << 32 | g1)
        }
    };
    let rate = |dependent: bool| {
        let mut draw = family(dependent, 7);
        let keys: Vec<_> = (0..50_000).map(|_| draw()).collect();
        let bytes = Gate::build(&keys, 0.01).unwrap();
        let gate = Gate::view(&bytes).unwrap();
        let mut draw = family(dependent, 8);
        (0..50_000).filter(|_| gate.may_contain(&draw())).count() as f64 / 50_000.0
    };
    let (independent, dependent) = (rate(false), rate(true));
    assert!(
        independent <= 0.016,
        "poor but independent parts stay near the promise: {independent}"
    );
    assert!(
        dependent > 0.1,
        "ten times the promise, and nobody is told: {dependent}"
    );
}

#[test]
fn the_gate_of_no_keys_refuses_everything() {
    let bytes = Gate::build(&[], 0.01).unwrap();
    assert_eq!(bytes, [0, 1], "no blocks, no probes, format 1");
    let gate = Gate::view(&bytes).unwrap();
    let mut words = Words(1);
    assert!((0..1_000).all(|_| !gate.may_contain(&words.digest())));
    gate.prefetch(&words.digest());
}

/// Computed in Python from the table of parts and the byte layout: the upper word w of `lo` gives
/// the block's byte `w * len >> 32`, the lower word plus `i` times the lower word of `hi` gives x,
/// and the bit is `((x ^ x >> 15) * 0x9e3779b9 % 2**32) * bits >> 32`.
#[test]
fn golden_bytes_do_not_change() {
    let keys: Vec<_> = (1..=24_u64)
        .map(|i| {
            digest(
                i.wrapping_mul(0x0123_4567_89ab_cdef),
                i.wrapping_mul(0xfedc_ba98_7654_3211),
            )
        })
        .collect();
    let bytes = Gate::build(&keys, 0.01).unwrap();
    let golden = [
        0xa1_91_10_17_9e_25_02_40_u64,
        0xe6_89_11_29_89_00_05_c2,
        0x94_90_0a_60_88_24_10_a8,
        0x90_24_32_00_0e_c4_06_01,
    ];
    assert_eq!(bytes, golden.map(u64::to_be_bytes).concat());
}

#[test]
fn golden_sizes_do_not_change() {
    let size = |n, rate| {
        let GateSize {
            block_bytes,
            probes,
        } = GateSize::for_keys(n, rate).unwrap();
        (block_bytes, probes)
    };
    let sizes = [1, 24, 100, 2_441, 65_536, 10_000_000].map(|n| size(n, 0.01));
    let golden = [
        (2, 7),
        (30, 6),
        (123, 6),
        (3_026, 6),
        (81_262, 6),
        (12_399_602, 6),
    ];
    assert_eq!(sizes, golden);
    assert_eq!(
        [size(2_441, 0.05), size(2_441, 0.001)],
        [(1_929, 4), (4_745, 9)]
    );
}

#[test]
fn a_gate_of_a_size_for_fewer_keys_still_refuses_none_of_its_own() {
    let keys = Words(2).digests(100);
    for keys_sized_for in [0, 1, 10] {
        let size = GateSize::for_keys(keys_sized_for, 0.01).unwrap();
        let bytes = Gate::build_sized(&keys, size);
        let gate = Gate::view(&bytes).unwrap();
        assert!(keys.iter().all(|key| gate.may_contain(key)));
    }
}

#[test]
fn rates_at_the_bounds_and_at_powers_of_two_have_a_size() {
    for rate in [0.5, 0.25, 0.125, MIN_RATE] {
        for n in (1..600).chain([10_000, 1_000_003, 500_000_000]) {
            let GateSize {
                block_bytes,
                probes,
            } = GateSize::for_keys(n, rate).unwrap();
            let expected = sizing::blocked_rate(n as u64, block_bytes as u64, probes);
            assert!(expected <= rate, "{n} keys at {rate}: {expected}");
        }
    }
}

#[test]
fn rates_that_no_filter_has_are_refused() {
    for rate in [0.0, -0.1, 0.51, 1.0, 1e-7, f64::NAN, f64::INFINITY] {
        let refused = Gate::build(&[], rate);
        assert!(
            matches!(refused, Err(GateError::Rate { .. })),
            "{rate}: {refused:?}"
        );
    }
    assert_eq!(Gate::size_bytes(1 << 40, 0.01), Err(GateError::TooMany));
}

#[test]
fn bytes_that_no_build_made_are_refused() {
    let error = |bytes: &[u8]| Gate::view(bytes).unwrap_err();
    assert_eq!(error(&[]), GateError::Truncated { len: 0 });
    assert_eq!(error(&[1]), GateError::Truncated { len: 1 });
    assert_eq!(error(&[0, 2]), GateError::Format { found: 2 });
    assert_eq!(
        error(&[6, 1]),
        GateError::Probes { found: 6 },
        "probes without blocks"
    );
    assert_eq!(
        error(&[0xff, 0, 1]),
        GateError::Probes { found: 0 },
        "blocks without probes"
    );
    assert_eq!(
        error(&[0xff, 25, 1]),
        GateError::Probes { found: 25 },
        "more than any build"
    );
}

#[test]
fn formulas_agree_with_the_textbook_at_1_percent() {
    assert!((sizing::bits_per_key(0.01) - 9.585).abs() < 0.001);
    assert_eq!(sizing::best_probes(9.585), 7);
    assert!((sizing::classic_rate(1_000_000, 9_585_000, 7) - 0.01).abs() < 0.0001);
    let blocked = sizing::blocked_rate(1_000_000, 9_585_059 / 8, 7);
    assert!(
        (0.011..0.013).contains(&blocked),
        "blocks of unequal fill cost: {blocked}"
    );
}

proptest! {
    #[test]
    fn nothing_given_to_a_gate_is_ever_refused(
        n in 0_usize..3_000, seed: u64, rate in MIN_RATE..MAX_RATE
    ) {
        let keys = Words(seed).digests(n);
        let bytes = Gate::build(&keys, rate).unwrap();
        prop_assert_eq!(bytes.len(), Gate::size_bytes(n, rate).unwrap());
        let gate = Gate::view(&bytes).unwrap();
        for key in &keys {
            prop_assert!(gate.may_contain(key), "a false negative hides a stored record");
        }
    }

    #[test]
    fn the_bytes_do_not_depend_on_the_order_of_the_keys(n in 0_usize..300, seed: u64) {
        let mut keys = Words(seed).digests(n);
        let bytes = Gate::build(&keys, 0.01).unwrap();
        keys.sort_unstable();
        prop_assert_eq!(bytes, Gate::build(&keys, 0.01).unwrap());
    }

    #[test]
    fn any_bytes_are_refused_or_answer(bytes in proptest::collection::vec(any::<u8>(), 0..300),
                                       probes in 0_u8..30, seed: u64) {
        let mut bytes = bytes;
        bytes.extend([probes, 1]);
        if let Ok(gate) = Gate::view(&bytes) {
            for key in Words(seed).digests(50) {
                gate.prefetch(&key);
                let _ = gate.may_contain(&key);
            }
        }
    }

    #[test]
    fn the_size_found_keeps_the_expected_rate_and_little_less_does_not(
        n in 1_usize..200_000, rate in 0.0005_f64..0.1
    ) {
        let GateSize { block_bytes, probes } = GateSize::for_keys(n, rate).unwrap();
        let (keys, bytes) = (n as u64, block_bytes as u64);
        prop_assert!(sizing::blocked_rate(keys, bytes, probes) <= rate);
        let less = bytes - bytes / 50 - 1;
        if less > 0 {
            let best = (1..=15).map(|probes| sizing::blocked_rate(keys, less, probes)).fold(1.0, f64::min);
            prop_assert!(best > rate || bytes < 512, "{bytes} bytes, but {less} would do: {best}");
        }
    }
}
