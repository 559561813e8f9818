//! Limits requests that cost more than an operation on a key. Each class has its own permits, so no
//! class can crowd out another, or operations.
//!
//! A request without a permit is refused, and nothing is done. In classes with short bursts, such
//! as the status, it first waits briefly.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use torc_proto::{Fault, Reason};

/// Minimum wait that a refused caller is advised to take.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Longest wait for a permit in the classes that wait.
const WAIT: Duration = Duration::from_secs(2);

/// The classes, each with the number of its requests that may run at a time.
pub struct Classes {
    /// Scans: a slow reader makes its scan hold pages for long.
    pub scans: Class,
    /// Scans that search the values, and so read all of them.
    pub searches: Class,
    /// Sketches of keys, computed here or awaited from another node: each holds megabytes.
    pub sketches: Class,
    /// Writes to a backup.
    pub backups: Class,
    /// Requests that ask all members for their status.
    pub statuses: Class,
    /// Requests that wait until this node knows what the topology group has committed.
    pub current: Class,
    /// Explanations of a key, which ask all of its replicas.
    pub explanations: Class,
    /// What this node's replica stores for a key: reads every slice of its partition.
    pub stored: Class,
    /// Requests for the hot keys of all members, whose counts take up to 14 MiB a member.
    pub hot_keys: Class,
}

impl Default for Classes {
    fn default() -> Self {
        Self {
            scans: Class::of("scans", 256),
            searches: Class::of("searches in values", 64),
            sketches: Class::of("requests for sketches of keys", 8),
            backups: Class::of("backups", 1),
            statuses: Class::of("requests for the status of all nodes", 32),
            current: Class::of("requests for a current status", 8),
            explanations: Class::of("explanations of keys", 16),
            stored: Class::of("requests for its replica of a key", 64),
            hot_keys: Class::of("requests for hot keys", 4),
        }
    }
}

/// Held while a request is under way.
pub type Place = OwnedSemaphorePermit;

/// The permits of one class.
pub struct Class {
    places: Arc<Semaphore>,
    what: &'static str,
}

impl Class {
    fn of(what: &'static str, most: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(most)),
            what,
        }
    }

    /// Whether no permit is left.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.places.available_permits() == 0
    }

    /// Acquires a permit without waiting.
    ///
    /// # Errors
    /// `OVERLOADED`; nothing was done.
    pub fn enter(&self) -> Result<Place, Fault> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place.map_err(|_| self.full())
    }

    /// Acquires a permit, waiting up to `WAIT`.
    ///
    /// # Errors
    /// `OVERLOADED`; nothing was done.
    pub async fn enter_soon(&self) -> Result<Place, Fault> {
        let waiting = Arc::clone(&self.places).acquire_owned();
        let place = tokio::time::timeout(WAIT, waiting).await;
        // The semaphore is never closed.
        place.ok().and_then(Result::ok).ok_or_else(|| self.full())
    }

    fn full(&self) -> Fault {
        let what = self.what;
        let message = format!(
            "the node is at its limit of concurrent {what}, and nothing was done: retry later"
        );
        Fault::new(Reason::Overloaded, message).retry_after(RETRY_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_class_that_is_full_refuses_and_takes_no_place_of_another() {
        let classes = Classes::default();
        let all: Vec<_> = (0..8).map(|_| classes.sketches.enter().unwrap()).collect();
        let refused = classes.sketches.enter().unwrap_err();
        assert_eq!(refused.reason, Reason::Overloaded);
        assert!(refused.message.contains("sketches"), "{refused:?}");
        let _searches: Vec<_> = (0..64).map(|_| classes.searches.enter().unwrap()).collect();
        assert!(classes.searches.is_full());
        assert!(classes.scans.enter().is_ok());
        let (waiting, ()) = tokio::join!(classes.sketches.enter_soon(), async { drop(all) });
        assert!(waiting.is_ok(), "somebody left");
    }
}
