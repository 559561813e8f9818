//! Group commit for a store without it: one committer thread takes the waiting records, commits
//! them as one batch, and answers every writer.

use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, anyhow};
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::engine::Engine;
use crate::records::Pair;

/// A store that commits on the caller's thread.
pub(super) trait Peer: Send + Sync + 'static {
    /// Stores records, and returns when they are as durable as this store makes them.
    fn commit(&self, batch: &[Pair]) -> Result<()>;

    /// The length of a key's value, which is read.
    fn get(&self, key: &[u8]) -> Result<Option<usize>>;

    /// The number of the keys that exist; one by one if the store has no batched get.
    fn get_many(&self, keys: &[&[u8]]) -> Result<usize> {
        let mut found = 0;
        for key in keys {
            found += usize::from(self.get(key)?.is_some());
        }
        Ok(found)
    }

    /// What its documentation recommends after a load; nothing by default.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Closes the store, so that it can be opened again at once.
    fn close(self) -> Result<()>
    where
        Self: Sized,
    {
        Ok(())
    }
}

/// Most records per commit.
const BATCH: usize = 4096;

/// A peer with its committer.
pub(super) struct Grouped<P> {
    peer: Arc<P>,
    queue: mpsc::UnboundedSender<Waiting>,
    committer: JoinHandle<()>,
}

/// A put, and the writer waiting for it.
struct Waiting {
    pair: Pair,
    done: oneshot::Sender<Result<()>>,
}

impl<P: Peer> Grouped<P> {
    pub(super) fn start(peer: P) -> Result<Self> {
        let peer = Arc::new(peer);
        let (queue, waiting) = mpsc::unbounded_channel();
        let own = Arc::clone(&peer);
        let thread = std::thread::Builder::new().name("committer".to_owned());
        let committer = thread.spawn(move || commit_all(&*own, waiting))?;
        Ok(Self {
            peer,
            queue,
            committer,
        })
    }
}

fn commit_all(peer: &impl Peer, mut waiting: mpsc::UnboundedReceiver<Waiting>) {
    let (mut pairs, mut writers) = (Vec::new(), Vec::new());
    while let Some(first) = waiting.blocking_recv() {
        let rest = std::iter::from_fn(|| waiting.try_recv().ok()).take(BATCH - 1);
        for Waiting { pair, done } in std::iter::once(first).chain(rest) {
            pairs.push(pair);
            writers.push(done);
        }
        let outcome = peer.commit(&pairs);
        pairs.clear();
        for writer in writers.drain(..) {
            let answer = outcome.as_ref().map_err(|error| anyhow!("{error:#}"));
            // A writer that has stopped waiting needs no answer.
            let _ = writer.send(answer.copied());
        }
    }
}

impl<P: Peer> Engine for Grouped<P> {
    fn put(&self, pair: Pair) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let (done, outcome) = oneshot::channel();
            let sent = self.queue.send(Waiting { pair, done });
            sent.map_err(|_| anyhow!("the committer has ended"))?;
            outcome.await.context("the committer has ended")?
        })
    }

    fn put_many(&self, pairs: Vec<Pair>) -> Result<()> {
        self.peer.commit(&pairs)
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        self.peer.get(key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<usize> {
        self.peer.get_many(keys)
    }

    fn settle(&self) -> Result<()> {
        self.peer.settle()
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self {
            peer,
            queue,
            committer,
        } = *self;
        drop(queue);
        committer
            .join()
            .map_err(|_| anyhow!("the committer panicked"))?;
        let peer = Arc::into_inner(peer).context("the peer is still in use")?;
        peer.close()
    }
}
