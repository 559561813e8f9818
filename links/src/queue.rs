//! The queue of messages to a peer: first in, first out, bounded by count and bytes.

#![expect(
    clippy::cast_possible_wrap,
    reason = "a queue has fewer than 2^63 messages"
)]

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use torc_proto::link::MAX_BATCH_ENVELOPES;
use torc_replication::Message;

use crate::metrics::{DropReason, LinkMetrics};
use crate::{GONE, LinkOptions, Parcel};

/// Approximate size limit of a batch, bytes.
pub(crate) const BATCH_BYTES: usize = 1 << 20;

struct Waiting {
    parcel: Parcel,
    bytes: usize,
    /// Do not send before this time: a test's delay.
    due: Option<Instant>,
}

/// Questions, with nothing received since the first.
struct Unanswered {
    first: Instant,
    last: Instant,
}

impl Unanswered {
    /// Whether the peer is asked no more: that it was silent then says nothing now, and only another question
    /// shows whether it still is.
    fn is_outdated(&self) -> bool {
        self.last.elapsed() >= GONE
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// Since when connecting has failed: keep no messages.
    unreachable: Option<Instant>,
    unanswered: Option<Unanswered>,
    leaving: Leaving,
}

/// Whether a peer has announced that it stops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Leaving {
    #[default]
    No,
    Announced,
    /// The coordinators know.
    Noticed,
}

/// One peer's queue: any thread pushes, the peer's stream pops.
pub(crate) struct Queue {
    state: Mutex<State>,
    filled: Notify,
    /// For [`Leaving::Noticed`].
    noticed: Notify,
    most_envelopes: usize,
    most_bytes: usize,
}

impl Queue {
    pub(crate) fn new(options: &LinkOptions) -> Self {
        Self {
            state: Mutex::default(),
            filled: Notify::new(),
            noticed: Notify::new(),
            most_envelopes: options.queue_envelopes,
            most_bytes: options.queue_bytes,
        }
    }

    /// Queues messages; drops those that do not fit.
    pub(crate) fn push(
        &self,
        parcels: impl ExactSizeIterator<Item = Parcel>,
        delay: Option<Duration>,
        metrics: &LinkMetrics,
    ) {
        let due = delay.map(|delay| Instant::now() + delay);
        let count = parcels.len();
        let mut state = self.state.lock();
        if state.unreachable.is_some() {
            drop(state);
            return metrics.dropped(DropReason::Unreachable, count);
        }
        let (was_empty, mut kept) = (state.waiting.is_empty(), 0);
        for parcel in parcels {
            let message = &parcel.envelope.message;
            let bytes = message.approximate_bytes();
            let is_first = state.waiting.is_empty();
            let full = state.waiting.len() >= self.most_envelopes
                || (!is_first && state.bytes + bytes > self.most_bytes);
            if full {
                continue;
            }
            if wants_answer(message) {
                let last = Instant::now();
                let before = state.unanswered.take().filter(|it| !it.is_outdated());
                let first = before.map_or(last, |it| it.first);
                state.unanswered = Some(Unanswered { first, last });
            }
            kept += 1;
            state.bytes += bytes;
            state.waiting.push_back(Waiting { parcel, bytes, due });
        }
        // Within the lock: otherwise messages could be subtracted before they were added.
        metrics.queued.inc_by(kept as i64);
        drop(state);
        if was_empty && kept > 0 {
            self.filled.notify_one();
        }
        if kept < count {
            metrics.dropped(DropReason::Full, count - kept);
        }
    }

    pub(crate) fn is_unreachable(&self) -> bool {
        self.state.lock().unreachable.is_some()
    }

    /// Whether for this time connecting has failed, or an answer is overdue and nothing else has come.
    pub(crate) fn is_out_for(&self, time: Duration) -> bool {
        let since = self.state.lock().unreachable;
        since.is_some_and(|since| since.elapsed() >= time) || self.is_silent_for(time)
    }

    /// The peer stops. Waits until the coordinators know, so that they queue nothing more whose answer
    /// they need.
    pub(crate) async fn leave(&self) {
        self.state.lock().leaving = Leaving::Announced;
        while self.state.lock().leaving == Leaving::Announced {
            self.noticed.notified().await;
        }
    }

    /// The coordinators know that the peer stops.
    pub(crate) fn notice(&self) {
        let mut state = self.state.lock();
        if state.leaving == Leaving::Announced {
            state.leaving = Leaving::Noticed;
            self.noticed.notify_one();
        }
    }

    /// Whether the peer has announced that it stops, and is not back yet.
    pub(crate) fn is_leaving(&self) -> bool {
        self.state.lock().leaving != Leaving::No
    }

    /// Records that something came from the peer.
    pub(crate) fn heard(&self) {
        self.state.lock().unanswered = None;
    }

    /// Whether the peer's answer is overdue by this time, with nothing received meanwhile.
    pub(crate) fn is_silent_for(&self, time: Duration) -> bool {
        let state = self.state.lock();
        let unanswered = state.unanswered.as_ref().filter(|it| !it.is_outdated());
        unanswered.is_some_and(|it| it.first.elapsed() >= time)
    }

