//! Heavy hitters: which keys make up at least 1/k of a stream of unknown length?
//!
//! *Answer*, after M insertions: every key with a count of at least M/k (recall is always 1), and
//! no key with a count below M/k - εM, except with probability δ per key, as count-min allows.
//! *Bytes*: the sketch, and O(k) candidates. This is the lecture's complete algorithm: after each
//! insertion, the key becomes a candidate if its estimate is at least M/k, and candidates whose
//! estimate is below M/k are evicted.
//!
//! One difference from the lecture does not affect the answer: the lecture checks all candidates
//! after each insertion, this code only when their number has doubled since the last check. A
//! candidate that is kept for longer is left out of the answer. So the check costs amortized O(1)
//! per insertion instead of O(k).
//!
//! Why recall is 1: estimates are never too low and, without deletions, never fall. A key with
//! count C >= M/k had an estimate of at least C at its last insertion; M was smaller then, so it
//! became a candidate, and its estimate has been above M/k ever since. Deletion would break this (a
//! key may become heavy because others were deleted), so there is none.
//!
//! With ε <= 1/(2k), an answer has at most 2k keys, apart from failures of count-min: each has at
//! least M/2k of M.
//!
//! Two with the same shape, seed and k can be merged: a key with 1/k of both together has 1/k of
//! one, so it is a candidate there.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use torc_record::{Digest, to_usize};

use crate::count_min::{CombineError, CountMin, Shape};

/// Up to this many candidates there is no check: a sweep would cost more.
const FEWEST_SWEPT: usize = 64;

/// Uses the last 64 bits of a digest as their hash: they are keyed and random already.
#[derive(Debug, Clone, Copy, Default)]
pub struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last_chunk() {
            self.0 = u64::from_le_bytes(*last);
        }
    }

    /// The array length, which is always the same.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A map by digest that does not hash it again.
pub type DigestMap<T> = HashMap<Digest, T, BuildHasherDefault<DigestHasher>>;

/// A heavy key, from [`HeavyHitters::answer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeavyHitter<'a, T> {
    /// The key.
    pub digest: Digest,
    /// Its estimated count: not below the truth, above it by at most εM with probability 1 - δ.
    pub estimate: u64,
    /// The note made when it became a candidate.
    pub note: &'a T,
}

/// The result of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Insertion {
    /// The key is too light to be a candidate.
    Light,
    /// It was a candidate already.
    Known,
    /// It became a candidate, and its note was created.
    New,
}

/// The keys with at least 1/k of a stream. Each candidate has a note `T`, for example the key's
/// bytes.
///
/// * Updates: [`HeavyHitters::insert`], [`HeavyHitters::insert_with`], [`HeavyHitters::merge`].
/// * Queries: [`HeavyHitters::answer`], [`HeavyHitters::sketch`].
#[derive(Debug, Clone)]
pub struct HeavyHitters<T = ()> {
    sketch: CountMin,
    k: u64,
    candidates: DigestMap<T>,
    /// M/k rounded up, which is equivalent for comparisons with integers.
    threshold: i64,
    /// The largest M for which `threshold` is valid.
    raised_after: i64,
    swept_at: usize,
}

impl HeavyHitters<()> {
    /// Counts a key once.
    #[inline]
    pub fn insert(&mut self, digest: &Digest) -> Insertion {
        self.insert_with(digest, 1, || ())
    }
}

impl<T> HeavyHitters<T> {
    /// Finds keys with at least 1/`k` of the stream, `k` at least 1 (0 counts as 1). The shape
    /// determines ε and δ; ε should be at most 1/(2k).
    #[must_use]
    pub fn new(k: u32, shape: Shape, seed: u64) -> Self {
        Self::over(CountMin::new(shape, seed), k)
    }

    fn over(sketch: CountMin, k: u32) -> Self {
        Self {
            sketch,
            k: u64::from(k.max(1)),
            candidates: DigestMap::default(),
            threshold: 0,
            raised_after: 0,
            swept_at: (4 * k as usize).max(FEWEST_SWEPT),
        }
    }

    /// k.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "it was given as a u32")]
    pub const fn k(&self) -> u32 {
        self.k as u32
    }

    /// The counts, M included.
    #[must_use]
    pub const fn sketch(&self) -> &CountMin {
        &self.sketch
    }

    /// M/k rounded up: the lowest count of a heavy key.
    #[must_use]
    pub const fn threshold(&self) -> u64 {
        self.threshold.unsigned_abs()
    }

