//! Lookups find every record, equal records give equal files, and all damage is detected.

use std::path::Path;

use proptest::prelude::*;
use torc_record::{DigestKey, Epoch, HybridTime, Key, NodeSlot, State};
use torc_ring::{Partitions, Token};

use super::*;
use crate::StoreError;

const KEY: DigestKey = DigestKey([3; 32]);
const NAMESPACE: NamespaceId = NamespaceId(5);

fn partitions() -> Partitions {
    Partitions::new(16).unwrap()
}

fn record(key: &[u8], value: &[u8]) -> Record {
    Record {
        namespace: NAMESPACE,
        digest: Digest::of(&KEY, NAMESPACE, key),
        key: Key::new(key.to_vec()).unwrap(),
        ballot: Ballot {
            epoch: Epoch(2),
            time: HybridTime(7),
            slot: NodeSlot(1),
        },
        origin: None,
        state: State::Value {
            value: value.to_vec().into(),
            expires_at_ms: None,
        },
    }
}

fn write(path: &Path, records: &[Record]) -> SliceFileInfo {
    let mut sorted = records.to_vec();
    sorted.sort_by_key(|record| record.digest);
    let mut writer = SliceFileWriter::create(path, partitions(), 0.01).unwrap();
    let place = |record: &Record| partitions().holding(NAMESPACE, Token::of(&record.digest));
    for slice in sorted.chunk_by(|one, other| place(one) == place(other)) {
        let packed: Vec<Vec<u8>> = slice
            .iter()
            .map(|record| {
                let mut bytes = Vec::new();
                pack(record, &mut bytes).unwrap();
                bytes
            })
            .collect();
        let refs: Vec<_> = packed
            .iter()
            .map(|bytes| PackedRecord::at_start_of(bytes).unwrap())
            .collect();
        writer.push(place(&slice[0]), &refs).unwrap();
    }
    writer.finish().unwrap()
}

fn some(count: usize) -> Vec<Record> {
    let one = |number: usize| record(format!("key {number}").as_bytes(), &number.to_le_bytes());
    (0..count).map(one).collect()
}

#[test]
fn every_record_is_found_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let records = some(500);
    let info = write(&path, &records);
    assert_eq!(info.summary.records, 500);
    let file = SliceFile::open(&path, partitions(), &info).unwrap();
    for record in &records {
        let found = file.get(record.locator());
        assert_eq!(found.unwrap().as_ref(), Some(record));
    }
    for stranger in 0..500_u32 {
        let key = stranger.to_be_bytes();
        assert_eq!(file.get(record(&key, b"").locator()).unwrap(), None);
    }
    let digest_of = |namespace, key: &[u8]| Some(Digest::of(&KEY, namespace, key));
    assert_eq!(file.verify(digest_of).unwrap(), info.summary);
    let of_another_key =
        |namespace, key: &[u8]| Some(Digest::of(&DigestKey([4; 32]), namespace, key));
    assert!(matches!(
        file.verify(of_another_key),
        Err(StoreError::Damaged { .. })
    ));
}

#[test]
fn records_out_of_order_or_twice_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = SliceFileWriter::create(&dir.path().join("a"), partitions(), 0.01).unwrap();
    let mut bytes = Vec::new();
    pack(&record(b"k", b"v"), &mut bytes).unwrap();
    let twice = [PackedRecord::at_start_of(&bytes).unwrap(); 2];
    let place = partitions().holding(NAMESPACE, Token::of(&twice[0].digest()));
    let refused = writer.push(place, &twice);
    assert!(matches!(refused, Err(StoreError::Unflushable { .. })));
    assert!(matches!(
        writer.push(place, &[]),
        Err(StoreError::Unflushable { .. })
    ));
}

