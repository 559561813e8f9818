//! Nodes that found one cluster.

use std::path::{Path, PathBuf};

use anyhow::Result;
use torc_testkit::Kvd;

use crate::cleanup;
use crate::report::TORC;

/// Replicas of each key in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replicas {
    /// The default of kvd.
    Default,
    One,
}

impl Replicas {
    /// The default first: tables show it without a number.
    pub(crate) const ALL: [Self; 2] = [Self::Default, Self::One];

    /// The name of this kind of cluster in reports.
    pub(crate) const fn subject(self) -> &'static str {
        match self {
            Self::Default => TORC,
            Self::One => "torc, 1 replica",
        }
    }

    /// kvd's settings for it.
    pub(crate) fn settings(self) -> Vec<String> {
        match self {
            Self::Default => Vec::new(),
            Self::One => vec!["--replicas=1".to_owned()],
        }
    }
}

/// A note for reports that explains the columns.
pub(crate) const REPLICAS_NOTE: &str =
    "torc: a cluster as it is by default, with three replicas of each key";

/// A node that is not running yet, and ends with this program.
///
/// # Errors
/// No free address, or the directory cannot be created.
pub(crate) fn prepare(program: &Path, dir: PathBuf, flags: &[String]) -> Result<Kvd> {
    let mut node = Kvd::prepare(program, dir, flags)?;
    node.run_by(cleanup::binding()?);
    Ok(node)
}

/// A node that founds a cluster of its own when it is started.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn alone(program: &Path, dir: &Path, flags: &[String]) -> Result<Kvd> {
    let mut node = prepare(program, dir.join("founder"), flags)?;
    node.found_with([]);
    Ok(node)
}

/// Founds a cluster and waits until it serves. The founder is the last node: figures of the first
/// ones are those of any node.
///
/// # Errors
/// kvd does not start, or does not become ready in time.
pub(crate) async fn found(
    program: &Path,
    dir: &Path,
    count: usize,
    flags: &[String],
) -> Result<Vec<Kvd>> {
    let mut nodes = Kvd::cluster(program, dir, count, flags)?;
    for node in &mut nodes {
        node.run_by(cleanup::binding()?);
    }
    nodes.reverse();
    Kvd::serve(&mut nodes).await?;
    Ok(nodes)
}
