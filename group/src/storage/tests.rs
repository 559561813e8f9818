//! The store: openraft's own conformance suite, durability, damage, formats.

use std::sync::Arc;

use openraft::storage::{RaftLogStorage as _, RaftLogStorageExt as _, RaftStateMachine as _};
use openraft::testing::{StoreBuilder, Suite};
use openraft::{CommittedLeaderId, EntryPayload, RaftLogReader as _, RaftSnapshotBuilder as _};
use torc_ring::topology::{Command, Outcome, TopologyError};

use super::crash_disk::CrashDisk;
use super::*;
use crate::raft::{Entry, LogId, SnapshotMeta, StorageError, TypeConfig, Vote};
use crate::tests::fixture::{founding, member};

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, Machine> for Builder {
    async fn build(&self) -> Result<((), LogStore, Machine), StorageError> {
        let store = on(&CrashDisk::immortal());
        Ok(((), LogStore::new(store.clone()), Machine::new(store)))
    }
}

#[test]
fn it_is_what_openraft_asks_of_a_store() {
    Suite::test_all(Builder).unwrap();
}

fn log_id(index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(1, 1), index)
}

fn entry(index: u64, command: Command) -> Entry {
    Entry {
        log_id: log_id(index),
        payload: EntryPayload::Normal(command),
    }
}

fn on(disk: &CrashDisk) -> Arc<Store> {
    Arc::new(Store::over(disk.database().unwrap()).unwrap())
}

/// A founded cluster with one member, and two more members enrolled one after the other.
fn history() -> Vec<Command> {
    vec![
        Command::Found(founding(1)),
        Command::Enrol(member(2, "127.0.0.1:2")),
        Command::Enrol(member(3, "127.0.0.1:3")),
    ]
}

