//! Finds strings in texts in memory, with the fastest method for the patterns.
//!
//! *Answer*: all occurrences, including overlapping ones, in the order of their ends, up to a
//! limit. Exact.
//!
//! | patterns | found by | why |
//! |---|---|---|
//! | one to [`MAX_MEMMEM`] | `memchr::memmem` for each | rare bytes are searched for 32 at a time |
//! | more, up to [`MAX_AUTOMATON_LEN`] bytes in total | an automaton (`aho-corasick`) | one pass for all, whatever their lengths |
//! | longer ones, at least [`MIN_HASHED`] per length | rolling hashes ([`super::rolling`]) | an automaton takes 12 bytes per byte of the patterns, and 50 during its construction |
//! | other longer ones | `memchr::memmem` | each length would take a pass of the rolling hash |
//!
//! `torc-bench sketch` measures all three in each case; `bench/README.md` has the table. Rolling
//! hashes are also necessary if only hashes of the patterns are stored, or if the text is a stream
//! ([`super::rolling::HashedPatterns`], [`super::rolling::Searcher`]).
//!
//! No text makes a search slow: each takes time linear in text and patterns, and returns control in
//! between.

use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use memchr::memmem;

use super::rolling::{Match, Modulus, PatternError, Patterns, Scan, Searcher};

/// Limit on the patterns that are searched for one by one.
pub const MAX_MEMMEM: usize = 8;
/// Limit on the total bytes of the patterns of an automaton.
pub const MAX_AUTOMATON_LEN: usize = 64 << 10;
/// Least number of patterns of one length that are hashed instead of being searched for one by one.
pub const MIN_HASHED: usize = 40;
/// Bytes, or work of rolling hashes, between two checks whether to continue.
const STEP: u64 = 1 << 20;

/// How strings are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// One by one, by rare bytes.
    Memmem,
    /// All in one pass.
    Automaton,
    /// All of one length in one pass.
    Hashes,
}

/// Strings to search for.
///
/// Clones share the large parts.
#[derive(Debug, Clone)]
pub struct Finder {
    patterns: Patterns,
    engine: Engine,
}

#[derive(Debug, Clone)]
enum Engine {
    Memmem(Arc<[memmem::Finder<'static>]>),
    Automaton(AhoCorasick),
    Hashes(Box<Searcher>),
}

/// The occurrences in a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Matches {
    /// In the order of their ends.
    pub first: Vec<Match>,
    /// Whether there are more.
    pub more: bool,
}

impl Finder {
    /// Prepares strings; a [`Match`] refers to them by index. Draw the modulus from a seed that the
    /// authors of the texts do not know.
    ///
    /// # Errors
    /// [`PatternError`] if there are none, one is empty or too long, or there are too many.
    pub fn new<P: AsRef<[u8]>>(modulus: &Modulus, patterns: &[P]) -> Result<Self, PatternError> {
        let lengths = || patterns.iter().map(|it| it.as_ref().len());
        let len: usize = lengths().sum();
        let of_one_length = lengths().min() == lengths().max();
        let method = match patterns.len() {
            ..=MAX_MEMMEM => Method::Memmem,
            _ if len <= MAX_AUTOMATON_LEN => Method::Automaton,
            MIN_HASHED.. if of_one_length => Method::Hashes,
            _ => Method::Memmem,
        };
        Self::by(method, modulus, patterns)
    }

    /// Prepares strings for one method; falls back to hashes if an automaton cannot be built.
    ///
    /// # Errors
    /// As [`Finder::new`].
    pub fn by<P: AsRef<[u8]>>(
        method: Method,
        modulus: &Modulus,
        patterns: &[P],
    ) -> Result<Self, PatternError> {
        let compiled = Patterns::new(modulus, patterns)?;
        let hashes = || Engine::Hashes(Box::new(Searcher::new(&compiled)));
        let engine = match method {
            Method::Memmem => {
                let of = |pattern: &P| memmem::Finder::new(pattern.as_ref()).into_owned();
                Engine::Memmem(patterns.iter().map(of).collect())
            }
            Method::Automaton => AhoCorasick::builder()
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .build(patterns)
                .map_or_else(|_| hashes(), Engine::Automaton),
            Method::Hashes => hashes(),
        };
        Ok(Self {
            patterns: compiled,
            engine,
        })
    }