    /// Number of candidates, heavy or not.
    #[must_use]
    pub fn candidates(&self) -> usize {
        self.candidates.len()
    }

    /// Adds `count` to a key's count; calls `note` if the key becomes a candidate. Costs the update
    /// of the sketch, one map lookup for a heavy key, and occasionally a sweep of the candidates.
    #[inline]
    pub fn insert_with(
        &mut self,
        digest: &Digest,
        count: u32,
        note: impl FnOnce() -> T,
    ) -> Insertion {
        let estimate = self.sketch.insert_and_estimate(digest, i64::from(count));
        if self.sketch.total() > self.raised_after {
            self.raise_threshold();
        }
        if estimate < self.threshold {
            return Insertion::Light;
        }
        self.note(*digest, note)
    }

    fn note(&mut self, digest: Digest, note: impl FnOnce() -> T) -> Insertion {
        match self.candidates.entry(digest) {
            Entry::Occupied(_) => return Insertion::Known,
            Entry::Vacant(entry) => entry.insert(note()),
        };
        if self.candidates.len() > self.swept_at {
            self.sweep();
        }
        Insertion::New
    }

    fn raise_threshold(&mut self) {
        let total = self.sketch.total().max(0).unsigned_abs();
        let threshold = total.div_ceil(self.k);
        self.threshold = threshold.cast_signed();
        self.raised_after = i64::try_from(threshold.saturating_mul(self.k)).unwrap_or(i64::MAX);
    }

    /// Evicts every candidate that is no longer heavy. About 10 ns per candidate.
    pub fn sweep(&mut self) {
        let (sketch, threshold) = (&self.sketch, self.threshold);
        self.candidates
            .retain(|digest, _| sketch.estimate(digest) >= threshold);
        let fewest = (to_usize(4 * self.k)).max(FEWEST_SWEPT);
        self.swept_at = fewest.max(2 * self.candidates.len());
    }

