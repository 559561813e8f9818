//! A search for patterns that stores only their hashes.
//!
//! The lecture: rolling hashes are a sketch; "of many candidate patterns one stores the hashes
//! alone". A pattern takes 8 bytes per prime, however long it is, and the holder of the hashes has
//! no copy of the patterns. A match cannot be compared with the pattern, so it is a candidate:
//! wrong with the probability that [`HashedPatterns::false_match_bound`] states.
//!
//! The first prime is rolled over the text; the others are computed only where it matches, which is
//! rare.

#![expect(clippy::cast_precision_loss, reason = "an expected number of hits")]

use std::collections::BTreeMap;

use torc_record::to_usize;

use super::window::Window;
use super::{MAX_PATTERN_LEN, Moduli};

/// Limit on the patterns.
const MAX_COUNT: usize = 1 << 20;
/// Limit on the different lengths: each takes a pass over the text.
const MAX_LENGTHS: usize = 64;

/// Hashes of patterns, grouped by length; see the module.
#[derive(Debug, Clone)]
pub struct HashedPatterns {
    moduli: Moduli,
    groups: Vec<Group>,
    count: usize,
}

/// The patterns of one length.
#[derive(Debug, Clone)]
struct Group {
    window: Window,
    /// A bit for the last bits of each hash, eight per pattern: rejects most windows.
    filter: Vec<u64>,
    /// The hash under the first prime, and the pattern's index; sorted.
    hashes: Vec<(u64, usize)>,
    /// The hashes under the other primes, in the same order.
    others: Vec<Vec<u64>>,
}

/// A place where the text has the hashes of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// Offset of the first byte.
    pub start: usize,
    /// The pattern's index.
    pub pattern: usize,
}

/// Why the patterns were not hashed. Nothing was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HashedPatternsError {
    /// A pattern is empty or too long.
    #[error("pattern {pattern} has {len} bytes, 1 to {MAX_PATTERN_LEN} are possible")]
    Length {
        /// Its index.
        pattern: usize,
        /// Its length, bytes.
        len: usize,
    },
    /// Too many patterns: search for them in several parts.
    #[error("{count} patterns, at most {MAX_COUNT} are possible")]
    TooMany {
        /// The given number.
        count: usize,
    },
    /// Too many different lengths: truncate the patterns to fewer lengths, or search for them in
    /// several parts.
    #[error("patterns of {lengths} different lengths, at most {MAX_LENGTHS} are possible")]
    TooManyLengths {
        /// The given number.
        lengths: usize,
    },
}

impl HashedPatterns {
    /// Hashes patterns without storing them. Draw the moduli from a seed that the authors of the
    /// texts do not know.
    /// # Errors
    /// [`HashedPatternsError`] for empty or too long patterns, and for too many.
    pub fn new<P: AsRef<[u8]>>(
        moduli: &Moduli,
        patterns: &[P],
    ) -> Result<Self, HashedPatternsError> {
        let count = patterns.len();
        if count > MAX_COUNT {
            return Err(HashedPatternsError::TooMany { count });
        }
        let mut by_len: BTreeMap<usize, Vec<(Vec<u64>, usize)>> = BTreeMap::new();
        for (pattern, bytes) in patterns.iter().enumerate() {
            let bytes = bytes.as_ref();
            let len = bytes.len();
            if len == 0 || len > MAX_PATTERN_LEN {
                return Err(HashedPatternsError::Length { pattern, len });
            }
            let hashes = (moduli.hash(bytes), pattern);
            by_len.entry(len).or_default().push(hashes);
        }
        let lengths = by_len.len();
        if lengths > MAX_LENGTHS {
            return Err(HashedPatternsError::TooManyLengths { lengths });
        }
        let groups = by_len.into_iter();
        Ok(Self {
            groups: groups
                .map(|(len, of)| Group::new(moduli, len, of))
                .collect(),
            moduli: moduli.clone(),
            count,
        })
    }

    /// Number of patterns.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The probable occurrences of patterns in `text`, by position, then by pattern. About 5 ns per
    /// byte and per length of patterns.
    #[must_use]
    pub fn find(&self, text: &[u8]) -> Vec<Candidate> {
        let mut found = Vec::new();
        for group in &self.groups {
            group.find(&self.moduli, text, &mut found);
        }
        found.sort_unstable();
        found
    }

    /// An upper bound of the probability that some candidate in a text of `len` bytes is wrong: the
    /// sum over windows and patterns.
    #[must_use]
    pub fn false_match_bound(&self, len: usize) -> f64 {
        let of_group = |group: &Group| {
            let windows = (len + 1).saturating_sub(group.window.len());
            let pairs = windows as f64 * group.hashes.len() as f64;
            pairs * self.moduli.collision_bound(group.window.len())
        };
        self.groups.iter().map(of_group).sum::<f64>().min(1.0)
    }

