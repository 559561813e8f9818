//! The load: `kvctl bench`, of the same build as the servers.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::cleanup;

/// A kind of request, and the number of requests per round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) name: &'static str,
    /// The ratio of gets to puts.
    mix: &'static str,
    /// Requests in flight.
    concurrency: u32,
    /// Keys per request.
    pub(super) batch: u32,
    pub(super) operations: u64,
}

const fn case(
    name: &'static str,
    mix: &'static str,
    concurrency: u32,
    batch: u32,
    operations: u64,
) -> Case {
    Case {
        name,
        mix,
        concurrency,
        batch,
        operations,
    }
}

const GETS: &str = "1/0";
const PUTS: &str = "0/1";

/// All measured cases: some seconds of processor time each. Sixteen batches are in flight.
pub(super) const CASES: &[Case] = &[
    case("get, 64 in flight", GETS, 64, 1, 200_000),
    case("get, 256 in flight", GETS, 256, 1, 200_000),
    case("put, 64 in flight", PUTS, 64, 1, 60_000),
    case("put, 256 in flight", PUTS, 256, 1, 60_000),
    case("get in batches of 100", GETS, 16, 100, 400_000),
    case("put in batches of 100", PUTS, 16, 100, 100_000),
];

/// A `kvctl` and the cluster that it drives.
#[derive(Debug)]
pub(super) struct Generator<'a> {
    kvctl: &'a Path,
    endpoints: String,
    /// Keys stored before the measurement.
    keys: u64,
    value_bytes: u32,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub(super) struct Done {
    /// Operations that succeeded.
    pub(super) operations: u64,
    pub(super) per_second: f64,
    /// Failed operations, by kind.
    errors: BTreeMap<String, u64>,
}

impl Done {
    /// # Errors
    /// Operations failed.
    pub(super) fn succeeded(&self) -> Result<()> {
        let kinds = self.errors.iter();
        let kinds: Vec<String> = kinds
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        ensure!(
            kinds.is_empty() && self.operations > 0,
            "operations failed: {}",
            kinds.join(", ")
        );
        Ok(())
    }
}

/// The part of the output of `kvctl bench --output json` that is used here.
#[derive(Debug, Deserialize)]
struct Printed {
    operations: u64,
    operations_per_s: f64,
    gets: Gets,
    errors: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct Gets {
    not_found: Option<u64>,
}

impl<'a> Generator<'a> {
    pub(super) fn new(kvctl: &'a Path, endpoints: &[String], keys: u64, value_bytes: u32) -> Self {
        Self {
            kvctl,
            keys,
            value_bytes,
            endpoints: endpoints.join(","),
        }
    }

    /// Stores every key.
    ///
    /// # Errors
    /// As [`Generator::run`].
    pub(super) fn store_all(&self) -> Result<()> {
        let get = case("", GETS, 1, 1, 1);
        self.bench(&get, 1, &[])?.succeeded()
    }

    /// Runs a case on stored keys.
    ///
    /// # Errors
    /// kvctl fails, which it does if no operation succeeds, or a key is not found.
    pub(super) fn run(&self, case: &Case, operations: u64) -> Result<Done> {
        self.bench(case, operations.max(1), &["--no-prepare"])
    }

    fn bench(&self, case: &Case, operations: u64, more: &[&str]) -> Result<Done> {
        let mut command = cleanup::bound(self.kvctl)?;
        command
            .args(["bench", "--output", "json", "--timeout", "300s"])
            .args(["--mix", case.mix])
            .args(["--concurrency", &case.concurrency.to_string()])
            .args(["--batch", &case.batch.to_string()])
            .args(["--operations", &operations.to_string()])
            .args(["--keys", &self.keys.to_string()])
            .args(["--value-size", &self.value_bytes.to_string()])
            .args(more)
            .env("TORC_ENDPOINTS", &self.endpoints)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let output = command.output()?;
        ensure!(
            output.status.success(),
            "{} failed: {}",
            self.kvctl.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let printed = done(&output.stdout);
        printed.with_context(|| format!("{} bench", self.kvctl.display()))
    }
}

fn done(printed: &[u8]) -> Result<Done> {
    let printed: Printed = serde_json::from_slice(printed).context("unexpected output")?;
    let not_found = printed.gets.not_found.unwrap_or(0);
    ensure!(not_found == 0, "{not_found} keys were not found");
    Ok(Done {
        operations: printed.operations,
        per_second: printed.operations_per_s,
        errors: printed.errors,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_counts_only_if_every_operation_succeeded() {
        let printed = |errors: &str, not_found: u64| {
            let text = format!(
                r#"{{"operations":7,"operations_per_s":3.5,"failed":0,"gets":{{"not_found":{not_found}}},"puts":{{}},"errors":{{{errors}}}}}"#
            );
            done(text.as_bytes())
        };
        let sound = printed("", 0).unwrap();
        assert!(sound.succeeded().is_ok());
        assert_eq!(sound.operations, 7);
        let failed = printed(r#""deadline":2,"unavailable":1"#, 0).unwrap();
        assert_eq!(
            failed.succeeded().unwrap_err().to_string(),
            "operations failed: deadline 2, unavailable 1"
        );
        assert!(printed("", 1).is_err(), "what is stored must be found");
        assert!(done(b"{}").is_err());
    }
}
