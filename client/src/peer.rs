//! One address and the connections to it.
//!
//! Connections are made when they are needed, and apart from sending: so it is known
//! of an operation that ran out of time before there was a connection that nothing
//! was sent.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tonic::transport::{Channel, Endpoint};
use torc_proto::{Fault, Reason};

use crate::builder::Config;
use crate::reach::{Advice, Reach};
use crate::{Error, ErrorKind};

const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// One address.
pub(crate) struct Peer {
    address: String,
    endpoint: Endpoint,
    slots: Box<[Slot]>,
    turn: AtomicUsize,
    state: Mutex<State>,
}

/// Room for one connection.
#[derive(Default)]
struct Slot {
    channel: Mutex<Option<Channel>>,
    /// Held while connecting, so that many operations wait for one connection.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    reach: Reach,
    last_failure: Option<(Instant, Fault)>,
}

impl Peer {
    fn new(address: &str, config: &Config) -> Result<Self, Error> {
        let refused = |e| {
            let message = format!("`{address}` is not an address: {e}");
            Error::new(ErrorKind::Invalid, message)
        };
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(refused)?;
        let endpoint = endpoint
            .tcp_nodelay(true)
            .connect_timeout(config.connect_timeout)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        Ok(Self {
            address: address.to_owned(),
            endpoint,
            slots: (0..config.channels).map(|_| Slot::default()).collect(),
            turn: AtomicUsize::new(0),
            state: Mutex::default(),
        })
    }

    /// Whether to send operations here. From time to time finds out, in the
    /// background, whether an address that was avoided works again.
    pub(crate) fn is_usable(self: &Arc<Self>) -> bool {
        let advice = self.state.lock().reach.advice(Instant::now());
        if advice == Advice::AvoidAndProbe {
            let peer = Arc::clone(self);
            tokio::spawn(async move { peer.channel().await.map(drop) });
        }
        advice == Advice::Use
    }

    /// A connection; the next of a few in turn. Takes at most the connect timeout
    /// for every caller that is there when connecting begins.
    pub(crate) async fn channel(&self) -> Result<Channel, Fault> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let slot = &self.slots[turn % self.slots.len()];
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
        match self.endpoint.connect().await {
            Ok(channel) => {
                *slot.channel.lock() = Some(channel.clone());
                self.state.lock().reach.connected();
                Ok(channel)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Takes note that an established connection broke and could not be made again.
    pub(crate) fn cut_off(&self, fault: &Fault) {
        for slot in &self.slots {
            slot.channel.lock().take();
        }
        let now = Instant::now();
        let mut state = self.state.lock();
        state.reach.failed(now);
        state.last_failure = Some((now, fault.clone()));
    }

    fn failed(&self, error: &tonic::transport::Error) -> Fault {
        let message = format!("cannot connect to {}: {}", self.address, deepest(error));
        let fault = Fault::new(Reason::OwnerUnreachable, message);
        tracing::debug!(address = %self.address, %fault, "avoiding the address for a while");
        self.cut_off(&fault);
        fault
    }

    fn failure_since(&self, asked: Instant) -> Option<Fault> {
        let state = self.state.lock();
        let (at, fault) = state.last_failure.as_ref()?;
        (*at >= asked).then(|| fault.clone())
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

/// The cause at the end of the chain: "transport error" tells nobody anything.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Every address in use.
#[derive(Debug)]
pub(crate) struct Peers {
    config: Config,
    seeds: Vec<Arc<Peer>>,
    known: Mutex<HashMap<String, Arc<Peer>>>,
}

impl Peers {
    pub(crate) fn new(config: Config) -> Result<Self, Error> {
        let make = |seed: &String| Peer::new(seed, &config).map(Arc::new);
        let seeds: Vec<_> = config.seeds.iter().map(make).collect::<Result<_, _>>()?;
        let by_address = |seed: &Arc<Peer>| (seed.address.clone(), Arc::clone(seed));
        let known = Mutex::new(seeds.iter().map(by_address).collect());
        Ok(Self {
            config,
            seeds,
            known,
        })
    }

    /// The addresses that the user named.
    pub(crate) fn seeds(&self) -> &[Arc<Peer>] {
        &self.seeds
    }

    /// The peers of these addresses, keeping the connections of those already known
    /// and forgetting all others but the seeds. An address that is not one is left
    /// out: its node is reached through others.
    pub(crate) fn of<'a, K>(
        &self,
        addresses: impl Iterator<Item = (K, &'a str)>,
    ) -> Vec<(K, Arc<Peer>)> {
        let mut known = self.known.lock();
        let mut peers = Vec::new();
        for (key, address) in addresses {
            let peer = match known.get(address) {
                Some(peer) => Arc::clone(peer),
                None => match Peer::new(address, &self.config) {
                    Ok(peer) => Arc::new(peer),
                    Err(error) => {
                        tracing::warn!(%error, "a member is advertised under");
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
