//! A seeded simulation of `eventual` namespaces: the machines that the server runs, over a
//! network that loses and delays, disks that lose what was not synced, clocks that are off
//! by some milliseconds, and one collection after the other.
//!
//! Checked of every run: what a majority has confirmed is found by every read of a majority
//! that begins later, be it superseded; once all is healed, all replicas hold the same, which
//! has every write that was confirmed by anybody.
#![allow(missing_docs)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use torc_record::{Ballot, Digest, Epoch, HybridTime, Key, NamespaceId, NodeSlot, Record, State};
use torc_replication::{
    Batch, Collector, Config, Effect, Entry, Envelope, EventualCoordinator, EventualIntent,
    EventualOptions, EventualOutcome, EventualRequest, Hints, Input, KeyId, Locator, Lookup,
    Message, Meta, Mutation, Mutations, Now, OpId, Quorum, Replica, ReplicaOptions, Scanned, Seq,
    Storage, is_collected,
};
use torc_ring::{NodeId, Partition};

const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];
const KEYS: u64 = 4;
const START_MS: u64 = 1_700_000_000_000;
/// Faults and operations until here, then all is healed.
const FAULTY_MS: u64 = 3_000;
const END_MS: u64 = 9_000;
const COLLECT_OLDER_MS: u64 = 40;

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

#[derive(Default)]
struct Disk {
    entries: BTreeMap<KeyId, Record>,
    meta: Meta,
    ceiling: HybridTime,
    queue: VecDeque<(Seq, Batch)>,
}

impl Disk {
    fn sync_one(&mut self) -> Option<Seq> {
        let (seq, batch) = self.queue.pop_front()?;
        for record in batch.records {
            self.entries.insert(KeyId::of(&record), record);
        }
        if let Some(upto) = batch.purge {
            self.entries
                .retain(|_, it| !is_collected(it.ballot, &it.state, upto));
        }
        self.meta = batch.meta.unwrap_or(self.meta);
        Some(seq)
    }
}

impl Storage for Disk {
    fn get(&self, at: &Locator) -> Lookup {
        let found = self.entries.get(&at.id()).cloned();
        found.map_or(Lookup::Absent, Lookup::Found)
    }

    fn scan(&self, after: Option<KeyId>, limit: usize) -> Scanned {
        let later = self.entries.iter().filter(|(id, _)| after < Some(**id));
        let entries = later.take(limit).map(|(_, it)| Entry::Found(it.clone()));
        Scanned::of(entries.collect(), limit)
    }
}

struct Node {
    disk: Disk,
    replica: Replica,
    coordinator: EventualCoordinator,
    hints: Hints,
    collector: Option<Collector>,
    durable: Seq,
    sends: Vec<(Seq, NodeId, Envelope)>,
    boot: u64,
    clock_error_ms: u64,
}

impl Node {
    fn start(index: usize, disk: Disk, boot: u64, rng: &mut Rng, mutations: Mutations) -> Self {
        let options = EventualOptions {
            resend_ms: 20,
            settle_ms: 60,
            linger_ms: 60,
            lingering: 4,
            near: Some(NODES[index]),
        };
        let replica = ReplicaOptions {
            page_records: 2,
            ..ReplicaOptions::default()
        };
        let slot = NodeSlot(index as u16);
        Self {
            replica: Replica::recover(NODES[index], Partition(0), disk.meta, replica, mutations),
            coordinator: EventualCoordinator::new(slot, disk.ceiling, options),
            hints: Hints::new(8, 1 << 20),
            collector: None,
            durable: Seq(0),
            sends: Vec::new(),
            boot,
            clock_error_ms: rng.below(40),
            disk,
        }
    }
}

/// What a client wanted, and when.
struct Asked {
    key: u64,
    is_write: bool,
    quorum: Quorum,
    /// The highest version of the key that a majority had confirmed when a read began.
    floor: Ballot,
}

struct World {
    rng: Rng,
    ms: u64,
    mutations: Mutations,
    config: Arc<Config>,
    nodes: Vec<Node>,
    /// By the time of arrival.
    network: BTreeMap<(u64, u64), (usize, NodeId, Envelope)>,
    sent: u64,
    cut: BTreeSet<(usize, usize)>,
    last_op: u64,
    asked: HashMap<OpId, Asked>,
    /// Every version that was ever sent, with what it says.
    issued: BTreeMap<(u64, Ballot), State>,
    by_majority: BTreeMap<u64, Ballot>,
    by_any: BTreeMap<u64, Ballot>,
    violation: Option<String>,
    reads: u64,
    collections: u64,
}

