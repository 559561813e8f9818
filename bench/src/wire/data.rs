//! The records of the suite, made before anything is timed.

use bytes::Bytes;

use crate::records::{self, Random};

pub(super) struct Data {
    pairs: Vec<(Bytes, Bytes)>,
}

impl Data {
    pub(super) fn new(records: u64) -> Self {
        Self::of(0..records)
    }

    /// Part of the data set.
    pub(super) fn of(records: std::ops::Range<u64>) -> Self {
        let pair = |index| {
            let pair = records::pair(index);
            (Bytes::from(pair.key), Bytes::from(pair.value))
        };
        Self {
            pairs: records.map(pair).collect(),
        }
    }

    pub(super) fn all(&self) -> &[(Bytes, Bytes)] {
        &self.pairs
    }

    /// Number of a record.
    pub(super) fn index(&self, random: &mut Random) -> usize {
        random.below(self.pairs.len() as u64) as usize
    }

    /// A record.
    pub(super) fn any(&self, random: &mut Random) -> &(Bytes, Bytes) {
        &self.pairs[self.index(random)]
    }
}
