//! How many keys do two sets share, and how large is the join of their accesses?
//!
//! *Question*: for two sets of keys, each key with a number of accesses, the number of keys in
//! both, and the sum over keys of (accesses in one) (accesses in the other). *Answers*, by
//! [`InnerProduct`], from two sketches per set: in one, every key counts once, in the other, as
//! often as it was accessed.
//!
//! * [`Overlap::shared`] is unbiased, and within [`Overlap::shared_error`] = 3 standard deviations
//!   with probability at least 8/9 (Chebyshev). For sets of a and b keys that share s keys, that is
//!   3 sqrt((a b + s²) / (m T)), up to factors close to 1: 0.6 % of the set's size if both are
//!   equally large and share little.
//! * [`Overlap::join`] is the lecture's estimate: never below the truth, and above it by more than
//!   [`Overlap::join_error`] = ε |a|₁|b|₁ with probability at most δ = 1/32.
//!
//! *Bytes*: two sketches of T = 5 rows of m = 65,536 counters: 5 MiB per set, however many keys it
//! has; 1 to 3 bytes per counter when encoded.
//!
//! Linear, as its sketches are: the sum over the parts of a set is the sketch of the set, if each
//! key is in one part. Keys are passed as digests that are the same in both sets, so not as the
//! digests that place a namespace's keys: see [`digest_of`].

#![expect(clippy::cast_precision_loss, reason = "estimates")]

use torc_record::{Digest, DigestKey, NamespaceId};

use crate::InnerProduct;
use crate::count_min::{CombineError, CountMin, DecodeError, Shape};

/// The digest of a key independent of its namespace. About 100 ns for keys of up to 60 bytes.
#[must_use]
pub fn digest_of(cluster: &DigestKey, key: &[u8]) -> Digest {
    Digest::of(cluster, NO_NAMESPACE, key)
}

/// The seed of all key sets of a cluster.
#[must_use]
pub fn seed_of(cluster: &DigestKey) -> u64 {
    Digest::of(cluster, NO_NAMESPACE, b"torc key sets").high()
}

/// No key is stored under digests of namespace 0.
const NO_NAMESPACE: NamespaceId = NamespaceId(0);

/// The sketches of a set of keys.
///
/// * Building: [`KeySet::insert`], [`KeySet::merge`].
/// * Queries: [`KeySet::overlap`]; [`KeySet::join`] for keys that occur more than once.
/// * Bytes: [`KeySet::encode`], [`KeySet::decode`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySet {
    keys: CountMin,
    accesses: CountMin,
}

/// Why bytes are not a set with the expected seed. Nothing was created.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum KeySetError {
    /// One of the sketches is damaged.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// One of the sketches has another shape or seed.
    #[error(transparent)]
    Combine(#[from] CombineError),
}

/// The overlap of two sets, from [`KeySet::overlap`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overlap {
    /// Keys in both: the unbiased estimate, clamped between 0 and the size of the smaller set.
    pub shared: f64,
    /// The truth is within this of `shared` with probability at least [`Overlap::CONFIDENCE`].
    pub shared_error: f64,
    /// Size of the join of the accesses: never below the truth.
    pub join: u128,
    /// `join` exceeds the truth by more with probability at most [`Overlap::DELTA`].
    pub join_error: f64,
}

impl Overlap {
    /// 1 - 1/3²: three standard deviations, whatever the distribution.
    pub const CONFIDENCE: f64 = 8.0 / 9.0;
    /// 2^-5, for five rows.
    pub const DELTA: f64 = 1.0 / 32.0;
    const DEVIATIONS: f64 = 3.0;
}

