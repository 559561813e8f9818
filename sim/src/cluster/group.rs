//! The processes of one cluster.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;
use torc_client::{Client, NamespaceMode, NodeId};
use torc_record::NamespaceId;

use super::network::Network;
use super::process::{Process, Program};
use super::{Error, Mode, Options};

const STARTING: Duration = Duration::from_secs(60);
/// One of this many processes has a disk that can be filled.
const SMALL_DISK_EVERY: u32 = 3;

/// A node that clients may call directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contact {
    pub(super) number: u32,
    pub(super) address: SocketAddr,
}

impl Contact {
    const fn of(process: &Process) -> Self {
        Self {
            number: process.number,
            address: process.kvd.grpc,
        }
    }
}

/// The nodes that clients may call directly, updated as the cluster changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Contacts(Arc<RwLock<Vec<Contact>>>);

impl Contacts {
    pub(super) fn present(&self) -> Vec<Contact> {
        let contacts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        contacts.clone()
    }

    fn set(&self, contacts: Vec<Contact>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = contacts;
    }
}

pub(super) struct Group {
    pub(super) processes: Vec<Process>,
    pub(super) contacts: Contacts,
    /// Whether clients drop some of their calls at present.
    pub(super) drops_calls: Arc<AtomicBool>,
    /// Why there are no disks that can be filled; `None` if there are.
    pub(super) no_small_disks: Option<String>,
    network: Option<Network>,
    program: Program,
    partitions: u32,
    pub(super) replicas: u8,
    /// The namespace of the clients, if it is not the default one.
    namespace: Option<(String, NamespaceId)>,
    started: u32,
    deadline: Duration,
    dir: Option<TempDir>,
    within: PathBuf,
}

impl Group {
    /// Starts processes that found a cluster together, and waits until each serves. Unless
    /// `no_small_disks` is set, some have disks that can be filled.
    pub(super) async fn found(
        program: Program,
        options: &Options,
        no_small_disks: Option<String>,
    ) -> Result<Self, Error> {
        let dir = tempfile::Builder::new()
            .prefix("torc-cluster-")
            .tempdir()
            .map_err(Error::io("making a temporary directory"))?;
        let network = options.real_network.then(Network::make);
        let mut group = Self {
            processes: Vec::new(),
            network: network.transpose().map_err(Error::NoNetwork)?,
            contacts: Contacts::default(),
            drops_calls: Arc::default(),
            no_small_disks,
            program,
            partitions: options.partitions,
            replicas: options.replicas,
            namespace: None,
            started: 0,
            deadline: options.deadline(),
            within: dir.path().to_owned(),
            dir: Some(dir),
        };
        for _ in 0..options.nodes() {
            let process = group.prepare()?;
            group.processes.push(process);
        }
        if let Some((founder, others)) = group.processes.split_first_mut() {
            let others = others.iter().map(|process| process.kvd.grpc);
            founder.kvd.found_with(others);
        }
        for process in &mut group.processes {
            process.start()?;
        }
        group.wait_until_served().await?;
        if options.mode == Mode::Eventual {
            let made = group
                .client()?
                .with_deadline(STARTING)
                .create_namespace("eventual", NamespaceMode::Eventual, None)
                .await?;
            group.namespace = Some((made.name, made.id));
        }
        Ok(group)
    }

    fn prepare(&mut self) -> Result<Process, Error> {
        self.started += 1;
        let flags = [
            format!("--partitions={}", self.partitions),
            format!("--replicas={}", self.replicas),
        ];
        let network = self.network.as_ref();
        let mut process =
            Process::prepare(&self.program, self.started, &self.within, network, &flags)?;
        if self.no_small_disks.is_none() && self.started % SMALL_DISK_EVERY == 2 {
            self.no_small_disks = process.use_small_disk().err();
        }
        Ok(process)
    }

    /// Starts an empty node that is not a member yet; returns its number.
    pub(super) fn spare(&mut self) -> Result<u32, Error> {
        let mut process = self.prepare()?;
        process.start()?;
        let number = process.number;
        self.processes.push(process);
        Ok(number)
    }

    pub(super) fn process(&mut self, number: u32) -> Option<&mut Process> {
        let mut processes = self.processes.iter_mut();
        processes.find(|process| process.number == number)
    }

