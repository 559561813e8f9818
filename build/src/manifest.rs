//! The manifest of a generation: the file that is written last.

use std::path::Path;

use serde::{Deserialize, Serialize};
use torc_ring::Partition;
use torc_store::PartitionSummary;
use torc_store::bulk::SliceFileInfo;

use crate::gather::Gathered;
use crate::plan::{Plan, Target, write_durably};
use crate::shape::Shape;
use crate::sums::{Sums, hex32, hex128};
use crate::{BuildError, MANIFEST_FILE};

/// The target, totals and files of a generation. In `generation.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    /// The target of the build.
    pub target: Target,
    /// What it keeps of each row.
    pub shape: Shape,
    /// Its keys.
    pub records: u64,
    /// Bytes of keys and values.
    pub payload_bytes: u64,
    /// Sum of the records' fingerprints.
    #[serde(with = "hex128")]
    pub fingerprint: u128,
    /// Rows left out, because another row with their key was kept.
    pub duplicates: u64,
    /// Its files, in the order of their partitions.
    pub files: Vec<FileEntry>,
}

/// A file of slices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// BLAKE3 of its bytes, which is its name.
    #[serde(with = "hex32")]
    pub digest: [u8; 32],
    /// Its length, bytes.
    pub len: u64,
    /// Offset of its directory.
    pub directory_at: u64,
    /// Its first partition.
    pub first_partition: u32,
    /// The last.
    pub last_partition: u32,
    /// The sums of its records.
    pub sums: Sums,
    /// Its slices, in the order of their partitions.
    pub slices: Vec<SliceEntry>,
}

/// A slice in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceEntry {
    /// Its partition.
    pub partition: Partition,
    /// Its keys.
    pub records: u32,
    /// Where it starts in the file.
    pub at: u64,
    /// Its length, bytes.
    pub len: u64,
    /// Its digest, by which nodes recognise that they hold the same slice.
    #[serde(with = "hex32")]
    pub digest: [u8; 32],
}

/// The manifest with the digest of its own bytes.
#[derive(Serialize, Deserialize)]
struct Sealed {
    #[serde(flatten)]
    manifest: Manifest,
    #[serde(with = "hex32")]
    digest: [u8; 32],
}

const FORMAT: u32 = 2;
/// Unwanted bytes between two slices that are read to save a request.
const GAP: u64 = 16 << 10;

impl FileEntry {
    /// Its name in the directory.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}.part", blake3::Hash::from_bytes(self.digest).to_hex())
    }

    /// The facts that the reader of a file of slices needs.
    pub(crate) fn info(&self) -> SliceFileInfo {
        SliceFileInfo {
            digest: self.digest,
            len: self.len,
            table_at: self.directory_at,
            slices: u32::try_from(self.slices.len()).unwrap_or(u32::MAX),
            summary: PartitionSummary {
                records: self.sums.records,
                tombstones: 0,
                payload_bytes: self.sums.payload_bytes,
                fingerprint: self.sums.fingerprint,
            },
        }
    }
}

impl SliceEntry {
    /// Slices of a file that should be read together: neighbours, of at most `longest` bytes. A larger
    /// slice is alone.
    pub fn runs(slices: impl IntoIterator<Item = Self>, longest: u64) -> Vec<Vec<Self>> {
        let mut runs: Vec<Vec<Self>> = Vec::new();
        for slice in slices {
            let is_next = |run: &[Self]| {
                let (first, last) = (run.first()?, run.last()?);
                let gap = slice.at.checked_sub(last.at.checked_add(last.len)?)?;
                let len = slice.at.checked_add(slice.len)?.checked_sub(first.at)?;
                Some(gap <= GAP && len <= longest)
            };
            match runs.last_mut().filter(|run| is_next(run) == Some(true)) {
                Some(run) => run.push(slice),
                None => runs.push(vec![slice]),
            }
        }
        runs
    }
}

impl Manifest {
    /// Longest manifest, bytes: 65,536 slices in each of eight layers, at 200 bytes each, take less.
    pub const MAX_LEN: u64 = 1 << 28;

