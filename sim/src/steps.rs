//! The steps of a run: each handles the next event.
//!
//! Everything happens in the order of the queue, and the generator makes every choice, so a seed
//! determines the run. No module of the cluster knows a rule of replication: they perform the state
//! machines' intentions late, twice, or not at all.

use std::sync::Arc;

use torc_replication::{Config, Envelope, Input, Seq};
use torc_ring::NodeId;

use crate::disk::Write;
use crate::event::Event;
use crate::world::World;

impl World {
    /// Handles the next event; returns false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        let Some(event) = self.next_event() else {
            return false;
        };
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
            Event::Take { node } => self.take(node),
            Event::Know { node } => self.know(node),
            Event::Client(client) => self.client(client),
            Event::Group => self.group_step(),
            Event::Chaos => self.chaos(),
        }
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
    /// as in the driver (`Turn::on_batch_ended`).
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
}
