//! Generations in object stores.
//!
//! | object | holds |
//! |---|---|
//! | `HEX.part` | a file of the generation; `HEX` is BLAKE3 of its bytes |
//! | `generation-NNNNNN-ID.json` | written last: the manifest, its number, and the start of its digest |
//!
//! The id in its name makes a manifest's name its own: two writers that choose one number write two
//! objects, and a repeated upload finds the manifest that it wrote before. So nothing depends on
//! conditional writes, which not every store has.

use std::cell::Cell;
use std::future::ready;
use std::path::Path;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use torc_objects::{Location, ObjectError};
use torc_record::{Digest, DigestKey, to_usize};
use torc_store::bulk::LooseSlice;

use crate::generation::check_file;
use crate::manifest::{FileEntry, Manifest, SliceEntry, newest, numbered_name, parse_name};
use crate::{BuildError, Depth, MANIFEST_FILE, source_of};

/// Files that are sent or read at a time.
const TOGETHER: usize = 4;
/// Bytes of a file that are read at a time.
const PIECE: u64 = 8 << 20;
/// Limit of a slice that is checked in memory, bytes.
const LONGEST_SLICE: u64 = 8 << 30;
/// Names that a manifest tries, if something else has them.
const ATTEMPTS: u64 = 16;

/// A complete generation at a location of objects.
#[derive(Debug, Clone)]
pub struct Published {
    location: Location,
    url: String,
    manifest: Manifest,
}

impl Published {
    /// Reads the manifest that a URL names, or the newest one at a location.
    ///
    /// # Errors
    /// [`BuildError::NoGeneration`], [`BuildError::TwoNewest`], [`BuildError::Objects`].
    pub async fn open(url: &str) -> Result<Self, BuildError> {
        let url = url.trim_end_matches('/');
        let (base, mut object) = source_of(url);
        let location = Location::open(base)?;
        let listed;
        if base == url {
            listed = location.names().await?;
            let newest = newest(Path::new(base), listed.iter().map(String::as_str))?;
            object = newest.unwrap_or(MANIFEST_FILE);
        }
        Self::read(location, base, object).await
    }

    async fn read(location: Location, base: &str, object: &str) -> Result<Self, BuildError> {
        let text = location.read(object, Manifest::MAX_LEN).await?;
        let text = text.ok_or_else(|| BuildError::NoGeneration {
            dir: base.into(),
            what: format!("it has no {object}"),
        })?;
        Ok(Self {
            manifest: Manifest::parse(&text, Path::new(base), object)?,
            location,
            url: format!("{base}/{object}"),
        })
    }

    /// Sends the generation of a directory to a location: its files, except those that are there,
    /// then the manifest. A file that is there is read back, and replaced if it is damaged: so a
    /// repeated call reads at most what the earlier ones have sent. `sent` hears of the bytes of each
    /// file that is there.
    ///
    /// # Errors
    /// [`BuildError::NoGeneration`]; [`BuildError::Complete`] if a build is at the location;
    /// [`BuildError::Objects`]. A repeated call continues.
    pub async fn publish(dir: &Path, url: &str, sent: impl Fn(u64)) -> Result<Self, BuildError> {
        Self::publish_at(dir, Location::open(url)?, sent).await
    }

    /// [`publish`](Self::publish) to a location that is already open.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub async fn publish_at(
        dir: &Path,
        location: Location,
        sent: impl Fn(u64),
    ) -> Result<Self, BuildError> {
        let manifest = Manifest::read(dir)?;
        check_place(&location, None, true).await?;
        let (to, sent, has_failed) = (&location, &sent, Cell::new(false));
        let sending = stream::iter(&manifest.files).map(async |entry| {
            // After a failure none is begun, and none is dropped: that would leave an unfinished upload.
            if has_failed.get() {
                return Ok(());
            }
            let done = send(to, dir, entry).await;
            has_failed.set(has_failed.get() || done.is_err());
            done.map(|()| sent(entry.len))
        });
        let all: Vec<Result<(), BuildError>> = sending.buffer_unordered(TOGETHER).collect().await;
        all.into_iter().collect::<Result<(), _>>()?;
        Self::write(location, manifest).await
    }

    /// Makes files that were sent a generation, unless one is missing or has another length.
    pub(crate) async fn commit(
        location: Location,
        manifest: Manifest,
        may_have_others: bool,
    ) -> Result<Self, BuildError> {
        check_place(&location, Some(&manifest), may_have_others).await?;
        // Listed first, so that the future can go to another thread.
        let checks = manifest.files.iter();
        let checks: Vec<_> = checks
            .map(|entry| check_object(&location, entry, Depth::Names))
            .collect();
        let checks = stream::iter(checks).buffer_unordered(TOGETHER);
        checks.try_for_each(|()| ready(Ok(()))).await?;
        Self::write(location, manifest).await
    }

    /// Writes the manifest, after all files.
    async fn write(location: Location, manifest: Manifest) -> Result<Self, BuildError> {
        let object = write_manifest(&location, &manifest).await?;
        Ok(Self {
            url: format!("{}/{object}", location.url()),
            location,
            manifest,
        })
    }

    /// The URL of its manifest, which nodes and `open` take.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its manifest.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Checks its files. Of a file, 8 MiB are in memory, or a slice if `depth` is
    /// [`Depth::Records`]. It does not add up the records, as [`Generation::verify`] does: each slice
    /// has the digest that the manifest states.
    ///
    /// [`Generation::verify`]: crate::Generation::verify
    ///
    /// # Errors
    /// [`BuildError::Objects`] names the first object that is missing or damaged.
    pub async fn verify(&self, depth: Depth) -> Result<(), BuildError> {
        stream::iter(&self.manifest.files)
            .map(async |entry| {
                check_object(&self.location, entry, depth).await?;
                if depth == Depth::Records {
                    self.check_records(entry).await?;
                }
                Ok(())
            })
            .buffer_unordered(TOGETHER)
            .try_collect()
            .await
    }

    /// Checks that every record is intact, and that lookups find it.
    async fn check_records(&self, entry: &FileEntry) -> Result<(), ObjectError> {
        let (name, target) = (entry.name(), &self.manifest.target);
        let key = DigestKey(target.digest_key);
        for run in SliceEntry::runs(entry.slices.iter().copied(), PIECE) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else {
                continue;
            };
            let damaged = |what: &str| ObjectError::damaged(&name, what);
            if last.len > LONGEST_SLICE {
                return Err(damaged("a slice has more than 8 GiB"));
            }
            let end = last.at.checked_add(last.len);
            let end = end.filter(|end| *end <= entry.len);
            let range = first.at..end.ok_or_else(|| damaged("a slice has an impossible place"))?;
            let bytes = self.location.read_range(&name, range).await?;
            for slice in &run {
                let of = |what: &str| {
                    let what = format!("the slice of partition {}: {what}", slice.partition);
                    ObjectError::damaged(&name, what)
                };
                let at = to_usize(slice.at - first.at);
                let bytes = bytes.slice(at..at + to_usize(slice.len));
                let read = LooseSlice::new(bytes, &slice.digest).map_err(of)?;
                if read.partition() != slice.partition || read.partitions() != target.partitions {
                    return Err(of("it is of another partition"));
                }
                let digest_of =
                    |namespace, bytes: &[u8]| Some(Digest::with(&key, namespace, bytes));
                read.verify(digest_of).map_err(of)?;
            }
        }
        Ok(())
    }
}

