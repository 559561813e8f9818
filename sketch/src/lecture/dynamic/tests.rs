//! Compares dynamic strings with vectors.

use proptest::prelude::*;

use super::*;

/// An edit of a string: the kind, the position (in 1/2^16 of the length), and the bytes or length.
type Edit = (u8, u16, Vec<u8>, u16);

fn place(len: usize, share: u16) -> usize {
    ((len + 1) * usize::from(share)) >> 16
}

fn apply(string: &mut DynamicString, model: &mut Vec<u8>, edit: &Edit) {
    let (kind, at, bytes, until) = edit;
    let (at, until) = (place(model.len(), *at), place(model.len(), *until));
    match kind % 4 {
        0 => {
            string.insert(at, bytes).unwrap();
            model.splice(at..at, bytes.iter().copied());
        }
        1 => {
            let end = until.max(at).min(at + 40);
            string.delete(at..end).unwrap();
            model.drain(at..end);
        }
        2 => {
            // Rotates the string.
            let mut rest = string.split_off(at).unwrap();
            rest.append(string.clone()).unwrap();
            *string = rest;
            model.rotate_left(at);
        }
        _ => {
            string.insert(at, b"x").unwrap();
            model.insert(at, b'x');
        }
    }
}

fn check(string: &DynamicString) -> usize {
    let mut lengths = Vec::new();
    let depth = string.treap.check(&string.root, &mut lengths);
    for pair in lengths.windows(2) {
        assert!(pair[0] + pair[1] > tree::PIECE, "crumbs: {lengths:?}");
    }
    depth
}

proptest! {
    #[test]
    fn edits_are_those_of_a_vector(
        start in prop::collection::vec(0_u8..3, 0..300),
        edits in prop::collection::vec((any::<u8>(), any::<u16>(), prop::collection::vec(0_u8..3, 0..150), any::<u16>()), 0..25),
        asked: (u16, u16), seed: u64,
    ) {
        let modulus = Modulus::random(seed);
        let mut string = DynamicString::of(&modulus, seed, &start);
        let mut model = start;
        for edit in &edits {
            apply(&mut string, &mut model, edit);
            prop_assert_eq!(string.len(), model.len());
        }
        check(&string);
        prop_assert_eq!(string.bytes(), &model[..]);
        let (a, b) = (place(model.len(), asked.0), place(model.len(), asked.1));
        let range = a.min(b)..a.max(b);
        let expected = Fingerprint::of(&modulus, &model[range.clone()]);
        prop_assert_eq!(string.fingerprint(range), Some(expected));
        prop_assert_eq!(string.byte(a), model.get(a).copied());
    }

    #[test]
    fn order_and_common_prefixes_are_those_of_slices(
        shared in prop::collection::vec(0_u8..2, 0..200),
        ends: (Vec<u8>, Vec<u8>), at: (u16, u16),
    ) {
        let modulus = Modulus::random(3);
        let bytes = [[&shared[..], &ends.0].concat(), [&shared[..], &ends.1].concat()];
        let strings = bytes.each_ref().map(|bytes| DynamicString::of(&modulus, 1, bytes));
        prop_assert_eq!(strings[0].compare(&strings[1]), Ok(bytes[0].cmp(&bytes[1])));
        let at = (place(bytes[0].len(), at.0), place(bytes[1].len(), at.1));
        let pairs = bytes[0][at.0..].iter().zip(&bytes[1][at.1..]);
        let common = pairs.take_while(|(a, b)| a == b).count();
        prop_assert_eq!(strings[0].common_prefix(at.0, &strings[1], at.1), Ok(common));
    }
}

/// The probability that a treap of n nodes is deeper than 5 ln n vanishes with n (Aragon and Seidel
/// 1989): the expected depth of a node is 2 ln n. Priorities come from a fixed seed.
#[test]
fn a_string_typed_one_byte_at_a_time_stays_shallow_and_dense() {
    let modulus = Modulus::random(1);
    let mut string = DynamicString::new(&modulus, 7);
    for i in 0..20_000 {
        string.insert(i, &[i as u8]).unwrap();
    }
    let mut lengths = Vec::new();
    let depth = string.treap.check(&string.root, &mut lengths);
    assert!(lengths.len() < 20_000 / 32, "{} nodes", lengths.len());
    let most = 5.0 * (lengths.len() as f64).ln();
    assert!((depth as f64) < most, "{depth} levels");
}

#[test]
fn places_beyond_the_end_are_named_and_change_nothing() {
    let modulus = Modulus::random(1);
    let mut string = DynamicString::of(&modulus, 1, b"abc");
    let out = |start, end| {
        let len = 3;
        Err(DynamicStringError::OutOfBounds { start, end, len })
    };
    assert_eq!(string.insert(4, b"x"), out(4, 4));
    assert_eq!(string.delete(1..4), out(1, 4));
    #[expect(clippy::reversed_empty_ranges, reason = "what is refused")]
    let reversed = string.delete(2..1);
    assert_eq!(reversed, out(2, 1));
    assert!(string.split_off(4).is_err());
    assert_eq!(string.fingerprint(0..4), None);
    assert_eq!(string.byte(3), None);
    assert_eq!(string.bytes(), b"abc");
    let other = DynamicString::of(&Modulus::random(2), 1, b"abc");
    assert_eq!(string.compare(&other), Err(DynamicStringError::Moduli));
    assert_eq!(string.append(other), Err(DynamicStringError::Moduli));
    let empty = DynamicString::new(&modulus, 1);
    assert!(empty.is_empty() && empty.bytes().is_empty());
    assert_eq!(empty.compare(&string), Ok(Ordering::Less));
}

#[test]
fn strings_of_one_seed_make_no_chain() {
    let modulus = Modulus::random(1);
    let mut string = DynamicString::new(&modulus, 7);
    let nodes = 3_000;
    for i in 0..nodes {
        let piece = [i as u8; tree::PIECE];
        string
            .append(DynamicString::of(&modulus, 7, &piece))
            .unwrap();
    }
    let depth = string.treap.check(&string.root, &mut Vec::new());
    let most = 5.0 * f64::from(nodes).ln();
    assert!((depth as f64) < most, "{depth} levels");
}
