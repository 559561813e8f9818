//! Backups of a cluster, in a directory or in an object store.
//!
//! A backup consists of the slices of nodes. Nodes first flush their memtables, then copy slices
//! into *packs*. Slices never change, so a new backup refers to slices that an earlier one has
//! instead of copying them again.
//!
//! | object | holds |
//! |---|---|
//! | `packs/HEX.pack` | slices; `HEX` is BLAKE3 of its bytes. Laid out as a segment (`store/FORMAT.md`) |
//! | `backups/NAME/plan.json` | what was begun: see [`Plan`] |
//! | `backups/NAME/parts/ID.ndjson` | what one node wrote of some partitions; goes when the backup is whole |
//! | `backups/NAME/manifest.ndjson` | written last: the plan, a line a partition, the sums and the digest of it all |
//! | `restores/CLUSTER-NUMBER/…` | a generation that a restore has built, until the cluster's nodes have fetched it |
//!
//! Invariants:
//! * A backup is complete once its manifest exists. Reading it needs no other backup's manifest.
//! * Objects are created, never changed. Packs are named by their digest, so writing one twice is
//!   harmless; only a damaged one is replaced.
//! * Every byte read is checked against a digest that the manifest leads to, and the manifest and the
//!   plan against their own. The plan is checked before anything is written by it.
//! * The manifest has the number of records of each namespace in each slice. A restore reads only slices
//!   with records of the wanted namespaces.
//! * The record of a key with the highest ballot wins, as in the store. If a node's slices lack
//!   records that a quorum knows, the node adds a slice with them.
//! * Of a static namespace, a backup has the slices of the generation that its plan names, and no others.
//!   A slice without keys can be looked up only with the generation's own digest key, which the plan has.
//!
//! Absent on purpose: requests to nodes to write (the server), and restoring records and generations (the
//! client).

mod error;
mod manifest;
mod pack;
mod prune;
mod read;
mod verify;

pub use error::BackupError;
pub use manifest::{Backup, Generation, Line, Listed, Namespace, PackSlice, Plan, Sums, Writing};
pub use pack::{Known, PackWriter, Part};
pub use prune::{Pruned, RESTORES, prune};
pub use read::{Foreign, PartitionReader, PartitionSlices};
pub use torc_objects::Location;
pub use verify::{Depth, Verified, verify, verify_namespaces};
