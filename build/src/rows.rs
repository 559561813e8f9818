//! Rows in the form in which a run holds them. Any thread can pack them.

use bytes::Bytes;

use crate::shape::{PackedRow, Shape};
use crate::target::Target;

/// Bytes to begin with.
const USUAL_BYTES: usize = 64 << 10;

/// Packed rows for one build, in order: see [`Build::rows`](crate::Build::rows).
#[derive(Debug)]
pub struct PackedRows {
    pub(crate) shape: Shape,
    pub(crate) target: Target,
    /// Concatenated.
    pub(crate) bytes: Vec<u8>,
    rows: u64,
    /// Bytes of their keys and values, also of those that are not kept.
    given_bytes: u64,
}

impl PackedRows {
    pub(crate) fn new(shape: Shape, target: Target) -> Self {
        Self {
            shape,
            target,
            bytes: Vec::with_capacity(USUAL_BYTES),
            rows: 0,
            given_bytes: 0,
        }
    }

    /// No rows yet, for the same build.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::new(self.shape, self.target)
    }

    /// Adds a row. About 0.2 us, most of it for the digest.
    ///
    /// # Errors
    /// Why it is not a row of this build. It was not added, and others can be.
    pub fn push(&mut self, key: Bytes, value: Bytes) -> Result<(), String> {
        self.push_expiring(key, value, None)
    }

    /// As [`push`](Self::push), with a time at which the value expires, in Unix milliseconds: only for an ordinary
    /// namespace.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_expiring(
        &mut self,
        key: Bytes,
        value: Bytes,
        expires_at_ms: Option<u64>,
    ) -> Result<(), String> {
        let given = (key.len() + value.len()) as u64;
        let (shape, target) = (self.shape, &self.target);
        shape.pack(target, (key, value, expires_at_ms), &mut self.bytes)?;
        self.rows += 1;
        self.given_bytes += given;
        Ok(())
    }

    /// Number of rows.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.rows
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Bytes of their keys and values.
    #[must_use]
    pub const fn given_bytes(&self) -> u64 {
        self.given_bytes
    }

    /// Each row, parsed and as bytes.
    pub(crate) fn iter(
        &self,
    ) -> impl Iterator<Item = Result<(PackedRow<'_>, &[u8]), &'static str>> {
        let (shape, mut rest) = (self.shape, &self.bytes[..]);
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let row = match shape.row(rest) {
                Ok(row) => row,
                Err(what) => return Some(Err(what)),
            };
            let (bytes, after) = rest.split_at(row.len());
            rest = after;
            Some(Ok((row, bytes)))
        })
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.rows = 0;
        self.given_bytes = 0;
    }
}
