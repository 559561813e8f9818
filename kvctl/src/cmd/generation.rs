//! `kvctl generation`: manages generations, on this machine and in a cluster.

mod change;

use std::path::{Path, PathBuf};

pub(super) use change::{
    attach, is_not_rolled_back, open_merge, promote, state, target_of, url_of,
};
use serde::Serialize;
use torc_build::{Answer, BuildError, Depth, Generation, Manifest, Published, Shape};
use torc_client::GenerationState;
use torc_store::StoreError;

use crate::args::KeyArgs;
use crate::failure::Failure;
use crate::format::JsonRow;
use crate::global::Global;
use crate::out::{Out, note};
use crate::text;

/// Manage generations of static namespaces, which `kvctl build` makes
///
/// Reserve a generation, build it, attach it (nodes fetch it) and promote it: then nodes answer
/// gets from it. The previous generation stays for a rollback until you drop it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Reserve a generation of a static namespace, to build it elsewhere; or a merge.
    ///
    /// A merge loads rows into a linearizable namespace that clients use meanwhile: every write and
    /// delete that begins after the reservation wins over the rows. Prepare them for as long as you
    /// like, load them with `kvctl load --merge`, and end the merge with `drop` once the load has
    /// ended: a row that arrives later can undo a delete that found no value. Until then, the
    /// namespace keeps deleted and expired keys on disk. Waits for nodes that do not respond, and
    /// names them.
    Reserve {
        /// The namespace.
        #[arg(value_name = "NAMESPACE")]
        name: String,
        /// File to write for `kvctl build --reservation`. It holds a secret of the generation.
        #[arg(
            long,
            value_name = "FILE",
            required_unless_present = "merge",
            conflicts_with = "merge"
        )]
        to: Option<PathBuf>,
        /// Reserve a merge.
        #[arg(long)]
        merge: bool,
    },
    /// Make the nodes fetch a generation that was built for a reservation, and wait until they hold
    /// it.
    Attach {
        /// Directory of the build, or URL of a manifest or of a location. Given a location, kvctl uses its
        /// newest manifest.
        #[arg(value_name = "DIR|URL")]
        dir: PathBuf,
        /// URL of the directory as nodes see it, file:///DIR. Default: the same path as here.
        #[arg(long, value_name = "URL")]
        source: Option<String>,
    },
    /// Make a generation the current one; or create the namespace that was built with `--create`.
    ///
    /// Returns when no node answers gets from an older generation. Waits for nodes that do not
    /// respond, and names them.
    Promote {
        /// Number of the generation, as `list` shows it.
        #[arg(value_name = "NUMBER")]
        number: u32,
        /// Do not wait. A node that is cut off may then answer from the older generation until it
        /// reconnects.
        #[arg(long)]
        force: bool,
    },
    /// Return to the previous generation and retire the current one.
    Rollback {
        /// The namespace.
        #[arg(value_name = "NAMESPACE")]
        name: String,
        /// As with `promote`.
        #[arg(long)]
        force: bool,
    },
    /// Delete a generation that is not current, on all nodes; or end a merge. One that would create a namespace is
    /// deleted with its records.
    Drop {
        /// Number of the generation, as `list` shows it.
        #[arg(value_name = "NUMBER")]
        number: u32,
    },
    /// List generations.
    List {
        /// Only generations of this namespace.
        #[arg(value_name = "NAMESPACE")]
        name: Option<String>,
    },
    /// Print the key with an id, in a namespace whose content was built with `--shape ids`.
    ///
    /// `kvctl get` gives the id of a key. Ids are 0 to n - 1, and stable within a generation. Exit
    /// code 1: the current generation has no such id.
    Key {
        /// The namespace.
        #[arg(value_name = "NAMESPACE")]
        name: String,
        /// The id.
        #[arg(value_name = "ID")]
        id: u64,
    },
    /// Print the value of a key, byte for byte. Exit code 1 if the generation lacks the key.
    Get {
        /// Directory of the build.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        #[command(flatten)]
        key: KeyArgs,
    },
    /// Show what a generation holds and how much memory its index takes.
    Show {
        /// Directory of the build.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Check a generation and name the first damaged file.
    Verify {
        /// Directory of the build, or URL of a manifest or of a location. Given a location, kvctl uses its
        /// newest manifest.
        #[arg(value_name = "DIR|URL")]
        dir: PathBuf,
        /// How much to check.
        #[arg(long, value_enum, value_name = "DEPTH", default_value_t = HowDeep::Records)]
        depth: HowDeep,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum HowDeep {
    /// Every file exists and has its length.
    Names,
    /// Also: every file's bytes match its digest.
    Bytes,
    /// Also: every record is intact, and lookups find it.
    Records,
}

/// What `get --output json` prints.
#[derive(Debug, Serialize)]
struct Found<'a> {
    #[serde(flatten)]
    record: JsonRow<'a>,
    /// The id in a keyless generation; the key is then only probably present.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    index_bits_per_key: Option<f64>,
}

pub(crate) async fn run(args: &Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    match &args.command {
        Command::Reserve { name, to, .. } => match to {
            Some(to) => change::reserve(name, to, global, out).await,
            None => change::reserve_merge(name, global, out).await,
        },
        Command::Attach { dir, source } => {
            let (manifest, url) = match as_url(dir) {
                Some(url) => {
                    let published = Published::open(url).await.map_err(failure)?;
                    (published.manifest().clone(), published.url().to_owned())
                }
                None => (Manifest::read(dir).map_err(failure)?, url_of(dir)?),
            };
            // The same manifest, where nodes see it.
            let source = source.as_ref().map(|seen| {
                let (_, name) = torc_build::source_of(&url);
                match torc_build::source_of(seen.trim_end_matches('/')) {
                    (location, _) if location == seen.trim_end_matches('/') => {
                        format!("{location}/{name}")
                    }
                    _ => seen.clone(),
                }
            });
            let source = source.unwrap_or(url);
            let attached = attach(&global.client()?, &manifest, source).await?;
            change::show(&attached, global, out)
        }
        Command::Promote { number, force } => {
            let promoted = promote(&global.client()?, *number, *force).await?;
            change::show(&promoted, global, out)
        }
        Command::Rollback { name, force } => change::roll_back(name, *force, global, out).await,
        Command::Drop { number } => {
            let client = global.client()?;
            let all = client.generations(None).await?;
            let mut all = all.iter().filter(|it| it.number == *number);
            let is_merge = all.any(|it| it.state == GenerationState::Merging);
            client.drop_generation(*number).await?;
            let did = if is_merge {
                "ended merge"
            } else {
                "dropped generation"
            };
            note(format_args!("{did} {number}"));
            Ok(())
        }
        Command::List { name } => change::list(name.as_deref(), global, out).await,
        Command::Key { name, id } => key(name, *id, global, out).await,
        Command::Get { dir, key } => get(dir, key, global, out),
        Command::Show { dir } => show(&Generation::open(dir).map_err(failure)?, "", global, out),
        Command::Verify { dir, depth } => verify(dir, *depth, global, out).await,
    }
}

/// Prints the key with an id.
async fn key(name: &str, id: u64, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let client = global.client()?.namespace(name);
    let Some((key, version)) = client.key_of(id).await? else {
        return Err(Failure::IdNotFound { id });
    };
    if global.json() {
        return out.json(&JsonRow::key(&key).version(version));
    }
    out.raw(&key)?;
    out.raw(b"\n")
}

/// Prints the value of a key of a generation in a directory.
fn get(dir: &Path, key: &KeyArgs, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let generation = Generation::open(dir).map_err(failure)?;
    let key = key.key()?;
    let (value, id) = match generation.get(&key).map_err(failure)? {
        Answer::Value(value) => (value, None),
        Answer::Id(id) => (id.to_string().into(), None),
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
            "probably present, as number {id}: an absent key looks present with probability {rate:.1e}"
        ));
    }
    out.raw(&value)
}

