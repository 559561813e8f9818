use std::fmt::Write as _;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use prost::Message as _;
use torc_record::{
    Ballot, Digest, Epoch, HybridTime, Key, MAX_VALUE_LEN, NamespaceId, NodeSlot, Record, State,
};
use torc_replication::compare::{Listing, MAX_LISTED, MAX_RANGES, Range, RangeSum};
use torc_replication::{
    Claim, Content, Envelope, Held, KnownPage, Locator, LogPosition, Message, OpId, Recall, Tag,
};
use torc_ring::{Partition, Partitions};

use super::strategies::envelopes;
use super::{
    MAX_BATCH_ENVELOPES, MAX_PAGE_LEN, MAX_PAGE_RECORDS, envelope_from_bytes, envelope_from_wire,
    envelope_to_wire, push_envelope, split_batch,
};
use crate::v1::envelope as wire;
use crate::{TraceContext, WireError, v1};

/// A single partition, which contains every key.
fn whole() -> Partitions {
    Partitions::new(1).unwrap()
}

fn locator() -> Locator {
    Locator {
        namespace: NamespaceId(1),
        digest: Digest([0x11; 16]),
        key: Key::new("k").unwrap(),
    }
}

fn golden_ballot() -> Ballot {
    Ballot {
        epoch: Epoch(3),
        time: HybridTime(7),
        slot: NodeSlot(2),
    }
}

fn claim(is_absent: bool) -> Claim {
    Claim {
        partition: Partition(0),
        epoch: Epoch(300),
        at: locator(),
        version: golden_ballot(),
        is_absent,
    }
}

fn record(value: Bytes) -> Record {
    let at = locator();
    Record {
        namespace: at.namespace,
        digest: at.digest,
        key: at.key,
        ballot: golden_ballot(),
        origin: None,
        state: State::Value {
            value,
            expires_at_ms: Some(9),
        },
    }
}

fn trace() -> TraceContext {
    TraceContext::new([1; 16], [2; 8], true).unwrap()
}

fn enveloped(message: Message) -> Envelope {
    Envelope {
        partition: Partition(0),
        epoch: Epoch(5),
        message,
    }
}

fn through(envelope: Envelope) -> Result<Envelope, WireError> {
    let bytes = Bytes::from(envelope_to_wire(envelope).encode_to_vec());
    envelope_from_bytes(bytes, whole()).map(|(envelope, _)| envelope)
}

#[allow(clippy::too_many_lines, reason = "one entry a kind")]
fn one_of_each() -> Vec<(&'static str, Message)> {
    let (at, ballot, record) = (locator(), golden_ballot(), record("v".into()));
    let tag = Tag {
        op: OpId(6),
        round: HybridTime(4),
    };
    let held = Held {
        origin: Some(Ballot::default()),
        ballot,
        content: Content::of(&record.state, true),
        collected: Ballot::default(),
        collecting: ballot,
    };
    let id = Some(at.id());
    let range = Range { first: 1, last: 2 };
    vec![
        (
            "read",
            Message::Read {
                tag,
                at: at.clone(),
                want_value: true,
                closes: ballot,
            },
        ),
        (
            "holding",
            Message::Holding {
                tag,
                held: held.clone(),
            },
        ),
        (
            "confirm",
            Message::Confirm {
                tag,
                claims: [false, true].map(claim).to_vec(),
            },
        ),
        (
            "confirmed",
            Message::Confirmed {
                tag,
                confirmed: [true, false, false, true].repeat(4),
            },
        ),
        (
            "prepare",
            Message::Prepare {
                tag,
                at: at.clone(),
                ballot,
                doubted: None,
            },
        ),
        (
            "prepare_in_doubt",
            Message::Prepare {
                tag,
                at: at.clone(),
                ballot,
                doubted: Some(ballot),
            },
        ),
        (
            "promised",
            Message::Promised {
                tag,
                held: held.clone(),
                recall: Recall::Unsure,
            },
        ),
        (
            "promised_and_denied",
            Message::Promised {
                tag,
                held: held.clone(),
                recall: Recall::Never,
            },
        ),
        (
            "promised_and_accepted",
            Message::Promised {
                tag,
                held,
                recall: Recall::Stored {
                    version: ballot,
                    is_accepted: true,
                    last: ballot,
                },
            },
        ),
        (
            "accept",
            Message::Accept {
                tag,
                record: record.clone(),
                next: Some(ballot),
            },
        ),
        ("accepted", Message::Accepted { tag }),
        (
            "nack",
            Message::Nack {
                tag,
                highest: ballot,
            },
        ),
        (
            "abstain",
            Message::Abstain {
                tag,
                is_full: false,
            },
        ),
        ("full", Message::Abstain { tag, is_full: true }),
        (
            "learn",
            Message::Learn {
                record: record.clone(),
            },
        ),
        (
            "pull",
            Message::Pull {
                tag: Tag::default(),
                after: id,
                since: Some(LogPosition(7)),
                known: None,
            },
        ),
        (
            "pull_unless_same",
            Message::Pull {
                tag,
                after: id,
                since: None,
                known: Some(KnownPage {
                    next: id,
                    count: 3,
                    sum: 1 << 64 | 8,
                }),
            },
        ),
        (
            "same_page",
            Message::SamePage {
                tag,
                collected: ballot,
                collecting: Ballot::default(),
            },
        ),
        (
            "page",
            Message::Page {
                tag: Tag::default(),
                after: id,
                records: vec![record.clone()],
                next: id,
                collected: ballot,
                collecting: Ballot::default(),
            },
        ),
        ("gc_floor", Message::GcFloor { upto: ballot }),
        (
            "gc_sum",
            Message::GcSum {
                upto: ballot,
                sum: 1 << 64 | 8,
                collected: ballot,
            },
        ),
        ("gc_purge", Message::GcPurge { upto: ballot }),
        (
            "compare",
            Message::Compare {
                collected: ballot,
                sums: vec![RangeSum {
                    range,
                    count: 3,
                    sum: 1 << 64 | 8,
                }],
            },
        ),
        (
            "list",
            Message::List {
                listing: Listing {
                    range,
                    entries: vec![(at.clone(), Some(ballot)), (at, None)],
                },
            },
        ),
        (
            "store",
            Message::Store {
                tag,
                record: record.clone(),
            },
        ),
        ("epoch", Message::Epoch { tag }),
        (
            "repair",
            Message::Repair {
                record,
                collected: ballot,
                closed: ballot,
            },
        ),
    ]
}

