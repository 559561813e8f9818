//! The stored form of a record: one byte string, the same in the log, in a slice and
//! in memory.
//!
//! Layout, little-endian, no padding:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind: 1 value, 2 value that expires, 3 tombstone; plus 128: with an origin |
//! | 1 | 3 | length of the value, at most 1,048,576; 0 for a tombstone |
//! | 4 | 4 | namespace |
//! | 8 | 8 | epoch of the ballot |
//! | 16 | 8 | hybrid time of the ballot |
//! | 24 | 2 | node slot of the ballot |
//! | 26 | 2 | length of the key, 1 to 1,024 |
//! | 28 | 16 | digest |
//! | 44 | 8 | expiry, Unix milliseconds: kind 2 only |
//! | | 18 | origin, a ballot: with an origin only; never the record's own ballot |
//! | | | key, value |
//!
//! Invariants:
//! * The bytes of a [`Packed`] have been checked: every accessor is total.
//! * A record has exactly one packed form.
//! * Each packed record is a separate allocation. A slice of a batch buffer would be cheaper to
//!   make, but one surviving record would then keep a whole batch in memory.

#![expect(
    clippy::cast_possible_truncation,
    reason = "lengths are at most MAX_VALUE_LEN and MAX_KEY_LEN"
)]

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use torc_record::{
    Ballot, Digest, Key, KeyId, Locator, MAX_KEY_LEN, MAX_VALUE_LEN, NamespaceId, Record,
    RecordError, State, StoredVersion,
};

use crate::format::{BALLOT_LEN, array, ballot_at, ballot_bytes, u32_at, u64_at};

pub(crate) const HEAD_LEN: usize = 44;
/// Upper bound on the length of a packed record.
pub(crate) const MAX_PACKED_LEN: usize =
    HEAD_LEN + EXPIRY_LEN + BALLOT_LEN + MAX_KEY_LEN + MAX_VALUE_LEN;
const BALLOT_AT: usize = 8;
const EXPIRY_LEN: usize = 8;

/// Bytes of a record that a batch of reads prefetches.
const PREFETCHED_LEN: usize = 256;

const _: () = assert!(MAX_VALUE_LEN < 1 << 24, "a length of three bytes");

const VALUE: u8 = 1;
const EXPIRING_VALUE: u8 = 2;
const TOMBSTONE: u8 = 3;
const WITH_ORIGIN: u8 = 128;

/// A record in its stored form. Cloning shares the bytes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Packed(Arc<[u8]>);

/// Shows only digest and version: keys and values must not be logged.
impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} at {})", self.digest(), self.ballot())
    }
}

