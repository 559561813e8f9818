//! Reads every record, node after node along the ring.
//!
//! The scan asks each node for its own records from the current position on; where the
//! node's arc ends, it asks the lead of the next partition. After a failure, it
//! continues from its last position with the newest topology ([`walk`] explains why it
//! skips and repeats no record). If a node is unreachable, another node gathers its
//! records.

mod cursor;
mod walk;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use tokio::time::timeout_at;
use tonic::Streaming;
use torc_proto::{Fault, Reason, v1};
use torc_record::{Digest, DigestKey, Key, NamespaceId};

pub use cursor::ScanCursor;
use walk::Walk;

use crate::call::Call;
use crate::naming::kv;
use crate::peer::Peer;
use crate::peer::attempt::{attempt_with_timeout, failure, no_answer};
use crate::retry::{Failure, Nature};
use crate::view::View;
use crate::{Client, Entry, Error, ScanOptions, answers};

/// Reading everything.
impl Client {
    /// Returns every record of the namespace, in ring order (which looks random). Each
    /// is read as [`Client::get`] would read it at that moment; the whole is not a
    /// snapshot: it may or may not contain records that are added or deleted meanwhile.
    /// A record that exists throughout is returned exactly once, even while nodes join
    /// and leave.
    ///
    /// The stream reads a few messages ahead and does nothing while it is not polled.
    /// It costs a request per arc of the ring. The client's deadline limits the time
    /// without progress, not the whole scan.
    ///
    /// # Errors
    /// The stream ends with its first error, one of those of [`Client::get`]. Continue
    /// from [`Scan::cursor`].
    pub fn scan(&self, options: ScanOptions) -> Scan {
        let position = options.after.clone().unwrap_or_default();
        let walker = Walker {
            client: self.clone(),
            walk: Walk::new(options),
            origin: None,
            source: None,
        };
        let pages = stream::try_unfold(walker, Walker::next_page);
        Scan {
            pages: pages.boxed(),
            position,
            page: None,
            ended: false,
        }
    }
}

/// A running scan, from [`Client::scan`]: a [`Stream`] of records.
#[must_use = "a scan does nothing unless polled"]
pub struct Scan {
    pages: BoxStream<'static, Result<Page, Error>>,
    /// After the last page that was returned in full, or the caller's start.
    position: ScanCursor,
    page: Option<Page>,
    ended: bool,
}

/// Records of one message, some of which have been returned.
struct Page {
    entries: std::vec::IntoIter<v1::Entry>,
    /// Key of the last record returned.
    last: Option<Bytes>,
    /// The position after the page.
    end: ScanCursor,
    origin: Origin,
}

/// Data to compute positions from.
#[derive(Clone, Copy)]
struct Origin {
    digest_key: DigestKey,
    namespace: NamespaceId,
}

impl Page {
    fn next(&mut self) -> Option<Result<Entry, Error>> {
        let entry = answers::entry(self.entries.next()?);
        if let Ok(entry) = &entry {
            self.last = Some(entry.key.clone());
        }
        Some(entry)
    }

    /// The position after the last record returned; `None` if none of the page was.
    fn position(&self) -> Option<ScanCursor> {
        let last = self.last.clone()?;
        if self.entries.len() == 0 {
            return Some(self.end.clone());
        }
        let Origin {
            digest_key,
            namespace,
        } = &self.origin;
        let digest = Digest::of(digest_key, *namespace, &last);
        Some(ScanCursor::behind(digest, Key::new(last).ok()?))
    }
}

impl Scan {
    /// The position after the last record returned. Pass it as [`ScanOptions::after`]
    /// to continue, in this process or another.
    #[must_use]
    pub fn cursor(&self) -> ScanCursor {
        let within = self.page.as_ref().and_then(Page::position);
        within.unwrap_or_else(|| self.position.clone())
    }

    fn end(&mut self, with: Option<Error>) -> Poll<Option<Result<Entry, Error>>> {
        self.ended = true;
        self.pages = stream::empty().boxed();
        Poll::Ready(with.map(Err))
    }
}

impl Stream for Scan {
    type Item = Result<Entry, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let scan = &mut *self;
        if scan.ended {
            return Poll::Ready(None);
        }
        loop {
            match scan.page.as_mut().and_then(Page::next) {
                Some(Ok(entry)) => return Poll::Ready(Some(Ok(entry))),
                Some(Err(error)) => return scan.end(Some(error)),
                None => {}
            }
            match ready!(scan.pages.poll_next_unpin(cx)) {
                Some(Ok(page)) => {
                    scan.position = scan.cursor();
                    scan.page = Some(page);
                }
                Some(Err(error)) => return scan.end(Some(error)),
                None => return scan.end(None),
            }
        }
    }
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan")
            .field("cursor", &self.cursor())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// Fetches the pages of a scan.
