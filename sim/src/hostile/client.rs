//! One hostile client: runs kinds one after another and keeps its connections between calls.
//!
//! A *go* is one turn of one kind at one node. Without a slice it is one request, which the client
//! repeats while the node has no place. With a slice, in runs of `--requests`, the client repeats
//! the request until the slice is over, and keeps several in flight if they cost little.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep, timeout};

use super::grpc::{Call, Connection};
use super::kind::{Act, Kind};
use super::outcome::{Done, Outcome};
use super::target::Shot;
use super::work::Work;

/// A go ends after this time, or after this many requests.
const SLICE: Duration = Duration::from_millis(100);
const MOST_IN_SLICE: u64 = 2_000;
/// Requests of one go that are in flight at once, if they cost little.
const IN_FLIGHT: usize = 8;
/// A call costs little if its body is no longer than this, bytes,
const SHORT: usize = 64 << 10;
/// and if the one before it was answered within this time.
const QUICK: Duration = Duration::from_millis(20);
/// Attempts of a single request at a node that has no place or no leader now.
const TRIES: u32 = 40;
/// The same of a go that repeats its request.
const TRIES_IN_SLICE: u64 = 6;
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// A hostile client.
pub(super) struct HostileClient {
    work: Arc<Work>,
    kept: HashMap<SocketAddr, Arc<Connection>>,
}

/// A request in flight, and how long it took.
type InFlight = BoxFuture<'static, (Done, Duration)>;

impl HostileClient {
    pub(super) fn new(work: Arc<Work>) -> Self {
        Self {
            work,
            kept: HashMap::new(),
        }
    }

    /// One go.
    pub(super) async fn go(&mut self, kind: &Kind, mut shot: Shot) {
        let begun = Instant::now();
        if self.work.is_repeating() && !kind.is_slow {
            self.repeat(kind, shot).await;
        } else {
            let done = self.insist(kind, &mut shot).await;
            self.work.note(kind, &done, begun.elapsed());
        }
        self.work.note_go(kind, (begun, Instant::now()));
    }

    /// Repeats the request if the node had no place: other clients take all places at times. Such a node
    /// closes new connections; only a request whose connection it closes twice has been answered so.
    async fn insist(&mut self, kind: &Kind, shot: &mut Shot) -> Done {
        let mut tries = if self.work.is_repeating() { 1 } else { TRIES };
        let mut was_closed = false;
        loop {
            let mut requests = Requests::new(kind, shot.again());
            let to = requests.call_to();
            let mut was_kept = to.is_some_and(|to| self.kept.contains_key(&to));
            let done = loop {
                let done = match self.begin(&mut requests).await {
                    Ok(request) => request.await.0,
                    Err(outcome) => outcome.into(),
                };
                self.forget_broken(to, &done.outcome);
                // The node may close a connection that is not used.
                if !std::mem::take(&mut was_kept) || is_answered(&done.outcome) {
                    break done;
                }
            };
            tries -= 1;
            let is_passing = done.outcome.is_passing()
                || done.outcome == Outcome::Closed && !std::mem::replace(&mut was_closed, true);
            if tries == 0 || kind.expects(&done.outcome) || !is_passing {
                return done;
            }
            sleep(TRY_AGAIN).await;
        }
    }

    /// Repeats the request until the slice is over.
    async fn repeat(&mut self, kind: &Kind, shot: Shot) {
        let mut requests = Requests::new(kind, shot);
        let to = requests.call_to();
        let mut was_kept = to.is_some_and(|to| self.kept.contains_key(&to));
        let mut slice = Slice::new(requests.is_wide(Duration::MAX));
        let mut in_flight = FuturesUnordered::new();
        loop {
            while in_flight.len() < slice.width() && self.work.goes_on() {
                match self.begin(&mut requests).await {
                    Ok(request) => in_flight.push(request),
                    Err(outcome) => {
                        slice.end();
                        self.work.note(kind, &outcome.into(), Duration::ZERO);
                    }
                }
            }
            let Some((done, took)) = in_flight.next().await else {
                return;
            };
            self.forget_broken(to, &done.outcome);
            // The node may close a connection that is not used.
            if std::mem::take(&mut was_kept) && !is_answered(&done.outcome) {
                continue;
            }
            self.work.note(kind, &done, took);
            let is_busy = !kind.expects(&done.outcome) && done.outcome.is_passing();
            slice.note(&done, is_busy, requests.is_wide(took));
            if slice.is_waiting() {
                sleep(TRY_AGAIN).await;
            }
        }
    }

