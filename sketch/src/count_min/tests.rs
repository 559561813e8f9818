//! Checks the theorems of count-min over many seeds, and its bytes.

use proptest::prelude::*;
use torc_record::Digest;

use super::*;
use crate::testing::{digest, hex};

fn shape(width_log2: u8, depth: u8) -> Shape {
    Shape::new(width_log2, depth).unwrap()
}

/// Key `i` of 1,000 occurs 1,000 / i times: 7,053 insertions.
fn zipf(seed: u64, shape: Shape) -> CountMin {
    let mut sketch = CountMin::new(shape, seed);
    (1..=1000).for_each(|key| sketch.add(&digest(key), 1000 / key as i64));
    sketch
}

fn encoded(sketch: &CountMin) -> Vec<u8> {
    let mut out = Vec::new();
    sketch.encode(&mut out);
    out
}

#[test]
fn an_estimate_is_never_too_low() {
    for seed in 0..20 {
        let sketch = zipf(seed, shape(5, 3));
        for key in 1..=1000 {
            assert!(
                sketch.estimate(&digest(key)) >= 1000 / key as i64,
                "key {key}, seed {seed}"
            );
        }
    }
}

/// E\[Ĉ\] = C + (N - C) / m for one row: 110.05 too much for the key with 10 of 7,053 at m = 64.
/// The variance is at most (sum of squared counts) / m = 1.64e6 / 64, so the mean over 1,000 seeds
/// has a standard deviation of at most 5.1; it is off by 5.5 of them with a probability below 1e-7.
#[test]
fn one_row_exceeds_the_truth_by_the_expected_share_of_the_rest() {
    let excess = |seed| zipf(seed, shape(6, 1)).estimate(&digest(100)) - 10;
    let mean = (0..1000).map(excess).sum::<i64>() as f64 / 1000.0;
    assert!((mean - 7043.0 / 64.0).abs() < 28.0, "{mean}");
}

/// Ĉ > C + εN with probability at most δ = 1/8. Seeds are independent, so of 2,000, at most 250 are
/// expected to exceed the bound, and 340 or more do with probability below 1e-8 (Chernoff). On most
/// streams, the bound by Markov's inequality is loose; here a single other key has all of the rest,
/// so a row fails whenever the two collide, with probability 1/m; and m = 2 makes that the 1/2 of
/// the theorem.
#[test]
fn the_error_exceeds_its_bound_no_more_often_than_delta() {
    let exceeds = |seed: &u64| {
        let mut sketch = CountMin::new(shape(1, 3), *seed);
        sketch.insert(&digest(1));
        sketch.add(&digest(2), 999);
        // With ε = 1, nothing exceeds the bound; the theorem bounds the collision of all rows.
        sketch.estimate(&digest(1)) > 1
    };
    let exceeding = (0..2000).filter(exceeds).count();
    assert!(
        (160..=340).contains(&exceeding),
        "{exceeding} of 2,000, expected 250"
    );
}

/// The same on a realistic stream, with ε = 1/64 and δ = 1/16: of 500 seeds, at most 31 are
/// expected to exceed the bound, and 65 do with probability below 1e-7.
#[test]
fn on_a_zipf_stream_the_error_keeps_its_bound() {
    let exceeds = |seed: &u64| {
        let sketch = zipf(*seed, Shape::for_error(1.0 / 64.0, 1.0 / 16.0).unwrap());
        sketch.estimate(&digest(700)) - 1 > sketch.error_bound() as i64
    };
    let exceeding = (0..500).filter(exceeds).count();
    assert!(exceeding < 65, "{exceeding}");
}

#[test]
fn what_is_inserted_and_deleted_was_never_there() {
    let mut sketch = zipf(1, shape(6, 4));
    (1..=1000).for_each(|key| (0..1000 / key).for_each(|_| sketch.delete(&digest(key))));
    assert_eq!(sketch, CountMin::new(shape(6, 4), 1));
}

#[test]
fn estimating_with_an_insertion_is_estimating_after_it() {
    let mut sketch = zipf(2, shape(4, 3));
    let mut other = sketch.clone();
    let estimate = sketch.insert_and_estimate(&digest(3), 5);
    other.add(&digest(3), 5);
    assert_eq!((estimate, &sketch), (other.estimate(&digest(3)), &other));
}

