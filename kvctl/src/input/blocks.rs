//! Reads parts of an object in any order. Fetches whole blocks and keeps the most recent ones.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};
use torc_objects::Object;

use super::object::{begin, wait};

const BLOCK: u64 = 1 << 20;
/// Enough for a page of each column, at the place where its rows are.
const MOST_BLOCKS: usize = 32;

/// An object as Parquet is read from it.
pub(super) struct Blocks {
    object: Arc<Object>,
    kept: Arc<Mutex<VecDeque<(u64, Bytes)>>>,
}

impl Blocks {
    pub(super) fn new(object: Arc<Object>) -> Self {
        let kept = Arc::default();
        Self { object, kept }
    }

    /// The bytes from `at` to the end of their block; empty at the end of the object.
    fn from(&self, at: u64) -> io::Result<Bytes> {
        if at >= self.object.size() {
            return Ok(Bytes::new());
        }
        let start = at - at % BLOCK;
        let mut kept = self.kept.lock();
        let place = kept.iter().position(|(it, _)| *it == start);
        let block = if let Some((_, block)) = place.and_then(|place| kept.remove(place)) {
            block
        } else {
            let range = start..(start + BLOCK).min(self.object.size());
            let object = Arc::clone(&self.object);
            wait(&begin(async move { object.read(range).await })?)?
        };
        kept.truncate(MOST_BLOCKS - 1);
        kept.push_front((start, block.clone()));
        let skip = usize::try_from(at - start).map_err(io::Error::other)?;
        Ok(block.slice(skip.min(block.len())..))
    }
}

impl Length for Blocks {
    fn len(&self) -> u64 {
        self.object.size()
    }
}

/// The bytes from a place on.
pub(super) struct From {
    blocks: Blocks,
    at: u64,
}

impl Read for From {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let block = self.blocks.from(self.at)?;
        let len = block.len().min(to.len());
        to[..len].copy_from_slice(&block[..len]);
        self.at += len as u64;
        Ok(len)
    }
}

impl ChunkReader for Blocks {
    type T = From;

    fn get_read(&self, start: u64) -> Result<From> {
        let blocks = Self {
            object: Arc::clone(&self.object),
            kept: Arc::clone(&self.kept),
        };
        Ok(From { blocks, at: start })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        // Damaged files may say anything.
        let is_there = start
            .checked_add(length as u64)
            .is_some_and(|end| end <= self.object.size());
        if !is_there {
            let what = format!("{length} bytes at {start} are beyond the end");
            return Err(ParquetError::EOF(what));
        }
        let mut bytes = vec![0; length];
        self.get_read(start)?.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}