    /// Memory of the hashes, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let per_pattern = size_of::<(u64, usize)>() + 8 * (self.moduli.count() - 1);
        let groups = self.groups.iter();
        let of_group = |group: &Group| group.hashes.len() * per_pattern + 8 * group.filter.len();
        groups.map(of_group).sum()
    }
}

impl Group {
    fn new(moduli: &Moduli, len: usize, mut patterns: Vec<(Vec<u64>, usize)>) -> Self {
        patterns.sort_unstable();
        let mut filter = vec![0; patterns.len().div_ceil(8).next_power_of_two()];
        let mask = 64 * filter.len() - 1;
        for (hashes, _) in &patterns {
            let bit = to_usize(hashes[0]) & mask;
            filter[bit / 64] |= 1 << (bit % 64);
        }
        let (hashes, others) = patterns
            .into_iter()
            .map(|(hashes, pattern)| ((hashes[0], pattern), hashes[1..].to_vec()))
            .unzip();
        Self {
            window: Window::new(moduli.first(), len),
            filter,
            hashes,
            others,
        }
    }

    fn find(&self, moduli: &Moduli, text: &[u8], found: &mut Vec<Candidate>) {
        let len = self.window.len();
        let Some(first) = text.get(..len) else { return };
        let mut hash = moduli.first().hash(first);
        self.look_up(moduli, hash, 0, text, found);
        for (start, (&leaving, &entering)) in text.iter().zip(&text[len..]).enumerate() {
            hash = self.window.roll(hash, entering, leaving);
            let canonical = self.window.canonical(hash);
            self.look_up(moduli, canonical, start + 1, text, found);
        }
    }

    /// Adds the patterns with the hashes of the window that starts at `start`.
    #[inline]
    fn look_up(
        &self,
        moduli: &Moduli,
        hash: u64,
        start: usize,
        text: &[u8],
        found: &mut Vec<Candidate>,
    ) {
        let bit = to_usize(hash) & (64 * self.filter.len() - 1);
        if self.filter[bit / 64] >> (bit % 64) & 1 == 0 {
            return;
        }
        let window = &text[start..start + self.window.len()];
        let first = self.hashes.partition_point(|(other, _)| *other < hash);
        let hashes = self.hashes[first..].iter().zip(&self.others[first..]);
        for ((_, pattern), others) in hashes.take_while(|((other, _), _)| *other == hash) {
            if moduli.others_agree(window, others) {
                let pattern = *pattern;
                found.push(Candidate { start, pattern });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_that_cannot_be_hashed_are_named() {
        let moduli = Moduli::random(1, 1).unwrap();
        let refused = HashedPatterns::new(&moduli, &["a", ""]).map(|_| ());
        let (pattern, len) = (1, 0);
        assert_eq!(refused, Err(HashedPatternsError::Length { pattern, len }));
        let lengths: Vec<String> = (1..66).map(|len| "a".repeat(len)).collect();
        let refused = HashedPatterns::new(&moduli, &lengths).map(|_| ());
        let lengths = 65;
        assert_eq!(
            refused,
            Err(HashedPatternsError::TooManyLengths { lengths })
        );
        let none = HashedPatterns::new::<&str>(&moduli, &[]).unwrap();
        assert_eq!((none.count(), none.find(b"abc")), (0, vec![]));
        let long = HashedPatterns::new(&moduli, &["long"]).unwrap();
        assert_eq!(long.find(b"lon"), []);
        assert!(long.false_match_bound(1 << 20) < 1e-8);
    }

    /// The text contains the first prime as a number: under this prime, it looks like the pattern
    /// of zeros.
    #[test]
    fn one_prime_can_be_deceived_and_two_cannot() {
        let one = Moduli::random(5, 1).unwrap();
        let two = Moduli::random(5, 2).unwrap();
        assert_eq!(one.first(), two.first());
        let text = one.first().prime().to_be_bytes();
        let found = |moduli| HashedPatterns::new(moduli, &[[0; 8]]).unwrap().find(&text);
        assert_eq!(found(&one).len(), 1, "a false candidate");
        assert_eq!(found(&two), []);
    }

    proptest! {
        #[test]
        fn exactly_the_occurrences_are_candidates(
            text in prop::collection::vec(0_u8..2, 0..200),
            patterns in prop::collection::vec(prop::collection::vec(0_u8..2, 1..9), 0..12), primes in 1_usize..4,
        ) {
            let moduli = Moduli::random(9, primes).unwrap();
            let hashed = HashedPatterns::new(&moduli, &patterns).unwrap();
            let mut expected = Vec::new();
            for start in 0..text.len() {
                for (pattern, bytes) in patterns.iter().enumerate() {
                    if text[start..].starts_with(bytes) { expected.push(Candidate { start, pattern }); }
                }
            }
            prop_assert_eq!(hashed.find(&text), expected);
        }
    }
}