async fn verify(dir: &Path, depth: HowDeep, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let verdict = match depth {
        HowDeep::Names => " has all of its files",
        HowDeep::Bytes | HowDeep::Records => " is intact",
    };
    let depth = match depth {
        HowDeep::Names => Depth::Names,
        HowDeep::Bytes => Depth::Bytes,
        HowDeep::Records => Depth::Records,
    };
    if let Some(url) = as_url(dir) {
        let published = Published::open(url).await.map_err(failure)?;
        published.verify(depth).await.map_err(failure)?;
        return shown(published.manifest(), None, verdict, global, out);
    }
    Generation::verify(dir, depth).map_err(failure)?;
    show(
        &Generation::open(dir).map_err(failure)?,
        verdict,
        global,
        out,
    )
}

/// A location of objects instead of a directory.
fn as_url(dir: &Path) -> Option<&str> {
    dir.to_str().filter(|text| text.contains("://"))
}

fn show(
    generation: &Generation,
    verdict: &str,
    global: &Global,
    out: &mut Out,
) -> Result<(), Failure> {
    let index_bytes = Some(generation.index_bytes());
    shown(generation.manifest(), index_bytes, verdict, global, out)
}

/// `index_bytes` is known only of a generation in a directory. `verdict` is empty if it was not
/// verified.
fn shown(
    manifest: &Manifest,
    index_bytes: Option<u64>,
    verdict: &str,
    global: &Global,
    out: &mut Out,
) -> Result<(), Failure> {
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
        index_bits_per_key: index_bytes.map(|bytes| bits_per_key(bytes, manifest.records)),
    };
    if global.json() {
        return out.json(&shown);
    }
    out.line(format!(
        "generation {}{verdict}: {} ({}) in {} ({}), for {}{}",
        &shown.generation[..16],
        text::counted(shown.records, "key"),
        text::bytes(shown.payload_bytes),
        text::counted(shown.files, "file"),
        text::bytes(shown.file_bytes),
        text::counted(u64::from(shown.partitions), "partition"),
        shown
            .index_bits_per_key
            .map_or_else(String::new, |bits| format!(
                "; {bits:.2} bits of index per key"
            )),
    ))
}

pub(super) fn failure(error: BuildError) -> Failure {
    match error {
        BuildError::Io {
            action,
            path,
            source,
        } => Failure::File {
            action,
            path: path.display().to_string(),
            source,
        },
        BuildError::Objects(error) => error.into(),
        BuildError::Duplicate { .. }
        | BuildError::SameDigest { .. }
        | BuildError::BadShape { .. }
        | BuildError::Store(StoreError::OutOfSpace) => Failure::OutOfBounds(error.to_string()),
        BuildError::NoGeneration { .. }
        | BuildError::SumsDiffer { .. }
        | BuildError::Store(StoreError::Corrupt { .. } | StoreError::Damaged { .. }) => {
            Failure::Damaged(error.to_string())
        }
        other => Failure::Usage(other.to_string()),
    }
}

pub(super) fn bits_per_key(index_bytes: u64, records: u64) -> f64 {
    index_bytes as f64 * 8.0 / records.max(1) as f64
}

pub(super) fn hex(digest: &[u8; 32]) -> String {
    use std::fmt::Write as _;
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
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
            index_bits_per_key: Some(0.0),
        });
        crate::out::assert_documented(&Found {
            record: JsonRow::key(b"k").value(b"v"),
            id: Some(0),
        });
    }
}
