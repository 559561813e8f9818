//! What is kept of a row, and how it lies in a run.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use torc_record::{DIGEST_LEN, Digest, Key, Record, State};
use torc_store::bulk::{PackedRecord, pack};

use crate::plan::Target;
use crate::sums::Sums;

/// Of the head of a record, with which its length is known.
const RECORD_HEAD_LEN: usize = 44;
const MAX_PAYLOAD_BYTES: u8 = 64;
const MAX_FINGERPRINT_BITS: u8 = 32;

/// What a generation keeps of each row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Shape {
    /// The key and its value, of any length: answers are certain.
    #[default]
    Values,
    /// No key: a fingerprint of it, and a payload of fixed length. A key that is there is always found; one
    /// that is not is taken for one with probability 2^-`fingerprint_bits`. It takes 2.1 bits and the
    /// fingerprint a key in memory; the payload stays on the disk.
    Keyless {
        /// 1 to 32.
        fingerprint_bits: u8,
        /// Bytes of each row's value, 0 to 64.
        payload_bytes: u8,
    },
}

impl Shape {
    /// What is wrong with it, if anything is.
    pub(crate) fn check(self) -> Result<(), &'static str> {
        match self {
            Self::Values => Ok(()),
            Self::Keyless {
                fingerprint_bits,
                payload_bytes,
            } => {
                if !(1..=MAX_FINGERPRINT_BITS).contains(&fingerprint_bits) {
                    Err("fingerprints have 1 to 32 bits")
                } else if payload_bytes > MAX_PAYLOAD_BYTES {
                    Err("payloads have at most 64 bytes")
                } else {
                    Ok(())
                }
            }
        }
    }

    /// The probability that a key which is not there is taken for one that is.
    #[must_use]
    pub fn false_positive_rate(self) -> f64 {
        match self {
            Self::Values => 0.0,
            Self::Keyless {
                fingerprint_bits, ..
            } => 0.5_f64.powi(i32::from(fingerprint_bits)),
        }
    }

    /// Appends a row.
    pub(crate) fn pack(
        self,
        target: &Target,
        key: Bytes,
        value: Bytes,
        into: &mut Vec<u8>,
    ) -> Result<(), String> {
        let digest = target.digest(&key);
        let key = Key::new(key).map_err(|error| error.to_string())?;
        let Self::Keyless { payload_bytes, .. } = self else {
            let record = Record {
                namespace: target.namespace,
                digest,
                key,
                ballot: target.ballot,
                origin: None,
                state: State::Value {
                    value,
                    expires_at_ms: None,
                },
            };
            return pack(&record, into).map_err(|error| error.to_string());
        };
        if value.len() != usize::from(payload_bytes) {
            let len = value.len();
            return Err(format!(
                "the value has {len} bytes, where each has {payload_bytes}"
            ));
        }
        into.extend_from_slice(&digest.0);
        into.extend_from_slice(&value);
        Ok(())
    }

    /// Bytes with which the length of a row is known.
    pub(crate) const fn head_len(self) -> usize {
        match self {
            Self::Values => RECORD_HEAD_LEN,
            Self::Keyless { payload_bytes, .. } => DIGEST_LEN + payload_bytes as usize,
        }
    }

    /// The length of the row that begins so.
    pub(crate) fn len_by_head(self, head: &[u8]) -> Result<usize, &'static str> {
        match self {
            Self::Values => PackedRecord::len_by_head(head),
            Self::Keyless { .. } => Ok(self.head_len()),
        }
    }

    /// Looks at a row of a run.
    pub(crate) fn row(self, bytes: &[u8]) -> Result<PackedRow<'_>, &'static str> {
        match self {
            Self::Values => PackedRecord::at_start_of(bytes).map(PackedRow::Record),
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

/// A row as it lies in a run.
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

    /// Its key, as far as it is kept.
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