    /// From the results of all buckets, if their sums equal those of the rows read.
    pub(crate) fn of(
        plan: &Plan,
        dir: &Path,
        read: &Sums,
        gathered: impl IntoIterator<Item = Gathered>,
    ) -> Result<Self, BuildError> {
        let (mut sums, mut left_out) = (Sums::default(), Sums::default());
        let mut files: Vec<FileEntry> = Vec::new();
        for one in gathered {
            left_out.merge(&one.left_out);
            files.extend(one.files);
        }
        files.sort_by_key(|file| file.first_partition);
        for file in &files {
            sums.merge(&file.sums);
        }
        let mut found = left_out;
        found.merge(&sums);
        if found != *read {
            return Err(BuildError::SumsDiffer {
                dir: dir.to_owned(),
                what: "of all rows",
            });
        }
        Ok(Self {
            format: FORMAT,
            target: plan.target,
            shape: plan.shape,
            records: sums.records,
            payload_bytes: sums.payload_bytes,
            fingerprint: sums.fingerprint,
            duplicates: left_out.records,
            files,
        })
    }

    /// BLAKE3 of its content: the identity of the generation.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        // The type contains no maps, so that serialisation cannot fail and is deterministic.
        let text = serde_json::to_vec(self).unwrap_or_default();
        *blake3::hash(&text).as_bytes()
    }

    /// All slices, in the order of their partitions.
    pub fn slices(&self) -> impl Iterator<Item = &SliceEntry> + '_ {
        self.files.iter().flat_map(|file| &file.slices)
    }

    /// Bytes of its files.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }

    /// Its stored form.
    pub(crate) fn sealed(&self) -> Vec<u8> {
        let sealed = Sealed {
            manifest: self.clone(),
            digest: self.digest(),
        };
        // As in `digest`: it cannot fail.
        let mut text = serde_json::to_vec_pretty(&sealed).unwrap_or_default();
        text.push(b'\n');
        text
    }

    pub(crate) fn write(&self, dir: &Path) -> Result<(), BuildError> {
        write_durably(&dir.join(MANIFEST_FILE), &self.sealed())
    }

    /// Reads the manifest of a directory.
    ///
    /// # Errors
    /// [`BuildError::NoGeneration`]: it is missing or damaged. [`BuildError::Io`].
    pub fn read(dir: &Path) -> Result<Self, BuildError> {
        Self::read_named(dir, MANIFEST_FILE)
    }

    /// Reads the manifest with this name in a directory.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_named(dir: &Path, name: &str) -> Result<Self, BuildError> {
        let none = |what: String| BuildError::NoGeneration {
            dir: dir.to_owned(),
            what,
        };
        let path = dir.join(name);
        let read = std::fs::metadata(&path).and_then(|found| match found.len() {
            0..=Self::MAX_LEN => std::fs::read(&path).map(Some),
            _ => Ok(None),
        });
        match read {
            Ok(Some(text)) => Self::parse(&text, dir, name),
            Ok(None) => Err(none(format!("its {name} is too long"))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(none(format!("it has no {name}")))
            }
            Err(error) => Err(BuildError::io("read", &path)(error)),
        }
    }

    /// The manifest of this text, which was read as `name` in `dir`.
    ///
    /// # Errors
    /// [`BuildError::NoGeneration`]: it is damaged.
    pub fn parse(text: &[u8], dir: &Path, name: &str) -> Result<Self, BuildError> {
        let none = |what: &str| BuildError::NoGeneration {
            dir: dir.to_owned(),
            what: format!("its {name} {what}"),
        };
        let sealed: Sealed = serde_json::from_slice(text)
            .map_err(|error| none(&format!("cannot be read: {error}")))?;
        if sealed.manifest.format != FORMAT {
            return Err(none("is of another release's format"));
        }
        // Byte for byte, as some bytes mean the same as others.
        if sealed.manifest.digest() != sealed.digest || sealed.manifest.sealed() != text {
            return Err(none("is damaged: its digest does not match"));
        }
        Ok(sealed.manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_read_together_within_bounds() {
        const LONGEST: u64 = 1 << 20;
        let slices = [
            (64, 100),
            (192, 100),
            (192 + 100 + GAP, 100),
            (192 + 200 + 2 * GAP + 1, 100),
            (1 << 20, LONGEST),
            (2 << 20, 10),
            // Impossible places are not read together, whatever they are.
            (64, 100),
            (u64::MAX, u64::MAX),
            (u64::MAX, 5),
        ];
        let slices = slices.map(|(at, len)| SliceEntry {
            records: 1,
            partition: Partition(0),
            at,
            len,
            digest: [0; 32],
        });
        let runs = SliceEntry::runs(slices, LONGEST);
        let lens: Vec<_> = runs.iter().map(Vec::len).collect();
        assert_eq!(lens, [3, 1, 1, 1, 1, 1, 1]);
        assert_eq!(runs.concat(), slices);
    }
}
