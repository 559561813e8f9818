//! Generations in a directory used as an object store, and in an object store if `TORC_TEST_S3`
//! names one: sent, continued, read; and all damage is detected.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

#[path = "../common/mod.rs"]
mod common;
mod tasks;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use torc_build::{
    Answer, Build, BuildError, BuildOptions, Depth, Generation, MANIFEST_FILE, Manifest, Published,
    Shape, Target,
};
use torc_objects::{Location, ObjectError, url_of};
use torc_ring::Partitions;
use torc_testkit::Faulty;

/// Where the generations of a test go: a directory, or a prefix of its own in the object store.
fn url(dir: &Path) -> String {
    match std::env::var("TORC_TEST_S3") {
        Ok(bucket) => format!("{bucket}/{}", dir.file_name().unwrap().to_str().unwrap()),
        Err(_) => url_of(&dir.join("objects")).unwrap(),
    }
}

fn build(dir: &Path, rows: u32, shape: Shape) -> Manifest {
    let target = Target {
        partitions: Partitions::new(16).unwrap(),
        ..Target::offline([9; 32])
    };
    let options = BuildOptions {
        shape,
        // Four files.
        expected_bytes: Some(1),
        workers: 4,
        ..BuildOptions::default()
    };
    let mut build = Build::create(dir, target, options).unwrap();
    for row in 0..rows {
        let key = format!("key-{row}").into_bytes();
        build
            .push(key.into(), Bytes::from_static(b"value"))
            .unwrap();
    }
    build.finish(|_| ()).unwrap()
}

/// The files of a directory, each with its identity; none of an object store.
fn written(dir: &Path) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    entries
        .map(|entry| {
            let (path, found) = {
                let entry = entry.unwrap();
                (entry.path(), entry.metadata().unwrap())
            };
            (path, (found.ino(), found.modified().unwrap()))
        })
        .collect()
}

const KEYLESS: Shape = Shape::Keyless {
    fingerprint_bits: 16,
    payload_bytes: 5,
};

