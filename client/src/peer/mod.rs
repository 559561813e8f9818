//! An address and its connections.
//!
//! Connections are opened on demand, separately from sending. So if an operation runs
//! out of time before it has a connection, nothing was sent.

pub(crate) mod attempt;
pub(crate) mod topology;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tonic::transport::Endpoint;
use torc_proto::{Fault, Reason, deepest};
use torc_ring::topology::ClusterId;
use torc_tls::Connector;

use torc_record::to_millis;

use crate::breaker::{BreakerState, CircuitBreaker};
use crate::naming::{Connection, Naming, kv};
use crate::options::Config;
use crate::retry::Nature;
use crate::{Error, ErrorKind};
use torc_session::{Accepting, Session, SessionPermit};

/// With these two, the client detects a host that vanished within the default deadline.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Most operations in flight per connection to a node.
const WINDOW: usize = 256;

/// Flow control windows for answers, bytes: per stream, and per connection.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// After this many consecutive gets that another replica answered first, the breaker for slowness
/// trips.
const MOST_LATE: u32 = 3;
/// Time limit for a probe of a slow peer, and of one that was silent or refused operations.
const PROBE_TIME: Duration = Duration::from_millis(100);
const LONG_PROBE_TIME: Duration = Duration::from_secs(1);

/// One address.
pub(crate) struct Peer {
    address: String,
    endpoint: Endpoint,
    tls: Option<Connector>,
    naming: Naming,
    slots: Box<[Slot]>,
    /// Permits for operations on sessions.
    window: Arc<Semaphore>,
    /// Operations that wait for a permit.
    waiting: AtomicUsize,
    turn: AtomicUsize,
    /// Whether any breaker in `state` is tripped. Fast path: while false, `state` need not be
    /// locked.
    suspect: AtomicBool,
    /// The node has announced that it is about to stop.
    leaving: Arc<AtomicBool>,
    state: Mutex<State>,
    born: Instant,
    /// Time of its last answer, ms since its creation.
    heard_ms: AtomicU64,
    /// Whether `silence` tripped because the peer did not answer.
    mute: AtomicBool,
    late: AtomicU32,
}

/// A slot for one connection.
#[derive(Default)]
struct Slot {
    channel: Mutex<Option<Connection>>,
    /// On that connection.
    session: Mutex<Option<Arc<Session>>>,
    /// Held while connecting, so all operations wait for the same attempt.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// Tripped while the peer is unreachable or does not answer.
    silence: CircuitBreaker,
    /// Tripped while the peer refuses operations, because it is stopping or belongs to another
    /// cluster.
    refusal: CircuitBreaker,
    /// Tripped while the peer answers later than other replicas.
    slowness: CircuitBreaker,
    last_failure: Option<(Instant, Fault)>,
}

impl Slot {
    fn open_session(&self) -> Option<Arc<Session>> {
        let session = self.session.lock();
        session
            .as_ref()
            .filter(|session| session.is_open())
            .cloned()
    }

    /// Starts a session on this connection, unless another caller has just started one.
    fn begin_session(&self, channel: Connection, leaving: &Arc<AtomicBool>) -> Arc<Session> {
        let mut session = self.session.lock();
        if let Some(begun) = session.as_ref().filter(|session| session.is_open()) {
            return Arc::clone(begun);
        }
        let call = |requests| -> Accepting {
            Box::pin(async move { kv(channel).session(requests).await })
        };
        Arc::clone(session.insert(Session::open(call, Arc::clone(leaving))))
    }
}

impl Peer {
    fn new(address: &str, config: &Config, naming: &Naming) -> Result<Self, Error> {
        let refused = |e| {
            let message = format!("`{address}` is not an address: {e}");
            Error::new(ErrorKind::Invalid, message)
        };
        let endpoint = torc_tls::endpoint(address, config.tls.as_ref()).map_err(refused)?;
        let endpoint = endpoint
            .connect_timeout(config.connect_timeout)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        Ok(Self {
            address: address.to_owned(),
            endpoint,
            tls: config.tls.clone(),
            naming: naming.clone(),
            slots: (0..config.channels).map(|_| Slot::default()).collect(),
            window: Arc::new(Semaphore::new(WINDOW * config.channels)),
            waiting: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            suspect: AtomicBool::new(false),
            leaving: Arc::default(),
            state: Mutex::default(),
            born: Instant::now(),
            heard_ms: AtomicU64::new(0),
            mute: AtomicBool::new(false),
            late: AtomicU32::new(0),
        })
    }

