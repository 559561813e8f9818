//! A namespace that is created with records: replicas take them one after the other, and clients can use it once
//! all have them.

use bytes::Bytes;
use torc_record::{Ballot, Epoch, HybridTime, NodeSlot, Record, State};
use torc_replication::{Locator, Mutation};

use crate::event::Event;
use crate::history::{Kind, Operation, Seen};
use crate::workload::{Creation, is_new};
use crate::world::World;

impl World {
    /// Reserves the namespace, whose records are below every write.
    pub(crate) fn begin_creation(&mut self) {
        let ballot = Ballot {
            epoch: Epoch(1),
            time: HybridTime::default(),
            slot: NodeSlot(0),
        };
        let mut creation = Creation::default();
        for (key, at) in self.workload.keys.iter().enumerate() {
            if !is_new(at.namespace) {
                continue;
            }
            self.workload.next_value += 1;
            let value = self.workload.next_value;
            // No operation is before it.
            self.workload.histories[key].operations.push(Operation {
                kind: Kind::Put(value),
                seen: Seen::Done,
                call: 0,
                ret: 0,
                ret_ms: 0,
            });
            creation.records.push(Record {
                namespace: at.namespace,
                digest: at.digest,
                key: at.key.clone(),
                ballot,
                origin: None,
                state: State::Value {
                    value: Bytes::copy_from_slice(&value.to_be_bytes()),
                    expires_at_ms: None,
                },
            });
        }
        self.creation = Some(creation);
        for node in 0..usize::from(self.faults.replicas) {
            let after = self.rng.between(2_000, 90_000);
            self.schedule(after, Event::Take { node });
        }
    }

    /// A replica puts the records in force, at once and durably.
    pub(crate) fn take(&mut self, node: usize) {
        // A replica that adopts its first configuration begins empty.
        let has_adopted = self.nodes[node].disk.meta.epoch > Epoch::default()
            || self.mutations.has(Mutation::TakesUnadopted);
        if !self.nodes[node].is_up() || !has_adopted {
            return self.schedule(3_000, Event::Take { node });
        }
        let Some(creation) = &mut self.creation else {
            return;
        };
        self.nodes[node].disk.receive(creation.records.clone());
        creation.holders.insert(node);
        let replicas = usize::from(self.faults.replicas);
        let needed = if self.mutations.has(Mutation::CreatesUnready) {
            replicas / 2 + 1
        } else {
            replicas
        };
        if creation.holders.len() >= needed && !creation.is_named {
            creation.is_named = true;
            self.counts.add("created");
            for node in 0..self.nodes.len() {
                let after = self.rng.between(200, self.faults.deaf_us.max(20_000));
                self.schedule(after, Event::Know { node });
            }
        }
    }

    /// A node learns the name.
    pub(crate) fn know(&mut self, node: usize) {
        if let Some(creation) = &mut self.creation {
            creation.knowing.insert(node);
        }
    }

    /// Whether replicas still take the records: then nothing moves.
    pub(crate) fn is_creating(&self) -> bool {
        self.creation.as_ref().is_some_and(|it| !it.is_named)
    }

    /// Whether some nodes do not know the name yet.
    pub(crate) fn awaits_creation(&self) -> bool {
        let creation = self.creation.as_ref();
        creation.is_some_and(|it| it.knowing.len() < self.nodes.len())
    }

    /// Whether a key is of a namespace that a node does not know yet: it accepts no request for it, and no request of
    /// its own is about it.
    pub(crate) fn is_unknown(&self, node: usize, at: &Locator) -> bool {
        let creation = self.creation.as_ref();
        is_new(at.namespace) && creation.is_some_and(|it| !it.knowing.contains(&node))
    }
}
