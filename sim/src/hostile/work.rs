//! What hostile clients share: the fast kinds to run, the limits of the run, and the report.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinError;
use tokio::time::Instant;
use torc_sim::Rng;

use super::Options;
use super::honest::Span;
use super::kind::Kind;
use super::outcome::Done;
use super::rate::RateLimit;
use super::report::Report;
use super::target::{Shot, Target};

/// State that all hostile clients share.
pub(super) struct Work {
    fast: Mutex<Deck>,
    pub(super) rounds: u64,
    /// Only the time or the number of requests ends the run.
    pub(super) is_endless: bool,
    report: Mutex<Report>,
    received: AtomicU64,
    requests: Option<u64>,
    begun: Instant,
    over: Option<Instant>,
    is_ended: AtomicBool,
    pub(super) rate: RateLimit,
}

impl Work {
    pub(super) fn new(
        options: &Options,
        fast: Vec<Kind>,
        target: &Arc<Target>,
        rng: Rng,
        report: Report,
    ) -> Self {
        let begun = Instant::now();
        let is_limited = options.seconds.is_some() || options.requests.is_some();
        let is_endless = options.rounds.is_none() && is_limited;
        let rounds = options
            .rounds
            .unwrap_or(if is_endless { u64::MAX } else { 1 });
        Self {
            fast: Mutex::new(Deck::new(fast, target, rng, rounds)),
            rounds,
            is_endless,
            report: Mutex::new(report),
            received: AtomicU64::new(0),
            requests: options.requests,
            begun,
            over: options
                .seconds
                .map(|seconds| begun + Duration::from_secs(seconds)),
            is_ended: AtomicBool::new(false),
            rate: RateLimit::new(options.rate),
        }
    }

    /// Whether another request may be made.
    pub(super) fn goes_on(&self) -> bool {
        !self.is_ended.load(Ordering::Relaxed)
            && self.over.is_none_or(|over| Instant::now() < over)
            && self
                .requests
                .is_none_or(|most| self.received.load(Ordering::Relaxed) < most)
    }

    /// Whether one go repeats its request.
    pub(super) const fn is_repeating(&self) -> bool {
        self.requests.is_some()
    }

    /// The next fast kind and its target, until all rounds are dealt.
    pub(super) fn next(&self) -> Option<(Kind, Shot)> {
        locked(&self.fast).next()
    }

    pub(super) fn note(&self, kind: &Kind, done: &Done, took: Duration) {
        self.received.fetch_add(done.requests, Ordering::Relaxed);
        locked(&self.report).note(kind, done, took.as_millis() as u64);
    }

    pub(super) fn note_go(&self, kind: &Kind, span: Span) {
        locked(&self.report).note_go(kind, span);
    }

    pub(super) fn note_end(&self, ended: Result<(), JoinError>) {
        if let Err(panic) = ended
            && !panic.is_cancelled()
        {
            let trouble = format!("a hostile client gave up: {panic}");
            locked(&self.report).troubles.push(trouble);
        }
    }

    /// Lets no more requests begin.
    pub(super) fn end(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
    }

    /// Takes the report, once all clients have ended.
    pub(super) fn report(&self) -> Report {
        let mut report = std::mem::take(&mut *locked(&self.report));
        report.rounds = locked(&self.fast).dealt;
        report.seconds = self.begun.elapsed().as_secs_f64();
        report
    }
}

/// Deals every kind once per round, in a random order, to a random node.
struct Deck {
    kinds: Vec<Kind>,
    target: Arc<Target>,
    rng: Rng,
    rounds: u64,
    dealt: u64,
    waiting: VecDeque<Kind>,
}

impl Deck {
    fn new(kinds: Vec<Kind>, target: &Arc<Target>, rng: Rng, rounds: u64) -> Self {
        Self {
            kinds,
            target: Arc::clone(target),
            rng,
            rounds,
            dealt: 0,
            waiting: VecDeque::new(),
        }
    }

    fn next(&mut self) -> Option<(Kind, Shot)> {
        if self.waiting.is_empty() && !self.kinds.is_empty() && self.dealt < self.rounds {
            self.dealt += 1;
            let kinds = self.kinds.iter();
            let mut shuffled: Vec<_> = kinds.map(|kind| (self.rng.next(), kind)).collect();
            shuffled.sort_by_key(|(place, _)| *place);
            self.waiting
                .extend(shuffled.into_iter().map(|(_, kind)| kind.clone()));
        }
        let kind = self.waiting.pop_front()?;
        Some((kind, Shot::any(&self.target, &mut self.rng)))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
