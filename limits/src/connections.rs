//! Limits the number of connections and the time that they may be silent.
//!
//! A connection takes a file descriptor. Without a limit, silent strangers could take all of them,
//! and the store could not open files. So the number of permits for connections is limited, in
//! total and per address; a connection without a permit is closed at once. A connection loses its
//! permit if its greeting does not arrive in time, if it is HTTP/1 and the client does not read its
//! answers, if it is old, or if the client must authenticate and sends no request for a while. Other
//! members of the cluster have further permits on the peer port, because replication needs them.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a share of the connections; `as` saturates"
)]

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected;
use torc_access::caller::Caller;
use torc_proto::Access;
use torc_ring::topology::ClusterId;
use torc_tls::{Door, NodeTls, TlsStream};

/// A certificate counts on its connection for at most this long: certificates are not revoked, and
/// their authority may have been replaced.
const CERTIFICATE_TIME: Duration = Duration::from_secs(3_600);
/// A connection that is older accepts no more requests, so that clients move to another one before
/// their certificate counts no longer, and spread over the nodes again.
pub const MAX_CONNECTION_AGE: Duration = Duration::from_secs(3_000);
/// Time from then until the connection ends, even if the client leaves answers unread. Long enough
/// for a part of a backup. tonic has such a limit too, but with it never asks the client to leave.
const GRACE: Duration = Duration::from_secs(3_000);
/// Time limit for the greeting.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// Time limit for the greeting once the node is closing.
const LAST_GREETING_TIME: Duration = Duration::from_millis(300);
/// Time for which an HTTP/1 client may read nothing.
const READ_NOTHING_TIME: Duration = Duration::from_secs(20);
/// HTTP/2 begins with the preface and the head of the first frame.
const GREETING_LEN: usize = 24 + 9;
/// A task yields after reading this many bytes, so that the services take and charge what was read.
/// Otherwise HTTP/2 would read a whole window ahead of them.
const READ_AT_ONCE: usize = 128 << 10;
/// The fraction of the permits that one address may hold.
const OF_ONE_ADDRESS: f64 = 0.75;

/// Permits for connections.
#[derive(Debug)]
pub struct Places {
    most: usize,
    most_of_one: usize,
    taken: Mutex<HashMap<IpAddr, usize>>,
}

/// The permit of a connection, released on drop.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    of: IpAddr,
}

impl Places {
    /// `most` permits.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            most_of_one: ((most as f64 * OF_ONE_ADDRESS) as usize).max(1),
            taken: Mutex::default(),
        })
    }

    /// A permit for a connection from this address, if there is one. O(addresses).
    pub fn take(self: &Arc<Self>, from: IpAddr) -> Option<Place> {
        // An IPv4 client is the same on a socket for both families.
        let from = from.to_canonical();
        let mut taken = self.taken.lock();
        let all: usize = taken.values().sum();
        let of_it = taken.get(&from).copied().unwrap_or(0);
        if all >= self.most || of_it >= self.most_of_one {
            return None;
        }
        taken.insert(from, of_it + 1);
        Some(Place {
            places: Arc::clone(self),
            of: from,
        })
    }

    #[cfg(test)]
    fn taken(&self) -> usize {
        self.taken.lock().values().sum()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        match taken.get_mut(&self.of) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                taken.remove(&self.of);
            }
        }
    }
}

/// The socket of a connection, plain or with TLS.
#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection, with its permit.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    caller: Caller,
    _place: Place,
    /// Bytes read since the task last yielded.
    read_at_once: usize,
    /// Timer and bytes read so far, until the greeting is complete.
    greeting: Option<(Pin<Box<Sleep>>, usize)>,
    requests: Arc<Requests>,
    /// Limits the connection's life, and before that the time without requests of a client that has
    /// not authenticated. `None` on ports that limit both themselves.
    life: Option<Life>,
    /// Time for which the client may read nothing. `None` for HTTP/2, which has its own keepalive.
    read_nothing_time: Option<Duration>,
    /// Runs while the client reads nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

/// What the services tell a connection about its requests.
#[derive(Debug, Default)]
struct Requests {
    /// Whether one was accepted since the connection last looked.
    any: AtomicBool,
    /// Whether one was that of a known caller.
    of_known: AtomicBool,
}

