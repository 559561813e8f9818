//! Sends the requests of a benchmark with concurrent workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use indicatif::ProgressBar;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use torc_client::{Client, Error, ScanOptions};

use super::keys::Added;
use super::report::Run;
use super::schedule::Schedule;
use super::tally::{Outcome, Tally};
use super::workload::{Kind, Request, Workload, key};

/// State that the workers share.
pub(super) struct Driver {
    pub(super) client: Client,
    pub(super) workload: Arc<Workload>,
    pub(super) schedule: Schedule,
    pub(super) bar: ProgressBar,
    pub(super) added: Arc<Mutex<Added>>,
    pub(super) next: AtomicU64,
    /// One for all: its histograms take hundreds of kilobytes, and there may be thousands of workers.
    pub(super) tally: Mutex<Tally>,
    pub(super) started: Instant,
}

impl Driver {
    /// Sends all requests. Returns their results and the first error.
    pub(super) async fn run(self, concurrency: u32, rate: Option<u64>) -> (Run, Option<Error>) {
        let driver = Arc::new(self);
        let mut workers = JoinSet::new();
        for _ in 0..u64::from(concurrency).min(driver.workload.requests()) {
            let driver = Arc::clone(&driver);
            workers.spawn(async move { driver.work().await });
        }
        let mut first_error = None;
        while let Some(done) = workers.join_next().await {
            match done {
                Ok(error) => first_error = first_error.or(error),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
        let elapsed = driver.started.elapsed();
        let tally = std::mem::take(&mut *driver.tally.lock());
        let due = driver.schedule.all_due(driver.workload.requests(), elapsed);
        let batch = u64::from(driver.workload.batch);
        let run = Run {
            rate,
            elapsed,
            not_sent: due.map(|due| due.saturating_sub(tally.requests) * batch),
            tally,
        };
        (run, first_error)
    }

    /// Sends one request after the other. Returns the first error.
    async fn work(&self) -> Option<Error> {
        let mut first_error = None;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let is_last = number >= self.workload.requests();
            if is_last || !self.schedule.sends(number, self.started.elapsed()) {
                return first_error;
            }
            let due = self.schedule.due(number);
            if let Some(due) = due.and_then(|due| self.started.checked_add(due)) {
                tokio::time::sleep_until(due.into()).await;
            }
            let known = self.added.lock().known();
            let Some(request) = self.workload.request(number, known) else {
                return first_error;
            };
            let operations = request.operations();
            let since = due.unwrap_or_else(|| self.started.elapsed());
            let error = self.send(request, since).await;
            first_error = first_error.or(error);
            self.bar.inc(operations);
        }
    }

    /// Sends a request and records its outcome and the time since it was due. Returns its first
    /// error.
    async fn send(&self, request: Request, due: Duration) -> Option<Error> {
        let (client, value) = (&self.client, &self.workload.value);
        match request {
            Request::Get(key) => {
                let outcome = client.get(key).await.map(found);
                self.note(Kind::Get, due, [outcome])
            }
            Request::Put(key) => {
                let outcome = client.put(key, value.clone()).await;
                self.note(Kind::Put, due, [outcome.map(|_| Outcome::Done)])
            }
            Request::BatchGet(keys) => {
                let count = keys.len();
                let results = client.batch_get(keys).await;
                let outcomes = each(results, count).map(|result| result.map(found));
                self.note(Kind::Get, due, outcomes)
            }
            Request::BatchPut(keys) => {
                let count = keys.len();
                let records = keys.into_iter().map(|key| (key, value.clone()));
                let results = client.batch_put(records.collect::<Vec<_>>()).await;
                let outcomes = each(results, count).map(|result| result.map(|_| Outcome::Done));
                self.note(Kind::Put, due, outcomes)
            }
            Request::Insert => {
                let number = self.added.lock().take();
                let outcome = client.put(key(number), value.clone()).await;
                self.added.lock().done(number);
                self.note(Kind::Insert, due, [outcome.map(|_| Outcome::Done)])
            }
            Request::Scan { after, limit } => {
                let options = ScanOptions {
                    after: Some(after),
                    limit: Some(limit),
                    ..ScanOptions::default()
                };
                let count = |count, _| std::future::ready(Ok(count + 1));
                let records = client.scan(options).try_fold(0, count).await;
                self.note(Kind::Scan, due, [records.map(Outcome::Records)])
            }
            Request::Modify(key) => {
                let outcome = self.modify(key).await;
                self.note(Kind::Modify, due, [outcome.map(found)])
            }
        }
    }

    /// Gets a key, then puts it without a condition, as YCSB does. Returns whether it had a value.
    async fn modify(&self, key: bytes::Bytes) -> Result<Option<()>, Error> {
        let found = self.client.get(key.clone()).await?;
        self.client.put(key, self.workload.value.clone()).await?;
        Ok(found.map(drop))
    }

    fn note(
        &self,
        kind: Kind,
        due: Duration,
        outcomes: impl IntoIterator<Item = Result<Outcome, Error>>,
    ) -> Option<Error> {
        let took = self.started.elapsed().saturating_sub(due);
        self.tally.lock().note(kind, took, outcomes)
    }
}

fn found<T>(value: Option<T>) -> Outcome {
    value.map_or(Outcome::NotFound, |_| Outcome::Done)
}

/// One result per operation of a batch; if the whole batch failed, its failure for each.
fn each<T>(
    results: Result<Vec<Result<T, Error>>, Error>,
    count: usize,
) -> impl Iterator<Item = Result<T, Error>> {
    let (results, failure) = match results {
        Ok(results) => (results, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let failed = failure
        .into_iter()
        .flat_map(move |error| std::iter::repeat_with(move || Err(error.clone())).take(count));
    results.into_iter().chain(failed)
}
