//! Looking at a backup without restoring it.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use torc_record::DigestKey;

use crate::manifest::pack_object;
use crate::{Backup, BackupError, Location, Plan, Sums};

/// Objects that are read together.
const TOGETHER: usize = 8;
/// Bytes of a pack that are read together.
const PIECE: u64 = 8 << 20;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// What the backup comes to.
    pub sums: Sums,
    /// Packs that it uses.
    pub packs: u64,
    /// Their bytes; those of slices of other backups included.
    pub pack_bytes: u64,
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
    if depth == Depth::Restore {
        let key = DigestKey(backup.plan.digest_key);
        let mut reader = backup.read_partitions(location, backup.lines());
        while let Some(slices) = reader.next().await? {
            slices.verify(&key)?;
            told();
        }
    }
    Ok(Verified {
        sums: backup.sums,
        packs,
        pack_bytes,
    })
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