async fn filled(disk: &CrashDisk) -> Arc<Store> {
    let store = on(disk);
    let (mut log, mut machine) = (LogStore::new(store.clone()), Machine::new(store.clone()));
    let entries: Vec<Entry> = (1..)
        .zip(history())
        .map(|(at, command)| entry(at, command))
        .collect();
    log.save_vote(&Vote::new_committed(1, 1)).await.unwrap();
    log.blocking_append(entries.clone()).await.unwrap();
    machine.apply(entries).await.unwrap();
    store
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_power_cut() {
    let disk = CrashDisk::immortal();
    let store = filled(&disk).await;
    let reopened = on(&CrashDisk::new(disk.synced(), usize::MAX));
    assert_eq!(reopened.topology(), store.topology());
    assert_eq!(reopened.topology().unwrap().members().len(), 3);
    let mut log = LogStore::new(reopened.clone());
    assert_eq!(
        log.read_vote().await.unwrap(),
        Some(Vote::new_committed(1, 1))
    );
    assert_eq!(
        log.get_log_state().await.unwrap().last_log_id,
        Some(log_id(3))
    );
    let (applied, _) = Machine::new(reopened).applied_state().await.unwrap();
    assert_eq!(applied, Some(log_id(3)));
}

#[tokio::test]
async fn a_topology_is_published_only_once_it_is_durable() {
    let disk = CrashDisk::immortal();
    let store = on(&disk);
    let mut topology = store.watch();
    let mut machine = Machine::new(store);
    for (at, command) in (1..).zip(history()) {
        let applying = tokio::spawn({
            let mut machine = machine.clone();
            async move { machine.apply([entry(at, command)]).await.unwrap() }
        });
        topology.changed().await.unwrap();
        let published = topology.borrow_and_update().clone();
        let survivor = on(&CrashDisk::new(disk.synced(), usize::MAX));
        assert_eq!(
            survivor.topology(),
            published,
            "seen, so it must survive a crash from now on"
        );
        applying.await.unwrap();
    }
    assert_eq!(machine.applied_state().await.unwrap().0, Some(log_id(3)));
}

#[tokio::test]
async fn a_topology_that_is_written_now_and_then_is_whole_after_every_entry() {
    let disk = CrashDisk::immortal();
    let store = on(&disk);
    let (mut log, mut machine) = (LogStore::new(store.clone()), Machine::new(store.clone()));
    let moved = |number: u64| Command::Relocate {
        node: torc_ring::NodeId(1 + number % 3),
        address: format!("127.0.0.1:{number}"),
        peer_address: format!("127.0.0.1:{}", 1_000 + number),
        http_address: String::new(),
    };
    let commands = history().into_iter().chain((4..300).map(moved));
    let (mut written, mut last) = (0, None);
    for (index, command) in (1..).zip(commands) {
        let mut entry = entry(index, command);
        if index > 3 && index % 5 != 0 {
            // As after an election: it has no command, and the topology stays.
            entry.payload = EntryPayload::Blank;
        }
        log.blocking_append([entry.clone()]).await.unwrap();
        machine.apply([entry]).await.unwrap();
        match index {
            100 => log.purge(log_id(90)).await.unwrap(),
            200 => drop(machine.build_snapshot().await.unwrap()),
            210 => log.purge(log_id(200)).await.unwrap(),
            _ => {}
        }
        let survivor = on(&CrashDisk::new(disk.synced(), usize::MAX));
        assert_eq!(survivor.topology(), store.topology(), "after entry {index}");
        let stored = |txn: &ReadTransaction| get::<Option<Topology>>(txn, TOPOLOGY_KEY);
        let stored = survivor.read(stored).unwrap().flatten();
        written += usize::from(stored != last);
        last = stored;
    }
    assert!((4..10).contains(&written), "written {written} times");
    assert!(store.topology().is_some_and(|it| it.members().len() == 3));
}

#[tokio::test]
async fn a_write_that_fails_leaves_neither_a_result_nor_a_publication() {
    let content = {
        let disk = CrashDisk::immortal();
        filled(&disk).await.close();
        disk.synced()
    };
    let disk = CrashDisk::new(content, usize::MAX);
    let store = on(&disk);
    let before = store.topology();
    disk.die_at_next_sync();
    let mut machine = Machine::new(store.clone());
    let enrol = Command::Enrol(member(4, "127.0.0.1:4"));
    machine.apply([entry(4, enrol)]).await.unwrap_err();
    assert_eq!(store.topology(), before);
    assert_eq!(machine.applied_state().await.unwrap().0, Some(log_id(3)));
}

#[tokio::test]
async fn a_refused_command_counts_as_applied_and_publishes_nothing() {
    let store = on(&CrashDisk::immortal());
    let topology = store.watch();
    let mut machine = Machine::new(store);
    let too_early = entry(1, Command::Enrol(member(2, "127.0.0.1:2")));
    let results = machine.apply([too_early]).await.unwrap();
    assert_eq!(results, [Err(TopologyError::NotFounded)]);
    assert!(!topology.has_changed().unwrap());
    let founded = machine
        .apply([entry(2, Command::Found(founding(1)))])
        .await
        .unwrap();
    assert_eq!(founded, [Ok(Outcome::Done)]);
    let again = machine
        .apply([entry(3, Command::Found(founding(1)))])
        .await
        .unwrap();
    assert_eq!(again, [Err(TopologyError::AlreadyFounded)]);
    assert_eq!(machine.applied_state().await.unwrap().0, Some(log_id(3)));
}

#[tokio::test]
async fn a_snapshot_carries_the_whole_state_to_another_store() {
    let source = filled(&CrashDisk::immortal()).await;
    let snapshot = Machine::new(source.clone()).build_snapshot().await.unwrap();
    let disk = CrashDisk::immortal();
    let store = on(&disk);
    let mut machine = Machine::new(store.clone());
    machine
        .install_snapshot(&snapshot.meta, snapshot.snapshot.clone())
        .await
        .unwrap();
    for store in [store, on(&CrashDisk::new(disk.synced(), usize::MAX))] {
        assert_eq!(store.topology(), source.topology());
        let mut machine = Machine::new(store);
        assert_eq!(machine.applied_state().await.unwrap().0, Some(log_id(3)));
        let kept = machine.get_current_snapshot().await.unwrap().unwrap();
        assert_eq!(kept.meta, snapshot.meta);
        assert_eq!(kept.snapshot.get_ref(), snapshot.snapshot.get_ref());
    }
}

#[tokio::test]
async fn a_snapshot_that_is_no_topology_changes_nothing() {
    let store = filled(&CrashDisk::immortal()).await;
    let before = store.topology();
    let mut machine = Machine::new(store.clone());
    let meta = SnapshotMeta {
        last_log_id: Some(log_id(9)),
        ..SnapshotMeta::default()
    };
    let garbage = Box::new(std::io::Cursor::new(b"{\"cluster\":".to_vec()));
    machine.install_snapshot(&meta, garbage).await.unwrap_err();
    assert_eq!(store.topology(), before);
    assert_eq!(machine.applied_state().await.unwrap().0, Some(log_id(3)));
}

#[tokio::test]
async fn a_message_to_a_follower_is_bounded_in_bytes_and_never_empty() {
    let store = on(&CrashDisk::immortal());
    let mut log = LogStore::new(store);
    let long = |number: u8| {
        let mut founding = founding(1);
        let members = (0..2_000).map(|_| member(number, &"x".repeat(200)));
        founding.members = members.collect();
        Command::Found(founding)
    };
    let entries = (0..6).map(|at| entry(at, long(at as u8)));
    log.blocking_append(entries.collect::<Vec<_>>())
        .await
        .unwrap();
    let len = |entries: &[Entry]| serde_json::to_vec(entries).unwrap().len();
    let mut from = 0;
    while from < 6 {
        let batch = log.limited_get_log_entries(from, 6).await.unwrap();
        assert!(!batch.is_empty());
        assert!(
            batch.len() == 1 || len(&batch) <= (1 << 20) + 16,
            "{} bytes",
            len(&batch)
        );
        assert_eq!(batch[0].log_id.index, from);
        from += batch.len() as u64;
    }
    assert_eq!(log.try_get_log_entries(0..6).await.unwrap().len(), 6);
}

#[tokio::test]
async fn another_format_is_refused_and_left_alone() {
    let supported = FORMAT;
    for found in [FORMAT + 1, FORMAT - 1] {
        let disk = CrashDisk::immortal();
        let store = on(&disk);
        store.write(|txn| put(txn, FORMAT_KEY, &found)).unwrap();
        drop(store);
        let other = CrashDisk::new(disk.written(), usize::MAX);
        let refused = Store::over(other.database().unwrap()).err();
        let expected = if found > FORMAT {
            GroupError::NewerFormat { found, supported }
        } else {
            GroupError::OlderFormat { found, supported }
        };
        assert_eq!(refused, Some(expected));
    }
}

#[tokio::test]
async fn a_store_has_one_owner_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    assert!(matches!(
        Store::open(dir.path()).err(),
        Some(GroupError::Locked { .. })
    ));
    store.close();
    assert!(matches!(store.identity(), Err(StoreError::Closed)));
    Store::open(dir.path()).unwrap();
}

