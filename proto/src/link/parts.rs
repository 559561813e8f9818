//! The parts of messages: keys, versions, values, records, lists.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::Message as _;
use torc_record::{
    Ballot, DIGEST_LEN, Digest, Key, MAX_VALUE_LEN, NamespaceId, Record, RecordError, State,
};
use torc_replication::compare::{Listing, MAX_LISTED, MAX_RANGES, Range, RangeSum};
use torc_replication::{Content, Held, KeyId, KnownPage, Locator, Recall};

use super::list::{push, split};
use super::{MAX_PAGE_LEN, MAX_PAGE_RECORDS};
use crate::v1::{Version, envelope as wire};
use crate::{WireError, version_from_wire, version_to_wire};

/// Bytes of a range with its sum.
const RANGE_SUM_LEN: usize = 5 * 8;

fn digest_of(high: u64, low: u64) -> Digest {
    let mut bytes = [0; DIGEST_LEN];
    bytes[..8].copy_from_slice(&high.to_be_bytes());
    bytes[8..].copy_from_slice(&low.to_be_bytes());
    Digest(bytes)
}

/// A required ballot.
pub(super) fn ballot(version: Option<Version>, field: &'static str) -> Result<Ballot, WireError> {
    let version = version.ok_or(WireError::Field { field })?;
    version_from_wire(&version)
}

/// A ballot that is zero if it is missing.
pub(super) fn ballot_or_zero(version: Option<Version>) -> Result<Ballot, WireError> {
    version.map_or(Ok(Ballot::default()), |version| version_from_wire(&version))
}

/// An optional ballot.
fn origin(version: Option<Version>) -> Result<Option<Ballot>, WireError> {
    version
        .map(|version| version_from_wire(&version))
        .transpose()
}

/// A ballot, omitted if it is zero.
pub(super) fn unless_zero(ballot: Ballot) -> Option<Version> {
    (ballot != Ballot::default()).then(|| version_to_wire(ballot))
}

pub(super) fn key_to_wire(at: Locator) -> wire::Key {
    wire::Key {
        namespace: at.namespace.0,
        digest_high: at.digest.high(),
        digest_low: at.digest.low(),
        key: at.key.into_bytes(),
    }
}

pub(super) fn key_from_wire(key: Option<wire::Key>) -> Result<Locator, WireError> {
    let key = key.ok_or(WireError::Field { field: "key" })?;
    Ok(Locator {
        namespace: NamespaceId(key.namespace),
        digest: digest_of(key.digest_high, key.digest_low),
        key: Key::new(key.key)?,
    })
}

pub(super) fn key_id_to_wire(id: KeyId) -> wire::KeyId {
    wire::KeyId {
        namespace: id.namespace.0,
        digest_high: id.digest.high(),
        digest_low: id.digest.low(),
    }
}

pub(super) fn key_id_from_wire(id: wire::KeyId) -> KeyId {
    KeyId {
        namespace: NamespaceId(id.namespace),
        digest: digest_of(id.digest_high, id.digest_low),
    }
}

pub(super) fn known_to_wire(known: KnownPage) -> wire::KnownPage {
    wire::KnownPage {
        next: known.next.map(key_id_to_wire),
        count: known.count,
        sum_high: (known.sum >> 64) as u64,
        sum_low: (known.sum << 64 >> 64) as u64,
    }
}

pub(super) fn known_from_wire(known: wire::KnownPage) -> KnownPage {
    KnownPage {
        next: known.next.map(key_id_from_wire),
        count: known.count,
        sum: join(known.sum_high, known.sum_low),
    }
}

fn checked(value: Bytes) -> Result<Bytes, WireError> {
    match value.len() {
        0..=MAX_VALUE_LEN => Ok(value),
        len => Err(RecordError::ValueTooLong { len }.into()),
    }
}

pub(super) fn record_to_wire(record: Record) -> wire::Record {
    let value = match record.state {
        State::Tombstone => None,
        State::Value {
            value,
            expires_at_ms,
        } => Some(wire::Value {
            expires_at_ms,
            bytes: Some(value),
        }),
    };
    let at = Locator {
        namespace: record.namespace,
        digest: record.digest,
        key: record.key,
    };
    wire::Record {
        key: Some(key_to_wire(at)),
        version: Some(version_to_wire(record.ballot)),
        origin: record.origin.map(version_to_wire),
        value,
    }
}

pub(super) fn record_from_wire(record: wire::Record) -> Result<Record, WireError> {
    let at = key_from_wire(record.key)?;
    let state = match record.value {
        None => State::Tombstone,
        Some(value) => State::Value {
            value: checked(value.bytes.ok_or(WireError::Field { field: "bytes" })?)?,
            expires_at_ms: value.expires_at_ms,
        },
    };
    Ok(Record {
        namespace: at.namespace,
        digest: at.digest,
        key: at.key,
        ballot: ballot(record.version, "version")?,
        origin: origin(record.origin)?,
        state,
    })
}

pub(super) fn held_to_wire(held: Held) -> wire::Held {
    let (tombstone, value) = match held.content {
        Content::Absent => (false, None),
        Content::Tombstone => (true, None),
        Content::Value {
            expires_at_ms,
            value: bytes,
        } => {
            let value = wire::Value {
                expires_at_ms,
                bytes,
            };
            (false, Some(value))
        }
    };
    wire::Held {
        version: unless_zero(held.ballot),
        tombstone,
        value,
        collected: unless_zero(held.collected),
        collecting: unless_zero(held.collecting),
        origin: held.origin.map(version_to_wire),
        never: false,
        stored: None,
    }
}

