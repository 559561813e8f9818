//! Removes old backups and the packs that only they used.

use std::collections::{BTreeMap, BTreeSet};

use crate::manifest::{manifest_object, pack_object, parts_of};
use crate::{Backup, BackupError, Listed, Location, Plan};

/// The objects of restores are below this.
pub const RESTORES: &str = "restores";

/// What was or would be removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The names of backups.
    pub backups: Vec<String>,
    /// Packs that no backup uses.
    pub packs: u64,
    /// Objects that restores have left behind: those that were interrupted.
    pub restores: u64,
    /// The bytes of the packs and of these objects.
    pub bytes: u64,
}

/// Removes all but the newest `keep` backups of each [series](Plan::series), and the packs that these do not use: a
/// backup of single namespaces counts only beside others of the same ones, and a cluster's beside its own. A pack stays
/// as long as one of its slices is used. An unfinished backup stops the pruning, because a node may
/// still write to it; `unfinished` also removes such backups. An unreadable backup stops it, too,
/// because nothing else knows its packs. Also removes what interrupted restores have left behind: no restore
/// may be running. With `is_plan`, nothing is removed.
///
/// # Errors
/// [`BackupError::Name`]: a backup is not finished. [`BackupError::Unreadable`].
/// [`BackupError::Location`]: the remaining backups did not use what was already removed.
pub async fn prune(
    location: &Location,
    keep: usize,
    unfinished: bool,
    is_plan: bool,
) -> Result<Pruned, BackupError> {
    // Before the backups: what is written from now on is not among them.
    let packs = location.list("packs").await?;
    let mut unreadable = None;
    let on_unreadable = |name, error| unreadable = Some((name, Box::new(error)));
    let listed = Backup::list(location, on_unreadable).await?;
    if let Some((name, error)) = unreadable {
        return Err(BackupError::Unreadable { name, error });
    }
    let (finished, begun): (Vec<Listed>, Vec<Listed>) =
        listed.into_iter().partition(|listed| listed.sums.is_some());
    if let Some(listed) = begun.first().filter(|_| !unfinished) {
        return Err(BackupError::Name {
            name: listed.plan.name.clone(),
            what: "it is not finished: let it finish, resume it, or prune it with `--unfinished`",
        });
    }
    let mut counts: BTreeMap<_, usize> = BTreeMap::new();
    let (mut old, mut kept) = (Vec::new(), Vec::new());
    for listed in finished.iter().rev() {
        let count = counts.entry(listed.plan.series()).or_default();
        *count += 1;
        if *count > keep {
            old.push(listed);
        } else {
            kept.push(listed);
        }
    }
    old.reverse();
    let mut used = BTreeSet::new();
    for listed in kept {
        let backup = Backup::read(location, &listed.plan.name).await?;
        let slices = backup.lines().flat_map(|line| line.slices);
        used.extend(slices.map(|slice| pack_object(&slice.pack)));
    }
    let mut pruned = Pruned::default();
    for listed in old.into_iter().chain(&begun) {
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
        location.remove(&Plan::object(name)).await?;
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
    for (object, len) in location.list(RESTORES).await? {
        pruned.restores += 1;
        pruned.bytes += len;
        if !is_plan {
            location.remove(&format!("{RESTORES}/{object}")).await?;
        }
    }
    Ok(pruned)
}
