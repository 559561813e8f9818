//! Settings of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use torc_ring::topology::Bearer;
use torc_tls::ClientTls;

use crate::core::Core;
use crate::options::{Config, LONGEST_DEADLINE};
use crate::trace::SpanSink;
use crate::{Client, ClientSpan, Error, ErrorKind};

/// The default namespace.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// Settings of a [`Client`], from [`Client::builder`].
///
/// ```no_run
/// # async fn example() -> Result<(), torc_client::Error> {
/// use std::time::Duration;
///
/// let client = torc_client::Client::builder()
///     .endpoints(["http://10.0.0.1:7400", "http://10.0.0.2:7400"])
///     .deadline(Duration::from_secs(2))
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `connect`"]
pub struct ClientBuilder {
    endpoints: Vec<String>,
    namespace: String,
    deadline: Duration,
    connect_timeout: Duration,
    first_contact: Duration,
    channels: usize,
    hot_keys: bool,
    tls: Option<ClientTls>,
    token: Option<Secret>,
    spans: Option<SpanSink>,
}

/// Text that `Debug` hides.
#[derive(Clone)]
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Setting up.
impl Client {
    /// Settings of a new client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Connects with default settings to the cluster of the nodes at `endpoints`
    /// (`http://host:port` or `host:port`).
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    pub async fn connect<I, S>(endpoints: I) -> Result<Self, Error>
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        Self::builder().endpoints(endpoints).connect().await
    }
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            namespace: DEFAULT_NAMESPACE.to_owned(),
            deadline: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(1),
            first_contact: Duration::MAX,
            channels: 4,
            hot_keys: true,
            tls: None,
            token: None,
            spans: None,
        }
    }
}

impl ClientBuilder {
    /// Adds nodes to contact first: `host:port`, `http://host:port`, or `https://host:port`
    /// with [`tls`](Self::tls). One live node is enough, since it knows the others; name
    /// several in case one is down.
    pub fn endpoints<I, S>(mut self, endpoints: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        self.endpoints.extend(endpoints.into_iter().map(Into::into));
        self
    }

