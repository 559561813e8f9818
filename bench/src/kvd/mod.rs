//! `kvd`, the measured server: built if necessary, and run as processes.

mod cluster;
mod load;
mod node;
mod readings;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::options::Options;

pub(crate) use cluster::{REPLICAS_NOTE, Replicas, found, prepare, ready, start};
pub(crate) use load::{check, load, load_file, write_file};
pub(crate) use node::Node;
pub(crate) use readings::Readings;

/// The kvd to measure: the named one, else the one beside this program. Under `cargo run` it is
/// rebuilt first, so that the measured program matches the sources; without cargo it is built only
/// if it is missing.
///
/// # Errors
/// It is missing, or does not build.
pub(crate) fn program(options: &Options) -> Result<PathBuf> {
    built(options.kvd.as_deref(), "torc-server", "kvd")
}

/// The kvctl that loads and drives a cluster, found like the kvd.
///
/// # Errors
/// It is missing, or does not build.
pub(crate) fn kvctl(options: &Options) -> Result<PathBuf> {
    built(options.kvctl.as_deref(), "torc-kvctl", "kvctl")
}

fn built(named: Option<&Path>, package: &str, name: &str) -> Result<PathBuf> {
    if let Some(named) = named {
        ensure!(named.is_file(), "there is no {name} at {}", named.display());
        return Ok(named.to_owned());
    }
    let beside = std::env::current_exe()?.with_file_name(name);
    let cargo = std::env::var_os("CARGO");
    if cargo.is_some() || !beside.is_file() {
        let cargo = cargo.unwrap_or_else(|| "cargo".into());
        build(cargo.as_ref(), package, name)?;
    }
    ensure!(
        beside.is_file(),
        "there is no {name} at {}: build it there, or name one with --{name}",
        beside.display()
    );
    Ok(beside)
}

/// The profile of this program's build, named by the directory of the program.
fn profile() -> Result<String> {
    let program = std::env::current_exe()?;
    let folders = program.ancestors().filter_map(Path::file_name);
    let mut names = folders.map(|name| name.to_string_lossy().into_owned());
    // The program of a test is in `deps`.
    let folder = names.by_ref().skip(1).find(|name| name != "deps");
    let folder = folder.context("this program lies in no folder")?;
    Ok(if folder == "debug" {
        "dev".to_owned()
    } else {
        folder
    })
}

fn build(cargo: &Path, package: &str, name: &str) -> Result<()> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("Cargo.toml");
    let mut build = Command::new(cargo);
    build.args([
        "build",
        "--quiet",
        "-p",
        package,
        "--bin",
        name,
        "--manifest-path",
    ]);
    build.arg(manifest).args(["--profile", &profile()?]);
    let status = build.status().context("cannot run cargo")?;
    ensure!(status.success(), "{name} does not build");
    Ok(())
}
