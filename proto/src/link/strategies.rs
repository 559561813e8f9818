//! Any envelope, for property tests.

use bytes::Bytes;
use proptest::prelude::*;
use torc_record::{
    Ballot, Digest, Epoch, HybridTime, Key, Layer, NamespaceId, NodeSlot, Record, State,
};
use torc_replication::compare::{Listing, MAX_RANGES, Range, RangeSum};
use torc_replication::{
    Claim, Content, Envelope, Held, KeyId, KnownPage, Locator, LogPosition, Message, OpId, Recall,
    Tag,
};
use torc_ring::Partition;

fn ballots() -> impl Strategy<Value = Ballot> {
    any::<(u64, u64, u16)>().prop_map(|(epoch, time, slot)| Ballot {
        epoch: Epoch(epoch),
        time: HybridTime(time),
        slot: NodeSlot(slot),
    })
}

fn maybe_ballots() -> impl Strategy<Value = Ballot> {
    prop_oneof![Just(Ballot::default()), ballots()]
}

fn tags() -> impl Strategy<Value = Tag> {
    any::<(u64, u64)>().prop_map(|(op, round)| Tag {
        op: OpId(op),
        round: HybridTime(round),
    })
}

fn locators() -> impl Strategy<Value = Locator> {
    let key = proptest::collection::vec(any::<u8>(), 1..40);
    // Keys of the layer to which the envelopes' one partition belongs.
    (any::<(u32, [u8; 16])>(), key).prop_map(|((number, digest), key)| Locator {
        namespace: NamespaceId::in_layer(Layer::BASE, number),
        digest: Digest(digest),
        key: Key::new(key).unwrap(),
    })
}

fn key_ids() -> impl Strategy<Value = Option<KeyId>> {
    proptest::option::of(locators().prop_map(|at| at.id()))
}

fn values() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..60).prop_map(Bytes::from)
}

fn records() -> impl Strategy<Value = Record> {
    let state = prop_oneof![
        Just(State::Tombstone),
        (values(), any::<Option<u64>>()).prop_map(|(value, expires_at_ms)| State::Value {
            value,
            expires_at_ms
        }),
    ];
    let origins = proptest::option::of(ballots());
    (locators(), ballots(), origins, state).prop_map(|(at, ballot, origin, state)| Record {
        namespace: at.namespace,
        digest: at.digest,
        key: at.key,
        ballot,
        origin,
        state,
    })
}

fn helds() -> impl Strategy<Value = Held> {
    let content = prop_oneof![
        Just(Content::Absent),
        Just(Content::Tombstone),
        (any::<Option<u64>>(), proptest::option::of(values())).prop_map(
            |(expires_at_ms, value)| Content::Value {
                expires_at_ms,
                value
            }
        ),
    ];
    (maybe_ballots(), content, maybe_ballots(), maybe_ballots()).prop_map(
        |(ballot, content, collected, collecting)| Held {
            origin: (content != Content::Absent).then_some(collected),
            ballot,
            content,
            collected,
            collecting,
        },
    )
}

fn ranges() -> impl Strategy<Value = Range> {
    any::<(u64, u64)>().prop_map(|(a, b)| Range {
        first: a.min(b),
        last: a.max(b),
    })
}

fn sums() -> impl Strategy<Value = RangeSum> {
    (ranges(), any::<(u64, u128)>()).prop_map(|(range, (count, sum))| RangeSum {
        range,
        count,
        sum,
    })
}

fn claims() -> impl Strategy<Value = Claim> {
    (any::<u64>(), locators(), maybe_ballots(), any::<bool>()).prop_map(
        |(epoch, at, version, is_absent)| Claim {
            partition: Partition(0),
            epoch: Epoch(epoch),
            at,
            version,
            is_absent,
        },
    )
}

