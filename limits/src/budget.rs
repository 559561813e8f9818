//! Limits the memory for requests and answers of clients.
//!
//! One counter serves the whole node. It charges everything held in memory for clients: request
//! bytes as they arrive, values read, pages of scans, sketches, and answers until the connection
//! has taken them. So memory stays below the sum of an idle node's memory, this limit, and the
//! store's own limits.
//!
//! * A new request, or a large one that is still arriving, is refused: it has changed nothing.
//! * A value just read is refused: nothing was changed, and another read is cheap.
//! * A session's next message and a scan's next page wait: they hold no memory meanwhile.
//! * A get of a long value waits for permits ([`LongValues`]), so values that are not charged yet are
//!   bounded too. If there is no room for the value, it is not read.
//! * An encoded answer is always charged. It already exists, and a write must be answered.
//!
//! The last quarter is reserved for small requests, so large ones cannot crowd them out, and for
//! answers encoded while other values are read: one of 8 MiB per thread.
//!
//! Not charged: messages between nodes, because links have their own limits (`links`) and clients
//! must not be able to stop replication; values of at most 4 KiB, which the limit on operations
//! bounds (`admission`); and the memory of decoding beside the bytes (`torc_proto::codec`), which
//! is free again before the thread takes another request.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use torc_proto::{Fault, Reason};
use torc_ring::NodeId;

/// Requests up to this size may use the last quarter.
pub const SMALL: usize = 64 << 10;
/// Charging a value of up to this size would cost more than holding it.
pub const TINY: usize = 4 << 10;
/// Values that gets are reading, or that other nodes are reading for this one, bytes.
const READING: usize = 4 << 20;
/// A long value takes permits of this many bytes.
const PERMIT_BYTES: usize = 64 << 10;
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Interval at which waiters look for room.
pub const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Counts the bytes held for clients.
#[derive(Debug)]
pub struct Budget {
    bound: usize,
    held: AtomicUsize,
    refused: AtomicU64,
    /// The longest value that was charged.
    longest: AtomicUsize,
}

/// Charged bytes, released on drop.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    bytes: AtomicUsize,
}

impl Budget {
    /// A budget of this many bytes.
    #[must_use]
    pub fn new(bound: usize) -> Arc<Self> {
        Arc::new(Self {
            bound,
            held: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            longest: AtomicUsize::new(0),
        })
    }

    /// The limit, bytes.
    pub const fn bound(&self) -> usize {
        self.bound
    }

    /// Bytes that are charged.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Number of refusals.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The limit that applies to a charge of this size.
    const fn bound_of(&self, bytes: usize) -> usize {
        if bytes <= SMALL {
            self.bound
        } else {
            self.bound - self.bound / 4
        }
    }

