//! Tasks for some buckets each give the same result as a single build, however often they run, and wherever
//! their files go. Data that is not partitioned, missing, or of another job is refused before a manifest is written.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use torc_build::{
    Answer, Build, BuildError, BuildOptions, Depth, Duplicates, Generation, Manifest, Plan,
    Published, Receipt, Target, Task,
};
use torc_objects::{Location, ObjectError, url_of};
use torc_testkit::Faulty;

use crate::common::{Rows, rows, target};

const BUCKETS: u32 = 8;

fn options() -> BuildOptions {
    BuildOptions {
        workers: 1,
        ..BuildOptions::default()
    }
}

fn plan() -> Plan {
    Plan::for_tasks(target(), &options(), BUCKETS).unwrap()
}

/// The partitioning of an engine: all rows of a bucket in one task, a few buckets in each.
fn partitioned(plan: &Plan, rows: &Rows, tasks: u32) -> Vec<Rows> {
    let mut shares = vec![Rows::new(); tasks as usize];
    for row in rows {
        shares[(plan.bucket_of(&row.0) % tasks) as usize].push(row.clone());
    }
    shares
}

/// Where the tasks of a test send their files.
fn place(dir: &Path) -> Location {
    Location::open(&crate::url(dir)).unwrap()
}

async fn run(plan: &Plan, to: &Location, rows: &Rows) -> Result<Receipt, BuildError> {
    let scratch = tempfile::tempdir().unwrap();
    let mut task = Task::begin(plan.clone(), to.clone(), scratch.path())?;
    for (key, value) in rows {
        let placed = Some(plan.bucket_of(key));
        task.push(key.clone().into(), value.clone().into(), placed)?;
    }
    let receipt = task.finish().await;
    let left = std::fs::read_dir(scratch.path()).unwrap().count();
    assert_eq!(left, 0, "a task leaves nothing on its disk");
    receipt
}

async fn run_all(
    plan: &Plan,
    to: &Location,
    rows: &Rows,
    tasks: u32,
) -> Result<Vec<Receipt>, BuildError> {
    let mut receipts = Vec::new();
    for rows in partitioned(plan, rows, tasks) {
        receipts.push(run(plan, to, &rows).await?);
    }
    Ok(receipts)
}

/// Names at a location with this ending.
async fn names(at: &Location, ending: &str) -> BTreeSet<String> {
    let names = at.names().await.unwrap().into_iter();
    names.filter(|name| name.ends_with(ending)).collect()
}

async fn read(at: &Location, name: &str) -> Bytes {
    at.read(name, 1 << 30).await.unwrap().unwrap()
}

fn alone(dir: &Path, rows: &Rows) -> Manifest {
    let options = BuildOptions {
        // Buckets of 512 MiB each.
        expected_bytes: Some(u64::from(BUCKETS - 1) << 29),
        ..options()
    };
    let mut build = Build::create(dir, target(), options).unwrap();
    for (key, value) in rows {
        build
            .push(key.clone().into(), value.clone().into())
            .unwrap();
    }
    build.finish(|_| ()).unwrap()
}

#[tokio::test]
async fn tasks_make_what_one_build_makes_whatever_their_number_and_order() {
    let rows = rows(3_000);
    let one = tempfile::tempdir().unwrap();
    let manifest = alone(one.path(), &rows);
    assert!(manifest.files.len() > 4, "several buckets have rows");
    for tasks in [1, 3, BUCKETS] {
        let dir = tempfile::tempdir().unwrap();
        let to = place(dir.path());
        plan().begin(&to, false).await.unwrap();
        let mut receipts = run_all(&plan(), &to, &rows, tasks).await.unwrap();
        receipts.reverse();
        let built = plan().commit(to.clone(), &receipts, false).await.unwrap();
        assert_eq!(built.manifest(), &manifest);
        for entry in &manifest.files {
            let name = entry.name();
            let wanted = std::fs::read(one.path().join(&name)).unwrap();
            assert_eq!(read(&to, &name).await, wanted, "{name}");
        }
        let name = built.url().rsplit('/').next().unwrap();
        let wanted = std::fs::read(one.path().join("generation.json")).unwrap();
        assert_eq!(read(&to, name).await, wanted);
        let found = Published::open(to.url()).await.unwrap();
        assert_eq!(found.url(), built.url());
        found.verify(Depth::Records).await.unwrap();
        let all = to.names().await.unwrap().len();
        assert_eq!(all, manifest.files.len() + 1, "and nothing else is there");
    }
}

