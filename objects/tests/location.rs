//! Which URLs are locations, and what a lost answer means.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use bytes::Bytes;
use torc_objects::{Location, ObjectError, check_url, url_of};
use torc_testkit::{Faulty, Overtaken};

#[test]
fn a_url_names_a_directory_or_a_bucket_and_never_a_host() {
    for good in [
        "file:///some/dir",
        "s3://bucket",
        "s3://bucket/prefix/more",
        "gs://bucket/prefix",
        "az://container/prefix",
    ] {
        check_url(good).unwrap();
    }
    for wrong in [
        "",
        "here",
        "/tmp",
        "file:///",
        "file://host/dir",
        "file:///dir?secret",
        "file:///dir#secret",
        "ftp://host/dir",
        "http://169.254.169.254/latest",
        "https://bucket.s3.amazonaws.com/prefix",
        "s3://",
        "s3:///prefix",
        "s3://bucket:9000/prefix",
        "s3://me:secret@bucket/prefix",
        "s3://bucket/prefix?endpoint=http://secret",
        "s3://bucket/prefix#secret",
        "s3://bucket%2fevil.example/prefix",
        "s3://[::1]/prefix",
    ] {
        let error = check_url(wrong).unwrap_err();
        assert!(matches!(error, ObjectError::Url { .. }), "{wrong}");
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(Location::open(wrong).is_err(), "{wrong}");
    }
}

#[cfg(not(feature = "gcs"))]
#[test]
fn a_scheme_may_be_in_capitals() {
    let error = Location::open("GS://bucket/prefix").unwrap_err();
    assert!(error.to_string().contains("the feature `gcs`"), "{error}");
}

#[tokio::test]
async fn an_object_is_created_once_whatever_answers_are_lost() {
    let dir = tempfile::tempdir().unwrap();
    let sound = Location::open(&format!("file://{}", dir.path().display())).unwrap();
    let faulty = sound.through(|inner| Arc::new(Faulty::new(inner)));
    for number in 0..100 {
        let object = format!("object-{number}");
        let bytes = [Bytes::from_static(b"mine"), Bytes::from_static(b"other")];
        // Both writers repeat until they have an answer.
        let mut created = Vec::new();
        for bytes in &bytes {
            created.push(loop {
                if let Ok(created) = faulty.create(&object, bytes.clone()).await {
                    break created;
                }
            });
        }
        assert_eq!(created, [true, false], "{object}");
        let stored = sound.read(&object, 10).await.unwrap();
        assert_eq!(stored.as_ref(), Some(&bytes[0]), "{object}");
    }
}

#[tokio::test]
async fn a_directory_may_have_any_name() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a~b%20[1]", "gen#3", "what?", "a b*", "Wörter", r"a\b|c"] {
        let path = dir.path().join(name);
        let url = url_of(&path).unwrap();
        let location = Location::open(&url).unwrap();
        assert_eq!(location.dir(), Some(path.as_path()), "{url}");
        assert!(
            location.create("a/made", "1".into()).await.unwrap(),
            "{url}"
        );
        let file = dir.path().join("file");
        for object in ["a/moved", "sent"] {
            std::fs::write(&file, object).unwrap();
            let pace = |_| std::future::ready(());
            location.hand_over(object, &file, pace).await.unwrap();
            let read = location.read(object, 10).await.unwrap();
            assert_eq!(read.unwrap(), object, "{url}");
            assert_eq!(std::fs::read_to_string(path.join(object)).unwrap(), object);
        }
        let mut listed = location.list("a").await.unwrap();
        listed.sort();
        assert_eq!(listed, [("made".into(), 1), ("moved".into(), 7)], "{url}");
        assert_eq!(location.names().await.unwrap(), ["sent"], "{url}");
        location.remove("sent").await.unwrap();
        assert_eq!(location.len("sent").await.unwrap(), None, "{url}");
    }
}

#[tokio::test]
async fn a_writer_learns_that_another_one_was_later() {
    let dir = tempfile::tempdir().unwrap();
    let sound = Location::open(&url_of(dir.path()).unwrap()).unwrap();
    let other = Bytes::from_static(b"other");
    let overtaken = sound.through(|inner| Arc::new(Overtaken::new(inner, other.clone())));
    assert!(!overtaken.create("object", "mine".into()).await.unwrap());
    assert!(overtaken.create("object", other).await.unwrap());
}

#[tokio::test]
async fn a_probe_leaves_nothing_and_names_a_place_that_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let location = Location::open(&url_of(&dir.path().join("new/")).unwrap()).unwrap();
    assert!(!location.url().ends_with('/'), "{}", location.url());
    location.probe().await.unwrap();
    assert_eq!(location.names().await.unwrap().len(), 0);
    std::fs::create_dir_all(dir.path().join("new/write-probe/below")).unwrap();
    let refused = location.probe().await.unwrap_err();
    assert!(matches!(refused, ObjectError::Object { .. }), "{refused}");
}

#[tokio::test]
async fn an_object_is_replaced_whatever_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let location = Location::open(&url_of(&dir.path().join("objects")).unwrap()).unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "sound").unwrap();
    let pace = |_| std::future::ready(());
    location.create("object", "rotte".into()).await.unwrap();
    assert!(!location.upload("object", &file, pace).await.unwrap());
    location.replace("object", &file, pace).await.unwrap();
    assert_eq!(location.read("object", 5).await.unwrap().unwrap(), "sound");
}

