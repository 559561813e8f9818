//! Storing a file's rows: batches, several at a time, in an order that keeps the last
//! row of a key the one that stays.
//!
//! Invariants:
//! * A batch holds no key twice, and a batch that shares a key with one under way
//!   waits for it: rows of one key are stored in the order of the file.
//! * Whatever ends a load, every batch under way is waited for, so that what is
//!   reported as stored is stored and nothing is stored after the report.
//! * [`Report::resume_line`] is a line before which every row was stored.
//!
//! Absent on purpose: the cluster. Storing is a function that is passed in.

mod batch;
mod retry;

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;

use crate::failure::Failure;
use crate::format::{Numbered, ReadError, Row};

use batch::Batcher;
pub(crate) use batch::{Batch, BatchLimits};
use retry::Retries;
pub(crate) use retry::RetryOptions;

/// What became of a row.
#[derive(Debug)]
pub(crate) enum Stored {
    /// It is stored, durably.
    Yes,
    /// Its time was over already, so that there was nothing to store.
    Expired,
    /// It is not stored, and would not be if it were sent again.
    No(Failure),
    /// It is not stored; it may be if it is sent again.
    NotYet(Failure),
    /// Nobody knows: it may be stored, now or later.
    Unknown(Failure),
}

/// How to load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadOptions {
    /// When a batch is full.
    pub(crate) limits: BatchLimits,
    /// Batches under way at a time, at least 1.
    pub(crate) concurrency: usize,
    /// What becomes of rows that were not stored.
    pub(crate) retry: RetryOptions,
}

/// How far a load came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Rows stored.
    pub(crate) records: u64,
    /// Their keys and values, bytes.
    pub(crate) payload_bytes: u64,
    /// Rows left out because they had expired.
    pub(crate) expired: u64,
    /// Rows that may or may not be stored.
    pub(crate) unknown: u64,
    /// Rows that were sent and are not stored.
    pub(crate) failed: u64,
    /// Times a row was sent again.
    pub(crate) retried: u64,
    /// Every row that begins before this line is stored (or had expired).
    pub(crate) resume_line: u64,
}

/// Stores rows until they end or one cannot be stored. Calls `on_progress` whenever
/// the report has changed.
///
/// The report is right in either case; the failure, if any, is why it ended early.
pub(crate) async fn load<S, F>(
    rows: Receiver<Result<Numbered, ReadError>>,
    store: S,
    options: LoadOptions,
    stop: impl Future<Output = ()>,
    on_progress: impl FnMut(&Report),
) -> (Report, Option<LoadEnd>)
where
    S: Fn(Vec<Row>) -> F + Send + Sync + 'static,
    F: Future<Output = Vec<Stored>> + Send,
{
    let mut loader = Loader {
        rows,
        waiting: VecDeque::new(),
        batcher: Batcher::new(options.limits),
        full: None,
        under_way: JoinSet::new(),
        keys_under_way: HashSet::new(),
        store: Arc::new(store),
        retries: Arc::new(Retries::new(options.retry)),
        options,
        report: Report::default(),
        next_line: 1,
        first_lost_line: None,
        end: None,
        on_progress,
    };
    loader.run(stop).await;
    loader.finish()
}

/// Why a load ended before the end of the file.
#[derive(Debug)]
pub(crate) enum LoadEnd {
    /// The file could not be read on; everything before that line was stored.
    Input(ReadError),
    /// A row could not be stored, and none is of unknown outcome.
    Store(Failure),
    /// It is not known whether a row is stored.
    Unknown(Failure),
    /// It was told to stop.
    Interrupted,
}

struct Loader<S, P> {
    rows: Receiver<Result<Numbered, ReadError>>,
    /// Rows read and not yet in a batch.
    waiting: VecDeque<Result<Numbered, ReadError>>,
    batcher: Batcher,
    /// A batch that is to be sent next.
    full: Option<Batch>,
    under_way: JoinSet<Done>,
    keys_under_way: HashSet<Bytes>,
    store: Arc<S>,
    retries: Arc<Retries>,
    options: LoadOptions,
    report: Report,
    /// The line behind the last row that was looked at.
    next_line: u64,
    first_lost_line: Option<u64>,
    end: Option<LoadEnd>,
    on_progress: P,
}

/// A batch that was dealt with.
struct Done {
    batch: Batch,
    /// One a row, in order.
    results: Vec<Stored>,
    /// Rows that were sent again.
    retried: u64,
}

