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
    /// An accept of an earlier epoch's ballot is sent on in the next epoch (R2).
    MixedEpochs,
    /// A replica answers before what it says is durable (R3).
    AckBeforeDurable,
    /// One acknowledgement is taken for a quorum.
    OneAckQuorum,
    /// A replica declared dead in a move goes on voting.
    DeadVotes,
    /// A version of a transitional epoch is taken as chosen by a one-round get (R5).
    TransitionalChosen,
    /// An absent key answers version zero after collection.
    AbsentZero,
    /// A move that reads the new set is aborted in one step.
    AbortInOneStep,
    /// A value seen as expired is reported absent without making it so.
    ExpiryUnsettled,
    /// A record that fails its checksum counts as absent (R9).
    UnreadableIsAbsent,
    /// A newcomer without a displaced replica starts empty.
    GrowthStartsEmpty,
    /// In a set that shrinks, those who stay do not merge the others.
    ShrinkWithoutMerge,
    /// While growing, or without a dead replica, one round trusts copies as if they were votes.
    GrowthCopiesVote,
    /// A bulk copy taken before the write-both stage counts as the snapshot.
    BulkIsSnapshot,
    /// A coordinator keeps its warm ballots across a refusal.
    WarmAfterRefusal,
    /// Slices are served before the epoch that copies is adopted.
    SlicesOfAnyEpoch,
    /// What a source stored after its slices were taken is not copied.
    TailForgotten,
    /// What is accepted anew gets a new version.
    IdentityRenames,
    /// A replica accepts without looking what it holds of the key (R2).
    AcceptUnseen,
    /// A write is accepted below what was promised (R2): blind writes pass by a Prepare.
    AcceptBelowPromise,
    /// A blind write that was refused counts as never accepted, and is tried again (R4b).
    BlindRefusedIsClean,
    /// A replica denies that it stored what it may have forgotten (R7).
    DeniesForgotten,
    /// A write that one replica never stored counts as never chosen (R7).
    OneDenialIsEnough,
    /// A write that one replica accepted counts as chosen (R7).
    OneMemoryIsEnough,
    /// A conditional write builds on a version that may never be chosen (R7).
    BuildsOnUnproven,
    /// What is on its way to the disk is found by its digest alone.
    DigestIsKey,
    /// A scan returns the newest version it saw without proof.
    ScanUnproven,
    /// A scan leaves out an expired value without making its absence last.
    ScanExpiredAsIs,
    /// The only reader of a partition answers without looking whether it still is (R1).
    AloneUnchecked,
    /// The only reader of a partition calls an expired value absent without making it so.
    AloneExpiredAsIs,
    /// A replica confirms whatever version it holds (R5).
    ConfirmsAnyVersion,
    /// Blind writes share a round with one that was under way before they came.
    SharesEarlierRound,
    /// A scan takes pages that an earlier round asked for.
    ScanAnyRound,
    /// A page of a scan ends between two keys of one digest.
    PageSplitsDigest,
    /// A newcomer stores writes of earlier epochs before its copy is complete (`eventual`).
    NewcomerTakesOld,
    /// A blind write of which it is not known what became is accepted under another ballot (R7).
    BlindTriesAgain,
    /// A condition that fails is answered while a ballot of the same write is under way (R7).
    MismatchLeavesWish,
    /// What may have been accepted is given up as if nothing had been sent (R7).
    UnknownIsUnavailable,
    /// Of the blind writes that share a round the first is written.
    FirstSharerWins,
    /// Several operations of a coordinator write a key at a time.
    NobodyWaits,
    /// One answer is taken for a quorum that reads.
    OneReplyQuorum,
    /// What is learnt replaces a record that cannot be read and may be newer (R9).
    LearnOverUnreadable,
    /// What is accepted replaces a record that cannot be read and may be newer (R9).
    AcceptOverUnreadable,
    /// A replica accepts without promising the next ballot (R6).
    NextUnpromised,
    /// A node that comes again keeps what an earlier membership left.
    MembershipKeeps,
    /// A replica does not note that values which it stores expire.
    ExpiryUnnoted,
    /// A replica does not tell which collection has begun: expiry is judged by readers' clocks alone.
    CollectingUntold,
    /// A replica acts in an epoch before that is durable (R1).
    ActsBeforeDurable,
    /// What was read in an earlier epoch counts.
    ReadoutOfAnyEpoch,
    /// A scan takes keys beyond the page that ends first.
    ScanBeyondShortest,
    /// A scan takes one page for a quorum.
    ScanOnePage,
    /// A replica that holds as many entries of a page says that it holds the same.
    ScanSameByCount,
    /// A scan drops records by a filter that are not proven chosen.
    FilterHidesUnproven,
    /// A replica that holds the same as one other passes for one that holds what a quorum does.
    SameByOne,
    /// A scan takes two keys of one digest for one.
    ScanByDigest,
    /// One answer is taken for a majority (`eventual`).
    EventualOneAnswer,
    /// A write that is sent again gets another ballot (`eventual`).
    EventualReissue,
    /// While a partition moves only the old set must store a write (`eventual`).
    EventualOldSetOnly,
    /// A write that a replica may have stored is called unavailable (`eventual`).
    EventualLostIsUnavailable,
    /// A value that one clock calls expired is absent at once (`eventual`).
    EventualExpiryUnsettled,
    /// A store at or below a collection is taken (`eventual`).
    StoreRevives,
    /// A repair from a replica that has not collected is taken (`eventual`).
    RepairRevives,
    /// Who cannot read a record is told what fewer than a majority know (R9, `eventual`).
    MinorityRepairs,
    /// A repair replaces a record that cannot be read and may be newer (R9, `eventual`).
    RepairOverUnreadable,
    /// What replaces such a record is read while older writes are under way (R9, `eventual`).
    RepairsUnclosed,
    /// A store replaces a record that cannot be read and may be newer (R9, `eventual`).
    StoreOverUnreadable,
    /// A store replaces a newer version (`eventual`).
    OlderStoreWins,
    /// What a replica held before a collection counts beside what another one holds after it
    /// (`eventual`).
    EventualOutdated,
}

impl Mutation {
    /// Mutations that the simulation hunts. No seed is known that detects the others.
    pub const ALL: [Self; 80] = [
        Self::NoEpochFence,
        Self::StreamFromSurvivor,
        Self::DirectSwitch,
        Self::NoReadNewStage,
        Self::PromisesForgotten,
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
        Self::ExpiryUnsettled,
        Self::UnreadableIsAbsent,
        Self::GrowthStartsEmpty,
        Self::ShrinkWithoutMerge,
        Self::GrowthCopiesVote,
        Self::BulkIsSnapshot,
        Self::WarmAfterRefusal,
        Self::TailForgotten,
        Self::IdentityRenames,
        Self::AcceptUnseen,
        Self::AcceptBelowPromise,
        Self::BlindRefusedIsClean,
        Self::DeniesForgotten,
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
        Self::OlderStoreWins,
        Self::EventualOutdated,
        Self::SlicesOfAnyEpoch,
        Self::LearnOverUnreadable,
        Self::ActsBeforeDurable,
        Self::ReadoutOfAnyEpoch,
        Self::ExpiryUnnoted,
        Self::EventualExpiryUnsettled,
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
