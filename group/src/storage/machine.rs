//! The replicated state machine (the topology) and its snapshots.
//!
//! A restart needs no snapshot: it takes the stored topology and applies the entries that the log
//! has since then. Snapshots are for nodes that need purged entries. A snapshot's data is the
//! topology as JSON, `null` before the founding.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Cursor;
use std::ops::Bound;
use std::sync::Arc;

use openraft::storage::RaftStateMachine;
use openraft::{AnyError, EntryPayload, OptionalSend, RaftSnapshotBuilder, StorageIOError};
use redb::{ReadTransaction, ReadableTable, WriteTransaction};
use torc_ring::topology::{Command, Outcome, Topology, TopologyError};

use super::{
    APPLIED_KEY, AppliedState, LOG, META, PURGED_KEY, Store, StoreError, TOPOLOGY_AT_KEY,
    TOPOLOGY_KEY, VOTE_KEY, get, parse, put, read,
};
use crate::raft::{
    Applied, Entry, LogId, Membership, Snapshot, SnapshotMeta, StorageError, TypeConfig, Vote,
};

const SNAPSHOT_META_KEY: &str = "snapshot.meta";
const SNAPSHOT_DATA_KEY: &str = "snapshot.data";

/// Entries after which the topology is written again: each change of a move is an entry, and a
/// restart applies these once more.
const TOPOLOGY_EVERY: u64 = 64;

/// JSON of no topology.
const NO_TOPOLOGY: &[u8] = b"null";

/// The topology in a [`Store`] as a state machine.
#[derive(Clone)]
pub(crate) struct Machine(Arc<Store>);

