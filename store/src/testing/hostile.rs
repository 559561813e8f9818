//! Entry points for fuzzers: decoders that must accept any bytes, and valid bytes to start from.
//!
//! Each decoder also tries the bytes with corrected checksums, so that a fuzzer reaches the code
//! behind them. No decoder may panic, loop forever, or allocate by a length that the bytes only
//! claim.

use std::path::Path;
use std::sync::Arc;

use torc_record::{
    Ballot, Digest, DigestKey, Epoch, HybridTime, Key, Locator, NamespaceId, NodeSlot, Record,
    ReplicaFacts, State,
};
use torc_ring::{Partition, Partitions};

use super::CrashFs;
use crate::directory::Directory;
use crate::format::{Entry, FileKind, FrameBuilder, FrameKind, Header};
use crate::log::Replay;
use crate::packed::Packed;
use crate::slice::{
    BuiltSlice, Found, GateRates, KeylessInput, KeylessLayout, Kind, OrderedRecords, Reading,
    SLICE_DIGEST_LEN, SliceHeader, SliceInput, SliceView,
};
use crate::{Seq, StoreError};

const KEY: DigestKey = DigestKey([7; 32]);
const PARTITION: u32 = 5;
const PARTITIONS: Partitions = match Partitions::new(16) {
    Ok(partitions) => partitions,
    Err(_) => Partitions::DEFAULT,
};
/// Limit on the records read in ring order.
const MOST_RECORDS: usize = 10_000;

/// Reads bytes as a slice in every way; returns the number of its records if all of it is valid.
///
/// # Panics
/// If the bytes are valid in one way and invalid in another.
#[expect(clippy::must_use_candidate, reason = "that it returns is the answer")]
pub fn read_slice(bytes: &[u8]) -> Option<u64> {
    let records = read_one(bytes);
    if let Some(forged) = forge_slice(bytes) {
        read_one(&forged);
    }
    records
}

fn read_one(bytes: &[u8]) -> Option<u64> {
    let header = SliceHeader::decode(bytes).ok()?;
    let view = SliceView::of(&header, bytes).ok()?;
    let at = |digest, key| Locator::<&[u8]> {
        digest,
        namespace: NamespaceId::DEFAULT,
        key,
    };
    for digest in asked(bytes) {
        if let Found::Record(packed) = view.find(&at(digest, b"key-1"), Reading::Wait) {
            assert!(
                packed.bytes().len() <= bytes.len(),
                "a record of these bytes"
            );
        }
    }
    let middle = at(Digest([0x80; 16]), b"k");
    for slot in [0, 1, header.keys() - 1, header.keys(), usize::MAX] {
        view.prefetch_offset(slot);
        let found = view.find_at(slot, &middle, Reading::Wait);
        assert!(
            slot < header.keys() || matches!(found, Found::Damaged(_)),
            "no slot beyond the last"
        );
        assert!(
            slot < header.keys() || view.record(slot, Reading::Wait).is_err(),
            "no slot beyond the last"
        );
    }
    let mut in_order = 0;
    for position in [None, Some(&middle)] {
        if let Ok(records) = OrderedRecords::after(view, position) {
            in_order = in_order.max(records.take(MOST_RECORDS).flatten().count());
        }
    }
    let is_whole = view.verify(|_, _| None).is_ok() && SliceView::digest_fits(bytes).is_ok();
    assert!(
        !is_whole || header.keyless().is_some() || in_order == header.keys().min(MOST_RECORDS),
        "all are read in order"
    );
    is_whole.then_some(header.held().records)
}

/// Digests that the bytes may hold, and some that they do not.
fn asked(bytes: &[u8]) -> impl Iterator<Item = Digest> {
    let step = (bytes.len() / 16).max(1);
    let chunks = bytes.windows(16).step_by(step).take(16);
    let known = chunks.filter_map(|chunk| chunk.try_into().ok()).map(Digest);
    known.chain([
        Digest([0; 16]),
        Digest([0xff; 16]),
        Digest::of(&KEY, NamespaceId::DEFAULT, b"key-1"),
    ])
}

