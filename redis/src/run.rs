//! Runs the groups of a burst.
//!
//! Each group is one operation on its key:
//! * commands that read: a get;
//! * commands whose first one overwrites unconditionally: a put or delete without a condition;
//! * a single deletion: a delete that reports whether there was a value; a single `SET … NX`: a
//!   conditional put;
//! * anything else: a read-modify-write (`modify`).

use std::sync::Arc;
use std::time::Instant;

use torc_proto::Reason;
use torc_proto::v1::DeleteRequest;
use torc_proto::v1::condition::Kind;
use torc_record::MAX_VALUE_LEN;
use torc_resp::{Entry, Expiry, KeyOp, KeyState, Reply, SetIf, SetOp};
use torc_ring::topology::ReadGenerations;
use torc_telemetry::clock::unix_ms;

use super::burst::{Group, Place};
use super::modify;
use super::requests::{apply, delete_of, get, get_all, put_of, state_of};
use crate::{Answers, Server};

/// Gets under way at a time, which bounds the values in memory.
const GETS_AT_ONCE: usize = 128;

/// How a group runs.
enum Execution {
    Read,
    /// The result does not depend on the old value: write this entry, or delete the key.
    Blind(Option<Entry>, Vec<Reply>),
    Delete,
    SetIfAbsent,
    Modify,
}

/// A group, and its index in the burst.
type Numbered = (usize, Group);

/// Runs all groups; returns the answers in the same order.
pub(super) async fn all(
    server: &Arc<Server>,
    groups: Vec<Group>,
    deadline: Instant,
) -> Vec<Answers> {
    let count = groups.len();
    let _admitted = match server.admit(count) {
        Ok(admitted) => admitted,
        Err(refused) => return vec![Err(refused); count],
    };
    let (mut reads, mut blind, mut deletes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut absent, mut modify) = (Vec::new(), Vec::new());
    for (number, group) in groups.into_iter().enumerate() {
        match execution(&group.ops) {
            Execution::Read => reads.push((number, group)),
            Execution::Blind(left, replies) => blind.push((number, group.place, left, replies)),
            Execution::Delete => deletes.push((number, group)),
            Execution::SetIfAbsent => absent.push((number, group)),
            Execution::Modify => modify.push((number, group)),
        }
    }
    let mut answers: Vec<Answers> = Vec::new();
    answers.resize_with(count, || Ok(Vec::new()));
    let done = tokio::join!(
        read(server, reads, deadline),
        overwrite(server, blind, deadline),
        delete(server, deletes, deadline),
        set_if_absent(server, absent, deadline),
        modify::all(server, modify, deadline),
    );
    let done = [done.0, done.1, done.2, done.3, done.4];
    for (number, answer) in done.into_iter().flatten() {
        answers[number] = answer;
    }
    answers
}

fn execution(ops: &[KeyOp]) -> Execution {
    match ops {
        [KeyOp::Del] => return Execution::Delete,
        [KeyOp::Set(set)] if is_if_absent(set) => return Execution::SetIfAbsent,
        [first, ..] if first.is_blind(MAX_VALUE_LEN) => {}
        ops if ops.iter().all(KeyOp::is_read) => return Execution::Read,
        _ => return Execution::Modify,
    }
    let mut state = KeyState::new(None, unix_ms(), MAX_VALUE_LEN);
    let replies = apply(ops, &mut state);
    Execution::Blind(state.entry, replies)
}

fn is_if_absent(set: &SetOp) -> bool {
    let fits =
        set.value.len() <= MAX_VALUE_LEN && matches!(set.expiry, Expiry::Never | Expiry::In(_));
    set.condition == SetIf::Absent && !set.tells_old && fits
}

async fn read(
    server: &Arc<Server>,
    groups: Vec<Numbered>,
    deadline: Instant,
) -> Vec<(usize, Answers)> {
    let mut generations = ReadGenerations::default();
    loop {
        let answers = read_parts(server, &groups, deadline, &mut generations).await;
        // Ends even if generations change all the time: past the deadline, gets fail at once.
        if !generations.have_changed() {
            return answers;
        }
    }
}

