//! `kvctl generation`: what `kvctl build` has made, on this machine and in a cluster.

mod change;

use std::path::PathBuf;

pub(super) use change::{attach, promote, state, target_of};
use serde::Serialize;
use torc_build::{Answer, Depth, Generation, Manifest, Shape};

use super::build::{bits_per_key, failure, hex};
use crate::args::KeyArgs;
use crate::cli::Global;
use crate::failure::Failure;
use crate::format::JsonRow;
use crate::out::{Out, note};
use crate::text;

/// Generations of static namespaces: immutable contents that `kvctl build` makes
///
/// A generation is reserved, built, attached (nodes fetch it) and promoted: then gets are answered from
/// it. The one before stays, to go back to, until it is dropped.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Reserve a generation of a static namespace, to be built elsewhere.
    Reserve {
        /// The namespace.
        #[arg(value_name = "NAMESPACE")]
        name: String,
        /// Where to write what `kvctl build --reservation` needs. It holds a secret of the generation.
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Have the nodes fetch a generation that was built for a reservation; wait until they hold it.
    Attach {
        /// The directory that was built to.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// The directory as the nodes see it, file:///DIR. Without it, as it is here.
        #[arg(long, value_name = "URL")]
        source: Option<String>,
    },
    /// Answer gets from a generation from now on.
    ///
    /// Returns when no node answers from an older one any more. Nodes that cannot be reached are named and
    /// waited for.
    Promote {
        /// Its number, as `list` shows it.
        #[arg(value_name = "NUMBER")]
        number: u32,
        /// Do not wait: a node that cannot be reached may answer from the older one until it can.
        #[arg(long)]
        force: bool,
    },
    /// Go back to the generation before the current one, which is then not wanted any more.
    Rollback {
        /// The namespace.
        #[arg(value_name = "NAMESPACE")]
        name: String,
        /// As with `promote`.
        #[arg(long)]
        force: bool,
    },
    /// Delete a generation that is not current, on all nodes.
    Drop {
        /// Its number, as `list` shows it.
        #[arg(value_name = "NUMBER")]
        number: u32,
    },
    /// List generations.
    List {
        /// Only of this namespace.
        #[arg(value_name = "NAMESPACE")]
        name: Option<String>,
    },
    /// Print the value of a key, or its payload. Ends with 1 if the generation does not have it.
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

/// What `get --output json` prints.
#[derive(Debug, Serialize)]
struct Found<'a> {
    #[serde(flatten)]
    record: JsonRow<'a>,
    /// Of a keyless one; then the key is there with a probability only.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
}

/// What `show` and `verify` print with `--output json`.
#[derive(Debug, Serialize)]
struct Shown {
    generation: String,
    records: u64,
    payload_bytes: u64,
    duplicates: u64,
    files: u64,
    file_bytes: u64,
    partitions: u32,
    shape: Shape,
    false_positive_rate: f64,
    index_bits_per_key: f64,
}

pub(crate) async fn run(args: &Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    match &args.command {
        Command::Reserve { name, to } => change::reserve(name, to, global, out).await,
        Command::Attach { dir, source } => {
            let manifest = Manifest::read(dir).map_err(failure)?;
            let client = global.client()?;
            let attached = attach(&client, dir, &manifest, source.as_deref()).await?;
            change::show(&attached, global, out)
        }
        Command::Promote { number, force } => {
            let promoted = promote(&global.client()?, *number, *force).await?;
            change::show(&promoted, global, out)
        }
        Command::Rollback { name, force } => change::roll_back(name, *force, global, out).await,
        Command::Drop { number } => {
            global.client()?.drop_generation(*number).await?;
            note(format_args!("generation {number} is dropped"));
            Ok(())
        }
        Command::List { name } => change::list(name.as_deref(), global, out).await,
        Command::Get { dir, key } => {
            let generation = Generation::open(dir).map_err(failure)?;
            let key = key.key()?;
            let (value, id) = match generation.get(&key).map_err(failure)? {
                Answer::Value(value) => (value, None),
                Answer::Probably { id, payload } => (payload, Some(id)),
                Answer::Absent => {
                    let key = text::escaped(&key).into_owned();
                    return Err(Failure::KeyNotFound { key });
                }
            };
            if global.json() {
                let record = JsonRow::key(&key).value(&value);
                return out.json(&Found { record, id });
            }
            if let Some(id) = id {
                let rate = generation.manifest().shape.false_positive_rate();
                note(format!(
                    "probably there, as number {id}: the share {rate:.1e} of absent keys is taken for one that is"
                ));
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
        shape: manifest.shape,
        false_positive_rate: manifest.shape.false_positive_rate(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_is_documented() {
        crate::out::assert_documented(&Shown {
            generation: String::new(),
            records: 0,
            payload_bytes: 0,
            duplicates: 0,
            files: 0,
            file_bytes: 0,
            partitions: 0,
            shape: Shape::Keyless {
                fingerprint_bits: 1,
                payload_bytes: 0,
            },
            false_positive_rate: 0.5,
            index_bits_per_key: 0.0,
        });
        crate::out::assert_documented(&Found {
            record: JsonRow::key(b"k").value(b"v"),
            id: Some(0),
        });
    }
}
