//! The interface of every measured store.

use anyhow::Result;
use futures::future::BoxFuture;
use torc_store::Store;

use crate::records::Pair;

/// An open store, used from many threads.
pub(super) trait Engine: Send + Sync {
    /// Stores a record; completes when it is as durable as this store makes it.
    fn put(&self, pair: Pair) -> BoxFuture<'_, Result<()>>;

    /// Stores many records as one batch, as durably.
    fn put_many(&self, pairs: Vec<Pair>) -> Result<()>;

    /// The length of a key's value, which is read.
    fn get(&self, key: &[u8]) -> Result<Option<usize>>;

    /// The number of the keys that exist; reads their values.
    fn get_many(&self, keys: &[&[u8]]) -> Result<usize>;

    /// Does now the work that the store would do in the background after a load.
    fn settle(&self) -> Result<()>;

    /// Torc's store, for measurements that only Torc supports.
    fn torc(&self) -> Option<&Store> {
        None
    }

    /// Closes the store cleanly.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Reads the first and the last byte of a value, as a caller would; returns its length. Stores that
/// return a reference have not read the value yet.
pub(super) fn touched(value: &[u8]) -> usize {
    std::hint::black_box((value.first(), value.last()));
    value.len()
}
