//! Input files of records: which files, their formats, and the progress of reading.

use std::fs::File;
use std::io::{IsTerminal as _, Read};
use std::path::{Path, PathBuf};

use glob::MatchOptions;
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;
use crate::format::{Format, Naming, Rows};

/// The extensions that tell a format.
const EXTENSIONS: &str = ".ndjson, .jsonl, .json, .csv, .tsv, .tab or .parquet";

/// The format of a file of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Source {
    /// One JSON object per line.
    Ndjson,
    /// Comma-separated, quoted as in RFC 4180.
    Csv,
    /// Tab-separated, with backslash escapes.
    Tsv,
    /// Parquet; `kvctl` reads it if it was built with `--features parquet`.
    Parquet,
}

impl Source {
    /// The chosen format, or the one of the file's extension.
    pub(crate) fn of(path: &Path, said: Option<Self>) -> Result<Self, Failure> {
        said.or_else(|| Self::of_path(path)).ok_or_else(|| {
            let path = path.display();
            Failure::Usage(format!(
                "cannot tell the format of `{path}`: add --format ndjson, csv, tsv or parquet"
            ))
        })
    }

    fn of_path(path: &Path) -> Option<Self> {
        if path
            .extension()
            .is_some_and(|it| it.eq_ignore_ascii_case("parquet"))
        {
            return Some(Self::Parquet);
        }
        Format::of_path(path).map(|format| match format {
            Format::Ndjson => Self::Ndjson,
            Format::Csv => Self::Csv,
            Format::Tsv => Self::Tsv,
        })
    }

    /// The rows of a file; `bar` follows them.
    pub(crate) fn rows(
        self,
        path: &Path,
        naming: Naming,
        bar: &ProgressBar,
    ) -> Result<Rows, Failure> {
        let format = match self {
            Self::Ndjson => Format::Ndjson,
            Self::Csv => Format::Csv,
            Self::Tsv => Format::Tsv,
            Self::Parquet => return parquet(path, &naming, bar),
        };
        Ok(format.read(bar.wrap_read(open(path)?), naming))
    }
}

#[cfg(feature = "parquet")]
fn parquet(path: &Path, naming: &Naming, bar: &ProgressBar) -> Result<Rows, Failure> {
    let file = File::open(path).map_err(failed(path))?;
    let len = file.metadata().map_err(failed(path))?.len();
    let rows = crate::format::parquet::rows(file, naming).map_err(|error| Failure::Input {
        path: shown(path),
        error,
    })?;
    // The length of a row is unknown, so the bar counts whole files.
    let bar = bar.clone();
    let end = std::iter::once_with(move || bar.inc(len)).filter_map(|()| None);
    Ok(Box::new(rows.chain(end)))
}

#[cfg(not(feature = "parquet"))]
fn parquet(path: &Path, _: &Naming, _: &ProgressBar) -> Result<Rows, Failure> {
    let path = shown(path);
    Err(Failure::Usage(format!(
        "{path}: this build of kvctl cannot read Parquet: install it with `cargo install --path kvctl --features parquet`"
    )))
}

/// The chosen format, or the one of the file's extension.
pub(crate) fn format_of(path: &Path, said: Option<Format>) -> Result<Format, Failure> {
    said.or_else(|| Format::of_path(path)).ok_or_else(|| {
        let path = path.display();
        Failure::Usage(format!(
            "cannot tell the format of `{path}`: add --format ndjson, csv or tsv"
        ))
    })
}

/// Opens a file, or standard input for `-`.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read + Send>, Failure> {
    if is_stdin(path) {
        return Ok(Box::new(std::io::stdin()));
    }
    let file = File::open(path).map_err(failed(path))?;
    let metadata = file.metadata().map_err(failed(path))?;
    if metadata.is_dir() {
        return Err(failed(path)(std::io::ErrorKind::IsADirectory.into()));
    }
    Ok(Box::new(file))
}

/// Length of a file; `None` if `path` is not a regular file.
pub(crate) fn len(path: &Path) -> Result<Option<u64>, Failure> {
    if is_stdin(path) {
        return Ok(None);
    }
    let metadata = std::fs::metadata(path).map_err(failed(path))?;
    Ok(metadata.is_file().then_some(metadata.len()))
}

/// The files to read: for a directory, its files with known extensions, sorted by name; for a pattern
/// that names no file itself, the files that match it, sorted by path.
pub(crate) fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(files_in(path)?);
            continue;
        }
        let is_pattern = |text: &&str| text.contains(['*', '?', '[']) && !path.exists();
        match path.to_str().filter(is_pattern) {
            Some(pattern) => files.extend(matching(pattern)?),
            None => files.push(path.clone()),
        }
    }
    Ok(files)
}

