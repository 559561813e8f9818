//! Restores a namespace as slices: builds a new generation, or the first records of an ordinary namespace, from the
//! slices of a backup, or copies them if they are keyless, makes the nodes fetch it, and promotes it.

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use tempfile::TempDir;
use torc_backup::{Backup, Generation, Location, RESTORES};
use torc_build::{Build, BuildOptions, Copied, Manifest, Published, Shape, Target};
use torc_client::{Client, Epoch, NamespaceMode, RoutingTable};
use torc_record::{NamespaceId, State};

use crate::cmd::build::space;
use crate::cmd::generation::{attach, failure, promote, target_of};
use crate::failure::Failure;
use crate::input;
use crate::out::note;

/// Bytes of a row on the disk besides its key and value.
const ROW_BYTES: u64 = 44;

/// Rows that are given to a build at a time.
const BATCH_ROWS: u64 = 1 << 10;

/// What to restore.
pub(super) enum Content<'a> {
    /// The generation of a static namespace.
    Generation(&'a Generation),
    /// The records of an ordinary namespace, which is created with them.
    Records(Records),
}

/// The records of an ordinary namespace.
pub(super) struct Records {
    /// Limit on their number.
    pub(super) most: u64,
    /// Bytes of their slices in the backup.
    pub(super) slice_bytes: u64,
    /// Mode and replicas.
    pub(super) settings: (NamespaceMode, u32),
    /// Whether another namespace may have the name, which is dropped then.
    pub(super) replaces: bool,
}

impl Content<'_> {
    /// Whether it is the current generation of a namespace, whose content never changes.
    pub(super) fn is_current(&self, table: &RoutingTable, into: &str) -> bool {
        let Self::Generation(generation) = self else {
            return false;
        };
        let there = table.namespaces.get(into).map(|it| it.id);
        there.is_some_and(|id| id.is_generation() && table.digests_of(id) == generation.digests())
    }

    fn is_copied(&self) -> bool {
        matches!(self, Self::Generation(generation) if is_keyless(generation))
    }

    fn shape(&self) -> Shape {
        match self {
            Self::Generation(generation) => generation.shape,
            Self::Records(_) => Shape::Values,
        }
    }

    const fn records(&self) -> u64 {
        match self {
            Self::Generation(generation) => generation.records,
            Self::Records(records) => records.most,
        }
    }

    /// Bytes of its keys and values; of an ordinary namespace at most.
    const fn payload_bytes(&self) -> u64 {
        match self {
            Self::Generation(generation) => generation.payload_bytes,
            Self::Records(records) => records.slice_bytes,
        }
    }
}

