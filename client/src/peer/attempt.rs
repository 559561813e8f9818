//! One attempt at one node, and the failure that a status means.

use std::future::Future;
use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tonic::{Code, Request, Response, Status};
use torc_proto::{Fault, Reason, TRACEPARENT, TraceContext, deepest, speaks_no_grpc};

use super::Peer;
use crate::naming::Connection;
use crate::retry::{Failure, Nature, Stop};
use torc_session::{SessionPermit, Ticket, Unsent};

/// The transport of a request: a connection for calls, or a permit on a session.
pub(crate) trait Transport: Sized {
    /// A transport to this peer. Waits for the connection or, on a session, for a permit.
    fn to(peer: &Peer) -> impl Future<Output = Result<Self, Fault>> + Send;

    /// Names the operation on a session, which waits until the connection takes it. A call counts
    /// as sent at once.
    fn ticket(&self) -> Option<Ticket>;
}

impl Transport for Connection {
    async fn to(peer: &Peer) -> Result<Self, Fault> {
        peer.channel().await
    }

    fn ticket(&self) -> Option<Ticket> {
        None
    }
}

impl Transport for SessionPermit {
    async fn to(peer: &Peer) -> Result<Self, Fault> {
        peer.session_permit().await
    }

    fn ticket(&self) -> Option<Ticket> {
        Some(Self::ticket(self))
    }
}

/// A request with its time limit for the node.
pub(crate) fn request<T>(message: T, budget: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(budget);
    request
}

/// A [`request`] with its span.
pub(crate) fn traced_request<T>(
    message: T,
    budget: Duration,
    trace: Option<TraceContext>,
) -> Request<T> {
    let mut request = request(message, budget);
    if let Some(value) = trace.and_then(|trace| trace.to_traceparent().try_into().ok()) {
        request.metadata_mut().insert(TRACEPARENT, value);
    }
    request
}

/// The failure of an operation whose time ran out before anything was sent.
pub(crate) fn out_of_time() -> Failure {
    let message = "the deadline passed before the operation was sent: allow more time";
    Failure::sent(Fault::new(Reason::Deadline, message))
}

/// Sends once. `send` gets the connection and the remaining time. Dropping the future
/// cancels the request if the node has not handled it yet.
pub(crate) async fn attempt<W, T, F, Fut>(
    peer: &Peer,
    deadline: Instant,
    send: F,
) -> Result<T, Failure>
where
    W: Transport,
    F: FnOnce(W, Duration) -> Fut,
    Fut: Future<Output = Result<Response<T>, Status>>,
{
    attempt_with_progress(peer, deadline, &Progress::default(), send).await
}

/// How far an attempt has come.
#[derive(Default)]
struct Progress {
    /// Set once the operation has its transport.
    sending: OnceLock<Option<Ticket>>,
}

impl Progress {
    /// Ends the attempt unless its operation was passed to a connection, in which case the node may
    /// carry it out. While the first connection is being made, its own time limit counts.
    fn withdraw(&self, peer: &Peer) -> bool {
        match self.sending.get() {
            None => peer.was_reached(),
            Some(ticket) => ticket.as_ref().is_some_and(Ticket::withdraw),
        }
    }
}

async fn attempt_with_progress<W, T, F, Fut>(
    peer: &Peer,
    deadline: Instant,
    progress: &Progress,
    send: F,
) -> Result<T, Failure>
where
    W: Transport,
    F: FnOnce(W, Duration) -> Fut,
    Fut: Future<Output = Result<Response<T>, Status>>,
{
    let connecting = timeout_at(deadline, W::to(peer)).await;
    let transport = connecting.map_err(|_| out_of_time())?;
    let transport = transport.map_err(Failure::connecting)?;
    let budget = deadline.saturating_duration_since(Instant::now());
    if budget.is_zero() {
        return Err(out_of_time());
    }
    let ticket = progress.sending.get_or_init(|| transport.ticket());
    let mut sending = pin!(send(transport, budget));
    match timeout_at(deadline, &mut sending).await {
        Ok(Ok(response)) => {
            peer.heard();
            Ok(response.into_inner())
        }
        Ok(Err(status)) => Err(failure(peer, &status)),
        Err(_) if ticket.as_ref().is_some_and(Ticket::withdraw) => Err(out_of_time()),
        Err(_) => Err(no_answer(peer)),
    }
}

/// How long to wait for a silent peer if another one would do as well.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttemptTimeout {
    pub(crate) after: Duration,
    pub(crate) nature: Nature,
}

/// [`attempt`] that trips the peer's breaker if the attempt times out and the peer has sent
/// nothing meanwhile. A read then fails, and so does a write that was not passed to a connection. A
/// write that was keeps waiting, because the node may have carried it out.
pub(crate) async fn attempt_with_timeout<W, T, F, Fut>(
    peer: &Peer,
    deadline: Instant,
    AttemptTimeout { after, nature }: AttemptTimeout,
    send: F,
) -> Result<T, Failure>
where
    W: Transport,
    F: FnOnce(W, Duration) -> Fut,
    Fut: Future<Output = Result<Response<T>, Status>>,
{
    let began = std::time::Instant::now();
    // With a short deadline, a peer that does not answer must be noticed, too.
    let after = after.min(deadline.saturating_duration_since(Instant::now()) / 2);
    let progress = Progress::default();
    let mut trying = pin!(attempt_with_progress(peer, deadline, &progress, send));
    if let Ok(outcome) = timeout(after, &mut trying).await {
        return outcome;
    }
    if !peer.was_heard_since(began) {
        peer.fell_silent();
        if nature == Nature::Read {
            return Err(no_answer(peer));
        }
        if progress.withdraw(peer) {
            let message = format!("{peer} does not answer");
            return Err(Failure::connecting(Fault::new(
                Reason::OwnerUnreachable,
                message,
            )));
        }
    }
    trying.await
}

