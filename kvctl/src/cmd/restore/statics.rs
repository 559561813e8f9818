//! Restores a static namespace: builds a new generation from the slices of a backup, makes the nodes fetch
//! it, and promotes it.

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use torc_backup::{Backup, Generation, Location, RESTORES};
use torc_build::{Build, BuildOptions, Manifest, Published, Shape, Target};
use torc_client::Client;
use torc_record::{NamespaceId, State};

use crate::cmd::generation::{attach, failure, promote, target_of};
use crate::failure::Failure;
use crate::input;
use crate::out::note;

/// Bytes of a row on the disk besides its key and value.
const ROW_BYTES: u64 = 44;

/// A generation to restore.
pub(super) struct Restoring<'a> {
    pub(super) client: &'a Client,
    pub(super) location: &'a Location,
    pub(super) url: &'a str,
    pub(super) backup: &'a Backup,
    /// Its id in the backup.
    pub(super) id: NamespaceId,
    pub(super) generation: &'a Generation,
    /// Temporary files are in this directory.
    pub(super) work: &'a Path,
    pub(super) memory: u64,
}

impl Restoring<'_> {
    /// Makes it the current generation of a static namespace.
    pub(super) async fn run(&self, into: &str) -> Result<(), Failure> {
        let cluster = self.client.topology().await?.cluster;
        let reserved = self.client.reserve_generation(into).await?;
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
        let own = tempfile::Builder::new()
            .prefix("torc-restore-")
            .tempdir_in(self.work);
        let own =
            own.map_err(|source| Failure::file("create a directory in", self.work, source))?;
        let manifest = self.built(target, own.path()).await?;
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
        let sent = Published::publish(own.path(), &url, |bytes| bar.inc(bytes)).await;
        bar.finish_and_clear();
        let source = sent.map_err(failure)?.url().to_owned();
        // The nodes have their own copy of what was sent.
        drop(own);
        let attached = attach(self.client, &manifest, source).await?;
        promote(self.client, attached.number, false).await?;
        Ok(())
    }

    /// Builds it in a directory, with the digests of its new target.
    async fn built(&self, target: Target, dir: &Path) -> Result<Manifest, Failure> {
        let Generation {
            shape,
            records,
            payload_bytes,
            ..
        } = *self.generation;
        let rows = records.saturating_mul(ROW_BYTES);
        let options = BuildOptions {
            resume: false,
            shape,
            memory: self.memory,
            expected_bytes: Some(payload_bytes.saturating_add(rows)),
            ..BuildOptions::default()
        };
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

    /// Removes what was sent, which no node reads any more.
    async fn clear(&self, below: &str) -> Result<(), Failure> {
        for (object, _) in self.location.list(below).await? {
            self.location.remove(&format!("{below}/{object}")).await?;
        }
        Ok(())
    }
}
