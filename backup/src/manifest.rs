//! The plan and manifest of a backup.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::ops::Range;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};
use torc_build::Shape;
use torc_objects::ObjectError;
use torc_record::{DigestKey, GenerationDigests, NamespaceId};
use torc_ring::Partition;

use crate::{BackupError, Location};

const FORMAT: u32 = 6;
const LONGEST_NAME: usize = 64;
const LONGEST_PLAN: u64 = 16 << 20;
/// 200 bytes and some 15 for each namespace, for each of 65,536 slices in each of eight layers, several times
/// over.
const LONGEST_MANIFEST: u64 = 1 << 30;
const LONGEST_FOOT: u64 = 1024;
/// Concurrent requests for objects.
const TOGETHER: usize = 16;
const MANIFEST: &str = "manifest.ndjson";

/// What to back up, decided once, at the start of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    format: u32,
    /// The backup's name: its start time, so names sort by time.
    pub name: String,
    /// The cluster.
    pub cluster: String,
    /// The cluster's digest key.
    #[serde(with = "hex32")]
    pub digest_key: [u8; 32],
    /// Partitions per layer of the cluster.
    pub partitions: u32,
    /// The partitions in use, as ranges of first and last number.
    pub ranges: Vec<[u32; 2]>,
    /// The namespaces.
    pub namespaces: Vec<Namespace>,
    /// Its start, Unix milliseconds by the clock of the machine that ran `kvctl`.
    pub begun_ms: u64,
    /// The earlier backup whose slices it reuses.
    pub base: Option<String>,
    /// Whether it contains only records of these namespaces.
    pub only: bool,
    /// Drawn when the backup begins: two writers of one name can tell which of them created it, even
    /// if the answer was lost.
    write_id: u64,
}

/// A namespace at the time of the backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// Its id, or that of the current generation of a static one.
    pub id: u32,
    /// `linearizable`, `eventual` or `static`.
    pub mode: String,
    /// Replicas of each key.
    pub replicas: u32,
    /// The current generation of a static one, if it has one.
    pub generation: Option<Generation>,
}

/// The generation of a static namespace. Its slices are those with records of the namespace's id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// What it keeps of each key.
    pub shape: Shape,
    /// Its keys.
    pub records: u64,
    /// Bytes of its keys and values.
    pub payload_bytes: u64,
    /// The key of its digests.
    #[serde(with = "hex32")]
    pub digest_key: [u8; 32],
    /// The id that is hashed with each key: its own, unless it was restored without its keys.
    pub digest_id: u32,
}

impl Generation {
    /// How its digests are computed.
    #[must_use]
    pub const fn digests(&self) -> GenerationDigests {
        GenerationDigests {
            key: DigestKey(self.digest_key),
            id: NamespaceId(self.digest_id),
        }
    }
}

/// The slices of a partition in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Which.
    pub partition: u32,
    /// An epoch that no ballot in the slices is above.
    pub epoch: u64,
    /// Slices; the record of a key with the highest ballot wins.
    pub slices: Vec<PackSlice>,
}

/// A slice in a pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackSlice {
    /// BLAKE3 of the pack, which is its name.
    #[serde(with = "hex32")]
    pub pack: [u8; 32],
    /// Offset of the slice in the pack.
    pub at: u64,
    /// Its length, bytes.
    pub len: u64,
    /// BLAKE3 of the slice without its last 32 bytes, which are this digest.
    #[serde(with = "hex32")]
    pub digest: [u8; 32],
    /// Its records by the id of their namespace, tombstones and superseded ones included.
    pub records: Vec<(u32, u64)>,
}

impl PackSlice {
    /// The number of its records.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.records.iter().map(|(_, records)| records).sum()
    }

    /// Whether it has records of one of these namespaces.
    #[must_use]
    pub fn holds(&self, wanted: &BTreeSet<NamespaceId>) -> bool {
        let mut held = self.records.iter();
        held.any(|(id, _)| wanted.contains(&NamespaceId(*id)))
    }

    pub(crate) fn object(&self) -> String {
        pack_object(&self.pack)
    }

    pub(crate) const fn range(&self) -> Range<u64> {
        self.at..self.at.saturating_add(self.len)
    }
}

pub(crate) fn pack_object(digest: &[u8; 32]) -> String {
    let digest = blake3::Hash::from_bytes(*digest);
    format!("packs/{}.pack", digest.to_hex())
}