    /// Whether a request that already has this many bytes may send more.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.held() < self.bound_of(bytes)
    }

    /// Charges all bytes or none.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Result<Charge, Fault> {
        self.try_take(bytes, bytes).ok_or_else(|| self.refuse())
    }

    /// Takes bytes for a request of `whole` bytes.
    fn try_take(self: &Arc<Self>, bytes: usize, whole: usize) -> Option<Charge> {
        let charge = self.force(bytes);
        (self.held() <= self.bound_of(whole)).then_some(charge)
    }

    /// Charges bytes that are held already, without a limit.
    pub fn force(self: &Arc<Self>, bytes: usize) -> Charge {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Charge {
            budget: Arc::clone(self),
            bytes: AtomicUsize::new(bytes),
        }
    }

    /// Waits for room until `until`.
    pub async fn wait(self: &Arc<Self>, bytes: usize, until: Instant) -> Result<Charge, Fault> {
        self.wait_for_part(bytes, bytes, until).await
    }

    /// Waits for room for the next bytes of a request of `whole` bytes: a large request stays out
    /// of the last quarter also if its parts are small.
    pub async fn wait_for_part(
        self: &Arc<Self>,
        bytes: usize,
        whole: usize,
        until: Instant,
    ) -> Result<Charge, Fault> {
        loop {
            if let Some(charge) = self.try_take(bytes, whole) {
                return Ok(charge);
            }
            if Instant::now() >= until {
                return Err(self.refuse());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The longest value that was charged, at least 4 KiB.
    pub fn longest(&self) -> usize {
        self.longest.load(Ordering::Relaxed)
    }

    /// Returns the value, charged while it is referenced. Not for values that the store keeps in
    /// memory.
    pub fn hold(self: &Arc<Self>, value: Bytes) -> Result<Bytes, Fault> {
        if value.len() <= TINY {
            return Ok(value);
        }
        self.longest.fetch_max(value.len(), Ordering::Relaxed);
        let charge = self.take(value.len())?;
        Ok(charge.hold(value))
    }

    /// Counts a refusal, and says what to do.
    pub fn refuse(&self) -> Fault {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let message = "the node is at its memory limit for requests and answers \
                       (--in-flight-mib), and nothing was changed: retry later, ask for less at \
                       a time, or spread the load over more nodes";
        Fault::new(Reason::Overloaded, message).retry_after(RETRY_AFTER)
    }
}

impl Charge {
    /// The number of charged bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Changes the charge without checking the limit. Callers must not call this concurrently.
    pub fn set(&self, bytes: usize) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        if bytes >= before {
            self.budget
                .held
                .fetch_add(bytes - before, Ordering::Relaxed);
        } else {
            self.budget
                .held
                .fetch_sub(before - bytes, Ordering::Relaxed);
        }
    }

    /// Returns the bytes, which keep the charge while they are referenced.
    pub fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Charged {
            bytes,
            _charge: self,
        })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Permits to read long values, which are charged to the budget only after they have been read.
#[derive(Debug)]
pub struct LongValues(Semaphore);

impl Default for LongValues {
    fn default() -> Self {
        Self(Semaphore::new(READING / PERMIT_BYTES))
    }
}

impl LongValues {
    /// The most permits that one caller can take.
    #[expect(clippy::cast_possible_truncation, reason = "64")]
    pub const ALL: u32 = (READING / PERMIT_BYTES) as u32;

    /// Permits for a value of this length; 0 for short values, which the limit on operations
    /// bounds.
    #[must_use]
    pub fn permits_of(bytes: usize) -> u32 {
        if bytes <= PERMIT_BYTES {
            0
        } else {
            u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX)
        }
    }

    /// Waits for permits, at most [`ALL`](Self::ALL); `None` if there are too few by `until`.
    pub async fn take(&self, permits: u32, until: Instant) -> Option<SemaphorePermit<'_>> {
        let waiting = self.0.acquire_many(permits.min(Self::ALL));
        let taken = tokio::time::timeout_at(until.into(), waiting).await;
        taken.ok()?.ok()
    }
}

/// Permits for long values that other nodes read for this one. Those of one node take half of them
/// at most: a node that does not answer keeps them until the deadline, and must not delay the rest.
#[derive(Debug, Default)]
pub struct Forwards {
    all: LongValues,
    by_node: Mutex<HashMap<NodeId, Arc<Semaphore>>>,
}

impl Forwards {
    const OF_ONE: u32 = LongValues::ALL / 2;

    /// Waits for permits, at most half of all; `None` if there are none to wait for, or too few by
    /// `until`.
    pub async fn take(
        &self,
        node: NodeId,
        permits: u32,
        until: Instant,
    ) -> Option<(OwnedSemaphorePermit, SemaphorePermit<'_>)> {
        if permits == 0 {
            return None;
        }
        let permits = permits.min(Self::OF_ONE);
        let of_one = || Arc::new(Semaphore::new(Self::OF_ONE as usize));
        let of_node = Arc::clone(self.by_node.lock().entry(node).or_insert_with(of_one));
        let waiting = of_node.acquire_many_owned(permits);
        let of_node = tokio::time::timeout_at(until.into(), waiting).await;
        let of_node = of_node.ok()?.ok()?;
        Some((of_node, self.all.take(permits, until).await?))
    }
}

