//! Relief for keys that nodes mark as hot: spreads their gets over the replicas, and lets identical
//! concurrent gets share a request.
//!
//! * `table`: the hot keys; `flights`: sharing, and why it keeps reads linearizable.
//!
//! Absent on purpose: caching. Every answer belongs to a request that was sent after the get
//! started.

mod flights;
mod table;

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use torc_proto::v1::Quorum;
use torc_record::Digest;

use crate::options::Consistency;
use crate::{Error, Value};
use flights::{Flights, Shared};
use table::Table;

/// Counters on hot keys since the client was created, from
/// [`Client::hot_gets`](crate::Client::hot_gets).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HotGets {
    /// Answers that marked their key as hot.
    pub hints: u64,
    /// Gets that shared another get's request.
    pub coalesced: u64,
    /// Gets sent to replicas in turn.
    pub spread: u64,
}

/// The hot keys of a client.
#[derive(Debug)]
pub(crate) struct Hot {
    enabled: bool,
    /// Fast path: while false, there is no hot key and `table` need not be locked.
    any: AtomicBool,
    table: Mutex<Table>,
    flights: Flights<Option<Value>>,
    hints: AtomicU64,
    coalesced: AtomicU64,
    spread: AtomicU64,
}

impl Hot {
    pub(crate) fn new(enabled: bool) -> Self {
        Self {
            enabled,
            any: AtomicBool::new(false),
            table: Mutex::default(),
            flights: Flights::default(),
            hints: AtomicU64::new(0),
            coalesced: AtomicU64::new(0),
            spread: AtomicU64::new(0),
        }
    }

    /// Records that an answer marked its key as hot.
    pub(crate) fn hint(&self, digest: Digest) {
        if self.enabled {
            self.hints.fetch_add(1, Ordering::Relaxed);
            let mut table = self.table.lock();
            table.note(digest, Instant::now());
            self.any.store(true, Ordering::Relaxed);
        }
    }

    /// Whether to treat a key as hot.
    pub(crate) fn is_hot(&self, digest: &Digest) -> bool {
        if !self.any.load(Ordering::Relaxed) {
            return false;
        }
        let mut table = self.table.lock();
        let is_hot = table.is_hot(digest, Instant::now());
        self.any.store(!table.is_empty(), Ordering::Relaxed);
        is_hot
    }

    /// Counts a get that went to replicas in turn.
    pub(crate) fn spread(&self) {
        self.spread.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends a get of a hot key, or shares the answer of one sent after this call. `None`: send it
    /// separately.
    pub(crate) async fn share(
        &self,
        digest: &Digest,
        (consistency, quorum): (Consistency, Quorum),
        send: impl Future<Output = Result<Option<Value>, Error>>,
    ) -> Option<Result<Option<Value>, Error>> {
        match self
            .flights
            .share((*digest, consistency, quorum), send)
            .await
        {
            Shared::Own(result) => Some(result),
            Shared::Joined(value) => {
                self.coalesced.fetch_add(1, Ordering::Relaxed);
                Some(Ok(value))
            }
            Shared::Alone => None,
        }
    }

    pub(crate) fn counted(&self) -> HotGets {
        HotGets {
            hints: self.hints.load(Ordering::Relaxed),
            coalesced: self.coalesced.load(Ordering::Relaxed),
            spread: self.spread.load(Ordering::Relaxed),
        }
    }
}
