//! The store as a replica sees it: one partition, with the types of `torc-replication`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use arc_swap::ArcSwap;
use bytes::Bytes;
use torc_record::{Digest, Key, KeyError, MAX_KEY_LEN, PageSum};
use torc_replication::compare::{Range, RangeSum};
use torc_replication::{Entry, KeyId, Locator, LogPosition, Lookup, Scanned, Storage};
use torc_ring::Partition;
use torc_store::{ScanLimits, Seq, Store, StoreError};

use super::Keys;

/// Approximate bytes of records per page, so that a page fits a message between nodes.
const PAGE_BYTES: usize = 1 << 20;

pub(super) struct Disk<'a> {
    store: &'a Store,
    keys: &'a ArcSwap<Keys>,
    partition: Partition,
    met_damage: Cell<bool>,
    /// Results of `is_at_hand`, kept until the replica reads these keys.
    at_hand: RefCell<VecDeque<(Locator, Lookup)>>,
}

impl<'a> Disk<'a> {
    pub(super) const fn new(
        store: &'a Store,
        keys: &'a ArcSwap<Keys>,
        partition: Partition,
    ) -> Self {
        Self {
            store,
            keys,
            partition,
            met_damage: Cell::new(false),
            at_hand: RefCell::new(VecDeque::new()),
        }
    }
}

impl Storage for Disk<'_> {
    fn get(&self, at: &Locator) -> Lookup {
        let known = self.at_hand.borrow_mut().pop_front();
        match known {
            Some((known, lookup)) if known == *at => lookup,
            _ => {
                let found = self.store.get(at.borrowed());
                self.keys.load().lookup(found)
            }
        }
    }

    fn is_at_hand(&self, at: &Locator) -> bool {
        let found = self.store.get_cached(at.borrowed());
        let known = found.map(|found| (at.clone(), self.keys.load().lookup(found)));
        let is_known = known.is_some();
        self.at_hand.borrow_mut().extend(known);
        is_known
    }

    fn scan(&self, after: Option<KeyId>, limit: usize) -> Scanned {
        let limits = ScanLimits {
            records: limit,
            bytes: PAGE_BYTES,
        };
        // Keys that are stored have a valid length, so this cannot fail.
        let after = after.and_then(|id| cursor_after(id).ok());
        let page = self
            .store
            .scan_readable(self.partition, after.as_ref(), limits);
        page.map_or_else(
            |error| {
                if matches!(error, StoreError::Closed) {
                    tracing::debug!(partition = %self.partition, "the node stops before it has read a partition");
                } else {
                    tracing::error!(%error, partition = %self.partition, "cannot read a partition");
                }
                self.met_damage.set(true);
                Scanned::default()
            },
            |readable| {
                self.met_damage
                    .set(self.met_damage.get() | readable.is_partial);
                let page = readable.page;
                Scanned {
                    entries: page.records.into_iter().map(Entry::Found).collect(),
                    done: page.done,
                }
            },
        )
    }

    fn tail(&self, since: LogPosition, after: Option<KeyId>, limit: usize) -> Scanned {
        let limits = ScanLimits {
            records: limit,
            bytes: PAGE_BYTES,
        };
        let mut after = after.and_then(|id| cursor_after(id).ok());
        loop {
            let (since, from) = (Seq(since.0), after.as_ref());
            match self.store.scan_since(self.partition, since, from, limits) {
                // Nothing new in this stretch: continue after it.
                Ok(page) if page.records.is_empty() && !page.done => after = page.next,
                Ok(page) => {
                    return Scanned {
                        entries: page.records.into_iter().map(Entry::Found).collect(),
                        done: page.done,
                    };
                }
                Err(error) => {
                    tracing::error!(%error, partition = %self.partition, "cannot read a partition's tail");
                    self.met_damage.set(true);
                    return Scanned::default();
                }
            }
        }
    }

    fn sum_between(&self, after: Option<KeyId>, last: Option<KeyId>, most: u64) -> Option<PageSum> {
        let after = after.and_then(|id| cursor_after(id).ok());
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        self.store
            .page_sum(self.partition, after.as_ref(), last, most)
    }

    fn kept_sum(&self) -> Option<PageSum> {
        self.store.kept_sum(self.partition)
    }

    fn is_foreign(&self, at: &Locator) -> bool {
        self.keys.load().is_foreign(at.borrowed())
    }

    fn is_partial(&self) -> bool {
        self.met_damage.get() || self.store.damage(self.partition).is_some()
    }

    fn range_sum(&self, range: Range) -> Option<RangeSum> {
        let sums = self.store.range_sum(
            self.partition,
            first_digest(range.first),
            last_digest(range.last),
        );
        sums.ok().map(|sums| RangeSum {
            range,
            count: sums.count,
            sum: sums.sum,
        })
    }
}

