//! The scratch store: state that a node can lose and rebuild, such as the history of hot keys
//! and hints for unreachable replicas.
//!
//! It uses sled 0.34 and does not trust it: `flush` is no fsync, it can fail to open after
//! a crash, and on damaged files it may return an error, panic, or hang. So one thread owns
//! it and guards every call. On any failure its directory is renamed to `NAME.broken-N`, a
//! new one is started, and the loss is logged and counted. If that fails too, the state is
//! kept in memory only.
//!
//! Invariants:
//! * No call returns an error: at worst a value is lost.
//! * No file of the store is touched: losing all scratch state loses no record and no promise.
//! * A read sees all earlier completed writes, unless there was a loss.
//!
//! Deliberately not here: state whose loss a client could notice.

mod backing;
mod keeper;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use tokio::sync::oneshot;

use self::keeper::{Keeper, Request};

/// Keys with their values, in key order.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The scratch store: small ordered trees, by name. Cheap to clone; clones share one store.
///
/// Every method waits a few microseconds for the thread that owns the files. Dropping the
/// last clone stops the thread after everything is written.
#[derive(Debug, Clone)]
pub struct Scratch {
    requests: mpsc::Sender<Request>,
    losses: Arc<AtomicU64>,
}

impl Scratch {
    /// Starts with the contents of a directory, which is created if it is missing. Never waits
    /// for the open and never fails: the module says what happens instead.
    ///
    /// To be called early: sled reserves 28 MiB and uses little of it. What it does not use takes no
    /// memory if the allocator had it fresh from the system.
    #[must_use]
    pub fn open(dir: impl Into<PathBuf>) -> Self {
        let (requests, inbox) = mpsc::channel();
        let losses = Arc::new(AtomicU64::new(0));
        let keeper = Keeper::new(dir.into(), losses.clone());
        let thread = std::thread::Builder::new().name("torc-scratch".to_owned());
        if let Err(error) = thread.spawn(move || keeper.run(&inbox)) {
            losses.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%error, "cannot start the thread of the scratch store: it stores nothing");
        }
        Self { requests, losses }
    }

    /// Sets a value. It reaches the disk about a second later, if at all.
    pub async fn put(&self, tree: &str, key: &[u8], value: &[u8]) {
        let (tree, key, value) = (tree.to_owned(), key.to_vec(), value.to_vec());
        self.ask(|done| Request::Put {
            tree,
            key,
            value,
            done,
        })
        .await;
    }

    /// The value of a key, unless it was never set, was deleted, or was lost.
    pub async fn get(&self, tree: &str, key: &[u8]) -> Option<Vec<u8>> {
        let (tree, key) = (tree.to_owned(), key.to_vec());
        self.ask(|done| Request::Get { tree, key, done })
            .await
            .flatten()
    }

    /// Removes a key.
    pub async fn delete(&self, tree: &str, key: &[u8]) {
        let (tree, key) = (tree.to_owned(), key.to_vec());
        self.ask(|done| Request::Delete { tree, key, done }).await;
    }

    /// All of a tree, in key order. For small trees.
    pub async fn list(&self, tree: &str) -> Pairs {
        let tree = tree.to_owned();
        self.ask(|done| Request::List { tree, done })
            .await
            .unwrap_or_default()
    }

    /// Passes all values put so far to the operating system.
    pub async fn write_out(&self) {
        self.ask(|done| Request::WriteOut { done }).await;
    }

    /// How often state was lost since opening.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// Writes everything and releases the files. After that, other clones find nothing.
    pub async fn close(self) {
        self.ask(|done| Request::Close { done }).await;
    }

    /// `None` when the thread has ended.
    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Option<T> {
        let (done, answer) = oneshot::channel();
        self.requests.send(request(done)).ok()?;
        answer.await.ok()
    }
}
