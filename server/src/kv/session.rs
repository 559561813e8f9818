//! Sessions: many operations in flight on one bidirectional stream.
//!
//! All messages that have arrived run together: one visit to each coordinator per burst, and one
//! wake-up for its outcomes.
//!
//! A session runs in a task of its own, and hands its answers to the response in bursts. A client
//! that does not read its answers stops its own session, which reads no more messages, but not the
//! operations under way: these hold permits that others need.
//!
//! A cancelled operation ends at once, and is not answered unless it has its outcome.
//!
//! An old session asks the client to open another. When its node is about to stop, a session asks
//! the client to use other nodes, and continues. When the node closes the session, it stops
//! reading, answers everything that it has read, and sends a final message: the client then knows
//! that operations without an answer were not started.

#![expect(
    clippy::cast_possible_truncation,
    reason = "a session has fewer than 2^32 requests"
)]

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures::future::{AbortHandle, Abortable, BoxFuture, abortable};
use futures::stream::{FuturesUnordered, Peekable};
use futures::{FutureExt as _, Stream, StreamExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Sleep;
use tokio_util::sync::{PollSender, WaitForCancellationFutureOwned};
use tonic::{Status, Streaming};
use torc_access::caller::Caller;
use torc_driver::{Begun, Mailbox, Told, Wanted};
use torc_limits::budget::{Charge, TINY};
use torc_proto::v1::farewell::Stage;
use torc_proto::v1::session_request::Operation as Wire;
use torc_proto::v1::session_response::Outcome as Answer;
use torc_proto::v1::{
    DeleteRequest, Farewell, GetRequest, PutRequest, SessionRequest, SessionResponse,
};
use torc_proto::{Fault, Reason, TraceContext};
use torc_replication::Outcome;
use torc_ring::topology::RoutingTable;
use torc_ring::{NodeId, Partition};

use super::item::{Asked, Item};
use super::node::KvNode;
use super::places::Places;
use super::run::{self, Routed, Task};
use super::started::Started;
use crate::call::{CallContext, DEFAULT_DEADLINE, LONGEST_DEADLINE};
use torc_limits::connections::MAX_CONNECTION_AGE;
use torc_telemetry::operation::Operation;

/// Operations of one session under way at a time. The next one waits here, and further ones in the connection's
/// window.
const IN_FLIGHT: usize = 1024;
/// Gets that one other node runs for a session at a time: thousands without a route must not delay
/// other clients, nor a node that does not answer the gets that others run.
const FORWARDS: usize = 32;
/// Limit on the messages handled together.
const BURST: usize = 256;
/// A session asks the client to open another one at this age. The connection no longer accepts
/// requests then, so the other session is on a new connection.
const MAX_AGE: Duration = MAX_CONNECTION_AGE.saturating_add(TO_MOVE);
/// Time for a client to move before its certificate counts no longer.
const TO_MOVE: Duration = Duration::from_secs(300);

/// Answers that leave together.
type Burst = Vec<Result<SessionResponse, Status>>;

pub(crate) type SessionStream = Pin<Box<dyn Stream<Item = Result<SessionResponse, Status>> + Send>>;

pub(super) fn start(
    node: &Arc<KvNode>,
    caller: Caller,
    requests: Streaming<SessionRequest>,
) -> SessionStream {
    let left = caller
        .ends()
        .map(|ends| ends.saturating_duration_since(Instant::now()));
    // If a certificate ends sooner than this, only another one helps.
    let left = left.and_then(|left| left.checked_sub(TO_MOVE));
    let age = left.map_or(MAX_AGE, |left| left.min(MAX_AGE));
    let session = Session {
        caller,
        requests: Some(requests.peekable()),
        begun: None,
        mailbox: Mailbox::new(&node.limits.budget),
        slots: Vec::new(),
        free: Vec::new(),
        waiting: VecDeque::new(),
        places: None,
        late: Box::pin(tokio::time::sleep(Duration::ZERO)),
        told: Vec::new(),
        forwarded: FuturesUnordered::new(),
        apart: HashMap::new(),
        forwards: HashMap::new(),
        ready: Vec::new(),
        leaving: Some(Box::pin(node.leaving.clone().cancelled_owned())),
        closing: Some(Box::pin(node.closing.clone().cancelled_owned())),
        age: Some(Box::pin(tokio::time::sleep(age))),
        is_closed: false,
        is_over: false,
        node: Arc::clone(node),
    };
    let (answers, mut bursts) = mpsc::channel(1);
    tokio::spawn(session.run(answers));
    let bursts = futures::stream::poll_fn(move |context| bursts.poll_recv(context));
    Box::pin(bursts.flat_map(|burst: Burst| futures::stream::iter(burst)))
}

/// An operation that the session has accepted.
struct Accepted {
    /// The id that the caller gave it.
    id: u64,
    started: Started,
    call: CallContext,
    /// Charge for the message's bytes, if they are many.
    charge: Option<Charge>,
}

/// An operation that runs here.
struct Slot {
    /// The id that the caller gave it.
    id: u64,
    started: Started,
    asked: Asked,
    /// Permit for one of the node's operations; released with the slot.
    place: Option<OwnedSemaphorePermit>,
    /// Charge for the message's bytes, if they are many.
    _charge: Option<Charge>,
}

struct Session {
    node: Arc<KvNode>,
    caller: Caller,
    /// `None` once reading has stopped.
    requests: Option<Peekable<Streaming<SessionRequest>>>,
    begun: Option<Begun>,
    mailbox: Arc<Mailbox>,
    /// By the number used in the mailbox.
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Waiting for one of the node's operation permits.
    waiting: VecDeque<(u32, Wanted)>,
    /// Resolves at their earliest deadline.
    late: Pin<Box<Sleep>>,
    places: Option<Places>,
    told: Vec<(u32, Told)>,
    forwarded: FuturesUnordered<Abortable<BoxFuture<'static, SessionResponse>>>,
    /// Cancels one of these, by the id that its caller gave it.
    apart: HashMap<u64, AbortHandle>,
    /// Permits for gets that other nodes run for this one.
    forwards: HashMap<NodeId, Arc<Semaphore>>,
    ready: Burst,
    /// Resolve when the node is about to stop, when it closes, and when the session is old; `None`
    /// once they have resolved.
    leaving: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    closing: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    age: Option<Pin<Box<Sleep>>>,
    /// The node has closed the session; the final message has not been sent.
    is_closed: bool,
    /// What is ready is the last.
    is_over: bool,
}

impl Session {
    /// Runs the session until it ends or nobody listens to its answers any more.
    async fn run(mut self, answers: mpsc::Sender<Burst>) {
        let mut sender = PollSender::new(answers.clone());
        tokio::select! {
            () = poll_fn(|context| self.poll_run(context, &mut sender)) => {}
            () = answers.closed() => {}
        }
    }

    fn poll_run(&mut self, context: &mut Context<'_>, answers: &mut PollSender<Burst>) -> Poll<()> {
        loop {
            // Sends ready answers before it takes on more work.
            if self.ready.is_empty() {
                self.poll_leaving(context);
                if let Err(status) = self.poll_requests(context) {
                    self.ready.push(Err(status));
                    self.is_over = true;
                }
            }
            self.poll_starting(context);
            self.poll_outcomes(context);
            if self.requests.is_none() && self.in_flight() == 0 && !self.is_over {
                self.is_over = true;
                if self.is_closed {
                    self.ready.push(Ok(farewell(Stage::Ended)));
                }
            }
            if !self.ready.is_empty() {
                if ready!(answers.poll_reserve(context)).is_err() {
                    return Poll::Ready(());
                }
                // Fails only if nobody listens any more.
                let _ = answers.send_item(std::mem::take(&mut self.ready));
            } else if !self.is_over {
                return Poll::Pending;
            }
            if self.is_over {
                return Poll::Ready(());
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() + self.forwarded.len()
    }

    /// Asks the client to move when the node is leaving or the session is old, and stops reading
    /// when the node closes.
    fn poll_leaving(&mut self, context: &mut Context<'_>) {
        if has_come(&mut self.leaving, context) {
            self.ready.push(Ok(farewell(Stage::Leaving)));
            self.age = None;
        }
        if has_come(&mut self.age, context) {
            self.ready.push(Ok(farewell(Stage::Renew)));
        }
        if has_come(&mut self.closing, context) {
            self.requests = None;
            self.is_closed = true;
        }
    }

    /// Reads the messages that have arrived. An error ends the session.
    fn poll_requests(&mut self, context: &mut Context<'_>) -> Result<(), Status> {
        let mut table = None;
        for _ in 0..BURST {
            if self.in_flight() >= IN_FLIGHT && self.poll_cancel(context).is_pending() {
                return Ok(());
            }
            let Some(requests) = &mut self.requests else {
                return Ok(());
            };
            match requests.poll_next_unpin(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(None) => self.requests = None,
                Poll::Ready(Some(request)) => {
                    let request = request?;
                    if table.is_none() {
                        table = self.node.member.routing().ok();
                    }
                    self.take(request, table.as_deref());
                }
            }
        }
        // More may have arrived: poll again once this burst is under way.
        context.waker().wake_by_ref();
        Ok(())
    }

    /// Ready if the next message begins no operation: it cancels one, or is the last.
    fn poll_cancel(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(requests) = &mut self.requests else {
            return Poll::Ready(());
        };
        match ready!(Pin::new(requests).poll_peek(context)) {
            Some(Ok(next)) if !matches!(next.operation, Some(Wire::Cancel(_))) => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }

    fn take(&mut self, request: SessionRequest, table: Option<&RoutingTable>) {
        let id = request.id;
        // Empty unless the operation is traced.
        let trace = TraceContext::from_wire(&request.trace);
        let time = match request.timeout_ms {
            0 => DEFAULT_DEADLINE,
            ms => Duration::from_millis(ms.into()).min(LONGEST_DEADLINE),
        };
        let deadline = Instant::now() + time;
        let call = CallContext { deadline, trace };
        match request.operation {
            Some(Wire::Get(get)) => self.begin(id, get, Operation::Get, call, table),
            Some(Wire::Put(put)) => self.begin(id, put, Operation::Put, call, table),
            Some(Wire::Delete(delete)) => {
                self.begin(id, delete, Operation::Delete, call, table);
            }
            Some(Wire::Cancel(_)) => self.cancel(id),
            None => {
                let message = "the message has no operation";
                let fault = Fault::new(Reason::Invalid, message);
                self.answer(id, Err::<Answer, _>(fault));
            }
        }
    }

    /// Ends an operation without an answer, unless it has an outcome already.
    fn cancel(&mut self, id: u64) {
        if let Some(apart) = self.apart.remove(&id) {
            return apart.abort();
        }
        let is_it = |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| slot.id == id);
        let Some(index) = self.slots.iter().position(is_it) else {
            return;
        };
        let number = index as u32;
        let waits = self.waiting.iter().position(|(it, _)| *it == number);
        let is_over = match (waits, &mut self.begun) {
            (Some(place), _) => self.waiting.remove(place).is_some(),
            (None, Some(begun)) => begun.abandon(number),
            (None, None) => false,
        };
        if is_over {
            self.slots[index] = None;
            self.free.push(number);
            self.node.limits.admission.leave(1);
        }
    }

    fn begin<I: Sessional>(
        &mut self,
        id: u64,
        item: I,
        operation: Operation,
        CallContext { deadline, trace }: CallContext,
        table: Option<&RoutingTable>,
    ) {
        let (namespace, key) = item.place();
        if let Err(fault) = self.node.may(&self.caller, I::ROLE, namespace, key) {
            return self.answer(id, Err::<Answer, _>(fault));
        }
        let started = Started::now(&self.node, operation, || trace);
        let call = started.call(deadline);
        if let Err(refused) = self.node.limits.admission.enter(1) {
            started.end(&self.node, Some(&refused), || None);
            return self.answer(id, Err::<Answer, _>(refused));
        }
        let charge = match self.charge(&item) {
            Ok(charge) => charge,
            Err(refused) => return self.end(id, started, Err(refused), None),
        };
        let Some(table) = table else {
            let fault = self.node.member.routing().err();
            let fault = fault.unwrap_or_else(|| Fault::new(Reason::NotServing, "try again"));
            return self.end(id, started, Err(fault), None);
        };
        let routed = run::route(&self.node, table, &item);
        let accepted = Accepted {
            id,
            started,
            call,
            charge,
        };
        match routed {
            Routed::Answered(answer) => {
                self.end(id, accepted.started, answer.map(I::into_answer), None);
            }
            Routed::Here(task) => self.keep_or_wait::<I>(accepted, task),
            Routed::There(to, ..) => {
                let permits = I::HARMLESS.then(|| self.forwards_to(to.node()));
                self.set_apart(accepted, item, permits);
            }
            Routed::Cold => self.set_apart(accepted, item, None),
        }
    }

    /// Keeps an operation with the others, unless it has to wait for permits of its own.
    fn keep_or_wait<I: Sessional>(&mut self, accepted: Accepted, task: Task) {
        let registers = self.node.member.registers();
        let is_long = registers.is_ok_and(|registers| task.reads_long_value(registers));
        if !is_long {
            return self.keep(accepted, task);
        }
        let (node, partition) = (Arc::clone(&self.node), task.target.partition);
        let call = accepted.call;
        let answering = async move { run::here::<I>(&node, task, call).await };
        self.answer_later::<I>(accepted, answering, move |_| Some(partition));
    }

    /// Charges the part of a message that its operation keeps, unless it is short.
    fn charge(&self, item: &impl prost::Message) -> Result<Option<Charge>, Fault> {
        let bytes = item.encoded_len();
        let is_short = bytes <= TINY;
        (!is_short)
            .then(|| self.node.limits.budget.take(bytes))
            .transpose()
    }

    fn forwards_to(&mut self, node: NodeId) -> Arc<Semaphore> {
        let permits = self.forwards.entry(node);
        Arc::clone(permits.or_insert_with(|| Arc::new(Semaphore::new(FORWARDS))))
    }

    /// Runs an item in its own future, because it waits for another node or for the disk, and for
    /// one of the permits if there are any.
    fn set_apart<I: Sessional>(
        &mut self,
        accepted: Accepted,
        item: I,
        permits: Option<Arc<Semaphore>>,
    ) {
        let (node, call) = (Arc::clone(&self.node), accepted.call);
        let asked = node.slow.is_on().then(|| item.clone());
        let answering = async move {
            let waiting = async { permits?.acquire_owned().await.ok() };
            // Past its deadline, the operation ends at once.
            let _permit = tokio::time::timeout_at(call.deadline.into(), waiting).await;
            run::one(&node, item, call).await
        };
        let partition = move |node: &KvNode| run::partition_of(node, asked.as_ref());
        self.answer_later::<I>(accepted, answering, partition);
    }

    /// Answers when the future ends, beside the other operations.
    fn answer_later<I: Sessional>(
        &mut self,
        accepted: Accepted,
        answering: impl Future<Output = Result<I::Answer, Fault>> + Send + 'static,
        partition: impl FnOnce(&KvNode) -> Option<Partition> + Send + 'static,
    ) {
        let node = Arc::clone(&self.node);
        let Accepted {
            id,
            started,
            charge,
            ..
        } = accepted;
        let answer = async move {
            let answer = answering.await;
            drop(charge);
            node.limits.admission.leave(1);
            started.end(&node, answer.as_ref().err(), || partition(&node));
            response(id, answer.map(I::into_answer))
        };
        let (answer, handle) = abortable(answer.boxed());
        self.apart.insert(id, handle);
        self.forwarded.push(answer);
    }

    fn keep(&mut self, accepted: Accepted, task: Task) {
        let Accepted {
            id,
            started,
            call,
            charge,
        } = accepted;
        let (asked, wanted) = task.wanted(call);
        let slot = Slot {
            id,
            started,
            asked,
            place: None,
            _charge: charge,
        };
        let number = if let Some(number) = self.free.pop() {
            self.slots[number as usize] = Some(slot);
            number
        } else {
            self.slots.push(Some(slot));
            self.slots.len() as u32 - 1
        };
        self.waiting.push_back((number, wanted));
    }

    /// Starts waiting operations as far as the node has permits. The others end at their deadlines.
    fn poll_starting(&mut self, context: &mut Context<'_>) {
        if self.waiting.is_empty() && self.places.is_none() {
            return;
        }
        let registers = match self.node.member.registers() {
            Ok(registers) => Arc::clone(registers),
            Err(fault) => {
                for (number, _) in std::mem::take(&mut self.waiting) {
                    self.finish(number, Err(fault.clone()));
                }
                return;
            }
        };
        let places = self
            .places
            .get_or_insert_with(|| Places::new(registers.places()));
        // Until it is pending: only then does a permit wake the session.
        while let Poll::Ready(mut permit) =
            places.poll(context, self.waiting.len().min(BURST) as u32)
        {
            // Some may have been cancelled meanwhile.
            let count = permit.num_permits().min(self.waiting.len());
            let mut starting: Vec<_> = self.waiting.drain(..count).collect();
            for (number, _) in &mut starting {
                if let Some(slot) = &mut self.slots[*number as usize] {
                    slot.place = permit.split(1);
                }
            }
            let begun = self
                .begun
                .get_or_insert_with(|| Begun::new(Arc::clone(&registers)));
            begun.start(&self.mailbox, starting);
        }
        self.poll_late(context);
    }

    /// Ends operations whose deadline has passed while they waited.
    fn poll_late(&mut self, context: &mut Context<'_>) {
        let deadline = |(_, wanted): &(u32, Wanted)| wanted.deadline;
        while let Some(first) = self.waiting.iter().map(deadline).min() {
            if self.late.deadline() != first.into() {
                self.late.as_mut().reset(first.into());
            }
            if self.late.as_mut().poll(context).is_pending() {
                return;
            }
            let waiting = std::mem::take(&mut self.waiting).into_iter();
            let (late, waiting): (VecDeque<_>, _) = waiting.partition(|it| deadline(it) <= first);
            self.waiting = waiting;
            for (number, _) in late {
                self.finish(number, Ok(Outcome::Unavailable));
            }
        }
    }

    /// Turns outcomes into answers.
    fn poll_outcomes(&mut self, context: &mut Context<'_>) {
        let mut told = std::mem::take(&mut self.told);
        let taking = Arc::clone(&self.mailbox);
        while pin!(taking.take(&mut told)).poll(context).is_ready() {
            for (number, outcome) in told.drain(..) {
                self.finish(number, outcome);
            }
        }
        self.told = told;
        while let Poll::Ready(Some(response)) = self.forwarded.poll_next_unpin(context) {
            if let Ok(response) = response {
                self.apart.remove(&response.id);
                self.ready.push(Ok(response));
            } else {
                self.node.limits.admission.leave(1);
                // The next message may have waited for this.
                context.waker().wake_by_ref();
            }
        }
    }

    fn finish(&mut self, number: u32, outcome: Told) {
        let Some(slot) = self.slots[number as usize].take() else {
            return;
        };
        self.free.push(number);
        if let Some(begun) = &mut self.begun {
            begun.answered(number);
        }
        let node = Arc::clone(&self.node);
        let asked = &slot.asked;
        let answer = outcome.and_then(|outcome| match slot.started.operation {
            Operation::Get => GetRequest::answer(&node, asked, outcome).map(Answer::Get),
            Operation::Delete => DeleteRequest::answer(&node, asked, outcome).map(Answer::Delete),
            _ => PutRequest::answer(&node, asked, outcome).map(Answer::Put),
        });
        let partition = Some(slot.asked.partition);
        self.end(slot.id, slot.started, answer, partition);
    }

    fn end(
        &mut self,
        id: u64,
        started: Started,
        answer: Result<Answer, Fault>,
        partition: Option<Partition>,
    ) {
        self.node.limits.admission.leave(1);
        started.end(&self.node, answer.as_ref().err(), || partition);
        self.answer(id, answer);
    }

    fn answer(&mut self, id: u64, answer: Result<Answer, Fault>) {
        self.ready.push(Ok(response(id, answer)));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Forwarded operations are cancelled here, and were counted as well.
        self.node.limits.admission.leave(self.in_flight());
    }
}

/// An item that a session can carry.
trait Sessional: Item + prost::Message {
    fn into_answer(answer: Self::Answer) -> Answer;
}

impl Sessional for GetRequest {
    fn into_answer(answer: Self::Answer) -> Answer {
        Answer::Get(answer)
    }
}

impl Sessional for PutRequest {
    fn into_answer(answer: Self::Answer) -> Answer {
        Answer::Put(answer)
    }
}

impl Sessional for DeleteRequest {
    fn into_answer(answer: Self::Answer) -> Answer {
        Answer::Delete(answer)
    }
}

/// Whether the future has resolved; returns true only once.
fn has_come(
    waiting: &mut Option<Pin<Box<impl Future<Output = ()>>>>,
    context: &mut Context<'_>,
) -> bool {
    let come = waiting.as_mut();
    let come = come.is_some_and(|waiting| waiting.as_mut().poll(context).is_ready());
    if come {
        *waiting = None;
    }
    come
}

fn farewell(stage: Stage) -> SessionResponse {
    let stage = stage.into();
    SessionResponse {
        id: 0,
        outcome: Some(Answer::Farewell(Farewell { stage })),
    }
}

fn response(id: u64, answer: Result<Answer, Fault>) -> SessionResponse {
    let outcome = answer.unwrap_or_else(|fault| Answer::Fault(fault.into()));
    SessionResponse {
        id,
        outcome: Some(outcome),
    }
}
