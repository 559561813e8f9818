//! Runs the hostile clients: for a number of rounds, or until the time is up.
//!
//! Fast kinds are dealt to `--connections` clients, round by round; a client that has finished
//! takes the next kind at once. Each slow kind runs beside them in its own loop, so nothing waits
//! for it. At the end of the run, slow kinds in progress are cancelled and not counted.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;
use torc_sim::Rng;

use super::Options;
use super::client::HostileClient;
use super::kind::Kind;
use super::report::Report;
use super::target::{Shot, Target};
use super::watch::Watch;
use super::work::Work;

/// Slow kinds that run at a time, beside the others.
const SLOW_AT_ONCE: usize = 12;
/// Pause between two goes of a slow kind in a run without `--rounds`. Some hold tens of MiB of
/// answers, and honest requests wait for the rest of a node's budget.
const SLOW_PAUSE: Duration = Duration::from_secs(30);
/// How often to check the time, and that the nodes are alive.
const LOOK: Duration = Duration::from_millis(100);

/// Runs the kinds on the runtime `hostile`: for a number of rounds, or until the time is up.
pub(super) async fn run(
    options: &Options,
    kinds: Vec<Kind>,
    target: &Arc<Target>,
    watch: &Watch,
    report: Report,
    hostile: &Handle,
) -> Report {
    let mut rng = Rng::new(options.seed);
    let (slow, fast): (Vec<_>, Vec<_>) = kinds.into_iter().partition(|kind| kind.is_slow);
    let slow: Vec<_> = slow
        .into_iter()
        .map(|kind| (kind, Rng::new(rng.next())))
        .collect();
    let work = Arc::new(Work::new(options, fast, target, rng, report));
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
                    work.end();
                }
            }
        }
        if !work.goes_on() {
            waiting.abort_all();
        }
    }
    work.report()
}

async fn run_fast(work: Arc<Work>) {
    let mut client = HostileClient::new(Arc::clone(&work));
    while work.goes_on() {
        let Some((kind, shot)) = work.next() else {
            return;
        };
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
