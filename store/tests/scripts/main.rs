//! Golden scripts of the store: the content of its manifest and its slices, step by step, on a disk
//! that crashes where the script says. `world.rs` has the commands. `UPDATE_GOLDENFILES=1` rewrites
//! the expected output.

#![allow(clippy::unwrap_used, reason = "a test fails where it panics")]

#[path = "../store/common/mod.rs"]
mod common;
mod files;
mod world;

use std::panic::AssertUnwindSafe;
use std::path::Path;

use world::World;

/// Runs every script of a directory, then reports those that failed.
fn run_all(directory: &str) -> std::io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let entries = std::fs::read_dir(here.join(directory))?.map(|entry| Ok(entry?.path()));
    let mut scripts = entries.collect::<std::io::Result<Vec<_>>>()?;
    scripts.sort();
    assert!(!scripts.is_empty(), "no script in {directory}");
    let mut failed = Vec::new();
    for script in scripts {
        let mut world = World::default();
        let run = AssertUnwindSafe(|| goldenscript::run(&mut world, &script));
        match std::panic::catch_unwind(run) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => failed.push(format!("{}: {error}", script.display())),
            // The difference has been printed.
            Err(_) => failed.push(script.display().to_string()),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

#[test]
fn manifest() -> std::io::Result<()> {
    run_all("manifest")
}

#[test]
fn compaction() -> std::io::Result<()> {
    run_all("compaction")
}
