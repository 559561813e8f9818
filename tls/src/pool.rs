//! The connections from a node to the others.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tonic::transport::{Channel, Endpoint, Error};

use crate::{Connector, InUse, channel, endpoint};

/// Connections for requests to one address: a single one would be limited by one core.
const BULK_CHANNELS: usize = 4;
/// Addresses with channels. A pool that has more forgets them all: calls under way keep theirs.
const MOST_ADDRESSES: usize = 1_024;
/// A message with a piece of a slice is received as one frame instead of eight of the default size:
/// each frame costs a system call on both sides.
const MAX_FRAME_LEN: u32 = (128 + 1) << 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Small messages that must not wait behind others: those of the topology group.
    Prompt,
    /// Requests, and answers of any size.
    Bulk,
}

/// The connections from a node to the others: a few for each address, opened on first use, by the
/// runtime of that use.
///
/// When the node's certificate is replaced, new calls use new connections.
#[derive(Default)]
pub struct Pool {
    tls: Option<Connector>,
    prompt: Mutex<HashMap<String, Channels>>,
    bulk: Mutex<HashMap<String, Channels>>,
    turn: AtomicUsize,
}

/// The channels to an address, and the certificate that they use.
struct Channels {
    tls: Option<InUse>,
    all: Vec<Channel>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Pool {
    /// Connections with TLS, or in plain text without a connector.
    #[must_use]
    pub fn new(tls: Option<Connector>) -> Self {
        Self {
            tls,
            ..Self::default()
        }
    }

    /// A channel to this address, `host:port`.
    ///
    /// # Errors
    /// The address is not `host:port`.
    pub fn channel(&self, address: &str, traffic: Traffic) -> Result<Channel, Error> {
        let in_use = self.tls.as_ref().map(Connector::in_use);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let (open, channels) = match traffic {
            Traffic::Prompt => (&self.prompt, 1),
            Traffic::Bulk => (&self.bulk, BULK_CHANNELS),
        };
        // Still valid after a panic: no code panics while it changes the map.
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Channels { all, .. }) = open.get(address).filter(|it| it.tls == in_use) {
            return Ok(all[turn % all.len()].clone());
        }
        let endpoint = tuned(endpoint(address, self.tls.as_ref())?, traffic);
        let all = (0..channels).map(|_| channel(&endpoint, self.tls.as_ref()));
        let all: Vec<_> = all.collect();
        let first = all[0].clone();
        if open.len() >= MOST_ADDRESSES {
            open.clear();
        }
        open.insert(address.to_owned(), Channels { tls: in_use, all });
        Ok(first)
    }
}

/// A vanished node is noticed after the interval of pings and this time. The answer to a ping waits
/// behind bulk.
fn tuned(endpoint: Endpoint, traffic: Traffic) -> Endpoint {
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_while_idle(true)
        .max_frame_size(MAX_FRAME_LEN);
    match traffic {
        Traffic::Prompt => endpoint.keep_alive_timeout(Duration::from_secs(2)),
        Traffic::Bulk => endpoint
            .keep_alive_timeout(Duration::from_secs(5))
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pool_keeps_few_addresses_and_refuses_what_is_none() {
        let pool = Pool::new(None);
        for port in 1..=2_000 {
            let address = format!("127.0.0.1:{port}");
            pool.channel(&address, Traffic::Bulk).unwrap();
            assert!(pool.bulk.lock().unwrap().len() <= MOST_ADDRESSES);
        }
        let before = pool.bulk.lock().unwrap().len();
        pool.channel("127.0.0.1:2000", Traffic::Prompt).unwrap();
        assert!(pool.channel("not an address", Traffic::Bulk).is_err());
        assert_eq!(pool.bulk.lock().unwrap().len(), before);
    }
}