impl Packed {
    /// Packs a record after checking its length.
    pub(crate) fn of(record: &Record) -> Result<Self, RecordError> {
        let unpacked = Unpacked::of(record)?;
        // An iterator of known length is collected with one allocation and no second copy.
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, unpacked.len()).collect();
        unpacked.write(Arc::make_mut(&mut bytes));
        Ok(Self(bytes))
    }

    /// Appends the packed form of a record after checking its length. After an error, nothing was appended.
    pub(crate) fn append(record: &Record, to: &mut Vec<u8>) -> Result<(), RecordError> {
        let unpacked = Unpacked::of(record)?;
        let start = to.len();
        to.resize(start + unpacked.len(), 0);
        unpacked.write(&mut to[start..]);
        Ok(())
    }

    /// Prefetches its first bytes, which are all of a short record.
    pub(crate) fn prefetch(&self) {
        for at in (0..self.0.len().min(PREFETCHED_LEN)).step_by(64) {
            torc_index::prefetch(&self.0, at);
        }
    }

    /// Reads the packed record at the start of `bytes`; [`Packed::bytes`] gives its length. Checks
    /// every length before using it.
    ///
    /// # Errors
    /// The problem with the bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        Ok(Self(bytes[..Self::len_of(bytes)?].into()))
    }

    /// Length of the packed record at the start of `bytes`, which has at least that many bytes.
    ///
    /// # Errors
    /// The problem with the bytes.
    pub(crate) fn len_of(bytes: &[u8]) -> Result<usize, &'static str> {
        let len = Self::len_by_head(bytes)?;
        if len > bytes.len() {
            return Err("a record is cut off");
        }
        if origin_at(bytes).is_some_and(|origin| origin == ballot_at(bytes, BALLOT_AT)) {
            return Err("an origin that is the ballot");
        }
        Ok(len)
    }

    /// The length given by the head of a packed record.
    ///
    /// # Errors
    /// No record has such a head.
    pub(crate) fn len_by_head(bytes: &[u8]) -> Result<usize, &'static str> {
        if bytes.len() < HEAD_LEN {
            return Err("a record is cut off in its head");
        }
        let kind = bytes[0] & !WITH_ORIGIN;
        if !(VALUE..=TOMBSTONE).contains(&kind) {
            return Err("a record of unknown kind");
        }
        let extra_len = extra_len(bytes[0]);
        let (key_len, value_len) = (key_len(bytes), value_len(bytes));
        if !(1..=MAX_KEY_LEN).contains(&key_len) {
            return Err("a key of impossible length");
        }
        if value_len > MAX_VALUE_LEN || (kind == TOMBSTONE && value_len != 0) {
            return Err("a value of impossible length");
        }
        Ok(HEAD_LEN + extra_len + key_len + value_len)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same bytes, borrowed.
    pub(crate) fn borrowed(&self) -> PackedRef<'_> {
        PackedRef(&self.0)
    }

    pub(crate) fn token(&self) -> u64 {
        self.digest().high()
    }

    pub(crate) fn digest(&self) -> Digest {
        self.borrowed().digest()
    }

    pub(crate) fn namespace(&self) -> NamespaceId {
        self.borrowed().namespace()
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.borrowed().key()
    }

    /// Its position in ring order.
    pub(crate) fn position(&self) -> Locator<&[u8]> {
        Locator {
            digest: self.digest(),
            namespace: self.namespace(),
            key: self.key(),
        }
    }

    pub(crate) fn ballot(&self) -> Ballot {
        self.borrowed().ballot()
    }

    /// [`Record::supersedes`], without unpacking.
    /// What a replica remembers of a record that it stored.
    pub(crate) fn stored_version(&self) -> StoredVersion {
        let ballot = self.ballot();
        StoredVersion {
            key: self.position().id(),
            version: origin_at(&self.0).unwrap_or(ballot),
            ballot,
        }
    }

    pub(crate) fn supersedes(&self, other: &Self) -> bool {
        self.ballot() > other.ballot()
    }

    pub(crate) fn is_tombstone(&self) -> bool {
        self.borrowed().is_tombstone()
    }

    pub(crate) fn payload_len(&self) -> usize {
        self.borrowed().payload_len()
    }

    /// [`entry_sum`](torc_record::entry_sum), about 20 ns.
    pub(crate) fn fingerprint(&self) -> u128 {
        self.borrowed().fingerprint()
    }

    /// Whether a collection up to `watermark` drops it.
    pub(crate) fn is_collected(&self, watermark: Ballot) -> bool {
        self.borrowed().is_collected(watermark)
    }

    /// The position of the record as a copy: a cursor must not keep a value in memory.
    pub(crate) fn cursor(&self) -> Locator {
        Locator {
            digest: self.digest(),
            namespace: self.namespace(),
            key: checked_key(Bytes::copy_from_slice(self.key())),
        }
    }

    /// The record; its key and value share these bytes.
    pub(crate) fn unpack(&self) -> Record {
        let shared = Bytes::from_owner(Owner(self.0.clone()));
        let key_at = HEAD_LEN + extra_len(self.0[0]);
        let value_at = key_at + key_len(&self.0);
        let state = if self.is_tombstone() {
            State::Tombstone
        } else {
            State::Value {
                value: shared.slice(value_at..),
                expires_at_ms: (expiry_len(self.0[0]) > 0).then(|| u64_at(&self.0, HEAD_LEN)),
            }
        };
        Record {
            namespace: self.namespace(),
            digest: self.digest(),
            key: checked_key(shared.slice(key_at..value_at)),
            ballot: self.ballot(),
            origin: origin_at(&self.0),
            state,
        }
    }
}

/// Bytes between the head and the key, by the kind.
const fn extra_len(kind: u8) -> usize {
    expiry_len(kind)
        + if kind & WITH_ORIGIN == 0 {
            0
        } else {
            BALLOT_LEN
        }
}

const fn expiry_len(kind: u8) -> usize {
    if kind & !WITH_ORIGIN == EXPIRING_VALUE {
        EXPIRY_LEN
    } else {
        0
    }
}

/// The origin of a packed record that is not truncated.
fn origin_at(bytes: &[u8]) -> Option<Ballot> {
    let at = HEAD_LEN + expiry_len(bytes[0]);
    (bytes[0] & WITH_ORIGIN != 0).then(|| ballot_at(bytes, at))
}

/// A packed record in place, for reading once. The caller has checked the bytes.
#[derive(Clone, Copy)]
pub(crate) struct PackedRef<'a>(&'a [u8]);

