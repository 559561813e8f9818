//! What a replica needs of the store: atomic batches in order, facts, sums of ranges.
//!
//! Invariants:
//! * The batches of a partition are durable and applied in the order in which they were
//!   handed over. After one has failed, all behind it are refused, until the caller has seen
//!   that and says [`Store::resume`]: what is on the disk is always a prefix.
//! * A batch of a partition lies in one frame of the log: after a crash all of it is there or
//!   nothing. For readers it is not atomic: they may see a part while it is applied.
//! * What was handed over together lies in as few frames as hold it.
//! * What `done` was told is durable and applied.

use torc_record::{Ballot, DIGEST_LEN, Digest, HybridTime, NamespaceId, PageSum, Record};
use torc_ring::{Partition, Token};

use crate::commit::{Callback, Change, Op, Parts, Report};
use crate::packed::Packed;
use crate::store::MAX_OP_BYTES;
use crate::{Applied, Cursor, PartitionBatch, PartitionMeta, Store, StoreError};

/// What the versions of a range come to, as two replicas compare it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RangeSum {
    /// How many there are, tombstones included.
    pub count: u64,
    /// Sum of [`entry_sum`](torc_record::entry_sum), modulo 2^128.
    pub sum: u128,
}

impl Store {
    /// Hands over changes of partitions; those of one partition take effect in the order in
    /// which they stand. They become durable together, with one sync, up to 4 MiB of them as
    /// stored; beyond that with several. Each [`PartitionBatch`] is in force whole or not at
    /// all. Does not wait.
    ///
    /// `done` is called once, when all are completed, with those that failed: none if all are
    /// durable and applied. It runs on the
    /// committer's thread and must not block; without changes, and once the store has stopped,
    /// it runs before this returns.
    ///
    /// A change that fails takes no other partition's with it. What follows it in its own
    /// partition, in this call and in later ones, fails with [`StoreError::AfterFailure`] until
    /// [`Store::resume`].
    ///
    /// A change without records is never refused for want of room. Ask [`Store::room`] before
    /// making records that must not be refused.
    ///
    /// One that failed with [`StoreError::Failed`] may or may not survive. After every other
    /// error nothing of it was changed: [`StoreError::UnknownPartition`],
    /// [`StoreError::Refused`], [`StoreError::StrayRecord`]; [`StoreError::BatchTooLong`]:
    /// split it; [`StoreError::NoRoom`], [`StoreError::OutOfSpace`], [`StoreError::Io`],
    /// [`StoreError::Closed`].
    pub fn apply_many(
        &self,
        changes: Vec<(Partition, PartitionBatch)>,
        done: impl FnOnce(Applied) + Send + 'static,
    ) {
        let shared = self.shared();
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
        // Bounded by what was just set aside; the queue's own bound makes callers wait.
        if let Err(refusal) = shared.queue.push_changes(parts) {
            let (parts, why) = *refusal;
            for mut changes in parts {
                shared.room.release(changes.reserved_bytes);
                changes.refuse(&why);
                changes.complete(None);
            }
        }
    }

    /// [`Store::apply_many`] of one change; `done` is told its outcome.
    ///
    /// # Errors
    /// [`StoreError::Failed`], [`StoreError::Closed`]: nothing was changed and `done` is not
    /// called.
    pub fn apply(
        &self,
        partition: Partition,
        batch: PartitionBatch,
        done: impl FnOnce(Result<(), StoreError>) + Send + 'static,
    ) -> Result<(), StoreError> {
        self.shared().health.check()?;
        self.apply_many(vec![(partition, batch)], move |applied| {
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

    /// Whether there is room for new records. When there is none, a flush is asked for;
    /// refuse new writes until there is. Batches on their way find room beyond: an eighth
    /// of the memtable's limit.
    #[must_use]
    pub fn room(&self) -> bool {
        self.shared().has_room()
    }

    /// Takes batches of a partition again after one of them has failed. Those handed over
    /// before are still refused.
    ///
    /// # Errors
    /// [`StoreError::Failed`], [`StoreError::Closed`].
    pub fn resume(&self, partition: Partition) -> Result<(), StoreError> {
        let op = Op::Resume { partition };
        self.shared()
            .queue
            .push_control(op)
            .map_err(|refusal| refusal.1)
    }

    /// The facts of a partition as they are durable; all zero if none were ever set.
    #[must_use]
    pub fn partition_meta(&self, partition: Partition) -> PartitionMeta {
        self.shared().table.facts(partition).meta
    }

    /// Up to which ballot a partition was purged since it was wiped or dropped last.
    #[must_use]
    pub fn watermark(&self, partition: Partition) -> Ballot {
        self.shared().table.facts(partition).watermark
    }

    /// The highest ceiling of the node's clock that was made durable.
    #[must_use]
    pub fn node_ceiling(&self) -> HybridTime {
        self.shared().node_ceiling()
    }

    /// Makes a ceiling durable: the highest counts. Does not wait; `done` as for
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
        let pushed = shared.queue.push_control(Op::Ceiling { time, done });
        pushed.map_err(|refusal| {
            let (op, why) = *refusal;
            op.discard();
            why
        })
    }

    /// What the versions with digests from `low` to `high`, both included, come to; what was
    /// collected is left out. The whole partition costs nothing (or a count, after a purge);
    /// of a part every record is read, for its checksum covers the value.
    ///
    /// # Errors
    /// [`StoreError::UnknownPartition`], [`StoreError::Failed`], [`StoreError::Closed`].
    /// [`StoreError::Damaged`]: it cannot be told; see [`Store::scan_readable`].
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

    /// The sum of all versions of a partition, if it is kept: it is not for some time after a purge.
    #[must_use]
    pub fn kept_sum(&self, partition: Partition) -> Option<PageSum> {
        self.check_partition(partition).ok()?;
        self.shared().health.check().ok()?;
        let kept = self.shared().table.kept_summary(partition)?;
        Some(PageSum::of(kept.records, kept.fingerprint))
    }

    /// Bytes of keys and values of a partition, if they are counted; see [`Store::kept_sum`].
    #[must_use]
    pub fn kept_bytes(&self, partition: Partition) -> Option<usize> {
        let kept = self.shared().table.kept_summary(partition)?;
        usize::try_from(kept.payload_bytes).ok()
    }

    /// What the page of a scan after a position comes to if it ends with `until`, or with the
    /// partition; none if that is more than `most` records, if two of them have one digest, or if not all can be read. A
    /// whole partition costs nothing, of a part every record is read, for its checksum covers the value.
    #[must_use]
    pub fn page_sum(
        &self,
        partition: Partition,
        after: Option<&Cursor>,
        until: Option<(Digest, NamespaceId)>,
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

/// A digest of a token whose other bytes are all the same.
fn digest(token: Token, rest: u8) -> Digest {
    let mut digest = [rest; DIGEST_LEN];
    digest[..8].copy_from_slice(&token.0.to_be_bytes());
    Digest(digest)
}
