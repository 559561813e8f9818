//! Stores a file's rows in concurrent batches. The last row of each key wins.
//!
//! Invariants:
//! * A batch holds no key twice and waits for batches in flight that share a key with
//!   it. So rows of one key are stored in the order of the file.
//! * However a load ends, it waits for every batch in flight. So everything reported
//!   as stored is stored, and nothing is stored after the report.
//! * Every row before [`Report::resume_line`] was stored.
//!
//! Absent on purpose: the cluster. The caller passes in the function that stores.

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

/// The outcome of a row.
#[derive(Debug)]
pub(crate) enum Stored {
    /// Durably stored.
    Yes,
    /// Stored, but it has expired: the key is absent.
    Expired,
    /// Of a merge: the key has a later write or delete, which stays.
    Superseded,
    /// Not stored; a retry would not help.
    No(Failure),
    /// Not stored; a retry may help.
    NotYet(Failure),
    /// Unknown: the row may be stored, now or later.
    Unknown(Failure),
}

/// How to load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadOptions {
    /// When a batch is full.
    pub(crate) limits: BatchLimits,
    /// Batches in flight at a time, at least 1.
    pub(crate) concurrency: usize,
    /// How to retry rows that were not stored.
    pub(crate) retry: RetryOptions,
}

/// The progress of a load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Rows stored.
    pub(crate) records: u64,
    /// Their keys and values, bytes.
    pub(crate) payload_bytes: u64,
    /// Rows that had expired.
    pub(crate) expired: u64,
    /// Rows of a merge whose keys have newer versions.
    pub(crate) superseded: u64,
    /// Rows that may or may not be stored.
    pub(crate) unknown: u64,
    /// Rows that were sent but not stored.
    pub(crate) failed: u64,
    /// Times a row was sent again.
    pub(crate) retried: u64,
    /// Every row that starts before this line is stored, had expired or was superseded.
    pub(crate) resume_line: u64,
}

/// Stores rows until they end or one cannot be stored. Calls `on_progress` whenever the
/// report changes.
///
/// The report is valid in both cases; the failure, if any, is why the load ended early.
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
    /// Reading failed; everything before that line was stored.
    Input(ReadError),
    /// A row could not be stored; no outcome is unknown.
    Store(Failure),
    /// A row may or may not be stored.
    Unknown(Failure),
    /// The user stopped the load.
    Interrupted,
}

struct Loader<S, P> {
    rows: Receiver<Result<Numbered, ReadError>>,
    /// Rows that were read but are not in a batch yet.
    waiting: VecDeque<Result<Numbered, ReadError>>,
    batcher: Batcher,
    /// The next batch to send.
    full: Option<Batch>,
    under_way: JoinSet<Done>,
    keys_under_way: HashSet<Bytes>,
    store: Arc<S>,
    retries: Arc<Retries>,
    options: LoadOptions,
    report: Report,
    /// The line after the last row that was taken.
    next_line: u64,
    first_lost_line: Option<u64>,
    end: Option<LoadEnd>,
    on_progress: P,
}

/// A finished batch.
struct Done {
    batch: Batch,
    /// One per row, in order.
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

    /// Runs to the end. Cancel-safe.
    async fn work(&mut self) {
        while self.step().await {}
        while self.complete_one().await {}
    }

    /// Takes one step; `false` when only batches in flight are left.
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
            // No more rows will come, or no batch is in flight: send this batch although it is not
            // full.
            self.full = self.batcher.take();
            if self.full.is_some() {
                return true;
            }
        }
        self.end.is_none() && self.wait_for_rows().await
    }

    /// Waits for rows or for a finished batch; `false` when there are no more of either.
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

    /// Waits for one batch in flight; `false` when there is none.
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
            // Storing panicked: the load must not look finished.
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
            Stored::Superseded => self.report.superseded += 1,
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

    /// Ends the load at a row that may not be stored. Keeps the first such end, unless
    /// a later one is of unknown outcome.
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
