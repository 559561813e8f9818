//! The first 64 bytes of a file.

use std::hash::{BuildHasher, Hasher};
use std::path::Path;

use super::{array, u32_at, u64_at};
use crate::StoreError;

/// Bytes of a header.
pub(crate) const HEADER_LEN: usize = 64;
/// The layout that this release writes, and the only one it reads.
pub(crate) const FORMAT_VERSION: u32 = 5;

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Log,
    Manifest,
    Meta,
    Segment,
}

impl FileKind {
    const fn magic(self) -> [u8; 8] {
        match self {
            Self::Log => *b"TORCLOG\0",
            Self::Manifest => *b"TORCMAN\0",
            Self::Meta => *b"TORCMETA",
            Self::Segment => *b"TORCSEG\0",
        }
    }
}

/// A file's header; the table in the module's documentation explains its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: FileKind,
    pub(crate) number: u64,
    pub(crate) seq: u64,
    pub(crate) salt: u32,
    pub(crate) partitions: u32,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[..8].copy_from_slice(&self.kind.magic());
        out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        out[24..32].copy_from_slice(&self.seq.to_le_bytes());
        out[32..36].copy_from_slice(&self.salt.to_le_bytes());
        out[36..40].copy_from_slice(&self.partitions.to_le_bytes());
        let checksum = Self::checksum(&out);
        out[12..16].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the header of a file of this kind.
    ///
    /// # Errors
    /// [`StoreError::NewerFormat`], which is checked first, [`StoreError::OlderFormat`] or
    /// [`StoreError::Corrupt`].
    pub(crate) fn decode(
        kind: FileKind,
        bytes: &[u8; HEADER_LEN],
        file: &Path,
    ) -> Result<Self, StoreError> {
        if array::<8>(bytes, 0) != kind.magic() {
            return Err(StoreError::corrupt(
                file,
                0,
                "the magic number in the header does not match the file name",
            ));
        }
        let version = u32_at(bytes, 8);
        if version > FORMAT_VERSION {
            return Err(StoreError::NewerFormat {
                file: file.to_owned(),
                found: version,
                supported: FORMAT_VERSION,
            });
        }
        if u32_at(bytes, 12) != Self::checksum(bytes) {
            return Err(StoreError::corrupt(
                file,
                0,
                "the header fails its checksum",
            ));
        }
        if version < FORMAT_VERSION {
            return Err(StoreError::OlderFormat {
                file: file.to_owned(),
                found: version,
                supported: FORMAT_VERSION,
            });
        }
        Ok(Self {
            kind,
            number: u64_at(bytes, 16),
            seq: u64_at(bytes, 24),
            salt: u32_at(bytes, 32),
            partitions: u32_at(bytes, 36),
        })
    }

    fn checksum(bytes: &[u8; HEADER_LEN]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
    }
}

/// A salt that clients cannot guess.
pub(crate) fn draw_salt() -> u32 {
    // The standard library seeds its hash tables with the system's random numbers.
    let random = std::hash::RandomState::new().build_hasher().finish();
    (random & 0xffff_ffff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::tests::unhex;

    const HEADER: Header = Header {
        kind: FileKind::Log,
        number: 7,
        seq: 0x0102_0304_0506_0708,
        salt: 0xdead_beef,
        partitions: 4096,
    };

    /// The bytes were written by hand from the table, the checksum with the Python package
    /// `crc32c`: `crc32c(header[:12] + header[16:])`.
    #[test]
    fn the_header_does_not_change() {
        let golden = "544f52434c4f4700 05000000 CHECKSUM 0700000000000000 0807060504030201
             efbeadde 00100000"
            .replace("CHECKSUM", HEADER_CHECKSUM);
        let mut golden = unhex(&golden);
        golden.resize(HEADER_LEN, 0);
        assert_eq!(HEADER.encode()[..], golden);
    }

    const HEADER_CHECKSUM: &str = "81f2caff";

    #[test]
    fn every_flipped_bit_of_a_header_is_refused() {
        let file = Path::new("log-7");
        let good = HEADER.encode();
        assert_eq!(Header::decode(FileKind::Log, &good, file).unwrap(), HEADER);
        for bit in 0..HEADER_LEN * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(
                Header::decode(FileKind::Log, &bad, file).is_err(),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut newer = HEADER.encode();
        newer[8] = 6;
        let refused = Header::decode(FileKind::Log, &newer, Path::new("log-7")).unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with("log-7 has format 6, but this release reads 5"),
            "{refused}"
        );
    }

    #[test]
    fn an_older_version_is_named_once_its_checksum_is_right() {
        let mut older = HEADER.encode();
        older[8] = 2;
        let file = Path::new("log-7");
        let damaged = Header::decode(FileKind::Log, &older, file);
        assert!(matches!(damaged, Err(StoreError::Corrupt { .. })));
        let checksum = Header::checksum(&older);
        older[12..16].copy_from_slice(&checksum.to_le_bytes());
        let refused = Header::decode(FileKind::Log, &older, file);
        assert!(matches!(
            refused,
            Err(StoreError::OlderFormat { found: 2, .. })
        ));
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        let decoded = Header::decode(FileKind::Manifest, &HEADER.encode(), Path::new("MANIFEST"));
        assert!(matches!(
            decoded,
            Err(StoreError::Corrupt { offset: 0, .. })
        ));
    }
}
