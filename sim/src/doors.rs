//! Gets that a partition's only reader answers from its disk.
//!
//! Three steps, with any events in between: the replica confirms that it is the only reader,
//! the disk is read, the replica confirms again.

use torc_record::Epoch;
use torc_replication::{
    Claim, Envelope, Message, OpId, Operation, Replica, Request, Rules, Storage, Tag,
};
use torc_ring::NodeId;

use crate::event::{Alone, Event};
use crate::node::Node;
use crate::world::World;

impl World {
    /// Starts operations that arrived together. With some probability, returns a single get
    /// instead, to be read from the disk.
    pub(crate) fn start_alone(
        &mut self,
        node: usize,
        mut calls: Vec<(OpId, Operation)>,
    ) -> Option<(OpId, Operation)> {
        let is_get = |operation: &Operation| {
            operation.request == Request::Get && operation.rules == Rules::Linearizable
        };
        if let [(_, operation)] = &calls[..]
            && is_get(operation)
            && self.epoch_alone(node).is_some()
            && self.rng.chance(self.faults.alone)
        {
            return calls.pop();
        }
        let Node { process, disk, .. } = &self.nodes[node];
        let held = |operation: &Operation| {
            let process = process.as_ref()?;
            let epoch = process.coordinator.config(operation.partition)?.epoch;
            let at = &operation.at;
            let may = is_get(operation) && process.replica.vouches_in(epoch) && disk.is_at_hand(at);
            may.then(|| process.replica.own_record(&disk.get(at)))?
        };
        let calls: Vec<_> = calls
            .into_iter()
            .map(|(op, operation)| {
                let held = held(&operation);
                (op, operation, held)
            })
            .collect();
        self.coordinate(node, |process, now, out| {
            process.coordinator.start_many(now, calls, out);
        });
        None
    }

    /// Asks a node whether it holds the same as another one.
    pub(crate) fn confirm(&mut self, node: usize, from: NodeId, tag: Tag, claims: &[Claim]) {
        let Node {
            process, disk, id, ..
        } = &self.nodes[node];
        let (Some(process), Some(first)) = (process, claims.first()) else {
            return;
        };
        let replica = &process.replica;
        let confirms = |claim: &Claim| {
            replica.vouches_in(claim.epoch)
                && disk.is_at_hand(&claim.at)
                && replica.confirms(claim, &disk.get(&claim.at))
        };
        let confirmed: Vec<_> = claims.iter().map(confirms).collect();
        self.counts.add("confirmed");
        let envelope = Envelope {
            partition: first.partition,
            epoch: first.epoch,
            message: Message::Confirmed { tag, confirmed },
        };
        self.transmit(*id, from, envelope);
    }

    fn epoch_alone(&self, node: usize) -> Option<Epoch> {
        let process = self.nodes[node].process.as_ref()?;
        process.replica.reads_alone()
    }

    pub(crate) fn read_alone(&mut self, node: usize, op: OpId, operation: Operation) {
        let Some(epoch) = self.epoch_alone(node) else {
            return;
        };
        self.counts.add("alone");
        let alone = Alone {
            op,
            operation,
            epoch,
            read: None,
        };
        self.later_alone(node, alone);
    }

    fn later_alone(&mut self, node: usize, alone: Alone) {
        let boot = self.nodes[node].boot;
        let longest = if self.rng.chance(200) { 40_000 } else { 3_000 };
        let after = self.rng.between(10, longest);
        let alone = Box::new(alone);
        self.schedule(after, Event::Alone { node, boot, alone });
    }

    pub(crate) fn alone(&mut self, node: usize, boot: u32, mut alone: Alone) {
        let is_wanted = self.workload.pending.contains_key(&alone.op);
        if !self.is_live(node, boot) || !is_wanted {
            return;
        }
        let Some(lookup) = alone.read.take() else {
            alone.read = Some(self.nodes[node].disk.get(&alone.operation.at));
            return self.later_alone(node, alone);
        };
        let this = &self.nodes[node];
        let collecting = this.process.as_ref().map(|it| it.replica.meta().collecting);
        let collecting = collecting.unwrap_or_default().time;
        let epochs = (alone.epoch, self.epoch_alone(node));
        let now = this.now(self.us);
        let answer = Replica::alone(lookup, now, collecting, epochs, self.mutations);
        let Alone { op, operation, .. } = alone;
        match answer {
            Some(outcome) => {
                self.trace.outcome(self.us, op, &outcome);
                self.finished(op, &outcome);
            }
            None => self.coordinate(node, |process, now, out| {
                process.coordinator.start(now, op, operation, out);
            }),
        }
    }
}
