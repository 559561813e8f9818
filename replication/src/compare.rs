//! Compares two replicas of a partition by sums over token ranges.
//!
//! A range's sum adds up a 128-bit mix of every entry's digest, namespace and ballot, so
//! it can be kept per range and updated by one addition and one subtraction. Equal
//! copies cost one message of one sum. A difference is found by splitting each unequal
//! range into 16: one message every four bits of the token, until a range holds few
//! entries, whose versions are then listed.
//!
//! Two unequal ranges have the same sum with probability 2^-128; digests are keyed, so
//! attackers cannot construct a collision.

use std::collections::BTreeMap;

use torc_record::{Ballot, Digest, Key, NamespaceId, PageSum, entry_sum};

use crate::{Entry, KeyId, Locator, Storage};

/// Ranges with at most this many entries on both sides are listed instead of split.
pub const LEAF_ENTRIES: u64 = 16;
/// Most ranges per message.
pub const MAX_RANGES: usize = 256;
/// Most entries per list.
pub const MAX_LISTED: usize = 4_096;
const FAN_OUT_BITS: u32 = 4;
/// Entries to read at a time.
const PAGE: usize = 1024;

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

    const fn contains(self, token: u64) -> bool {
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

/// The versions held in a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The range.
    pub range: Range,
    /// Keys with their ballots; `None` for an unreadable entry.
    pub entries: Vec<(Locator, Option<Ballot>)>,
}

fn entries_in(range: Range, disk: &impl Storage) -> impl Iterator<Item = Entry> {
    let mut after = before(range.first);
    let mut page: std::vec::IntoIter<Entry> = Vec::new().into_iter();
    let mut ended = false;
    std::iter::from_fn(move || {
        loop {
            if let Some(entry) = page.next() {
                after = Some(entry.id());
                return Some(entry);
            }
            if ended {
                return None;
            }
            let scanned = disk.scan(after, PAGE);
            ended = scanned.done || scanned.entries.is_empty();
            page = scanned.entries.into_iter();
        }
    })
    .take_while(move |entry| range.contains(entry.id().digest.high()))
}

/// The position after all keys of lower tokens; `None` before all keys.
fn before(token: u64) -> Option<KeyId> {
    let lower = token.checked_sub(1)?;
    let mut digest = Digest([u8::MAX; 16]);
    digest.0[..8].copy_from_slice(&lower.to_be_bytes());
    Some(KeyId {
        digest,
        namespace: NamespaceId(u32::MAX),
    })
}

/// The sum of a range by reading it. A store with a [`SumTree`] need not read.
pub fn sum_of(range: Range, disk: &impl Storage) -> RangeSum {
    if let Some(known) = disk.range_sum(range) {
        return known;
    }
    let (mut count, mut sum) = (0, 0_u128);
    for entry in entries_in(range, disk) {
        count += 1;
        let ballot = match &entry {
            Entry::Found(record) => record.ballot,
            Entry::Unreadable(_) => Ballot::default(),
        };
        sum = sum.wrapping_add(entry_sum(entry.id(), ballot));
    }
    RangeSum { range, count, sum }
}

/// [`Storage::sum_between`] by reading the entries.
pub(crate) fn sum_between(
    disk: &(impl Storage + ?Sized),
    mut after: Option<KeyId>,
    last: Option<KeyId>,
    most: u64,
) -> Option<PageSum> {
    let mut sum = PageSum::default();
    loop {
        let scanned = disk.scan(after, PAGE);
        after = scanned.next();
        for entry in &scanned.entries {
            let id = entry.id();
            if last.is_some_and(|last| id > last) {
                return Some(sum);
            }
            let Entry::Found(record) = entry else {
                return None;
            };
            if !sum.add(id, record.ballot) || sum.count > most {
                return None;
            }
        }
        if after.is_none() {
            return Some(sum);
        }
    }
}

/// The versions of a range.
pub fn list(range: Range, disk: &impl Storage) -> Listing {
    let versions = entries_in(range, disk).map(|entry| match entry {
        Entry::Found(record) => (Locator::of(&record), Some(record.ballot)),
        Entry::Unreadable(at) => (at, None),
    });
    Listing {
        range,
        entries: versions.take(MAX_LISTED).collect(),
    }
}

/// The keys of a peer's listing that differ here.
pub(crate) fn differences(theirs: &Listing, disk: &impl Storage) -> Vec<Locator> {
    let ours = list(theirs.range, disk);
    // By the whole key, because two keys share a digest if a record has a wrong one.
    let name = |at: &Locator| (at.id(), at.key.clone());
    let mut held: BTreeMap<(KeyId, Key), (Locator, Option<Ballot>)> = ours
        .entries
        .into_iter()
        .map(|(at, ballot)| (name(&at), (at, ballot)))
        .collect();
    let mut different = Vec::new();
    for (at, ballot) in theirs.entries.iter().take(MAX_LISTED) {
        match held.remove(&name(at)) {
            Some((_, ours)) if ours == *ballot && ballot.is_some() => {}
            _ => different.push(at.clone()),
        }
    }
    if theirs.entries.len() < MAX_LISTED {
        different.extend(held.into_values().map(|(at, _)| at));
    }
    different
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

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
