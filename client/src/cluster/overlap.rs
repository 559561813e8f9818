//! The overlap of two namespaces.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "estimates, and `as` saturates"
)]

use serde::Serialize;
use torc_sketch::overlap::{self as sketch, KeySet};

use super::hot_keys::HotKeys;

/// The overlap of two namespaces, from [`Client::overlap`](crate::Client::overlap).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Overlap {
    /// The first.
    pub a: OverlapSet,
    /// The second.
    pub b: OverlapSet,
    /// Keys in both namespaces.
    pub shared_keys: OverlapEstimate,
    /// The join of their accesses; `None` if these were not available.
    pub join: Option<OverlapJoin>,
    /// Why there is no join; `None` if there is one.
    pub join_problem: Option<String>,
    /// Number of nodes asked.
    pub nodes: u32,
    /// Number of records that the nodes read.
    pub records_read: u64,
    /// Bytes of sketches and weights transferred.
    pub bytes_moved: u64,
}

/// One of the namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OverlapSet {
    /// Its name.
    pub namespace: String,
    /// Exact number of its keys with a value.
    pub keys: u64,
    /// Estimated accesses to its hot keys that have a value.
    pub accesses: u64,
}

/// An estimate and its error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OverlapEstimate {
    /// Unbiased, except that it is clamped to 0 below and to the smaller set above.
    pub estimate: u64,
    /// 3 standard deviations: 3 sqrt((|A| |B| + estimate²) / (m T)) for T = 5 rows of m = 65,536 counters.
    pub error: u64,
    /// Lower bound on the probability that the truth is within `error`: 8/9, by Chebyshev's
    /// inequality.
    pub confidence: f64,
}

/// The sum over keys of (accesses in one) (accesses in the other), by the hot keys of both.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OverlapJoin {
    /// Never below the part of keys that are hot in both.
    pub upper: u128,
    /// ε |a| |b| + e (|a| + |b|), where |a| and |b| are the accesses of the two sets, ε = 2/m, and
    /// e the error of one key's count: `upper` exceeds the truth by more than this with a
    /// probability of at most `delta` for the sketch, and the same for a key's count.
    pub error: u128,
    /// 1/32.
    pub delta: f64,
    /// The most that keys which are not hot in both can add: `complete_from` times the accesses of
    /// both.
    pub unseen: u128,
    /// A key with at least this many accesses is hot.
    pub complete_from: u64,
    /// Start of the accesses, Unix milliseconds.
    pub from_ms: u64,
    /// End of the counts, Unix milliseconds.
    pub to_ms: u64,
}

impl OverlapEstimate {
    pub(crate) fn of(overlap: &sketch::Overlap) -> Self {
        Self {
            estimate: overlap.shared.round() as u64,
            error: overlap.shared_error.ceil() as u64,
            confidence: sketch::Overlap::CONFIDENCE,
        }
    }
}

impl OverlapJoin {
    /// The join of two sets with the weights of these answers.
    pub(crate) fn of(overlap: &sketch::Overlap, sets: [&KeySet; 2], hot: [&HotKeys; 2]) -> Self {
        let accesses = sets.map(|set| u128::from(set.accesses()));
        let both = accesses[0].saturating_add(accesses[1]);
        let of_a_key = hot.map(|hot| hot.error_bound).into_iter().max();
        let complete_from = hot.map(complete_from).into_iter().max().unwrap_or(0);
        let total: u128 = hot.map(|hot| u128::from(hot.accesses)).into_iter().sum();
        let of_keys = both.saturating_mul(of_a_key.unwrap_or(0).into());
        Self {
            upper: overlap.join,
            error: (overlap.join_error.ceil() as u128).saturating_add(of_keys),
            delta: sketch::Overlap::DELTA,
            unseen: u128::from(complete_from).saturating_mul(total),
            complete_from,
            from_ms: hot.map(|hot| hot.from_ms).into_iter().min().unwrap_or(0),
            to_ms: hot.map(|hot| hot.to_ms).into_iter().max().unwrap_or(0),
        }
    }
}

/// The answer, even if cut short, lists every key with at least this many accesses.
fn complete_from(hot: &HotKeys) -> u64 {
    let cut = hot.keys.len() >= torc_proto::MAX_KEY_WEIGHTS;
    let last = hot.keys.last().filter(|_| cut);
    last.map_or(hot.complete_from, |key| {
        hot.complete_from.max(key.estimate.saturating_add(1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_proto::v1;
    use torc_record::DigestKey;

    fn hot(accesses: u64, keys: usize) -> HotKeys {
        let key = v1::HotKey {
            digest: vec![1; 16].into(),
            estimate: 70,
            ..v1::HotKey::default()
        };
        let wire = v1::HotKeysResponse {
            accesses,
            error_bound: 2,
            complete_from: 10,
            keys: vec![key; keys],
            ..v1::HotKeysResponse::default()
        };
        HotKeys::from_wire(wire).unwrap()
    }

    fn set(keys: std::ops::Range<u64>, accesses: u64) -> KeySet {
        let mut set = KeySet::new(1);
        keys.for_each(|key| {
            let digest = torc_sketch::overlap::digest_of(&DigestKey([1; 32]), &key.to_be_bytes());
            set.insert(&digest, accesses);
        });
        set
    }

    #[test]
    fn the_joins_error_has_the_sketchs_part_and_that_of_every_count() {
        let (a, b) = (set(0..100, 50), set(90..200, 60));
        let overlap = a.overlap(&b).unwrap();
        let (few, many) = (hot(20_000, 3), hot(20_000, 1_000));
        let join = OverlapJoin::of(&overlap, [&a, &b], [&few, &few]);
        let truth = 10 * 50 * 60;
        assert!(join.upper >= truth && join.upper - truth <= join.error);
        let of_keys = 2 * (100 * 50 + 110 * 60);
        let of_sketch = (2.0 / 65_536.0 * 5_000.0 * 6_600.0_f64).ceil() as u128;
        assert_eq!(join.error, of_keys + of_sketch);
        assert_eq!((join.complete_from, join.unseen), (10, 400_000));
        let cut = OverlapJoin::of(&overlap, [&a, &b], [&few, &many]);
        assert_eq!(cut.complete_from, 71, "keys with 70 may have been left out");
    }

    #[test]
    fn shared_keys_are_whole_and_their_error_is_rounded_up() {
        let overlap = sketch::Overlap {
            shared: 9.6,
            shared_error: 1.2,
            join: 0,
            join_error: 0.0,
        };
        let shared = OverlapEstimate::of(&overlap);
        assert_eq!((shared.estimate, shared.error), (10, 2));
    }
}
