//! Reads and packs the rows of all files, on a thread of its own, and passes them to the build.

use std::sync::mpsc::SyncSender;

use bytes::Bytes;
use indicatif::ProgressBar;
use torc_build::{Build, PackedRows};
use torc_objects::ObjectError;

use super::progress::Pass;
use crate::cmd::generation::failure;
use crate::failure::Failure;
use crate::format::{BadRow, Naming, Numbered, Problem, ReadError, Rows};
use crate::input::{Input, Source};
use crate::text;

/// Most rows of a packed batch, and bytes that end it.
const BATCH_ROWS: u64 = 1 << 10;
const BATCH_BYTES: u64 = 1 << 20;
/// Batches that are packed ahead.
const BATCHES_AHEAD: usize = 8;

/// Passes all rows that the build does not have to it. A separate thread parses and packs them.
pub(super) fn read(
    build: &mut Build,
    inputs: Vec<(Input, Source)>,
    len: Option<u64>,
    naming: &Naming,
    keeps_values: bool,
) -> Result<(), Failure> {
    let read = read_all(build, inputs, len, naming, keeps_values);
    read.map_err(|failure| match &failure {
        Failure::Input { error, .. } => match error.of_object() {
            None => failure,
            Some(ObjectError::Damaged { .. }) => {
                failure.after("nothing was attached: build into another directory")
            }
            Some(_) => {
                // Only spares reading the rows again.
                let _ = build.checkpoint();
                failure.after("nothing was attached: repeat the command to continue")
            }
        },
        _ => failure,
    })
}

fn read_all(
    build: &mut Build,
    inputs: Vec<(Input, Source)>,
    len: Option<u64>,
    naming: &Naming,
    keeps_values: bool,
) -> Result<(), Failure> {
    let mut pass = Pass::begin("reading", len);
    let (sender, receiver) = std::sync::mpsc::sync_channel(BATCHES_AHEAD);
    let (skip, empty) = (build.rows_taken(), build.rows());
    let bar = pass.bar().clone();
    std::thread::scope(|scope| {
        let parsing = Parsing {
            naming,
            keeps_values,
            skip,
            bar,
        };
        let parsing = scope.spawn(move || parsing.send_all(inputs, &empty, &sender));
        for rows in receiver {
            build.push_rows(&rows).map_err(failure)?;
            let records = build.rows_taken();
            let read = text::bytes(pass.bar().position());
            let read = len.map_or_else(
                || read.clone(),
                |len| format!("{read} of {}", text::bytes(len)),
            );
            let done = format!("{}, {read}", text::counted(records, "record"));
            pass.show(&done, records);
        }
        pass.end();
        parsing.join().unwrap_or(Ok(()))
    })
}

/// What the parsing thread knows.
struct Parsing<'a> {
    naming: &'a Naming,
    keeps_values: bool,
    /// Rows that the build has.
    skip: u64,
    bar: ProgressBar,
}

impl Parsing<'_> {
    /// Sends the rows of all files that the build does not have; stops early if the receiver is gone. Those
    /// before a bad row are sent.
    fn send_all(
        mut self,
        inputs: Vec<(Input, Source)>,
        empty: &PackedRows,
        to: &SyncSender<PackedRows>,
    ) -> Result<(), Failure> {
        for (input, format) in inputs {
            let mut rows = format.rows(&input, self.naming.clone(), &self.bar)?;
            loop {
                let mut batch = empty.another();
                let filled = self.fill(&mut batch, &input, &mut rows);
                let is_end = batch.is_empty();
                let is_gone = !is_end && to.send(batch).is_err();
                filled?;
                if is_gone {
                    return Ok(());
                }
                if is_end {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Adds the next rows of a file; none at its end.
    fn fill(
        &mut self,
        batch: &mut PackedRows,
        input: &Input,
        rows: &mut Rows,
    ) -> Result<(), Failure> {
        while batch.len() < BATCH_ROWS && batch.given_bytes() < BATCH_BYTES {
            let Some(row) = rows.next() else {
                return Ok(());
            };
            let Numbered { line, row } = row.map_err(|error| Failure::Input {
                path: input.shown(),
                error,
            })?;
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            let value = if self.keeps_values {
                row.value
            } else {
                Bytes::new()
            };
            let pushed = batch.push_expiring(row.key, value, row.expires_at_ms);
            pushed.map_err(|what| bad(what, input, line))?;
        }
        Ok(())
    }
}

/// A row that was refused, by its line.
fn bad(what: String, input: &Input, line: u64) -> Failure {
    let row = BadRow {
        line,
        last_line: line,
        problem: Problem::OutOfBounds(what),
        bytes: Bytes::new(),
    };
    Failure::Input {
        path: input.shown(),
        error: ReadError::Bad(row),
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use torc_build::{BuildOptions, Target};

    use super::*;
    use crate::failure::Code;
    use crate::input;

    #[test]
    fn a_build_continues_after_the_object_store_failed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir(path("rows")).unwrap();
        std::fs::write(path("rows/1.csv"), "key,value\na,1\nb,2\n").unwrap();
        std::fs::write(path("rows/2.csv"), "key,value\nc,3\n").unwrap();
        let url = PathBuf::from(torc_objects::url_of(&path("rows")).unwrap());
        let inputs = input::files(&[url]).unwrap().into_iter();
        let inputs: Vec<_> = inputs.map(|input| (input, Source::Csv)).collect();
        let begin = || {
            let options = BuildOptions::default();
            Build::create(&path("built"), Target::offline([7; 32]), options).unwrap()
        };
        let read = |build: &mut Build| read(build, inputs.clone(), None, &Naming::Ours, true);

        std::fs::rename(path("rows/2.csv"), path("kept")).unwrap();
        std::os::unix::fs::symlink("2.csv", path("rows/2.csv")).unwrap();
        let failure = read(&mut begin()).unwrap_err();
        assert_eq!(failure.code(), Code::Unavailable, "{failure}");
        let line = failure.line();
        assert!(line.contains("rows/2.csv: reading failed"), "{line}");
        let advice = "nothing was attached: repeat the command to continue";
        assert!(line.ends_with(advice), "{line}");

        std::fs::rename(path("kept"), path("rows/2.csv")).unwrap();
        let mut build = begin();
        assert_eq!(build.rows_taken(), 2, "those before the failure");
        read(&mut build).unwrap();
        assert_eq!(build.finish(|_| ()).unwrap().records, 3);

        std::fs::write(path("rows/1.csv"), "key,value\nd,4\n").unwrap();
        std::fs::remove_dir_all(path("built")).unwrap();
        let failure = read(&mut begin()).unwrap_err();
        assert_eq!(failure.code(), Code::ConditionNotMet, "{failure}");
        let line = failure.line();
        assert!(line.contains("it has changed"), "{line}");
        assert!(line.ends_with("build into another directory"), "{line}");
        assert!(!Path::new(&path("built/generation.json")).exists());
    }
}