struct Walker {
    client: Client,
    walk: Walk,
    origin: Option<Origin>,
    source: Option<Source>,
}

/// The stream from which a scan currently reads.
struct Source {
    messages: Streaming<v1::ScanResponse>,
    view: Arc<View>,
    peer: Arc<Peer>,
    /// Whether it has advanced the scan.
    moved: bool,
}

impl Walker {
    /// The next page with records. Every step forward renews the deadline.
    async fn next_page(mut self) -> Result<Option<(Page, Self)>, Error> {
        let client = self.client.clone();
        let mut call = client.call(Nature::Read);
        let mut origin = self.origin(&mut call).await?;
        while !self.walk.has_ended() {
            let mut source = if let Some(source) = self.source.take() {
                source
            } else {
                let opened = self.open(&mut call).await?;
                origin = self.origin(&mut call).await?;
                opened
            };
            match source.next(&call).await {
                Ok(Some(message)) => {
                    let count = message.entries.len() as u64;
                    if self.walk.advance(count, &message.cursor, message.done)? {
                        source.moved = true;
                        call = client.call(Nature::Read);
                    }
                    self.source = Some(source);
                    if count > 0 {
                        let page = Page {
                            entries: message.entries.into_iter(),
                            last: None,
                            end: self.walk.position().clone(),
                            origin,
                        };
                        return Ok(Some((page, self)));
                    }
                }
                Ok(None) if source.moved => {}
                Ok(None) => {
                    let failure = came_to_nothing(&source.peer);
                    source.recover(&mut call, failure).await?;
                }
                Err(failure) => source.recover(&mut call, failure).await?,
            }
        }
        Ok(None)
    }

    /// Where the scan began.
    async fn origin(&mut self, call: &mut Call<'_>) -> Result<Origin, Error> {
        if let Some(origin) = self.origin {
            return Ok(origin);
        }
        let place = self.client.place(call).await?;
        let origin = Origin {
            digest_key: place.view.table.digest_key,
            namespace: place.namespace,
        };
        self.origin = Some(origin);
        Ok(origin)
    }

    /// Opens a stream at the scan's position.
    async fn open(&mut self, call: &mut Call<'_>) -> Result<Source, Error> {
        loop {
            if !self.walk.goes_on() {
                // A scan that begins reads the current generation.
                self.origin = None;
            }
            let namespace = self.origin(call).await?.namespace;
            let view = call.view().await?;
            let partitions = view.table.partitions;
            let partition = partitions.holding(namespace, self.walk.token());
            let state = view.state(partition)?;
            let tries = (call.detours(), call.attempts());
            let target = self
                .client
                .core()
                .first_target(&view, state, Nature::Read, tries);
            let message = self
                .walk
                .request((self.client.namespace_name(), namespace), target.leads);
            let attempt_timeout = call.attempt_timeout();
            let sending = |channel, _| async move { kv(channel).scan(message).await };
            let opening =
                attempt_with_timeout(&target.peer, call.deadline(), attempt_timeout, sending);
            match opening.await {
                Ok(messages) => {
                    return Ok(Source {
                        messages,
                        view,
                        peer: target.peer,
                        moved: false,
                    });
                }
                Err(failure) => {
                    call.recover(failure, Some(&view), Some(&target.peer))
                        .await?;
                }
            }
        }
    }
}

impl Source {
    async fn next(&mut self, call: &Call<'_>) -> Result<Option<v1::ScanResponse>, Failure> {
        match timeout_at(call.deadline(), self.messages.message()).await {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(status)) => Err(failure(&self.peer, &status)),
            Err(_) => Err(no_answer(&self.peer)),
        }
    }

    async fn recover(self, call: &mut Call<'_>, failure: Failure) -> Result<(), Error> {
        call.recover(failure, Some(&self.view), Some(&self.peer))
            .await
    }
}

/// The failure of a request to a node that does not lead the next partition.
fn came_to_nothing(peer: &Peer) -> Failure {
    let message = format!("{peer} does not lead the scan's next partition");
    Failure::sent(Fault::new(Reason::StaleEpoch, message))
}
