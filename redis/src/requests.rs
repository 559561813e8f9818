//! Gets, puts and deletes of keys of databases, and commands applied to what a get found.

use std::sync::Arc;
use std::time::Instant;

use torc_proto::v1::condition::Kind;
use torc_proto::v1::{Condition, DeleteRequest, GetRequest, GetResponse, PutRequest};
use torc_proto::{Fault, Reason};
use torc_record::MAX_VALUE_LEN;
use torc_resp::{Entry, KeyOp, KeyState, Reply};
use torc_ring::topology::ReadGenerations;
use torc_telemetry::clock::unix_ms;

use super::burst::Place;
use crate::Server;

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

/// Gets values. If another node's answer is full, asks again for the remaining ones.
pub(super) async fn get_all(
    server: &Arc<Server>,
    gets: Vec<GetRequest>,
    deadline: Instant,
    generations: &mut ReadGenerations,
) -> Vec<Result<GetResponse, Fault>> {
    let is_left = |value: &Result<GetResponse, Fault>| {
        let fault = value.as_ref().err();
        fault.is_some_and(|fault| fault.reason == Reason::Overloaded)
    };
    let mut values = server.node.get_all(&gets, deadline, generations).await;
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
        let again = server.node.get_all(&again, deadline, generations).await;
        for (number, value) in left.into_iter().zip(again) {
            values[number] = value;
        }
    }
}

pub(super) fn get(server: &Server, place: &Place) -> GetRequest {
    GetRequest {
        namespace: server.namespace(place.database),
        key: place.key.clone(),
        ..GetRequest::default()
    }
}

pub(super) fn put_of(
    server: &Server,
    place: &Place,
    entry: Entry,
    condition: Option<Kind>,
) -> PutRequest {
    PutRequest {
        namespace: server.namespace(place.database),
        key: place.key.clone(),
        value: entry.value,
        expires_at_ms: entry.expires_at_ms.unwrap_or(0),
        condition: condition.map(|kind| Condition { kind: Some(kind) }),
        ..PutRequest::default()
    }
}

pub(super) fn delete_of(server: &Server, place: &Place, condition: Option<Kind>) -> DeleteRequest {
    DeleteRequest {
        namespace: server.namespace(place.database),
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
