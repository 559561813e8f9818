//! Several patterns, prepared for a search.

use std::sync::Arc;

use super::Modulus;
use super::window::Window;

/// Limit on the patterns of a search.
pub const MAX_PATTERNS: usize = 64;
/// Longest pattern, bytes.
pub const MAX_PATTERN_LEN: usize = 64 << 10;

/// Why patterns were refused. Nothing was created; send other patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// There is no pattern, or an empty one, which would match everywhere.
    #[error("a search needs at least one pattern, and each at least one byte")]
    Empty,
    /// More than [`MAX_PATTERNS`].
    #[error("{count} patterns, at most {MAX_PATTERNS} are looked for at once")]
    TooMany {
        /// Number of patterns given.
        count: usize,
    },
    /// Longer than [`MAX_PATTERN_LEN`].
    #[error("a pattern has {len} bytes, at most {MAX_PATTERN_LEN} are looked for")]
    TooLong {
        /// Length of the pattern, bytes.
        len: usize,
    },
}

/// Patterns to search for, grouped by length: each length costs one hash per byte of text, each
/// pattern hardly anything.
///
/// Cloning shares it.
#[derive(Debug, Clone)]
pub struct Patterns(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    patterns: Vec<Box<[u8]>>,
    groups: Vec<Group>,
    longest: usize,
}

/// The patterns of one length.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) window: Window,
    /// A bit for the last twelve bits of each hash: rejects most windows.
    filter: Box<[u64; 64]>,
    /// Hash and pattern, sorted.
    hashes: Vec<(u64, usize)>,
}

impl Group {
    /// Whether a pattern may have this hash.
    #[inline]
    pub(super) const fn may_have(&self, hash: u64) -> bool {
        self.filter[(hash >> 6 & 63) as usize] >> (hash & 63) & 1 == 1
    }

    /// The patterns with this hash.
    pub(super) fn with_hash(&self, hash: u64) -> &[(u64, usize)] {
        let start = self.hashes.partition_point(|(other, _)| *other < hash);
        let same = self.hashes[start..]
            .iter()
            .take_while(|(other, _)| *other == hash);
        &self.hashes[start..start + same.count()]
    }
}

impl Patterns {
    /// Prepares patterns; a [`super::Match`] refers to them by index. Draw the modulus from a seed
    /// that the authors of the texts do not know. Takes 3 KiB and about 1 us per length.
    ///
    /// # Errors
    /// [`PatternError`] if there are none, one is empty or too long, or there are too many.
    pub fn new<P: AsRef<[u8]>>(modulus: &Modulus, patterns: &[P]) -> Result<Self, PatternError> {
        let patterns: Vec<&[u8]> = patterns.iter().map(AsRef::as_ref).collect();
        check(&patterns)?;
        let mut lengths: Vec<usize> = patterns.iter().map(|pattern| pattern.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        Ok(Self(Arc::new(Compiled {
            groups: lengths
                .iter()
                .map(|&len| group(modulus, len, &patterns))
                .collect(),
            longest: lengths.last().copied().unwrap_or(0),
            patterns: patterns.into_iter().map(Box::from).collect(),
        })))
    }

    /// Number of patterns.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.patterns.len()
    }

    /// Length of the longest, bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.0.longest
    }

    /// A pattern by its index.
    #[must_use]
    pub fn get(&self, pattern: usize) -> Option<&[u8]> {
        self.0.patterns.get(pattern).map(AsRef::as_ref)
    }

    pub(super) fn groups(&self) -> &[Group] {
        &self.0.groups
    }
}

fn check(patterns: &[&[u8]]) -> Result<(), PatternError> {
    if patterns.is_empty() || patterns.iter().any(|pattern| pattern.is_empty()) {
        return Err(PatternError::Empty);
    }
    let count = patterns.len();
    if count > MAX_PATTERNS {
        return Err(PatternError::TooMany { count });
    }
    let len = patterns
        .iter()
        .map(|pattern| pattern.len())
        .max()
        .unwrap_or(0);
    if len > MAX_PATTERN_LEN {
        return Err(PatternError::TooLong { len });
    }
    Ok(())
}

fn group(modulus: &Modulus, len: usize, patterns: &[&[u8]]) -> Group {
    let of_len = patterns
        .iter()
        .enumerate()
        .filter(|(_, pattern)| pattern.len() == len);
    let mut hashes: Vec<_> = of_len
        .map(|(number, pattern)| (modulus.hash(pattern), number))
        .collect();
    hashes.sort_unstable();
    let mut filter = Box::new([0; 64]);
    for (hash, _) in &hashes {
        filter[(hash >> 6 & 63) as usize] |= 1 << (hash & 63);
    }
    Group {
        window: Window::new(modulus, len),
        filter,
        hashes,
    }
}
