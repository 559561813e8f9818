//! Hot keys of several nodes over windows, compared with exact counts.

#![allow(clippy::cast_possible_truncation, reason = "tests count small numbers")]
#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::collections::HashMap;

use proptest::prelude::*;
use torc_record::{Digest, NamespaceId};
use torc_sketch::hot_keys::{
    HotAnswer, HotKeys, HotKeysOptions, Interval, IntervalLimits, KeyName, NodeWindow, hottest,
};
use torc_sketch::{CombineError, SeedStream, Shape};

const LIMITS: IntervalLimits = IntervalLimits {
    counters: 1 << 16,
    candidates: 1 << 12,
};

fn digest(key: u64) -> Digest {
    Digest(SeedStream::new(key).next_u128().to_be_bytes())
}

fn name(key: u64) -> KeyName {
    KeyName {
        namespace: NamespaceId(key as u32 % 3),
        key: Some(Box::from(key.to_be_bytes())),
    }
}

fn options(k: u32, width_log2: u8) -> HotKeysOptions {
    let shape = Shape::new(width_log2, 4).unwrap();
    HotKeysOptions {
        k,
        shape,
        seed: 1,
        candidate_bytes: 1 << 20,
    }
}

fn record(hot: &mut HotKeys, key: u64, times: u64) {
    (0..times).for_each(|_| hot.record(&digest(key), || name(key)));
}

/// The interval in which each key has this many accesses.
fn interval(options: &HotKeysOptions, accesses: &[(u64, u64)]) -> Interval {
    let mut hot = HotKeys::new(options, 0);
    for &(key, times) in accesses {
        record(&mut hot, key, times);
    }
    hot.snapshot(1000)
}

fn answer(intervals: &[Interval]) -> HotAnswer {
    let windows: Vec<_> = intervals
        .iter()
        .cloned()
        .enumerate()
        .map(|(node, interval)| NodeWindow {
            node: node as u64,
            interval,
        })
        .collect();
    hottest(&windows).unwrap().unwrap()
}

/// Two hexadecimal digits per byte.
fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn encoded(interval: &Interval) -> Vec<u8> {
    let mut out = Vec::new();
    interval.encode(&mut out);
    out
}

#[test]
fn a_key_that_is_hot_only_in_all_nodes_together_is_found_with_where_it_is() {
    let options = options(4, 10);
    // 30 of 100 on one node, 25 of 100 on the other; k = 4.
    let nodes = [
        interval(&options, &[(1, 30), (2, 50), (3, 20)]),
        interval(&options, &[(1, 25), (4, 75)]),
    ];
    let answer = answer(&nodes);
    let summary: Vec<_> = answer
        .keys
        .iter()
        .map(|key| (key.digest, key.estimate, &key.nodes[..]))
        .collect();
    let expected = [
        (digest(4), 75, &[(1, 75)][..]),
        (digest(1), 55, &[(0, 30), (1, 25)]),
        (digest(2), 50, &[(0, 50)]),
    ];
    assert_eq!(summary, expected);
    assert_eq!(
        (answer.window.total(), answer.complete_from, answer.majority),
        (200, 50, None)
    );
    assert_eq!(answer.keys[0].name, name(4));
    assert!((answer.keys[0].share - 0.375).abs() < 1e-9);
}

#[test]
fn a_majority_is_confirmed_by_the_sketch() {
    let options = options(4, 10);
    let of = |accesses: &[(u64, u64)]| answer(&[interval(&options, accesses)]).majority;
    let certain = of(&[(1, 60), (2, 40)]).unwrap();
    assert_eq!((certain.digest, certain.is_certain), (digest(1), true));
    let close = of(&[(1, 5001), (2, 4999)]).unwrap();
    assert_eq!(
        (close.digest, close.is_certain),
        (digest(1), false),
        "closer to half than the error"
    );
    assert_eq!(of(&[(1, 50), (2, 50)]), None);
    // The counter names some key here, but the sketch shows that it has no majority.
    assert_eq!(of(&[(1, 40), (2, 40), (3, 21)]), None);
    assert_eq!(of(&[]), None);
}

#[test]
fn the_majority_of_all_nodes_may_be_that_of_the_second() {
    let options = options(4, 10);
    let nodes = [
        interval(&options, &[(1, 60), (2, 40)]),
        interval(&options, &[(2, 100)]),
    ];
    assert_eq!(
        answer(&nodes).majority.map(|majority| majority.digest),
        Some(digest(2))
    );
}