/// The start of tonic's message about an answer that is HTTP, not gRPC.
const NO_GRPC: &str = "grpc-status header missing";

/// The failure of a status from this peer. Also notes if the peer could not reconnect.
pub(crate) fn failure(peer: &Peer, status: &Status) -> Failure {
    if is_due_to::<tonic::TimeoutExpired>(status) {
        return no_answer(peer);
    }
    if Unsent::is_cause_of(status) {
        let message = format!("{peer}: {Unsent}");
        return Failure::connecting(Fault::new(Reason::OwnerUnreachable, message));
    }
    let mut fault = Fault::from_status(status);
    // A proxy that had no answer of the node may have passed the request on.
    let answers_http = status.message().starts_with(NO_GRPC) && status.code() != Code::Unavailable;
    let source = std::error::Error::source(status);
    if answers_http || source.is_some_and(speaks_no_grpc) {
        let message =
            format!("{peer} does not speak gRPC: use the node's gRPC port, not its HTTP port");
        return Failure::sent(Fault::new(Reason::Invalid, message));
    }
    if fault.reason == Reason::WrongCluster {
        fault.message = format!("{peer}: {}", fault.message);
        peer.is_a_strangers(&fault);
        return Failure::connecting(fault);
    }
    if fault.wants_connection() {
        peer.connect_again();
        let message = format!("{peer}: {}", fault.message);
        return Failure::connecting(Fault::new(Reason::OwnerUnreachable, message));
    }
    if !status.details().is_empty() {
        peer.heard();
        return Failure::sent(fault);
    }
    let cause = source.map(deepest);
    if let Some(alert) = cause.as_deref().and_then(torc_tls::refusal) {
        let message = format!(
            "{peer} does not accept the certificate of this client ({alert}), and nothing was done: \
             use one of the cluster's authority that has not expired"
        );
        return Failure::sent(Fault::new(Reason::Unauthenticated, message));
    }
    // "transport error" says nothing.
    fault.message = format!("{peer}: {}", cause.unwrap_or(fault.message));
    if status.code() == Code::OutOfRange {
        let stop = Stop::TooLarge;
        return Failure { stop, fault };
    }
    let never_sent = fault.reason == Reason::OwnerUnreachable && !fault.maybe_applied;
    if never_sent {
        peer.cut_off(&fault);
        return Failure::connecting(fault);
    }
    Failure::sent(fault)
}

/// The failure of a request that was sent but not answered by the deadline.
pub(crate) fn no_answer(peer: &Peer) -> Failure {
    let message = format!("{peer} did not answer in time");
    Failure::sent(Fault {
        maybe_applied: true,
        ..Fault::new(Reason::Deadline, message)
    })
}

/// Whether a local error, not the node's answer, ended the attempt.
fn is_due_to<E: std::error::Error + 'static>(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<E>() {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::options::Config;
    use crate::peer::Peers;

    fn peer() -> Arc<Peer> {
        let config = Config {
            seeds: vec!["127.0.0.1:1".to_owned()],
            connect_timeout: Duration::from_secs(1),
            first_contact: Duration::MAX,
            channels: 1,
            hot_keys: true,
            tls: None,
            token: None,
        };
        Arc::clone(&Peers::new(config).unwrap().seeds()[0])
    }

    fn transport(mut status: Status) -> Status {
        status.set_source(Arc::new(std::io::Error::other("connection reset")));
        status
    }

    /// For example a connection that the node closed with ENHANCE_YOUR_CALM, which gRPC reports as
    /// "resource exhausted".
    #[test]
    fn what_the_transport_failed_of_is_in_doubt_whatever_its_code() {
        for number in 1..=16 {
            let status = Status::new(Code::from(number), "broken");
            if status.code() == Code::OutOfRange {
                continue;
            }
            let failed = failure(&peer(), &transport(status));
            assert!(failed.fault.maybe_applied, "{number}");
            assert!(!failed.may_retry(Nature::Write), "{number}");
            assert!(failed.may_retry(Nature::Read), "{number}");
            assert!(failed.fault.message.ends_with("connection reset"));
        }
    }

    #[test]
    fn what_a_node_answered_means_what_it_says() {
        let busy = Fault::new(Reason::Overloaded, "slow down");
        let failed = failure(&peer(), &Status::from(busy.clone()));
        assert_eq!(failed, Failure::sent(busy));
        let shed = failure(&peer(), &Status::resource_exhausted("too many requests"));
        assert!(
            shed.may_retry(Nature::Write),
            "sent by the node, which did nothing"
        );
    }

    #[test]
    fn a_message_that_is_too_long_was_not_carried_out() {
        let failed = failure(&peer(), &Status::out_of_range("too large"));
        assert_eq!(failed.stop, Stop::TooLarge);
        assert!(!failed.fault.maybe_applied);
    }

    #[test]
    fn an_attempt_that_our_timer_ended_is_in_doubt() {
        let mut status = Status::cancelled("Timeout expired");
        status.set_source(Arc::new(tonic::TimeoutExpired(())));
        let fault = failure(&peer(), &status).fault;
        assert_eq!(fault.reason, Reason::Deadline);
        assert!(fault.maybe_applied);
    }
}
