//! Substring search in a stream, in steps of bounded work.
//!
//! For each length of patterns, the hash of the last bytes is rolled over the text. Where it equals
//! a pattern's, the bytes are compared, so there are no false positives; and no match is missed,
//! because equal strings have equal hashes. All occurrences are found, including overlapping ones.
//!
//! Work is counted: 1 per byte and length of patterns, and 1 per byte compared. The caller gives a
//! budget and gets control back when it is used up, exceeded by at most one byte's work or one
//! comparison. Text may arrive in pieces of any size; the searcher keeps only as many past bytes as
//! the longest pattern and a block have.
//!
//! A block is processed for one length of patterns after another, each in a separate loop, and
//! candidates are compared afterwards.

use super::Patterns;
use super::patterns::Group;

/// Bytes processed at a time.
const BLOCK: usize = 4096;

/// An occurrence of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Match {
    /// Offset of its first byte in the text.
    pub start: u64,
    /// The index of the pattern.
    pub pattern: usize,
}

/// Why [`Searcher::scan`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// A pattern occurs. Continue after the `consumed` bytes of the piece; there may be more
    /// matches at the same place, even if the whole piece is consumed.
    Found {
        /// The occurrence.
        found: Match,
        /// Bytes of the piece already processed.
        consumed: usize,
    },
    /// The budget is used up. Continue after the `consumed` bytes of the piece, with a new budget.
    Paused {
        /// Bytes of the piece already processed.
        consumed: usize,
    },
    /// The piece is fully processed.
    Finished,
}

/// A window with the hash of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Suspect {
    /// Offset of its end in the text.
    end: u64,
    pattern: usize,
}

/// A search through one text.
#[derive(Debug, Clone)]
pub struct Searcher {
    patterns: Patterns,
    /// One per group of patterns, lazily reduced.
    hashes: Vec<u64>,
    /// The last bytes: as many as the longest pattern has, if there were so many, and those of the
    /// block.
    recent: Vec<u8>,
    /// Bytes of the text so far; `recent` ends there.
    position: u64,
    /// Not compared yet, in reverse order.
    suspects: Vec<Suspect>,
}

impl Searcher {
    /// Starts at the beginning of a text.
    #[must_use]
    pub fn new(patterns: &Patterns) -> Self {
        Self {
            patterns: patterns.clone(),
            hashes: vec![0; patterns.groups().len()],
            recent: Vec::new(),
            position: 0,
            suspects: Vec::new(),
        }
    }

    /// Starts another text.
    pub fn restart(&mut self) {
        self.hashes.fill(0);
        self.recent.clear();
        self.position = 0;
        self.suspects.clear();
    }

    /// Bytes of the text so far.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Continues through the next piece of the text until a match, the end of the piece, or the end
    /// of `budget`, from which it subtracts the work done. About 3 ns per byte and length of
    /// patterns.
    pub fn scan(&mut self, piece: &[u8], budget: &mut u64) -> Scan {
        let mut consumed = 0;
        loop {
            let is_paused = *budget == 0;
            if let Some(suspect) = self.suspects.pop_if(|_| !is_paused) {
                if let Some(found) = self.verify(suspect, budget) {
                    return Scan::Found { found, consumed };
                }
            } else if is_paused && (consumed < piece.len() || !self.suspects.is_empty()) {
                return Scan::Paused { consumed };
            } else if consumed == piece.len() {
                return Scan::Finished;
            } else {
                consumed += self.roll(&piece[consumed..], budget);
            }
        }
    }

    /// Processes a block as far as the budget allows; returns the number of its bytes.
    fn roll(&mut self, piece: &[u8], budget: &mut u64) -> usize {
        let groups = self.patterns.groups();
        let affordable = budget.div_ceil(groups.len() as u64);
        let affordable = usize::try_from(affordable).unwrap_or(usize::MAX);
        let block = &piece[..piece.len().min(affordable).min(BLOCK)];
        forget_all_but(&mut self.recent, self.patterns.longest());
        let before = self.recent.len();
        self.recent.extend_from_slice(block);
        for (group, hash) in groups.iter().zip(&mut self.hashes) {
            let ends = roll_group(group, hash, &self.recent, before);
            for (at, hash) in ends {
                let end = self.position + at as u64;
                let same = group.with_hash(hash).iter();
                self.suspects
                    .extend(same.map(|&(_, pattern)| Suspect { end, pattern }));
            }
        }
        self.suspects.sort_unstable_by(|a, b| b.cmp(a));
        self.position += block.len() as u64;
        *budget = budget.saturating_sub(block.len() as u64 * groups.len() as u64);
        block.len()
    }

