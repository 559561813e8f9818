//! Bits that flip in slices: reads give correct data or errors, never wrong data and never
//! "absent". `TORC_FLIP_STEP=1` flips every bit.

#![allow(clippy::cast_possible_truncation, reason = "tests count small numbers")]
#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::common::{
    DIR, block_on, check_summaries, flip_step, get, open, options, partition_of, partitions, put,
    tombstone,
};
use proptest::prelude::*;
use torc_record::{Locator, Record};
use torc_ring::Partition;
use torc_store::testing::{CrashFs, Survives, WaitingStore};
use torc_store::{ScanLimits, Store, StoreError};

/// A closed store with one segment of a few slices and an empty log.
struct AtRest {
    fs: CrashFs,
    segment: PathBuf,
    bytes: Vec<u8>,
    records: BTreeMap<Locator, Record>,
}

fn at_rest(keys: impl Iterator<Item = u64>) -> AtRest {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let mut records = BTreeMap::new();
    for key in keys {
        let record = match key % 4 {
            1 => tombstone(key, 10 + key),
            _ => put(key, 10 + key, vec![key as u8; 20]),
        };
        records.insert(Locator::of(&record), record.clone());
        block_on(store.write(record)).unwrap();
    }
    block_on(store.flush()).unwrap();
    block_on(store.close()).unwrap();
    let files = fs.files().into_iter();
    let mut segments = files.filter(|path| path.to_string_lossy().contains("segment-"));
    let segment = segments.next().unwrap();
    assert_eq!(segments.next(), None);
    let bytes = fs.file(&segment).unwrap();
    AtRest {
        fs,
        segment,
        bytes,
        records,
    }
}

impl AtRest {
    fn with_flips(&self, bits: &[usize]) -> CrashFs {
        let mut bad = self.bytes.clone();
        for bit in bits {
            bad[bit / 8] ^= 1 << (bit % 8);
        }
        let fs = self.fs.image(Survives::Nothing);
        fs.put_file(&self.segment, &bad);
        fs
    }

    fn of(&self, partition: Partition) -> Vec<&Record> {
        let all = self.records.values();
        all.filter(|one| partition_of(one) == partition).collect()
    }

    /// The offset of the table.
    fn table_at(&self) -> usize {
        let magic = |at: &usize| self.bytes[*at..].starts_with(b"TFRM");
        (0..self.bytes.len()).step_by(64).find(magic).unwrap()
    }
}

fn is_damage(error: &StoreError) -> bool {
    matches!(error, StoreError::Damaged { .. })
}

/// Reads everything in every way. Returns the partitions for which a read was refused.
fn read_all(store: &Store, rest: &AtRest, place: &str) -> BTreeSet<Partition> {
    let mut damaged = BTreeSet::new();
    let mut judge =
        |record: &Record, found: Result<Option<Record>, StoreError>, is_there: bool| match found {
            Ok(found) => assert_eq!(found.as_ref(), is_there.then_some(record), "{place}"),
            Err(error) => {
                assert!(is_damage(&error), "{place}: {error}");
                damaged.insert(partition_of(record));
            }
        };
    let reads: Vec<_> = rest.records.values().map(|one| one.locator()).collect();
    for (record, found) in rest.records.values().zip(store.get_batch(&reads)) {
        judge(record, found, true);
    }
    for record in rest.records.values() {
        let found = store.get(record.locator());
        judge(record, found, true);
    }
    for stranger in (0..6).map(|key| tombstone(7000 + key, 1)) {
        let found = store.get(stranger.locator());
        judge(&stranger, found, false);
    }
    for partition in partitions().iter() {
        match store.scan(partition, None, ScanLimits::default()) {
            Ok(page) => {
                let found: Vec<_> = page.records.iter().collect();
                assert_eq!(found, rest.of(partition), "{place}: scan of {partition}");
            }
            Err(error) => {
                assert!(is_damage(&error), "{place}: {error}");
                damaged.insert(partition);
            }
        }
    }
    for partition in partitions().iter() {
        let is_known = store.damage(partition).is_some();
        assert!(
            is_known || !damaged.contains(&partition),
            "{place}: it is reported"
        );
        assert!(
            !is_known || !rest.of(partition).is_empty(),
            "{place}: none to be damaged"
        );
    }
    let counted = store.stats().sliced.damaged;
    assert_eq!(counted > 0, !damaged.is_empty(), "{place}: it is counted");
    damaged
}