    /// Notes that a process has become a member.
    pub(super) fn admit(&mut self, number: u32, id: NodeId) {
        if let Some(process) = self.process(number) {
            process.id = Some(id);
        }
        self.tell_clients();
    }

    /// A member is about to leave: clients stop calling it directly.
    pub(super) fn see_off(&mut self, number: u32) {
        if let Some(process) = self.process(number) {
            process.is_going = true;
        }
        self.tell_clients();
    }

    /// A process is no longer a member: kills it and deletes its data; keeps its log.
    pub(super) fn forget(&mut self, number: u32) {
        if let Some(process) = self.process(number) {
            // Leftovers are removed with the run's directory.
            let _ = process.lose_data();
        }
        self.processes.retain(|process| process.number != number);
        self.tell_clients();
    }

    /// The indices of processes that are members and will stay.
    pub(super) fn members(&self) -> Vec<usize> {
        let is_member = |index: &usize| {
            let process = &self.processes[*index];
            process.id.is_some() && !process.is_going
        };
        (0..self.processes.len()).filter(is_member).collect()
    }

    /// The addresses of nodes with their own, by node.
    pub(super) fn own_addresses(&self) -> BTreeMap<u64, Ipv4Addr> {
        let processes = self.processes.iter();
        let addresses = processes.filter_map(|p| Some((p.id?.0, p.own_address()?)));
        addresses.collect()
    }

    pub(super) fn tell_clients(&self) {
        let members = self.members().into_iter();
        let contacts = members.map(|index| Contact::of(&self.processes[index]));
        self.contacts.set(contacts.collect());
    }

    /// Members that must coordinate every request.
    pub(super) fn coordinators(&self) -> Vec<Contact> {
        let members = self.members().into_iter();
        let members = members.map(|index| &self.processes[index]);
        let able = members.filter(|process| !process.was_ahead);
        able.map(Contact::of).collect()
    }

    /// The namespace that clients use.
    pub(super) fn namespace(&self) -> (String, NamespaceId) {
        let default = (String::new(), NamespaceId::DEFAULT);
        self.namespace.clone().unwrap_or(default)
    }

    /// A client of the library; it knows all nodes.
    pub(super) fn client(&self) -> Result<Client, Error> {
        let name = self.namespace.as_ref().map(|(name, _)| name.as_str());
        self.client_of(name.unwrap_or_default())
    }

    /// A client of a namespace; the default one has no name.
    pub(super) fn client_of(&self, namespace: &str) -> Result<Client, Error> {
        let endpoints = self
            .processes
            .iter()
            .map(|process| process.kvd.grpc.to_string());
        let mut builder = Client::builder().endpoints(endpoints).channels_per_node(1);
        if !namespace.is_empty() {
            builder = builder.namespace(namespace);
        }
        if let Some(tls) = &self.program.tls {
            builder = builder.tls(tls.of_client.clone());
        }
        Ok(builder.deadline(self.deadline).connect_lazy()?)
    }

    /// The directory of the run.
    pub(super) fn within(&self) -> &Path {
        &self.within
    }

    /// Keeps the processes' directories; returns their location.
    pub(super) fn keep(&mut self) -> Option<PathBuf> {
        self.processes.iter_mut().for_each(Process::rescue);
        self.dir.take().map(TempDir::keep)
    }

    /// The nodes that have exited without being told to, and how.
    pub(super) fn ended(&mut self) -> Vec<String> {
        let processes = self.processes.iter_mut();
        processes.filter_map(Process::has_ended).collect()
    }

    async fn wait_until_served(&mut self) -> Result<(), Error> {
        let client = self.client()?;
        let until = Instant::now() + STARTING;
        while Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let Ok(status) = client.status().await else {
                continue;
            };
            let id = |process: &Process| {
                let address = process.kvd.grpc.to_string();
                let is_it = |node: &&torc_client::NodeStatus| node.member.address == address;
                let found = status.nodes.iter().find(is_it)?;
                found.ready.then_some((process.number, found.member.id))
            };
            let ids: Option<Vec<_>> = self.processes.iter().map(id).collect();
            if let Some(ids) = ids {
                for (number, id) in ids {
                    self.admit(number, id);
                }
                return Ok(());
            }
        }
        Err(Error::NotFounded(STARTING, self.ended().join(", ")))
    }
}