fn first_digest(token: u64) -> Digest {
    digest(token, 0)
}

fn last_digest(token: u64) -> Digest {
    digest(token, u8::MAX)
}

fn digest(token: u64, rest: u8) -> Digest {
    let mut bytes = [rest; 16];
    bytes[..8].copy_from_slice(&token.to_be_bytes());
    Digest(bytes)
}

/// Sorts after every key with this digest and namespace.
pub(super) fn cursor_after(id: KeyId) -> Result<Locator, KeyError> {
    static LAST: [u8; MAX_KEY_LEN] = [u8::MAX; MAX_KEY_LEN];
    Ok(Locator {
        digest: id.digest,
        namespace: id.namespace,
        key: Key::new(Bytes::from_static(&LAST))?,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::runtime::{Builder, Runtime};
    use torc_record::{Epoch, HybridTime, ReplicaBatch, ReplicaFacts, StoredVersions};
    use torc_replication::testing::{TestDisk, check};
    use torc_ring::Partitions;
    use torc_store::StoreOptions;

    use super::*;

    const HERE: Partition = Partition(0);

    /// A store, which upkeep flushes, compacts and opens again.
    struct Stored {
        store: Store,
        keys: ArcSwap<Keys>,
        runtime: Runtime,
        dir: tempfile::TempDir,
        known: StoredVersions,
    }

    impl Stored {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            Self {
                store: Self::open(&dir),
                keys: ArcSwap::default(),
                runtime: Builder::new_current_thread().build().unwrap(),
                dir,
                known: StoredVersions::UNKNOWN,
            }
        }

        fn open(dir: &tempfile::TempDir) -> Store {
            let mut options = StoreOptions::new(dir.path());
            options.partitions = Partitions::new(1).unwrap();
            options.log_segment_bytes = 1 << 16;
            Store::open(options).unwrap().0
        }
    }

    impl TestDisk for Stored {
        fn storage(&self) -> impl Storage {
            Disk::new(&self.store, &self.keys, HERE)
        }

        fn apply(&mut self, batch: ReplicaBatch) {
            self.known = StoredVersions::UNKNOWN;
            let (done, outcome) = mpsc::channel();
            let done = move |applied| done.send(applied).unwrap();
            self.store.apply(HERE, batch, done).unwrap();
            outcome.recv().unwrap().unwrap();
        }

        fn facts(&self) -> ReplicaFacts {
            self.store.partition_meta(HERE)
        }

        fn highest_in(&self, epoch: Epoch) -> HybridTime {
            self.store.highest_in(HERE, epoch)
        }

        fn position(&self) -> LogPosition {
            LogPosition(self.store.last_seq().0)
        }

        fn stored(&self) -> StoredVersions {
            self.known.clone()
        }

        fn upkeep(&mut self, round: u64) {
            let store = self.store.clone();
            match round {
                0 => drop(self.runtime.block_on(store.flush()).unwrap()),
                1 => drop(self.runtime.block_on(store.compact()).unwrap()),
                _ => {
                    self.runtime.block_on(store.close()).unwrap();
                    self.store = Self::open(&self.dir);
                    self.known = self.store.take_stored_versions(HERE);
                }
            }
        }
    }

    #[test]
    fn a_store_keeps_the_contract_of_a_replicas_disk() {
        for seed in 0..3 {
            check(&mut Stored::new(), seed);
        }
    }
}
