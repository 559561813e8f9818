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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use torc_record::{DigestKey, Epoch, NamespaceId};
use torc_ring::replicas::Milestone;
use torc_ring::topology::{
    Arcs, ClusterId, Command, Founding, GenerationContent, GenerationShape, GenerationState,
    Incarnation, NamespaceMode, NewMember, NewNamespace, Outcome, Proposal, Release, Report,
    RoutingTable, Sizes, Stage, Topology, TransitionKind,
};
use torc_ring::{NodeId, Partition, Partitions, Weight, Zone};

use crate::Rng;

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
    /// A node reports an epoch as adopted of which it has only heard.
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

struct Node {
    /// The topology that it acts on, durably.
    adopted: Arc<Topology>,
    table: Arc<RoutingTable>,
    /// The topology before that.
    former: Option<Arc<Topology>>,
    slices: BTreeSet<(Partition, NamespaceId)>,
    is_up: bool,
    is_cut: bool,
}

impl Node {
    fn by(topology: &Arc<Topology>) -> Self {
        Self {
            adopted: Arc::clone(topology),
            table: Arc::new(topology.routing()),
            former: None,
            slices: BTreeSet::new(),
            is_up: true,
            is_cut: false,
        }
    }

    fn adopt(&mut self, topology: &Arc<Topology>) {
        if topology.epoch() > self.adopted.epoch() {
            self.former = Some(std::mem::replace(&mut self.adopted, Arc::clone(topology)));
            self.table = Arc::new(topology.routing());
        }
    }

    fn current(&self) -> NamespaceId {
        self.table.namespaces[NAME].id
    }

    fn holds_all(&self, partition: Partition) -> bool {
        let mut due = self.table.generations_in(partition);
        due.all(|it| self.slices.contains(&(partition, it.id)))
    }
}

/// A client: its topology, and the last switch whose effect it has seen.
#[derive(Clone, Copy)]
struct Client {
    epoch: Epoch,
    generation: NamespaceId,
    seen: u64,
}

/// A get that a node has routed.
struct Get {
    client: usize,
    through: NodeId,
    generation: NamespaceId,
    partition: Partition,
    /// Switches that had returned when it began.
    floor: u64,
    /// The last switch that the client had seen by then.
    seen: u64,
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

    /// Reserves, builds and attaches a generation, or attaches a rolled-back one again.
    fn build(&mut self) {
        let back = self.any_generation().filter(|(number, _)| {
            let state = self.group.generation(*number).map(|it| it.state);
            state == Some(GenerationState::RolledBack)
        });
        let number = if let Some((number, _)) = back {
            number
        } else {
            let reserve = Command::ReserveGeneration {
                namespace: NAME.to_owned(),
                merge: false,
                at_ms: 1,
            };
            let Some(Outcome::Reserved { number }) = self.commit(reserve) else {
                return;
            };
            number
        };
        let Some(id) = self.group.generation(number).map(|it| it.id) else {
            return;
        };
        let partitions = self.group.partitions();
        let some = partitions.iter().filter(|it| has_key(id, *it));
        let content = GenerationContent {
            manifest: [number as u8; 32],
            source: String::new(),
            records: 1,
            bytes: 1,
            arcs: Arcs::of(partitions, some),
            shape: GenerationShape::Values,
        };
        self.sources.insert(id);
        self.commit(Command::AttachGeneration { number, content });
    }

    fn promote(&mut self) {
        let Some((number, id)) = self.any_generation() else {
            return;
        };
        let was = self.group.current_generation(NAME).map(|it| it.id);
        let promoted = self.commit(Command::PromoteGeneration { number });
        if promoted.is_some() && was != Some(id) {
            self.switched.push(id);
            self.check_held(id);
        }
    }

    fn check_held(&mut self, id: NamespaceId) {
        for state in &self.group.routing().states {
            let partition = state.config.partition;
            let lacks = |node: &&NodeId| {
                let node = self.nodes.get(node);
                node.is_some_and(|node| !node.slices.contains(&(partition, id)))
            };
            if let Some(node) = state
                .nodes
                .iter()
                .find(lacks)
                .filter(|_| has_key(id, partition))
            {
                self.fail(format!(
                    "node {node} lacks {partition} of a promoted generation"
                ));
            }
        }
    }

