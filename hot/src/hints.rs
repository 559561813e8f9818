//! The keys that are hot at this node now, for hints in its answers.
//!
//! A key becomes hot with a hundredth of the node's accesses in an interval, and stays hot while it
//! has a thousandth. The lower limit is needed because clients spread and share the gets of a hot
//! key, so fewer arrive here.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use torc_record::Digest;
use torc_sketch::hot_keys::Interval;

/// Below this number of accesses per interval, no key is hot.
const BUSY_FROM: u64 = 1_000;
/// A key becomes hot with this fraction (1/n) of the accesses.
const BECOMES_AT: u64 = 100;
/// Limit on the keys that are hot at a time.
const MOST_KEYS: usize = 256;

type Keys = HashSet<Digest>;

/// The hot keys, replaced after every interval. A lookup takes about 20 ns.
#[derive(Debug, Default)]
pub(super) struct Hints {
    keys: ArcSwap<Keys>,
    given: AtomicU64,
}

impl Hints {
    /// Updates the hot keys from the interval that just ended.
    pub(super) fn refresh(&self, interval: Option<&Interval>) {
        let before = self.keys.load();
        let keys = interval.map(|interval| hot_of(interval, &before));
        self.keys.store(keys.unwrap_or_default().into());
    }

    /// Whether the answer should carry the hint that its key is hot. Counts the hints given.
    #[inline]
    pub(super) fn give(&self, digest: &Digest) -> bool {
        let keys = self.keys.load();
        let is_hot = !keys.is_empty() && keys.contains(digest);
        if is_hot {
            self.given.fetch_add(1, Ordering::Relaxed);
        }
        is_hot
    }

    pub(super) fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self) -> u64 {
        self.keys.load().len() as u64
    }
}

/// The interval's candidates are the keys with at least a thousandth of the accesses.
fn hot_of(interval: &Interval, before: &Keys) -> Keys {
    if interval.total() < BUSY_FROM {
        return Keys::new();
    }
    let becomes_at = interval.total().div_ceil(BECOMES_AT);
    let candidates = interval.candidates().iter().filter_map(|candidate| {
        let estimate = interval.counts().estimate(&candidate.digest);
        let estimate = estimate.max(0).unsigned_abs();
        let is_hot = estimate >= becomes_at || before.contains(&candidate.digest);
        is_hot.then_some((estimate, candidate.digest))
    });
    let mut hottest: Vec<_> = candidates.collect();
    hottest.sort_unstable_by(|a, b| b.cmp(a));
    hottest.truncate(MOST_KEYS);
    hottest.into_iter().map(|(_, digest)| digest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_record::{DigestKey, NamespaceId};
    use torc_sketch::hot_keys::{HotKeys, HotKeysOptions, KeyName};

    fn digest(key: u64) -> Digest {
        Digest::of(
            &DigestKey([3; 32]),
            NamespaceId::DEFAULT,
            &key.to_be_bytes(),
        )
    }

    /// An interval with this many accesses to key 0, and one access to each of `others` other keys.
    fn interval(of_key_0: u64, others: u64) -> Interval {
        let mut counted = HotKeys::new(&HotKeysOptions::usual(1), 0);
        let mut count = |key| {
            counted.record(&digest(key), || KeyName {
                namespace: NamespaceId::DEFAULT,
                key: None,
            });
        };
        (0..of_key_0).for_each(|_| count(0));
        (1..=others).for_each(count);
        counted.snapshot(1)
    }

    #[test]
    fn a_key_becomes_hot_with_a_hundredth_and_stays_so_with_a_thousandth() {
        let hints = Hints::default();
        hints.refresh(Some(&interval(50, 9_950)));
        assert!(!hints.give(&digest(0)), "a two hundredth is not enough");
        hints.refresh(Some(&interval(200, 9_800)));
        assert!(hints.give(&digest(0)) && !hints.give(&digest(1)));
        hints.refresh(Some(&interval(50, 9_950)));
        assert!(hints.give(&digest(0)), "others answer for it too now");
        hints.refresh(Some(&interval(2, 9_998)));
        assert!(!hints.give(&digest(0)));
        assert_eq!((hints.given(), hints.count()), (2, 0));
    }

    #[test]
    fn nothing_is_hot_at_a_node_with_nothing_to_do() {
        let hints = Hints::default();
        hints.refresh(Some(&interval(900, 0)));
        assert!(!hints.give(&digest(0)));
        hints.refresh(Some(&interval(1_000, 0)));
        assert!(hints.give(&digest(0)));
        hints.refresh(None);
        assert!(!hints.give(&digest(0)));
    }
}
