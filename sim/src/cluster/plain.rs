//! A cluster of three nodes without faults, for other modules.

use std::net::SocketAddr;
use std::path::PathBuf;

use torc_client::{Client, NodeId};

use super::group::Group;
use super::process::{Certificates, Process};
use super::{Error, Mode, Options};

/// Three nodes; each partition has three replicas.
pub(crate) struct PlainCluster(Group);

/// A node of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlainNode {
    pub(crate) id: NodeId,
    pub(crate) grpc: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) resp: SocketAddr,
    pub(crate) pid: u32,
}

impl PlainCluster {
    /// Starts the nodes with this limit on open files, and waits until all serve. Without
    /// certificates they speak plain text.
    pub(crate) async fn found(
        kvd: Option<PathBuf>,
        descriptors: u32,
        tls: Option<Certificates>,
    ) -> Result<Self, Error> {
        let options = options(kvd);
        let mut program = options.program()?;
        program.descriptors = Some(descriptors);
        program.tls = tls;
        let no_disks = Some("not asked for".to_owned());
        Group::found(program, &options, no_disks).await.map(Self)
    }

    /// The running nodes, in the order of their start.
    pub(crate) fn nodes(&self) -> Vec<PlainNode> {
        let node = |process: &Process| {
            Some(PlainNode {
                id: process.id?,
                grpc: process.kvd.grpc,
                peer: process.kvd.peer,
                http: process.kvd.http,
                resp: process.kvd.resp,
                pid: process.kvd.pid().ok()?,
            })
        };
        self.0.processes.iter().filter_map(node).collect()
    }

    /// A client of the library, which knows all nodes.
    pub(crate) fn client(&self) -> Result<Client, Error> {
        self.0.client()
    }

    /// The nodes that have exited without being told to, and how.
    pub(crate) fn ended(&mut self) -> Vec<String> {
        self.0.ended()
    }

    /// Stops the nodes, and keeps their logs and data; returns where.
    pub(crate) fn keep(&mut self) -> Option<PathBuf> {
        self.0.keep()
    }
}

const fn options(kvd: Option<PathBuf>) -> Options {
    Options {
        minutes: None,
        kills: None,
        changes: None,
        pause_seconds: None,
        deadline_seconds: Some(10),
        by_library: true,
        generations: false,
        mutant: None,
        nodes: 3,
        replicas: 3,
        mode: Mode::Linearizable,
        seed: 0,
        partitions: 64,
        clients: 0,
        kvd,
        real_network: false,
        only: Vec::new(),
        keep: None,
        json: false,
    }
}
