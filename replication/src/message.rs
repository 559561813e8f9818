//! Messages between replicas and coordinators about a partition.
//!
//! Every message carries the partition and the sender's epoch; `torc-proto` defines the
//! wire format. A reply repeats the [`Tag`] of its question; rounds are never reused,
//! not even after a restart, so late replies are recognised.

use bytes::Bytes;
use torc_record::{Ballot, Epoch, HybridTime, Record, State};
use torc_ring::Partition;

use crate::compare::{Listing, RangeSum};
use crate::{KeyId, Locator, LogPosition};

/// An operation's number at its coordinator, chosen by the edge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// The operation and round of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tag {
    /// The operation.
    pub op: OpId,
    /// The round, unique over the coordinator's whole life.
    pub round: HybridTime,
}

/// A message with its partition and epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The partition it is about.
    pub partition: Partition,
    /// The sender's epoch.
    pub epoch: Epoch,
    /// The message.
    pub message: Message,
}

/// A replica's record of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The accepted ballot; zero if there is none.
    pub ballot: Ballot,
    /// The version under which it was written, if different.
    pub origin: Option<Ballot>,
    /// The version's content.
    pub content: Content,
    /// The replica's collection watermark.
    pub collected: Ballot,
    /// The last started collection; values that had expired by its time are absent.
    pub collecting: Ballot,
}

impl Held {
    /// The version under which it was written.
    #[must_use]
    pub fn version(&self) -> Ballot {
        self.origin.unwrap_or(self.ballot)
    }
}

/// A replica's memory of versions whose writer is in doubt (R7).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Recall {
    /// It was not asked, or may have forgotten.
    #[default]
    Unsure,
    /// None was ever stored here.
    Never,
    /// The highest such version that was stored here.
    Stored {
        /// The version.
        version: Ballot,
        /// Whether it was stored under its own ballot.
        is_accepted: bool,
        /// The last ballot under which it was stored: its own, or that of a coordinator that had it
        /// accepted again.
        last: Ballot,
    },
}

impl Recall {
    /// The ballots under which this version was stored, as far as it is known.
    #[must_use]
    pub fn ballots_of(&self, version: Ballot) -> [Option<Ballot>; 2] {
        match *self {
            Self::Stored {
                version: stored,
                is_accepted,
                last,
            } if stored == version => [is_accepted.then_some(version), Some(last)],
            Self::Stored { .. } | Self::Never | Self::Unsure => [None, None],
        }
    }
}

/// Limit on the claims of a message.
pub const MAX_CLAIMS: usize = 256;

/// The sender's version of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The key's partition.
    pub partition: Partition,
    /// The sender's epoch of that partition.
    pub epoch: Epoch,
    /// The key.
    pub at: Locator,
    /// The version; for an absent key, the sender's collection watermark.
    pub version: Ballot,
    /// Whether the key is absent.
    pub is_absent: bool,
}

/// A version's content; the value's bytes are included only if requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// No entry.
    Absent,
    /// Deleted.
    Tombstone,
    /// A value.
    Value {
        /// Its expiry, Unix milliseconds.
        expires_at_ms: Option<u64>,
        /// Its bytes, unless only the ballot was asked for.
        value: Option<Bytes>,
    },
}

impl Content {
    /// The content of a version, with or without the value's bytes.
    #[must_use]
    pub fn of(state: &State, with_value: bool) -> Self {
        match state {
            State::Tombstone => Self::Tombstone,
            State::Value {
                value,
                expires_at_ms,
            } => Self::Value {
                expires_at_ms: *expires_at_ms,
                value: with_value.then(|| value.clone()),
            },
        }
    }

    /// The state without the value's bytes; `None` if there is no entry.
    pub(crate) fn to_state_head(&self) -> Option<State> {
        match self {
            Self::Absent => None,
            Self::Tombstone => Some(State::Tombstone),
            Self::Value { expires_at_ms, .. } => Some(State::Value {
                value: Bytes::new(),
                expires_at_ms: *expires_at_ms,
            }),
        }
    }

