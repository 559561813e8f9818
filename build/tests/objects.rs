//! Generations in a directory used as an object store, and in an object store if `TORC_TEST_S3`
//! names one: sent, continued, read; and all damage is detected.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use torc_build::{Build, BuildError, BuildOptions, Depth, Manifest, Published, Shape, Target};
use torc_objects::{Location, ObjectError};
use torc_ring::Partitions;
use torc_testkit::Faulty;

/// Where the generations of a test go: a directory, or a prefix of its own in the object store.
fn url(dir: &Path) -> String {
    match std::env::var("TORC_TEST_S3") {
        Ok(bucket) => format!("{bucket}/{}", dir.file_name().unwrap().to_str().unwrap()),
        Err(_) => format!("file://{}", dir.join("objects").display()),
    }
}

fn build(dir: &Path, rows: u32, shape: Shape) -> Manifest {
    let target = Target {
        partitions: Partitions::new(16).unwrap(),
        ..Target::offline([9; 32])
    };
    let options = BuildOptions {
        shape,
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
    let again = Published::publish(&first, &url, |_| ()).await.unwrap();
    assert_eq!(again.url(), published.url(), "it finds its own manifest");

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
    let faulty = sound.through(|inner| Arc::new(Faulty::new(inner)));
    let mut attempts = 0;
    let published = loop {
        attempts += 1;
        let sent = Published::publish_at(&built, faulty.clone(), &url, |_| ()).await;
        match sent {
            Ok(published) => break published,
            Err(BuildError::Objects(ObjectError::Object { .. })) if attempts < 1_000 => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert!(attempts > 1, "it did not fail");
    let found = Published::open(&url).await.unwrap();
    assert_eq!(found.url(), published.url());
    found.verify(Depth::Records).await.unwrap();
    let manifests = sound.list("").await.unwrap();
    let manifests = manifests
        .iter()
        .filter(|(name, _)| name.strip_suffix(".json").is_some());
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
