//! Instructions per operation, counted by valgrind's callgrind.
//!
//! They do not depend on other load of the machine, so they settle doubts that times leave. A node
//! under valgrind is some fifty times slower, so the runs are short.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::Build;
use super::generator::{Case, Generator};
use crate::kvd;

/// Keys to store: few, because clients give up on servers that take seconds.
const KEYS: u64 = 1_000;
const VALUE_BYTES: u32 = 100;
/// Requests of a run.
const REQUESTS: u64 = 2_000;
/// Requests of a run of batches.
const BATCHES: u64 = 200;

/// Counts a node's instructions in each case; returns the names and the instructions per key.
///
/// # Errors
/// The node does not start under valgrind, or an operation fails.
pub(super) async fn count<'a>(
    valgrind: &Path,
    build: &Build,
    dir: &Path,
    extra: &[String],
    cases: &[&'a Case],
) -> Result<Vec<(&'a str, f64)>> {
    let counts = dir.join("callgrind.out");
    let mut node = kvd::alone(&build.kvd, dir, extra)?;
    node.run_by([
        valgrind.as_os_str(),
        "--tool=callgrind".as_ref(),
        // A spinning thread must not block the others.
        "--fair-sched=try".as_ref(),
        "--quiet".as_ref(),
        format!("--callgrind-out-file={}", counts.display()).as_ref(),
    ]);
    node.start()?;
    node.ready().await?;
    let generator = Generator::new(&build.kvctl, &[node.endpoint()], KEYS, VALUE_BYTES);
    generator.store_all()?;
    let process = node.pid()?;
    let mut counted = Vec::new();
    for (number, case) in (1..).zip(cases) {
        let requests = if case.batch > 1 { BATCHES } else { REQUESTS };
        let operations = requests * u64::from(case.batch);
        // Excludes one-time work from the count.
        generator.run(case, operations / 10)?;
        control("--zero", process)?;
        let done = generator.run(case, operations)?;
        done.succeeded()?;
        control("--dump", process)?;
        let dump = counts.with_extension(format!("out.{number}"));
        let text = std::fs::read_to_string(&dump)
            .with_context(|| format!("callgrind has not written {}", dump.display()))?;
        let instructions = total(&text).context("a dump of callgrind without a total")?;
        counted.push((case.name, instructions as f64 / done.operations as f64));
    }
    Ok(counted)
}

/// Sends a command to callgrind; returns once it has taken effect.
fn control(what: &str, process: u32) -> Result<()> {
    let mut command = Command::new("callgrind_control");
    command.args([what, &process.to_string()]);
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "callgrind_control {what} failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Instructions of all threads since the last reset: from the lines `totals:` or `summary:`.
fn total(dump: &str) -> Option<u64> {
    let total = |line: &str| {
        let count = line
            .strip_prefix("totals:")
            .or_else(|| line.strip_prefix("summary:"))?;
        count.trim().parse().ok()
    };
    dump.lines().rev().find_map(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found() {
        let dump = "version: 1\nevents: Ir\nsummary: 12\nfn=(1) a\n3 7\n\ntotals: 12345\n";
        assert_eq!(total(dump), Some(12_345));
        assert_eq!(total("summary: 12\n"), Some(12));
        assert_eq!(total("events: Ir\n"), None);
    }
}
