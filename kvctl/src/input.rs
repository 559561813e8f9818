//! Input of records: which files and objects, their formats, and the progress of reading.

#[cfg(feature = "parquet")]
mod blocks;
mod object;

use std::fs::File;
use std::io::{IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use glob::MatchOptions;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use torc_objects::{Location, Object};

use crate::failure::Failure;
use crate::format::{Format, Naming, Rows};

/// The extensions that tell a format.
const EXTENSIONS: &str =
    ".ndjson, .jsonl, .json, .csv, .tsv, .tab, .parquet, .arrow, .arrows or .feather";

/// What rows are read from.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// A file, or `-` for standard input.
    File(PathBuf),
    /// An object, with its URL.
    Object(Arc<Object>, String),
}

impl Input {
    /// Whose extension tells the format.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::File(path) => path,
            Self::Object(_, url) => Path::new(url),
        }
    }

    /// Its name in messages.
    pub(crate) fn shown(&self) -> String {
        shown(self.path())
    }

    /// Its length; `None` for standard input and pipes.
    pub(crate) fn len(&self) -> Result<Option<u64>, Failure> {
        match self {
            Self::File(path) => len(path),
            Self::Object(object, _) => Ok(Some(object.size())),
        }
    }

    /// Describes its content as it is now: other content has another description.
    pub(crate) fn version(&self) -> String {
        let path = match self {
            Self::Object(object, _) => return object.version(),
            Self::File(path) => path,
        };
        let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified());
        let modified = modified
            .ok()
            .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        format!("{modified:?}")
    }

    fn open(&self) -> Result<Box<dyn Read + Send>, Failure> {
        match self {
            Self::File(path) => open(path),
            Self::Object(object, _) => Ok(Box::new(object::Stream::new(Arc::clone(object)))),
        }
    }
}

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
    /// Arrow IPC, a file or a stream; `kvctl` reads it if it was built with `--features arrow`.
    Arrow,
}

impl Source {
    /// The chosen format, or the one of the file's extension.
    pub(crate) fn of(path: &Path, said: Option<Self>) -> Result<Self, Failure> {
        said.or_else(|| Self::of_path(path)).ok_or_else(|| {
            let path = path.display();
            Failure::Usage(format!(
                "cannot tell the format of `{path}`: add --format ndjson, csv, tsv, parquet or arrow"
            ))
        })
    }

