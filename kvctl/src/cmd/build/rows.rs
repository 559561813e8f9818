//! Reads the rows of all files, on a thread of its own, and passes them to the build.

use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;

use bytes::Bytes;
use indicatif::ProgressBar;
use torc_build::{Build, BuildError};

use crate::cmd::generation::failure;
use crate::failure::Failure;
use crate::format::{BadRow, Naming, Numbered, Problem, ReadError};
use crate::input::{self, Source};
use crate::text;

/// Most rows of a parsed batch, and their most bytes.
const BATCH_ROWS: usize = 1 << 10;
const BATCH_BYTES: usize = 1 << 20;
/// Batches that are parsed ahead.
const BATCHES_AHEAD: usize = 8;

/// Rows of one file, or why there are no more.
struct Rows {
    path: PathBuf,
    rows: Result<Vec<Numbered>, ReadError>,
}

/// Passes all rows that the build does not have to it. A separate thread parses them.
pub(super) fn read(
    build: &mut Build,
    inputs: Vec<(PathBuf, Source)>,
    len: Option<u64>,
    naming: &Naming,
    keeps_values: bool,
) -> Result<(), Failure> {
    let bar = input::bar(len);
    let (sender, receiver) = std::sync::mpsc::sync_channel(BATCHES_AHEAD);
    let skip = build.rows_taken();
    let parsed_bar = bar.clone();
    std::thread::scope(|scope| {
        let parsing = scope.spawn(move || parse(inputs, naming, skip, &parsed_bar, &sender));
        for Rows { path, rows } in receiver {
            let rows = rows.map_err(|error| Failure::Input {
                path: input::shown(&path),
                error,
            })?;
            for Numbered { line, row } in rows {
                if row.expires_at_ms.is_some() {
                    return Err(expires(&path, line));
                }
                let value = if keeps_values {
                    row.value
                } else {
                    Bytes::new()
                };
                let pushed = build.push(row.key, value);
                pushed.map_err(|error| refused(error, &path, line))?;
            }
            bar.set_message(text::count(build.rows_taken()));
        }
        bar.finish_and_clear();
        parsing.join().unwrap_or(Ok(()))
    })
}

/// Sends the rows of all files after the first `skip`; stops early if the receiver is gone.
fn parse(
    inputs: Vec<(PathBuf, Source)>,
    naming: &Naming,
    mut skip: u64,
    bar: &ProgressBar,
    to: &SyncSender<Rows>,
) -> Result<(), Failure> {
    for (path, format) in inputs {
        let mut rows = format.rows(&path, naming.clone(), bar)?;
        loop {
            let (mut batch, mut bytes, mut bad) = (Vec::new(), 0, None);
            while batch.len() < BATCH_ROWS && bytes < BATCH_BYTES && bad.is_none() {
                match rows.next() {
                    None => break,
                    Some(Ok(_)) if skip > 0 => skip -= 1,
                    Some(Ok(row)) => {
                        bytes += row.row.key.len() + row.row.value.len();
                        batch.push(row);
                    }
                    Some(Err(error)) => bad = Some(error),
                }
            }
            let is_end = batch.is_empty() && bad.is_none();
            let send = |rows| {
                let path = path.clone();
                to.send(Rows { path, rows })
            };
            if is_end {
                break;
            }
            // Sends the rows before the bad one first.
            if send(Ok(batch)).is_err() {
                return Ok(());
            }
            if let Some(error) = bad {
                let _ = send(Err(error));
                return Ok(());
            }
        }
    }
    Ok(())
}

fn expires(path: &Path, line: u64) -> Failure {
    let path = input::shown(path);
    Failure::OutOfBounds(format!(
        "{path}: line {line}: values of a static namespace cannot expire: remove `expires_at_ms`"
    ))
}

/// Why a row was refused, with its line instead of its number.
fn refused(error: BuildError, path: &Path, line: u64) -> Failure {
    let BuildError::BadRow { what, .. } = error else {
        return failure(error);
    };
    let row = BadRow {
        line,
        last_line: line,
        problem: Problem::OutOfBounds(what),
        bytes: Bytes::new(),
    };
    Failure::Input {
        path: input::shown(path),
        error: ReadError::Bad(row),
    }
}
