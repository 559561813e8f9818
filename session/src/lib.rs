//! Sessions: many operations on single keys share one stream to a node.
//!
//! The client library sends its operations on sessions, and so does a node that forwards an
//! operation to the lead of its partition. A separate call would cost each operation several
//! microseconds of headers and frames on both sides. On an existing stream it costs a message, and
//! messages that are ready together travel together. For the same reason, a node's first session
//! fills up before its next connection gets one.
//!
//! Invariants:
//! * An operation that ended with [`Unsent`] was not started and never will be.
//! * One that is withdrawn, or whose caller no longer waits, is never sent from then on. If it was
//!   sent before, the node is told to end it.
//! * Nothing is sent before the node has accepted the stream.
//! * When the stream breaks, sent operations are in doubt; waiting ones, and those that the
//!   node reports as unread, are [`Unsent`].
//! * Each operation holds a place of its sender's window, which limits those in flight at a node;
//!   more wait for a place, where giving up costs nothing.
//!
//! An old stream, or one whose node is about to stop, accepts no more operations and ends when
//! the sent ones are answered.

use std::collections::HashMap;
use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Response, Status, Streaming};
use torc_proto::v1::farewell::Stage;
use torc_proto::v1::session_request::Operation;
use torc_proto::v1::session_response::Outcome;
use torc_proto::{Fault, TraceContext, v1};

/// A session with this many in flight counts as full while another session of the node is not.
const FILL: usize = 64;

/// The operation was not started: the session ended before it was sent or read.
#[derive(Debug, thiserror::Error)]
#[error("the stream to the node ended before the operation was started")]
pub struct Unsent;

impl Unsent {
    /// Whether this is the cause of a status.
    #[must_use]
    pub fn is_cause_of(status: &Status) -> bool {
        std::error::Error::source(status).is_some_and(<dyn std::error::Error>::is::<Self>)
    }
}

/// The messages of a session.
pub struct Requests(BoxStream<'static, v1::SessionRequest>);

impl Stream for Requests {
    type Item = v1::SessionRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

/// The answers of the node, or why it did not accept the stream.
pub type Accepting = BoxFuture<'static, Result<Response<Streaming<v1::SessionResponse>>, Status>>;

/// One stream.
pub struct Session {
    shared: Arc<Shared>,
    under_way: AtomicUsize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The session sends nothing any more.
    is_closed: AtomicBool,
    last_id: AtomicU64,
    /// The node is about to stop.
    leaving: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    /// What to send, in order; `None` once the session sends nothing any more.
    queue: Option<mpsc::UnboundedSender<Queued>>,
    waiting: HashMap<u64, Waiting>,
}

/// A message to send, by the number of its operation.
#[derive(Clone, Copy)]
enum Queued {
    Operation(u64),
    Cancel(u64),
}

/// An operation that is not answered.
struct Waiting {
    /// `None` once it was passed to the connection.
    request: Option<v1::SessionRequest>,
    answer: oneshot::Sender<Result<Outcome, Status>>,
}

/// Names an operation whose permit was used.
pub struct Ticket {
    session: Arc<Session>,
    id: u64,
}

impl Ticket {
    /// Takes the operation back. `false` if it was passed to the connection or is answered.
    #[must_use]
    pub fn withdraw(&self) -> bool {
        let waiting = &mut self.session.shared.state.lock().waiting;
        let is_unsent = waiting.get(&self.id).is_some_and(|it| it.request.is_some());
        is_unsent && waiting.remove(&self.id).is_some()
    }
}

/// A permit for one operation on a session, with its place in the window.
pub struct SessionPermit {
    session: Arc<Session>,
    id: u64,
    /// `None`: not traced.
    trace: Option<TraceContext>,
    _place: OwnedSemaphorePermit,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    /// Opens a stream with this call. Sends operations once the node has accepted the stream.
    /// Sets `leaving` when the node is about to stop.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn open(
        call: impl FnOnce(Requests) -> Accepting + Send + 'static,
        leaving: Arc<AtomicBool>,
    ) -> Arc<Self> {
        let (queue, outgoing) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            leaving,
            ..Shared::default()
        });
        shared.state.lock().queue = Some(queue);
        let end = End {
            shared: Arc::clone(&shared),
            status: lost("its runtime has stopped"),
            unread: unsent(),
            is_clean: false,
        };
        tokio::spawn(run(call, outgoing, end));
        Arc::new(Self {
            shared,
            under_way: AtomicUsize::new(0),
        })
    }

    /// Whether it accepts operations.
    pub fn is_open(&self) -> bool {
        !self.shared.is_closed.load(Ordering::Acquire)
    }

    /// Whether to prefer another session of the node, if one is not full.
    pub fn is_full(&self) -> bool {
        self.under_way() >= FILL
    }

    /// Operations in flight.
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// A permit for an operation, in this place of the node's window.
    pub fn permit(self: Arc<Self>, place: OwnedSemaphorePermit) -> SessionPermit {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let id = self.shared.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        SessionPermit {
            session: self,
            id,
            trace: None,
            _place: place,
        }
    }
}

