//! The store of one node beside embedded stores: durable puts, gets, memory, disk, opening.
//!
//! Every measurement runs in its own process ([`child`]), so `kill -9` and memory figures are real.
//! Puts come from concurrent writers, each waiting for its own record to be durable. The peers have
//! no group commit that lets writers share a sync, so a committer thread adds it ([`grouped`]);
//! Torc's store has its own.
//!
//! Every store is filled once and brought into the form in which it is read: Torc flushes and
//! compacts, as do the others where that is recommended ([`held`]). Then, in each round, the stores
//! take turns to be opened, read and killed ([`reads`]).
//!
//! Each store has its own durability: Torc, redb, fjall, LMDB and RocksDB sync what they wrote.
//! sled's `flush` is sync_file_range, which survives a crash of the process but not a power cut;
//! `sled+fdatasync` is sled with an fdatasync of its file after every flush.

pub(crate) mod child;
mod engine;
#[cfg(feature = "peers")]
mod fjall;
mod grouped;
mod held;
#[cfg(feature = "peers")]
mod lmdb;
mod metrics;
mod moved;
mod predictions;
mod puts;
mod reads;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sled;
mod subject;
mod torc;

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdout, Stdio};

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;
use tempfile::TempDir;
use torc_testkit::Process;

use crate::cleanup;
use crate::options::{NOT_BUILT_IN, Options};
use crate::process;
use crate::report::Report;
use subject::Subject;

const WRITERS: [u32; 3] = [1, 64, 256];
/// Disk space left for others.
const SPARE_BYTES: u64 = 8 << 30;

/// What to measure of the store.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Args {
    /// Only these stores
    #[arg(long, value_enum, value_delimiter = ',', value_name = "STORE,..")]
    only: Vec<Subject>,
    /// Leave durable puts out
    #[arg(long)]
    no_puts: bool,
}

impl Args {
    fn subjects(&self) -> Vec<Subject> {
        let all = Subject::value_variants().iter().copied();
        all.filter(|subject| self.only.is_empty() || self.only.contains(subject))
            .collect()
    }
}

/// Measures the stores.
///
/// # Errors
/// A child process fails, except if a peer cannot open its own files after a kill.
pub(crate) fn run(args: &Args, options: &Options) -> Result<Report> {
    let mut report = Report::new("store", predictions::PREDICTIONS);
    let mut subjects = args.subjects();
    subjects.retain(|subject| {
        if !subject.is_built_in() {
            report.skip(subject.name(), NOT_BUILT_IN);
        }
        subject.is_built_in()
    });
    if !args.no_puts {
        for _ in 0..options.rounds() {
            for writers in WRITERS {
                for subject in &subjects {
                    puts(&mut report, options, *subject, writers)?;
                }
            }
        }
    }
    hold(&mut report, options, subjects)?;
    for note in predictions::NOTES {
        report.note(*note);
    }
    Ok(report)
}

fn puts(report: &mut Report, options: &Options, subject: Subject, writers: u32) -> Result<()> {
    let dir = options.scratch()?;
    let millis = if options.quick { 200 } else { 3_000 };
    let task = [("--writers", u64::from(writers)), ("--millis", millis)];
    let child = Child::start(subject, dir.path(), "puts", &task)?;
    child.tell(report, &format!("{writers} writers"), subject)
}

/// A filled store.
struct Filled {
    subject: Subject,
    dir: TempDir,
    task: [(&'static str, u64); 1],
    case: String,
}

/// Fills each store once; in every round, opens each after a kill, reads it and kills it; finally
/// closes each cleanly and opens it again.
fn hold(report: &mut Report, options: &Options, mut subjects: Vec<Subject>) -> Result<()> {
    // It differs from sled only in what a put waits for, which is not measured here.
    subjects.retain(|subject| *subject != Subject::SledSynced);
    let records = options.records_or(1_000_000);
    let mut filled = Vec::new();
    for subject in subjects {
        let dir = options.scratch()?;
        let needed = records * subject.disk_bytes_per_record() + SPARE_BYTES;
        if process::free_bytes(dir.path())? < needed {
            report.skip(subject.name(), "the disk has no room for its records");
            continue;
        }
        let one = Filled {
            subject,
            dir,
            task: [("--records", records)],
            case: format!("{records} records"),
        };
        one.run(report, "fill")?;
        filled.push(one);
    }
    for _ in 0..options.rounds() {
        filled.retain(|one| one.is_sound(report, "read"));
    }
    for one in &filled {
        if one.is_sound(report, "open") && one.is_sound(report, "open") && one.is_torc() {
            one.child("move", &[])?
                .tell(report, "slices moved in one process", one.subject)?;
        }
    }
    Ok(())
}

impl Filled {
    const fn is_torc(&self) -> bool {
        matches!(self.subject, Subject::Torc)
    }

    fn child(&self, task: &str, numbers: &[(&str, u64)]) -> Result<Child> {
        Child::start(self.subject, &self.dir.path().join("store"), task, numbers)
    }

    fn run(&self, report: &mut Report, task: &str) -> Result<()> {
        let child = self.child(task, &self.task)?;
        child.tell(report, &self.case, self.subject)
    }

    /// Runs a task; if the store fails, it is not measured any further, and the report gives the
    /// reason.
    fn is_sound(&self, report: &mut Report, task: &str) -> bool {
        let done = self.run(report, task);
        if let Err(error) = &done {
            let name = self.subject.name();
            report.note(format!("{name} failed to {task} after kill -9: {error:#}"));
        }
        done.is_ok()
    }
}

/// A child process that prints figures, one `name value` per line.
struct Child {
    /// Killed with this value.
    _process: Process,
    said: BufReader<ChildStdout>,
}

impl Child {
    fn start(subject: Subject, dir: &Path, task: &str, numbers: &[(&str, u64)]) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let mut command = cleanup::bound(&std::env::current_exe()?)?;
        command.args(["store-child", "--subject", subject.name(), "--store"]);
        command.arg(dir).arg(task);
        for (flag, number) in numbers {
            command.args([*flag, &number.to_string()]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(&mut command)?;
        let said = process
            .child()
            .stdout
            .take()
            .context("no output of the child")?;
        Ok(Self {
            _process: process,
            said: BufReader::new(said),
        })
    }

    /// Adds all figures of the child, then kills it.
    fn tell(mut self, report: &mut Report, case: &str, subject: Subject) -> Result<()> {
        loop {
            let mut line = String::new();
            self.said.read_line(&mut line)?;
            let said = line.trim_end().split_once(' ');
            let (name, value) = said.context("the child ended before it told everything")?;
            if name == child::END {
                return Ok(());
            }
            report.add(case, metrics::of(name)?, subject.name(), value.parse()?);
        }
    }
}

/// Reports a figure of a child to its parent.
fn say(name: &str, value: f64) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{name} {value}")?;
    Ok(out.flush()?)
}