    /// The state to accept; `None` while the bytes are missing. Absence becomes a tombstone.
    #[must_use]
    pub fn to_state(&self) -> Option<State> {
        match self {
            Self::Absent | Self::Tombstone => Some(State::Tombstone),
            Self::Value {
                expires_at_ms,
                value,
            } => value.as_ref().map(|value| State::Value {
                value: value.clone(),
                expires_at_ms: *expires_at_ms,
            }),
        }
    }
}

/// The requester's version of a page, as a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownPage {
    /// Its last entry; `None` if the partition ends with it.
    pub next: Option<KeyId>,
    /// Number of its entries.
    pub count: u64,
    /// Their sum, see [`entry_sum`](torc_record::entry_sum).
    pub sum: u128,
}

impl Message {
    /// Whether it concerns a single key, and so does not change readers and writers.
    #[must_use]
    pub const fn is_about_a_key(&self) -> bool {
        matches!(
            self,
            Self::Read { .. }
                | Self::Prepare { .. }
                | Self::Accept { .. }
                | Self::Learn { .. }
                | Self::Store { .. }
                | Self::Repair { .. }
        )
    }

    /// Whether it would change a key of a generation, which is not allowed.
    pub(crate) fn would_change_a_generation(&self) -> bool {
        match self {
            Self::Prepare { at, .. } => at.namespace.is_generation(),
            Self::Accept { record, .. }
            | Self::Learn { record }
            | Self::Store { record, .. }
            | Self::Repair { record, .. } => record.namespace.is_generation(),
            Self::Page { records, .. } => records.iter().any(|it| it.namespace.is_generation()),
            _ => false,
        }
    }

    /// The keys that a replica looks up to handle this message.
    #[must_use]
    pub fn keys(&self) -> Vec<Locator> {
        match self {
            Self::Read { at, .. } | Self::Prepare { at, .. } => vec![at.clone()],
            Self::Accept { record, .. }
            | Self::Learn { record }
            | Self::Store { record, .. }
            | Self::Repair { record, .. } => vec![Locator::of(record)],
            Self::Page { records, .. } => records.iter().map(Locator::of).collect(),
            _ => Vec::new(),
        }
    }

    /// The ballot of the sender's write, if this is a part of one.
    #[must_use]
    pub const fn ballot(&self) -> Option<Ballot> {
        match self {
            Self::Prepare { ballot, .. } => Some(*ballot),
            Self::Accept { record, .. } => Some(record.ballot),
            _ => None,
        }
    }

