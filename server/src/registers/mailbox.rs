//! Where outcomes of operations are told: many at a time, with one wake-up.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use torc_replication::Outcome;

/// Takes outcomes for one task, each with the number that its operation was given there.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    told: Vec<(u32, Outcome)>,
    waker: Option<Waker>,
}

impl Mailbox {
    pub(super) fn tell(&self, outcomes: impl IntoIterator<Item = (u32, Outcome)>) {
        let mut state = self.state.lock();
        state.told.extend(outcomes);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits until something was told, and moves it to `into`. One task at a time.
    pub(crate) async fn take(&self, into: &mut Vec<(u32, Outcome)>) {
        poll_fn(|context| {
            let mut state = self.state.lock();
            if state.told.is_empty() {
                let known = state.waker.as_ref();
                if !known.is_some_and(|known| known.will_wake(context.waker())) {
                    state.waker = Some(context.waker().clone());
                }
                return Poll::Pending;
            }
            into.append(&mut state.told);
            Poll::Ready(())
        })
        .await;
    }
}
