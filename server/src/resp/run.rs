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

use torc_proto::v1::condition::Kind;
use torc_proto::v1::{Condition, DeleteRequest, GetRequest, GetResponse, PutRequest};
use torc_proto::{Fault, Reason};
use torc_record::MAX_VALUE_LEN;
use torc_resp::{Entry, Expiry, KeyOp, KeyState, Reply, SetIf, SetOp};
use torc_telemetry::clock::unix_ms;

use super::burst::{Group, Place};
use super::modify;
use crate::kv::{self, Generations};
use crate::shared::Shared;

/// Gets under way at a time, which bounds the values in memory.
const GETS_AT_ONCE: usize = 128;

/// The replies of a group's commands, or the fault of the whole group.
pub(super) type Answers = Result<Vec<Reply>, Fault>;

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
    shared: &Arc<Shared>,
    groups: Vec<Group>,
    deadline: Instant,
) -> Vec<Answers> {
    let count = groups.len();
    let _admitted = match shared.admission.admit(count) {
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
        read(shared, reads, deadline),
        overwrite(shared, blind, deadline),
        delete(shared, deletes, deadline),
        set_if_absent(shared, absent, deadline),
        modify::all(shared, modify, deadline),
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

/// Applies commands one after another.
pub(super) fn apply(ops: &[KeyOp], state: &mut KeyState) -> Vec<Reply> {
    let apply = |op: &KeyOp| {
        let reply = op.apply(state);
        reply.unwrap_or_else(|error| Reply::Error(error.to_string()))
    };
    ops.iter().map(apply).collect()
}

/// The state of a key from its read. The read alone judges expiry, because it makes an expiry that
/// it observes last; this node's clock would say `nil` and a later read the value again.
pub(super) fn state_of(read: GetResponse) -> KeyState {
    let entry = read.found.then_some(Entry {
        value: read.value,
        expires_at_ms: (read.expires_at_ms != 0).then_some(read.expires_at_ms),
    });
    KeyState::new(entry, unix_ms(), MAX_VALUE_LEN)
}

async fn read(
    shared: &Arc<Shared>,
    groups: Vec<Numbered>,
    deadline: Instant,
) -> Vec<(usize, Answers)> {
    let mut generations = Generations::default();
    loop {
        let answers = read_parts(shared, &groups, deadline, &mut generations).await;
        // Ends even if generations change all the time: past the deadline, gets fail at once.
        if !generations.have_changed() {
            return answers;
        }
    }
}

async fn read_parts(
    shared: &Arc<Shared>,
    groups: &[Numbered],
    deadline: Instant,
    generations: &mut Generations,
) -> Vec<(usize, Answers)> {
    let mut answers = Vec::with_capacity(groups.len());
    for part in groups.chunks(GETS_AT_ONCE) {
        let gets = part.iter().map(|(_, group)| get(shared, &group.place));
        let values = get_all(shared, gets.collect(), deadline, generations).await;
        answers.extend(part.iter().zip(values).map(|((number, group), value)| {
            let answer = value.map(|value| apply(&group.ops, &mut state_of(value)));
            (*number, answer)
        }));
    }
    answers
}

/// Gets values. If another node's answer is full, asks again for the remaining ones.
pub(super) async fn get_all(
    shared: &Arc<Shared>,
    gets: Vec<GetRequest>,
    deadline: Instant,
    generations: &mut Generations,
) -> Vec<Result<GetResponse, Fault>> {
    let is_left = |value: &Result<GetResponse, Fault>| {
        let fault = value.as_ref().err();
        fault.is_some_and(|fault| fault.reason == Reason::Overloaded)
    };
    let mut values = kv::get_all(shared, &gets, deadline, generations).await;
    let mut count = values.len();
    loop {
        let numbers = 0..values.len();
        let left: Vec<_> = numbers.filter(|number| is_left(&values[*number])).collect();
        // Without progress, the node itself is at a limit.
        if left.is_empty() || left.len() == count {
            return values;
        }
        count = left.len();
        let again: Vec<_> = left.iter().map(|number| gets[*number].clone()).collect();
        let again = kv::get_all(shared, &again, deadline, generations).await;
        for (number, value) in left.into_iter().zip(again) {
            values[number] = value;
        }
    }
}

async fn overwrite(
    shared: &Arc<Shared>,
    groups: Vec<(usize, Place, Option<Entry>, Vec<Reply>)>,
    deadline: Instant,
) -> Vec<(usize, Answers)> {
    let (mut puts, mut deletes) = (Vec::new(), Vec::new());
    let (mut put, mut deleted) = (Vec::new(), Vec::new());
    for (number, place, left, replies) in groups {
        if let Some(entry) = left {
            puts.push(put_of(shared, &place, entry, None));
            put.push((number, replies));
        } else {
            deletes.push(delete_of(shared, &place, None));
            deleted.push((number, replies));
        }
    }
    let (puts, deletes) = tokio::join!(
        kv::put_all(shared, &puts, deadline),
        kv::delete_all(shared, &deletes, deadline),
    );
    let outcomes = puts.into_iter().map(|it| it.map(|_| ()));
    let outcomes = outcomes.chain(deletes.into_iter().map(|it| it.map(|_| ())));
    let groups = put.into_iter().chain(deleted).zip(outcomes);
    let answers = groups.map(|((number, replies), outcome)| (number, outcome.map(|()| replies)));
    answers.collect()
}

async fn delete(
    shared: &Arc<Shared>,
    groups: Vec<Numbered>,
    deadline: Instant,
) -> Vec<(usize, Answers)> {
    let deletes = groups.iter().map(|(_, group)| DeleteRequest {
        want_existed: true,
        ..delete_of(shared, &group.place, None)
    });
    let deletes: Vec<_> = deletes.collect();
    let outcomes = kv::delete_all(shared, &deletes, deadline).await;
    let groups = groups.into_iter().zip(outcomes);
    let told = |existed: bool| vec![Reply::Integer(existed.into())];
    let answers = groups.map(|((number, _), outcome)| (number, outcome.map(|it| told(it.existed))));
    answers.collect()
}

async fn set_if_absent(
    shared: &Arc<Shared>,
    groups: Vec<Numbered>,
    deadline: Instant,
) -> Vec<(usize, Answers)> {
    let (mut numbers, mut puts) = (Vec::new(), Vec::new());
    for (number, group) in groups {
        for op in group.ops {
            let KeyOp::Set(set) = op else { continue };
            let mut state = KeyState::new(None, unix_ms(), MAX_VALUE_LEN);
            let replies = apply(&[KeyOp::Set(set.clone())], &mut state);
            let Some(entry) = state.entry else { continue };
            puts.push(put_of(
                shared,
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
    let outcomes = kv::put_all(shared, &puts, deadline).await;
    let answers = numbers.into_iter().zip(outcomes);
    let answers = answers.map(|((number, replies, refused), outcome)| match outcome {
        Ok(_) => (number, Ok(replies)),
        Err(fault) if fault.reason == Reason::ConditionNotMet => (number, Ok(vec![refused])),
        Err(fault) => (number, Err(fault)),
    });
    answers.collect()
}

pub(super) fn get(shared: &Shared, place: &Place) -> GetRequest {
    GetRequest {
        namespace: shared.resp.namespace(place.database),
        key: place.key.clone(),
        ..GetRequest::default()
    }
}

pub(super) fn put_of(
    shared: &Shared,
    place: &Place,
    entry: Entry,
    condition: Option<Kind>,
) -> PutRequest {
    PutRequest {
        namespace: shared.resp.namespace(place.database),
        key: place.key.clone(),
        value: entry.value,
        expires_at_ms: entry.expires_at_ms.unwrap_or(0),
        condition: condition.map(|kind| Condition { kind: Some(kind) }),
        ..PutRequest::default()
    }
}

pub(super) fn delete_of(shared: &Shared, place: &Place, condition: Option<Kind>) -> DeleteRequest {
    DeleteRequest {
        namespace: shared.resp.namespace(place.database),
        key: place.key.clone(),
        condition: condition.map(|kind| Condition { kind: Some(kind) }),
        ..DeleteRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_resp::Unit;

    #[test]
    fn a_value_that_was_found_is_there_whatever_this_nodes_clock_says() {
        let mut state = state_of(GetResponse {
            found: true,
            value: "v".into(),
            expires_at_ms: 1,
            ..GetResponse::default()
        });
        let ops = [
            KeyOp::Get,
            KeyOp::Exists,
            KeyOp::Strlen,
            KeyOp::Ttl(Unit::Seconds),
            KeyOp::Ttl(Unit::Milliseconds),
            KeyOp::ExpireTime(Unit::Milliseconds),
        ];
        let wanted = [
            Reply::Bulk("v".into()),
            Reply::Integer(1),
            Reply::Integer(1),
            Reply::Integer(0),
            Reply::Integer(0),
            Reply::Integer(1),
        ];
        assert_eq!(apply(&ops, &mut state), wanted);
    }
}
