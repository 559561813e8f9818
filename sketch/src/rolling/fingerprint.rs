//! Hashes of substrings and of concatenations, in constant time.

use std::ops::Range;

use super::Modulus;

/// The hash of a string, with the data needed to append to it. 24 bytes, whatever the string.
///
/// Leading zero bytes do not change a hash, so the length is part of it. Fingerprints of different
/// moduli are not comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    hash: u64,
    /// 256^len.
    shift: u64,
    len: u64,
}

impl Fingerprint {
    /// The fingerprint of the empty string.
    pub const EMPTY: Self = Self {
        hash: 0,
        shift: 1,
        len: 0,
    };

    /// The fingerprint of `bytes`. About 4 ns per byte.
    #[must_use]
    pub fn of(modulus: &Modulus, bytes: &[u8]) -> Self {
        let len = bytes.len() as u64;
        Self {
            hash: modulus.hash(bytes),
            shift: modulus.shift(len),
            len,
        }
    }

    /// The fingerprint of this string followed by `other`: `256^|T| h(S) + h(T)`. About 8 ns.
    #[must_use]
    pub const fn concat(&self, modulus: &Modulus, other: &Self) -> Self {
        Self {
            hash: modulus.add(modulus.multiply(self.hash, other.shift), other.hash),
            shift: modulus.multiply(self.shift, other.shift),
            len: self.len.saturating_add(other.len),
        }
    }

    /// The fingerprint of the rest of this string after `prefix`, with which it begins:
    /// `h(S[..j]) - 256^(j-i) h(S[..i])`. `None` if the prefix is longer than the string. 12 ns per
    /// bit of the length.
    #[must_use]
    pub const fn without_prefix(&self, modulus: &Modulus, prefix: &Self) -> Option<Self> {
        let Some(len) = self.len.checked_sub(prefix.len) else {
            return None;
        };
        let shift = modulus.shift(len);
        let hash = modulus.subtract(self.hash, modulus.multiply(prefix.hash, shift));
        Some(Self { hash, shift, len })
    }

    /// The hash.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// Length of the string, bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether the string is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The hash of every prefix of a string: 16 bytes per byte of it.
#[derive(Debug, Clone)]
pub struct PrefixHashes {
    modulus: Modulus,
    /// For the first i bytes: the hash, and 256^i.
    prefixes: Vec<(u64, u64)>,
}

impl PrefixHashes {
    /// Hashes `text`. About 6 ns per byte.
    #[must_use]
    pub fn new(modulus: &Modulus, text: &[u8]) -> Self {
        let mut prefixes = Vec::with_capacity(text.len() + 1);
        let (mut hash, mut shift) = (0, 1);
        prefixes.push((hash, shift));
        for &byte in text {
            hash = modulus.push(hash, byte);
            shift = modulus.push(shift, 0);
            prefixes.push((hash, shift));
        }
        Self {
            modulus: *modulus,
            prefixes,
        }
    }

    /// The hash of a substring: `h(S[..j]) - 256^(j-i) h(S[..i])`. `None` if it extends beyond the
    /// text. About 5 ns.
    #[must_use]
    pub fn substring(&self, range: Range<usize>) -> Option<Fingerprint> {
        let len = range.end.checked_sub(range.start)?;
        let ((before, _), (until, _)) = (
            self.prefixes.get(range.start)?,
            self.prefixes.get(range.end)?,
        );
        let (_, shift) = *self.prefixes.get(len)?;
        let hash = self
            .modulus
            .subtract(*until, self.modulus.multiply(*before, shift));
        Some(Fingerprint {
            hash,
            shift,
            len: len as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn leading_zeros_are_told_apart_by_the_length() {
        let modulus = Modulus::random(1);
        let (short, long) = (
            Fingerprint::of(&modulus, b"a"),
            Fingerprint::of(&modulus, b"\0a"),
        );
        assert_eq!(short.hash(), long.hash());
        assert_ne!(short, long);
    }

    /// 2,016 pairs of strings of 4 bytes, each pair with 50 primes: by the bound, any pair collides
    /// with a probability below 5e-10.
    #[test]
    fn close_strings_do_not_collide_under_any_prime() {
        let strings: Vec<Vec<u8>> = (0..64_u32)
            .map(|i| (1 << (i % 32) ^ i).to_le_bytes().to_vec())
            .collect();
        for seed in 0..50 {
            let modulus = Modulus::random(seed);
            let mut hashes: Vec<u64> = strings.iter().map(|string| modulus.hash(string)).collect();
            hashes.sort_unstable();
            hashes.dedup();
            assert_eq!(hashes.len(), 64, "prime {}", modulus.prime());
        }
        assert!(Modulus::collision_bound(4) * 2016.0 * 50.0 < 5e-10);
        assert!(
            Modulus::collision_bound(1 << 20) < 1.2e-9,
            "two values of 1 MiB"
        );
    }

    proptest! {
        #[test]
        fn a_substring_hashes_as_by_itself_and_parts_concatenate(
            text in prop::collection::vec(any::<u8>(), 0..200),
            ends: (prop::sample::Index, prop::sample::Index), seed in 0_u64..4,
        ) {
            let modulus = Modulus::random(seed);
            let prefixes = PrefixHashes::new(&modulus, &text);
            let ends = (ends.0.index(text.len() + 1), ends.1.index(text.len() + 1));
            let (start, end) = (ends.0.min(ends.1), ends.0.max(ends.1));
            let of = |bytes| Fingerprint::of(&modulus, bytes);
            prop_assert_eq!(prefixes.substring(start..end), Some(of(&text[start..end])));
            let joined = of(&text[..start]).concat(&modulus, &of(&text[start..end]));
            prop_assert_eq!(joined, of(&text[..end]));
            prop_assert_eq!(of(&text).concat(&modulus, &Fingerprint::EMPTY), of(&text));
            let rest = of(&text[..end]).without_prefix(&modulus, &of(&text[..start]));
            prop_assert_eq!(rest, Some(of(&text[start..end])));
            let longer = of(&text[..start]).without_prefix(&modulus, &of(&text[..end]));
            prop_assert_eq!(longer.is_some(), start == end);
            prop_assert_eq!(prefixes.substring(0..text.len() + 1), None);
            prop_assert_eq!(prefixes.substring(end + 1..end), None);
        }
    }
}
