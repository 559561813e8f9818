//! Slices of generations: found beside the records of other namespaces, never written to or
//! compacted, and dropped as a whole.

#![allow(clippy::cast_possible_truncation, reason = "tests count small numbers")]
#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use crate::common::{CLUSTER, DIR, block_on, get, open, partition_of, partitions, put};
use bytes::Bytes;
use tempfile::TempDir;
use torc_record::{Digest, Epoch, HybridTime, Layer, NamespaceId, Record, State};
use torc_ring::{Partition, Token};
use torc_store::bulk::{KeylessLayout, PackedRecord, SliceFile, SliceFileWriter, pack};
use torc_store::testing::{CrashFs, WaitingStore};
use torc_store::{ScanLimits, SealedSlice, Store, StoreError};

const KEYS: u64 = 40;

fn generation(number: u32) -> NamespaceId {
    NamespaceId::generation(Layer::BASE, number)
}

/// When the records of the namespace were written.
const WRITTEN: u64 = 7;

/// A record of a generation, built later, under a key that the default namespace also has.
fn member(of: NamespaceId, key: u64) -> Record {
    let plain = put(key, 1_000, format!("generation {} of {key}", of.number()));
    Record {
        namespace: of,
        digest: Digest::of(&CLUSTER, of, plain.key.as_bytes()),
        ..plain
    }
}

/// The slices of a generation with these keys, as built outside the store.
fn built(dir: &TempDir, of: NamespaceId, keys: std::ops::Range<u64>) -> SliceFile {
    let mut records: Vec<_> = keys.map(|key| member(of, key)).collect();
    records.sort_by_key(|record| record.digest);
    let path = dir.path().join(of.0.to_string());
    let mut writer = SliceFileWriter::create(&path, partitions(), 0.01).unwrap();
    for slice in records.chunk_by(|one, other| partition_of(one) == partition_of(other)) {
        let bytes: Vec<Vec<u8>> = slice.iter().map(packed).collect();
        let refs = bytes
            .iter()
            .map(|it| PackedRecord::at_start_of(it).unwrap());
        let refs: Vec<_> = refs.collect();
        writer.push(partition_of(&slice[0]), &refs).unwrap();
    }
    let info = writer.finish().unwrap();
    SliceFile::open(&path, partitions(), &info).unwrap()
}

fn packed(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    pack(record, &mut bytes).unwrap();
    bytes
}

fn ingest(store: &Store, partition: Partition, slice: &SealedSlice) -> Result<(), StoreError> {
    let info = slice.info().unwrap();
    let mut ingest = store.ingest(partition, &[info])?;
    let bytes = slice.read(0, info.len as usize)?;
    ingest.write(Bytes::copy_from_slice(&bytes))?;
    ingest.verify(Some(&CLUSTER))?;
    block_on(ingest.publish()).map(drop)
}

fn take_all(store: &Store, file: &SliceFile) {
    for partition in file.partitions() {
        for slice in file.slices(partition) {
            ingest(store, partition, &slice).unwrap();
        }
    }
}

fn find(store: &Store, of: NamespaceId, key: u64) -> Result<Option<Record>, StoreError> {
    let wanted = member(of, key);
    let found = store.get(wanted.locator());
    let batch = store.get_batch(&[wanted.locator()]).pop();
    assert_eq!(
        format!("{:?}", Some(&found)),
        format!("{:?}", batch.as_ref())
    );
    found
}

