//! What replicas and coordinators say to each other about a partition.
//!
//! Every message carries the partition and the sender's epoch; the wire format belongs
//! to `torc-proto`. A reply repeats the [`Tag`] of what it answers; rounds are never
//! reused, not even after a restart, so a late reply is known for what it is.

use bytes::Bytes;
use torc_record::{Ballot, Epoch, HybridTime, Record, State};
use torc_ring::Partition;

use crate::KnownPage;
use crate::compare::{Listing, RangeSum};
use crate::{KeyId, Locator, LogPosition};

/// An operation's number at its coordinator, chosen by the edge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// Says which round of which operation a message belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tag {
    /// The operation.
    pub op: OpId,
    /// The round, unique over the coordinator's whole life.
    pub round: HybridTime,
}

/// A message with its address within the cluster's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The partition it is about.
    pub partition: Partition,
    /// The epoch the sender acts in.
    pub epoch: Epoch,
    /// What it says.
    pub message: Message,
}

/// What a replica holds of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The accepted ballot; zero when there is none.
    pub ballot: Ballot,
    /// Under which it was written, if that is another.
    pub origin: Option<Ballot>,
    /// What that version says.
    pub content: Content,
    /// The replica's collection watermark.
    pub collected: Ballot,
    /// The collection begun last; values that had expired by its time are absent.
    pub collecting: Ballot,
}

/// What a replica remembers of versions that their writer doubts (R7).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Recall {
    /// It was not asked, or may have forgotten.
    #[default]
    Unsure,
    /// None was ever stored here.
    Never,
    /// This one was accepted here, the highest one that was.
    Accepted(Ballot),
}

/// Most claims of one message.
pub const MAX_CLAIMS: usize = 256;

/// What its sender holds of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The key's partition.
    pub partition: Partition,
    /// The epoch in which the sender acts there.
    pub epoch: Epoch,
    /// The key.
    pub at: Locator,
    /// The version; of an absent key the sender's collection watermark.
    pub version: Ballot,
    /// Nothing is held.
    pub is_absent: bool,
}

/// A version's content; the value's bytes travel only where they were asked for.
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
    /// Of a version, with or without the bytes.
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

    /// The state without the value's bytes; none if there is no entry.
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

    /// As a state to be accepted; none while the bytes are missing. Absence is written
    /// as a tombstone.
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

impl Message {
    /// Whether it is about a single key: it does not change who reads and writes.
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

    /// Whether it would change a key of a generation, which nothing does.
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

    /// The keys that a replica looks up to handle this.
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

