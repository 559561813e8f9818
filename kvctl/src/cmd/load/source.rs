//! The file of a load: reads rows ahead, and sets bad rows aside.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::format::{BadRow, Numbered, ReadError, Rows};

/// Rows that are read ahead: 64 MiB if all are of the largest size.
const AHEAD_ROWS: usize = 64;

/// Rows as they are read, or the error that ended them.
pub(super) type Incoming = mpsc::Receiver<Result<Numbered, ReadError>>;

/// Reads rows on a thread of its own, because reading blocks. The thread ends with the
/// rows, at the first bad row if `aside` is `None`, with the receiver or with the
/// process.
pub(super) fn spawn(rows: Rows, from_line: u64, aside: Option<Aside>) -> Incoming {
    let (sender, receiver) = mpsc::channel(AHEAD_ROWS);
    std::thread::spawn(move || send(rows, from_line, aside, &sender));
    receiver
}

fn send(
    rows: Rows,
    from_line: u64,
    mut aside: Option<Aside>,
    sender: &mpsc::Sender<Result<Numbered, ReadError>>,
) {
    for row in rows {
        let row = match row {
            Ok(row) if row.line < from_line => continue,
            Err(ReadError::Bad(row)) if row.problem.is_of_one_row() => {
                if row.last_line < from_line {
                    continue;
                }
                match aside.as_mut().map(|aside| aside.put(&row)) {
                    None => Err(row.into()),
                    Some(Ok(())) => continue,
                    Some(Err(error)) => Err(error),
                }
            }
            row => row,
        };
        let last = row.is_err();
        if sender.blocking_send(row).is_err() || last {
            return;
        }
    }
}

/// A file of bad rows: each unchanged, after a line with its place and the reason.
#[derive(Debug)]
pub(super) struct Aside {
    /// Name of the loaded file.
    name: String,
    path: String,
    file: File,
    rows: Arc<AtomicU64>,
}

impl Aside {
    /// For the bad rows of the file called `name`. Never appends to another load's rows.
    pub(super) fn create(path: &Path, name: &str) -> Result<Self, Failure> {
        let failed = |source| Failure::file("write", path, source);
        let file = File::options().create(true).append(true).open(path);
        let file = file.map_err(failed)?;
        if file.metadata().map_err(failed)?.len() > 0 {
            return Err(Failure::Usage(format!(
                "`{}` is not empty: use a new file for the bad rows",
                path.display()
            )));
        }
        Ok(Self {
            name: name.to_owned(),
            path: path.display().to_string(),
            file,
            rows: Arc::default(),
        })
    }

    /// A live count of the rows that were set aside.
    pub(super) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.rows)
    }

    fn put(&mut self, row: &BadRow) -> Result<(), ReadError> {
        let mut text = format!("# {}, {row}\n", self.name).into_bytes();
        text.extend_from_slice(&row.bytes);
        if !row.bytes.ends_with(b"\n") {
            text.push(b'\n');
        }
        let written = self.file.write_all(&text);
        written.map_err(|source| ReadError::Aside {
            path: self.path.clone(),
            source,
        })?;
        self.rows.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;

    fn sent_with(
        text: &'static str,
        format: Format,
        from_line: u64,
        aside: Option<Aside>,
    ) -> Vec<Result<u64, String>> {
        let mut rows = spawn(
            format.read(text.as_bytes(), crate::format::Naming::Ours),
            from_line,
            aside,
        );
        let received = std::iter::from_fn(|| rows.blocking_recv());
        received
            .map(|row| row.map(|n| n.line).map_err(|error| error.to_string()))
            .collect()
    }

    fn sent(text: &'static str, format: Format, from_line: u64) -> Vec<Result<u64, String>> {
        sent_with(text, format, from_line, None)
    }

    #[test]
    fn lines_before_the_first_wanted_are_skipped_even_malformed_ones() {
        let text = "{\"key\":\"a\",\"value\":\"\"}\nnonsense\n{\"key\":\"c\",\"value\":\"\"}\n";
        assert_eq!(sent(text, Format::Ndjson, 3), [Ok(3)]);
        let all = sent(text, Format::Ndjson, 1);
        assert_eq!(all[0], Ok(1));
        assert!(all[1].as_ref().unwrap_err().starts_with("line 2"));
        assert_eq!(all.len(), 2, "nothing behind a malformed line is stored");
    }

    #[test]
    fn a_bad_row_that_reaches_beyond_the_first_line_wanted_is_not_skipped() {
        let text = "key,value\na,\"1\nb,\"2\nc,3\n";
        for from_line in [2, 3] {
            let all = sent(text, Format::Csv, from_line);
            assert!(
                all[0].as_ref().unwrap_err().starts_with("line 2"),
                "{all:?}"
            );
        }
        assert_eq!(sent(text, Format::Csv, 4), [Ok(4)]);
    }

    #[test]
    fn the_header_is_read_whatever_line_comes_first() {
        assert_eq!(sent("value,key\n1,a\n2,b\n", Format::Csv, 3), [Ok(3)]);
        let without = sent("a,1\nkey,value\nb,2\n", Format::Csv, 3);
        assert!(without[0].as_ref().unwrap_err().contains("--no-header"));
    }

    #[test]
    fn bad_rows_are_set_aside_as_they_were_and_the_others_are_sent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bad");
        let aside = Aside::create(&path, "f.csv").unwrap();
        let count = aside.counter();
        let text = "key,value\r\na,1\r\nb,\"x\"y\r\nc,\"1\n2\",\r\nd,4\r\ne,\"5";
        assert_eq!(sent_with(text, Format::Csv, 1, Some(aside)), [Ok(2), Ok(6)]);
        assert_eq!(count.load(Ordering::Relaxed), 3);
        let expected = "\
# f.csv, line 3: text after a closing quote: inside quotes, write a quote twice
b,\"x\"y\r
# f.csv, line 4: 3 cells instead of 2
c,\"1
2\",\r
# f.csv, line 7: the quote that opens here is never closed
e,\"5
";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        let refused = Aside::create(&path, "f.csv").unwrap_err();
        assert!(refused.line().contains("is not empty"), "{refused}");
    }

    #[test]
    fn without_a_header_no_row_can_be_told_and_none_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let aside = Aside::create(&dir.path().join("bad"), "f.csv").unwrap();
        let count = aside.counter();
        let all = sent_with("a,1\nb,2\n", Format::Csv, 1, Some(aside));
        assert!(all[0].as_ref().unwrap_err().contains("--no-header"));
        assert_eq!((all.len(), count.load(Ordering::Relaxed)), (1, 0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_bad_row_that_cannot_be_set_aside_ends_the_load() {
        let aside = Aside::create(Path::new("/dev/full"), "f.csv").unwrap();
        let all = sent_with("key,value\na\nb,2\n", Format::Csv, 1, Some(aside));
        assert_eq!(all.len(), 1);
        let error = all[0].as_ref().unwrap_err();
        assert!(error.contains("cannot write to /dev/full"), "{error}");
    }
}
