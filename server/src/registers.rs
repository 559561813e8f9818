//! Starts a node's replicas when it learns of the first topology in which it has a place.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use torc_driver::{Me, Registers};
use torc_links::{Contact, Directory, Inbox, LinkOptions, Links, Parcel, Whoami};
use torc_proto::Fault;
use torc_record::Layer;
use torc_ring::NodeId;
use torc_ring::topology::RoutingTable;
use torc_tls::NodeTls;
use torc_transfers::{copier, reporter};

use crate::shared::Shared;

/// The members known to this node.
struct Members(Arc<Shared>);

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

/// The registers of this node, started on the first call. `None` while the node has no place in the
/// topology or its start is not confirmed.
pub(crate) fn begin(
    shared: &Arc<Shared>,
    table: &RoutingTable,
    next_namespace: u32,
    tasks: &TaskTracker,
) -> Option<Arc<Registers>> {
    if let Some(registers) = shared.member.registers.get() {
        return Some(Arc::clone(registers));
    }
    if !*shared.member.confirmed.borrow() {
        return None;
    }
    let node = shared.member.identity.node()?;
    let slot = table.members.get(&node)?.slot;
    let mut options = LinkOptions::new(table.partitions);
    options
        .faults_file
        .clone_from(&shared.settings.test_link_faults);
    options.tls = shared.entrance.tls.as_ref().map(NodeTls::connector);
    options.runtimes = shared.workers.get().cloned().unwrap_or_default();
    let worker = options.runtimes.first().cloned();
    let worker = worker.unwrap_or_else(Handle::current);
    let links = Links::new(
        Arc::new(Members(Arc::clone(shared))),
        options,
        shared.metrics.links.clone(),
        shared.cancel.clone(),
    );
    let (reports, reached) = mpsc::unbounded_channel();
    // All partitions of a node may move at the same time.
    let (slices, wanted) = mpsc::channel(table.partitions.count() as usize * Layer::COUNT);
    let registers = Arc::new(Registers::recover(
        Me { node, slot },
        table.partitions,
        (shared.store.clone(), Arc::clone(&shared.kv.limits.budget)),
        links.clone(),
        shared.started,
        (reports, slices),
        (shared.metrics.registers.clone(), shared.kv.tracer.clone()),
    ));
    let _ = shared
        .link_service
        .set(links.service(Arc::new(Received(Arc::clone(&registers)))));
    registers.learn(table, next_namespace);
    torc_driver::run(&registers, &shared.scratch, tasks, &shared.cancel, &worker);
    let parallel = shared.settings.transfer_parallel;
    copier::run(&shared.transfers, &registers, parallel, wanted, tasks);
    reporter::run(&shared.transfers, reached, tasks);
    let _ = shared.member.registers.set(Arc::clone(&registers));
    Some(registers)
}
