//! The rows and the target of most builds here.

use torc_build::Target;
use torc_ring::Partitions;

pub(crate) type Rows = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) fn target() -> Target {
    Target {
        partitions: Partitions::new(64).unwrap(),
        ..Target::offline([9; 32])
    }
}

pub(crate) fn rows(count: u32) -> Rows {
    let row = |number: u32| {
        let key = format!("https://example.org/{number}");
        (key.into_bytes(), vec![b'v'; number as usize % 300])
    };
    (0..count).map(row).collect()
}
