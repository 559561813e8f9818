//! Finds the records that a quorum knows and a replica lacks.

use std::collections::HashMap;

use torc_record::{Ballot, HybridTime, Key, Record, State};
use torc_replication::KeyId;
use torc_ring::Partition;
use torc_store::{ScanLimits, Store, StoreError};

const PAGE: ScanLimits = ScanLimits {
    records: 4_096,
    bytes: 1 << 20,
};

/// The values that a replica holds of a partition, each with its ballot: about 100 bytes per key,
/// for as long as the partition is listed.
#[derive(Debug, Default)]
pub(super) struct Ours(HashMap<(KeyId, Key), Ballot>);

impl Ours {
    /// Reads a partition of the store.
    pub(super) fn read(store: &Store, partition: Partition) -> Result<Self, StoreError> {
        let (mut ours, mut after) = (Self::default(), None);
        loop {
            let page = store.scan(partition, after.as_ref(), PAGE)?;
            ours.extend(page.records);
            match page.next {
                Some(next) if !page.done => after = Some(next),
                _ => return Ok(ours),
            }
        }
    }

    fn extend(&mut self, records: impl IntoIterator<Item = Record>) {
        let values = records
            .into_iter()
            .filter(|record| matches!(record.state, State::Value { .. }));
        self.0
            .extend(values.map(|it| ((KeyId::of(&it), it.key), it.ballot)));
    }

    /// Whether the replica lacks a value that a quorum knows. Removes the key from the set in any
    /// case.
    pub(super) fn lack(&mut self, known: &Record) -> bool {
        let held = self.0.remove(&(KeyId::of(known), known.key.clone()));
        held.is_none_or(|held| held < known.ballot)
    }

    /// The keys left over were deleted: a tombstone for each, newer than the value held here.
    pub(super) fn gone(self) -> impl Iterator<Item = Record> {
        self.0.into_iter().map(|((id, key), ballot)| Record {
            namespace: id.namespace,
            digest: id.digest,
            key,
            ballot: Ballot {
                time: HybridTime(ballot.time.0.saturating_add(1)),
                ..ballot
            },
            origin: None,
            state: State::Tombstone,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use torc_record::{Digest, DigestKey, Epoch, NamespaceId, NodeSlot};

    fn record(key: &str, time: u64, value: Option<&'static str>) -> Record {
        let namespace = NamespaceId::DEFAULT;
        Record {
            namespace,
            digest: Digest::of(&DigestKey([7; 32]), namespace, key.as_bytes()),
            key: Key::new(key.to_owned()).unwrap(),
            ballot: Ballot {
                epoch: Epoch(1),
                time: HybridTime(time),
                slot: NodeSlot(1),
            },
            origin: None,
            state: value.map_or(State::Tombstone, |value| State::Value {
                value: Bytes::from_static(value.as_bytes()),
                expires_at_ms: None,
            }),
        }
    }

    #[test]
    fn what_is_newer_elsewhere_or_missing_here_is_lacking() {
        let mut ours = Ours::default();
        let held = [("same", 5), ("older", 5), ("newer", 5), ("deleted", 5)];
        ours.extend(held.map(|(key, time)| record(key, time, Some("v"))));
        ours.extend([record("buried", 5, None)]);
        assert!(!ours.lack(&record("same", 5, Some("v"))));
        assert!(ours.lack(&record("older", 6, Some("w"))));
        assert!(!ours.lack(&record("newer", 4, Some("u"))));
        assert!(ours.lack(&record("missing", 1, Some("v"))));
        assert!(ours.lack(&record("buried", 6, Some("v"))));
        let gone: Vec<_> = ours.gone().collect();
        assert_eq!(gone, [record("deleted", 6, None)]);
    }
}