    /// Whether a connection exists and was not given up.
    pub(crate) fn was_reached(&self) -> bool {
        self.slots.iter().any(|slot| slot.channel.lock().is_some())
    }

    /// Whether to send operations here. If a breaker is half-open, probes the address in
    /// the background.
    ///
    /// Writes still go to a slow peer: if two nodes coordinated writes of the same keys, they would
    /// refuse each other's writes, which would then end in doubt.
    pub(crate) fn is_usable(self: &Arc<Self>, nature: Nature) -> bool {
        if self.leaving.load(Ordering::Acquire) && self.leaving.swap(false, Ordering::AcqRel) {
            tracing::debug!(address = %self.address, "circuit breaker open: the node is stopping");
            self.trip(|state| &mut state.refusal);
        }
        if !self.suspect.load(Ordering::Acquire) {
            return true;
        }
        let now = Instant::now();
        let (silence, refusal, slowness) = {
            let mut state = self.state.lock();
            let (silence, refusal) = (state.silence.state(now), state.refusal.state(now));
            (silence, refusal, state.slowness.state(now))
        };
        if [silence, refusal, slowness].contains(&BreakerState::HalfOpen) {
            let peer = Arc::clone(self);
            tokio::spawn(async move { peer.probe().await });
        }
        let answers = silence == BreakerState::Closed && refusal == BreakerState::Closed;
        answers && (nature == Nature::Write || slowness == BreakerState::Closed)
    }

    /// For an unreachable address, a connection proves that it works again. A slow or silent
    /// peer must answer.
    async fn probe(&self) {
        let connected = self.channel().await.is_ok();
        if !connected || !self.suspect.load(Ordering::Acquire) {
            return;
        }
        let is_slow = !self.mute.load(Ordering::Relaxed) && !self.state.lock().refusal.is_tripped();
        let time = if is_slow { PROBE_TIME } else { LONG_PROBE_TIME };
        if topology::answers_within(self, time).await {
            self.recovered();
        } else if self.mute.load(Ordering::Relaxed) {
            self.trip(|state| &mut state.silence);
        } else {
            self.trip(|state| {
                if state.refusal.is_tripped() {
                    &mut state.refusal
                } else {
                    &mut state.slowness
                }
            });
        }
    }

    /// Records an answer.
    pub(crate) fn heard(&self) {
        let now_ms = to_millis(self.born.elapsed());
        self.heard_ms.store(now_ms, Ordering::Relaxed);
        if self.mute.load(Ordering::Relaxed) {
            self.recovered();
        }
    }

    /// Whether the peer has answered anything since `at`.
    pub(crate) fn was_heard_since(&self, at: Instant) -> bool {
        let at_ms = to_millis(at.saturating_duration_since(self.born));
        self.heard_ms.load(Ordering::Relaxed) > at_ms
    }

    /// The peer does not answer: avoid it until it does.
    pub(crate) fn fell_silent(&self) {
        tracing::debug!(address = %self.address, "circuit breaker open: the node does not answer");
        self.mute.store(true, Ordering::Relaxed);
        self.trip(|state| &mut state.silence);
    }

    /// A node of another cluster answers here: avoid the address until one of this cluster does.
    pub(crate) fn is_a_strangers(&self, fault: &Fault) {
        tracing::debug!(address = %self.address, %fault, "circuit breaker open: another cluster's node");
        self.trip(|state| &mut state.refusal);
    }

    /// Records that another replica answered a get first, although it was asked later.
    /// Returns whether this happens often enough to avoid the peer.
    pub(crate) fn was_late(&self) -> bool {
        let is_slow = self.late.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_LATE;
        if is_slow {
            self.late.store(0, Ordering::Relaxed);
        }
        is_slow
    }