/// How long a connection may last.
#[derive(Debug)]
struct Life {
    timer: Pin<Box<Sleep>>,
    ends: Instant,
    /// Time for which a client that has not authenticated may send no request; `None` for one that
    /// has, or need not.
    silence: Option<Duration>,
}

impl Life {
    fn new(time: Duration, silence: Option<Duration>) -> Self {
        Self {
            timer: Box::pin(sleep(silence.map_or(time, |silence| silence.min(time)))),
            ends: Instant::now() + time,
            silence,
        }
    }

    fn is_over(&mut self, requests: &Requests, context: &mut Context<'_>) -> bool {
        while self.timer.as_mut().poll(context).is_ready() {
            if requests.of_known.load(Ordering::Relaxed) {
                self.silence = None;
            }
            let is_silent = self.silence.is_some() && !requests.any.swap(false, Ordering::Relaxed);
            let now = Instant::now();
            if is_silent || self.ends <= now {
                return true;
            }
            let next = self.silence.map_or(self.ends, |silence| now + silence);
            self.timer.as_mut().reset(next.min(self.ends).into());
        }
        false
    }
}

/// What a request's extensions tell about its connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Who called, as far as the connection itself tells.
    pub caller: Caller,
    requests: Arc<Requests>,
}

impl Peer {
    /// Notes a request that was accepted; `is_known`: as that of a known caller.
    pub fn accepted(&self, is_known: bool) {
        if is_known {
            self.requests.of_known.store(true, Ordering::Relaxed);
        }
        self.requests.any.store(true, Ordering::Relaxed);
    }
}

/// The caller by its token or, without one, by its connection.
#[must_use]
pub fn caller_of(extensions: &http::Extensions) -> &Caller {
    static NOBODY: Caller = Caller::nobody();
    // Connections set this before any service runs.
    let peer = || Some(&extensions.get::<Peer>()?.caller);
    extensions.get().or_else(peer).unwrap_or(&NOBODY)
}

/// What every port of a node needs to accept connections.
pub struct Entrance {
    /// `None`: connections are not encrypted, and callers have no identity.
    pub tls: Option<Arc<NodeTls>>,
    /// Time for clients to authenticate.
    pub idle_time: Duration,
    /// Cancelled when the node closes its connections.
    pub cancel: CancellationToken,
    /// Counts failed handshakes.
    pub handshakes_failed: Counter,
    /// The cluster that the node belongs to now.
    pub cluster: Box<dyn Fn() -> Option<ClusterId> + Send + Sync>,
}

/// Time limits of a connection.
#[derive(Debug, Clone, Copy)]
struct Times {
    greeting: Duration,
    /// See [`Life`].
    silence: Duration,
    life: Duration,
}

impl Connection {
    /// Completes the TLS handshake, if TLS is on. `None` if it fails.
    pub async fn begin(
        stream: TcpStream,
        place: Place,
        entrance: &Entrance,
        door: Door,
    ) -> Option<Self> {
        let from = stream.peer_addr().ok()?.ip();
        let (stream, mut caller) = match &entrance.tls {
            None => (Stream::Plain(stream), Caller::anyone(from)),
            Some(tls) => {
                let shaking = timeout(GREETING_TIME, shake_hands(tls, stream, entrance, door));
                let shaken = tokio::select! {
                    shaken = shaking => shaken.unwrap_or_else(|late| Err(late.into())),
                    () = closes(entrance) => Err(io::ErrorKind::TimedOut.into()),
                };
                match shaken {
                    Ok(shaken) => shaken,
                    Err(error) => return refused(entrance, &error),
                }
            }
        };
        caller.is_on_peer_port = door == Door::Peer;
        let times = Times {
            greeting: GREETING_TIME,
            silence: entrance.idle_time,
            life: MAX_CONNECTION_AGE + GRACE,
        };
        Some(Self::limited(times, stream, caller, place, door))
    }

