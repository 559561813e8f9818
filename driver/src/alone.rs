//! Gets that need no other node. If this node is the only reader of a partition, it reads its store
//! and checks before and after that the configuration is the same. A generation never changes, so
//! its gets read only the store.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;

use torc_record::{Epoch, HybridTime};
use torc_replication::{Lookup, Outcome, Replica, Request, Rules};
use torc_ring::Partition;

use super::spans::{coordinated, coordinator};
use super::{Mailbox, Registers, Wanted};
use crate::mutants::broken_rules;
use torc_telemetry::spans::OpenSpan;

/// Values read at a time. The memory budget is charged only after the read, whatever their length.
const READS_AT_ONCE: usize = 32;

/// Whether this node is the only reader of a partition.
#[derive(Debug, Default)]
pub(super) struct Alone {
    /// The epoch in which this node is the only reader; 0 if it is not.
    epoch: AtomicU64,
    /// The time of the newest collection.
    collecting: AtomicU64,
}

impl Registers {
    /// Called after each step of the partition's replica, under the shard's lock. A step about keys
    /// does not change who reads.
    pub(super) fn note_alone(&self, partition: Partition, replica: &Replica, is_about_keys: bool) {
        let Some(alone) = self.alone.get(partition) else {
            return;
        };
        let known = alone.epoch.load(Ordering::Relaxed);
        let epoch = if is_about_keys {
            known
        } else {
            replica.reads_alone().map_or(0, |epoch| epoch.0)
        };
        if known != epoch {
            alone.epoch.store(epoch, Ordering::SeqCst);
        }
        if epoch != 0 {
            let collecting = replica.meta().collecting.time.0;
            alone.collecting.store(collecting, Ordering::Relaxed);
        }
    }

    /// The epoch in which this node is the partition's only reader, if it is now.
    fn alone_epoch(&self, partition: Partition) -> Option<Epoch> {
        fence(Ordering::SeqCst);
        let epoch = self.alone.get(partition)?.epoch.load(Ordering::SeqCst);
        (epoch != 0).then_some(Epoch(epoch))
    }

    /// Answers the gets that need no other node, with one visit to the store; returns all other
    /// operations, in the same order.
    pub(super) fn answer_alone(
        &self,
        mailbox: &Mailbox,
        wanted: impl IntoIterator<Item = (u32, Wanted)>,
    ) -> Vec<(u32, Wanted)> {
        let (mut epochs, mut wanted) = (Vec::new(), Vec::from_iter(wanted));
        for (_, wanted) in &wanted {
            let epoch = match wanted.rules {
                _ if wanted.request != Request::Get => None,
                Rules::Linearizable => self.alone_epoch(wanted.partition),
                Rules::Static => Some(Epoch(0)),
                Rules::Eventual(_) => None,
            };
            // An earlier operation of this batch may write the key, and a later get must see it.
            let Some(epoch) = epoch else { break };
            epochs.push(epoch);
        }
        let mut are_answered = Vec::with_capacity(epochs.len());
        for (epochs, gets) in epochs
            .chunks(READS_AT_ONCE)
            .zip(wanted.chunks(READS_AT_ONCE))
        {
            self.read_alone(mailbox, epochs, gets, &mut are_answered);
        }
        let mut are_answered = are_answered.into_iter();
        wanted.retain(|_| !are_answered.next().unwrap_or(false));
        wanted
    }

    /// Delivers the outcomes of these gets, and notes which ones it can answer.
    fn read_alone(
        &self,
        mailbox: &Mailbox,
        epochs: &[Epoch],
        gets: &[(u32, Wanted)],
        are_answered: &mut Vec<bool>,
    ) {
        let began = self.tracer.as_ref().map(|_| Instant::now());
        let gets = || epochs.iter().zip(gets);
        let reads: Vec<_> = gets()
            .map(|(_, (_, Wanted { at, .. }))| at.borrowed())
            .collect();
        let found = self.store.get_batch_cached(&reads);
        let (now, mut told) = (self.now(), Vec::with_capacity(reads.len()));
        let known = self.keys.load();
        for ((epoch, (number, wanted)), found) in gets().zip(found) {
            // The replica fetches or repairs what cannot be read here.
            let lookup = found.map_or(Lookup::Unreadable, |found| known.lookup(found));
            let collecting = self.alone.get(wanted.partition);
            let collecting = collecting.map_or(0, |it| it.collecting.load(Ordering::Relaxed));
            let after = match wanted.rules {
                Rules::Static => Some(*epoch),
                _ => self.alone_epoch(wanted.partition),
            };
            let (epochs, rules) = ((*epoch, after), broken_rules());
            let answer = Replica::alone(lookup, now, HybridTime(collecting), epochs, rules);
            are_answered.push(answer.is_some());
            if let Some(outcome) = answer {
                self.metrics.count(false, false, &outcome);
                self.trace_alone(wanted, began, &outcome);
                told.push((*number, outcome));
            }
        }
        mailbox.tell(told);
    }

    /// Records a get that was answered here, if it is traced.
    fn trace_alone(&self, wanted: &Wanted, began: Option<Instant>, outcome: &Outcome) {
        if let (Some(tracer), Some(trace), Some(began)) = (&self.tracer, wanted.trace, began) {
            let open = OpenSpan::child(trace, coordinator(false), began);
            tracer.record(coordinated(open, wanted.partition, Some(outcome)));
        }
    }
}