fn asking() -> BoxedStrategy<Message> {
    prop_oneof![
        (tags(), locators(), any::<bool>(), maybe_ballots()).prop_map(
            |(tag, at, want_value, closes)| Message::Read {
                tag,
                at,
                want_value,
                closes,
            }
        ),
        (tags(), proptest::collection::vec(claims(), 0..8))
            .prop_map(|(tag, claims)| Message::Confirm { tag, claims }),
        (
            tags(),
            locators(),
            ballots(),
            proptest::option::of(ballots())
        )
            .prop_map(|(tag, at, ballot, doubted)| Message::Prepare {
                tag,
                at,
                ballot,
                doubted
            }),
        (tags(), records(), proptest::option::of(ballots()))
            .prop_map(|(tag, record, next)| Message::Accept { tag, record, next }),
        records().prop_map(|record| Message::Learn { record }),
        (
            tags(),
            key_ids(),
            proptest::option::of(any::<u64>()),
            proptest::option::of(knowns())
        )
            .prop_map(|(tag, after, since, known)| Message::Pull {
                tag,
                after,
                since: since.map(LogPosition),
                known,
            }),
        (tags(), records()).prop_map(|(tag, record)| Message::Store { tag, record }),
        (records(), maybe_ballots(), maybe_ballots()).prop_map(|(record, collected, closed)| {
            Message::Repair {
                record,
                collected,
                closed,
            }
        }),
    ]
    .boxed()
}

fn knowns() -> impl Strategy<Value = KnownPage> {
    let parts = (key_ids(), any::<u64>(), any::<u128>());
    parts.prop_map(|(next, count, sum)| KnownPage { next, count, sum })
}

fn recalls() -> impl Strategy<Value = Recall> {
    prop_oneof![
        Just(Recall::Unsure),
        Just(Recall::Never),
        (ballots(), ballots(), any::<bool>()).prop_map(|(one, other, is_accepted)| {
            Recall::Stored {
                version: one.min(other),
                is_accepted,
                last: one.max(other),
            }
        }),
    ]
}

fn answering() -> BoxedStrategy<Message> {
    prop_oneof![
        (tags(), helds()).prop_map(|(tag, held)| Message::Holding { tag, held }),
        (tags(), helds(), recalls()).prop_map(|(tag, held, recall)| Message::Promised {
            tag,
            held,
            recall
        }),
        (tags(), proptest::collection::vec(any::<[bool; 8]>(), 0..8)).prop_map(|(tag, bits)| {
            let confirmed = bits.concat();
            Message::Confirmed { tag, confirmed }
        }),
        tags().prop_map(|tag| Message::Accepted { tag }),
        (tags(), maybe_ballots()).prop_map(|(tag, highest)| Message::Nack { tag, highest }),
        (tags(), any::<bool>()).prop_map(|(tag, is_full)| Message::Abstain { tag, is_full }),
        tags().prop_map(|tag| Message::Epoch { tag }),
        (tags(), maybe_ballots(), maybe_ballots()).prop_map(|(tag, collected, collecting)| {
            Message::SamePage {
                tag,
                collected,
                collecting,
            }
        }),
    ]
    .boxed()
}

fn upkeep() -> BoxedStrategy<Message> {
    let listed = (locators(), proptest::option::of(ballots()));
    prop_oneof![
        maybe_ballots().prop_map(|upto| Message::GcFloor { upto }),
        maybe_ballots().prop_map(|upto| Message::GcPurge { upto }),
        (maybe_ballots(), any::<u128>(), maybe_ballots()).prop_map(|(upto, sum, collected)| {
            Message::GcSum {
                upto,
                sum,
                collected,
            }
        }),
        (
            tags(),
            key_ids(),
            proptest::collection::vec(records(), 0..8),
            key_ids(),
            maybe_ballots(),
            maybe_ballots()
        )
            .prop_map(
                |(tag, after, records, next, collected, collecting)| Message::Page {
                    tag,
                    after,
                    records,
                    next,
                    collected,
                    collecting,
                }
            ),
        (
            maybe_ballots(),
            proptest::collection::vec(sums(), 0..MAX_RANGES)
        )
            .prop_map(|(collected, sums)| Message::Compare { collected, sums }),
        (ranges(), proptest::collection::vec(listed, 0..20)).prop_map(|(range, entries)| {
            Message::List {
                listing: Listing { range, entries },
            }
        }),
    ]
    .boxed()
}

pub(super) fn envelopes() -> impl Strategy<Value = Envelope> {
    let message = prop_oneof![asking(), answering(), upkeep()];
    (any::<u64>(), message).prop_map(|(epoch, message)| Envelope {
        partition: Partition(0),
        epoch: Epoch(epoch),
        message,
    })
}
