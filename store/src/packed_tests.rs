use super::*;
use proptest::prelude::*;
use torc_record::{DIGEST_LEN, DigestKey, Epoch, HybridTime, NodeSlot};

pub(crate) fn record(key: &[u8], time: u64, state: State) -> Record {
    Record {
        namespace: NamespaceId::DEFAULT,
        digest: Digest::of(&DigestKey([7; 32]), NamespaceId::DEFAULT, key),
        key: Key::new(key.to_vec()).unwrap(),
        ballot: Ballot {
            epoch: Epoch(3),
            time: HybridTime(time),
            slot: NodeSlot(5),
        },
        origin: None,
        state,
    }
}

pub(crate) fn value(bytes: &[u8]) -> State {
    State::Value {
        value: Bytes::copy_from_slice(bytes),
        expires_at_ms: None,
    }
}

pub(crate) fn any_record() -> impl Strategy<Value = Record> {
    let state = prop_oneof![
        Just(State::Tombstone),
        (
            proptest::collection::vec(any::<u8>(), 0..200),
            any::<Option<u64>>()
        )
            .prop_map(|(value, expires_at_ms)| State::Value {
                value: value.into(),
                expires_at_ms
            }),
    ];
    let ballot = || {
        (any::<u64>(), any::<u64>(), any::<u16>()).prop_map(|(epoch, time, slot)| Ballot {
            epoch: Epoch(epoch),
            time: HybridTime(time),
            slot: NodeSlot(slot),
        })
    };
    let ballots = (ballot(), proptest::option::of(ballot()));
    let key = proptest::collection::vec(any::<u8>(), 1..=40);
    (any::<u32>(), any::<[u8; DIGEST_LEN]>(), key, ballots, state).prop_map(
        |(namespace, digest, key, (ballot, origin), state)| Record {
            namespace: NamespaceId(namespace),
            digest: Digest(digest),
            key: Key::new(key).unwrap(),
            ballot,
            origin,
            state,
        },
    )
}

/// As in the test below, with eighteen more bytes after the expiry.
#[test]
fn an_origin_lies_behind_the_expiry_and_only_if_it_is_not_the_ballot() {
    let state = State::Value {
        value: Bytes::from_static(b"vw"),
        expires_at_ms: Some(0x1122),
    };
    let mut record = record(b"k", 7, state);
    let plain = Packed::of(&record).unwrap();
    record.origin = Some(record.ballot);
    assert_eq!(Packed::of(&record).unwrap(), plain, "one form only");

    let origin = Ballot {
        epoch: Epoch(0x0a),
        time: HybridTime(0x0b),
        slot: NodeSlot(0x0c),
    };
    record.origin = Some(origin);
    let packed = Packed::of(&record).unwrap();
    let mut by_hand = plain.bytes().to_vec();
    by_hand[0] += 128;
    let bytes = unhex("0a00000000000000 0b00000000000000 0c00");
    by_hand.splice(HEAD_LEN + 8..HEAD_LEN + 8, bytes);
    assert_eq!(packed.bytes(), by_hand);
    assert_eq!(packed.unpack(), record);
    assert_eq!(
        packed.fingerprint(),
        plain.fingerprint(),
        "the ballot tells"
    );

    let itself = crate::format::ballot_bytes(record.ballot);
    by_hand[HEAD_LEN + 8..][..18].copy_from_slice(&itself);
    assert!(Packed::parse(&by_hand).is_err(), "one form only");
}

