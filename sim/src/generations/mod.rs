//! Generations of static namespaces under faults: the topology's real state machine, and nodes that
//! follow it, under a seeded scheduler.
//!
//! One namespace, a few keys, three to five nodes that join and leave. Nodes adopt topologies late,
//! one after another, or not at all while they are cut off; they are killed, and restart from their
//! durable state; some are lost for good and written off. Reports arrive late. An administrator attaches,
//! promotes, rolls back and drops generations; build directories disappear. Meanwhile, clients get keys
//! through any node.
//!
//! Checked:
//! * Replicas that serve reads hold what is promoted.
//! * After a promotion has returned, no later get is answered from an older generation.
//! * A client never reads an older generation than before.
//! * A get returns what the generation has: a missing slice does not make a key absent.
//! * In the end, every key is readable: no move has lost a slice.
//!
//! Absent on purpose: how a get finds its replica (the coordinator's part, in the main simulation),
//! and bytes.

mod changes;
mod gets;
mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use torc_record::{DigestKey, Epoch, NamespaceId};
use torc_ring::topology::{
    ClusterId, Command, Founding, Incarnation, NamespaceMode, NewMember, NewNamespace, Outcome,
    Release, Topology,
};
use torc_ring::{NodeId, Partition, Partitions, Weight, Zone};

use crate::Rng;
use gets::{Client, Get};
use nodes::Node;

const NAME: &str = "pages";
const PARTITIONS: u32 = 4;
const STEPS: u64 = 1_500;
const QUIET_ROUNDS: u32 = 120;
const MAX_LATE: usize = 8;

/// A rule to break, to show that the checks detect it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// A node reports a key as absent although it lacks the slice.
    AbsentWhereNotHeld,
    /// A node reports as adopted an epoch that it has only heard of.
    TellsBeforeItAdopts,
    /// A promotion returns as soon as it is committed.
    ReturnsAtOnce,
    /// A newcomer reports a partition as copied without its slices.
    CopiedWithoutSlices,
    /// A node answers whatever generation the client requested.
    AnyDigest,
    /// A member reports that it holds a generation that it has not fetched.
    ReadyTooEarly,
    /// A late report counts as one by the newest topology.
    LateReportCounts,
    /// A node loses an adopted topology when it is killed.
    AdoptedInMemory,
}

impl Broken {
    /// All rules.
    pub const ALL: [Self; 8] = [
        Self::AbsentWhereNotHeld,
        Self::TellsBeforeItAdopts,
        Self::ReturnsAtOnce,
        Self::CopiedWithoutSlices,
        Self::AnyDigest,
        Self::ReadyTooEarly,
        Self::LateReportCounts,
        Self::AdoptedInMemory,
    ];
}

/// The result of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Gets answered.
    pub gets: u64,
    /// Promotions and rollbacks that returned.
    pub switches: u64,
    /// Transitions that ended.
    pub transitions: u64,
    /// The first violation.
    pub violation: Option<String>,
}

struct World {
    rng: Rng,
    broken: Option<Broken>,
    /// The last topology that the group has committed.
    group: Arc<Topology>,
    nodes: BTreeMap<NodeId, Node>,
    next_member: u8,
    /// The build directories of generations that are still readable.
    sources: BTreeSet<NamespaceId>,
    /// The generation that each switch made current, and the number of switches that have returned.
    switched: Vec<NamespaceId>,
    returned: u64,
    clients: Vec<Client>,
    gets: Vec<Get>,
    /// Reports of generations held, on their way.
    late: Vec<Command>,
    summary: Summary,
}

/// Runs a seed, with a rule broken if requested.
#[must_use]
pub fn run(seed: u64, broken: Option<Broken>) -> Summary {
    let mut world = World::new(seed, broken);
    for _ in 0..STEPS {
        world.step();
        if world.summary.violation.is_some() {
            return world.summary;
        }
    }
    world.quiet();
    world.summary
}

fn member(number: u8) -> NewMember {
    NewMember {
        incarnation: Incarnation([number; 16]),
        address: format!("node-{number}:1"),
        peer_address: format!("node-{number}:2"),
        http_address: String::new(),
        zone: Zone::default(),
        weight: Weight::NORMAL,
        release: Release::ours(),
    }
}

/// Whether a generation has a key in a partition, which is true for most.
const fn has_key(id: NamespaceId, partition: Partition) -> bool {
    !(id.number() + partition.0).is_multiple_of(3)
}

