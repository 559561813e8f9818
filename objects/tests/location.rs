//! Which URLs are locations, and what a lost answer means.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use bytes::Bytes;
use torc_objects::{Location, ObjectError, check_url};
use torc_testkit::Faulty;

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