/// The peer has replaced it, or the client is gone, and no operation is under way: without requests to come,
/// the node ends the stream.
impl Drop for Session {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.state.lock().queue = None;
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        self.session.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SessionPermit {
    /// The same permit, for an operation of this span.
    #[must_use]
    pub fn on_behalf_of(mut self, trace: Option<TraceContext>) -> Self {
        self.trace = trace;
        self
    }

    /// The name of its operation.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        Ticket {
            session: Arc::clone(&self.session),
            id: self.id,
        }
    }

    /// Sends a get that the node may take this long for.
    ///
    /// # Errors
    /// The node's status, or that of a stream that has ended.
    pub async fn get(
        self,
        message: v1::GetRequest,
        budget: Duration,
    ) -> Result<Response<v1::GetResponse>, Status> {
        match self.call(Operation::Get(message), budget).await? {
            Outcome::Get(answer) => Ok(Response::new(answer)),
            other => Err(misfit(other)),
        }
    }

    /// Sends a put that the node may take this long for.
    ///
    /// # Errors
    /// The node's status, or that of a stream that has ended.
    pub async fn put(
        self,
        message: v1::PutRequest,
        budget: Duration,
    ) -> Result<Response<v1::PutResponse>, Status> {
        match self.call(Operation::Put(message), budget).await? {
            Outcome::Put(answer) => Ok(Response::new(answer)),
            other => Err(misfit(other)),
        }
    }

    /// Sends a delete that the node may take this long for.
    ///
    /// # Errors
    /// The node's status, or that of a stream that has ended.
    pub async fn delete(
        self,
        message: v1::DeleteRequest,
        budget: Duration,
    ) -> Result<Response<v1::DeleteResponse>, Status> {
        match self.call(Operation::Delete(message), budget).await? {
            Outcome::Delete(answer) => Ok(Response::new(answer)),
            other => Err(misfit(other)),
        }
    }

    async fn call(&self, operation: Operation, budget: Duration) -> Result<Outcome, Status> {
        let shared = &self.session.shared;
        let request = v1::SessionRequest {
            id: self.id,
            operation: Some(operation),
            timeout_ms: u32::try_from(budget.as_millis()).unwrap_or(u32::MAX).max(1),
            trace: self.trace.map(|it| it.to_wire()).unwrap_or_default(),
        };
        let answer = shared.send(request).ok_or_else(unsent)?;
        let _call = Call {
            shared,
            id: self.id,
        };
        answer.await.unwrap_or_else(|_| Err(lost("no answer")))
    }
}

impl Shared {
    /// Queues an operation and returns the receiver of its answer; `None` if the session sends
    /// nothing any more.
    fn send(
        &self,
        request: v1::SessionRequest,
    ) -> Option<oneshot::Receiver<Result<Outcome, Status>>> {
        let mut state = self.state.lock();
        let id = request.id;
        state.queue.as_ref()?.send(Queued::Operation(id)).ok()?;
        let (answer, answered) = oneshot::channel();
        let request = Some(request);
        state.waiting.insert(id, Waiting { request, answer });
        Some(answered)
    }

    /// Takes a message to pass it to the connection. `None` for an operation whose caller has given up.
    fn hand_over(&self, queued: Queued) -> Option<v1::SessionRequest> {
        match queued {
            Queued::Operation(id) => self.state.lock().waiting.get_mut(&id)?.request.take(),
            Queued::Cancel(id) => Some(v1::SessionRequest {
                id,
                operation: Some(Operation::Cancel(v1::Cancel {})),
                ..v1::SessionRequest::default()
            }),
        }
    }

