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

use torc_record::{Ballot, Digest, Key, NamespaceId, entry_sum};

pub use crate::range::{Range, RangeSum, SumTree};
use crate::{Entry, KeyId, Locator, Storage};

/// Ranges with at most this many entries on both sides are listed instead of split.
pub const LEAF_ENTRIES: u64 = 16;
/// Most ranges per message.
pub const MAX_RANGES: usize = 256;
/// Most entries per list.
pub const MAX_LISTED: usize = 4_096;
/// Entries to read first: ranges that are listed have few.
const FIRST_PAGE: usize = 32;
/// Entries to read at a time later.
const PAGE: usize = 1024;

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
    let (mut limit, mut ended) = (FIRST_PAGE, false);
    std::iter::from_fn(move || {
        loop {
            if let Some(entry) = page.next() {
                after = Some(entry.id());
                return Some(entry);
            }
            if ended {
                return None;
            }
            let scanned = disk.scan(after, limit);
            limit = PAGE;
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

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