    fn of_path(path: &Path) -> Option<Self> {
        let is = |name: &&str| {
            let extension = path.extension();
            extension.is_some_and(|it| it.eq_ignore_ascii_case(name))
        };
        if is(&"parquet") {
            return Some(Self::Parquet);
        }
        if ["arrow", "arrows", "feather"].iter().any(is) {
            return Some(Self::Arrow);
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
        input: &Input,
        naming: Naming,
        bar: &ProgressBar,
    ) -> Result<Rows, Failure> {
        let format = match self {
            Self::Ndjson => Format::Ndjson,
            Self::Csv => Format::Csv,
            Self::Tsv => Format::Tsv,
            Self::Parquet => return parquet(input, &naming, bar),
            Self::Arrow => return arrow(input, &naming, bar),
        };
        Ok(format.read(bar.wrap_read(input.open()?), naming))
    }
}

/// Rows after which a bar moves: each move asks for the time.
#[cfg(feature = "parquet")]
const SHOWN_ROWS: u128 = 1 << 7;

#[cfg(feature = "parquet")]
fn parquet(input: &Input, naming: &Naming, bar: &ProgressBar) -> Result<Rows, Failure> {
    let rows = match input {
        Input::File(path) => {
            crate::format::parquet::rows(File::open(path).map_err(failed(path))?, naming)
        }
        Input::Object(object, _) => {
            let blocks = blocks::Blocks::new(Arc::clone(object));
            crate::format::parquet::rows(blocks, naming)
        }
    };
    let (rows, count) = rows.map_err(|error| Failure::Input {
        path: input.shown(),
        error,
    })?;
    // The length of a row is unknown: each counts as the same part of the file.
    let (bar, len) = (bar.clone(), u128::from(input.len()?.unwrap_or_default()));
    let mut shown = 0;
    Ok(Box::new((1..).zip(rows).map(move |(number, row)| {
        if number % SHOWN_ROWS > 0 && number < u128::from(count) {
            return row;
        }
        let at = len * number / u128::from(count.max(1));
        let at = u64::try_from(at.min(len)).unwrap_or(u64::MAX);
        bar.inc(at - shown);
        shown = at;
        row
    })))
}

#[cfg(not(feature = "parquet"))]
fn parquet(input: &Input, _: &Naming, _: &ProgressBar) -> Result<Rows, Failure> {
    Err(without(input, "Parquet", "parquet"))
}

#[cfg(feature = "arrow")]
fn arrow(input: &Input, naming: &Naming, bar: &ProgressBar) -> Result<Rows, Failure> {
    let rows = crate::format::arrow::rows(bar.wrap_read(input.open()?), naming);
    rows.map_err(|error| Failure::Input {
        path: input.shown(),
        error,
    })
}

#[cfg(not(feature = "arrow"))]
fn arrow(input: &Input, _: &Naming, _: &ProgressBar) -> Result<Rows, Failure> {
    Err(without(input, "Arrow", "arrow"))
}

#[cfg(not(all(feature = "parquet", feature = "arrow")))]
fn without(input: &Input, format: &str, feature: &str) -> Failure {
    let path = input.shown();
    Failure::Usage(format!(
        "{path}: this build of kvctl cannot read {format}: install it with `cargo install --path kvctl --features {feature}`"
    ))
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
/// that names no file itself, the files that match it, sorted by path; for a URL, its object, or else
/// those below it with known extensions, sorted by name.
pub(crate) fn files(paths: &[PathBuf]) -> Result<Vec<Input>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if let Some(url) = path.to_str().filter(|text| text.contains("://")) {
            files.extend(objects(url)?);
            continue;
        }
        if path.is_dir() {
            files.extend(files_in(path)?.into_iter().map(Input::File));
            continue;
        }
        let is_pattern = |text: &&str| text.contains(['*', '?', '[']) && !path.exists();
        match path.to_str().filter(is_pattern) {
            Some(pattern) => files.extend(matching(pattern)?.into_iter().map(Input::File)),
            None => files.push(Input::File(path.clone())),
        }
    }
    Ok(files)
}

