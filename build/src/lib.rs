//! Builds a *generation*, the whole content of a static namespace, outside the cluster.
//!
//! A [`Build`] takes any number of rows in any order, with bounded memory, and creates a directory
//! with a [`Manifest`] and files of slices, which keep keys and values, or less ([`Shape`]). Two passes: rows
//! are *scattered* to buckets, each a range of partitions, on disk; then each bucket is *gathered*:
//! read, sorted, and its slices written with their Bloom gates and minimal perfect hashes. A
//! [`Generation`] answers from such a directory.
//!
//! Invariants:
//! * Slices depend on the rows and the [`Target`] alone, and files also on the plan; not on the
//!   order of rows, the number of workers, or how often the build was killed. Each file is named by the
//!   digest of its bytes.
//! * The manifest is written last. A directory without one is not a generation.
//! * `plan.json` holds the decisions of the start; a build that continues after a kill reads
//!   them. `journal.ndjson` holds the progress: a line per step, written once a kill cannot undo the
//!   step. A build whose rows a crash of the machine cut off starts over.
//! * No row can get lost unnoticed: the build sums rows, bytes, fingerprints and checksums while
//!   it reads, and compares the sums after it has written.
//! * [`BuildOptions`] limit the memory, approximately: a single partition that is larger is
//!   refused.
//!
//! With the feature `objects`, a `Published` generation has its files in an object store: files under their
//! digests, replaced only if they are damaged, then a manifest with a number and a part of its digest in its
//! name. Which manifest is current is not known there: the cluster knows it.
//!
//! With it, and if one machine is not enough, an engine does the first pass: it sends all rows of a bucket to
//! one `Task`, which does the rest for its buckets, and a [`Plan`] commits the tasks' `Receipt`s.
//!
//! Absent on purpose: formats of rows (callers parse them), and clocks; without that feature, the network.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! use torc_build::{Answer, Build, BuildOptions, Generation, Target};
//!
//! let mut build = Build::create(dir.path(), Target::offline([7; 32]), BuildOptions::default())?;
//! build.push("https://example.org/".into(), "{}".into())?;
//! let manifest = build.finish(|_| ())?;
//! assert_eq!(manifest.records, 1);
//!
//! let generation = Generation::open(dir.path())?;
//! assert_eq!(generation.get(b"https://example.org/")?, Answer::Value("{}".into()));
//! assert_eq!(generation.get(b"https://example.org/other")?, Answer::Absent);
//! # Ok(())
//! # }
//! ```

mod build;
mod copied;
mod error;
mod gather;
mod generation;
mod journal;
mod manifest;
#[cfg(feature = "objects")]
mod objects;
mod options;
mod plan;
mod rows;
mod scatter;
mod shape;
mod sums;
mod target;
#[cfg(feature = "objects")]
mod task;

pub use build::{Build, Progress, lock};
pub use copied::Copied;
pub use error::BuildError;
pub use generation::{Answer, Depth, Generation};
pub use manifest::{FileEntry, Manifest, SliceEntry};
#[cfg(feature = "objects")]
pub use objects::Published;
pub use options::BuildOptions;
pub use plan::{Duplicates, Plan};
pub use rows::PackedRows;
pub use shape::Shape;
pub use sums::Sums;
pub use target::Target;
#[cfg(feature = "objects")]
pub use task::{Receipt, Task};

/// The file that makes a directory a generation.
pub const MANIFEST_FILE: &str = "generation.json";

/// The location that a URL of a generation names, and the manifest there. A URL names either the manifest
/// (`…/NAME.json`), or the location of `generation.json`.
#[must_use]
pub fn source_of(url: &str) -> (&str, &str) {
    match url.rsplit_once('/') {
        Some((location, name)) if name.strip_suffix(".json").is_some() => (location, name),
        _ => (url, MANIFEST_FILE),
    }
}

const PLAN_FILE: &str = "plan.json";
const LOCK_FILE: &str = "lock";
const JOURNAL_FILE: &str = "journal.ndjson";
/// Buckets on their way, below the directory.
const RUNS_DIR: &str = "runs";
