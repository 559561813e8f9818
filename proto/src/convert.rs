//! Converts versions and digests from the wire, with checks, and to the wire.

use torc_record::{
    Ballot, Condition, DIGEST_LEN, Digest, Epoch, HybridTime, KeyError, NodeSlot, RecordError,
};
use torc_ring::Partition;

use crate::v1;
use crate::v1::condition::Kind;
use crate::{Fault, Reason};

/// Why a message is invalid. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The key is empty or too long.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The record is out of bounds.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A digest whose length is not 16 bytes.
    #[error("digest of {len} bytes, expected {DIGEST_LEN}")]
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
    /// A list with more elements than its limit.
    #[error("`{list}` has more than {limit} elements")]
    TooMany {
        /// Name of the list in the `.proto` file.
        list: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A part longer than its limit, or than the message it is in.
    #[error("`{what}` has {len} bytes; the limit here is {limit}")]
    TooLong {
        /// Name of the part in the `.proto` file.
        what: &'static str,
        /// Length found, bytes.
        len: usize,
        /// The limit, bytes.
        limit: usize,
    },
    /// Bytes that are not a message.
    #[error(transparent)]
    Malformed(#[from] prost::DecodeError),
    /// A partition that the cluster does not have, or a key of another one.
    #[error("not in partition {partition}")]
    Misplaced {
        /// The partition stated.
        partition: Partition,
    },
    /// A topology that contradicts itself or the one that it should extend. Fetch the whole
    /// topology.
    #[error("inconsistent topology: {why}")]
    Topology {
        /// The contradiction.
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

/// A condition on the wire.
#[must_use]
pub fn condition_to_wire(condition: Condition) -> v1::Condition {
    let kind = match condition {
        Condition::IfAbsent => Kind::IfAbsent(true),
        Condition::IfVersion(version) => Kind::IfVersion(version_to_wire(version)),
        Condition::IfOlderThan(version) => Kind::IfOlderThan(version_to_wire(version)),
    };
    v1::Condition { kind: Some(kind) }
}

/// The condition of a message; `None` for a write that applies always.
///
/// # Errors
/// As [`version_from_wire`].
pub fn condition_from_wire(wire: Option<&v1::Condition>) -> Result<Option<Condition>, WireError> {
    Ok(match wire.and_then(|condition| condition.kind.as_ref()) {
        None | Some(Kind::IfAbsent(false)) => None,
        Some(Kind::IfAbsent(true)) => Some(Condition::IfAbsent),
        Some(Kind::IfVersion(version)) => Some(Condition::IfVersion(version_from_wire(version)?)),
        Some(Kind::IfOlderThan(version)) => {
            Some(Condition::IfOlderThan(version_from_wire(version)?))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_or_digest_out_of_range_is_refused() {
        let version = v1::Version {
            slot: 65_536,
            ..Default::default()
        };
        assert!(version_from_wire(&version).is_err());
        assert!(digest_from_wire(&[0; 15]).is_err());
        assert_eq!(digest_from_wire(&[]), Ok(None));
    }
}