    fn answer(&self, id: u64, outcome: Outcome) {
        // The caller may have stopped waiting.
        let waiting = self.state.lock().waiting.remove(&id);
        if let Some(waiting) = waiting {
            let _ = waiting.answer.send(Ok(outcome));
        }
    }
}

/// Ends an operation whose caller no longer waits.
struct Call<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let unanswered = state.waiting.remove(&self.id);
        let is_sent = unanswered.is_some_and(|it| it.request.is_none());
        if let Some(queue) = state.queue.as_ref().filter(|_| is_sent) {
            // Fails if the stream has ended, which ends its operations.
            let _ = queue.send(Queued::Cancel(self.id));
        }
    }
}

/// Ends the session when dropped.
struct End {
    shared: Arc<Shared>,
    /// The status of operations that were sent and not answered.
    status: Status,
    /// The status of operations that were not started.
    unread: Status,
    /// The node has answered everything that it read.
    is_clean: bool,
}

impl End {
    /// Stops sending.
    fn retire(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.state.lock().queue = None;
    }

    fn part(&mut self, farewell: v1::Farewell) {
        self.retire();
        let is_over = farewell.stage() == Stage::Ended;
        if is_over || farewell.stage() == Stage::Leaving {
            self.shared.leaving.store(true, Ordering::Release);
        }
        self.is_clean |= is_over;
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.retire();
        let waiting = std::mem::take(&mut self.shared.state.lock().waiting);
        for Waiting { request, answer } in waiting.into_values() {
            let is_unread = self.is_clean || request.is_some();
            let status = if is_unread {
                &self.unread
            } else {
                &self.status
            };
            let _ = answer.send(Err(status.clone()));
        }
    }
}

/// The operations, once the node has accepted the stream.
fn outgoing(
    shared: Arc<Shared>,
    queue: mpsc::UnboundedReceiver<Queued>,
    accepted: oneshot::Receiver<()>,
) -> Requests {
    let queued = async move {
        let accepted = accepted.await.is_ok();
        accepted.then(|| UnboundedReceiverStream::new(queue))
    };
    let queued = stream::once(queued).filter_map(ready).flatten();
    let requests = queued.filter_map(move |it| ready(shared.hand_over(it)));
    Requests(requests.boxed())
}

async fn run(
    call: impl FnOnce(Requests) -> Accepting + Send,
    queue: mpsc::UnboundedReceiver<Queued>,
    mut end: End,
) {
    let (accept, accepted) = oneshot::channel();
    let requests = outgoing(Arc::clone(&end.shared), queue, accepted);
    let mut answers = match call(requests).await {
        Ok(answers) => answers.into_inner(),
        Err(status) => {
            if !Fault::from_status(&status).maybe_applied {
                end.unread = status;
            }
            return;
        }
    };
    // Fails if the connection has ended, which the answers report.
    let _ = accept.send(());
    loop {
        match answers.message().await {
            Ok(Some(v1::SessionResponse { id, outcome })) => match outcome {
                Some(Outcome::Farewell(farewell)) => end.part(farewell),
                Some(outcome) => end.shared.answer(id, outcome),
                None => {}
            },
            Ok(None) => {
                end.status = lost("the node ended the stream");
                return;
            }
            Err(status) => {
                end.status = broken(&status);
                return;
            }
        }
    }
}

/// The status of operations on a broken stream: whatever the status claims, they were sent.
fn broken(status: &Status) -> Status {
    let cause = std::error::Error::source(status)
        .map_or_else(|| status.message().to_owned(), torc_proto::deepest);
    lost(&cause)
}

fn lost(cause: &str) -> Status {
    let mut status = Status::unavailable(cause);
    // A status with a source comes from the transport, not from the node.
    status.set_source(Arc::new(std::io::Error::other(cause.to_owned())));
    status
}

fn unsent() -> Status {
    let mut status = Status::unavailable(Unsent.to_string());
    status.set_source(Arc::new(Unsent));
    status
}

/// The status of an answer of the wrong kind.
fn misfit(outcome: Outcome) -> Status {
    match outcome {
        Outcome::Fault(fault) => Fault::from(fault).into(),
        _ => Status::unknown("the answer is to another kind of operation"),
    }
}
