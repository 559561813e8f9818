//! Tasks for some buckets each give the same result as a single build, however often they run. Data
//! that is not partitioned, missing, or of another job is refused before a manifest is written.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::path::Path;

use torc_build::{
    Answer, Build, BuildError, BuildOptions, Depth, Duplicates, Generation, Manifest, Plan,
    Receipt, Target, Task,
};

use crate::{Rows, rows, target};

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

fn run(plan: &Plan, dir: &Path, rows: &Rows) -> Result<Receipt, BuildError> {
    let scratch = tempfile::tempdir().unwrap();
    let mut task = Task::begin(plan.clone(), dir, scratch.path())?;
    for (key, value) in rows {
        let placed = Some(plan.bucket_of(key));
        task.push(key.clone().into(), value.clone().into(), placed)?;
    }
    task.finish()
}

fn run_all(plan: &Plan, dir: &Path, rows: &Rows, tasks: u32) -> Result<Vec<Receipt>, BuildError> {
    let shares = partitioned(plan, rows, tasks);
    shares.iter().map(|rows| run(plan, dir, rows)).collect()
}

fn is_part(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|it| it == "part")
}

/// Everything in a directory.
fn content(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    let bytes = |path: &Path| std::fs::read(path).unwrap_or_default();
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, bytes(&entry.path()))
        })
        .collect()
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

#[test]
fn tasks_make_what_one_build_makes_whatever_their_number_and_order() {
    let rows = rows(3_000);
    let one = tempfile::tempdir().unwrap();
    let manifest = alone(one.path(), &rows);
    assert!(manifest.files.len() > 4, "several buckets have rows");
    for tasks in [1, 3, BUCKETS] {
        let dir = tempfile::tempdir().unwrap();
        plan().begin(dir.path(), false).unwrap();
        let mut receipts = run_all(&plan(), dir.path(), &rows, tasks).unwrap();
        receipts.reverse();
        assert_eq!(
            plan().commit(dir.path(), &receipts, false).unwrap(),
            manifest
        );
        let (ours, theirs) = (content(dir.path()), content(one.path()));
        for (name, bytes) in theirs.iter().filter(|(name, _)| is_part(name)) {
            assert_eq!(&ours[name], bytes, "{name}");
        }
        assert_eq!(ours["generation.json"], theirs["generation.json"]);
        Generation::verify(dir.path(), Depth::Records).unwrap();
    }
}

#[test]
fn a_number_of_buckets_changes_files_and_no_slice() {
    let rows = rows(2_000);
    let slices = |buckets| {
        let dir = tempfile::tempdir().unwrap();
        let plan = Plan::for_tasks(target(), &options(), buckets).unwrap();
        assert_eq!(plan.buckets(), buckets);
        plan.begin(dir.path(), false).unwrap();
        let receipts = run_all(&plan, dir.path(), &rows, 2).unwrap();
        let manifest = plan.commit(dir.path(), &receipts, false).unwrap();
        let files = manifest.files.len();
        let slices = manifest.files.into_iter().flat_map(|file| file.slices);
        // Not where they are.
        let slices = slices.map(|slice| (slice.partition, slice.len, slice.digest));
        (files, slices.collect::<Vec<_>>())
    };
    let (few, many) = (slices(1), slices(64));
    assert_eq!((few.0, many.0), (1, 64));
    assert_eq!(few.1, many.1);
}

#[test]
fn a_task_that_is_run_again_harms_nothing() {
    let rows = rows(1_000);
    let dir = tempfile::tempdir().unwrap();
    let plan = plan();
    plan.begin(dir.path(), false).unwrap();
    let shares = partitioned(&plan, &rows, 2);
    // One attempt ends midway, one writes all its files but never reports, and two run at once.
    let half: Rows = shares[0][..200].to_vec();
    let lost = run(&plan, dir.path(), &half).unwrap();
    std::fs::write(dir.path().join("runs/b.part"), "half a file").unwrap();
    let receipts = std::thread::scope(|scope| {
        let once = |share: usize| {
            let (plan, dir, rows) = (&plan, dir.path(), &shares[share]);
            scope.spawn(move || run(plan, dir, rows).unwrap())
        };
        let runs = [once(0), once(0), once(1), once(1)];
        runs.map(|run| run.join().unwrap())
    });
    assert_eq!(receipts[0], receipts[1], "the same rows, the same receipt");
    assert!(!dir.path().join("generation.json").exists());
    let manifest = plan.commit(dir.path(), &receipts, false).unwrap();
    assert_eq!(manifest.records, 1_000);
    Generation::verify(dir.path(), Depth::Records).unwrap();
    let lies = content(dir.path());
    let parts: Vec<_> = lies.keys().filter(|name| is_part(name)).collect();
    assert_eq!(
        parts.len(),
        manifest.files.len(),
        "what the lost attempt left: {lost:?}"
    );
    assert!(!lies.contains_key("runs"));
    // A driver that does not know that it has committed repeats the commit.
    assert_eq!(plan.commit(dir.path(), &receipts, false).unwrap(), manifest);
}

