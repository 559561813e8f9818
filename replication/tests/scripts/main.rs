//! Golden scripts of the protocol: the messages between several nodes, step by step.
//!
//! A script drives real coordinators, replicas and collectors. It decides which message arrives
//! when, which disk stalls and which node crashes, and records all messages. `world.rs` has the
//! commands. `UPDATE_GOLDENFILES=1` rewrites the expected output.

#[cfg(feature = "mutants")]
mod mutants;
mod words;
mod world;

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

use torc_replication::Mutations;
use world::World;

fn path(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/scripts")
        .join(script)
}

/// Runs every script of a directory, then reports those that failed.
fn run_all(directory: &str) -> std::io::Result<()> {
    let entries = std::fs::read_dir(path(directory))?.map(|entry| Ok(entry?.path()));
    let mut scripts = entries.collect::<std::io::Result<Vec<_>>>()?;
    scripts.sort();
    assert!(!scripts.is_empty(), "no script in {directory}");
    let mut failed = Vec::new();
    for script in scripts {
        let mut world = World::new(Mutations::NONE);
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
fn registers() -> std::io::Result<()> {
    run_all("registers")
}

#[test]
fn moves() -> std::io::Result<()> {
    run_all("moves")
}

#[test]
fn merge() -> std::io::Result<()> {
    run_all("merge")
}

#[test]
fn collection() -> std::io::Result<()> {
    run_all("collection")
}

#[test]
fn eventual() -> std::io::Result<()> {
    run_all("eventual")
}
