//! Messages that wait until their keys have been read from the disk: first in, first out, bounded by
//! count and bytes. A message that does not fit is dropped, and its sender asks again.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;
use torc_replication::Envelope;
use torc_ring::NodeId;

use super::WINDOW;

/// Limit on the messages: the windows of all coordinators of a small cluster.
const MOST: usize = 4 * WINDOW;
/// Limit on their bytes, including those whose keys are being read. Coordinators answer their
/// callers after a majority, so a slow replica receives messages at the pace of the others.
const MOST_BYTES: usize = 32 << 20;

/// A message whose keys are to be read.
pub(super) struct Wanted {
    pub(super) from: NodeId,
    pub(super) envelope: Envelope,
    /// What [`Fetches::done`] must be told.
    pub(super) bytes: usize,
}

#[derive(Default)]
pub(super) struct Fetches {
    state: Mutex<State>,
    more: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Wanted>,
    /// Bytes of the messages that wait and of those taken but not done.
    bytes: usize,
}

impl Fetches {
    /// Adds a message. Returns whether there was room.
    pub(super) fn push(&self, from: NodeId, envelope: Envelope) -> bool {
        let bytes = envelope.message.approximate_bytes();
        let mut state = self.state.lock();
        if state.waiting.len() >= MOST || state.bytes + bytes > MOST_BYTES {
            return false;
        }
        state.bytes += bytes;
        let envelope = Envelope {
            // It may be a small part of the batch in which it came.
            message: envelope.message.detached(),
            ..envelope
        };
        state.waiting.push_back(Wanted {
            from,
            envelope,
            bytes,
        });
        drop(state);
        self.more.notify_one();
        true
    }

    /// Waits for the next message. Only one task may call this at a time.
    pub(super) async fn pop(&self) -> Wanted {
        loop {
            let next = self.state.lock().waiting.pop_front();
            match next {
                Some(next) => return next,
                None => self.more.notified().await,
            }
        }
    }

    /// Whether every message has been handled.
    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().bytes == 0
    }

    /// A message of this many bytes has been handled.
    pub(super) fn done(&self, bytes: usize) {
        self.state.lock().bytes -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{HERE, record};
    use torc_record::Epoch;
    use torc_replication::{Message, Tag};

    fn store(value_bytes: usize) -> Envelope {
        let message = Message::Store {
            tag: Tag::default(),
            record: record(1, vec![7; value_bytes]),
        };
        Envelope {
            partition: HERE,
            epoch: Epoch(1),
            message,
        }
    }

    #[tokio::test]
    async fn long_messages_are_refused_until_earlier_ones_are_done() {
        let fetches = Fetches::default();
        let push = |value_bytes| fetches.push(NodeId(2), store(value_bytes));
        let fitting = (0..200).take_while(|_| push(1 << 20)).count();
        assert_eq!(
            fitting, 31,
            "31 of 1 MiB and their overhead are below 32 MiB"
        );
        assert!(push(1 << 10), "a short one still fits");
        let first = fetches.pop().await;
        assert!(!push(1 << 20), "the first is still in memory");
        fetches.done(first.bytes);
        assert!(push(1 << 20));
    }

    #[test]
    fn short_messages_are_refused_above_a_count() {
        let fetches = Fetches::default();
        let fitting = (0..2 * MOST).filter(|_| fetches.push(NodeId(2), store(1)));
        assert_eq!(fitting.count(), MOST);
    }
}
