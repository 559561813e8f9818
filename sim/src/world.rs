//! A cluster in one thread: nodes, links, disks, clocks, and a queue of events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use torc_replication::{Effect, Intent, Mutations};
use torc_ring::NodeId;

use crate::event::Event;
use crate::group::Group;
use crate::node::Node;
use crate::profile::Faults;
use crate::rng::Rng;
use crate::trace::Trace;
use crate::workload::{Creation, Merge, Scan, Workload};

/// How far clocks advance at the end, so that clocks that were ahead are no longer so.
pub(crate) const HEALED_CLOCK_MS: i64 = 2 * 3_600_000;

/// Limit on the nodes of a run, including those that lost their disk.
pub(crate) const MAX_NODES: usize = 14;

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
    pub(crate) creation: Option<Creation>,
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
            creation: None,
        };
        let spare = if world.faults.resize > 0 { 2 } else { 1 };
        for _ in 0..replicas + spare {
            world.add_node();
        }
        for client in 0..usize::from(world.faults.clients) {
            let at = 2_000 + world.rng.below(5_000);
            world.schedule(at, Event::Client(client));
        }
        if world.faults.creation {
            world.begin_creation();
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

    /// Takes the next event, and advances the time to it.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let Reverse((at, order, slot)) = self.queue.pop()?;
        let event = self.events[slot].take()?;
        self.free.push(slot);
        self.us = at;
        self.moment += 1;
        self.trace.mix(at ^ order.rotate_left(40));
        self.trace.event(at, &event);
        Some(event)
    }

    pub(crate) fn index(&self, id: NodeId) -> Option<usize> {
        let index = id.0.checked_sub(1)? as usize;
        (index < self.nodes.len()).then_some(index)
    }

    pub(crate) fn is_live(&self, node: usize, boot: u32) -> bool {
        self.nodes[node].boot == boot && self.nodes[node].is_up()
    }

    /// Milliseconds, as counted by those who judge expiry.
    pub(crate) fn told_ms(&self) -> u64 {
        let later_ms = if self.healing {
            HEALED_CLOCK_MS as u64
        } else {
            0
        };
        self.us / 1_000 + later_ms
    }
}
