//! The interface between a replica and its disk.
//!
//! The contract with the edge:
//! * Batches of a replica become durable in the order of their [`Seq`]; each is atomic.
//! * A batch is visible through [`Storage`] only once it is durable. The replica
//!   remembers batches on their way.
//! * After a crash, any prefix of the batches not reported as durable may exist.
//! * A page of a scan never ends between two entries of one (digest, namespace): who goes on
//!   after the last one would pass over the others. There are two only where a record has the
//!   digest of another key.

use torc_record::{Ballot, Epoch, HybridTime, PageSum, Record, State};

use crate::{KeyId, Locator};

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

    /// Whether [`get`](Self::get) of this key does not block on the disk. True if the store
    /// cannot tell.
    fn is_at_hand(&self, at: &Locator) -> bool {
        let _ = at;
        true
    }

    /// Up to `limit` entries after `after`, in ring order; fewer only at the end, or where
    /// more would be too many bytes. Beyond the limit go only those that have the last one's
    /// digest and namespace.
    fn scan(&self, after: Option<KeyId>, limit: usize) -> Scanned;

    /// As [`scan`](Self::scan), but of what was stored up to `since` it may leave out all
    /// that was not replaced later: the tail of a copy that has the slices up to there. What
    /// was collected since then is still in it, for it hides what those slices have.
    fn tail(&self, since: LogPosition, after: Option<KeyId>, limit: usize) -> Scanned {
        let _ = since;
        self.scan(after, limit)
    }

    /// What the page after `after` comes to if it ends with `last`, or with the partition; none
    /// if this is not as many as `most` entries or fewer, each readable and of a key id of its own.
    fn sum_between(&self, after: Option<KeyId>, last: Option<KeyId>, most: u64) -> Option<PageSum> {
        crate::compare::sum_between(self, after, last, most)
    }

    /// The sum of all entries, if it is kept: told at once, without reading one.
    fn kept_sum(&self) -> Option<PageSum> {
        None
    }

    /// Whether a scan, now or before, met a place that cannot be read and of which nobody
    /// knows the key. Such a copy must not pass for a complete one.
    fn is_partial(&self) -> bool {
        false
    }

    /// The sum of a range if it is kept, see [`SumTree`](crate::compare::SumTree); a
    /// store that does not keep sums is read instead.
    fn range_sum(&self, range: crate::compare::Range) -> Option<crate::compare::RangeSum> {
        let _ = range;
        None
    }
}

/// The durable facts of a replica beside its records. About 50 bytes a partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Meta {
    /// Adopted epoch (R1).
    pub epoch: Epoch,
    /// Epoch in which the present membership began; zero: no member.
    pub since: Epoch,
    /// Promises and accepts of the adopted epoch lie below this time (R3).
    pub ceiling: HybridTime,
    /// Everything at or below was identical on all replicas, its tombstones are dropped.
    pub collected: Ballot,
    /// A collection up to here was begun: values that expired by its time are absent.
    pub collecting: Ballot,
}

/// Changes that become durable together. Applied in the order of the fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Drop all records first.
    pub wipe: bool,
    /// Records that replace what is there for their keys, whatever that is.
    pub records: Vec<Record>,
    /// Drop every record of which [`is_collected`] holds.
    pub purge: Option<Ballot>,
    /// The new facts.
    pub meta: Option<Meta>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether a collection up to `collected` drops this version: a tombstone, or a value
/// that had expired by the collection's own time, at or below it.
#[must_use]
pub fn is_collected(ballot: Ballot, state: &State, collected: Ballot) -> bool {
    state.is_collected(ballot, collected)
}
