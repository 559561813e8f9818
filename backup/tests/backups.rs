//! Backups of real stores, in a directory, and in an object store if `TORC_TEST_S3` names one:
//! written, resumed, read and pruned; and all damage is detected.

#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tempfile::TempDir;
use torc_backup::{
    Backup, BackupError, Depth, Foreign, Known, Listed, Location, Namespace, PackWriter, Part,
    Plan, Writing, prune, verify, verify_namespaces,
};
use torc_objects::ObjectError;
use torc_record::{
    Ballot, Digest, DigestKey, Epoch, HybridTime, Key, Locator, NamespaceId, NodeSlot, Record,
    State,
};
use torc_ring::{Partition, Partitions, Token};
use torc_store::testing::WaitingStore;
use torc_store::{Store, StoreOptions};
use torc_testkit::Faulty;

const CLUSTER: DigestKey = DigestKey([7; 32]);
const KEYS: u64 = 60;

fn partitions() -> Partitions {
    Partitions::new(8).unwrap()
}

fn record(key: u64, time: u64, value: Option<&str>) -> Record {
    record_of(NamespaceId::DEFAULT, key, time, value)
}

fn record_of(namespace: NamespaceId, key: u64, time: u64, value: Option<&str>) -> Record {
    let bytes = format!("key-{key}").into_bytes();
    Record {
        namespace,
        digest: Digest::of(&CLUSTER, namespace, &bytes),
        key: Key::new(bytes).unwrap(),
        ballot: Ballot {
            epoch: Epoch(1),
            time: HybridTime(time),
            slot: NodeSlot(0),
        },
        origin: None,
        state: value.map_or(State::Tombstone, |value| State::Value {
            value: Bytes::copy_from_slice(value.as_bytes()),
            expires_at_ms: None,
        }),
    }
}

fn partition_of(record: &Record) -> Partition {
    partitions().of(Token::of(&record.digest))
}

/// A linearizable namespace.
fn ordinary(id: u32) -> Namespace {
    Namespace {
        name: "default".to_owned(),
        id,
        mode: "linearizable".to_owned(),
        replicas: 3,
        generation: None,
    }
}

/// A node's store, and the destination of its backups.
struct Fixture {
    dir: TempDir,
    store: Store,
    location: Location,
}

/// The location of backups: a directory, or a separate prefix in the object store given to the
/// test.
fn url(dir: &Path, name: &str) -> String {
    match std::env::var("TORC_TEST_S3") {
        Ok(bucket) => {
            let unique = dir.file_name().unwrap().to_str().unwrap();
            format!("{bucket}/{unique}/{name}")
        }
        Err(_) => format!("file://{}", dir.join(name).display()),
    }
}