/// Totals of a backup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Partitions with records.
    pub partitions: u64,
    /// Slices.
    pub slices: u64,
    /// Records in them, superseded ones and tombstones included.
    pub records: u64,
    /// Bytes of the slices.
    pub bytes: u64,
    /// An epoch that no ballot in the backup is above.
    pub epoch: u64,
}

/// The last line of a manifest. A listing reads no other line, so it has a digest of its own.
#[derive(Serialize, Deserialize)]
struct Foot {
    sums: Sums,
    /// BLAKE3 of everything before this line.
    #[serde(with = "hex32")]
    before: [u8; 32],
    /// BLAKE3 of the sums and of `before`.
    #[serde(with = "hex32")]
    digest: [u8; 32],
}

impl Foot {
    fn of(before: &[u8], sums: Sums) -> Self {
        Self::with(*blake3::hash(before).as_bytes(), sums)
    }

    fn with(before: [u8; 32], sums: Sums) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&line_of(&sums)).update(&before);
        let digest = *hasher.finalize().as_bytes();
        Self {
            sums,
            before,
            digest,
        }
    }

    /// Reads the last line of a manifest, with the line end.
    fn parse(object: &str, line: &[u8]) -> Result<Self, BackupError> {
        let damaged = |what: String| BackupError::damaged(object, format!("its last line: {what}"));
        let foot: Self =
            serde_json::from_slice(line).map_err(|error| damaged(error.to_string()))?;
        // Byte for byte: a digit may have two forms.
        if line_of(&Self::with(foot.before, foot.sums)) != line {
            return Err(damaged("its digest does not match".to_owned()));
        }
        Ok(foot)
    }
}

/// The last line of a plan.
#[derive(Serialize)]
struct Seal {
    /// BLAKE3 of the line before.
    #[serde(with = "hex32")]
    digest: [u8; 32],
}

