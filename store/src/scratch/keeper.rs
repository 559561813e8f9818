//! The thread that owns the scratch store.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::Pairs;
use super::backing::{Backing, Memory, Trouble, is_in_use, set_aside};

const WRITE_OUT_EVERY: Duration = Duration::from_secs(1);

/// A request of a caller.
#[derive(Debug)]
pub(super) enum Request {
    Put {
        tree: String,
        key: Vec<u8>,
        value: Vec<u8>,
        done: oneshot::Sender<()>,
    },
    Get {
        tree: String,
        key: Vec<u8>,
        done: oneshot::Sender<Option<Vec<u8>>>,
    },
    Delete {
        tree: String,
        key: Vec<u8>,
        done: oneshot::Sender<()>,
    },
    List {
        tree: String,
        done: oneshot::Sender<Pairs>,
    },
    WriteOut {
        done: oneshot::Sender<()>,
    },
    Close {
        done: oneshot::Sender<()>,
    },
}

pub(super) struct Keeper {
    dir: PathBuf,
    losses: Arc<AtomicU64>,
}

impl Keeper {
    pub(super) fn new(dir: PathBuf, losses: Arc<AtomicU64>) -> Self {
        Self { dir, losses }
    }

    /// Serves requests until the last caller is gone or one asks to close.
    pub(super) fn run(&self, inbox: &Receiver<Request>) {
        let mut backing = match Backing::open(&self.dir) {
            Ok(backing) => backing,
            Err(trouble) => self.start_over(&trouble),
        };
        let mut unwritten_since: Option<Instant> = None;
        let closing = loop {
            let timeout = unwritten_since.map_or(WRITE_OUT_EVERY, |since| {
                WRITE_OUT_EVERY.saturating_sub(since.elapsed())
            });
            match inbox.recv_timeout(timeout) {
                Ok(Request::Close { done }) => break Some(done),
                Ok(request) => {
                    if matches!(request, Request::Put { .. } | Request::Delete { .. }) {
                        unwritten_since.get_or_insert_with(Instant::now);
                    }
                    self.serve(&mut backing, request);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break None,
            }
            if unwritten_since.is_some_and(|since| since.elapsed() >= WRITE_OUT_EVERY) {
                unwritten_since = None;
                self.attempt(&mut backing, |backing| backing.write_out());
            }
        };
        self.attempt(&mut backing, |backing| backing.write_out());
        if let Err(trouble) = backing.close() {
            tracing::warn!(%trouble, "the scratch store was not closed cleanly");
        }
        if let Some(done) = closing {
            answer(done, ());
        }
    }

    fn serve(&self, backing: &mut Backing, request: Request) {
        match request {
            Request::Put {
                tree,
                key,
                value,
                done,
            } => {
                self.attempt(backing, |backing| backing.put(&tree, &key, &value));
                answer(done, ());
            }
            Request::Get { tree, key, done } => {
                answer(
                    done,
                    self.attempt(backing, |backing| backing.get(&tree, &key)),
                );
            }
            Request::Delete { tree, key, done } => {
                self.attempt(backing, |backing| backing.delete(&tree, &key));
                answer(done, ());
            }
            Request::List { tree, done } => {
                answer(done, self.attempt(backing, |backing| backing.list(&tree)));
            }
            Request::WriteOut { done } | Request::Close { done } => {
                self.attempt(backing, |backing| backing.write_out());
                answer(done, ());
            }
        }
    }

    /// Runs `call`; after a failure, starts over and runs it once more.
    fn attempt<T: Default>(
        &self,
        backing: &mut Backing,
        call: impl Fn(&mut Backing) -> Result<T, Trouble>,
    ) -> T {
        let trouble = match call(backing) {
            Ok(done) => return done,
            Err(trouble) => trouble,
        };
        let memory = Backing::Memory(Memory::default());
        std::mem::replace(backing, memory).abandon();
        *backing = self.start_over(&trouble);
        call(backing).unwrap_or_default()
    }

    /// Sets the directory aside and starts a new one, or none.
    fn start_over(&self, trouble: &str) -> Backing {
        self.losses.fetch_add(1, Ordering::Relaxed);
        let memory_only = |why: &str| {
            tracing::warn!(%trouble, %why, "the scratch store was lost; a new one is kept in memory only");
            Backing::Memory(Memory::default())
        };
        if is_in_use(trouble) {
            return memory_only("its directory is in use by another process");
        }
        match set_aside(&self.dir) {
            Err(error) => memory_only(&error.to_string()),
            Ok(aside) => match Backing::open(&self.dir) {
                Err(why) => memory_only(&why),
                Ok(backing) => {
                    let aside = aside.display();
                    tracing::warn!(%trouble, %aside, "the scratch store was lost; a new one starts empty");
                    backing
                }
            },
        }
    }
}

/// Fails if the caller is gone and needs no answer.
fn answer<T>(done: oneshot::Sender<T>, answer: T) {
    drop(done.send(answer));
}
