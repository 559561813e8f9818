//! The processes of one cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;
use torc_client::{Client, NodeId};

use super::process::Process;
use super::{Error, Options};

const FOUNDING: Duration = Duration::from_secs(60);

pub(super) struct Group {
    pub(super) processes: Vec<Process>,
    /// Who each process is in the cluster.
    pub(super) ids: Vec<NodeId>,
    dir: Option<TempDir>,
}

impl Group {
    /// Starts processes that found a cluster together, and waits until each serves.
    pub(super) async fn found(kvd: &Path, options: &Options) -> Result<Self, Error> {
        let dir = tempfile::Builder::new()
            .prefix("torc-cluster-")
            .tempdir()
            .map_err(Error::io("making a temporary directory"))?;
        let prepare = |number| Process::prepare(kvd, dir.path().join(format!("node-{number}")));
        let processes: Result<Vec<_>, _> = (1..=options.nodes).map(prepare).collect();
        let mut processes = processes?;
        let others: Vec<_> = processes[1..].iter().map(|p| p.grpc.to_string()).collect();
        for process in &mut processes {
            process.also(format!("--partitions={}", options.partitions));
            process.also("--replicas=3".to_owned());
        }
        processes[0].also("--bootstrap".to_owned());
        processes[0].also(format!("--found-with={}", others.join(",")));
        for process in &mut processes {
            process.start()?;
        }
        let mut group = Self {
            processes,
            ids: Vec::new(),
            dir: Some(dir),
        };
        group.ids = group.wait_until_served().await?;
        Ok(group)
    }

    /// A client of the library; it knows all nodes.
    pub(super) fn client(&self) -> Result<Client, Error> {
        let endpoints = self
            .processes
            .iter()
            .map(|process| process.grpc.to_string());
        let builder = Client::builder().endpoints(endpoints).channels_per_node(1);
        Ok(builder.deadline(Duration::from_secs(2)).connect_lazy()?)
    }

    /// Keeps the processes' directories, and says where they are.
    pub(super) fn keep(&mut self) -> Option<PathBuf> {
        self.dir.take().map(TempDir::keep)
    }

    async fn wait_until_served(&self) -> Result<Vec<NodeId>, Error> {
        let client = self.client()?;
        let until = Instant::now() + FOUNDING;
        while Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let Ok(status) = client.status().await else {
                continue;
            };
            let id = |process: &Process| {
                let address = process.grpc.to_string();
                let is_it = |node: &&torc_client::NodeStatus| node.member.address == address;
                let found = status.nodes.iter().find(is_it)?;
                found.ready.then_some(found.member.id)
            };
            let ids: Option<Vec<_>> = self.processes.iter().map(id).collect();
            if let Some(ids) = ids {
                return Ok(ids);
            }
        }
        Err(Error::NotFounded(FOUNDING))
    }
}
