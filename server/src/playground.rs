//! A whole cluster in one process, for experiments.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::BoxFuture;

use torc_access::tls_dir::{TlsDir, TlsDirError};

use crate::config::{ConfigError, RawSettings};
use crate::error::NodeError;
use crate::first_use::FirstUse;
use crate::node::Node;

/// Number and ports of the nodes.
#[derive(Debug, Clone)]
pub struct PlaygroundOptions {
    /// 1 to 16.
    pub nodes: u16,
    /// gRPC ports count up from here.
    pub first_grpc_port: u16,
    /// Ports for other nodes count up from here.
    pub first_peer_port: u16,
    /// HTTP ports count up from here.
    pub first_http_port: u16,
    /// Ports for Redis clients count up from here.
    pub first_resp_port: u16,
    /// Settings of every node. Without a data directory, the playground uses a temporary one.
    pub settings: RawSettings,
}

/// Why the playground did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaygroundError {
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A node did not start.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// Creating the temporary directory failed.
    #[error("cannot create a temporary directory: {0}")]
    Temporary(#[from] std::io::Error),
    /// The nodes run, but did not form a cluster in time.
    #[error("the cluster did not form: {0}")]
    NotFormed(String),
}

/// The running nodes.
#[derive(Debug)]
pub struct Playground {
    nodes: Vec<Node>,
    dir: PathBuf,
    temporary: Option<tempfile::TempDir>,
    is_secure: bool,
    first_use: Option<FirstUse>,
}

const FORMS_WITHIN: Duration = Duration::from_secs(30);
/// Short, and any memtable is worth a flush, so that `explain` soon shows the slice of a key.
const FLUSH_AFTER_S: u64 = 5;
const FLUSH_LEAST_BYTES: u64 = 1;

impl Playground {
    /// Starts the nodes, and waits until they have formed a cluster.
    ///
    /// # Errors
    /// [`PlaygroundError`]; no node is left running.
    // Boxed for the same reason as `Node::start`.
    #[must_use = "nothing happens unless it is awaited"]
    pub fn start(options: PlaygroundOptions) -> BoxFuture<'static, Result<Self, PlaygroundError>> {
        Box::pin(Self::begin(options))
    }

    async fn begin(options: PlaygroundOptions) -> Result<Self, PlaygroundError> {
        check_own(&options.settings)?;
        let (dir, temporary) = if let Some(dir) = options.settings.data_dir.clone() {
            (dir, None)
        } else {
            let made = tempfile::Builder::new()
                .prefix("torc-playground-")
                .tempdir()?;
            (made.path().to_owned(), Some(made))
        };
        if options.settings.secure == Some(true) {
            share_authority(&dir, options.nodes).map_err(NodeError::from)?;
        }
        let (mut nodes, mut is_secure) = (Vec::new(), false);
        for number in 0..options.nodes {
            let mut settings = settings(&options, &dir, number).check()?;
            settings.store.flush_least_bytes = FLUSH_LEAST_BYTES;
            is_secure = settings.secure.is_some();
            nodes.push(Node::start(settings).await?);
        }
        let mut playground = Self {
            nodes,
            dir,
            temporary,
            is_secure,
            first_use: None,
        };
        let formed = tokio::time::timeout(FORMS_WITHIN, playground.formed()).await;
        formed.map_err(|_| {
            let why = playground.nodes.iter().find_map(|node| node.ready().err());
            PlaygroundError::NotFormed(why.unwrap_or_default())
        })?;
        if let Some(founder) = playground.nodes.first() {
            playground.first_use = founder.first_use().await;
        }
        Ok(playground)
    }

    async fn formed(&self) {
        while self.nodes.iter().any(|node| node.ready().is_err()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The running nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Call this after showing [`welcome`](Self::welcome), so that later starts do not create first
    /// tokens again.
    ///
    /// # Errors
    /// [`NodeError::TlsDir`].
    pub fn told(&self) -> Result<(), NodeError> {
        let founder = self.first_use.as_ref().and(self.nodes.first());
        founder.map_or(Ok(()), Node::told_first_use)
    }

    /// The text to show to the user.
    #[must_use]
    pub fn welcome(&self) -> String {
        let (what, http_scheme) = if self.is_secure {
            ("A secure Torc cluster", "https")
        } else {
            ("A Torc cluster", "http")
        };
        let mut text = format!("{what} is running in this process.\n\n");
        for (index, node) in self.nodes.iter().enumerate() {
            let (grpc, http) = (node.grpc_addr(), node.http_addr());
            let _ = write!(
                text,
                "  node {}   gRPC {http_scheme}://{grpc}   HTTP {http_scheme}://{http}",
                index + 1
            );
            if let Some(resp) = node.resp_addr() {
                let _ = write!(text, "   Redis {resp}");
            }
            text.push('\n');
        }
        let kept = match &self.temporary {
            Some(_) => "deleted on exit; keep it with --data-dir DIR",
            None => "kept",
        };
        let _ = writeln!(text, "  data     {} ({kept})", self.dir.display());
        if let Some(node) = self.nodes.first() {
            let _ = writeln!(text, "  console  {http_scheme}://{}/", node.http_addr());
        }
        let kvctl = match self.nodes.first() {
            Some(node) if node.grpc_addr().port() != 7401 && !self.is_secure => {
                format!("kvctl --endpoint http://{}", node.grpc_addr())
            }
            _ => "kvctl".to_owned(),
        };
        if let Some(first) = &self.first_use {
            let (address, token) = (&first.join.address, first.admin.reveal());
            let _ = write!(
                text,
                "\nFirst log in, in another terminal. Enter this token, which is not printed again:\n\n  \
                 kvctl login {address}\n  {token}\n"
            );
        }
        let _ = write!(
            text,
            "\nTry in another terminal (`cargo install --path kvctl`, or `cargo run --release --bin kvctl --`):\n\n  \
             {kvctl} put greeting 'hello, ring'\n  \
             {kvctl} get greeting\n  \
             {kvctl} flush\n  \
             {kvctl} explain greeting\n\n\
             Stop with Ctrl-C.\n"
        );
        text
    }

    /// Stops all nodes; removes the data if it was temporary.
    ///
    /// # Errors
    /// The first node's error, after all nodes were stopped.
    #[must_use = "nothing happens unless it is awaited"]
    pub fn stop(self) -> BoxFuture<'static, Result<(), PlaygroundError>> {
        Box::pin(self.end())
    }

    async fn end(self) -> Result<(), PlaygroundError> {
        let stopped = futures::future::join_all(self.nodes.into_iter().map(Node::stop)).await;
        stopped
            .into_iter()
            .collect::<Result<Vec<()>, NodeError>>()?;
        Ok(())
    }
}

