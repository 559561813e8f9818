//! The result of a flush, and reads of it.

use super::{segments, with_slices, write};
use crate::common::{block_on, fingerprint, get, open, put};
use torc_record::{Key, Record};
use torc_store::testing::{CrashFs, WaitingStore};
use torc_store::{Seq, Verdict};

#[test]
fn a_flush_cuts_the_log_and_is_read_back() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    for key in 0..200 {
        write(&store, key, 10).unwrap();
    }
    let log_segments = store.stats().log_segments;
    assert!(log_segments > 5, "{log_segments} segments");
    let report = block_on(store.flush()).unwrap();
    assert_eq!(
        (report.records, report.log_segments_removed),
        (200, log_segments)
    );
    assert_eq!((report.slices, report.through), (8, Seq(200)));
    let stats = store.stats();
    assert_eq!((stats.log_segments, stats.memtable_bytes), (1, 0));
    assert_eq!(
        (stats.sliced.keys, stats.sliced.segment_bytes),
        (200, report.bytes)
    );
    write(&store, 7, 20).unwrap();
    block_on(store.close()).unwrap();
    let (store, recovery) = open(&fs).unwrap();
    assert_eq!(
        (recovery.sealed_records, recovery.log_entries_replayed),
        (200, 1)
    );
    assert_eq!((recovery.records, recovery.last_seq), (200, Seq(201)));
    assert_eq!(store.stats().records, 200);
    assert_eq!(get(&store, 7).unwrap().unwrap().ballot.time.0, 20);
}

#[test]
fn a_flush_of_nothing_writes_no_segment() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let report = block_on(store.flush()).unwrap();
    assert_eq!((report.records, report.slices, report.bytes), (0, 0, 0));
    assert_eq!(segments(&fs).len(), 0);
    let report = block_on(store.compact()).unwrap();
    assert_eq!((report.slices_read, report.slices_written), (0, 0));
}

#[test]
fn a_sealed_key_answers_for_no_other_key_of_its_digest() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let record = put(1, 1, b"one");
    block_on(store.write(record.clone())).unwrap();
    block_on(store.flush()).unwrap();
    let other = Record {
        key: Key::new("key-2").unwrap(),
        ..record
    };
    assert_eq!(
        store.get(other.locator()).unwrap(),
        None,
        "the digest passes gate and MPHF, the key does not"
    );
    let batch = store.get_batch(&[other.locator()]);
    assert!(matches!(batch[..], [Ok(None)]));
    let trace = store.trace(other.locator()).unwrap();
    assert_eq!(trace.slices[0].verdict, Verdict::GateFalsePositive);
    assert_eq!(store.stats().sliced.gate_false_positives, 2);
}

#[test]
fn gates_decide_nearly_all_misses_without_a_read() {
    let fs = CrashFs::new();
    let (store, _) = open(&fs).unwrap();
    let records: Vec<_> = (0..2000).map(|key| put(key, 1, b"x")).collect();
    block_on(store.write_batch(records)).unwrap();
    block_on(store.flush()).unwrap();
    for key in 0..2000 {
        assert!(get(&store, 1_000_000 + key).unwrap().is_none());
    }
    let sliced = store.stats().sliced;
    assert_eq!(sliced.gate_negatives + sliced.gate_false_positives, 2000);
    assert!(
        sliced.record_reads <= 20,
        "{} reads for 2,000 misses",
        sliced.record_reads
    );
    assert!(get(&store, 7).unwrap().is_some());
    let after = store.stats().sliced;
    assert_eq!(
        after.record_reads,
        sliced.record_reads + 1,
        "one read a hit"
    );
}

#[test]
fn the_newest_ballot_is_the_answer_in_whatever_slice_it_lies() {
    let fs = CrashFs::new();
    let (store, model) = with_slices(&fs, 5);
    model.check(&store, "many slices");
    write(&store, 1, 3).unwrap();
    assert!(
        store.stats().memtable_bytes > 0,
        "newer than what is sealed"
    );
    let before = fingerprint(&store);
    write(&store, 1, 2).unwrap();
    write(&store, 0, 4).unwrap();
    assert_eq!(
        fingerprint(&store),
        before,
        "older than what is sealed: nothing changes"
    );
    let trace = {
        let one = put(0, 0, b"");
        store.trace(one.locator()).unwrap()
    };
    let holds = trace
        .slices
        .iter()
        .filter(|one| matches!(one.verdict, Verdict::Holds { .. }));
    assert_eq!((trace.memtable, holds.count()), (None, 5));
}
