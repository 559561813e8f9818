use super::*;
use crate::Partition;
use torc_record::{Ballot, HybridTime, NodeSlot};

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);
const D: NodeId = NodeId(4);
const E: NodeId = NodeId(5);
const HOLD: Mutations = Mutations::NONE;

fn stable() -> Config {
    Config::founded(Partition(7), Epoch(1), &[A, B, C])
}

fn votes(config: &Config, nodes: &[NodeId]) -> Votes {
    let index = |node: &NodeId| config.index(*node).unwrap();
    nodes
        .iter()
        .fold(Votes::NONE, |set, node| set.union(Votes::one(index(node))))
}

fn ballot(epoch: u64) -> Ballot {
    Ballot {
        epoch: Epoch(epoch),
        time: HybridTime(1),
        slot: NodeSlot(0),
    }
}

/// D takes the place of A: copying, write both and read old, write both and read new.
fn replacing(dead: &[NodeId]) -> [Config; 3] {
    let copying = stable().begin(Epoch(2), &[D, B, C], dead).unwrap();
    let read_old = copying.advance(Epoch(3), HOLD).unwrap();
    let read_new = read_old.advance(Epoch(4), HOLD).unwrap();
    [copying, read_old, read_new]
}

#[test]
fn quorums_follow_the_table_of_stages() {
    let [copying, read_old, read_new] = replacing(&[]);
    for (config, reads_old, reads_new) in [
        (&copying, true, false),
        (&read_old, true, false),
        (&read_new, false, true),
    ] {
        let old_only = votes(config, &[A, B]);
        let new_only = votes(config, &[C, D]);
        assert_eq!(
            config.may_read(old_only, HOLD),
            reads_old,
            "{:?}",
            config.stage
        );
        assert_eq!(
            config.may_read(new_only, HOLD),
            reads_new,
            "{:?}",
            config.stage
        );
        assert!(!config.may_accept(new_only, HOLD), "old must always accept");
    }
    assert!(copying.may_accept(votes(&copying, &[A, B]), HOLD));
    assert!(
        !read_old.may_accept(votes(&read_old, &[A, B]), HOLD),
        "only B is new"
    );
    assert!(read_old.may_accept(votes(&read_old, &[A, B, D]), HOLD));
    assert!(
        read_new.may_accept(votes(&read_new, &[B, C]), HOLD),
        "B and C are both"
    );
}

#[test]
fn an_excluded_replica_never_counts_again_in_its_move() {
    for config in replacing(&[A]) {
        assert!(!config.may_accept(votes(&config, &[A, B, D]), HOLD));
        assert!(config.may_accept(votes(&config, &[B, C, D]), HOLD));
    }
    let [copying, read_old, read_new] = replacing(&[]);
    let seat = copying.seat_of(D).unwrap();
    assert!(!read_old.gathers(seat), "D copies A");
    let excluded = read_old.exclude(Epoch(9), A).unwrap();
    assert!(excluded.gathers(seat), "D gathers from B and C instead");
    assert_eq!(excluded.stage, Stage::WriteBothReadOld);
    assert_eq!(read_new.exclude(Epoch(9), A), Err(MoveError::TooLate));
    assert_eq!(
        read_old.exclude(Epoch(9), B),
        Err(MoveError::NotDisplaced { node: B })
    );
}

#[test]
fn a_version_of_a_transitional_epoch_is_not_chosen_by_a_majority() {
    let [_, read_old, read_new] = replacing(&[]);
    let done = read_new.advance(Epoch(5), HOLD).unwrap();
    let majority = votes(&done, &[D, B]);
    assert!(done.is_chosen(ballot(1), majority, HOLD), "stable");
    assert!(
        done.is_chosen(ballot(2), majority, HOLD),
        "copying has the quorums of stable"
    );
    assert!(!done.is_chosen(ballot(3), majority, HOLD), "wrote both");
    assert!(!done.is_chosen(ballot(4), majority, HOLD), "wrote both");
    assert!(done.is_chosen(ballot(5), majority, HOLD), "its own epoch");
    let own = votes(&read_old, &[A, B]);
    assert!(
        !read_old.is_chosen(ballot(3), own, HOLD),
        "its own epoch needs both sets"
    );
}

#[test]
fn while_growing_copies_do_not_count_as_votes() {
    let copying = stable().begin(Epoch(2), &[A, B, C, D, E], &[]).unwrap();
    let read_old = copying.advance(Epoch(3), HOLD).unwrap();
    let read_new = read_old.advance(Epoch(4), HOLD).unwrap();
    assert!(
        !read_new.is_chosen(ballot(1), votes(&read_new, &[A, D, E]), HOLD),
        "D and E may have copied what A alone accepted"
    );
    assert!(read_new.is_chosen(ballot(1), votes(&read_new, &[A, B, D]), HOLD));
}

