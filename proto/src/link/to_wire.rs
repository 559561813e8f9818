//! Envelopes to wire.

use bytes::Bytes;
use torc_record::Ballot;
use torc_replication::{Envelope, Message, Recall, Tag};

use super::claims::{bits_to_wire, claims_to_wire};
use super::parts::{
    held_to_wire, key_id_to_wire, key_to_wire, known_to_wire, listing_to_wire, page_to_wire,
    record_to_wire, sums_to_wire, unless_zero,
};
use crate::v1::{self, envelope as wire, envelope::Message as Wire};
use crate::version_to_wire;

/// An envelope for another node. Keys and values are shared, not copied.
///
/// A page longer than [`MAX_PAGE_LEN`](super::MAX_PAGE_LEN) is cut: its receiver gets a smaller
/// page and requests the next.
#[must_use]
pub fn envelope_to_wire(envelope: Envelope) -> v1::Envelope {
    let (tag, message) = message_to_wire(envelope.message);
    v1::Envelope {
        partition: envelope.partition.0,
        epoch: envelope.epoch.0,
        operation: tag.op.0,
        round: tag.round.0,
        message: Some(message),
        trace: Bytes::new(),
    }
}

#[expect(clippy::too_many_lines, reason = "one arm a kind")]
fn message_to_wire(message: Message) -> (Tag, Wire) {
    let untagged = |wire| (Tag::default(), wire);
    match message {
        Message::Read {
            tag,
            at,
            want_value,
            closes,
        } => {
            let read = wire::Read {
                key: Some(key_to_wire(at)),
                want_value,
                closes: unless_zero(closes),
            };
            (tag, Wire::Read(read))
        }
        Message::Holding { tag, held } => (tag, Wire::Holding(held_to_wire(held))),
        Message::Confirm { tag, claims } => {
            let claims = claims_to_wire(&claims);
            (tag, Wire::Confirm(wire::Confirm { claims }))
        }
        Message::Confirmed { tag, confirmed } => {
            let bits = bits_to_wire(&confirmed);
            (tag, Wire::Confirmed(wire::Confirmed { bits }))
        }
        Message::Prepare {
            tag,
            at,
            ballot,
            doubted,
        } => {
            let prepare = wire::Prepare {
                key: Some(key_to_wire(at)),
                ballot: Some(version_to_wire(ballot)),
                doubted: doubted.map(version_to_wire),
            };
            (tag, Wire::Prepare(prepare))
        }
        Message::Promised { tag, held, recall } => {
            let stored = match recall {
                Recall::Stored {
                    version,
                    is_accepted,
                    last,
                } => Some(wire::Stored {
                    version: Some(version_to_wire(version)),
                    is_accepted,
                    last: (last != version).then(|| version_to_wire(last)),
                }),
                Recall::Never | Recall::Unsure => None,
            };
            let held = wire::Held {
                never: recall == Recall::Never,
                stored,
                ..held_to_wire(held)
            };
            (tag, Wire::Promised(held))
        }
        Message::Accept { tag, record, next } => {
            let record = Some(record_to_wire(record));
            let next = next.map(version_to_wire);
            (tag, Wire::Accept(wire::Accept { record, next }))
        }
        Message::Accepted { tag } => (tag, Wire::Accepted(wire::Empty {})),
        Message::Nack { tag, highest } => {
            let highest = unless_zero(highest);
            (tag, Wire::Nack(wire::Nack { highest }))
        }
        Message::Abstain { tag, is_full } => (tag, Wire::Abstain(wire::Abstain { is_full })),
        Message::Store { tag, record } => (tag, Wire::Store(record_to_wire(record))),
        Message::Epoch { tag } => (tag, Wire::LaterEpoch(wire::Empty {})),
        Message::Repair {
            record,
            collected,
            closed,
        } => untagged(Wire::Repair(wire::Repair {
            record: Some(record_to_wire(record)),
            collected: unless_zero(collected),
            closed: unless_zero(closed),
        })),
        Message::Learn { record } => untagged(Wire::Learn(record_to_wire(record))),
        Message::Pull {
            tag,
            after,
            since,
            known,
        } => {
            let pull = wire::Pull {
                after: after.map(key_id_to_wire),
                since: since.map(|since| since.0),
                known: known.map(known_to_wire),
            };
            (tag, Wire::Pull(pull))
        }
        Message::SamePage {
            tag,
            collected,
            collecting,
        } => {
            let same = wire::SamePage {
                collected: unless_zero(collected),
                collecting: unless_zero(collecting),
            };
            (tag, Wire::SamePage(same))
        }
        Message::Page {
            tag,
            after,
            records,
            next,
            collected,
            collecting,
        } => {
            let (records, cut) = page_to_wire(records);
            let page = wire::Page {
                after: after.map(key_id_to_wire),
                records,
                next: cut.or(next).map(key_id_to_wire),
                collected: unless_zero(collected),
                collecting: unless_zero(collecting),
            };
            (tag, Wire::Page(page))
        }
        Message::GcFloor { upto } => untagged(Wire::GcFloor(watermark(upto))),
        Message::GcPurge { upto } => untagged(Wire::GcPurge(watermark(upto))),
        Message::GcSum {
            upto,
            sum,
            collected,
        } => untagged(Wire::GcSum(wire::GcSum {
            upto: unless_zero(upto),
            sum_high: (sum >> 64) as u64,
            sum_low: (sum << 64 >> 64) as u64,
            collected: unless_zero(collected),
        })),
        Message::Compare { collected, sums } => untagged(Wire::Compare(wire::Compare {
            collected: unless_zero(collected),
            sums: sums_to_wire(&sums),
        })),
        Message::List { listing } => untagged(Wire::List(listing_to_wire(listing))),
    }
}

fn watermark(upto: Ballot) -> wire::Watermark {
    wire::Watermark {
        upto: unless_zero(upto),
    }
}
