//! A build contains exactly the given keys, with the same bytes in any order and after any
//! interruption; and it reports every problem.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "tests count small numbers"
)]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use torc_build::{
    Answer, Build, BuildError, BuildOptions, Copied, Depth, Duplicates, Generation, Manifest,
    Shape, Target,
};
use torc_record::{Ballot, Epoch, Layer, Locator, NamespaceId, State};
use torc_store::bulk::LooseSlice;

use crate::common::{Rows, rows, target};

fn options() -> BuildOptions {
    BuildOptions {
        expected_bytes: Some(8 << 20),
        ..BuildOptions::default()
    }
}

fn build(dir: &Path, rows: &Rows, options: BuildOptions) -> Result<Manifest, BuildError> {
    let mut build = Build::create(dir, target(), options)?;
    for (key, value) in rows {
        build.push(key.clone().into(), value.clone().into())?;
    }
    build.finish(|_| ())
}

/// The names of the files of slices with their bytes.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    let parts = entries.filter(|entry| entry.path().extension().is_some_and(|it| it == "part"));
    parts
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

#[test]
fn every_key_is_found_with_its_value_and_no_other_is() {
    let dir = tempfile::tempdir().unwrap();
    let rows = rows(5_000);
    let manifest = build(dir.path(), &rows, options()).unwrap();
    assert_eq!((manifest.records, manifest.duplicates), (5_000, 0));
    let bytes = rows.iter().map(|(key, value)| key.len() + value.len());
    assert_eq!(manifest.payload_bytes, bytes.sum::<usize>() as u64);
    let generation = Generation::open(dir.path()).unwrap();
    for (key, value) in &rows {
        assert_eq!(
            generation.get(key).unwrap(),
            Answer::Value(value.clone().into())
        );
    }
    for stranger in 0..5_000 {
        let key = format!("https://example.com/{stranger}");
        assert_eq!(generation.get(key.as_bytes()).unwrap(), Answer::Absent);
    }
    let verified = Generation::verify(dir.path(), Depth::Records).unwrap();
    assert_eq!(verified, manifest);
    assert!(
        !dir.path().join("runs").exists(),
        "what was on its way is gone"
    );
}

#[test]
fn no_rows_are_a_generation_too() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = build(dir.path(), &Rows::new(), options()).unwrap();
    assert_eq!(manifest.records, 0);
    let generation = Generation::open(dir.path()).unwrap();
    assert_eq!(generation.get(b"anything").unwrap(), Answer::Absent);
}

