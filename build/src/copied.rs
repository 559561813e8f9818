//! Makes a keyless generation of the slices of another one.

use std::path::{Path, PathBuf};

use torc_store::bulk::LooseSlice;

use crate::gather::{Output, Places};
use crate::manifest::{Gathered, Manifest};
use crate::plan::{Plan, sync_dir};
use crate::{BuildError, BuildOptions, Shape, Sums, Target};

/// A keyless generation that is made of the slices of another one. It has the same digests, under another id:
/// without its keys, it cannot get others.
#[derive(Debug)]
pub struct Copied {
    plan: Plan,
    dir: PathBuf,
    output: Output,
    total: Sums,
}

impl Copied {
    /// Starts in a directory, which it creates. The digest key of the target is not used.
    ///
    /// # Errors
    /// [`BuildError::Io`].
    pub fn create(dir: &Path, target: Target, shape: Shape) -> Result<Self, BuildError> {
        std::fs::create_dir_all(dir).map_err(BuildError::io("create", dir))?;
        let options = BuildOptions {
            shape,
            ..BuildOptions::default()
        };
        let plan = options.plan_of(target, 1);
        let places = Places {
            runs: dir,
            dir,
            temporary: dir.join("new.part"),
        };
        Ok(Self {
            output: Output::new(&places, &plan),
            dir: dir.to_owned(),
            plan,
            total: Sums::default(),
        })
    }

    /// Adds a slice. Slices come in the order of their partitions.
    ///
    /// # Errors
    /// [`BuildError::Store`]: it is not keyless, or not of a generation. [`BuildError::Io`].
    pub fn push(&mut self, slice: &LooseSlice) -> Result<(), BuildError> {
        let Target {
            namespace, ballot, ..
        } = self.plan.target;
        let held = slice.summary();
        let sums = Sums {
            records: held.records,
            payload_bytes: held.payload_bytes,
            fingerprint: held.fingerprint,
            ..Sums::default()
        };
        self.output.push(slice.byte_len(), sums, |writer| {
            Ok(writer.push_moved(slice, (namespace, ballot))?)
        })?;
        self.total.merge(&sums);
        Ok(())
    }

    /// Completes the generation.
    ///
    /// # Errors
    /// [`BuildError::SumsDiffer`], [`BuildError::Io`].
    pub fn finish(self) -> Result<Manifest, BuildError> {
        let gathered = Gathered {
            files: self.output.finish()?,
            left_out: Sums::default(),
        };
        sync_dir(&self.dir).map_err(BuildError::io("sync", &self.dir))?;
        let manifest = Manifest::of(&self.plan, &self.dir, &self.total, [gathered])?;
        manifest.write(&self.dir)?;
        Ok(manifest)
    }
}