/// A directory for the builds of these contents, if any, which are built one after the other.
pub(super) fn work_dir<'a>(
    work: &Path,
    memory: u64,
    contents: impl Iterator<Item = &'a Content<'a>>,
) -> Result<Option<TempDir>, Failure> {
    let Some(needed) = contents.map(|it| disk_bytes(it, memory)).max() else {
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

/// The disk space that a build needs at its peak.
fn disk_bytes(content: &Content, memory: u64) -> u64 {
    let (records, payload_bytes) = (content.records(), content.payload_bytes());
    if content.is_copied() {
        // Fingerprints of at most 32 bits and the function, and payloads with their checksums.
        return records.saturating_mul(5).saturating_add(payload_bytes);
    }
    let row = payload_bytes.checked_div(records).unwrap_or(0);
    let row = options(content, memory).row_bytes(row, 0);
    records.saturating_mul(row)
}

fn options(content: &Content, memory: u64) -> BuildOptions {
    let rows = content.records().saturating_mul(ROW_BYTES);
    BuildOptions {
        resume: false,
        shape: content.shape(),
        memory,
        expected_bytes: Some(content.payload_bytes().saturating_add(rows)),
        ..BuildOptions::default()
    }
}

/// A namespace to restore.
pub(super) struct Restoring<'a> {
    pub(super) client: &'a Client,
    pub(super) location: &'a Location,
    pub(super) url: &'a str,
    pub(super) backup: &'a Backup,
    /// Its id in the backup.
    pub(super) id: NamespaceId,
    pub(super) content: Content<'a>,
    /// Each is built in a directory of its own below this one.
    pub(super) work: &'a Path,
    pub(super) memory: u64,
}

impl Restoring<'_> {
    /// Makes it the current generation of a static namespace, or the records of a new one.
    pub(super) async fn run(&self, into: &str) -> Result<Manifest, Failure> {
        let cluster = self.client.topology().await?.cluster;
        let above = Epoch(self.backup.sums.epoch);
        let reserved = match &self.content {
            Content::Generation(generation) if is_keyless(generation) => {
                let digests = generation.digests();
                self.client.reserve_restored(into, digests).await
            }
            Content::Generation(_) => self.client.reserve_generation(into).await,
            Content::Records(records) => {
                let (mode, replicas) = records.settings;
                let settings = (mode, Some(replicas));
                let reserving =
                    self.client
                        .reserve_namespace(into, settings, above, records.replaces);
                reserving.await
            }
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
            restored = self.promoted(target_of(&reserved), into, &below) => restored,
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
    async fn promoted(&self, target: Target, into: &str, below: &str) -> Result<Manifest, Failure> {
        let dir = self.work.join(self.id.0.to_string());
        let manifest = if self.content.is_copied() {
            self.copied(target, &dir).await?
        } else {
            self.built(target, &dir).await?
        };
        if let Content::Generation(generation) = &self.content
            && manifest.records != generation.records
        {
            return Err(Failure::Damaged(format!(
                "backup {} has {} keys of generation {}, and its plan says {}",
                self.backup.plan.name,
                manifest.records,
                self.id.number(),
                generation.records
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
        if let Content::Records(_) = self.content {
            super::raise(self.client, into, Epoch(self.backup.sums.epoch)).await?;
        }
        promote(self.client, attached.number, false).await?;
        Ok(manifest)
    }

    /// Builds it in a directory, with the digests of its new target.
    async fn built(&self, target: Target, dir: &Path) -> Result<Manifest, Failure> {
        let shape = self.content.shape();
        let options = options(&self.content, self.memory);
        let mut build = Build::create(dir, target, options).map_err(failure)?;
        let bar = input::spinner().with_message("building slices");
        let (mut rows, mut foreign) = (build.rows(), 0);
        let wanted = BTreeSet::from([self.id]);
        let lines = self.backup.lines_of(&wanted);
        let mut reader = self.backup.read_partitions(self.location, lines);
        while let Some(slices) = reader.next().await? {
            for record in slices.records()? {
                let record = record?;
                if record.namespace != self.id {
                    continue;
                }
                if slices.is_foreign(&record) {
                    foreign += 1;
                    continue;
                }
                let State::Value {
                    value,
                    expires_at_ms,
                } = record.state
                else {
                    continue;
                };
                let value = match shape {
                    // The old slot of the key.
                    Shape::Ids => Bytes::new(),
                    Shape::Values | Shape::Keyless { .. } => value,
                };
                let pushed = rows.push_expiring(record.key.into_bytes(), value, expires_at_ms);
                pushed.map_err(Failure::Damaged)?;
                if rows.len() == BATCH_ROWS {
                    build.push_rows(&rows).map_err(failure)?;
                    rows = rows.another();
                }
            }
            bar.tick();
        }
        build.push_rows(&rows).map_err(failure)?;
        let built = build.finish(|_| bar.tick());
        bar.finish_and_clear();
        super::tell_of_foreign(foreign);
        built.map_err(failure)
    }

    /// Copies its slices to a directory, for a target with the same digests.
    async fn copied(&self, target: Target, dir: &Path) -> Result<Manifest, Failure> {
        let mut copied = Copied::create(dir, target, self.content.shape()).map_err(failure)?;
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
