//! The settled epochs of a partition, in which one set decided alone.
//!
//! A version of a settled epoch that a majority of the set holds is chosen; a version
//! of an epoch with two sets may not be (R5). The copying stage is settled: its quorums
//! are those of the old set.
//!
//! The epochs of one move with two sets are consecutive, so a move is one range. The
//! history is bounded: beyond [`Settled::MAX_RANGES`], the two oldest ranges merge into
//! one that covers the gap. This is safe: an epoch wrongly treated as transitional only
//! costs the first reader of such a version a write.
//!
//! Cost per move of a partition: 16 bytes of RAM and 5 to 8 bytes of JSON, which stores
//! differences of numbers. With 4,096 partitions that have moved 30 times each the stored
//! topology grows by 1 MB, with 1,024 times by 30 MB.

use torc_record::Epoch;

use super::MalformedConfig;

/// The transitional epochs of a partition; all others are settled.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct Settled {
    /// Inclusive ranges in ascending order; no two are adjacent.
    transitional: Vec<(Epoch, Epoch)>,
}

impl TryFrom<Vec<u64>> for Settled {
    type Error = MalformedConfig;

    /// Decodes differences: to the first epoch of a range, from there to its last, and so on.
    fn try_from(distances: Vec<u64>) -> Result<Self, MalformedConfig> {
        const REFUSED: MalformedConfig = MalformedConfig("transitional epochs out of order");
        let pairs = distances.chunks_exact(2);
        if !pairs.remainder().is_empty() || pairs.len() > Self::MAX_RANGES {
            return Err(REFUSED);
        }
        let mut settled = Self::default();
        let mut at = 0_u64;
        for pair in pairs {
            let touches = !settled.is_empty() && pair[0] < 2;
            let first = at.checked_add(pair[0]).filter(|_| !touches);
            let first = first.ok_or(REFUSED)?;
            at = first.checked_add(pair[1]).ok_or(REFUSED)?;
            settled.transitional.push((Epoch(first), Epoch(at)));
        }
        Ok(settled)
    }
}

impl From<Settled> for Vec<u64> {
    fn from(settled: Settled) -> Self {
        let mut at = 0;
        let distances = settled.transitional.iter().flat_map(|(first, last)| {
            let pair = [first.0 - at, last.0 - first.0];
            at = last.0;
            pair
        });
        distances.collect()
    }
}

impl Settled {
    /// Most ranges.
    pub const MAX_RANGES: usize = 1_024;

    /// For a partition at `epoch` with an unknown past: no earlier epoch is settled.
    #[must_use]
    pub fn unknown_before(epoch: Epoch) -> Self {
        let mut settled = Self::default();
        if let Some(last) = epoch.0.checked_sub(1) {
            settled.add_transitional(Epoch(0), Epoch(last));
        }
        settled
    }

    /// Whether a version of `epoch` held by a majority is known to be chosen. O(log moves).
    #[must_use]
    pub fn contains(&self, epoch: Epoch) -> bool {
        let ranges = &self.transitional;
        let next = ranges.partition_point(|(_, last)| *last < epoch);
        ranges.get(next).is_none_or(|(first, _)| epoch < *first)
    }

    pub(super) fn last_transitional(&self) -> Option<Epoch> {
        self.transitional.last().map(|(_, last)| *last)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.transitional.is_empty()
    }

    /// Records that the epochs `first` to `last` wrote to two sets. They come after all
    /// recorded ones.
    pub(crate) fn add_transitional(&mut self, first: Epoch, last: Epoch) {
        match self.transitional.last_mut() {
            Some(before) if before.1.0 + 1 >= first.0 => before.1 = last,
            _ => self.transitional.push((first, last)),
        }
        if self.transitional.len() > Self::MAX_RANGES {
            let oldest = self.transitional.remove(0);
            if let Some(next) = self.transitional.first_mut() {
                next.0 = oldest.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_epoch_counts_as_transitional_never_as_settled() {
        let mut settled = Settled::default();
        let moves = Settled::MAX_RANGES as u64 + 40;
        for at in 0..moves {
            settled.add_transitional(Epoch(10 * at), Epoch(10 * at + 1));
        }
        for at in 0..moves {
            assert!(!settled.contains(Epoch(10 * at)), "epoch {}", 10 * at);
        }
        assert!(!settled.contains(Epoch(395)), "forgotten");
        assert!(settled.contains(Epoch(405)), "still told apart");
        assert_eq!(settled.transitional.len(), Settled::MAX_RANGES);
    }

    #[test]
    fn what_is_stored_is_read_back_and_nothing_else_is_taken() {
        let mut settled = Settled::default();
        for (first, last) in [(0, 0), (5, 7), (9, 9)] {
            settled.add_transitional(Epoch(first), Epoch(last));
        }
        let stored = Vec::from(settled.clone());
        assert_eq!(stored, [0, 0, 5, 2, 2, 0]);
        assert_eq!(Settled::try_from(stored), Ok(settled));
        let most = vec![2; 2 * Settled::MAX_RANGES];
        assert!(Settled::try_from(most.clone()).is_ok());
        let too_many = [most, vec![2, 2]].concat();
        for bad in [vec![1], vec![1, 0, 1, 0], vec![1, u64::MAX], too_many] {
            assert!(Settled::try_from(bad).is_err());
        }
    }
}