    /// Compares a candidate's pattern with the bytes.
    fn verify(&self, suspect: Suspect, budget: &mut u64) -> Option<Match> {
        let pattern = self.patterns.get(suspect.pattern)?;
        *budget = budget.saturating_sub(pattern.len() as u64);
        let start = suspect.end.checked_sub(pattern.len() as u64)?;
        let behind = usize::try_from(self.position - start).ok()?;
        let first = self.recent.len().checked_sub(behind)?;
        let is_there = self.recent[first..].starts_with(pattern);
        is_there.then_some(Match {
            start,
            pattern: suspect.pattern,
        })
    }

    /// All occurrences in a text in memory, in the order of their ends, without a limit on the
    /// work.
    #[must_use]
    pub fn find_all(patterns: &Patterns, text: &[u8]) -> Vec<Match> {
        let mut searcher = Self::new(patterns);
        let (mut rest, mut matches) = (text, Vec::new());
        loop {
            match searcher.scan(rest, &mut u64::MAX.clone()) {
                Scan::Found { found, consumed } => {
                    matches.push(found);
                    rest = &rest[consumed..];
                }
                Scan::Paused { consumed } => rest = &rest[consumed..],
                Scan::Finished => return matches,
            }
        }
    }
}

/// Removes old bytes down to `kept`, once that pays off.
fn forget_all_but(recent: &mut Vec<u8>, kept: usize) {
    if recent.len() > 2 * kept + BLOCK {
        recent.drain(..recent.len() - kept);
    }
}

