//! Three nodes that found a cluster, and a spare node.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use torc_client::{Client, Transition};
use torc_testkit::Kvd;

use crate::kvd::{self, Replicas};
use crate::process;

/// Nodes before the join.
pub(super) const FOUNDERS: usize = 3;
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Longer than any join here takes; detects a hang.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// Nodes, killed when dropped.
pub(super) struct Cluster {
    program: PathBuf,
    dir: PathBuf,
    nodes: Vec<Kvd>,
}

impl Cluster {
    pub(super) async fn found(program: &Path, dir: &Path, replicas: Replicas) -> Result<Self> {
        let nodes = kvd::found(program, dir, FOUNDERS, &replicas.settings()).await?;
        Ok(Self {
            program: program.to_owned(),
            dir: dir.to_owned(),
            nodes,
        })
    }

    pub(super) async fn client(&self) -> Result<Client> {
        let builder = Client::builder().endpoints(self.nodes.iter().map(Kvd::endpoint));
        Ok(builder.deadline(Duration::from_secs(30)).connect().await?)
    }

    /// Starts a node outside any cluster; returns its address.
    pub(super) async fn spare(&mut self) -> Result<String> {
        let mut node = kvd::prepare(&self.program, self.dir.join("spare"), &[])?;
        node.start()?;
        node.listens().await?;
        let address = node.grpc.to_string();
        self.nodes.push(node);
        Ok(address)
    }

    /// Kills a node and restarts it; returns the time until it serves.
    pub(super) async fn restart_one(&mut self) -> Result<Duration> {
        let node = self.nodes.first_mut().context("no node")?;
        node.kill_9();
        let started = Instant::now();
        node.start()?;
        node.ready().await?;
        Ok(started.elapsed())
    }

    /// Waits until every node sees every other.
    pub(super) async fn all_ready(&self, client: &Client) -> Result<()> {
        let give_up = Instant::now() + TIMEOUT;
        loop {
            let status = client.status().await?;
            let sound =
                status.topology_leader.is_some() && status.nodes.iter().all(|node| node.ready);
            if sound {
                return Ok(());
            }
            if Instant::now() > give_up {
                bail!("the cluster does not come back after a node was killed");
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Memory of all nodes together.
    pub(super) fn resident_bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for node in &self.nodes {
            bytes += process::memory(node.pid()?)?.resident_bytes;
        }
        Ok(bytes)
    }
}

/// Waits until a transition has ended.
pub(super) async fn finished(client: &Client, number: u64) -> Result<Transition> {
    let give_up = Instant::now() + TIMEOUT;
    while Instant::now() < give_up {
        let last = client.status().await?.last_transition;
        if let Some(last) = last.filter(|last| last.id == number) {
            return Ok(last);
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
    bail!("the join has not ended after {TIMEOUT:?}")
}
