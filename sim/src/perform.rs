//! Performs the intentions of the state machines: on the disk, over links, to clients.

use torc_record::{Epoch, Record};
use torc_replication::{
    Effect, Envelope, Input, Intent, LogPosition, Message, Milestone, Now, OpId, Reading,
};
use torc_ring::NodeId;

use crate::disk::{MAX_BACK, Torn, Write};
use crate::event::{Event, Late};
use crate::node::Node;
use crate::world::World;

impl World {
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

    /// Performs a replica's effects, and keeps the emptied vector for reuse.
    pub(crate) fn perform(&mut self, node: usize, mut effects: Vec<Effect>) {
        for effect in effects.drain(..) {
            self.perform_one(node, effect);
        }
        self.effects = effects;
    }

    fn perform_one(&mut self, node: usize, effect: Effect) {
        let id = self.nodes[node].id;
        match effect {
            Effect::Persist { seq, batch } => self.write(node, Write::Batch(seq, batch)),
            Effect::Send {
                to,
                after,
                envelope,
            } => match &mut self.nodes[node].process {
                Some(process) if after > process.durable => {
                    process.sends.push((after, to, envelope));
                }
                _ => self.transmit(id, to, envelope),
            },
            Effect::Report { after, milestone } => match &mut self.nodes[node].process {
                Some(process) if after > process.durable => {
                    process.reports.push((after, milestone));
                }
                _ => self.report(id, milestone),
            },
            Effect::NeedTopology { .. } => self.fetch_topology(node),
            Effect::Reconcile { at, rewrite } => self.reconcile(node, at, rewrite),
            Effect::Read(reading) => self.read(node, reading),
            Effect::Fetch { from, envelope } => {
                let (boot, after) = (self.nodes[node].boot, 10 + self.rng.below(3_000));
                let late = Late::Fetched(from, envelope);
                self.counts.add("fetched");
                self.schedule(after, Event::Read { node, boot, late });
            }
            Effect::CopySlices { from, epoch } => self.copy_slices(node, from, epoch),
        }
    }

    /// Reads now, later, or in between; delivers the result after later events.
    fn read(&mut self, node: usize, reading: Reading) {
        let Node { disk, boot, .. } = &self.nodes[node];
        let (boot, how) = (*boot, self.rng.below(4));
        let late = match how {
            0 => Late::Done(reading.run(disk)),
            1 => {
                let before = Box::new(disk.clone());
                Late::Torn(reading, before, 1 + self.rng.below(3) as u32)
            }
            _ => Late::ToRead(reading),
        };
        let longest = if self.rng.chance(500) {
            self.faults.read_us
        } else {
            300
        };
        let after = 10 + self.rng.below(longest);
        self.schedule(after, Event::Read { node, boot, late });
    }

    pub(crate) fn read_out(&mut self, node: usize, boot: u32, late: Late) {
        if !self.is_live(node, boot) {
            return;
        }
        let disk = &self.nodes[node].disk;
        let readout = match late {
            Late::Fetched(from, envelope) => {
                if self.declines(node, from, &envelope) {
                    return;
                }
                return self.replica_step(node, Input::Fetched { from, envelope });
            }
            Late::Done(readout) => readout,
            Late::ToRead(reading) => reading.run(disk),
            Late::Torn(reading, before, pages) => reading.run(&Torn {
                before: &before,
                now: disk,
                pages_of_before: pages.into(),
            }),
        };
        self.replica_step(node, Input::Read(readout));
    }

    /// Sends another node's slices to this one, if that node serves them.
    fn copy_slices(&mut self, node: usize, from: NodeId, epoch: Epoch) {
        let Some(source) = self.index(from) else {
            return;
        };
        let cut = self.cut_until[node][source].max(self.cut_until[source][node]);
        let back = self.rng.below(4) * MAX_BACK / 3;
        let after = self.rng.between(500, 20_000);
        let Node { disk, process, .. } = &self.nodes[source];
        let serves = process
            .as_ref()
            .is_some_and(|process| process.replica.serves_slices(epoch));
        if serves && cut <= self.us {
            let event = Event::Slices {
                node,
                boot: self.nodes[node].boot,
                from,
                epoch,
                slices: disk.slices(back, self.mutations),
            };
            self.schedule(after, event);
        }
    }

    pub(crate) fn ingest_slices(
        &mut self,
        node: usize,
        boot: u32,
        (from, epoch): (NodeId, Epoch),
        slices: Option<(Vec<Record>, LogPosition)>,
    ) {
        if !self.is_live(node, boot) {
            return;
        }
        let Some((records, through)) = slices else {
            return self.replica_step(node, Input::NoSlices { epoch });
        };
        let Node { disk, process, .. } = &mut self.nodes[node];
        let takes = process
            .as_ref()
            .is_some_and(|process| process.replica.takes_slices(from, epoch));
        if !takes {
            return;
        }
        disk.receive(records);
        self.counts.add("slices");
        // Otherwise, the effect is that of a crash in between, except for what the node remembers.
        if self.healing || !self.rng.chance(100) {
            let input = Input::SlicesCopied {
                from,
                epoch,
                through,
            };
            self.replica_step(node, input);
        }
    }