#[test]
fn sketches_of_other_shapes_and_seeds_are_not_combined() {
    let base = zipf(1, shape(4, 3));
    let mut sketch = base.clone();
    let (wider, reseeded) = (zipf(1, shape(5, 3)), zipf(2, shape(4, 3)));
    assert_eq!(
        sketch.merge(&wider),
        Err(CombineError::Shape(shape(4, 3), shape(5, 3)))
    );
    assert_eq!(sketch.subtract(&reseeded), Err(CombineError::Seed));
    assert!(sketch.inner_product(&reseeded).is_err());
    let mut full = base.empty();
    full.add(&digest(0), i64::MAX - 100);
    assert_eq!(sketch.merge(&full), Err(CombineError::Overflow));
    assert_eq!(sketch, base, "an error changes nothing");
}

#[test]
fn counters_that_overflow_where_the_totals_do_not_come_back_too() {
    let spread = |count: i64| {
        let mut sketch = CountMin::new(shape(4, 3), 1);
        sketch.add(&digest(1), count);
        sketch.add(&digest(2), -count);
        sketch
    };
    let before = spread(i64::MAX);
    let mut sketch = before.clone();
    sketch.merge(&spread(5)).unwrap();
    sketch.subtract(&spread(5)).unwrap();
    assert_eq!(sketch, before, "saturated on the way up");
    sketch.subtract(&spread(-5)).unwrap();
    sketch.merge(&spread(-5)).unwrap();
    assert_eq!(sketch, before, "saturated on the way down");
}

#[test]
fn a_counter_that_overflowed_on_the_way_is_right_again_after_a_subtraction() {
    let mut sketch = zipf(1, shape(4, 3));
    let before = sketch.clone();
    sketch.add(&digest(1), i64::MAX);
    sketch.add(&digest(1), i64::MAX);
    sketch.add(&digest(1), -i64::MAX);
    sketch.add(&digest(1), -i64::MAX);
    assert_eq!(sketch, before);
}

/// Two sets of 2,000 with 200 in common: over 200 seeds, the mean estimate is within 5.5 of its
/// standard deviations of the truth (probability below 1e-7 beyond), and their spread is the stated
/// one within 28 % (the deviation of a sample of 200 itself deviates by 5 %; five and a half of
/// them).
#[test]
fn the_corrected_inner_product_has_no_bias_and_the_stated_deviation() {
    let (mut estimates, mut stated) = (Vec::new(), 0.0);
    for seed in 0..200 {
        let (mut a, mut b) = (
            CountMin::new(shape(8, 3), seed),
            CountMin::new(shape(8, 3), seed),
        );
        (0..2000).for_each(|key| a.insert(&digest(key)));
        (1800..3800).for_each(|key| b.insert(&digest(key)));
        let product = a.inner_product(&b).unwrap();
        assert!(
            product.upper >= 200,
            "the lecture's estimate is never too low"
        );
        let mean_of_rows = (product.estimate * 255.0 + 4e6) / 256.0;
        assert!(
            (product.upper as f64) < mean_of_rows,
            "it is the smallest row's"
        );
        estimates.push(product.estimate);
        stated += product.std_error / 200.0;
    }
    let mean = estimates.iter().sum::<f64>() / 200.0;
    let variance = estimates.iter().map(|e| (e - mean).powi(2)).sum::<f64>() / 199.0;
    assert!(
        (mean - 200.0).abs() < 5.5 * stated / 200_f64.sqrt(),
        "mean {mean}, stated {stated}"
    );
    assert!(
        (variance.sqrt() / stated - 1.0).abs() < 0.28,
        "{} not {stated}",
        variance.sqrt()
    );
}

/// min P_i exceeds <a, b> by more than ε |a|₁|b|₁ with probability at most δ = 1/8; of 200 seeds,
/// at most 25 are expected, and 55 have probability below 1e-7.
#[test]
fn the_lectures_inner_product_keeps_its_bound() {
    let shape = shape(6, 3);
    let truth: u128 = (1..=1000).map(|key| (1000 / key) * (1000 / key)).sum();
    let exceeds = |seed: &u64| {
        let product = zipf(*seed, shape)
            .inner_product(&zipf(*seed, shape))
            .unwrap();
        assert!(product.upper >= truth);
        (product.upper - truth) as f64 > product.upper_error
    };
    let exceeding = (0..200).filter(exceeds).count();
    assert!(exceeding < 55, "{exceeding}");
}