    /// The namespace of the client's operations. Default: `default`.
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = name.into();
        self
    }

    /// Time limit of an operation with all its retries. Default: 10 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline.min(LONGEST_DEADLINE);
        self
    }

    /// The time after which an address counts as unreachable. Default: 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long a client that has never reached a node keeps trying, within an operation's
    /// deadline. Default: until that deadline, so clients may start before the cluster.
    pub fn first_contact(mut self, time: Duration) -> Self {
        self.first_contact = time;
        self
    }

    /// Connections to each node, 1 to 64, opened on demand. Default: 4, the fastest of
    /// 1, 4 and 16 with 64 operations in flight.
    pub fn channels_per_node(mut self, channels: usize) -> Self {
        self.channels = channels;
        self
    }

    /// Whether to relieve hot keys, which nodes mark in their answers: gets of such a key
    /// go to its replicas in turn instead of to the lead, and concurrent gets share a
    /// request (see [`Client::get`]). Default: true.
    pub fn mitigate_hot_keys(mut self, enabled: bool) -> Self {
        self.hot_keys = enabled;
        self
    }

    /// Encrypts every connection, and sends the client's certificate, if any. A node's
    /// certificate must be valid for the name or address that the client connects to. Default:
    /// no TLS.
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// A token that identifies this client, `id.secret` as `kvctl token create` prints it. It
    /// overrides the client certificate. It needs TLS: without [`tls`](Self::tls), connecting
    /// fails. Default: no token.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Secret(token.into()));
        self
    }

    /// Makes the client create its own span for each traced get, put and delete
    /// ([`Client::with_trace`], [`Client::with_sampling`]), and pass it to this function at its
    /// end. The function must not block. Default: no spans.
    pub fn on_span(mut self, told: impl Fn(ClientSpan) + Send + Sync + 'static) -> Self {
        self.spans = Some(SpanSink::new(told));
        self
    }

    /// Creates a client and fetches the cluster's topology, so operations go to the
    /// right node at once. Waits for a cluster that is still forming.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a malformed endpoint or setting, or no endpoint at
    /// all; [`ErrorKind::Unavailable`] or [`ErrorKind::Deadline`] if no endpoint sent a
    /// topology within the deadline.
    pub async fn connect(self) -> Result<Client, Error> {
        let client = self.connect_lazy()?;
        client.topology().await?;
        Ok(client)
    }

    /// Creates a client that connects only at its first operation.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a malformed endpoint or setting, or no endpoint at
    /// all.
    pub fn connect_lazy(self) -> Result<Client, Error> {
        if self.endpoints.is_empty() {
            return Err(invalid("no endpoints: name at least one node, host:port"));
        }
        if !(1..=64).contains(&self.channels) {
            return Err(invalid("channels per node: use 1 to 64"));
        }
        let times = [self.deadline, self.connect_timeout, self.first_contact];
        if times.iter().any(Duration::is_zero) {
            return Err(invalid("a time limit must not be zero"));
        }
        let mut seeds = Vec::with_capacity(self.endpoints.len());
        for endpoint in &self.endpoints {
            let seed = authority(endpoint, self.tls.is_some())?;
            if !seeds.contains(&seed) {
                seeds.push(seed);
            }
        }
        let token = self.token.map(|text| text.0.parse::<Bearer>()).transpose();
        let token = token.map_err(|error| invalid(error.to_string()))?;
        if token.is_some() && self.tls.is_none() {
            return Err(invalid(
                "a token needs TLS, so that it stays secret: set the authorities to \
                 trust",
            ));
        }
        let config = Config {
            seeds,
            connect_timeout: self.connect_timeout,
            first_contact: self.first_contact,
            channels: self.channels,
            hot_keys: self.hot_keys,
            tls: self.tls.map(|tls| tls.connector()),
            token,
        };
        let core = Arc::new(Core::new(config)?);
        Ok(Client::new(core, self.namespace, self.deadline, self.spans))
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

/// `host:port` of an endpoint as users write it.
fn authority(endpoint: &str, tls: bool) -> Result<String, Error> {
    let refused = || {
        invalid(format!(
            "`{endpoint}` is not an endpoint: use host:port, http://host:port or https://host:port"
        ))
    };
    let bare = match (
        endpoint.strip_prefix("https://"),
        endpoint.strip_prefix("http://"),
    ) {
        (Some(_), _) if !tls => {
            let why = format!("`{endpoint}` needs TLS: set the authorities to trust");
            return Err(invalid(why));
        }
        (_, Some(_)) if tls => {
            let why = format!("`{endpoint}` would not be encrypted: use https:// or host:port");
            return Err(invalid(why));
        }
        (Some(bare), _) | (_, Some(bare)) => bare,
        (None, None) => endpoint,
    };
    let bare = bare.strip_suffix('/').unwrap_or(bare);
    let parsed: http::uri::Authority = bare.parse().map_err(|_| refused())?;
    let has_user = bare.contains('@');
    if parsed.host().is_empty() || has_user || parsed.port_u16().is_none() {
        return Err(refused());
    }
    Ok(bare.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_may_be_written_with_and_without_scheme() {
        for (text, seed) in [
            ("http://127.0.0.1:7400", "127.0.0.1:7400"),
            ("http://127.0.0.1:7400/", "127.0.0.1:7400"),
            ("node-1:7400", "node-1:7400"),
            ("[::1]:7400", "[::1]:7400"),
        ] {
            assert_eq!(authority(text, false).as_deref(), Ok(seed), "{text}");
        }
    }

    #[test]
    fn what_is_not_an_endpoint_is_refused_before_anything_is_sent() {
        for text in [
            "",
            "localhost",
            ":7400",
            "http://",
            "https://node:7400",
            "ftp://node:7400",
            "node:7400/path",
            "node:70000",
            "user@node:7400",
            "no de:7400",
        ] {
            let refused = authority(text, false).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{text:?}");
        }
    }

    #[test]
    fn with_tls_nothing_is_sent_in_the_clear() {
        for text in ["https://node:7400/", "node:7400"] {
            assert_eq!(authority(text, true).as_deref(), Ok("node:7400"), "{text}");
        }
        let refused = authority("http://node:7400", true).unwrap_err();
        assert!(refused.message().contains("not be encrypted"), "{refused}");
    }

    #[test]
    fn a_token_needs_tls_and_shows_nowhere() {
        let token = Bearer::new(7, [0xab; 32]).reveal();
        let builder = || ClientBuilder::default().endpoints(["node:7400"]);
        for token in [token.as_str(), "abab", ""] {
            let builder = builder().token(token);
            assert!(!format!("{builder:?}").contains("abab"));
            let refused = builder.connect_lazy().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid);
            assert!(!format!("{refused} {refused:?}").contains("abab"));
        }
        let refused = builder().token(token).connect_lazy().unwrap_err();
        assert!(refused.message().contains("TLS"), "{refused}");
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let good = || ClientBuilder::default().endpoints(["node:7400"]);
        let bad = [
            ClientBuilder::default(),
            good().channels_per_node(0),
            good().channels_per_node(65),
            good().deadline(Duration::ZERO),
            good().connect_timeout(Duration::ZERO),
            good().first_contact(Duration::ZERO),
        ];
        for builder in bad {
            let refused = builder.connect_lazy().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid);
        }
    }
}
