use super::*;
use crate::history::{KeyHistory, Kind, Operation, Seen};
use proptest::prelude::*;

const NEVER: u64 = u64::MAX;

fn op(kind: Kind, seen: Seen, call: u64, ret: u64) -> Operation {
    Operation {
        kind,
        seen,
        call,
        ret,
        ret_ms: ret,
    }
}

fn put(value: u32, call: u64, ret: u64) -> Operation {
    op(Kind::Put(value), Seen::Done, call, ret)
}

fn lost(kind: Kind, call: u64) -> Operation {
    op(kind, Seen::Unknown, call, NEVER)
}

fn get(value: u32, call: u64, ret: u64) -> Operation {
    op(Kind::Get, Seen::Value(value), call, ret)
}

fn history(operations: &[Operation]) -> KeyHistory {
    KeyHistory {
        operations: operations.to_vec(),
        ..KeyHistory::default()
    }
}

#[track_caller]
fn both(history: &KeyHistory, expected: Verdict, reason: &str) {
    assert_eq!(check(history), expected, "search: {reason}");
    assert_eq!(
        check_by_configurations(history),
        expected,
        "configurations: {reason}"
    );
}

#[test]
fn histories_that_an_order_explains_are_linearizable() {
    let good: &[(&[Operation], &str)] = &[
        (&[], "nothing happened"),
        (&[get(0, 1, 2)], "a key is absent at first"),
        (&[put(1, 1, 2), get(1, 3, 4)], "one after the other"),
        (
            &[put(1, 1, 10), get(0, 2, 3), get(1, 4, 5)],
            "the put takes effect between the two reads",
        ),
        (
            &[put(1, 1, 4), put(2, 2, 3), get(1, 5, 6)],
            "of two puts at once either may be the last",
        ),
        (
            &[lost(Kind::Put(1), 1), get(0, 2, 3), get(1, 9, 10)],
            "a lost put may happen late",
        ),
        (&[lost(Kind::Put(1), 1), get(0, 2, 3)], "or never"),
        (
            &[
                put(1, 1, 2),
                op(Kind::Cas(1, 2), Seen::Done, 3, 6),
                op(Kind::Cas(1, 3), Seen::Value(2), 4, 7),
            ],
            "of two conditional writes one applies and the other sees it",
        ),
        (
            &[
                put(1, 1, 2),
                op(Kind::Delete, Seen::Done, 3, 4),
                op(Kind::PutIfAbsent(2), Seen::Done, 5, 6),
                get(2, 7, 8),
            ],
            "absent again after a delete",
        ),
    ];
    for (operations, reason) in good {
        both(&history(operations), Verdict::Linearizable, reason);
    }
}

#[test]
fn histories_that_no_order_explains_are_violations() {
    let bad: &[(&[Operation], &str)] = &[
        (&[get(7, 1, 2)], "a value that nobody wrote"),
        (&[put(1, 1, 2), get(0, 3, 4)], "a write that was lost"),
        (&[put(1, 1, 2), put(2, 3, 4), get(1, 5, 6)], "a stale read"),
        (
            &[put(1, 1, 2), put(2, 3, 20), get(2, 4, 5), get(1, 6, 7)],
            "a new value, and then the old one",
        ),
        (
            &[
                put(1, 1, 2),
                op(Kind::Cas(1, 2), Seen::Done, 3, 6),
                op(Kind::Cas(1, 3), Seen::Done, 4, 7),
            ],
            "two conditional writes on the same version",
        ),
        (
            &[
                lost(Kind::Put(1), 1),
                get(1, 2, 3),
                put(2, 4, 5),
                get(2, 6, 7),
                get(1, 8, 9),
            ],
            "a lost write that happens twice",
        ),
        (
            &[op(Kind::Delete, Seen::Done, 1, 2)],
            "a delete that found something where nothing was",
        ),
        (
            &[put(1, 1, 2), op(Kind::PutIfAbsent(2), Seen::Done, 3, 4)],
            "a condition that did not hold",
        ),
    ];
    for (operations, reason) in bad {
        both(&history(operations), Verdict::Violation, reason);
    }
}

#[test]
fn an_expired_value_is_gone_once_and_not_too_early() {
    let expiring = |reads: &[Operation]| KeyHistory {
        operations: [&[put(1, 1, 2)], reads].concat(),
        expiries: vec![(1, 50)],
        ..KeyHistory::default()
    };
    let gone = expiring(&[get(1, 60, 61), get(0, 70, 71)]);
    both(
        &gone,
        Verdict::Linearizable,
        "clocks differ, so it may live on for a while",
    );
    let back = expiring(&[get(0, 60, 61), get(1, 70, 71)]);
    both(&back, Verdict::Violation, "once gone it stays gone");
    let early = expiring(&[get(0, 30, 31)]);
    both(&early, Verdict::Violation, "no clock said so yet");
}

#[test]
fn of_two_puts_of_a_batch_the_later_one_wins() {
    let batch = |order, read| KeyHistory {
        operations: vec![
            put(1, 1, 9),
            put(2, 2, 8),
            lost(Kind::Put(7), 3),
            get(read, 10, 11),
        ],
        orders: vec![order],
        ..KeyHistory::default()
    };
    both(&batch((0, 1), 2), Verdict::Linearizable, "it was the last");
    both(&batch((0, 1), 1), Verdict::Violation, "it was the first");
    both(&batch((1, 0), 1), Verdict::Linearizable, "it was the last");
}

#[test]
fn a_long_history_is_undecided_not_accepted() {
    let many: Vec<_> = (0..129).map(|at| get(9, 10 * at, 10 * at + 5)).collect();
    assert_eq!(check(&history(&many)), Verdict::Undecided);
}

#[test]
fn pruning_keeps_a_write_that_a_later_delete_needs() {
    let operations = [
        lost(Kind::Put(1), 1),
        op(Kind::Delete, Seen::Done, 2, 3),
        lost(Kind::Put(2), 4),
        lost(Kind::Get, 5),
    ];
    let pruned = history(&operations).pruned();
    assert_eq!(
        pruned.operations,
        operations[..2],
        "put 1 explains the delete"
    );
    both(
        &history(&operations),
        Verdict::Linearizable,
        "put 1, delete",
    );
}

fn any_operation() -> impl Strategy<Value = (u8, u32, u32, u64, u64, bool)> {
    (
        0_u8..5,
        1_u32..4,
        0_u32..4,
        0_u64..40,
        1_u64..12,
        any::<bool>(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn the_two_checkers_agree(
        drawn in proptest::collection::vec(any_operation(), 1..9),
        expiring in any::<bool>(),
    ) {
        let mut operations = Vec::new();
        for (index, (what, value, other, call, length, known)) in drawn.into_iter().enumerate() {
            // Makes times unique by including the operation's index.
            let call = 16 * call + index as u64;
            let ret = call + 16 * length;
            let kind = match what {
                0 => Kind::Get,
                1 => Kind::Put(value),
                2 => Kind::PutIfAbsent(value),
                3 => Kind::Cas(other, value),
                _ => Kind::Delete,
            };
            let seen = match kind {
                Kind::Get => Seen::Value(other),
                _ if other == 0 => Seen::Value(value),
                _ => Seen::Done,
            };
            operations.push(if known { op(kind, seen, call, ret) } else { lost(kind, call) });
        }
        let expiries = if expiring { vec![(1, 100)] } else { Vec::new() };
        let history = KeyHistory { operations, expiries, ..KeyHistory::default() };
        prop_assert_eq!(check(&history), check_by_configurations(&history));
    }
}
