//! Envelopes from the wire, all bounds checked.

use torc_record::{Digest, Epoch, HybridTime, NamespaceId};
use torc_replication::{Envelope, LogPosition, Message, OpId, Tag};
use torc_ring::{Partition, Partitions, Token};

use super::claims::{bits_from_wire, claims_from_wire};
use super::parts::{
    ballot, ballot_or_zero, held_from_wire, join, key_from_wire, key_id_from_wire, known_from_wire,
    listing_from_wire, page_from_wire, recall_from_wire, record_from_wire, sums_from_wire,
};
use crate::v1::{self, envelope::Message as Wire};
use crate::{WireError, version_from_wire};

/// An envelope from another node. Keys and values share the received bytes.
///
/// # Errors
/// [`WireError`] for anything that is missing or out of bounds, and for an unknown kind of message.
pub fn envelope_from_wire(
    wire: v1::Envelope,
    partitions: Partitions,
) -> Result<Envelope, WireError> {
    let partition = Partition(wire.partition);
    let message = wire.message.ok_or(WireError::Field { field: "message" })?;
    let tag = Tag {
        op: OpId(wire.operation),
        round: HybridTime(wire.round),
    };
    let message = message_from_wire(message, tag, partitions)?;
    let is_here =
        |namespace, digest: &Digest| partitions.holding(namespace, Token::of(digest)) == partition;
    if !partitions.contains(partition) || !all_keys(&message, is_here) {
        return Err(WireError::Misplaced { partition });
    }
    Ok(Envelope {
        partition,
        epoch: Epoch(wire.epoch),
        message,
    })
}

/// One arm per kind.
fn message_from_wire(
    message: Wire,
    tag: Tag,
    partitions: Partitions,
) -> Result<Message, WireError> {
    Ok(match message {
        Wire::Read(read) => Message::Read {
            tag,
            at: key_from_wire(read.key)?,
            want_value: read.want_value,
            closes: ballot_or_zero(read.closes)?,
        },
        Wire::Holding(held) => Message::Holding {
            tag,
            held: held_from_wire(held)?,
        },
        Wire::Confirm(confirm) => Message::Confirm {
            tag,
            claims: claims_from_wire(confirm.claims, partitions)?,
        },
        Wire::Confirmed(confirmed) => Message::Confirmed {
            tag,
            confirmed: bits_from_wire(&confirmed.bits)?,
        },
        Wire::Prepare(prepare) => Message::Prepare {
            tag,
            at: key_from_wire(prepare.key)?,
            ballot: ballot(prepare.ballot, "ballot")?,
            doubted: prepare
                .doubted
                .as_ref()
                .map(version_from_wire)
                .transpose()?,
        },
        Wire::Promised(held) => Message::Promised {
            tag,
            recall: recall_from_wire(&held)?,
            held: held_from_wire(held)?,
        },
        Wire::Accept(accept) => Message::Accept {
            tag,
            record: record_from_wire(accept.record.ok_or(WireError::Field { field: "record" })?)?,
            next: accept.next.as_ref().map(version_from_wire).transpose()?,
        },
        Wire::Accepted(_) => Message::Accepted { tag },
        Wire::Nack(nack) => Message::Nack {
            tag,
            highest: ballot_or_zero(nack.highest)?,
        },
        Wire::Abstain(abstain) => Message::Abstain {
            tag,
            is_full: abstain.is_full,
        },
        Wire::Store(record) => Message::Store {
            tag,
            record: record_from_wire(record)?,
        },
        Wire::Repair(repair) => Message::Repair {
            record: record_from_wire(repair.record.ok_or(WireError::Field { field: "record" })?)?,
            collected: ballot_or_zero(repair.collected)?,
            closed: ballot_or_zero(repair.closed)?,
        },
        Wire::LaterEpoch(_) => Message::Epoch { tag },
        Wire::Learn(record) => Message::Learn {
            record: record_from_wire(record)?,
        },
        Wire::Pull(pull) => Message::Pull {
            tag,
            after: pull.after.map(key_id_from_wire),
            since: pull.since.map(LogPosition),
            known: pull.known.map(known_from_wire),
        },
        Wire::SamePage(same) => Message::SamePage {
            tag,
            collected: ballot_or_zero(same.collected)?,
            collecting: ballot_or_zero(same.collecting)?,
        },
        Wire::Page(page) => Message::Page {
            tag,
            after: page.after.map(key_id_from_wire),
            records: page_from_wire(page.records)?,
            next: page.next.map(key_id_from_wire),
            collected: ballot_or_zero(page.collected)?,
            collecting: ballot_or_zero(page.collecting)?,
        },
        Wire::GcFloor(watermark) => Message::GcFloor {
            upto: ballot_or_zero(watermark.upto)?,
        },
        Wire::GcSum(sum) => Message::GcSum {
            upto: ballot_or_zero(sum.upto)?,
            sum: join(sum.sum_high, sum.sum_low),
            collected: ballot_or_zero(sum.collected)?,
        },
        Wire::GcPurge(watermark) => Message::GcPurge {
            upto: ballot_or_zero(watermark.upto)?,
        },
        Wire::Compare(compare) => Message::Compare {
            collected: ballot_or_zero(compare.collected)?,
            sums: sums_from_wire(&compare.sums)?,
        },
        Wire::List(list) => Message::List {
            listing: listing_from_wire(list)?,
        },
    })
}

/// Whether a condition holds for every key that a message names.
fn all_keys(message: &Message, holds: impl Fn(NamespaceId, &Digest) -> bool) -> bool {
    match message {
        Message::Read { at, .. } | Message::Prepare { at, .. } => holds(at.namespace, &at.digest),
        Message::Accept { record, .. }
        | Message::Learn { record }
        | Message::Store { record, .. }
        | Message::Repair { record, .. } => holds(record.namespace, &record.digest),
        Message::Pull { after, known, .. } => {
            let next = known.iter().filter_map(|known| known.next.as_ref());
            after
                .iter()
                .chain(next)
                .all(|id| holds(id.namespace, &id.digest))
        }
        Message::Page {
            after,
            records,
            next,
            ..
        } => {
            after
                .iter()
                .chain(next)
                .all(|id| holds(id.namespace, &id.digest))
                && records.iter().all(|it| holds(it.namespace, &it.digest))
        }
        Message::List { listing } => listing
            .entries
            .iter()
            .all(|(at, _)| holds(at.namespace, &at.digest)),
        // Its keys may be in any partition: each has its own.
        Message::Confirm { .. }
        | Message::Confirmed { .. }
        | Message::Holding { .. }
        | Message::Promised { .. }
        | Message::Accepted { .. }
        | Message::Nack { .. }
        | Message::Abstain { .. }
        | Message::SamePage { .. }
        | Message::GcFloor { .. }
        | Message::GcSum { .. }
        | Message::GcPurge { .. }
        | Message::Compare { .. }
        | Message::Epoch { .. } => true,
    }
}