fn locator(key: u64) -> Locator {
    let mut digest = [0; 16];
    digest[0] = (key * 60) as u8;
    digest[15] = key as u8;
    Locator {
        namespace: NamespaceId(2),
        digest: Digest(digest),
        key: Key::new(vec![key as u8 + 1]).unwrap(),
    }
}

fn key_of(record: &Record) -> u64 {
    u64::from(record.digest.0[15])
}

impl World {
    fn new(seed: u64, mutations: Mutations) -> Self {
        let mut rng = Rng(seed);
        let node = |index| Node::start(index, Disk::default(), 0, &mut rng, mutations);
        let nodes: Vec<_> = (0..NODES.len()).map(node).collect();
        let mut world = Self {
            rng,
            ms: 0,
            mutations,
            config: Arc::new(Config::founded(Partition(0), Epoch(1), &NODES)),
            nodes,
            network: BTreeMap::new(),
            sent: 0,
            cut: BTreeSet::new(),
            last_op: 0,
            asked: HashMap::new(),
            issued: BTreeMap::new(),
            by_majority: BTreeMap::new(),
            by_any: BTreeMap::new(),
            violation: None,
            reads: 0,
            collections: 0,
        };
        (0..NODES.len()).for_each(|index| world.configure(index));
        world
    }

    fn is_faulty(&self) -> bool {
        self.ms < FAULTY_MS
    }

    fn now(&self, node: usize) -> Now {
        Now {
            elapsed_ms: self.ms,
            unix_ms: START_MS + self.ms + self.nodes[node].clock_error_ms,
        }
    }

    fn configure(&mut self, node: usize) {
        let config = Arc::clone(&self.config);
        self.step(node, Input::Topology(Arc::clone(&config)));
        self.coordinate(node, |it, now, out| it.on_topology(now, &config, out));
    }

    fn step(&mut self, node: usize, input: Input) {
        let now = self.now(node);
        let mut out = Vec::new();
        let it = &mut self.nodes[node];
        it.replica.step(now, input, &it.disk, &mut out);
        self.perform(node, out);
    }