struct Charged {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_large_leaves_the_last_quarter_to_what_is_small() {
        let budget = Budget::new(8 << 20);
        let large = budget.take(6 << 20).unwrap();
        let refused = budget.take(SMALL + 1).unwrap_err();
        assert_eq!(refused.reason, Reason::Overloaded);
        assert!(!refused.maybe_applied && refused.retry_after.is_some());
        let small = budget.take(SMALL).unwrap();
        assert_eq!(
            budget.held(),
            (6 << 20) + SMALL,
            "what was refused is not held"
        );
        drop((large, small));
        assert_eq!((budget.held(), budget.refused()), (0, 1));
    }

    #[tokio::test]
    async fn the_parts_of_a_large_request_leave_the_last_quarter_too() {
        let budget = Budget::new(8 << 20);
        let now = Instant::now();
        let part = |whole| budget.wait_for_part(SMALL, whole, now);
        let mut parts = Vec::new();
        while let Ok(charge) = part(16 << 20).await {
            parts.push(charge);
        }
        assert_eq!(budget.held(), 6 << 20);
        assert!(part(SMALL).await.is_ok(), "a small request has room");
    }

    #[test]
    fn a_value_is_charged_until_its_last_holder_is_gone() {
        let budget = Budget::new(1 << 20);
        let value = budget.hold(vec![7; 100_000].into()).unwrap();
        let other = value.slice(1..2);
        drop(value);
        assert_eq!(budget.held(), 100_000);
        drop(other);
        assert_eq!(budget.held(), 0);
        let tiny = budget.hold(vec![7; TINY].into()).unwrap();
        assert_eq!((tiny.len(), budget.held()), (TINY, 0));
    }

    #[tokio::test]
    async fn long_values_are_read_a_few_at_a_time_and_short_ones_freely() {
        let long = LongValues::default();
        assert_eq!(LongValues::permits_of(PERMIT_BYTES), 0);
        assert_eq!(LongValues::permits_of(PERMIT_BYTES + 1), 2);
        let soon = || Instant::now() + Duration::from_millis(20);
        let all = long.take(u32::MAX, soon()).await.unwrap();
        assert!(long.take(0, soon()).await.is_some(), "short");
        assert!(long.take(1, soon()).await.is_none(), "no permit in time");
        drop(all);
        assert!(long.take(1, soon()).await.is_some());
    }

    #[tokio::test]
    async fn a_node_that_keeps_its_permits_leaves_half_of_all_to_others() {
        let forwards = Forwards::default();
        let soon = || Instant::now() + Duration::from_millis(20);
        let kept = forwards.take(NodeId(1), u32::MAX, soon()).await.unwrap();
        assert!(forwards.take(NodeId(1), 1, soon()).await.is_none());
        let other = forwards.take(NodeId(2), u32::MAX, soon()).await;
        assert!(other.is_some());
        assert!(
            forwards.take(NodeId(3), 1, soon()).await.is_none(),
            "all are taken"
        );
        drop(kept);
        assert!(forwards.take(NodeId(3), 1, soon()).await.is_some());
    }

    #[tokio::test]
    async fn what_waits_gets_room_when_there_is_some_and_is_refused_when_its_time_is_over() {
        let budget = Budget::new(8 << 20);
        let held = budget.take(6 << 20).unwrap();
        let now = Instant::now();
        assert!(budget.wait(1 << 20, now).await.is_err());
        let waiting = budget.wait(1 << 20, now + Duration::from_secs(10));
        let mut waiting = std::pin::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        drop(held);
        let charge = waiting.await.unwrap();
        charge.set(10);
        assert_eq!(budget.held(), 10);
    }
}
