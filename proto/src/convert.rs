//! Records, versions and digests: wire to domain, checked, and back.

use bytes::Bytes;
use torc_record::{
    Ballot, DIGEST_LEN, Digest, Epoch, HybridTime, Key, KeyError, NamespaceId, NodeSlot, Record,
    RecordError, State,
};
use torc_ring::Partition;

use crate::v1;
use crate::{Fault, Reason};

/// Why a message does not hold what it should. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The key is empty or too long.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The record is out of bounds.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A digest of other than 16 bytes.
    #[error("a digest has {DIGEST_LEN} bytes, this one has {len}")]
    DigestLength {
        /// Length found, bytes.
        len: usize,
    },
    /// A field that must be set is missing or out of its range.
    #[error("the field `{field}` is missing or out of range")]
    Field {
        /// Name of the field in the `.proto` file.
        field: &'static str,
    },
    /// A list of more than its limit.
    #[error("`{list}` holds more than {limit}")]
    TooMany {
        /// Name of the list in the `.proto` file.
        list: &'static str,
        /// The most there may be.
        limit: usize,
    },
    /// A part longer than its limit, or than the message it is in.
    #[error("`{what}` has {len} bytes, at most {limit} are allowed here")]
    TooLong {
        /// Name of the part in the `.proto` file.
        what: &'static str,
        /// Length found, bytes.
        len: usize,
        /// The longest there may be, bytes.
        limit: usize,
    },
    /// Bytes that are no message.
    #[error(transparent)]
    Malformed(#[from] prost::DecodeError),
    /// A partition that the cluster does not have, or a key of another one.
    #[error("not of partition {partition}")]
    Misplaced {
        /// The partition stated.
        partition: Partition,
    },
    /// A topology that contradicts itself or the one it should extend. Fetch all of it.
    #[error("the topology does not fit: {why}")]
    Topology {
        /// What does not fit.
        why: &'static str,
    },
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Self {
        Self::new(Reason::Invalid, error.to_string())
    }
}

/// The 16 bytes of a digest; `None` when the field was left empty.
///
/// # Errors
/// [`WireError::DigestLength`].
pub fn digest_from_wire(bytes: &[u8]) -> Result<Option<Digest>, WireError> {
    match bytes.len() {
        0 => Ok(None),
        DIGEST_LEN => {
            let mut digest = [0; DIGEST_LEN];
            digest.copy_from_slice(bytes);
            Ok(Some(Digest(digest)))
        }
        len => Err(WireError::DigestLength { len }),
    }
}

/// A ballot as users see it.
#[must_use]
pub fn version_to_wire(ballot: Ballot) -> v1::Version {
    v1::Version {
        epoch: ballot.epoch.0,
        time: ballot.time.0,
        slot: ballot.slot.0.into(),
    }
}

/// A version as a ballot.
///
/// # Errors
/// [`WireError::Field`] when the slot is out of range.
pub fn version_from_wire(version: &v1::Version) -> Result<Ballot, WireError> {
    let slot = u16::try_from(version.slot).map_err(|_| WireError::Field { field: "slot" })?;
    Ok(Ballot {
        epoch: Epoch(version.epoch),
        time: HybridTime(version.time),
        slot: NodeSlot(slot),
    })
}

/// A record for another node.
#[must_use]
pub fn record_to_wire(record: Record) -> v1::Record {
    let (tombstone, value, expires_at_ms) = match record.state {
        State::Value {
            value,
            expires_at_ms,
        } => (false, value, expires_at_ms.unwrap_or(0)),
        State::Tombstone => (true, Bytes::new(), 0),
    };
    v1::Record {
        namespace: record.namespace.0,
        digest: Bytes::copy_from_slice(&record.digest.0),
        key: record.key.into_bytes(),
        version: Some(version_to_wire(record.ballot)),
        origin: record.origin.map(version_to_wire),
        tombstone,
        value,
        expires_at_ms,
    }
}

/// A record from another node, all bounds checked.
///
/// # Errors
/// [`WireError`] for whatever is missing or out of bounds.
pub fn record_from_wire(wire: v1::Record) -> Result<Record, WireError> {
    let version = wire
        .version
        .as_ref()
        .ok_or(WireError::Field { field: "version" })?;
    let ballot = version_from_wire(version)?;
    let state = if wire.tombstone {
        State::Tombstone
    } else {
        State::Value {
            value: wire.value,
            expires_at_ms: (wire.expires_at_ms != 0).then_some(wire.expires_at_ms),
        }
    };
    let origin = wire.origin.as_ref().map(version_from_wire).transpose()?;
    let record = Record {
        namespace: NamespaceId(wire.namespace),
        digest: digest_from_wire(&wire.digest)?.ok_or(WireError::DigestLength { len: 0 })?,
        key: Key::new(wire.key)?,
        ballot,
        origin: origin.filter(|origin| *origin != ballot),
        state,
    };
    record.check()?;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_record() -> impl Strategy<Value = Record> {
        let state = prop_oneof![
            Just(State::Tombstone),
            (any::<Vec<u8>>(), proptest::option::of(1..u64::MAX)).prop_map(|(value, at)| {
                State::Value {
                    value: value.into(),
                    expires_at_ms: at,
                }
            }),
        ];
        (
            any::<(u32, [u8; 16], u64, u64, u16)>(),
            proptest::collection::vec(any::<u8>(), 1..64),
            proptest::option::of(any::<(u64, u64, u16)>()),
            state,
        )
            .prop_map(
                |((namespace, digest, epoch, time, slot), key, origin, state)| Record {
                    namespace: NamespaceId(namespace),
                    digest: Digest(digest),
                    key: Key::new(key).unwrap(),
                    ballot: Ballot {
                        epoch: Epoch(epoch),
                        time: HybridTime(time),
                        slot: NodeSlot(slot),
                    },
                    origin: origin.map(|(epoch, time, slot)| Ballot {
                        epoch: Epoch(epoch),
                        time: HybridTime(time),
                        slot: NodeSlot(slot),
                    }),
                    state,
                },
            )
    }

    proptest! {
        #[test]
        fn a_record_survives_the_wire(record in any_record()) {
            let wire = record_to_wire(record.clone());
            prop_assert_eq!(record_from_wire(wire), Ok(record));
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        let good = v1::Record {
            digest: vec![0; 16].into(),
            key: "k".into(),
            version: Some(v1::Version::default()),
            ..Default::default()
        };
        assert!(record_from_wire(good.clone()).is_ok());
        let bad = [
            v1::Record {
                digest: vec![0; 15].into(),
                ..good.clone()
            },
            v1::Record {
                digest: Bytes::new(),
                ..good.clone()
            },
            v1::Record {
                key: Bytes::new(),
                ..good.clone()
            },
            v1::Record {
                key: vec![0; 1025].into(),
                ..good.clone()
            },
            v1::Record {
                value: vec![0; (1 << 20) + 1].into(),
                ..good.clone()
            },
            v1::Record {
                version: None,
                ..good.clone()
            },
            v1::Record {
                version: Some(v1::Version {
                    slot: 65_536,
                    ..Default::default()
                }),
                ..good
            },
        ];
        for wire in bad {
            assert!(record_from_wire(wire).is_err());
        }
    }
}
