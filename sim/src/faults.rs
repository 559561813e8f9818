//! Faults, and the periodic work of nodes.

use bytes::Bytes;
use torc_record::{Ballot, HybridTime, Key, NodeSlot, Record, State};
use torc_replication::{
    Collector, Config, Envelope, Hint, Input, Locator, Message, Mutation, Operation, OutOfReach,
    Quorum, Request, Rules, Tag,
};
use torc_ring::topology::Stage;

use crate::disk::FOREIGN;
use crate::event::Event;
use crate::group::Staff;
use crate::node::PARTITION;
use crate::workload::{is_eventual, reconcile_rules};
use crate::world::{MAX_NODES, World};

const HOUR_MS: i64 = 3_600_000;
/// Minimum time between two collections after healing, because each one refuses running writes
/// below it.
const COLLECTION_US: u64 = 100_000;

impl World {
    /// Called at moments at which faults may occur.
    pub(crate) fn chaos(&mut self) {
        if self.healing {
            return;
        }
        let nodes = self.nodes.len() as u64;
        let node = self.rng.below(nodes) as usize;
        if self.rng.chance(self.faults.crash) {
            let down = self.rng.between(1_000, self.faults.down_ms * 1_000);
            self.crash(node, down);
        }
        if self.rng.chance(self.faults.cut) {
            let other = self.rng.below(nodes) as usize;
            let until = self.us + self.rng.between(10_000, 120_000);
            self.cut_until[node][other] = until;
            if self.rng.chance(600) {
                self.cut_until[other][node] = until;
            }
            self.counts.add("cut");
        }
        if self.rng.chance(self.faults.split) {
            self.split();
        }
        if self.rng.chance(self.faults.gray) {
            let until = self.us + self.rng.between(20_000, 150_000);
            self.nodes[node].slow_until_us = until;
            self.counts.add("slow");
        }
        if self.rng.chance(self.faults.clock) {
            let jump = [-HOUR_MS, -400, -50, 50, 300, HOUR_MS];
            let jump = self.rng.pick(&jump).unwrap_or(0);
            self.nodes[node].clock_error_ms = jump;
            self.workload.note_clock(jump);
            self.counts.add("clock set");
        }
        if self.rng.chance(self.faults.corrupt) {
            self.corrupt(node);
        }
        // Without this condition, other profiles would draw different numbers than before.
        if self.faults.full > 0 && self.rng.chance(self.faults.full) {
            let until = self.us + self.rng.between(5_000, 120_000);
            self.nodes[node].full_until_us = until;
            self.counts.add("disk full");
        }
        if self.rng.chance(self.faults.wipe) {
            self.wipe(node);
        }
        if self.rng.chance(self.faults.foreign) {
            self.plant_foreign(node);
        }
        let after = self.rng.between(1_500, 4_500);
        self.schedule(after, Event::Chaos);
    }

    /// Cuts the cluster in two; one side also cannot reach the topology group.
    fn split(&mut self) {
        let until = self.us + self.rng.between(10_000, 80_000);
        let sides = self.rng.next();
        for a in 0..self.nodes.len() {
            let side = sides >> a & 1;
            if side == 1 {
                self.nodes[a].no_group_until_us = until;
            }
            for b in 0..self.nodes.len() {
                if sides >> b & 1 != side {
                    self.cut_until[a][b] = until;
                }
            }
        }
        self.counts.add("split");
        self.trace.note(self.us, || {
            let side = |node: &usize| sides >> node & 1 == 1;
            let nodes: Vec<_> = (0..MAX_NODES).filter(side).map(|node| node + 1).collect();
            format!("nodes {nodes:?} are cut off")
        });
    }

    pub(crate) fn crash(&mut self, node: usize, down_us: u64) {
        if !self.nodes[node].is_up() {
            return;
        }
        let flying = self.nodes[node].disk.on_its_way() as u64;
        let kept = self.rng.below(flying + 1) as usize;
        let us = self.us;
        let this = &mut self.nodes[node];
        this.disk.crash(kept);
        this.process = None;
        this.boot += 1;
        this.disk_free_us = us;
        self.counts.add("crashed");
        self.trace.note(us, || {
            format!("node {} crashes, {kept} of {flying} writes kept", node + 1)
        });
        self.abandon(node);
        self.schedule(down_us, Event::Start { node });
    }