#[test]
fn a_build_that_is_interrupted_anywhere_goes_on_and_makes_the_same_files() {
    let rows = rows(3_000);
    let whole = tempfile::tempdir().unwrap();
    let small = || BuildOptions {
        checkpoint_bytes: 50_000,
        ..options()
    };
    let manifest = build(whole.path(), &rows, small()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (mut pushed, mut from) = (0_usize, Vec::new());
    let built = loop {
        let mut build = Build::create(dir.path(), target(), small()).unwrap();
        let taken = build.rows_taken() as usize;
        from.push(taken);
        assert!(taken <= pushed, "no row is there that was not given");
        // Stops later each time; what was not durable is lost, as after a kill.
        let stop = (taken + 700).min(rows.len());
        for (key, value) in &rows[taken..stop] {
            build
                .push(key.clone().into(), value.clone().into())
                .unwrap();
        }
        pushed = stop;
        if stop == rows.len() {
            break build.finish(|_| ()).unwrap();
        }
    };
    assert!(from.len() > 3 && from[2] > 0, "it did go on: {from:?}");
    assert_eq!(built, manifest);
    assert_eq!(files(dir.path()), files(whole.path()));
}

#[test]
fn a_build_whose_rows_a_crash_of_the_machine_cut_off_starts_over() {
    let rows = rows(3_000);
    let whole = tempfile::tempdir().unwrap();
    let manifest = build(whole.path(), &rows, options()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut begun = Build::create(dir.path(), target(), options()).unwrap();
    for (key, value) in &rows[..2_000] {
        begun
            .push(key.clone().into(), value.clone().into())
            .unwrap();
    }
    begun.checkpoint().unwrap();
    drop(begun);
    let begun = Build::create(dir.path(), target(), options()).unwrap();
    assert_eq!(begun.rows_taken(), 2_000);
    drop(begun);
    let runs = std::fs::read_dir(dir.path().join("runs")).unwrap();
    let mut runs = runs.map(|run| run.unwrap().path());
    let run = runs.find(|run| run.metadata().unwrap().len() > 0).unwrap();
    let file = std::fs::File::options().write(true).open(run).unwrap();
    file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    let begun = Build::create(dir.path(), target(), options()).unwrap();
    assert_eq!(begun.rows_taken(), 0);
    drop(begun);
    assert_eq!(build(dir.path(), &rows, options()).unwrap(), manifest);
    assert_eq!(files(dir.path()), files(whole.path()));
}

#[test]
fn a_build_goes_on_only_with_what_it_was_begun_for() {
    let dir = tempfile::tempdir().unwrap();
    let begun = Build::create(dir.path(), target(), options()).unwrap();
    let at_once = Build::create(dir.path(), target(), options());
    assert!(
        matches!(at_once, Err(BuildError::Io { action: "lock", .. })),
        "one build at a time"
    );
    drop(begun);
    let other = Target::offline([8; 32]);
    let refused = Build::create(dir.path(), other, options()).unwrap_err();
    assert!(refused.to_string().contains("another target"), "{refused}");
    let source = BuildOptions {
        source: "other rows".to_owned(),
        ..options()
    };
    let refused = Build::create(dir.path(), target(), source).unwrap_err();
    assert!(refused.to_string().contains("another source"), "{refused}");
    build(dir.path(), &rows(10), options()).unwrap();
    let again = Build::create(dir.path(), target(), options());
    assert!(matches!(again, Err(BuildError::Complete { .. })));
    // A kill has left this of a directory that was being removed.
    std::fs::remove_file(dir.path().join("plan.json")).unwrap();
    let again = Build::create(dir.path(), target(), options());
    assert!(matches!(again, Err(BuildError::NotEmpty { .. })));
}

#[test]
fn a_directory_with_files_of_others_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mine = dir.path().join("runs");
    std::fs::create_dir(&mine).unwrap();
    std::fs::write(mine.join("experiment"), "years of work").unwrap();
    let refused = build(dir.path(), &rows(3), options());
    assert!(matches!(refused, Err(BuildError::NotEmpty { .. })));
    let kept = std::fs::read_to_string(mine.join("experiment")).unwrap();
    assert_eq!(kept, "years of work");
    assert!(!dir.path().join("plan.json").exists());
}

#[test]
fn a_key_that_comes_again_follows_the_rule() {
    let mut rows = rows(200);
    rows.push((rows[7].0.clone(), b"again".to_vec()));
    rows.push((rows[7].0.clone(), b"and again".to_vec()));
    let value_under = |rule| {
        let dir = tempfile::tempdir().unwrap();
        let options = BuildOptions {
            duplicates: rule,
            ..options()
        };
        let manifest = build(dir.path(), &rows, options)?;
        assert_eq!((manifest.records, manifest.duplicates), (200, 2));
        let generation = Generation::open(dir.path()).unwrap();
        Ok(generation.get(&rows[7].0).unwrap())
    };
    let first = Answer::Value(rows[7].1.clone().into());
    assert_eq!(value_under(Duplicates::First).unwrap(), first);
    let last = Answer::Value("and again".into());
    assert_eq!(value_under(Duplicates::Last).unwrap(), last);
    let refused: Result<Answer, BuildError> = value_under(Duplicates::Error);
    assert!(matches!(refused, Err(BuildError::Duplicate { key }) if key.ends_with("/7")));
}

#[test]
fn a_row_that_no_cluster_takes_is_refused_and_the_build_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut build = Build::create(dir.path(), target(), options()).unwrap();
    build.push("one".into(), "1".into()).unwrap();
    for (key, value) in [
        (vec![], vec![]),
        (vec![b'k'; 1025], vec![]),
        (b"large".to_vec(), vec![0; (1 << 20) + 1]),
    ] {
        let refused = build.push(key.into(), value.into());
        assert!(matches!(refused, Err(BuildError::BadRow { row: 2, .. })));
    }
    build.push("two".into(), "2".into()).unwrap();
    assert_eq!(build.finish(|_| ()).unwrap().records, 2);
}

