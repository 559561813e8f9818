//! A few nodes and the messages between them, as a script directs.
//!
//! Nothing happens on its own. A message stays in flight until the script delivers or drops it, the
//! clock stands still until the script waits, and a node learns of a topology only when the script
//! tells it. A disk syncs at once unless it is stalled. Nodes from n9 on are outsiders: messages to
//! them are printed and discarded.
//!
//! | command | does |
//! |---|---|
//! | `found n1 n2 n3` | a stable partition on these nodes, and tells them |
//! | `move n2 n3 n4 [dead=n1]`, `advance`, `abort`, `exclude n1` | the topology's next epoch; `tell=n1/n2` tells only these, `tell=` none |
//! | `renew [merging]` | the same replicas in the next epoch, while a merge is open or not; `tell` as above |
//! | `eventual` | from now on, operations are those of an `eventual` namespace |
//! | `tell n1` | tells a node the topology |
//! | `put n1 k=v`, `delete n1 k`, `get n1 k`, `reconcile n1 k` | an operation, coordinated by n1; `if=absent`, `if=1.100.n1`, `older=2.0.n0`, `until=500`, `deadline=20` (milliseconds from now) |
//! | `abandon op1` | its caller is gone |
//! | `deliver`, `drop` | the messages in flight, once; with `from=n1`, `to=n2`, `kind=accept`, a selection of them |
//! | `deliver_all` | delivers until nothing is in flight; the same filters, and `among=n1/n2` |
//! | `hear n1 accept k=v 1.100.n9` | n1 receives this from n9, in its epoch or `epoch=2` |
//! | `wait 5` | 5 milliseconds pass |
//! | `clock n1 ahead=500`, `behind=500` | n1's wall clock is wrong by this |
//! | `stall n1`, `sync n1` | the disk of n1 stops syncing; it catches up |
//! | `crash n1`, `start n1` | n1 loses what was not synced; it restarts and gets the topology (not with `tell=`) |
//! | `flush n1` | n1's disk no longer tells which versions were stored |
//! | `rot n1 k` | the record of k on n1 fails its checksum from now on |
//! | `collect n1 120` | n1 begins a collection up to 120 ms |
//! | `collect n1` | n1 repeats its request to replicas that have not answered |
//! | `compare n1 n2` | n1 begins a comparison with n2 |
//! | `slices n4 [none]` | n4 gets the slices that it asked for, or learns that there are none |
//! | `discard n1` | n1 deletes its records if it is not a member |
//! | `tick n4` | n4 repeats unanswered requests |
//! | `alone n1 k` | the answer of n1 if it is the only reader |
//! | `show`, `expiry n1` | the content of the disks; the time of the first expiry |

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use goldenscript::{ArgumentConsumer, Command, Context, Runner};
use torc_record::{Ballot, Condition, Epoch, HybridTime, NodeSlot, ReplicaBatch};
use torc_replication::testing::Model;
use torc_replication::{
    Collector, Config, Coordinator, CoordinatorOptions, Effect, Envelope, Input, Intent, Locator,
    Message, Milestone, Milestones, Mutations, Now, OpId, Operation, Quorum, Replica,
    ReplicaOptions, Request, Rules, Seq, Storage,
};
use torc_ring::{NodeId, Partition};

use crate::words::{self, Result};

const PARTITION: Partition = Partition(0);
const STRANGERS: NodeId = NodeId(9);
const DEADLINE_MS: u64 = 10_000;
/// Limit of one `deliver_all`; a script needs about twenty.
const MOST_LETTERS: usize = 1_000;

struct Process {
    replica: Replica,
    coordinator: Coordinator,
    collector: Option<Collector>,
    durable: Seq,
    /// Messages that must not be sent before a batch is durable.
    waiting: Vec<(Seq, Said)>,
    /// The sources of wanted slices, with the epochs.
    wanted: Vec<(NodeId, Epoch)>,
}

enum Said {
    Letter(NodeId, Box<Envelope>),
    Report(Milestone),
}

