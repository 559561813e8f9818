//! An ordered map of packed records: two levels of sorted arrays.
//!
//! A leaf is a sorted array of up to [`LEAF_LEN`] slots of 32 bytes; the leaves are also in order.
//! Tokens are hashes, so both levels interpolate a token's position between the first and the last
//! one and search from there, usually over a few places. Any distribution gives correct results; a
//! skewed one takes logarithmic time.
//!
//! Chosen over `BTreeMap`, whose nodes are two thirds full (50 bytes per record instead of about
//! 35), and which cannot replace a key in place, although its key would hold the record's bytes.
//! Records are removed in bulk after a flush, which rebuilds the map.

use std::cmp::Ordering;

use torc_index::prefetch_value;
use torc_record::Locator;

use crate::Seq;
use crate::packed::Packed;

/// Capacity of a leaf, slots.
const LEAF_LEN: usize = 128;
/// Slots by which a leaf grows: it wastes half of them on average.
const LEAF_GROWTH: usize = 16;

/// A record, with the fields that lookups and tails of transfers read first.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    token: u64,
    pub(crate) seq: Seq,
    pub(crate) packed: Packed,
}

impl Slot {
    fn new(seq: Seq, packed: Packed) -> Self {
        Self {
            token: packed.token(),
            seq,
            packed,
        }
    }

    /// Reads the record's bytes only if the tokens are equal.
    fn compare(&self, position: &Locator<&[u8]>) -> Ordering {
        self.token
            .cmp(&position.digest.high())
            .then_with(|| self.packed.position().cmp(position))
    }
}

/// Never empty.
#[derive(Debug)]
struct Leaf {
    first: u64,
    last: u64,
    slots: Vec<Slot>,
}

impl Leaf {
    fn of(slots: Vec<Slot>) -> Self {
        let mut leaf = Self {
            first: 0,
            last: 0,
            slots,
        };
        leaf.note_ends();
        leaf
    }

    fn note_ends(&mut self) {
        if let (Some(first), Some(last)) = (self.slots.first(), self.slots.last()) {
            (self.first, self.last) = (first.token, last.token);
        }
    }

    fn starts_after(&self, position: &Locator<&[u8]>) -> bool {
        match self.first.cmp(&position.digest.high()) {
            Ordering::Equal => self.slots[0].compare(position) == Ordering::Greater,
            unequal => unequal == Ordering::Greater,
        }
    }

    /// Where a token is expected.
    fn guess(&self, token: u64) -> usize {
        place_of(token, self.first, self.last, self.slots.len())
    }

    /// As `binary_search`.
    fn find(&self, position: &Locator<&[u8]>) -> Result<usize, usize> {
        let guess = self.guess(position.digest.high());
        let is_before = |at: usize| self.slots[at].compare(position) == Ordering::Less;
        let at = partition_point_near(self.slots.len(), guess, is_before);
        match self.slots.get(at) {
            Some(slot) if slot.compare(position) == Ordering::Equal => Ok(at),
            _ => Err(at),
        }
    }

    fn insert(&mut self, at: usize, slot: Slot) {
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact(LEAF_GROWTH);
        }
        self.slots.insert(at, slot);
        self.note_ends();
    }
}

/// The result of offering a record to the map.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Upsert {
    /// The key was new.
    Inserted,
    /// The record superseded this one.
    Replaced(Packed),
    /// The map has the same or a newer version; nothing was changed.
    Stale,
}

/// Records in ring order, one per (digest, namespace, key).
#[derive(Debug, Default)]
pub(crate) struct Ordered {
    leaves: Vec<Leaf>,
}

impl Ordered {
    /// The slot at a position.
    pub(crate) fn get(&self, position: &Locator<&[u8]>) -> Option<&Slot> {
        let leaf = self.leaves.get(self.leaf_of(position))?;
        leaf.find(position).ok().map(|at| &leaf.slots[at])
    }

    /// The first of three steps before a [`get`](Self::get) that shall not wait for memory: prefetches
    /// where the search for the leaf begins. Between the steps, do the same for other positions.
    pub(crate) fn prefetch_leaves(&self) {
        if let (Some(first), Some(last)) = (self.leaves.first(), self.leaves.last()) {
            prefetch_value(first);
            prefetch_value(last);
        }
    }

    /// The second step: prefetches where the search for the slot begins.
    pub(crate) fn prefetch_slot(&self, position: &Locator<&[u8]>) {
        if let Some(leaf) = self.leaves.get(self.leaf_of(position)) {
            prefetch_value(&leaf.slots[leaf.guess(position.digest.high())]);
        }
    }

    /// The third step: prefetches the record.
    pub(crate) fn prefetch_record(&self, position: &Locator<&[u8]>) {
        let Some(leaf) = self.leaves.get(self.leaf_of(position)) else {
            return;
        };
        let token = position.digest.high();
        let is_before = |at: usize| leaf.slots[at].token < token;
        let at = partition_point_near(leaf.slots.len(), leaf.guess(token), is_before);
        if let Some(slot) = leaf.slots.get(at).filter(|slot| slot.token == token) {
            slot.packed.prefetch();
        }
    }

