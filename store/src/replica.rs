//! The operations that replicas need: ordered atomic batches, facts, sums of ranges.
//!
//! Invariants:
//! * The batches of a partition become durable and are applied in the order in which they were
//!   handed over. After one has failed, all later ones are refused until the caller has noticed and
//!   calls [`Store::resume`]: the disk always holds a prefix.
//! * A batch of a partition is in a single frame of the log: after a crash, it is there completely
//!   or not at all. For readers it is not atomic: they may see a part of it while it is applied.
//! * Batches that were handed over together are in as few frames as possible.
//! * A batch that was reported to `done` without an error is durable and applied.

use std::cmp::Ordering;

use torc_record::{
    Ballot, DIGEST_LEN, Digest, Epoch, HybridTime, KeyId, Locator, PageSum, Record, ReplicaBatch,
    ReplicaFacts, StoredVersions,
};
use torc_ring::{Partition, Token};

use crate::commit::{Callback, Change, Op, Parts, Report};
use crate::packed::Packed;
use crate::store::MAX_OP_BYTES;
use crate::{Applied, RangeSum, Store, StoreError};

impl Store {
    /// Hands over changes of partitions. Changes of one partition take effect in the given order.
    /// All become durable together with one sync, up to 4 MiB of them as stored; more take several
    /// syncs. Each [`ReplicaBatch`] takes effect completely or not at all. Does not wait.
    ///
    /// `done` is called once, when all changes are completed, with those that failed; the others
    /// are durable and applied. It runs on the committer's thread and must not block. Without
    /// changes, and once the store has stopped, it runs before this returns.
    ///
    /// A change that fails affects no other partition. Later changes of the same partition, in this
    /// call and in others, fail with [`StoreError::AfterFailure`] until [`Store::resume`] is
    /// called.
    ///
    /// A change without records is never refused for lack of room. Call [`Store::room`] before
    /// creating records that must not be refused.
    ///
    /// A change that failed with [`StoreError::Failed`] may or may not survive. After any other
    /// error it has changed nothing: [`StoreError::UnknownPartition`], [`StoreError::Refused`],
    /// [`StoreError::StrayRecord`]; [`StoreError::BatchTooLong`]: split it; [`StoreError::NoRoom`],
    /// [`StoreError::OutOfSpace`], [`StoreError::Io`], [`StoreError::Closed`].
    pub fn apply_many(
        &self,
        changes: impl IntoIterator<Item = (Partition, ReplicaBatch), IntoIter: ExactSizeIterator>,
        done: impl FnOnce(Applied) + Send + 'static,
    ) {
        let (shared, changes) = (self.shared(), changes.into_iter());
        let mut parts = Parts::new(MAX_OP_BYTES, changes.len(), Report::new(done));
        let mut records = Vec::new();
        for (partition, mut batch) in changes {
            let own = std::mem::take(&mut batch.records);
            let packed = self.pack(partition, own, &mut records);
            if packed.is_err() {
                records.clear();
            }
            parts.push(Change::new(partition, &batch, packed), &mut records);
        }
        let mut parts = parts.finish();
        shared.admit_now(&mut parts);
        if let Err(refusal) = shared.queue.push_changes(parts) {
            let (parts, why) = *refusal;
            for mut changes in parts {
                shared.room.release(changes.reserved_bytes);
                changes.refuse(&why);
                changes.complete(None);
            }
        }
    }

    /// [`Store::apply_many`] with one change; `done` gets its outcome.
    ///
    /// # Errors
    /// [`StoreError::Failed`], [`StoreError::Closed`]: nothing was changed and `done` is not
    /// called.
    pub fn apply(
        &self,
        partition: Partition,
        batch: ReplicaBatch,
        done: impl FnOnce(Result<(), StoreError>) + Send + 'static,
    ) -> Result<(), StoreError> {
        self.shared().health.check()?;
        self.apply_many([(partition, batch)], move |applied| {
            let failed = applied.failed.into_iter().next();
            done(failed.map_or(Ok(()), |(_, error)| Err(error)));
        });
        Ok(())
    }

    fn pack(
        &self,
        partition: Partition,
        records: Vec<Record>,
        packed: &mut Vec<Packed>,
    ) -> Result<(), StoreError> {
        self.check_partition(partition)?;
        let partitions = self.shared().options.partitions;
        let mut len = 0;
        for record in records {
            if partitions.holding(record.namespace, Token::of(&record.digest)) != partition {
                return Err(StoreError::StrayRecord { partition });
            }
            let one = Packed::of(&record)?;
            len += one.bytes().len();
            if len > MAX_OP_BYTES {
                let max = MAX_OP_BYTES;
                return Err(StoreError::BatchTooLong { len, max });
            }
            packed.push(one);
        }
        Ok(())
    }

    /// Whether there is room for new records. If there is none, requests a flush: refuse new writes
    /// until there is room. Batches under way may use an eighth of the memtable's limit in
    /// addition.
    #[must_use]
    pub fn room(&self) -> bool {
        self.shared().has_room()
    }

    /// Accepts batches of a partition again after one has failed. Those handed over before are
    /// still refused.
    ///
    /// # Errors
    /// [`StoreError::Failed`], [`StoreError::Closed`].
    pub fn resume(&self, partition: Partition) -> Result<(), StoreError> {
        let op = Op::Resume { partition };
        self.shared().queue.push(op).map_err(|refusal| refusal.1)
    }