struct Node {
    disk: Model,
    /// The reservation of its coordinator.
    ceiling: HybridTime,
    /// Batches on their way to the disk.
    queue: VecDeque<(Seq, ReplicaBatch)>,
    is_stalled: bool,
    clock_error_ms: i64,
    process: Option<Process>,
}

struct Letter {
    from: NodeId,
    to: NodeId,
    envelope: Envelope,
}

/// Selects messages in flight for a command.
#[derive(Default)]
struct Filter {
    from: Vec<NodeId>,
    to: Vec<NodeId>,
    among: Vec<NodeId>,
    kind: Option<String>,
}

impl Filter {
    fn take(args: &mut ArgumentConsumer<'_>) -> Result<Self> {
        let mut nodes = |name| args.take_key(name).map(words::nodes).transpose();
        Ok(Self {
            from: nodes("from")?.unwrap_or_default(),
            to: nodes("to")?.unwrap_or_default(),
            among: nodes("among")?.unwrap_or_default(),
            kind: args.take_key("kind").map(str::to_owned),
        })
    }

    fn fits(&self, letter: &Letter) -> bool {
        let is_in = |nodes: &[NodeId], node| nodes.is_empty() || nodes.contains(&node);
        let first = |kind: &String| words::say(&letter.envelope.message).starts_with(kind);
        is_in(&self.from, letter.from)
            && is_in(&self.to, letter.to)
            && is_in(&self.among, letter.from)
            && is_in(&self.among, letter.to)
            && self.kind.as_ref().is_none_or(first)
    }
}

pub(crate) struct World {
    mutations: Mutations,
    rules: Rules,
    ms: u64,
    nodes: BTreeMap<NodeId, Node>,
    flight: Vec<Letter>,
    config: Option<Arc<Config>>,
    milestones: Milestones,
    /// A description of every operation.
    operations: BTreeMap<OpId, String>,
    reconciling: BTreeMap<OpId, (NodeId, Locator)>,
    said: String,
}

impl World {
    pub(crate) fn new(mutations: Mutations) -> Self {
        Self {
            mutations,
            rules: Rules::Linearizable,
            ms: 100,
            nodes: BTreeMap::new(),
            flight: Vec::new(),
            config: None,
            milestones: Milestones::default(),
            operations: BTreeMap::new(),
            reconciling: BTreeMap::new(),
            said: String::new(),
        }
    }
}

/// The actions of nodes.
impl World {
    fn say(&mut self, line: &str) {
        self.said += line;
        self.said.push('\n');
    }

    fn node(&mut self, id: NodeId) -> Result<&mut Node> {
        let node = self.nodes.get_mut(&id);
        node.ok_or_else(|| format!("n{id} was never a replica").into())
    }

    fn process(&mut self, id: NodeId) -> Result<&mut Process> {
        let process = self.node(id)?.process.as_mut();
        process.ok_or_else(|| format!("n{id} is down").into())
    }

    fn now(&self, id: NodeId) -> Now {
        let error_ms = self.nodes.get(&id).map_or(0, |node| node.clock_error_ms);
        Now {
            elapsed_ms: self.ms,
            unix_ms: self.ms.saturating_add_signed(error_ms),
        }
    }

    fn boot(&mut self, id: NodeId) {
        let node = self.nodes.entry(id).or_insert_with(|| Node {
            disk: Model::default(),
            ceiling: HybridTime::default(),
            queue: VecDeque::new(),
            is_stalled: false,
            clock_error_ms: 0,
            process: None,
        });
        let options = ReplicaOptions {
            page_records: 2,
            promises: 8,
            recent: 8,
            ..ReplicaOptions::default()
        };
        let coordinating = CoordinatorOptions {
            near: Some(id),
            ..CoordinatorOptions::default()
        };
        let slot = NodeSlot(u16::try_from(id.0).unwrap_or(u16::MAX));
        let (recovered, ceiling) = (node.disk.recovered(), node.ceiling);
        node.process = Some(Process {
            replica: Replica::recover(id, PARTITION, recovered, options, self.mutations),
            coordinator: Coordinator::new(slot, ceiling, coordinating, self.mutations),
            collector: None,
            durable: Seq(0),
            waiting: Vec::new(),
            wanted: Vec::new(),
        });
    }

