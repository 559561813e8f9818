//! `kvctl backup`: backups of the cluster, in a directory or in an object store.

mod create;

use serde::Serialize;
use torc_backup::{Backup, Depth, Listed, Location, Namespace, Plan, prune, verify};
use torc_build::Shape;
use torc_record::State;

use crate::args::KeyArgs;
use crate::failure::Failure;
use crate::format::JsonRow;
use crate::global::Global;
use crate::input;
use crate::out::{Out, note};
use crate::table::{Align, Table};
use crate::text;

/// Create, inspect and remove backups of the cluster
///
/// URL is file:///DIR, a directory that this machine and all nodes can write to, or
/// s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX. These need kvctl and nodes built
/// with the feature `s3`, `gcs` or `azure`, and the AWS_…, GOOGLE_… or AZURE_… environment variables.
/// You can restore each backup without any other one. It copies only the slices that no earlier
/// backup at the same URL has.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Back up every namespace, with all writes that were acknowledged before the start.
    ///
    /// All nodes copy at the same time and keep serving. After an interruption or a node's failure,
    /// continue with `--resume`.
    Create(create::Args),
    /// List the backups at a place, the oldest first.
    List {
        /// Where the backups are.
        #[arg(value_name = "URL")]
        url: String,
    },
    /// Check a backup without restoring it. Exit code 4 if an object is missing or damaged; the
    /// message names it.
    Verify {
        /// Where the backups are.
        #[arg(value_name = "URL")]
        url: String,
        /// Name of the backup. Default: the newest.
        #[arg(long, value_name = "NAME")]
        backup: Option<String>,
        /// How much to check.
        #[arg(long, value_enum, default_value_t = HowDeep::Bytes)]
        depth: HowDeep,
    },
    /// Print the value of a key of `--namespace` from a backup, reading nothing else. Exit code 1
    /// if the backup lacks the key.
    Get {
        /// Where the backups are.
        #[arg(value_name = "URL")]
        url: String,
        #[command(flatten)]
        key: KeyArgs,
        /// Name of the backup. Default: the newest with the namespace.
        #[arg(long, value_name = "NAME")]
        backup: Option<String>,
    },
    /// Remove all but the newest backups, the objects that no other backup uses, and what interrupted
    /// restores have left behind. Do not create or restore a backup there meanwhile. Backups of other clusters,
    /// and of single namespaces (`create --only`), are counted by themselves.
    Prune {
        /// Where the backups are.
        #[arg(value_name = "URL")]
        url: String,
        /// Number of backups to keep, of each cluster and choice of namespaces.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        keep: u32,
        /// Also remove unfinished backups.
        #[arg(long)]
        unfinished: bool,
        /// Only print what would be removed.
        #[arg(long)]
        plan: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum HowDeep {
    /// Every object exists and is long enough.
    Names,
    /// Also: every byte is as it was written.
    Bytes,
    /// Also: every record is readable and in the right place, as a restore needs.
    Restore,
}

impl From<HowDeep> for Depth {
    fn from(depth: HowDeep) -> Self {
        match depth {
            HowDeep::Names => Self::Names,
            HowDeep::Bytes => Self::Bytes,
            HowDeep::Restore => Self::Restore,
        }
    }
}

/// A backup, as `--output json` prints it.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    cluster: String,
    begun_ms: u64,
    complete: bool,
    namespaces: Vec<String>,
    only: bool,
    slices: u64,
    records: u64,
    bytes: u64,
}

impl Row {
    fn of(listed: &Listed) -> Self {
        let (plan, sums) = (&listed.plan, listed.sums.unwrap_or_default());
        Self {
            name: plan.name.clone(),
            cluster: plan.cluster.clone(),
            begun_ms: plan.begun_ms,
            complete: listed.sums.is_some(),
            namespaces: plan.namespaces.iter().map(|it| it.name.clone()).collect(),
            only: plan.only,
            slices: sums.slices,
            records: sums.records,
            bytes: sums.bytes,
        }
    }
}

/// What `verify --output json` prints.
#[derive(Debug, Serialize)]
struct VerifiedRow {
    name: String,
    slices: u64,
    records: u64,
    bytes: u64,
    packs: u64,
    pack_bytes: u64,
    foreign: u64,
}