    /// Its method.
    #[must_use]
    pub const fn method(&self) -> Method {
        match self.engine {
            Engine::Memmem(_) => Method::Memmem,
            Engine::Automaton(_) => Method::Automaton,
            Engine::Hashes(_) => Method::Hashes,
        }
    }

    /// The first `most` occurrences in a text. After each MiB of work, counted across texts, it
    /// asks whether to continue; `None` if not.
    pub fn find(
        &mut self,
        text: &[u8],
        most: usize,
        budget: &mut Budget<impl FnMut() -> bool>,
    ) -> Option<Matches> {
        let one_more = most.saturating_add(1);
        let mut found = match &mut self.engine {
            Engine::Memmem(finders) => each(finders, text, one_more, budget)?,
            Engine::Automaton(automaton) => all(automaton, text, one_more, budget)?,
            Engine::Hashes(searcher) => rolled(searcher, text, one_more, budget)?,
        };
        let end =
            |it: &Match| it.start + self.patterns.get(it.pattern).map_or(0, <[u8]>::len) as u64;
        found.sort_unstable_by_key(|it| (end(it), it.pattern));
        let more = found.len() > most;
        found.truncate(most);
        Some(Matches { first: found, more })
    }
}

/// Decides how much work is done before control returns.
#[derive(Debug)]
pub struct Budget<G> {
    left: u64,
    go_on: G,
}

impl<G: FnMut() -> bool> Budget<G> {
    /// Calls `go_on` after each MiB of work.
    pub const fn new(go_on: G) -> Self {
        Self { left: STEP, go_on }
    }

    /// Whether to continue after this many more bytes.
    fn spend(&mut self, bytes: usize) -> bool {
        self.left = self.left.saturating_sub(bytes as u64);
        self.left > 0 || self.renew()
    }

