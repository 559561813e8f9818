use super::*;
use crate::reading::{Reading, What};
use crate::{Lookup, Mutations, Scanned};
use proptest::prelude::*;
use torc_record::{Digest, Epoch, HybridTime, Key, NamespaceId, NodeSlot, PageSum, Record, State};
use torc_ring::NodeId;

/// Spreads small numbers over the circle, one to one.
const fn mix(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[derive(Default, Clone)]
struct Disk {
    records: BTreeMap<KeyId, Record>,
    tree: Option<SumTree>,
}

impl Disk {
    fn put(&mut self, token: u64, time: u64) {
        let record = record(token, time);
        let id = KeyId::of(&record);
        let to = record.ballot;
        let from = self.records.insert(id, record).map(|old| old.ballot);
        if let Some(tree) = &mut self.tree {
            tree.change(id, from, Some(to));
        }
    }
}

impl Storage for Disk {
    fn get(&self, at: &Locator) -> Lookup {
        let found = self.records.get(&at.id()).cloned();
        found.map_or(Lookup::Absent, Lookup::Found)
    }

    fn scan(&self, after: Option<KeyId>, limit: usize) -> Scanned {
        let later = |id: &&KeyId| after.is_none_or(|after| **id > after);
        let ids = self.records.keys().filter(later).take(limit);
        let entries = ids.map(|id| Entry::Found(self.records[id].clone()));
        Scanned::of(entries.collect(), limit)
    }

    fn range_sum(&self, range: Range) -> Option<RangeSum> {
        self.tree.as_ref()?.sum(range)
    }

    fn kept_sum(&self) -> Option<PageSum> {
        let whole = self.range_sum(Range::ALL)?;
        Some(PageSum::of(whole.count, whole.sum))
    }
}

fn record(token: u64, time: u64) -> Record {
    let mut digest = [0; 16];
    digest[..8].copy_from_slice(&token.to_be_bytes());
    Record {
        namespace: NamespaceId::DEFAULT,
        digest: Digest(digest),
        key: Key::new(token.to_be_bytes().to_vec()).unwrap(),
        ballot: Ballot {
            epoch: Epoch(1),
            time: HybridTime(time),
            slot: NodeSlot(0),
        },
        origin: None,
        state: State::Tombstone,
    }
}

fn reading(what: What) -> Reading {
    Reading {
        epoch: Epoch(1),
        collected: Ballot::default(),
        page_records: 8,
        mutations: Mutations::default(),
        peer: NodeId(2),
        what,
    }
}

fn spread(count: u64) -> Disk {
    let mut disk = Disk {
        tree: Some(SumTree::default()),
        ..Disk::default()
    };
    for number in 0..count {
        disk.put(mix(number), number);
    }
    disk
}

/// Runs a comparison to its end; returns the differences and the number of messages.
fn play(a: &Disk, b: &Disk) -> (Vec<Locator>, usize) {
    let (mut messages, mut found) = (1, Vec::new());
    let mut asked = vec![sum_of(Range::ALL, a)];
    let mut sides = [b, a];
    while !asked.is_empty() {
        let (here, there) = (sides[0], sides[1]);
        let mut next = Vec::new();
        for theirs in asked {
            let ours = sum_of(theirs.range, here);
            if ours == theirs {
                continue;
            }
            if ours.count.max(theirs.count) <= LEAF_ENTRIES || theirs.range.is_point() {
                messages += 1;
                found.extend(differences(&list(theirs.range, here), there));
            } else {
                next.extend(theirs.range.split().map(|part| sum_of(part, here)));
            }
        }
        messages += usize::from(!next.is_empty());
        asked = next;
        sides.reverse();
    }
    (found, messages)
}

#[test]
fn equal_copies_cost_one_message_and_one_difference_a_few() {
    let a = spread(20_000);
    assert_eq!(play(&a, &a).1, 1, "equal");
    let mut b = a.clone();
    b.put(mix(777), 1 << 40);
    let (found, messages) = play(&a, &b);
    let tokens: Vec<_> = found.iter().map(|at| at.digest.high()).collect();
    assert_eq!(tokens, [mix(777)]);
    assert!(messages <= 6, "{messages} messages for one of 20,000");
}

/// The records of one digest: two keys, if one record has a wrong digest.
struct Few(Vec<Record>);

impl Storage for Few {
    fn get(&self, at: &Locator) -> Lookup {
        let found = self.0.iter().find(|record| Locator::of(record) == *at);
        found.cloned().map_or(Lookup::Absent, Lookup::Found)
    }

    fn scan(&self, after: Option<KeyId>, limit: usize) -> Scanned {
        let later = self
            .0
            .iter()
            .filter(|record| after < Some(KeyId::of(record)));
        Scanned::of(later.cloned().map(Entry::Found).collect(), limit)
    }
}

#[test]
fn of_two_keys_with_one_digest_each_is_compared_with_itself() {
    let foreign = |time| Record {
        key: Key::new(&b"foreign"[..]).unwrap(),
        ..record(7, time)
    };
    let a = Few(vec![foreign(1), record(7, 2)]);
    let b = Few(vec![foreign(1), record(7, 3)]);
    let differ = |ours, theirs| differences(&list(Range::ALL, ours), theirs);
    assert_eq!(differ(&a, &a), []);
    assert_eq!(differ(&a, &b), [Locator::of(&record(7, 2))]);
    let c = Few(vec![record(7, 2)]);
    assert_eq!(differ(&c, &a), [Locator::of(&foreign(1))]);
    assert_eq!(differ(&a, &c), [Locator::of(&foreign(1))]);
}

/// Computed by a second implementation in Python, with integers masked to 64 bits: `state =
/// mix(state ^ mix(word + seed))` over the five words, from `seed`.
#[test]
fn golden_sums_do_not_change() {
    let sum = |token, time| {
        let record = record(token, time);
        entry_sum(KeyId::of(&record), record.ballot)
    };
    let golden = GOLDEN;
    assert_eq!([sum(0, 0), sum(1, 2), sum(u64::MAX, u64::MAX)], golden);
}

const GOLDEN: [u128; 3] = [
    0xe491_e314_1d09_eb5f_a01c_c2d7_e023_20f6,
    0xd24b_cc59_3c7a_cbb3_4b0a_6255_6270_1572,
    0xb818_9301_33ab_53f4_9c36_cd6f_929c_5cbe,
];

#[test]
fn a_split_covers_its_range_without_gap_or_overlap() {
    for range in [
        Range::ALL,
        Range {
            first: 1 << 60,
            last: (1 << 61) - 1,
        },
        Range { first: 5, last: 37 },
    ] {
        let parts: Vec<_> = range.split().collect();
        assert_eq!(parts[0].first, range.first);
        assert_eq!(parts[15].last, range.last);
        for pair in parts.windows(2).filter(|pair| pair[0].last < range.last) {
            assert_eq!(pair[0].last + 1, pair[1].first, "{range:?}");
        }
    }
    let point = Range { first: 5, last: 9 };
    assert_eq!(point.split().collect::<Vec<_>>(), [point]);
}

proptest! {
    #[test]
    fn every_difference_is_found_and_nothing_else(
        common in proptest::collection::vec((any::<u64>(), 1_u64..5), 0..120),
        only_a in proptest::collection::vec((any::<u64>(), 5_u64..9), 0..6),
        only_b in proptest::collection::vec((any::<u64>(), 9_u64..12), 0..6),
    ) {
        let (mut a, mut b) = (spread(0), Disk::default());
        for (token, time) in common {
            a.put(token, time);
            b.put(token, time);
        }
        for (token, time) in &only_a {
            a.put(*token, *time);
        }
        for (token, time) in &only_b {
            b.put(*token, *time);
        }
        let mut expected: Vec<_> = a
            .records
            .keys()
            .chain(b.records.keys())
            .filter(|id| a.records.get(id) != b.records.get(id))
            .copied()
            .collect();
        expected.sort();
        expected.dedup();
        let mut found: Vec<_> = play(&a, &b).0.iter().map(Locator::id).collect();
        found.sort();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn kept_sums_equal_those_that_are_read(
        puts in proptest::collection::vec((any::<u64>(), 0_u64..9), 0..60),
    ) {
        let mut kept = spread(0);
        let mut read = Disk::default();
        for (token, time) in puts {
            kept.put(token, time);
            read.put(token, time);
        }
        for range in [Range::ALL].into_iter().chain(Range::ALL.split()) {
            prop_assert!(kept.range_sum(range).is_some());
            prop_assert_eq!(sum_of(range, &kept), sum_of(range, &read));
            let (same, more) = (sum_of(range, &kept), RangeSum { range, count: 99, sum: 1 });
            for what in [What::All, What::Ranges(vec![same]), What::Ranges(vec![more])] {
                let is_equal = what == What::All || what == What::Ranges(vec![same]);
                let at_once = reading(what.clone()).at_once(&kept);
                prop_assert_eq!(at_once.is_some(), is_equal && range == Range::ALL || what == What::All);
                prop_assert!(at_once.is_none_or(|readout| readout == reading(what).run(&read)));
            }
        }
    }
}