#[test]
fn a_bucket_that_does_not_fit_into_memory_becomes_several_files() {
    let dir = tempfile::tempdir().unwrap();
    let value = vec![b'x'; 100_000];
    let rows: Rows = (0..700_u32)
        .map(|number| (number.to_le_bytes().to_vec(), value.clone()))
        .collect();
    let options = BuildOptions {
        // 70 MB in one bucket, although a worker may hold only 32 MiB.
        expected_bytes: Some(1),
        memory: 64 << 20,
        workers: 1,
        ..options()
    };
    let manifest = build(dir.path(), &rows, options).unwrap();
    assert_eq!(manifest.records, 700);
    assert!(manifest.files.len() >= 3, "{} files", manifest.files.len());
    assert!(
        manifest
            .files
            .is_sorted_by(|one, other| one.last_partition < other.first_partition)
    );
    Generation::verify(dir.path(), Depth::Records).unwrap();
}

#[test]
fn damage_anywhere_is_named() {
    let dir = tempfile::tempdir().unwrap();
    build(dir.path(), &rows(300), options()).unwrap();
    let good = files(dir.path());
    let (name, bytes) = good.first_key_value().unwrap();
    let path = dir.path().join(name);
    for at in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        std::fs::write(&path, bad).unwrap();
        let found = Generation::verify(dir.path(), Depth::Bytes).unwrap_err();
        assert!(found.to_string().contains(name), "byte {at}: {found}");
    }
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let cut = Generation::verify(dir.path(), Depth::Names).unwrap_err();
    assert!(cut.to_string().contains(name), "{cut}");
    std::fs::remove_file(&path).unwrap();
    let missing = Generation::verify(dir.path(), Depth::Names).unwrap_err();
    assert!(missing.to_string().contains("is missing"), "{missing}");
    std::fs::write(&path, bytes).unwrap();
    Generation::verify(dir.path(), Depth::Records).unwrap();

    let path = dir.path().join("generation.json");
    let manifest = std::fs::read(&path).unwrap();
    for at in 0..manifest.len() {
        let mut bad = manifest.clone();
        bad[at] ^= 1;
        if bad[at].is_ascii_whitespace() && manifest[at].is_ascii_whitespace() {
            continue;
        }
        std::fs::write(&path, &bad).unwrap();
        let read = Generation::verify(dir.path(), Depth::Names);
        assert!(read.is_err(), "byte {at} of the manifest");
    }
}

#[test]
fn a_keyless_generation_finds_every_key_and_few_others_and_numbers_each() {
    let dir = tempfile::tempdir().unwrap();
    let options = |bits| BuildOptions {
        shape: Shape::Keyless {
            fingerprint_bits: bits,
            payload_bytes: 4,
        },
        ..options()
    };
    let count = 20_000_u32;
    let key = |number: u32| format!("line {number}").into_bytes();
    let rows: Rows = (0..count)
        .map(|number| (key(number), number.to_be_bytes().to_vec()))
        .collect();
    let manifest = build(dir.path(), &rows, options(8)).unwrap();
    let generation = Generation::open(dir.path()).unwrap();
    let mut ids = vec![false; rows.len()];
    for (key, value) in &rows {
        let Answer::Probably { id, payload } = generation.get(key).unwrap() else {
            panic!("a key is missed");
        };
        assert_eq!(payload, value);
        assert!(
            !std::mem::replace(&mut ids[id as usize], true),
            "its own number"
        );
    }
    // 20,000 other keys at 1 in 256: 78 expected, and five standard deviations are 44.
    let strangers = (count..2 * count)
        .filter(|number| !matches!(generation.get(&key(*number)).unwrap(), Answer::Absent));
    let strangers = strangers.count();
    assert!((34..=122).contains(&strangers), "{strangers} strangers");
    let bits = generation.index_bytes() as f64 * 8.0 / f64::from(count);
    assert!(bits < 8.0 + 4.0, "{bits} bits a key, with small tables");
    assert_eq!(
        Generation::verify(dir.path(), Depth::Records).unwrap(),
        manifest
    );

    let other = tempfile::tempdir().unwrap();
    let wrong = vec![(b"key".to_vec(), b"12345".to_vec())];
    let refused = build(other.path(), &wrong, options(8));
    assert!(matches!(refused, Err(BuildError::BadRow { row: 1, .. })));
    let none = tempfile::tempdir().unwrap();
    let refused = build(none.path(), &rows, options(33));
    assert!(matches!(refused, Err(BuildError::BadShape { .. })));
}