#[tokio::test]
async fn a_number_of_buckets_changes_files_and_no_slice() {
    let rows = rows(2_000);
    let slices = async |buckets| {
        let dir = tempfile::tempdir().unwrap();
        let to = place(dir.path());
        let plan = Plan::for_tasks(target(), &options(), buckets).unwrap();
        assert_eq!(plan.buckets(), buckets);
        plan.begin(&to, false).await.unwrap();
        let receipts = run_all(&plan, &to, &rows, 2).await.unwrap();
        let built = plan.commit(to, &receipts, false).await.unwrap();
        // Not where they are.
        let slices = built.manifest().slices();
        let slices = slices.map(|slice| (slice.partition, slice.len, slice.digest));
        (built.manifest().files.len(), slices.collect::<Vec<_>>())
    };
    let (few, many) = (slices(1).await, slices(64).await);
    assert_eq!((few.0, many.0), (1, 64));
    assert_eq!(few.1, many.1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_task_that_is_run_again_harms_nothing() {
    let rows = rows(1_000);
    let dir = tempfile::tempdir().unwrap();
    let (plan, to) = (plan(), place(dir.path()));
    plan.begin(&to, false).await.unwrap();
    let shares = partitioned(&plan, &rows, 2);
    // One attempt sends the files of other rows but never reports, and two run at once.
    let half: Rows = shares[0][..200].to_vec();
    run(&plan, &to, &half).await.unwrap();
    let once = |share: usize| {
        let (plan, to, rows) = (plan.clone(), to.clone(), shares[share].clone());
        tokio::spawn(async move { run(&plan, &to, &rows).await.unwrap() })
    };
    let mut receipts = Vec::new();
    for run in [once(0), once(0), once(1), once(1)] {
        receipts.push(run.await.unwrap());
    }
    assert_eq!(receipts[0], receipts[1], "the same rows, the same receipt");
    assert_eq!(names(&to, ".json").await.len(), 0);
    let built = plan.commit(to.clone(), &receipts, false).await.unwrap();
    assert_eq!(built.manifest().records, 1_000);
    built.verify(Depth::Records).await.unwrap();
    let named = built
        .manifest()
        .files
        .iter()
        .map(torc_build::FileEntry::name);
    let there = names(&to, ".part").await;
    assert!(there.is_superset(&named.collect()));
    // A driver that does not know that it has committed repeats the commit, and an attempt may go on after it.
    let again = plan.commit(to.clone(), &receipts, false).await.unwrap();
    assert_eq!(again.url(), built.url());
    run(&plan, &to, &shares[0]).await.unwrap();
    assert_eq!(names(&to, ".part").await, there);
    built.verify(Depth::Records).await.unwrap();
}

#[tokio::test]
async fn a_store_that_fails_and_answers_twice_delays_tasks() {
    let dir = tempfile::tempdir().unwrap();
    let (plan, sound) = (plan(), place(dir.path()));
    let mut store = None;
    let faulty = sound.through(|inner| {
        let faulty = Arc::new(Faulty::new(inner));
        store = Some(Arc::clone(&faulty));
        faulty
    });
    let is_store = |error: &BuildError| {
        let is_store = matches!(error, BuildError::Objects(ObjectError::Object { .. }));
        assert!(is_store, "{error}");
    };
    while let Err(error) = plan.begin(&faulty, false).await {
        is_store(&error);
    }
    let mut receipts = Vec::new();
    for rows in partitioned(&plan, &rows(2_000), BUCKETS) {
        // Two attempts at once, until each has its answer.
        let attempt = async || loop {
            match run(&plan, &faulty, &rows).await {
                Ok(receipt) => break receipt,
                Err(error) => is_store(&error),
            }
        };
        let (one, other) = futures::join!(attempt(), attempt());
        assert_eq!(one, other);
        receipts.push(one);
    }
    let built = loop {
        match plan.commit(faulty.clone(), &receipts, false).await {
            Ok(built) => break built,
            Err(error) => is_store(&error),
        }
    };
    assert!(store.unwrap().failures() > 1, "it did not fail");
    let found = Published::open(sound.url()).await.unwrap();
    assert_eq!(found.url(), built.url());
    found.verify(Depth::Records).await.unwrap();
    assert_eq!(
        names(&sound, ".json").await.len(),
        1,
        "however often it was sent"
    );
}

#[tokio::test]
async fn a_killed_attempt_is_continued_by_another_and_a_damaged_file_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (plan, to, rows) = (plan(), place(dir.path()), rows(1_000));
    plan.begin(&to, false).await.unwrap();
    let whole = run(&plan, &to, &rows).await.unwrap();
    let sent: Vec<_> = names(&to, ".part").await.into_iter().collect();
    assert!(sent.len() > 4, "several files");
    // As if the attempt had been killed before its last files, and the store had damaged the first.
    for name in &sent[3..] {
        to.remove(name).await.unwrap();
    }
    let wanted = read(&to, &sent[0]).await;
    to.remove(&sent[0]).await.unwrap();
    let junk = Bytes::from(vec![7; wanted.len()]);
    assert!(to.create(&sent[0], junk).await.unwrap());
    let refused = plan.commit(to.clone(), std::slice::from_ref(&whole), false);
    let refused = refused.await.unwrap_err().to_string();
    let is_named = sent[3..].iter().any(|name| refused.contains(name));
    assert!(is_named && refused.contains("is missing"), "{refused}");
    assert_eq!(names(&to, ".json").await.len(), 0);
    assert_eq!(run(&plan, &to, &rows).await.unwrap(), whole);
    assert_eq!(read(&to, &sent[0]).await, wanted);
    let built = plan.commit(to, &[whole], false).await.unwrap();
    built.verify(Depth::Records).await.unwrap();
}

#[tokio::test]
async fn what_is_not_partitioned_by_bucket_is_refused() {
    let rows = rows(400);
    let dir = tempfile::tempdir().unwrap();
    let (plan, to) = (plan(), place(dir.path()));
    plan.begin(&to, false).await.unwrap();
    let mut receipts = Vec::new();
    for rows in rows.chunks(200) {
        receipts.push(run(&plan, &to, &rows.to_vec()).await.unwrap());
    }
    let refused = plan.commit(to.clone(), &receipts, false).await.unwrap_err();
    assert!(
        matches!(refused, BuildError::BucketTwice { .. }),
        "{refused}"
    );

    let scratch = tempfile::tempdir().unwrap();
    let mut task = Task::begin(plan.clone(), to.clone(), scratch.path()).unwrap();
    let (key, value) = rows[0].clone();
    let other = (plan.bucket_of(&key) + 1) % BUCKETS;
    let refused = task.push(key.into(), value.into(), Some(other));
    assert!(matches!(
        refused,
        Err(BuildError::OtherBucket { row: 1, .. })
    ));

    let target = Target::offline([9; 32]);
    let many = Plan::for_tasks(target, &options(), 4_096).unwrap();
    let mut task = Task::begin(many, to.clone(), scratch.path()).unwrap();
    let mut push = |(key, value): &(Vec<u8>, Vec<u8>)| {
        task.push(key.clone().into(), value.clone().into(), None)
    };
    let refused = rows.iter().find_map(|row| push(row).err());
    assert!(matches!(
        refused,
        Some(BuildError::NotPartitioned { most: 256 })
    ));
    assert_eq!(names(&to, ".json").await.len(), 0);
}

#[tokio::test]
async fn a_key_that_two_rows_have_meets_itself_in_one_task() {
    let mut rows = rows(300);
    rows.push((rows[7].0.clone(), b"again".to_vec()));
    let under = async |duplicates| {
        let dir = tempfile::tempdir().unwrap();
        let objects = dir.path().join("objects");
        let to = Location::open(&url_of(&objects).unwrap()).unwrap();
        let options = BuildOptions {
            duplicates,
            ..options()
        };
        let plan = Plan::for_tasks(target(), &options, BUCKETS).unwrap();
        plan.begin(&to, false).await.unwrap();
        let receipts = run_all(&plan, &to, &rows, BUCKETS).await?;
        let built = plan.commit(to, &receipts, false).await.unwrap();
        let manifest = built.manifest();
        assert_eq!((manifest.records, manifest.duplicates), (300, 1));
        // A directory is read by its path.
        let found = Generation::open(&objects).unwrap();
        Ok(found.get(&rows[7].0).unwrap())
    };
    let refused: Result<Answer, BuildError> = under(Duplicates::Error).await;
    assert!(matches!(refused, Err(BuildError::Duplicate { key }) if key.ends_with("/7")));
    let first = Answer::Value(rows[7].1.clone().into());
    assert_eq!(under(Duplicates::First).await.unwrap(), first);
    let last = Answer::Value("again".into());
    assert_eq!(under(Duplicates::Last).await.unwrap(), last);
}

#[tokio::test]
async fn a_commit_of_other_receipts_or_without_a_file_writes_no_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let (plan, to) = (plan(), place(dir.path()));
    plan.begin(&to, false).await.unwrap();
    let receipts = run_all(&plan, &to, &rows(500), 3).await.unwrap();
    let other = Plan::for_tasks(Target::offline([8; 32]), &options(), BUCKETS).unwrap();
    let refused = other
        .commit(to.clone(), &receipts, false)
        .await
        .unwrap_err();
    assert!(matches!(refused, BuildError::OtherReceipt), "{refused}");
    // As if machines did not share a directory, and as if a file were of another job.
    let part = names(&to, ".part").await.pop_first().unwrap();
    for short in [None, Some("short")] {
        to.remove(&part).await.unwrap();
        if let Some(short) = short {
            assert!(to.create(&part, short.into()).await.unwrap());
        }
        let refused = plan.commit(to.clone(), &receipts, false).await.unwrap_err();
        assert!(refused.to_string().contains(part.as_str()), "{refused}");
    }
    assert_eq!(names(&to, ".json").await.len(), 0);
}

