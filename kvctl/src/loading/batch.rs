//! Groups rows into batches. Pure.

use std::collections::HashSet;

use bytes::Bytes;

use crate::format::{Numbered, Row};

/// When a batch is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchLimits {
    /// Most rows, at least 1.
    pub(crate) rows: usize,
    /// Keys and values, bytes. A single row may be larger.
    pub(crate) payload_bytes: usize,
}

/// Rows that are stored together, none of them of the same key. Never empty.
#[derive(Debug)]
pub(crate) struct Batch {
    rows: Vec<Numbered>,
}

impl Batch {
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.rows.iter().map(|numbered| &numbered.row.key)
    }

    /// Copies of the rows; the bytes are shared.
    pub(crate) fn rows(&self) -> Vec<Row> {
        self.rows
            .iter()
            .map(|numbered| numbered.row.clone())
            .collect()
    }

    pub(crate) fn into_rows(self) -> impl Iterator<Item = Numbered> {
        self.rows.into_iter()
    }

    pub(crate) fn first_line(&self) -> u64 {
        self.rows.first().map_or(1, |numbered| numbered.line)
    }
}

/// Collects rows until a batch is full or a key repeats.
#[derive(Debug)]
pub(super) struct Batcher {
    limits: BatchLimits,
    rows: Vec<Numbered>,
    keys: HashSet<Bytes>,
    payload_bytes: usize,
}

impl Batcher {
    pub(super) fn new(limits: BatchLimits) -> Self {
        Self {
            limits,
            rows: Vec::new(),
            keys: HashSet::new(),
            payload_bytes: 0,
        }
    }

    /// Adds a row. If it does not fit, returns the full batch and starts the next with
    /// the row.
    pub(super) fn push(&mut self, row: Numbered) -> Option<Batch> {
        let len = row.row.key.len() + row.row.value.len();
        let fits = self.rows.len() < self.limits.rows
            && self.payload_bytes + len <= self.limits.payload_bytes
            && !self.keys.contains(&row.row.key);
        let full = if fits { None } else { self.take() };
        self.keys.insert(row.row.key.clone());
        self.rows.push(row);
        self.payload_bytes += len;
        full
    }

    /// Takes the current batch, full or not.
    pub(super) fn take(&mut self) -> Option<Batch> {
        if self.rows.is_empty() {
            return None;
        }
        self.keys.clear();
        self.payload_bytes = 0;
        let capacity = self.rows.len();
        let rows = std::mem::replace(&mut self.rows, Vec::with_capacity(capacity));
        Some(Batch { rows })
    }

    pub(super) fn first_line(&self) -> Option<u64> {
        self.rows.first().map(|numbered| numbered.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: u64, key: &str, value_len: usize) -> Numbered {
        Numbered {
            line,
            row: Row {
                key: Bytes::copy_from_slice(key.as_bytes()),
                value: Bytes::from(vec![b'v'; value_len]),
                expires_at_ms: None,
            },
        }
    }

    fn lines(batch: Option<Batch>) -> Vec<u64> {
        batch.map_or_else(Vec::new, |batch| {
            batch.into_rows().map(|n| n.line).collect()
        })
    }

    fn batcher() -> Batcher {
        Batcher::new(BatchLimits {
            rows: 3,
            payload_bytes: 100,
        })
    }

    #[test]
    fn a_batch_is_full_by_rows() {
        let mut batcher = batcher();
        for (line, key) in [(1, "a"), (2, "b"), (3, "c")] {
            assert!(batcher.push(row(line, key, 1)).is_none());
        }
        assert_eq!(lines(batcher.push(row(4, "d", 1))), [1, 2, 3]);
        assert_eq!(lines(batcher.take()), [4]);
        assert!(batcher.take().is_none());
    }

    #[test]
    fn a_batch_is_full_by_bytes_and_one_large_row_is_a_batch() {
        let mut batcher = batcher();
        assert!(batcher.push(row(1, "a", 1000)).is_none());
        assert_eq!(lines(batcher.push(row(2, "b", 50))), [1]);
        assert!(batcher.push(row(3, "c", 48)).is_none());
        assert_eq!(lines(batcher.push(row(4, "d", 0))), [2, 3]);
    }

    #[test]
    fn a_key_that_comes_again_begins_the_next_batch() {
        let mut batcher = batcher();
        assert!(batcher.push(row(1, "a", 1)).is_none());
        assert_eq!(lines(batcher.push(row(2, "a", 1))), [1]);
        assert_eq!(lines(batcher.push(row(3, "a", 1))), [2]);
        assert_eq!(batcher.first_line(), Some(3));
    }
}