    /// The round that this message answers, if it answers a coordinator.
    #[must_use]
    pub const fn answers(&self) -> Option<Tag> {
        match self {
            Self::Holding { tag, .. }
            | Self::Promised { tag, .. }
            | Self::Accepted { tag }
            | Self::Nack { tag, .. }
            | Self::Abstain { tag, .. }
            | Self::Confirmed { tag, .. }
            | Self::Epoch { tag } => Some(*tag),
            _ => None,
        }
    }
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Asks for a replica's record. One replica is also asked for the value.
    Read {
        /// The asking round.
        tag: Tag,
        /// The key.
        at: Locator,
        /// Whether the value's bytes are wanted.
        want_value: bool,
        /// Before answering, close up to this ballot: do not store versions at or below it that no
        /// replica has. Zero for none. Only in `eventual` namespaces.
        closes: Ballot,
    },
    /// Answers `Read`.
    Holding {
        /// The round asked.
        tag: Tag,
        /// The replica's record.
        held: Held,
    },
    /// Asks whether the receiver holds exactly these versions, for keys of any
    /// partitions. The envelope has the first key's partition.
    Confirm {
        /// The asking round.
        tag: Tag,
        /// The sender's versions, at most [`MAX_CLAIMS`].
        claims: Vec<Claim>,
    },
    /// Answers `Confirm`.
    Confirmed {
        /// The round asked.
        tag: Tag,
        /// For each claim, whether it holds here; false if that is not known at once.
        confirmed: Vec<bool>,
    },
    /// Asks to refuse lower ballots, and for the replica's record.
    Prepare {
        /// The asking round.
        tag: Tag,
        /// The key.
        at: Locator,
        /// The ballot.
        ballot: Ballot,
        /// If the sender doubts an earlier write of the key (R7): the lowest ballot under which its
        /// node may have had a version accepted in this epoch.
        doubted: Option<Ballot>,
    },
    /// Answers `Prepare`.
    Promised {
        /// The round asked.
        tag: Tag,
        /// The replica's record, with the value.
        held: Held,
        /// The memory of the doubted versions.
        recall: Recall,
    },
    /// Asks to store this version and to promise `next` (R6).
    Accept {
        /// The asking round.
        tag: Tag,
        /// The version.
        record: Record,
        /// The coordinator's next ballot on this key.
        next: Option<Ballot>,
    },
    /// Answers `Accept` and `Store`: the version is durable.
    Accepted {
        /// The round asked.
        tag: Tag,
    },
    /// Refuses `Prepare`, `Accept` or `Store`.
    Nack {
        /// The round refused.
        tag: Tag,
        /// The highest ballot that this replica knows for the key (R10). For `Store`: the ballot up
        /// to which it is closed, or the record's own ballot if it may hold that record.
        highest: Ballot,
    },
    /// The record fails its checksum, so this replica has no say on the key (R9); or it cannot
    /// store anything now.
    Abstain {
        /// The round asked.
        tag: Tag,
        /// Whether its disk is full.
        is_full: bool,
    },
    /// A proven version (R8). Has no answer.
    Learn {
        /// The version.
        record: Record,
    },
    /// A newcomer or a scan asks for the next page of the partition.
    Pull {
        /// Identifies the question for the requester.
        tag: Tag,
        /// Entries after this one.
        after: Option<KeyId>,
        /// Only the tail of the log from there on: the requester has the slices up to it.
        since: Option<LogPosition>,
        /// The requester's copy of the page, as a sum. A replica with the same page answers
        /// `SamePage`.
        known: Option<KnownPage>,
    },
    /// Answers `Pull`: this replica's page is exactly the requester's.
    SamePage {
        /// As in the question.
        tag: Tag,
        /// The replica's collection watermark.
        collected: Ballot,
        /// The replica's last started collection.
        collecting: Ballot,
    },
    /// Answers `Pull`.
    Page {
        /// As in the question.
        tag: Tag,
        /// As in the question.
        after: Option<KeyId>,
        /// Entries in ring order.
        records: Vec<Record>,
        /// Where to continue; `None` at the end.
        next: Option<KeyId>,
        /// The source's collection watermark.
        collected: Ballot,
        /// The source's last started collection.
        collecting: Ballot,
    },
    /// Asks to raise the floor to this ballot, then for the sum of the records at or below it.
    GcFloor {
        /// The new watermark.
        upto: Ballot,
    },
    /// Answers `GcFloor`.
    GcSum {
        /// The requested watermark.
        upto: Ballot,
        /// Sum over the entries at or below it.
        sum: u128,
        /// The replica's present watermark.
        collected: Ballot,
    },
    /// Every replica held the same: asks to drop tombstones at or below the watermark.
    GcPurge {
        /// The new watermark.
        upto: Ballot,
    },
    /// The sender's sums of these ranges; answered by `Compare` of smaller ranges or `List`.
    Compare {
        /// The sender's watermark.
        collected: Ballot,
        /// Ranges with sums.
        sums: Vec<RangeSum>,
    },
    /// The sender's entries of a range whose sums differ. Has no answer.
    List {
        /// The entries' versions.
        listing: Listing,
    },
    /// Asks to store this version if it is newer. `eventual` namespaces only.
    Store {
        /// The asking round.
        tag: Tag,
        /// The version.
        record: Record,
    },
    /// Another replica's version, to store if it is newer; makes replicas converge.
    /// `eventual` namespaces only. Its answer is ignored.
    Repair {
        /// The version.
        record: Record,
        /// The watermark of the replica that holds it.
        collected: Ballot,
        /// The ballot up to which a majority was closed before it answered (R9); zero if not.
        closed: Ballot,
    },
    /// The sender is in the envelope's later epoch, and did nothing (R1).
    Epoch {
        /// The round refused, if the message had one.
        tag: Tag,
    },
}
