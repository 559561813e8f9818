//! Steady traffic: a fixed rate of gets and puts, whatever the cluster does.
//!
//! Every request has its own task, so a slow request delays no other, and is timed from its start.
//! Gets are compared with the stored records; puts store the same records again.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;
use torc_client::Client;

use crate::records::{self, Random};

pub(super) const GETS_PER_S: u64 = 1_000;
pub(super) const PUTS_PER_S: u64 = 200;
/// A tick sends this part of a second's requests.
const TICKS_PER_S: u64 = 200;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Get,
    Put,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Get => "gets",
            Self::Put => "puts",
        }
    }
}

/// When a request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Before,
    During,
}

/// Outcomes of the requests of one kind and phase.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) latencies_ns: Histogram<u64>,
    pub(super) failed: u64,
}

/// Outcomes of all requests.
#[derive(Debug)]
pub(super) struct Seen {
    tallies: [Tally; 4],
    first_failure: Option<String>,
}

impl Seen {
    fn new() -> Result<Self> {
        let tally = || {
            anyhow::Ok(Tally {
                latencies_ns: Histogram::new_with_bounds(1, 600_000_000_000, 3)?,
                failed: 0,
            })
        };
        Ok(Self {
            tallies: [tally()?, tally()?, tally()?, tally()?],
            first_failure: None,
        })
    }

    pub(super) fn of(&self, kind: Kind, phase: Phase) -> &Tally {
        &self.tallies[index(kind, phase)]
    }

    pub(super) fn first_failure(&self) -> Option<&str> {
        self.first_failure.as_deref()
    }

    fn note(&mut self, kind: Kind, phase: Phase, took: Duration, outcome: Result<()>) {
        let tally = &mut self.tallies[index(kind, phase)];
        tally.latencies_ns.saturating_record(took.as_nanos() as u64);
        if let Err(error) = outcome {
            tally.failed += 1;
            self.first_failure
                .get_or_insert_with(|| format!("{error:#}"));
        }
    }
}

const fn index(kind: Kind, phase: Phase) -> usize {
    2 * kind as usize + phase as usize
}

/// Traffic that runs until it is stopped.
pub(super) struct Traffic {
    shared: Arc<Shared>,
    sender: JoinHandle<()>,
}

struct Shared {
    client: Client,
    records: u64,
    phase: AtomicU8,
    stop: AtomicBool,
    seen: Mutex<Seen>,
}

impl Traffic {
    pub(super) fn start(client: &Client, records: u64) -> Result<Self> {
        let shared = Arc::new(Shared {
            client: client.clone(),
            records,
            phase: AtomicU8::new(Phase::Before as u8),
            stop: AtomicBool::new(false),
            seen: Mutex::new(Seen::new()?),
        });
        let sender = tokio::spawn(send_all(Arc::clone(&shared)));
        Ok(Self { shared, sender })
    }

    pub(super) fn enter(&self, phase: Phase) {
        self.shared.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Waits for the answers to all sent requests.
    pub(super) async fn stop(self) -> Result<Seen> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.sender.await?;
        let none = Seen::new()?;
        Ok(std::mem::replace(&mut *self.shared.seen(), none))
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn phase(&self) -> Phase {
        if self.phase.load(Ordering::Relaxed) == Phase::Before as u8 {
            Phase::Before
        } else {
            Phase::During
        }
    }
}

async fn send_all(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / TICKS_PER_S as u32);
    // After a delay, the client does not catch up with a burst.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut random, mut under_way) = (Random::of(5), JoinSet::new());
    while !shared.stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        for (kind, per_s) in [(Kind::Get, GETS_PER_S), (Kind::Put, PUTS_PER_S)] {
            for _ in 0..per_s / TICKS_PER_S {
                let record = random.below(shared.records);
                under_way.spawn(one(Arc::clone(&shared), kind, record));
            }
        }
        while under_way.try_join_next().is_some() {}
    }
    while under_way.join_next().await.is_some() {}
}

async fn one(shared: Arc<Shared>, kind: Kind, record: u64) {
    let (phase, sent) = (shared.phase(), Instant::now());
    let outcome = match kind {
        Kind::Get => get(&shared.client, record).await,
        Kind::Put => put(&shared.client, record).await,
    };
    shared.seen().note(kind, phase, sent.elapsed(), outcome);
}

async fn get(client: &Client, record: u64) -> Result<()> {
    let pair = records::pair(record);
    let found = client.get(pair.key).await?;
    ensure!(
        found.is_some_and(|found| found.value == pair.value),
        "record {record} is not what was stored"
    );
    Ok(())
}

async fn put(client: &Client, record: u64) -> Result<()> {
    let pair = records::pair(record);
    client.put(pair.key, pair.value).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_phases_are_told_apart() {
        let mut seen = Seen::new().unwrap();
        let ms = Duration::from_millis;
        seen.note(Kind::Get, Phase::Before, ms(1), Ok(()));
        seen.note(
            Kind::Put,
            Phase::During,
            ms(2),
            Err(anyhow::anyhow!("first")),
        );
        seen.note(
            Kind::Put,
            Phase::During,
            ms(3),
            Err(anyhow::anyhow!("second")),
        );
        let counts = |kind, phase| {
            let tally = seen.of(kind, phase);
            (tally.latencies_ns.len(), tally.failed)
        };
        assert_eq!(counts(Kind::Get, Phase::Before), (1, 0));
        assert_eq!(counts(Kind::Get, Phase::During), (0, 0));
        assert_eq!(counts(Kind::Put, Phase::During), (2, 2));
        assert_eq!(seen.first_failure(), Some("first"));
    }
}