#[tokio::test]
async fn a_store_whose_making_was_cut_short_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    for leftover in [&b""[..], b"redb", &[0; 4096]] {
        std::fs::write(dir.path().join(UNFINISHED_NAME), leftover).unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.topology(), None);
        store.close();
        assert!(!dir.path().join(UNFINISHED_NAME).exists());
        std::fs::remove_file(dir.path().join(FILE_NAME)).unwrap();
    }
}

#[tokio::test]
async fn unreadable_state_is_told_as_such() {
    for key in [FORMAT_KEY, APPLIED_KEY, TOPOLOGY_KEY] {
        let disk = CrashDisk::immortal();
        let store = filled(&disk).await;
        store.write(|txn| put(txn, key, &"no such thing")).unwrap();
        drop(store);
        let damaged = CrashDisk::new(disk.written(), usize::MAX);
        let error = Store::over(damaged.database().unwrap()).err().unwrap();
        assert!(
            matches!(&error, GroupError::Corrupt { what } if what.contains(key)),
            "{error}"
        );
    }
}

/// The first page is redb's header. Flipping the bit that selects one of the last two commits goes
/// back by one commit, and no checksum can detect that.
const HEADER_LEN: usize = 4096;

#[tokio::test]
async fn a_flipped_bit_is_reported_or_harmless() {
    let disk = CrashDisk::immortal();
    let store = filled(&disk).await;
    let topology = store.topology();
    store.close();
    let content = disk.written();
    let used: Vec<usize> = (HEADER_LEN..content.len())
        .filter(|at| content[*at] != 0)
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    let mut reported = 0;
    for (bit, at) in used.iter().step_by(used.len() / 24).enumerate() {
        let mut damaged = content.clone();
        damaged[*at] ^= 1 << (bit % 8);
        std::fs::write(&path, &damaged).unwrap();
        match Store::open(dir.path()) {
            Ok(store) => assert_eq!(store.topology(), topology, "a flip at {at} was believed"),
            Err(GroupError::Corrupt { .. }) => reported += 1,
            Err(other) => panic!("a flip at {at}: {other}"),
        }
    }
    assert!(
        reported > 0,
        "not one of 24 flips in used pages was noticed"
    );
}

