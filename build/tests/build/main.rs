//! Builds of generations.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a test fails where it panics"
)]

mod build;

use torc_build::Target;
use torc_ring::Partitions;

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn target() -> Target {
    Target {
        partitions: Partitions::new(64).unwrap(),
        ..Target::offline([9; 32])
    }
}

fn rows(count: u32) -> Rows {
    let row = |number: u32| {
        let key = format!("https://example.org/{number}");
        (key.into_bytes(), vec![b'v'; number as usize % 300])
    };
    (0..count).map(row).collect()
}
