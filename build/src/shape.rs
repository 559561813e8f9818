//! The parts of a row to keep, and their layout in a run.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use torc_record::{DIGEST_LEN, Digest, Key, Record, State};
use torc_store::bulk::{KeylessLayout, PackedRecord, pack};

use crate::sums::Sums;
use crate::target::Target;

/// Bytes of a record's head, which tell its length.
const RECORD_HEAD_LEN: usize = 44;

/// What a generation keeps of each row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Shape {
    /// The key and its value, of any length: exact answers.
    #[default]
    Values,
    /// A fingerprint of the key, and a payload of fixed length. A present key is always found; an
    /// absent key looks present with probability 2^-`fingerprint_bits`. Takes 2.1 bits plus the
    /// fingerprint per key in memory; payloads stay on disk.
    Keyless {
        /// 1 to 32.
        fingerprint_bits: u8,
        /// Bytes of each row's value, 0 to 64.
        payload_bytes: u8,
    },
    /// The key, and a number for it: exact answers. The numbers of a generation are 0 to n - 1, and
    /// a rebuild of the same keys gives the same.
    Ids,
}

impl Shape {
    /// The problem with it, if any.
    pub(crate) fn check(self) -> Result<(), &'static str> {
        match self.keyless() {
            Some(layout) if !layout.is_possible() => {
                Err("fingerprints have 1 to 32 bits, and payloads at most 64 bytes")
            }
            _ => Ok(()),
        }
    }

    /// The widths of its slices if they are keyless.
    pub(crate) const fn keyless(self) -> Option<KeylessLayout> {
        match self {
            Self::Values | Self::Ids => None,
            Self::Keyless {
                fingerprint_bits,
                payload_bytes,
            } => Some(KeylessLayout {
                fingerprint_bits,
                payload_bytes,
            }),
        }
    }

    /// The probability that an absent key looks present.
    #[must_use]
    pub fn false_positive_rate(self) -> f64 {
        match self {
            Self::Values | Self::Ids => 0.0,
            Self::Keyless {
                fingerprint_bits, ..
            } => 0.5_f64.powi(i32::from(fingerprint_bits)),
        }
    }

    /// Appends a row.
    pub(crate) fn pack(
        self,
        target: &Target,
        (key, value, expires_at_ms): (Bytes, Bytes, Option<u64>),
        into: &mut Vec<u8>,
    ) -> Result<(), String> {
        let digest = target.digest(&key);
        let key = Key::new(key).map_err(|error| error.to_string())?;
        if self == Self::Ids && !value.is_empty() {
            return Err("a key with an id has no value".to_owned());
        }
        let is_ordinary = !target.namespace.is_generation() && !target.is_offline();
        if expires_at_ms.is_some() && (self != Self::Values || !is_ordinary) {
            return Err("values of a static namespace cannot expire".to_owned());
        }
        let Self::Keyless { payload_bytes, .. } = self else {
            let record = Record {
                namespace: target.namespace,
                digest,
                key,
                ballot: target.ballot,
                origin: None,
                state: State::Value {
                    value,
                    expires_at_ms,
                },
            };
            return pack(&record, into).map_err(|error| error.to_string());
        };
        if value.len() != usize::from(payload_bytes) {
            let len = value.len();
            return Err(format!(
                "the value has {len} bytes, but each must have {payload_bytes}"
            ));
        }
        into.extend_from_slice(&digest.0);
        into.extend_from_slice(&value);
        Ok(())
    }

    /// Bytes of a row's head, which tell its length.
    pub(crate) const fn head_len(self) -> usize {
        match self {
            Self::Values | Self::Ids => RECORD_HEAD_LEN,
            Self::Keyless { payload_bytes, .. } => DIGEST_LEN + payload_bytes as usize,
        }
    }

    /// The length of the row with this head.
    pub(crate) fn len_by_head(self, head: &[u8]) -> Result<usize, &'static str> {
        match self {
            Self::Values | Self::Ids => PackedRecord::len_by_head(head),
            Self::Keyless { .. } => Ok(self.head_len()),
        }
    }

    /// Parses a row of a run.
    pub(crate) fn row(self, bytes: &[u8]) -> Result<PackedRow<'_>, &'static str> {
        match self {
            Self::Values | Self::Ids => PackedRecord::at_start_of(bytes).map(PackedRow::Record),
            Self::Keyless { .. } => {
                let (digest, rest) = bytes
                    .split_first_chunk::<DIGEST_LEN>()
                    .ok_or("a row is cut off")?;
                let payload = rest.get(..self.head_len() - DIGEST_LEN);
                Ok(PackedRow::Keyless {
                    digest: Digest(*digest),
                    payload: payload.ok_or("a row is cut off")?,
                })
            }
        }
    }
}

/// A row in a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PackedRow<'a> {
    Record(PackedRecord<'a>),
    Keyless { digest: Digest, payload: &'a [u8] },
}

impl<'a> PackedRow<'a> {
    pub(crate) fn digest(self) -> Digest {
        match self {
            Self::Record(record) => record.digest(),
            Self::Keyless { digest, .. } => digest,
        }
    }

    /// Its key, if kept.
    pub(crate) fn key(self) -> Option<&'a [u8]> {
        match self {
            Self::Record(record) => Some(record.key()),
            Self::Keyless { .. } => None,
        }
    }

    pub(crate) fn len(self) -> usize {
        match self {
            Self::Record(record) => record.bytes().len(),
            Self::Keyless { payload, .. } => DIGEST_LEN + payload.len(),
        }
    }

    pub(crate) fn sums(self) -> Sums {
        match self {
            Self::Record(record) => Sums {
                records: 1,
                payload_bytes: record.payload_len() as u64,
                packed_bytes: record.bytes().len() as u64,
                fingerprint: record.fingerprint(),
                checksum: u64::from(crc32c::crc32c(record.bytes())),
            },
            Self::Keyless { digest, payload } => Sums {
                records: 1,
                payload_bytes: payload.len() as u64,
                packed_bytes: self.len() as u64,
                fingerprint: u128::from_be_bytes(digest.0),
                checksum: u64::from(crc32c::crc32c_append(crc32c::crc32c(&digest.0), payload)),
            },
        }
    }
}
