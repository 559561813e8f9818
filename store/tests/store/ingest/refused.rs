//! Slices that are damaged, unannounced or of another partition are refused.

use std::sync::Arc;

use super::{HOME, bytes_of, copy, infos, prepare, sender};
use crate::common::{DIR, block_on, open, options};
use bytes::Bytes;
use torc_record::DigestKey;
use torc_ring::{Partition, Partitions};
use torc_store::testing::CrashFs;
use torc_store::{Ingest, SliceInfo, Store, StoreError};

#[test]
fn every_flipped_bit_of_a_slice_on_its_way_is_refused() {
    let (_, from) = sender();
    block_on(from.compact()).unwrap();
    let sealed = from.sealed(HOME).unwrap();
    let (to, _) = open(&CrashFs::new()).unwrap();
    let (infos, good) = (infos(&sealed), bytes_of(&sealed));
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let mut ingest = to.ingest(HOME, &infos).unwrap();
        let is_content = bit / 8 < good.len() - 32;
        let taken = ingest.write(bad.into());
        assert_eq!(
            taken.is_err(),
            is_content,
            "bit {bit}: the digest is of the content"
        );
        let taken = taken.and_then(|()| ingest.verify(None));
        assert!(
            matches!(taken, Err(StoreError::BadIngest { .. })),
            "bit {bit}: {taken:?}"
        );
    }
}

#[test]
fn nor_does_a_slice_pass_that_was_damaged_before_its_digest_was_made() {
    let (_, from) = sender();
    block_on(from.compact()).unwrap();
    let good = bytes_of(&from.sealed(HOME).unwrap());
    let (to, _) = open(&CrashFs::new()).unwrap();
    let content_len = good.len() - 32;
    for bit in 0..content_len * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let digest = *blake3::hash(&bad[..content_len]).as_bytes();
        bad[content_len..].copy_from_slice(&digest);
        let info = SliceInfo {
            len: bad.len() as u64,
            digest,
        };
        let mut ingest = to.ingest(HOME, &[info]).unwrap();
        ingest.write(bad.clone().into()).unwrap();
        let refused = ingest.verify(None);
        assert!(
            matches!(refused, Err(StoreError::BadIngest { .. })),
            "bit {bit}"
        );
        // A slice in pieces is not kept in memory, but read again from the file.
        let mut ingest = to.ingest(HOME, &[info]).unwrap();
        let (start, rest) = bad.split_at(content_len / 2);
        ingest.write(Bytes::copy_from_slice(start)).unwrap();
        ingest.write(Bytes::copy_from_slice(rest)).unwrap();
        let refused_too = ingest.verify(None).unwrap_err();
        assert_eq!(
            refused_too.to_string(),
            refused.unwrap_err().to_string(),
            "bit {bit}"
        );
    }
}

fn refusal(ingest: Result<Ingest, StoreError>) -> &'static str {
    match ingest.unwrap_err() {
        StoreError::BadIngest { what, .. } => what,
        other => panic!("{other}"),
    }
}

#[test]
fn what_was_not_announced_or_does_not_belong_is_refused_by_name() {
    let (_, from) = sender();
    let sealed = from.sealed(HOME).unwrap();
    let (infos, bytes) = (infos(&sealed), bytes_of(&sealed));
    let (to, _) = open(&CrashFs::new()).unwrap();

    let mut ingest = to.ingest(HOME, &infos).unwrap();
    ingest.write(bytes.clone().into()).unwrap();
    let more = ingest.write(Bytes::from_static(b"x")).map(|()| ingest);
    assert_eq!(refusal(more), "more bytes than were announced");

    let mut ingest = to.ingest(HOME, &infos).unwrap();
    let cut = Bytes::copy_from_slice(&bytes[..bytes.len() - 1]);
    ingest.write(cut).unwrap();
    let fewer = ingest.verify(None).map(|()| ingest);
    assert_eq!(refusal(fewer), "fewer bytes than were announced");

    let elsewhere = prepare(&to, Partition(0), &sealed);
    assert_eq!(refusal(elsewhere), "a slice of another partition");

    let mut ingest = to.ingest(HOME, &infos).unwrap();
    ingest.write(bytes.clone().into()).unwrap();
    let foreign = ingest.verify(Some(&DigestKey([8; 32]))).map(|()| ingest);
    assert_eq!(refusal(foreign), "a record with the digest of another key");

    let mut ingest = to.ingest(HOME, &infos).unwrap();
    ingest.write(bytes.clone().into()).unwrap();
    let unverified = block_on(ingest.publish()).unwrap_err();
    assert!(
        unverified.to_string().contains("it was not verified"),
        "{unverified}"
    );

    let mut other = options(DIR);
    other.partitions = Partitions::new(64).unwrap();
    let (wide, _) = Store::open_with(other, Arc::new(CrashFs::new())).unwrap();
    assert_eq!(
        refusal(prepare(&wide, HOME, &sealed)),
        "a slice of another partition"
    );
    assert!(to.ingest(Partition(8 * 8), &infos).is_err());

    assert_eq!(to.summary(HOME).records, 0, "nothing of all this was taken");
    copy(&from, &to, HOME).unwrap();
}

#[test]
fn announced_lengths_are_bounded_and_reserve_nothing() {
    let fs = CrashFs::new();
    let (to, _) = open(&fs).unwrap();
    let info = |len| SliceInfo {
        len,
        digest: [0; 32],
    };
    let before = fs.used_bytes();
    for lens in [
        vec![info(0)],
        vec![info(159)],
        vec![info(u64::MAX)],
        vec![info((1 << 40) + 1)],
        vec![info(1 << 39), info(1 << 39), info(160)],
        vec![info(160); 257],
    ] {
        let refused = to.ingest(HOME, &lens).map(drop);
        assert!(
            matches!(refused, Err(StoreError::BadIngest { .. })),
            "{}",
            lens.len()
        );
    }
    let largest = to.ingest(HOME, &[info(1 << 40)]).unwrap();
    assert!(fs.used_bytes() <= before + 64, "only a header was written");
    drop(largest);
}
