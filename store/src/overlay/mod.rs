//! The records of a node in memory: an ordered map a partition, each behind its own lock.
//!
//! Invariants:
//! * Only entries whose log batch has been synced are applied, in log order, by one
//!   thread; so a reader sees durable data only.
//! * A record is held if it supersedes what was held; summaries and the byte count follow
//!   every change within the same lock.
//! * No lock is held across more than [`RECORDS_PER_LOCK`] records, and none while
//!   records are unpacked.
//!
//! Memory of a record beyond its packed bytes (44 bytes of head): 16 for the reference
//! counts, about 8 of the allocator, about 35 for its slot.

mod ordered;

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use torc_record::{Digest, NamespaceId, Record};
use torc_ring::{Partition, Partitions, Token};

use self::ordered::{Ordered, Upsert};
use crate::packed::{Packed, Position};
use crate::{Cursor, PartitionSummary, ScanLimits, ScanPage, Seq};

/// Memory of a record beyond its packed bytes, estimated.
const OVERHEAD_BYTES: u64 = 60;
/// Records looked at under one lock.
const RECORDS_PER_LOCK: usize = 1024;

#[derive(Debug, Default)]
struct Shard {
    records: Ordered,
    summary: PartitionSummary,
    bytes: u64,
}

/// All records of a node.
#[derive(Debug)]
pub(crate) struct Overlay {
    partitions: Partitions,
    shards: Vec<RwLock<Shard>>,
    bytes: AtomicU64,
}

/// A stretch of a partition as it is under one lock.
pub(crate) struct Stretch {
    /// Records with their numbers, in ring order.
    pub(crate) records: Vec<(Seq, Packed)>,
    /// The last record looked at, unless the end was reached.
    pub(crate) last: Option<Packed>,
}

/// What a record adds to the overlay's memory, estimated, bytes.
pub(crate) fn cost(packed: &Packed) -> u64 {
    packed.bytes().len() as u64 + OVERHEAD_BYTES
}

impl Overlay {
    pub(crate) fn new(partitions: Partitions) -> Self {
        let shards = partitions.iter().map(|_| RwLock::default());
        Self {
            partitions,
            shards: shards.collect(),
            bytes: AtomicU64::new(0),
        }
    }