    /// Passes one input to a replica, and performs its effects.
    fn step(&mut self, id: NodeId, input: Input) -> Result<()> {
        let now = self.now(id);
        let node = self.node(id)?;
        let process = node.process.as_mut().ok_or("the node is down")?;
        let mut effects = Vec::new();
        process.replica.step(now, input, &node.disk, &mut effects);
        self.perform(id, effects)
    }

    fn perform(&mut self, id: NodeId, effects: Vec<Effect>) -> Result<()> {
        for effect in effects {
            match effect {
                Effect::Persist { seq, batch } => {
                    let node = self.node(id)?;
                    node.queue.push_back((seq, batch));
                }
                Effect::Send {
                    to,
                    after,
                    envelope,
                } => self.say_after(id, after, Said::Letter(to, Box::new(envelope)))?,
                Effect::Report { after, milestone } => {
                    self.say_after(id, after, Said::Report(milestone))?;
                }
                Effect::NeedTopology { epoch } => {
                    self.say(&format!("n{id} asks for the topology of epoch {epoch}"));
                }
                Effect::CopySlices { from, epoch } => {
                    self.process(id)?.wanted.push((from, epoch));
                    self.say(&format!("n{id} asks for the slices of n{from}"));
                }
                Effect::Fetch { from, envelope } => {
                    self.step(id, Input::Fetched { from, envelope })?;
                }
                Effect::Read(reading) => {
                    let readout = reading.run(&self.node(id)?.disk);
                    self.step(id, Input::Read(readout))?;
                }
                Effect::Reconcile { at, rewrite } => self.reconcile(id, at, rewrite)?,
            }
        }
        if self.node(id)?.is_stalled {
            return Ok(());
        }
        self.sync(id)
    }

    fn say_after(&mut self, id: NodeId, after: Seq, said: Said) -> Result<()> {
        let process = self.process(id)?;
        if after > process.durable {
            process.waiting.push((after, said));
        } else {
            self.say_now(id, said);
        }
        Ok(())
    }