    /// Inserts a record, unless the same or a newer version is there.
    pub(crate) fn upsert(&mut self, seq: Seq, packed: &Packed) -> Upsert {
        let slot = Slot::new(seq, packed.clone());
        let position = packed.position();
        let index = self.leaf_of(&position);
        let Some(leaf) = self.leaves.get_mut(index) else {
            self.append_leaf(slot);
            return Upsert::Inserted;
        };
        match leaf.find(&position) {
            Ok(at) if slot.packed.supersedes(&leaf.slots[at].packed) => {
                let old = std::mem::replace(&mut leaf.slots[at], slot);
                Upsert::Replaced(old.packed)
            }
            Ok(_) => Upsert::Stale,
            Err(at) => {
                self.insert(index, at, slot);
                Upsert::Inserted
            }
        }
    }

    /// Removes and returns all slots for which `goes` is true. Linear time.
    pub(crate) fn remove(&mut self, mut goes: impl FnMut(&Slot) -> bool) -> Vec<Slot> {
        let mut removed = Vec::new();
        for leaf in std::mem::take(&mut self.leaves) {
            for slot in leaf.slots {
                if goes(&slot) {
                    removed.push(slot);
                } else {
                    self.append(slot);
                }
            }
        }
        removed
    }

    /// Adds a slot that sorts after all others.
    fn append(&mut self, slot: Slot) {
        match self.leaves.last_mut() {
            Some(leaf) if leaf.slots.len() < LEAF_LEN => {
                let at = leaf.slots.len();
                leaf.insert(at, slot);
            }
            _ => self.append_leaf(slot),
        }
    }

    /// Slots after a position, or all of them, in order.
    pub(crate) fn after(&self, position: Option<&Locator<&[u8]>>) -> impl Iterator<Item = &Slot> {
        let (index, at) = match position {
            None => (0, 0),
            Some(position) => {
                let index = self.leaf_of(position);
                let at = self.leaves.get(index).map_or(0, |leaf| {
                    leaf.find(position).map_or_else(|at| at, |found| found + 1)
                });
                (index, at)
            }
        };
        let rest = self.leaves.get(index..).unwrap_or_default();
        rest.iter().flat_map(|leaf| leaf.slots.iter()).skip(at)
    }

    /// The only leaf that may hold the position: the last one that does not start after it.
    fn leaf_of(&self, position: &Locator<&[u8]>) -> usize {
        let (Some(first), Some(last)) = (self.leaves.first(), self.leaves.last()) else {
            return 0;
        };
        let guess = place_of(
            position.digest.high(),
            first.first,
            last.first,
            self.leaves.len(),
        );
        let is_before = |at: usize| !self.leaves[at].starts_after(position);
        partition_point_near(self.leaves.len(), guess, is_before).saturating_sub(1)
    }

    fn insert(&mut self, index: usize, at: usize, slot: Slot) {
        let is_last = index + 1 == self.leaves.len();
        let leaf = &mut self.leaves[index];
        if leaf.slots.len() < LEAF_LEN {
            leaf.insert(at, slot);
        } else if is_last && at == LEAF_LEN {
            // Full leaves result if records arrive in ring order.
            self.append_leaf(slot);
        } else {
            let half = LEAF_LEN / 2;
            let mut right = Leaf::of(leaf.slots.split_off(half));
            leaf.slots.shrink_to(half + LEAF_GROWTH);
            if at <= half {
                leaf.insert(at, slot);
            } else {
                right.insert(at - half, slot);
            }
            leaf.note_ends();
            self.leaves.insert(index + 1, right);
        }
    }

    fn append_leaf(&mut self, slot: Slot) {
        let mut slots = Vec::with_capacity(LEAF_GROWTH);
        slots.push(slot);
        self.leaves.push(Leaf::of(slots));
    }
}

/// The expected index of a token among `len` tokens spread evenly from `first` to `last`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a guess, from which galloping starts; `as` saturates"
)]
fn place_of(token: u64, first: u64, last: u64, len: usize) -> usize {
    if token <= first {
        return 0;
    }
    if token >= last {
        return len - 1;
    }
    let share = (token - first) as f64 / (last - first) as f64;
    ((share * (len - 1) as f64) as usize).min(len - 1)
}

