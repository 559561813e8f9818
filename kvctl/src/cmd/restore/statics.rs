//! Restores a static namespace: builds a new generation from the slices of a backup, or copies them if they
//! are keyless, makes the nodes fetch it, and promotes it.

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use tempfile::TempDir;
use torc_backup::{Backup, Generation, Location, RESTORES};
use torc_build::{Build, BuildOptions, Copied, Manifest, Published, Shape, Target};
use torc_client::{Client, RoutingTable};
use torc_record::{NamespaceId, State};

use crate::cmd::build::space;
use crate::cmd::generation::{attach, failure, promote, target_of};
use crate::failure::Failure;
use crate::input;
use crate::out::note;

/// Bytes of a row on the disk besides its key and value.
const ROW_BYTES: u64 = 44;

/// A directory for the builds of these generations, if any, which are built one after the other.
pub(super) fn work_dir<'a>(
    work: &Path,
    memory: u64,
    generations: impl Iterator<Item = &'a Generation>,
) -> Result<Option<TempDir>, Failure> {
    let Some(needed) = generations.map(|it| disk_bytes(it, memory)).max() else {
        return Ok(None);
    };
    space::check(work, needed)?;
    let own = tempfile::Builder::new()
        .prefix("torc-restore-")
        .tempdir_in(work);
    own.map(Some).map_err(|source| {
        Failure::file("create a directory in", work, source).after("nothing was changed")
    })
}

/// Whether a generation keeps no keys, so that its slices are copied: they cannot be built again.
pub(super) const fn is_keyless(generation: &Generation) -> bool {
    matches!(generation.shape, Shape::Keyless { .. })
}

/// Whether the current generation of a namespace is the one of a backup. Its content never changes.
pub(super) fn is_current(table: &RoutingTable, into: &str, generation: &Generation) -> bool {
    let there = table.namespaces.get(into).map(|it| it.id);
    there.is_some_and(|id| id.is_generation() && table.digests_of(id) == generation.digests())
}

/// The disk space that a build needs at its peak.
fn disk_bytes(generation: &Generation, memory: u64) -> u64 {
    let records = generation.records;
    if is_keyless(generation) {
        // Fingerprints of at most 32 bits and the function, and payloads with their checksums.
        return records
            .saturating_mul(5)
            .saturating_add(generation.payload_bytes);
    }
    let row = generation.payload_bytes.checked_div(records).unwrap_or(0);
    let row = options(generation, memory).row_bytes(row, 0);
    records.saturating_mul(row)
}

fn options(generation: &Generation, memory: u64) -> BuildOptions {
    let rows = generation.records.saturating_mul(ROW_BYTES);
    BuildOptions {
        resume: false,
        shape: generation.shape,
        memory,
        expected_bytes: Some(generation.payload_bytes.saturating_add(rows)),
        ..BuildOptions::default()
    }
}

/// A generation to restore.
pub(super) struct Restoring<'a> {
    pub(super) client: &'a Client,
    pub(super) location: &'a Location,
    pub(super) url: &'a str,
    pub(super) backup: &'a Backup,
    /// Its id in the backup.
    pub(super) id: NamespaceId,
    pub(super) generation: &'a Generation,
    /// Each is built in a directory of its own below this one.
    pub(super) work: &'a Path,
    pub(super) memory: u64,
}