    /// Whether gets avoid the peer because it is slow.
    pub(crate) fn is_slow(&self) -> bool {
        self.suspect.load(Ordering::Acquire) && self.state.lock().slowness.is_tripped()
    }

    /// The peer is slower than others: gets avoid it for a while.
    pub(crate) fn fell_behind(&self) {
        tracing::debug!(address = %self.address, "circuit breaker open: the node is slow");
        self.trip(|state| &mut state.slowness);
    }

    /// The peer is no slower than others.
    pub(crate) fn keeps_up(&self) {
        let mut state = self.state.lock();
        state.slowness.close();
        let suspect = state.silence.is_tripped() || state.refusal.is_tripped();
        self.suspect.store(suspect, Ordering::Release);
    }

    /// The peer answered a get first.
    pub(crate) fn was_in_time(&self) {
        self.late.store(0, Ordering::Relaxed);
    }

    fn trip(&self, breaker: impl FnOnce(&mut State) -> &mut CircuitBreaker) {
        let mut state = self.state.lock();
        breaker(&mut state).failed(Instant::now());
        self.suspect.store(true, Ordering::Release);
    }

    fn recovered(&self) {
        self.mute.store(false, Ordering::Relaxed);
        self.late.store(0, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.silence.close();
        state.refusal.close();
        state.slowness.close();
        self.suspect.store(false, Ordering::Release);
    }

    /// Returns a connection, the next in turn. Takes at most the connect timeout for
    /// all callers that wait when connecting starts.
    pub(crate) async fn channel(&self) -> Result<Connection, Fault> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.connected(&self.slots[turn % self.slots.len()]).await
    }

    /// Returns a permit for one operation on the first session that is not full, else on the least
    /// busy one. Takes as long as [`channel`](Self::channel), and waits for a permit.
    pub(crate) async fn session_permit(&self) -> Result<SessionPermit, Fault> {
        let place = self.place().await;
        // No code closes the semaphore.
        let place = place.map_err(|_| Fault::new(Reason::Internal, "the client was dropped"))?;
        let slot = self.slot_with_room();
        let session = match slot.open_session() {
            Some(session) => session,
            None => slot.begin_session(self.connected(slot).await?, &self.leaving),
        };
        Ok(session.permit(place))
    }

    async fn place(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        if let Ok(place) = Arc::clone(&self.window).try_acquire_owned() {
            return Ok(place);
        }
        let _waiting = Counted::new(&self.waiting);
        Arc::clone(&self.window).acquire_owned().await
    }

    /// Whether a session would send an operation at once.
    pub(crate) fn has_room(&self) -> bool {
        self.window.available_permits() > 0
    }

    /// Takes all permits, as if the window were full.
    #[cfg(test)]
    pub(crate) fn take_places(&self) -> OwnedSemaphorePermit {
        let count = self.window.available_permits() as u32;
        let places = Arc::clone(&self.window).try_acquire_many_owned(count);
        places.expect("as many as are free")
    }

