//! Options of every suite.

use std::path::PathBuf;

use crate::cleanup;

/// Why a peer is skipped that this program was built without.
pub(crate) const NOT_BUILT_IN: &str =
    "built without it: pass --features peers, or rocksdb for RocksDB";

/// Options of every suite.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Print one JSON object per figure instead of the table; everything else goes to standard
    /// error
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Rounds per figure [default: 3; 5 in `paths`]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Use tiny sizes, to check that a suite works: the figures mean nothing
    #[arg(long, global = true)]
    pub(crate) quick: bool,
    /// Records to store [default: 1,000,000; 10,000,000 in `bulk`, 50,000 in `paths` and
    /// `replicas`, 100,000 in `wire` and `resp`, 12,000,000 in `join --bulk`]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=1 << 31))]
    pub(crate) records: Option<u64>,
    /// The kvd to measure [default: the one beside torc-bench]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kvd: Option<PathBuf>,
    /// The kvctl to load and drive the cluster with [default: the one beside torc-bench]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kvctl: Option<PathBuf>,
    /// Directory for data, which selects the measured disk [default: the system's
    /// temporary directory]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Draw the figures to this directory, which is created if it is missing: one SVG for each
    /// suite or claim, several if one would be too tall
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) plot: Option<PathBuf>,
}

impl Options {
    /// Rounds of everything.
    pub(crate) const fn rounds(&self) -> u16 {
        self.rounds_or(3)
    }

    /// Rounds of everything; `usual` by default.
    pub(crate) const fn rounds_or(&self, usual: u16) -> u16 {
        match self.rounds {
            Some(rounds) => rounds,
            None => usual,
        }
    }

    /// Records to store; `usual` by default.
    pub(crate) fn records_or(&self, usual: u64) -> u64 {
        let usual = if self.quick { usual / 50 } else { usual };
        self.records.unwrap_or(usual)
    }

    /// A new directory that is deleted on drop.
    ///
    /// # Errors
    /// It cannot be created.
    pub(crate) fn scratch(&self) -> std::io::Result<tempfile::TempDir> {
        cleanup::scratch(self.dir.as_deref())
    }
}