impl Fixture {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let mut options = StoreOptions::new(dir.path().join("store"));
        options.partitions = partitions();
        options.auto_compact = false;
        let (store, _) = Store::open(options).unwrap();
        let location = Location::open(&url(dir.path(), "backups")).unwrap();
        Self {
            dir,
            store,
            location,
        }
    }

    async fn put(&self, keys: impl IntoIterator<Item = u64>, time: u64, value: Option<&str>) {
        for key in keys {
            self.store.write(record(key, time, value)).await.unwrap();
        }
        self.store.flush().await.unwrap();
    }

    fn plan(name: &str, base: Option<&str>) -> Plan {
        let namespace = ordinary(NamespaceId::DEFAULT.0);
        let all = (0..partitions().count()).map(Partition);
        Plan::new(
            name.to_owned(),
            ("cluster".to_owned(), CLUSTER),
            (partitions().count(), all),
            vec![namespace],
            (1, base.map(str::to_owned)),
        )
    }

    /// Backs up some partitions of the store, and `extra`.
    /// Begins a backup and writes its part: all keys, in the namespace `default` and in one with the
    /// id 2.
    async fn begin_with_two_namespaces(&self, name: &str) -> (Writing, String, Part) {
        self.put(0..KEYS, 1, Some("v")).await;
        let extra: Vec<_> = (0..KEYS)
            .map(|key| record_of(NamespaceId(2), key, 1, Some("w")))
            .collect();
        let writing = Writing::begin(&self.location, Self::plan(name, None))
            .await
            .unwrap();
        let (part, counts) = self
            .write_part(&writing.plan, writing.missing(), &extra)
            .await;
        (writing, part, counts)
    }

    async fn write_part(
        &self,
        plan: &Plan,
        wanted: BTreeSet<Partition>,
        extra: &[Record],
    ) -> (String, Part) {
        self.try_part(plan, wanted, extra).await.unwrap()
    }

    async fn try_part(
        &self,
        plan: &Plan,
        wanted: BTreeSet<Partition>,
        extra: &[Record],
    ) -> Result<(String, Part), BackupError> {
        let known = match &plan.base {
            Some(base) => {
                let base = Backup::read(&self.location, base).await?;
                Known::of(&base, &wanted)
            }
            None => Known::default(),
        };
        let packs = TempDir::new_in(self.dir.path()).unwrap();
        let mut writer = PackWriter::new(packs.path(), partitions(), known);
        for partition in wanted {
            writer.begin(partition, Epoch(1));
            let here = extra.iter().filter(|it| partition_of(it) == partition);
            let here: Vec<_> = here.cloned().collect();
            writer.push_records(partition, &here).unwrap();
            for slice in self.store.sealed(partition).unwrap().slices {
                writer.push_sealed(partition, &slice).unwrap();
            }
        }
        let counts = writer.counts();
        let pace = |_| std::future::ready(());
        let part = writer.finish(&self.location, &plan.name, pace).await;
        Ok((part?, counts))
    }

    /// A whole backup.
    async fn back_up(&self, name: &str, base: Option<&str>) -> (Backup, Part) {
        let plan = Self::plan(name, base);
        let mut writing = Writing::begin(&self.location, plan).await.unwrap();
        let missing = writing.missing();
        let (part, counts) = self.write_part(&writing.plan, missing, &[]).await;
        writing.take(&part).await.unwrap();
        (writing.finish().await.unwrap(), counts)
    }

    async fn values(&self, backup: &Backup) -> BTreeMap<Bytes, Bytes> {
        let mut values = BTreeMap::new();
        let mut reader = backup.read_partitions(&self.location, backup.lines());
        while let Some(slices) = reader.next().await.unwrap() {
            for record in slices.records().unwrap() {
                let record = record.unwrap();
                if let State::Value { value, .. } = record.state {
                    let before = values.insert(record.key.into_bytes(), value);
                    assert_eq!(before, None, "a key comes once");
                }
            }
        }
        values
    }
}

