//! `kvd`, the measured server: built if necessary, loaded, and its metrics.

mod cluster;
mod load;
mod readings;
mod settle;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::options::Options;

pub(crate) use cluster::{REPLICAS_NOTE, Replicas, alone, found, prepare};
pub(crate) use load::{check, load, load_file, write_file};
pub(crate) use readings::Readings;
pub(crate) use settle::{SETTLING, settled};

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
    let beside = torc_testkit::programs_dir()?.join(name);
    if std::env::var_os("CARGO").is_some() || !beside.is_file() {
        // Not the whole workspace, whose tests give some crates more features.
        let built = torc_testkit::build(&["--package", package, "--bin", name]);
        built.with_context(|| format!("--{name} can name another {name}"))?;
    }
    Ok(beside)
}
