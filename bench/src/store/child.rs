//! One task of the suite in its own process. It prints its figures to standard output, one `name
//! value` per line.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Subcommand;

use super::subject::{self, Subject};
use super::{held, moved, puts, reads, say};
use crate::records;

/// Marks the end of the figures.
pub(super) const END: &str = "end";

/// Which store, where, and what to do with it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ChildArgs {
    #[arg(long, value_enum)]
    subject: Subject,
    #[arg(long)]
    store: PathBuf,
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Clone, Subcommand)]
enum Task {
    /// Durable puts into an empty store.
    Puts {
        #[arg(long)]
        writers: u64,
        #[arg(long)]
        millis: u64,
    },
    /// Fill an empty store, and wait to be killed.
    Fill {
        #[arg(long)]
        records: u64,
    },
    /// Open a filled store, read it, and wait to be killed.
    Read {
        #[arg(long)]
        records: u64,
    },
    /// Move the slices of a filled store into an empty one beside it.
    Move,
    /// Open a filled store, check it, close it.
    Open {
        #[arg(long)]
        records: u64,
    },
}

/// Carries out the task.
///
/// # Errors
/// The store's error; a record that is missing or differs.
pub(crate) fn run(args: &ChildArgs) -> Result<()> {
    match args.task {
        Task::Puts { writers, millis } => {
            let store = subject::open(args.subject, &args.store)?;
            let rate = puts::rate(&*store, writers, Duration::from_millis(millis))?;
            store.close()?;
            say("durable_puts", rate)?;
            wait()
        }
        Task::Fill { records } => {
            held::fill(args.subject, &args.store, records)?;
            wait()
        }
        Task::Read { records } => {
            reads::read(args.subject, &args.store, records)?;
            wait()
        }
        Task::Move => {
            moved::measure(&args.store)?;
            wait()
        }
        Task::Open { records } => open(args.subject, &args.store, records),
    }
}

/// Waits to be killed, or until the parent has ended, which closes the input.
fn wait() -> Result<()> {
    say(END, 0.0)?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn open(subject: Subject, dir: &Path, records: u64) -> Result<()> {
    let started = Instant::now();
    let store = subject::open(subject, dir)?;
    let first = store.get(&records::key(0))?;
    let seconds = started.elapsed().as_secs_f64();
    ensure!(first.is_some(), "record 0 is not there after opening");
    for index in (0..records).step_by((records as usize / 1000).max(1)) {
        let pair = records::pair(index);
        let found = store.get(&pair.key)?;
        ensure!(
            found == Some(pair.value.len()),
            "record {index} is not there after opening"
        );
    }
    store.close()?;
    say("open_after_close", seconds)?;
    wait()
}
