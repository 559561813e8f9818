//! A cluster in one thread: nodes, links, disks, clocks, and a queue of events.
//!
//! Everything happens in the order of the queue, and the generator makes every choice, so a seed
//! determines the run. This module knows no rule of replication: it performs the state machines'
//! intentions late, twice, or not at all.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use torc_record::{Epoch, Record};
use torc_replication::{
    Config, Effect, Envelope, Input, Intent, LogPosition, Milestone, Mutations, OpId, Seq, Tag,
};
use torc_ring::NodeId;

use crate::disk::Write;
use crate::doors::Alone;
use crate::group::Group;
use crate::merges::Merge;
use crate::node::Node;
use crate::perform::Late;
use crate::profile::Faults;
use crate::rng::Rng;
use crate::scans::Scan;
use crate::trace::Trace;
use crate::workload::Workload;

/// Limit on the nodes of a run, including those that lost their disk.
pub(crate) const MAX_NODES: usize = 14;

/// The possible events.
#[derive(Debug)]
pub(crate) enum Event {
    Deliver {
        from: NodeId,
        to: NodeId,
        envelope: Envelope,
    },
    Synced {
        node: usize,
        boot: u32,
    },
    Wake {
        node: usize,
        boot: u32,
    },
    Beat {
        node: usize,
        boot: u32,
    },
    Start {
        node: usize,
    },
    Topology {
        node: usize,
        config: Arc<Config>,
    },
    Report {
        from: NodeId,
        milestone: Milestone,
    },
    Discard {
        node: usize,
    },
    Slices {
        node: usize,
        boot: u32,
        from: NodeId,
        epoch: Epoch,
        slices: Option<(Vec<Record>, LogPosition)>,
    },
    Read {
        node: usize,
        boot: u32,
        late: Late,
    },
    /// The next step of a get that the only reader answers.
    Alone {
        node: usize,
        boot: u32,
        alone: Box<Alone>,
    },
    /// A scan's round has not ended in time.
    ScanLate {
        tag: Tag,
    },
    /// A caller abandons its operation.
    Cancel {
        node: usize,
        op: OpId,
    },
    Client(usize),
    Group,
    Chaos,
}

/// How many of each fault a run had.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts(pub BTreeMap<&'static str, u64>);

impl Counts {
    pub(crate) fn add(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            *self.0.entry(name).or_default() += count;
        }
    }
}

pub(crate) struct World {
    pub(crate) us: u64,
    /// Counts events and calls: the time axis of histories.
    pub(crate) moment: u64,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<Event>>,
    free: Vec<usize>,
    pub(crate) order: u64,
    pub(crate) nodes: Vec<Node>,
    /// Until when the link from one node to another is cut, microseconds.
    pub(crate) cut_until: [[u64; MAX_NODES]; MAX_NODES],
    pub(crate) group: Group,
    pub(crate) faults: Faults,
    pub(crate) rng: Rng,
    pub(crate) mutations: Mutations,
    pub(crate) healing: bool,
    pub(crate) workload: Workload,
    pub(crate) counts: Counts,
    pub(crate) trace: Trace,
    pub(crate) effects: Vec<Effect>,
    pub(crate) intents: Vec<Intent>,
    pub(crate) next_reconcile: u64,
    pub(crate) scans: BTreeMap<u64, Scan>,
    pub(crate) next_scan: u64,
    pub(crate) merge: Option<Merge>,
}

impl World {
    pub(crate) fn new(
        seed: u64,
        faults: Faults,
        mutations: Mutations,
        rng: Rng,
        trace: Trace,
    ) -> Self {
        let replicas = usize::from(faults.replicas);
        let ids: Vec<_> = (1..=replicas as u64).map(NodeId).collect();
        let mut world = Self {
            us: 0,
            moment: 0,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            order: 0,
            nodes: Vec::new(),
            cut_until: [[0; MAX_NODES]; MAX_NODES],
            group: Group::new(&ids, mutations),
            workload: Workload::new(seed, &faults),
            faults,
            rng,
            mutations,
            healing: false,
            counts: Counts::default(),
            trace,
            effects: Vec::new(),
            intents: Vec::new(),
            next_reconcile: 1 << 40,
            scans: BTreeMap::new(),
            next_scan: 0,
            merge: None,
        };
        let spare = if world.faults.resize > 0 { 2 } else { 1 };
        for _ in 0..replicas + spare {
            world.add_node();
        }
        for client in 0..usize::from(world.faults.clients) {
            let at = 2_000 + world.rng.below(5_000);
            world.schedule(at, Event::Client(client));
        }
        world.schedule(3_000, Event::Group);
        world.schedule(4_000, Event::Chaos);
        world
    }