#[test]
fn every_flipped_byte_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let info = write(&path, &some(40));
    let good = std::fs::read(&path).unwrap();
    let digest_of = |namespace, key: &[u8]| Some(Digest::of(&KEY, namespace, key));
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        std::fs::write(&path, &bad).unwrap();
        let is_same_file = blake3::hash(&bad).as_bytes() == &info.digest;
        assert!(!is_same_file, "byte {at}: the digest of the file");
        // Checks the slices without the digest of the file. The bytes between slices, their own
        // digests, and a header or table that can be made again do not affect lookups.
        let Ok(file) = SliceFile::open(&path, partitions(), &info) else {
            continue;
        };
        if let Ok(summary) = file.verify(digest_of) {
            assert_eq!(summary, info.summary, "byte {at}");
        }
    }
}

/// Writes keyless slices of these keys, each with its first byte as payload, or without payloads.
fn write_keyless(path: &Path, records: &[Record], payload_bytes: u8) -> SliceFileInfo {
    let mut sorted = records.to_vec();
    sorted.sort_by_key(|record| record.digest);
    let mut writer = SliceFileWriter::create(path, partitions(), 0.01).unwrap();
    let place = |record: &Record| partitions().holding(NAMESPACE, Token::of(&record.digest));
    let layout = KeylessLayout {
        fingerprint_bits: 16,
        payload_bytes,
    };
    for slice in sorted.chunk_by(|one, other| place(one) == place(other)) {
        let payloads = slice
            .iter()
            .map(|it| vec![it.digest.0[3]; payload_bytes.into()]);
        let payloads: Vec<_> = payloads.collect();
        let rows = slice.iter().zip(&payloads);
        let rows: Vec<_> = rows
            .map(|(it, payload)| (it.digest, &payload[..]))
            .collect();
        let of = (NAMESPACE, slice[0].ballot);
        writer
            .push_keyless(place(&slice[0]), of, layout, &rows)
            .unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn a_keyless_file_finds_every_key_with_its_payload_and_few_others() {
    let dir = tempfile::tempdir().unwrap();
    let records = some(3_000);
    for payload_bytes in [0, 1, 9, 64] {
        let path = dir.path().join(payload_bytes.to_string());
        let info = write_keyless(&path, &records, payload_bytes);
        assert_eq!(info.summary.records, 3_000);
        assert_eq!(info.summary.payload_bytes, 3_000 * u64::from(payload_bytes));
        let file = SliceFile::open(&path, partitions(), &info).unwrap();
        for record in &records {
            let found = file.get(record.locator());
            let found = found.unwrap().unwrap();
            let value = vec![record.digest.0[3]; payload_bytes.into()];
            let state = State::Value {
                value: value.into(),
                expires_at_ms: None,
            };
            let wanted = Record {
                state,
                ..record.clone()
            };
            assert_eq!(found, wanted);
        }
        let strangers = (0..3_000_u32).filter(|number| {
            let key = number.to_be_bytes();
            file.get(record(&key, b"").locator()).unwrap().is_some()
        });
        // One in 65,536.
        assert!(strangers.count() < 3);
        assert_eq!(file.verify(|_, _| None).unwrap(), info.summary);
        let again = dir.path().join("again");
        let mut other_order = records.clone();
        other_order.reverse();
        assert_eq!(write_keyless(&again, &other_order, payload_bytes), info);
        assert_eq!(
            std::fs::read(&again).unwrap(),
            std::fs::read(&path).unwrap()
        );
    }
}

#[test]
fn a_flipped_byte_of_a_keyless_file_gives_no_wrong_payload() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let records = some(40);
    let info = write_keyless(&path, &records, 3);
    let good = std::fs::read(&path).unwrap();
    let mut damaged = 0;
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        std::fs::write(&path, &bad).unwrap();
        let Ok(file) = SliceFile::open(&path, partitions(), &info) else {
            continue;
        };
        for record in &records {
            match file.get(record.locator()) {
                Ok(found) => {
                    let State::Value { value, .. } = found.unwrap().state else {
                        panic!("byte {at}: a tombstone");
                    };
                    assert_eq!(value, vec![record.digest.0[3]; 3], "byte {at}");
                }
                Err(error) => {
                    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
                    damaged += 1;
                }
            }
        }
    }
    assert!(damaged > 0, "no file was opened and found damaged later");
}

