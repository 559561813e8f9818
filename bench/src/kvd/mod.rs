//! `kvd`, the server that is measured: built if need be, and run as processes.

mod cluster;
mod load;
mod node;
mod readings;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::cli::Options;

pub(crate) use cluster::found;
pub(crate) use load::load;
pub(crate) use node::Node;
pub(crate) use readings::Readings;

/// The kvd to measure: the one that was named; else the one beside this program. Under
/// `cargo run` that one is first brought up to date, so that what is measured is what
/// the sources say; without cargo it is built only when it is missing.
///
/// # Errors
/// It is not there, or does not build.
pub(crate) fn program(options: &Options) -> Result<PathBuf> {
    if let Some(named) = &options.kvd {
        ensure!(named.is_file(), "there is no kvd at {}", named.display());
        return Ok(named.clone());
    }
    let beside = std::env::current_exe()?.with_file_name("kvd");
    let cargo = std::env::var_os("CARGO");
    if cargo.is_some() || !beside.is_file() {
        build(cargo.unwrap_or_else(|| "cargo".into()).as_ref())?;
    }
    ensure!(
        beside.is_file(),
        "there is no kvd at {}: build it there, or name one with --kvd",
        beside.display()
    );
    Ok(beside)
}

fn build(cargo: &Path) -> Result<()> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("Cargo.toml");
    let mut build = Command::new(cargo);
    build.args([
        "build",
        "--quiet",
        "-p",
        "torc-server",
        "--bin",
        "kvd",
        "--manifest-path",
    ]);
    build.arg(manifest);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let status = build.status().context("cannot run cargo to build kvd")?;
    ensure!(status.success(), "kvd does not build");
    Ok(())
}
