//! Charges requests and answers to the budget, around every service.
//!
//! tonic collects a message in a buffer before it decodes it; the buffer grows as tonic takes
//! frames from the body. So the body charges each frame when it is taken, until the answer is sent
//! (decoded messages point into the same bytes). A message of a stream is charged until the next
//! is requested; its operations charge what they keep. A message that is incomplete after a time
//! limit ends its request, so a slow sender holds memory only for a while.
//!
//! An answer is charged from its encoding until HTTP/2 has written it: the frame owns its charge.
//! hyper requests a frame before it waits for room in the client's window, and passes it to h2 as a
//! whole, so two frames per stream may wait there. A frame is one message, or several whole
//! messages of 32 KiB together.
//!
//! Callers without credentials have a budget of their own ([`Strangers`]), so they cannot take the
//! room of clients. Health checks use that budget too, even those of callers with credentials.
//!
//! In addition, a connection holds bytes that HTTP/2 has received and the service has not
//! requested: at most its window (`grpc.rs`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, Either, Ready, poll_fn, ready};
use http::{Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;
use torc_proto::codec::BUFFER_LEN;
use torc_proto::{Access, Fault, Reason};
use tower_layer::Layer;
use tower_service::Service;

use crate::budget::{Budget, Charge, LOOK_AGAIN, SMALL};

/// Time limit for receiving a message: 16 MiB need about 5 Mbit/s.
const MESSAGE_TIME: Duration = Duration::from_secs(30);
/// The buffers of a request and its answer, and the HTTP/2 state of its stream.
const OF_A_REQUEST: usize = 16 << 10;
/// A request about the whole cluster, whose answer takes memory to compose.
const OF_A_QUESTION: usize = SMALL;
/// Limit on a message from an unknown caller.
const OF_A_STRANGER: usize = 16 << 10;
/// The budget of strangers, as a fraction of that of clients.
const OF_STRANGERS: usize = 8;
/// Calls of `Health/Watch` that may be open: each lasts until its caller ends it.
const MOST_WATCHES: usize = 64;
const WATCH_AGAIN: Duration = Duration::from_secs(1);
/// The compression flag and the length.
const HEAD_LEN: usize = 5;

/// The budget and the permits of calls that need no credentials.
#[derive(Debug, Clone)]
pub struct Strangers {
    budget: Arc<Budget>,
    watches: Arc<Semaphore>,
}

impl Strangers {
    /// In addition to the budget of clients, of this many bytes.
    #[must_use]
    pub fn beside(clients: usize) -> Self {
        Self {
            budget: Budget::new(clients / OF_STRANGERS),
            watches: Arc::new(Semaphore::new(MOST_WATCHES)),
        }
    }

    /// A permit for a call of `Health/Watch`.
    fn watch(&self) -> Result<OwnedSemaphorePermit, Fault> {
        Arc::clone(&self.watches).try_acquire_owned().map_err(|_| {
            let message = format!(
                "{MOST_WATCHES} calls of Health/Watch are open on this node, and it serves no more: \
                 call Health/Check, or retry later"
            );
            Fault::new(Reason::Overloaded, message).retry_after(WATCH_AGAIN)
        })
    }
}

/// A layer that wraps the services in [`Metered`].
#[derive(Debug, Clone)]
pub struct Meter {
    /// The budget of callers with credentials, or of all if TLS is off.
    pub clients: Arc<Budget>,
    /// The budget of the others.
    pub strangers: Strangers,
}

impl<S> Layer<S> for Meter {
    type Service = Metered<S>;

    fn layer(&self, inner: S) -> Metered<S> {
        Metered {
            meter: self.clone(),
            inner,
        }
    }
}

impl Meter {
    fn budget_of(&self, kind: Kind) -> Arc<Budget> {
        Arc::clone(if kind.is_of_a_stranger() {
            &self.strangers.budget
        } else {
            &self.clients
        })
    }

    /// The charge of a request, and its permit if it needs one.
    fn admit(&self, kind: Kind) -> Result<(Charge, Option<OwnedSemaphorePermit>), Fault> {
        let is_watch = kind == Kind::Watch;
        let watch = is_watch.then(|| self.strangers.watch()).transpose()?;
        Ok((self.budget_of(kind).take(kind.bytes())?, watch))
    }
}

/// Services whose requests and answers are charged.
#[derive(Debug, Clone)]
pub struct Metered<S> {
    meter: Meter,
    inner: S,
}

/// The kind of a request, which decides how it is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A request of another node: not charged.
    Node,
    /// One message.
    Operation,
    /// One message about the cluster.
    Question,
    /// One short message, from any caller.
    Stranger,
    /// One short message, from any caller, and answers until the caller ends the call.
    Watch,
    /// A stream of messages.
    Stream,
}

