//! R1: a replica acts only in its adopted epoch, and adopts durably.

use std::sync::Arc;

use torc_record::{Ballot, Epoch, HybridTime, ReplicaBatch, ReplicaFacts};
use torc_ring::NodeId;

use super::{Now, Replica};
use crate::{
    Config, Effect, Envelope, Fence, Input, Message, Milestone, Mutation, Seq, Storage, Tag,
};

impl Replica {
    pub(super) fn on_message(
        &mut self,
        now: Now,
        from: NodeId,
        envelope: Envelope,
        disk: &impl Storage,
        out: &mut Vec<Effect>,
    ) {
        if self.mutations.has(Mutation::NoEpochFence) {
            return self.handle(now, from, envelope.message, disk, out);
        }
        match Fence::check(self.meta.epoch, envelope.epoch) {
            Fence::Pass if self.adopting.is_none() => {
                self.handle(now, from, envelope.message, disk, out);
            }
            Fence::Pass => self.parked.push(&self.options, from, envelope),
            Fence::Refuse => {
                if let Some(tag) = asks(&envelope.message) {
                    self.send(from, Seq(0), Message::Epoch { tag }, out);
                }
            }
            Fence::AdoptFirst => {
                out.push(Effect::NeedTopology {
                    epoch: envelope.epoch,
                });
                self.parked.push(&self.options, from, envelope);
            }
        }
    }

    pub(super) fn on_topology(&mut self, config: Arc<Config>, out: &mut Vec<Effect>) {
        if config.epoch == self.meta.epoch && self.config.is_none() && self.adopting.is_none() {
            // After a restart, the epoch is durable but its configuration was not known.
            self.act_in(config, Seq(0), out);
            return;
        }
        if config.epoch <= self.meta.epoch {
            return;
        }
        let mut batch = ReplicaBatch::default();
        let since = config.member(self.me).map(|member| member.since);
        self.meta = self.meta_in(config.epoch);
        if let Some(since) = since.filter(|since| *since != self.meta.since) {
            // Records left by an earlier membership have missed votes since.
            batch.wipe = !self.mutations.has(Mutation::MembershipKeeps);
            self.slices.clear();
            self.meta = ReplicaFacts {
                since,
                collected: Ballot::default(),
                collecting: Ballot::default(),
                ..self.meta
            };
            self.floor = Ballot::default();
        }
        batch.meta = Some(self.meta);
        self.promises.clear();
        self.recent.begin(config.epoch);
        self.unreadable.clear();
        self.pulling = None;
        self.summing.clear();
        self.reached.clear();
        self.config = None;
        let seq = self.persist(batch, out);
        if self.mutations.has(Mutation::ActsBeforeDurable) {
            return self.act_in(config, Seq(0), out);
        }
        self.adopting = Some((seq, config));
    }

    fn meta_in(&self, epoch: Epoch) -> ReplicaFacts {
        ReplicaFacts {
            epoch,
            ceiling: HybridTime::default(),
            ..self.meta
        }
    }

    pub(super) fn finish_adoption(&mut self, now: Now, disk: &impl Storage, out: &mut Vec<Effect>) {
        let Some((_, config)) = self.adopting.take_if(|(seq, _)| *seq <= self.durable) else {
            return;
        };
        self.act_in(config, Seq(0), out);
        for (from, envelope) in std::mem::take(&mut self.parked).into_messages() {
            self.step(now, Input::Message { from, envelope }, disk, out);
        }
    }

    fn act_in(&mut self, config: Arc<Config>, after: Seq, out: &mut Vec<Effect>) {
        self.reach(Milestone::Adopted(config.epoch), after, out);
        self.config = Some(config);
        self.begin_pull(out);
    }

    pub(super) fn reach(&mut self, milestone: Milestone, after: Seq, out: &mut Vec<Effect>) {
        self.reached.push((after, milestone));
        out.push(Effect::Report { after, milestone });
    }

    pub(super) fn on_discard(&mut self, out: &mut Vec<Effect>) {
        let outside = |config: &Arc<Config>| config.index(self.me).is_none();
        if !self.config.as_ref().is_some_and(outside) {
            return;
        }
        self.meta = ReplicaFacts {
            epoch: self.meta.epoch,
            ..ReplicaFacts::default()
        };
        self.slices.clear();
        let batch = ReplicaBatch {
            wipe: true,
            meta: Some(self.meta),
            ..ReplicaBatch::default()
        };
        self.persist(batch, out);
    }
}

/// The tag of a message that requires an answer.
fn asks(message: &Message) -> Option<Tag> {
    match message {
        Message::Read { tag, .. }
        | Message::Prepare { tag, .. }
        | Message::Accept { tag, .. }
        | Message::Store { tag, .. } => Some(*tag),
        Message::Pull { .. }
        | Message::GcFloor { .. }
        | Message::GcPurge { .. }
        | Message::Compare { .. } => Some(Tag::default()),
        Message::Learn { .. }
        | Message::Repair { .. }
        | Message::List { .. }
        | Message::Page { .. }
        | Message::SamePage { .. }
        | Message::Holding { .. }
        | Message::Promised { .. }
        | Message::Accepted { .. }
        | Message::Nack { .. }
        | Message::Abstain { .. }
        | Message::Confirm { .. }
        | Message::Confirmed { .. }
        | Message::GcSum { .. }
        | Message::Epoch { .. } => None,
    }
}