#[tokio::test]
async fn a_generation_is_sent_once_and_found_by_its_location_or_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let url = url(dir.path());
    let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
    let manifest = build(&first, 500, Shape::Values);
    let none = Published::open(&url).await.unwrap_err();
    assert!(matches!(none, BuildError::NoGeneration { .. }), "{none}");

    let sent = AtomicU64::new(0);
    let add = |bytes| {
        sent.fetch_add(bytes, Ordering::Relaxed);
    };
    let published = Published::publish(&first, &url, add).await.unwrap();
    assert_eq!(sent.into_inner(), manifest.file_bytes());
    assert!(
        published
            .url()
            .starts_with(&format!("{url}/generation-000001-"))
    );
    let before = written(&dir.path().join("objects"));
    let again = Published::publish(&first, &url, |_| ()).await.unwrap();
    assert_eq!(again.url(), published.url(), "it finds its own manifest");
    let after = written(&dir.path().join("objects"));
    assert_eq!(after, before, "nothing was sent again");

    let keyless = build(&second, 300, KEYLESS);
    let newest = Published::publish(&second, &url, |_| ()).await.unwrap();
    assert!(newest.url().contains("/generation-000002-"));
    for (at, wanted) in [
        (url.as_str(), &keyless),
        (&format!("{url}/"), &keyless),
        (newest.url(), &keyless),
        (published.url(), &manifest),
    ] {
        let found = Published::open(at).await.unwrap();
        assert_eq!(found.manifest(), wanted, "{at}");
        for depth in [Depth::Names, Depth::Bytes, Depth::Records] {
            found.verify(depth).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_store_that_fails_is_slow_and_answers_twice_delays_a_generation() {
    let dir = tempfile::tempdir().unwrap();
    let url = url(dir.path());
    let built = dir.path().join("built");
    build(&built, 2_000, Shape::Values);
    let sound = Location::open(&url).unwrap();
    let mut store = None;
    let faulty = sound.through(|inner| {
        let faulty = Arc::new(Faulty::new(inner));
        store = Some(Arc::clone(&faulty));
        faulty
    });
    let mut attempts = 0;
    let published = loop {
        attempts += 1;
        let sent = Published::publish_at(&built, faulty.clone(), |_| ()).await;
        match sent {
            Ok(published) => break published,
            Err(BuildError::Objects(ObjectError::Object { .. })) if attempts < 1_000 => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert!(store.unwrap().failures() > 1, "it did not fail");
    let found = Published::open(&url).await.unwrap();
    assert_eq!(found.url(), published.url());
    found.verify(Depth::Records).await.unwrap();
    let manifests = sound.names().await.unwrap();
    let manifests = manifests
        .iter()
        .filter(|name| name.strip_suffix(".json").is_some());
    assert_eq!(manifests.count(), 1, "one, however often it was sent");
}

#[tokio::test]
async fn a_name_that_something_else_has_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let url = url(dir.path());
    let built = dir.path().join("built");
    build(&built, 50, Shape::Values);
    let first = Published::publish(&built, &url, |_| ()).await.unwrap();
    let location = Location::open(&url).unwrap();
    let name = first.url().rsplit('/').next().unwrap();
    location.remove(name).await.unwrap();
    let junk = Bytes::from_static(b"{}");
    assert!(location.create(name, junk.clone()).await.unwrap());
    let next = Published::publish(&built, &url, |_| ()).await.unwrap();
    assert!(next.url().contains("/generation-000002-"), "{}", next.url());
    assert_eq!(
        location.read(name, 100).await.unwrap(),
        Some(junk),
        "it stays"
    );
}

#[tokio::test]
async fn a_damaged_file_of_the_right_length_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let url = url(dir.path());
    let built = dir.path().join("built");
    let manifest = build(&built, 200, Shape::Values);
    Published::publish(&built, &url, |_| ()).await.unwrap();
    let location = Location::open(&url).unwrap();
    let entry = &manifest.files[0];
    location.remove(&entry.name()).await.unwrap();
    let junk = vec![7; usize::try_from(entry.len).unwrap()];
    location.create(&entry.name(), junk.into()).await.unwrap();
    let published = Published::publish(&built, &url, |_| ()).await.unwrap();
    published.verify(Depth::Records).await.unwrap();

    // It is not replaced by another damaged one.
    let local = built.join(entry.name());
    let mut bytes = std::fs::read(&local).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&local, &bytes).unwrap();
    Published::publish(&built, &url, |_| ()).await.unwrap();
    published.verify(Depth::Records).await.unwrap();
    let junk = bytes::Bytes::from(vec![8; bytes.len()]);
    location.remove(&entry.name()).await.unwrap();
    location.create(&entry.name(), junk.clone()).await.unwrap();
    let refused = Published::publish(&built, &url, |_| ()).await.unwrap_err();
    assert!(
        matches!(refused, BuildError::NoGeneration { .. }),
        "{refused}"
    );
    let kept = location.read(&entry.name(), entry.len).await.unwrap();
    assert_eq!(kept, Some(junk));
}

#[tokio::test]
async fn a_directory_with_a_build_is_no_location() {
    let dir = tempfile::tempdir().unwrap();
    let [built, other] = ["built", "other"].map(|name| dir.path().join(name));
    build(&built, 50, Shape::Values);
    build(&other, 60, Shape::Values);
    let url = torc_objects::url_of(&other).unwrap();
    let refused = Published::publish(&built, &url, |_| ()).await.unwrap_err();
    assert!(matches!(refused, BuildError::Complete { .. }), "{refused}");
    assert_eq!(Manifest::name_in(&other).unwrap(), MANIFEST_FILE);
}

#[tokio::test]
async fn what_else_is_below_a_location_does_not_matter() {
    let dir = tempfile::tempdir().unwrap();
    let url = url(dir.path());
    let built = dir.path().join("built");
    build(&built, 50, Shape::Values);
    let location = Location::open(&url).unwrap();
    let below = "below/generation-000007-aa.json";
    location.create(below, "{}".into()).await.unwrap();
    // Whoever lists what is below fails.
    let unreadable = dir.path().join("objects/lost+found");
    std::fs::create_dir_all(&unreadable).unwrap();
    std::os::unix::fs::symlink("..", unreadable.join("loop")).unwrap();
    let published = Published::publish(&built, &url, |_| ()).await.unwrap();
    let number = format!("{url}/generation-000001-");
    assert!(published.url().starts_with(&number), "{}", published.url());
    Published::open(&url).await.unwrap();
}

#[tokio::test]
async fn the_newest_of_two_equal_numbers_is_not_guessed() {
    let dir = tempfile::tempdir().unwrap();
    let url = url(dir.path());
    let built = dir.path().join("built");
    build(&built, 50, Shape::Values);
    let published = Published::publish(&built, &url, |_| ()).await.unwrap();
    let location = Location::open(&url).unwrap();
    let other = "generation-000001-00000000000000aa.json";
    location.create(other, "{}".into()).await.unwrap();
    let name = published.url().rsplit('/').next().unwrap();
    for place in [&url, &format!("{url}/")] {
        let error = Published::open(place).await.unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(other), "{error}");
    }
    Published::open(published.url()).await.unwrap();
}

