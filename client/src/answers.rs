//! Results of operations on keys, and their conversion from the wire.

use bytes::Bytes;
use torc_proto::{WireError, v1, version_from_wire};

use crate::{Error, Version};

/// A key's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The bytes that were put.
    pub value: Bytes,
    /// The version of the write that stored it.
    pub version: Version,
    /// When the value expires, Unix milliseconds; `None`: never.
    pub expires_at_ms: Option<u64>,
    /// Bits of the fingerprint by which a static namespace without stored keys recognised the key;
    /// zero in every other namespace. See [`Value::false_positive_rate`].
    pub fingerprint_bits: u32,
}

impl Value {
    /// The probability that a get of an absent key gives a value like this one; zero except in a
    /// static namespace that does not store its keys.
    #[must_use]
    pub fn false_positive_rate(&self) -> f64 {
        match self.fingerprint_bits {
            0 => 0.0,
            bits => 0.5_f64.powf(f64::from(bits)),
        }
    }
}

/// The result of a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deleted {
    /// Whether the key had a value.
    pub existed: bool,
    /// The version of the deletion.
    pub version: Version,
}

/// A record from a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// The value; empty if the scan asked for keys only.
    pub value: Bytes,
    /// The version of the write that stored it.
    pub version: Version,
    /// When the value expires, Unix milliseconds; `None`: never.
    pub expires_at_ms: Option<u64>,
    /// Positions of the requested byte strings in the value: the first 16, in the order of their
    /// ends.
    pub matches: Vec<ValueMatch>,
    /// Whether there are more matches.
    pub more_matches: bool,
}

/// Where a byte string occurs in a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct ValueMatch {
    /// Bytes from the start of the value.
    pub start: u32,
    /// Index in [`ScanOptions::contains`](crate::ScanOptions::contains), from 0.
    pub pattern: u32,
}

fn version(wire: Option<&v1::Version>) -> Result<Version, WireError> {
    version_from_wire(wire.ok_or(WireError::Field { field: "version" })?)
}

/// On the wire, 0 means no moment.
pub(crate) fn moment(unix_ms: u64) -> Option<u64> {
    (unix_ms != 0).then_some(unix_ms)
}

pub(crate) fn value(wire: v1::GetResponse) -> Result<Option<Value>, Error> {
    if !wire.found {
        return Ok(None);
    }
    let version = version(wire.version.as_ref()).map_err(|e| Error::malformed(e, false))?;
    let expires_at_ms = moment(wire.expires_at_ms);
    Ok(Some(Value {
        value: wire.value,
        version,
        expires_at_ms,
        fingerprint_bits: wire.fingerprint_bits,
    }))
}

pub(crate) fn stored(wire: &v1::PutResponse) -> Result<Version, Error> {
    version(wire.version.as_ref()).map_err(|e| Error::malformed(e, true))
}

pub(crate) fn deleted(wire: &v1::DeleteResponse) -> Result<Deleted, Error> {
    let version = version(wire.version.as_ref()).map_err(|e| Error::malformed(e, true))?;
    Ok(Deleted {
        existed: wire.existed,
        version,
    })
}

pub(crate) fn entry(wire: v1::Entry) -> Result<Entry, Error> {
    let version = version(wire.version.as_ref()).map_err(|e| Error::malformed(e, false))?;
    Ok(Entry {
        key: wire.key,
        value: wire.value,
        version,
        expires_at_ms: moment(wire.expires_at_ms),
        matches: wire.matches.into_iter().map(value_match).collect(),
        more_matches: wire.more_matches,
    })
}

const fn value_match(wire: v1::ScanMatch) -> ValueMatch {
    ValueMatch {
        start: wire.start,
        pattern: wire.pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn an_acknowledgement_without_a_version_is_malformed_and_may_have_written() {
        let error = stored(&v1::PutResponse::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.maybe_applied());
        let error = value(v1::GetResponse {
            found: true,
            ..Default::default()
        });
        assert!(!error.unwrap_err().maybe_applied());
    }

    #[test]
    fn absent_is_no_value_whatever_else_the_answer_says() {
        assert_eq!(value(v1::GetResponse::default()), Ok(None));
    }
}
