//! Reads a generation in the directory where it was built.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use torc_record::{Digest, DigestKey, State};
use torc_store::bulk::SliceFile;

use crate::keyless::{KeylessFile, Layout};
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
    /// In the order of the manifest, each with the number of keys before it.
    files: Vec<(u64, PartFile)>,
}

#[derive(Debug)]
enum PartFile {
    Slices(SliceFile),
    Keyless(KeylessFile),
}

impl Generation {
    /// Opens the generation of a directory.
    ///
    /// # Errors
    /// [`BuildError::NoGeneration`], [`BuildError::Io`], [`BuildError::Store`].
    pub fn open(dir: &Path) -> Result<Self, BuildError> {
        let manifest = Manifest::read(dir)?;
        let mut first = 0_u64;
        let mut files = Vec::with_capacity(manifest.files.len());
        for entry in &manifest.files {
            files.push((first, open_file(dir, &manifest, entry)?));
            first = first.saturating_add(entry.sums.records);
        }
        Ok(Self { manifest, files })
    }

    /// Its manifest.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Bytes of memory that its indexes take.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        let bytes = |(_, file): &(u64, PartFile)| match file {
            PartFile::Slices(file) => file.index_bytes(),
            PartFile::Keyless(file) => file.index_bytes(),
        };
        self.files.iter().map(bytes).sum()
    }

    /// Looks up a key. Costs one read of a file if there is a value or payload, and none for an
    /// absent key, except for the false positives of gates or fingerprints.
    ///
    /// # Errors
    /// [`BuildError::Store`], [`BuildError::Io`]: the data is damaged, or the disk cannot read it.
    pub fn get(&self, key: &[u8]) -> Result<Answer, BuildError> {
        let target = &self.manifest.target;
        let digest = target.digest(key);
        let partition = target.partition(&digest);
        let entries = self.manifest.files.iter().zip(&self.files);
        let holding = entries.filter(|(entry, _)| {
            (entry.first_partition..=entry.last_partition).contains(&partition.0)
        });
        for (_, (first, file)) in holding {
            match file {
                PartFile::Slices(file) => {
                    let found = file.get(target.namespace, &digest, key)?;
                    if let Some(State::Value { value, .. }) = found.map(|record| record.state) {
                        return Ok(Answer::Value(value));
                    }
                }
                PartFile::Keyless(file) => {
                    if let Some((slot, payload)) = file.find(partition, &digest)? {
                        let id = first + slot;
                        return Ok(Answer::Probably { id, payload });
                    }
                }
            }
        }
        Ok(Answer::Absent)
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

fn open_file(dir: &Path, manifest: &Manifest, entry: &FileEntry) -> Result<PartFile, BuildError> {
    let path = dir.join(entry.name());
    let partitions = manifest.target.partitions;
    match manifest.shape {
        Shape::Values => {
            let file = SliceFile::open(&path, partitions, &entry.info())?;
            Ok(PartFile::Slices(file))
        }
        Shape::Keyless {
            fingerprint_bits,
            payload_bytes,
        } => {
            let layout = Layout {
                partitions: partitions.count(),
                fingerprint_bits: u32::from(fingerprint_bits),
                payload_bytes: usize::from(payload_bytes),
            };
            let file = KeylessFile::open(&path, layout, entry)?;
            Ok(PartFile::Keyless(file))
        }
    }
}

/// Checks that every record of a file is unchanged; returns the sums.
fn check_records(dir: &Path, manifest: &Manifest, entry: &FileEntry) -> Result<Sums, BuildError> {
    match open_file(dir, manifest, entry)? {
        PartFile::Keyless(file) => {
            file.verify()?;
            Ok(entry.sums)
        }
        PartFile::Slices(file) => {
            let key = DigestKey(manifest.target.digest_key);
            let summary =
                file.verify(|namespace, bytes| Some(Digest::with(&key, namespace, bytes)))?;
            Ok(Sums {
                records: summary.records,
                payload_bytes: summary.payload_bytes,
                fingerprint: summary.fingerprint,
                ..Sums::default()
            })
        }
    }
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
