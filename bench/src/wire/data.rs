//! The records of the suite, generated before anything is timed.

use bytes::Bytes;

use crate::records::{self, Random};

pub(super) struct Data {
    pairs: Vec<(Bytes, Bytes)>,
}

impl Data {
    pub(super) fn new(records: u64) -> Self {
        Self::of(0..records)
    }

    /// A part of the data set.
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

    /// The number of a random record.
    pub(super) fn index(&self, random: &mut Random) -> usize {
        random.below(self.pairs.len() as u64) as usize
    }

    /// A random record.
    pub(super) fn any(&self, random: &mut Random) -> &(Bytes, Bytes) {
        &self.pairs[self.index(random)]
    }
}
