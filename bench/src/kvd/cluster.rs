//! Nodes that are founded as one cluster.

use std::path::Path;

use anyhow::Result;

use super::Node;

/// Fewer than a cluster has by default: so few records need no more.
const PARTITIONS: &str = "--partitions=1024";

/// Starts nodes with three replicas of each key, and waits until they serve.
///
/// # Errors
/// kvd does not start, or does not get there.
pub(crate) async fn found(
    program: &Path,
    dir: &Path,
    count: usize,
    extra: &[String],
) -> Result<Vec<Node>> {
    let settings = |more: &[String]| {
        let usual = ["--replicas=3", PARTITIONS].map(str::to_owned);
        [&usual[..], extra, more].concat()
    };
    let mut nodes = Vec::new();
    for number in 1..count {
        let dir = dir.join(format!("node-{number}"));
        nodes.push(Node::prepare(program, dir, settings(&[]))?);
    }
    let others: Vec<String> = nodes.iter().map(|node| node.grpc.to_string()).collect();
    let founding = [
        "--bootstrap".to_owned(),
        format!("--found-with={}", others.join(",")),
    ];
    let founder = dir.join("founder");
    nodes.push(Node::prepare(program, founder, settings(&founding))?);
    for node in &mut nodes {
        node.start()?;
    }
    for node in &mut nodes {
        node.ready().await?;
    }
    Ok(nodes)
}
