//! The limits of this node: permits, and the budgets of bytes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use torc_limits::admission::Admission;
use torc_limits::budget::{Budget, Forwards};
use torc_limits::classes::Classes;
use torc_limits::meter::Strangers;

use crate::config::Settings;

/// Stale gets that read the disk at a time: about the parallel reads that a current disk serves.
const READERS: usize = 32;
/// Time limit for connections to close, and their last answers to leave, when the node stops.
pub(crate) const HANG_UP: Duration = Duration::from_secs(5);

/// What clients and other nodes may take at a time.
pub(crate) struct Limits {
    /// Operations.
    pub(crate) admission: Arc<Admission>,
    /// Bytes of clients' requests and answers.
    pub(crate) budget: Arc<Budget>,
    /// Those of strangers.
    pub(crate) strangers: Strangers,
    /// Values of operations that run for other nodes.
    pub(crate) forwards: Forwards,
    /// Permits for requests that cost more than an operation on a key.
    pub(crate) classes: Classes,
    /// Permits to compute sketches of keys.
    pub(crate) sketch_permits: Semaphore,
    /// Permits to search pages of scans, each on its own thread.
    pub(crate) searchers: Semaphore,
    /// Permits for stale gets that read the disk.
    pub(crate) readers: Semaphore,
}

impl Limits {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            admission: Arc::new(Admission::new(settings.max_operations)),
            budget: Budget::new(settings.in_flight_bytes),
            strangers: Strangers::beside(settings.in_flight_bytes),
            forwards: Forwards::default(),
            classes: Classes::default(),
            sketch_permits: Semaphore::new(2),
            searchers: Semaphore::new(settings.worker_threads),
            readers: Semaphore::new(READERS),
        }
    }
}