fn wanted(values: impl IntoIterator<Item = (u64, &'static str)>) -> BTreeMap<Bytes, Bytes> {
    let pair = |(key, value): (u64, &'static str)| (format!("key-{key}").into(), value.into());
    values.into_iter().map(pair).collect()
}

#[tokio::test]
async fn a_second_backup_copies_only_what_is_new_and_stands_by_itself() {
    let node = Fixture::new();
    node.put(0..KEYS, 1, Some("first")).await;
    let (first, of_first) = node.back_up("a", None).await;
    assert_eq!((first.sums.records, of_first.known), (KEYS, 0));
    assert_eq!(of_first.copied, first.sums.bytes);

    node.put([3], 2, Some("second")).await;
    node.put([4], 2, None).await;
    let (second, of_second) = node.back_up("b", Some("a")).await;
    assert_eq!(of_second.known, first.sums.bytes, "nothing twice");
    assert!(of_second.copied < of_first.copied / 4, "{of_second:?}");
    let all = (0..KEYS).map(|key| (key, "first"));
    assert_eq!(node.values(&first).await, wanted(all.clone()));
    let changed = all
        .filter(|(key, _)| *key != 4)
        .map(|(key, value)| (key, if key == 3 { "second" } else { value }));
    assert_eq!(node.values(&second).await, wanted(changed));

    let get = async |backup: &Backup, key: &str| {
        let key = key.as_bytes();
        let found = backup.get(&node.location, &ordinary(1), key).await;
        found.unwrap().map(|record| record.state)
    };
    let value = |text: &'static str| {
        Some(State::Value {
            value: text.into(),
            expires_at_ms: None,
        })
    };
    assert_eq!(get(&first, "key-3").await, value("first"));
    assert_eq!(get(&second, "key-3").await, value("second"));
    assert_eq!(get(&second, "key-4").await, Some(State::Tombstone));
    assert_eq!(get(&second, "key-99").await, None);
}

#[tokio::test]
async fn what_a_node_adds_counts_by_its_version() {
    let node = Fixture::new();
    node.put(0..KEYS, 5, Some("held")).await;
    let mut writing = Writing::begin(&node.location, Fixture::plan("a", None))
        .await
        .unwrap();
    let extra = [
        record(1, 6, Some("newer")),
        record(2, 4, Some("older")),
        record(3, 6, None),
        record(KEYS, 1, Some("lacking")),
    ];
    let (part, _) = node
        .write_part(&writing.plan, writing.missing(), &extra)
        .await;
    writing.take(&part).await.unwrap();
    let backup = writing.finish().await.unwrap();
    let values = (0..KEYS).filter(|key| *key != 3).map(|key| match key {
        1 => (1, "newer"),
        key => (key, "held"),
    });
    let all = wanted(values.chain([(KEYS, "lacking")]));
    assert_eq!(node.values(&backup).await, all);
    verify(&node.location, "a", Depth::Restore, || {})
        .await
        .unwrap();
}

#[tokio::test]
async fn a_backup_that_was_interrupted_goes_on_with_what_is_missing() {
    let node = Fixture::new();
    node.put(0..KEYS, 1, Some("v")).await;
    let writing = Writing::begin(&node.location, Fixture::plan("a", None))
        .await
        .unwrap();
    let half: BTreeSet<_> = (0..4).map(Partition).collect();
    node.write_part(&writing.plan, half.clone(), &[]).await;
    drop(writing);

    let unfinished = Backup::read(&node.location, "a").await.unwrap_err();
    assert!(unfinished.to_string().contains("not finished"));
    let listed = readable(&node.location).await;
    assert_eq!(listed[0].sums, None);
    let refused = prune(&node.location, 1, false, false).await.unwrap_err();
    assert!(matches!(refused, BackupError::Name { .. }), "{refused}");

    let mut writing = Writing::resume(&node.location, "a").await.unwrap();
    let left: BTreeSet<_> = (4..8).map(Partition).collect();
    assert_eq!(writing.missing(), left);
    let (part, _) = node.write_part(&writing.plan, left, &[]).await;
    writing.take(&part).await.unwrap();
    let backup = writing.finish().await.unwrap();
    let all = (0..KEYS).map(|key| (key, "v"));
    assert_eq!(node.values(&backup).await, wanted(all));
    let twice = Writing::resume(&node.location, "a").await.unwrap_err();
    assert!(matches!(twice, BackupError::Name { .. }), "{twice}");
    let taken = Writing::begin(&node.location, Fixture::plan("a", None)).await;
    assert!(matches!(taken, Err(BackupError::Name { .. })));
}

#[tokio::test]
async fn without_a_part_or_a_pack_there_is_no_manifest() {
    let node = Fixture::new();
    node.put(0..KEYS, 1, Some("v")).await;
    let mut writing = Writing::begin(&node.location, Fixture::plan("a", None))
        .await
        .unwrap();
    let most: BTreeSet<_> = (1..8).map(Partition).collect();
    let (part, _) = node.write_part(&writing.plan, most, &[]).await;
    writing.take(&part).await.unwrap();
    let missing = writing.finish().await.unwrap_err();
    assert!(missing.to_string().contains("partition 0"), "{missing}");
    assert!(Backup::read(&node.location, "a").await.is_err());
}

#[tokio::test]
async fn a_full_backup_replaces_a_damaged_pack() {
    let at = Fixture::new();
    at.put(0..KEYS, 1, Some("one")).await;
    at.back_up("1", None).await;
    let (pack, _) = at.location.list("packs").await.unwrap().pop().unwrap();
    let pack = format!("packs/{pack}");
    let mut bytes = at
        .location
        .read(&pack, u64::MAX)
        .await
        .unwrap()
        .unwrap()
        .to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    at.location.remove(&pack).await.unwrap();
    assert!(at.location.create(&pack, bytes.into()).await.unwrap());
    at.back_up("2", Some("1")).await;
    for name in ["1", "2"] {
        let damaged = verify(&at.location, name, Depth::Bytes, || ()).await;
        assert!(damaged.is_err(), "{name} uses the pack");
    }
    at.back_up("3", None).await;
    for name in ["1", "2", "3"] {
        verify(&at.location, name, Depth::Bytes, || ())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn pruning_keeps_what_the_newest_use() {
    let node = Fixture::new();
    node.put(0..KEYS, 1, Some("v")).await;
    node.back_up("a", None).await;
    node.put([1], 2, Some("w")).await;
    node.back_up("b", Some("a")).await;
    node.store.compact().await.unwrap();
    let (last, _) = node.back_up("c", Some("b")).await;

    let planned = prune(&node.location, 2, false, true).await.unwrap();
    assert_eq!(
        (&planned.backups[..], planned.packs),
        (&["a".to_owned()][..], 0)
    );
    assert_eq!(
        prune(&node.location, 2, false, false).await.unwrap(),
        planned
    );
    let before = node.values(&last).await;
    let pruned = prune(&node.location, 1, false, false).await.unwrap();
    assert_eq!(pruned.backups, ["b"]);
    verify(&node.location, "c", Depth::Restore, || {})
        .await
        .unwrap();
    assert_eq!(node.values(&last).await, before);
    let names = readable(&node.location).await;
    assert_eq!(names.len(), 1);
}

#[tokio::test]
async fn a_backup_of_another_release_hinders_no_other_one() {
    let node = Fixture::new();
    node.put(0..KEYS, 1, Some("v")).await;
    node.back_up("a", None).await;
    // Of the release before: without epochs.
    for (object, text) in [
        ("plan.json", "{\"format\":1}\n"),
        ("manifest.ndjson", "{\"format\":1}\n{\"sums\":{}}\n"),
    ] {
        let object = format!("backups/old/{object}");
        node.location.create(&object, text.into()).await.unwrap();
    }
    node.back_up("b", Some("a")).await;
    let mut unreadable = Vec::new();
    let listed = Backup::list(&node.location, |name, _| unreadable.push(name)).await;
    let names: Vec<_> = listed.unwrap().into_iter().map(|it| it.plan.name).collect();
    assert_eq!(
        (names, unreadable),
        (vec!["a".into(), "b".into()], vec!["old".into()])
    );
    let refused = prune(&node.location, 1, true, false).await.unwrap_err();
    assert!(
        refused.to_string().contains("backup old cannot be read"),
        "{refused}"
    );
    for name in ["a", "b"] {
        verify(&node.location, name, Depth::Restore, || {})
            .await
            .unwrap();
    }
}

async fn readable(location: &Location) -> Vec<Listed> {
    let fail = |name, error| panic!("{name}: {error}");
    Backup::list(location, fail).await.unwrap()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn every_damaged_byte_and_every_missing_object_is_found() {
    if std::env::var("TORC_TEST_S3").is_ok() {
        eprintln!("skipped: it damages files");
        return;
    }
    let node = Fixture::new();
    node.put(0..8, 1, Some("v")).await;
    node.back_up("a", None).await;
    let check = async || verify(&node.location, "a", Depth::Bytes, || {}).await;
    check().await.unwrap();
    let dir = node.dir.path().join("backups");
    let objects = files(&dir);
    assert_eq!(objects.len(), 3, "plan, manifest and pack: {objects:?}");
    for path in objects {
        let object = path.strip_prefix(&dir).unwrap().to_str().unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(&path, &damaged).unwrap();
            let found = check().await;
            assert!(
                names(&found, object),
                "byte {at} of {}: {found:?}",
                path.display()
            );
        }
        for len in [0, 1, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert!(check().await.is_err(), "{len} bytes of {}", path.display());
        }
        std::fs::remove_file(&path).unwrap();
        assert!(check().await.is_err());
        std::fs::write(&path, &whole).unwrap();
    }
    check().await.unwrap();
}

/// Whether an object is damaged, and the error names it.
fn names<T>(found: &Result<T, BackupError>, damaged: &str) -> bool {
    matches!(
        found,
        Err(BackupError::Location(ObjectError::Damaged { object, .. })) if object == damaged
    )
}

/// A plan or a manifest, changed as damage or a hand may change it.
async fn alter(location: &Location, object: &str, from: &str, to: &str) {
    let text = location.read(object, u64::MAX).await.unwrap().unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    assert!(text.contains(from), "{from} in {text}");
    location.remove(object).await.unwrap();
    let altered = text.replacen(from, to, 1);
    let created = location.create(object, altered.into()).await;
    assert!(created.unwrap());
}

#[tokio::test]
async fn a_changed_plan_is_refused_by_whoever_reads_it() {
    for (from, to) in [
        // The records of the namespace would not be found.
        (r#""id":1"#, r#""id":3"#),
        // No key would be found by its digest.
        (r#""digest_key":"07"#, r#""digest_key":"17"#),
        (r#""name":"a""#, r#""name":"z""#),
        (r#""name":"default""#, r#""name":"other""#),
    ] {
        let node = Fixture::new();
        node.put(0..KEYS, 1, Some("v")).await;
        let writing = Writing::begin(&node.location, Fixture::plan("a", None));
        let writing = writing.await.unwrap();
        let plan = "backups/a/plan.json";
        alter(&node.location, plan, from, to).await;
        let resumed = Writing::resume(&node.location, "a").await;
        assert!(names(&resumed, plan), "{from}: {resumed:?}");
        let read = Plan::read(&node.location, "a").await;
        assert!(names(&read, plan), "nodes read it, too: {read:?}");

        // The plan in memory is the one that was begun.
        let mut writing = writing;
        let (part, _) = node.write_part(&writing.plan, writing.missing(), &[]).await;
        writing.take(&part).await.unwrap();
        writing.finish().await.unwrap();
        for depth in [Depth::Names, Depth::Restore] {
            let verified = verify(&node.location, "a", depth, || {}).await;
            assert!(names(&verified, plan), "{from}: {verified:?}");
        }
        let mut unreadable = Vec::new();
        let hear = |name, error| unreadable.push((name, Err::<(), _>(error)));
        let listed = Backup::list(&node.location, hear).await.unwrap();
        assert_eq!(listed, [], "{from}");
        assert_eq!(unreadable[0].0, "a", "the name is that of the path");
        assert!(names(&unreadable[0].1, plan), "{:?}", unreadable[0].1);
        let pruned = prune(&node.location, 1, true, false).await.unwrap_err();
        assert!(pruned.to_string().contains(plan), "{pruned}");
        let whole = Backup::read(&node.location, "a").await.unwrap();
        assert_eq!(node.values(&whole).await.len(), 60, "a restore reads it");
    }
}

#[tokio::test]
async fn objects_of_another_backup_are_not_taken_for_its_own() {
    let node = Fixture::new();
    node.put(0..KEYS, 1, Some("v")).await;
    node.back_up("a", None).await;
    for object in ["plan.json", "manifest.ndjson"] {
        let from = format!("backups/a/{object}");
        let text = node.location.read(&from, u64::MAX).await.unwrap().unwrap();
        let to = format!("backups/b/{object}");
        node.location.create(&to, text).await.unwrap();
    }
    let read = Backup::read(&node.location, "b").await;
    assert!(names(&read, "backups/b/manifest.ndjson"), "{read:?}");
    let read = Plan::read(&node.location, "b").await;
    assert!(names(&read, "backups/b/plan.json"), "{read:?}");
}

#[tokio::test]
async fn a_listing_shows_no_damaged_sums() {
    let node = Fixture::new();
    node.put(0..KEYS, 1, Some("v")).await;
    node.back_up("a", None).await;
    let manifest = "backups/a/manifest.ndjson";
    // Only the last line has the sum.
    alter(&node.location, manifest, r#""slices":8,"#, r#""slices":9,"#).await;
    let mut unreadable = Vec::new();
    let hear = |_, error| unreadable.push(Err::<(), _>(error));
    let listed = Backup::list(&node.location, hear).await.unwrap();
    assert_eq!(listed, []);
    assert!(names(&unreadable[0], manifest), "{:?}", unreadable[0]);
}

#[tokio::test]
async fn verification_counts_the_records_of_each_namespace() {
    let node = Fixture::new();
    let (mut writing, part, counts) = node.begin_with_two_namespaces("a").await;
    assert_eq!(counts.records, 2 * KEYS);
    // A node that counts wrongly: the part is named by its digest.
    let text = node
        .location
        .read(&format!("backups/a/parts/{part}"), u64::MAX)
        .await
        .unwrap()
        .unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let wrong = text.replacen(r#""records":[[2,"#, r#""records":[[3,"#, 1);
    assert_ne!(text, wrong);
    let wrong_part = format!("{}.ndjson", blake3::hash(wrong.as_bytes()).to_hex());
    let object = format!("backups/a/parts/{wrong_part}");
    node.location.create(&object, wrong.into()).await.unwrap();
    writing.take(&wrong_part).await.unwrap();
    writing.finish().await.unwrap();
    verify(&node.location, "a", Depth::Bytes, || {})
        .await
        .unwrap();
    let verified = verify(&node.location, "a", Depth::Restore, || {}).await;
    let error = verified.unwrap_err().to_string();
    assert!(error.contains("namespace with id 2"), "{error}");

    let (mut writing, part, _) = node.begin_with_two_namespaces("b").await;
    writing.take(&part).await.unwrap();
    let backup = writing.finish().await.unwrap();
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for (id, records) in backup
        .lines()
        .flat_map(|it| it.slices)
        .flat_map(|it| it.records)
    {
        *sums.entry(id).or_default() += records;
    }
    let default = NamespaceId::DEFAULT.0;
    assert_eq!(sums, BTreeMap::from([(default, KEYS), (2, KEYS)]));
}

#[tokio::test]
async fn a_restore_of_one_namespace_reads_no_slices_of_others() {
    if std::env::var("TORC_TEST_S3").is_ok() {
        eprintln!("skipped: it damages files");
        return;
    }
    let (first, second) = (NamespaceId::DEFAULT, NamespaceId(2));
    let node = Fixture::new();
    let (mut writing, part, _) = node.begin_with_two_namespaces("a").await;
    writing.take(&part).await.unwrap();
    let backup = writing.finish().await.unwrap();
    let check = async |wanted: &[NamespaceId]| {
        let wanted = wanted.iter().copied().collect();
        verify_namespaces(&node.location, &backup, &wanted, || {}).await
    };
    check(&[first, second]).await.unwrap();
    check(&[NamespaceId(3)]).await.unwrap();

    let of_second = BTreeSet::from([second]);
    let slices: Vec<_> = backup
        .lines_of(&of_second)
        .flat_map(|line| line.slices)
        .collect();
    assert_eq!(slices.len(), 8, "half of the slices");
    let (pack, _) = node.location.list("packs").await.unwrap().pop().unwrap();
    let object = format!("packs/{pack}");
    let path = node.dir.path().join("backups").join(&object);
    let whole = std::fs::read(&path).unwrap();
    for slice in &slices {
        let at = usize::try_from(slice.at).unwrap();
        let len = usize::try_from(slice.len).unwrap();
        for at in at..at + len {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(&path, &damaged).unwrap();
            let found = check(&[second]).await;
            assert!(names(&found, &object), "byte {at}: {found:?}");
            check(&[first]).await.unwrap();
        }
    }
    let found = verify(&node.location, "a", Depth::Bytes, || {}).await;
    assert!(names(&found, &object), "{found:?}");
    let get = async |namespace: NamespaceId| {
        backup
            .get(&node.location, &ordinary(namespace.0), b"key-1")
            .await
    };
    assert!(get(first).await.unwrap().is_some());
    std::fs::remove_file(&path).unwrap();
    let found = check(&[first]).await;
    assert!(names(&found, &object), "{found:?}");
}

/// Repeats what failed for lack of an answer, as a user does.
async fn again<T>(mut attempt: impl AsyncFnMut() -> Result<T, BackupError>) -> T {
    for _ in 0..1_000 {
        match attempt().await {
            Err(BackupError::Location(ObjectError::Object { .. })) => {}
            done => return done.unwrap(),
        }
    }
    panic!("it fails for ever");
}

#[tokio::test]
async fn a_store_that_fails_is_slow_and_answers_twice_delays_a_backup() {
    let mut node = Fixture::new();
    node.put(0..KEYS, 1, Some("v")).await;
    let sound = node.location.clone();
    node.location = sound.through(|inner| Arc::new(Faulty::new(inner)));
    for (name, base) in [("a", None), ("b", Some("a"))] {
        let plan = Fixture::plan(name, base);
        // If the first attempt was carried out, then the name is taken.
        let begun = again(
            async || match Writing::begin(&node.location, plan.clone()).await {
                Err(BackupError::Name { .. }) => Writing::resume(&node.location, name).await,
                begun => begun,
            },
        );
        let wanted = begun.await.missing();
        let part = again(async || node.try_part(&plan, wanted.clone(), &[]).await);
        let (part, _) = part.await;
        let finished = again(async || {
            // If only the answer was lost, it is finished.
            let mut writing = match Writing::resume(&node.location, name).await {
                Err(BackupError::Name { .. }) => return Ok(()),
                writing => writing?,
            };
            writing.take(&part).await?;
            writing.finish().await.map(drop)
        });
        finished.await;
        verify(&sound, name, Depth::Restore, || {}).await.unwrap();
    }
    let backup = again(async || Backup::read(&node.location, "b").await).await;
    node.location = sound;
    let all = (0..KEYS).map(|key| (key, "v"));
    assert_eq!(node.values(&backup).await, wanted(all));
}

/// An object store takes a while for each request. Some requests fail and are repeated.
#[tokio::test]
async fn slices_side_by_side_are_read_together() {
    let mut node = Fixture::new();
    node.put(0..KEYS, 1, Some("v")).await;
    node.back_up("a", None).await;
    node.put(0..1, 2, Some("w")).await;
    let (backup, _) = node.back_up("b", Some("a")).await;
    let slices = u64::from(partitions().count()) + 1;
    assert_eq!(backup.sums.slices, slices);
    let mut faulty = None;
    node.location = node.location.through(|inner| {
        let store = Arc::new(Faulty::new(inner));
        faulty = Some(Arc::clone(&store));
        store
    });
    let mut all: BTreeMap<_, _> = (0..KEYS).map(|key| (key, "v")).collect();
    all.insert(0, "w");
    assert_eq!(node.values(&backup).await, wanted(all));
    let calls = faulty.unwrap().calls();
    assert!(calls < slices, "{calls} requests for {slices} slices");
}

#[tokio::test]
async fn a_place_that_is_none_is_refused_without_its_secrets() {
    for wrong in [
        "",
        "here",
        "/tmp",
        "ftp://host/dir",
        "file://host/dir",
        "file:///",
    ] {
        assert!(
            matches!(Location::open(wrong), Err(ObjectError::Url { .. })),
            "{wrong}"
        );
    }
    let error = Location::open("ftp://me:secret@host/dir?key=secret").unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
    let dir = TempDir::new().unwrap();
    let location = Location::open(&url(dir.path(), "empty")).unwrap();
    assert_eq!(readable(&location).await, []);
    for name in ["", "a/b", "..", "a b", &"n".repeat(65)] {
        let read = Backup::read(&location, name).await.unwrap_err();
        assert!(matches!(read, BackupError::Name { .. }), "{name}: {read}");
    }
}

#[tokio::test]
async fn a_record_under_the_digest_of_another_key_is_named_and_damages_nothing() {
    let node = Fixture::new();
    let mut foreign = record(KEYS, 1, Some("foreign"));
    foreign.digest = record(0, 1, None).digest;
    node.store.write(foreign.clone()).await.unwrap();
    node.put(0..KEYS, 1, Some("v")).await;
    let (backup, _) = node.back_up("a", None).await;
    let verified = verify(&node.location, "a", Depth::Restore, || {}).await;
    let named = Foreign {
        records: 1,
        first: Some(Locator::of(&foreign)),
    };
    assert_eq!(verified.unwrap().foreign, named);
    let mut reader = backup.read_partitions(&node.location, backup.lines());
    let mut found = Vec::new();
    while let Some(slices) = reader.next().await.unwrap() {
        let records = slices.records().unwrap().map(Result::unwrap);
        found.extend(records.filter(|record| slices.is_foreign(record)));
    }
    assert_eq!(found, [foreign]);
}