    fn renew(&mut self) -> bool {
        self.left = STEP;
        (self.go_on)()
    }
}

/// The first `most` of each pattern, which include the first `most` of all.
fn each(
    finders: &[memmem::Finder<'_>],
    text: &[u8],
    most: usize,
    budget: &mut Budget<impl FnMut() -> bool>,
) -> Option<Vec<Match>> {
    let mut found = Vec::new();
    for (pattern, finder) in finders.iter().enumerate() {
        let mut from = 0;
        for _ in 0..most {
            let Some(at) = finder.find(&text[from..]) else {
                break;
            };
            found.push(Match {
                start: (from + at) as u64,
                pattern,
            });
            from += at + 1;
        }
        if !budget.spend(text.len()) {
            return None;
        }
    }
    Some(found)
}

/// The first `most`, and others that end where the last of them does.
fn all(
    automaton: &AhoCorasick,
    text: &[u8],
    most: usize,
    budget: &mut Budget<impl FnMut() -> bool>,
) -> Option<Vec<Match>> {
    let mut found: Vec<Match> = Vec::new();
    let mut last = 0;
    // Finds the first occurrence with a prefilter, which a search for overlapping ones cannot use.
    if let Some(first) = automaton.find(text) {
        let before = first.start().saturating_sub(1);
        let rest = aho_corasick::Input::new(text).range(automaton_start(automaton, before)..);
        for it in automaton.find_overlapping_iter(rest) {
            if found.len() >= most && it.end() > last {
                break;
            }
            last = it.end();
            found.push(Match {
                start: it.start() as u64,
                pattern: it.pattern().as_usize(),
            });
        }
    }
    budget.spend(text.len()).then_some(found)
}

/// No occurrence that ends after the first one found begins before this offset.
fn automaton_start(automaton: &AhoCorasick, before: usize) -> usize {
    before.saturating_sub(automaton.max_pattern_len())
}

fn rolled(
    searcher: &mut Searcher,
    text: &[u8],
    most: usize,
    budget: &mut Budget<impl FnMut() -> bool>,
) -> Option<Vec<Match>> {
    searcher.restart();
    let (mut found, mut rest) = (Vec::new(), text);
    while found.len() < most {
        match searcher.scan(rest, &mut budget.left) {
            Scan::Found {
                found: it,
                consumed,
            } => {
                found.push(it);
                rest = &rest[consumed..];
            }
            Scan::Finished => break,
            Scan::Paused { consumed } => {
                if !budget.renew() {
                    return None;
                }
                rest = &rest[consumed..];
            }
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const METHODS: [Method; 3] = [Method::Memmem, Method::Automaton, Method::Hashes];

    fn finder(method: Method, patterns: &[&[u8]]) -> Finder {
        Finder::by(method, &Modulus::random(1), patterns).unwrap()
    }

    fn naive(patterns: &[&[u8]], text: &[u8], most: usize) -> Matches {
        let mut first = Vec::new();
        for end in 0..=text.len() {
            for (pattern, needle) in patterns.iter().enumerate() {
                if text[..end].ends_with(needle) {
                    let start = (end - needle.len()) as u64;
                    first.push(Match { start, pattern });
                }
            }
        }
        let more = first.len() > most;
        first.truncate(most);
        Matches { first, more }
    }

    #[test]
    fn the_method_depends_on_how_many_and_how_long() {
        let of = |patterns: &[Vec<u8>]| {
            let finder = Finder::new(&Modulus::random(1), patterns);
            finder.unwrap().method()
        };
        let strings = |count: u8, len: usize| -> Vec<Vec<u8>> {
            (0..count).map(|byte| vec![byte; len]).collect()
        };
        assert_eq!(of(&strings(1, 65_536)), Method::Memmem);
        assert_eq!(of(&strings(8, 3)), Method::Memmem);
        assert_eq!(of(&strings(9, 3)), Method::Automaton);
        assert_eq!(of(&strings(64, 1024)), Method::Automaton);
        assert_eq!(of(&strings(64, 1025)), Method::Hashes);
        assert_eq!(of(&strings(39, 2_000)), Method::Memmem);
        let lengths = [strings(40, 2_000), strings(1, 2_001)].concat();
        assert_eq!(of(&lengths), Method::Memmem);
    }

    #[test]
    fn a_search_that_nobody_wants_any_more_stops_within_a_step() {
        for method in METHODS {
            let mut asked = 0;
            let mut budget = Budget::new(|| {
                asked += 1;
                asked < 2
            });
            let mut finder = finder(method, &[b"needle", b"pin"]);
            let text = vec![7; STEP as usize / 2];
            let mut searched = 0;
            while finder.find(&text, 1, &mut budget).is_some() {
                searched += 1;
            }
            assert!(searched <= 4, "{method:?}: {searched}");
            assert_eq!(asked, 2, "{method:?}: asked after each step");
        }
    }

    proptest! {
        #[test]
        fn each_method_finds_what_comparing_finds(
            texts in prop::collection::vec(prop::collection::vec(0_u8..3, 0..80), 1..4),
            patterns in prop::collection::vec(prop::collection::vec(0_u8..3, 1..6), 1..6),
            most in 0_usize..12,
        ) {
            let patterns: Vec<&[u8]> = patterns.iter().map(|it| &it[..]).collect();
            for method in METHODS {
                let mut finder = finder(method, &patterns);
                for text in &texts {
                    let found = finder.find(text, most, &mut Budget::new(|| true));
                    prop_assert_eq!(found, Some(naive(&patterns, text, most)), "{:?}", method);
                }
            }
        }
    }
}
