//! A whole cluster in one process, to try things out.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{ConfigError, RawSettings};
use crate::node::{Node, NodeError};

/// How many nodes, where.
#[derive(Debug, Clone)]
pub struct PlaygroundOptions {
    /// 1 to 16.
    pub nodes: u16,
    /// Keeps the data; none: a temporary directory that is removed.
    pub data_dir: Option<PathBuf>,
    /// gRPC ports count up from here.
    pub first_grpc_port: u16,
    /// HTTP ports count up from here.
    pub first_http_port: u16,
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
    /// There is no room for temporary data.
    #[error("no temporary directory: {0}")]
    Temporary(#[from] std::io::Error),
    /// The nodes run, but did not become a cluster in time.
    #[error("the cluster did not form: {0}")]
    NotFormed(String),
}

/// The running nodes.
#[derive(Debug)]
pub struct Playground {
    nodes: Vec<Node>,
    dir: PathBuf,
    temporary: Option<tempfile::TempDir>,
}

const FORMS_WITHIN: Duration = Duration::from_secs(30);

impl Playground {
    /// Starts the nodes and waits until they are a cluster.
    ///
    /// # Errors
    /// [`PlaygroundError`]; nothing keeps running then.
    pub async fn start(options: PlaygroundOptions) -> Result<Self, PlaygroundError> {
        let (dir, temporary) = if let Some(dir) = options.data_dir.clone() {
            (dir, None)
        } else {
            let made = tempfile::Builder::new()
                .prefix("torc-playground-")
                .tempdir()?;
            (made.path().to_owned(), Some(made))
        };
        let mut nodes = Vec::new();
        for number in 0..options.nodes {
            nodes.push(Node::start(settings(&options, &dir, number).check()?).await?);
        }
        let playground = Self {
            nodes,
            dir,
            temporary,
        };
        let formed = tokio::time::timeout(FORMS_WITHIN, playground.formed()).await;
        formed.map_err(|_| {
            let why = playground.nodes.iter().find_map(|node| node.ready().err());
            PlaygroundError::NotFormed(why.unwrap_or_default())
        })?;
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

    /// What to show a newcomer.
    #[must_use]
    pub fn welcome(&self) -> String {
        let mut text = String::from("A Torc cluster is running in this process.\n\n");
        for (index, node) in self.nodes.iter().enumerate() {
            let (grpc, http) = (node.grpc_addr(), node.http_addr());
            let _ = writeln!(
                text,
                "  node {}   gRPC http://{grpc}   HTTP http://{http}",
                index + 1
            );
        }
        let kept = match &self.temporary {
            Some(_) => "removed when it stops; keep it with --data-dir DIR",
            None => "kept",
        };
        let _ = writeln!(text, "  data     {} ({kept})", self.dir.display());
        let kvctl = match self.nodes.first() {
            Some(node) if node.grpc_addr().port() != 7401 => {
                format!("kvctl --endpoint http://{}", node.grpc_addr())
            }
            _ => "kvctl".to_owned(),
        };
        let _ = write!(
            text,
            "\nTry, in another terminal (`cargo install --path kvctl`, or `cargo run --release --bin kvctl --`):\n\n  \
             {kvctl} put greeting 'hello, ring'\n  \
             {kvctl} get greeting\n  \
             {kvctl} explain greeting\n\n\
             Ctrl-C stops it.\n"
        );
        text
    }

    /// Stops all nodes; removes the data if it was temporary.
    ///
    /// # Errors
    /// The first node's error, after all were stopped.
    pub async fn stop(self) -> Result<(), PlaygroundError> {
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
    let address = |n: u16| local(options.first_grpc_port + n).to_string();
    let founder = number == 0;
    RawSettings {
        data_dir: Some(dir.join(format!("node-{}", number + 1))),
        grpc_addr: Some(local(options.first_grpc_port + number)),
        http_addr: Some(local(options.first_http_port + number)),
        bootstrap: Some(founder),
        found_with: founder.then(|| others.map(address).collect()),
        ..RawSettings::default()
    }
}