/// As `partition_point` on `len` places, but galloping from a guess.
fn partition_point_near(len: usize, guess: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut from, mut to) = (0, len);
    let mut step = 1;
    if is_before(guess) {
        from = guess + 1;
        while from + step <= to {
            let probe = from + step - 1;
            if is_before(probe) {
                from = probe + 1;
                step *= 2;
            } else {
                to = probe;
            }
        }
    } else {
        to = guess;
        while from + step <= to {
            let probe = to - step;
            if is_before(probe) {
                from = probe + 1;
            } else {
                to = probe;
                step *= 2;
            }
        }
    }
    while from < to {
        let middle = from.midpoint(to);
        if is_before(middle) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::tests::{record, value};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use torc_record::{Digest, Record};

    /// A record with a token and digest chosen by the test, so that keys can share digests.
    fn placed(token: u64, low: u64, key: u8, time: u64) -> Record {
        let mut record = record(&[key], time, value(&[key; 3]));
        let mut digest = [0; 16];
        digest[..8].copy_from_slice(&token.to_be_bytes());
        digest[8..].copy_from_slice(&low.to_be_bytes());
        record.digest = Digest(digest);
        record
    }

    fn packed(record: &Record) -> Packed {
        Packed::of(record).unwrap()
    }

    fn check_equal(ordered: &Ordered, model: &BTreeMap<(u64, u64, u8), (u64, u64)>) {
        let held: Vec<_> = ordered
            .after(None)
            .map(|slot| {
                let record = slot.packed.unpack();
                let place = (record.digest.high(), record.digest.low());
                let place = (place.0, place.1, record.key.as_bytes()[0]);
                (place, (slot.seq.0, record.ballot.time.0))
            })
            .collect();
        let expected: Vec<_> = model.iter().map(|(place, held)| (*place, *held)).collect();
        assert_eq!(held, expected);
    }

    /// Positions: spread over the ring, crowded at one spot, and colliding.
    fn place() -> impl Strategy<Value = (u64, u64, u8)> {
        prop_oneof![
            (any::<u64>(), any::<u64>(), 0_u8..3),
            (0_u64..400, 0_u64..2, 0_u8..2),
            (Just(7), 0_u64..30, 0_u8..10),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn it_is_a_map_in_ring_order_that_keeps_the_highest_ballot(
            writes in proptest::collection::vec((place(), 0_u64..4), 0..1500),
            probes in proptest::collection::vec(place(), 30),
        ) {
            let mut ordered = Ordered::default();
            let mut model = BTreeMap::new();
            for (seq, (place, time)) in writes.iter().enumerate() {
                let seq = seq as u64;
                let record = placed(place.0, place.1, place.2, *time);
                let upsert = ordered.upsert(Seq(seq), &packed(&record));
                match model.get(place).copied() {
                    None => prop_assert_eq!(upsert, Upsert::Inserted),
                    Some((_, held)) if held < *time => {
                        let old = placed(place.0, place.1, place.2, held);
                        prop_assert_eq!(upsert, Upsert::Replaced(packed(&old)));
                    }
                    Some(_) => {
                        prop_assert_eq!(upsert, Upsert::Stale);
                        continue;
                    }
                }
                model.insert(*place, (seq, *time));
            }
            check_equal(&ordered, &model);
            for probe in probes.iter().chain(writes.iter().map(|(place, _)| place)) {
                let stranger = packed(&placed(probe.0, probe.1, probe.2, 0));
                let position = stranger.position();
                let found = ordered.get(&position).map(|slot| slot.seq.0);
                prop_assert_eq!(found, model.get(probe).map(|held| held.0));
                let next = ordered.after(Some(&position)).next().map(|slot| slot.seq.0);
                let mut rest = model.range((std::ops::Bound::Excluded(*probe), std::ops::Bound::Unbounded));
                prop_assert_eq!(next, rest.next().map(|(_, held)| held.0));
            }
        }
    }

    #[test]
    fn what_is_removed_is_given_back_and_the_rest_stays_in_order() {
        let mut ordered = Ordered::default();
        for token in 0..1000 {
            ordered.upsert(Seq(token), &packed(&placed(token << 40, 0, 0, 1)));
        }
        let removed = ordered.remove(|slot| slot.seq.0 % 10 != 0);
        assert_eq!(removed.len(), 900);
        let kept: Vec<u64> = ordered.after(None).map(|slot| slot.seq.0).collect();
        assert_eq!(kept, (0..1000).step_by(10).collect::<Vec<_>>());
        let one = packed(&placed(500 << 40, 0, 0, 1));
        assert!(ordered.get(&one.position()).is_some());
        assert_eq!(ordered.remove(|_| true).len(), 100);
        assert!(ordered.get(&one.position()).is_none());
    }

    #[test]
    fn the_partition_point_is_found_from_any_guess() {
        for len in 1..40 {
            for point in 0..=len {
                for guess in 0..len {
                    let found = partition_point_near(len, guess, |at| at < point);
                    assert_eq!(found, point, "{len} places, guess {guess}");
                }
            }
        }
    }

    #[test]
    fn records_in_ring_order_fill_their_leaves() {
        let mut ordered = Ordered::default();
        for token in 0..1000 {
            ordered.upsert(Seq(token), &packed(&placed(token << 40, 0, 0, 1)));
        }
        assert_eq!(ordered.leaves.len(), 1000_usize.div_ceil(LEAF_LEN));
        let reserved: usize = ordered.leaves.iter().map(|l| l.slots.capacity()).sum();
        assert!(reserved < 1000 + LEAF_GROWTH, "{reserved} slots reserved");
    }
}