    fn perform(&mut self, node: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Persist { seq, batch } => {
                    self.nodes[node].disk.queue.push_back((seq, batch));
                }
                Effect::Send {
                    to,
                    after,
                    envelope,
                } => {
                    self.nodes[node].sends.push((after, to, envelope));
                }
                Effect::Settle { at, .. } => self.start(node, at, EventualRequest::Settle, None),
                Effect::NeedTopology { .. } | Effect::Report { .. } | Effect::CopySlices { .. } => {
                }
            }
        }
        let durable = self.nodes[node].durable;
        let ready = self.nodes[node]
            .sends
            .extract_if(.., |(after, ..)| *after <= durable);
        for (_, to, envelope) in ready.collect::<Vec<_>>() {
            self.transmit(node, to, envelope);
        }
    }

    fn transmit(&mut self, from: usize, to: NodeId, envelope: Envelope) {
        if let Message::Store { record, .. } = &envelope.message {
            let version = (key_of(record), record.ballot);
            self.issued.insert(version, record.state.clone());
        }
        let to = NODES.iter().position(|node| *node == to).unwrap();
        let is_lost = self.is_faulty() && self.rng.once_in(12);
        if from != to && (is_lost || self.cut.contains(&(from, to))) {
            return;
        }
        let late = self.is_faulty() && self.rng.once_in(10);
        let delay = if late {
            self.rng.below(400)
        } else {
            self.rng.below(4)
        };
        self.sent += 1;
        let arrival = (self.ms + 1 + delay, self.sent);
        self.network.insert(arrival, (to, NODES[from], envelope));
    }

    fn coordinate(
        &mut self,
        node: usize,
        act: impl FnOnce(&mut EventualCoordinator, Now, &mut Vec<EventualIntent>),
    ) {
        let now = self.now(node);
        let mut out = Vec::new();
        act(&mut self.nodes[node].coordinator, now, &mut out);
        let mut queue = VecDeque::from(out);
        while let Some(intent) = queue.pop_front() {
            match intent {
                EventualIntent::Send { to, envelope } => self.transmit(node, to, envelope),
                EventualIntent::Keep(hint) => drop(self.nodes[node].hints.keep(hint)),
                EventualIntent::Done { op, outcome } => self.done(op, &outcome),
                EventualIntent::Reserve(ceiling) => {
                    // As if it were synced at once.
                    let it = &mut self.nodes[node];
                    it.disk.ceiling = it.disk.ceiling.max(ceiling);
                    let mut more = Vec::new();
                    it.coordinator.reserved(now, ceiling, &mut more);
                    queue.extend(more);
                }
            }
        }
    }

    fn start(&mut self, node: usize, at: Locator, request: EventualRequest, asked: Option<Asked>) {
        self.last_op += 1;
        let op = OpId(self.last_op);
        let deadline = self.ms + 300;
        if let Some(asked) = asked {
            self.asked.insert(op, asked);
        }
        self.coordinate(node, |it, now, out| {
            it.start(now, op, (Partition(0), at), request, deadline, out);
        });
    }

    fn client(&mut self) {
        let node = self.rng.below(NODES.len() as u64) as usize;
        let key = self.rng.below(KEYS);
        let quorum = match self.rng.below(5) {
            0 => Quorum::One,
            1 => Quorum::All,
            _ => Quorum::Majority,
        };
        let is_write = self.rng.once_in(2);
        let request = if is_write {
            let state = if self.rng.once_in(3) {
                State::Tombstone
            } else {
                let ttl = self.rng.once_in(4).then(|| self.rng.below(300));
                State::Value {
                    value: Bytes::from(self.rng.next().to_be_bytes().to_vec()),
                    expires_at_ms: ttl.map(|ttl| START_MS + self.ms + ttl),
                }
            };
            EventualRequest::Write { state, quorum }
        } else {
            EventualRequest::Read { quorum }
        };
        let asked = Asked {
            key,
            is_write,
            quorum,
            floor: self.by_majority.get(&key).copied().unwrap_or_default(),
        };
        self.start(node, locator(key), request, Some(asked));
    }

    fn done(&mut self, op: OpId, outcome: &EventualOutcome) {
        let Some(asked) = self.asked.remove(&op) else {
            return;
        };
        let is_majority = asked.quorum != Quorum::One;
        match outcome {
            EventualOutcome::Written { version } if asked.is_write => {
                let highest = self.by_any.entry(asked.key).or_default();
                *highest = (*highest).max(*version);
                if is_majority {
                    let highest = self.by_majority.entry(asked.key).or_default();
                    *highest = (*highest).max(*version);
                }
            }
            EventualOutcome::Found { version, .. } if is_majority => {
                self.reads += 1;
                if *version < asked.floor {
                    self.fail(&format!(
                        "key {} read {version}, not {}",
                        asked.key, asked.floor
                    ));
                }
            }
            EventualOutcome::Absent if is_majority => {
                self.reads += 1;
                if !self.may_be_absent(asked.key, asked.floor) {
                    self.fail(&format!("key {} is absent, not {}", asked.key, asked.floor));
                }
            }
            _ => {}
        }
    }

    /// Whether some version as new as this one says that there is nothing.
    fn may_be_absent(&self, key: u64, floor: Ballot) -> bool {
        let from = self.issued.range((key, floor)..);
        let mut newer = from.take_while(|((of, _), _)| *of == key);
        let latest = START_MS + self.ms + 600;
        floor == Ballot::default()
            || newer.any(|(_, state)| match state {
                State::Tombstone => true,
                State::Value { expires_at_ms, .. } => expires_at_ms.is_some_and(|at| at <= latest),
            })
    }

    fn fail(&mut self, what: &str) {
        self.violation
            .get_or_insert(format!("at {} ms: {what}", self.ms));
    }

    fn deliver(&mut self, node: usize, from: NodeId, envelope: Envelope) {
        if envelope.message.answers().is_some() {
            return self.coordinate(node, |it, now, out| it.on_message(now, from, envelope, out));
        }
        match &envelope.message {
            Message::GcSum {
                upto,
                sum,
                collected,
            } => {
                let Some(collector) = &mut self.nodes[node].collector else {
                    return;
                };
                let sends = collector.on_sum(from, *upto, *sum, *collected);
                self.collections += u64::from(collector.agrees());
                for (to, envelope) in sends {
                    self.transmit(node, to, envelope);
                }
            }
            Message::Store { record, .. } => {
                let seen = record.ballot.time;
                self.coordinate(node, |it, now, _| it.observe(now, seen));
                self.step(node, Input::Message { from, envelope });
            }
            _ => self.step(node, Input::Message { from, envelope }),
        }
    }

    fn crash(&mut self, node: usize) {
        let boot = self.nodes[node].boot + 1;
        let mut disk = std::mem::take(&mut self.nodes[node].disk);
        for _ in 0..self.rng.below(disk.queue.len() as u64 + 1) {
            disk.sync_one();
        }
        disk.queue.clear();
        self.nodes[node] = Node::start(node, disk, boot, &mut self.rng, self.mutations);
        self.configure(node);
    }

    fn compare(&mut self) {
        let node = self.rng.below(NODES.len() as u64) as usize;
        let peer = NODES[(node + 1 + self.rng.below(2) as usize) % NODES.len()];
        let mut out = Vec::new();
        let it = &self.nodes[node];
        it.replica.compare_with(peer, &it.disk, &mut out);
        self.perform(node, out);
    }

    fn collect(&mut self) {
        let upto = Ballot {
            epoch: self.config.epoch,
            time: HybridTime::from_unix_ms(START_MS + self.ms - COLLECT_OLDER_MS),
            slot: NodeSlot(u16::MAX),
        };
        let collector = Collector::new(Arc::clone(&self.config), upto, Mutations::NONE).unwrap();
        let sends = collector.ask();
        self.nodes[0].collector = Some(collector);
        for (to, envelope) in sends {
            self.transmit(0, to, envelope);
        }
    }

    /// Hands over one hint; it is taken for confirmed, which only makes hints weaker.
    fn hand_over(&mut self, node: usize) {
        for to in NODES {
            let Some(record) = self.nodes[node].hints.for_node(to, 1).next().cloned() else {
                continue;
            };
            self.nodes[node].hints.confirmed(to, &record);
            let at = Locator::of(&record);
            let hint = torc_replication::Hint { to, record };
            self.start(node, at, EventualRequest::HandOver(hint), None);
        }
    }

    fn faults(&mut self) {
        if self.rng.once_in(60) {
            let (from, to) = (self.rng.below(3) as usize, self.rng.below(3) as usize);
            if !self.cut.remove(&(from, to)) {
                self.cut.insert((from, to));
            }
        }
        if self.rng.once_in(400) {
            let node = self.rng.below(3) as usize;
            self.crash(node);
        }
    }

    /// One millisecond.
    fn tick(&mut self) {
        self.ms += 1;
        if self.is_faulty() {
            self.faults();
            if self.rng.once_in(3) {
                self.client();
            }
        } else {
            self.cut.clear();
        }
        while let Some(entry) = self.network.first_entry() {
            if entry.key().0 > self.ms {
                break;
            }
            let (to, from, envelope) = entry.remove();
            self.deliver(to, from, envelope);
        }
        for node in 0..NODES.len() {
            if self.rng.once_in(2)
                && let Some(seq) = self.nodes[node].disk.sync_one()
            {
                self.nodes[node].durable = seq;
                self.step(node, Input::Persisted(seq));
            }
            self.coordinate(node, torc_replication::EventualCoordinator::tick);
            if self.rng.once_in(30) {
                self.hand_over(node);
            }
        }
        if self.rng.once_in(10) {
            self.compare();
        }
        if self.ms > 100 && self.rng.once_in(70) {
            self.collect();
        }
    }

    /// All replicas hold the same, and what anybody confirmed is in it.
    fn check_healed(&mut self) {
        let watermark = self.nodes.iter().map(|it| it.replica.meta().collected);
        let watermark = watermark.max().unwrap();
        let held: Vec<BTreeMap<u64, Ballot>> = self
            .nodes
            .iter()
            .map(|it| {
                let kept = it.disk.entries.values();
                let kept = kept.filter(|it| !is_collected(it.ballot, &it.state, watermark));
                kept.map(|it| (key_of(it), it.ballot)).collect()
            })
            .collect();
        if held.iter().any(|each| *each != held[0]) {
            self.fail(&format!("replicas differ: {held:?}"));
        }
        for (key, confirmed) in self.by_any.clone() {
            let is_there = held[0].get(&key).is_some_and(|held| *held >= confirmed);
            if !is_there && !self.may_be_absent(key, confirmed) {
                self.fail(&format!("key {key} lost {confirmed}"));
            }
        }
    }

    fn run(mut self) -> Self {
        while self.ms < END_MS && self.violation.is_none() {
            self.tick();
        }
        if self.violation.is_none() {
            self.check_healed();
        }
        self
    }
}

#[test]
fn copies_converge_and_majorities_see_what_majorities_confirmed() {
    let (mut reads, mut collections) = (0, 0);
    for seed in 1..=40 {
        let world = World::new(seed, Mutations::NONE).run();
        assert_eq!(world.violation, None, "seed {seed}");
        reads += world.reads;
        collections += world.collections;
    }
    assert!(reads > 1_000, "{reads} reads show little");
    assert!(collections > 40, "{collections} collections show little");
}

#[test]
fn stores_that_pass_by_a_collection_are_caught() {
    let broken = Mutations::only(Mutation::NoFloorAtCollection);
    let caught = (1..=200).any(|seed| World::new(seed, broken).run().violation.is_some());
    assert!(caught, "no seed shows what the rule is for");
}
