//! The store of one node beside embedded stores: durable puts, gets, memory, disk, opening.
//!
//! Every measurement runs in a process of its own ([`child`]), which makes `kill -9` and
//! the memory figures real. Puts come from concurrent writers, each waiting for its own
//! record to be durable. The peers have no group commit of their own that lets writers
//! share a sync, so one committer thread gives it to them ([`grouped`]), as Torc's store
//! has it within.
//!
//! Durability is what each has: Torc, redb and fjall fdatasync what they wrote. sled's
//! `flush` is sync_file_range, which survives a crash of the process and not a power cut;
//! `sled+fdatasync` is sled with an fdatasync of its file behind every flush.

pub(crate) mod child;
mod engine;
mod fjall;
mod grouped;
mod held;
mod predictions;
mod puts;
mod redb;
mod sled;
mod torc;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Stdio};

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;

use crate::cleanup;
use crate::cli::Options;
use crate::process::Process;
use crate::report::{Metric, Report};
use engine::Subject;

const WRITERS: [u32; 3] = [1, 64, 256];
const PUTS: Metric = Metric::new("durable_puts", "puts/s");

/// Measures the stores.
///
/// # Errors
/// A child process fails, except where a peer does not open its own files after a kill.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("store", predictions::PREDICTIONS);
    let records = options.records_or(1_000_000);
    for _ in 0..options.rounds {
        for writers in WRITERS {
            for subject in Subject::value_variants() {
                puts(&mut report, options, *subject, writers)?;
            }
        }
        for subject in Subject::value_variants() {
            hold(&mut report, options, *subject, records)?;
        }
    }
    report.note("sled: its flush is sync_file_range, not an fsync: it may lose acknowledged puts in a power cut");
    report.note(
        "redb, fjall, sled: one committer thread shares each commit among the waiting writers",
    );
    Ok(report)
}

fn puts(report: &mut Report, options: &Options, subject: Subject, writers: u32) -> Result<()> {
    let dir = options.scratch()?;
    let millis = if options.quick { 200 } else { 3_000 };
    let mut child = Child::start(
        subject,
        dir.path(),
        &["puts"],
        &[("--writers", u64::from(writers)), ("--millis", millis)],
    )?;
    let rate = child.figure("puts_per_s")?;
    child.process.finish()?;
    report.add(&format!("{writers} writers"), PUTS, subject.name(), rate);
    Ok(())
}

/// Fills, reads, kills, opens, closes, opens.
fn hold(report: &mut Report, options: &Options, subject: Subject, records: u64) -> Result<()> {
    let (dir, name) = (options.scratch()?, subject.name());
    let case = format!("{records} records");
    let mut add = |metric: &'static str, unit, value| {
        report.add(&case, Metric::new(metric, unit), name, value);
    };
    let size = [("--records", records)];
    let mut filled = Child::start(subject, dir.path(), &["fill"], &size)?;
    for (metric, unit) in held::FIGURES {
        add(metric, unit, filled.figure(metric)?);
    }
    filled.process.kill_9()?;
    for metric in ["open_after_kill_9", "open_after_close"] {
        let mut opened = Child::start(subject, dir.path(), &["open"], &size)?;
        match opened.figure("open") {
            Ok(seconds) => {
                add(metric, "s", seconds);
                opened.process.finish()?;
            }
            Err(error) if subject != Subject::Torc => {
                report.note(format!("{name} did not open after kill -9: {error:#}"));
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A child process that prints figures, one `name value` a line.
struct Child {
    process: Process,
    said: BufReader<ChildStdout>,
}

impl Child {
    fn start(subject: Subject, dir: &Path, task: &[&str], numbers: &[(&str, u64)]) -> Result<Self> {
        let mut command = cleanup::bound(&std::env::current_exe()?)?;
        command.args(["store-child", "--subject", subject.name(), "--store"]);
        command.arg(dir).args(task);
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
            process,
            said: BufReader::new(said),
        })
    }

    /// Waits for the next figure, which has to be this one.
    fn figure(&mut self, name: &str) -> Result<f64> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        let value = line.trim_end().strip_prefix(name).map(str::trim);
        let value = value.with_context(|| format!("the child ended before it told {name}"))?;
        Ok(value.parse()?)
    }
}
