//! A build, from its first row to its manifest.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use torc_store::fs::{Fs as _, FsLock, RealFs};

use crate::gather::{Places, gather};
use crate::journal::{Journal, Step};
use crate::manifest::{Gathered, Manifest};
use crate::options::BuildOptions;
use crate::plan::{Plan, sync_dir};
use crate::rows::PackedRows;
use crate::scatter::{Scatter, are_whole, run_path};
use crate::sums::Sums;
use crate::target::Target;
use crate::{BuildError, JOURNAL_FILE, LOCK_FILE, MANIFEST_FILE, RUNS_DIR};

/// Creates the directory of a build if it is missing, and locks it, as a [`Build`] does until it is
/// finished.
///
/// # Errors
/// [`BuildError::Io`], also if another process has locked it.
pub fn lock(dir: &Path) -> Result<Box<dyn FsLock>, BuildError> {
    std::fs::create_dir_all(dir).map_err(BuildError::io("create", dir))?;
    let path = dir.join(LOCK_FILE);
    let locked = RealFs.lock(&path).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => {
            io::Error::new(error.kind(), "another build is using the directory")
        }
        _ => error,
    });
    locked.map_err(BuildError::io("lock", &path))
}

fn remove_runs(dir: &Path) -> Result<(), BuildError> {
    let runs = dir.join(RUNS_DIR);
    match std::fs::remove_dir_all(&runs) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(BuildError::io("remove", &runs)(error))
        }
        _ => Ok(()),
    }
}

/// Removes what a build has written besides its plan; the journal first, which names the rest.
fn discard(dir: &Path) -> Result<(), BuildError> {
    let mut files = vec![dir.join(JOURNAL_FILE)];
    for entry in std::fs::read_dir(dir).map_err(BuildError::io("read", dir))? {
        let path = entry.map_err(BuildError::io("read", dir))?.path();
        if path.extension().is_some_and(|it| it == "part") {
            files.push(path);
        }
    }
    for path in files {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(BuildError::io("remove", &path)(error));
            }
            _ => {}
        }
    }
    remove_runs(dir)
}

/// Whether all rows that are still needed are there. A crash of the machine may lose some, a kill does not.
fn has_runs(dir: &Path, plan: &Plan, steps: &[Step]) -> bool {
    let mut left: BTreeSet<u32> = (0..plan.buckets).collect();
    let mut lens = &[][..];
    for step in steps {
        match step {
            Step::Scattered { runs, .. } => lens = runs,
            Step::AllScattered => {}
            Step::Gathered { bucket, .. } => {
                left.remove(bucket);
            }
        }
    }
    are_whole(&dir.join(RUNS_DIR), plan, lens, |bucket| {
        left.contains(&bucket)
    })
}

/// The progress of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Some of the buckets have been gathered.
    Gathered {
        /// Gathered buckets.
        done: u32,
        /// All buckets.
        of: u32,
    },
}

/// A build in progress, which holds the lock on its directory.
#[derive(Debug)]
pub struct Build {
    dir: PathBuf,
    plan: Plan,
    options: BuildOptions,
    journal: Journal,
    /// `None` once all rows have been scattered.
    scatter: Option<Scatter>,
    total: Sums,
    rows: u64,
    unnoted_bytes: u64,
    gathered: Vec<(u32, Gathered)>,
    _lock: Box<dyn FsLock>,
}

impl Build {
    /// The target of the build in a directory, if a build has started there.
    ///
    /// # Errors
    /// [`BuildError::Io`]: its plan cannot be read.
    pub fn target_of(dir: &Path) -> Result<Option<Target>, BuildError> {
        Ok(Plan::read(dir)?.map(|plan| plan.target))
    }

