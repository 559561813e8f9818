//! The threads of a store: they start together, and end in order when it is closed or dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::commit::Committer;
use crate::log::LogWriter;
use crate::shared::Shared;
use crate::{StoreError, compaction, flush, ingest};

/// The threads of a store. Dropping them lets them finish, waits for that, and releases the
/// directory.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    pub(crate) flusher: Worker,
    pub(crate) compactor: Worker,
    pub(crate) ingester: Worker,
    pub(crate) committer: Worker,
}

/// With 5, gets waited longer beside an attachment (bench/README.md). With 19, threads that serve a full load leave a
/// background thread almost no time.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// From now on, other threads of the process go before the calling one.
pub fn lower_priority() {
    // Only Linux has a priority of each thread. The call fails where it is forbidden: then all are equal.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICE);
}

/// A thread, and a channel that reports its end.
#[derive(Debug)]
pub(crate) struct Worker {
    thread: Option<JoinHandle<()>>,
    pub(crate) ended: oneshot::Receiver<Result<(), StoreError>>,
}

impl Threads {
    pub(crate) fn start(shared: &Arc<Shared>, log: LogWriter) -> Result<Self, StoreError> {
        let upkeep = |name, run: fn(&Arc<Shared>)| {
            let owned = Arc::clone(shared);
            Worker::spawn(name, shared, move || {
                run(&owned);
                Ok(())
            })
        };
        let flusher = upkeep("torc-flush", flush::run)?;
        let compactor = upkeep("torc-compact", compaction::run);
        let ingester = upkeep("torc-ingest", ingest::run);
        let owned = Arc::clone(shared);
        let committer = Worker::spawn("torc-commit", shared, move || {
            Committer::new(owned, log).run()
        });
        if compactor.is_err() || ingester.is_err() || committer.is_err() {
            shared.stop_upkeep();
        }
        Ok(Self {
            shared: shared.clone(),
            flusher,
            compactor: compactor?,
            ingester: ingester?,
            committer: committer?,
        })
    }
}

impl Worker {
    fn spawn(
        name: &str,
        shared: &Arc<Shared>,
        work: impl FnOnce() -> Result<(), StoreError> + Send + 'static,
    ) -> Result<Self, StoreError> {
        let (done, ended) = oneshot::channel();
        let (owned, dir) = (shared.clone(), shared.options.dir.clone());
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                owned.health.note(&StoreError::panicked());
                owned.refuse_all(&StoreError::panicked());
                Err(StoreError::panicked())
            });
            drop(owned);
            // Fails if nothing waits for the end.
            let _ = done.send(outcome);
        });
        let thread = thread.map_err(StoreError::io("start a thread for", &dir))?;
        let thread = Some(thread);
        Ok(Self { thread, ended })
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The thread catches its own panics, and logged its errors.
            let _ = thread.join();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.stop_upkeep();
        self.flusher.join();
        self.compactor.join();
        self.ingester.join();
        self.shared.queue.close();
        self.committer.join();
        self.shared.dir.unlock();
    }
}