    /// Makes one record of a member unreadable, unless that could lose a majority.
    fn corrupt(&mut self, node: usize) {
        let spared = |n: &crate::node::Node| n.gone || !n.disk.is_readable();
        let id = self.nodes[node].id;
        let config = &self.group.config;
        let few = config.old.count() < 3 || !config.excluded.is_empty();
        if few || self.nodes.iter().any(spared) || config.index(id).is_none() {
            return;
        }
        let entries = self.nodes[node].disk.entries() as u64;
        if entries > 0 {
            let index = self.rng.below(entries) as usize;
            self.nodes[node].disk.corrupt(index);
            self.counts.add("corrupted");
            self.trace
                .note(self.us, || format!("node {}: a record rots", node + 1));
        }
    }

    /// A node loses its disk for good; a new node with an empty disk takes its place.
    fn wipe(&mut self, node: usize) {
        let members = &self.group.config.members;
        let lost_member = members.iter().any(|m| {
            let index = self.index(m.node);
            index.is_some_and(|index| self.nodes[index].gone)
        });
        let stable = self.group.config.stage == Stage::Stable;
        let rotten = self.nodes.iter().any(|n| !n.disk.is_readable());
        let full = self.nodes.len() >= MAX_NODES;
        // Of three copies, one may be lost; of one or two, none.
        if lost_member || !stable || rotten || full || members.len() < 3 || self.nodes[node].gone {
            return;
        }
        self.crash(node, 5_000);
        self.counts.add("wiped");
        self.trace
            .note(self.us, || format!("node {} loses its disk", node + 1));
        let empty = crate::node::Node::new(0, 0, self.mutations).disk;
        self.nodes[node].disk = empty;
        if self.group.breaks(Mutation::WipedKeepsId) {
            return;
        }
        self.nodes[node].gone = true;
        self.add_node();
    }

    /// A node's periodic work, about every 20 ms.
    pub(crate) fn beat(&mut self, node: usize, boot: u32) {
        if !self.is_live(node, boot) {
            return;
        }
        self.replica_step(node, Input::Tick);
        if self.rng.chance(if self.healing { 1_000 } else { 150 }) {
            self.fetch_topology(node);
        }
        if self.rng.chance(if self.healing {
            600
        } else {
            self.faults.compare
        }) {
            self.compare(node);
        }
        if self.healing || self.rng.chance(self.faults.corrupt) {
            let mut effects = Vec::new();
            let this = &self.nodes[node];
            if let Some(process) = &this.process {
                process.replica.scrub(&this.disk, &mut effects);
            }
            self.perform(node, effects);
        }
        if self.healing && self.holds_expired(node)
            || self.rng.chance(self.faults.collect) && !self.healing
        {
            self.collect(node);
        }
        if self.healing || self.rng.chance(self.faults.peers) {
            self.tell_peers(node);
        }
        if self.healing || self.rng.chance(300) {
            self.hand_over(node);
        }
        let after = self.rng.between(8_000, 25_000);
        self.schedule(after, Event::Beat { node, boot });
    }

    fn compare(&mut self, node: usize) {
        let members = self.group.config.members.clone();
        let id = self.nodes[node].id;
        let Some(peer) = self.rng.pick(&members).filter(|peer| peer.node != id) else {
            return;
        };
        let mut effects = Vec::new();
        let this = &self.nodes[node];
        if let Some(process) = &this.process {
            process.replica.compare_with(peer.node, &mut effects);
        }
        self.counts.add("compared");
        self.perform(node, effects);
    }

    /// Whether a node leads, its replica has or may have an expired value, and the last collection
    /// had time to end.
    fn holds_expired(&self, node: usize) -> bool {
        let this = &self.nodes[node];
        let leads = self.group.config.members.first().map(|it| it.node) == Some(this.id);
        leads
            && this.process.as_ref().is_some_and(|it| {
                it.replica.first_expiry_ms() < this.now(self.us).unix_ms
                    && it.collecting_since_us + COLLECTION_US <= self.us
            })
    }