    /// Starts a build in a directory, or continues the build that was started there for the same
    /// target, source and options, unless [`BuildOptions::resume`] is off: see
    /// [`rows_taken`](Self::rows_taken).
    ///
    /// # Errors
    /// [`BuildError::BadShape`], [`BuildError::NotEmpty`], [`BuildError::Complete`],
    /// [`BuildError::OtherPlan`], [`BuildError::Io`].
    pub fn create(dir: &Path, target: Target, options: BuildOptions) -> Result<Self, BuildError> {
        options.check()?;
        let lock = lock(dir)?;
        let plan = options.plan(target);
        if dir.join(MANIFEST_FILE).exists() {
            let dir = dir.to_owned();
            let Some(begun) = Plan::read(&dir)? else {
                // The rest of a directory whose removal was cut short, or the work of another tool.
                return Err(BuildError::NotEmpty { dir });
            };
            if let Some(what) = begun.difference(&plan) {
                return Err(BuildError::OtherPlan { dir, what });
            }
            // The end of a build that was cut short.
            let _ = remove_runs(&dir);
            return Err(BuildError::Complete { dir });
        }
        let plan = Self::plan(dir, plan)?;
        if !options.resume {
            discard(dir)?;
        }
        let (mut journal, mut steps) = Journal::open(dir)?;
        if !has_runs(dir, &plan, &steps) {
            discard(dir)?;
            (journal, steps) = Journal::open(dir)?;
        }
        let (mut scattered, mut is_scattered) = ((0, Sums::default(), Vec::new()), false);
        let mut gathered = Vec::new();
        for step in steps {
            match step {
                Step::Scattered { rows, sums, runs } => scattered = (rows, sums, runs),
                Step::AllScattered => is_scattered = true,
                Step::Gathered {
                    bucket,
                    files,
                    left_out,
                } => gathered.push((bucket, Gathered { files, left_out })),
            }
        }
        let (rows, total, _) = scattered;
        let scatter = if is_scattered {
            None
        } else {
            let memory = options.memory();
            Some(Scatter::open(
                &dir.join(RUNS_DIR),
                &plan,
                scattered,
                memory,
            )?)
        };
        Ok(Self {
            dir: dir.to_owned(),
            plan,
            options,
            journal,
            scatter,
            total,
            rows,
            unnoted_bytes: 0,
            gathered,
            _lock: lock,
        })
    }

    /// The plan of the build that was started here, or the given plan.
    fn plan(dir: &Path, wanted: Plan) -> Result<Plan, BuildError> {
        let Some(plan) = Plan::read(dir)? else {
            Plan::check_empty(dir)?;
            wanted.write(dir)?;
            return Ok(wanted);
        };
        match plan.difference(&wanted) {
            None => Ok(plan.with_memory_of(&wanted)),
            Some(what) => Err(BuildError::OtherPlan {
                dir: dir.to_owned(),
                what,
            }),
        }
    }

    /// Rows that the build already has, without refused ones; a caller that continues the build skips
    /// them. One that goes on after a [`BuildError::BadRow`] must not count that row either.
    #[must_use]
    pub const fn rows_taken(&self) -> u64 {
        self.rows
    }

    /// Whether it has all rows: only [`finish`](Self::finish) is left.
    #[must_use]
    pub const fn has_all_rows(&self) -> bool {
        self.scatter.is_none()
    }

    /// Takes a row. About 0.5 us.
    ///
    /// # Errors
    /// [`BuildError::BadRow`]: the row was not taken, and the build can continue without it.
    /// [`BuildError::Io`], after which it takes nothing more; [`BuildError::Stopped`].
    pub fn push(&mut self, key: Bytes, value: Bytes) -> Result<(), BuildError> {
        let bytes = (key.len() + value.len()) as u64;
        let scatter = self.scattering()?;
        scatter.push((key, value), None)?;
        self.rows = scatter.rows;
        self.took(bytes)
    }

    /// No rows yet: they can be packed on another thread, for [`push_rows`](Self::push_rows).
    #[must_use]
    pub fn rows(&self) -> PackedRows {
        PackedRows::new(self.plan.shape, self.plan.target)
    }

    /// Takes packed rows, all of them or, after an error, none that count. About 0.1 us for each.
    ///
    /// # Errors
    /// [`BuildError::BadRow`]: another build packed them. [`BuildError::Io`], after which it takes nothing
    /// more; [`BuildError::Stopped`].
    pub fn push_rows(&mut self, rows: &PackedRows) -> Result<(), BuildError> {
        let scatter = self.scattering()?;
        scatter.push_rows(rows)?;
        self.rows = scatter.rows;
        self.took(rows.given_bytes())
    }

    fn scattering(&mut self) -> Result<&mut Scatter, BuildError> {
        let row = self.rows + 1;
        self.scatter.as_mut().ok_or_else(|| BuildError::BadRow {
            row,
            what: "the build has all of its rows already".to_owned(),
        })
    }