    fn write(&mut self, node: usize, write: Write) {
        let took = 50 + self.rng.below(self.faults.sync_us);
        let this = &mut self.nodes[node];
        this.disk.enqueue(write);
        this.disk_free_us = this.disk_free_us.max(self.us) + took;
        let (after, boot) = (this.disk_free_us - self.us, this.boot);
        self.schedule(after, Event::Synced { node, boot });
    }

    /// Calls a node's coordinator, and performs its intents.
    pub(crate) fn coordinate(
        &mut self,
        node: usize,
        act: impl FnOnce(&mut crate::node::Process, Now, &mut Vec<Intent>),
    ) {
        let now = self.nodes[node].now(self.us);
        let mut intents = std::mem::take(&mut self.intents);
        let (id, is_full) = (self.nodes[node].id, self.nodes[node].is_full(self.us));
        if let Some(process) = &mut self.nodes[node].process {
            if is_full {
                process.coordinator.on_full(id);
            }
            act(process, now, &mut intents);
        }
        for intent in intents.drain(..) {
            self.perform_intent(node, intent);
        }
        self.intents = intents;
        self.schedule_wake(node);
    }

    fn perform_intent(&mut self, node: usize, intent: Intent) {
        match intent {
            Intent::Send { to, envelope } => {
                self.note_issued(&envelope.message);
                let id = self.nodes[node].id;
                self.transmit(id, to, envelope);
            }
            Intent::Reserve(_) if self.nodes[node].is_full(self.us) => {
                self.coordinate(node, |process, now, out| {
                    process.coordinator.unreserved(now, out);
                });
            }
            Intent::Reserve(ceiling) => self.write(node, Write::Clock(ceiling)),
            Intent::NeedTopology { .. } => self.fetch_topology(node),
            Intent::Keep(hint) => {
                if let Some(process) = &mut self.nodes[node].process {
                    process.hints.keep(hint);
                }
            }
            Intent::Done { op, outcome } => {
                self.trace.outcome(self.us, op, &outcome);
                if op.0 >= 1 << 40 {
                    if let Some(process) = &mut self.nodes[node].process {
                        process
                            .reconciling
                            .retain(|(reconciling, _)| *reconciling != op);
                    }
                } else {
                    self.finished(op, &outcome);
                }
            }
        }
    }

    fn note_issued(&mut self, message: &Message) {
        if let Message::Store { record, .. } = message
            && let Some(key) = self.workload.key_of(&torc_replication::Locator::of(record))
        {
            self.workload.ledgers[key].issue(record);
        }
    }

    fn schedule_wake(&mut self, node: usize) {
        let Node { process, boot, .. } = &mut self.nodes[node];
        let Some(process) = process else {
            return;
        };
        let Some(wake_ms) = process.coordinator.next_wake_ms() else {
            return;
        };
        let at = (wake_ms * 1_000).max(self.us);
        if at < process.wake_us {
            process.wake_us = at;
            let boot = *boot;
            self.schedule(at - self.us, Event::Wake { node, boot });
        }
    }

    pub(crate) fn report(&mut self, from: NodeId, milestone: Milestone) {
        if self.rng.chance(900) {
            let after = self.rng.between(200, 3_000);
            self.schedule(after, Event::Report { from, milestone });
        }
    }

    pub(crate) fn fetch_topology(&mut self, node: usize) {
        let this = &mut self.nodes[node];
        if this.asked_topology_us > self.us {
            return;
        }
        let after = self.rng.between(300, 3_000);
        this.asked_topology_us = self.us + after;
        let config = self.group.config.clone();
        self.schedule(after, Event::Topology { node, config });
    }

    /// Sends a message over a link that may lose, duplicate, delay or reorder it.
    pub(crate) fn transmit(&mut self, from: NodeId, to: NodeId, envelope: Envelope) {
        if from == to {
            let event = Event::Deliver { from, to, envelope };
            return self.schedule(10, event);
        }
        let (Some(a), Some(b)) = (self.index(from), self.index(to)) else {
            return;
        };
        if self.cut_until[a][b] > self.us {
            return;
        }
        if !self.healing && self.rng.chance(self.faults.drop) {
            self.counts.add("dropped");
            return;
        }
        if !self.healing && self.rng.chance(self.faults.duplicate) {
            self.counts.add("duplicated");
            let after = self.rng.between(100, 8_000);
            let envelope = envelope.clone();
            self.schedule(after, Event::Deliver { from, to, envelope });
        }
        let mut after = self.rng.between(100, 1_500);
        if !self.healing && self.rng.chance(self.faults.late) {
            self.counts.add("late");
            after += self.rng.between(2_000, self.faults.late_ms * 1_000);
        }
        if self.nodes[a].slow_until_us.max(self.nodes[b].slow_until_us) > self.us {
            after *= 20;
        }
        self.schedule(after, Event::Deliver { from, to, envelope });
    }

    pub(crate) fn next_reconcile_id(&mut self) -> OpId {
        self.next_reconcile += 1;
        OpId(self.next_reconcile)
    }
}
