//! Removing old backups, and what only they used.

use std::collections::BTreeSet;

use crate::manifest::{manifest_object, pack_object, parts_of};
use crate::{Backup, BackupError, Listed, Location};

/// What was removed, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The names of backups.
    pub backups: Vec<String>,
    /// Packs that no backup uses.
    pub packs: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Removes all backups but the newest `keep`, and the packs that none of those uses. A pack stays as long as one
/// slice of it is used. An unfinished backup stops the pruning, because a node may still be writing to it; `unfinished`
/// removes such backups, too. With `is_plan` nothing is removed.
///
/// # Errors
/// [`BackupError::Name`]: one is not finished. [`BackupError::Damaged`], [`BackupError::Object`]: what was removed
/// until then was of no use to those that stay.
pub async fn prune(
    location: &Location,
    keep: usize,
    unfinished: bool,
    is_plan: bool,
) -> Result<Pruned, BackupError> {
    // Before the backups: what is written from now on is not among them.
    let packs = location.list("packs").await?;
    let (finished, begun): (Vec<Listed>, Vec<Listed>) = Backup::list(location)
        .await?
        .into_iter()
        .partition(|listed| listed.sums.is_some());
    if let Some(listed) = begun.first().filter(|_| !unfinished) {
        return Err(BackupError::Name {
            name: listed.plan.name.clone(),
            what: "it was begun and is not finished: let it finish, resume it, or prune it with `--unfinished`",
        });
    }
    let goes = finished.len().saturating_sub(keep);
    let (old, kept) = finished.split_at(goes);
    let mut used = BTreeSet::new();
    for listed in kept {
        let backup = Backup::read(location, &listed.plan.name).await?;
        let slices = backup.lines().flat_map(|line| line.slices);
        used.extend(slices.map(|slice| pack_object(&slice.pack)));
    }
    let mut pruned = Pruned::default();
    for listed in old.iter().chain(&begun) {
        let name = &listed.plan.name;
        pruned.backups.push(name.clone());
        if is_plan {
            continue;
        }
        // The manifest goes first, so that a half-removed backup is no backup; the plan goes last, so that the next run finds it.
        location.remove(&manifest_object(name)).await?;
        let below = parts_of(name);
        for (part, _) in location.list(&below).await? {
            location.remove(&format!("{below}/{part}")).await?;
        }
        location
            .remove(&format!("backups/{name}/plan.json"))
            .await?;
    }
    for (pack, len) in packs {
        let object = format!("packs/{pack}");
        if used.contains(&object) {
            continue;
        }
        pruned.packs += 1;
        pruned.bytes += len;
        if !is_plan {
            location.remove(&object).await?;
        }
    }
    Ok(pruned)
}
