//! The Raft log and the vote.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    AnyError, EntryPayload, LogState, OptionalSend, RaftLogId as _, RaftLogReader, StorageIOError,
};
use redb::ReadableTable as _;
use torc_ring::NodeId;

use super::machine::write_topology;
use super::{LOG, PURGED_KEY, Store, StoreError, VOTE_KEY, get, parse, put};
use crate::raft::{Entry, LogId, StorageError, TypeConfig, Vote};

/// Most bytes of entries in one message to a follower; a longer entry goes alone.
const MAX_BATCH_LEN: usize = 1 << 20;

/// The log and the vote in a [`Store`].
#[derive(Clone)]
pub(crate) struct LogStore(Arc<Store>, Option<NodeId>);

impl LogStore {
    /// With the saved vote.
    #[cfg(test)]
    pub(crate) const fn new(store: Arc<Store>) -> Self {
        Self(store, None)
    }

    /// For a node that starts as a follower, even if it led when it stopped. openraft would
    /// continue to lead in the same term with the entries of its log: on an older copy, it would
    /// give different contents to entries that the others already have.
    pub(crate) const fn of_follower(store: Arc<Store>, me: NodeId) -> Self {
        Self(store, Some(me))
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<Entry>, StorageError>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        let entries = self
            .0
            .run(move |store| store.entries(range, usize::MAX))
            .await;
        entries.map_err(|error| StorageIOError::read_logs(AnyError::new(&error)).into())
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, StorageError> {
        let range = (Bound::Included(start), Bound::Excluded(end));
        let entries = self
            .0
            .run(move |store| store.entries(range, MAX_BATCH_LEN))
            .await;
        entries.map_err(|error| StorageIOError::read_logs(AnyError::new(&error)).into())
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, StorageError> {
        let state = self.0.run(Store::log_state).await;
        state.map_err(|error| StorageIOError::read_logs(AnyError::new(&error)).into())
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let vote = *vote;
        let saved = self
            .0
            .run(move |store| store.write(|txn| put(txn, VOTE_KEY, &vote)))
            .await;
        saved.map_err(|error| StorageIOError::write_vote(AnyError::new(&error)).into())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        let vote: Result<Option<Vote>, _> = self
            .0
            .run(|store| store.read(|txn| get(txn, VOTE_KEY)))
            .await;
        let mut vote = vote.map_err(|error| StorageIOError::read_vote(AnyError::new(&error)))?;
        if let (Some(vote), Some(me)) = (&mut vote, self.1) {
            vote.committed &= vote.leader_id().voted_for() != Some(me.0);
        }
        Ok(vote)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<TypeConfig>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        match self.0.run(move |store| store.append(&entries)).await {
            Ok(()) => {
                callback.log_io_completed(Ok(()));
                Ok(())
            }
            Err(error) => {
                callback.log_io_completed(Err(io::Error::other(error.to_string())));
                Err(StorageIOError::write_logs(AnyError::new(&error)).into())
            }
        }
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let cut = self.0.run(move |store| store.truncate(log_id.index)).await;
        cut.map_err(|error| StorageIOError::write_logs(AnyError::new(&error)).into())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let purged = self.0.run(move |store| store.purge(log_id)).await;
        purged.map_err(|error| StorageIOError::write_logs(AnyError::new(&error)).into())
    }
}

/// The state of a voter's log.
pub(crate) struct Standing {
    /// Its last entry.
    pub(crate) last: Option<LogId>,
    pub(crate) vote: Option<Vote>,
    /// The voters by the latest membership that it knows: one set, two during a change.
    pub(crate) voters: Vec<BTreeSet<u64>>,
}

impl Store {
    /// Entries of `range` in order: at least one, if any, then as many as fit `max_len`.
    pub(super) fn entries(
        &self,
        range: (Bound<u64>, Bound<u64>),
        max_len: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        self.read(|txn| {
            let mut entries = Vec::new();
            let mut len = 0;
            for row in txn.open_table(LOG)?.range(range)? {
                let (index, entry) = row?;
                let entry = entry.value();
                len += entry.len();
                if len > max_len && !entries.is_empty() {
                    break;
                }
                entries.push(parse(&format!("log entry {}", index.value()), entry)?);
            }
            Ok(entries)
        })
    }

    pub(crate) fn standing(&self) -> Result<Standing, StoreError> {
        let last = self.log_state()?.last_log_id;
        let vote = self.read(|txn| get(txn, VOTE_KEY))?;
        let applied = self.applied.lock().membership.membership().clone();
        let mut voters = applied.get_joint_config().clone();
        for entry in self.entries((Bound::Unbounded, Bound::Unbounded), usize::MAX)? {
            if let EntryPayload::Membership(membership) = entry.payload {
                voters.clone_from(membership.get_joint_config());
            }
        }
        Ok(Standing { last, vote, voters })
    }

    fn log_state(&self) -> Result<LogState<TypeConfig>, StoreError> {
        self.read(|txn| {
            let last_purged_log_id: Option<LogId> = get(txn, PURGED_KEY)?;
            let table = txn.open_table(LOG)?;
            let last = table.last()?;
            let last = last.map(|(_, entry)| parse::<Entry>("last log entry", entry.value()));
            let last = last.transpose()?.map(|entry| *entry.get_log_id());
            Ok(LogState {
                last_purged_log_id,
                last_log_id: last.or(last_purged_log_id),
            })
        })
    }

    fn append(&self, entries: &[Entry]) -> Result<(), StoreError> {
        self.write(|txn| {
            let mut table = txn.open_table(LOG)?;
            for entry in entries {
                let value = serde_json::to_vec(entry)?;
                table.insert(entry.get_log_id().index, value.as_slice())?;
            }
            Ok(())
        })
    }

    fn truncate(&self, since: u64) -> Result<(), StoreError> {
        self.write(|txn| Ok(txn.open_table(LOG)?.retain_in(since.., |_, _| false)?))
    }

    fn purge(&self, upto: LogId) -> Result<(), StoreError> {
        self.write(|txn| {
            write_topology(txn)?;
            put(txn, PURGED_KEY, &upto)?;
            Ok(txn
                .open_table(LOG)?
                .retain_in(..=upto.index, |_, _| false)?)
        })
    }
}
