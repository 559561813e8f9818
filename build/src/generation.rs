//! Reading a generation where it was built.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use torc_record::{DigestKey, State};
use torc_store::PartitionSummary;
use torc_store::bulk::SliceFile;

use crate::manifest::Manifest;
use crate::{BuildError, SlicesEntry};

/// How closely a generation is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// That every file is there and has its length.
    Names,
    /// Also the digest of every file.
    Bytes,
    /// Also that every record is as it was written, and that every key is found.
    Records,
}

/// A generation in a directory: its indexes in memory, about three bytes a key, its records in their
/// files.
#[derive(Debug)]
pub struct Generation {
    manifest: Manifest,
    /// In the order of the manifest.
    files: Vec<SliceFile>,
}

impl Generation {
    /// Opens the generation of a directory.
    ///
    /// # Errors
    /// [`BuildError::NoGeneration`], [`BuildError::Io`], [`BuildError::Store`].
    pub fn open(dir: &Path) -> Result<Self, BuildError> {
        let manifest = Manifest::read(dir)?;
        let open = |entry: &SlicesEntry| open_file(dir, &manifest, entry);
        let files: Result<Vec<_>, _> = manifest.files.iter().map(open).collect();
        Ok(Self {
            files: files?,
            manifest,
        })
    }

    /// What it is.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Bytes of memory that its indexes take.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        self.files.iter().map(SliceFile::index_bytes).sum()
    }

    /// The value of a key. One read of a file where there is one, none where there is none but for
    /// the share of strangers that the gates let through.
    ///
    /// # Errors
    /// [`BuildError::Store`]: what lies there is damaged, or the disk cannot read it.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BuildError> {
        let target = &self.manifest.target;
        let digest = target.digest(key);
        let partition = target.partition(&digest).0;
        let files = self.manifest.files.iter().zip(&self.files);
        let mut holding = files.filter(|(entry, _)| {
            (entry.first_partition..=entry.last_partition).contains(&partition)
        });
        let found = holding.find_map(|(_, file)| {
            let found = file.get(target.namespace, &digest, key);
            found.transpose()
        });
        Ok(found.transpose()?.and_then(|record| match record.state {
            State::Value { value, .. } => Some(value),
            State::Tombstone => None,
        }))
    }

    /// Looks at a generation, file by file; memory is that of one file's indexes.
    ///
    /// # Errors
    /// The first file that is missing or not as it was written is named: [`BuildError::NoGeneration`],
    /// [`BuildError::Store`], [`BuildError::Io`].
    pub fn verify(dir: &Path, depth: Depth) -> Result<Manifest, BuildError> {
        let manifest = Manifest::read(dir)?;
        let mut found = PartitionSummary::default();
        for entry in &manifest.files {
            check_file(dir, entry, depth)?;
            if depth == Depth::Records {
                let file = open_file(dir, &manifest, entry)?;
                let key = DigestKey(manifest.target.digest_key);
                let digest_of =
                    |namespace, bytes: &[u8]| Some(torc_record::Digest::of(&key, namespace, bytes));
                let summary = file.verify(digest_of)?;
                found.records += summary.records;
                found.payload_bytes += summary.payload_bytes;
                found.fingerprint = found.fingerprint.wrapping_add(summary.fingerprint);
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

fn open_file(
    dir: &Path,
    manifest: &Manifest,
    entry: &SlicesEntry,
) -> Result<SliceFile, BuildError> {
    let path = dir.join(entry.name());
    Ok(SliceFile::open(
        &path,
        manifest.target.partitions,
        &entry.info(),
    )?)
}

fn check_file(dir: &Path, entry: &SlicesEntry, depth: Depth) -> Result<(), BuildError> {
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
            "its file {} is damaged: its digest is another",
            entry.name()
        )));
    }
    Ok(())
}