impl<S, F, P> Loader<S, P>
where
    S: Fn(Vec<Row>) -> F + Send + Sync + 'static,
    F: Future<Output = Vec<Stored>> + Send,
    P: FnMut(&Report),
{
    async fn run(&mut self, stop: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = stop => {
                self.end.get_or_insert(LoadEnd::Interrupted);
                self.retries.end();
            }
            () = self.work() => return,
        }
        while self.complete_one().await {}
    }

    /// Everything, to the end. Nothing is lost when it is dropped while it waits.
    async fn work(&mut self) {
        while self.step().await {}
        while self.complete_one().await {}
    }

    /// One step; false when nothing is left to do but to wait for what is under way.
    async fn step(&mut self) -> bool {
        match self.end {
            None | Some(LoadEnd::Input(_)) => {}
            Some(LoadEnd::Store(_) | LoadEnd::Unknown(_) | LoadEnd::Interrupted) => return false,
        }
        if let Some(batch) = self.full.take() {
            if self.may_send(&batch) {
                self.send(batch);
            } else {
                self.full = Some(batch);
                self.complete_one().await;
            }
            return true;
        }
        if let Some(row) = self.waiting.pop_front() {
            self.take_in(row);
            return true;
        }
        if self.end.is_some() || (self.under_way.is_empty() && self.rows.is_empty()) {
            // Nothing more will come, or nobody is busy: a batch that is not full goes now.
            self.full = self.batcher.take();
            if self.full.is_some() {
                return true;
            }
        }
        self.end.is_none() && self.wait_for_rows().await
    }

    /// Waits for rows to come or a batch to be done; false when both have ended.
    async fn wait_for_rows(&mut self) -> bool {
        const ROWS_AT_A_TIME: usize = 512;
        let mut rows = Vec::new();
        tokio::select! {
            biased;
            Some(done) = self.under_way.join_next() => self.account(done),
            count = self.rows.recv_many(&mut rows, ROWS_AT_A_TIME) => {
                if count == 0 {
                    self.full = self.batcher.take();
                    return self.full.is_some();
                }
                self.waiting.extend(rows);
            }
        }
        true
    }

    fn take_in(&mut self, row: Result<Numbered, ReadError>) {
        match row {
            Ok(row) => {
                self.next_line = row.line + 1;
                self.full = self.batcher.push(row);
            }
            Err(error) => {
                if let ReadError::Bad(row) = &error {
                    self.next_line = row.line;
                }
                self.waiting.clear();
                self.end = Some(LoadEnd::Input(error));
            }
        }
    }

    fn may_send(&self, batch: &Batch) -> bool {
        let shares_a_key = || batch.keys().any(|key| self.keys_under_way.contains(key));
        self.under_way.len() < self.options.concurrency.max(1) && !shares_a_key()
    }

    fn send(&mut self, batch: Batch) {
        self.keys_under_way.extend(batch.keys().cloned());
        let store = Arc::clone(&self.store);
        let retries = Arc::clone(&self.retries);
        self.under_way.spawn(async move {
            let (results, retried) = retries.store(&*store, batch.rows()).await;
            Done {
                batch,
                results,
                retried,
            }
        });
    }

    /// Waits for one batch under way; false when there is none.
    async fn complete_one(&mut self) -> bool {
        match self.under_way.join_next().await {
            Some(done) => {
                self.account(done);
                true
            }
            None => false,
        }
    }

    fn account(&mut self, done: Result<Done, tokio::task::JoinError>) {
        let done = match done {
            Ok(done) => done,
            // Storing panicked: a defect that must not pass for a finished load.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        for key in done.batch.keys() {
            self.keys_under_way.remove(key);
        }
        self.report.retried += done.retried;
        for (row, result) in done.batch.into_rows().zip(done.results) {
            self.account_row(&row, result);
        }
        (self.on_progress)(&self.report);
    }

    fn account_row(&mut self, row: &Numbered, result: Stored) {
        match result {
            Stored::Yes => {
                self.report.records += 1;
                self.report.payload_bytes += (row.row.key.len() + row.row.value.len()) as u64;
            }
            Stored::Expired => self.report.expired += 1,
            Stored::No(failure) | Stored::NotYet(failure) => {
                self.report.failed += 1;
                self.lose(row.line, LoadEnd::Store(failure));
            }
            Stored::Unknown(failure) => {
                self.report.unknown += 1;
                self.lose(row.line, LoadEnd::Unknown(failure));
            }
        }
    }

    /// Ends the load by a row that is not known to be stored. The first such end is
    /// reported, unless a later one is of unknown outcome.
    fn lose(&mut self, line: u64, end: LoadEnd) {
        self.retries.end();
        self.first_lost_line = Some(self.first_lost_line.map_or(line, |first| first.min(line)));
        let outweighs = match (&self.end, &end) {
            (Some(LoadEnd::Unknown(_)), _) => false,
            (Some(LoadEnd::Store(_)), end) => matches!(end, LoadEnd::Unknown(_)),
            (None | Some(LoadEnd::Input(_) | LoadEnd::Interrupted), _) => true,
        };
        if outweighs {
            self.end = Some(end);
        }
    }

    fn finish(mut self) -> (Report, Option<LoadEnd>) {
        let unsent = self.full.as_ref().map(Batch::first_line);
        let unsent = unsent.into_iter().chain(self.batcher.first_line());
        let first_lost = unsent.chain(self.first_lost_line).min();
        self.report.resume_line = first_lost.unwrap_or(self.next_line);
        (self.report, self.end)
    }
}

#[cfg(test)]
mod tests;
