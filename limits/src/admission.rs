//! Limits the operations that a node runs at a time.
//!
//! A node refuses further operations at once. A refusal costs a few microseconds; an operation that
//! waits in a queue until its caller gives up costs all of its work and is useless. So an
//! overloaded node keeps most of its useful throughput.
//!
//! A batch counts as its items. A batch larger than the limit is accepted when the node is
//! idle.
//!
//! Absent on purpose: requests that cost more than an operation ([`classes`](crate::classes)), and
//! messages between nodes, which operations need to finish.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use torc_proto::{Fault, Reason};

/// Minimum wait that a refused caller is advised to take.
const RETRY_AFTER: Duration = Duration::from_millis(20);
const IDLE_EVERY: Duration = Duration::from_millis(5);

/// Counts the operations under way.
#[derive(Debug)]
pub struct Admission {
    most: usize,
    under_way: AtomicUsize,
    begun: AtomicU64,
    is_closed: AtomicBool,
}

/// Held while operations are under way.
#[derive(Debug)]
pub struct Admitted<'a> {
    admission: &'a Admission,
    count: usize,
}

impl Admission {
    /// Admits at most `most` operations at a time.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self {
            most,
            under_way: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Admits `count` operations, or none of them.
    pub fn admit(&self, count: usize) -> Result<Admitted<'_>, Fault> {
        self.enter(count)?;
        Ok(Admitted {
            admission: self,
            count,
        })
    }

    /// As [`admit`](Self::admit), but the caller must [`leave`](Self::leave).
    pub fn enter(&self, count: usize) -> Result<(), Fault> {
        let before = self.under_way.fetch_add(count, Ordering::SeqCst);
        if self.is_closed.load(Ordering::SeqCst) {
            self.leave(count);
            return Err(stopping());
        }
        if before == 0 || before + count <= self.most {
            self.begun.fetch_add(count as u64, Ordering::Relaxed);
            return Ok(());
        }
        self.leave(count);
        let message = "the node is at its limit of concurrent operations, and nothing \
                       was changed: retry later, or spread the load over more nodes";
        Err(Fault::new(Reason::Overloaded, message).retry_after(RETRY_AFTER))
    }

    /// Releases `count` operations that have ended.
    pub fn leave(&self, count: usize) {
        self.under_way.fetch_sub(count, Ordering::SeqCst);
    }
}

impl Admission {
    /// Refuses all operations from now on.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// The number of operations that were admitted so far.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Waits until no operation is under way. After `close`, none will start again.
    pub async fn idle(&self) {
        while self.under_way.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(IDLE_EVERY).await;
        }
    }
}

/// The fault of a node that accepts no more operations.
#[must_use]
pub fn stopping() -> Fault {
    let message = "the node is stopping, and nothing was changed: use another node";
    Fault::new(Reason::NotServing, message)
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.admission.leave(self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_bound_is_refused_until_something_has_ended() {
        let admission = Admission::new(3);
        let held = admission.admit(2).unwrap();
        let last = admission.admit(1).unwrap();
        let refused = admission.admit(1).unwrap_err();
        assert_eq!(refused.reason, Reason::Overloaded);
        assert!(refused.is_retryable() && refused.retry_after.is_some());
        drop(last);
        assert!(
            admission.admit(2).is_err(),
            "a batch is taken on wholly or not"
        );
        assert!(
            admission.admit(1).is_ok(),
            "what was refused holds no place"
        );
        drop(held);
        assert!(admission.admit(3).is_ok());
    }

    #[tokio::test]
    async fn once_closed_nothing_is_taken_on_and_what_is_under_way_is_waited_for() {
        let admission = Admission::new(3);
        let held = admission.admit(1).unwrap();
        admission.close();
        let refused = admission.admit(1).unwrap_err();
        assert_eq!(refused.reason, Reason::NotServing);
        assert!(refused.is_retryable(), "another node may");
        let mut idle = std::pin::pin!(admission.idle());
        assert!(futures::poll!(&mut idle).is_pending());
        drop(held);
        idle.await;
    }

    #[test]
    fn a_batch_beyond_the_bound_is_taken_on_alone() {
        let admission = Admission::new(3);
        let alone = admission.admit(10).unwrap();
        assert!(admission.admit(1).is_err());
        drop(alone);
        let _one = admission.admit(1).unwrap();
        assert!(admission.admit(10).is_err());
    }
}
