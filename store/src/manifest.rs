//! The manifest: which files make up the store.
//!
//! One frame of kind `Files`; its body is
//!
//! | bytes | field |
//! |---|---|
//! | 8 | number of the first log segment that is needed |
//! | 8 | highest hybrid time of any entry the manifest covers |
//! | 24 each | files: kind (4 bytes), zero (4), number (8), length in bytes (8) |
//!
//! The frame's count is that of the files. The header's number is the generation, one
//! more with each manifest; its seq is that of the last entry the files cover: the first
//! needed log segment starts right after it.
//!
//! Kind 1 is a checkpoint, of which there is at most one. Later releases add kinds (for
//! segments of slices); a kind that is not known is refused as a newer format.

use torc_record::HybridTime;
use torc_ring::Partitions;

use crate::directory::{Directory, MANIFEST};
use crate::format::{
    FORMAT_VERSION, FRAME_LEN, FileKind, Frame, FrameBuilder, FrameKind, HEADER_LEN, Header, array,
    draw_salt, u32_at, u64_at,
};
use crate::{Seq, StoreError};

const FIXED_LEN: usize = 16;
const FILE_LEN: usize = 24;
const CHECKPOINT: u32 = 1;

/// A checkpoint as the manifest names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckpointFile {
    pub(crate) number: u64,
    pub(crate) len: u64,
}

/// What makes up the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) generation: u64,
    /// All entries up to this one are covered by the files.
    pub(crate) through: Seq,
    pub(crate) first_log: u64,
    pub(crate) highest_time: HybridTime,
    pub(crate) checkpoint: Option<CheckpointFile>,
}

impl Manifest {
    /// Of a store that has nothing yet.
    pub(crate) const EMPTY: Self = Self {
        generation: 1,
        through: Seq(0),
        first_log: 1,
        highest_time: HybridTime(0),
        checkpoint: None,
    };

    /// Reads the manifest, if there is one.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`], [`StoreError::NewerFormat`], [`StoreError::Io`].
    pub(crate) fn read(
        dir: &Directory,
        partitions: Partitions,
    ) -> Result<Option<Self>, StoreError> {
        let bytes = dir.read(MANIFEST)?;
        bytes
            .map(|bytes| Self::decode(&bytes, dir, partitions))
            .transpose()
    }

    /// Puts this manifest in place of the last, durably.
    ///
    /// # Errors
    /// As [`Directory::publish`].
    pub(crate) fn publish(
        &self,
        dir: &Directory,
        partitions: Partitions,
    ) -> Result<(), StoreError> {
        dir.publish(MANIFEST, &self.encode(partitions, draw_salt()))
    }

    fn encode(&self, partitions: Partitions, salt: u32) -> Vec<u8> {
        let header = Header {
            kind: FileKind::Manifest,
            number: self.generation,
            seq: self.through.0,
            salt,
            partitions: partitions.count(),
        };
        let mut frame = FrameBuilder::default();
        frame.extend(|body| {
            body.extend_from_slice(&self.first_log.to_le_bytes());
            body.extend_from_slice(&self.highest_time.0.to_le_bytes());
        });
        if let Some(file) = &self.checkpoint {
            frame.push(|body| {
                body.extend_from_slice(&u64::from(CHECKPOINT).to_le_bytes());
                body.extend_from_slice(&file.number.to_le_bytes());
                body.extend_from_slice(&file.len.to_le_bytes());
            });
        }
        let mut bytes = header.encode().to_vec();
        bytes.extend_from_slice(frame.seal(FrameKind::Files, 0, salt));
        bytes
    }

