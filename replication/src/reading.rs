//! Long reads: pages, sums, comparisons.
//!
//! A replica never reads a stretch of its disk in a step, because others would wait. It
//! requests the read, with its epoch; the edge [runs](Reading::run) it in the background and
//! delivers the [`Readout`]. The result counts only if the replica is still in that epoch: a
//! page then has everything accepted in earlier epochs, because they ended before the read.

use torc_record::{Ballot, Epoch, PageSum, Record, entry_sum};
use torc_ring::NodeId;

use crate::compare::{self, Listing, RangeSum};
use crate::{
    Entry, KeyId, KnownPage, Locator, LogPosition, Lookup, Message, Mutation, Mutations, Scanned,
    Seq, Storage, Tag,
};

/// A read from one partition's disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    pub(crate) epoch: Epoch,
    pub(crate) collected: Ballot,
    pub(crate) page_records: usize,
    pub(crate) mutations: Mutations,
    /// The requester.
    pub(crate) peer: NodeId,
    pub(crate) what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Page {
        tag: Tag,
        after: Option<KeyId>,
        since: Option<LogPosition>,
        known: Option<KnownPage>,
    },
    /// The sum of the versions at or below a ballot, once `after` is durable.
    Sum {
        after: Seq,
        upto: Ballot,
    },
    /// The sum of everything, to start a comparison.
    All,
    Ranges(Vec<RangeSum>),
    Listing(Listing),
}

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readout {
    pub(crate) epoch: Epoch,
    pub(crate) peer: NodeId,
    pub(crate) found: Found,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Page {
        tag: Tag,
        after: Option<KeyId>,
        since: Option<LogPosition>,
        known: Option<KnownPage>,
        /// The watermark at the time of the request.
        collected: Ballot,
        held: HeldPage,
    },
    Sum {
        after: Seq,
        upto: Ballot,
        sum: Option<u128>,
        /// The first expiry of all values, Unix milliseconds.
        first_expiry_ms: u64,
        unreadable: Option<Locator>,
    },
    Answers(Vec<Message>),
    /// The keys that differ, and whether the record here is unreadable.
    Differences(Vec<(Locator, bool)>),
}

/// A replica's page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HeldPage {
    /// Equal to the requester's.
    Same,
    Entries(Scanned),
    /// Incomplete, with unknown gaps.
    Partial,
}

impl Reading {
    /// Whether a caller waits for it: a page of a scan.
    #[must_use]
    pub fn is_for_a_caller(&self) -> bool {
        matches!(self.what, What::Page { tag, .. } if tag != Tag::default())
    }

    /// Whether two replicas are being compared.
    #[must_use]
    pub const fn is_of_comparison(&self) -> bool {
        matches!(self.what, What::All | What::Ranges(_) | What::Listing(_))
    }

    /// The result without reading, if possible: by the sum of the whole partition, which the disk keeps
    /// up to date.
    #[must_use]
    pub fn at_once(&self, disk: &impl Storage) -> Option<Readout> {
        let kept = || disk.kept_sum().filter(|_| !disk.is_partial());
        let whole = || {
            kept().map(|kept| RangeSum {
                range: compare::Range::ALL,
                count: kept.count,
                sum: kept.sum,
            })
        };
        let found = match &self.what {
            What::Page {
                tag,
                after: None,
                since: None,
                known: Some(known @ KnownPage { next: None, .. }),
            } if self.fits(*known, kept()?) => Found::Page {
                tag: *tag,
                after: None,
                since: None,
                known: Some(*known),
                collected: self.collected,
                held: HeldPage::Same,
            },
            What::All => Found::Answers(vec![Message::Compare {
                collected: self.collected,
                sums: vec![whole()?],
            }]),
            What::Ranges(theirs) if theirs[..] == [whole()?] => Found::Answers(Vec::new()),
            _ => return None,
        };
        Some(Readout {
            epoch: self.epoch,
            peer: self.peer,
            found,
        })
    }