    fn roll_back(&mut self) {
        let namespace = NAME.to_owned();
        if self.commit(Command::RollBack { namespace }).is_some()
            && let Some(current) = self.group.current_generation(NAME)
        {
            self.switched.push(current.id);
        }
    }

    /// The administrator learns that no member answers from an older generation any more.
    fn note_returned(&mut self) {
        let is_heard = self.group.unconfirmed(NAME).is_empty();
        let all = self.switched.len() as u64;
        if (is_heard || self.is_broken(Broken::ReturnsAtOnce)) && self.returned < all {
            self.summary.switches += all - self.returned;
            self.returned = all;
        }
    }

    /// Deletes a build directory once nodes hold the generation.
    fn lose_source(&mut self) {
        if !self.group.written_off().is_empty() {
            return;
        }
        let ready = self
            .group
            .generations()
            .find(|it| it.is_held() && self.group.not_ready(it).is_empty());
        if let Some(id) = ready.map(|it| it.id) {
            self.sources.remove(&id);
        }
    }

    fn change_members(&mut self) {
        if self.group.transition().is_some() || self.remove_lost() {
            return;
        }
        let active: Vec<_> = self.group.members().keys().copied().collect();
        let kind = if active.len() < 5 && self.rng.chance(600) {
            let enrol = Command::Enrol(member(self.next_member));
            let Some(Outcome::Enrolled { node, .. }) = self.commit(enrol) else {
                return;
            };
            self.next_member = self.next_member.wrapping_add(1);
            self.nodes.insert(node, Node::by(&self.group));
            TransitionKind::Join(node)
        } else {
            match self.rng.pick(&active) {
                Some(node) => TransitionKind::Leave(node),
                None => return,
            }
        };
        self.begin(kind, false);
    }

    fn begin(&mut self, kind: TransitionKind, force: bool) {
        let proposal = Proposal {
            kind,
            based_on: self.group.epoch(),
            parallel: 2,
            planned: Sizes::default(),
            at_ms: 1,
            force,
        };
        self.commit(Command::Begin(proposal));
    }

    /// Removes a node that was written off. Returns whether there is one.
    fn remove_lost(&mut self) -> bool {
        let lost = self.group.written_off().first().copied();
        if let Some(node) = lost {
            self.begin(TransitionKind::Leave(node), true);
        }
        lost.is_some()
    }

    /// A node is lost for good and written off, unless a slice would be lost with it, or a move could
    /// only go there.
    fn lose_node(&mut self) {
        let Some(node) = self.any_node() else {
            return;
        };
        let is_safe = self.nodes[&node].slices.iter().all(|(_, id)| {
            self.sources.contains(id) || self.group.generation(id.number()).is_none()
        });
        if is_safe
            && self.nodes.len() > 2
            && self.group.transition().is_none()
            && self.group.written_off().is_empty()
            && self.commit(Command::WriteOff { node, at_ms: 1 }).is_some()
        {
            self.nodes.remove(&node);
        }
    }

