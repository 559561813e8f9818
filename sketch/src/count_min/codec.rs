//! The bytes of a count-min sketch, on the wire and on disk.
//!
//! ```text
//! offset  bytes  what, little-endian
//!      0      4  "TCMS"
//!      4      1  version, 1
//!      5      1  logarithm of the width, 1 to 26
//!      6      1  depth, 1 to 32
//!      7      1  0
//!      8      8  seed
//!     16      8  total, signed
//!     24      …  the counters, row by row
//! ```
//!
//! A counter is encoded as zigzag LEB128. A run of zero counters is a byte 0 and the length of the
//! run minus one, as LEB128. A dense sketch takes 1 to 3 bytes per counter, an empty one 30 bytes.
//! The fixed part does not change within a version; other versions are refused.
//!
//! Bytes are checked before use: the caller limits the number of counters, rows must sum to the
//! total (so a changed counter is detected), and nothing may follow.

use super::{CountMin, Shape};
use crate::bytes::{Reader, put_varint, unzigzag, zigzag};

const MAGIC: [u8; 4] = *b"TCMS";
const VERSION: u8 = 1;

/// Why bytes are not a sketch. Nothing was created; fetch them again from their source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// They begin differently.
    #[error("these bytes are not what they should be: they begin differently")]
    Magic,
    /// Written by a later version: upgrade this node.
    #[error("format version {found} is not known here, only {VERSION}")]
    Version {
        /// The version.
        found: u8,
    },
    /// More counters than the caller accepts, or an impossible shape.
    #[error("2^{width_log2} by {depth} counters, and at most {limit} are taken")]
    TooLarge {
        /// From the bytes.
        width_log2: u8,
        /// From the bytes.
        depth: u8,
        /// The caller's limit.
        limit: usize,
    },
    /// Truncated, followed by other bytes, or inconsistent.
    #[error("the bytes are damaged: {what}")]
    Damaged {
        /// The problem.
        what: &'static str,
    },
}

const CUT_OFF: DecodeError = DecodeError::Damaged {
    what: "they end too early",
};

impl CountMin {
    /// Appends the bytes of the sketch. About 2 ns per counter.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, self.shape.width_log2(), self.shape.depth(), 0]);
        out.extend_from_slice(&self.seed.to_le_bytes());
        out.extend_from_slice(&self.total.to_le_bytes());
        let mut rest = self.counters.as_slice();
        while let Some(&counter) = rest.first() {
            let zeros = rest.iter().take_while(|&&counter| counter == 0).count();
            put_varint(out, zigzag(counter));
            if zeros > 0 {
                put_varint(out, zeros as u64 - 1);
            }
            rest = &rest[zeros.max(1)..];
        }
    }

    /// Reads the output of [`CountMin::encode`], if it has at most `max_counters` counters.
    /// Allocates at most that many, whatever the bytes say.
    ///
    /// # Errors
    /// [`DecodeError`]; nothing was created.
    pub fn decode(bytes: &[u8], max_counters: usize) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.array() != Some(MAGIC) {
            return Err(DecodeError::Magic);
        }
        let [version, width_log2, depth, reserved] = reader.array().ok_or(CUT_OFF)?;
        if version != VERSION || reserved != 0 {
            return Err(DecodeError::Version { found: version });
        }
        let shape = Shape::new(width_log2, depth).ok();
        let shape = shape.filter(|shape| shape.counters() <= max_counters);
        let limit = max_counters;
        let shape = shape.ok_or(DecodeError::TooLarge {
            width_log2,
            depth,
            limit,
        })?;
        let seed = reader.u64().ok_or(CUT_OFF)?;
        let total = reader.u64().ok_or(CUT_OFF)?.cast_signed();
        let mut sketch = Self::new(shape, seed);
        sketch.total = total;
        sketch.read_counters(&mut reader)?;
        sketch.check_sums()?;
        Ok(sketch)
    }

    fn read_counters(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut rest = self.counters.as_mut_slice();
        while let Some(counter) = rest.first_mut() {
            *counter = unzigzag(reader.varint().ok_or(CUT_OFF)?);
            let mut filled = 1;
            if *counter == 0 {
                let more = reader.varint().ok_or(CUT_OFF)?;
                let more = usize::try_from(more).ok().filter(|&more| more < rest.len());
                let what = "more zeros than counters";
                filled += more.ok_or(DecodeError::Damaged { what })?;
            }
            rest = &mut rest[filled..];
        }
        if !reader.is_empty() {
            return Err(DecodeError::Damaged {
                what: "something follows",
            });
        }
        Ok(())
    }

    fn check_sums(&self) -> Result<(), DecodeError> {
        let sum = |row: &[i64]| {
            row.iter()
                .fold(0_i64, |sum, &counter| sum.wrapping_add(counter))
        };
        let mut rows = self.counters.chunks_exact(self.shape.width());
        if rows.all(|row| sum(row) == self.total) {
            return Ok(());
        }
        Err(DecodeError::Damaged {
            what: "a row does not sum to the total",
        })
    }
}
