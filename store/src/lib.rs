//! Durable storage of one Torc node: commit log, overlay, checkpoint, advisory state.

mod advisory;
mod error;
pub mod fs;
mod options;
mod scan;
mod stats;
mod store;

pub use advisory::Advisory;
pub use error::StoreError;
pub use options::StoreOptions;
pub use scan::{Cursor, CursorError, ScanLimits, ScanPage};
pub use stats::{
    CheckpointReport, DropReport, Histogram, PartitionSummary, Recovery, StoreHealth, StoreStats,
};
pub use store::{Seq, Store};
