//! Whether the disk has room for a build. The first rows of some files stand for all.

use std::path::Path;

use indicatif::ProgressBar;
use torc_build::{BuildOptions, MANIFEST_FILE};
use torc_store::fs::{Fs as _, RealFs};

use crate::failure::Failure;
use crate::format::{Numbered, Rows};

/// Most rows to read of a file, and bytes of it that are enough: less than one read brings.
const MOST_ROWS: u64 = 1 << 16;
const ENOUGH: u64 = 64 << 10;
const MOST_FILES: u32 = 8;

/// Rows from the beginnings of files, and how many bytes of the files hold them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sample {
    files: u32,
    rows: u64,
    keys: u64,
    values: u64,
    bytes: u64,
    /// Whether a file did not tell which part of it its rows are, because one part has them all.
    is_blind: bool,
}

impl Sample {
    /// Adds the first rows of a file, if they are wanted; `bar` has followed it.
    pub(super) fn add(&mut self, first: Numbered, mut rows: Rows, bar: &ProgressBar) {
        if self.files == MOST_FILES {
            return;
        }
        self.files += 1;
        let (mut taken, mut at) = (*self, bar.position());
        let mut is_known = false;
        let mut next = Some(Ok(first));
        // A bad row ends the build later.
        while let Some(Ok(Numbered { row, .. })) = next {
            taken.rows += 1;
            taken.keys += row.key.len() as u64;
            taken.values += row.value.len() as u64;
            next = rows.next();
            let now = bar.position();
            // What was read until then is what the rows until then were in.
            if (now != at || next.is_none()) && at > 0 {
                let bytes = self.bytes + at;
                (is_known, taken.bytes) = (true, bytes);
                if at >= ENOUGH || next.is_none() {
                    *self = taken;
                    return;
                }
            }
            at = now;
            if taken.rows - self.rows >= MOST_ROWS {
                break;
            }
        }
        self.is_blind |= !is_known;
    }

    /// The bytes of all rows of files of this length on their way through the build, in memory and on its disk,
    /// if the rows tell.
    pub(super) fn row_bytes(&self, len: u64, options: &BuildOptions) -> Option<u64> {
        let row = options.row_bytes(
            self.keys.checked_div(self.rows)?,
            self.values.checked_div(self.rows)?,
        );
        let rows = u128::from(self.rows) * u128::from(len);
        let rows = rows.checked_div(self.bytes.into())?;
        let total = u64::try_from(rows.saturating_mul(row.into())).unwrap_or(u64::MAX);
        (!self.is_blind).then_some(total)
    }
}

/// Refuses a build that needs more than is free, with what it has written before.
pub(in crate::cmd) fn check(work: &Path, needed: u64) -> Result<(), Failure> {
    if work.join(MANIFEST_FILE).exists() {
        return Ok(());
    }
    let found = std::path::absolute(work).ok();
    let mut dirs = found.iter().flat_map(|work| work.ancestors());
    let Some(dir) = dirs.find(|dir| dir.is_dir()) else {
        return Ok(());
    };
    // Without an answer, the build itself finds out.
    let Ok(free) = RealFs.free_bytes(dir) else {
        return Ok(());
    };
    let written = [work.to_owned(), work.join("runs")];
    let written = written.iter().map(|dir| file_bytes(dir)).sum::<u64>();
    if free.saturating_add(written) >= needed {
        return Ok(());
    }
    Err(Failure::NoSpace {
        dir: dir.to_owned(),
        free,
        needed: needed - written,
    })
}

/// The length of the files in a directory; 0 without one.
fn file_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    let found = entries.filter_map(|entry| entry.ok()?.metadata().ok());
    found
        .filter(std::fs::Metadata::is_file)
        .map(|it| it.len())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Format, Naming, Row};

    const OPTIONS: fn() -> BuildOptions = BuildOptions::default;

    fn row(line: u64) -> Numbered {
        let row = Row {
            key: "12345678".into(),
            value: "12".into(),
            expires_at_ms: None,
        };
        Numbered { line, row }
    }

    fn sampled(text: String) -> Option<u64> {
        let (bar, len) = (ProgressBar::hidden(), text.len() as u64);
        let input = bar.wrap_read(std::io::Cursor::new(text));
        let mut rows = Format::Csv.read(input, Naming::Ours);
        let mut sample = Sample::default();
        if let Some(first) = rows.next() {
            sample.add(first.unwrap(), rows, &bar);
        }
        sample.row_bytes(len, &OPTIONS())
    }

    #[test]
    fn the_first_rows_stand_for_all() {
        let row = OPTIONS().row_bytes(8, 2);
        assert_eq!(sampled("key,value\n".to_owned()), None);
        for rows in [1, 100, 200_000] {
            let text = "key,value\n".to_owned() + &"12345678,12\n".repeat(rows);
            let (needed, exact) = (sampled(text).unwrap(), rows as u64 * row);
            let is_near = needed.abs_diff(exact) <= exact / 1_000 + row;
            assert!(is_near, "{rows}: {needed}, not {exact}");
        }
        // The rows behind a bad one are not looked at.
        let bad = "key,value\n12345678,12\n\"a\"b,2\n".to_owned();
        assert_eq!(sampled(bad), None);
    }

    #[test]
    fn files_that_do_not_tell_where_their_rows_are_make_no_estimate() {
        let bar = ProgressBar::hidden();
        bar.set_position(100);
        let mut sample = Sample::default();
        sample.add(
            row(1),
            Box::new((2..200_000).map(|line| Ok(row(line)))),
            &bar,
        );
        assert_eq!(sample.row_bytes(100, &OPTIONS()), None);
    }

    #[test]
    fn what_a_build_has_written_counts_as_free() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        let free = RealFs.free_bytes(dir.path()).unwrap();
        check(&work, free / 2).unwrap();
        let needed = u64::MAX / 2;
        let refused = check(&work, needed).unwrap_err();
        assert_eq!(refused.code(), crate::failure::Code::Refused);
        assert!(!work.exists(), "nothing is made");
        std::fs::create_dir_all(work.join("runs")).unwrap();
        let run = std::fs::File::create(work.join("runs/00000.run")).unwrap();
        run.set_len(1 << 40).unwrap();
        let Err(Failure::NoSpace { needed: rest, .. }) = check(&work, needed) else {
            panic!("it has no room");
        };
        assert_eq!(rest, needed - (1 << 40));
        std::fs::write(work.join(MANIFEST_FILE), "").unwrap();
        check(&work, needed).unwrap();
    }
}