/// The same bytes with corrected checksums of index and order, and a corrected digest.
fn forge_slice(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut forged = bytes.to_vec();
    let header = SliceHeader::decode(&forged).ok()?;
    let order = forged.get(header.index_len()..header.records_at())?;
    let order_crc = crc32c::crc32c(order);
    forged[96..100].copy_from_slice(&order_crc.to_le_bytes());
    let head_crc = crc32c::crc32c(&forged[..100]);
    let index_crc = crc32c::crc32c_append(head_crc, forged.get(104..header.index_len())?);
    forged[100..104].copy_from_slice(&index_crc.to_le_bytes());
    let content_len = forged.len().checked_sub(SLICE_DIGEST_LEN)?;
    let digest = *blake3::hash(&forged[..content_len]).as_bytes();
    forged[content_len..].copy_from_slice(&digest);
    Some(forged)
}

/// Replays bytes as the only segment of a log, and as the body of a batch; returns the number of
/// entries.
///
/// # Errors
/// The problem with them.
pub fn read_log(bytes: &[u8]) -> Result<u64, StoreError> {
    let mut body = bytes;
    while !body.is_empty() && Entry::take(&mut body).is_ok() {}
    let fs = CrashFs::new();
    let dir = Directory::open(Arc::new(fs.clone()), Path::new("/d"))?;
    fs.put_file(&dir.log_path(1), bytes);
    let replay = Replay {
        dir: &dir,
        partitions: Partitions::DEFAULT,
        first: 1,
        after: Seq(0),
        segments: &[1],
        cuts_damaged: true,
        may_be_empty: true,
        newest: None,
    };
    replay.run(|_, _| ()).map(|end| end.entries)
}

fn records(keys: u64) -> Vec<Packed> {
    let all = (0_u64..).filter_map(|number| {
        let key = format!("key-{number}").into_bytes();
        let state = match number % 3 {
            0 => State::Tombstone,
            rest => State::Value {
                value: vec![number as u8; (number % 50) as usize].into(),
                expires_at_ms: (rest == 1).then_some(number),
            },
        };
        Some(Record {
            namespace: NamespaceId::DEFAULT,
            digest: Digest::of(&KEY, NamespaceId::DEFAULT, &key),
            key: Key::new(key).ok()?,
            ballot: Ballot {
                epoch: Epoch(1),
                time: HybridTime(number),
                slot: NodeSlot(0),
            },
            origin: None,
            state,
        })
    });
    let mut packed: Vec<Packed> = all
        .filter(|one| one.digest.0[0] >> 4 == PARTITION as u8)
        .filter_map(|one| Packed::of(&one).ok())
        .take(keys as usize)
        .collect();
    packed.sort_by(|a, b| a.position().cmp(&b.position()));
    packed
}

/// A valid slice of `keys` records, in partition 5 of 16; always the same bytes.
///
/// # Errors
/// [`StoreError::Unflushable`] for no keys.
pub fn sample_slice(keys: u64) -> Result<Vec<u8>, StoreError> {
    sample_of(Kind::Records, &records(keys))
}

/// As [`sample_slice`], of keys that are numbered.
///
/// # Errors
/// [`StoreError::Unflushable`] for no keys.
pub fn sample_numbered(keys: u64) -> Result<Vec<u8>, StoreError> {
    let bare = records(keys).into_iter().filter_map(|packed| {
        let mut record = packed.unpack();
        record.state = State::Value {
            value: bytes::Bytes::new(),
            expires_at_ms: None,
        };
        Packed::of(&record).ok()
    });
    sample_of(Kind::Numbered, &bare.collect::<Vec<_>>())
}

/// As [`sample_slice`], keyless, with fingerprints of 12 bits and payloads of `payload_bytes`.
///
/// # Errors
/// [`StoreError::Unflushable`] for no keys.
pub fn sample_keyless(keys: u64, payload_bytes: u8) -> Result<Vec<u8>, StoreError> {
    let digests = records(keys).into_iter().map(|packed| packed.digest());
    let payloads = digests.map(|digest| (digest, vec![digest.0[15]; payload_bytes.into()]));
    let rows: Vec<(Digest, Vec<u8>)> = payloads.collect();
    let rows: Vec<(Digest, &[u8])> = rows
        .iter()
        .map(|(it, payload)| (*it, &payload[..]))
        .collect();
    let input = KeylessInput {
        partition: Partition(PARTITION),
        partitions: PARTITIONS,
        namespace: NamespaceId::DEFAULT,
        ballot: Ballot::default(),
        layout: KeylessLayout {
            fingerprint_bits: 12,
            payload_bytes,
        },
        rows: &rows,
    };
    written(&input.build()?)
}