#[test]
fn merging_keeps_what_is_heavy_in_both_and_the_coarser_k() {
    let mut window = interval(&options(4, 10), &[(1, 30), (2, 70)]);
    window
        .merge(interval(&options(2, 10), &[(2, 40), (3, 60)]))
        .unwrap();
    let digests: Vec<_> = window.candidates().iter().map(|c| c.digest).collect();
    assert_eq!(
        (window.k(), window.threshold(), digests),
        (2, 100, vec![digest(2)])
    );
}

/// Each part may have missed keys, and both may have missed the same key.
#[test]
fn what_parts_may_have_missed_adds_up() {
    let options = HotKeysOptions {
        candidate_bytes: 300,
        ..options(100, 10)
    };
    let accesses: Vec<_> = (0..50).map(|key| (key, 10 + key)).collect();
    let parts = [interval(&options, &accesses), interval(&options, &accesses)];
    let mut both = parts[0].clone();
    both.merge(parts[1].clone()).unwrap();
    assert!(parts[0].missed() > 0, "300 bytes are few");
    assert_eq!(both.missed(), parts[0].missed() + parts[1].missed());
}

#[test]
fn a_candidate_that_comes_twice_is_refused() {
    let bytes = encoded(&interval(&options(4, 3), &[(1, 9)]));
    // Digest, namespace, length and the eight bytes of the key.
    let (rest, candidate) = bytes.split_at(bytes.len() - 30);
    let count_at = rest.len() - 4;
    let twice = [&rest[..count_at], &[2, 0, 0, 0], candidate, candidate].concat();
    assert!(Interval::decode(&twice, &LIMITS).is_err());
    let once = [&rest[..count_at], &[1, 0, 0, 0], candidate].concat();
    assert_eq!(once, bytes, "it is the doubling that is refused");
}

#[test]
fn what_was_not_hot_before_is_new() {
    let options = options(4, 10);
    let before = interval(&options, &[(1, 90), (2, 10)]);
    let mut now = answer(&[interval(&options, &[(1, 50), (2, 50)])]);
    assert!(now.keys.iter().all(|key| key.is_new.is_none()));
    now.compare(&before).unwrap();
    let is_new = |key| {
        now.keys
            .iter()
            .find(|hot| hot.digest == digest(key))
            .unwrap()
            .is_new
    };
    assert_eq!((is_new(1), is_new(2)), (Some(false), Some(true)));
    let nothing = interval(&options, &[]);
    now.compare(&nothing).unwrap();
    assert!(
        now.keys.iter().all(|key| key.is_new == Some(true)),
        "nothing was hot in an empty window"
    );
}

#[test]
fn nodes_that_count_differently_are_not_added_up() {
    let of = |options: &HotKeysOptions| interval(options, &[(1, 1)]);
    let usual = options(4, 10);
    let reseeded = HotKeysOptions { seed: 2, ..usual };
    let mut one = of(&usual);
    let before = one.clone();
    assert_eq!(one.merge(of(&reseeded)), Err(CombineError::Seed));
    assert!(one.merge(of(&options(4, 9))).is_err());
    assert_eq!(one, before);
    assert!(hottest(&[]).unwrap().is_none());
}

#[test]
fn withheld_keys_stay_withheld() {
    let mut hot = HotKeys::new(&options(2, 4), 5);
    hot.record(&digest(1), || KeyName {
        namespace: NamespaceId(9),
        key: None,
    });
    let decoded = Interval::decode(&encoded(&hot.snapshot(6)), &LIMITS).unwrap();
    assert_eq!(
        decoded.candidates()[0].name,
        KeyName {
            namespace: NamespaceId(9),
            key: None
        }
    );
}

#[test]
fn golden_bytes_do_not_change() {
    let mut hot = HotKeys::new(&options(2, 1), 5);
    hot.record(&Digest([7; 16]), || KeyName {
        namespace: NamespaceId(9),
        key: Some(Box::from(*b"key")),
    });
    let hex = hex(&encoded(&hot.snapshot(6)));
    let sketch = sketch_hex();
    let expected = [
        "54484b49",
        "01000000",
        "0500000000000000",
        "0600000000000000",
        "02000000",
        "0000000000000000",
        "07070707070707070707070707070707",
        "0100000000000000",
        &format!("{:02x}000000", sketch.len() / 2),
        &sketch,
        "01000000",
        "07070707070707070707070707070707",
        "09000000",
        "0300",
        "6b6579",
    ];
    assert_eq!(hex, expected.concat());
}

