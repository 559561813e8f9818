//! Looking at a backup without restoring it.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use torc_record::NamespaceId;

use crate::manifest::pack_object;
use crate::read::GAP;
use crate::{Backup, BackupError, Foreign, Location, PackSlice, Plan, Sums};

/// Objects that are read together.
const TOGETHER: usize = 8;
/// Bytes of a pack that are read together.
const PIECE: u64 = 8 << 20;
/// A slice ends with its digest.
const DIGEST_LEN: u64 = 32;

/// How closely a backup is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// That every pack is there and long enough.
    Names,
    /// Also that every byte of each is as it was written.
    Bytes,
    /// Also that every record can be read, belongs where it is, and is found, and that each namespace has as
    /// many as the manifest says: what restoring reads.
    Restore,
}

/// What was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// What the backup comes to.
    pub sums: Sums,
    /// Packs that it uses.
    pub packs: u64,
    /// Their bytes; those of slices of other backups included.
    pub pack_bytes: u64,
    /// Records that belong to no key; none is found unless the depth is [`Depth::Restore`].
    pub foreign: Foreign,
}

/// Looks at a backup, its plan included. `told` hears of each pack or partition that is as it should be.
///
/// # Errors
/// [`BackupError::Location`] names the first object that is missing or damaged; [`BackupError::NoBackup`],
/// [`BackupError::Location`].
pub async fn verify(
    location: &Location,
    name: &str,
    depth: Depth,
    told: impl Fn(),
) -> Result<Verified, BackupError> {
    let backup = Backup::read(location, name).await?;
    check_plan(location, &backup).await?;
    let mut ends: BTreeMap<[u8; 32], u64> = BTreeMap::new();
    for slice in backup.lines().flat_map(|line| line.slices) {
        let end = ends.entry(slice.pack).or_default();
        *end = slice.range().end.max(*end);
    }
    let packs = ends.len() as u64;
    let told = &told;
    let looking = stream::iter(ends).map(async |(pack, end)| {
        let len = check_pack(location, &pack, end, depth).await?;
        told();
        Ok::<u64, BackupError>(len)
    });
    let looking = looking.buffer_unordered(TOGETHER);
    let pack_bytes = looking.try_fold(0, async |sum, len| Ok(sum + len)).await?;
    let mut foreign = Foreign::default();
    if depth == Depth::Restore {
        let mut reader = backup.read_partitions(location, backup.lines());
        while let Some(slices) = reader.next().await? {
            slices.verify(&mut foreign)?;
            told();
        }
    }
    Ok(Verified {
        sums: backup.sums,
        packs,
        pack_bytes,
        foreign,
    })
}

/// Checks every byte of the slices that have records of these namespaces, and reads no others: what restoring
/// them reads. `told` hears of each piece of a pack that is as it should be.
///
/// # Errors
/// [`BackupError::Location`] names the first object that is missing or damaged.
pub async fn verify_namespaces(
    location: &Location,
    backup: &Backup,
    wanted: &BTreeSet<NamespaceId>,
    told: impl Fn(),
) -> Result<(), BackupError> {
    let slices = backup.lines_of(wanted).flat_map(|line| line.slices);
    let told = &told;
    let looking = stream::iter(runs(slices)).map(async |run| {
        check_run(location, &run).await?;
        told();
        Ok::<(), BackupError>(())
    });
    let looking = looking.buffer_unordered(TOGETHER);
    looking.try_collect().await
}

/// Groups slices that lie side by side, up to the length of a piece. A longer slice is a group of its own.
fn runs(slices: impl Iterator<Item = PackSlice>) -> Vec<Vec<PackSlice>> {
    let places = slices.map(|slice| ((slice.pack, slice.at), slice));
    let mut runs: Vec<Vec<PackSlice>> = Vec::new();
    for slice in places.collect::<BTreeMap<_, _>>().into_values() {
        let end = slice.range().end;
        let is_next = |run: &Vec<PackSlice>| {
            let (Some(first), Some(last)) = (run.first(), run.last()) else {
                return false;
            };
            let next = last.range().end;
            last.pack == slice.pack
                && (next..=next.saturating_add(GAP)).contains(&slice.at)
                && end - first.at <= PIECE
        };
        match runs.last_mut().filter(|run| is_next(run)) {
            Some(run) => run.push(slice),
            None => runs.push(vec![slice]),
        }
    }
    runs
}