impl<'a> PackedRef<'a> {
    /// The packed record at the start of `bytes`; checks every length.
    ///
    /// # Errors
    /// As [`Packed::len_of`].
    pub(crate) fn at_start_of(bytes: &'a [u8]) -> Result<Self, &'static str> {
        Ok(Self(&bytes[..Packed::len_of(bytes)?]))
    }

    pub(crate) fn bytes(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn to_packed(self) -> Packed {
        Packed(self.0.into())
    }

    /// A copy with this short value; `None` if the record has a value already, or is a tombstone.
    pub(crate) fn with_value(self, value: [u8; 4]) -> Option<Packed> {
        if !self.value().is_some_and(<[u8]>::is_empty) {
            return None;
        }
        let mut bytes = Vec::with_capacity(self.0.len() + value.len());
        bytes.extend_from_slice(self.0);
        bytes.extend_from_slice(&value);
        // The length of the value, in three bytes.
        bytes[1] = value.len() as u8;
        Some(Packed(bytes.into()))
    }

    pub(crate) fn digest(self) -> Digest {
        Digest(array(self.0, 28))
    }

    pub(crate) fn namespace(self) -> NamespaceId {
        NamespaceId(u32_at(self.0, 4))
    }

    pub(crate) fn id(self) -> KeyId {
        KeyId {
            digest: self.digest(),
            namespace: self.namespace(),
        }
    }

    pub(crate) fn key(self) -> &'a [u8] {
        let start = HEAD_LEN + extra_len(self.0[0]);
        &self.0[start..start + key_len(self.0)]
    }

    /// `None` for a tombstone.
    pub(crate) fn value(self) -> Option<&'a [u8]> {
        let len = self.0.len() - value_len(self.0);
        (!self.is_tombstone()).then(|| &self.0[len..])
    }

    pub(crate) fn ballot(self) -> Ballot {
        ballot_at(self.0, BALLOT_AT)
    }

    pub(crate) fn is_tombstone(self) -> bool {
        self.kind() == TOMBSTONE
    }

    fn kind(self) -> u8 {
        self.0[0] & !WITH_ORIGIN
    }

    pub(crate) fn payload_len(self) -> usize {
        key_len(self.0) + value_len(self.0)
    }

    /// A checksum of key and version, for sums.
    pub(crate) fn fingerprint(self) -> u128 {
        torc_record::entry_sum(self.id(), self.ballot())
    }

    /// Whether any collection may drop it: a tombstone, or a value that expires.
    pub(crate) fn is_collectable(self) -> bool {
        self.kind() != VALUE
    }

    pub(crate) fn is_collected(self, watermark: Ballot) -> bool {
        let state = match self.kind() {
            VALUE => return false,
            TOMBSTONE => State::Tombstone,
            _ => State::Value {
                value: Bytes::new(),
                expires_at_ms: Some(u64_at(self.0, HEAD_LEN)),
            },
        };
        state.is_collected(self.ballot(), watermark)
    }
}

#[expect(
    clippy::expect_used,
    reason = "the length was checked when it was packed or parsed"
)]
fn checked_key(bytes: Bytes) -> Key {
    Key::new(bytes).expect("a packed key has 1 to 1,024 bytes")
}

fn key_len(head: &[u8]) -> usize {
    usize::from(u16::from_le_bytes(array(head, 26)))
}

fn value_len(head: &[u8]) -> usize {
    (u32_at(head, 0) >> 8) as usize
}

/// The parts of a record that are packed, of checked length.
struct Unpacked<'a> {
    record: &'a Record,
    kind: u8,
    value: &'a [u8],
    expires_at_ms: Option<u64>,
    origin: Option<Ballot>,
}

impl<'a> Unpacked<'a> {
    fn of(record: &'a Record) -> Result<Self, RecordError> {
        record.check()?;
        let (kind, value, expires_at_ms) = match &record.state {
            State::Value {
                value,
                expires_at_ms: None,
            } => (VALUE, &value[..], None),
            State::Value {
                value,
                expires_at_ms: Some(at),
            } => (EXPIRING_VALUE, &value[..], Some(*at)),
            State::Tombstone => (TOMBSTONE, &[][..], None),
        };
        let origin = record.origin.filter(|origin| *origin != record.ballot);
        Ok(Self {
            record,
            kind: kind | origin.map_or(0, |_| WITH_ORIGIN),
            value,
            expires_at_ms,
            origin,
        })
    }

    fn len(&self) -> usize {
        HEAD_LEN + extra_len(self.kind) + self.record.key.as_bytes().len() + self.value.len()
    }

    /// Writes [`Self::len`] bytes.
    fn write(&self, to: &mut [u8]) {
        let (record, key) = (self.record, self.record.key.as_bytes());
        let mut out = Writer(to);
        out.put(&(u32::from(self.kind) | (self.value.len() as u32) << 8).to_le_bytes());
        out.put(&record.namespace.0.to_le_bytes());
        out.put(&record.ballot.epoch.0.to_le_bytes());
        out.put(&record.ballot.time.0.to_le_bytes());
        out.put(&record.ballot.slot.0.to_le_bytes());
        out.put(&(key.len() as u16).to_le_bytes());
        out.put(&record.digest.0);
        if let Some(at) = self.expires_at_ms {
            out.put(&at.to_le_bytes());
        }
        if let Some(origin) = self.origin {
            out.put(&ballot_bytes(origin));
        }
        out.put(key);
        out.put(self.value);
    }
}

struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (head, tail) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        self.0 = tail;
    }
}

struct Owner(Arc<[u8]>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
#[path = "packed_tests.rs"]
pub(crate) mod tests;