#[test]
fn widths_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = SliceFileWriter::create(&dir.path().join("a"), partitions(), 0.01).unwrap();
    let record = &some(1)[0];
    let place = partitions().holding(NAMESPACE, Token::of(&record.digest));
    for (fingerprint_bits, payload_bytes, payload) in [
        (0, 1, &[7][..]),
        (33, 1, &[7]),
        (8, 65, &[7; 65]),
        (8, 1, &[]),
        (8, 0, &[7]),
    ] {
        let layout = KeylessLayout {
            fingerprint_bits,
            payload_bytes,
        };
        let of = (NAMESPACE, record.ballot);
        let refused = writer.push_keyless(place, of, layout, &[(record.digest, payload)]);
        assert!(matches!(refused, Err(StoreError::Unflushable { .. })));
    }
}

#[test]
fn numbered_keys_get_their_slots_and_have_no_values() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let mut writer = SliceFileWriter::create(&path, partitions(), 0.01).unwrap();
    let place = |record: &Record| partitions().holding(NAMESPACE, Token::of(&record.digest));
    let all = (0..400).map(|number| record(format!("key {number}").as_bytes(), b""));
    let first = record(b"key 0", b"");
    let mut records: Vec<_> = all.filter(|it| place(it) == place(&first)).collect();
    records.sort_by_key(|record| record.digest);
    let packed = |record: &Record| {
        let mut bytes = Vec::new();
        pack(record, &mut bytes).unwrap();
        bytes
    };
    let bytes: Vec<_> = records.iter().map(packed).collect();
    let refs = bytes
        .iter()
        .map(|bytes| PackedRecord::at_start_of(bytes).unwrap());
    let refs: Vec<_> = refs.collect();
    writer.push_numbered(place(&first), &refs).unwrap();
    let with_value = packed(&record(b"key 0", b"v"));
    let with_value = [PackedRecord::at_start_of(&with_value).unwrap()];
    let refused = writer.push_numbered(place(&first), &with_value);
    assert!(matches!(refused, Err(StoreError::Unflushable { .. })));
    let info = writer.finish().unwrap();
    let file = SliceFile::open(&path, partitions(), &info).unwrap();
    let mut slots = std::collections::BTreeSet::new();
    for record in &records {
        let found = file.get(record.locator());
        let found = found.unwrap().unwrap();
        let State::Value { value, .. } = &found.state else {
            panic!("a tombstone");
        };
        let slot = u32::from_le_bytes(value[..].try_into().unwrap());
        assert!(slots.insert(slot), "each slot once");
        let back = file.numbered(place(&first), slot).unwrap().unwrap();
        assert_eq!(back, found);
    }
    let count = u32::try_from(records.len()).unwrap();
    assert!(slots.into_iter().eq(0..count));
    assert_eq!(file.numbered(place(&first), count).unwrap(), None);
    let digest_of = |namespace, key: &[u8]| Some(Digest::of(&KEY, namespace, key));
    assert_eq!(file.verify(digest_of).unwrap(), info.summary);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_bytes_depend_on_the_records_alone(
        keys in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 1..20), 1..60),
        seed: u64,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut records: Vec<_> = keys.iter().map(|key| record(key, key)).collect();
        let one = write(&dir.path().join("a"), &records);
        // The same records in another order.
        records.sort_by_key(|record| record.digest.low() ^ seed);
        let other = write(&dir.path().join("b"), &records);
        prop_assert_eq!(one, other);
        prop_assert_eq!(
            std::fs::read(dir.path().join("a")).unwrap(),
            std::fs::read(dir.path().join("b")).unwrap()
        );
    }
}