/// The sketch's own golden test covers these bytes.
fn sketch_hex() -> String {
    let mut sketch = torc_sketch::CountMin::new(Shape::new(1, 4).unwrap(), 1);
    sketch.insert(&Digest([7; 16]));
    let mut out = Vec::new();
    sketch.encode(&mut out);
    hex(&out)
}

#[test]
fn damaged_and_oversized_bytes_are_refused() {
    let interval = interval(&options(4, 3), &[(1, 9), (2, 5), (3, 4)]);
    let bytes = encoded(&interval);
    assert_eq!(Interval::decode(&bytes, &LIMITS), Ok(interval));
    for len in 0..bytes.len() {
        assert!(
            Interval::decode(&bytes[..len], &LIMITS).is_err(),
            "cut at {len}"
        );
    }
    let too_long = [&bytes[..], &[0]].concat();
    assert!(Interval::decode(&too_long, &LIMITS).is_err());
    assert!(
        Interval::decode(
            &bytes,
            &IntervalLimits {
                candidates: 1,
                ..LIMITS
            }
        )
        .is_err()
    );
    assert!(
        Interval::decode(
            &bytes,
            &IntervalLimits {
                counters: 31,
                ..LIMITS
            }
        )
        .is_err()
    );
    let mut later = bytes.clone();
    later[4] = 2;
    assert!(
        Interval::decode(&later, &LIMITS).is_err(),
        "a later version"
    );
    let mut backwards = bytes;
    backwards[9] = 0xff;
    assert!(
        Interval::decode(&backwards, &LIMITS).is_err(),
        "it ends before it begins"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// The module's theorem, for any split of the accesses over time and nodes, merged in any
    /// grouping.
    #[test]
    fn every_key_with_a_kth_of_the_window_is_in_the_answer(
        parts in prop::collection::vec(
            prop::collection::vec(((0_u64..30, 0_u64..30).prop_map(|(a, b)| a.min(b)), 1_u64..9), 0..30),
            1..9,
        ),
        k in 1_u32..30, width_log2 in 1_u8..8, merged in 0_usize..8,
    ) {
        let options = options(k, width_log2);
        let mut intervals: Vec<_> = parts.iter().map(|part| interval(&options, part)).collect();
        let merged = merged.min(intervals.len() - 1);
        let mut window = intervals.remove(0);
        intervals.drain(..merged).for_each(|interval| window.merge(interval).unwrap());
        intervals.push(window);
        let answer = answer(&intervals);
        let mut exact: HashMap<u64, u64> = HashMap::new();
        parts.iter().flatten().for_each(|&(key, times)| *exact.entry(key).or_default() += times);
        let total: u64 = exact.values().sum();
        prop_assert_eq!(answer.window.total(), total);
        prop_assert_eq!(answer.complete_from, total.div_ceil(u64::from(k)));
        for (key, count) in exact {
            let hot = answer.keys.iter().find(|hot| hot.digest == digest(key));
            prop_assert!(hot.is_none_or(|hot| hot.estimate >= count && hot.name == name(key)));
            prop_assert!(hot.is_some() || count * u64::from(k) < total, "{} of {}", count, total);
            let is_majority = answer.majority.is_some_and(|majority| majority.digest == digest(key));
            prop_assert!(is_majority || 2 * count <= total);
        }
    }

    #[test]
    fn bytes_come_back_as_they_went(
        part in prop::collection::vec((any::<u64>(), 1_u64..9), 0..40), k in 1_u32..30,
    ) {
        let interval = interval(&options(k, 6), &part);
        prop_assert_eq!(Interval::decode(&encoded(&interval), &LIMITS), Ok(interval));
    }

    #[test]
    fn no_change_to_the_bytes_makes_decoding_or_asking_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = encoded(&interval(&options(4, 3), &[(1, 9), (2, 5), (3, 4)]));
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(interval) = Interval::decode(&bytes, &LIMITS) {
            let window = NodeWindow { node: 1, interval: interval.clone() };
            let _ = hottest(&[window.clone(), window]);
            let again = encoded(&interval);
            prop_assert_eq!(Interval::decode(&again, &LIMITS), Ok(interval));
        }
    }
}