/// Refuses a location with a build, which readers of its path would take, or with generations other than its
/// own, unless it may have them.
pub(crate) async fn check_place(
    location: &Location,
    own: Option<&Manifest>,
    may_have_others: bool,
) -> Result<(), BuildError> {
    let own = own.map(id_of);
    let is_other = |name: &str| parse_name(name).is_some_and(|(_, id)| own.as_deref() != Some(id));
    let names = location.names().await?;
    let is_taken = |name: &str| name == MANIFEST_FILE || (!may_have_others && is_other(name));
    if names.iter().map(String::as_str).any(is_taken) {
        return Err(BuildError::Complete {
            dir: location.url().into(),
        });
    }
    Ok(())
}

/// Sends a file of a directory, unless it is there and intact. Never removes one: another attempt may have just
/// sent it.
pub(crate) async fn send(to: &Location, dir: &Path, entry: &FileEntry) -> Result<(), BuildError> {
    let name = entry.name();
    // What was damaged since it was built must not be sent.
    let is_there = to.len(&name).await? == Some(entry.len);
    let depth = if is_there { Depth::Names } else { Depth::Bytes };
    check_file(dir, entry, depth)?;
    let path = dir.join(&name);
    if to.upload(&name, &path, |_| ready(())).await? {
        return Ok(());
    }
    match check_object(to, entry, Depth::Bytes).await {
        Err(ObjectError::Damaged { .. }) => {
            check_file(dir, entry, Depth::Bytes)?;
            Ok(to.replace(&name, &path, |_| ready(())).await?)
        }
        checked => Ok(checked?),
    }
}

async fn check_object(at: &Location, entry: &FileEntry, depth: Depth) -> Result<(), ObjectError> {
    let name = entry.name();
    match at.len(&name).await? {
        None => return Err(ObjectError::damaged(&name, "it is missing")),
        Some(len) if len != entry.len => {
            let what = format!("it has {len} bytes instead of {}", entry.len);
            return Err(ObjectError::damaged(&name, what));
        }
        Some(_) if depth == Depth::Names => return Ok(()),
        Some(_) => {}
    }
    let (mut hasher, mut read) = (blake3::Hasher::new(), 0);
    while read < entry.len {
        let to = entry.len.min(read + PIECE);
        hasher.update(&at.read_range(&name, read..to).await?);
        read = to;
    }
    if hasher.finalize().as_bytes() == &entry.digest {
        return Ok(());
    }
    Err(ObjectError::damaged(&name, "its digest does not match"))
}

/// What the name of a manifest has of its digest.
fn id_of(manifest: &Manifest) -> String {
    let digest = blake3::Hash::from_bytes(manifest.digest()).to_hex();
    digest[..16].to_owned()
}

/// Creates the manifest under the next number; returns its name.
async fn write_manifest(location: &Location, manifest: &Manifest) -> Result<String, BuildError> {
    let id = &*id_of(manifest);
    let listed = location.names().await?;
    let numbers = listed.iter().filter_map(|name| parse_name(name));
    let mine = numbers.clone().filter(|(_, other)| *other == id);
    let next = numbers.map(|(number, _)| number).max();
    let next = next.unwrap_or(0).saturating_add(1);
    let first = mine.map(|(number, _)| number).max().unwrap_or(next);
    let text = bytes::Bytes::from(manifest.to_bytes());
    for number in std::iter::once(first).chain(next..next.saturating_add(ATTEMPTS)) {
        let object = numbered_name(number, id);
        // Something else under this name is damaged: it stays, and is skipped.
        if location.create(&object, text.clone()).await? {
            return Ok(object);
        }
    }
    let what = "every candidate name is already in use";
    Err(ObjectError::damaged("the manifest", what).into())
}