    fn limited(times: Times, stream: Stream, caller: Caller, place: Place, door: Door) -> Self {
        // The HTTP/1 server has its own timer.
        let greeting = matches!(door, Door::Grpc | Door::Peer);
        let greeting = greeting.then(|| (Box::pin(sleep(times.greeting)), 0));
        let is_known = caller.is_anyone() || caller.ends().is_some();
        let silence = (!is_known).then_some(times.silence);
        Self {
            requests: Arc::default(),
            life: (door == Door::Grpc).then(|| Life::new(times.life, silence)),
            stream,
            caller,
            _place: place,
            read_at_once: 0,
            greeting,
            read_nothing_time: (door == Door::Http).then_some(READ_NOTHING_TIME),
            stalled: None,
        }
    }

    /// Fails the connection if the client has read nothing for long.
    fn unless_stalled(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let Some(time) = self.read_nothing_time else {
            return written;
        };
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(time)));
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => written,
        }
    }

    /// When it should end, between two requests.
    #[must_use]
    pub fn grows_old_at(&self) -> Instant {
        let old = Instant::now() + MAX_CONNECTION_AGE;
        self.caller.ends().map_or(old, |ends| old.min(ends))
    }

    /// The caller at the other end.
    #[must_use]
    pub const fn caller(&self) -> &Caller {
        &self.caller
    }
}

/// On the peer port, closes connections from all but nodes of this cluster before it reads any
/// HTTP/2.
async fn shake_hands(
    tls: &NodeTls,
    stream: TcpStream,
    entrance: &Entrance,
    door: Door,
) -> io::Result<(Stream, Caller)> {
    let from = stream.peer_addr()?.ip();
    let (stream, certificate) = tls.accept(stream, door).await?;
    let certificate = certificate.map(|(identity, not_after)| (identity, counts_until(not_after)));
    let caller = Caller::of(certificate, from).map_err(io::Error::other)?;
    if door == Door::Peer {
        let checked = caller.check(Access::Node, (entrance.cluster)());
        checked.map_err(io::Error::other)?;
    }
    Ok((Stream::Tls(Box::new(stream)), caller))
}

/// Until when a certificate with this end counts on a new connection.
fn counts_until(not_after: SystemTime) -> Instant {
    let left = not_after.duration_since(SystemTime::now());
    Instant::now() + left.unwrap_or_default().min(CERTIFICATE_TIME)
}

/// Resolves shortly after the node starts to close. Until then, accepted connections may finish
/// their handshake, so that requests already sent on them are not left in doubt.
async fn closes(entrance: &Entrance) {
    entrance.cancel.cancelled().await;
    sleep(LAST_GREETING_TIME).await;
}

