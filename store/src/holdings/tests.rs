use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use torc_ring::Partitions;

use super::*;
use crate::StoreOptions;
use crate::packed::tests::{record, value};
use crate::segment::{Pace, SegmentWriter};
use crate::shared::Shared;
use crate::slice::{GateRates, SliceInput};
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
    shared.holdings.apply(Seq(seq), &packed)
}

/// A durable slice of one record.
fn slice_of(shared: &Shared, packed: &Packed, after: Seq) -> Arc<Slice> {
    let partitions = shared.options.partitions;
    let input = SliceInput {
        partition: partitions.of(Token(packed.token())),
        partitions: Partitions::new(PARTITIONS).unwrap(),
        records: vec![packed.bytes()],
        digests: vec![packed.digest()],
        layer: 0,
        salt: 7,
        gate_rate: 0.01,
    };
    let built = input.build(&mut GateRates::default()).unwrap();
    let pace = Pace {
        bytes_per_s: u64::MAX,
    };
    let number = shared.next_segment();
    let mut writer = SegmentWriter::create(&shared.dir, partitions, number, pace).unwrap();
    writer.push(built).unwrap();
    writer.finish(after).unwrap().slices.remove(0)
}

fn install(holdings: &Holdings, slice: &Arc<Slice>, sealed: PartitionSummary) -> bool {
    let skipped = BTreeSet::new();
    holdings.install_sealed(
        slice.partition(),
        std::slice::from_ref(slice),
        sealed,
        Seq(1),
        &skipped,
    )
}

fn held(shared: &Shared) -> (u64, u64) {
    let packed = version(0);
    let found = shared.holdings.packed(&packed.position()).unwrap().unwrap();
    (found.ballot().time.0, shared.holdings.total().records)
}

#[test]
fn a_record_that_moves_into_a_slice_while_an_older_one_is_applied_is_not_hidden_by_it() {
    let shared = shared();
    let holdings = &shared.holdings;
    assert!(apply(&shared, 1, 10));
    let older = version(5);
    let beneath = holdings.beneath(&older);
    let slice = slice_of(&shared, &version(10), Seq(1));
    let sealed = slice.header().unwrap().held();
    assert!(install(holdings, &slice, sealed));
    let applied = holdings.apply_above(&beneath, Seq(2), &older);
    assert_eq!(
        applied, None,
        "the overlay has nothing of the key any more: look again"
    );
    assert!(!apply(&shared, 2, 5), "now it is known to be older");
    assert_eq!(held(&shared), (10, 1));
    assert!(apply(&shared, 3, 20));
    assert_eq!(held(&shared), (20, 1), "one record, counted once");
}

#[test]
fn a_slice_that_arrives_while_a_record_is_applied_is_compared_with_it() {
    let shared = shared();
    let holdings = &shared.holdings;
    let older = version(5);
    let beneath = holdings.beneath(&older);
    let slice = slice_of(&shared, &version(10), Seq(0));
    let (partition, sealed) = (slice.partition(), slice.header().unwrap().held());
    let is_in = holdings.install_received(partition, &[slice], sealed, Seq(0));
    assert!(is_in.unwrap());
    assert_eq!(holdings.apply_above(&beneath, Seq(1), &older), None);
    assert!(!apply(&shared, 1, 5));
    assert_eq!(held(&shared), (10, 1));
}

#[test]
fn slices_of_before_a_drop_are_not_put_in_force_after_it() {
    let shared = shared();
    let holdings = &shared.holdings;
    assert!(apply(&shared, 1, 10));
    let slice = slice_of(&shared, &version(10), Seq(1));
    let (partition, sealed) = (slice.partition(), slice.header().unwrap().held());
    holdings.drop_partition(partition, Seq(2));
    assert!(holdings.was_dropped_after(partition, Seq(1)));
    assert!(!install(holdings, &slice, sealed));
    let refused =
        holdings.install_received(partition, std::slice::from_ref(&slice), sealed, Seq(1));
    assert!(!refused.unwrap());
    assert!(
        !holdings.install_folded(&Folded {
            partition,
            inputs: &[Arc::clone(&slice)],
            outputs: &[],
            dropped: &[],
            sealed,
            is_repair: false,
        }),
        "its input is gone"
    );
    assert_eq!(holdings.total(), PartitionSummary::default());
    assert!(
        holdings
            .install_received(partition, &[slice], sealed, Seq(2))
            .unwrap()
    );
    assert_eq!(
        holdings.total().records,
        1,
        "what arrives after the drop counts"
    );
}