/// Checks the slices of a run. Only pieces of it are in memory.
async fn check_run(location: &Location, run: &[PackSlice]) -> Result<(), BackupError> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else {
        return Ok(());
    };
    let (object, end) = (first.object(), last.range().end);
    let mut slices = run.iter();
    let mut current = slices.next().map(|slice| (slice, Checking::default()));
    let mut at = first.at;
    while at < end {
        let to = end.min(at + PIECE);
        let bytes = location.read_range(&object, at..to).await?;
        while let Some((slice, checking)) = &mut current {
            checking.add(slice, at, &bytes);
            if slice.range().end > to {
                break;
            }
            if !checking.is_as_written(slice) {
                let what = format!("at {}: the digest of a slice does not match", slice.at);
                return Err(BackupError::damaged(&object, what));
            }
            current = slices.next().map(|slice| (slice, Checking::default()));
        }
        at = to;
    }
    match current {
        None => Ok(()),
        Some((slice, _)) => {
            let what = format!("at {}: a slice is cut off", slice.at);
            Err(BackupError::damaged(&object, what))
        }
    }
}

/// The digest of a slice's content, and the last bytes, which hold it.
#[derive(Default)]
struct Checking {
    hasher: blake3::Hasher,
    tail: Vec<u8>,
}

impl Checking {
    /// Adds the part of the slice that is among these bytes of its pack.
    fn add(&mut self, slice: &PackSlice, at: u64, bytes: &[u8]) {
        let within = |place: u64| {
            let place = usize::try_from(place.saturating_sub(at)).unwrap_or(usize::MAX);
            place.min(bytes.len())
        };
        let content_end = slice.range().end.saturating_sub(DIGEST_LEN);
        let (from, to) = (within(slice.at), within(slice.range().end));
        let middle = within(content_end).clamp(from, to);
        self.hasher.update(&bytes[from..middle]);
        self.tail.extend_from_slice(&bytes[middle..to]);
    }

    fn is_as_written(&self, slice: &PackSlice) -> bool {
        self.tail == slice.digest && self.hasher.finalize().as_bytes() == &slice.digest
    }
}

/// Checks the object of the plan, which listings read: the manifest has the same plan.
async fn check_plan(location: &Location, backup: &Backup) -> Result<(), BackupError> {
    let name = &backup.plan.name;
    let damaged = |what| Err(BackupError::damaged(&Plan::object(name), what));
    match Plan::read(location, name).await {
        Ok(plan) if plan == backup.plan => Ok(()),
        Ok(_) => damaged("it differs from the plan in the manifest"),
        Err(BackupError::NoBackup { .. }) => damaged("it is missing"),
        Err(error) => Err(error),
    }
}

/// Checks a pack that has at least `end` bytes. Returns its length.
pub(crate) async fn check_pack(
    location: &Location,
    pack: &[u8; 32],
    end: u64,
    depth: Depth,
) -> Result<u64, BackupError> {
    let object = pack_object(pack);
    let len = location.len(&object).await?;
    let len = len.ok_or_else(|| BackupError::damaged(&object, "it is missing"))?;
    if len < end {
        return Err(BackupError::damaged(&object, "it is cut off"));
    }
    if depth == Depth::Names {
        return Ok(len);
    }
    let (mut hasher, mut at) = (blake3::Hasher::new(), 0);
    while at < len {
        let to = len.min(at + PIECE);
        hasher.update(&location.read_range(&object, at..to).await?);
        at = to;
    }
    if hasher.finalize().as_bytes() != pack {
        return Err(BackupError::damaged(&object, "its digest does not match"));
    }
    Ok(len)
}
