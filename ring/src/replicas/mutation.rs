//! Rules that a test build can break, one at a time.
//!
//! If no test fails without a rule, we do not know that the rule is needed. The
//! simulation switches each rule off and must then find a violation. Without the
//! feature `mutants`, a set of mutations is always empty and the compiler removes the
//! checks.

/// A rule broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mutation {
    /// A replica handles messages of any epoch (R1).
    NoEpochFence,
    /// A newcomer copies a survivor instead of the replica it displaces.
    StreamFromSurvivor,
    /// A move goes from copying straight to the new set.
    DirectSwitch,
    /// A move leaves out the stage that writes both and reads the new set.
    NoReadNewStage,
    /// A restarted replica does not raise its floor to the ceiling (R3).
    PromisesForgotten,
    /// A restarted replica does not raise its floor to what it has stored (R3).
    AcceptsForgotten,
    /// A get returns the newest version it saw without proof (R5).
    GetWithoutWriteBack,
    /// A compare-and-set that does not match answers from an unproven version (R4).
    CasMissUnchosen,
    /// An ambiguous write is applied again to whatever is there (R7).
    RetryReapplies,
    /// Anti-entropy pushes versions that are not proven chosen (R8).
    PushUnchosen,
    /// Tombstones are dropped when a majority agrees instead of all replicas.
    CollectOnQuorum,
    /// Collection does not raise the floor.
    NoFloorAtCollection,
    /// A replica confirms a write that is below what it holds: the highest clock wins.
    LastWriterWins,
    /// A wiped node comes back under its old id (R9).
    WipedKeepsId,
    /// A coordinator sends an accept with an earlier epoch's ballot in the next epoch (R2).
    MixedEpochs,
    /// A replica acknowledges before the acknowledged state is durable (R3).
    AckBeforeDurable,
    /// One acknowledgement counts as a quorum.
    OneAckQuorum,
    /// A replica declared dead in a move continues to vote.
    DeadVotes,
    /// A one-round get treats a version of a transitional epoch as chosen (R5).
    TransitionalChosen,
    /// After collection, an absent key is reported with version zero.
    AbsentZero,
    /// A move that reads the new set is aborted in one step.
    AbortInOneStep,
    /// A coordinator reports an expired value as absent without making its absence durable.
    ExpiryUnwritten,
    /// A record that fails its checksum counts as absent (R9).
    UnreadableIsAbsent,
    /// A newcomer without a displaced replica starts empty.
    GrowthStartsEmpty,
    /// In a shrinking set, the staying members do not gather from the others.
    ShrinkWithoutGather,
    /// While growing, or without a dead replica, one round trusts copies as if they were votes.
    GrowthCopiesVote,
    /// A bulk copy taken before the write-both stage counts as the snapshot.
    BulkIsSnapshot,
    /// A coordinator keeps its warm ballots across a refusal.
    WarmAfterRefusal,
    /// Slices are served before the epoch that copies is adopted.
    SlicesOfAnyEpoch,
    /// A newcomer does not copy records that a source stored after its slices were taken.
    TailForgotten,
    /// A record that is accepted again gets a new version.
    IdentityRenames,
    /// A replica accepts without checking its present record of the key (R2).
    AcceptUnseen,
    /// A replica accepts a write below its promise (R2): blind writes bypass a Prepare.
    AcceptBelowPromise,
    /// A refused blind write counts as never accepted and is retried (R4b).
    BlindRefusedIsClean,
    /// A replica denies having stored a write that it may have forgotten (R7).
    DeniesForgotten,
    /// A replica denies all that it stored before its start, whatever its disk still knows (R7).
    DeniesEarlierLife,
    /// A write that one replica never stored counts as never chosen (R7).
    OneDenialIsEnough,
    /// A write that one replica accepted counts as chosen (R7).
    OneMemoryIsEnough,
    /// A conditional write builds on a version that may never be chosen (R7).
    BuildsOnUnproven,
    /// Records on their way to the disk are looked up by digest alone.
    DigestIsKey,
    /// A scan returns the newest version it saw without proof.
    ScanUnproven,
    /// A scan omits an expired value without making its absence durable.
    ScanExpiredAsIs,
    /// The only reader of a partition answers without checking that it is still the reader (R1).
    AloneUnchecked,
    /// The only reader of a partition reports an expired value as absent without making its absence
    /// durable.
    AloneExpiredAsIs,
    /// A replica confirms whatever version it holds (R5).
    ConfirmsAnyVersion,
    /// Blind writes join a round that began before they arrived.
    SharesEarlierRound,
    /// A scan accepts pages that an earlier round requested.
    ScanAnyRound,
    /// A page of a scan ends between two keys of one digest.
    PageSplitsDigest,
    /// A newcomer stores writes of earlier epochs before its copy is complete (`eventual`).
    NewcomerTakesOld,
    /// A blind write with an unknown outcome is accepted under another ballot (R7).
    BlindTriesAgain,
    /// A failed condition is reported while a ballot of the same write is in flight (R7).
    MismatchLeavesWish,
    /// A write that may have been accepted is reported as if it had never been sent (R7).
    UnknownIsUnavailable,
    /// Of the blind writes that share a round, the first one is written.
    FirstSharerWins,
    /// Several operations of a coordinator write the same key at the same time.
    NobodyWaits,
    /// One reply counts as a read quorum.
    OneReplyQuorum,
    /// A learnt record replaces an unreadable record that may be newer (R9).
    LearnOverUnreadable,
    /// An accepted record replaces an unreadable record that may be newer (R9).
    AcceptOverUnreadable,
    /// A replica accepts without promising the next ballot (R6).
    NextUnpromised,
    /// A returning node keeps data of an earlier membership.
    MembershipKeeps,
    /// A replica does not record that values which it stores expire.
    ExpiryUnnoted,
    /// A replica does not report which collection has begun: readers judge expiry by their own
    /// clocks alone.
    CollectingUntold,
    /// A replica acts in an epoch before that epoch is durable (R1).
    ActsBeforeDurable,
    /// Reads of an earlier epoch count.
    ReadoutOfAnyEpoch,
    /// A scan takes keys beyond the page that ends first.
    ScanBeyondShortest,
    /// One page of a scan counts as a quorum.
    ScanOnePage,
    /// A replica with the same number of entries in a page claims to hold the same entries.
    ScanSameByCount,
    /// A scan's filter drops records that are not proven chosen.
    FilterHidesUnproven,
    /// A replica that agrees with one other counts as agreeing with a quorum.
    SameByOne,
    /// A scan treats two keys with the same digest as one.
    ScanByDigest,
    /// One answer counts as a majority (`eventual`).
    EventualOneAnswer,
    /// A resent write gets another ballot (`eventual`).
    EventualReissue,
    /// While a partition moves, only the old set must store a write (`eventual`).
    EventualOldSetOnly,
    /// A write that a replica may have stored is reported as unavailable (`eventual`).
    EventualLostIsUnavailable,
    /// A value that is expired by one clock is absent at once (`eventual`).
    EventualExpiryOpen,
    /// A replica accepts a store at or below a collection (`eventual`).
    StoreRevives,
    /// A replica accepts a repair from a replica that has not collected (`eventual`).
    RepairRevives,
    /// A replica with an unreadable record is repaired from less than a majority (R9, `eventual`).
    MinorityRepairs,
    /// A repair replaces an unreadable record that may be newer (R9, `eventual`).
    RepairOverUnreadable,
    /// The replacement of an unreadable record is read while older writes are in flight (R9,
    /// `eventual`).
    RepairsUnclosed,
    /// A store replaces an unreadable record that may be newer (R9, `eventual`).
    StoreOverUnreadable,
    /// A replica reports that it is closed before that is durable (`eventual`).
    ClosedBeforeDurable,
    /// A store replaces a newer version (`eventual`).
    OlderStoreWins,
    /// A replica's record from before a collection counts beside another replica's record from
    /// after it (`eventual`).
    EventualOutdated,
    /// A merge is reserved as soon as its epoch is committed: nodes may still write in earlier ones.
    ReservesUnheard,
    /// Partitions collect while a merge into them is open.
    CollectsDuringMerge,
    /// A merged record takes effect if the key has no value, whatever its version.
    MergesOverTombstones,
    /// A delete that finds no value leaves no tombstone while a merge is open.
    UnrecordedDeletes,
    /// A replica takes the records of a new namespace before it has adopted its first configuration.
    TakesUnadopted,
    /// A namespace that is created with records has its name before all replicas hold them.
    CreatesUnready,
    /// Replicas compare the records of a namespace that waits for them.
    ReconcilesFirstRecords,
    /// A record under the digest of another key must be on all replicas.
    ForeignCounts,
    /// A coordinator restarts without the reserved ceiling of its clock.
    ClockForgotten,
    /// A learnt record at or below the watermark of the last collection is stored.
    LearnRevives,
    /// A collection sums before its floor, and the writes below it, are durable.
    SumsBeforeDurable,
    /// A later collection with an earlier clock moves the time of expiry back.
    CollectingGoesBack,
    /// Slices lack tombstones that a collection drops.
    SlicesLackTombstones,
}