    fn say_now(&mut self, id: NodeId, said: Said) {
        match said {
            Said::Letter(to, envelope) => self.send(id, to, *envelope),
            Said::Report(milestone) => {
                self.say(&format!("n{id} {}", words::say_milestone(milestone)));
                if let Some(config) = self.config.clone() {
                    self.milestones.note(&config, id, milestone);
                }
            }
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, envelope: Envelope) {
        self.say(&format!(
            "n{from} -> n{to} {}",
            words::say(&envelope.message)
        ));
        if to < STRANGERS {
            self.flight.push(Letter { from, to, envelope });
        }
    }

    /// Syncs all pending batches of a disk.
    fn sync(&mut self, id: NodeId) -> Result<()> {
        while let Some((seq, batch)) = self.node(id)?.queue.pop_front() {
            self.node(id)?.disk.apply(batch);
            let process = self.process(id)?;
            process.durable = seq;
            let ready = process.waiting.extract_if(.., |(after, _)| *after <= seq);
            for (_, said) in ready.collect::<Vec<_>>() {
                self.say_now(id, said);
            }
            self.step(id, Input::Persisted(seq))?;
        }
        Ok(())
    }

    /// Calls a coordinator, and performs its intents.
    fn coordinate(
        &mut self,
        id: NodeId,
        act: impl FnOnce(&mut Coordinator, Now, &mut Vec<Intent>),
    ) -> Result<()> {
        let now = self.now(id);
        let mut intents = Vec::new();
        act(&mut self.process(id)?.coordinator, now, &mut intents);
        self.perform_intents(id, intents)
    }

    fn perform_intents(&mut self, id: NodeId, intents: Vec<Intent>) -> Result<()> {
        for intent in intents {
            match intent {
                Intent::Send { to, envelope } => self.send(id, to, envelope),
                Intent::Done { op, outcome } => {
                    let what = self.operations.get(&op).cloned().unwrap_or_default();
                    self.say(&format!("{what}: {}", words::say_outcome(&outcome)));
                    self.reconciling.remove(&op);
                }
                Intent::Reserve(ceiling) => {
                    let node = self.node(id)?;
                    node.ceiling = node.ceiling.max(ceiling);
                    let (now, mut more) = (self.now(id), Vec::new());
                    let coordinator = &mut self.process(id)?.coordinator;
                    coordinator.reserved(now, ceiling, &mut more);
                    self.perform_intents(id, more)?;
                }
                Intent::NeedTopology { epoch, .. } => {
                    self.say(&format!("n{id} asks for the topology of epoch {epoch}"));
                }
                Intent::Keep(_) => {}
            }
        }
        Ok(())
    }

    fn begin(
        &mut self,
        id: NodeId,
        at: Locator,
        request: Request,
        time_ms: u64,
        what: &str,
    ) -> Result<OpId> {
        let op = OpId(self.operations.len() as u64 + 1);
        let what = format!("op{} {what} at n{id}", op.0);
        if matches!(request, Request::Reconcile { .. }) {
            self.say(&what);
        }
        self.operations.insert(op, what);
        let operation = Operation {
            partition: PARTITION,
            at,
            rules: self.rules,
            request,
            deadline_ms: self.ms + time_ms,
        };
        self.coordinate(id, |coordinator, now, out| {
            coordinator.start(now, op, operation, out);
        })?;
        Ok(op)
    }

    /// Runs one reconciliation per key and node at a time.
    fn reconcile(&mut self, id: NodeId, at: Locator, rewrite: bool) -> Result<()> {
        let one = (id, at.clone());
        if self.reconciling.values().any(|it| *it == one) {
            return Ok(());
        }
        let op = OpId(self.operations.len() as u64 + 1);
        self.reconciling.insert(op, one);
        let how = if rewrite { "repair" } else { "reconcile" };
        let what = format!("{how} {}", words::say_key(&at));
        let request = Request::Reconcile { rewrite };
        self.begin(id, at, request, DEADLINE_MS, &what)?;
        Ok(())
    }

    /// A message arrives.
    fn arrive(&mut self, letter: Letter) -> Result<()> {
        if self.node(letter.to)?.process.is_none() {
            self.lose(&letter);
            return Ok(());
        }
        let Letter { from, to, envelope } = letter;
        if envelope.message.answers().is_some() {
            return self.coordinate(to, |coordinator, now, out| {
                coordinator.on_message(now, from, envelope, out);
            });
        }
        let Message::GcSum {
            upto,
            sum,
            collected,
        } = envelope.message
        else {
            return self.step(to, Input::Message { from, envelope });
        };
        let collector = self.process(to)?.collector.as_mut();
        let sends = collector.map(|it| it.on_sum(from, upto, sum, collected));
        for (node, envelope) in sends.unwrap_or_default() {
            self.send(to, node, envelope);
        }
        Ok(())
    }

    fn tell(&mut self, id: NodeId) -> Result<()> {
        let config = self.config.clone().ok_or("there is no topology")?;
        if !self.nodes.contains_key(&id) {
            self.boot(id);
        }
        if self.node(id)?.process.is_none() {
            return Ok(());
        }
        self.step(id, Input::Topology(config.clone()))?;
        self.coordinate(id, |coordinator, now, out| {
            coordinator.on_topology(now, &config, out);
        })
    }
}

/// The commands of scripts.
impl World {
    fn commit(&mut self, config: &Config, args: &mut ArgumentConsumer<'_>) -> Result<()> {
        self.say(&words::say_config(config));
        let before = self.config.replace(Arc::new(config.clone()));
        self.milestones = Milestones::default();
        let members = config
            .members
            .iter()
            .chain(before.iter().flat_map(|it| &it.members));
        let mut nodes: Vec<_> = members.map(|member| member.node).collect();
        nodes.sort();
        nodes.dedup();
        if let Some(told) = args.take_key("tell") {
            let told = words::nodes(told)?;
            nodes.retain(|node| told.contains(node));
        }
        nodes.into_iter().try_for_each(|node| self.tell(node))
    }