/// A file system in memory, 64 MiB; unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` if mounting is not permitted.
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64m", "torc-test"]);
        let done = mount.arg(dir.path()).output().ok()?;
        done.status.success().then(|| Self(dir))
    }

    fn ballast(&self) -> std::path::PathBuf {
        self.0.path().join("ballast")
    }

    fn fill(&self) {
        let mut file = File::create(self.ballast()).unwrap();
        let filled = std::io::copy(&mut std::io::repeat(1), &mut file);
        let full = filled.unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }

    fn free(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut unmount = std::process::Command::new("umount");
        unmount.arg("-l").arg(self.0.path()).output().unwrap();
    }
}

/// Entries of 64 KiB each, with numbers from the start to before the end of the range.
fn long_entries(numbers: std::ops::Range<u64>) -> Vec<Entry> {
    let address = "a".repeat(64 << 10);
    let entry = |index| entry(index, Command::Enrol(member(2, &address)));
    numbers.map(entry).collect()
}

#[tokio::test]
async fn a_full_disk_makes_the_group_wait_and_ends_nothing() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: mounting is not permitted");
        return;
    };
    let store = Arc::new(Store::open(disk.0.path()).unwrap());
    disk.fill();
    let mut log = LogStore::new(store.clone());
    let appending = tokio::spawn(async move {
        log.blocking_append(long_entries(1..65)).await.unwrap();
        log
    });
    while !store.space.is_awaited() {
        assert!(!appending.is_finished(), "it was stored on a full disk");
        tokio::task::yield_now().await;
    }
    assert!(store.topology().is_none(), "what is known is told");
    disk.free();
    let mut log = appending.await.unwrap();
    let state = log.get_log_state().await.unwrap();
    assert_eq!(state.last_log_id, Some(log_id(64)));
    // The log continues in the same file.
    log.blocking_append(long_entries(65..67)).await.unwrap();
    let state = log.get_log_state().await.unwrap();
    assert_eq!(state.last_log_id, Some(log_id(66)));

    disk.fill();
    let appending = tokio::spawn(async move { log.blocking_append(long_entries(67..323)).await });
    while !store.space.is_awaited() {
        assert!(!appending.is_finished(), "it was stored on a full disk");
        tokio::task::yield_now().await;
    }
    let closed = store.run(|store| {
        store.close();
        Ok(())
    });
    closed.await.unwrap();
    appending.await.unwrap().unwrap_err();
    drop(store);
    disk.free();
    let store = Arc::new(Store::open(disk.0.path()).unwrap());
    let state = LogStore::new(store.clone()).get_log_state().await.unwrap();
    assert_eq!(state.last_log_id, Some(log_id(66)), "what was acknowledged");
    store.close();
}

#[tokio::test]
async fn what_is_no_database_is_not_made_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    Store::open(dir.path()).unwrap().close();
    let mut damaged = std::fs::read(&path).unwrap();
    damaged[0] ^= 1;
    for content in [Vec::new(), b"redb".to_vec(), damaged] {
        std::fs::write(&path, &content).unwrap();
        let refused = Store::open(dir.path()).err();
        assert!(matches!(refused, Some(GroupError::Corrupt { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), content, "it was changed");
    }
}