/// What `prune --output json` prints.
#[derive(Debug, Serialize)]
struct PrunedRow {
    backups: Vec<String>,
    packs: u64,
    restores: u64,
    bytes: u64,
    planned: bool,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    match args.command {
        Command::Create(args) => create::run(args, global, out).await,
        Command::List { url } => list(&url, global, out).await,
        Command::Verify { url, backup, depth } => {
            look(&url, backup, depth.into(), global, out).await
        }
        Command::Get { url, key, backup } => get(&url, &key, backup, global, out).await,
        Command::Prune {
            url,
            keep,
            unfinished,
            plan,
        } => {
            let location = Location::open(&url)?;
            let pruned = prune(&location, keep as usize, unfinished, plan).await?;
            let row = PrunedRow {
                backups: pruned.backups,
                packs: pruned.packs,
                restores: pruned.restores,
                bytes: pruned.bytes,
                planned: plan,
            };
            if global.json() {
                return out.json(&row);
            }
            let did = if plan { "would remove" } else { "removed" };
            out.line(format!(
                "{did} {}, {} and {} of interrupted restores ({})",
                text::counted(row.backups.len() as u64, "backup"),
                text::counted(row.packs, "pack"),
                text::counted(row.restores, "object"),
                text::bytes(row.bytes)
            ))
        }
    }
}

async fn list(url: &str, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let listed = readable(&Location::open(url)?).await?;
    let rows: Vec<Row> = listed.iter().map(Row::of).collect();
    if global.json() {
        return rows.iter().try_for_each(|row| out.json(row));
    }
    let mut table = Table::new(&[
        ("name", Align::Left),
        ("begun", Align::Left),
        ("state", Align::Left),
        ("records", Align::Right),
        ("bytes", Align::Right),
        ("namespaces", Align::Left),
    ]);
    for row in &rows {
        table.row([
            row.name.clone(),
            text::timestamp(row.begun_ms),
            if row.complete {
                "complete"
            } else {
                "unfinished"
            }
            .to_owned(),
            text::count(row.records),
            text::bytes(row.bytes),
            if row.only {
                format!("only {}", row.namespaces.join(", "))
            } else {
                row.namespaces.join(", ")
            },
        ]);
    }
    out.line(table)
}

/// The backups at a location. Names the others on standard error.
async fn readable(location: &Location) -> Result<Vec<Listed>, Failure> {
    let skip = |name, error| {
        note(format_args!(
            "skipped backup {name}, which cannot be read: {error}"
        ));
    };
    Ok(Backup::list(location, skip).await?)
}

/// What a backup that was not named must have.
#[derive(Debug, Clone, Copy)]
pub(super) enum Having<'a> {
    Anything,
    /// Every namespace of the cluster: not those that `--only` names.
    Everything,
    Namespace(&'a str),
}

impl Having<'_> {
    fn is_of(self, plan: &Plan) -> bool {
        let has = |name: &str| plan.namespaces.iter().any(|it| it.name == name);
        match self {
            Self::Anything => true,
            Self::Everything => !plan.only,
            Self::Namespace(name) => !plan.only || has(name),
        }
    }
}

/// The given name, or the name of the newest complete backup that has this.
pub(super) async fn name_of(
    location: &Location,
    url: &str,
    named: Option<String>,
    having: Having<'_>,
) -> Result<String, Failure> {
    if let Some(name) = named {
        return Ok(name);
    }
    let mut unreadable = Vec::new();
    let listed = Backup::list(location, |name, error| unreadable.push((name, error))).await?;
    let complete = listed.into_iter().filter(|listed| listed.sums.is_some());
    let complete: Vec<Plan> = complete.map(|listed| listed.plan).collect();
    let mut fitting = complete.iter().filter(|plan| having.is_of(plan)).rev();
    let newest = fitting.next();
    if let Some(newest) = newest
        && !matches!(having, Having::Anything)
        && let Some(other) = fitting.find(|other| other.cluster != newest.cluster)
    {
        return Err(Failure::Usage(format!(
            "{url} has backups of several clusters, such as {} of cluster {} and {} of cluster {}: choose one with \
             --backup",
            newest.name, newest.cluster, other.name, other.cluster
        )));
    }
    if newest.is_none()
        && let Some(plan) = complete.last()
    {
        let names: Vec<&str> = plan.namespaces.iter().map(|it| it.name.as_str()).collect();
        return Err(Failure::Usage(format!(
            "{url} has only backups of other namespaces, the newest of {}: choose one with --backup",
            names.join(", ")
        )));
    }
    let newest = newest.map(|plan| plan.name.clone());
    // Names begin with the time.
    let newer = unreadable
        .into_iter()
        .find(|(name, _)| newest.as_ref() < Some(name));
    if let Some((name, error)) = newer {
        let message =
            format!("backup {name} cannot be read: {error}. Choose another one with --backup");
        return Err(Failure::Damaged(message));
    }
    newest.ok_or_else(|| Failure::NoBackup(url.to_owned()))
}