async fn read_parts(
    server: &Arc<Server>,
    groups: &[Numbered],
    deadline: Instant,
    generations: &mut ReadGenerations,
) -> Vec<(usize, Answers)> {
    let mut answers = Vec::with_capacity(groups.len());
    for part in groups.chunks(GETS_AT_ONCE) {
        let gets = part.iter().map(|(_, group)| get(server, &group.place));
        let values = get_all(server, gets.collect(), deadline, generations).await;
        answers.extend(part.iter().zip(values).map(|((number, group), value)| {
            let answer = value.map(|value| apply(&group.ops, &mut state_of(value)));
            (*number, answer)
        }));
    }
    answers
}

async fn overwrite(
    server: &Arc<Server>,
    groups: Vec<(usize, Place, Option<Entry>, Vec<Reply>)>,
    deadline: Instant,
) -> Vec<(usize, Answers)> {
    if groups.is_empty() {
        return Vec::new();
    }
    let (mut puts, mut deletes) = (Vec::new(), Vec::new());
    let (mut put, mut deleted) = (Vec::new(), Vec::new());
    for (number, place, left, replies) in groups {
        if let Some(entry) = left {
            puts.push(put_of(server, &place, entry, None));
            put.push((number, replies));
        } else {
            deletes.push(delete_of(server, &place, None));
            deleted.push((number, replies));
        }
    }
    let (puts, deletes) = tokio::join!(
        server.node.put_all(&puts, deadline),
        server.node.delete_all(&deletes, deadline),
    );
    let outcomes = puts.into_iter().map(|it| it.map(|_| ()));
    let outcomes = outcomes.chain(deletes.into_iter().map(|it| it.map(|_| ())));
    let groups = put.into_iter().chain(deleted).zip(outcomes);
    let answers = groups.map(|((number, replies), outcome)| (number, outcome.map(|()| replies)));
    answers.collect()
}

async fn delete(
    server: &Arc<Server>,
    groups: Vec<Numbered>,
    deadline: Instant,
) -> Vec<(usize, Answers)> {
    if groups.is_empty() {
        return Vec::new();
    }
    let deletes = groups.iter().map(|(_, group)| DeleteRequest {
        want_existed: true,
        ..delete_of(server, &group.place, None)
    });
    let deletes: Vec<_> = deletes.collect();
    let outcomes = server.node.delete_all(&deletes, deadline).await;
    let groups = groups.into_iter().zip(outcomes);
    let told = |existed: bool| vec![Reply::Integer(existed.into())];
    let answers = groups.map(|((number, _), outcome)| (number, outcome.map(|it| told(it.existed))));
    answers.collect()
}

async fn set_if_absent(
    server: &Arc<Server>,
    groups: Vec<Numbered>,
    deadline: Instant,
) -> Vec<(usize, Answers)> {
    if groups.is_empty() {
        return Vec::new();
    }
    let (mut numbers, mut puts) = (Vec::new(), Vec::new());
    for (number, group) in groups {
        for op in group.ops {
            let KeyOp::Set(set) = op else { continue };
            let mut state = KeyState::new(None, unix_ms(), MAX_VALUE_LEN);
            let replies = apply(&[KeyOp::Set(set.clone())], &mut state);
            let Some(entry) = state.entry else { continue };
            puts.push(put_of(
                server,
                &group.place,
                entry,
                Some(Kind::IfAbsent(true)),
            ));
            let refused = if set.tells_number {
                Reply::Integer(0)
            } else {
                Reply::Null
            };
            numbers.push((number, replies, refused));
        }
    }
    let outcomes = server.node.put_all(&puts, deadline).await;
    let answers = numbers.into_iter().zip(outcomes);
    let answers = answers.map(|((number, replies, refused), outcome)| match outcome {
        Ok(_) => (number, Ok(replies)),
        Err(fault) if fault.reason == Reason::ConditionNotMet => (number, Ok(vec![refused])),
        Err(fault) => (number, Err(fault)),
    });
    answers.collect()
}
