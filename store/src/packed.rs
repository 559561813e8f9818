//! The stored form of a record: one byte string, the same in the log, in a checkpoint
//! and in memory.
//!
//! Layout, little-endian, no padding:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind: 1 value, 2 value that expires, 3 tombstone |
//! | 1 | 3 | length of the value, at most 1,048,576; 0 for a tombstone |
//! | 4 | 4 | namespace |
//! | 8 | 8 | epoch of the ballot |
//! | 16 | 8 | hybrid time of the ballot |
//! | 24 | 2 | node slot of the ballot |
//! | 26 | 2 | length of the key, 1 to 1,024 |
//! | 28 | 16 | digest |
//! | 44 | 8 | expiry, Unix milliseconds: kind 2 only |
//! | | | key, value |
//!
//! Invariants:
//! * The bytes of a [`Packed`] have been checked: every accessor is total.
//! * A record has exactly one packed form, so the hash of it is a fingerprint of the
//!   record, equal on every node.
//! * Each packed record is an allocation of its own. A slice of a batch buffer would be
//!   cheaper to make, and one surviving record would keep a whole batch in memory.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use torc_record::{
    Ballot, Digest, Epoch, HybridTime, Key, MAX_KEY_LEN, MAX_VALUE_LEN, NamespaceId, NodeSlot,
    Record, RecordError, State,
};

use crate::Cursor;
use crate::format::{array, u32_at, u64_at};

pub(crate) const HEAD_LEN: usize = 44;
const EXPIRY_LEN: usize = 8;

const _: () = assert!(MAX_VALUE_LEN < 1 << 24, "a length of three bytes");

const VALUE: u8 = 1;
const EXPIRING_VALUE: u8 = 2;
const TOMBSTONE: u8 = 3;

/// A record in its stored form. Cloning shares the bytes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Packed(Arc<[u8]>);

/// Shows the digest and the version: keys and values are not for logs.
impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} at {})", self.digest(), self.ballot())
    }
}

/// Where a record stands in ring order. Equal positions are the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position<'a> {
    pub(crate) token: u64,
    pub(crate) rest: (u64, NamespaceId, &'a [u8]),
}

impl<'a> Position<'a> {
    pub(crate) fn new(digest: &Digest, namespace: NamespaceId, key: &'a [u8]) -> Self {
        Self {
            token: digest.high(),
            rest: (digest.low(), namespace, key),
        }
    }
}

impl Packed {
    /// Packs a record after checking its length.
    pub(crate) fn of(record: &Record) -> Result<Self, RecordError> {
        record.check()?;
        let key = record.key.as_bytes();
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
        let len = HEAD_LEN + expires_at_ms.map_or(0, |_| EXPIRY_LEN) + key.len() + value.len();
        // Collected from an iterator of known length: one allocation, no second copy.
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        let mut out = Writer(Arc::make_mut(&mut bytes));
        out.put(&(u32::from(kind) | (value.len() as u32) << 8).to_le_bytes());
        out.put(&record.namespace.0.to_le_bytes());
        out.put(&record.ballot.epoch.0.to_le_bytes());
        out.put(&record.ballot.time.0.to_le_bytes());
        out.put(&record.ballot.slot.0.to_le_bytes());
        out.put(&(key.len() as u16).to_le_bytes());
        out.put(&record.digest.0);
        if let Some(at) = expires_at_ms {
            out.put(&at.to_le_bytes());
        }
        out.put(key);
        out.put(value);
        Ok(Self(bytes))
    }