/// Opens a store with flipped bits and reads everything. `None` if it does not open.
fn judge(rest: &AtRest, bits: &[usize]) -> Option<(Store, CrashFs, BTreeSet<Partition>)> {
    let places: Vec<_> = bits.iter().map(|bit| (bit / 8, bit % 8)).collect();
    let place = format!("(byte, bit) {places:?} of {}", rest.bytes.len());
    let fs = rest.with_flips(bits);
    match open(&fs) {
        Ok((store, _)) => {
            let damaged = read_all(&store, rest, &place);
            Some((store, fs, damaged))
        }
        Err(error) => {
            let is_clear = matches!(
                error,
                StoreError::Corrupt { .. } | StoreError::NewerFormat { .. }
            );
            assert!(is_clear, "{place}: {error}");
            None
        }
    }
}

#[test]
fn every_flipped_bit_of_a_segment_is_harmless_or_refused_and_harms_one_partition_at_most() {
    let rest = at_rest(0..5);
    let (mut harmless, mut harmful) = (0, 0);
    for bit in (0..rest.bytes.len() * 8).step_by(flip_step()) {
        let Some((_, _, damaged)) = judge(&rest, &[bit]) else {
            assert!(
                bit < 64 * 8,
                "bit {bit}: only a header may pass for a newer format"
            );
            continue;
        };
        assert!(damaged.len() <= 1, "bit {bit}: {damaged:?}");
        *if damaged.is_empty() {
            &mut harmless
        } else {
            &mut harmful
        } += 1;
    }
    assert!(harmful > harmless, "{harmful} harmful, {harmless} harmless");
}

