//! Reads objects where code waits instead of awaiting: a runtime of their own asks the object store.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use torc_objects::{Location, Object, ObjectError};

/// Bytes of the first part of a stream, so that a look at its first row costs little, and of later ones.
const PART: std::ops::RangeInclusive<u64> = 64 << 10..=4 << 20;
/// Parts of a stream that are on their way. They bound its memory.
const PARTS_AHEAD: usize = 2;

static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build()
});

/// A result on its way.
pub(super) type Waiting<T> = Receiver<Result<T, ObjectError>>;

pub(super) fn begin<T: Send + 'static>(
    future: impl Future<Output = Result<T, ObjectError>> + Send + 'static,
) -> io::Result<Waiting<T>> {
    let runtime = RUNTIME.as_ref();
    let runtime = runtime.map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
    let (sender, receiver) = sync_channel(1);
    runtime.spawn(async move {
        // Nobody may wait any more.
        let _ = sender.send(future.await);
    });
    Ok(receiver)
}

pub(super) fn wait<T>(waiting: &Waiting<T>) -> io::Result<T> {
    let done = waiting.recv().map_err(io::Error::other)?;
    done.map_err(io::Error::other)
}

/// The objects of a URL, see [`Location::objects`].
pub(super) fn objects(location: Location) -> io::Result<Vec<Object>> {
    wait(&begin(async move { location.objects().await })?)
}

/// An object from its beginning to its end.
#[derive(Debug)]
pub(super) struct Stream {
    object: Arc<Object>,
    /// The first byte that was not asked for.
    at: u64,
    part: u64,
    ahead: VecDeque<Waiting<Bytes>>,
    /// What was read and not taken.
    rest: Bytes,
}

impl Stream {
    pub(super) const fn new(object: Arc<Object>) -> Self {
        Self {
            object,
            at: 0,
            part: *PART.start(),
            ahead: VecDeque::new(),
            rest: Bytes::new(),
        }
    }

    fn ask(&mut self) -> io::Result<()> {
        while self.ahead.len() < PARTS_AHEAD && self.at < self.object.size() {
            let range = self.at..(self.at + self.part).min(self.object.size());
            self.at = range.end;
            self.part = (self.part * 4).min(*PART.end());
            let object = Arc::clone(&self.object);
            let part = begin(async move { object.read(range).await })?;
            self.ahead.push_back(part);
        }
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            self.ask()?;
            let Some(next) = self.ahead.pop_front() else {
                return Ok(0);
            };
            self.rest = wait(&next)?;
        }
        let len = self.rest.len().min(to.len());
        to[..len].copy_from_slice(&self.rest.split_to(len));
        Ok(len)
    }
}