    /// The round that this answers, if it is an answer to a coordinator.
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

/// What is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// What do you hold? One replica is asked for the value too.
    Read {
        /// The asking round.
        tag: Tag,
        /// The key.
        at: Locator,
        /// Whether the value's bytes are wanted.
        want_value: bool,
        /// Before you answer: store nothing at or below that no replica has, from now on. Zero
        /// where that is not asked for; `eventual` namespaces only.
        closes: Ballot,
    },
    /// Answers `Read`.
    Holding {
        /// The round asked.
        tag: Tag,
        /// What is held.
        held: Held,
    },
    /// Do you hold these very versions? Of keys of any partitions; the envelope is of the
    /// first one's.
    Confirm {
        /// The asking round.
        tag: Tag,
        /// What the sender holds, at most [`MAX_CLAIMS`].
        claims: Vec<Claim>,
    },
    /// Answers `Confirm`.
    Confirmed {
        /// The round asked.
        tag: Tag,
        /// Of each claim whether it holds here; what cannot be told at once does not.
        confirmed: Vec<bool>,
    },
    /// Promise to refuse lower ballots, and tell what you hold.
    Prepare {
        /// The asking round.
        tag: Tag,
        /// The key.
        at: Locator,
        /// The ballot.
        ballot: Ballot,
        /// The lowest ballot under which the sender's node may have had the key's versions
        /// accepted in this epoch, where it doubts that one was (R7).
        doubted: Option<Ballot>,
    },
    /// Answers `Prepare`.
    Promised {
        /// The round asked.
        tag: Tag,
        /// What is held, with the value.
        held: Held,
        /// What became of the versions that the asker doubts here.
        recall: Recall,
    },
    /// Store this version, and promise `next` (R6).
    Accept {
        /// The asking round.
        tag: Tag,
        /// The version.
        record: Record,
        /// The coordinator's next ballot on this key.
        next: Option<Ballot>,
    },
    /// Answers `Accept`, `Store`: durable.
    Accepted {
        /// The round asked.
        tag: Tag,
    },
    /// Refuses `Prepare`, `Accept` or `Store`.
    Nack {
        /// The round refused.
        tag: Tag,
        /// The highest ballot this replica knows of for the key (R10). To `Store`: the ballot up
        /// to where it is closed, or the record's own if it may hold that record.
        highest: Ballot,
    },
    /// The record fails its checksum: this replica has no say on the key (R9). Or it cannot
    /// store anything now.
    Abstain {
        /// The round asked.
        tag: Tag,
        /// Its disk is full.
        is_full: bool,
    },
    /// A version that is proven chosen (R8). Nobody answers.
    Learn {
        /// The version.
        record: Record,
    },
    /// A newcomer or a scan asks for the next page of the partition.
    Pull {
        /// Whatever tells its asker what the page answers.
        tag: Tag,
        /// Entries after this one.
        after: Option<KeyId>,
        /// Only the tail of the log from there on: its asker has the slices up to it.
        since: Option<LogPosition>,
        /// What the asker holds of the page. A replica that holds the same answers `SamePage`.
        known: Option<KnownPage>,
    },
    /// Answers `Pull`: what the asker holds of the page is held here too, and nothing else.
    SamePage {
        /// As asked.
        tag: Tag,
        /// The replica's collection watermark.
        collected: Ballot,
        /// The collection the replica begun last.
        collecting: Ballot,
    },
    /// Answers `Pull`.
    Page {
        /// As asked.
        tag: Tag,
        /// What was asked.
        after: Option<KeyId>,
        /// Entries in ring order.
        records: Vec<Record>,
        /// Where to go on; none at the end.
        next: Option<KeyId>,
        /// The source's collection watermark.
        collected: Ballot,
        /// The collection the source begun last.
        collecting: Ballot,
    },
    /// Raise your floor to here, then tell the sum of what you hold at or below.
    GcFloor {
        /// The watermark to be.
        upto: Ballot,
    },
    /// Answers `GcFloor`.
    GcSum {
        /// The watermark asked.
        upto: Ballot,
        /// Sum over the entries at or below it.
        sum: u128,
        /// The replica's present watermark.
        collected: Ballot,
    },
    /// Every replica held the same: drop tombstones at or below.
    GcPurge {
        /// The new watermark.
        upto: Ballot,
    },
    /// My sums of these ranges; answered by `Compare` of smaller ranges or `List`.
    Compare {
        /// The sender's watermark.
        collected: Ballot,
        /// Ranges with sums.
        sums: Vec<RangeSum>,
    },
    /// My entries of a range whose sums differ. Nobody answers.
    List {
        /// The entries' versions.
        listing: Listing,
    },
    /// Store this version if it is newer: `eventual` namespaces only.
    Store {
        /// The asking round.
        tag: Tag,
        /// The version.
        record: Record,
    },
    /// A version that another replica holds: store it if it is newer. `eventual`
    /// namespaces only; what brings copies together. Its answer is for nobody.
    Repair {
        /// The version.
        record: Record,
        /// The watermark of the replica that holds it.
        collected: Ballot,
        /// A majority was closed up to there before it told what it holds (R9); zero if not.
        closed: Ballot,
    },
    /// The sender is in a later epoch, the envelope's: nothing was done (R1).
    Epoch {
        /// The round refused, if the message had one.
        tag: Tag,
    },
}