/// Generated by this test: a changed line is a changed wire format, with which nodes of two
/// versions could not communicate.
#[test]
fn golden_bytes_of_each_kind_do_not_change() {
    let mut made = String::new();
    for (name, message) in one_of_each() {
        let bytes = envelope_to_wire(enveloped(message)).encode_to_vec();
        writeln!(made, "{name} {:x}", Bytes::from(bytes)).unwrap();
    }
    let mut traced = BytesMut::new();
    let accepted = Message::Accepted {
        tag: Tag::default(),
    };
    push_envelope(&mut traced, enveloped(accepted), Some(&trace()));
    let traced = split_batch(traced.freeze()).unwrap().remove(0);
    writeln!(made, "traced {traced:x}").unwrap();
    assert_eq!(made, include_str!("golden.txt"));
}

#[test]
fn one_of_each_kind_survives_the_wire() {
    for (name, message) in one_of_each() {
        let envelope = enveloped(message);
        assert_eq!(through(envelope.clone()), Ok(envelope), "{name}");
    }
}

proptest! {
    #[test]
    fn an_envelope_survives_the_wire(envelope in envelopes()) {
        prop_assert_eq!(through(envelope.clone()), Ok(envelope));
    }

    #[test]
    fn a_batch_keeps_its_envelopes_in_order(
        batch in proptest::collection::vec(envelopes(), 0..20),
    ) {
        let mut bytes = BytesMut::new();
        for envelope in &batch {
            push_envelope(&mut bytes, envelope.clone(), Some(&trace()));
        }
        let parts = split_batch(bytes.freeze()).unwrap();
        let back: Result<Vec<_>, _> =
            parts.into_iter().map(|part| envelope_from_bytes(part, whole())).collect();
        let batch = batch.into_iter().map(|envelope| (envelope, Some(trace())));
        prop_assert_eq!(back, Ok(batch.collect()));
    }

    #[test]
    fn any_bytes_are_refused_or_read(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        envelope in envelopes(),
        at: prop::sample::Index,
        flip in 1_u8..,
    ) {
        if let Ok(parts) = split_batch(bytes.clone().into()) {
            for part in parts {
                let _ = envelope_from_bytes(part, whole());
            }
        }
        let _ = envelope_from_bytes(bytes.into(), whole());
        let mut near = envelope_to_wire(envelope).encode_to_vec();
        let at = at.index(near.len());
        near[at] ^= flip;
        let _ = envelope_from_bytes(near.clone().into(), whole());
        near.truncate(at);
        let _ = envelope_from_bytes(near.into(), whole());
    }
}

fn assert_refused(message: wire::Message) {
    let envelope = v1::Envelope {
        message: Some(message),
        ..Default::default()
    };
    let text = format!("{envelope:?}");
    assert!(envelope_from_wire(envelope, whole()).is_err(), "{text}");
}