#[tokio::test]
async fn a_generation_that_is_there_stays_beside_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let (plan, to) = (plan(), place(dir.path()));
    plan.begin(&to, false).await.unwrap();
    let receipts = run_all(&plan, &to, &rows(500), 3).await.unwrap();
    let before = plan.commit(to.clone(), &receipts, false).await.unwrap();
    let refused = plan.begin(&to, false).await.unwrap_err();
    assert!(matches!(refused, BuildError::Complete { .. }), "{refused}");
    // Another target, and one task that fails.
    let target = Target {
        digest_key: [8; 32],
        ..target()
    };
    let other = Plan::for_tasks(target, &options(), 2).unwrap();
    other.begin(&to, true).await.unwrap();
    let receipts = run_all(&other, &to, &rows(400), 2).await.unwrap();
    assert_eq!(Published::open(to.url()).await.unwrap().url(), before.url());
    let refused = other
        .commit(to.clone(), &receipts, false)
        .await
        .unwrap_err();
    assert!(matches!(refused, BuildError::Complete { .. }), "{refused}");
    let after = other.commit(to.clone(), &receipts, true).await.unwrap();
    assert_eq!(after.manifest().target, target);
    assert_eq!(Published::open(to.url()).await.unwrap().url(), after.url());
    for each in [before, after] {
        each.verify(Depth::Records).await.unwrap();
    }
}