    /// Waits for messages and takes at most a batch. One caller at a time.
    pub(crate) async fn take(&self, metrics: &LinkMetrics) -> Vec<Parcel> {
        loop {
            match self.take_now(metrics) {
                Taken::Batch(batch) => return batch,
                Taken::NotBefore(due) => tokio::time::sleep_until(due).await,
                Taken::Nothing => self.filled.notified().await,
            }
        }
    }

    fn take_now(&self, metrics: &LinkMetrics) -> Taken {
        let now = Instant::now();
        let mut state = self.state.lock();
        if let Some(due) = state.waiting.front().and_then(|first| first.due)
            && due > now
        {
            return Taken::NotBefore(due);
        }
        let mut batch = Vec::with_capacity(state.waiting.len().min(MAX_BATCH_ENVELOPES));
        let mut bytes = 0;
        while batch.len() < MAX_BATCH_ENVELOPES && bytes < BATCH_BYTES {
            let Some(next) = state.waiting.pop_front() else {
                break;
            };
            if next.due.is_some_and(|due| due > now) {
                state.waiting.push_front(next);
                break;
            }
            bytes += next.bytes;
            batch.push(next.parcel);
        }
        state.bytes -= bytes;
        metrics.queued.dec_by(batch.len() as i64);
        if batch.is_empty() {
            Taken::Nothing
        } else {
            Taken::Batch(batch)
        }
    }

    /// Whether no message waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().waiting.is_empty()
    }

    /// Takes what is left, at most a batch, without waiting for more; `None` if nothing is.
    pub(crate) async fn take_rest(&self, metrics: &LinkMetrics) -> Option<Vec<Parcel>> {
        loop {
            match self.take_now(metrics) {
                Taken::Batch(batch) => return Some(batch),
                Taken::NotBefore(due) => tokio::time::sleep_until(due).await,
                Taken::Nothing => return None,
            }
        }
    }

    /// Marks the peer as reachable: messages are kept.
    pub(crate) fn reachable(&self) {
        let mut state = self.state.lock();
        state.unreachable = None;
        state.leaving = Leaving::No;
    }

    /// Marks the peer as unreachable: drops waiting and further messages.
    pub(crate) fn unreachable(&self, metrics: &LinkMetrics) {
        let mut state = self.state.lock();
        let before = std::mem::take(&mut *state);
        // A peer that was silent before has been out of reach since then.
        let silent = before.unanswered.filter(|it| !it.is_outdated());
        let since = before.unreachable.or(silent.map(|it| it.first));
        state.unreachable = since.or_else(|| Some(Instant::now()));
        state.leaving = before.leaving;
        let dropped = before.waiting;
        metrics.queued.dec_by(dropped.len() as i64);
        drop(state);
        metrics.dropped(DropReason::Unreachable, dropped.len());
    }
}

enum Taken {
    Batch(Vec<Parcel>),
    NotBefore(Instant),
    Nothing,
}

/// Whether a healthy replica always answers it soon.
const fn wants_answer(message: &Message) -> bool {
    match message {
        Message::Read { .. }
        | Message::Confirm { .. }
        | Message::Prepare { .. }
        | Message::Accept { .. }
        | Message::Store { .. }
        | Message::Pull { .. } => true,
        Message::Holding { .. }
        | Message::Promised { .. }
        | Message::Accepted { .. }
        | Message::Nack { .. }
        | Message::Abstain { .. }
        | Message::Confirmed { .. }
        | Message::Learn { .. }
        | Message::Repair { .. }
        | Message::Page { .. }
        | Message::SamePage { .. }
        | Message::GcFloor { .. }
        | Message::GcSum { .. }
        | Message::GcPurge { .. }
        | Message::Compare { .. }
        | Message::List { .. }
        | Message::Epoch { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;
    use torc_ring::Partitions;

    use super::*;

    fn silent_for(time: Duration) -> Option<Unanswered> {
        let last = Instant::now();
        let first = last.checked_sub(time)?;
        Some(Unanswered { first, last })
    }

    /// Nothing was sent to it any more, because it was out of reach, and so it could not answer.
    #[test]
    fn a_silent_peer_that_is_asked_no_more_is_out_of_reach_only_for_a_while() {
        let queue = Queue::new(&LinkOptions::new(Partitions::DEFAULT));
        let first = silent_for(2 * GONE);
        assert!(first.is_some(), "the machine runs for long enough");
        queue.state.lock().unanswered = first;
        assert!(queue.is_out_for(GONE), "it is still asked");
        let mut first = silent_for(2 * GONE);
        if let Some(it) = &mut first {
            it.last = it.first + GONE;
        }
        queue.state.lock().unanswered = first;
        assert!(!queue.is_out_for(Duration::ZERO));
    }

    #[test]
    fn a_silent_peer_to_which_connecting_fails_as_well_stays_out_of_reach() {
        const LONG: Duration = Duration::from_secs(1);
        let queue = Queue::new(&LinkOptions::new(Partitions::DEFAULT));
        queue.state.lock().unanswered = silent_for(LONG);
        assert!(queue.is_out_for(LONG));
        queue.unreachable(&LinkMetrics::register(&mut Registry::default()));
        assert!(queue.is_out_for(LONG), "it was silent before");
        queue.reachable();
        assert!(!queue.is_out_for(Duration::ZERO));
    }
}
