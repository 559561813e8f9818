//! Which epochs of a partition were settled: one set decided alone.
//!
//! A version of such an epoch that a majority of the set holds is chosen; one of an
//! epoch that wrote to two sets may not be (R5). Copying counts as settled, its quorums
//! are those of the old set.
//!
//! The history is bounded: beyond [`Settled::MAX_RANGES`] moves the two oldest ranges
//! become one that covers what lay between. That is safe, an epoch wrongly taken as
//! transitional only costs the first reader of such a version a write.

use torc_record::Epoch;

use super::MalformedConfig;

/// The transitional epochs of a partition; all others are settled.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "Vec<(Epoch, Epoch)>", into = "Vec<(Epoch, Epoch)>")]
pub struct Settled {
    transitional: Vec<(Epoch, Epoch)>,
}

impl TryFrom<Vec<(Epoch, Epoch)>> for Settled {
    type Error = MalformedConfig;

    /// From ranges of transitional epochs, both ends included, in ascending order.
    fn try_from(transitional: Vec<(Epoch, Epoch)>) -> Result<Self, MalformedConfig> {
        let in_order = transitional.windows(2).all(|pair| pair[0].1 < pair[1].0);
        let forward = transitional.iter().all(|(first, last)| first <= last);
        if in_order && forward && transitional.len() <= Self::MAX_RANGES {
            return Ok(Self { transitional });
        }
        Err(MalformedConfig("transitional epochs out of order"))
    }
}

impl From<Settled> for Vec<(Epoch, Epoch)> {
    fn from(settled: Settled) -> Self {
        settled.transitional
    }
}

impl Settled {
    /// Most ranges remembered.
    pub const MAX_RANGES: usize = 16;

    /// Whether a version of `epoch` held by a majority is known to be chosen.
    #[must_use]
    pub fn contains(&self, epoch: Epoch) -> bool {
        let covers = |range: &(Epoch, Epoch)| range.0 <= epoch && epoch <= range.1;
        !self.transitional.iter().any(covers)
    }

    /// The ranges of transitional epochs, both ends included, in ascending order.
    #[must_use]
    pub fn transitional(&self) -> &[(Epoch, Epoch)] {
        &self.transitional
    }

    pub(super) fn is_empty(&self) -> bool {
        self.transitional.is_empty()
    }

    /// Notes that the epochs `first` to `last` wrote to two sets.
    pub(crate) fn add_transitional(&mut self, first: Epoch, last: Epoch) {
        self.transitional.push((first, last));
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
        for at in 0..40_u64 {
            settled.add_transitional(Epoch(10 * at), Epoch(10 * at + 1));
        }
        for at in 0..40_u64 {
            assert!(!settled.contains(Epoch(10 * at)), "epoch {}", 10 * at);
        }
        assert!(
            settled.contains(Epoch(395)),
            "the newest are still told apart"
        );
        assert_eq!(settled.transitional.len(), Settled::MAX_RANGES);
    }
}