    /// Memory taken, estimated.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn get(
        &self,
        namespace: NamespaceId,
        digest: &Digest,
        key: &[u8],
    ) -> Option<Record> {
        let position = Position::new(digest, namespace, key);
        Some(self.packed(&position)?.unpack())
    }

    /// The packed record at a position.
    pub(crate) fn packed(&self, position: &Position<'_>) -> Option<Packed> {
        let shard = self.shard(position.token).read();
        Some(shard.records.get(position)?.packed.clone())
    }

    /// Applies a durable record; `fingerprint` is its own. Returns whether it is held now.
    pub(crate) fn apply(&self, seq: Seq, packed: &Packed, fingerprint: u128) -> bool {
        let mut shard = self.shard(packed.token()).write();
        match shard.records.upsert(seq, packed) {
            Upsert::Stale => return false,
            Upsert::Inserted => {}
            Upsert::Replaced(old) => {
                shard.summary.remove(&old);
                shard.bytes -= cost(&old);
                self.bytes.fetch_sub(cost(&old), Ordering::Relaxed);
            }
        }
        shard.summary.add(packed, fingerprint);
        shard.bytes += cost(packed);
        self.bytes.fetch_add(cost(packed), Ordering::Relaxed);
        true
    }

    /// Removes all that a partition holds and says what that was.
    ///
    /// Entries are applied in log order, so all of it is older than the drop.
    pub(crate) fn drop_partition(&self, partition: Partition) -> PartitionSummary {
        let Some(shard) = self.shards.get(partition.index()) else {
            return PartitionSummary::default();
        };
        let dropped = std::mem::take(&mut *shard.write());
        // The lock is free again before the records are.
        self.bytes.fetch_sub(dropped.bytes, Ordering::Relaxed);
        dropped.summary
    }

    pub(crate) fn summary(&self, partition: Partition) -> PartitionSummary {
        let shard = self.shards.get(partition.index());
        shard.map_or_else(PartitionSummary::default, |shard| shard.read().summary)
    }

    /// The sum of all summaries: one lock after the other.
    pub(crate) fn total(&self) -> PartitionSummary {
        let mut total = PartitionSummary::default();
        for shard in &self.shards {
            total.merge(&shard.read().summary);
        }
        total
    }

    /// Records after a position that `wanted` accepts, until `full`, or until
    /// [`RECORDS_PER_LOCK`] were looked at.
    pub(crate) fn stretch(
        &self,
        partition: Partition,
        after: Option<&Position<'_>>,
        wanted: impl Fn(Seq) -> bool,
        mut full: impl FnMut(&Packed) -> bool,
    ) -> Stretch {
        let mut records = Vec::new();
        let Some(shard) = self.shards.get(partition.index()) else {
            return Stretch {
                records,
                last: None,
            };
        };
        let shard = shard.read();
        let mut slots = shard.records.after(after).peekable();
        let mut looked_at = 0;
        while let Some(slot) = slots.next() {
            looked_at += 1;
            let mut stop = looked_at == RECORDS_PER_LOCK;
            if wanted(slot.seq) {
                records.push((slot.seq, slot.packed.clone()));
                stop |= full(&slot.packed);
            }
            if stop {
                let last = slots.peek().map(|_| slot.packed.clone());
                return Stretch { records, last };
            }
        }
        Stretch {
            records,
            last: None,
        }
    }

    /// A page of records with numbers above `since`.
    pub(crate) fn page(
        &self,
        partition: Partition,
        since: Seq,
        after: Option<&Cursor>,
        limits: ScanLimits,
    ) -> ScanPage {
        let mut page = Vec::new();
        let mut bytes = 0;
        let mut count = 0;
        let mut last: Option<Packed> = None;
        let start = after
            .map(|cursor| Position::new(&cursor.digest, cursor.namespace, cursor.key.as_bytes()));
        loop {
            let from = last.as_ref().map(Packed::position).or(start);
            let full = |packed: &Packed| {
                bytes += packed.bytes().len();
                count += 1;
                count >= limits.records || bytes >= limits.bytes
            };
            let stretch = self.stretch(partition, from.as_ref(), |seq| seq > since, full);
            page.extend(stretch.records.iter().map(|(_, packed)| packed.unpack()));
            last = stretch.last;
            let Some(last) = &last else { break };
            if count >= limits.records || bytes >= limits.bytes {
                let next = Some(last.cursor());
                return ScanPage {
                    records: page,
                    next,
                    done: false,
                };
            }
        }
        ScanPage {
            records: page,
            next: None,
            done: true,
        }
    }

    fn shard(&self, token: u64) -> &RwLock<Shard> {
        &self.shards[self.partitions.of(Token(token)).index()]
    }
}

impl PartitionSummary {
    pub(crate) fn add(&mut self, packed: &Packed, fingerprint: u128) {
        self.records += 1;
        self.tombstones += u64::from(packed.is_tombstone());
        self.payload_bytes += packed.payload_len() as u64;
        self.fingerprint = self.fingerprint.wrapping_add(fingerprint);
    }

    fn remove(&mut self, packed: &Packed) {
        self.records -= 1;
        self.tombstones -= u64::from(packed.is_tombstone());
        self.payload_bytes -= packed.payload_len() as u64;
        self.fingerprint = self.fingerprint.wrapping_sub(packed.fingerprint());
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.records += other.records;
        self.tombstones += other.tombstones;
        self.payload_bytes += other.payload_bytes;
        self.fingerprint = self.fingerprint.wrapping_add(other.fingerprint);
    }
}
