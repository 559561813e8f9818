//! Promises, in memory only and bounded (R3).
//!
//! Evicting a promise raises the partition's floor to it, which refuses at least as
//! much. The oldest are evicted first: their ballots are the lowest, so the floor stays
//! below running operations.

use std::collections::VecDeque;

use torc_record::Ballot;

use crate::KeyId;
use crate::locator::KeyTable;

/// The promises of one replica that its records do not imply. About 100 bytes per promise.
#[derive(Debug, Clone)]
pub(crate) struct Promises {
    held: KeyTable<Ballot>,
    /// In order of issue; entries that were replaced since are skipped.
    order: VecDeque<(KeyId, Ballot)>,
    capacity: usize,
}

impl Promises {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            held: KeyTable::default(),
            order: VecDeque::new(),
            capacity: capacity.max(1),
        }
    }

    /// The promise for a key; zero if there is none.
    pub(crate) fn get(&self, key: KeyId) -> Ballot {
        self.held.get(&key).copied().unwrap_or_default()
    }

    /// Raises a key's promise. Returns the new floor if older promises were evicted.
    #[must_use = "the floor must follow"]
    pub(crate) fn raise(&mut self, key: KeyId, ballot: Ballot) -> Ballot {
        let held = self.held.entry(key).or_default();
        if ballot <= *held {
            return Ballot::default();
        }
        *held = ballot;
        self.order.push_back((key, ballot));
        let mut floor = Ballot::default();
        while self.held.len() > self.capacity || self.order.len() > 2 * self.capacity {
            let Some((key, ballot)) = self.order.pop_front() else {
                break;
            };
            if self.get(key) == ballot {
                self.held.remove(&key);
                floor = floor.max(ballot);
            }
        }
        floor
    }

    /// Forgets all promises: in a new epoch, all ballots are higher.
    pub(crate) fn clear(&mut self) {
        self.held.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use torc_record::{Digest, Epoch, HybridTime, NamespaceId, NodeSlot};

    fn key(number: u8) -> KeyId {
        KeyId {
            digest: Digest([number; 16]),
            namespace: NamespaceId::DEFAULT,
        }
    }

    fn ballot(time: u64) -> Ballot {
        Ballot {
            epoch: Epoch(1),
            time: HybridTime(time),
            slot: NodeSlot(0),
        }
    }

    proptest! {
        #[test]
        fn what_is_evicted_stays_refused_by_the_floor(
            raises in proptest::collection::vec((0_u8..20, 1_u64..1000), 1..200),
            capacity in 1_usize..8,
        ) {
            let mut promises = Promises::new(capacity);
            let mut floor = Ballot::default();
            let mut model = std::collections::BTreeMap::new();
            for (number, time) in raises {
                floor = floor.max(promises.raise(key(number), ballot(time)));
                let best = model.entry(number).or_insert_with(Ballot::default);
                *best = (*best).max(ballot(time));
                prop_assert!(promises.held.len() <= capacity, "memory is bounded");
                prop_assert!(promises.order.len() <= 2 * capacity);
                for (number, promised) in &model {
                    let refused = floor.max(promises.get(key(*number)));
                    prop_assert!(refused >= *promised, "a promise was forgotten");
                }
            }
        }
    }
}