fn refused<T>(entrance: &Entrance, why: &io::Error) -> Option<T> {
    entrance.handshakes_failed.inc();
    tracing::debug!(error = %why, "a TLS handshake failed");
    None
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read_at_once >= READ_AT_ONCE {
            self.read_at_once = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let this = &mut *self;
        let life = this.life.as_mut();
        if life.is_some_and(|life| life.is_over(&this.requests, context)) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        self.read_at_once = if read.is_pending() {
            0
        } else {
            self.read_at_once + into.filled().len() - before
        };
        let Some((timer, heard)) = &mut self.greeting else {
            return read;
        };
        *heard += into.filled().len() - before;
        if *heard >= GREETING_LEN {
            self.greeting = None;
        } else if timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.unless_stalled(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.unless_stalled(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        Peer {
            caller: self.caller.clone(),
            requests: Arc::clone(&self.requests),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[test]
    fn one_address_leaves_places_for_others_and_gives_its_own_back() {
        let places = Places::new(4);
        let [one, other]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let held: Vec<_> = (0..3).map(|_| places.take(one).unwrap()).collect();
        assert!(places.take(one).is_none(), "it has its part");
        let last = places.take(other).unwrap();
        assert!(places.take(other).is_none(), "there are no more");
        assert_eq!(places.taken(), 4);
        drop(held);
        assert!(places.take(one).is_some());
        drop(last);
        assert_eq!(places.taken(), 0);
        assert!(places.taken.lock().is_empty(), "nobody is remembered");
    }

    #[test]
    fn an_ipv4_address_is_the_same_on_a_socket_for_both_families() {
        let places = Places::new(4);
        let plain: IpAddr = [10, 0, 0, 1].into();
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        let held: Vec<_> = (0..3).map(|_| places.take(plain).unwrap()).collect();
        assert!(places.take(mapped).is_none(), "it has its part");
        drop(held);
    }

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const TIME: Duration = Duration::from_millis(100);

    const TIMES: Times = Times {
        greeting: TIME,
        silence: Duration::from_secs(600),
        life: Duration::from_secs(600),
    };

    async fn pair() -> (TcpStream, Connection) {
        pair_with(TIMES, Caller::anyone(HERE)).await
    }

    async fn pair_with(times: Times, caller: Caller) -> (TcpStream, Connection) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let stream = accepted.unwrap().0;
        (
            client.unwrap(),
            Connection::limited(
                times,
                Stream::Plain(stream),
                caller,
                Places::new(1).take(HERE).unwrap(),
                Door::Grpc,
            ),
        )
    }

    #[tokio::test]
    async fn a_greeting_that_does_not_come_ends_the_connection_and_silence_after_it_does_not() {
        let (mut client, mut silent) = pair().await;
        client.write_all(b"PRI").await.unwrap();
        let mut heard = [0; 3];
        silent.read_exact(&mut heard).await.unwrap();
        let ended = silent.read(&mut heard).await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);

        let (mut client, mut greeted) = pair().await;
        client.write_all(&[7; GREETING_LEN]).await.unwrap();
        let mut heard = [0; GREETING_LEN];
        greeted.read_exact(&mut heard).await.unwrap();
        let more = tokio::time::timeout(5 * TIME, greeted.read(&mut heard)).await;
        assert!(more.is_err(), "it may be silent now");
    }

    #[tokio::test]
    async fn a_connection_ends_at_its_age_whatever_the_client_sends() {
        let times = Times {
            life: TIME,
            ..TIMES
        };
        let (mut client, mut connection) = pair_with(times, Caller::anyone(HERE)).await;
        let peer = connection.connect_info();
        let sending = async {
            while client.write_all(&[7; GREETING_LEN]).await.is_ok() {
                peer.accepted(true);
                tokio::task::yield_now().await;
            }
        };
        let reading = async {
            let mut heard = [0; GREETING_LEN];
            let ended = loop {
                if let Err(ended) = connection.read(&mut heard).await {
                    break ended;
                }
            };
            assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
            drop(connection);
        };
        tokio::join!(sending, reading);
    }

    #[tokio::test]
    async fn a_client_that_must_authenticate_sends_a_request_before_long_or_is_closed() {
        let times = Times {
            silence: TIME,
            ..TIMES
        };
        let unknown = || Caller::of(None, HERE).unwrap();
        // HTTP/2 without a request.
        let (mut client, mut silent) = pair_with(times, unknown()).await;
        client.write_all(&[7; GREETING_LEN]).await.unwrap();
        let mut heard = [0; GREETING_LEN];
        silent.read_exact(&mut heard).await.unwrap();
        let ended = silent.read(&mut heard).await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);

        // One that needs no authentication buys time; one with a token ends the limit.
        for (is_known, stays) in [(false, false), (true, true)] {
            let (mut client, mut connection) = pair_with(times, unknown()).await;
            client.write_all(&[7; GREETING_LEN]).await.unwrap();
            connection.read_exact(&mut heard).await.unwrap();
            connection.connect_info().accepted(is_known);
            let read = tokio::time::timeout(20 * TIME, connection.read(&mut heard)).await;
            assert_eq!(read.is_err(), stays, "{is_known}: {read:?}");
        }
    }

    #[tokio::test]
    async fn who_reads_nothing_for_long_loses_the_connection_and_who_reads_slowly_does_not() {
        let (mut client, mut connection) = pair().await;
        connection.read_nothing_time = Some(TIME);
        // More than the system's socket buffers hold.
        let much = vec![7; 64 << 20];
        let stalled = connection.write_all(&much).await.unwrap_err();
        assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);

        connection.stalled = None;
        connection.read_nothing_time = Some(600 * TIME);
        let reading = async {
            let mut heard = vec![0; 1 << 20];
            while client.read(&mut heard).await.unwrap() > 0 {}
        };
        let writing = async {
            connection.write_all(&much).await.unwrap();
            drop(connection);
        };
        tokio::join!(reading, writing);
    }
}
