//! Nodes that found one cluster.

use std::path::Path;

use anyhow::Result;

use super::Node;
use crate::report::TORC;

/// Replicas of each key in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replicas {
    /// The default of kvd.
    Default,
    One,
}

impl Replicas {
    /// The default first: tables show it without a number.
    pub(crate) const ALL: [Self; 2] = [Self::Default, Self::One];

    /// The name of this kind of cluster in reports.
    pub(crate) const fn subject(self) -> &'static str {
        match self {
            Self::Default => TORC,
            Self::One => "torc, 1 replica",
        }
    }

    /// kvd's settings for it.
    pub(crate) fn settings(self) -> Vec<String> {
        match self {
            Self::Default => Vec::new(),
            Self::One => vec!["--replicas=1".to_owned()],
        }
    }
}

/// A note for reports that explains the columns.
pub(crate) const REPLICAS_NOTE: &str =
    "torc: a cluster as it is by default, with three replicas of each key";

/// Nodes that found a cluster together when they are started, the founder last. Without other
/// settings the cluster has kvd's default of three replicas.
///
/// # Errors
/// No free address, or a directory cannot be created.
pub(crate) fn prepare(
    program: &Path,
    dir: &Path,
    count: usize,
    extra: &[String],
) -> Result<Vec<Node>> {
    let mut nodes = Vec::new();
    for number in 1..count {
        let dir = dir.join(format!("node-{number}"));
        nodes.push(Node::prepare(program, dir, extra.to_vec())?);
    }
    let others: Vec<String> = nodes.iter().map(|node| node.grpc.to_string()).collect();
    let mut founding = [extra, &["--bootstrap".to_owned()]].concat();
    if !others.is_empty() {
        founding.push(format!("--found-with={}", others.join(",")));
    }
    nodes.push(Node::prepare(program, dir.join("founder"), founding)?);
    Ok(nodes)
}

/// Starts nodes.
///
/// # Errors
/// The program cannot be run.
pub(crate) fn start(mut nodes: Vec<Node>) -> Result<Vec<Node>> {
    for node in &mut nodes {
        node.start()?;
    }
    Ok(nodes)
}

/// Waits until all serve.
///
/// # Errors
/// A node has ended, or does not become ready in time.
pub(crate) async fn ready(mut nodes: Vec<Node>) -> Result<Vec<Node>> {
    for node in &mut nodes {
        node.ready().await?;
    }
    Ok(nodes)
}

/// Founds a cluster and waits until it serves; see [`prepare`].
///
/// # Errors
/// kvd does not start, or does not become ready in time.
pub(crate) async fn found(
    program: &Path,
    dir: &Path,
    count: usize,
    extra: &[String],
) -> Result<Vec<Node>> {
    ready(start(prepare(program, dir, count, extra)?)?).await
}
