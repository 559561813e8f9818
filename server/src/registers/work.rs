//! Carries out what the state machines want, one thing after the other, until nothing is
//! left: what this node says to itself is heard at once.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;
use torc_record::HybridTime;
use torc_replication::{
    Batch, Config, Coordinator, Envelope, Input, Intent, Locator, Message, Now, OpId, Outcome,
    Request, Seq,
};
use torc_ring::{NodeId, Partition};
use torc_store::StoreError;

use super::host::Wish;
use super::{Durable, Registers, disk, slices};

pub(super) struct Work<'a> {
    registers: &'a Registers,
    now: Now,
    /// What this node has said to itself.
    heard: VecDeque<Envelope>,
}

impl<'a> Work<'a> {
    pub(super) fn new(registers: &'a Registers) -> Self {
        Self {
            registers,
            now: registers.now(),
            heard: VecDeque::new(),
        }
    }

    pub(super) const fn registers(&self) -> &'a Registers {
        self.registers
    }

    pub(super) const fn now(&self) -> Now {
        self.now
    }

    /// Until nothing is left that this node has said to itself.
    pub(super) fn finish(&mut self) {
        while let Some(envelope) = self.heard.pop_front() {
            self.deliver(self.registers.me.node, envelope);
        }
    }

    pub(super) fn start(
        &mut self,
        partition: Partition,
        at: Locator,
        request: Request,
        deadline_ms: u64,
        outcome: oneshot::Sender<Outcome>,
    ) {
        let now = self.now;
        let mut intents = Vec::new();
        let mut shard = self.registers.shard_of(partition).lock();
        let was_idle = shard.is_idle();
        let op = shard.numbers.next();
        shard.wait(op, request.is_write(), outcome);
        let coordinator = &mut shard.coordinator;
        coordinator.start(now, op, (partition, at), request, deadline_ms, &mut intents);
        let outcomes = self.perform(intents);
        for (op, outcome) in outcomes {
            shard.done(op, outcome);
        }
        drop(shard);
        if was_idle {
            self.registers.busy.notify_one();
        }
    }

    /// An envelope for this node.
    pub(super) fn deliver(&mut self, from: NodeId, envelope: Envelope) {
        if let Some(tag) = envelope.message.answers() {
            return self.answered(from, tag.op, envelope);
        }
        match envelope.message {
            Message::GcSum { .. } => self.on_sum(from, &envelope),
            Message::Page { .. } if self.registers.listings.take(from, &envelope) => {}
            Message::Accept { tag, .. } | Message::Store { tag, .. }
                if !self.registers.store.room() =>
            {
                // As if it could not be read: the coordinator goes on without this replica.
                let reply = Envelope {
                    message: Message::Abstain { tag },
                    ..envelope
                };
                self.send(from, reply);
            }
            // Comparison finds it again.
            Message::Repair { .. } if !self.registers.store.room() => {}
            Message::Store { ref record, .. } => {
                self.observe(envelope.partition, record.ballot.time);
                self.step(envelope.partition, Input::Message { from, envelope });
            }
            _ => self.step(envelope.partition, Input::Message { from, envelope }),
        }
    }

    /// An answer goes to the coordinator whose operation it is of.
    fn answered(&mut self, from: NodeId, op: OpId, envelope: Envelope) {
        let (now, partition) = (self.now, envelope.partition);
        let shard = self.registers.shard_of(partition);
        let is_eventual = shard.lock().eventual.has(op);
        if is_eventual {
            self.coordinate_eventual(partition, |coordinator, out| {
                coordinator.on_message(now, from, envelope, out);
            });
        } else {
            self.coordinate(partition, |coordinator, out| {
                coordinator.on_message(now, from, envelope, out);
            });
        }
    }

    fn on_sum(&mut self, from: NodeId, envelope: &Envelope) {
        let Message::GcSum {
            upto,
            sum,
            collected,
        } = envelope.message
        else {
            return;
        };
        let Some(host) = self.registers.host_of(envelope.partition) else {
            return;
        };
        let mut host = host.lock();
        let Some(collector) = &mut host.collector else {
            return;
        };
        let sends = collector.on_sum(from, upto, sum, collected);
        if !sends.is_empty() {
            host.collector = None;
        }
        drop(host);
        for (to, envelope) in sends {
            self.send(to, envelope);
        }
    }

    /// Lets a partition's coordinator do something.
    pub(super) fn coordinate(
        &mut self,
        partition: Partition,
        act: impl FnOnce(&mut Coordinator, &mut Vec<Intent>),
    ) {
        let mut intents = Vec::new();
        let mut shard = self.registers.shard_of(partition).lock();
        act(&mut shard.coordinator, &mut intents);
        for (op, outcome) in self.perform(intents) {
            shard.done(op, outcome);
        }
    }

    /// Queues and sends; returns the operations that are done.
    fn perform(&mut self, intents: Vec<Intent>) -> Vec<(OpId, Outcome)> {
        let mut done = Vec::new();
        for intent in intents {
            match intent {
                Intent::Send { to, envelope } => self.send(to, envelope),
                Intent::Done { op, outcome } => done.push((op, outcome)),
                Intent::Reserve(ceiling) => self.reserve(ceiling),
                // The group tells every member of every topology by itself.
                Intent::NeedTopology { .. } => {}
            }
        }
        done
    }

    /// Makes a clock reading durable, then tells the coordinators.
    pub(super) fn reserve(&self, ceiling: HybridTime) {
        let durable = self.registers.durable.clone();
        let done = move |result: Result<(), _>| {
            if result.is_ok() {
                // Fails only when the node stops.
                let _ = durable.send(Durable::Ceiling(ceiling));
            }
        };
        // Where nothing is stored any more, no operation succeeds either.
        let _ = self.registers.store.reserve_ceiling(ceiling, done);
    }

    pub(super) fn send(&mut self, to: NodeId, envelope: Envelope) {
        if to == self.registers.me.node {
            self.heard.push_back(envelope);
        } else {
            self.registers.links.send(to, envelope);
        }
    }

    /// Lets a partition's replica take one input.
    pub(super) fn step(&mut self, partition: Partition, input: Input) {
        let registers = self.registers;
        let Some(host) = registers.host_of(partition) else {
            return;
        };
        let mut wishes = Vec::new();
        let mut host = host.lock();
        let life = host.life;
        let persist = |seq, batch| persist(registers, partition, life, seq, batch);
        host.step(
            self.now,
            input,
            &registers.store,
            partition,
            persist,
            &mut wishes,
        );
        drop(host);
        self.fulfil(partition, wishes);
    }

    /// The store has told of a replica's batch: it is durable, or was lost. After a loss the
    /// replica begins anew with what the store has, as after a crash, once nothing of its life
    /// is on its way to the disk.
    pub(super) fn landed(&mut self, partition: Partition, life: u64, durable: Option<Seq>) {
        let registers = self.registers;
        let Some(host) = registers.host_of(partition) else {
            return;
        };
        let mut host = host.lock();
        if host.life != life {
            return;
        }
        let begins_anew = host.landed(durable.is_some());
        if begins_anew {
            let config = host.config();
            // A store that has failed for good takes nothing any more.
            let _ = registers.store.resume(partition);
            *host = registers.host(partition, life + 1);
            drop(host);
            if let Some(config) = config {
                self.step(partition, Input::Topology(config));
            }
        } else if let Some(seq) = durable {
            drop(host);
            self.step(partition, Input::Persisted(seq));
        }
    }

    pub(super) fn fulfil(&mut self, partition: Partition, wishes: Vec<Wish>) {
        for wish in wishes {
            match wish {
                Wish::Send(to, envelope) => self.send(to, envelope),
                Wish::Report(milestone) => {
                    // Fails only when the node stops.
                    let _ = self.registers.reports.send((partition, milestone));
                }
                Wish::CopySlices(from, epoch) => {
                    let wanted = slices::Wanted {
                        partition,
                        from,
                        epoch,
                    };
                    // Asked for again if there is no room.
                    let _ = self.registers.slices.try_send(wanted);
                }
                Wish::Settle(at, rewrite) => {
                    let sent = self.registers.settles.try_send((partition, at, rewrite));
                    if sent.is_err() {
                        // Comparison or the next read finds it again.
                        self.registers.metrics.settles_dropped.inc();
                    }
                }
            }
        }
    }

    pub(super) fn configure(&mut self, config: &Arc<Config>) {
        let now = self.now;
        self.step(config.partition, Input::Topology(Arc::clone(config)));
        self.coordinate(config.partition, |coordinator, out| {
            coordinator.on_topology(now, config, out);
        });
        self.coordinate_eventual(config.partition, |coordinator, out| {
            coordinator.on_topology(now, config, out);
        });
    }
}

/// Hands a batch to the store; whether it took it. The host's lock is held, so batches keep
/// their order.
fn persist(registers: &Registers, partition: Partition, life: u64, seq: Seq, batch: Batch) -> bool {
    let durable = registers.durable.clone();
    let done = move |result: Result<(), StoreError>| {
        let event = match result {
            Ok(()) => Durable::Batch(partition, life, seq),
            Err(error) => Durable::Failed(partition, life, error),
        };
        // Fails only when the node stops.
        let _ = durable.send(event);
    };
    let handed_over = registers
        .store
        .apply(partition, disk::batch_of(batch), done);
    handed_over
        .map_err(|error| {
            registers
                .durable
                .send(Durable::Failed(partition, life, error))
        })
        .is_ok()
}