/// The slices of a generation, in the order of their partitions.
fn slices(dir: &Path, manifest: &Manifest) -> Vec<(bytes::Bytes, LooseSlice)> {
    let files = files(dir);
    let of = manifest.files.iter().flat_map(|file| {
        let bytes = bytes::Bytes::from(files[&file.name()].clone());
        file.slices.iter().map(move |slice| {
            let (at, len) = (slice.at as usize, slice.len as usize);
            let bytes = bytes.slice(at..at + len);
            let loose = LooseSlice::new(bytes.clone(), &slice.digest).unwrap();
            (bytes, loose)
        })
    });
    of.collect()
}

#[test]
fn a_copy_of_a_generation_without_keys_differs_in_its_headers_alone() {
    let target = |layer, number| Target {
        namespace: NamespaceId::generation(Layer::new(layer).unwrap(), number),
        ballot: Ballot {
            epoch: Epoch(u64::from(number)),
            ..Ballot::default()
        },
        ..target()
    };
    let shape = Shape::Keyless {
        fingerprint_bits: 9,
        payload_bytes: 4,
    };
    let rows: Rows = (0..3_000_u32)
        .map(|number| (number.to_string().into_bytes(), number.to_le_bytes().into()))
        .collect();
    let built = |dir: &Path, shape| {
        let options = BuildOptions { shape, ..options() };
        let mut build = Build::create(dir, target(0, 1), options).unwrap();
        for (key, value) in &rows {
            let pushed = build.push(key.clone().into(), value.clone().into());
            pushed.unwrap();
        }
        build.finish(|_| ()).unwrap()
    };
    let copied = |from: &[(bytes::Bytes, LooseSlice)], to: &Path, target| {
        let mut copied = Copied::create(to, target, shape).unwrap();
        for (_, slice) in from {
            copied.push(slice)?;
        }
        copied.finish()
    };
    let [first, second, third] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let manifest = built(first.path(), shape);
    let old = slices(first.path(), &manifest);
    // Another layer has other partitions, on the same arcs.
    let copy = copied(&old, second.path(), target(1, 2)).unwrap();
    let sums = |it: &Manifest| (it.records, it.payload_bytes, it.fingerprint, it.shape);
    assert_eq!(sums(&copy), sums(&manifest));
    Generation::verify(second.path(), Depth::Records).unwrap();
    let new = slices(second.path(), &copy);
    assert_eq!(new.len(), old.len());
    for ((before, _), (after, _)) in old.iter().zip(&new) {
        let end = before.len() - 32;
        assert_eq!(before[128..end], after[128..end]);
    }
    for (key, value) in &rows {
        let digest = target(0, 1).digest(key);
        let Target {
            namespace,
            ballot,
            partitions,
            ..
        } = target(1, 2);
        let at = Locator {
            digest,
            namespace,
            key: &key[..],
        };
        let partition = partitions.holding(namespace, torc_ring::Token::of(&digest));
        let holder = new.iter().find(|(_, it)| it.partition() == partition);
        let found = holder.unwrap().1.get(at).unwrap().unwrap();
        assert_eq!((found.namespace, found.ballot), (namespace, ballot));
        assert!(matches!(found.state, State::Value { value: it, .. } if it == value));
    }
    let back = copied(&new, third.path(), target(0, 1)).unwrap();
    let digests = |it: &Manifest| it.slices().map(|slice| slice.digest).collect::<Vec<_>>();
    assert_eq!(digests(&back), digests(&manifest));

    let [values, refused] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let manifest = built(values.path(), Shape::Values);
    let values = slices(values.path(), &manifest);
    let refused = copied(&values, refused.path(), target(0, 2)).unwrap_err();
    assert!(
        refused.to_string().contains("only keyless slices"),
        "{refused}"
    );
}