    /// The next request on an open connection; polling the result does the rest.
    async fn begin(&mut self, requests: &mut Requests<'_>) -> Result<InFlight, Outcome> {
        let acting: BoxFuture<'static, Done> = match requests.next() {
            Request::Call(call) => {
                let connection = self.connection(call.to).await?;
                Box::pin(async move { call.on(&connection).await.into() })
            }
            Request::Own(acting) => acting,
        };
        let (work, time) = (Arc::clone(&self.work), requests.kind.time());
        Ok(Box::pin(async move {
            work.rate.turn().await;
            let begun = Instant::now();
            let done = timeout(time, acting).await;
            let done = done.unwrap_or_else(|_| Outcome::Silent.into());
            work.rate.charge(done.requests.saturating_sub(1));
            (done, begun.elapsed())
        }))
    }

    async fn connection(&mut self, to: SocketAddr) -> Result<Arc<Connection>, Outcome> {
        if let Some(kept) = self.kept.get(&to) {
            return Ok(Arc::clone(kept));
        }
        let opened = Arc::new(Connection::open(to).await?);
        self.kept.insert(to, Arc::clone(&opened));
        Ok(opened)
    }

    /// Drops the connection of a call that was not answered.
    fn forget_broken(&mut self, to: Option<SocketAddr>, outcome: &Outcome) {
        if let Some(to) = to
            && !is_answered(outcome)
        {
            self.kept.remove(&to);
        }
    }
}

const fn is_answered(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Grpc(_))
}

/// How much of a go is left, and how many requests it may have in flight.
struct Slice {
    begun: Instant,
    made: u64,
    /// So far, the node had no place for any request.
    is_busy: bool,
    /// Requests may run concurrently.
    is_wide: bool,
}

impl Slice {
    fn new(is_wide: bool) -> Self {
        Self {
            begun: Instant::now(),
            made: 0,
            is_busy: false,
            is_wide,
        }
    }

    fn note(&mut self, done: &Done, is_busy: bool, is_wide: bool) {
        self.is_busy = is_busy && (self.made == 0 || self.is_busy);
        self.is_wide = is_wide && !is_busy;
        self.made += done.requests;
    }

    /// Whether the node has no place now and should be tried a few more times.
    const fn is_waiting(&self) -> bool {
        self.is_busy && self.made < TRIES_IN_SLICE
    }

    const fn end(&mut self) {
        self.is_busy = false;
        self.made = MOST_IN_SLICE;
    }

    /// How many requests may be in flight; 0 once the slice is over.
    fn width(&self) -> usize {
        let has_time = self.made == 0 || self.begun.elapsed() < SLICE;
        if self.made >= MOST_IN_SLICE || !(has_time || self.is_waiting()) {
            0
        } else if self.is_wide {
            IN_FLIGHT
        } else {
            1
        }
    }
}

/// The requests of one go.
struct Requests<'a> {
    kind: &'a Kind,
    shot: Shot,
    /// The next call. It is rebuilt only if it contains random bytes.
    call: Option<Call>,
    is_random: bool,
}

enum Request {
    Call(Call),
    Own(BoxFuture<'static, Done>),
}

impl<'a> Requests<'a> {
    fn new(kind: &'a Kind, mut shot: Shot) -> Self {
        let before = shot.rng.clone();
        let call = match &kind.act {
            Act::Call(make) => Some(make(&mut shot)),
            Act::Own(_) => None,
        };
        Self {
            kind,
            is_random: shot.rng != before,
            shot,
            call,
        }
    }

    fn call_to(&self) -> Option<SocketAddr> {
        self.call.as_ref().map(|call| call.to)
    }

    /// Whether requests may run concurrently, given the duration of the last one.
    fn is_wide(&self, took: Duration) -> bool {
        match &self.call {
            Some(call) => call.len() <= SHORT && took < QUICK,
            None => self.kind.is_light,
        }
    }

    fn next(&mut self) -> Request {
        match (&self.kind.act, &mut self.call) {
            (Act::Call(make), Some(call)) if self.is_random => {
                Request::Call(std::mem::replace(call, make(&mut self.shot)))
            }
            (Act::Call(_), Some(call)) => Request::Call(call.clone()),
            (Act::Call(make), None) => Request::Call(make(&mut self.shot)),
            (Act::Own(act), _) => Request::Own(act(self.shot.again())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_wide_only_while_requests_cost_little() {
        let mut slice = Slice::new(false);
        assert_eq!(slice.width(), 1);
        slice.note(&Outcome::Closed.into(), false, true);
        assert_eq!(slice.width(), IN_FLIGHT);
        slice.note(&Outcome::Closed.into(), true, true);
        assert_eq!(slice.width(), 1, "the node has no place");
        slice.note(&Outcome::Closed.into(), false, false);
        assert_eq!(slice.width(), 1);
        slice.end();
        assert_eq!(slice.width(), 0);
    }

    #[test]
    fn a_node_that_was_only_busy_is_asked_again_after_the_slice() {
        let mut slice = Slice::new(true);
        slice.begun = Instant::now().checked_sub(2 * SLICE).unwrap();
        for _ in 1..TRIES_IN_SLICE {
            slice.note(&Outcome::Closed.into(), true, true);
            assert_eq!(slice.width(), 1);
        }
        slice.note(&Outcome::Closed.into(), true, true);
        assert_eq!(slice.width(), 0);
    }
}
