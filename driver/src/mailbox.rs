//! Delivers outcomes of operations: many at a time, with one wake-up.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use torc_proto::Fault;
use torc_replication::Outcome;

use torc_limits::budget::Budget;

/// The result of an operation. The bytes of a value stay charged while it is referenced; a value
/// that does not fit the budget becomes a fault.
pub type Told = Result<Outcome, Fault>;

/// Collects outcomes for one task, each with the number that the task gave its operation.
#[derive(Debug)]
pub struct Mailbox {
    budget: Arc<Budget>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    told: Vec<(u32, Told)>,
    waker: Option<Waker>,
}

impl Mailbox {
    /// An empty one, whose values are charged to the budget.
    pub fn new(budget: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Self {
            budget: Arc::clone(budget),
            state: Mutex::default(),
        })
    }

    fn charged(&self, outcome: Outcome) -> Told {
        match outcome {
            Outcome::Found {
                value,
                version,
                expires_at_ms,
                fast,
            } => Ok(Outcome::Found {
                value: self.budget.hold(value)?,
                version,
                expires_at_ms,
                fast,
            }),
            // Callers get its version.
            Outcome::Mismatch { current } => Ok(Outcome::Mismatch {
                current: current.map(|(_, version)| (Bytes::new(), version)),
            }),
            other => Ok(other),
        }
    }

    pub(super) fn tell(&self, outcomes: impl IntoIterator<Item = (u32, Outcome)>) {
        let outcomes = outcomes.into_iter();
        let told = outcomes.map(|(number, outcome)| (number, self.charged(outcome)));
        let mut state = self.state.lock();
        state.told.extend(told);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for outcomes and moves them to `into`. Only one task may call this at a time.
    pub async fn take(&self, into: &mut Vec<(u32, Told)>) {
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