async fn look(
    url: &str,
    backup: Option<String>,
    depth: Depth,
    global: &Global,
    out: &mut Out,
) -> Result<(), Failure> {
    let location = Location::open(url)?;
    let name = name_of(&location, url, backup, Having::Anything).await?;
    let bar = input::spinner().with_message("verifying the backup");
    let verified = verify(&location, &name, depth, || bar.tick()).await;
    bar.finish_and_clear();
    let verified = verified?;
    let row = VerifiedRow {
        name,
        slices: verified.sums.slices,
        records: verified.sums.records,
        bytes: verified.sums.bytes,
        packs: verified.packs,
        pack_bytes: verified.pack_bytes,
        foreign: verified.foreign.records,
    };
    if let Some(at) = verified.foreign.first {
        note(format_args!(
            "{} under the digest of another key, the first of key {} in the namespace with id {}: a restore leaves \
             them out",
            text::counted(row.foreign, "record"),
            text::shortened(at.key.as_bytes(), 80),
            at.namespace.0
        ));
    }
    if global.json() {
        return out.json(&row);
    }
    let state = if depth == Depth::Names {
        "has all of its objects"
    } else {
        "is intact"
    };
    out.line(format!(
        "{} {state}: {} ({}) in {} of {}",
        row.name,
        text::counted(row.records, "record"),
        text::bytes(row.bytes),
        text::counted(row.slices, "slice"),
        text::counted(row.packs, "pack"),
    ))
}

async fn get(
    url: &str,
    key: &KeyArgs,
    backup: Option<String>,
    global: &Global,
    out: &mut Out,
) -> Result<(), Failure> {
    let key = key.key()?;
    let location = Location::open(url)?;
    let having = Having::Namespace(global.namespace());
    let name = name_of(&location, url, backup, having).await?;
    let backup = Backup::read(&location, &name).await?;
    let namespace = namespace_of(&backup, global.namespace())?;
    let found = backup.get(&location, namespace, &key).await?;
    let shape = namespace.generation.as_ref().map(|it| it.shape);
    let rate = shape.map_or(0.0, Shape::false_positive_rate);
    let version = found.as_ref().map(torc_record::Record::version);
    let value = found.map(|record| record.state);
    let (
        Some(State::Value {
            value,
            expires_at_ms,
        }),
        Some(version),
    ) = (value, version)
    else {
        let key = text::shortened(&key, 80);
        return Err(Failure::KeyNotFound { key });
    };
    if !global.json() {
        if rate > 0.0 {
            note(format_args!(
                "probably present: an absent key looks present with probability {rate:.1e}"
            ));
        }
        return out.raw(&value);
    }
    let row = JsonRow::key(&key)
        .value(&value)
        .expires_at_ms(expires_at_ms)
        .version(version);
    out.json(&row)
}

/// A namespace as it was at the time of the backup.
pub(super) fn namespace_of<'a>(backup: &'a Backup, name: &str) -> Result<&'a Namespace, Failure> {
    let plan = &backup.plan;
    let found = plan.namespaces.iter().find(|it| it.name == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = plan.namespaces.iter().map(|it| it.name.as_str()).collect();
        Failure::Usage(format!(
            "backup {} has no namespace `{name}`; it has {}",
            plan.name,
            names.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::assert_documented;

    #[test]
    fn the_json_is_documented() {
        assert_documented(&Row {
            name: String::new(),
            cluster: String::new(),
            begun_ms: 0,
            complete: true,
            namespaces: Vec::new(),
            only: false,
            slices: 0,
            records: 0,
            bytes: 0,
        });
        assert_documented(&VerifiedRow {
            name: String::new(),
            slices: 0,
            records: 0,
            bytes: 0,
            packs: 0,
            pack_bytes: 0,
            foreign: 0,
        });
        assert_documented(&PrunedRow {
            backups: Vec::new(),
            packs: 0,
            restores: 0,
            bytes: 0,
            planned: true,
        });
    }
}
