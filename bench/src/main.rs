//! `torc-bench`: Torc measured beside its peers.
//!
//! One suite per directory; each fills a [`report::Report`] and prints it. The README
//! beside this crate has methods and results.
//!
//! Invariants:
//! * Subjects take turns within a round, so other load on the machine affects all of
//!   them; reports show medians of the rounds with their spread.
//! * Every subject does the same work on the same records, with its own durability; if
//!   that is less than an fsync, the report says so.
//! * A peer that is not installed is skipped and named. Times never decide success.
//!
//! Absent on purpose: thresholds, and tests that assert on measurements.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures for people; `as` saturates"
)]

mod bulk;
mod cleanup;
mod cli;
mod hot;
mod index;
mod join;
mod kvd;
mod machine;
mod options;
mod plots;
mod process;
mod records;
mod report;
mod ring;
mod sketch;
mod stats;
mod store;
mod table;
mod theory;
mod wire;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Suite};
use options::Options;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli.suite, &cli.options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("torc-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(suite: &Suite, options: &Options) -> anyhow::Result<()> {
    let measure: &dyn Fn(&Options) -> anyhow::Result<report::Report> = match suite {
        Suite::Ring => &ring::run,
        Suite::Index(args) => &|options| index::run(*args, options),
        Suite::Sketch(args) => &|options| sketch::run(*args, options),
        Suite::Bulk(args) => &|options| bulk::run(*args, options),
        Suite::Store(args) => &|options| store::run(args, options),
        Suite::Wire => &wire::run,
        Suite::Resp(args) => &|options| wire::resp::run(args, options),
        Suite::Tls => &wire::tls::run,
        Suite::Paths(args) => &|options| wire::paths::run(args, options),
        Suite::Replicas(args) => &|options| wire::replicas::run(args, options),
        Suite::Hot(args) => &|options| hot::run(*args, options),
        Suite::Join(args) => &|options| join::run(*args, options),
        Suite::Load(args) => &|options| wire::load::run(args, options),
        Suite::Ram(args) => &|options| wire::memory::run(*args, options),
        Suite::Theory(args) => return theory::run(args, options),
        Suite::StoreChild(args) => return store::child::run(args),
        Suite::Echo(args) => return wire::paths::echo::serve(*args),
        Suite::Bound(args) => return cleanup::become_bound(args),
    };
    cleanup::on_signals()?;
    if let Some(dir) = &options.plot {
        plots::make_dir(dir)?;
    }
    if cfg!(debug_assertions) {
        eprintln!("torc-bench: a debug build: its figures mean nothing; use `--profile ship`");
    }
    let report = measure(options)?;
    report.print(options.json)?;
    let plot = options.plot.as_ref();
    let drawn = plot.map_or(Ok(()), |dir| plots::write_report(dir, &report));
    report.outcome().and(drawn)
}
