//! The honest client: writes its own keys, reads them back, and measures latencies.
//!
//! Each key has one writer with one operation at a time. So a read may find the last acknowledged
//! value, or a value of unknown outcome; anything else is a lost write.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use torc_client::Client;
use torc_sim::Rng;

/// Writers, each with its own keys.
const WRITERS: u64 = 4;
const KEYS: u64 = 64;
/// Pause between two operations of a writer: the client is one among many, not a load test.
const PAUSE_MICROS: u64 = 4_000;
/// Time limit for the last reads.
const LAST_READS: Duration = Duration::from_secs(60);

/// Beginning and end.
pub(super) type Span = (Instant, Instant);

/// The observations of one phase.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// Beginnings and durations of answered operations.
    times: Vec<(Instant, Duration)>,
    pub(super) failed: u64,
    pub(super) unknown: u64,
    pub(super) acknowledged: u64,
    /// Reads with impossible results.
    pub(super) lost: Vec<String>,
    pub(super) last_error: Option<String>,
}

impl Seen {
    pub(super) const fn answered(&self) -> usize {
        self.times.len()
    }

    /// This permille of the operations' durations, milliseconds.
    pub(super) fn percentile_ms(&self, per_mille: usize) -> f64 {
        percentile_ms(self.times.iter().map(|(_, took)| *took), per_mille)
    }

    /// The number of operations during any of these spans, which are sorted by their beginnings,
    /// and the 99th percentile of their durations, milliseconds.
    pub(super) fn beside(&self, spans: &[Span]) -> (usize, f64) {
        let longest = spans.iter().map(|span| span.1 - span.0).max();
        let longest = longest.unwrap_or_default();
        let overlaps = |&&(begun, took): &&(Instant, Duration)| {
            let before = spans.partition_point(|span| span.0 <= begun + took);
            spans[..before]
                .iter()
                .rev()
                .take_while(|span| span.0 + longest >= begun)
                .any(|span| span.1 >= begun)
        };
        let beside: Vec<_> = self.times.iter().filter(overlaps).collect();
        let durations = beside.iter().map(|(_, took)| *took);
        (beside.len(), percentile_ms(durations, 990))
    }

    pub(super) fn longest_ms(&self) -> f64 {
        self.percentile_ms(1_000)
    }
}

fn percentile_ms(times: impl Iterator<Item = Duration>, per_mille: usize) -> f64 {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    let at = (times.len() * per_mille / 1_000).min(times.len().saturating_sub(1));
    times
        .get(at)
        .map_or(0.0, |time| time.as_secs_f64() * 1_000.0)
}

/// The values that a read of a key may return.
#[derive(Debug, Clone, Default)]
struct Register {
    name: String,
    /// `None` if nothing was acknowledged or read.
    current: Option<u64>,
    /// Values of writes with unknown outcome.
    open: HashSet<u64>,
    next: u64,
}

/// The running client.
pub(super) struct Honest {
    seen: Arc<Mutex<Seen>>,
    over: Arc<AtomicBool>,
    client: Client,
    writers: JoinSet<Vec<Register>>,
}

impl Honest {
    pub(super) fn start(client: &Client, seed: u64) -> Self {
        let (seen, over) = (Arc::default(), Arc::default());
        let mut writers = JoinSet::new();
        for number in 0..WRITERS {
            let writer = Writer {
                client: client.clone(),
                seen: Arc::clone(&seen),
                over: Arc::clone(&over),
                rng: Rng::new(seed.wrapping_add(number)),
                registers: (0..KEYS)
                    .map(|key| Register {
                        name: format!("honest/{number}/{key}"),
                        ..Register::default()
                    })
                    .collect(),
            };
            writers.spawn(writer.run());
        }
        Self {
            seen,
            over,
            client: client.clone(),
            writers,
        }
    }