impl Kind {
    fn of(path: &str) -> Self {
        if path == "/torc.v1.Kv/Session" || path.starts_with("/grpc.reflection.") {
            Self::Stream
        } else if path == "/grpc.health.v1.Health/Watch" {
            Self::Watch
        } else if path.starts_with("/grpc.health.") {
            Self::Stranger
        } else if path.starts_with("/torc.v1.Kv/") {
            Self::Operation
        } else if path.starts_with("/torc.v1.Replica/")
            || path.starts_with("/torc.v1.TopologyGroup/")
        {
            Self::Node
        } else if Access::to(path) == Some(Access::Anyone) {
            Self::Stranger
        } else {
            Self::Question
        }
    }

    const fn bytes(self) -> usize {
        match self {
            Self::Node => 0,
            Self::Operation | Self::Stream | Self::Stranger | Self::Watch => OF_A_REQUEST,
            Self::Question => OF_A_QUESTION,
        }
    }

    const fn is_of_a_stranger(self) -> bool {
        matches!(self, Self::Stranger | Self::Watch)
    }
}

impl<S> Service<Request<Body>> for Metered<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<
        S::Future,
        Either<
            BoxFuture<'static, Result<S::Response, S::Error>>,
            Ready<Result<S::Response, S::Error>>,
        >,
    >;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let kind = Kind::of(request.uri().path());
        if kind == Kind::Node {
            return Either::Left(self.inner.call(request));
        }
        let budget = self.meter.budget_of(kind);
        let (held, watch) = match self.meter.admit(kind) {
            Ok((held, watch)) => (Arc::new(held), watch),
            Err(fault) => {
                let refused = Status::from(fault).into_http();
                return Either::Right(Either::Right(ready(Ok(refused))));
            }
        };
        let arriving = |body| Arriving::new(body, &budget, Arc::clone(&held), kind);
        let request = request.map(|body| Body::new(arriving(body)));
        let answer = self.inner.call(request);
        Either::Right(Either::Left(Box::pin(async move {
            let (head, body) = answer.await?.into_parts();
            let mut leaving = Leaving {
                first: None,
                body,
                budget,
                _held: held,
                _watch: watch,
            };
            if kind == Kind::Question {
                // Encoded at once, because the length of the answer is unknown before.
                poll_fn(|context| leaving.poll_first(context)).await;
            }
            Ok(Response::from_parts(head, Body::new(leaving)))
        })))
    }
}

/// A request's body.
struct Arriving {
    body: Body,
    budget: Arc<Budget>,
    held: Arc<Charge>,
    kind: Kind,
    messages: Messages,
    /// Bytes received and still held; for a stream, those of the incomplete message.
    taken: usize,
    /// Deadline for the incomplete message.
    time: Option<Pin<Box<Sleep>>>,
    /// Until a stream checks for room again.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Arriving {
    fn new(body: Body, budget: &Arc<Budget>, held: Arc<Charge>, kind: Kind) -> Self {
        Self {
            body,
            budget: Arc::clone(budget),
            held,
            kind,
            messages: Messages::default(),
            taken: 0,
            time: None,
            pause: None,
        }
    }

    /// Checks for room for more bytes. A stream waits for room; other requests are refused.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        while !self.budget.has_room(self.taken) {
            if self.kind != Kind::Stream {
                return Poll::Ready(Err(self.budget.refuse()));
            }
            let pause = self
                .pause
                .get_or_insert_with(|| Box::pin(sleep(LOOK_AGAIN)));
            if pause.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.pause = None;
        }
        Poll::Ready(Ok(()))
    }

    /// Whether the incomplete message has exceeded its time limit.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        if self.kind == Kind::Stream && self.messages.open == 0 {
            return false;
        }
        let time = self
            .time
            .get_or_insert_with(|| Box::pin(sleep(MESSAGE_TIME)));
        time.as_mut().poll(context).is_ready()
    }

    fn take(&mut self, data: &[u8]) {
        self.taken += data.len();
        self.held.set(self.kind.bytes() + self.taken);
        if self.messages.take(data) {
            self.time = None;
        }
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        // tonic asks for a frame only after it has decoded all complete messages.
        if this.kind == Kind::Stream && this.taken != this.messages.open {
            this.taken = this.messages.open;
            this.held.set(this.kind.bytes() + this.taken);
        }
        let frame = match this.poll_room(context) {
            Poll::Ready(Ok(())) => Pin::new(&mut this.body).poll_frame(context),
            Poll::Ready(Err(fault)) => return Poll::Ready(Some(Err(fault.into()))),
            Poll::Pending => Poll::Pending,
        };
        let Poll::Ready(frame) = frame else {
            if this.is_late(context) {
                return Poll::Ready(Some(Err(late().into())));
            }
            return Poll::Pending;
        };
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.take(data);
            if this.kind.is_of_a_stranger() && this.taken.max(this.messages.len) > OF_A_STRANGER {
                let message = format!("the message is longer than {OF_A_STRANGER} bytes");
                return Poll::Ready(Some(Err(Fault::new(Reason::Invalid, message).into())));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn late() -> Fault {
    let message = format!(
        "the message was not complete within {} s, and nothing was done: send smaller messages",
        MESSAGE_TIME.as_secs()
    );
    Fault::new(Reason::Deadline, message)
}

/// Tracks message boundaries: each message has a head with its length, then its bytes.
#[derive(Debug, Default)]
struct Messages {
    /// Bytes so far of the incomplete message, with its head; 0 between messages.
    open: usize,
    len: usize,
}

impl Messages {
    /// Advances over `data`; returns whether a message ended in it.
    fn take(&mut self, mut data: &[u8]) -> bool {
        let mut has_ended = false;
        while let Some((first, rest)) = data.split_first() {
            if self.open < HEAD_LEN {
                // The first byte is the compression flag, which is not part of the length.
                let len = if self.open == 0 {
                    0
                } else {
                    self.len << 8 | usize::from(*first)
                };
                (self.len, self.open, data) = (len, self.open + 1, rest);
            } else {
                let missing = (HEAD_LEN + self.len - self.open).min(data.len());
                (self.open, data) = (self.open + missing, &data[missing..]);
            }
            if self.open >= HEAD_LEN && self.open == HEAD_LEN + self.len {
                (self.open, has_ended) = (0, true);
            }
        }
        has_ended
    }
}

/// An answer's body.
struct Leaving {
    /// A frame encoded before hyper asked for it.
    first: Option<Result<Frame<Bytes>, Status>>,
    body: Body,
    budget: Arc<Budget>,
    _held: Arc<Charge>,
    _watch: Option<OwnedSemaphorePermit>,
}

impl Leaving {
    /// Always ready: a frame that is not available yet is polled later.
    fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Poll::Ready(frame) = self.poll_next(context) {
            self.first = frame;
        }
        Poll::Ready(())
    }

    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        frame.map_ok(|frame| {
            frame.map_data(|data| {
                let charge = self.budget.force(data.len().max(BUFFER_LEN));
                charge.hold(data)
            })
        })
    }
}