    fn change(&mut self, name: &str, args: &mut ArgumentConsumer<'_>) -> Result<()> {
        let config = self.config.clone().ok_or("there is no topology")?;
        let epoch = Epoch(config.epoch.0 + 1);
        let next = match name {
            "move" => {
                let to = targets(args)?;
                let dead = words::nodes(args.take_key("dead").unwrap_or_default())?;
                config.begin(epoch, &to, &dead)?
            }
            "advance" => {
                if !self.milestones.may_advance(&config, self.mutations) {
                    return Err("the stage may not be left yet".into());
                }
                config.advance(epoch, self.mutations)?
            }
            "renew" => config.renew(epoch, args.next_pos() == Some("merging"))?,
            "exclude" => config.exclude(epoch, target(args)?)?,
            _ => config.abort(epoch, self.mutations)?,
        };
        self.commit(&next, args)
    }

    fn operation(&mut self, name: &str, args: &mut ArgumentConsumer<'_>) -> Result<()> {
        let id = target(args)?;
        let condition = match args.take_key("if") {
            None => None,
            Some("absent") => Some(Condition::IfAbsent),
            Some(version) => Some(Condition::IfVersion(words::ballot(version)?)),
        };
        let condition = match args.take_key("older") {
            None => condition,
            Some(bound) => Some(Condition::IfOlderThan(words::ballot(bound)?)),
        };
        let expires_at_ms = args.take_key("until").map(str::parse).transpose()?;
        let time_ms = args.take_key("deadline").map(str::parse).transpose()?;
        let what;
        let (key, request) = match name {
            "put" => {
                let (key, value) = args.next_key().ok_or("write k=v")?;
                what = format!("put {key}={value}");
                let value = Bytes::from(value.to_owned());
                let request = Request::Put {
                    value,
                    expires_at_ms,
                    condition,
                };
                (key, request)
            }
            "delete" => {
                let tells_existed = args.take_key("tells").is_some();
                let request = Request::Delete {
                    condition,
                    tells_existed,
                };
                let key = args.next_pos().ok_or("which key?")?;
                what = format!("delete {key}");
                (key, request)
            }
            "reconcile" => {
                let at = words::locator(args.next_pos().ok_or("which key?")?)?;
                return self.reconcile(id, at, false);
            }
            _ => {
                let key = args.next_pos().ok_or("which key?")?;
                what = format!("get {key}");
                (key, Request::Get)
            }
        };
        let time_ms = time_ms.unwrap_or(DEADLINE_MS);
        self.begin(id, words::locator(key)?, request, time_ms, &what)?;
        Ok(())
    }

    fn abandon(&mut self, args: &mut ArgumentConsumer<'_>) -> Result<()> {
        let number = args.next_pos().and_then(|it| it.strip_prefix("op"));
        let op = OpId(number.ok_or("which operation?")?.parse()?);
        let what = self.operations.get(&op).ok_or("no such operation")?.clone();
        let node = what
            .rsplit(' ')
            .next()
            .map_or(Err("at which node?".into()), words::node)?;
        let mut may_take_effect = false;
        self.coordinate(node, |coordinator, now, out| {
            may_take_effect = coordinator.abandon(now, op, out);
        })?;
        let effect = if may_take_effect { "may" } else { "cannot" };
        self.say(&format!("{what}: forgotten, it {effect} take effect"));
        Ok(())
    }

    /// Fails if a script expects messages and there are none.
    fn take(&mut self, filter: &Filter) -> Vec<Letter> {
        let letters: Vec<_> = self.flight.extract_if(.., |it| filter.fits(it)).collect();
        if letters.is_empty() {
            self.say("no such message is in flight");
        }
        letters
    }

    fn lose(&mut self, Letter { from, to, envelope }: &Letter) {
        let what = words::say(&envelope.message);
        self.say(&format!("lost: n{from} -> n{to} {what}"));
    }

    fn deliver(&mut self, filter: &Filter) -> Result<()> {
        self.take(filter)
            .into_iter()
            .try_for_each(|it| self.arrive(it))
    }

    fn deliver_all(&mut self, filter: &Filter) -> Result<()> {
        self.deliver(filter)?;
        for _ in 0..MOST_LETTERS {
            let Some(at) = self.flight.iter().position(|it| filter.fits(it)) else {
                return Ok(());
            };
            let letter = self.flight.remove(at);
            self.arrive(letter)?;
        }
        Err("the nodes never come to rest".into())
    }