#[test]
fn a_damaged_keyless_file_is_named_and_gives_no_wrong_payload() {
    let dir = tempfile::tempdir().unwrap();
    let options = BuildOptions {
        shape: Shape::Keyless {
            fingerprint_bits: 16,
            payload_bytes: 2,
        },
        ..options()
    };
    let rows: Rows = (0..100_u16)
        .map(|number| (number.to_le_bytes().to_vec(), number.to_le_bytes().to_vec()))
        .collect();
    build(dir.path(), &rows, options).unwrap();
    let good = files(dir.path());
    for (name, bytes) in &good {
        let path = dir.path().join(name);
        for at in (0..bytes.len()).step_by(61) {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            std::fs::write(&path, bad).unwrap();
            let verified = Generation::verify(dir.path(), Depth::Records);
            assert!(verified.is_err(), "byte {at} of {name}");
            // Checks only what the file contains, not its digest.
            let Ok(generation) = Generation::open(dir.path()) else {
                continue;
            };
            for (key, value) in &rows {
                match generation.get(key) {
                    Ok(Answer::Probably { payload, .. }) => assert_eq!(payload, value),
                    Ok(other) => panic!("byte {at} of {name}: {other:?}"),
                    Err(error) => assert!(error.to_string().contains(name), "{error}"),
                }
            }
        }
        std::fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn ids_are_dense_and_each_leads_back_to_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let options = || BuildOptions {
        shape: Shape::Ids,
        ..options()
    };
    let rows: Rows = (0..5_000_u32)
        .map(|number| (format!("line {number}").into_bytes(), Vec::new()))
        .collect();
    let manifest = build(dir.path(), &rows, options()).unwrap();
    let generation = Generation::open(dir.path()).unwrap();
    let mut ids: Vec<u64> = Vec::new();
    for (key, _) in &rows {
        let Answer::Id(id) = generation.get(key).unwrap() else {
            panic!("a key without an id");
        };
        assert_eq!(generation.key_of(id).unwrap().unwrap(), key);
        ids.push(id);
    }
    assert_eq!(generation.get(b"line").unwrap(), Answer::Absent);
    for beyond in [5_000, 5_001, u64::MAX] {
        assert_eq!(generation.key_of(beyond).unwrap(), None);
    }
    let again = tempfile::tempdir().unwrap();
    let mut shuffled = rows.clone();
    shuffled.reverse();
    assert_eq!(build(again.path(), &shuffled, options()).unwrap(), manifest);
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..5_000), "each id once");
    assert_eq!(
        Generation::verify(dir.path(), Depth::Records).unwrap(),
        manifest
    );
    let other = tempfile::tempdir().unwrap();
    let refused = build(
        other.path(),
        &vec![(b"k".to_vec(), b"v".to_vec())],
        options(),
    );
    assert!(matches!(refused, Err(BuildError::BadRow { row: 1, .. })));
}