impl HttpBody for Leaving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.first.take() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => self.poll_next(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.first {
            Some(_) => SizeHint::default(),
            None => self.body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[test]
    fn messages_are_told_apart_however_their_bytes_come() {
        let mut bytes = Vec::new();
        for len in [0_usize, 1, 300, 70_000] {
            bytes.push(0);
            bytes.extend((len as u32).to_be_bytes());
            bytes.extend(vec![7; len]);
        }
        for step in [1, 3, 5, 6, 1_000, bytes.len()] {
            let mut messages = Messages::default();
            let ended = bytes.chunks(step).filter(|it| messages.take(it)).count();
            assert!(ended >= 1 && messages.open == 0, "{step}: {messages:?}");
            assert!(step > 1 || ended == 4, "{ended}");
        }
        let mut messages = Messages::default();
        assert!(messages.take(&bytes[..7]));
        assert_eq!(messages.open, 2, "of the second head");
    }

    fn arriving(budget: &Arc<Budget>, kind: Kind) -> Arriving {
        let held = Arc::new(budget.take(kind.bytes()).unwrap());
        Arriving::new(
            Body::new(String::from("\0\0\0\0\u{9}abc")),
            budget,
            held,
            kind,
        )
    }

    fn next(body: &mut Arriving) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let next = poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
        next.now_or_never().map_or(Poll::Pending, Poll::Ready)
    }

    #[tokio::test]
    async fn without_room_a_request_is_refused_and_a_stream_waits() {
        let budget = Budget::new(1 << 20);
        let mut request = arriving(&budget, Kind::Operation);
        let mut stream = arriving(&budget, Kind::Stream);
        let others = budget.force(1 << 20);
        let Poll::Ready(Some(Err(refused))) = next(&mut request) else {
            panic!("there is no room");
        };
        assert_eq!(Fault::from_status(&refused).reason, Reason::Overloaded);
        assert!(next(&mut stream).is_pending());
        drop((others, request));
        tokio::time::sleep(3 * LOOK_AGAIN).await;
        assert!(matches!(next(&mut stream), Poll::Ready(Some(Ok(_)))));
        assert_eq!(budget.held(), OF_A_REQUEST + 8);
        drop(stream);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn every_service_has_its_kind() {
        for (path, kind) in [
            ("/torc.v1.Kv/Put", Kind::Operation),
            ("/torc.v1.Kv/Session", Kind::Stream),
            ("/torc.v1.Cluster/Status", Kind::Question),
            ("/torc.v1.Replica/Link", Kind::Node),
            ("/torc.v1.TopologyGroup/Vote", Kind::Node),
            ("/torc.v1.Cluster/EnrolNode", Kind::Stranger),
            ("/grpc.health.v1.Health/Check", Kind::Stranger),
            ("/grpc.health.v1.Health/Watch", Kind::Watch),
            ("/of.nobody/Any", Kind::Question),
        ] {
            assert_eq!(Kind::of(path), kind, "{path}");
        }
    }
}