#[tokio::test]
async fn a_directory_that_a_generation_was_sent_to_is_read_by_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let (built, objects) = (dir.path().join("built"), dir.path().join("objects"));
    let manifest = build(&built, 50, Shape::Values);
    let url = url_of(&objects).unwrap();
    Published::publish(&built, &url, |_| ()).await.unwrap();
    assert_eq!(Manifest::read(&objects).unwrap(), manifest);
    Generation::verify(&objects, Depth::Records).unwrap();
    let found = Generation::open(&objects).unwrap().get(b"key-7").unwrap();
    assert_eq!(found, Answer::Value("value".into()));
}

/// `flatten` would keep each number of a stranger's manifest as a value of 32 bytes.
#[test]
fn a_manifest_of_a_stranger_takes_no_more_memory_than_its_bytes() {
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.unwrap().trim().trim_end_matches(" kB");
        kib.parse::<u64>().unwrap() << 10
    };
    let len = usize::try_from(Manifest::MAX_LEN).unwrap();
    let text = format!(r#"{{"more":[{}0]}}"#, "0,".repeat(len / 2 - 10));
    let before = peak();
    Manifest::parse(text.as_bytes(), Path::new("dir"), "name").unwrap_err();
    let taken = peak() - before;
    assert!(taken < 4 * Manifest::MAX_LEN, "{taken} bytes");
}

fn objects(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Flips a bit in each byte, or in every `TORC_FLIP_STEP`th one.
#[tokio::test]
async fn every_damaged_byte_and_every_missing_object_is_found() {
    if std::env::var("TORC_TEST_S3").is_ok() {
        eprintln!("skipped: it damages files");
        return;
    }
    let step = std::env::var("TORC_FLIP_STEP");
    let step = step.map_or(7, |step| step.parse().unwrap());
    for shape in [Shape::Values, KEYLESS] {
        let dir = tempfile::tempdir().unwrap();
        let built = dir.path().join("built");
        build(&built, 40, shape);
        let url = url(dir.path());
        Published::publish(&built, &url, |_| ()).await.unwrap();
        let check = async || Published::open(&url).await?.verify(Depth::Bytes).await;
        check().await.unwrap();
        for path in objects(&dir.path().join("objects")) {
            let whole = std::fs::read(&path).unwrap();
            for at in (0..whole.len()).step_by(step) {
                let mut damaged = whole.clone();
                damaged[at] ^= if at % 2 == 0 { 1 } else { 0x20 };
                std::fs::write(&path, &damaged).unwrap();
                let found = check().await;
                let is_named = match &found {
                    Err(BuildError::Objects(ObjectError::Damaged { object, .. })) => {
                        path.ends_with(object)
                    }
                    Err(error @ BuildError::NoGeneration { .. }) => {
                        let name = path.file_name().unwrap().to_str().unwrap();
                        error.to_string().contains(name)
                    }
                    _ => false,
                };
                assert!(is_named, "byte {at} of {}: {found:?}", path.display());
            }
            for len in [0, 1, whole.len() / 2, whole.len() - 1] {
                std::fs::write(&path, &whole[..len]).unwrap();
                assert!(check().await.is_err(), "{len} bytes of {}", path.display());
            }
            std::fs::remove_file(&path).unwrap();
            assert!(check().await.is_err(), "without {}", path.display());
            std::fs::write(&path, &whole).unwrap();
        }
        check().await.unwrap();
    }
}

#[tokio::test]
async fn a_file_that_rotted_since_it_was_built_is_not_sent() {
    let dir = tempfile::tempdir().unwrap();
    let (url, built) = (url(dir.path()), dir.path().join("built"));
    let manifest = build(&built, 500, Shape::Values);
    let path = built.join(manifest.files[0].name());
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let refused = Published::publish(&built, &url, |_| ()).await.unwrap_err();
    assert!(
        matches!(&refused, BuildError::NoGeneration { what, .. } if what.contains("damaged")),
        "{refused}"
    );
    let none = Published::open(&url).await.unwrap_err();
    assert!(matches!(none, BuildError::NoGeneration { .. }), "{none}");
}
