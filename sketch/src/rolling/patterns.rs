//! Several patterns, made ready to be looked for.

use std::sync::Arc;

use super::Modulus;
use super::window::Window;

/// Most patterns of one search.
pub const MAX_PATTERNS: usize = 64;
/// Longest pattern, bytes.
pub const MAX_PATTERN_LEN: usize = 64 << 10;

/// Why there is nothing to look for. Nothing was made; send other patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// The empty string occurs everywhere, and no pattern nowhere.
    #[error("a search needs at least one pattern, and each at least one byte")]
    Empty,
    /// More than [`MAX_PATTERNS`].
    #[error("{count} patterns, at most {MAX_PATTERNS} are looked for at once")]
    TooMany {
        /// Patterns given.
        count: usize,
    },
    /// Longer than [`MAX_PATTERN_LEN`].
    #[error("a pattern has {len} bytes, at most {MAX_PATTERN_LEN} are looked for")]
    TooLong {
        /// Bytes of the pattern.
        len: usize,
    },
}

/// Patterns to look for, grouped by length: each length costs a hash a byte of text, each pattern next to nothing.
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
    /// A bit for the last twelve bits of each hash: most windows end here.
    filter: Box<[u64; 64]>,
    /// Hash and pattern, in order.
    hashes: Vec<(u64, usize)>,
}

impl Group {
    /// Whether some pattern may have this hash.
    #[inline]
    pub(super) const fn may_have(&self, hash: u64) -> bool {
        self.filter[(hash >> 6 & 63) as usize] >> (hash & 63) & 1 == 1
    }

    /// The patterns of this hash.
    pub(super) fn with_hash(&self, hash: u64) -> &[(u64, usize)] {
        let start = self.hashes.partition_point(|(other, _)| *other < hash);
        let same = self.hashes[start..]
            .iter()
            .take_while(|(other, _)| *other == hash);
        &self.hashes[start..start + same.count()]
    }
}

impl Patterns {
    /// Makes patterns ready, by the order of which a [`super::Match`] names them. The modulus should be drawn from a seed that those who store the texts do
    /// not know. 3 KiB and about 1 us a length.
    ///
    /// # Errors
    /// [`PatternError`] for none, an empty one, too many or too long ones.
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

    /// How many patterns.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.patterns.len()
    }

    /// Bytes of the longest.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.0.longest
    }

    /// A pattern by its number.
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