fn objects(url: &str) -> Result<Vec<Input>, Failure> {
    let listed = object::objects(Location::open(url)?);
    let listed = listed.map_err(|error| match error.downcast() {
        Ok(error) => Failure::Objects(error),
        Err(error) => Failure::Runtime(error),
    })?;
    let below = url.trim_end_matches('/');
    let input = |object: Object| {
        let url = match object.name() {
            "" => url.to_owned(),
            name => format!("{below}/{name}"),
        };
        // As for a directory: there may be others.
        let is_meant = object.name().is_empty() || Source::of_path(Path::new(&url)).is_some();
        is_meant.then(|| Input::Object(Arc::new(object), url))
    };
    let found: Vec<_> = listed.into_iter().filter_map(input).collect();
    if found.is_empty() {
        return Err(Failure::Usage(format!(
            "found neither an object {url} nor {EXTENSIONS} objects below it"
        )));
    }
    Ok(found)
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
            "`{pattern}` is neither a file nor a valid pattern: {error}"
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

/// A progress bar of this form; hidden without a terminal.
pub(crate) fn styled(len: Option<u64>, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(len, ProgressDrawTarget::hidden());
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

    fn found(paths: &[PathBuf]) -> Vec<PathBuf> {
        let found = files(paths).unwrap();
        found.iter().map(|it| it.path().to_owned()).collect()
    }

    fn url(path: &Path) -> PathBuf {
        torc_objects::url_of(path).unwrap().into()
    }

    #[test]
    fn a_url_stands_for_its_object_or_for_all_below_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        assert!(files(&[url(dir.path())]).is_err(), "nothing is there");
        std::fs::create_dir_all(path("b/deep")).unwrap();
        for name in ["c.csv", "b/deep/a.ndjson", "b/notes.txt", "d"] {
            std::fs::write(path(name), "12").unwrap();
        }
        let wanted = ["b/deep/a.ndjson", "c.csv"].map(|name| url(&path(name)));
        assert_eq!(found(&[url(dir.path())]), wanted);
        assert_eq!(found(&[url(&path("b/"))]), wanted[..1]);
        let one = files(&[url(&path("d"))]).unwrap();
        assert_eq!(one[0].len().unwrap(), Some(2));
        let refused = files(&["ftp://host/rows.csv".into()]).unwrap_err();
        assert_eq!(refused.code(), crate::failure::Code::Usage);
    }

    fn object(path: &Path) -> Input {
        files(&[url(path)]).unwrap().remove(0)
    }

    #[test]
    fn a_stream_has_every_byte_of_an_object_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.csv");
        for len in [0_u32, 1, 16 << 10, 3 << 20] {
            let content: Vec<u8> = (0..len).flat_map(u32::to_le_bytes).collect();
            std::fs::write(&path, &content).unwrap();
            let mut read = Vec::new();
            let mut input = object(&path).open().unwrap();
            input.read_to_end(&mut read).unwrap();
            assert!(read == content, "{len}");
        }
        let mut input = object(&path).open().unwrap();
        let mut first = vec![0; 1 << 16];
        input.read_exact(&mut first).unwrap();
        std::fs::write(&path, "shorter").unwrap();
        let changed = input.read_to_end(&mut Vec::new()).unwrap_err();
        assert!(changed.to_string().contains("it has changed"), "{changed}");
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn parquet_is_read_from_an_object() {
        use crate::format::{Chosen, ChosenValue};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.parquet");
        let urls: Vec<String> = (0..100_000)
            .map(|number: u32| {
                let tail = number.wrapping_mul(0x9e37_79b9);
                format!("https://example.org/{tail:08x}/{number}")
            })
            .collect();
        let rows: Vec<_> = urls.iter().map(|url| (url.as_str(), Some(7))).collect();
        let mut written = crate::format::parquet::tests::file(&rows);
        std::io::Seek::rewind(&mut written).unwrap();
        std::io::copy(&mut written, &mut File::create(&path).unwrap()).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() > 2 << 20, "blocks");
        let naming = Naming::Chosen(Arc::new(Chosen {
            key: "url".to_owned(),
            value: ChosenValue::Empty,
        }));
        let bar = ProgressBar::hidden();
        let mut rows = Source::Parquet
            .rows(&object(&path), naming.clone(), &bar)
            .unwrap();
        let len = std::fs::metadata(&path).unwrap().len();
        for (number, url) in (1..).zip(&urls) {
            assert_eq!(rows.next().unwrap().unwrap().row.key, url);
            let shown = if number == 100_000 {
                number
            } else {
                number - number % 128
            };
            assert_eq!(bar.position(), len * shown / 100_000, "a part per row");
        }
        assert!(rows.next().is_none());
        // A failure of the store is not taken for damage of the file.
        let lost = object(&path);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("rows.parquet", &path).unwrap();
        let failure = Source::Parquet.rows(&lost, naming, &bar).err().unwrap();
        let code = failure.code();
        assert_eq!(code, crate::failure::Code::Unavailable, "{failure}");
    }

    #[test]
    fn a_directory_stands_for_the_files_in_it_in_the_order_of_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        assert!(files(&[dir.path().to_owned()]).is_err(), "nothing is there");
        for name in ["b.csv", "a.ndjson", "d.PARQUET", "e.feather", "notes.txt"] {
            std::fs::write(path(name), "").unwrap();
        }
        std::fs::create_dir(path("c.csv")).unwrap();
        let wanted = ["z", "a.ndjson", "b.csv", "d.PARQUET", "e.feather"].map(path);
        assert_eq!(found(&[path("z"), dir.path().to_owned()]), wanted);
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
            assert_eq!(found(&[path(pattern)]), wanted, "{pattern}");
        }
        for pattern in ["p/b/*.json", "p/b/[", "none/*"] {
            let refused = files(&[path(pattern)]).unwrap_err();
            assert_eq!(refused.code(), crate::failure::Code::Usage);
            assert!(refused.line().contains(pattern), "{refused}");
        }
        // A file of such a name is that file.
        std::fs::write(path("[1].csv"), "").unwrap();
        std::fs::write(path("1.csv"), "").unwrap();
        assert_eq!(found(&[path("[1].csv")]), [path("[1].csv")]);
    }
}