    /// The durable facts of a partition; all zero if they were never set.
    #[must_use]
    pub fn partition_meta(&self, partition: Partition) -> ReplicaFacts {
        self.shared().table.facts(partition).meta
    }

    /// What the log told, when the store was opened, of the versions that the partition's replica had
    /// stored. Call it before the first change of the partition; the next call knows nothing.
    #[must_use]
    pub fn take_stored_versions(&self, partition: Partition) -> StoredVersions {
        self.shared().stored.take(partition)
    }

    /// The highest ballot of a purge of the partition since the last wipe or drop.
    #[must_use]
    pub fn watermark(&self, partition: Partition) -> Ballot {
        self.shared().table.facts(partition).watermark
    }

    /// At least the time of every ballot of an epoch under which a record is or was stored in a partition,
    /// generations apart. Never goes back.
    #[must_use]
    pub fn highest_in(&self, partition: Partition, epoch: Epoch) -> HybridTime {
        let highest = self.shared().table.facts(partition).highest;
        match highest.epoch.cmp(&epoch) {
            Ordering::Less => HybridTime::default(),
            Ordering::Equal => highest.time,
            // Records of a later epoch came first, and hide what was stored in this one.
            Ordering::Greater => self.shared().highest_time(),
        }
    }

    /// The highest durable ceiling of the node's clock.
    #[must_use]
    pub fn node_ceiling(&self) -> HybridTime {
        self.shared().node_ceiling()
    }

    /// Makes a ceiling durable; the highest one wins. Does not wait; `done` as for
    /// [`Store::apply`].
    ///
    /// # Errors
    /// [`StoreError::Failed`], [`StoreError::Closed`]: `done` is not called.
    pub fn reserve_ceiling(
        &self,
        time: HybridTime,
        done: impl FnOnce(Result<(), StoreError>) + Send + 'static,
    ) -> Result<(), StoreError> {
        let shared = self.shared();
        shared.health.check()?;
        let done = Callback::new(done);
        let pushed = shared.queue.push(Op::Ceiling { time, done });
        pushed.map_err(|refusal| {
            let (op, why) = *refusal;
            op.discard();
            why
        })
    }

    /// The sum of the versions with digests from `low` to `high` inclusive, without collected ones.
    /// A whole partition takes no time (or a count, after a purge). A part takes a read of every
    /// record, because its checksum covers the value.
    ///
    /// # Errors
    /// [`StoreError::UnknownPartition`], [`StoreError::Failed`], [`StoreError::Closed`].
    /// [`StoreError::Damaged`]: the sum is unknown; see [`Store::scan_readable`].
    pub fn range_sum(
        &self,
        partition: Partition,
        low: Digest,
        high: Digest,
    ) -> Result<RangeSum, StoreError> {
        self.check_partition(partition)?;
        let shared = self.shared();
        shared.health.check()?;
        let partitions = shared.options.partitions;
        let first = digest(partitions.start(partition), 0);
        let last = digest(partitions.end(partition), u8::MAX);
        let covers = low <= first && high >= last;
        if covers {
            if let Some(error) = self.damage(partition) {
                return Err(error);
            }
            let summary = self.summary(partition);
            return Ok(RangeSum {
                count: summary.records,
                sum: summary.fingerprint,
            });
        }
        shared.table.sum_of(partition, low, high)
    }

    /// The sum of all versions of a partition, if it is up to date: for some time after a purge it
    /// is not.
    #[must_use]
    pub fn kept_sum(&self, partition: Partition) -> Option<PageSum> {
        self.check_partition(partition).ok()?;
        self.shared().health.check().ok()?;
        let kept = self.shared().table.kept_summary(partition)?;
        Some(PageSum::of(kept.records, kept.fingerprint))
    }

    /// Bytes of keys and values of a partition, if up to date; see [`Store::kept_sum`].
    #[must_use]
    pub fn kept_bytes(&self, partition: Partition) -> Option<usize> {
        let kept = self.shared().table.kept_summary(partition)?;
        usize::try_from(kept.payload_bytes).ok()
    }

    /// The sum of the page after a position, if it ends with `until` or with the partition. `None`
    /// if that is more than `most` records, if two of them have the same digest, or if some cannot
    /// be read. A whole partition takes no time; a part takes a read of every record, because its
    /// checksum covers the value.
    #[must_use]
    pub fn page_sum(
        &self,
        partition: Partition,
        after: Option<&Locator>,
        until: Option<KeyId>,
        most: usize,
    ) -> Option<PageSum> {
        if after.is_none() && until.is_none() {
            let (first, last) = (Digest([0; DIGEST_LEN]), Digest([u8::MAX; DIGEST_LEN]));
            let whole = self.range_sum(partition, first, last).ok()?;
            return (whole.count <= most as u64).then(|| PageSum::of(whole.count, whole.sum));
        }
        self.check_partition(partition).ok()?;
        self.shared().health.check().ok()?;
        let table = &self.shared().table;
        table.page_sum(partition, after, until, most)
    }
}

/// A digest with this token, whose other bytes all equal `rest`.
fn digest(token: Token, rest: u8) -> Digest {
    let mut digest = [rest; DIGEST_LEN];
    digest[..8].copy_from_slice(&token.0.to_be_bytes());
    Digest(digest)
}
