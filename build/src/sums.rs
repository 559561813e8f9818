//! Sums over records: taken while rows are read, compared after they were written.

use serde::{Deserialize, Serialize};

/// Sums over some records. They can be added and subtracted, modulo their width.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Number of records.
    pub records: u64,
    /// Bytes of their keys and values.
    pub payload_bytes: u64,
    /// Bytes of their stored form.
    pub(crate) packed_bytes: u64,
    /// Sum over keys and versions: [`entry_sum`](torc_record::entry_sum), or the digests of keyless
    /// ones.
    #[serde(with = "hex128")]
    pub fingerprint: u128,
    /// Sum of the CRC32C of each record.
    pub(crate) checksum: u64,
}

impl Sums {
    pub(crate) fn take_away(&mut self, gone: &Self) {
        self.records = self.records.wrapping_sub(gone.records);
        self.payload_bytes = self.payload_bytes.wrapping_sub(gone.payload_bytes);
        self.packed_bytes = self.packed_bytes.wrapping_sub(gone.packed_bytes);
        self.fingerprint = self.fingerprint.wrapping_sub(gone.fingerprint);
        self.checksum = self.checksum.wrapping_sub(gone.checksum);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.records = self.records.wrapping_add(other.records);
        self.payload_bytes = self.payload_bytes.wrapping_add(other.payload_bytes);
        self.packed_bytes = self.packed_bytes.wrapping_add(other.packed_bytes);
        self.fingerprint = self.fingerprint.wrapping_add(other.fingerprint);
        self.checksum = self.checksum.wrapping_add(other.checksum);
    }
}

/// 128 bits in hexadecimal, which do not fit a JSON number.
pub(crate) mod hex128 {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(number: &u128, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{number:032x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        let text = String::deserialize(from)?;
        u128::from_str_radix(&text, 16).map_err(serde::de::Error::custom)
    }
}

/// 32 bytes in hexadecimal.
pub(crate) mod hex32 {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&blake3::Hash::from_bytes(*bytes).to_hex())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let hash = blake3::Hash::from_hex(text).map_err(serde::de::Error::custom)?;
        Ok(*hash.as_bytes())
    }
}
