//! Compares the filters with sets, and their rates with the formula.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::testing::digest;

/// Tolerance of a binomial count of `draws` at `rate`: 5 standard deviations, exceeded with
/// probability below 1e-6, plus one.
fn tolerance(draws: u64, rate: f64) -> f64 {
    5.0 * (draws as f64 * rate * (1.0 - rate)).sqrt() + 1.0
}

const STRANGERS: u64 = 300_000;

fn let_in(may_contain: impl Fn(u64) -> bool) -> f64 {
    (1 << 40..(1 << 40) + STRANGERS)
        .filter(|key| may_contain(*key))
        .count() as f64
}

/// Given its bits, a filter has the false positive rate fill^T, and the count of false positives is
/// binomial. The number of set bits is one of balls in bins: its variance is m e^(-x) (1 - (1 + x)
/// e^(-x)) with x = nT/m (Mitzenmacher and Upfal, 5.4).
#[test]
fn the_measured_rate_is_the_lectures() {
    for (keys, rate) in [(2_000, 0.2), (20_000, 0.01), (20_000, 0.001)] {
        let shape = BloomShape::for_keys(keys, rate).unwrap();
        let mut filter = BloomFilter::new(shape);
        (0..keys).for_each(|key| _ = filter.insert(&digest(key)));
        let bits = f64::from(shape.bits());
        let load = (keys * u64::from(shape.probes())) as f64 / bits;
        let deviation = (bits * (-load).exp() * (1.0 - (1.0 + load) * (-load).exp())).sqrt();
        let expected = bits * (1.0 - (-load).exp());
        let set = filter.fill() * bits;
        assert!(
            (set - expected).abs() < 5.0 * deviation,
            "{set} bits, not {expected}"
        );
        let found = let_in(|key| filter.may_contain(&digest(key)));
        let expected = STRANGERS as f64 * filter.rate();
        let tolerance = tolerance(STRANGERS, filter.rate());
        assert!(
            (found - expected).abs() < tolerance,
            "{found} of {STRANGERS} strangers, not {expected} ± {tolerance}"
        );
        // The deviation of the bits, converted to keys.
        let per_key = f64::from(shape.probes()) * (-load).exp();
        let estimate = filter.estimated_keys();
        assert!(
            (estimate - keys as f64).abs() < 5.0 * deviation / per_key + 1.0,
            "{estimate} keys, not {keys}"
        );
    }
}

#[test]
fn a_filter_that_grows_keeps_the_rate_at_every_size() {
    let rate = 0.01;
    let mut filter = GrowingBloom::new(100, rate).unwrap();
    let mut inserted = 0;
    for until in [50, 100, 101, 5_000, 40_000] {
        for key in inserted..until {
            filter.insert(&digest(key));
        }
        inserted = until;
        assert!((0..until).all(|key| filter.may_contain(&digest(key))));
        let found = let_in(|key| filter.may_contain(&digest(key)));
        let most = STRANGERS as f64 * rate + tolerance(STRANGERS, rate);
        assert!(found <= most, "{found} strangers with {until} keys");
        assert!(filter.rate_bound() < 1.02 * rate, "{}", filter.rate_bound());
    }
    assert_eq!(filter.levels(), 9, "100 + 200 + … + 25,600 keys");
    // A key that was a false positive takes no space: the number of these is at most binomial.
    let missing = 40_000.0 - filter.keys() as f64;
    assert!(missing <= 400.0 + tolerance(40_000, rate), "{missing}");
    let bits = 8.0 * filter.bytes() as f64 / 40_000.0;
    assert!((11.0..34.0).contains(&bits), "{bits} bits a key");
}

#[test]
fn growing_filters_of_any_shapes_are_merged() {
    let mut all = GrowingBloom::new(64, 0.001).unwrap();
    let mut other = GrowingBloom::new(1_000, 0.01).unwrap();
    (0..500).for_each(|key| _ = all.insert(&digest(key)));
    (400..3_000).for_each(|key| _ = other.insert(&digest(key)));
    let bound = all.rate_bound() + other.rate_bound();
    all.merge(&other);
    assert!((0..3_000).all(|key| all.may_contain(&digest(key))));
    assert!((all.rate_bound() - bound).abs() < 1e-12);
    assert!(!all.insert(&digest(1_000)), "known from the other");
    assert!(
        (3_000..4_000).any(|key| all.insert(&digest(key))),
        "it still grows"
    );
    assert!(GrowingBloom::new(10, 0.0).is_err());
}

#[test]
fn a_full_counter_never_forgets() {
    let shape = BloomShape::new(64, 3).unwrap();
    let mut filter = CountingBloom::new(shape);
    (0..40).for_each(|_| filter.insert(&digest(1)));
    for _ in 0..60 {
        filter.delete(&digest(1)).unwrap();
    }
    assert!(
        filter.may_contain(&digest(1)),
        "15 and 40 look alike, so deleting cannot empty it"
    );
}

