//! A replica's part in collecting tombstones and expired values.
//!
//! The replica first raises its floor, durably through the ceiling, so it accepts nothing at or
//! below the watermark any more; then it sums the records on disk. See `collect.rs` for the whole
//! protocol.

use torc_record::{Ballot, Record, ReplicaBatch};
use torc_ring::NodeId;

use super::{Now, Replica};
use crate::{Effect, Mutation, Seq};

/// The times at which values expire. The last summing determined them for the disk.
#[derive(Debug, Default)]
pub(super) struct Expiries {
    /// The first expiry on disk; `None` if unknown.
    on_disk_ms: Option<u64>,
    /// The first expiry of records stored since the start of that summing; `None` if none expires.
    since_ms: Option<u64>,
    /// The batch after which the last summing began: everything stored before it is on disk.
    looking: Seq,
}

impl Expiries {
    pub(super) const fn first_ms(&self) -> u64 {
        match (self.on_disk_ms, self.since_ms) {
            (None, _) => 0,
            (Some(disk), Some(since)) if since < disk => since,
            (Some(disk), _) => disk,
        }
    }

    /// Notes a stored record.
    pub(super) fn note(&mut self, record: &Record) {
        if let Some(at) = record.expires_at_ms() {
            self.since_ms = Some(self.since_ms.map_or(at, |first| first.min(at)));
        }
    }

    /// Called before everything stored is summed.
    fn look(&mut self, after: Seq) {
        let first_ms = self.first_ms();
        self.on_disk_ms = self.on_disk_ms.map(|_| first_ms);
        self.since_ms = None;
        self.looking = after;
    }

    /// Takes the first expiry that the summing found.
    pub(super) fn found(&mut self, after: Seq, first_ms: u64) {
        if after == self.looking {
            self.on_disk_ms = Some(first_ms);
        }
    }

    /// Slices have arrived: the first expiry is unknown.
    pub(super) fn forget(&mut self) {
        self.on_disk_ms = None;
    }
}

/// Combines two collections: the higher ballot, with the later time.
pub(super) fn further(a: Ballot, b: Ballot) -> Ballot {
    Ballot {
        time: a.time.max(b.time),
        ..a.max(b)
    }
}

impl Replica {
    pub(super) fn on_gc_floor(
        &mut self,
        now: Now,
        from: NodeId,
        upto: Ballot,
        out: &mut Vec<Effect>,
    ) {
        if upto.epoch != self.meta.epoch || !self.is_timely(now, upto) {
            return;
        }
        let mut batch = ReplicaBatch::default();
        if !self.mutations.has(Mutation::NoFloorAtCollection) {
            self.reserve(upto.time, &mut batch);
            self.raise_floor(upto);
        }
        if self.raise_collecting(upto) {
            batch.meta = Some(self.meta);
        }
        self.persist(batch, out);
        // Summing starts once the last batch is durable. If all are already, this one starts it.
        if self.last_seq <= self.durable {
            self.persist(
                ReplicaBatch {
                    meta: Some(self.meta),
                    ..ReplicaBatch::default()
                },
                out,
            );
        }
        self.expiries.look(self.last_seq);
        if self.mutations.has(Mutation::SumsBeforeDurable) {
            return self.read_sum(from, Seq(0), upto, out);
        }
        self.summing.push((self.last_seq, from, upto));
    }

    /// Records a started collection. Returns whether it is the highest; then the caller's next
    /// batch must store it. Its time never goes back, even if a later epoch has an earlier clock:
    /// expired values stay expired.
    pub(super) fn raise_collecting(&mut self, upto: Ballot) -> bool {
        let known = self.meta.collecting;
        let goes_back = self.mutations.has(Mutation::CollectingGoesBack);
        self.meta.collecting = if goes_back && upto != Ballot::default() {
            upto
        } else {
            further(known, upto)
        };
        let is_raised = self.meta.collecting != known;
        if is_raised {
            self.collecting_seq = Seq(self.last_seq.0 + 1);
        }
        is_raised
    }

    /// Answers the collections whose floor is now durable.
    pub(super) fn finish_summing(&mut self, out: &mut Vec<Effect>) {
        let durable = self.durable;
        let ready: Vec<_> = self
            .summing
            .extract_if(.., |(seq, _, _)| *seq <= durable)
            .collect();
        for (seq, from, upto) in ready {
            self.read_sum(from, seq, upto, out);
        }
    }

    /// All replicas held the same at or below `upto`: absent keys there stay absent.
    pub(super) fn on_gc_purge(&mut self, upto: Ballot, out: &mut Vec<Effect>) {
        if upto <= self.meta.collected || self.pulling.is_some() {
            return;
        }
        self.meta.collected = upto;
        self.raise_collecting(upto);
        if !self.mutations.has(Mutation::NoFloorAtCollection) {
            self.raise_floor(upto);
        }
        let batch = ReplicaBatch {
            purge: Some(upto),
            meta: Some(self.meta),
            ..ReplicaBatch::default()
        };
        self.persist(batch, out);
    }
}
