use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use torc_ring::Partitions;

use super::*;
use crate::StoreOptions;
use crate::packed::tests::{record, value};
use crate::segment::{RateLimit, SegmentWriter};
use crate::shared::Shared;
use crate::slice::{GateRates, Kind, SliceInput};
use crate::testing::CrashFs;

const PARTITIONS: u32 = 4;

fn shared() -> Shared {
    let mut options = StoreOptions::new(Path::new("/data"));
    options.partitions = Partitions::new(PARTITIONS).unwrap();
    let recovered = crate::recovery::recover(options, Arc::new(CrashFs::new()));
    recovered.unwrap().0
}

fn version(time: u64) -> Packed {
    Packed::of(&record(b"key", time, value(b"value"))).unwrap()
}

fn apply(shared: &Shared, seq: u64, time: u64) -> bool {
    let packed = version(time);
    shared.table.apply(Seq(seq), &packed)
}

/// A durable slice of one record.
fn slice_of(shared: &Shared, packed: &Packed, after: Seq) -> Arc<Slice> {
    let partitions = shared.options.partitions;
    let input = SliceInput {
        kind: Kind::Records,
        partition: partitions.of(Token(packed.token())),
        partitions: Partitions::new(PARTITIONS).unwrap(),
        records: vec![packed.bytes()],
        digests: vec![packed.digest()],
        layer: 0,
        salt: Some(7),
        gate_rate: 0.01,
    };
    let built = input.build(&mut GateRates::default()).unwrap();
    let rate_limit = RateLimit {
        bytes_per_s: u64::MAX,
    };
    let number = shared.next_segment();
    let mut writer = SegmentWriter::create(&shared.dir, partitions, number, rate_limit).unwrap();
    writer.push(built).unwrap();
    writer.finish(after).unwrap().slices.remove(0)
}

fn install(table: &PartitionTable, slice: &Arc<Slice>, sealed: PartitionSummary) -> bool {
    let skipped = BTreeSet::new();
    table.install_flushed(
        slice.partition(),
        std::slice::from_ref(slice),
        sealed,
        Seq(1),
        &skipped,
    )
}

fn held(shared: &Shared) -> (u64, u64) {
    let packed = version(0);
    let found = shared.table.packed(&packed.position()).unwrap().unwrap();
    (found.ballot().time.0, shared.table.total().records)
}

#[test]
fn a_record_that_moves_into_a_slice_while_an_older_one_is_applied_is_not_hidden_by_it() {
    let shared = shared();
    let table = &shared.table;
    assert!(apply(&shared, 1, 10));
    let older = version(5);
    let beneath = table.beneath(&older);
    let slice = slice_of(&shared, &version(10), Seq(1));
    let sealed = slice.header().unwrap().held();
    assert!(install(table, &slice, sealed));
    let applied = table.apply_above(&beneath, Seq(2), &older);
    assert_eq!(
        applied, None,
        "the memtable has nothing of the key any more: look again"
    );
    assert!(!apply(&shared, 2, 5), "now it is known to be older");
    assert_eq!(held(&shared), (10, 1));
    assert!(apply(&shared, 3, 20));
    assert_eq!(held(&shared), (20, 1), "one record, counted once");
}

#[test]
fn a_slice_that_is_ingested_while_a_record_is_applied_is_compared_with_it() {
    let shared = shared();
    let table = &shared.table;
    let older = version(5);
    let beneath = table.beneath(&older);
    let slice = slice_of(&shared, &version(10), Seq(0));
    let (partition, sealed) = (slice.partition(), slice.header().unwrap().held());
    let is_in = table.install_ingested(partition, &[slice], sealed, Seq(0));
    assert!(is_in.unwrap());
    assert_eq!(table.apply_above(&beneath, Seq(1), &older), None);
    assert!(!apply(&shared, 1, 5));
    assert_eq!(held(&shared), (10, 1));
}

#[test]
fn slices_of_before_a_drop_are_not_put_in_force_after_it() {
    let shared = shared();
    let table = &shared.table;
    assert!(apply(&shared, 1, 10));
    let slice = slice_of(&shared, &version(10), Seq(1));
    let (partition, sealed) = (slice.partition(), slice.header().unwrap().held());
    table.drop_partition(partition, Seq(2));
    assert!(table.was_dropped_after(partition, Seq(1)));
    assert!(!install(table, &slice, sealed));
    let refused = table.install_ingested(partition, std::slice::from_ref(&slice), sealed, Seq(1));
    assert!(!refused.unwrap());
    assert!(
        !table.install_compacted(&Compacted {
            partition,
            inputs: &[Arc::clone(&slice)],
            outputs: &[],
            dropped: &[],
            sealed,
            is_repair: false,
        }),
        "its input is gone"
    );
    assert_eq!(table.total(), PartitionSummary::default());
    assert!(
        table
            .install_ingested(partition, &[slice], sealed, Seq(2))
            .unwrap()
    );
    assert_eq!(
        table.total().records,
        1,
        "what is ingested after the drop counts"
    );
}