    /// A new node with an empty disk, running.
    pub(crate) fn add_node(&mut self) {
        let number = self.nodes.len();
        let skew = self.faults.skew_ms;
        let error = self.rng.between(0, 2 * skew).cast_signed() - skew.cast_signed();
        let node = Node::new(number as u64 + 1, error, self.mutations);
        self.nodes.push(node);
        self.schedule(0, Event::Start { node: number });
    }

    pub(crate) fn schedule(&mut self, after_us: u64, event: Event) {
        let slot = if let Some(slot) = self.free.pop() {
            self.events[slot] = Some(event);
            slot
        } else {
            self.events.push(Some(event));
            self.events.len() - 1
        };
        self.order += 1;
        self.queue
            .push(Reverse((self.us + after_us, self.order, slot)));
    }

    /// Handles the next event; returns false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        let Some(Reverse((at, order, slot))) = self.queue.pop() else {
            return false;
        };
        let Some(event) = self.events[slot].take() else {
            return true;
        };
        self.free.push(slot);
        self.us = at;
        self.moment += 1;
        self.trace.mix(at ^ order.rotate_left(40));
        self.trace.event(at, &event);
        self.handle(event);
        true
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Deliver { from, to, envelope } => self.deliver(from, to, envelope),
            Event::Synced { node, boot } => self.synced(node, boot),
            Event::Wake { node, boot } => self.wake(node, boot),
            Event::Beat { node, boot } => self.beat(node, boot),
            Event::Start { node } => self.start(node),
            Event::Topology { node, config } => self.topology(node, &config),
            Event::Report { from, milestone } => self.group.note(from, milestone),
            Event::Discard { node } => self.replica_step(node, Input::Discard),
            Event::Slices {
                node,
                boot,
                from,
                epoch,
                slices,
            } => self.ingest_slices(node, boot, (from, epoch), slices),
            Event::Read { node, boot, late } => self.read_out(node, boot, late),
            Event::Alone { node, boot, alone } => self.alone(node, boot, *alone),
            Event::ScanLate { tag } => self.scan_late(tag),
            Event::Cancel { node, op } => self.cancel(node, op),
            Event::Client(client) => self.client(client),
            Event::Group => self.group_step(),
            Event::Chaos => self.chaos(),
        }
    }

    pub(crate) fn index(&self, id: NodeId) -> Option<usize> {
        let index = id.0.checked_sub(1)? as usize;
        (index < self.nodes.len()).then_some(index)
    }

    pub(crate) fn is_live(&self, node: usize, boot: u32) -> bool {
        self.nodes[node].boot == boot && self.nodes[node].is_up()
    }

    fn start(&mut self, node: usize) {
        let this = &mut self.nodes[node];
        if this.gone || this.is_up() {
            return;
        }
        this.start(
            usize::from(self.faults.promises),
            self.faults.slices,
            self.mutations,
        );
        let boot = this.boot;
        let config = self.group.config.clone();
        let mut after = 500;
        if self.faults.deaf_us > after && !self.healing {
            after = self.rng.between(after, self.faults.deaf_us);
        }
        self.schedule(after, Event::Topology { node, config });
        let beat = self.rng.below(20_000);
        self.schedule(beat, Event::Beat { node, boot });
    }

    fn deliver(&mut self, from: NodeId, to: NodeId, envelope: Envelope) {
        use torc_replication::Message as M;
        let Some(node) = self.index(to).filter(|node| self.nodes[*node].is_up()) else {
            return;
        };
        match &envelope.message {
            M::Holding { .. }
            | M::Promised { .. }
            | M::Accepted { .. }
            | M::Nack { .. }
            | M::Abstain { .. }
            | M::Confirmed { .. }
            | M::Epoch { .. } => {
                self.coordinate(node, |process, now, out| {
                    process.coordinator.on_message(now, from, envelope, out);
                });
            }
            M::Confirm { tag, claims } => self.confirm(node, from, *tag, claims),
            M::GcSum {
                upto,
                sum,
                collected,
            } => {
                let process = self.nodes[node].process.as_mut();
                let collector = process.and_then(|process| process.collector.as_mut());
                let sends = collector.map(|c| c.on_sum(from, *upto, *sum, *collected));
                for (peer, envelope) in sends.unwrap_or_default() {
                    self.transmit(to, peer, envelope);
                }
            }
            M::Page { .. } | M::SamePage { .. } if self.scan_answer(node, from, &envelope) => {}
            _ if self.declines(node, from, &envelope) => {}
            _ => {
                if let M::Store { record, .. } = &envelope.message {
                    let seen = record.ballot.time;
                    self.coordinate(node, |process, now, _| {
                        process.coordinator.observe(now, seen);
                    });
                }
                self.replica_step(node, Input::Message { from, envelope });
            }
        }
    }

    /// Whether a full disk keeps a replica from taking a message; it abstains from a request.
    pub(crate) fn declines(&mut self, node: usize, from: NodeId, envelope: &Envelope) -> bool {
        use torc_replication::Message as M;
        if !self.nodes[node].is_full(self.us) {
            return false;
        }
        let (M::Accept { tag, .. } | M::Store { tag, .. } | M::Prepare { tag, .. }) =
            envelope.message
        else {
            return matches!(envelope.message, M::Repair { .. });
        };
        let is_full = true;
        let reply = Envelope {
            message: M::Abstain { tag, is_full },
            ..*envelope
        };
        self.transmit(self.nodes[node].id, from, reply);
        true
    }

    fn topology(&mut self, node: usize, config: &Arc<Config>) {
        if self.nodes[node].no_group_until_us > self.us {
            return;
        }
        if let Some(process) = &mut self.nodes[node].process {
            let known = process.configured.as_ref().map(|known| known.epoch);
            if known.is_none_or(|known| known < config.epoch) {
                process.configured = Some(config.clone());
            }
        }
        self.replica_step(node, Input::Topology(config.clone()));
        self.coordinate(node, |process, now, out| {
            process.coordinator.on_topology(now, config, out);
        });
    }

    fn synced(&mut self, node: usize, boot: u32) {
        if !self.is_live(node, boot) {
            return;
        }
        // Without the first condition, other profiles would draw different numbers than before.
        let is_lost = self.faults.lost > 0 && !self.healing && self.rng.chance(self.faults.lost);
        if is_lost && self.nodes[node].disk.lose_batches() {
            return self.restart_replica(node);
        }
        match self.nodes[node].disk.sync_one() {
            Some(Write::Batch(seq, _)) => self.batch_durable(node, seq),
            Some(Write::Clock(ceiling)) => self.coordinate(node, |process, now, out| {
                process.coordinator.reserved(now, ceiling, out);
            }),
            None => {}
        }
    }

    /// A replica's batch could not be stored, so none of the later ones was: the replica starts over,
    /// as in the driver (`Turn::landed`).
    fn restart_replica(&mut self, node: usize) {
        self.counts.add("batch lost");
        self.trace
            .note(self.us, || format!("node {} loses a batch", node + 1));
        let config = self.nodes[node].restart_replica(
            usize::from(self.faults.promises),
            self.faults.slices,
            self.mutations,
        );
        if let Some(config) = config {
            self.replica_step(node, Input::Topology(config));
        }
    }

    fn batch_durable(&mut self, node: usize, seq: Seq) {
        let this = &mut self.nodes[node];
        let id = this.id;
        let Some(process) = &mut this.process else {
            return;
        };
        process.durable = seq;
        let sends: Vec<_> = process.sends.extract_if(.., |s| s.0 <= seq).collect();
        let reports: Vec<_> = process.reports.extract_if(.., |r| r.0 <= seq).collect();
        for (_, to, envelope) in sends {
            self.transmit(id, to, envelope);
        }
        for (_, milestone) in reports {
            self.report(id, milestone);
        }
        self.replica_step(node, Input::Persisted(seq));
    }

    fn wake(&mut self, node: usize, boot: u32) {
        if !self.is_live(node, boot) {
            return;
        }
        if let Some(process) = &mut self.nodes[node].process {
            process.wake_us = u64::MAX;
        }
        self.coordinate(node, |process, now, out| process.coordinator.tick(now, out));
    }

    /// Passes an input to a node's replica, and performs its effects.
    pub(crate) fn replica_step(&mut self, node: usize, input: Input) {
        let now = self.nodes[node].now(self.us);
        let mut effects = std::mem::take(&mut self.effects);
        let is_far = self.faults.far > 0 && self.rng.chance(self.faults.far);
        let Node { disk, process, .. } = &mut self.nodes[node];
        if let Some(process) = process {
            disk.is_far = is_far;
            process.replica.step(now, input, disk, &mut effects);
        }
        self.perform(node, effects);
    }
}