    fn took(&mut self, bytes: u64) -> Result<(), BuildError> {
        self.unnoted_bytes += bytes;
        if self.unnoted_bytes >= self.options.checkpoint_bytes {
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Notes the progress, so that a build that is killed goes on from here. After a crash of the machine it may
    /// start over.
    ///
    /// # Errors
    /// [`BuildError::Io`], after which it takes nothing more; [`BuildError::Stopped`].
    pub fn checkpoint(&mut self) -> Result<(), BuildError> {
        if let Some(scatter) = &mut self.scatter {
            let runs = scatter.write_all()?;
            self.total = scatter.sums;
            let added = self.journal.add(&Step::Scattered {
                rows: scatter.rows,
                sums: scatter.sums,
                runs,
            });
            scatter.noting(added)?;
        }
        self.unnoted_bytes = 0;
        Ok(())
    }

    /// Gathers all rows, compares the sums of written and read rows, and writes the manifest.
    ///
    /// # Errors
    /// [`BuildError::Duplicate`], [`BuildError::SameDigest`], [`BuildError::PartitionTooLarge`],
    /// [`BuildError::SumsDiffer`], [`BuildError::Io`], [`BuildError::Store`],
    /// [`BuildError::Stopped`]: there is then no manifest, except if the action "make durable" failed.
    /// [`Build::create`] tells.
    pub fn finish(mut self, mut progress: impl FnMut(Progress)) -> Result<Manifest, BuildError> {
        if self.scatter.is_some() {
            self.checkpoint()?;
            self.journal.add(&Step::AllScattered)?;
            self.scatter = None;
        }
        self.gather_all(&mut progress)?;
        let gathered = std::mem::take(&mut self.gathered);
        let gathered = gathered.into_iter().map(|(_, gathered)| gathered);
        let manifest = Manifest::of(&self.plan, &self.dir, &self.total, gathered)?;
        manifest.write(&self.dir)?;
        // They only cost space.
        let _ = remove_runs(&self.dir);
        Ok(manifest)
    }

    fn gather_all(&mut self, progress: &mut impl FnMut(Progress)) -> Result<(), BuildError> {
        let is_done = |bucket: &u32| self.gathered.iter().any(|(done, _)| done == bucket);
        let left: Vec<u32> = (0..self.plan.buckets).filter(|it| !is_done(it)).collect();
        let of = self.plan.buckets;
        let queue = Mutex::new(left.into_iter());
        let is_over = AtomicBool::new(false);
        let (dir, plan) = (self.dir.as_path(), &self.plan);
        let runs = &dir.join(RUNS_DIR);
        let places = |bucket: u32| Places {
            runs,
            dir,
            temporary: runs.join(format!("{bucket:05}.part")),
        };
        let (journal, gathered) = (&mut self.journal, &mut self.gathered);
        // Of capacity 0: a worker begins with no other bucket before the rows of this one are about to go.
        let (done, results) = std::sync::mpsc::sync_channel(0);
        std::thread::scope(|scope| {
            for _ in 0..self.options.workers() {
                let (done, queue, is_over) = (done.clone(), &queue, &is_over);
                let places = &places;
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let next = queue.lock().ok().and_then(|mut left| left.next());
                        let Some(bucket) = next else {
                            return;
                        };
                        let gathered = gather(&places(bucket), plan, bucket);
                        if done.send((bucket, gathered)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(done);
            for (bucket, result) in results {
                let kept = result.and_then(|one| {
                    sync_dir(dir).map_err(BuildError::io("sync", dir))?;
                    journal.add(&Step::Gathered {
                        bucket,
                        files: one.files.clone(),
                        left_out: one.left_out,
                    })?;
                    // They only cost space from now on.
                    for run in plan.runs_of(bucket) {
                        let _ = std::fs::remove_file(run_path(runs, run));
                    }
                    Ok(one)
                });
                match kept {
                    Ok(one) => gathered.push((bucket, one)),
                    Err(error) => {
                        is_over.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                }
                let done = u32::try_from(gathered.len()).unwrap_or(of);
                progress(Progress::Gathered { done, of });
            }
            Ok(())
        })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use torc_ring::Partitions;

    #[test]
    fn a_build_that_could_not_note_its_progress_stops_and_is_continued_by_another() {
        let dir = tempfile::tempdir().unwrap();
        let begin = || {
            let target = Target::offline([7; 32]);
            Build::create(dir.path(), target, BuildOptions::default()).unwrap()
        };
        let mut build = begin();
        build.push("one".into(), "1".into()).unwrap();
        build.checkpoint().unwrap();
        build.push("two".into(), "2".into()).unwrap();
        let full = std::fs::File::options().write(true).open("/dev/full");
        build.journal.write_to(full.unwrap());
        let full = build.checkpoint().unwrap_err();
        assert!(matches!(full, BuildError::Io { .. }), "{full}");
        let pushed = build.push("three".into(), "3".into());
        for again in [pushed, build.checkpoint(), build.finish(|_| ()).map(drop)] {
            assert!(matches!(again, Err(BuildError::Stopped)), "{again:?}");
        }
        let mut build = begin();
        assert_eq!(build.rows_taken(), 1);
        build.push("two".into(), "2".into()).unwrap();
        assert_eq!(build.finish(|_| ()).unwrap().records, 2);
    }

    #[test]
    fn a_build_that_needs_more_memory_continues_with_more() {
        let target = Target {
            partitions: Partitions::new(1).unwrap(),
            ..Target::offline([7; 32])
        };
        let dir = tempfile::tempdir().unwrap();
        let begin = || Build::create(dir.path(), target, BuildOptions::default()).unwrap();
        let mut build = begin();
        for number in 0..100_u32 {
            let key = number.to_le_bytes().to_vec();
            build.push(key.into(), vec![7; 100].into()).unwrap();
        }
        build.plan.other_memory = 1_000;
        let failed = build.finish(|_| ()).unwrap_err();
        assert!(
            matches!(failed, BuildError::PartitionTooLarge { .. }),
            "{failed}"
        );
        let build = begin();
        assert!(build.has_all_rows());
        assert_eq!(build.finish(|_| ()).unwrap().records, 100);
    }

    #[test]
    fn the_number_of_runs_does_not_change_the_files() {
        let target = Target::offline([7; 32]);
        let built = |runs| {
            let dir = tempfile::tempdir().unwrap();
            let options = BuildOptions {
                expected_bytes: Some(1),
                ..BuildOptions::default()
            };
            let mut plan = options.plan(target).with_runs(runs);
            // Several files for each bucket.
            plan.file_bytes = 64 << 10;
            plan.write(dir.path()).unwrap();
            let mut build = Build::create(dir.path(), target, options).unwrap();
            for number in 0..2_000_u32 {
                let key = number.to_le_bytes().to_vec();
                build.push(key.into(), vec![7; 100].into()).unwrap();
            }
            build.checkpoint().unwrap();
            let runs = std::fs::read_dir(dir.path().join(RUNS_DIR)).unwrap();
            (runs.count(), build.finish(|_| ()).unwrap())
        };
        let (runs, one_for_each_bucket) = built(1);
        assert_eq!(runs, 2);
        assert!(one_for_each_bucket.files.len() > 4);
        for wanted in [16, 256] {
            let (runs, manifest) = built(wanted);
            assert_eq!((runs, &manifest), (wanted as usize, &one_for_each_bucket));
        }
    }

    #[test]
    fn packed_rows_are_taken_by_the_build_that_they_are_for() {
        let begin = |key| {
            let dir = tempfile::tempdir().unwrap();
            let target = Target::offline([key; 32]);
            let build = Build::create(dir.path(), target, BuildOptions::default()).unwrap();
            (dir, build)
        };
        let ((_one, mut one), (_other, mut other)) = (begin(1), begin(2));
        let mut rows = one.rows();
        assert!(rows.push("".into(), "no key".into()).is_err());
        rows.push("a".into(), "1".into()).unwrap();
        rows.push("b".into(), "2".into()).unwrap();
        assert_eq!((rows.len(), rows.given_bytes()), (2, 4));
        one.push_rows(&rows).unwrap();
        assert_eq!(one.rows_taken(), 2);
        let refused = other.push_rows(&rows);
        assert!(
            matches!(refused, Err(BuildError::BadRow { row: 1, .. })),
            "{refused:?}"
        );
        other.push("a".into(), "1".into()).unwrap();
        other.push("b".into(), "2".into()).unwrap();
        let (one, other) = (one.finish(|_| ()).unwrap(), other.finish(|_| ()).unwrap());
        assert_eq!(one.records, other.records);
        assert_ne!(one.fingerprint, other.fingerprint);
    }
}