#[test]
fn what_is_missing_or_out_of_bounds_is_refused() {
    let key = |len| wire::Key {
        key: vec![0; len].into(),
        ..Default::default()
    };
    let version = Some(v1::Version::default());
    for len in [0, 1025] {
        let key = Some(key(len));
        assert_refused(wire::Message::Read(wire::Read {
            key,
            want_value: false,
            closes: version,
        }));
    }
    assert_refused(wire::Message::Read(wire::Read::default()));
    let good = wire::Record {
        key: Some(key(1)),
        version,
        origin: None,
        value: Some(wire::Value {
            expires_at_ms: None,
            bytes: Some(vec![0; MAX_VALUE_LEN + 1].into()),
        }),
    };
    assert_refused(wire::Message::Learn(good.clone()));
    assert_refused(wire::Message::Learn(wire::Record {
        version: None,
        ..good.clone()
    }));
    let unvalued = Some(wire::Value::default());
    assert_refused(wire::Message::Store(wire::Record {
        value: unvalued.clone(),
        ..good.clone()
    }));
    assert_refused(wire::Message::Accept(wire::Accept::default()));
    assert_refused(wire::Message::Prepare(wire::Prepare {
        key: Some(key(1)),
        ..Default::default()
    }));
    assert_refused(wire::Message::Promised(wire::Held {
        tombstone: true,
        value: unvalued,
        ..Default::default()
    }));
    let slot = Some(v1::Version {
        slot: 65_536,
        ..Default::default()
    });
    assert_refused(wire::Message::Nack(wire::Nack { highest: slot }));
    let sums = vec![0; 40 * (MAX_RANGES + 1)].into();
    assert_refused(wire::Message::Compare(wire::Compare {
        sums,
        collected: None,
    }));
    let sums = vec![0; 39].into();
    assert_refused(wire::Message::Compare(wire::Compare {
        sums,
        collected: None,
    }));
    assert_refused(wire::Message::List(wire::List {
        first: 2,
        last: 1,
        ..Default::default()
    }));
    let entries = vec![0; MAX_LISTED + 1].into();
    assert_refused(wire::Message::List(wire::List {
        entries,
        ..Default::default()
    }));
    let records = vec![0; MAX_PAGE_RECORDS + 1].into();
    assert_refused(wire::Message::Page(wire::Page {
        records,
        ..Default::default()
    }));
    assert!(
        envelope_from_wire(v1::Envelope::default(), whole()).is_err(),
        "an unknown kind"
    );
}

#[test]
fn a_batch_of_too_many_or_of_a_length_beyond_its_end_is_refused() {
    assert!(split_batch(vec![0; MAX_BATCH_ENVELOPES].into()).is_ok());
    let many = split_batch(vec![0; MAX_BATCH_ENVELOPES + 1].into());
    assert!(matches!(many, Err(WireError::TooMany { .. })), "{many:?}");
    let beyond = split_batch(vec![2, 0].into());
    assert!(
        matches!(beyond, Err(WireError::TooLong { .. })),
        "{beyond:?}"
    );
    let endless = split_batch(vec![0xff; 11].into());
    assert!(
        matches!(endless, Err(WireError::Malformed(_))),
        "{endless:?}"
    );
}

#[test]
fn a_key_of_another_partition_or_a_partition_that_is_not_is_refused() {
    let two = Partitions::new(2).unwrap();
    let read = |partition| {
        let message = Message::Read {
            tag: Tag::default(),
            at: locator(),
            want_value: false,
            closes: Ballot::default(),
        };
        let wire = envelope_to_wire(Envelope {
            partition: Partition(partition),
            epoch: Epoch(1),
            message,
        });
        envelope_from_wire(wire, two)
    };
    assert!(read(0).is_ok());
    for other in [1, 2] {
        assert!(
            matches!(read(other), Err(WireError::Misplaced { .. })),
            "another arc, or another layer"
        );
    }
    let wire = envelope_to_wire(Envelope {
        partition: Partition(2 * 8),
        ..enveloped(Message::Accepted {
            tag: Tag::default(),
        })
    });
    assert!(envelope_from_wire(wire, two).is_err());
}

#[test]
fn a_page_that_is_too_long_travels_as_a_smaller_one() {
    let value = Bytes::from(vec![7; MAX_VALUE_LEN]);
    let count = MAX_PAGE_LEN / MAX_VALUE_LEN + 3;
    let message = Message::Page {
        tag: Tag::default(),
        after: None,
        records: vec![record(value); count],
        next: None,
        collected: Ballot::default(),
        collecting: Ballot::default(),
    };
    let Message::Page { records, next, .. } = through(enveloped(message)).unwrap().message else {
        panic!("a page stays a page");
    };
    assert!(!records.is_empty() && records.len() < count);
    assert_eq!(
        next,
        Some(locator().id()),
        "it goes on after its last record"
    );
}

#[test]
fn a_span_that_is_malformed_is_ignored() {
    let mut wire = envelope_to_wire(enveloped(Message::Accepted {
        tag: Tag::default(),
    }));
    for len in [0, 1, 24, 26, 4_096] {
        wire.trace = vec![1; len].into();
        let (_, trace) = envelope_from_bytes(wire.encode_to_vec().into(), whole()).unwrap();
        assert_eq!(trace, None, "{len} bytes");
    }
}

#[test]
fn a_value_is_not_copied_out_of_its_batch() {
    let mut batch = BytesMut::new();
    push_envelope(
        &mut batch,
        enveloped(Message::Learn {
            record: record(vec![7; 100].into()),
        }),
        None,
    );
    let batch = batch.freeze();
    let inside = batch.as_ptr_range();
    let part = split_batch(batch.clone()).unwrap().remove(0);
    let Message::Learn { record } = envelope_from_bytes(part, whole()).unwrap().0.message else {
        panic!("learn stays learn");
    };
    let State::Value { value, .. } = record.state else {
        panic!("a value stays one");
    };
    assert!(inside.contains(&value.as_ptr()));
}
