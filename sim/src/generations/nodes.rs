//! Nodes that follow the topology, are killed, and are cut off.

use std::collections::BTreeSet;
use std::sync::Arc;

use torc_record::{Epoch, NamespaceId};
use torc_ring::replicas::Milestone;
use torc_ring::topology::{Command, Report, RoutingTable, Stage, Topology};
use torc_ring::{NodeId, Partition};

use super::{Broken, MAX_LATE, NAME, World};

pub(super) struct Node {
    /// The topology that it acts on, durably.
    pub(super) adopted: Arc<Topology>,
    pub(super) table: Arc<RoutingTable>,
    /// The topology before that.
    pub(super) former: Option<Arc<Topology>>,
    pub(super) slices: BTreeSet<(Partition, NamespaceId)>,
    pub(super) is_up: bool,
    pub(super) is_cut: bool,
}

impl Node {
    pub(super) fn by(topology: &Arc<Topology>) -> Self {
        Self {
            adopted: Arc::clone(topology),
            table: Arc::new(topology.routing()),
            former: None,
            slices: BTreeSet::new(),
            is_up: true,
            is_cut: false,
        }
    }

    pub(super) fn adopt(&mut self, topology: &Arc<Topology>) {
        if topology.epoch() > self.adopted.epoch() {
            self.former = Some(std::mem::replace(&mut self.adopted, Arc::clone(topology)));
            self.table = Arc::new(topology.routing());
        }
    }

    pub(super) fn current(&self) -> NamespaceId {
        self.table.namespaces[NAME].id
    }

    pub(super) fn holds_all(&self, partition: Partition) -> bool {
        let mut due = self.table.generations_in(partition);
        due.all(|it| self.slices.contains(&(partition, it.id)))
    }
}

impl World {
    pub(super) fn deliver_late(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let at = self.rng.below(self.late.len() as u64) as usize;
        let mut report = self.late.swap_remove(at);
        if let Command::HoldsGeneration { epoch, .. } = &mut report
            && self.is_broken(Broken::LateReportCounts)
        {
            *epoch = self.group.epoch();
        }
        self.commit(report);
    }

    /// Stops nodes that are no longer members, as operators must: they may never hear of another
    /// topology.
    pub(super) fn stop_who_has_left(&mut self) {
        let members = self.group.members();
        self.nodes.retain(|id, _| members.contains_key(id));
        let nodes = &self.nodes;
        self.gets.retain(|get| nodes.contains_key(&get.through));
    }

    pub(super) fn kill_or_start(&mut self) {
        let ids: Vec<_> = self.nodes.keys().copied().collect();
        let forgets = self.is_broken(Broken::AdoptedInMemory);
        let Some(id) = self.rng.pick(&ids) else {
            return;
        };
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        if !node.is_up {
            node.is_up = true;
            return;
        }
        node.is_up = false;
        if let Some(former) = node.former.take().filter(|_| forgets) {
            node.table = Arc::new(former.routing());
            node.adopted = former;
        }
        self.gets.retain(|get| get.through != id);
    }

    pub(super) fn cut_or_heal(&mut self) {
        let ids: Vec<_> = self.nodes.keys().copied().collect();
        if let Some(node) = self.rng.pick(&ids).and_then(|id| self.nodes.get_mut(&id)) {
            node.is_cut = !node.is_cut;
        }
    }

    pub(super) fn adopt(&mut self, id: NodeId) {
        let group = Arc::clone(&self.group);
        if let Some(node) = self.nodes.get_mut(&id).filter(|it| !it.is_cut) {
            node.adopt(&group);
        }
    }

    /// A node's work on generations and moves, like `transfers/src/generations` and its reports.
    pub(super) fn look(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(&id).filter(|it| !it.is_cut) else {
            return;
        };
        let (table, epoch) = (Arc::clone(&node.table), node.table.epoch);
        let told = if self.is_broken(Broken::TellsBeforeItAdopts) {
            self.group.epoch()
        } else {
            epoch
        };
        if self.group.must_tell(id, told) {
            self.commit(Command::Adopted {
                node: id,
                epoch: told,
            });
        }
        self.drop_what_is_gone(id, &table);
        self.fetch(id, &table);
        self.report(id, &table);
    }

    pub(super) fn drop_what_is_gone(&mut self, id: NodeId, table: &RoutingTable) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.slices.retain(|(partition, generation)| {
                let state = table.state(*partition);
                table.generations.contains_key(generation)
                    && state.is_some_and(|it| it.config.index(id).is_some())
            });
        }
    }

    pub(super) fn fetch(&mut self, id: NodeId, table: &RoutingTable) {
        for generation in table.generations.values() {
            let due: Vec<_> = table.due(id, generation).collect();
            let mut is_whole = true;
            for partition in due {
                let slice = (partition, generation.id);
                let is_there = |node: &Node| node.slices.contains(&slice);
                let has_peer = || {
                    let mut others = self.nodes.values().filter(|it| it.is_up && !it.is_cut);
                    others.any(is_there)
                };
                let can = self.sources.contains(&generation.id) || has_peer();
                let known = self.nodes.get(&id).is_some_and(is_there);
                // Sometimes the node is stopped in between.
                if !known && can && self.rng.chance(700) {
                    if let Some(node) = self.nodes.get_mut(&id) {
                        node.slices.insert(slice);
                    }
                } else {
                    is_whole &= known;
                }
            }
            if is_whole || self.is_broken(Broken::ReadyTooEarly) {
                let report = Command::HoldsGeneration {
                    node: id,
                    number: generation.id.number(),
                    epoch: table.epoch,
                };
                if self.late.len() < MAX_LATE && self.rng.chance(100) {
                    self.late.push(report);
                } else {
                    self.commit(report);
                }
            }
        }
    }

    pub(super) fn report(&mut self, id: NodeId, table: &RoutingTable) {
        let mut reports = Vec::new();
        for state in &table.states {
            let config = &state.config;
            if config.index(id).is_none() {
                continue;
            }
            reports.push(Report::of(config, Milestone::Adopted, 1));
            let node = self.nodes.get(&id);
            let is_whole = node.is_some_and(|node| node.holds_all(config.partition));
            let skips = self.is_broken(Broken::CopiedWithoutSlices);
            if config.seat_of(id).is_some() && (is_whole || skips) {
                let reached: fn(Epoch) -> Milestone = match config.stage {
                    Stage::Copying => Milestone::Copied,
                    Stage::WriteBothReadOld => Milestone::Snapshotted,
                    Stage::WriteBothReadNew | Stage::Stable => continue,
                };
                reports.push(Report::of(config, reached, 1));
            }
        }
        let before = self.group.transition().is_some();
        self.commit(Command::Report { node: id, reports });
        if before && self.group.transition().is_none() {
            self.summary.transitions += 1;
        }
    }
}
