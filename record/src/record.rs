//! Records: a key with its newest known version.

use bytes::Bytes;

use crate::{Ballot, Digest, Key, NamespaceId};

/// Longest value stored inline, in bytes.
pub const MAX_VALUE_LEN: usize = 1 << 20;

/// The content of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The key has this value until `expires_at_ms`.
    Value {
        /// At most [`MAX_VALUE_LEN`] bytes; may be empty.
        value: Bytes,
        /// When the value expires, Unix milliseconds.
        expires_at_ms: Option<u64>,
    },
    /// The key was deleted.
    Tombstone,
}

/// Why a record is refused. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Longer than [`MAX_VALUE_LEN`]. Split the value.
    #[error("the value has {len} bytes, but at most {MAX_VALUE_LEN} are allowed")]
    ValueTooLong {
        /// Length of the refused value, bytes.
        len: usize,
    },
}

/// A key with a version and its content. Cloning shares all bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The key's namespace.
    pub namespace: NamespaceId,
    /// The digest of (namespace, key); computed once, never recomputed on the way.
    pub digest: Digest,
    /// The key.
    pub key: Key,
    /// The ballot under which replicas accepted it last; it orders versions.
    pub ballot: Ballot,
    /// The ballot under which it was written, if different: a reconciliation accepts a
    /// record again under a new ballot, which is not a new version for readers.
    pub origin: Option<Ballot>,
    /// Value or tombstone.
    pub state: State,
}

impl Record {
    /// The version that readers see, which changes only with a write.
    #[must_use]
    pub fn version(&self) -> Ballot {
        self.origin.unwrap_or(self.ballot)
    }

    /// The one rule that orders versions: the higher ballot wins.
    #[must_use]
    pub fn supersedes(&self, other: &Self) -> bool {
        self.ballot > other.ballot
    }

    /// The value that a reader at `unix_ms` sees: `None` for a tombstone or an expired value.
    #[must_use]
    pub fn visible(&self, unix_ms: u64) -> Option<&Bytes> {
        match &self.state {
            State::Value {
                expires_at_ms: Some(at),
                ..
            } if *at <= unix_ms => None,
            State::Value { value, .. } => Some(value),
            State::Tombstone => None,
        }
    }

    /// When the value expires, Unix milliseconds.
    #[must_use]
    pub const fn expires_at_ms(&self) -> Option<u64> {
        match &self.state {
            State::Value { expires_at_ms, .. } => *expires_at_ms,
            State::Tombstone => None,
        }
    }

    /// Bytes of key and value together: the payload, without any overhead.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        let value = match &self.state {
            State::Value { value, .. } => value.len(),
            State::Tombstone => 0,
        };
        self.key.as_bytes().len() + value
    }

    /// The same record with its own copy of the bytes. It keeps no longer buffer in memory, such as
    /// the request that the record came with.
    #[must_use]
    pub fn detached(self) -> Self {
        let state = match self.state {
            State::Value {
                value,
                expires_at_ms,
            } => State::Value {
                value: Bytes::copy_from_slice(&value),
                expires_at_ms,
            },
            State::Tombstone => State::Tombstone,
        };
        Self {
            key: self.key.detached(),
            state,
            ..self
        }
    }

    /// Checks the length of the value, which the types cannot check.
    ///
    /// # Errors
    /// [`RecordError::ValueTooLong`].
    pub fn check(&self) -> Result<(), RecordError> {
        match &self.state {
            State::Value { value, .. } if value.len() > MAX_VALUE_LEN => {
                Err(RecordError::ValueTooLong { len: value.len() })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DigestKey, Epoch, HybridTime, NodeSlot};

    fn record(time: u64, state: State) -> Record {
        let key = Key::new(&b"k"[..]).expect("short");
        Record {
            namespace: NamespaceId::DEFAULT,
            digest: Digest::of(&DigestKey([0; 32]), NamespaceId::DEFAULT, b"k"),
            key,
            ballot: Ballot {
                epoch: Epoch(1),
                time: HybridTime(time),
                slot: NodeSlot(0),
            },
            origin: None,
            state,
        }
    }

    fn value(expires_at_ms: Option<u64>) -> State {
        State::Value {
            value: Bytes::from_static(b"v"),
            expires_at_ms,
        }
    }

    #[test]
    fn a_tombstone_supersedes_an_older_value_and_yields_to_a_newer_one() {
        let tombstone = record(2, State::Tombstone);
        assert!(tombstone.supersedes(&record(1, value(None))));
        assert!(!tombstone.supersedes(&record(3, value(None))));
        assert!(
            !tombstone.supersedes(&tombstone),
            "a version does not supersede itself"
        );
    }

    #[test]
    fn a_value_is_visible_until_the_millisecond_it_expires_in() {
        let record = record(1, value(Some(1_000)));
        assert!(record.visible(999).is_some());
        assert!(record.visible(1_000).is_none());
    }

    #[test]
    fn a_value_of_one_byte_too_many_is_refused() {
        let long = Bytes::from(vec![0; MAX_VALUE_LEN + 1]);
        let refused = record(
            1,
            State::Value {
                value: long,
                expires_at_ms: None,
            },
        );
        assert_eq!(
            refused.check(),
            Err(RecordError::ValueTooLong {
                len: MAX_VALUE_LEN + 1
            })
        );
    }
}
