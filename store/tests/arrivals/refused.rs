//! What is damaged, was not announced or does not belong is refused.

use std::sync::Arc;

use crate::common::{DIR, block_on, open, options};
use crate::{HOME, arrive, bytes_of, copy, infos, sender};
use bytes::Bytes;
use torc_record::DigestKey;
use torc_ring::{Partition, Partitions};
use torc_store::testing::CrashFs;
use torc_store::{Arrival, SliceInfo, Store, StoreError};

#[test]
fn every_flipped_bit_of_a_slice_on_its_way_is_refused() {
    let (_, from) = sender();
    block_on(from.fold()).unwrap();
    let sealed = from.sealed(HOME).unwrap();
    let (to, _) = open(&CrashFs::new()).unwrap();
    let (infos, good) = (infos(&sealed), bytes_of(&sealed));
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let mut arrival = to.receive(HOME, &infos).unwrap();
        let is_content = bit / 8 < good.len() - 32;
        let taken = arrival.write(bad.into());
        assert_eq!(
            taken.is_err(),
            is_content,
            "bit {bit}: the digest is of the content"
        );
        let taken = taken.and_then(|()| arrival.verify(None));
        assert!(
            matches!(taken, Err(StoreError::BadArrival { .. })),
            "bit {bit}: {taken:?}"
        );
    }
}

#[test]
fn nor_does_a_slice_pass_that_was_damaged_before_its_digest_was_made() {
    let (_, from) = sender();
    block_on(from.fold()).unwrap();
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
        let mut arrival = to.receive(HOME, &[info]).unwrap();
        arrival.write(bad.clone().into()).unwrap();
        let refused = arrival.verify(None);
        assert!(
            matches!(refused, Err(StoreError::BadArrival { .. })),
            "bit {bit}"
        );
        // In pieces it is not kept but read again from the file.
        let mut arrival = to.receive(HOME, &[info]).unwrap();
        let (start, rest) = bad.split_at(content_len / 2);
        arrival.write(Bytes::copy_from_slice(start)).unwrap();
        arrival.write(Bytes::copy_from_slice(rest)).unwrap();
        let refused_too = arrival.verify(None).unwrap_err();
        assert_eq!(
            refused_too.to_string(),
            refused.unwrap_err().to_string(),
            "bit {bit}"
        );
    }
}

fn refusal(arrival: Result<Arrival, StoreError>) -> &'static str {
    match arrival.unwrap_err() {
        StoreError::BadArrival { what, .. } => what,
        other => panic!("{other}"),
    }
}

#[test]
fn what_was_not_announced_or_does_not_belong_is_refused_by_name() {
    let (_, from) = sender();
    let sealed = from.sealed(HOME).unwrap();
    let (infos, bytes) = (infos(&sealed), bytes_of(&sealed));
    let (to, _) = open(&CrashFs::new()).unwrap();

    let mut arrival = to.receive(HOME, &infos).unwrap();
    arrival.write(bytes.clone().into()).unwrap();
    let more = arrival.write(Bytes::from_static(b"x")).map(|()| arrival);
    assert_eq!(refusal(more), "more bytes than were announced");

    let mut arrival = to.receive(HOME, &infos).unwrap();
    let cut = Bytes::copy_from_slice(&bytes[..bytes.len() - 1]);
    arrival.write(cut).unwrap();
    let fewer = arrival.verify(None).map(|()| arrival);
    assert_eq!(refusal(fewer), "fewer bytes than were announced");

    let elsewhere = arrive(&to, Partition(0), &sealed);
    assert_eq!(refusal(elsewhere), "a slice of another partition");

    let mut arrival = to.receive(HOME, &infos).unwrap();
    arrival.write(bytes.clone().into()).unwrap();
    let foreign = arrival.verify(Some(&DigestKey([8; 32]))).map(|()| arrival);
    assert_eq!(refusal(foreign), "a record with the digest of another key");

    let mut arrival = to.receive(HOME, &infos).unwrap();
    arrival.write(bytes.clone().into()).unwrap();
    let unverified = block_on(arrival.publish()).unwrap_err();
    assert!(
        unverified.to_string().contains("it was not verified"),
        "{unverified}"
    );

    let mut other = options(DIR);
    other.partitions = Partitions::new(64).unwrap();
    let (wide, _) = Store::open_with(other, Arc::new(CrashFs::new())).unwrap();
    assert_eq!(
        refusal(arrive(&wide, HOME, &sealed)),
        "a slice of another partition"
    );
    assert!(to.receive(Partition(8 * 8), &infos).is_err());

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
        let refused = to.receive(HOME, &lens).map(drop);
        assert!(
            matches!(refused, Err(StoreError::BadArrival { .. })),
            "{}",
            lens.len()
        );
    }
    let largest = to.receive(HOME, &[info(1 << 40)]).unwrap();
    assert!(fs.used_bytes() <= before + 64, "only a header was written");
    drop(largest);
}
