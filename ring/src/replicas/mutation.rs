//! Rules that a test build can break, one at a time.
//!
//! A rule that no test misses is not known to be needed. The simulation switches each
//! rule off and must then find a violation. Without the feature `mutants` a set of
//! mutations is always empty and the compiler removes the questions.

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
    /// A put skips Prepare; the highest clock wins.
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
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 30] = [
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
        Self::SlicesOfAnyEpoch,
        Self::TailForgotten,
        Self::IdentityRenames,
    ];
}

/// The rules broken in this run: none, unless built with the feature `mutants`.
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
