//! Retries rows that were not stored.
//!
//! Invariants:
//! * A row in doubt is retried only after its attempt's time limit, when nodes have dropped it.
//!   So that attempt cannot take effect after the next one, nor after a later row of the same key.
//! * A row stays in doubt until it is stored: a failed attempt says nothing about an earlier one.
//! * There are no retries before a node has accepted a row, after the load has ended, or once
//!   `retry_for` has passed.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Stored;
use crate::failure::Failure;
use crate::format::Row;

/// How to retry rows that were not stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryOptions {
    /// How long to retry, from the first failure of a batch; zero: never.
    pub(crate) retry_for: Duration,
    /// Time limit of one attempt, on nodes and on our side.
    pub(crate) attempt: Duration,
    /// Pause before a retry. Longer than nodes' clocks may differ (500 ms), so nodes also order the
    /// new attempt after the old one.
    pub(crate) pause: Duration,
    /// Called with the first failure that is retried, and again with the first one after a stored
    /// batch.
    pub(crate) on_wait: fn(&Failure),
}

/// State that the batches of a load share.
#[derive(Debug)]
pub(super) struct Retries {
    options: RetryOptions,
    /// A row was stored or may be: the cluster exists and accepts our rows.
    reached: AtomicBool,
    /// `on_wait` was called, and no whole batch has been stored since.
    told: AtomicBool,
    ended: watch::Sender<bool>,
}

impl Retries {
    pub(super) fn new(options: RetryOptions) -> Self {
        Self {
            options,
            reached: AtomicBool::new(false),
            told: AtomicBool::new(false),
            ended: watch::Sender::new(false),
        }
    }

    /// Stops all retries.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Stores rows, with retries. Returns one result per row, in order, and the number of retried
    /// rows.
    pub(super) async fn store<S, F>(&self, store: &S, rows: Vec<Row>) -> (Vec<Stored>, u64)
    where
        S: Fn(Vec<Row>) -> F,
        F: Future<Output = Vec<Stored>>,
    {
        let mut sent_at = Instant::now();
        let mut results = store(rows.clone()).await;
        // `None`: later than the clock can tell.
        let until = Instant::now().checked_add(self.options.retry_for);
        let mut resume_at = self.resume_at(&results, sent_at);
        let mut retried = 0;
        while let Some(at) = resume_at.filter(|at| until.is_none_or(|until| *at < until)) {
            self.tell(&results);
            if !self.wait(at).await {
                break;
            }
            let left = (0..results.len()).filter(|index| results[*index].is_open());
            let left: Vec<usize> = left.collect();
            retried += left.len() as u64;
            sent_at = Instant::now();
            let again = store(left.iter().map(|index| rows[*index].clone()).collect()).await;
            resume_at = self.resume_at(&again, sent_at);
            for (index, stored) in left.into_iter().zip(again) {
                results[index].follow(stored);
            }
        }
        (results, retried)
    }

    /// When to retry the open rows; `None` if there are none, or if a row was refused, which ends
    /// the load.
    fn resume_at(&self, results: &[Stored], sent_at: Instant) -> Option<Instant> {
        let is = |of: fn(&Stored) -> bool| results.iter().any(of);
        let (is_open, in_doubt) = (
            is(Stored::is_open),
            is(|it| matches!(it, Stored::Unknown(_))),
        );
        if in_doubt || is(|it| matches!(it, Stored::Yes | Stored::Expired | Stored::Superseded)) {
            self.reached.store(true, Ordering::Relaxed);
        }
        if !is_open {
            self.told.store(false, Ordering::Relaxed);
        }
        let is_refused = is(|it| matches!(it, Stored::No(_)));
        if !is_open || is_refused || !self.reached.load(Ordering::Relaxed) {
            return None;
        }
        let soon = Instant::now() + self.options.pause;
        let dropped_at = sent_at + self.options.attempt + self.options.pause;
        Some(if in_doubt { soon.max(dropped_at) } else { soon })
    }

    fn tell(&self, results: &[Stored]) {
        let failure = results.iter().find_map(Stored::failure);
        if let Some(failure) = failure
            && !self.told.swap(true, Ordering::Relaxed)
        {
            (self.options.on_wait)(failure);
        }
    }

    /// Waits until `until`; `false` if the load ends earlier.
    async fn wait(&self, until: Instant) -> bool {
        let mut ended = self.ended.subscribe();
        tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => false,
            () = sleep_until(until) => true,
        }
    }
}

impl Stored {
    /// Whether a retry may help.
    const fn is_open(&self) -> bool {
        matches!(self, Self::NotYet(_) | Self::Unknown(_))
    }

    const fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Yes | Self::Expired | Self::Superseded => None,
            Self::No(failure) | Self::NotYet(failure) | Self::Unknown(failure) => Some(failure),
        }
    }

    /// Combines this outcome with that of the next attempt.
    fn follow(&mut self, next: Self) {
        let is_in_doubt = matches!(self, Self::Unknown(_));
        if !(is_in_doubt && matches!(next, Self::No(_) | Self::NotYet(_))) {
            *self = next;
        }
    }
}