impl Restoring<'_> {
    /// Makes it the current generation of a static namespace.
    pub(super) async fn run(&self, into: &str) -> Result<(), Failure> {
        let cluster = self.client.topology().await?.cluster;
        let reserved = if is_keyless(self.generation) {
            let digests = self.generation.digests();
            self.client.reserve_restored(into, digests).await
        } else {
            self.client.reserve_generation(into).await
        };
        let reserved = reserved
            .map_err(|error| Failure::from(error).after(format!("`{into}` was not restored")))?;
        let number = reserved.generation.number;
        let below = format!("{RESTORES}/{cluster}-{number}");
        let stop = async {
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let restored = tokio::select! {
            restored = self.promoted(target_of(&reserved), &below) => restored,
            () = stop => Err(Failure::Interrupted),
        };
        if restored.is_err()
            && let Err(error) = self.client.drop_generation(number).await
        {
            note(format_args!(
                "generation {number} of `{into}` stays. If `kvctl generation list` does not show it as current, \
                 run `kvctl generation drop {number}`, then `kvctl backup prune` ({error})"
            ));
        } else if let Err(error) = self.clear(&below).await {
            note(format_args!(
                "cannot remove {below}, which is no longer needed: `kvctl backup prune` removes it ({error})"
            ));
        }
        restored.map_err(|failure| {
            failure.after(format!(
                "`{into}` was not restored: repeat the restore with --overwrite"
            ))
        })
    }

    /// Builds, sends, attaches and promotes it.
    async fn promoted(&self, target: Target, below: &str) -> Result<(), Failure> {
        let dir = self.work.join(self.id.0.to_string());
        let manifest = if is_keyless(self.generation) {
            self.copied(target, &dir).await?
        } else {
            self.built(target, &dir).await?
        };
        if manifest.records != self.generation.records {
            return Err(Failure::Damaged(format!(
                "backup {} has {} keys of generation {}, and its plan says {}",
                self.backup.plan.name,
                manifest.records,
                self.id.number(),
                self.generation.records
            )));
        }
        let url = format!("{}/{below}", self.url.trim_end_matches('/'));
        let bar = input::bytes_bar(Some(manifest.file_bytes()));
        let sent = Published::publish(&dir, &url, |bytes| bar.inc(bytes)).await;
        bar.finish_and_clear();
        let source = sent.map_err(failure)?.url().to_owned();
        // The nodes have their own copy of what was sent.
        std::fs::remove_dir_all(&dir).map_err(|source| Failure::file("remove", &dir, source))?;
        let attached = attach(self.client, &manifest, source).await?;
        promote(self.client, attached.number, false).await?;
        Ok(())
    }

    /// Builds it in a directory, with the digests of its new target.
    async fn built(&self, target: Target, dir: &Path) -> Result<Manifest, Failure> {
        let shape = self.generation.shape;
        let options = options(self.generation, self.memory);
        let mut build = Build::create(dir, target, options).map_err(failure)?;
        let bar = input::spinner().with_message("building a generation");
        let wanted = BTreeSet::from([self.id]);
        let lines = self.backup.lines_of(&wanted);
        let mut reader = self.backup.read_partitions(self.location, lines);
        while let Some(slices) = reader.next().await? {
            for record in slices.records()? {
                let record = record?;
                let State::Value { value, .. } = record.state else {
                    continue;
                };
                let value = match shape {
                    // The old slot of the key.
                    Shape::Ids => Bytes::new(),
                    Shape::Values | Shape::Keyless { .. } => value,
                };
                let pushed = build.push(record.key.into_bytes(), value);
                pushed.map_err(failure)?;
            }
            bar.tick();
        }
        let built = build.finish(|_| bar.tick());
        bar.finish_and_clear();
        built.map_err(failure)
    }

    /// Copies its slices to a directory, for a target with the same digests.
    async fn copied(&self, target: Target, dir: &Path) -> Result<Manifest, Failure> {
        let mut copied = Copied::create(dir, target, self.generation.shape).map_err(failure)?;
        let bar = input::spinner().with_message("copying a generation");
        let wanted = BTreeSet::from([self.id]);
        let lines = self.backup.lines_of(&wanted);
        let mut reader = self.backup.read_partitions(self.location, lines);
        while let Some(partition) = reader.next().await? {
            for slice in partition.slices() {
                copied.push(slice).map_err(failure)?;
            }
            bar.tick();
        }
        bar.finish_and_clear();
        copied.finish().map_err(failure)
    }

    /// Removes what was sent, which no node reads any more.
    async fn clear(&self, below: &str) -> Result<(), Failure> {
        for (object, _) in self.location.list(below).await? {
            self.location.remove(&format!("{below}/{object}")).await?;
        }
        if let Some(dir) = self.location.dir() {
            // An object store has none; one that is not empty is of another restore.
            let _ = std::fs::remove_dir(dir.join(below));
            let _ = std::fs::remove_dir(dir.join(RESTORES));
        }
        Ok(())
    }
}