fn settings(options: &PlaygroundOptions, dir: &Path, number: u16) -> RawSettings {
    let local = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let others = 1..options.nodes;
    let address = |n: u16| local(options.first_peer_port + n).to_string();
    let founder = number == 0;
    RawSettings {
        data_dir: Some(dir.join(format!("node-{}", number + 1))),
        grpc_addr: Some(local(options.first_grpc_port + number)),
        peer_addr: Some(local(options.first_peer_port + number)),
        http_addr: Some(local(options.first_http_port + number)),
        resp_addr: Some(local(options.first_resp_port + number)),
        bootstrap: Some(founder),
        found_with: founder.then(|| others.map(address).collect()),
        flush_after_s: options.settings.flush_after_s.or(Some(FLUSH_AFTER_S)),
        ..options.settings.clone()
    }
}

/// All nodes start at the same time, so none can enrol at another: they share an authority.
fn share_authority(dir: &Path, nodes: u16) -> Result<(), TlsDirError> {
    let of = |number| TlsDir::of(&dir.join(format!("node-{number}")));
    let founder = of(1);
    if !founder.is_complete() {
        founder.found()?;
    }
    let others = (2..=nodes).map(of).filter(|other| !other.is_complete());
    others
        .into_iter()
        .try_for_each(|other| founder.share(&other))
}

/// Settings that the playground makes itself for each node, and what to do instead.
pub const OWN_SETTINGS: [(&str, &str); 11] = [
    ("grpc-addr", USE_FIRST_GRPC_PORT),
    ("peer-addr", "use --first-peer-port"),
    ("http-addr", "use --first-http-port"),
    ("resp-addr", "use --first-resp-port"),
    ("advertise-addr", USE_FIRST_GRPC_PORT),
    ("advertise-peer-addr", "use --first-peer-port"),
    ("advertise-http-addr", "use --first-http-port"),
    ("advertise-resp-addr", "use --first-resp-port"),
    ("bootstrap", LEAVE_OUT),
    ("found-with", LEAVE_OUT),
    ("join", LEAVE_OUT),
];
const USE_FIRST_GRPC_PORT: &str = "use --first-grpc-port";
const LEAVE_OUT: &str = "leave it out";

/// Refuses settings that the playground makes itself.
fn check_own(settings: &RawSettings) -> Result<(), ConfigError> {
    let is_set = [
        settings.grpc_addr.is_some(),
        settings.peer_addr.is_some(),
        settings.http_addr.is_some(),
        settings.resp_addr.is_some(),
        settings.advertise_addr.is_some(),
        settings.advertise_peer_addr.is_some(),
        settings.advertise_http_addr.is_some(),
        settings.advertise_resp_addr.is_some(),
        settings.bootstrap.is_some(),
        settings.found_with.is_some(),
        settings.join.is_some(),
    ];
    let mut set = OWN_SETTINGS
        .iter()
        .zip(is_set)
        .filter(|(_, is_set)| *is_set);
    match set.next() {
        Some(((setting, advice), _)) => Err(ConfigError::Setting {
            setting,
            problem: format!("is set by the playground for each of its nodes: {advice}"),
        }),
        None => Ok(()),
    }
}