fn files_in(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed(dir))? {
        let entry = entry.map_err(failed(dir))?.path();
        if entry.is_file() && Source::of_path(&entry).is_some() {
            found.push(entry);
        }
    }
    if found.is_empty() {
        let dir = dir.display();
        return Err(Failure::Usage(format!("{dir} has no {EXTENSIONS} file")));
    }
    found.sort();
    Ok(found)
}

fn matching(pattern: &str) -> Result<Vec<PathBuf>, Failure> {
    let options = MatchOptions {
        require_literal_separator: true,
        // As in a shell: other tools keep checksums and unfinished files under such names.
        require_literal_leading_dot: true,
        ..MatchOptions::new()
    };
    let paths = glob::glob_with(pattern, options).map_err(|error| {
        Failure::Usage(format!(
            "no file `{pattern}`, and it is no pattern: {error}"
        ))
    })?;
    let mut found = Vec::new();
    for path in paths {
        let path = path.map_err(|error| {
            let path = error.path().to_owned();
            Failure::file("read", &path, error.into())
        })?;
        if path.is_file() {
            found.push(path);
        }
    }
    if found.is_empty() {
        return Err(Failure::Usage(format!("no file matches `{pattern}`")));
    }
    found.sort();
    Ok(found)
}

/// The name of a file in messages.
pub(crate) fn shown(path: &Path) -> String {
    if is_stdin(path) {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

/// A progress bar of bytes, with the number of records as its message; hidden without a terminal.
pub(crate) fn bar(len: Option<u64>) -> ProgressBar {
    let template = match len {
        Some(_) => "{bar:30} {percent:>3} %  {msg} records  {binary_bytes_per_sec}  {eta} left",
        None => "{spinner} {msg} records  {binary_bytes}  {binary_bytes_per_sec}",
    };
    styled(len, template).with_message("0")
}

/// A progress bar of bytes.
pub(crate) fn bytes_bar(len: Option<u64>) -> ProgressBar {
    let template = match len {
        Some(_) => "{bar:30} {percent:>3} %  {binary_bytes_per_sec}  {eta} left",
        None => "{spinner} {binary_bytes}  {binary_bytes_per_sec}",
    };
    styled(len, template)
}

/// A message that changes.
pub(crate) fn spinner() -> ProgressBar {
    styled(None, "{spinner} {msg}")
}

fn styled(len: Option<u64>, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = len.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let style = ProgressStyle::with_template(template);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    let path = path.display().to_string();
    move |source| Failure::File {
        action: "read",
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_telling_name_needs_a_format() {
        let format = |file: &str, said| format_of(Path::new(file), said);
        assert!(format("-", None).unwrap_err().line().contains("--format"));
        assert_eq!(format("-", Some(Format::Csv)).unwrap(), Format::Csv);
        assert_eq!(format("a.tsv", None).unwrap(), Format::Tsv);
    }

    #[test]
    fn a_directory_stands_for_the_files_in_it_in_the_order_of_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        assert!(files(&[dir.path().to_owned()]).is_err(), "nothing is there");
        for name in ["b.csv", "a.ndjson", "d.PARQUET", "notes.txt"] {
            std::fs::write(path(name), "").unwrap();
        }
        std::fs::create_dir(path("c.csv")).unwrap();
        let found = files(&[path("z"), dir.path().to_owned()]).unwrap();
        let wanted = ["z", "a.ndjson", "b.csv", "d.PARQUET"].map(path);
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_pattern_stands_for_the_files_that_match_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["p/b", "p/a/deep", "p/.hidden"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        for name in [
            "p/b/2.csv",
            "p/b/1.csv",
            "p/b/3.tsv",
            "p/a/deep/4.csv",
            "p/.hidden/5.csv",
            "p/b/.6.csv",
        ] {
            std::fs::write(path(name), "").unwrap();
        }
        std::fs::create_dir(path("p/b/dir.csv")).unwrap();
        for (pattern, wanted) in [
            ("p/b/*.csv", &["p/b/1.csv", "p/b/2.csv"][..]),
            ("p/**/*.csv", &["p/a/deep/4.csv", "p/b/1.csv", "p/b/2.csv"]),
            ("p/?/[23].?sv", &["p/b/2.csv", "p/b/3.tsv"]),
        ] {
            let wanted: Vec<_> = wanted.iter().map(|name| path(name)).collect();
            assert_eq!(files(&[path(pattern)]).unwrap(), wanted, "{pattern}");
        }
        for pattern in ["p/b/*.json", "p/b/[", "none/*"] {
            let refused = files(&[path(pattern)]).unwrap_err();
            assert_eq!(refused.code(), crate::failure::Code::Usage);
            assert!(refused.line().contains(pattern), "{refused}");
        }
        // A file of such a name is that file.
        std::fs::write(path("[1].csv"), "").unwrap();
        std::fs::write(path("1.csv"), "").unwrap();
        assert_eq!(files(&[path("[1].csv")]).unwrap(), [path("[1].csv")]);
    }
}
