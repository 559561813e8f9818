//! Disk reads that replicas have requested, and the messages that wait for them. Reads each item
//! once, and first the items that a caller waits for.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;
use torc_replication::Reading;
use torc_ring::Partition;

/// Capacity of each queue; a replica whose request does not fit asks again.
const MOST: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Readings {
    state: Mutex<State>,
    more: Notify,
}

#[derive(Debug, Default)]
struct State {
    urgent: VecDeque<(Partition, Reading)>,
    others: VecDeque<(Partition, Reading)>,
}

impl Readings {
    /// Adds a reading, unless it is queued already or the queue is full.
    pub(super) fn push(&self, partition: Partition, reading: Reading) {
        let mut state = self.state.lock();
        let is_urgent = reading.is_for_a_caller();
        let queue = if is_urgent {
            &mut state.urgent
        } else {
            &mut state.others
        };
        let wanted = (partition, reading);
        // Requests of callers are never equal to each other; copies and comparisons repeat theirs.
        if queue.len() < MOST && (is_urgent || !queue.contains(&wanted)) {
            queue.push_back(wanted);
            drop(state);
            self.more.notify_one();
        }
    }

    /// Waits for the next reading. Only one task may call this at a time.
    pub(super) async fn pop(&self) -> (Partition, Reading) {
        loop {
            let next = {
                let mut state = self.state.lock();
                let urgent = state.urgent.pop_front();
                urgent.or_else(|| state.others.pop_front())
            };
            match next {
                Some(next) => return next,
                None => self.more.notified().await,
            }
        }
    }
}
