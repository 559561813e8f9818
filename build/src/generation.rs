//! Reads a generation in the directory where it was built.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use torc_record::{Digest, DigestKey, State};
use torc_ring::Partition;
use torc_store::bulk::SliceFile;

use crate::manifest::{FileEntry, Manifest};
use crate::shape::Shape;
use crate::{BuildError, Sums};

/// How thoroughly to check a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Every file exists and has its length.
    Names,
    /// Also the digest of every file.
    Bytes,
    /// Also that every record is unchanged, and that lookups find every key.
    Records,
}

/// A generation's answer for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The key is certainly absent.
    Absent,
    /// The value; certain.
    Value(Bytes),
    /// The id, of a generation of the shape [`Shape::Ids`]; certain.
    Id(u64),
    /// Probably present, with the error rate [`Shape::false_positive_rate`].
    Probably {
        /// A number that identifies the key in this generation, below the number of keys.
        id: u64,
        /// Its payload.
        payload: Bytes,
    },
}

/// A generation in a directory: indexes in memory, about three bytes per key, values and payloads
/// in files.
#[derive(Debug)]
pub struct Generation {
    manifest: Manifest,
    /// In the order of the manifest.
    files: Vec<SliceFile>,
    /// The number of keys in earlier partitions, by partition.
    first: BTreeMap<Partition, u64>,
}

impl Generation {
    /// Opens the generation of a directory.
    ///
    /// # Errors
    /// [`BuildError::NoGeneration`], [`BuildError::Io`], [`BuildError::Store`].
    pub fn open(dir: &Path) -> Result<Self, BuildError> {
        let manifest = Manifest::read(dir)?;
        let files = manifest.files.iter();
        let files = files.map(|entry| open_file(dir, &manifest, entry));
        let files = files.collect::<Result<_, _>>()?;
        let mut count = 0_u64;
        let first = manifest.slices().map(|slice| {
            let first = count;
            count = count.saturating_add(u64::from(slice.records));
            (slice.partition, first)
        });
        let first = first.collect();
        Ok(Self {
            manifest,
            files,
            first,
        })
    }

    /// Its manifest.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Bytes of memory that its indexes take.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        self.files.iter().map(SliceFile::index_bytes).sum()
    }

    /// Looks up a key. Costs one read of a file if there is a value or payload, and none for an
    /// absent key, except for the false positives of gates or fingerprints.
    ///
    /// # Errors
    /// [`BuildError::Store`], [`BuildError::Io`]: the data is damaged, or the disk cannot read it.
    pub fn get(&self, key: &[u8]) -> Result<Answer, BuildError> {
        let target = &self.manifest.target;
        let at = target.locator(key);
        let partition = target.partition(&at.digest);
        let Some(file) = self.file(partition) else {
            return Ok(Answer::Absent);
        };
        let found = file.get(at)?;
        let Some(State::Value { value, .. }) = found.map(|record| record.state) else {
            return Ok(Answer::Absent);
        };
        let id = || {
            let first = self.first.get(&partition).copied().unwrap_or_default();
            let slot = file.slot(at.id()).unwrap_or_default();
            first + slot as u64
        };
        Ok(match self.manifest.shape {
            Shape::Values => Answer::Value(value),
            Shape::Ids => Answer::Id(id()),
            Shape::Keyless { .. } => Answer::Probably {
                id: id(),
                payload: value,
            },
        })
    }

    /// The key with an id, of a generation of the shape [`Shape::Ids`]; `None` for any other id.
    /// One read.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn key_of(&self, id: u64) -> Result<Option<Bytes>, BuildError> {
        let at = self.first.iter().rfind(|(_, first)| **first <= id);
        let Some((partition, first)) = at else {
            return Ok(None);
        };
        let slot = u32::try_from(id - first).ok();
        let Some((slot, file)) = slot.zip(self.file(*partition)) else {
            return Ok(None);
        };
        let found = file.numbered(*partition, slot)?;
        Ok(found.map(|record| record.key.into_bytes()))
    }

    fn file(&self, partition: Partition) -> Option<&SliceFile> {
        let entries = self.manifest.files.iter().zip(&self.files);
        let mut holding = entries.filter(|(entry, _)| {
            (entry.first_partition..=entry.last_partition).contains(&partition.0)
        });
        holding.next().map(|(_, file)| file)
    }

    /// Checks a generation file by file; uses the memory of one file's indexes.
    ///
    /// # Errors
    /// Names the first file that is missing or has changed: [`BuildError::NoGeneration`],
    /// [`BuildError::Store`], [`BuildError::Io`].
    pub fn verify(dir: &Path, depth: Depth) -> Result<Manifest, BuildError> {
        let manifest = Manifest::read(dir)?;
        let mut found = Sums::default();
        for entry in &manifest.files {
            check_file(dir, entry, depth)?;
            if depth == Depth::Records {
                found.merge(&check_records(dir, &manifest, entry)?);
            }
        }
        let found = (found.records, found.payload_bytes, found.fingerprint);
        let wanted = (
            manifest.records,
            manifest.payload_bytes,
            manifest.fingerprint,
        );
        if depth == Depth::Records && found != wanted {
            return Err(BuildError::SumsDiffer {
                dir: dir.to_owned(),
                what: "of all files",
            });
        }
        Ok(manifest)
    }
}

fn open_file(dir: &Path, manifest: &Manifest, entry: &FileEntry) -> Result<SliceFile, BuildError> {
    let path = dir.join(entry.name());
    Ok(SliceFile::open(
        &path,
        manifest.target.partitions,
        &entry.info(),
    )?)
}

/// Checks that every record of a file is unchanged; returns the sums.
fn check_records(dir: &Path, manifest: &Manifest, entry: &FileEntry) -> Result<Sums, BuildError> {
    let file = open_file(dir, manifest, entry)?;
    let key = DigestKey(manifest.target.digest_key);
    let summary = file.verify(|namespace, bytes| Some(Digest::with(&key, namespace, bytes)))?;
    Ok(Sums {
        records: summary.records,
        payload_bytes: summary.payload_bytes,
        fingerprint: summary.fingerprint,
        ..Sums::default()
    })
}

pub(crate) fn check_file(dir: &Path, entry: &FileEntry, depth: Depth) -> Result<(), BuildError> {
    let path: PathBuf = dir.join(entry.name());
    let none = |what: String| BuildError::NoGeneration {
        dir: dir.to_owned(),
        what,
    };
    let found = match std::fs::metadata(&path) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(none(format!("its file {} is missing", entry.name())));
        }
        Err(error) => return Err(BuildError::io("read", &path)(error)),
    };
    if found.len() != entry.len {
        let (name, found, wanted) = (entry.name(), found.len(), entry.len);
        return Err(none(format!(
            "its file {name} has {found} bytes instead of {wanted}"
        )));
    }
    if depth == Depth::Names {
        return Ok(());
    }
    let mut hasher = blake3::Hasher::new();
    let read = std::fs::File::open(&path).and_then(|file| hasher.update_reader(file).map(|_| ()));
    read.map_err(BuildError::io("read", &path))?;
    if hasher.finalize().as_bytes() != &entry.digest {
        return Err(none(format!(
            "its file {} is damaged: its digest does not match",
            entry.name()
        )));
    }
    Ok(())
}
