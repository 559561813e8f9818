//! Sessions: many operations in flight on one bidirectional stream.
//!
//! A session that is old, or whose node is about to stop, asks for operations to come on another one, and goes
//! on until its caller ends it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::ready;
use futures::{Stream, StreamExt as _, stream};
use tokio::sync::oneshot;
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
/// Somewhat less than a connection lives: so it is used by nobody when it ends.
const MAX_AGE: Duration = Duration::from_secs(3_300);

pub(crate) type SessionStream = Pin<Box<dyn Stream<Item = Result<SessionResponse, Status>> + Send>>;

pub(super) fn start(shared: &Arc<Shared>, requests: Streaming<SessionRequest>) -> SessionStream {
    let (ended, end) = oneshot::channel::<()>();
    let farewell = stream::once(farewell(Arc::clone(shared), end)).filter_map(ready);
    let ending = stream::once(async move { drop(ended) }).filter_map(|()| ready(None));
    let shared = Arc::clone(shared);
    let answers = requests
        .map(move |request| {
            let shared = Arc::clone(&shared);
            async move { Ok(answer(&shared, request?).await) }
        })
        .buffer_unordered(IN_FLIGHT);
    Box::pin(stream::select(answers.chain(ending), farewell))
}

/// Asks the caller to go elsewhere, unless the session has ended before.
async fn farewell(
    shared: Arc<Shared>,
    end: oneshot::Receiver<()>,
) -> Option<Result<SessionResponse, Status>> {
    tokio::select! {
        _ = end => None,
        () = shared.cancel.cancelled() => Some(Ok(SessionResponse::default())),
        () = tokio::time::sleep(MAX_AGE) => Some(Ok(SessionResponse::default())),
    }
}

async fn answer(shared: &Arc<Shared>, request: SessionRequest) -> SessionResponse {
    let time = match request.timeout_ms {
        0 => DEFAULT_DEADLINE,
        ms => Duration::from_millis(ms.into()),
    };
    let deadline = Instant::now() + time;
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
