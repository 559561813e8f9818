//! The kinds to run, the clients that run them, and the end of the run.
//!
//! Fast kinds are dealt to `--connections` clients, round by round; a client that has finished
//! takes the next kind at once. Each slow kind runs beside them in its own loop, so nothing waits
//! for it. At the end of the run, slow kinds in progress are cancelled and not counted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};
use torc_sim::Rng;

use super::Options;
use super::client::HostileClient;
use super::honest::Span;
use super::kind::{Done, Kind};
use super::rate::RateLimit;
use super::report::Report;
use super::target::{Shot, Target};
use super::watch::Watch;

/// Slow kinds that run at a time, beside the others.
const SLOW_AT_ONCE: usize = 12;
/// Pause between two goes of a slow kind in a run without `--rounds`. Some hold tens of MiB of
/// answers, and honest requests wait for the rest of a node's budget.
const SLOW_PAUSE: Duration = Duration::from_secs(30);
/// Interval between checks whether the run is over and whether the nodes are alive.
const LOOK: Duration = Duration::from_millis(100);

/// State that all hostile clients share.
pub(super) struct Work {
    fast: Mutex<Deck>,
    rounds: u64,
    /// Only the time or the number of requests ends the run.
    is_endless: bool,
    report: Mutex<Report>,
    received: AtomicU64,
    requests: Option<u64>,
    over: Option<Instant>,
    is_ended: AtomicBool,
    pub(super) rate: RateLimit,
}

impl Work {
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

    pub(super) fn note(&self, kind: &Kind, done: &Done, took: Duration) {
        self.received.fetch_add(done.requests, Ordering::Relaxed);
        locked(&self.report).note(kind, done, took.as_millis() as u64);
    }

    pub(super) fn note_go(&self, kind: &Kind, span: Span) {
        locked(&self.report).note_go(kind, span);
    }
}

/// Runs the kinds on the runtime `hostile` until all rounds are complete or the run is over.
pub(super) async fn run(
    options: &Options,
    kinds: Vec<Kind>,
    target: &Arc<Target>,
    watch: &Watch,
    report: Report,
    hostile: &Handle,
) -> Report {
    let begun = Instant::now();
    let is_limited = options.seconds.is_some() || options.requests.is_some();
    let is_endless = options.rounds.is_none() && is_limited;
    let rounds = options
        .rounds
        .unwrap_or(if is_endless { u64::MAX } else { 1 });
    let mut rng = Rng::new(options.seed);
    let (slow, fast): (Vec<_>, Vec<_>) = kinds.into_iter().partition(|kind| kind.is_slow);
    let slow: Vec<_> = slow
        .into_iter()
        .map(|kind| (kind, Rng::new(rng.next())))
        .collect();
    let work = Arc::new(Work {
        fast: Mutex::new(Deck::new(fast, target, rng, rounds)),
        rounds,
        is_endless,
        report: Mutex::new(report),
        received: AtomicU64::new(0),
        requests: options.requests,
        over: options
            .seconds
            .map(|seconds| begun + Duration::from_secs(seconds)),
        is_ended: AtomicBool::new(false),
        rate: RateLimit::new(options.rate),
    });
    let mut clients = JoinSet::new();
    for _ in 0..options.connections.max(1) {
        clients.spawn_on(run_fast(Arc::clone(&work)), hostile);
    }
    let mut waiting = JoinSet::new();
    let places = Arc::new(Semaphore::new(SLOW_AT_ONCE));
    for (kind, rng) in slow {
        let (work, target, places) = (Arc::clone(&work), Arc::clone(target), Arc::clone(&places));
        waiting.spawn_on(run_slow(work, kind, target, rng, places), hostile);
    }
    while !(clients.is_empty() && waiting.is_empty()) {
        tokio::select! {
            Some(ended) = clients.join_next() => work.note_end(ended),
            Some(ended) = waiting.join_next() => work.note_end(ended),
            () = sleep(LOOK) => {
                // Without a node, there is nothing more to test.
                if !watch.restarted().is_empty() {
                    work.is_ended.store(true, Ordering::Relaxed);
                }
            }
        }
        if !work.goes_on() {
            waiting.abort_all();
        }
    }
    let mut report = std::mem::take(&mut *locked(&work.report));
    report.rounds = locked(&work.fast).dealt;
    report.seconds = begun.elapsed().as_secs_f64();
    report
}

async fn run_fast(work: Arc<Work>) {
    let mut client = HostileClient::new(Arc::clone(&work));
    while work.goes_on() {
        let next = locked(&work.fast).next();
        let Some((kind, shot)) = next else { return };
        client.go(&kind, shot).await;
    }
}

async fn run_slow(
    work: Arc<Work>,
    kind: Kind,
    target: Arc<Target>,
    mut rng: Rng,
    places: Arc<Semaphore>,
) {
    let mut client = HostileClient::new(Arc::clone(&work));
    for round in 0..work.rounds {
        if round > 0 && work.is_endless {
            sleep(SLOW_PAUSE).await;
        }
        let Ok(_place) = places.acquire().await else {
            return;
        };
        if !work.goes_on() {
            return;
        }
        client.go(&kind, Shot::any(&target, &mut rng)).await;
    }
}

impl Work {
    fn note_end(&self, ended: Result<(), JoinError>) {
        if let Err(panic) = ended
            && !panic.is_cancelled()
        {
            let trouble = format!("a hostile client gave up: {panic}");
            locked(&self.report).troubles.push(trouble);
        }
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