pub(super) fn recall_from_wire(held: &wire::Held) -> Result<Recall, WireError> {
    match (held.never, &held.stored) {
        (false, None) => Ok(Recall::Unsure),
        (true, None) => Ok(Recall::Never),
        (false, Some(stored)) => stored_from_wire(stored),
        (true, Some(_)) => Err(WireError::Field { field: "stored" }),
    }
}

fn stored_from_wire(stored: &wire::Stored) -> Result<Recall, WireError> {
    let version = stored.version.as_ref();
    let version = version_from_wire(version.ok_or(WireError::Field { field: "version" })?)?;
    let last = stored
        .last
        .as_ref()
        .map_or(Ok(version), version_from_wire)?;
    if last < version {
        return Err(WireError::Field { field: "last" });
    }
    Ok(Recall::Stored {
        version,
        is_accepted: stored.is_accepted,
        last,
    })
}

pub(super) fn held_from_wire(held: wire::Held) -> Result<Held, WireError> {
    let content = match (held.tombstone, held.value) {
        (false, None) => Content::Absent,
        (true, None) => Content::Tombstone,
        (false, Some(value)) => Content::Value {
            expires_at_ms: value.expires_at_ms,
            value: value.bytes.map(checked).transpose()?,
        },
        (true, Some(_)) => return Err(WireError::Field { field: "tombstone" }),
    };
    Ok(Held {
        ballot: ballot_or_zero(held.version)?,
        origin: origin(held.origin)?,
        content,
        collected: ballot_or_zero(held.collected)?,
        collecting: ballot_or_zero(held.collecting)?,
    })
}

/// The records that fit, and the end of the page if some did not.
pub(super) fn page_to_wire(records: Vec<Record>) -> (Bytes, Option<KeyId>) {
    let mut page = BytesMut::new();
    let mut last = None;
    for (count, record) in records.into_iter().enumerate() {
        let id = KeyId::of(&record);
        let record = record_to_wire(record);
        let full = page.len() + record.encoded_len() > MAX_PAGE_LEN || count == MAX_PAGE_RECORDS;
        if full && last.is_some() {
            return (page.freeze(), last);
        }
        push(&mut page, &record);
        last = Some(id);
    }
    (page.freeze(), None)
}

pub(super) fn page_from_wire(records: Bytes) -> Result<Vec<Record>, WireError> {
    split("records", records, MAX_PAGE_RECORDS)
        .map(|bytes| record_from_wire(wire::Record::decode(bytes?)?))
        .collect()
}

pub(super) fn sums_to_wire(sums: &[RangeSum]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(sums.len() * RANGE_SUM_LEN);
    for sum in sums {
        bytes.put_u64_le(sum.range.first);
        bytes.put_u64_le(sum.range.last);
        bytes.put_u64_le(sum.count);
        bytes.put_u64_le((sum.sum >> 64) as u64);
        bytes.put_u64_le((sum.sum << 64 >> 64) as u64);
    }
    bytes.freeze()
}

pub(super) fn sums_from_wire(bytes: &[u8]) -> Result<Vec<RangeSum>, WireError> {
    let words = bytes.chunks_exact(RANGE_SUM_LEN);
    if !words.remainder().is_empty() {
        return Err(WireError::Field { field: "sums" });
    }
    if words.len() > MAX_RANGES {
        return Err(WireError::TooMany {
            list: "sums",
            limit: MAX_RANGES,
        });
    }
    let sum = |mut words: &[u8]| {
        Ok(RangeSum {
            range: range(words.get_u64_le(), words.get_u64_le())?,
            count: words.get_u64_le(),
            sum: join(words.get_u64_le(), words.get_u64_le()),
        })
    };
    words.map(sum).collect()
}

/// A range whose ends are in order.
fn range(first: u64, last: u64) -> Result<Range, WireError> {
    if first > last {
        return Err(WireError::Field { field: "last" });
    }
    Ok(Range { first, last })
}

pub(super) fn join(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

pub(super) fn listing_to_wire(listing: Listing) -> wire::List {
    let mut entries = BytesMut::new();
    for (at, ballot) in listing.entries.into_iter().take(MAX_LISTED) {
        let listed = wire::Listed {
            key: Some(key_to_wire(at)),
            version: ballot.map(version_to_wire),
        };
        push(&mut entries, &listed);
    }
    wire::List {
        first: listing.range.first,
        last: listing.range.last,
        entries: entries.freeze(),
    }
}

pub(super) fn listing_from_wire(list: wire::List) -> Result<Listing, WireError> {
    let entry = |bytes: Result<Bytes, WireError>| {
        let listed = wire::Listed::decode(bytes?)?;
        let ballot = listed.version.as_ref().map(version_from_wire).transpose()?;
        Ok((key_from_wire(listed.key)?, ballot))
    };
    Ok(Listing {
        range: range(list.first, list.last)?,
        entries: split("entries", list.entries, MAX_LISTED)
            .map(entry)
            .collect::<Result<_, WireError>>()?,
    })
}
