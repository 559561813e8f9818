//! The accesses between two points in time.

use torc_record::Digest;

use super::tracker::KeyName;
use crate::count_min::{CombineError, CountMin};
use crate::heavy_hitters::DigestMap;
use crate::majority::MajorityCounter;

/// A key that was heavy in some part of an interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// What it is counted by.
    pub digest: Digest,
    /// What it is called.
    pub name: KeyName,
}

/// Counts, and the keys that may be heavy in them.
///
/// * Combination: [`Interval::merge`], for successive intervals of a node, for its threads, for nodes.
/// * Questions: [`super::hottest`].
/// * Bytes: [`Interval::encode`], [`Interval::decode`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    pub(super) from_ms: u64,
    pub(super) to_ms: u64,
    pub(super) k: u32,
    pub(super) counts: CountMin,
    pub(super) majority: MajorityCounter,
    pub(super) missed: u64,
    /// By digest, each once.
    pub(super) candidates: Vec<Candidate>,
}

impl Interval {
    /// When it began, milliseconds since the epoch.
    #[must_use]
    pub const fn from_ms(&self) -> u64 {
        self.from_ms
    }

    /// When it ended, milliseconds since the epoch; not before it began.
    #[must_use]
    pub const fn to_ms(&self) -> u64 {
        self.to_ms
    }

    /// How often any key was accessed.
    #[must_use]
    pub const fn counts(&self) -> &CountMin {
        &self.counts
    }

    /// N: all accesses.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.total().max(0).unsigned_abs()
    }

    /// Keys with 1/k of the accesses are among the candidates.
    #[must_use]
    pub const fn k(&self) -> u32 {
        self.k
    }

    /// Keys that may be heavy, by digest.
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The key that has more than half of the accesses, if one has.
    #[must_use]
    pub fn majority(&self) -> Option<Digest> {
        self.majority.candidate()
    }

    /// N/k rounded up: the least count that is heavy.
    #[must_use]
    pub fn threshold(&self) -> u64 {
        self.total().div_ceil(u64::from(self.k.max(1)))
    }

    /// Every key with N/k + `missed` accesses is a candidate; 0 unless a tracker's budget for candidates was too small.
    #[must_use]
    pub const fn missed(&self) -> u64 {
        self.missed
    }

    /// Adds another interval, before, after or beside this one: its counts, and the candidates of both that are heavy in both together. The
    /// span is what begins with the earlier and ends with the later. 0.5 ns a counter and about 50 ns a candidate.
    ///
    /// # Errors
    /// [`CombineError`]; nothing was added.
    pub fn merge(&mut self, other: Self) -> Result<(), CombineError> {
        self.counts.merge(&other.counts)?;
        self.from_ms = self.from_ms.min(other.from_ms);
        self.to_ms = self.to_ms.max(other.to_ms);
        // A candidate for the smaller k is one for the larger.
        self.k = self.k.min(other.k);
        self.majority.merge(&other.majority);
        self.missed = self.missed.saturating_add(other.missed);
        let both = self.candidates.drain(..).chain(other.candidates);
        let by_digest: DigestMap<KeyName> = both.map(|c| (c.digest, c.name)).collect();
        self.candidates = by_digest
            .into_iter()
            .map(|(digest, name)| Candidate { digest, name })
            .collect();
        self.drop_light_candidates();
        self.candidates
            .sort_unstable_by_key(|candidate| candidate.digest);
        Ok(())
    }

    fn drop_light_candidates(&mut self) {
        let threshold = self.threshold();
        let counts = &self.counts;
        let is_heavy = |candidate: &Candidate| estimate(counts, &candidate.digest) >= threshold;
        self.candidates.retain(is_heavy);
    }
}

/// The estimate of a key's accesses, which are not negative.
pub(super) fn estimate(counts: &CountMin, digest: &Digest) -> u64 {
    counts.estimate(digest).max(0).unsigned_abs()
}