    fn decode(bytes: &[u8], dir: &Directory, partitions: Partitions) -> Result<Self, StoreError> {
        let path = dir.join(MANIFEST);
        let corrupt = |offset, what| StoreError::corrupt(&path, offset as u64, what);
        let head = bytes.first_chunk::<HEADER_LEN>();
        let head = head.ok_or_else(|| corrupt(0, "the header is cut off"))?;
        let header = Header::decode(FileKind::Manifest, head, &path)?;
        let body = single_frame(bytes, &header, FrameKind::Files)
            .map_err(|what| corrupt(HEADER_LEN, what))?;
        let (fixed, files) = body
            .split_first_chunk::<FIXED_LEN>()
            .ok_or_else(|| corrupt(HEADER_LEN, "the list of files is cut off"))?;
        if header.partitions != partitions.count() || files.len() % FILE_LEN != 0 {
            return Err(corrupt(0, "it does not fit the store it is in"));
        }
        let mut manifest = Self {
            generation: header.number,
            through: Seq(header.seq),
            first_log: u64_at(fixed, 0),
            highest_time: HybridTime(u64_at(fixed, 8)),
            checkpoint: None,
        };
        for file in files.chunks_exact(FILE_LEN) {
            if u32_at(file, 0) != CHECKPOINT {
                return Err(StoreError::NewerFormat {
                    file: path,
                    found: FORMAT_VERSION + 1,
                    supported: FORMAT_VERSION,
                });
            }
            let file = CheckpointFile {
                number: u64_at(file, 8),
                len: u64_at(file, 16),
            };
            if manifest.checkpoint.replace(file).is_some() {
                return Err(corrupt(HEADER_LEN, "two checkpoints"));
            }
        }
        Ok(manifest)
    }
}

/// The body of the one frame that fills a small file after its header.
///
/// # Errors
/// What is wrong with the file.
pub(crate) fn single_frame<'a>(
    file: &'a [u8],
    header: &Header,
    kind: FrameKind,
) -> Result<&'a [u8], &'static str> {
    let frame = file.get(HEADER_LEN..).unwrap_or_default();
    if frame.len() < FRAME_LEN {
        return Err("its frame is cut off");
    }
    let (head, body) = frame.split_at(FRAME_LEN);
    let frame = Frame::decode(&array(head, 0), header.salt)?;
    if frame.kind != kind {
        return Err("a frame of another kind");
    }
    if !frame.fits(body, header.salt) {
        return Err("the body of its frame fails its checksum");
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::CrashFs;
    use std::path::Path;
    use std::sync::Arc;

    const FULL: Manifest = Manifest {
        generation: 3,
        through: Seq(77),
        first_log: 5,
        highest_time: HybridTime(99),
        checkpoint: Some(CheckpointFile {
            number: 5,
            len: 1234,
        }),
    };

    fn dir(fs: &CrashFs) -> Directory {
        Directory::open(Arc::new(fs.clone()), Path::new("/d")).unwrap()
    }

    #[test]
    fn a_manifest_is_read_as_it_was_published() {
        let fs = CrashFs::new();
        let dir = dir(&fs);
        let partitions = Partitions::new(64).unwrap();
        assert_eq!(Manifest::read(&dir, partitions).unwrap(), None);
        for manifest in [Manifest::EMPTY, FULL] {
            manifest.publish(&dir, partitions).unwrap();
            assert_eq!(Manifest::read(&dir, partitions).unwrap(), Some(manifest));
        }
        assert!(Manifest::read(&dir, Partitions::DEFAULT).is_err());
    }

    #[test]
    fn the_list_of_files_does_not_change() {
        let bytes = FULL.encode(Partitions::DEFAULT, 1);
        let golden = crate::packed::tests::unhex(
            "0500000000000000 6300000000000000
             01000000 00000000 0500000000000000 d204000000000000",
        );
        assert_eq!(bytes[HEADER_LEN + FRAME_LEN..], golden);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        let fs = CrashFs::new();
        let dir = dir(&fs);
        let good = FULL.encode(Partitions::DEFAULT, 7);
        let decode = |bytes: &[u8]| Manifest::decode(bytes, &dir, Partitions::DEFAULT);
        assert_eq!(decode(&good).unwrap(), FULL);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(decode(&good[..len]).is_err(), "cut to {len}");
        }
    }

    #[test]
    fn a_kind_of_file_from_the_future_is_refused_as_a_newer_format() {
        let fs = CrashFs::new();
        let header = Header {
            kind: FileKind::Manifest,
            number: 1,
            seq: 0,
            salt: 7,
            partitions: 4096,
        };
        let mut frame = FrameBuilder::default();
        frame.push(|body| body.extend_from_slice(&[0; FIXED_LEN]));
        frame.extend(|body| body.extend_from_slice(&[2; FILE_LEN]));
        let mut bytes = header.encode().to_vec();
        bytes.extend_from_slice(frame.seal(FrameKind::Files, 0, 7));
        let refused = Manifest::decode(&bytes, &dir(&fs), Partitions::DEFAULT);
        assert!(matches!(
            refused,
            Err(StoreError::NewerFormat { found: 2, .. })
        ));
    }
}
