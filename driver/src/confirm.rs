//! Reads many keys from this node's replicas with one visit to the store, and compares them
//! with another node's replicas.
//!
//! A peer groups its claims by its own shards, and may have fewer of them than this node. So one message
//! can hold claims of several shards of this node. Each of these shards compares its part, one after the
//! other, and the last one sends the answer. Each part is compared between the arrival of the message and
//! its answer, so a get that began after a write ended sees the write.

use torc_links::Parcel;
use torc_record::Epoch;
use torc_replication::{
    Claim, Envelope, Held, Locator, Lookup, Message, Operation, Request, Rules, Tag,
};
use torc_ring::{NodeId, Partition};

use super::Registers;
use super::replica_slot::ReplicaSlot;
use super::turn::Turn;

/// A message with claims of several shards.
pub(super) struct Spread {
    parcel: Parcel,
    /// The shard of each claim.
    shards: Vec<usize>,
    /// The answer to each claim; `false` until its shard has compared it.
    confirmed: Vec<bool>,
}

impl Spread {
    /// Whether a claim is of this shard.
    pub(super) fn concerns(&self, shard: usize) -> bool {
        self.shards.contains(&shard)
    }
}

impl Registers {
    /// Takes out the messages with claims of several shards.
    pub(super) fn take_spread(&self, parcels: &mut Vec<Parcel>) -> Vec<Spread> {
        if self.shards.len() == 1 {
            return Vec::new();
        }
        let is_spread = |parcel: &mut Parcel| {
            let shard = self.shard_of(parcel.envelope.partition);
            let mut claims = claims_of(parcel).iter();
            claims.any(|claim| self.shard_of(claim.partition) != shard)
        };
        let spread = parcels.extract_if(.., is_spread).map(|parcel| {
            let claims = claims_of(&parcel).iter();
            let shards: Vec<_> = claims.map(|it| self.shard_of(it.partition)).collect();
            Spread {
                confirmed: vec![false; shards.len()],
                shards,
                parcel,
            }
        });
        spread.collect()
    }
}

fn claims_of(parcel: &Parcel) -> &[Claim] {
    match &parcel.envelope.message {
        Message::Confirm { claims, .. } => claims,
        _ => &[],
    }
}

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
        let confirmed = self.compare(claims.iter()).collect();
        self.send_confirmed(to, tag, claims, confirmed);
    }

    /// Compares this shard's part of the claims, and answers all if it is the last part. The caller
    /// visits the shards in order.
    pub(super) fn confirm_part(&mut self, to: NodeId, shard: usize, spread: &mut Spread) {
        let Message::Confirm { tag, claims } = &spread.parcel.envelope.message else {
            return;
        };
        let is_last = spread.shards.iter().max() == Some(&shard);
        if is_last {
            self.begin_span(to, &spread.parcel);
        }
        let places = || (0..claims.len()).filter(|at| spread.shards[*at] == shard);
        let confirmed = self.compare(places().map(|at| &claims[at]));
        for (at, is_confirmed) in places().zip(confirmed) {
            spread.confirmed[at] = is_confirmed;
        }
        if is_last {
            let confirmed = std::mem::take(&mut spread.confirmed);
            self.send_confirmed(to, *tag, claims, confirmed);
        }
    }

    fn send_confirmed(&mut self, to: NodeId, tag: Tag, claims: &[Claim], confirmed: Vec<bool>) {
        let Some(first) = claims.first() else {
            return;
        };
        let envelope = Envelope {
            // Of the shard that waits for the answer.
            partition: first.partition,
            epoch: first.epoch,
            message: Message::Confirmed { tag, confirmed },
        };
        self.send(to, envelope);
    }

    /// Whether each claim of this shard holds.
    fn compare<'a>(
        &self,
        claims: impl Iterator<Item = &'a Claim> + Clone,
    ) -> impl Iterator<Item = bool> {
        let asked = claims.clone();
        let asked = asked.map(|claim| Some((claim.partition, claim.epoch, &claim.at)));
        let read = self.read(asked).into_iter().zip(claims);
        read.map(|(read, claim)| {
            read.is_some_and(|(slot, lookup)| slot.replica.confirms(claim, &lookup))
        })
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