    /// Operations that wait for a permit on a session.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn slot_with_room(&self) -> &Slot {
        let under_way = |slot: &&Slot| slot.open_session().map_or(0, |session| session.under_way());
        let has_room = |slot: &&Slot| slot.open_session().is_none_or(|session| !session.is_full());
        let first = self.slots.iter().find(has_room);
        let slot = first.or_else(|| self.slots.iter().min_by_key(under_way));
        // There is at least one connection.
        slot.unwrap_or(&self.slots[0])
    }

    async fn connected(&self, slot: &Slot) -> Result<Connection, Fault> {
        let ready = || slot.channel.lock().clone();
        if let Some(channel) = ready() {
            return Ok(channel);
        }
        let asked = Instant::now();
        let _connecting = slot.connecting.lock().await;
        if let Some(channel) = ready() {
            return Ok(channel);
        }
        if let Some(fault) = self.failure_since(asked) {
            return Err(fault);
        }
        match torc_tls::connect(&self.endpoint, self.tls.as_ref()).await {
            Ok(channel) => {
                let channel = self.naming.on(channel);
                *slot.channel.lock() = Some(channel.clone());
                let mut state = self.state.lock();
                // A peer that did not answer must answer.
                if !self.mute.load(Ordering::Relaxed) {
                    state.silence.close();
                }
                let suspect = state.silence.is_tripped()
                    || state.slowness.is_tripped()
                    || state.refusal.is_tripped();
                self.suspect.store(suspect, Ordering::Release);
                Ok(channel)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Operations from now on use new connections. Those under way end on the old ones.
    pub(crate) fn connect_again(&self) {
        for slot in &self.slots {
            slot.channel.lock().take();
            slot.session.lock().take();
        }
    }

    /// Records that an established connection broke and reconnecting failed.
    pub(crate) fn cut_off(&self, fault: &Fault) {
        self.connect_again();
        let now = Instant::now();
        let mut state = self.state.lock();
        state.silence.failed(now);
        self.suspect.store(true, Ordering::Release);
        state.last_failure = Some((now, fault.clone()));
    }

    fn failed(&self, error: &tonic::transport::Error) -> Fault {
        let message = format!("cannot connect to {}: {}", self.address, deepest(error));
        let fault = Fault::new(Reason::OwnerUnreachable, message);
        tracing::debug!(address = %self.address, %fault, "circuit breaker open: cannot connect");
        self.cut_off(&fault);
        fault
    }

    fn failure_since(&self, asked: Instant) -> Option<Fault> {
        let state = self.state.lock();
        let (at, fault) = state.last_failure.as_ref()?;
        (*at >= asked).then(|| fault.clone())
    }
}

/// Adds one to a counter until it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({})", self.address)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

/// Every address in use.
#[derive(Debug)]
pub(crate) struct Peers {
    config: Config,
    naming: Naming,
    seeds: Vec<Arc<Peer>>,
    known: Mutex<HashMap<String, Arc<Peer>>>,
}

impl Peers {
    pub(crate) fn new(config: Config) -> Result<Self, Error> {
        let naming = match &config.token {
            Some(token) => Naming::with_token(token)?,
            None => Naming::default(),
        };
        let make = |seed: &String| Peer::new(seed, &config, &naming).map(Arc::new);
        let seeds: Vec<_> = config.seeds.iter().map(make).collect::<Result<_, _>>()?;
        let by_address = |seed: &Arc<Peer>| (seed.address.clone(), Arc::clone(seed));
        let known = Mutex::new(seeds.iter().map(by_address).collect());
        Ok(Self {
            config,
            naming,
            seeds,
            known,
        })
    }

    /// Sets the cluster that requests name from now on.
    pub(crate) fn belong_to(&self, cluster: ClusterId) {
        self.naming.set(cluster);
    }

    /// The user's endpoints.
    pub(crate) fn seeds(&self) -> &[Arc<Peer>] {
        &self.seeds
    }

    /// The peers of these addresses. Keeps the connections of known ones, and forgets
    /// all others except the seeds. Leaves out malformed addresses: other nodes forward
    /// to those nodes.
    pub(crate) fn of<'a, K>(
        &self,
        addresses: impl Iterator<Item = (K, &'a str)>,
    ) -> Vec<(K, Arc<Peer>)> {
        let mut known = self.known.lock();
        let mut peers = Vec::new();
        for (key, address) in addresses {
            let peer = match known.get(address) {
                Some(peer) => Arc::clone(peer),
                None => match Peer::new(address, &self.config, &self.naming) {
                    Ok(peer) => Arc::new(peer),
                    Err(error) => {
                        tracing::warn!(%error, "a member advertises an unusable address");
                        continue;
                    }
                },
            };
            peers.push((key, peer));
        }
        let all = self.seeds.iter().chain(peers.iter().map(|(_, peer)| peer));
        *known = all
            .map(|peer| (peer.address.clone(), Arc::clone(peer)))
            .collect();
        peers
    }
}

#[cfg(test)]
mod tests {
    use super::attempt::attempt;
    use super::*;
    use tonic::{Response, Status};

    fn config(seeds: &[&str]) -> Config {
        Config {
            seeds: seeds.iter().map(|seed| (*seed).to_owned()).collect(),
            connect_timeout: Duration::from_secs(1),
            first_contact: Duration::MAX,
            channels: 1,
            hot_keys: true,
            tls: None,
            token: None,
        }
    }

    #[tokio::test]
    async fn what_found_no_connection_in_time_was_not_sent() {
        let peer = Peer::new("127.0.0.1:1", &config(&[]), &Naming::default()).unwrap();
        let _connecting = peer.slots[0].connecting.lock().await;
        let deadline = tokio::time::Instant::now() + Duration::from_millis(50);
        let sent = attempt(&peer, deadline, |_: SessionPermit, _| async {
            Ok::<_, Status>(Response::new(()))
        });
        let fault = sent.await.unwrap_err().fault;
        assert_eq!(fault.reason, Reason::Deadline);
        assert!(!fault.maybe_applied);
    }

    #[tokio::test]
    async fn those_who_wait_for_a_connection_share_its_failure() {
        let reserved = tokio::net::TcpSocket::new_v4().unwrap();
        reserved.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = reserved.local_addr().unwrap().to_string();
        let peer = Arc::new(Peer::new(&address, &config(&[]), &Naming::default()).unwrap());
        assert!(peer.is_usable(Nature::Read));
        let waiting = (0..10).map(|_| peer.channel());
        for outcome in futures::future::join_all(waiting).await {
            let fault = outcome.unwrap_err();
            assert_eq!(fault.reason, Reason::OwnerUnreachable);
            assert!(fault.message.contains(&address), "{fault}");
        }
        assert!(!peer.is_usable(Nature::Write));
        let earlier = peer.state.lock().last_failure.clone().unwrap().0;
        assert!(peer.failure_since(earlier).is_some());
        assert!(peer.failure_since(Instant::now()).is_none());
    }

    #[tokio::test]
    async fn a_slow_peer_gets_no_reads_and_a_silent_one_no_writes_either() {
        let peer = Arc::new(Peer::new("127.0.0.1:1", &config(&[]), &Naming::default()).unwrap());
        for _ in 0..MOST_LATE {
            assert!(peer.is_usable(Nature::Read));
            if peer.was_late() {
                peer.fell_behind();
            }
        }
        assert!(peer.is_slow() && !peer.is_usable(Nature::Read));
        assert!(peer.is_usable(Nature::Write), "it leads as before");
        peer.fell_silent();
        assert!(!peer.is_usable(Nature::Write));
        peer.heard();
        assert!(peer.is_usable(Nature::Read) && peer.is_usable(Nature::Write));
    }

    /// The kernel of a stopped process still accepts connections.
    #[tokio::test]
    async fn a_connection_to_a_silent_peer_is_no_answer() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let peer = Arc::new(Peer::new(&address, &config(&[]), &Naming::default()).unwrap());
        peer.fell_silent();
        peer.channel().await.unwrap();
        assert!(!peer.is_usable(Nature::Write));
        peer.heard();
        assert!(peer.is_usable(Nature::Write));
    }

    #[tokio::test]
    async fn connections_are_kept_while_their_address_is_in_use() {
        let peers = Peers::new(config(&["seed:1"])).unwrap();
        let first = peers.of([(1, "a:1"), (2, "seed:1"), (3, "no address")].into_iter());
        assert_eq!(first.len(), 2, "what is no address is left out");
        assert!(Arc::ptr_eq(&first[1].1, &peers.seeds()[0]));
        let second = peers.of([(1, "a:1")].into_iter());
        assert!(Arc::ptr_eq(&first[0].1, &second[0].1));
        peers.of(std::iter::empty::<(u8, &str)>());
        let third = peers.of([(1, "a:1")].into_iter());
        assert!(!Arc::ptr_eq(&first[0].1, &third[0].1), "it was forgotten");
        assert_eq!(peers.known.lock().len(), 2);
    }
}
