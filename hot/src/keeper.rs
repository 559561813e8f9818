//! The task that cuts the trackers' intervals every few seconds and keeps them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, MissedTickBehavior, timeout_at};
use tokio_util::sync::CancellationToken;
use torc_record::DigestKey;
use torc_sketch::hot_keys::{HotKeysOptions, Interval, NamespaceIntervals, NodeWindow, hottest};
use torc_telemetry::clock::unix_ms;

use super::heat::Parts;
use super::trackers::{Cut, Delivery};
use super::{Hot, options_of};

/// Time that a cut waits for the workers; later deliveries belong to the next interval.
const WORKERS_WITHIN: Duration = Duration::from_secs(1);
/// The time that requests under way have to end; shorter than the node waits for this task.
const LAST_WITHIN: Duration = Duration::from_secs(4);
/// Below this number of accesses per interval, a key with most of them raises no alarm.
const MAJORITY_FROM: u64 = 1_000;

impl Hot {
    /// Cuts and keeps intervals from when the digest key of the cluster is known until `cancel`.
    #[must_use = "nothing is kept unless it is awaited"]
    pub fn keep(
        self: Arc<Self>,
        digest_key: BoxFuture<'static, DigestKey>,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Some(inbox) = self.inbox.lock().take() else {
                return;
            };
            if !self.settings.enabled {
                return;
            }
            if let Some(digest_key) = cancel.run_until_cancelled(digest_key).await {
                let keeper = Keeper {
                    options: options_of(&self.settings, &digest_key),
                    hot: self,
                    cancel,
                    inbox,
                    cuts: 0,
                };
                keeper.run().await;
            }
        })
    }
}

struct Keeper {
    hot: Arc<Hot>,
    cancel: CancellationToken,
    options: HotKeysOptions,
    inbox: UnboundedReceiver<Delivery>,
    cuts: u64,
}

impl Keeper {
    async fn run(mut self) {
        let (hot, cancel) = (Arc::clone(&self.hot), self.cancel.clone());
        let now_ms = unix_ms();
        // This first cut makes the workers begin to count; they deliver no interval for it.
        hot.cuts.send_replace(Some(Cut {
            number: 0,
            options: self.options,
            now_ms,
        }));
        self.collect(WORKERS_WITHIN, |delivery| delivery.number == 0)
            .await;
        hot.history.begin(now_ms);
        let load = hot
            .history
            .load(&hot.scratch, &self.options, hot.settings.redact);
        load.await;
        let mut ticks = tokio::time::interval_at(
            Instant::now() + hot.settings.interval,
            hot.settings.interval,
        );
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while cancel.run_until_cancelled(ticks.tick()).await.is_some() {
            let interval = self.cut().await;
            self.store(interval).await;
        }
        let last = self.last().await;
        self.store(last).await;
    }

    /// Ends the interval on all workers.
    async fn cut(&mut self) -> Option<NamespaceIntervals> {
        self.cuts += 1;
        self.hot.cuts.send_replace(Some(Cut {
            number: self.cuts,
            options: self.options,
            now_ms: unix_ms(),
        }));
        let number = self.cuts;
        self.collect(WORKERS_WITHIN, |delivery| delivery.number == number)
            .await
    }

    async fn last(&mut self) -> Option<NamespaceIntervals> {
        self.collect(LAST_WITHIN, |delivery| delivery.is_last).await
    }

    /// Adds up deliveries until every worker has sent one for which `is_meant` is true, or `within`
    /// has passed.
    async fn collect(
        &mut self,
        within: Duration,
        is_meant: impl Fn(&Delivery) -> bool,
    ) -> Option<NamespaceIntervals> {
        let deadline = Instant::now() + within;
        let mut waiting = self.hot.workers;
        let mut sum: Option<NamespaceIntervals> = None;
        let mut parts = Parts::default();
        while waiting > 0 {
            let Ok(Some(delivery)) = timeout_at(deadline, self.inbox.recv()).await else {
                break;
            };
            waiting -= usize::from(is_meant(&delivery));
            parts.add(&delivery.parts);
            match (&mut sum, delivery.interval) {
                (Some(sum), Some(interval)) => {
                    if let Err(error) = sum.merge(interval) {
                        tracing::error!(%error, "a tracker's counts are incompatible: report this");
                    }
                }
                (None, interval) => sum = interval,
                (Some(_), None) => {}
            }
        }
        let hot = &self.hot;
        hot.heat.add(&parts, hot.settings.interval);
        sum
    }

    async fn store(&self, interval: Option<NamespaceIntervals>) {
        let hot = &self.hot;
        let all = interval.clone().and_then(added_up);
        hot.hints.refresh(all.as_ref());
        let (Some(interval), Some(all)) = (interval, all) else {
            return;
        };
        hot.stats
            .accesses
            .fetch_add(interval.total(), Ordering::Relaxed);
        let has_majority = all.total() >= MAJORITY_FROM && has_majority(all);
        hot.stats
            .majority
            .store(u64::from(has_majority), Ordering::Relaxed);
        // Time without accesses is a gap in the history.
        if interval.total() > 0 {
            let bytes = hot.history.add(&hot.scratch, &interval).await;
            hot.stats.interval_bytes.store(bytes, Ordering::Relaxed);
        }
        hot.history
            .thin(&hot.scratch, &self.options, unix_ms())
            .await;
    }
}

/// The sum over all namespaces; `None` if there were no accesses.
fn added_up(intervals: NamespaceIntervals) -> Option<Interval> {
    intervals.into_streams().reduce(|mut sum, interval| {
        // Cannot fail: one tracker's options apply to all.
        let _ = sum.merge(interval);
        sum
    })
}

fn has_majority(interval: Interval) -> bool {
    let window = NodeWindow { node: 0, interval };
    let answer = hottest(&[window]).ok().flatten();
    answer.is_some_and(|answer| answer.majority.is_some_and(|majority| majority.is_certain))
}
