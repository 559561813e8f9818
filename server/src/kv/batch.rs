//! Batches: all items run concurrently, each succeeds or fails on its own, and answers
//! come in order.

use std::sync::Arc;

use torc_access::caller::Caller;
use torc_proto::v1::{
    self, BatchGetRequest, BatchGetResponse, BatchPutRequest, BatchPutResponse, GetRequest,
    GetResponse, GetResult, PutResult, get_result, put_result,
};
use torc_proto::{Fault, MAX_BATCH_ITEMS, Reason};

use torc_ring::topology::ReadGenerations;

use super::item::Item;
use super::node::KvNode;
use super::run;
use crate::call::CallContext;

/// Bytes of values per answer. A message is at most twice as long.
const ANSWER_BYTES: usize = 8 << 20;
/// Gets under way at a time, which bounds the values in memory, whatever their length.
const GETS_AT_ONCE: usize = 128;

pub(super) async fn get(
    node: &Arc<KvNode>,
    caller: &Caller,
    request: BatchGetRequest,
    call: CallContext,
) -> Result<BatchGetResponse, Fault> {
    check_count(request.items.len())?;
    let mut generations = ReadGenerations::default();
    loop {
        let results = read(node, caller, &request.items, call, &mut generations).await;
        // Ends even if generations change all the time: past the deadline, gets fail at once.
        if !generations.have_changed() {
            return Ok(BatchGetResponse { results });
        }
    }
}

async fn read(
    node: &Arc<KvNode>,
    caller: &Caller,
    items: &[GetRequest],
    call: CallContext,
    generations: &mut ReadGenerations,
) -> Vec<GetResult> {
    let mut parts = items.chunks(GETS_AT_ONCE);
    let mut results = Vec::with_capacity(items.len());
    let mut room = ANSWER_BYTES;
    let answered = |result| {
        let outcome = match result {
            Ok(response) => get_result::Outcome::Ok(response),
            Err(fault) => get_result::Outcome::Fault(v1::Fault::from(fault)),
        };
        GetResult {
            outcome: Some(outcome),
        }
    };
    while room > 0
        && let Some(part) = parts.next()
    {
        let gets = allowed(node, caller, part, call, Some(generations)).await;
        results.extend(gets.into_iter().map(|result| {
            let result = result.and_then(|response| fit(response, &mut room));
            answered(result)
        }));
    }
    // The answer is full, so these were not read.
    results.extend(parts.flatten().map(|_| answered(Err(full()))));
    results
}

/// Runs the items that the caller's permissions allow, and denies the others, each at its index.
async fn allowed<I: Item>(
    node: &Arc<KvNode>,
    caller: &Caller,
    items: &[I],
    call: CallContext,
    generations: Option<&mut ReadGenerations>,
) -> Vec<Result<I::Answer, Fault>> {
    if !caller.is_scoped() {
        return run::many(node, items, call, generations).await;
    }
    let (mut denied, mut open) = (Vec::with_capacity(items.len()), Vec::new());
    for item in items {
        let (namespace, key) = item.place();
        let may = node.may(caller, I::ROLE, namespace, key);
        if may.is_ok() {
            open.push(item.clone());
        }
        denied.push(may.err());
    }
    let answers = run::many(node, &open, call, generations).await;
    let mut answers = answers.into_iter();
    let answers = denied.into_iter().map(|denied| match denied {
        Some(fault) => Err(fault),
        None => answers.next().unwrap_or_else(|| Err(run::lost())),
    });
    answers.collect()
}

fn full() -> Fault {
    let message = "the answer is full: send the remaining items in another batch";
    Fault::new(Reason::Overloaded, message)
}

/// Adds a value to the answer if there is room; the first value always fits.
fn fit(response: GetResponse, room: &mut usize) -> Result<GetResponse, Fault> {
    let bytes = response.value.len();
    if bytes > *room && *room < ANSWER_BYTES {
        *room = 0;
        return Err(full());
    }
    *room = room.saturating_sub(bytes);
    Ok(response)
}

pub(super) async fn put(
    node: &Arc<KvNode>,
    caller: &Caller,
    request: BatchPutRequest,
    call: CallContext,
) -> Result<BatchPutResponse, Fault> {
    check_count(request.items.len())?;
    let puts = allowed(node, caller, &request.items, call, None).await;
    let results = puts.into_iter().map(|result| {
        let outcome = match result {
            Ok(response) => put_result::Outcome::Ok(response),
            Err(fault) => put_result::Outcome::Fault(v1::Fault::from(fault)),
        };
        PutResult {
            outcome: Some(outcome),
        }
    });
    Ok(BatchPutResponse {
        results: results.collect(),
    })
}

fn check_count(items: usize) -> Result<(), Fault> {
    if items > MAX_BATCH_ITEMS {
        let message =
            format!("the batch has {items} items, but at most {MAX_BATCH_ITEMS} are allowed");
        return Err(Fault::new(Reason::Invalid, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_takes_values_while_there_is_room_and_always_one() {
        let response = |len: usize| GetResponse {
            value: vec![0; len].into(),
            ..Default::default()
        };
        let mut room = ANSWER_BYTES;
        assert!(
            fit(response(ANSWER_BYTES + 1), &mut room).is_ok(),
            "one must get through"
        );
        assert!(fit(response(1), &mut room).unwrap_err().is_retryable());
        let mut room = ANSWER_BYTES;
        assert!(fit(response(ANSWER_BYTES - 1), &mut room).is_ok());
        assert!(fit(response(2), &mut room).is_err());
        assert!(
            fit(response(1), &mut room).is_err(),
            "once full, the order is kept"
        );
        assert!(
            fit(response(0), &mut room).is_ok(),
            "an absent key takes no room"
        );
    }
}
