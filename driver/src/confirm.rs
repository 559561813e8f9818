//! Reads many keys from this node's replicas with one visit to the store, and compares them
//! with another node's replicas.

use torc_record::Epoch;
use torc_replication::{
    Claim, Envelope, Held, Locator, Lookup, Message, Operation, Request, Rules, Tag,
};
use torc_ring::{NodeId, Partition};

use super::replica_slot::ReplicaSlot;
use super::turn::Turn;

impl Turn<'_> {
    /// What this node holds for each get that other replicas may confirm; `None` where the answer
    /// is not in memory.
    pub(super) fn held_of(&self, operations: &[(u32, Operation)]) -> Vec<Option<Held>> {
        let asked = operations.iter().map(|(_, operation)| {
            let is_get = matches!(operation.request, Request::Get);
            let config = self.config(operation.partition)?;
            let is_shared = config.members.len() > 1 && operation.rules == Rules::Linearizable;
            (is_get && is_shared).then_some((operation.partition, config.epoch, &operation.at))
        });
        let read = self.read(asked);
        let held = |(slot, lookup): (&ReplicaSlot, Lookup)| slot.replica.own_record(&lookup);
        read.into_iter().map(|read| read.and_then(held)).collect()
    }

    /// Answers another node's claims about what it holds.
    pub(super) fn confirm(&mut self, to: NodeId, tag: Tag, claims: &[Claim]) {
        let Some(first) = claims.first() else {
            return;
        };
        let asked = claims
            .iter()
            .map(|claim| Some((claim.partition, claim.epoch, &claim.at)));
        let read = self.read(asked).into_iter().zip(claims);
        let confirmed = read.map(|(read, claim)| {
            read.is_some_and(|(slot, lookup)| slot.replica.confirms(claim, &lookup))
        });
        let message = Message::Confirmed {
            tag,
            confirmed: confirmed.collect(),
        };
        let envelope = Envelope {
            partition: first.partition,
            epoch: first.epoch,
            message,
        };
        self.send(to, envelope);
    }

    /// Reads the keys for which this shard's replicas may speak in these epochs.
    fn read<'a>(
        &self,
        asked: impl Iterator<Item = Option<(Partition, Epoch, &'a Locator)>>,
    ) -> Vec<Option<(&ReplicaSlot, Lookup)>> {
        let slots: Vec<_> = asked
            .map(|asked| {
                let (partition, epoch, at) = asked?;
                let slot = self.known_slot(partition)?;
                slot.vouches_in(epoch).then_some((slot, at))
            })
            .collect();
        let keys: Vec<_> = slots
            .iter()
            .flatten()
            .map(|(_, at)| at.borrowed())
            .collect();
        let mut found = self.store().get_batch_cached(&keys).into_iter();
        let known = self.keys();
        let mut read = |(slot, _)| Some((slot, known.lookup(found.next()??)));
        let slots = slots.into_iter();
        slots.map(|slot| slot.and_then(&mut read)).collect()
    }
}