#[test]
fn a_run_that_the_disk_changed_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut build = Build::create(dir.path(), target(), options()).unwrap();
    for (key, value) in rows(500) {
        build.push(key.into(), value.into()).unwrap();
    }
    build.checkpoint().unwrap();
    let run = dir.path().join("runs/00000.run");
    let mut bytes = std::fs::read(&run).unwrap();
    // The last byte of a value.
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&run, bytes).unwrap();
    let noticed = build.finish(|_| ());
    assert!(
        matches!(noticed, Err(BuildError::SumsDiffer { .. })),
        "{noticed:?}"
    );
    // It is reported again, not built again.
    let build = Build::create(dir.path(), target(), options()).unwrap();
    let noticed = build.finish(|_| ());
    assert!(
        matches!(noticed, Err(BuildError::SumsDiffer { .. })),
        "{noticed:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_rows_in_any_order_come_back(
        given in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 1..4), proptest::collection::vec(any::<u8>(), 0..40)),
            0..300,
        ),
        seed: u64,
        buckets_of in 1_u64..6,
    ) {
        let model: HashMap<_, _> = given.iter().cloned().collect();
        let options = || BuildOptions {
            duplicates: Duplicates::Last,
            expected_bytes: Some(buckets_of << 28),
            ..BuildOptions::default()
        };
        let dir = tempfile::tempdir().unwrap();
        let manifest = build(dir.path(), &given, options()).unwrap();
        prop_assert_eq!(manifest.records, model.len() as u64);
        let generation = Generation::open(dir.path()).unwrap();
        for (key, value) in &model {
            let found = generation.get(key).unwrap();
            prop_assert_eq!(found, Answer::Value(value.clone().into()));
        }
        // Without duplicates the order does not matter.
        let mut shuffled: Rows = model.into_iter().collect();
        shuffled.sort_by_key(|(key, _)| (seed ^ u64::from(key[0])).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let again = tempfile::tempdir().unwrap();
        build(again.path(), &shuffled, options()).unwrap();
        prop_assert_eq!(files(dir.path()), files(again.path()));
    }
}

#[test]
fn impossible_gate_rates_and_plans_are_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    for gate_rate in [0.9, 0.0, -1.0, f64::NAN, f64::INFINITY] {
        let options = || BuildOptions {
            gate_rate,
            ..options()
        };
        let refused = Build::create(dir.path(), target(), options()).unwrap_err();
        assert!(matches!(refused, BuildError::BadShape { .. }), "{refused}");
    }
    drop(Build::create(dir.path(), target(), options()).unwrap());
    let path = dir.path().join("plan.json");
    let plan: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for buckets in [0, 3, 1 << 31] {
        let mut bad = plan.clone();
        bad["buckets"] = buckets.into();
        std::fs::write(&path, bad.to_string()).unwrap();
        let refused = Build::create(dir.path(), target(), options()).unwrap_err();
        assert!(matches!(refused, BuildError::Io { .. }), "{refused}");
    }
    std::fs::write(&path, plan.to_string()).unwrap();
    Build::create(dir.path(), target(), options()).unwrap();
}

/// Files that vanish meanwhile count nothing.
fn bytes_below(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let len = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_below(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.map(len).sum()
}

#[test]
fn a_build_takes_the_disk_space_that_its_options_say() {
    let keyless = Shape::Keyless {
        fingerprint_bits: 16,
        payload_bytes: 8,
    };
    for (shape, duplicates, value) in [
        (Shape::Values, Duplicates::Error, 100),
        (Shape::Values, Duplicates::Last, 100),
        (Shape::Ids, Duplicates::Error, 0),
        (keyless, Duplicates::Error, 8),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let options = BuildOptions {
            shape,
            duplicates,
            // As many buckets as possible.
            expected_bytes: Some(1 << 40),
            ..BuildOptions::default()
        };
        let target = Target {
            partitions: torc_ring::Partitions::new(32).unwrap(),
            ..target()
        };
        let mut build = Build::create(dir.path(), target, options.clone()).unwrap();
        let rows = 40_000_u64;
        // If duplicates are left out, all rows but one are.
        let keys = match duplicates {
            Duplicates::Error => rows,
            _ => 1,
        };
        for row in 0..rows {
            let key = format!("https://example.org/{:08}", row % keys);
            build.push(key.into(), vec![7; value].into()).unwrap();
        }
        build.checkpoint().unwrap();
        let mut peak = bytes_below(dir.path());
        // A disk that syncs slowly: what is gathered meanwhile has its rows on the disk, too.
        let gathered = |_| {
            std::thread::sleep(Duration::from_millis(20));
            peak = peak.max(bytes_below(dir.path()));
        };
        build.finish(gathered).unwrap();
        let said = rows * options.row_bytes(28, value as u64);
        assert!(said <= peak, "{shape:?}, {duplicates:?}: {said} > {peak}");
        assert!(
            peak <= said + said / 2,
            "{shape:?}, {duplicates:?}: {said} << {peak}"
        );
    }
}