impl World {
    fn new(seed: u64, broken: Option<Broken>) -> Self {
        let mut rng = Rng::new(seed);
        let replicas = rng.between(1, 3) as u8;
        let founding = Founding {
            cluster: ClusterId([1; 16]),
            digest_key: DigestKey([2; 32]),
            partitions: Partitions::new(PARTITIONS).unwrap_or(Partitions::DEFAULT),
            replicas,
            positions: 2,
            members: (1..=3).map(member).collect(),
        };
        let mut topology = match Topology::found(founding) {
            Ok(topology) => topology,
            Err(error) => unreachable!("{error}"),
        };
        let namespace = NewNamespace {
            name: NAME.to_owned(),
            mode: NamespaceMode::Static,
            replicas: None,
        };
        let _ = topology.apply(Command::CreateNamespace(namespace));
        let group = Arc::new(topology);
        let nodes: BTreeMap<_, _> = group
            .members()
            .keys()
            .map(|id| (*id, Node::by(&group)))
            .collect();
        let client = Client {
            epoch: Epoch(0),
            generation: NamespaceId::DEFAULT,
            seen: 0,
        };
        Self {
            rng,
            broken,
            group,
            nodes,
            next_member: 4,
            sources: BTreeSet::new(),
            switched: Vec::new(),
            returned: 0,
            clients: vec![client; 3],
            gets: Vec::new(),
            late: Vec::new(),
            summary: Summary::default(),
        }
    }

    fn is_broken(&self, rule: Broken) -> bool {
        self.broken == Some(rule)
    }

    fn commit(&mut self, command: Command) -> Option<Outcome> {
        let outcome = Arc::make_mut(&mut self.group).apply(command).ok()?;
        Some(outcome)
    }

    fn any_node(&mut self) -> Option<NodeId> {
        let up: Vec<_> = self.nodes.iter().filter(|(_, it)| it.is_up).collect();
        let ids: Vec<_> = up.into_iter().map(|(id, _)| *id).collect();
        self.rng.pick(&ids)
    }

    fn any_generation(&mut self) -> Option<(u32, NamespaceId)> {
        let all: Vec<_> = self.group.generations().map(|it| it.id).collect();
        let id = self.rng.pick(&all)?;
        Some((id.number(), id))
    }

    fn step(&mut self) {
        match self.rng.below(103) {
            0..=3 => self.build(),
            4..=8 => self.promote(),
            9 => self.roll_back(),
            10..=11 => {
                if let Some((number, _)) = self.any_generation() {
                    self.commit(Command::DropGeneration { number });
                }
            }
            12..=13 => self.lose_source(),
            14..=15 => self.change_members(),
            16..=19 => self.kill_or_start(),
            20..=22 => self.cut_or_heal(),
            23..=45 => {
                if let Some(node) = self.any_node() {
                    self.adopt(node);
                }
            }
            46..=69 => {
                if let Some(node) = self.any_node() {
                    self.look(node);
                }
            }
            70..=84 => self.begin_get(),
            100 => self.lose_node(),
            101..=102 => self.deliver_late(),
            _ => self.answer_get(),
        }
        self.stop_who_has_left();
        self.note_returned();
    }

    fn fail(&mut self, what: String) {
        self.summary.violation.get_or_insert(what);
    }

    /// Heals everything and waits until nothing moves; then checks that every key of the current
    /// generation is readable.
    fn quiet(&mut self) {
        for node in self.nodes.values_mut() {
            (node.is_up, node.is_cut) = (true, false);
        }
        for _ in 0..MAX_LATE {
            self.deliver_late();
        }
        for _ in 0..QUIET_ROUNDS {
            if self.group.transition().is_none() {
                self.remove_lost();
            }
            let ids: Vec<_> = self.nodes.keys().copied().collect();
            for id in ids {
                self.adopt(id);
                self.look(id);
            }
        }
        self.note_returned();
        if let Some(transition) = self.group.transition() {
            let counts = transition.counts();
            return self.fail(format!("a transition does not end: {counts:?}"));
        }
        let Some(current) = self.group.current_generation(NAME).map(|it| it.id) else {
            return;
        };
        let table = self.group.routing();
        for state in &table.states {
            let partition = state.config.partition;
            for node in state.nodes.iter() {
                let get = Get {
                    client: 0,
                    through: *node,
                    generation: current,
                    partition,
                    floor: self.returned,
                    seen: 0,
                };
                match self.answer(*node, &get) {
                    Some(found) => self.judge(&get, found),
                    None => self.fail(format!("node {node} has lost its slice of {partition}")),
                }
            }
        }
    }
}
