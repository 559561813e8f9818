//! Counts accesses with one tracker per worker thread.
//!
//! Only the tracker's own thread uses it, so an access costs the sketch's own time, without a lock
//! or atomic operation. When the keeper asks, a task on the same thread cuts the interval.

use std::cell::RefCell;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use torc_record::{Digest, NamespaceId};
use torc_sketch::hot_keys::{HotKeysOptions, HotNamespaces, NamespaceIntervals};
use torc_telemetry::clock::unix_ms;

use super::Hot;
use super::heat::Parts;

/// The keeper's request to the trackers: to begin, if they have not, or to end an interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    pub(super) number: u64,
    pub(super) options: HotKeysOptions,
    pub(super) now_ms: u64,
}

/// A worker's answer to a cut.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) number: u64,
    /// `None` from a worker that had not begun.
    pub(super) interval: Option<NamespaceIntervals>,
    pub(super) parts: Parts,
    /// The worker has ended.
    pub(super) is_last: bool,
}

struct Tracker {
    keys: HotNamespaces,
    parts: Parts,
    redact: bool,
}

thread_local! {
    static TRACKER: RefCell<Option<Tracker>> = const { RefCell::new(None) };
}

/// Counts an access on this thread's tracker, if it has one.
#[inline]
pub fn count(namespace: NamespaceId, digest: &Digest, key: &[u8]) {
    TRACKER.with_borrow_mut(|tracker| {
        if let Some(Tracker {
            keys,
            parts,
            redact,
        }) = tracker
        {
            parts.count(digest);
            keys.record(namespace, digest, || (!*redact).then(|| key.into()));
        }
    });
}

impl Hot {
    /// Counts the accesses on this thread, a worker's, and serves the keeper until `cancel`.
    #[must_use = "nothing is counted unless it is awaited"]
    pub fn track(self: Arc<Self>, cancel: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut cuts = self.cuts.subscribe();
            while let Some(Ok(())) = cancel.run_until_cancelled(cuts.changed()).await {
                let Some(cut) = *cuts.borrow_and_update() else {
                    continue;
                };
                self.deliver(&cut, false);
            }
        })
    }

    /// Delivers this thread's counts since the last cut, and ends its tracker.
    pub fn hand_over_at_last(&self) {
        let last = *self.cuts.borrow();
        if let Some(cut) = last {
            let now_ms = unix_ms();
            self.deliver(&Cut { now_ms, ..cut }, true);
            TRACKER.set(None);
        }
    }

    fn deliver(&self, cut: &Cut, is_last: bool) {
        let (interval, parts) = TRACKER.with_borrow_mut(|tracker| {
            let counted = tracker.as_mut();
            let counted =
                counted.map(|it| (it.keys.snapshot(cut.now_ms), std::mem::take(&mut it.parts)));
            tracker.get_or_insert_with(|| Tracker {
                keys: HotNamespaces::new(cut.options, cut.now_ms),
                parts: Parts::default(),
                redact: self.settings.redact,
            });
            counted.unzip()
        });
        // Fails only if the keeper has ended because the node is stopping.
        let _ = self.deliveries.send(Delivery {
            number: cut.number,
            interval,
            parts: parts.unwrap_or_default(),
            is_last,
        });
    }
}