    /// The heavy keys, heaviest first; equal ones by digest.
    #[must_use]
    pub fn answer(&self) -> Vec<HeavyHitter<'_, T>> {
        let estimated = self
            .estimated()
            .filter(|hitter| hitter.estimate >= self.threshold());
        let mut answer: Vec<_> = estimated.collect();
        answer.sort_unstable_by_key(|hitter| (std::cmp::Reverse(hitter.estimate), hitter.digest));
        answer
    }

    /// All candidates with their estimates, in any order.
    pub(crate) fn estimated(&self) -> impl Iterator<Item = HeavyHitter<'_, T>> {
        self.candidates.iter().map(|(digest, note)| {
            let estimate = self.sketch.estimate(digest).max(0).unsigned_abs();
            HeavyHitter {
                digest: *digest,
                estimate,
                note,
            }
        })
    }

    /// Removes a candidate, which may then be missing from the answer.
    pub(crate) fn forget(&mut self, digest: &Digest) -> Option<T> {
        self.candidates.remove(digest)
    }

    /// Adds another stream's counts and candidates, then sweeps.
    ///
    /// # Errors
    /// [`CombineError`]; nothing was added. Both should have the same k; otherwise the smaller one
    /// is kept, for which the answer is correct.
    pub fn merge(&mut self, other: Self) -> Result<(), CombineError> {
        self.sketch.merge(&other.sketch)?;
        self.k = self.k.min(other.k);
        for (digest, note) in other.candidates {
            self.candidates.entry(digest).or_insert(note);
        }
        self.raise_threshold();
        self.sweep();
        Ok(())
    }

    /// Takes the counts and candidates of the stream, and starts an empty one.
    pub(crate) fn take(&mut self) -> (CountMin, DigestMap<T>) {
        let fresh = Self::over(self.sketch.empty(), self.k());
        let ended = std::mem::replace(self, fresh);
        (ended.sketch, ended.candidates)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::digest;

    fn hitters(k: u32, width_log2: u8) -> HeavyHitters {
        HeavyHitters::new(k, Shape::new(width_log2, 4).unwrap(), 3)
    }

    fn keys(hitters: &HeavyHitters) -> Vec<Digest> {
        hitters
            .answer()
            .iter()
            .map(|hitter| hitter.digest)
            .collect()
    }

    fn counts(stream: &[u64]) -> HashMap<u64, u64> {
        let mut counts = HashMap::new();
        for &key in stream {
            *counts.entry(key).or_default() += 1;
        }
        counts
    }

    /// The lecture's algorithm as written, on exact counts.
    #[test]
    fn the_answer_is_that_of_looking_through_the_candidates_each_time() {
        let mut random = crate::SeedStream::new(8);
        let mut ours = hitters(9, 4);
        let mut sketch = CountMin::new(Shape::new(4, 4).unwrap(), 3);
        let mut list = Vec::new();
        for m in 1..=3000_i64 {
            let key = random.below(12) * random.below(12);
            ours.insert(&digest(key));
            sketch.insert(&digest(key));
            if sketch.estimate(&digest(key)) * 9 >= m && !list.contains(&digest(key)) {
                list.push(digest(key));
            }
            list.retain(|candidate| sketch.estimate(candidate) * 9 >= m);
        }
        let mut answer = keys(&ours);
        answer.sort_unstable();
        list.sort_unstable();
        assert_eq!(answer, list);
        assert!(!list.is_empty());
    }

    #[test]
    fn candidates_stay_few_on_a_stream_of_ever_new_keys() {
        let mut hitters = hitters(20, 12);
        for key in 0..20_000 {
            hitters.insert(&digest(key));
            assert!(
                hitters.candidates() <= 81,
                "4k and the one that made it too many"
            );
        }
        assert_eq!(hitters.answer().len(), 0, "no key has a twentieth");
    }

    #[test]
    fn a_note_is_made_once_for_each_candidate() {
        let mut hitters = HeavyHitters::new(2, Shape::new(8, 4).unwrap(), 1);
        let mut made = 0;
        let mut insert = |key| hitters.insert_with(&digest(key), 1, || made += 1);
        assert_eq!(
            insert(1),
            Insertion::New,
            "the first key has all of the stream"
        );
        assert_eq!(insert(1), Insertion::Known);
        assert_eq!(insert(1), Insertion::Known);
        assert_eq!(insert(2), Insertion::Light);
        assert_eq!(made, 1);
    }

    #[test]
    fn no_k_and_no_stream_are_no_trouble() {
        let mut none = hitters(0, 4);
        assert_eq!(none.answer(), []);
        none.insert(&digest(1));
        assert_eq!(
            keys(&none),
            [digest(1)],
            "k = 0 counts as 1: all of the stream"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Recall is 1 even for a sketch that is much too small.
        #[test]
        fn every_heavy_hitter_is_found(
            stream in prop::collection::vec((0_u64..40, 0_u64..40).prop_map(|(a, b)| a.min(b)), 1..600),
            k in 1_u32..40, width_log2 in 1_u8..8, split in 0_usize..600,
        ) {
            let split = split.min(stream.len());
            let (mut whole, mut head, mut tail) =
                (hitters(k, width_log2), hitters(k, width_log2), hitters(k, width_log2));
            for &key in &stream { whole.insert(&digest(key)); }
            for &key in &stream[..split] { head.insert(&digest(key)); }
            for &key in &stream[split..] { tail.insert(&digest(key)); }
            head.merge(tail).unwrap();
            let (whole, merged) = (keys(&whole), keys(&head));
            for (key, count) in counts(&stream) {
                if count * u64::from(k) >= stream.len() as u64 {
                    prop_assert!(whole.contains(&digest(key)), "{} of {}", count, stream.len());
                    prop_assert!(merged.contains(&digest(key)), "merged: {} of {}", count, stream.len());
                }
            }
        }

        /// Each reported key has N/k - εN. δ is 2^-4 per key, but rows exceed their bound far more
        /// rarely than Markov's inequality allows: at a width of 1,024 with 40 keys, only by
        /// collisions in all 4 rows, with probability 40^2/2 (1/1024)^4 = 7e-10 per case.
        #[test]
        fn every_reported_key_is_almost_heavy(
            stream in prop::collection::vec((0_u64..40, 0_u64..40).prop_map(|(a, b)| a.min(b)), 1..600),
            k in 1_u32..40,
        ) {
            let mut hitters = hitters(k, 10);
            for &key in &stream { hitters.insert(&digest(key)); }
            let counts = counts(&stream);
            let heavy: Vec<_> = keys(&hitters);
            for (&key, &count) in &counts {
                let least = stream.len() as f64 / f64::from(k) - stream.len() as f64 * 2.0 / 1024.0;
                prop_assert!(count as f64 >= least || !heavy.contains(&digest(key)));
            }
            prop_assert!(heavy.len() <= 2 * k as usize);
        }
    }
}
