//! Checks that the scripts can fail: with a rule broken, its script must give different output.

use std::panic::AssertUnwindSafe;

use torc_replication::{Mutation, Mutations};

use crate::path;
use crate::world::World;

/// Each rule that a script demonstrates, with the script.
const SHOWN: &[(Mutation, &str)] = &[
    (Mutation::NoEpochFence, "registers/epochs"),
    (Mutation::ActsBeforeDurable, "registers/epochs"),
    (Mutation::MixedEpochs, "registers/epochs"),
    (Mutation::AcceptBelowPromise, "registers/promises"),
    (Mutation::NextUnpromised, "registers/promises"),
    (Mutation::LastWriterWins, "registers/promises"),
    (Mutation::PromisesForgotten, "registers/durability"),
    (Mutation::AcceptsForgotten, "registers/durability"),
    (Mutation::AckBeforeDurable, "registers/durability"),
    (Mutation::OneAckQuorum, "registers/refused_put"),
    (Mutation::RetryReapplies, "registers/refused_put"),
    (Mutation::BlindRefusedIsClean, "registers/refused_put"),
    (Mutation::BlindTriesAgain, "registers/refused_put"),
    (Mutation::AcceptUnseen, "registers/overtaken_put"),
    (Mutation::DeniesForgotten, "registers/unknown_put"),
    (Mutation::DeniesEarlierLife, "registers/recall"),
    (Mutation::OneDenialIsEnough, "registers/unknown_put"),
    (
        Mutation::OneMemoryIsEnough,
        "registers/unknown_put_one_memory",
    ),
    (Mutation::UnknownIsUnavailable, "registers/deadline"),
    (Mutation::OneReplyQuorum, "registers/get"),
    (Mutation::GetWithoutWriteBack, "registers/get_writes_back"),
    (Mutation::IdentityRenames, "registers/get_writes_back"),
    (Mutation::CasMissUnchosen, "registers/conditional_put"),
    (Mutation::BuildsOnUnproven, "registers/conditional_put"),
    (Mutation::NobodyWaits, "registers/abandoned_caller"),
    (Mutation::SharesEarlierRound, "registers/shared_round"),
    (Mutation::FirstSharerWins, "registers/shared_round"),
    (Mutation::AloneExpiredAsIs, "registers/only_reader"),
    (Mutation::DigestIsKey, "registers/two_keys_one_digest"),
    (Mutation::UnreadableIsAbsent, "registers/unreadable"),
    (Mutation::LearnOverUnreadable, "registers/unreadable"),
    (Mutation::AcceptOverUnreadable, "registers/unreadable"),
    (Mutation::StreamFromSurvivor, "moves/replica_joins"),
    (Mutation::DirectSwitch, "moves/replica_joins"),
    (Mutation::NoReadNewStage, "moves/replica_joins"),
    (Mutation::BulkIsSnapshot, "moves/replica_joins"),
    (Mutation::TransitionalChosen, "moves/replica_joins"),
    (Mutation::TailForgotten, "moves/slices_then_tail"),
    (Mutation::SlicesOfAnyEpoch, "moves/slices_need_the_epoch"),
    (Mutation::DeadVotes, "moves/dead_replica"),
    (Mutation::GrowthStartsEmpty, "moves/one_to_three"),
    (Mutation::GrowthCopiesVote, "moves/one_to_three"),
    (Mutation::ShrinkWithoutGather, "moves/shrinks"),
    (Mutation::AbortInOneStep, "moves/ends_halfway"),
    (Mutation::MembershipKeeps, "moves/ends_halfway"),
    (Mutation::CollectOnQuorum, "collection/one_is_down"),
    (Mutation::PushUnchosen, "collection/one_lacks_it"),
    (Mutation::AbsentZero, "collection/all_replicas_hold_it"),
    (Mutation::NoFloorAtCollection, "collection/late_copy"),
    (Mutation::ExpiryUnwritten, "collection/expired_values"),
    (Mutation::CollectingUntold, "collection/expired_values"),
    (Mutation::ExpiryUnnoted, "collection/expired_values"),
    (Mutation::CollectsDuringMerge, "merge/later_writes_win"),
    (Mutation::MergesOverTombstones, "merge/later_writes_win"),
    (Mutation::UnrecordedDeletes, "merge/later_writes_win"),
    (Mutation::StoreRevives, "eventual/between_floor_and_purge"),
    (Mutation::RepairRevives, "eventual/between_floor_and_purge"),
    (Mutation::OlderStoreWins, "eventual/stores"),
    (Mutation::StoreOverUnreadable, "eventual/unreadable"),
    (Mutation::RepairOverUnreadable, "eventual/unreadable"),
    (Mutation::RepairsUnclosed, "eventual/unreadable"),
    (Mutation::NewcomerTakesOld, "eventual/newcomer"),
];

#[test]
fn a_script_comes_out_differently_when_its_rule_is_broken() {
    for (mutation, script) in SHOWN {
        let text = std::fs::read_to_string(path(script)).expect(script);
        let mut world = World::new(Mutations::only(*mutation));
        // A broken rule may also cause a panic.
        let generate = AssertUnwindSafe(|| goldenscript::generate(&mut world, &text));
        let said = std::panic::catch_unwind(generate);
        let same = matches!(&said, Ok(Ok(said)) if *said == text);
        assert!(!same, "{script} does not show {mutation:?}");
    }
}