    fn deliver_late(&mut self) {
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
    fn stop_who_has_left(&mut self) {
        let members = self.group.members();
        self.nodes.retain(|id, _| members.contains_key(id));
        let nodes = &self.nodes;
        self.gets.retain(|get| nodes.contains_key(&get.through));
    }

    fn kill_or_start(&mut self) {
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

    fn cut_or_heal(&mut self) {
        let ids: Vec<_> = self.nodes.keys().copied().collect();
        if let Some(node) = self.rng.pick(&ids).and_then(|id| self.nodes.get_mut(&id)) {
            node.is_cut = !node.is_cut;
        }
    }

    fn adopt(&mut self, id: NodeId) {
        let group = Arc::clone(&self.group);
        if let Some(node) = self.nodes.get_mut(&id).filter(|it| !it.is_cut) {
            node.adopt(&group);
        }
    }

    /// A node's work on generations and moves, like `transfers/src/generations` and its reports.
    fn look(&mut self, id: NodeId) {
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

    fn drop_what_is_gone(&mut self, id: NodeId, table: &RoutingTable) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.slices.retain(|(partition, generation)| {
                let state = table.state(*partition);
                table.generations.contains_key(generation)
                    && state.is_some_and(|it| it.config.index(id).is_some())
            });
        }
    }

    fn fetch(&mut self, id: NodeId, table: &RoutingTable) {
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

    fn report(&mut self, id: NodeId, table: &RoutingTable) {
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

    fn begin_get(&mut self) {
        let client = self.rng.below(self.clients.len() as u64) as usize;
        let Some(through) = self.any_node() else {
            return;
        };
        let Some(node) = self.nodes.get(&through) else {
            return;
        };
        let generation = node.current();
        if !generation.is_generation() {
            return;
        }
        // The client requests the generation of its own topology, which it refreshes when a node
        // reports another one.
        let epoch = node.table.epoch;
        let is_any = self.is_broken(Broken::AnyDigest);
        let Some(known) = self.clients.get_mut(client) else {
            return;
        };
        if known.generation != generation && !is_any {
            if known.epoch < epoch {
                (known.epoch, known.generation) = (epoch, generation);
            }
            return;
        }
        let seen = known.seen;
        let partition = Partition(self.rng.below(u64::from(PARTITIONS)) as u32);
        self.gets.push(Get {
            client,
            through,
            generation,
            partition,
            floor: self.returned,
            seen,
        });
    }

    /// The first switch, from `first` on, that made a generation current.
    fn switch_to(&self, generation: NamespaceId, first: u64) -> Option<u64> {
        let later = self.switched.get(first.saturating_sub(1) as usize..)?;
        let at = later.iter().position(|it| *it == generation)?;
        Some(first.max(1) + at as u64)
    }

    /// A replica answers a get or abstains.
    fn answer_get(&mut self) {
        if self.gets.is_empty() {
            return;
        }
        let at = self.rng.below(self.gets.len() as u64) as usize;
        let get = self.gets.swap_remove(at);
        let Some(node) = self.nodes.get(&get.through) else {
            return;
        };
        let readers = node.table.state(get.partition);
        let readers: Vec<_> = readers.into_iter().flat_map(|it| it.nodes.iter()).collect();
        let readers: Vec<_> = readers.into_iter().copied().collect();
        let Some(replica) = self.rng.pick(&readers) else {
            return;
        };
        if let Some(found) = self.answer(replica, &get) {
            self.judge(&get, found);
        }
    }

    fn answer(&self, replica: NodeId, get: &Get) -> Option<bool> {
        let replica = self.nodes.get(&replica).filter(|it| it.is_up)?;
        if replica.slices.contains(&(get.partition, get.generation)) {
            return Some(has_key(get.generation, get.partition));
        }
        let known = replica.table.generations.get(&get.generation);
        let is_empty =
            known.is_some_and(|it| !it.has_keys_in(replica.table.partitions, get.partition));
        (is_empty || self.is_broken(Broken::AbsentWhereNotHeld)).then_some(false)
    }

    fn judge(&mut self, get: &Get, found: bool) {
        self.summary.gets += 1;
        if found != has_key(get.generation, get.partition) {
            let number = get.generation.number();
            self.fail(format!("a key of generation {number} was called absent"));
        }
        if self.switch_to(get.generation, get.floor).is_none() {
            let (number, floor) = (get.generation.number(), get.floor);
            self.fail(format!(
                "a get that began after switch {floor} had returned was answered from generation {number}"
            ));
        }
        let Some(now) = self.switch_to(get.generation, get.seen) else {
            let (number, seen) = (get.generation.number(), get.seen);
            return self.fail(format!(
                "a client that saw switch {seen} went back to generation {number}"
            ));
        };
        if let Some(client) = self.clients.get_mut(get.client) {
            client.seen = client.seen.max(now);
        }
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