impl KeySet {
    /// An empty set. Sets with the same `seed` can be compared and added.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let empty = CountMin::new(Shape::OF_KEY_SETS, seed);
        Self {
            keys: empty.clone(),
            accesses: empty,
        }
    }

    /// Adds a key that is not in the set. About 20 ns, mostly cache misses.
    #[inline]
    pub fn insert(&mut self, digest: &Digest, accesses: u64) {
        self.keys.insert(digest);
        if accesses > 0 {
            let accesses = i64::try_from(accesses).unwrap_or(i64::MAX);
            self.accesses.add(digest, accesses);
        }
    }

    /// Number of keys, exactly.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.keys.total().max(0).unsigned_abs()
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Accesses of all keys, as added.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.accesses.total().max(0).unsigned_abs()
    }

    /// Adds the keys of another part of the set. About 0.3 ms.
    ///
    /// # Errors
    /// [`CombineError`]; nothing was added.
    pub fn merge(&mut self, other: &Self) -> Result<(), CombineError> {
        let mut keys = self.keys.clone();
        keys.merge(&other.keys)?;
        self.accesses.merge(&other.accesses)?;
        self.keys = keys;
        Ok(())
    }

    /// The overlap of this set and another one. About 5 ms.
    ///
    /// # Errors
    /// [`CombineError`] for sets with different seeds.
    pub fn overlap(&self, other: &Self) -> Result<Overlap, CombineError> {
        let keys = self.keys.inner_product(&other.keys)?;
        let InnerProduct {
            upper, upper_error, ..
        } = self.accesses.inner_product(&other.accesses)?;
        let most = self.len().min(other.len()) as f64;
        Ok(Overlap {
            shared: keys.estimate.clamp(0.0, most),
            shared_error: Overlap::DEVIATIONS * keys.std_error,
            join: upper,
            join_error: upper_error,
        })
    }

    /// The number of pairs of equal keys in two sets whose keys may occur more than once: the size
    /// of their join. About 5 ms.
    ///
    /// # Errors
    /// [`CombineError`] for sets with different seeds.
    pub fn join(&self, other: &Self) -> Result<InnerProduct, CombineError> {
        self.keys.inner_product(&other.keys)
    }

    /// The bytes of both sketches: keys, then accesses.
    #[must_use]
    pub fn encode(&self) -> [Vec<u8>; 2] {
        [&self.keys, &self.accesses].map(|sketch| {
            let mut bytes = Vec::new();
            sketch.encode(&mut bytes);
            bytes
        })
    }

    /// Reads the output of [`KeySet::encode`], if it has this seed. Allocates 5 MiB, whatever the
    /// bytes say.
    ///
    /// # Errors
    /// [`KeySetError`]; nothing was created.
    pub fn decode([keys, accesses]: [&[u8]; 2], seed: u64) -> Result<Self, KeySetError> {
        let counters = Shape::OF_KEY_SETS.counters();
        let decoded = Self {
            keys: CountMin::decode(keys, counters)?,
            accesses: CountMin::decode(accesses, counters)?,
        };
        let alike = CountMin::new(Shape::OF_KEY_SETS, seed);
        decoded.keys.check_combines_with(&alike)?;
        decoded.accesses.check_combines_with(&alike)?;
        Ok(decoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::digest;

    const SEED: u64 = 7;

    /// A set as nodes encode it and a client reads it: three parts, each as bytes.
    fn travelled(keys: std::ops::Range<u64>, accesses: impl Fn(u64) -> u64) -> KeySet {
        let mut whole = KeySet::new(SEED);
        for node in 0..3 {
            let mut part = KeySet::new(SEED);
            keys.clone()
                .filter(|key| key % 3 == node)
                .for_each(|key| part.insert(&digest(key), accesses(key)));
            let [keys, accesses] = part.encode();
            let part = KeySet::decode([&keys, &accesses], SEED).unwrap();
            whole.merge(&part).unwrap();
        }
        whole
    }

    #[test]
    fn of_two_sets_of_200_000_keys_that_share_20_000_these_are_told_within_a_tenth() {
        let a = travelled(0..200_000, |_| 0);
        let b = travelled(180_000..380_000, |_| 0);
        let overlap = a.overlap(&b).unwrap();
        assert_eq!((a.len(), b.len()), (200_000, 200_000));
        assert!(
            (overlap.shared - 20_000.0).abs() <= 2_000.0,
            "{overlap:?} within 10 %"
        );
        assert!(
            overlap.shared_error <= 2_000.0,
            "{overlap:?} and it says so"
        );
        assert!((overlap.shared - 20_000.0).abs() <= overlap.shared_error);
    }

    #[test]
    fn the_join_is_never_below_the_truth_nor_above_it_by_more_than_the_error() {
        let accesses = |key: u64| if key.is_multiple_of(100) { 1_000 } else { 0 };
        let a = travelled(0..20_000, accesses);
        let b = travelled(10_000..30_000, accesses);
        let overlap = a.overlap(&b).unwrap();
        let truth = 100 * 1_000_u128 * 1_000;
        assert_eq!(a.accesses(), 200 * 1_000);
        assert!(overlap.join >= truth, "{overlap:?}");
        assert!((overlap.join - truth) as f64 <= overlap.join_error);
    }

    #[test]
    fn sets_that_share_nothing_or_everything_stay_within_their_sizes() {
        let a = travelled(0..1_000, |_| 1);
        let none = a.overlap(&travelled(5_000..6_000, |_| 1)).unwrap();
        assert!((0.0..=none.shared_error).contains(&none.shared), "{none:?}");
        let all = a.overlap(&a).unwrap();
        assert!(all.shared <= 1_000.0 && all.shared + all.shared_error >= 1_000.0);
        let empty = a.overlap(&KeySet::new(SEED)).unwrap();
        assert_eq!(
            (empty.shared, empty.shared_error, empty.join),
            (0.0, 0.0, 0)
        );
        assert!(KeySet::new(SEED).is_empty());
    }

    /// The lecture's tables: students and clubs, students and courses.
    #[test]
    fn the_join_of_the_lectures_tables_has_six_rows() {
        let table = |students: &[u64]| {
            let mut set = KeySet::new(SEED);
            for student in students {
                set.insert(&digest(*student), 0);
            }
            set
        };
        let join = table(&[1, 1, 2]).join(&table(&[1, 1, 2, 2])).unwrap();
        assert_eq!((join.upper, join.estimate.round() as u64), (6, 6));
    }

    #[test]
    fn bytes_of_another_seed_or_shape_are_refused() {
        let [keys, accesses] = KeySet::new(SEED).encode();
        let decoded = |keys: &[u8], seed| KeySet::decode([keys, &accesses], seed);
        assert!(decoded(&keys, SEED).is_ok());
        assert_eq!(
            decoded(&keys, SEED + 1),
            Err(KeySetError::Combine(CombineError::Seed))
        );
        let mut small = Vec::new();
        CountMin::new(Shape::OF_HOT_KEYS, SEED).encode(&mut small);
        assert!(matches!(
            decoded(&small, SEED),
            Err(KeySetError::Combine(CombineError::Shape(..)))
        ));
        assert!(matches!(
            decoded(&keys[1..], SEED),
            Err(KeySetError::Decode(_))
        ));
        let mut set = KeySet::new(SEED);
        assert_eq!(set.merge(&KeySet::new(9)), Err(CombineError::Seed));
    }
}
