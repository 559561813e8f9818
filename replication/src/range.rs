//! Ranges of tokens and the sums of the versions in them.

use std::collections::BTreeMap;

use torc_record::{Ballot, entry_sum};

use crate::KeyId;

const FAN_OUT_BITS: u32 = 4;

/// Tokens from `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// The first token.
    pub first: u64,
    /// The last token.
    pub last: u64,
}

impl Range {
    /// The whole circle; a partition's storage holds only its own tokens anyway.
    pub const ALL: Self = Self {
        first: 0,
        last: u64::MAX,
    };

    /// Whether it cannot be split.
    #[must_use]
    pub const fn is_point(self) -> bool {
        self.last.saturating_sub(self.first) < (1 << FAN_OUT_BITS)
    }

    pub(crate) const fn contains(self, token: u64) -> bool {
        self.first <= token && token <= self.last
    }

    /// Sixteen parts that make up this range; the range itself if it is a point.
    pub fn split(self) -> impl Iterator<Item = Self> {
        let width = self.last.saturating_sub(self.first);
        let step = width >> FAN_OUT_BITS;
        let parts = if self.is_point() {
            1
        } else {
            1 << FAN_OUT_BITS
        };
        (0..parts).map(move |part| {
            let first = self.first + part * (step + 1);
            let last = first.saturating_add(step).min(self.last);
            Self {
                first,
                last: if part + 1 == parts { self.last } else { last },
            }
        })
    }
}

/// The sum of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeSum {
    /// The range.
    pub range: Range,
    /// Entries in it.
    pub count: u64,
    /// Their sum, see [`entry_sum`].
    pub sum: u128,
}

/// Up-to-date sums of all ranges that splitting can produce: a sparse 16-ary tree by
/// token bits. An update touches `DEPTH + 1` nodes; a query reads one.
#[derive(Debug, Clone, Default)]
pub struct SumTree {
    /// (level, prefix) to (count, sum).
    nodes: BTreeMap<(u32, u64), (u64, u128)>,
}

impl SumTree {
    /// Levels below the root: ranges down to 2^-24 of the circle.
    pub const DEPTH: u32 = 6;

    /// Notes that a key has changed its version, appeared or disappeared.
    pub fn change(&mut self, key: KeyId, from: Option<Ballot>, to: Option<Ballot>) {
        let gone = from.map_or(0, |ballot| entry_sum(key, ballot));
        let come = to.map_or(0, |ballot| entry_sum(key, ballot));
        for level in 0..=Self::DEPTH {
            let prefix = prefix(key.digest.high(), level);
            let node = self.nodes.entry((level, prefix)).or_default();
            node.0 = node.0 + u64::from(to.is_some()) - u64::from(from.is_some());
            node.1 = node.1.wrapping_sub(gone).wrapping_add(come);
            if *node == (0, 0) {
                self.nodes.remove(&(level, prefix));
            }
        }
    }

    /// The sum of a range that [`Range::split`] of [`Range::ALL`] produces; `None` for
    /// another range, or for one below the tree's depth.
    #[must_use]
    pub fn sum(&self, range: Range) -> Option<RangeSum> {
        let level = (0..=Self::DEPTH).find(|level| {
            let width = u64::MAX.checked_shr(level * FAN_OUT_BITS).unwrap_or(0);
            range.first & width == 0 && range.last == range.first | width
        })?;
        let (count, sum) = self
            .nodes
            .get(&(level, prefix(range.first, level)))
            .copied()
            .unwrap_or_default();
        Some(RangeSum { range, count, sum })
    }
}

const fn prefix(token: u64, level: u32) -> u64 {
    match level {
        0 => 0,
        level => token >> (u64::BITS - level * FAN_OUT_BITS),
    }
}
