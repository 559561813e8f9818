//! Clients and their gets, and what is checked of the answers.

use torc_record::{Epoch, NamespaceId};
use torc_ring::{NodeId, Partition};

use super::{Broken, PARTITIONS, World, has_key};

/// A client: its topology, and the last switch whose effect it has seen.
#[derive(Clone, Copy)]
pub(super) struct Client {
    pub(super) epoch: Epoch,
    pub(super) generation: NamespaceId,
    pub(super) seen: u64,
}

/// A get that a node has routed.
pub(super) struct Get {
    pub(super) client: usize,
    pub(super) through: NodeId,
    pub(super) generation: NamespaceId,
    pub(super) partition: Partition,
    /// Switches that had returned when it began.
    pub(super) floor: u64,
    /// The last switch that the client had seen by then.
    pub(super) seen: u64,
}

impl World {
    pub(super) fn begin_get(&mut self) {
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
    pub(super) fn switch_to(&self, generation: NamespaceId, first: u64) -> Option<u64> {
        let later = self.switched.get(first.saturating_sub(1) as usize..)?;
        let at = later.iter().position(|it| *it == generation)?;
        Some(first.max(1) + at as u64)
    }

    /// A replica answers a get or abstains.
    pub(super) fn answer_get(&mut self) {
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

    pub(super) fn answer(&self, replica: NodeId, get: &Get) -> Option<bool> {
        let replica = self.nodes.get(&replica).filter(|it| it.is_up)?;
        if replica.slices.contains(&(get.partition, get.generation)) {
            return Some(has_key(get.generation, get.partition));
        }
        let known = replica.table.generations.get(&get.generation);
        let is_empty =
            known.is_some_and(|it| !it.has_keys_in(replica.table.partitions, get.partition));
        (is_empty || self.is_broken(Broken::AbsentWhereNotHeld)).then_some(false)
    }

    pub(super) fn judge(&mut self, get: &Get, found: bool) {
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
}
