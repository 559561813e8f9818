//! Sessions: many operations in flight on one bidirectional stream.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use futures::{Stream, StreamExt as _};
use tonic::{Status, Streaming};
use torc_proto::v1::session_request::Operation as Wanted;
use torc_proto::v1::session_response::Outcome;
use torc_proto::v1::{SessionRequest, SessionResponse};
use torc_proto::{Fault, Reason};

use super::operate;
use crate::metrics::Operation;
use crate::shared::{DEFAULT_DEADLINE, Shared};

/// Operations of one session under way at a time; more wait in the connection's window.
const IN_FLIGHT: usize = 1024;

pub(crate) type SessionStream = Pin<Box<dyn Stream<Item = Result<SessionResponse, Status>> + Send>>;

pub(super) fn start(shared: &Arc<Shared>, requests: Streaming<SessionRequest>) -> SessionStream {
    let shared = Arc::clone(shared);
    let answers = requests
        .map(move |request| {
            let shared = Arc::clone(&shared);
            async move { Ok(answer(&shared, request?).await) }
        })
        .buffer_unordered(IN_FLIGHT);
    Box::pin(answers)
}

async fn answer(shared: &Arc<Shared>, request: SessionRequest) -> SessionResponse {
    let deadline = Instant::now() + DEFAULT_DEADLINE;
    let result = match request.operation {
        Some(Wanted::Get(get)) => {
            let timer = shared.metrics.start(Operation::Get);
            let result = match shared.admission.admit(1) {
                Ok(_admitted) => operate::get(shared, get, deadline).await,
                Err(refused) => Err(refused),
            };
            timer.stop(&result);
            result.map(Outcome::Get)
        }
        Some(Wanted::Put(put)) => {
            let timer = shared.metrics.start(Operation::Put);
            let result = match shared.admission.admit(1) {
                Ok(_admitted) => operate::put(shared, put, deadline).await,
                Err(refused) => Err(refused),
            };
            timer.stop(&result);
            result.map(Outcome::Put)
        }
        Some(Wanted::Delete(delete)) => {
            let timer = shared.metrics.start(Operation::Delete);
            let result = match shared.admission.admit(1) {
                Ok(_admitted) => operate::delete(shared, delete, deadline).await,
                Err(refused) => Err(refused),
            };
            timer.stop(&result);
            result.map(Outcome::Delete)
        }
        None => Err(Fault::new(
            Reason::Invalid,
            "the message holds no operation",
        )),
    };
    let outcome = result.unwrap_or_else(|fault| Outcome::Fault(fault.into()));
    SessionResponse {
        id: request.id,
        outcome: Some(outcome),
    }
}