impl Mutation {
    /// All mutations.
    pub const ALL: [Self; 96] = [
        Self::NoEpochFence,
        Self::StreamFromSurvivor,
        Self::DirectSwitch,
        Self::NoReadNewStage,
        Self::PromisesForgotten,
        Self::AcceptsForgotten,
        Self::GetWithoutWriteBack,
        Self::CasMissUnchosen,
        Self::RetryReapplies,
        Self::PushUnchosen,
        Self::CollectOnQuorum,
        Self::NoFloorAtCollection,
        Self::LastWriterWins,
        Self::WipedKeepsId,
        Self::MixedEpochs,
        Self::AckBeforeDurable,
        Self::OneAckQuorum,
        Self::DeadVotes,
        Self::TransitionalChosen,
        Self::AbsentZero,
        Self::AbortInOneStep,
        Self::ExpiryUnwritten,
        Self::UnreadableIsAbsent,
        Self::GrowthStartsEmpty,
        Self::ShrinkWithoutGather,
        Self::GrowthCopiesVote,
        Self::BulkIsSnapshot,
        Self::WarmAfterRefusal,
        Self::TailForgotten,
        Self::IdentityRenames,
        Self::AcceptUnseen,
        Self::AcceptBelowPromise,
        Self::BlindRefusedIsClean,
        Self::DeniesForgotten,
        Self::DeniesEarlierLife,
        Self::OneDenialIsEnough,
        Self::OneMemoryIsEnough,
        Self::BuildsOnUnproven,
        Self::DigestIsKey,
        Self::ScanUnproven,
        Self::ScanExpiredAsIs,
        Self::AloneUnchecked,
        Self::AloneExpiredAsIs,
        Self::ConfirmsAnyVersion,
        Self::SharesEarlierRound,
        Self::ScanAnyRound,
        Self::PageSplitsDigest,
        Self::NewcomerTakesOld,
        Self::BlindTriesAgain,
        Self::MismatchLeavesWish,
        Self::UnknownIsUnavailable,
        Self::FirstSharerWins,
        Self::NobodyWaits,
        Self::OneReplyQuorum,
        Self::AcceptOverUnreadable,
        Self::NextUnpromised,
        Self::MembershipKeeps,
        Self::CollectingUntold,
        Self::ScanBeyondShortest,
        Self::ScanOnePage,
        Self::ScanSameByCount,
        Self::FilterHidesUnproven,
        Self::SameByOne,
        Self::ScanByDigest,
        Self::EventualOneAnswer,
        Self::EventualReissue,
        Self::EventualOldSetOnly,
        Self::EventualLostIsUnavailable,
        Self::StoreRevives,
        Self::RepairRevives,
        Self::MinorityRepairs,
        Self::RepairOverUnreadable,
        Self::RepairsUnclosed,
        Self::StoreOverUnreadable,
        Self::ClosedBeforeDurable,
        Self::OlderStoreWins,
        Self::EventualOutdated,
        Self::SlicesOfAnyEpoch,
        Self::LearnOverUnreadable,
        Self::ActsBeforeDurable,
        Self::ReadoutOfAnyEpoch,
        Self::ExpiryUnnoted,
        Self::EventualExpiryOpen,
        Self::ReservesUnheard,
        Self::CollectsDuringMerge,
        Self::MergesOverTombstones,
        Self::UnrecordedDeletes,
        Self::TakesUnadopted,
        Self::CreatesUnready,
        Self::ReconcilesFirstRecords,
        Self::ForeignCounts,
        Self::ClockForgotten,
        Self::LearnRevives,
        Self::SumsBeforeDurable,
        Self::CollectingGoesBack,
        Self::SlicesLackTombstones,
    ];
}

/// The broken rules of this run: always empty without the feature `mutants`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mutations {
    #[cfg(feature = "mutants")]
    broken: Option<Mutation>,
}

impl Mutations {
    /// Every rule holds.
    pub const NONE: Self = Self {
        #[cfg(feature = "mutants")]
        broken: None,
    };

    /// Breaks one rule.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn only(mutation: Mutation) -> Self {
        Self {
            broken: Some(mutation),
        }
    }

    /// Whether this rule is broken. Constant false without the feature.
    #[must_use]
    #[inline]
    pub fn has(self, mutation: Mutation) -> bool {
        #[cfg(feature = "mutants")]
        {
            self.broken == Some(mutation)
        }
        #[cfg(not(feature = "mutants"))]
        {
            let _ = mutation;
            false
        }
    }
}