impl Machine {
    pub(crate) const fn new(store: Arc<Store>) -> Self {
        Self(store)
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Membership), StorageError> {
        let applied = self.0.applied.lock().clone();
        Ok((applied.last_applied, applied.membership))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Applied>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let applied = self.0.run(move |store| store.apply(entries)).await;
        applied.map_err(|error| StorageIOError::write_state_machine(AnyError::new(&error)).into())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let signature = Some(meta.signature());
        let meta = meta.clone();
        let installed = self
            .0
            .run(move |store| store.install(&meta, snapshot.get_ref()))
            .await;
        installed.map_err(|error| {
            StorageIOError::write_snapshot(signature, AnyError::new(&error)).into()
        })
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, StorageError> {
        let snapshot = self.0.run(Store::snapshot).await;
        snapshot.map_err(|error| StorageIOError::read_snapshot(None, AnyError::new(&error)).into())
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Machine {
    async fn build_snapshot(&mut self) -> Result<Snapshot, StorageError> {
        let built = self.0.run(Store::build_snapshot).await;
        built.map_err(|error| StorageIOError::write_snapshot(None, AnyError::new(&error)).into())
    }
}

impl Store {
    /// Applies entries in order, in one durable transaction, then publishes the topology.
    fn apply(&self, entries: Vec<Entry>) -> Result<Vec<Applied>, StoreError> {
        let before = self.topology();
        let mut topology = before.as_deref().cloned();
        let mut applied = self.applied.lock().clone();
        let mut results = Vec::with_capacity(entries.len());
        let indices: Vec<u64> = entries.iter().map(|entry| entry.log_id.index).collect();
        for entry in entries {
            applied.last_applied = Some(entry.log_id);
            results.push(match entry.payload {
                EntryPayload::Blank => Ok(Outcome::Done),
                EntryPayload::Normal(command) => apply_command(&mut topology, command),
                EntryPayload::Membership(membership) => {
                    applied.membership = Membership::new(applied.last_applied, membership);
                    Ok(Outcome::Done)
                }
            });
        }
        let changed = topology.as_ref() != before.as_deref();
        self.write(|txn| {
            put(txn, APPLIED_KEY, &applied)?;
            if may_replay(txn, &indices)? {
                Ok(())
            } else {
                put_topology(txn, applied.last_applied, topology.as_ref())
            }
        })?;
        *self.applied.lock() = applied;
        if changed {
            self.topology.send_replace(topology.map(Arc::new));
        }
        Ok(results)
    }

    /// Takes the present state as the snapshot.
    fn build_snapshot(&self) -> Result<Snapshot, StoreError> {
        self.write(snapshot_of)
    }

    /// Replaces the state by the leader's snapshot.
    fn install(&self, meta: &SnapshotMeta, data: &[u8]) -> Result<(), StoreError> {
        let topology: Option<Topology> = parse("snapshot", data)?;
        let applied = AppliedState {
            last_applied: meta.last_log_id,
            membership: meta.last_membership.clone(),
        };
        self.write(|txn| {
            put(txn, APPLIED_KEY, &applied)?;
            put(txn, SNAPSHOT_META_KEY, meta)?;
            put(txn, TOPOLOGY_AT_KEY, &meta.last_log_id)?;
            let mut table = txn.open_table(META)?;
            table.insert(TOPOLOGY_KEY, data)?;
            table.insert(SNAPSHOT_DATA_KEY, data)?;
            Ok(())
        })?;
        *self.applied.lock() = applied;
        self.topology.send_replace(topology.map(Arc::new));
        Ok(())
    }

    /// The topology once all entries of the log are applied, committed or not.
    pub(crate) fn topology_at_end(&self) -> Result<Option<Topology>, StoreError> {
        let mut topology = self.topology().as_deref().cloned();
        let applied = self.applied.lock().last_applied;
        let since = applied.map_or(Bound::Unbounded, |last| Bound::Excluded(last.index));
        for entry in self.entries((since, Bound::Unbounded), usize::MAX)? {
            if let EntryPayload::Normal(command) = entry.payload {
                // A refused command changes nothing.
                let _ = apply_command(&mut topology, command);
            }
        }
        Ok(topology)
    }

    /// Restarts at `at` with this state, an empty log and a vote for `at`'s leader, in one
    /// transaction.
    pub(crate) fn begin_again(
        &self,
        at: LogId,
        voters: openraft::Membership<u64, openraft::BasicNode>,
        topology: &Topology,
    ) -> Result<(), StoreError> {
        let applied = AppliedState {
            last_applied: Some(at),
            membership: Membership::new(Some(at), voters),
        };
        self.write(|txn| {
            put(txn, APPLIED_KEY, &applied)?;
            put_topology(txn, Some(at), Some(topology))?;
            put(txn, PURGED_KEY, &at)?;
            put(
                txn,
                VOTE_KEY,
                &Vote::new(at.leader_id.term, at.leader_id.node_id),
            )?;
            txn.open_table(LOG)?.retain(|_, _| false)?;
            snapshot_of(txn).map(drop)
        })
    }

    fn snapshot(&self) -> Result<Option<Snapshot>, StoreError> {
        self.read(|txn| {
            let Some(meta) = get(txn, SNAPSHOT_META_KEY)? else {
                return Ok(None);
            };
            let data = txn
                .open_table(META)?
                .get(SNAPSHOT_DATA_KEY)?
                .ok_or_else(|| {
                    let reason = "it is missing, and its description is there".to_owned();
                    StoreError::Corrupt {
                        what: SNAPSHOT_DATA_KEY.into(),
                        reason,
                    }
                })?;
            let snapshot = Box::new(Cursor::new(data.value().to_vec()));
            Ok(Some(Snapshot { meta, snapshot }))
        })
    }
}

fn apply_command(topology: &mut Option<Topology>, command: Command) -> Applied {
    match (topology.as_mut(), command) {
        (Some(topology), command) => topology.apply(command),
        (None, Command::Found(founding)) => {
            *topology = Some(Topology::found(founding)?);
            Ok(Outcome::Done)
        }
        (None, _) => Err(TopologyError::NotFounded),
    }
}

/// The state after the last applied entry: the stored topology, and what the log has since then.
pub(super) fn state_in(
    txn: &ReadTransaction,
) -> Result<(AppliedState, Option<Topology>), StoreError> {
    replay(&txn.open_table(META)?, &txn.open_table(LOG)?)
}

fn replay(
    meta: &impl ReadableTable<&'static str, &'static [u8]>,
    log: &impl ReadableTable<u64, &'static [u8]>,
) -> Result<(AppliedState, Option<Topology>), StoreError> {
    let applied: AppliedState = read(meta, APPLIED_KEY)?.unwrap_or_default();
    let mut topology: Option<Topology> = read(meta, TOPOLOGY_KEY)?.flatten();
    let at: Option<LogId> = read(meta, TOPOLOGY_AT_KEY)?.flatten();
    let (at, last) = (index_of(at), index_of(applied.last_applied));
    if at < last {
        for row in log.range(at..last)? {
            let (index, entry) = row?;
            let what = format!("log entry {}", index.value());
            if let EntryPayload::Normal(command) = parse::<Entry>(&what, entry.value())?.payload {
                // A refused command changes nothing.
                let _ = apply_command(&mut topology, command);
            }
        }
    }
    Ok((applied, topology))
}

/// The index after this entry.
fn index_of(last: Option<LogId>) -> u64 {
    last.map_or(0, |last| last.index + 1)
}

/// Whether a restart can apply these entries, which are applied now, to the stored topology: the log
/// has them, and they are not too many.
fn may_replay(txn: &WriteTransaction, indices: &[u64]) -> Result<bool, StoreError> {
    let at: Option<LogId> = read(&txn.open_table(META)?, TOPOLOGY_AT_KEY)?.flatten();
    let log = txn.open_table(LOG)?;
    for index in indices {
        if log.get(index)?.is_none() {
            return Ok(false);
        }
    }
    let last = indices.last().map_or(0, |last| last + 1);
    Ok(last <= index_of(at) + TOPOLOGY_EVERY)
}

fn put_topology(
    txn: &WriteTransaction,
    at: Option<LogId>,
    topology: Option<&Topology>,
) -> Result<(), StoreError> {
    put(txn, TOPOLOGY_AT_KEY, &at)?;
    put(txn, TOPOLOGY_KEY, &topology)
}

/// Writes the topology of a transaction's state, before entries since the stored one are deleted.
pub(super) fn write_topology(txn: &WriteTransaction) -> Result<AppliedState, StoreError> {
    let (applied, topology) = replay(&txn.open_table(META)?, &txn.open_table(LOG)?)?;
    put_topology(txn, applied.last_applied, topology.as_ref())?;
    Ok(applied)
}

/// Takes a transaction's state as its snapshot.
fn snapshot_of(txn: &WriteTransaction) -> Result<Snapshot, StoreError> {
    let AppliedState {
        last_applied,
        membership,
    } = write_topology(txn)?;
    let mut table = txn.open_table(META)?;
    let data = table.get(TOPOLOGY_KEY)?;
    let data = data.map_or_else(|| NO_TOPOLOGY.to_vec(), |value| value.value().to_vec());
    let meta = SnapshotMeta {
        last_log_id: last_applied,
        last_membership: membership,
        snapshot_id: snapshot_id(last_applied, &data),
    };
    table.insert(SNAPSHOT_META_KEY, serde_json::to_vec(&meta)?.as_slice())?;
    table.insert(SNAPSHOT_DATA_KEY, data.as_slice())?;
    Ok(Snapshot {
        meta,
        snapshot: Box::new(Cursor::new(data)),
    })
}

/// Identifies the bytes, not only the log index, because a receiver assembles chunks by id.
fn snapshot_id(last: Option<LogId>, data: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    let index = last.map_or(0, |last| last.index);
    format!("{index}-{:016x}", hasher.finish())
}