/// The size used by the service: two sets of 200,000 keys that share 20,000, 4 rows of 65,536. The
/// stated deviation is 393; 10 % of the truth is 5 of them, exceeded with probability below 1e-6.
#[test]
fn the_overlap_of_two_sets_of_200_000_keys_is_within_a_tenth() {
    let (mut a, mut b) = (
        CountMin::new(shape(16, 4), 1),
        CountMin::new(shape(16, 4), 1),
    );
    (0..200_000).for_each(|key| a.insert(&digest(key)));
    (180_000..380_000).for_each(|key| b.insert(&digest(key)));
    let product = a.inner_product(&b).unwrap();
    assert!((product.estimate - 20_000.0).abs() < 2_000.0, "{product:?}");
    assert!((product.std_error - 393.0).abs() < 40.0, "{product:?}");
    assert!(
        product.upper > 400_000,
        "the plain minimum says nothing about so small an overlap"
    );
}

#[test]
fn golden_bytes_do_not_change() {
    let mut sketch = CountMin::new(shape(2, 2), 7);
    sketch.add(&Digest([1; 16]), 3);
    sketch.add(&Digest([2; 16]), -200);
    let hex = hex(&encoded(&sketch));
    assert_eq!(hex, GOLDEN);
}
/// From a separate program: SplitMix64 of the seed 7, the rows' hashes and the bytes as this crate
/// documents them.
const GOLDEN: &str = "54434d530102020007000000000000003bffffffffffffff0000068f0300018f03000006";

#[test]
fn an_empty_sketch_has_few_bytes() {
    let sketch = CountMin::new(shape(20, 8), 1);
    assert!(encoded(&sketch).len() <= 30);
    assert_eq!(CountMin::decode(&encoded(&sketch), 1 << 23), Ok(sketch));
}

#[test]
fn more_counters_than_the_caller_takes_are_not_allocated() {
    let mut bytes = encoded(&CountMin::new(shape(2, 2), 7));
    bytes[5] = 26;
    bytes[6] = 32;
    let error = DecodeError::TooLarge {
        width_log2: 26,
        depth: 32,
        limit: 1000,
    };
    assert_eq!(CountMin::decode(&bytes, 1000), Err(error));
    bytes[5] = 255;
    assert!(CountMin::decode(&bytes, usize::MAX).is_err());
}

#[test]
fn no_changed_byte_of_the_counters_or_the_total_gets_by() {
    let bytes = encoded(&zipf(1, shape(5, 2)));
    for at in (0..8).chain(16..bytes.len()) {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            assert!(
                CountMin::decode(&damaged, 1000).is_err(),
                "byte {at}, bit {bit}"
            );
        }
    }
    for len in 0..bytes.len() {
        assert!(
            CountMin::decode(&bytes[..len], 1000).is_err(),
            "cut at {len}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn merging_and_subtracting_equal_counting_that_way(
        first in prop::collection::vec((0_u64..50, 1_i64..100), 0..100),
        second in prop::collection::vec((0_u64..50, 1_i64..100), 0..100),
        seed: u64,
    ) {
        let count = |stream: &[(u64, i64)]| {
            let mut sketch = CountMin::new(shape(3, 3), seed);
            for &(key, count) in stream { sketch.add(&digest(key), count); }
            sketch
        };
        let (a, b) = (count(&first), count(&second));
        let mut both = a.clone();
        both.merge(&b).unwrap();
        prop_assert_eq!(&both, &count(&[first, second].concat()));
        both.subtract(&b).unwrap();
        prop_assert_eq!(both, a);
    }

    #[test]
    fn bytes_come_back_as_they_went(
        stream in prop::collection::vec((any::<u64>(), any::<i64>()), 0..40),
        width_log2 in 1_u8..8, depth in 1_u8..5, seed: u64,
    ) {
        let mut sketch = CountMin::new(shape(width_log2, depth), seed);
        for &(key, count) in &stream { sketch.add(&digest(key), count); }
        prop_assert_eq!(CountMin::decode(&encoded(&sketch), 1024), Ok(sketch));
    }

    #[test]
    fn no_bytes_make_decoding_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        is_header_right: bool, width_log2 in 0_u8..30, depth in 0_u8..40,
    ) {
        if is_header_right && bytes.len() > 8 {
            bytes[..8].copy_from_slice(&[b'T', b'C', b'M', b'S', 1, width_log2, depth, 0]);
        }
        if let Ok(sketch) = CountMin::decode(&bytes, 1 << 10) {
            let _ = sketch.inner_product(&sketch);
            prop_assert!(sketch.shape().counters() <= 1 << 10);
        }
    }
}