    fn collect(&mut self, node: usize) {
        let this = &self.nodes[node];
        let now = this.now(self.us);
        let margin = self.rng.between(0, 10);
        let Some(process) = &this.process else {
            return;
        };
        let Some(config) = process.coordinator.config(PARTITION).cloned() else {
            return;
        };
        let upto = Ballot {
            epoch: config.epoch,
            time: HybridTime::from_unix_ms(now.unix_ms.saturating_sub(margin)),
            slot: NodeSlot(u16::MAX),
        };
        let Some(collector) = Collector::new(config, upto, self.mutations) else {
            return;
        };
        let id = this.id;
        for (peer, envelope) in collector.ask() {
            self.transmit(id, peer, envelope);
        }
        self.counts.add("collected");
        if let Some(process) = &mut self.nodes[node].process {
            process.collector = Some(collector);
            process.collecting_since_us = self.us;
        }
    }

    /// Runs one reconciliation per key and node at a time.
    pub(crate) fn reconcile(&mut self, node: usize, at: Locator, rewrite: bool) {
        if at.key.as_bytes() == FOREIGN {
            // As in the driver: the record must not be spread.
            return;
        }
        let is_left = !self.mutations.has(Mutation::ReconcilesFirstRecords);
        if is_left && self.is_unknown(node, &at) {
            return;
        }
        let op = self.next_reconcile_id();
        let (deadline_ms, rules) = (self.us / 1_000 + 60, reconcile_rules(&at));
        self.coordinate(node, |process, now, out| {
            if process
                .reconciling
                .iter()
                .any(|(_, reconciling)| *reconciling == at)
            {
                return;
            }
            process.reconciling.push((op, at.clone()));
            let request = Request::Reconcile { rewrite };
            let operation = Operation {
                partition: PARTITION,
                at,
                rules,
                request,
                deadline_ms,
            };
            process.coordinator.start(now, op, operation, out);
        });
    }

    /// A client requests a key with a wrong digest.
    pub(crate) fn get_foreign(&mut self, node: usize, at: Locator) {
        let op = self.next_reconcile_id();
        let operation = Operation {
            partition: PARTITION,
            rules: reconcile_rules(&at),
            at,
            request: Request::Get,
            deadline_ms: self.us / 1_000 + 40,
        };
        self.coordinate(node, |process, now, out| {
            process.coordinator.start(now, op, operation, out);
        });
    }

    /// A record of a key with another key's digest arrives from a peer, or is requested.
    fn plant_foreign(&mut self, node: usize) {
        let key = self.rng.below(self.workload.keys.len() as u64) as usize;
        let Ok(name) = Key::new(FOREIGN) else {
            return;
        };
        let at = Locator {
            key: name,
            ..self.workload.keys[key].clone()
        };
        self.counts.add("foreign");
        if self.rng.chance(500) {
            return self.get_foreign(node, at);
        }
        let config = self.group.config.clone();
        let to = self.rng.below(self.nodes.len() as u64) as usize;
        let unix_ms = self.nodes[node].now(self.us).unix_ms;
        let record = Record {
            namespace: at.namespace,
            digest: at.digest,
            key: at.key,
            ballot: Ballot {
                epoch: config.epoch,
                // This ballot must be unique.
                time: HybridTime(HybridTime::from_unix_ms(unix_ms).0 + self.order % 60_000),
                slot: NodeSlot(4_000),
            },
            origin: None,
            state: State::Value {
                value: Bytes::from_static(b"wrong"),
                expires_at_ms: None,
            },
        };
        let tag = Tag::default();
        let message = if is_eventual(record.namespace) {
            Message::Store { tag, record }
        } else {
            let next = None;
            Message::Accept { tag, record, next }
        };
        let envelope = Envelope {
            partition: PARTITION,
            epoch: config.epoch,
            message,
        };
        let (from, to) = (self.nodes[node].id, self.nodes[to].id);
        self.schedule(500, Event::Deliver { from, to, envelope });
    }

    /// Tells a node which peers are out of reach; this may be wrong or late.
    fn tell_peers(&mut self, node: usize) {
        let mut out = OutOfReach::default();
        for (other, peer) in self.nodes.iter().enumerate() {
            let cut = self.cut_until[node][other].max(self.cut_until[other][node]);
            let mut is_lost = other != node && (!peer.is_up() || cut > self.us);
            if self.healing {
                // Nodes that are down will start again.
                is_lost = peer.gone;
            } else {
                is_lost ^= self.rng.chance(100);
                if self.rng.chance(150) {
                    out.silent.insert(peer.id);
                }
            }
            if is_lost {
                out.lost.insert(peer.id);
            }
        }
        self.counts.add("told of peers");
        self.coordinate(node, |process, _, _| {
            process.coordinator.on_peers(&out);
        });
    }

