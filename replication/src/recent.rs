//! A replica's recently stored versions, from which it knows what it accepted and what it never
//! stored (R7).
//!
//! A write that was refused and overtaken asks for its outcome. A replica that remembers
//! everything stored in its epoch may deny a version; a replica that has forgotten some versions
//! may deny only higher ones. It keeps only the highest version of each key and node, because a node
//! finishes one write of a key before it begins the next, so only its latest write can be in doubt.
//! It identifies keys by half of their digest. After a start, it remembers what its disk still knows.

use std::cmp::Ordering;
use std::collections::VecDeque;

use torc_record::{Ballot, Epoch, HybridTime, NodeSlot, StoredVersion, StoredVersions};

use crate::{KeyId, Recall};

#[derive(Debug, Clone, Copy)]
struct Stored {
    time: HybridTime,
    slot: NodeSlot,
    /// The last ballot under which it was stored, of the replica's epoch.
    last_time: HybridTime,
    last_slot: NodeSlot,
    /// Whether it was stored under its own version first.
    is_accepted: bool,
    /// Half of the key's digest.
    word: u64,
}

const _: () = assert!(size_of::<Stored>() == 32);

/// The last versions that one replica stored in its epoch, one of each key and node. 32 bytes per
/// version.
#[derive(Debug, Clone)]
pub(crate) struct Recent {
    epoch: Epoch,
    /// Upper bound of all forgotten versions.
    forgotten: HybridTime,
    last: VecDeque<Stored>,
    capacity: usize,
}

impl Recent {
    /// For a starting replica: everything that it stored in its epoch is at or below the ceiling.
    pub(crate) fn resume(
        epoch: Epoch,
        ceiling: HybridTime,
        known: &StoredVersions,
        capacity: usize,
    ) -> Self {
        let mut recent = Self {
            epoch,
            forgotten: ceiling.min(known.forgotten),
            last: VecDeque::new(),
            capacity,
        };
        for stored in &known.last {
            recent.note(*stored);
        }
        recent
    }

    /// Starts an epoch without stored versions.
    pub(crate) fn begin(&mut self, epoch: Epoch) {
        *self = Self {
            epoch,
            forgotten: HybridTime::default(),
            last: VecDeque::new(),
            capacity: self.capacity,
        };
    }

    /// Stops denying versions of this epoch, because records may now arrive in bulk.
    pub(crate) fn give_up(&mut self) {
        self.forgotten = HybridTime(u64::MAX);
        self.last = VecDeque::new();
    }

    /// Notes a stored version.
    pub(crate) fn note(&mut self, stored: StoredVersion) {
        let StoredVersion {
            key,
            version,
            ballot,
        } = stored;
        if version.epoch != self.epoch || version.time <= self.forgotten {
            return;
        }
        // A replica stores under no later epoch than its own.
        let mut noted = Stored {
            time: version.time,
            slot: version.slot,
            last_time: ballot.time,
            last_slot: ballot.slot,
            is_accepted: ballot == version,
            word: word(key),
        };
        let is_before = |it: &Stored| it.word == noted.word && it.slot == noted.slot;
        if let Some(index) = self.last.iter().rposition(is_before)
            && let Some(before) = self.last.remove(index)
        {
            match before.time.cmp(&noted.time) {
                Ordering::Less => {}
                Ordering::Equal => noted.is_accepted |= before.is_accepted,
                Ordering::Greater => noted = before,
            }
        }
        if self.last.len() >= self.capacity
            && let Some(oldest) = self.last.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest.time);
        }
        self.last.push_back(noted);
    }

    /// Its memory of versions of the key from the same node at or above `doubted`.
    pub(crate) fn recall(&self, key: KeyId, doubted: Ballot) -> Recall {
        if doubted.epoch != self.epoch || doubted.time <= self.forgotten {
            return Recall::Unsure;
        }
        let word = word(key);
        let is_it =
            |it: &&Stored| it.word == word && it.slot == doubted.slot && it.time >= doubted.time;
        let stored = self.last.iter().filter(is_it).max_by_key(|it| it.time);
        stored.map_or(Recall::Never, |it| {
            let ballot = |time, slot| Ballot {
                epoch: self.epoch,
                time,
                slot,
            };
            Recall::Stored {
                version: ballot(it.time, it.slot),
                is_accepted: it.is_accepted,
                last: ballot(it.last_time, it.last_slot),
            }
        })
    }

    /// Breaks R7 on purpose: treats forgotten versions as never stored.
    pub(crate) fn recall_carelessly(&self, key: KeyId, doubted: Ballot) -> Recall {
        let all = Self {
            forgotten: HybridTime::default(),
            epoch: doubted.epoch,
            ..self.clone()
        };
        all.recall(key, doubted)
    }
}