#[test]
fn filters_of_different_shapes_are_not_combined() {
    let (small, large) = (
        BloomShape::new(64, 3).unwrap(),
        BloomShape::new(128, 3).unwrap(),
    );
    let differ = Err(ShapesDiffer(small, large));
    let other = BloomFilter::new(large);
    assert_eq!(BloomFilter::new(small).union(&other), differ);
    assert_eq!(BloomFilter::new(small).intersect(&other), differ);
    let other = CountingBloom::new(large);
    assert_eq!(CountingBloom::new(small).merge(&other), differ);
}

#[test]
fn golden_bytes_do_not_change() {
    let mut filter = BloomFilter::new(BloomShape::new(64, 2).unwrap());
    filter.insert(&digest(7));
    assert!(!filter.is_empty());
    let bytes = filter.encode();
    assert_eq!(crate::testing::hex(&bytes[..6]), "010240000000");
    assert_eq!(bytes.len(), 14);
    assert_eq!(
        BloomFilter::decode(&bytes, 63),
        Err(BloomDecodeError::TooLarge { bits: 64, most: 63 })
    );
    for len in 0..bytes.len() {
        assert!(BloomFilter::decode(&bytes[..len], 64).is_err());
    }
    let mut odd = bytes.clone();
    odd[2] = 63;
    assert_eq!(BloomFilter::decode(&odd, 64), Err(BloomDecodeError::Shape));
}

fn filled(shape: BloomShape, keys: &BTreeSet<u64>) -> BloomFilter {
    let mut filter = BloomFilter::new(shape);
    for key in keys {
        filter.insert(&digest(*key));
    }
    filter
}

proptest! {
    #[test]
    fn union_and_intersection_are_of_the_sets(
        a in prop::collection::btree_set(0_u64..200, 0..80),
        b in prop::collection::btree_set(0_u64..200, 0..80),
        bits in 1_u64..2_000, probes in 1_u32..8,
    ) {
        let shape = BloomShape::new(bits, probes).unwrap();
        let (of_a, of_b) = (filled(shape, &a), filled(shape, &b));
        let mut union = of_a.clone();
        union.union(&of_b).unwrap();
        prop_assert_eq!(&union, &filled(shape, &a.union(&b).copied().collect()), "to the bit");
        let mut both = of_a.clone();
        both.intersect(&of_b).unwrap();
        for key in 0..200 {
            let asked = digest(key);
            prop_assert!(!(a.contains(&key) && b.contains(&key)) || both.may_contain(&asked));
            let in_each = of_a.may_contain(&asked) && of_b.may_contain(&asked);
            prop_assert_eq!(both.may_contain(&asked), in_each, "no key that one of them refuses");
        }
        prop_assert_eq!(BloomFilter::decode(&union.encode(), MAX_BITS).unwrap(), union);
    }

    #[test]
    fn what_deletion_leaves_is_in(operations in prop::collection::vec((any::<bool>(), 0_u64..12), 0..60)) {
        let shape = BloomShape::new(4_096, 4).unwrap();
        let (mut filter, mut model) = (CountingBloom::new(shape), BTreeMap::<u64, u32>::new());
        for (inserts, key) in operations {
            let held = model.entry(key).or_default();
            if inserts && *held < 4 {
                filter.insert(&digest(key));
                *held += 1;
            } else if *held > 0 {
                filter.delete(&digest(key)).unwrap();
                *held -= 1;
            } else if !filter.may_contain(&digest(key)) {
                let before = filter.clone();
                prop_assert_eq!(filter.delete(&digest(key)), Err(NotInserted));
                prop_assert_eq!(&filter, &before);
            }
        }
        let (mut rebuilt, mut plain) = (CountingBloom::new(shape), BloomFilter::new(shape));
        for (&key, &held) in &model {
            (0..held).for_each(|_| rebuilt.insert(&digest(key)));
            if held > 0 { plain.insert(&digest(key)); }
        }
        prop_assert_eq!(&filter, &rebuilt, "what is deleted leaves no trace");
        prop_assert_eq!(filter.to_filter(), plain);
        let mut merged = filter.clone();
        merged.merge(&filter).unwrap();
        prop_assert_eq!(merged.to_filter(), filter.to_filter());
    }

    #[test]
    fn any_bytes_are_refused_or_a_filter(bytes in prop::collection::vec(any::<u8>(), 0..64), header: bool) {
        let bytes = if header { [vec![1, 3, 128, 0, 0, 0], bytes].concat() } else { bytes };
        if let Ok(filter) = BloomFilter::decode(&bytes, 1 << 10) {
            prop_assert_eq!(filter.encode(), bytes);
            let _ = filter.may_contain(&digest(1));
        }
    }
}