#[tokio::test]
async fn a_place_that_cannot_take_a_generation_is_refused_before_a_task_runs() {
    let dir = tempfile::tempdir().unwrap();
    alone(&dir.path().join("built"), &rows(10));
    std::fs::write(dir.path().join("file"), "").unwrap();
    let begin = async |name: &str| {
        let url = url_of(&dir.path().join(name)).unwrap();
        let begun = plan().begin(&Location::open(&url).unwrap(), true).await;
        begun.unwrap_err()
    };
    let refused = begin("built").await;
    assert!(matches!(refused, BuildError::Complete { .. }), "{refused}");
    let refused = begin("pages.json").await;
    assert!(refused.to_string().contains("end in .json"), "{refused}");
    let refused = begin("file/below").await;
    assert!(matches!(refused, BuildError::Objects(_)), "{refused}");
}

#[test]
fn impossible_gate_rates_are_refused_at_the_start() {
    for gate_rate in [0.9, 0.0, -1.0, f64::NAN, f64::INFINITY] {
        let options = BuildOptions {
            gate_rate,
            ..options()
        };
        let refused = Plan::for_tasks(target(), &options, BUCKETS).unwrap_err();
        assert!(matches!(refused, BuildError::BadShape { .. }), "{refused}");
    }
}

#[tokio::test]
async fn a_plan_and_its_receipts_travel_as_text() {
    let options = BuildOptions {
        gate_rate: 1.0 / 30.0,
        ..options()
    };
    let plan = Plan::for_tasks(target(), &options, BUCKETS).unwrap();
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    let dir = tempfile::tempdir().unwrap();
    let receipt = run(&plan, &place(dir.path()), &rows(50)).await.unwrap();
    let text = serde_json::to_string(&receipt).unwrap();
    assert_eq!(serde_json::from_str::<Receipt>(&text).unwrap(), receipt);
}