    fn drop(&mut self, filter: &Filter) {
        for letter in self.take(filter) {
            self.lose(&letter);
        }
    }

    fn hear(&mut self, args: &mut ArgumentConsumer<'_>) -> Result<()> {
        let to = target(args)?;
        let from = args.take_key("from").map_or(Ok(STRANGERS), words::node)?;
        let epoch = args.take_key("epoch").map(str::parse).transpose()?;
        let epoch = epoch.map_or(self.process(to)?.replica.meta().epoch, Epoch);
        let envelope = Envelope {
            partition: PARTITION,
            epoch,
            message: words::message(args)?,
        };
        self.step(to, Input::Message { from, envelope })
    }

    fn wait(&mut self, ms: u64) -> Result<()> {
        for _ in 0..ms {
            self.ms += 1;
            let up = self.nodes.iter().filter(|(_, node)| node.process.is_some());
            for id in up.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.coordinate(id, Coordinator::tick)?;
            }
        }
        Ok(())
    }

    fn collect(&mut self, id: NodeId, upto_ms: Option<&str>) -> Result<()> {
        let config = self.config.clone().ok_or("there is no topology")?;
        let mutations = self.mutations;
        if let Some(ms) = upto_ms {
            let upto = Ballot {
                epoch: config.epoch,
                time: HybridTime::from_unix_ms(ms.parse()?),
                slot: NodeSlot(u16::try_from(id.0).unwrap_or(u16::MAX)),
            };
            let collector = Collector::new(config, upto, mutations);
            self.process(id)?.collector =
                Some(collector.ok_or("the partition moves, or a merge is open")?);
        }
        let collector = self.process(id)?.collector.as_ref();
        for (to, envelope) in collector.ok_or("n collects nothing")?.ask() {
            self.send(id, to, envelope);
        }
        Ok(())
    }

    fn slices(&mut self, id: NodeId, are_there: bool) -> Result<()> {
        for (from, epoch) in std::mem::take(&mut self.process(id)?.wanted) {
            if !are_there {
                self.step(id, Input::NoSlices { epoch })?;
                continue;
            }
            let serves = self.process(from)?.replica.serves_slices(epoch);
            let takes = self.process(id)?.replica.takes_slices(from, epoch);
            if !serves || !takes {
                let who = if serves { id } else { from };
                self.say(&format!("n{who} is not in epoch {epoch}: no slices"));
                continue;
            }
            let (records, through) = self.node(from)?.disk.slices();
            self.node(id)?.disk.ingest(records);
            self.step(
                id,
                Input::SlicesCopied {
                    from,
                    epoch,
                    through,
                },
            )?;
        }
        Ok(())
    }

    /// As in the server: reads the disk only if no other replica has a say.
    fn alone(&mut self, id: NodeId, key: &str) -> Result<()> {
        let (now, mutations, at) = (self.now(id), self.mutations, words::locator(key)?);
        let node = self.node(id)?;
        let replica = &node.process.as_ref().ok_or("the node is down")?.replica;
        let collecting = replica.meta().collecting.time;
        let said = match replica.reads_alone() {
            None => "others read too".to_owned(),
            Some(epoch) => {
                let (lookup, epochs) = (node.disk.get(&at), (epoch, Some(epoch)));
                let answer = Replica::alone(lookup, now, collecting, epochs, mutations);
                let answer = answer.map_or("the ordinary way".to_owned(), |outcome| {
                    words::say_outcome(&outcome)
                });
                format!("alone in epoch {epoch}: {answer}")
            }
        };
        self.say(&format!("n{id}: {said}"));
        Ok(())
    }

    fn show(&mut self) {
        let mut lines = Vec::new();
        for (id, node) in &self.nodes {
            let entries: Vec<_> = node.disk.entries().map(words::say_entry).collect();
            let entries = match entries.join(", ") {
                held if held.is_empty() => "nothing".to_owned(),
                held => held,
            };
            let meta = node.disk.meta;
            let watermarks = words::say_watermarks(meta.collected, meta.collecting);
            lines.push(format!(
                "n{id} in epoch {}: {entries}{watermarks}",
                meta.epoch
            ));
        }
        for line in lines {
            self.say(&line);
        }
    }