    /// Reads; blocks on the disk.
    #[must_use]
    pub fn run(self, disk: &impl Storage) -> Readout {
        let found = match self.what {
            What::Page {
                tag,
                after,
                since,
                known,
            } => {
                let known = known.filter(|_| since.is_none());
                let held = match (since, known) {
                    (_, Some(known)) if self.is_same(after, known, disk) => HeldPage::Same,
                    (Some(since), _) => {
                        HeldPage::Entries(disk.tail(since, after, self.page_records))
                    }
                    (None, _) => HeldPage::Entries(disk.scan(after, self.page_records)),
                };
                Found::Page {
                    tag,
                    after,
                    since,
                    known,
                    collected: self.collected,
                    held: if disk.is_partial() {
                        HeldPage::Partial
                    } else {
                        held
                    },
                }
            }
            What::Sum { after, upto } => {
                let mut first_expiry_ms = u64::MAX;
                let (sum, unreadable) = self.sum_upto(upto, disk, &mut first_expiry_ms);
                Found::Sum {
                    after,
                    upto,
                    sum,
                    first_expiry_ms,
                    unreadable,
                }
            }
            What::All => Found::Answers(vec![Message::Compare {
                collected: self.collected,
                sums: vec![compare::sum_of(compare::Range::ALL, disk)],
            }]),
            What::Ranges(ref theirs) => Found::Answers(self.answers(theirs, disk)),
            What::Listing(ref theirs) => {
                let different = compare::differences(theirs, disk).into_iter();
                let differences = different.map(|at| {
                    let rewrite = disk.get(&at) == Lookup::Unreadable;
                    (at, rewrite)
                });
                Found::Differences(differences.collect())
            }
        };
        Readout {
            epoch: self.epoch,
            peer: self.peer,
            found,
        }
    }

    /// Whether a page equals the requester's, by its sum: any added, missing or changed entry
    /// changes it.
    fn is_same(&self, after: Option<KeyId>, known: KnownPage, disk: &impl Storage) -> bool {
        let held = disk.sum_between(after, known.next, known.count);
        held.is_some_and(|held| self.fits(known, held))
    }

    fn fits(&self, known: KnownPage, held: PageSum) -> bool {
        let is_equal = known.sum == held.sum || self.mutations.has(Mutation::ScanSameByCount);
        known.count == held.count && is_equal
    }

    /// The sum over the versions at or below `upto` that are not collected yet; `None` if one is
    /// unreadable.
    fn sum_upto(
        &self,
        upto: Ballot,
        disk: &impl Storage,
        first_expiry_ms: &mut u64,
    ) -> (Option<u128>, Option<Locator>) {
        let (mut sum, mut after) = (0_u128, None);
        loop {
            let scanned = disk.scan(after, self.page_records);
            for entry in &scanned.entries {
                match entry {
                    Entry::Found(record) => {
                        let dropped = record.state.is_collected(record.ballot, self.collected);
                        if let Some(at) = record.expires_at_ms().filter(|_| !dropped) {
                            *first_expiry_ms = at.min(*first_expiry_ms);
                        }
                        if record.ballot <= upto && !dropped && self.counts(record, disk) {
                            let entry = entry_sum(KeyId::of(record), record.ballot);
                            sum = sum.wrapping_add(entry);
                        }
                    }
                    Entry::Unreadable(_) if self.mutations.has(Mutation::UnreadableIsAbsent) => {}
                    Entry::Unreadable(at) => return (None, Some(at.clone())),
                }
            }
            after = scanned.next();
            if after.is_none() {
                return ((!disk.is_partial()).then_some(sum), None);
            }
        }
    }

    fn counts(&self, record: &Record, disk: &impl Storage) -> bool {
        !disk.is_foreign(&Locator::of(record)) || self.mutations.has(Mutation::ForeignCounts)
    }

    /// The answers for ranges whose sums differ: sums of their parts, or their entries.
    fn answers(&self, theirs: &[RangeSum], disk: &impl Storage) -> Vec<Message> {
        let (mut answers, mut sums) = (Vec::new(), Vec::new());
        for range in theirs.iter().take(compare::MAX_RANGES) {
            let ours = compare::sum_of(range.range, disk);
            if ours == *range {
                continue;
            }
            if ours.count.max(range.count) <= compare::LEAF_ENTRIES || range.range.is_point() {
                let listing = compare::list(range.range, disk);
                answers.push(Message::List { listing });
            } else {
                sums.extend(range.range.split().map(|part| compare::sum_of(part, disk)));
            }
        }
        sums.truncate(compare::MAX_RANGES);
        if !sums.is_empty() {
            let collected = self.collected;
            answers.push(Message::Compare { collected, sums });
        }
        answers
    }
}