/// The bytes were written by hand from the table in `packed`.
#[test]
fn the_packed_form_does_not_change() {
    let mut record = record(b"k", 0x0102_0304_0506_0708, value(b"vw"));
    record.digest = Digest([0xd0; 16]);
    let head = "020000 01000000 0300000000000000 0807060504030201 0500 0100";
    let digest = "d0".repeat(16);
    let plain = format!("01 {head} {digest} 6b 7677");
    assert_eq!(Packed::of(&record).unwrap().bytes(), unhex(&plain));

    if let State::Value { expires_at_ms, .. } = &mut record.state {
        *expires_at_ms = Some(1000);
    }
    let expiring = format!("02 {head} {digest} e803000000000000 6b 7677");
    assert_eq!(Packed::of(&record).unwrap().bytes(), unhex(&expiring));

    record.state = State::Tombstone;
    let head = head.replace("020000 ", "000000 ");
    let tombstone = format!("03 {head} {digest} 6b");
    assert_eq!(Packed::of(&record).unwrap().bytes(), unhex(&tombstone));
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

#[test]
fn impossible_lengths_are_refused_before_they_are_used() {
    let good = Packed::of(&record(b"k", 1, value(b"v"))).unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = good.bytes().to_vec();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        Packed::parse(&bad)
    };
    assert_eq!(with(0, &[9]), Err("a record of unknown kind"));
    assert_eq!(with(26, &[0, 0]), Err("a key of impossible length"));
    assert_eq!(with(26, &[0xff; 2]), Err("a key of impossible length"));
    assert_eq!(with(1, &[0xff; 3]), Err("a value of impossible length"));
    assert_eq!(with(0, &[TOMBSTONE]), Err("a value of impossible length"));
    assert_eq!(with(1, &[200, 0, 0]), Err("a record is cut off"));
    assert_eq!(
        Packed::parse(&good.bytes()[..HEAD_LEN - 1]),
        Err("a record is cut off in its head")
    );
}

#[test]
fn a_value_that_is_too_long_is_refused() {
    let long = vec![0; MAX_VALUE_LEN + 1];
    assert!(Packed::of(&record(b"k", 1, value(&long))).is_err());
    let longest = Packed::of(&record(&[1; MAX_KEY_LEN], 1, value(&long[1..]))).unwrap();
    assert_eq!(longest.payload_len(), MAX_KEY_LEN + MAX_VALUE_LEN);
}

proptest! {
    #[test]
    fn a_record_survives_packing(record in any_record(), trailing in any::<[u8; 3]>()) {
        let packed = Packed::of(&record).unwrap();
        let mut bytes = packed.bytes().to_vec();
        bytes.extend_from_slice(&trailing);
        let parsed = Packed::parse(&bytes).unwrap();
        prop_assert_eq!(&parsed, &packed);
        prop_assert_eq!(parsed.unpack(), record.clone());
        prop_assert_eq!(parsed.ballot(), record.ballot);
        prop_assert_eq!(parsed.payload_len(), record.payload_len());
        prop_assert_eq!(parsed.token(), record.digest.high());
        let sum = torc_record::entry_sum(KeyId::of(&record), record.ballot);
        prop_assert_eq!(parsed.fingerprint(), sum);
    }

    #[test]
    fn packed_records_are_collected_by_the_rule_of_records(
        record in any_record(),
        watermark in any_record(),
    ) {
        for watermark in [watermark.ballot, record.ballot] {
            let expected = record.state.is_collected(record.ballot, watermark);
            prop_assert_eq!(Packed::of(&record).unwrap().is_collected(watermark), expected);
        }
    }

    #[test]
    fn packed_records_are_ordered_by_the_rule_of_records(a in any_record(), b in any_record()) {
        let packed = Packed::of(&a).unwrap().supersedes(&Packed::of(&b).unwrap());
        prop_assert_eq!(packed, a.supersedes(&b));
    }

    #[test]
    fn ring_order_is_digest_then_namespace_then_key(a in any_record(), b in any_record()) {
        let by_field = (a.digest, a.namespace, &a.key).cmp(&(b.digest, b.namespace, &b.key));
        let (a, b) = (Packed::of(&a).unwrap(), Packed::of(&b).unwrap());
        prop_assert_eq!(a.position().cmp(&b.position()), by_field);
    }

    #[test]
    fn parsing_any_bytes_is_safe(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(packed) = Packed::parse(&bytes) {
            prop_assert!(packed.bytes().len() <= bytes.len());
            prop_assert_eq!(&Packed::of(&packed.unpack()).unwrap(), &packed);
        }
    }
}