/// One line of a plan, a part, or a manifest.
fn line_of(what: &impl Serialize) -> Vec<u8> {
    // Of types without maps: it cannot fail.
    let mut text = serde_json::to_vec(what).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Checks that a name is a valid object name everywhere, and not a path.
fn check_name(name: &str) -> Result<(), BackupError> {
    let fits = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    if (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(fits) {
        return Ok(());
    }
    Err(BackupError::Name {
        name: name.chars().take(LONGEST_NAME).collect(),
        what: "use 1 to 64 letters, digits, `-` and `_`",
    })
}

impl Plan {
    /// A plan for a whole cluster.
    #[must_use]
    pub fn new(
        name: String,
        (cluster, digest_key): (String, DigestKey),
        (partitions, in_use): (u32, impl IntoIterator<Item = Partition>),
        namespaces: Vec<Namespace>,
        (begun_ms, base): (u64, Option<String>),
    ) -> Self {
        let mut ranges: Vec<[u32; 2]> = Vec::new();
        let in_use: BTreeSet<Partition> = in_use.into_iter().collect();
        for Partition(partition) in in_use {
            match ranges.last_mut() {
                Some([_, last]) if *last + 1 == partition => *last = partition,
                _ => ranges.push([partition, partition]),
            }
        }
        Self {
            format: FORMAT,
            name,
            cluster,
            digest_key: digest_key.0,
            partitions,
            ranges,
            namespaces,
            begun_ms,
            base,
            only: false,
            write_id: 0,
        }
    }

    /// Limits the plan to its namespaces: nodes then gather records instead of copying slices,
    /// which mix all namespaces.
    #[must_use]
    pub fn only(self) -> Self {
        Self { only: true, ..self }
    }

    /// What backups must have in common to replace each other: the cluster, and the namespaces if it has only those.
    #[must_use]
    pub fn series(&self) -> (&str, Option<BTreeSet<&str>>) {
        let names = self.namespaces.iter().map(|it| it.name.as_str());
        (&self.cluster, self.only.then(|| names.collect()))
    }

    /// All partitions to back up.
    pub fn all(&self) -> impl Iterator<Item = Partition> + '_ {
        let ranges = self.ranges.iter();
        ranges.flat_map(|[first, last]| (*first..=*last).map(Partition))
    }

    pub(crate) fn object(name: &str) -> String {
        format!("backups/{name}/plan.json")
    }

    /// Its line, and one with the digest of that line.
    fn sealed(&self) -> Vec<u8> {
        let mut text = line_of(self);
        let digest = *blake3::hash(&text).as_bytes();
        text.extend_from_slice(&line_of(&Seal { digest }));
        text
    }

    /// Reads the plan of a backup, finished or not, and checks its digest.
    ///
    /// # Errors
    /// [`BackupError::NoBackup`], [`BackupError::Location`].
    pub async fn read(location: &Location, name: &str) -> Result<Self, BackupError> {
        check_name(name)?;
        let object = Self::object(name);
        let text = location.read(&object, LONGEST_PLAN).await?;
        let text = text.ok_or_else(|| BackupError::NoBackup {
            name: name.to_owned(),
            hint: "",
        })?;
        let line = text.split(|byte| *byte == b'\n').next();
        let plan = Self::parse(&object, name, line.unwrap_or_default())?;
        // Byte for byte, because nothing else leads to these bytes.
        if plan.sealed() != text {
            let what = format!(
                "its digest does not match: begin a new backup; if this one is complete, `kvctl restore \
                 --backup {name}` still restores it"
            );
            return Err(BackupError::damaged(&object, what));
        }
        Ok(plan)
    }

    /// Reads the line of a plan, which a digest covers.
    fn parse(object: &str, name: &str, line: &[u8]) -> Result<Self, BackupError> {
        let plan: Self = serde_json::from_slice(line)
            .map_err(|error| BackupError::damaged(object, error.to_string()))?;
        if plan.format != FORMAT {
            return Err(BackupError::damaged(
                object,
                "it is of another release's format",
            ));
        }
        let most = u64::from(u32::MAX);
        let count = plan.ranges.iter().try_fold(0_u64, |sum, [first, last]| {
            Some(sum + u64::from(last.checked_sub(*first)?) + 1).filter(|sum| *sum <= most >> 8)
        });
        if count.is_none() {
            return Err(BackupError::damaged(object, "it has impossible partitions"));
        }
        if plan.name != name {
            let named: String = plan.name.chars().take(LONGEST_NAME).collect();
            let what = format!("it belongs to a backup with another name, {named}");
            return Err(BackupError::damaged(object, what));
        }
        Ok(plan)
    }
}

/// A backup in progress: its driver asks nodes for parts until none is missing.
#[derive(Debug)]
pub struct Writing {
    location: Location,
    /// What is written.
    pub plan: Plan,
    lines: BTreeMap<u32, Line>,
}

impl Writing {
    /// Begins a backup.
    ///
    /// # Errors
    /// [`BackupError::Name`], [`BackupError::Location`].
    pub async fn begin(location: &Location, mut plan: Plan) -> Result<Self, BackupError> {
        check_name(&plan.name)?;
        plan.write_id = RandomState::new().build_hasher().finish();
        let object = Plan::object(&plan.name);
        if !location.create(&object, plan.sealed().into()).await? {
            return Err(BackupError::Name {
                name: plan.name,
                what: "a backup of this name exists",
            });
        }
        Ok(Self {
            location: location.clone(),
            plan,
            lines: BTreeMap::new(),
        })
    }

    /// Continues an unfinished backup.
    ///
    /// # Errors
    /// [`BackupError::NoBackup`]; [`BackupError::Name`] if it is finished;
    /// [`BackupError::Location`].
    pub async fn resume(location: &Location, name: &str) -> Result<Self, BackupError> {
        let plan = Plan::read(location, name).await?;
        if location.len(&manifest_object(name)).await?.is_some() {
            return Err(BackupError::Name {
                name: name.to_owned(),
                what: "this backup is already finished",
            });
        }
        let mut writing = Self {
            location: location.clone(),
            plan,
            lines: BTreeMap::new(),
        };
        let below = parts_of(name);
        for (part, _) in location.list(&below).await? {
            // Nodes write the partitions of an unreadable part again.
            let _ = writing.take(&part).await;
        }
        Ok(writing)
    }

    /// Adds a part that a node has written.
    ///
    /// # Errors
    /// [`BackupError::Location`].
    pub async fn take(&mut self, part: &str) -> Result<(), BackupError> {
        let object = format!("{}/{part}", parts_of(&self.plan.name));
        let text = self.location.read(&object, LONGEST_MANIFEST).await?;
        let text = text.ok_or_else(|| BackupError::damaged(&object, "it is missing"))?;
        let named = part.strip_suffix(".ndjson");
        if named != Some(blake3::hash(&text).to_hex().as_str()) {
            return Err(BackupError::damaged(&object, "its digest does not match"));
        }
        for line in text
            .split(|byte| *byte == b'\n')
            .filter(|it| !it.is_empty())
        {
            let line: Line = serde_json::from_slice(line)
                .map_err(|error| BackupError::damaged(&object, error.to_string()))?;
            self.lines.entry(line.partition).or_insert(line);
        }
        Ok(())
    }

    /// The partitions that no part covers yet.
    #[must_use]
    pub fn missing(&self) -> BTreeSet<Partition> {
        let all = self.plan.all();
        all.filter(|it| !self.lines.contains_key(&it.0)).collect()
    }

    /// Writes the manifest, which completes the backup.
    ///
    /// # Errors
    /// [`BackupError::Location`], also while a partition is missing, or a pack is.
    pub async fn finish(self) -> Result<Backup, BackupError> {
        let object = manifest_object(&self.plan.name);
        if let Some(missing) = self.missing().first() {
            let what = format!("partition {missing} was not written");
            return Err(BackupError::damaged(&object, what));
        }
        let packs = self.lines.values().flat_map(|line| &line.slices);
        let mut ends: BTreeMap<[u8; 32], u64> = BTreeMap::new();
        for slice in packs {
            let end = ends.entry(slice.pack).or_default();
            *end = slice.range().end.max(*end);
        }
        let location = &self.location;
        stream::iter(ends)
            .map(async |(pack, end)| {
                let object = pack_object(&pack);
                match location.len(&object).await? {
                    Some(len) if len >= end => Ok(()),
                    _ => Err(BackupError::damaged(&object, "it is missing or cut off")),
                }
            })
            .buffer_unordered(TOGETHER)
            .try_collect::<()>()
            .await?;
        let mut text = line_of(&self.plan);
        let mut sums = Sums::default();
        let kept = self.plan.all().filter_map(|it| self.lines.get(&it.0));
        for line in kept.filter(|line| !line.slices.is_empty()) {
            text.extend_from_slice(&line_of(line));
            sums.partitions += 1;
            sums.epoch = sums.epoch.max(line.epoch);
            sums.slices += line.slices.len() as u64;
            sums.records += line.slices.iter().map(PackSlice::count).sum::<u64>();
            sums.bytes += line.slices.iter().map(|it| it.len).sum::<u64>();
        }
        let foot = line_of(&Foot::of(&text, sums));
        text.extend_from_slice(&foot);
        let text = Bytes::from(text);
        // If the answer to an earlier try was lost it is there, and says the same or was made of other parts:
        // either is whole.
        location.create(&object, text).await?;
        let backup = Backup::read(location, &self.plan.name).await?;
        let below = parts_of(&self.plan.name);
        for (part, _) in location.list(&below).await? {
            location.remove(&format!("{below}/{part}")).await?;
        }
        Ok(backup)
    }
}

pub(crate) fn manifest_object(name: &str) -> String {
    format!("backups/{name}/{MANIFEST}")
}

pub(crate) fn parts_of(name: &str) -> String {
    format!("backups/{name}/parts")
}

/// Writes a node's part, and returns its name.
pub(crate) async fn write_part(
    location: &Location,
    name: &str,
    lines: &[Line],
) -> Result<String, BackupError> {
    check_name(name)?;
    let text: Vec<u8> = lines.iter().flat_map(line_of).collect();
    let part = format!("{}.ndjson", blake3::hash(&text).to_hex());
    let object = format!("{}/{part}", parts_of(name));
    if !location.create(&object, text.into()).await? {
        let what = "an object with this name has different content: remove it";
        return Err(BackupError::damaged(&object, what));
    }
    Ok(part)
}

/// A complete backup.
#[derive(Debug)]
pub struct Backup {
    /// What it is of.
    pub plan: Plan,
    /// What it comes to.
    pub sums: Sums,
    text: Bytes,
    /// The range of each partition's line.
    lines: BTreeMap<u32, Range<usize>>,
}

impl Backup {
    /// Reads a backup's manifest: about 200 bytes per slice.
    ///
    /// # Errors
    /// [`BackupError::NoBackup`], [`BackupError::Location`].
    pub async fn read(location: &Location, name: &str) -> Result<Self, BackupError> {
        check_name(name)?;
        let object = manifest_object(name);
        let text = location.read(&object, LONGEST_MANIFEST).await?;
        let Some(text) = text else {
            let begun = location.len(&Plan::object(name)).await?;
            return Err(BackupError::NoBackup {
                name: name.to_owned(),
                hint: if begun.is_some() {
                    ": it is not finished"
                } else {
                    ""
                },
            });
        };
        Self::parse(&object, name, text)
    }

    fn parse(object: &str, name: &str, text: Bytes) -> Result<Self, BackupError> {
        let damaged = |what: &str| BackupError::damaged(object, what);
        let mut ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let mut lines: Vec<Range<usize>> = Vec::new();
        let mut from = 0;
        for (end, _) in &mut ends {
            lines.push(from..end);
            from = end + 1;
        }
        if from != text.len() || lines.len() < 2 {
            return Err(damaged("it is cut off"));
        }
        let before = lines.pop().unwrap_or_default().start;
        // First, because it says if the rest is of another release's format.
        let plan = Plan::parse(object, name, &text[lines[0].clone()])?;
        let foot = Foot::parse(object, &text[before..])?;
        if *blake3::hash(&text[..before]).as_bytes() != foot.before {
            return Err(damaged("its digest does not match"));
        }
        let mut by_partition = BTreeMap::new();
        for range in lines.drain(1..) {
            let line: Line = serde_json::from_slice(&text[range.clone()])
                .map_err(|error| damaged(&error.to_string()))?;
            by_partition.insert(line.partition, range);
        }
        Ok(Self {
            plan,
            sums: foot.sums,
            text,
            lines: by_partition,
        })
    }

    /// What it has of a partition.
    #[must_use]
    pub fn line(&self, partition: Partition) -> Option<Line> {
        let range = self.lines.get(&partition.0)?;
        // It could be read before.
        serde_json::from_slice(&self.text[range.clone()]).ok()
    }

    /// The lines of the partitions with records of these namespaces, with only the slices that have some.
    pub fn lines_of<'a>(
        &'a self,
        wanted: &'a BTreeSet<NamespaceId>,
    ) -> impl Iterator<Item = Line> + 'a {
        self.lines().filter_map(|mut line| {
            line.slices.retain(|slice| slice.holds(wanted));
            (!line.slices.is_empty()).then_some(line)
        })
    }

    /// The lines of all partitions with records.
    pub fn lines(&self) -> impl Iterator<Item = Line> + '_ {
        let partitions = self.lines.keys();
        partitions.filter_map(|partition| self.line(Partition(*partition)))
    }

    /// The backups at a location, finished or not, oldest first. `unreadable` hears of the others:
    /// those that are damaged, or of another release's format.
    ///
    /// # Errors
    /// [`BackupError::Location`]: the location cannot be listed or read.
    pub async fn list(
        location: &Location,
        mut unreadable: impl FnMut(String, BackupError),
    ) -> Result<Vec<Listed>, BackupError> {
        let mut lens: BTreeMap<String, Option<u64>> = BTreeMap::new();
        for (object, len) in location.list("backups").await? {
            let Some((name, rest)) = object.split_once('/') else {
                continue;
            };
            let manifest = lens.entry(name.to_owned()).or_default();
            if rest == MANIFEST {
                *manifest = Some(len);
            }
        }
        let found = stream::iter(lens).map(async |(name, manifest)| {
            let listed = Listed::read(location, &name, manifest).await;
            (name, listed)
        });
        let found: Vec<_> = found.buffered(TOGETHER).collect().await;
        let mut all = Vec::new();
        for (name, listed) in found {
            match listed {
                Ok(listed) => all.push(listed),
                Err(error @ BackupError::Location(ObjectError::Object { .. })) => {
                    return Err(error);
                }
                Err(error) => unreadable(name, error),
            }
        }
        Ok(all)
    }
}

/// A listed backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// What it is of.
    pub plan: Plan,
    /// What it comes to; none while it is not finished.
    pub sums: Option<Sums>,
}

impl Listed {
    /// Reads a backup, whose manifest has this length.
    async fn read(
        location: &Location,
        name: &str,
        manifest: Option<u64>,
    ) -> Result<Self, BackupError> {
        let plan = Plan::read(location, name).await?;
        let sums = match manifest {
            Some(len) => Some(read_foot(location, name, len).await?.sums),
            None => None,
        };
        Ok(Self { plan, sums })
    }
}

async fn read_foot(location: &Location, name: &str, len: u64) -> Result<Foot, BackupError> {
    let object = manifest_object(name);
    let from = len.saturating_sub(LONGEST_FOOT);
    let text = location.read_range(&object, from..len).await?;
    let last = text.split_inclusive(|byte| *byte == b'\n').next_back();
    Foot::parse(&object, last.unwrap_or_default())
}

/// 32 bytes in hexadecimal.
mod hex32 {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&blake3::Hash::from_bytes(*bytes).to_hex())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let hash = blake3::Hash::from_hex(text).map_err(serde::de::Error::custom)?;
        Ok(*hash.as_bytes())
    }
}
