//! Majority: which key has more than half of the stream, if any?
//!
//! By one counter (Boyer and Moore 1981; the lecture's insertion-only algorithm): 32 bytes and one
//! comparison. The answer is one key. If some key has more than half of the stream, it is that one;
//! otherwise the answer is meaningless, and a count (exact or from a sketch) tells which case holds.
//! Deterministic, without ε or δ. [`MajorityBits`](crate::lecture::MajorityBits) is linear, and so
//! allows deletion and subtraction.

use torc_record::Digest;

/// One candidate and a counter.
///
/// Each insertion of another key cancels one of the candidate; all others together cannot cancel a
/// key with more than half. Two counters can be merged: what is left after cancelling within each
/// stream is cancelled between them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MajorityCounter {
    /// `None` if and only if the lead is 0, so that equal states compare equal.
    candidate: Option<Digest>,
    lead: u64,
}

impl MajorityCounter {
    /// The state of an empty stream.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            candidate: None,
            lead: 0,
        }
    }

    /// The counter with this state, for decoding.
    pub(crate) const fn of(candidate: Digest, lead: u64) -> Self {
        if lead == 0 {
            return Self::new();
        }
        Self {
            candidate: Some(candidate),
            lead,
        }
    }

    /// Counts one insertion of a key. About 1 ns.
    #[inline]
    pub fn insert(&mut self, digest: &Digest) {
        self.insert_many(digest, 1);
    }

    /// Counts `count` insertions of a key.
    #[inline]
    pub fn insert_many(&mut self, digest: &Digest, count: u64) {
        if self.candidate.as_ref() == Some(digest) {
            self.lead = self.lead.saturating_add(count);
        } else if self.lead >= count {
            self.lead -= count;
            if self.lead == 0 {
                self.candidate = None;
            }
        } else {
            // Above 0, because the lead is below the count.
            self.lead = count - self.lead;
            self.candidate = Some(*digest);
        }
    }

    /// Cancels what is left of both streams against each other: names the majority of both
    /// together, if there is one. Otherwise, the key named depends on the order.
    pub fn merge(&mut self, other: &Self) {
        if let Some(candidate) = other.candidate {
            self.insert_many(&candidate, other.lead);
        }
    }

    /// The key with more than half of the stream, if there is one. `None` if there is certainly
    /// none.
    #[must_use]
    pub const fn candidate(&self) -> Option<Digest> {
        self.candidate
    }

    /// Insertions of the candidate that were not cancelled. A majority's count exceeds half of the
    /// stream by at most half of this.
    #[must_use]
    pub const fn lead(&self) -> u64 {
        self.lead
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::digest;

    fn counted(stream: &[u64]) -> MajorityCounter {
        let mut counter = MajorityCounter::new();
        for &key in stream {
            counter.insert(&digest(key));
        }
        counter
    }

    #[test]
    fn half_is_no_majority_and_nothing_has_none() {
        assert_eq!(MajorityCounter::new().candidate(), None);
        assert_eq!(
            counted(&[1, 2]).candidate(),
            None,
            "both cancelled each other"
        );
        assert_eq!(counted(&[1, 2, 1]).candidate(), Some(digest(1)));
        assert_eq!(MajorityCounter::of(digest(1), 0).candidate(), None);
    }

    #[test]
    fn what_cancels_between_streams_cancels_for_good() {
        let mut merged = counted(&[1, 1]);
        merged.merge(&counted(&[2, 2, 2]));
        assert_eq!(merged.lead(), 1);
        merged.merge(&counted(&[1, 1]));
        assert_eq!(merged.candidate(), Some(digest(1)), "four of seven");
    }

    proptest! {
        #[test]
        fn a_majority_is_named_whatever_the_order_and_however_the_stream_is_split(
            others in prop::collection::vec(1_u64..5, 0..60),
            places in prop::collection::vec(any::<prop::sample::Index>(), 61),
            parts in 1_usize..20,
        ) {
            let mut stream = others.clone();
            for place in &places[..=others.len()] {
                stream.insert(place.index(stream.len() + 1), 0);
            }
            prop_assert_eq!(counted(&stream).candidate(), Some(digest(0)));
            let mut merged = MajorityCounter::new();
            for part in stream.chunks(parts) {
                merged.merge(&counted(part));
            }
            prop_assert_eq!(merged.candidate(), Some(digest(0)));
        }

        #[test]
        fn a_majority_exceeds_half_by_at_most_half_of_the_lead(stream in prop::collection::vec(0_u64..3, 1..40)) {
            let counter = counted(&stream);
            for key in 0..3 {
                let count = stream.iter().filter(|&&other| other == key).count();
                let is_majority = 2 * count > stream.len();
                prop_assert!(!is_majority || 2 * count - stream.len() <= counter.lead() as usize);
            }
        }
    }
}
