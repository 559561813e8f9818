//! The progress of a build: a line of JSON for each step, written once a kill cannot undo the step.
//!
//! A kill may leave the last line incomplete; it is then cut off. An incomplete line in the middle
//! is damage. The files of slices that a line names are durable; runs are not, so a crash of the machine may
//! leave them shorter than their lines say, and the build starts over.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::manifest::FileEntry;
use crate::sums::Sums;
use crate::{BuildError, JOURNAL_FILE};

/// A step that is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub(crate) enum Step {
    /// The number of rows scattered, and the lengths of the buckets' runs at that time.
    Scattered {
        rows: u64,
        sums: Sums,
        runs: Vec<u64>,
    },
    /// All rows have been scattered.
    AllScattered,
    /// A bucket was gathered: its files, and the sums of its duplicates.
    Gathered {
        bucket: u32,
        files: Vec<FileEntry>,
        left_out: Sums,
    },
}

#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens the journal of a directory, and returns its steps.
    pub(crate) fn open(dir: &Path) -> Result<(Self, Vec<Step>), BuildError> {
        let path = dir.join(JOURNAL_FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(BuildError::io("read", &path)(error)),
        };
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        let steps: Result<Vec<Step>, _> = text[..whole].lines().map(serde_json::from_str).collect();
        let steps = steps.map_err(std::io::Error::from);
        let steps = steps.map_err(BuildError::io("read", &path))?;
        let opened = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|file| {
                file.set_len(whole as u64)?;
                Ok(file)
            });
        let file = opened.map_err(BuildError::io("open", &path))?;
        Ok((Self { path, file }, steps))
    }

    /// Adds a step. After an error the last line may be incomplete: nothing may be added.
    pub(crate) fn add(&mut self, step: &Step) -> Result<(), BuildError> {
        let line = serde_json::to_string(step).map_err(std::io::Error::from);
        let written = line.and_then(|mut line| {
            line.push('\n');
            self.file.write_all(line.as_bytes())?;
            self.file.sync_data()
        });
        written.map_err(BuildError::io("write", &self.path))
    }
}

#[cfg(all(test, target_os = "linux"))]
impl Journal {
    /// Writes to another file from now on.
    pub(crate) fn write_to(&mut self, file: File) {
        self.file = file;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_last_line_is_cut_off_and_a_torn_line_in_the_middle_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, steps) = Journal::open(dir.path()).unwrap();
        assert_eq!(steps, vec![]);
        let one = Step::Scattered {
            rows: 7,
            sums: Sums::default(),
            runs: vec![1, 2],
        };
        journal.add(&one).unwrap();
        journal.add(&Step::AllScattered).unwrap();
        let path = dir.path().join(JOURNAL_FILE);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (_, steps) = Journal::open(dir.path()).unwrap();
            let is_first_whole = whole[..cut].contains(&b'\n');
            assert_eq!(steps.len(), usize::from(is_first_whole), "cut to {cut}");
            assert!(steps.iter().all(|step| *step == one));
        }
        std::fs::write(&path, [b"{\"ste\n", &whole[..]].concat()).unwrap();
        assert!(matches!(
            Journal::open(dir.path()),
            Err(BuildError::Io { .. })
        ));
    }
}