    /// Hands over one hint and treats it as confirmed, which only weakens hints.
    fn hand_over(&mut self, node: usize) {
        let peers: Vec<_> = self.nodes.iter().map(|peer| peer.id).collect();
        let Some(process) = &mut self.nodes[node].process else {
            return;
        };
        let mut hints = peers.into_iter();
        let hint = hints.find_map(|to| {
            let record = process.hints.for_node(to, 1).next().cloned()?;
            Some(Hint { to, record })
        });
        let Some(hint) = hint else {
            return;
        };
        process.hints.confirmed(hint.to, &hint.record);
        let op = self.next_reconcile_id();
        let operation = Operation {
            partition: PARTITION,
            at: Locator::of(&hint.record),
            rules: Rules::Eventual(Quorum::One),
            request: Request::HandOver(hint),
            deadline_ms: self.us / 1_000 + 40,
        };
        self.counts.add("hint handed over");
        self.coordinate(node, |process, now, out| {
            process.coordinator.start(now, op, operation, out);
        });
    }

    pub(crate) fn group_step(&mut self) {
        let config = &self.group.config;
        let spare = self
            .nodes
            .iter()
            .filter(|node| !node.gone && node.is_up() && config.index(node.id).is_none());
        let staff = Staff {
            spare: spare.map(|node| node.id).collect(),
            lost: self.nodes.iter().filter(|n| n.gone).map(|n| n.id).collect(),
            healing: self.healing,
            creating: self.is_creating(),
        };
        let before = self.group.config.clone();
        if self.group.step(&staff, &self.faults, &mut self.rng) {
            self.trace.note(self.us, || {
                format!("the group commits epoch {}", self.group.config.epoch)
            });
            self.announce();
            if self.rng.chance(self.faults.ambush) && !self.healing {
                self.ambush(&before);
            }
        }
        self.follow_merges();
        self.discard();
        let after = self.rng.between(1_000, 5_000);
        self.schedule(after, Event::Group);
    }

    /// Separates votes from copies. Until the new set serves reads, one old replica is cut off from
    /// the other old ones, while the new ones reach all. Afterwards, that one and the new ones are
    /// cut off from the others, and one side does not hear of new epochs.
    fn ambush(&mut self, before: &Config) {
        let now = self.group.config.clone();
        let moving = if now.stage == Stage::Stable {
            before
        } else {
            &*now
        };
        let copying =
            matches!(now.stage, Stage::Copying | Stage::WriteBothReadOld) && !now.returning;
        // The same replica as long as the partition moves, so that the separation persists. As the
        // first of the list, it is where writes usually go.
        let stays = moving.old.intersection(moving.new).without(moving.excluded);
        let Some(one) = stays.iter().next() else {
            return;
        };
        let until = self.us + self.rng.between(8_000, 40_000);
        let deaf = self.rng.chance(700);
        let side = |world: &Self, node: usize| {
            let index = moving.index(world.nodes[node].id);
            match index {
                Some(index) if index == one => Some(true),
                Some(index) if moving.old.contains(index) => Some(false),
                Some(_) if !copying => Some(true),
                _ => None,
            }
        };
        for a in 0..self.nodes.len() {
            let Some(here) = side(self, a) else {
                continue;
            };
            if here != deaf && !copying {
                self.nodes[a].no_group_until_us = until;
            }
            for b in 0..self.nodes.len() {
                if side(self, b) == Some(!here) {
                    self.cut_until[a][b] = until;
                }
            }
        }
        self.counts.add("ambush");
        self.trace
            .note(self.us, || format!("ambush: member {one} is cut off"));
    }

    fn announce(&mut self) {
        for node in 0..self.nodes.len() {
            if self.rng.chance(700) {
                let after = self.rng.between(200, self.faults.deaf_us.max(20_000));
                let config = self.group.config.clone();
                self.schedule(after, Event::Topology { node, config });
            }
        }
    }

    fn discard(&mut self) {
        if !self.group.may_discard() {
            return;
        }
        for node in 0..self.nodes.len() {
            let stranger = self.group.config.index(self.nodes[node].id).is_none();
            if stranger && self.nodes[node].is_up() && self.rng.chance(100) {
                self.schedule(500, Event::Discard { node });
            }
        }
    }
}
