//! Takes permits of the node's operations for a session, many at a time.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;

/// A session's place in the queue for permits.
pub(super) struct Places {
    permits: PollSemaphore,
    /// Permits that it waits for; 0 if it does not wait. Another number would queue again behind all others.
    asked: u32,
}

impl Places {
    pub(super) fn new(permits: Arc<Semaphore>) -> Self {
        Self {
            permits: PollSemaphore::new(permits),
            asked: 0,
        }
    }

    /// Permits for the first of the operations that wait. If none waits any more, others get the permits.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        waiting: u32,
    ) -> Poll<OwnedSemaphorePermit> {
        if waiting == 0 {
            if self.asked > 0 {
                *self = Self::new(self.permits.clone_inner());
            }
            return Poll::Pending;
        }
        if self.asked == 0 {
            self.asked = waiting;
        }
        // The node never closes the semaphore.
        let taken = ready!(self.permits.poll_acquire_many(context, self.asked));
        self.asked = 0;
        taken.map_or(Poll::Pending, Poll::Ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelled_operations_leave_their_permits_to_others() {
        let permits = Arc::new(Semaphore::new(4));
        let mut busy = Places::new(Arc::clone(&permits));
        let mut waits = Places::new(Arc::clone(&permits));
        let mut context = Context::from_waker(std::task::Waker::noop());
        let Poll::Ready(taken) = busy.poll(&mut context, 3) else {
            panic!("there are enough");
        };
        assert!(waits.poll(&mut context, 2).is_pending());
        assert!(waits.poll(&mut context, 1).is_pending(), "keeps its place");
        assert!(waits.poll(&mut context, 0).is_pending(), "none waits");
        drop(taken);
        assert_eq!(permits.available_permits(), 4);
        let Poll::Ready(taken) = waits.poll(&mut context, 3) else {
            panic!("there are enough");
        };
        assert_eq!(taken.num_permits(), 3);
    }
}
