//! Backups of a cluster, in a directory or in an object store.
//!
//! A backup is made of the slices that nodes hold. Nodes copy theirs into *packs*, one after the other; what a
//! node has in memory it flushes first. A slice never changes, so that one which an earlier backup has is not
//! copied again: the new backup names it where it lies.
//!
//! | object | holds |
//! |---|---|
//! | `packs/HEX.pack` | slices; `HEX` is BLAKE3 of its bytes. Laid out as a segment (`store/FORMAT.md`) |
//! | `backups/NAME/plan.json` | what was begun: see [`Plan`] |
//! | `backups/NAME/parts/ID.ndjson` | what one node wrote of some partitions; goes when the backup is whole |
//! | `backups/NAME/manifest.ndjson` | written last: the plan, a line a partition, the sums and the digest of it all |
//!
//! Invariants:
//! * A backup is complete once its manifest exists. Reading it takes no other backup's manifest.
//! * Objects are created, never replaced. Packs are named by their digest: who writes one twice writes the same.
//! * Every byte that is read is checked against a digest that the manifest leads to, and the manifest against its
//!   own.
//! * Of each key the record with the highest ballot counts, as in the store. For a key whose slices lack what a
//!   quorum knows, the node that copies them adds a slice that says so.
//!
//! Absent: asking nodes to write (the server), and putting records back (the client).

mod error;
mod location;
mod manifest;
mod pack;
mod prune;
mod read;
mod verify;

pub use error::BackupError;
pub use location::Location;
pub use manifest::{Backup, Line, Listed, Namespace, PackSlice, Plan, Sums, Writing};
pub use pack::{Known, PackWriter, Part};
pub use prune::{Pruned, prune};
pub use read::PartitionSlices;
pub use verify::{Depth, Verified, verify};
