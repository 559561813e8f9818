//! Starts a node's replicas when it learns of the first topology in which it has a place.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use torc_driver::{Me, Registers};
use torc_limits::connections::Entrance;
use torc_links::{Contact, Directory, Inbox, LinkOptions, LinkService, Links, Parcel, Whoami};
use torc_proto::Fault;
use torc_record::Layer;
use torc_ring::NodeId;
use torc_ring::topology::RoutingTable;
use torc_store::Scratch;
use torc_tls::NodeTls;
use torc_transfers::{Transfers, copier, reporter};

use crate::kv::KvNode;
use crate::metrics::Metrics;
use crate::own_node::OwnNode;

/// The members known to this node.
struct Members(Arc<OwnNode>);

impl Directory for Members {
    fn whoami(&self) -> Option<Whoami> {
        let membership = self.0.member.identity.membership()?;
        Some(Whoami {
            cluster: membership.cluster,
            node: membership.node,
            incarnation: self.0.member.identity.incarnation,
            boot: self.0.boot,
            levels: self.0.settings.release.levels,
            level: self.0.member.routing.load_full()?.feature_level,
            ceiling: self.0.ceiling,
        })
    }

    fn member(&self, node: NodeId) -> Option<Contact> {
        let table = self.0.member.routing.load_full()?;
        let member = table.members.get(&node)?;
        (self.0.member.identity.node() != Some(node)).then(|| Contact {
            address: member.identity.peer_address.clone(),
            incarnation: member.identity.incarnation,
            boot: self.0.group.topology().and_then(|it| it.boot(node)),
        })
    }

    fn disown(&self, why: &Fault) {
        self.0.group.disown(&why.message);
    }
}

struct Received(Arc<Registers>);

impl Inbox for Received {
    fn deliver(&self, from: NodeId, batch: Vec<Parcel>) -> BoxFuture<'_, ()> {
        self.0.receive(from, batch);
        Box::pin(std::future::ready(()))
    }
}

/// What starting the replicas needs of a node.
pub(crate) struct Beginning {
    pub(crate) own: Arc<OwnNode>,
    pub(crate) kv: Arc<KvNode>,
    pub(crate) scratch: Scratch,
    pub(crate) transfers: Arc<Transfers>,
    pub(crate) entrance: Arc<Entrance>,
    /// The receiving end of messages between replicas, which this sets.
    pub(crate) links: Arc<OnceLock<LinkService>>,
    /// The runtimes of the threads that serve gRPC.
    pub(crate) workers: Vec<Handle>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) started: Instant,
}

impl Beginning {
    /// The registers of this node, started on the first call. `None` while the node has no place in the
    /// topology or its start is not confirmed.
    pub(crate) fn begin(
        &self,
        table: &RoutingTable,
        next_namespace: u32,
        tasks: &TaskTracker,
    ) -> Option<Arc<Registers>> {
        let (member, cancel) = (&self.own.member, &self.entrance.cancel);
        if let Some(registers) = member.registers.get() {
            return Some(Arc::clone(registers));
        }
        if !*member.confirmed.borrow() {
            return None;
        }
        let node = member.identity.node()?;
        let slot = table.members.get(&node)?.slot;
        let mut options = LinkOptions::new(table.partitions);
        options
            .faults_file
            .clone_from(&self.own.settings.test_link_faults);
        options.tls = self.entrance.tls.as_ref().map(NodeTls::connector);
        options.runtimes.clone_from(&self.workers);
        let worker = self.workers.first().cloned();
        let worker = worker.unwrap_or_else(Handle::current);
        let links = Links::new(
            Arc::new(Members(Arc::clone(&self.own))),
            options,
            self.metrics.links.clone(),
            cancel.clone(),
        );
        let (reports, reached) = mpsc::unbounded_channel();
        // All partitions of a node may move at the same time.
        let (slices, wanted) = mpsc::channel(table.partitions.count() as usize * Layer::COUNT);
        let registers = Arc::new(Registers::recover(
            Me { node, slot },
            table.partitions,
            (self.own.store.clone(), Arc::clone(&self.kv.limits.budget)),
            links.clone(),
            self.started,
            (reports, slices),
            (self.metrics.registers.clone(), self.kv.tracer.clone()),
        ));
        let _ = self
            .links
            .set(links.service(Arc::new(Received(Arc::clone(&registers)))));
        registers.learn(table, next_namespace);
        torc_driver::run(&registers, &self.scratch, tasks, cancel, &worker);
        let parallel = self.own.settings.transfer_parallel;
        copier::run(&self.transfers, &registers, parallel, wanted, tasks);
        reporter::run(&self.transfers, reached, tasks);
        let _ = member.registers.set(Arc::clone(&registers));
        Some(registers)
    }
}