    fn disturb(&mut self, name: &str, args: &mut ArgumentConsumer<'_>) -> Result<()> {
        let id = target(args)?;
        match name {
            "stall" => self.node(id)?.is_stalled = true,
            "sync" => {
                self.node(id)?.is_stalled = false;
                self.sync(id)?;
            }
            "crash" => {
                let node = self.node(id)?;
                node.is_stalled = false;
                node.process = None;
                node.queue.clear();
            }
            "start" => {
                self.boot(id);
                if args.take_key("tell").is_none() {
                    self.tell(id)?;
                }
            }
            "flush" => self.node(id)?.disk.flush(),
            "rot" => {
                let at = words::locator(args.next_pos().ok_or("which key?")?)?;
                self.node(id)?.disk.rot(&at);
            }
            "clock" => {
                let (ahead, behind) = (args.take_key("ahead"), args.take_key("behind"));
                let ms = |text: Option<&str>| text.unwrap_or("0").parse::<i64>();
                self.node(id)?.clock_error_ms = ms(ahead)? - ms(behind)?;
            }
            "expiry" => {
                let said = match self.process(id)?.replica.first_expiry_ms() {
                    0 => "does not know when its first value expires".to_owned(),
                    u64::MAX => "has no value that expires".to_owned(),
                    ms => format!("has a value that expires at {ms}"),
                };
                self.say(&format!("n{id} {said}"));
            }
            "discard" => self.step(id, Input::Discard)?,
            _ => self.step(id, Input::Tick)?,
        }
        Ok(())
    }
}

fn target(args: &mut ArgumentConsumer<'_>) -> Result<NodeId> {
    words::node(args.next_pos().ok_or("which node?")?)
}

fn targets(args: &mut ArgumentConsumer<'_>) -> Result<Vec<NodeId>> {
    let mut nodes = Vec::new();
    while let Some(name) = args.next_pos() {
        nodes.push(words::node(name)?);
    }
    Ok(nodes)
}

impl Runner for World {
    type Command = Command;

    fn run(&mut self, command: &Command, _context: &Context) -> Result<String> {
        let mut args = command.consume_args();
        let args = &mut args;
        match command.name.as_str() {
            "found" => {
                let nodes = targets(args)?;
                self.commit(&Config::founded(PARTITION, Epoch(1), &nodes), args)?;
            }
            "move" | "renew" | "advance" | "abort" | "exclude" => {
                self.change(&command.name, args)?;
            }
            "eventual" => self.rules = Rules::Eventual(Quorum::Majority),
            "tell" => {
                let id = target(args)?;
                self.tell(id)?;
            }
            "put" | "get" | "delete" | "reconcile" => self.operation(&command.name, args)?,
            "abandon" => self.abandon(args)?,
            "deliver" => self.deliver(&Filter::take(args)?)?,
            "deliver_all" => self.deliver_all(&Filter::take(args)?)?,
            "drop" => self.drop(&Filter::take(args)?),
            "hear" => self.hear(args)?,
            "wait" => self.wait(args.next_pos().ok_or("how long?")?.parse()?)?,
            "collect" => {
                let id = target(args)?;
                self.collect(id, args.next_pos())?;
            }
            "compare" => {
                let (id, peer) = (target(args)?, target(args)?);
                let mut effects = Vec::new();
                self.process(id)?.replica.compare_with(peer, &mut effects);
                self.perform(id, effects)?;
            }
            "slices" => {
                let id = target(args)?;
                self.slices(id, args.next_pos() != Some("none"))?;
            }
            "alone" => {
                let id = target(args)?;
                self.alone(id, args.next_pos().ok_or("which key?")?)?;
            }
            "show" => self.show(),
            "stall" | "sync" | "crash" | "start" | "flush" | "rot" | "clock" | "expiry"
            | "discard" | "tick" => self.disturb(&command.name, args)?,
            other => return Err(format!("`{other}` is no command").into()),
        }
        args.reject_next()?;
        Ok(std::mem::take(&mut self.said))
    }
}