fn sample_of(kind: Kind, records: &[Packed]) -> Result<Vec<u8>, StoreError> {
    let input = SliceInput {
        kind,
        partition: Partition(PARTITION),
        partitions: PARTITIONS,
        digests: records.iter().map(Packed::digest).collect(),
        layer: 0,
        salt: Some(0x5EED),
        gate_rate: 0.01,
        records: records.iter().map(Packed::bytes).collect(),
    };
    written(&input.build(&mut GateRates::default())?)
}

fn written(built: &BuiltSlice<'_>) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    built.write(|piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(bytes)
}

/// A valid log segment with `batches` batches; always the same bytes.
#[must_use]
pub fn sample_log(batches: u64) -> Vec<u8> {
    let header = Header {
        kind: FileKind::Log,
        number: 1,
        seq: 0,
        salt: 0x5EED,
        partitions: Partitions::DEFAULT.count(),
    };
    let mut bytes = header.encode().to_vec();
    let mut seq = 1;
    for batch in 1..=batches {
        let mut frame = FrameBuilder::default();
        for packed in records(batch) {
            frame.push(|body| body.extend_from_slice(packed.bytes()));
        }
        frame.push(|body| Entry::put_drop(Partition(9), body));
        frame.push(|body| Entry::put_purge(Partition(9), Ballot::default(), body));
        frame.push(|body| Entry::put_meta(Partition(9), &ReplicaFacts::default(), body));
        frame.push(|body| Entry::put_ceiling(HybridTime(9), body));
        let count = u64::from(frame.count());
        bytes.extend_from_slice(frame.finish(FrameKind::Batch, seq, header.salt));
        seq += count;
    }
    let mut end = FrameBuilder::default();
    end.clear();
    bytes.extend_from_slice(end.finish(FrameKind::LogEnd, seq, header.salt));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::tests::unhex;
    use crate::slice::{Rest, salvage};
    use proptest::prelude::*;

    /// A slice of each kind.
    fn samples(keys: u64) -> [Vec<u8>; 4] {
        [
            sample_slice(keys).unwrap(),
            sample_numbered(keys).unwrap(),
            sample_keyless(keys, 0).unwrap(),
            sample_keyless(keys, 7).unwrap(),
        ]
    }

    #[test]
    fn samples_are_whole() {
        for keys in [1, 2, 3, 17, 100] {
            for sample in samples(keys) {
                assert_eq!(read_slice(&sample), Some(keys));
            }
        }
        assert_eq!(read_log(&sample_log(3)).unwrap(), 1 + 2 + 3 + 3 * 4);
        assert_eq!(read_log(&sample_log(0)).unwrap(), 0);
    }

    #[test]
    fn a_slice_of_no_records_is_not_made() {
        assert!(SliceHeader::decode(&sample_slice(0).unwrap_or_default()).is_err());
    }

    #[test]
    fn every_flipped_bit_of_a_slice_fails_its_check_and_none_panics_when_checksums_are_forged() {
        for good in samples(5) {
            for bit in 0..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(read_slice(&bad), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn every_cut_of_a_slice_is_refused() {
        for good in samples(3) {
            for len in 0..good.len() {
                assert_eq!(read_slice(&good[..len]), None, "cut to {len}");
            }
        }
    }

    #[test]
    fn huge_numbers_in_a_header_are_refused_or_bounded() {
        // Every field of four or eight bytes.
        for (good, at) in samples(5)
            .iter()
            .flat_map(|good| (8..104).step_by(4).map(move |at| (good, at)))
        {
            for number in [
                u64::MAX,
                u64::MAX / 2,
                1 << 47,
                1 << 32,
                u64::from(u32::MAX),
                1 << 31,
                0,
            ] {
                for len in [4, 8] {
                    let mut bad = good.clone();
                    bad[at..at + len].copy_from_slice(&number.to_le_bytes()[..len]);
                    read_slice(&bad);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes: Vec<u8>) {
            prop_assert_eq!(read_slice(&bytes), None);
            let _ = read_log(&bytes);
            let mut headed = sample_slice(1).unwrap()[..128].to_vec();
            headed.extend_from_slice(&bytes);
            prop_assert_eq!(read_slice(&headed), None);
        }

        #[test]
        fn mutated_slices_are_safe_also_behind_forged_checksums(
            keys in 1_u64..40,
            kind in 0_usize..4,
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 1_usize..9), 1..6),
        ) {
            let mut bytes = samples(keys)[kind].clone();
            for (at, number, len) in changes {
                let at = at.index(bytes.len() - 8);
                bytes[at..at + len.min(8)].copy_from_slice(&number.to_le_bytes()[..len.min(8)]);
            }
            // The length stays as in the header, to reach more code.
            let len = bytes.len() as u64;
            bytes[8..16].copy_from_slice(&len.to_le_bytes());
            read_slice(&bytes);
        }

        #[test]
        fn mutated_logs_are_safe(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut bytes = sample_log(3);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let _ = read_log(&bytes);
            let _ = read_log(&bytes[64 + 32..]);
        }
    }

    /// Values of these lengths, in turn.
    fn slice_with_values(keys: u64, lens: &[usize]) -> Vec<u8> {
        let values = (0_usize..).map(|at| vec![7; lens[at % lens.len()]]);
        let with_values = records(keys).into_iter().zip(values).map(|(one, value)| {
            let state = State::Value {
                value: value.into(),
                expires_at_ms: None,
            };
            let record = Record {
                state,
                ..one.unpack()
            };
            Packed::of(&record).unwrap()
        });
        sample_of(Kind::Records, &with_values.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn long_records_take_no_more_memory_than_short_ones_and_little_more_disk() {
        let keys = 300;
        for (lens, alignment) in [
            (&[0][..], 2),
            (&[32], 4),
            (&[100], 8),
            (&[0, 1, 2, 600], 8),
            (&[4096], 256),
            (&[100_000, 0], 2048),
            (&[1 << 20], 1 << 16),
        ] {
            let bytes = slice_with_values(keys, lens);
            let header = SliceHeader::decode(&bytes).unwrap();
            assert_eq!(header.alignment().bytes(), alignment, "{lens:?}");
            assert_eq!(read_slice(&bytes), Some(keys), "{lens:?}");
            // A block of 64 offsets takes four bytes more.
            let bits = (f64::from(header.offsets_len) - 8.0) * 8.0 / keys as f64;
            assert!(bits < 8.0, "{lens:?}: {bits} bits");
            let held = (header.held().payload_bytes + keys * 48) as f64;
            let stored = header.records_len as f64;
            assert!(
                (held..held * 1.065).contains(&stored),
                "{lens:?}: {held} > {stored}"
            );
        }
    }

    #[test]
    fn damage_between_records_is_found_and_loses_none() {
        let good = slice_with_values(20, &[1000, 1, 77]);
        let header = SliceHeader::decode(&good).unwrap();
        let view = SliceView::of(&header, &good).unwrap();
        let keys = |bytes: &[u8]| {
            let mut keys = Vec::new();
            let salvaged = salvage(Rest::Memory(bytes), |one| keys.push(one.key().to_vec()));
            salvaged.map(|_| keys)
        };
        let all = keys(&good).unwrap();
        let mut gaps = 0;
        for slot in 0..20 {
            let range = view.range(slot).unwrap();
            let start = header.index_len() as u64 + range.start;
            let record = view.record(slot, Reading::Wait).unwrap();
            for at in start + 4 + record.bytes().len() as u64..start + range.end - range.start {
                gaps += 1;
                let mut bad = good.clone();
                bad[at as usize] = 1;
                let view = SliceView::of(&header, &bad).unwrap();
                assert!(view.record(slot, Reading::Wait).is_err(), "byte {at}");
                assert!(view.verify(|_, _| None).is_err(), "byte {at}");
                assert_eq!(keys(&bad).as_ref(), Ok(&all), "byte {at}");
            }
        }
        assert!(gaps > 20, "{gaps}");
    }

    /// Header, order and records were compared by hand with the tables of the document, and their
    /// checksums with a second implementation of CRC32C.
    #[test]
    fn the_bytes_of_a_slice_do_not_change() {
        let bytes = sample_slice(2).unwrap();
        assert_eq!(bytes, unhex(include_str!("slice.golden.hex")));
    }
}