#[test]
fn the_table_of_a_segment_is_made_anew_from_its_slices() {
    let rest = at_rest(0..12);
    for bit in (rest.table_at() * 8..rest.bytes.len() * 8).step_by(flip_step()) {
        let (_, _, damaged) = judge(&rest, &[bit]).unwrap();
        assert_eq!(damaged, BTreeSet::new(), "bit {bit} of the table");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn nor_do_several_flips_make_anything_wrong(
        bits in proptest::collection::vec(any::<prop::sample::Index>(), 2..5),
    ) {
        let rest = at_rest(0..9);
        let bits: Vec<_> = bits.iter().map(|bit| bit.index(rest.bytes.len() * 8)).collect();
        judge(&rest, &bits);
    }
}

/// A flip in the middle of each slice's records, and one in its header.
fn telling_flips(rest: &AtRest) -> Vec<usize> {
    let starts = (64..rest.table_at()).step_by(64);
    let starts = starts.filter(|at| rest.bytes[*at..].starts_with(b"TSLC"));
    let key_of = |at: usize| {
        let rest = &rest.bytes[at..];
        at + rest.windows(4).position(|bytes| bytes == b"key-").unwrap()
    };
    starts
        .flat_map(|at| [(at + 16) * 8, key_of(at) * 8 + 3])
        .collect()
}

#[test]
fn a_damaged_slice_is_left_alone_by_compactions_and_everything_else_goes_on() {
    let rest = at_rest(0..9);
    for bit in telling_flips(&rest) {
        let (store, fs, damaged) = judge(&rest, &[bit]).unwrap();
        let home = damaged.first().copied().unwrap();
        let place = format!("bit {bit}, {home}");
        for key in 20..40 {
            block_on(store.write(put(key, 5, b"new"))).unwrap();
        }
        block_on(store.flush()).unwrap();
        block_on(store.compact()).unwrap();
        assert!(store.damage(home).is_some(), "{place}: it is not forgotten");
        for key in (20..40).filter(|key| partition_of(&put(*key, 5, b"new")) != home) {
            assert_eq!(
                get(&store, key).unwrap(),
                Some(put(key, 5, b"new")),
                "{place}"
            );
        }
        for record in rest.records.values() {
            let found = store.get(record.locator());
            match found {
                Ok(found) => assert_eq!(found.as_ref(), Some(record), "{place}"),
                Err(error) => assert!(is_damage(&error) && partition_of(record) == home),
            }
        }
        drop(store);
        // A damaged record is detected again when it is read.
        let (store, _) = open(&fs.image(Survives::Nothing)).unwrap();
        let refused = store.scan(home, None, ScanLimits::default()).unwrap_err();
        assert!(is_damage(&refused), "{place}: also after a restart");
    }
}

#[test]
fn a_write_heals_its_key_and_dropping_the_partition_heals_all() {
    let rest = at_rest(0..9);
    for bit in telling_flips(&rest) {
        let (store, fs, damaged) = judge(&rest, &[bit]).unwrap();
        let home = damaged.first().copied().unwrap();
        let refused = rest.of(home).into_iter().find(|record| {
            let found = store.get(record.locator());
            found.is_err()
        });
        if let Some(refused) = refused {
            let mut newer = refused.clone();
            newer.ballot.time.0 += 100;
            block_on(store.write(newer.clone())).unwrap();
            let found = store.get(newer.locator());
            assert_eq!(found.unwrap(), Some(newer), "bit {bit}: what is known now");
        }
        block_on(store.drop_partition(home)).unwrap();
        assert!(store.damage(home).is_none(), "bit {bit}: it is gone");
        for record in rest.of(home) {
            block_on(store.write(record.clone())).unwrap();
        }
        assert_eq!(read_all(&store, &rest, "healed"), BTreeSet::new());
        block_on(store.flush()).unwrap();
        check_summaries(&store, "healed");
        drop(store);
        let (store, _) = open(&fs.image(Survives::Nothing)).unwrap();
        assert_eq!(
            read_all(&store, &rest, "healed, after a restart"),
            BTreeSet::new()
        );
        check_summaries(&store, "healed, after a restart");
    }
}

#[test]
fn damage_below_a_version_that_can_be_read_means_nothing_for_its_key() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let (old, new) = (put(1, 10, b"damaged later"), put(1, 20, b"newer"));
    for record in [&old, &new] {
        block_on(store.write(record.clone())).unwrap();
        block_on(store.flush()).unwrap();
    }
    let home = partition_of(&old);
    let damaged = store.sealed(home).unwrap();
    let _ = damaged.slices[0].note_damage();
    block_on(store.close()).unwrap();
    let path = Path::new(DIR).join("segment-00000000000000000001");
    let mut bytes = fs.file(&path).unwrap();
    let at = bytes
        .windows(7)
        .position(|bytes| bytes == b"damaged")
        .unwrap();
    bytes[at] ^= 1;
    fs.put_file(&path, &bytes);
    let (store, _) = open(&fs).unwrap();
    assert_eq!(
        get(&store, 1).unwrap(),
        Some(new.clone()),
        "no record of the damaged slice is newer"
    );
    assert!(
        store.damage(home).is_some(),
        "it is remembered all the same"
    );
    block_on(store.write(put(1, 15, b"late"))).unwrap();
    assert_eq!(get(&store, 1).unwrap(), Some(new));
    let newest = put(1, 30, b"newest");
    block_on(store.write(newest.clone())).unwrap();
    assert_eq!(get(&store, 1).unwrap(), Some(newest.clone()));
    block_on(store.flush()).unwrap();
    assert_eq!(
        get(&store, 1).unwrap(),
        Some(newest),
        "also once it is sealed"
    );
}

#[test]
fn a_bit_that_flips_on_a_real_disk_under_a_running_store_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(options(dir.path())).unwrap();
    for key in 0..50 {
        let value = format!("the value of {key:03}");
        block_on(store.write(put(key, 1, value))).unwrap();
    }
    block_on(store.flush()).unwrap();
    assert!(get(&store, 7).unwrap().is_some());
    let path = dir.path().join("segment-00000000000000000001");
    let mut file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    let needle = b"the value of 007";
    let at = bytes
        .windows(needle.len())
        .position(|bytes| bytes == needle)
        .unwrap();
    let mut overwrite = |byte: u8| {
        file.seek(SeekFrom::Start(at as u64)).unwrap();
        file.write_all(&[byte]).unwrap();
    };
    overwrite(b'T');
    let refused = get(&store, 7).unwrap_err();
    assert!(is_damage(&refused), "{refused}");
    assert!(
        refused.to_string().contains("segment-00000000000000000001"),
        "{refused}"
    );
    assert_eq!(store.stats().sliced.damaged, 1);
    for key in (0..50).filter(|key| *key != 7) {
        assert!(get(&store, key).unwrap().is_some(), "{key} is whole");
    }
    overwrite(b't');
    assert!(
        get(&store, 7).unwrap().is_some(),
        "each read is checked by itself"
    );
}
