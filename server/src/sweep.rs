//! Deletes the records of dropped namespaces.
//!
//! Once every member knows that a namespace was dropped, no node serves it, but its records are
//! still on disk. Each member deletes those in the partitions that it leads, as a client would:
//! page by page as a quorum knows them, with a tombstone per key that a quorum accepts. So a
//! replica that was down learns of it as of any other delete, and collection frees the space.
//!
//! A write in progress when the namespace was dropped may finish after a pass over its partition,
//! so only a pass that starts when no such write is left counts. After a restart, a node starts
//! over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use torc_driver::{NoQuorum, Wanted};
use torc_group::TopologyGroup;
use torc_member::LocalMember;
use torc_proto::{Fault, Reason};
use torc_record::NamespaceId;
use torc_replication::{Locator, Outcome, Request};
use torc_ring::topology::{Command, RoutingTable, dropped_name};
use torc_ring::{NodeId, Partition};

use crate::call::{DEFAULT_DEADLINE, LONGEST_DEADLINE};
use crate::kv::no_quorum;

/// Interval between checks if no topology arrives.
const LOOK: Duration = Duration::from_secs(1);
/// Tombstones written at a time; the other permits remain for clients' writes.
const TOGETHER: usize = 64;

/// Deletes the records of dropped namespaces until the node stops.
pub(crate) async fn run(member: Arc<LocalMember>, group: TopologyGroup, deleted: Counter) {
    let mut adopted = member.adopted.subscribe();
    let mut sweeper = Sweeper {
        member,
        group,
        deleted,
        since: BTreeMap::new(),
    };
    loop {
        let member = &sweeper.member;
        if let (Ok(table), Some(me)) = (member.routing(), member.identity.node())
            && let Err(fault) = sweeper.look(&table, me).await
        {
            tracing::warn!(%fault, "could not delete all records of dropped namespaces yet; retrying");
        }
        // Fails only while the node stops.
        let _ = tokio::time::timeout(LOOK, adopted.changed()).await;
    }
}

struct Sweeper {
    member: Arc<LocalMember>,
    group: TopologyGroup,
    /// Counts the deleted records.
    deleted: Counter,
    /// The dropped namespaces that every member knows of: the time since this node has known that,
    /// and whether it has completed a pass over its partitions.
    since: BTreeMap<NamespaceId, (Instant, bool)>,
}

impl Sweeper {
    async fn look(&mut self, table: &RoutingTable, me: NodeId) -> Result<(), Fault> {
        let Some(topology) = self.group.topology() else {
            return Ok(());
        };
        let sweeps = topology.sweeps();
        self.since.retain(|id, _| sweeps.contains_key(id));
        for (id, swept) in sweeps {
            if swept.contains(&me) || !topology.unconfirmed(&dropped_name(*id)).is_empty() {
                continue;
            }
            let first = (Instant::now(), false);
            let (since, is_passed) = *self.since.entry(*id).or_insert(first);
            let is_last = since.elapsed() >= LONGEST_DEADLINE;
            if is_passed && !is_last {
                continue;
            }
            let deleted = self.pass(table, me, *id).await?;
            if deleted > 0 {
                tracing::info!(
                    namespace = id.0,
                    deleted,
                    "deleted records of a dropped namespace"
                );
            }
            self.since.insert(*id, (since, true));
            if is_last {
                let command = Command::Swept {
                    node: me,
                    namespace: *id,
                    epoch: table.epoch,
                };
                let deadline = Instant::now() + DEFAULT_DEADLINE;
                self.group.propose(command, deadline).await?;
            }
        }
        Ok(())
    }

    /// Deletes the records in all partitions that this node leads; returns their number.
    async fn pass(&self, table: &RoutingTable, me: NodeId, id: NamespaceId) -> Result<u64, Fault> {
        let led = table.states.iter().filter(|state| state.lead == me);
        let led = led.map(|state| state.config.partition);
        let inside = |it: &Partition| table.partitions.layer(*it) == Some(id.layer());
        let mut deleted = 0;
        for partition in led.filter(inside) {
            deleted += self.empty(partition, id).await?;
        }
        Ok(deleted)
    }

    async fn empty(&self, partition: Partition, id: NamespaceId) -> Result<u64, Fault> {
        let registers = self.member.registers()?;
        let (mut after, mut deleted) = (None, 0);
        loop {
            let until = Instant::now() + DEFAULT_DEADLINE;
            let page = registers.list(partition, after, until).await;
            let page = page.map_err(|NoQuorum| no_quorum(partition))?;
            let records = page.records.into_iter();
            let found = records.filter(|record| record.namespace == id);
            let found: Vec<_> = found.map(|it| Locator::of(&it)).collect();
            for keys in found.chunks(TOGETHER) {
                self.delete(partition, id, keys).await?;
                deleted += keys.len() as u64;
                self.deleted.inc_by(keys.len() as u64);
            }
            match page.next {
                Some(at) => after = Some(at.id()),
                None => return Ok(deleted),
            }
        }
    }

    async fn delete(
        &self,
        partition: Partition,
        id: NamespaceId,
        keys: &[Locator],
    ) -> Result<(), Fault> {
        let registers = self.member.registers()?;
        let unconfirmed = || {
            let message = format!("this node does not know namespace {} yet", id.0);
            Fault::new(Reason::NotServing, message)
        };
        let rules = registers.rules(id).ok_or_else(unconfirmed)?;
        let deadline = Instant::now() + DEFAULT_DEADLINE;
        let wanted = keys.iter().map(|at| Wanted {
            partition,
            at: at.clone(),
            rules,
            request: Request::Delete {
                condition: None,
                tells_existed: false,
            },
            deadline,
            trace: None,
        });
        let told = registers.operate_many(wanted.collect()).await;
        let is_gone =
            |told: &_| matches!(told, Ok(Outcome::Written { .. } | Outcome::Absent { .. }));
        if told.iter().all(is_gone) {
            Ok(())
        } else {
            Err(no_quorum(partition))
        }
    }
}
