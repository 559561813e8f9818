//! Stores the data set: through the client library, or from a file by `kvctl load`.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use torc_client::Client;
use torc_testkit::Kvd;

use crate::cleanup;
use crate::records;

/// Records per batch, and batches in flight.
const BATCH: u64 = 500;
const UNDER_WAY: usize = 8;

/// Stores the first records of the data set.
///
/// # Errors
/// The client's error.
pub(crate) async fn load(client: &Client, count: u64) -> Result<()> {
    let batches = (0..count).step_by(BATCH as usize).map(|first| async move {
        let last = (first + BATCH).min(count);
        let pairs = (first..last)
            .map(records::pair)
            .map(|pair| (pair.key, pair.value));
        for stored in client.batch_put(pairs).await? {
            stored?;
        }
        anyhow::Ok(())
    });
    let mut batches = futures::stream::iter(batches).buffer_unordered(UNDER_WAY);
    while let Some(done) = batches.next().await {
        done?;
    }
    Ok(())
}

/// Gets records of the data set, a million at most, spread over the first `count`.
///
/// # Errors
/// A record is missing or differs from the stored one.
pub(crate) async fn check(client: &Client, count: u64) -> Result<()> {
    const MOST: u64 = 1_000_000;
    let step = count.div_ceil(MOST).max(1);
    let all: Vec<u64> = (0..count).step_by(step as usize).collect();
    let batches = all.chunks(BATCH as usize).map(|indices| async move {
        let keys = indices.iter().map(|index| records::key(*index));
        let found = client.batch_get(keys).await?;
        for (index, found) in indices.iter().zip(found) {
            let value = found?.map(|found| found.value);
            let expected = records::pair(*index).value;
            ensure!(
                value.is_some_and(|value| value == expected),
                "record {index} is not what was stored"
            );
        }
        anyhow::Ok(())
    });
    let mut batches = futures::stream::iter(batches).buffer_unordered(UNDER_WAY);
    while let Some(done) = batches.next().await {
        done?;
    }
    Ok(())
}

/// A line of a file for `kvctl load`.
#[derive(Serialize)]
struct Line<'a> {
    key: &'a str,
    value: &'a str,
}

/// Writes the first records of the data set as NDJSON, some 170 bytes each.
///
/// # Errors
/// The system's error.
pub(crate) fn write_file(path: &Path, count: u64) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut out = BufWriter::with_capacity(1 << 16, file);
    for pair in (0..count).map(records::pair) {
        let line = Line {
            key: std::str::from_utf8(&pair.key)?,
            value: std::str::from_utf8(&pair.value)?,
        };
        serde_json::to_writer(&mut out, &line)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// The part of the output of `kvctl load --output json` that is used here.
#[derive(Debug, Deserialize)]
struct Loaded {
    records: u64,
    records_per_s: f64,
}

/// Loads a file of `count` records with `kvctl load`; returns the rate that it prints, in records
/// per second.
///
/// # Errors
/// kvctl's error, or some records were not stored.
pub(crate) fn load_file(kvctl: &Path, nodes: &[Kvd], file: &Path, count: u64) -> Result<f64> {
    let endpoints: Vec<String> = nodes.iter().map(Kvd::endpoint).collect();
    let mut command = cleanup::bound(kvctl)?;
    command
        .args(["load", "--output", "json", "--timeout", "60s"])
        .arg(file)
        .env("TORC_ENDPOINTS", endpoints.join(","))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "kvctl load failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let loaded: Loaded = serde_json::from_slice(&output.stdout).context("kvctl load")?;
    ensure!(
        loaded.records == count,
        "{} records were stored, not {count}",
        loaded.records
    );
    Ok(loaded.records_per_s)
}
