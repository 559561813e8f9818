//! The scratch store: state that a node may lose and rebuild, such as the history of hot keys
//! and hints for unreachable replicas.
//!
//! sled 0.34 is behind it, and is not trusted: its `flush` is no fsync, it can refuse to
//! open after a crash, and on damaged files it may return an error, panic, or never come
//! back. So one thread owns it, every call into it is guarded, and when anything goes wrong
//! its directory is set aside as `NAME.broken-N`, a fresh one is started, and the loss is
//! logged and counted. If that cannot be had either, the state is kept in memory only.
//!
//! Invariants:
//! * Nothing here fails towards the caller: the worst is that a value is gone.
//! * No file of the store is touched: losing all of this loses no record and no promise.
//! * A read sees the writes that were answered before it, unless there was a loss.
//!
//! Absent on purpose: anything whose loss could be noticed by a client.

mod backing;
mod keeper;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use tokio::sync::oneshot;

use self::keeper::{Keeper, Request};

/// Keys with their values, in the order of keys.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The scratch store: small ordered trees, by name. Cheap to clone; all clones are one.
///
/// Every method waits for the one thread that owns the files, some microseconds. Dropping
/// the last clone stops the thread once everything is written out.
#[derive(Debug, Clone)]
pub struct Scratch {
    requests: mpsc::Sender<Request>,
    losses: Arc<AtomicU64>,
}

impl Scratch {
    /// Starts with what a directory holds, which is made when something is put. Does not wait
    /// for it to be opened and never fails: see the module on what happens instead.
    #[must_use]
    pub fn open(dir: impl Into<PathBuf>) -> Self {
        let (requests, inbox) = mpsc::channel();
        let losses = Arc::new(AtomicU64::new(0));
        let keeper = Keeper::new(dir.into(), losses.clone());
        let thread = std::thread::Builder::new().name("torc-scratch".to_owned());
        if let Err(error) = thread.spawn(move || keeper.run(&inbox)) {
            losses.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%error, "the scratch store has no thread: nothing is kept in it");
        }
        Self { requests, losses }
    }

    /// Sets a value. It is on the disk about a second later, if at all.
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

    /// All of a tree, in the order of keys. Meant for small trees.
    pub async fn list(&self, tree: &str) -> Pairs {
        let tree = tree.to_owned();
        self.ask(|done| Request::List { tree, done })
            .await
            .unwrap_or_default()
    }

    /// Hands what was put so far to the operating system.
    pub async fn write_out(&self) {
        self.ask(|done| Request::WriteOut { done }).await;
    }

    /// How often state was lost since this was opened.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// Writes everything out and lets go of the files. Other clones find nothing from then on.
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