/// Rolls one group's window over the bytes from `before` on. Returns the possible matches: the
/// offset of the end, and the hash.
fn roll_group(group: &Group, hash: &mut u64, recent: &[u8], before: usize) -> Vec<(usize, u64)> {
    let (window, block) = (&group.window, &recent[before..]);
    let mut ends = Vec::new();
    let mut rolled = *hash;
    // At the start of a text no byte leaves the window; a 0 changes nothing.
    let filling = window.len().saturating_sub(before).min(block.len());
    for &entering in &block[..filling] {
        rolled = window.roll(rolled, entering, 0);
    }
    if filling > 0 && before + filling == window.len() {
        ends.push((filling, window.canonical(rolled)));
    }
    let left = &recent[(before + filling).saturating_sub(window.len())..];
    for (at, (&entering, &leaving)) in block[filling..].iter().zip(left).enumerate() {
        rolled = window.roll(rolled, entering, leaving);
        let canonical = window.canonical(rolled);
        if group.may_have(canonical) {
            ends.push((filling + at + 1, canonical));
        }
    }
    *hash = rolled;
    ends
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rolling::{MAX_PATTERN_LEN, Modulus, PatternError};

    fn patterns(of: &[&[u8]]) -> Patterns {
        Patterns::new(&Modulus::random(1), of).unwrap()
    }

    fn naive(patterns: &Patterns, text: &[u8]) -> Vec<Match> {
        let mut matches = Vec::new();
        for pattern in 0..patterns.count() {
            let needle = patterns.get(pattern).unwrap();
            let found = text
                .windows(needle.len())
                .enumerate()
                .filter(|(_, window)| *window == needle);
            matches.extend(found.map(|(start, _)| Match {
                start: start as u64,
                pattern,
            }));
        }
        matches.sort_unstable();
        matches
    }

    #[test]
    fn overlapping_and_nested_occurrences_are_all_found() {
        let patterns = patterns(&[b"aa", b"aaa", b"aa", b"b", b"\0\0"]);
        for text in [&b"aaaab"[..], b"", b"a", b"\0", b"\0\0\0", b"xaab\0b"] {
            let mut found = Searcher::find_all(&patterns, text);
            found.sort_unstable();
            assert_eq!(found, naive(&patterns, text), "{text:?}");
        }
    }

    #[test]
    fn patterns_that_mean_nothing_are_refused() {
        let made = |patterns: &[&[u8]]| Patterns::new(&Modulus::random(1), patterns).err();
        assert_eq!(made(&[]), Some(PatternError::Empty));
        assert_eq!(made(&[b"a", b""]), Some(PatternError::Empty));
        assert_eq!(
            made(&[&b"a"[..]; 65]),
            Some(PatternError::TooMany { count: 65 })
        );
        let long = vec![0; MAX_PATTERN_LEN + 1];
        assert_eq!(
            made(&[&long]),
            Some(PatternError::TooLong {
                len: MAX_PATTERN_LEN + 1
            })
        );
        assert_eq!(made(&[&long[1..]]), None);
    }

    #[test]
    fn a_hash_that_occurs_without_its_pattern_is_no_match() {
        let modulus = Modulus::random(1);
        // q itself, as a number of eight bytes, has the same hash as eight zero bytes.
        let collides = modulus.prime().to_be_bytes();
        let patterns = Patterns::new(&modulus, &[[0; 8]]).unwrap();
        assert_eq!(modulus.hash(&collides), modulus.hash(&[0; 8]));
        assert_eq!(Searcher::find_all(&patterns, &collides), []);
    }

    #[test]
    fn a_step_keeps_to_its_budget_and_the_next_goes_on_from_there() {
        let patterns = patterns(&[b"needle", b"hay"]);
        let text = b"hay, hay and a needle in the hay";
        let (mut searcher, mut rest) = (Searcher::new(&patterns), &text[..]);
        let (mut found, mut steps) = (Vec::new(), 0);
        loop {
            steps += 1;
            let before = rest.len();
            match searcher.scan(rest, &mut 4) {
                Scan::Found {
                    found: one,
                    consumed,
                } => {
                    found.push(one);
                    rest = &rest[consumed..];
                }
                Scan::Paused { consumed } => rest = &rest[consumed..],
                Scan::Finished => break,
            }
            assert!(before - rest.len() <= 2, "two lengths: two bytes for 4");
        }
        found.sort_unstable();
        assert_eq!(found, naive(&patterns, text));
        assert!(steps >= text.len() / 2);
    }

    #[test]
    fn what_was_found_in_the_last_text_is_not_found_in_the_next() {
        let patterns = patterns(&[b"a", b"a"]);
        let mut searcher = Searcher::new(&patterns);
        let found = Match {
            start: 2,
            pattern: 0,
        };
        assert_eq!(
            searcher.scan(b"xxa", &mut 99),
            Scan::Found { found, consumed: 3 }
        );
        searcher.restart();
        assert_eq!(
            searcher.scan(b"", &mut 99),
            Scan::Finished,
            "the second pattern's match was not told, and is not of this text"
        );
    }

    /// Longer than a block, so that old bytes are removed although a pattern still needs some.
    #[test]
    fn a_long_text_has_all_matches_of_long_and_short_patterns() {
        let mut seeds = crate::SeedStream::new(5);
        let text: Vec<u8> = (0..40_000).map(|_| seeds.below(4) as u8).collect();
        let patterns = patterns(&[
            &text[20_000..26_000],
            &text[39_000..],
            &text[7..13],
            b"\0\0",
        ]);
        for piece in [40_000, 5000, 4096, 999] {
            let mut searcher = Searcher::new(&patterns);
            let mut found = Vec::new();
            for mut rest in text.chunks(piece) {
                while let Scan::Found {
                    found: one,
                    consumed,
                } = searcher.scan(rest, &mut 1_000_000)
                {
                    found.push(one);
                    rest = &rest[consumed..];
                }
            }
            assert!(found.is_sorted_by_key(
                |found| found.start + patterns.get(found.pattern).unwrap().len() as u64
            ));
            found.sort_unstable();
            assert_eq!(found, naive(&patterns, &text), "in pieces of {piece}");
        }
    }

    #[test]
    fn another_text_does_not_begin_with_the_last_one() {
        let patterns = patterns(&[b"ab"]);
        let mut searcher = Searcher::new(&patterns);
        assert_eq!(searcher.scan(b"a", &mut 99), Scan::Finished);
        searcher.restart();
        assert_eq!(searcher.scan(b"b", &mut 99), Scan::Finished);
        let found = Match {
            start: 1,
            pattern: 0,
        };
        assert_eq!(
            searcher.scan(b"ab", &mut 99),
            Scan::Found { found, consumed: 2 }
        );
        assert_eq!(searcher.position(), 3);
    }

    proptest! {
        #[test]
        fn exactly_the_occurrences_are_found_however_the_text_is_cut(
            text in prop::collection::vec(0_u8..3, 0..300),
            needles in prop::collection::vec(prop::collection::vec(0_u8..3, 1..6), 1..6),
            cut in 1_usize..50, budget in 1_u64..40,
        ) {
            let patterns = Patterns::new(&Modulus::random(3), &needles).unwrap();
            let mut searcher = Searcher::new(&patterns);
            let mut found = Vec::new();
            for piece in text.chunks(cut) {
                let mut rest = piece;
                loop {
                    match searcher.scan(rest, &mut budget.clone()) {
                        Scan::Found { found: one, consumed } => {
                            found.push(one);
                            rest = &rest[consumed..];
                        }
                        Scan::Paused { consumed } => rest = &rest[consumed..],
                        Scan::Finished => break,
                    }
                }
            }
            found.sort_unstable();
            prop_assert_eq!(found, naive(&patterns, &text));
        }
    }
}