/// Checks that every key of a generation is found, and no other.
fn holds(store: &Store, of: NamespaceId, keys: std::ops::Range<u64>) {
    for key in 0..KEYS {
        let wanted = keys.contains(&key).then(|| member(of, key));
        match find(store, of, key) {
            Ok(found) => assert_eq!(found, wanted, "{key}"),
            Err(StoreError::NotHeld { generation, .. }) => {
                assert_eq!((generation, wanted), (of, None));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn filled() -> (TempDir, CrashFs, Store) {
    let dir = TempDir::new().unwrap();
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    for key in 0..KEYS {
        block_on(store.write(put(key, WRITTEN, "of the namespace"))).unwrap();
    }
    (dir, fs, store)
}

fn scanned(store: &Store, of: NamespaceId) -> Vec<Record> {
    let mut records = Vec::new();
    for partition in partitions().iter() {
        let limits = ScanLimits {
            records: 3,
            ..ScanLimits::default()
        };
        let mut after = None;
        loop {
            let page = store.scan_generation(partition, of, after.as_ref(), limits);
            let Ok(page) = page else { break };
            records.extend(page.records);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    records
}

#[test]
fn generations_lie_beside_each_other_and_beside_what_is_written() {
    let (dir, fs, store) = filled();
    let summaries = |store: &Store| {
        partitions()
            .iter()
            .map(|it| store.summary(it))
            .collect::<Vec<_>>()
    };
    let before = summaries(&store);
    let (one, two) = (generation(1), generation(2));
    let first = built(&dir, one, 0..30);
    take_all(&store, &first);
    take_all(&store, &built(&dir, two, 10..40));
    let check = |store: &Store| {
        holds(store, one, 0..30);
        holds(store, two, 10..40);
        assert_eq!(store.generations(), [one, two].into());
        assert_eq!(summaries(store), before, "they are in no sum");
        let page = |partition| store.scan(partition, None, ScanLimits::default()).unwrap();
        let records: usize = partitions().iter().map(|it| page(it).records.len()).sum();
        assert_eq!(records as u64, KEYS, "and in no scan of partitions");
        assert_eq!(scanned(store, one).len(), 30);
        assert!(scanned(store, two).is_sorted_by_key(|record| record.digest));
        assert!((0..KEYS).all(|key| get(store, key).unwrap().is_some()));
        for (partition, epoch) in partitions().iter().flat_map(|it| [(it, 0), (it, 1)]) {
            let highest = store.highest_in(partition, Epoch(epoch));
            assert!(highest <= HybridTime(WRITTEN), "they fence no write");
        }
    };
    check(&store);
    block_on(store.flush()).unwrap();
    check(&store);
    block_on(store.compact()).unwrap();
    check(&store);
    block_on(store.close()).unwrap();
    let (store, _) = open(&fs).unwrap();
    check(&store);
    // As built, byte for byte, so they can be passed on.
    for partition in first.partitions() {
        let built = first.slices(partition).remove(0).info().unwrap();
        let held = store.generation(partition, one).unwrap();
        assert_eq!(held.info().unwrap(), built);
    }
}

#[test]
fn what_is_not_here_is_not_called_absent() {
    let (dir, _fs, store) = filled();
    let of = generation(3);
    let file = built(&dir, of, 0..KEYS);
    let here = file.partitions().next().unwrap();
    ingest(&store, here, &file.slices(here)[0]).unwrap();
    for key in 0..KEYS {
        let wanted = member(of, key);
        match find(&store, of, key) {
            Ok(found) => assert_eq!((found, partition_of(&wanted)), (Some(wanted.clone()), here)),
            Err(StoreError::NotHeld {
                partition,
                generation,
            }) => {
                assert_eq!((partition, generation), (partition_of(&wanted), of));
                assert_ne!(partition, here);
            }
            Err(error) => panic!("{error}"),
        }
        let cached = store.get_cached(wanted.locator());
        assert!(cached.is_none_or(|it| it.is_ok() == (partition_of(&wanted) == here)));
    }
    let stranger = partitions().of(Token::of(&member(of, KEYS).digest));
    assert_eq!(find(&store, of, KEYS).is_ok(), stranger == here);
}

#[test]
fn a_dropped_generation_or_partition_leaves_nothing_behind() {
    let (dir, fs, store) = filled();
    let (one, two) = (generation(1), generation(2));
    take_all(&store, &built(&dir, one, 0..KEYS));
    take_all(&store, &built(&dir, two, 0..KEYS));
    let gone = store.retain_generations(|_, of| of == two).unwrap();
    assert!(gone > 0);
    assert_eq!(store.retain_generations(|_, of| of == two).unwrap(), 0);
    assert_eq!(store.generations(), [two].into());
    block_on(store.drop_partition(Partition(5))).unwrap();
    let check = |store: &Store| {
        assert!(store.generation(Partition(5), two).is_none());
        assert!(matches!(
            find(store, one, 0),
            Err(StoreError::NotHeld { .. })
        ));
        let here = |record: &Record| partition_of(record) != Partition(5);
        let left = (0..KEYS).map(|key| member(two, key)).filter(here).count();
        assert_eq!(scanned(store, two).len(), left);
    };
    check(&store);
    block_on(store.close()).unwrap();
    let (store, _) = open(&fs).unwrap();
    check(&store);
    store.retain_generations(|_, _| false).unwrap();
    block_on(store.drop_partition(Partition(0))).unwrap();
    let files = fs.files();
    let segments = files
        .iter()
        .filter(|path| path.starts_with(DIR) && path.to_string_lossy().contains("segment-"));
    assert_eq!(segments.count(), 0, "their files went with them");
}

#[test]
fn a_damaged_slice_is_not_held_any_more_and_can_be_taken_again() {
    let (dir, fs, store) = filled();
    let of = generation(4);
    let file = built(&dir, of, 0..KEYS);
    take_all(&store, &file);
    block_on(store.close()).unwrap();
    let files = fs.files();
    let segment = files
        .iter()
        .find(|path| path.to_string_lossy().contains("segment-"));
    let segment = segment.unwrap().clone();
    let len = fs.file(&segment).unwrap().len();
    // The middle of a slice's records, and the header of the first slice.
    for at in [len / 2, 64] {
        fs.rot(&segment, |bytes| bytes[at] ^= 1);
    }
    let (store, _) = open(&fs).unwrap();
    let mut damaged = 0;
    for partition in partitions().iter() {
        let report = store.scrub(partition, Some(&CLUSTER), u64::MAX).unwrap();
        assert_eq!(report.damaged, 0, "nothing for other replicas to repair");
        damaged += u32::from(store.generation(partition, of).is_none());
    }
    assert!((1..=2).contains(&damaged));
    assert_eq!(
        store.retain_generations(|_, _| true).unwrap(),
        damaged as usize
    );
    for partition in file.partitions() {
        if store.generation(partition, of).is_none() {
            ingest(&store, partition, &file.slices(partition)[0]).unwrap();
        }
    }
    holds(&store, of, 0..KEYS);
    assert!((0..KEYS).all(|key| get(&store, key).unwrap().is_some()));
}

/// Keyless slices of these keys of a namespace, each with the last bytes of its digest as payload.
fn built_keyless(
    dir: &TempDir,
    of: NamespaceId,
    keys: std::ops::Range<u64>,
    payload_bytes: u8,
) -> SliceFile {
    let mut records: Vec<_> = keys.map(|key| member(of, key)).collect();
    records.sort_by_key(|record| record.digest);
    let path = dir.path().join(of.0.to_string());
    let mut writer = SliceFileWriter::create(&path, partitions(), 0.01).unwrap();
    let layout = KeylessLayout {
        fingerprint_bits: 32,
        payload_bytes,
    };
    for slice in records.chunk_by(|one, other| partition_of(one) == partition_of(other)) {
        let at = 16 - usize::from(payload_bytes);
        let rows = slice.iter().map(|it| (it.digest, &it.digest.0[at..]));
        let rows: Vec<_> = rows.collect();
        let version = (of, slice[0].ballot);
        writer
            .push_keyless(partition_of(&slice[0]), version, layout, &rows)
            .unwrap();
    }
    let info = writer.finish().unwrap();
    SliceFile::open(&path, partitions(), &info).unwrap()
}

fn holds_keyless(store: &Store, of: NamespaceId) {
    for key in 0..KEYS {
        let wanted = member(of, key);
        let state = State::Value {
            value: wanted.digest.0[15..].to_vec().into(),
            expires_at_ms: None,
        };
        let found = find(store, of, key).unwrap();
        assert_eq!(found, Some(Record { state, ..wanted }));
    }
    let strangers = (KEYS..3 * KEYS).map(|key| find(store, of, key));
    let found: Vec<_> = strangers.filter_map(Result::ok).collect();
    assert!(!found.is_empty(), "strangers whose partition has a slice");
    assert!(found.iter().all(Option::is_none), "strangers");
}

/// A length of 0 meant that it was unknown, and made every get of the node as expensive as one of
/// the longest value.
#[test]
fn a_set_says_that_its_records_are_short() {
    let (dir, fs, store) = filled();
    let before = store.longest_record();
    take_all(&store, &built_keyless(&dir, generation(6), 0..KEYS, 0));
    assert_eq!(store.longest_record(), before);
    block_on(store.close()).unwrap();
    let (store, _) = open(&fs).unwrap();
    assert!(store.longest_record() < 1 << 16);
}

#[test]
fn a_keyless_generation_is_read_repaired_and_not_scanned() {
    let (dir, fs, store) = filled();
    let of = generation(5);
    let file = built_keyless(&dir, of, 0..KEYS, 1);
    take_all(&store, &file);
    holds_keyless(&store, of);
    let partition = file.partitions().next().unwrap();
    let scanned = store.scan_generation(partition, of, None, ScanLimits::default());
    assert!(matches!(scanned, Err(StoreError::Keyless { generation }) if generation == of));
    assert_eq!(store.numbered(partition, of, 0).unwrap(), None);
    block_on(store.close()).unwrap();
    let files = fs.files();
    let mut segments = files.iter();
    let segment = segments.find(|it| it.to_string_lossy().contains("segment-"));
    let segment = segment.unwrap().clone();
    // The payload of the first slice, before its digest of 32 bytes.
    let bytes = fs.file(&segment).unwrap();
    let len = u64::from_le_bytes(bytes[64 + 8..64 + 16].try_into().unwrap()) as usize;
    fs.rot(&segment, |bytes| bytes[64 + len - 33] ^= 1);
    let (store, _) = open(&fs).unwrap();
    let wrong = (0..KEYS).filter(|key| match find(&store, of, *key) {
        Ok(found) => {
            let State::Value { value, .. } = found.unwrap().state else {
                panic!("a tombstone");
            };
            assert_eq!(value, member(of, *key).digest.0[15..]);
            false
        }
        Err(error) => {
            let is_refused = matches!(
                error,
                StoreError::Damaged { .. } | StoreError::NotHeld { .. }
            );
            assert!(is_refused, "{error}");
            true
        }
    });
    assert!(wrong.count() > 0, "the damage is met");
    for partition in partitions().iter() {
        store.scrub(partition, Some(&CLUSTER), u64::MAX).unwrap();
    }
    assert_eq!(store.retain_generations(|_, _| true).unwrap(), 1);
    for partition in file.partitions() {
        if store.generation(partition, of).is_none() {
            ingest(&store, partition, &file.slices(partition)[0]).unwrap();
        }
    }
    holds_keyless(&store, of);
}

#[test]
fn a_keyless_slice_outside_of_generations_is_refused() {
    let (dir, _, store) = filled();
    let file = built_keyless(&dir, NamespaceId::DEFAULT, 0..KEYS, 1);
    let partition = file.partitions().next().unwrap();
    let refused = ingest(&store, partition, &file.slices(partition)[0]);
    assert!(matches!(refused, Err(StoreError::BadIngest { .. })));
}
