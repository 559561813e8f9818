//! `kvctl generation`: what `kvctl build` has made, on this machine. No node is asked.

use std::path::PathBuf;

use serde::Serialize;
use torc_build::{Depth, Generation};

use super::build::{bits_per_key, failure, hex};
use crate::args::KeyArgs;
use crate::cli::Global;
use crate::failure::Failure;
use crate::format::JsonRow;
use crate::out::Out;
use crate::text;

/// Read and check generations that `kvctl build` has made
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print the value of a key. Ends with 1 if the generation does not have it.
    Get {
        /// The directory that was built to.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        #[command(flatten)]
        key: KeyArgs,
    },
    /// Say what a generation holds and what its index takes in memory.
    Show {
        /// The directory that was built to.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Check a generation, and name the first file that is not as it was built.
    Verify {
        /// The directory that was built to.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// How closely to look.
        #[arg(long, value_enum, value_name = "DEPTH", default_value_t = HowDeep::Records)]
        depth: HowDeep,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum HowDeep {
    /// Every file is there and has its length.
    Names,
    /// Also: the bytes of every file have its digest.
    Bytes,
    /// Also: every record is whole, and lookups find it.
    Records,
}

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Shown {
    generation: String,
    records: u64,
    payload_bytes: u64,
    duplicates: u64,
    files: u64,
    file_bytes: u64,
    partitions: u32,
    index_bits_per_key: f64,
}

pub(crate) fn run(args: &Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    match &args.command {
        Command::Get { dir, key } => {
            let generation = Generation::open(dir).map_err(failure)?;
            let key = key.key()?;
            let found = generation.get(&key).map_err(failure)?;
            let value = found.ok_or_else(|| Failure::KeyNotFound {
                key: text::escaped(&key).into_owned(),
            })?;
            if global.json() {
                return out.json(&JsonRow::key(&key).value(&value));
            }
            out.raw(&value)?;
            out.raw(b"\n")
        }
        Command::Show { dir } => show(&Generation::open(dir).map_err(failure)?, global, out),
        Command::Verify { dir, depth } => {
            let depth = match depth {
                HowDeep::Names => Depth::Names,
                HowDeep::Bytes => Depth::Bytes,
                HowDeep::Records => Depth::Records,
            };
            Generation::verify(dir, depth).map_err(failure)?;
            show(&Generation::open(dir).map_err(failure)?, global, out)
        }
    }
}

fn show(generation: &Generation, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let manifest = generation.manifest();
    let shown = Shown {
        generation: hex(&manifest.digest()),
        records: manifest.records,
        payload_bytes: manifest.payload_bytes,
        duplicates: manifest.duplicates,
        files: manifest.files.len() as u64,
        file_bytes: manifest.file_bytes(),
        partitions: manifest.target.partitions.count(),
        index_bits_per_key: bits_per_key(generation.index_bytes(), manifest.records),
    };
    if global.json() {
        return out.json(&shown);
    }
    out.line(format!(
        "generation {}: {} keys ({}) in {} ({}), for {} partitions; {:.2} bits of index a key",
        &shown.generation[..16],
        text::count(shown.records),
        text::bytes(shown.payload_bytes),
        text::counted(shown.files, "file"),
        text::bytes(shown.file_bytes),
        text::count(u64::from(shown.partitions)),
        shown.index_bits_per_key,
    ))
}