    /// Reads the packed record at the start of `bytes`; its length is that of
    /// [`Packed::bytes`]. Every length is checked before it is used.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        if bytes.len() < HEAD_LEN {
            return Err("a record is cut off in its head");
        }
        let expiry_len = match bytes[0] {
            VALUE | TOMBSTONE => 0,
            EXPIRING_VALUE => EXPIRY_LEN,
            _ => return Err("a record of unknown kind"),
        };
        let (key_len, value_len) = (key_len(bytes), value_len(bytes));
        if !(1..=MAX_KEY_LEN).contains(&key_len) {
            return Err("a key of impossible length");
        }
        if value_len > MAX_VALUE_LEN || (bytes[0] == TOMBSTONE && value_len != 0) {
            return Err("a value of impossible length");
        }
        match bytes.get(..HEAD_LEN + expiry_len + key_len + value_len) {
            Some(whole) => Ok(Self(whole.into())),
            None => Err("a record is cut off"),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn token(&self) -> u64 {
        self.digest().high()
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest(array(&self.0, 28))
    }

    pub(crate) fn namespace(&self) -> NamespaceId {
        NamespaceId(u32_at(&self.0, 4))
    }

    pub(crate) fn key(&self) -> &[u8] {
        let start = HEAD_LEN + self.expiry_len();
        &self.0[start..start + key_len(&self.0)]
    }

    pub(crate) fn position(&self) -> Position<'_> {
        Position::new(&self.digest(), self.namespace(), self.key())
    }

    pub(crate) fn ballot(&self) -> Ballot {
        Ballot {
            epoch: Epoch(u64_at(&self.0, 8)),
            time: HybridTime(u64_at(&self.0, 16)),
            slot: NodeSlot(u16::from_le_bytes(array(&self.0, 24))),
        }
    }

    /// [`Record::supersedes`], without unpacking.
    pub(crate) fn supersedes(&self, other: &Self) -> bool {
        self.ballot() > other.ballot()
    }

    pub(crate) fn is_tombstone(&self) -> bool {
        self.0[0] == TOMBSTONE
    }

    pub(crate) fn payload_len(&self) -> usize {
        key_len(&self.0) + value_len(&self.0)
    }

    /// 128 bits of BLAKE3 of the packed form, about 250 ns for 132 bytes of payload.
    pub(crate) fn fingerprint(&self) -> u128 {
        u128::from_le_bytes(array(blake3::hash(&self.0).as_bytes(), 0))
    }

    /// Where the record stands, in bytes of its own: a cursor must not keep a value alive.
    pub(crate) fn cursor(&self) -> Cursor {
        Cursor {
            digest: self.digest(),
            namespace: self.namespace(),
            key: checked_key(Bytes::copy_from_slice(self.key())),
        }
    }

    /// The record; its key and value share these bytes.
    pub(crate) fn unpack(&self) -> Record {
        let shared = Bytes::from_owner(Owner(self.0.clone()));
        let key_at = HEAD_LEN + self.expiry_len();
        let value_at = key_at + key_len(&self.0);
        let state = if self.is_tombstone() {
            State::Tombstone
        } else {
            State::Value {
                value: shared.slice(value_at..),
                expires_at_ms: (self.expiry_len() > 0).then(|| u64_at(&self.0, HEAD_LEN)),
            }
        };
        Record {
            namespace: self.namespace(),
            digest: self.digest(),
            key: checked_key(shared.slice(key_at..value_at)),
            ballot: self.ballot(),
            state,
        }
    }

    fn expiry_len(&self) -> usize {
        if self.0[0] == EXPIRING_VALUE {
            EXPIRY_LEN
        } else {
            0
        }
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
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use torc_record::{DIGEST_LEN, DigestKey};

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
        let ballot =
            (any::<u64>(), any::<u64>(), any::<u16>()).prop_map(|(epoch, time, slot)| Ballot {
                epoch: Epoch(epoch),
                time: HybridTime(time),
                slot: NodeSlot(slot),
            });
        let key = proptest::collection::vec(any::<u8>(), 1..=40);
        (any::<u32>(), any::<[u8; DIGEST_LEN]>(), key, ballot, state).prop_map(
            |(namespace, digest, key, ballot, state)| Record {
                namespace: NamespaceId(namespace),
                digest: Digest(digest),
                key: Key::new(key).unwrap(),
                ballot,
                state,
            },
        )
    }

    /// The bytes by hand from the table above; the fingerprint with the Python package
    /// `blake3`: `int.from_bytes(blake3(bytes.fromhex(PACKED)).digest()[:16], "little")`.
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
        let packed = Packed::of(&record).unwrap();
        assert_eq!(packed.bytes(), unhex(&tombstone));
        assert_eq!(
            packed.fingerprint(),
            FINGERPRINT,
            "equal on every node and in every release"
        );
    }

    const FINGERPRINT: u128 = 0xc3e2_196b_b613_fa4f_5ac8_8c66_8f88_ee89;

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
}
