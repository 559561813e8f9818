//! The interface between a replica and its disk.
//!
//! The contract with the edge, beside that of [`ReplicaBatch`](torc_record::ReplicaBatch):
//! * A batch is visible through [`Storage`] only once it is durable. The replica
//!   remembers batches on their way.
//! * A page of a scan never ends between two entries of one (digest, namespace): continuing after
//!   the last one would skip the others. There are two only if a record has the digest of another
//!   key.

use torc_record::{PageSum, Record};

use crate::range::{Range, RangeSum};
use crate::{KeyId, Locator};

/// Entries to read at a time for a sum.
const SUM_PAGE: usize = 1_024;

/// Number of a batch of one replica since its start. 0 is "nothing": always durable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seq(pub u64);

/// A position in a disk's log. Later records have higher positions. Meaningless to
/// another disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition(pub u64);

/// The result of a lookup on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// Nothing, for certain.
    Absent,
    /// This version.
    Found(Record),
    /// A record that fails its checksum: unknown, never absent (R9).
    Unreadable,
}

/// An entry met by a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A record, tombstones included.
    Found(Record),
    /// A record that fails its checksum.
    Unreadable(Locator),
}

impl Entry {
    /// The key it is about.
    #[must_use]
    pub fn id(&self) -> KeyId {
        match self {
            Self::Found(record) => KeyId::of(record),
            Self::Unreadable(locator) => locator.id(),
        }
    }
}

/// A page of entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scanned {
    /// In ring order.
    pub entries: Vec<Entry>,
    /// Whether this is the end.
    pub done: bool,
}

impl Scanned {
    /// The page of a store that is limited by the number of entries alone.
    #[must_use]
    pub fn of(entries: Vec<Entry>, limit: usize) -> Self {
        let done = entries.len() < limit;
        Self { entries, done }
    }

    /// The last entry's key, to continue after it; `None` at the end.
    #[must_use]
    pub fn next(&self) -> Option<KeyId> {
        let last = self.entries.last().filter(|_| !self.done);
        last.map(Entry::id)
    }
}

/// The durable records of one partition.
pub trait Storage {
    /// The entry of a key.
    fn get(&self, at: &Locator) -> Lookup;

    /// Whether [`get`](Self::get) of this key does not block on the disk. True if the store cannot
    /// tell.
    fn is_at_hand(&self, at: &Locator) -> bool {
        let _ = at;
        true
    }

    /// Up to `limit` entries after `after`, in ring order; fewer only at the end, or where more
    /// would be too many bytes. Exceeds the limit only for entries with the last one's digest and
    /// namespace.
    fn scan(&self, after: Option<KeyId>, limit: usize) -> Scanned;

    /// As [`scan`](Self::scan), but may leave out records stored up to `since`, unless they were
    /// replaced later: the tail of a copy that has the slices up to there. Includes records
    /// collected since then, because they hide versions in those slices.
    fn tail(&self, since: LogPosition, after: Option<KeyId>, limit: usize) -> Scanned {
        let _ = since;
        self.scan(after, limit)
    }

    /// The sum of the page after `after`, if it ends with `last` or with the partition. `None` if
    /// it has more than `most` entries, or if an entry is unreadable or shares its key id with
    /// another.
    fn sum_between(&self, after: Option<KeyId>, last: Option<KeyId>, most: u64) -> Option<PageSum> {
        let (mut after, mut sum) = (after, PageSum::default());
        loop {
            let scanned = self.scan(after, SUM_PAGE);
            after = scanned.next();
            for entry in &scanned.entries {
                let id = entry.id();
                if last.is_some_and(|last| id > last) {
                    return Some(sum);
                }
                let Entry::Found(record) = entry else {
                    return None;
                };
                if !sum.add(id, record.ballot) || sum.count > most {
                    return None;
                }
            }
            if after.is_none() {
                return Some(sum);
            }
        }
    }

    /// The sum of all entries, if it is kept up to date: returned at once, without reading.
    fn kept_sum(&self) -> Option<PageSum> {
        None
    }

    /// Whether this key is stored under the digest of another one. Such a record is never
    /// reconciled, so a replica must not wait until all replicas hold it. Only the storage knows
    /// the key of the digests.
    fn is_foreign(&self, at: &Locator) -> bool {
        let _ = at;
        false
    }

    /// Whether a scan, now or earlier, met an unreadable place with an unknown key. Such a copy
    /// must not be mistaken for a complete one.
    fn is_partial(&self) -> bool {
        false
    }

    /// The sum of a range if it is kept up to date, see [`SumTree`](crate::range::SumTree);
    /// otherwise the range is read.
    fn range_sum(&self, range: Range) -> Option<RangeSum> {
        let _ = range;
        None
    }
}