/// Seed 890540 of the simulation: after an abort the dead replica, A, counts again, and neither A
/// nor C holds the version that B alone accepted and D gathered.
#[test]
fn while_a_dead_replica_is_displaced_what_its_successor_gathered_does_not_count_as_a_vote() {
    let [_, _, read_new] = replacing(&[A]);
    assert!(
        !read_new.is_chosen(ballot(1), votes(&read_new, &[B, D]), HOLD),
        "D may have gathered what B alone accepted"
    );
    assert!(read_new.is_chosen(ballot(1), votes(&read_new, &[B, C]), HOLD));
    let [_, _, copied] = replacing(&[]);
    assert!(
        copied.is_chosen(ballot(1), votes(&copied, &[B, D]), HOLD),
        "D holds what A voted for"
    );
}

#[test]
fn a_stage_is_left_only_when_all_that_makes_it_safe_is_known() {
    let [copying, read_old, read_new] = replacing(&[]);
    let mut known = Milestones::default();
    assert!(!known.may_advance(&copying, HOLD));
    known.note(&copying, D, Milestone::Copied(Epoch(1)));
    assert!(!known.may_advance(&copying, HOLD), "of another epoch");
    known.note(&copying, D, Milestone::Copied(Epoch(2)));
    assert!(known.may_advance(&copying, HOLD));

    let mut known = Milestones::default();
    known.note(&read_old, A, Milestone::Adopted(Epoch(3)));
    known.note(&read_old, D, Milestone::Adopted(Epoch(3)));
    known.note(&read_old, D, Milestone::Snapshotted(Epoch(3)));
    assert!(
        !known.may_advance(&read_old, HOLD),
        "D is not of the old set"
    );
    known.note(&read_old, C, Milestone::Adopted(Epoch(3)));
    assert!(known.may_advance(&read_old, HOLD));

    let mut known = Milestones::default();
    known.note(&read_new, D, Milestone::Adopted(Epoch(4)));
    known.note(&read_new, B, Milestone::Adopted(Epoch(4)));
    assert!(!known.may_advance(&read_new, HOLD));
    known.note(&read_new, A, Milestone::Adopted(Epoch(4)));
    assert!(known.may_advance(&read_new, HOLD));
}

#[test]
fn a_thousand_moves_of_a_partition_are_told_apart() {
    let mut config = stable();
    let mut settled = Vec::new();
    for at in 0..1_000 {
        let to = [[D, B, C], [A, B, C]][at % 2];
        let mut step = |config: &Config, next: Result<Config, MoveError>| {
            if !config.writes_both() {
                settled.push(config.epoch);
            }
            next.unwrap()
        };
        let epoch = |config: &Config| Epoch(config.epoch.0 + 7);
        config = step(&config, config.begin(epoch(&config), &to, &[]));
        for _ in 0..3 {
            config = step(&config, config.advance(epoch(&config), HOLD));
        }
    }
    assert_eq!(settled.len(), 2_000, "stable and copying, of each move");
    for epoch in settled {
        assert!(config.settled.contains(epoch), "{epoch}");
        let transitional = [epoch.0 + 7, epoch.0 + 14].map(Epoch);
        let copying = epoch.0 % 28 == 8;
        assert!(!copying || !transitional.iter().any(|it| config.settled.contains(*it)));
    }
    let json = serde_json::to_string(&config).unwrap();
    assert!(json.len() < 8 * 1_000, "{} bytes", json.len());
    assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config);
}

#[test]
fn an_abort_once_the_new_set_reads_goes_back_in_two_steps() {
    let [copying, read_old, read_new] = replacing(&[]);
    for config in [copying, read_old] {
        let back = config.abort(Epoch(9), HOLD).unwrap();
        assert_eq!(back.stage, Stage::Stable);
        assert_eq!(back.members, stable().members, "the same memberships go on");
    }
    let returning = read_new.abort(Epoch(9), HOLD).unwrap();
    assert_eq!(returning.stage, Stage::WriteBothReadOld);
    let mut known = Milestones::default();
    for node in [A, B] {
        known.note(&returning, node, Milestone::Adopted(Epoch(9)));
    }
    assert!(
        !known.may_advance(&returning, HOLD),
        "readers of the new set remain"
    );
    known.note(&returning, D, Milestone::Adopted(Epoch(9)));
    assert!(known.may_advance(&returning, HOLD));
    let back = returning.advance(Epoch(10), HOLD).unwrap();
    assert_eq!(back.members, stable().members);
    assert!(!back.settled.contains(Epoch(9)), "the way back wrote both");
}

