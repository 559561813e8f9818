//! Pages and sums of a partition: what scans return.
//!
//! A scan proceeds in (digest, namespace, key) order, which is ring order. It is not a snapshot:
//! each page shows the records at the time of reading. A change behind the cursor has a sequence
//! number above the [`last_seq`](crate::Store::last_seq) read before the scan began, so
//! [`scan_since`](crate::Store::scan_since) finds it.

use std::collections::BTreeSet;

use torc_record::{Epoch, Locator, PageSum, Record};

/// Limits of one page of a scan. A page has at least one record if there is one, so a scan always
/// makes progress. A page never ends between two keys of one digest, even if that exceeds its
/// limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanLimits {
    /// Limit on the records.
    pub records: usize,
    /// Limit on the bytes of the records as stored.
    pub bytes: usize,
}

impl Default for ScanLimits {
    /// 1,024 records and 1 MiB.
    fn default() -> Self {
        Self {
            records: 1024,
            bytes: 1 << 20,
        }
    }
}

/// One page of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanPage {
    /// Records in ring order, tombstones included.
    pub records: Vec<Record>,
    /// Where to continue; `None` when `done`.
    pub next: Option<Locator>,
    /// Whether the end of the partition was reached.
    pub done: bool,
}

/// The records of a page that a filter kept, and the sum of all records of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilteredPage {
    /// As from [`Store::scan`](crate::Store::scan), without the records that the filter dropped.
    pub page: ScanPage,
    /// The sum of all its records, dropped ones included.
    pub sum: PageSum,
    /// The epochs in the ballots of the dropped records.
    pub left_out: BTreeSet<Epoch>,
}

/// A page of readable records.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReadablePage {
    /// The page, as from [`Store::scan`](crate::Store::scan).
    pub page: ScanPage,
    /// Whether unreadable records were left out.
    pub is_partial: bool,
}

/// The sum of the versions in a range, which replicas compare.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RangeSum {
    /// Number of versions, tombstones included.
    pub count: u64,
    /// Sum of [`entry_sum`](torc_record::entry_sum), modulo 2^128.
    pub sum: u128,
}
