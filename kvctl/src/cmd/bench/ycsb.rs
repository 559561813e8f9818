//! YCSB's core workloads.
//!
//! Source: Cooper, Silberstein, Tam, Ramakrishnan, Sears, "Benchmarking cloud serving systems with YCSB", 2010,
//! and the files `workloada` to `workloadf` of its repository.
//!
//! What differs: a value is one string of 1,000 bytes instead of ten fields of 100, and an update
//! writes all of it. Scans follow the order of the ring, so a scan starts at a position derived
//! from its key. Zipf's law chooses among the initial keys.

use super::keys::Law;
use super::workload::Mix;

/// Bytes of a record: ten fields of 100.
pub(super) const VALUE_BYTES: u32 = 1_000;

/// A core workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Core {
    /// Updates: 50 % reads, 50 % updates.
    A,
    /// Mostly reads: 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
    /// Read the latest: 95 % reads, newest keys most, 5 % inserts.
    D,
    /// Short ranges: 95 % scans of 1 to 100 records, 5 % inserts.
    E,
    /// Read-modify-write: 50 % reads, 50 % read-modify-writes.
    F,
}

impl Core {
    pub(super) const fn mix(self) -> Mix {
        match self {
            Self::A => Mix::of(50, 50, 0, 0, 0),
            Self::B => Mix::of(95, 5, 0, 0, 0),
            Self::C => Mix::of(100, 0, 0, 0, 0),
            Self::D => Mix::of(95, 0, 5, 0, 0),
            Self::E => Mix::of(0, 0, 5, 95, 0),
            Self::F => Mix::of(50, 0, 0, 0, 50),
        }
    }

    pub(super) const fn law(self) -> Law {
        match self {
            Self::D => Law::Latest,
            Self::A | Self::B | Self::C | Self::E | Self::F => Law::Zipf,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
        }
    }
}
