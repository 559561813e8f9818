//! Frames: a checksummed head of 32 bytes and a checksummed body.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a body has at most MAX_LIST_LEN bytes"
)]

use crc32c::crc32c_append;

use super::{MAX_BODY_LEN, MAX_LIST_LEN, u32_at, u64_at};

/// Bytes of a frame before its body.
pub(crate) const FRAME_LEN: usize = 32;
pub(super) const FRAME_MAGIC: [u8; 4] = *b"TFRM";

/// The content of a frame's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Log: entries that became durable together.
    Batch = 1,
    /// Log: the segment was closed properly; the body is empty.
    LogEnd = 2,
    /// Manifest: the files that make up the store.
    Files = 3,
    /// Metadata: the bytes of one value.
    Meta = 4,
    /// Segment, last frame: the table of slices.
    Slices = 5,
}

impl FrameKind {
    fn from_u32(kind: u32) -> Option<Self> {
        let known = [
            Self::Batch,
            Self::LogEnd,
            Self::Files,
            Self::Meta,
            Self::Slices,
        ];
        known.into_iter().find(|known| *known as u32 == kind)
    }

    /// Longest body, bytes.
    pub(crate) const fn max_body_len(self) -> usize {
        match self {
            Self::Batch | Self::LogEnd | Self::Meta => MAX_BODY_LEN,
            Self::Files | Self::Slices => MAX_LIST_LEN,
        }
    }
}

/// The head of a frame, with a valid checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    pub(crate) count: u32,
    pub(crate) number: u64,
    pub(crate) body_len: usize,
    body_crc: u32,
}

impl Frame {
    /// Reads a head.
    ///
    /// # Errors
    /// The problem with it.
    pub(crate) fn decode(head: &[u8; FRAME_LEN], salt: u32) -> Result<Self, &'static str> {
        if head[..4] != FRAME_MAGIC {
            return Err("no frame where one should start");
        }
        if u32_at(head, 4) != crc32c_append(salt, &head[8..]) {
            return Err("the head of a frame fails its checksum");
        }
        let kind = FrameKind::from_u32(u32_at(head, 20)).ok_or("a frame of unknown kind")?;
        let body_len = u32_at(head, 12) as usize;
        if body_len > kind.max_body_len() {
            return Err("a frame of impossible length");
        }
        Ok(Self {
            kind,
            count: u32_at(head, 16),
            number: u64_at(head, 24),
            body_len,
            body_crc: u32_at(head, 8),
        })
    }

    /// Whether these are the bytes that were written, by their checksum.
    pub(crate) fn fits(&self, body: &[u8], salt: u32) -> bool {
        body.len() == self.body_len && crc32c_append(salt, body) == self.body_crc
    }
}

/// A frame being built; its buffer is reused.
#[derive(Debug, Default)]
pub(crate) struct FrameBuilder {
    bytes: Vec<u8>,
    count: u32,
}

impl FrameBuilder {
    /// Starts a new frame.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(FRAME_LEN, 0);
        self.count = 0;
    }

    /// Adds one counted item to the body.
    pub(crate) fn push(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        self.extend(put);
        self.count += 1;
    }

    /// Adds bytes to the body without counting an item.
    pub(crate) fn extend(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        if self.bytes.is_empty() {
            self.clear();
        }
        put(&mut self.bytes);
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Length of the frame so far, head included.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len().max(FRAME_LEN)
    }

    /// Completes the head and returns the whole frame. Callers keep bodies within
    /// [`FrameKind::max_body_len`].
    pub(crate) fn finish(&mut self, kind: FrameKind, number: u64, salt: u32) -> &[u8] {
        if self.bytes.is_empty() {
            self.clear();
        }
        let (head, body) = self.bytes.split_at_mut(FRAME_LEN);
        let max = kind.max_body_len();
        debug_assert!(body.len() <= max, "a body of {} bytes", body.len());
        head[..4].copy_from_slice(&FRAME_MAGIC);
        head[8..12].copy_from_slice(&crc32c_append(salt, body).to_le_bytes());
        head[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
        head[16..20].copy_from_slice(&self.count.to_le_bytes());
        head[20..24].copy_from_slice(&(kind as u32).to_le_bytes());
        head[24..32].copy_from_slice(&number.to_le_bytes());
        let checksum = crc32c_append(salt, &head[8..]);
        head[4..8].copy_from_slice(&checksum.to_le_bytes());
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::array;
    use crate::packed::tests::unhex;

    const SALT: u32 = 0xdead_beef;

    fn finished() -> Vec<u8> {
        let mut builder = FrameBuilder::default();
        builder.push(|body| body.extend_from_slice(b"ab"));
        builder.push(|body| body.push(b'c'));
        builder.finish(FrameKind::Batch, 9, SALT).to_vec()
    }

    /// The bytes were written by hand from the table, the checksums with the Python package
    /// `crc32c`: `crc32c(bytes, 0xdeadbeef)`.
    #[test]
    fn the_frame_does_not_change() {
        let golden = "5446524d HEAD BODY 03000000 02000000 01000000 0900000000000000 616263"
            .replace("HEAD", HEAD_CHECKSUM)
            .replace("BODY", BODY_CHECKSUM);
        assert_eq!(finished(), unhex(&golden));
    }

    const HEAD_CHECKSUM: &str = "dfa37e97";
    const BODY_CHECKSUM: &str = "ceead985";

    #[test]
    fn every_flipped_bit_of_a_frame_is_noticed() {
        let good = finished();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let noticed = match Frame::decode(&array(&bad, 0), SALT) {
                Err(_) => true,
                Ok(frame) => !frame.fits(&bad[FRAME_LEN..], SALT),
            };
            assert!(noticed, "bit {bit}");
        }
    }

    #[test]
    fn a_frame_under_another_salt_is_none() {
        let frame = finished();
        assert!(Frame::decode(&array(&frame, 0), SALT).is_ok());
        assert!(Frame::decode(&array(&frame, 0), SALT + 1).is_err());
    }

    #[test]
    fn a_hostile_length_is_refused_even_with_the_right_checksum() {
        let mut head: [u8; FRAME_LEN] = array(&finished(), 0);
        head[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        let checksum = crc32c_append(SALT, &head[8..]);
        head[4..8].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(
            Frame::decode(&head, SALT),
            Err("a frame of impossible length")
        );
    }

    #[test]
    fn a_builder_is_used_again() {
        let mut builder = FrameBuilder::default();
        assert_eq!(builder.finish(FrameKind::LogEnd, 9, SALT).len(), FRAME_LEN);
        builder.push(|body| body.push(1));
        builder.clear();
        builder.push(|body| body.extend_from_slice(b"ab"));
        builder.push(|body| body.push(b'c'));
        assert_eq!((builder.count(), builder.len()), (2, FRAME_LEN + 3));
        assert_eq!(builder.finish(FrameKind::Batch, 9, SALT), finished());
    }
}
