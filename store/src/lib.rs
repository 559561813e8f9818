//! Durable storage of one Torc node: commit log, memtable, slices, scratch store.
//!
//! A [`Store`] holds the records of a node. A write goes to the commit log, is synced together with
//! other waiting writes, and then becomes visible in the memtable, an ordered map in memory. A
//! flush turns the memtable into slices, one per partition, and cuts the log: a sealed record takes
//! two to three bytes of memory, and reading it takes one read of the file. Compaction keeps the
//! number of slices per partition small. Opening reads the indexes of the slices, then the log.
//! Slices are copied byte for byte to other nodes, which ingest them. [`Scratch`] keeps state that
//! a node can lose. All file access goes through [`fs::Fs`].
//!
//! Invariants:
//! * Acknowledged writes are on disk, and reads return only data that is on disk.
//! * Versions are ordered by ballot alone; their order of arrival does not matter.
//! * Corrupt bytes are reported with file and offset, never skipped and never served. A
//!   read of a key that damage may affect fails; it never reports the key as absent. The one
//!   exception is the last batch of a log that was not closed: a torn one is cut, because it
//!   was never acknowledged, and [`LogTail`] reports it.
//! * Data that a failed sync left in the page cache is written again before it is served.
//! * A failed sync stops the store for good. A full disk only stops writes, until there
//!   is space.
//! * Memory is bounded: the memtable and the writes on their way to it share a limit, beyond which
//!   writes are refused, and every length read from a file or a peer is checked before use.
//! * Flushes and compactions obey their rate limits, and no read waits for them.
//!
//! ```
//! # async fn example(dir: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
//! use torc_record::{Ballot, Digest, DigestKey, Key, Locator, NamespaceId, Record, ReplicaBatch, State};
//! use torc_ring::Token;
//! use torc_store::{Store, StoreOptions};
//!
//! let (store, recovery) = Store::open(StoreOptions::new(dir))?;
//! println!("{} records in {} s", recovery.records, recovery.seconds);
//!
//! let namespace = NamespaceId::DEFAULT;
//! let digest = Digest::of(&DigestKey([0; 32]), namespace, b"key");
//! let state = State::Value { value: "value".into(), expires_at_ms: None };
//! let ballot = Ballot::default();
//! let record = Record { namespace, digest, key: Key::new("key")?, ballot, origin: None, state };
//! let partition = StoreOptions::new(dir).partitions.holding(namespace, Token::of(&digest));
//! let at = Locator::of(&record);
//! let batch = ReplicaBatch { records: vec![record], ..ReplicaBatch::default() };
//! let (done, outcome) = tokio::sync::oneshot::channel();
//! store.apply(partition, batch, |applied| drop(done.send(applied)))?;
//! outcome.await??;
//! assert!(store.get(at.borrowed())?.is_some());
//! store.close().await?;
//! # Ok(())
//! # }
//! # let dir = tempfile::tempdir().unwrap();
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(example(dir.path())).unwrap();
//! ```
//!
//! Deliberately not here: placement (`torc-ring`), quorums and promises
//! (`torc-replication`), clocks beyond measuring, the network. There are no transactions
//! over several keys: a batch is atomic in the log, not for readers.

#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "tests count small numbers"
    )
)]

pub mod bulk;
mod commit;
mod compaction;
mod counters;
mod directory;
mod error;
mod flush;
mod format;
pub mod fs;
mod generations;
mod health;
mod ingest;
mod log;
mod manifest;
mod meta;
mod options;
mod packed;
mod partition;
mod partition_table;
mod publish;
mod recovery;
mod repair;
mod replica;
mod requests;
mod room;
mod scan;
mod scratch;
mod segment;
mod seq;
mod shared;
mod slice;
mod stats;
mod store;
mod stored;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod threads;
mod trace;

pub use commit::{Applied, LogSync};
pub use error::StoreError;
pub use ingest::{Ingest, SealedPartition, SealedSlice, SliceInfo};
pub use options::StoreOptions;
pub use repair::{ScrubReport, Unreadable};
pub use scan::{FilteredPage, RangeSum, ReadablePage, ScanLimits, ScanPage};
pub use scratch::{Pairs, Scratch};
pub use seq::Seq;
pub use stats::{
    CompactionReport, FlushReport, Histogram, LogTail, PartitionSummary, Recovery, SliceStats,
    StoreHealth, StoreStats,
};
pub use store::{CompactionHold, Store};
pub use threads::lower_priority;
pub use trace::{SliceTrace, Trace, Verdict};
