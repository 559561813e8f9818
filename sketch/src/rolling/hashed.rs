//! Patterns of which only the hashes are kept.
//!
//! The lecture: rolling hashes are a sketch; "of many candidate patterns one stores the hashes alone". A pattern takes 8 bytes a prime,
//! however long it is, and whoever holds the hashes has no copy of the patterns. What is found cannot be compared with the pattern, so it is a candidate:
//! wrong with the probability that [`HashedPatterns::false_match_bound`] states.
//!
//! The first prime rolls over the text; the others are asked only where it agrees, which is hardly ever.

#![expect(clippy::cast_precision_loss, reason = "an expected number of hits")]

use std::collections::BTreeMap;

use torc_record::to_usize;

use super::window::Window;
use super::{MAX_PATTERN_LEN, Moduli};

/// Most patterns.
const MAX_COUNT: usize = 1 << 20;
/// Most different lengths: each is a pass over the text.
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
    /// A bit for the last bits of each hash, eight a pattern: most windows end here.
    filter: Vec<u64>,
    /// The hash under the first prime, and the pattern's number; in order.
    hashes: Vec<(u64, usize)>,
    /// Those under the others, in the same order.
    others: Vec<Vec<u64>>,
}

/// A place where a pattern's hashes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// The first byte, from 0.
    pub start: usize,
    /// The pattern, by the order in which patterns were given.
    pub pattern: usize,
}

/// Why no patterns were hashed. Nothing was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HashedPatternsError {
    /// An empty pattern, or one that is too long.
    #[error("pattern {pattern} has {len} bytes, 1 to {MAX_PATTERN_LEN} are possible")]
    Length {
        /// Its number, from 0.
        pattern: usize,
        /// Its bytes.
        len: usize,
    },
    /// Too many patterns: search for them in parts.
    #[error("{count} patterns, at most {MAX_COUNT} are possible")]
    TooMany {
        /// Given.
        count: usize,
    },
    /// Too many different lengths: cut the patterns to fewer, or search for them in parts.
    #[error("patterns of {lengths} different lengths, at most {MAX_LENGTHS} are possible")]
    TooManyLengths {
        /// Given.
        lengths: usize,
    },
}

impl HashedPatterns {
    /// Hashes patterns, which are not kept. The moduli should be drawn from a seed that those who write the texts do not know.
    ///
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

    /// How many patterns.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Where patterns probably occur in `text`, by place and then by pattern. About 5 ns a byte and length of patterns.
    #[must_use]
    pub fn find(&self, text: &[u8]) -> Vec<Candidate> {
        let mut found = Vec::new();
        for group in &self.groups {
            group.find(&self.moduli, text, &mut found);
        }
        found.sort_unstable();
        found
    }

    /// What bounds the probability that some candidate in a text of `len` bytes is none: the sum over windows and patterns.
    #[must_use]
    pub fn false_match_bound(&self, len: usize) -> f64 {
        let of_group = |group: &Group| {
            let windows = (len + 1).saturating_sub(group.window.len());
            let pairs = windows as f64 * group.hashes.len() as f64;
            pairs * self.moduli.collision_bound(group.window.len())
        };
        self.groups.iter().map(of_group).sum::<f64>().min(1.0)
    }

    /// Bytes of memory that hold the hashes.
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

    /// Notes the patterns whose hashes are those of the window from `start` on.
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

    /// The text holds the first prime as a number: under this prime it is the pattern of zeros.
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