#[test]
fn what_is_not_partitioned_by_bucket_is_refused() {
    let rows = rows(400);
    let dir = tempfile::tempdir().unwrap();
    let plan = plan();
    plan.begin(dir.path(), false).unwrap();
    let halves = [rows[..200].to_vec(), rows[200..].to_vec()];
    let receipts = halves.map(|rows| run(&plan, dir.path(), &rows).unwrap());
    let refused = plan.commit(dir.path(), &receipts, false).unwrap_err();
    assert!(
        matches!(refused, BuildError::BucketTwice { .. }),
        "{refused}"
    );

    let scratch = tempfile::tempdir().unwrap();
    let mut task = Task::begin(plan.clone(), dir.path(), scratch.path()).unwrap();
    let (key, value) = rows[0].clone();
    let other = (plan.bucket_of(&key) + 1) % BUCKETS;
    let refused = task.push(key.into(), value.into(), Some(other));
    assert!(matches!(
        refused,
        Err(BuildError::OtherBucket { row: 1, .. })
    ));

    let target = Target::offline([9; 32]);
    let many = Plan::for_tasks(target, &options(), 4_096).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let mut task = Task::begin(many, dir.path(), scratch.path()).unwrap();
    let mut push = |(key, value): &(Vec<u8>, Vec<u8>)| {
        task.push(key.clone().into(), value.clone().into(), None)
    };
    let refused = rows.iter().find_map(|row| push(row).err());
    assert!(matches!(
        refused,
        Some(BuildError::NotPartitioned { most: 256 })
    ));
    assert!(!dir.path().join("generation.json").exists());
}

#[test]
fn a_key_that_two_rows_have_meets_itself_in_one_task() {
    let mut rows = rows(300);
    rows.push((rows[7].0.clone(), b"again".to_vec()));
    let under = |duplicates| {
        let dir = tempfile::tempdir().unwrap();
        let options = BuildOptions {
            duplicates,
            ..options()
        };
        let plan = Plan::for_tasks(target(), &options, BUCKETS).unwrap();
        plan.begin(dir.path(), false).unwrap();
        let receipts = run_all(&plan, dir.path(), &rows, BUCKETS)?;
        let manifest = plan.commit(dir.path(), &receipts, false).unwrap();
        assert_eq!((manifest.records, manifest.duplicates), (300, 1));
        Ok(Generation::open(dir.path())
            .unwrap()
            .get(&rows[7].0)
            .unwrap())
    };
    let refused: Result<Answer, BuildError> = under(Duplicates::Error);
    assert!(matches!(refused, Err(BuildError::Duplicate { key }) if key.ends_with("/7")));
    let first = Answer::Value(rows[7].1.clone().into());
    assert_eq!(under(Duplicates::First).unwrap(), first);
    let last = Answer::Value("again".into());
    assert_eq!(under(Duplicates::Last).unwrap(), last);
}

#[test]
fn a_commit_of_other_receipts_or_without_a_file_writes_no_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan();
    plan.begin(dir.path(), false).unwrap();
    let receipts = run_all(&plan, dir.path(), &rows(500), 3).unwrap();
    let other = Plan::for_tasks(Target::offline([8; 32]), &options(), BUCKETS).unwrap();
    let refused = other.commit(dir.path(), &receipts, false).unwrap_err();
    assert!(matches!(refused, BuildError::OtherReceipt), "{refused}");
    // As if machines did not share a directory.
    let lies = content(dir.path());
    let part = lies.keys().find(|name| is_part(name)).unwrap();
    std::fs::remove_file(dir.path().join(part)).unwrap();
    let refused = plan.commit(dir.path(), &receipts, false).unwrap_err();
    assert!(refused.to_string().contains(part.as_str()), "{refused}");
    assert!(!dir.path().join("generation.json").exists());
}

#[test]
fn a_generation_that_is_there_stays_until_another_replaces_it() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan();
    plan.begin(dir.path(), false).unwrap();
    let receipts = run_all(&plan, dir.path(), &rows(500), 3).unwrap();
    let before = plan.commit(dir.path(), &receipts, false).unwrap();
    let refused = plan.begin(dir.path(), false).unwrap_err();
    assert!(matches!(refused, BuildError::Complete { .. }), "{refused}");
    // Another target, and one task that fails.
    let target = Target {
        digest_key: [8; 32],
        ..target()
    };
    let other = Plan::for_tasks(target, &options(), 2).unwrap();
    other.begin(dir.path(), true).unwrap();
    let receipts = run_all(&other, dir.path(), &rows(400), 2).unwrap();
    assert_eq!(
        Generation::verify(dir.path(), Depth::Records).unwrap(),
        before
    );
    let refused = other.commit(dir.path(), &receipts, false).unwrap_err();
    assert!(matches!(refused, BuildError::Complete { .. }), "{refused}");
    let after = other.commit(dir.path(), &receipts, true).unwrap();
    assert_eq!(after.target, target);
    assert_eq!(
        Generation::verify(dir.path(), Depth::Records).unwrap(),
        after
    );
    let lies = content(dir.path());
    let parts = lies.keys().filter(|name| is_part(name));
    assert_eq!(
        parts.count(),
        after.files.len(),
        "the files before are gone"
    );
    assert_eq!(Build::target_of(dir.path()).unwrap(), Some(target));

    let mine = tempfile::tempdir().unwrap();
    std::fs::write(mine.path().join("letter.txt"), "dear").unwrap();
    let refused = plan.begin(mine.path(), true).unwrap_err();
    assert!(matches!(refused, BuildError::NotEmpty { .. }), "{refused}");
}

#[test]
fn a_plan_and_its_receipts_travel_as_text() {
    let options = BuildOptions {
        gate_rate: 1.0 / 30.0,
        ..options()
    };
    let plan = Plan::for_tasks(target(), &options, BUCKETS).unwrap();
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    let dir = tempfile::tempdir().unwrap();
    let receipt = run(&plan, dir.path(), &rows(50)).unwrap();
    let text = serde_json::to_string(&receipt).unwrap();
    assert_eq!(serde_json::from_str::<Receipt>(&text).unwrap(), receipt);
}