    /// The observations since the last call.
    pub(super) fn take_seen(&self) -> Seen {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stops the writers and reads every key once more. Returns the observations since the last
    /// call, and the keys that could not be read.
    pub(super) async fn finish(mut self) -> (Seen, Vec<String>) {
        self.over.store(true, Ordering::Relaxed);
        let mut troubles = Vec::new();
        let mut registers = Vec::new();
        while let Some(ended) = self.writers.join_next().await {
            match ended {
                Ok(of_writer) => registers.extend(of_writer),
                Err(panic) => troubles.push(format!("a writer gave up: {panic}")),
            }
        }
        let mut seen = self.take_seen();
        let reading = async {
            for register in &mut registers {
                let found = loop {
                    match self.client.get(register.name.clone()).await {
                        Ok(found) => break found,
                        Err(_) => sleep(Duration::from_millis(100)).await,
                    }
                };
                let found = found.map(|it| number(&it.value));
                seen.lost.extend(register.found(found));
            }
        };
        if timeout(LAST_READS, reading).await.is_err() {
            troubles.push(format!("not all keys could be read within {LAST_READS:?}"));
        }
        (seen, troubles)
    }
}

struct Writer {
    client: Client,
    seen: Arc<Mutex<Seen>>,
    over: Arc<AtomicBool>,
    rng: Rng,
    registers: Vec<Register>,
}

impl Writer {
    async fn run(mut self) -> Vec<Register> {
        while !self.over.load(Ordering::Relaxed) {
            let key = self.rng.below(KEYS) as usize;
            let is_put = self.rng.chance(500);
            let begun = Instant::now();
            let answered = if is_put {
                self.put(key).await
            } else {
                self.get(key).await
            };
            self.note(is_put, begun, answered);
            sleep(Duration::from_micros(self.rng.below(PAUSE_MICROS))).await;
        }
        self.registers
    }

    fn note(
        &self,
        is_put: bool,
        begun: Instant,
        answered: Result<Option<String>, torc_client::Error>,
    ) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match answered {
            Ok(wrong) => {
                seen.times.push((begun, begun.elapsed()));
                seen.acknowledged += u64::from(is_put);
                seen.lost.extend(wrong);
            }
            Err(error) => {
                seen.failed += u64::from(!error.maybe_applied());
                seen.unknown += u64::from(error.maybe_applied());
                seen.last_error = Some(error.to_string());
            }
        }
    }

    async fn put(&mut self, key: usize) -> Result<Option<String>, torc_client::Error> {
        let register = &mut self.registers[key];
        register.next += 1;
        let value = register.next;
        let put = self
            .client
            .put(register.name.clone(), value.to_be_bytes().to_vec());
        match put.await {
            Ok(_) => register.current = Some(value),
            Err(error) => {
                if error.maybe_applied() {
                    register.open.insert(value);
                }
                return Err(error);
            }
        }
        Ok(None)
    }

    async fn get(&mut self, key: usize) -> Result<Option<String>, torc_client::Error> {
        let register = &mut self.registers[key];
        let found = self.client.get(register.name.clone()).await?;
        Ok(register.found(found.map(|it| number(&it.value))))
    }
}

impl Register {
    /// The problem with reading this value, if any.
    fn found(&mut self, value: Option<u64>) -> Option<String> {
        if value == self.current {
            return None;
        }
        if let Some(value) = value
            && self.open.remove(&value)
        {
            self.current = Some(value);
            return None;
        }
        let (name, current) = (&self.name, self.current);
        Some(format!(
            "{name} is {value:?}, and was acknowledged as {current:?}"
        ))
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(u64::MAX, u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_attributed_to_the_spans_that_they_overlap() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let times = [(0, 5), (8, 4), (30, 2), (50, 1)];
        let seen = Seen {
            times: times
                .map(|(begun, took)| (at(begun), Duration::from_millis(took)))
                .to_vec(),
            ..Seen::default()
        };
        assert_eq!(seen.beside(&[]).0, 0);
        assert_eq!(seen.beside(&[(at(6), at(7))]).0, 0);
        assert_eq!(seen.beside(&[(at(1), at(2)), (at(10), at(11))]), (2, 5.0));
        assert_eq!(seen.beside(&[(at(9), at(40)), (at(31), at(31))]).0, 2);
    }

    #[test]
    fn only_acknowledged_values_and_those_in_doubt_may_be_read() {
        let mut register = Register {
            current: Some(3),
            open: HashSet::from([2]),
            ..Register::default()
        };
        assert_eq!(register.found(Some(3)), None);
        assert!(register.found(Some(1)).is_some(), "an older one");
        assert!(register.found(None).is_some(), "nothing");
        assert_eq!(register.found(Some(2)), None, "it took effect late");
        assert!(register.found(Some(3)).is_some(), "and was not undone");
    }
}
