//! Durable storage of one Torc node: commit log, memtable, slices, scratch store.
//!
//! A [`Store`] holds the records of a node. A write goes to the commit log, is synced
//! together with what else was waiting, then shows in the memtable, an ordered map in
//! memory. A flush turns the memtable into slices, one a partition, and cuts the log: a sealed
//! record costs two to three bytes of memory, and reading it one read of the file. Compaction keeps
//! the slices of a partition few. Opening reads the indexes of the slices, then the log.
//! Slices move byte for byte to other nodes, which ingest them. [`Scratch`] keeps what a node may
//! lose. All files are reached through [`fs::Fs`].
//!
//! Invariants:
//! * What is acknowledged is on the disk; what is read is on the disk.
//! * Versions are ordered by ballot alone; the order in which they come does not matter.
//! * Bytes that are not what was written are reported with file and offset, never skipped
//!   and never served; a key that damage may concern is refused, never called absent. The one
//!   exception is the last batch of a log that was not closed: a torn one is cut, for it was
//!   never acknowledged, and [`LogTail`] says so.
//! * What a sync that failed left in the page cache is written again before it is served.
//! * A failed sync stops the store for good. A full disk only stops writes, until there is
//!   room.
//! * Memory is bounded: the memtable by its limit, at which writes wait for a flush, the queue
//!   of writes by its own, every length read from a file or a peer before it is used.
//! * Flushes and compactions keep to their rate limits, and no read waits for them.
//!
//! ```
//! # async fn example(dir: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
//! use torc_record::{Ballot, Digest, DigestKey, Key, NamespaceId, Record, State};
//! use torc_store::{Store, StoreOptions};
//!
//! let (store, recovery) = Store::open(StoreOptions::new(dir))?;
//! println!("{} records in {} s", recovery.records, recovery.seconds);
//!
//! let namespace = NamespaceId::DEFAULT;
//! let digest = Digest::of(&DigestKey([0; 32]), namespace, b"key");
//! let state = State::Value { value: "value".into(), expires_at_ms: None };
//! let ballot = Ballot::default();
//! store.write(Record { namespace, digest, key: Key::new("key")?, ballot, origin: None, state }).await?;
//! assert!(store.get(namespace, &digest, b"key")?.is_some());
//! store.close().await?;
//! # Ok(())
//! # }
//! # let dir = tempfile::tempdir().unwrap();
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(example(dir.path())).unwrap();
//! ```
//!
//! Absent on purpose: which node holds what (`torc-ring`), quorums and promises
//! (`torc-replication`), clocks beyond measuring, the network. There is no transaction over
//! several keys: a batch is atomic in the log, not for readers.

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
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod threads;
mod trace;

pub use commit::{Applied, LogSync};
pub use error::StoreError;
pub use ingest::{Ingest, SealedPartition, SealedSlice, SliceInfo};
pub use options::StoreOptions;
pub use partition::{PartitionBatch, PartitionMeta};
pub use repair::{ReadablePage, ScrubReport, Unreadable};
pub use replica::RangeSum;
pub use scan::{Cursor, CursorError, ScanLimits, ScanPage};
pub use scratch::{Pairs, Scratch};
pub use seq::Seq;
pub use stats::{
    CompactionReport, DropReport, FlushReport, Histogram, LogTail, PartitionSummary, Recovery,
    SliceStats, StoreHealth, StoreStats,
};
pub use store::{CompactionHold, Store};
pub use trace::{SliceTrace, Trace, Verdict};