#[test]
fn a_node_that_comes_again_begins_another_membership() {
    let [copying, _, _] = replacing(&[]);
    let back = copying.abort(Epoch(5), HOLD).unwrap();
    let again = back.begin(Epoch(6), &[A, D, C], &[]).unwrap();
    assert_ne!(copying.member(D), again.member(D));
    assert_eq!(again.member(A), stable().member(A));
}

#[test]
fn in_a_smaller_set_everyone_must_have_gathered_from_the_old_one() {
    let copying = stable().begin(Epoch(2), &[A, D], &[]).unwrap();
    assert_eq!(copying.copiers(), votes(&copying, &[A, D]));
    let gathers = |node| copying.gathers(copying.seat_of(node).unwrap());
    assert!(
        gathers(A) && gathers(D),
        "one seat does not stand for a majority"
    );
    let read_old = copying.advance(Epoch(3), HOLD).unwrap();
    let mut known = Milestones::default();
    for node in [A, B, C, D] {
        known.note(&read_old, node, Milestone::Adopted(Epoch(3)));
    }
    known.note(&read_old, D, Milestone::Snapshotted(Epoch(3)));
    assert!(
        !known.may_advance(&read_old, HOLD),
        "A stays, and has not gathered"
    );
    known.note(&read_old, A, Milestone::Snapshotted(Epoch(3)));
    assert!(known.may_advance(&read_old, HOLD));
}

#[test]
fn changes_that_no_stage_makes_safe_are_refused() {
    let config = stable();
    let refused = |to: &[NodeId]| config.begin(Epoch(2), to, &[]).unwrap_err();
    assert_eq!(refused(&[A, B, C]), MoveError::NoChange);
    assert_eq!(refused(&[]), MoveError::BadSize { wanted: 0 });
    let dead = config.begin(Epoch(2), &[D, E, C], &[A, B]);
    assert_eq!(dead, Err(MoveError::NoMajority));
    assert!(matches!(
        config.begin(Epoch(1), &[A, B, D], &[]),
        Err(MoveError::EpochNotLater { .. })
    ));
}

#[test]
fn a_set_that_has_all_writes_and_keeps_its_majority_goes_on_whole() {
    let [copying, read_old, read_new] = replacing(&[]);
    let returning = read_new.abort(Epoch(5), HOLD).unwrap();
    let left = |config: &Config, dead: &[NodeId]| {
        let dead = dead.iter().copied().collect();
        let nodes = config.left_without(&dead);
        (nodes, config.loses_nothing_without(&dead))
    };
    let (old, new) = (Some(vec![A, B, C]), Some(vec![B, C, D]));
    assert_eq!(left(&read_new, &[D, B]), (old.clone(), true));
    assert_eq!(left(&returning, &[D, B]), (old.clone(), true));
    assert_eq!(left(&read_old, &[D, B]), (old, true));
    assert_eq!(left(&read_new, &[A, B]), (new.clone(), true));
    assert_eq!(left(&returning, &[A, B]), (new, true), "it has read");
    assert_eq!(
        left(&read_old, &[A, B]),
        (Some(vec![C]), false),
        "what D has not copied would look collected"
    );
    assert_eq!(left(&copying, &[D, B]), (None, true));
    for both in [&read_new, &returning] {
        let survivors = Some(vec![A, D]);
        assert_eq!(
            left(both, &[B, C]),
            (survivors, false),
            "each may know more"
        );
    }
    assert_eq!(left(&read_old, &[B, C]), (Some(vec![A]), false));
    assert_eq!(left(&read_old, &[A, B, C]), (Some(vec![]), false));
}

#[test]
fn versions_of_lost_epochs_prove_nothing() {
    let recovered = Epoch(100);
    for config in replacing(&[]) {
        let next = config.recover(recovered).unwrap();
        assert_eq!((next.epoch, next.stage), (recovered, config.stage));
        assert_eq!(next.members, config.members);
        assert_eq!(next.check(), Ok(()));
        let all = votes(&next, &[A, B, C, D]);
        for lost in [config.epoch.0 + 1, 99] {
            assert!(!next.settled.contains(Epoch(lost)));
        }
        assert!(next.is_chosen(ballot(1), all, HOLD));
        assert_eq!(next.settled.contains(config.epoch), !config.writes_both());
    }
    let next = stable().recover(Epoch(2)).unwrap();
    assert_eq!(next, stable().renew(Epoch(2), false).unwrap(), "no gap");
}