#[tokio::test]
async fn a_range_that_is_not_there_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let location = Location::open(&url_of(dir.path()).unwrap()).unwrap();
    std::fs::write(dir.path().join("object"), "0123456789").unwrap();
    for range in [5..11, 9..30, 10..12, 20..30] {
        let read = location.read_range("object", range.clone()).await;
        let damaged = matches!(read, Err(ObjectError::Damaged { .. }));
        assert!(damaged, "{range:?}: {read:?}");
    }
    let read = location.read_range("object", 8..10).await.unwrap();
    assert_eq!(read, "89");
}

#[tokio::test]
async fn an_object_is_read_as_it_was_found_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("in/b.csv", "0123456789"),
        ("in/a/c.csv", "1"),
        ("in.csv", "2"),
    ] {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let at = |name: &str| Location::open(&url_of(&dir.path().join(name)).unwrap()).unwrap();
    let below = at("in").through(|inner| Arc::new(Faulty::new(inner)));
    for _ in 0..20 {
        let found = below.objects().await.unwrap();
        let names: Vec<_> = found.iter().map(|it| (it.name(), it.size())).collect();
        assert_eq!(names, [("a/c.csv", 1), ("b.csv", 10)]);
        assert_eq!(found[1].read(2..5).await.unwrap(), "234");
    }
    assert!(at("none").objects().await.unwrap().is_empty());
    let found = at("in/b.csv").objects().await.unwrap();
    assert_eq!((found.len(), found[0].name()), (1, ""));
    let found = &found[0];
    for changed in ["012345678", "other content", "9876543210"] {
        // A file of its own, so that it differs whatever the clock of the disk.
        std::fs::write(dir.path().join("new"), changed).unwrap();
        std::fs::rename(dir.path().join("new"), dir.path().join("in/b.csv")).unwrap();
        let now = &at("in/b.csv").objects().await.unwrap()[0];
        assert_ne!(now.version(), found.version(), "{changed}");
        for range in [0..3, 8..10] {
            let read = found.read(range.clone()).await;
            let refused =
                matches!(&read, Err(ObjectError::Damaged { what, .. }) if what.contains("changed"));
            assert!(refused, "{changed} {range:?}: {read:?}");
        }
    }
    std::fs::remove_file(dir.path().join("in/b.csv")).unwrap();
    let gone = found.read(0..3).await;
    assert!(matches!(gone, Err(ObjectError::Damaged { .. })), "{gone:?}");
}

#[tokio::test]
async fn what_only_reads_is_repeated_while_the_store_fails() {
    let dir = tempfile::tempdir().unwrap();
    let sound = Location::open(&url_of(dir.path()).unwrap()).unwrap();
    sound.create("a/object", "0123".into()).await.unwrap();
    let faulty = sound.through(|inner| Arc::new(Faulty::new(inner)));
    for _ in 0..20 {
        let read = faulty.read("a/object", 10).await.unwrap();
        assert_eq!(read.unwrap(), "0123");
        assert_eq!(faulty.read_range("a/object", 1..3).await.unwrap(), "12");
        let cut_off = faulty.read_range("a/object", 1..5).await;
        assert!(matches!(cut_off, Err(ObjectError::Damaged { .. })));
        assert_eq!(faulty.len("a/object").await.unwrap(), Some(4));
        assert_eq!(faulty.read("none", 10).await.unwrap(), None);
        assert_eq!(faulty.list("a").await.unwrap(), [("object".into(), 4)]);
    }
}

#[tokio::test]
async fn a_location_is_found_within_a_directory_whatever_leads_there() {
    let dir = tempfile::tempdir().unwrap();
    let within = dir.path().join("within");
    std::fs::create_dir_all(within.join("deep")).unwrap();
    std::fs::create_dir(dir.path().join("within-not")).unwrap();
    std::os::unix::fs::symlink(within.join("deep"), dir.path().join("link")).unwrap();
    for (name, wanted) in [
        ("within", true),
        ("within/new/deeper", true),
        ("link", true),
        ("within-not", false),
        ("other", false),
    ] {
        let location = Location::open(&url_of(&dir.path().join(name)).unwrap()).unwrap();
        for within in [within.clone(), dir.path().join("link/..")] {
            assert_eq!(location.is_within(&within).unwrap(), wanted, "{name}");
        }
    }
}

#[tokio::test]
async fn a_long_file_is_sent_and_removed_whatever_answers_are_lost() {
    let dir = tempfile::tempdir().unwrap();
    let sound = Location::open(&url_of(&dir.path().join("objects")).unwrap()).unwrap();
    let faulty = sound.through(|inner| Arc::new(Faulty::new(inner)));
    // Three parts.
    let content: Vec<u8> = (0..5_u32 << 20).flat_map(u32::to_le_bytes).collect();
    let file = dir.path().join("file");
    std::fs::write(&file, &content).unwrap();
    let mut failures = 0;
    for number in 0..12 {
        let object = format!("object-{number}");
        while let Err(error) = faulty
            .upload(&object, &file, |_| std::future::ready(()))
            .await
        {
            assert!(matches!(error, ObjectError::Object { .. }), "{error}");
            failures += 1;
        }
        let stored = sound.read(&object, u64::MAX).await.unwrap();
        assert!(stored.unwrap() == content, "{object}");
        while faulty.remove(&object).await.is_err() {
            failures += 1;
        }
        assert_eq!(sound.len(&object).await.unwrap(), None, "{object}");
    }
    assert!(failures > 3, "{failures}");
}
