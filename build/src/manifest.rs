//! The manifest of a generation: the file that is written last.

use std::path::Path;

use serde::{Deserialize, Serialize};
use torc_ring::Partition;
use torc_store::PartitionSummary;
use torc_store::bulk::SliceFileInfo;

use crate::plan::{Plan, write_durably};
use crate::shape::Shape;
use crate::sums::{Sums, hex32, hex128};
use crate::target::Target;
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

/// The result for a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gathered {
    pub(crate) files: Vec<FileEntry>,
    /// Sums of the rows left out.
    pub(crate) left_out: Sums,
}

/// The manifest with the digest of its own bytes.
#[derive(Serialize)]
struct WithDigest<'a> {
    #[serde(flatten)]
    manifest: &'a Manifest,
    #[serde(with = "hex32")]
    digest: [u8; 32],
}

/// Read in a pass of its own, because `flatten` buffers all that a stranger has written.
#[derive(Deserialize)]
struct StoredDigest {
    #[serde(with = "hex32")]
    digest: [u8; 32],
}

/// The name of a manifest at a location of objects. Its id is the start of its digest.
#[cfg(feature = "objects")]
pub(crate) fn numbered_name(number: u64, id: &str) -> String {
    format!("generation-{number:06}-{id}.json")
}

/// The number of a manifest, and its id.
pub(crate) fn parse_name(object: &str) -> Option<(u64, &str)> {
    let name = object
        .strip_prefix("generation-")?
        .strip_suffix(".json")?
        .split_once('-')?;
    Some((name.0.parse().ok()?, name.1))
}

/// The numbered manifest with the highest number, among these names at a place.
pub(crate) fn newest<'a>(
    place: &Path,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<Option<&'a str>, BuildError> {
    let named = names
        .into_iter()
        .filter_map(|name| Some((parse_name(name)?.0, name)));
    let mut named: Vec<_> = named.collect();
    named.sort_unstable();
    let newest = named.pop();
    match (newest, named.pop()) {
        (Some((number, one)), Some((same, other))) if number == same => {
            Err(BuildError::TwoNewest {
                place: place.to_owned(),
                one: one.to_owned(),
                other: other.to_owned(),
            })
        }
        _ => Ok(newest.map(|(_, name)| name)),
    }
}

const FORMAT: u32 = 3;
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
    /// Longest manifest, bytes. 65,536 partitions, each with a slice in a file of its own, take less.
    pub const MAX_LEN: u64 = 64 << 20;

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
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let stored = WithDigest {
            manifest: self,
            digest: self.digest(),
        };
        // As in `digest`: it cannot fail.
        let mut text = serde_json::to_vec_pretty(&stored).unwrap_or_default();
        text.push(b'\n');
        text
    }

    pub(crate) fn write(&self, dir: &Path) -> Result<(), BuildError> {
        write_durably(&dir.join(MANIFEST_FILE), &self.to_bytes())
    }

    /// Reads the manifest of a directory: `generation.json`, or else the newest that was sent there.
    ///
    /// # Errors
    /// [`BuildError::NoGeneration`]: it is missing or damaged. [`BuildError::TwoNewest`],
    /// [`BuildError::Io`].
    pub fn read(dir: &Path) -> Result<Self, BuildError> {
        Self::read_named(dir, &Self::name_in(dir)?)
    }

    /// The name of the manifest that [`read`](Self::read) reads.
    ///
    /// # Errors
    /// [`BuildError::TwoNewest`], [`BuildError::Io`].
    pub fn name_in(dir: &Path) -> Result<String, BuildError> {
        let mut names = Vec::new();
        if !dir.join(MANIFEST_FILE).exists() && dir.exists() {
            for entry in std::fs::read_dir(dir).map_err(BuildError::io("read", dir))? {
                let name = entry.map_err(BuildError::io("read", dir))?.file_name();
                names.extend(name.to_str().map(str::to_owned));
            }
        }
        let newest = newest(dir, names.iter().map(String::as_str))?;
        Ok(newest.unwrap_or(MANIFEST_FILE).to_owned())
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
        let unreadable = |error| none(&format!("cannot be read: {error}"));
        let stored: StoredDigest = serde_json::from_slice(text).map_err(unreadable)?;
        let manifest: Self = serde_json::from_slice(text).map_err(unreadable)?;
        if manifest.format != FORMAT {
            return Err(none("is of another release's format"));
        }
        // Byte for byte, as some bytes mean the same as others.
        if manifest.digest() != stored.digest || manifest.to_bytes() != text {
            return Err(none("is damaged: its digest does not match"));
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_manifest_can_be_read() {
        let slice = SliceEntry {
            partition: Partition(u32::MAX),
            records: u32::MAX,
            at: u64::MAX,
            len: u64::MAX,
            digest: [0xff; 32],
        };
        let most = u64::MAX;
        let file = FileEntry {
            digest: [0xff; 32],
            len: most,
            directory_at: most,
            first_partition: u32::MAX,
            last_partition: u32::MAX,
            sums: Sums {
                records: most,
                payload_bytes: most,
                packed_bytes: most,
                fingerprint: u128::MAX,
                checksum: most,
            },
            slices: vec![slice],
        };
        let count = torc_ring::Partitions::MAX_COUNT as usize;
        let manifest = Manifest {
            format: FORMAT,
            target: Target::offline([0xff; 32]),
            shape: Shape::Values,
            records: most,
            payload_bytes: most,
            fingerprint: u128::MAX,
            duplicates: most,
            files: vec![file; count],
        };
        let text = manifest.to_bytes();
        assert!((text.len() as u64) < Manifest::MAX_LEN, "{}", text.len());
        let parsed = Manifest::parse(&text, Path::new("dir"), "name").unwrap();
        assert!(parsed == manifest);
    }

    #[test]
    fn the_newest_of_numbered_manifests_is_one() {
        let of = |names: &[&'static str]| newest(Path::new("place"), names.iter().copied());
        let names = [
            "generation-000009-ff.json",
            "generation-000010-aa.json",
            "generation.json",
            "aa.part",
        ];
        assert_eq!(of(&names).unwrap(), Some(names[1]));
        assert_eq!(of(&names[2..]).unwrap(), None);
        let two = of(&["generation-10-b.json", names[1]]).unwrap_err();
        assert!(matches!(two, BuildError::TwoNewest { .. }), "{two}");
    }

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
