//! The keys, as a file on the disk.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use torc_record::{Digest, DigestKey, NamespaceId};

use crate::records::Random;

const URL_LEN: usize = 64;
const KEY: DigestKey = DigestKey([7; 32]);

/// The kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// 16 bytes.
    Digests,
    /// A line of 64 bytes, including its line feed.
    Urls,
}

impl Kind {
    pub(super) const fn row_len(self) -> usize {
        match self {
            Self::Digests => size_of::<Digest>(),
            Self::Urls => URL_LEN,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Digests => "digests",
            Self::Urls => "urls",
        }
    }

    fn digest(self, row: &[u8]) -> Digest {
        match self {
            Self::Digests => {
                let mut bytes = [0; 16];
                bytes.copy_from_slice(row);
                Digest(bytes)
            }
            // Without the line feed.
            Self::Urls => Digest::of(&KEY, NamespaceId::DEFAULT, &row[..URL_LEN - 1]),
        }
    }
}

/// A file of keys.
#[derive(Debug)]
pub(super) struct Input {
    path: PathBuf,
    kind: Kind,
    keys: u64,
}

impl Input {
    /// Writes the file.
    pub(super) fn create(dir: &Path, kind: Kind, keys: u64) -> Result<Self> {
        let path = dir.join("input");
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&path)?);
        let mut random = Random::of(keys);
        let mut line = String::new();
        for key in 0..keys {
            match kind {
                Kind::Digests => {
                    out.write_all(&random.next().to_be_bytes())?;
                    out.write_all(&random.next().to_be_bytes())?;
                }
                Kind::Urls => {
                    line.clear();
                    let (site, page) = (random.below(100_000), random.next());
                    write!(
                        line,
                        "https://www.site{site:05}.example/p/{key:010}/{page:016x}"
                    )?;
                    line.truncate(URL_LEN - 1);
                    let pad = URL_LEN - 1 - line.len();
                    line.extend(std::iter::repeat_n('-', pad));
                    line.push('\n');
                    out.write_all(line.as_bytes())?;
                }
            }
        }
        out.into_inner()?.sync_all()?;
        Ok(Self { path, kind, keys })
    }

    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) const fn keys(&self) -> u64 {
        self.keys
    }

    /// Splits the input into `parts`, reads them in parallel, and passes their digests to `take`,
    /// those of at most `at_once` rows at a time, each with the number of its part.
    pub(super) fn each_part(
        &self,
        parts: usize,
        at_once: usize,
        take: impl Fn(usize, &[Digest]) -> Result<()> + Sync,
    ) -> Result<()> {
        let file = File::open(&self.path).context("the input cannot be opened")?;
        let (file, take) = (&file, &take);
        let border = |part: usize| self.keys * part as u64 / parts as u64;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..parts)
                .map(|part| {
                    let rows = border(part)..border(part + 1);
                    scope.spawn(move || {
                        self.read(file, rows, at_once, |digests| take(part, digests))
                    })
                })
                .collect();
            for thread in threads {
                let ended = thread.join();
                ended.map_err(|_| anyhow::anyhow!("a reader panicked"))??;
            }
            Ok(())
        })
    }

    fn read(
        &self,
        file: &File,
        rows: std::ops::Range<u64>,
        at_once: usize,
        mut take: impl FnMut(&[Digest]) -> Result<()>,
    ) -> Result<()> {
        let row_len = self.kind.row_len();
        let (mut bytes, mut digests) = (vec![0; at_once * row_len], Vec::with_capacity(at_once));
        let mut at = rows.start;
        while at < rows.end {
            let count = (rows.end - at).min(at_once as u64) as usize;
            let bytes = &mut bytes[..count * row_len];
            file.read_exact_at(bytes, at * row_len as u64)?;
            digests.clear();
            digests.extend(bytes.chunks_exact(row_len).map(|row| self.kind.digest(row)));
            take(&digests)?;
            at += count as u64;
        }
        Ok(())
    }
}