fn word(key: KeyId) -> u64 {
    key.digest.low() ^ u64::from(key.namespace.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use torc_record::{Digest, NamespaceId};

    fn key(number: u8) -> KeyId {
        KeyId {
            digest: Digest([number; 16]),
            namespace: NamespaceId::DEFAULT,
        }
    }

    fn version(time: u64, slot: u16) -> Ballot {
        Ballot {
            epoch: Epoch(3),
            time: HybridTime(time),
            slot: NodeSlot(slot),
        }
    }

    fn stored(at: u8, time: u64, slot: u16) -> StoredVersion {
        StoredVersion {
            key: key(at),
            version: version(time, slot),
            ballot: version(time, slot),
        }
    }

    fn again(at: u8, time: u64, slot: u16, ballot: Ballot) -> StoredVersion {
        StoredVersion {
            ballot,
            ..stored(at, time, slot)
        }
    }

    fn recalled(version: Ballot, is_accepted: bool, last: Ballot) -> Recall {
        Recall::Stored {
            version,
            is_accepted,
            last,
        }
    }

    fn once(time: u64, slot: u16) -> Recall {
        let version = version(time, slot);
        recalled(version, true, version)
    }

    proptest! {
        #[test]
        fn nothing_that_was_stored_is_denied(
            all in proptest::collection::vec((0_u8..4, 1_u64..60, 0_u16..2), 1..60),
            capacity in 1_usize..8,
            (flushed, started) in (0_usize..60, 0_usize..60),
        ) {
            let mut known = StoredVersions::default();
            let mut recent =
                Recent::resume(Epoch(3), HybridTime::default(), &known, capacity);
            for (number, (at, time, slot)) in all.iter().enumerate() {
                recent.note(stored(*at, *time, *slot));
                known.note(stored(*at, *time, *slot));
                let highest = all[..=number].iter().map(|(_, time, _)| *time).max();
                let highest = HybridTime(highest.unwrap_or(0));
                if number == flushed {
                    known = StoredVersions::after(highest);
                }
                if number == started {
                    recent = Recent::resume(Epoch(3), highest, &known, capacity);
                }
                prop_assert!(recent.last.len() <= capacity, "memory is bounded");
                for (at, time, slot) in &all[..=number] {
                    for doubted in 1..=*time {
                        let recall = recent.recall(key(*at), version(doubted, *slot));
                        prop_assert!(recall != Recall::Never, "{at} was stored at {time}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_key_that_is_written_all_the_time_crowds_out_no_other() {
        let none = StoredVersions::default();
        let mut recent = Recent::resume(Epoch(3), HybridTime::default(), &none, 3);
        recent.note(stored(1, 10, 0));
        recent.note(stored(2, 11, 1));
        for time in 20..90 {
            recent.note(stored(2, time, 0));
        }
        let of = |at: u8, doubted: Ballot| recent.recall(key(at), doubted);
        assert_eq!(of(1, version(10, 0)), once(10, 0));
        assert_eq!(of(2, version(11, 1)), once(11, 1));
        assert_eq!(of(2, version(12, 1)), Recall::Never);
        assert_eq!(of(1, version(11, 0)), Recall::Never);
    }

    #[test]
    fn a_versions_own_ballot_and_the_last_one_are_remembered() {
        let none = StoredVersions::default();
        let mut recent = Recent::resume(Epoch(3), HybridTime::default(), &none, 4);
        recent.note(stored(1, 10, 0));
        recent.note(stored(2, 10, 0));
        for ballot in [version(20, 1), version(30, 2)] {
            recent.note(again(1, 10, 0, ballot));
            recent.note(again(3, 11, 0, ballot));
        }
        recent.note(stored(1, 35, 1));
        let of = |at: u8, doubted: Ballot| recent.recall(key(at), doubted);
        let (own, last) = (version(10, 0), version(30, 2));
        assert_eq!(of(1, own), recalled(own, true, last));
        assert_eq!(of(3, own), recalled(version(11, 0), false, last));
        assert_eq!(of(2, own), once(10, 0));
    }

    #[test]
    fn what_was_never_stored_is_denied_until_it_may_be_forgotten() {
        let mut recent = Recent::resume(Epoch(3), HybridTime(10), &StoredVersions::UNKNOWN, 2);
        let of = |recent: &Recent, at: u8, doubted: Ballot| recent.recall(key(at), doubted);
        assert_eq!(
            of(&recent, 1, version(10, 0)),
            Recall::Unsure,
            "before the start"
        );
        assert_eq!(of(&recent, 1, version(11, 0)), Recall::Never);
        recent.note(stored(1, 20, 1));
        assert_eq!(
            of(&recent, 1, version(11, 0)),
            Recall::Never,
            "another node's"
        );
        assert_eq!(
            of(&recent, 2, version(11, 1)),
            Recall::Never,
            "another key's"
        );
        assert_eq!(of(&recent, 1, version(11, 1)), once(20, 1));
        recent.note(stored(2, 30, 1));
        recent.note(stored(2, 35, 0));
        assert_eq!(
            of(&recent, 1, version(20, 0)),
            Recall::Unsure,
            "one at 20 is forgotten"
        );
        assert_eq!(of(&recent, 1, version(21, 0)), Recall::Never);
        let other_epoch = Ballot {
            epoch: Epoch(4),
            ..version(50, 0)
        };
        assert_eq!(of(&recent, 1, other_epoch), Recall::Unsure);
        recent.give_up();
        recent.note(stored(1, 60, 0));
        assert_eq!(of(&recent, 3, version(70, 0)), Recall::Unsure);
        recent.begin(Epoch(4));
        assert_eq!(of(&recent, 1, other_epoch), Recall::Never);
    }
}
