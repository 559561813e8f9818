//! Workers that each send a request after the previous one was answered.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join_all;
use hdrhistogram::Histogram;

use crate::records::Random;

/// The result of a loop.
#[derive(Debug)]
pub(super) struct Sample {
    /// Keys read or written.
    pub(super) operations: u64,
    pub(super) took: Duration,
    /// Latencies of requests, nanoseconds.
    pub(super) latencies_ns: Histogram<u64>,
}

/// Latencies up to a minute, with three significant digits.
pub(super) fn latencies() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 60_000_000_000, 3)?)
}

/// Sends requests from every worker for `time`; each request handles `operations` keys.
///
/// # Errors
/// The first error of a request.
pub(super) async fn closed_loop<S>(
    workers: impl IntoIterator<Item = S>,
    operations: usize,
    time: Duration,
    request: impl AsyncFn(&mut S, &mut Random) -> Result<()>,
) -> Result<Sample> {
    let latencies = RefCell::new(latencies()?);
    let started = Instant::now();
    let end = started + time;
    let worker = async |number: usize, mut state: S| {
        let mut random = Random::of(number as u64);
        let mut sent = Instant::now();
        while sent < end {
            request(&mut state, &mut random).await?;
            let answered = Instant::now();
            let nanos = (answered - sent).as_nanos() as u64;
            latencies.borrow_mut().saturating_record(nanos);
            sent = answered;
        }
        anyhow::Ok(())
    };
    let workers = workers.into_iter().enumerate();
    try_join_all(workers.map(|(number, state)| worker(number, state))).await?;
    let took = started.elapsed();
    let latencies_ns = latencies.into_inner();
    Ok(Sample {
        operations: latencies_ns.len() * operations as u64,
        took,
        latencies_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_answered_is_counted() {
        let counted = RefCell::new(0_u64);
        let sample = closed_loop(0..8, 100, Duration::from_millis(5), async |_, _| {
            *counted.borrow_mut() += 100;
            tokio::task::yield_now().await;
            Ok(())
        });
        let sample = sample.await.unwrap();
        assert_eq!(sample.operations, counted.into_inner());
        assert!(sample.operations >= 800, "every worker sends at least once");
    }

    #[tokio::test]
    async fn an_error_ends_the_loop() {
        let failing = closed_loop([()], 1, Duration::from_secs(3600), async |(), _| {
            anyhow::bail!("no")
        });
        assert!(failing.await.is_err());
    }
}
