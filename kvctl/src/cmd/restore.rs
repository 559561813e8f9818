//! `kvctl restore`: restores a backup into a cluster.

mod built;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde::Serialize;
use tempfile::TempDir;
use tokio::sync::mpsc;
use torc_backup::{Backup, Location, Namespace, Plan, verify_namespaces};
use torc_client::{Client, Epoch, ErrorKind, NamespaceMode, RoutingTable, ScanOptions};
use torc_record::{NamespaceId, Record, State};

use super::backup::{Having, name_of, namespace_of};
use super::load::{retry, store};
use crate::args;
use crate::failure::Failure;
use crate::format::{Numbered, ReadError, Row};
use crate::global::Global;
use crate::input;
use crate::loading::{self, BatchLimits, LoadEnd, LoadOptions, Report};
use crate::out::{Out, note};
use crate::text;
use built::{Content, Records, Restoring};

const LIMITS: BatchLimits = BatchLimits {
    rows: 500,
    payload_bytes: 1 << 20,
};
const CONCURRENCY: usize = 8;
/// How long to retry records that were not stored.
const RETRY_TIME: Duration = Duration::from_secs(300);
/// Records that are read ahead, of up to a MiB each.
const AHEAD: usize = 64;

/// Restore a backup into a cluster of any size
///
/// Checks all that it reads before it stores anything: with --only, the slices with records of that
/// namespace, not the whole backup. Creates namespaces with their old settings,
/// but with no more replicas than there are nodes. Values keep their expiry. Records get new versions, above
/// all of the backup: if the cluster's epochs are lower, the restore first raises them, which it cannot while
/// partitions move.
///
/// A namespace that does not exist is created with its records, which nodes fetch as slices: clients can use it
/// once all replicas have them. Nodes cannot join or leave meanwhile. kvctl puts the slices below URL/restores, where
/// the nodes fetch them, and then removes them. A namespace that exists is refused if it is not empty. With `--replace`,
/// it is replaced as a whole in the same way, and what clients write to it during the restore is lost. With
/// `--overwrite`, or if it is empty, kvctl puts the records one by one, which takes about eight times as long: the keys of
/// the backup get their old values back, and other keys stay. Do not write to it meanwhile. After an interruption,
/// repeat the restore with `--overwrite`.
///
/// A static namespace gets a new generation, which the restore makes current. With `--overwrite` or `--replace`, the
/// current one becomes the previous one. Ids of keys (`--shape ids`) change. A generation
/// that keeps no keys (`--shape keyless` or `set`) fits only a cluster with as many partitions as that of
/// the backup. Otherwise it is left out: after the other namespaces are restored, the last line names it, and the exit
/// code is 6.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the backups are: file:///DIR, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or
    /// az://CONTAINER/PREFIX.
    #[arg(value_name = "URL")]
    url: String,
    /// Name of the backup. Default: the newest of all namespaces; with --only, the newest with that namespace.
    #[arg(long, value_name = "NAME")]
    backup: Option<String>,
    /// Restore only this namespace. Default: all.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// With --only: name of the namespace to restore into.
    #[arg(long, alias = "into-namespace", value_name = "NAME", requires = "only")]
    into: Option<String>,
    /// Also restore into namespaces that are not empty.
    #[arg(long)]
    overwrite: bool,
    /// Replace namespaces that exist, with all that is in them.
    #[arg(long, conflicts_with = "overwrite")]
    replace: bool,
    /// Directory for temporary files, in which kvctl builds slices. It takes twice the size of the largest
    /// namespace.
    #[arg(long, value_name = "DIR", default_value = ".")]
    work: PathBuf,
    /// Memory limit of these builds, for example 512MiB or 4GiB; at least 64MiB.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = args::size)]
    memory: u64,
}

/// What `--output json` prints, for each namespace.
#[derive(Debug, Serialize)]
struct Restored {
    namespace: String,
    into: String,
    records: u64,
    payload_bytes: u64,
    expired: u64,
    seconds: f64,
}

pub(crate) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    global.refuse_namespace("--only NAME, and --into for another name")?;
    let location = Location::open(&args.url)?;
    let having = args
        .only
        .as_deref()
        .map_or(Having::Everything, Having::Namespace);
    let name = name_of(&location, &args.url, args.backup, having).await?;
    let backup = Backup::read(&location, &name).await?;
    if let Some(only) = &args.only {
        namespace_of(&backup, only)?;
    }
    let backup = Arc::new(backup);
    let client = global.client()?;
    let table = client.topology().await?;
    let (only, into) = (args.only.as_deref(), args.into.as_deref());
    let (targets, left_out) = targets(&backup.plan, table.partitions.count(), only, into)?;
    let ids = targets.iter().map(|(it, _)| NamespaceId(it.id)).collect();
    let bar = input::spinner().with_message("verifying what is to be restored");
    let checked = verify_namespaces(&location, &backup, &ids, || bar.tick()).await;
    bar.finish_and_clear();
    checked.map_err(|error| Failure::from(error).after("nothing was changed"))?;
    // Check all of them before changing anything.
    let mut contents = Vec::new();
    for (namespace, into) in &targets {
        check(&client, namespace, into, args.overwrite || args.replace).await?;
        let content = content(&backup, namespace, into, (&table, args.replace));
        contents.push(content);
    }
    let work = built::work_dir(&args.work, args.memory, contents.iter().flatten())?;
    let epoch = Epoch(backup.sums.epoch);
    for ((namespace, into), content) in targets.iter().zip(&contents) {
        // One with records is created with them.
        if let Some(Content::Records(records)) = content {
            tell_of_replicas(namespace, into, records.settings.1);
        } else {
            create(&client, namespace, into).await?;
            raise(&client, into, epoch).await?;
        }
    }
    for ((namespace, into), content) in targets.into_iter().zip(contents) {
        let began = Instant::now();
        let mut restored = Restored {
            namespace: namespace.name.clone(),
            into: into.clone(),
            records: 0,
            payload_bytes: 0,
            expired: 0,
            seconds: 0.0,
        };
        if let Some(content) = content {
            let table = client.topology().await?;
            if content.is_current(&table, &into) {
                note(format_args!(
                    "`{into}` is unchanged: its current generation is the one of the backup"
                ));
                continue;
            }
            let restoring = Restoring {
                client: &client,
                location: &location,
                url: &args.url,
                backup: &backup,
                id: NamespaceId(namespace.id),
                content,
                work: work.as_ref().map_or(&args.work, TempDir::path),
                memory: args.memory,
            };
            let manifest = restoring.run(&into).await?;
            restored.records = manifest.records;
            restored.payload_bytes = manifest.payload_bytes;
        } else if !is_static(namespace) {
            let rows = read(&location, &backup, NamespaceId(namespace.id));
            let report = put(client.namespace(into), rows, &args.url, global).await?;
            restored.records = report.records;
            restored.payload_bytes = report.payload_bytes;
            restored.expired = report.expired;
        }
        restored.seconds = began.elapsed().as_secs_f64();
        show(&restored, global, out)?;
    }
    if left_out.is_empty() {
        return Ok(());
    }
    out.flush()?;
    Err(Failure::LeftOut {
        namespaces: left_out,
        partitions: backup.plan.partitions,
        here: table.partitions.count(),
    })
}

/// What is restored as slices; `None` if records are put one by one, or there is nothing to restore.
fn content<'a>(
    backup: &Backup,
    namespace: &'a Namespace,
    into: &str,
    (table, replaces): (&RoutingTable, bool),
) -> Option<Content<'a>> {
    if is_static(namespace) {
        return namespace.generation.as_ref().map(Content::Generation);
    }
    if table.namespaces.contains_key(into) && !replaces {
        return None;
    }
    let (records, slice_bytes) = sizes(backup, NamespaceId(namespace.id));
    let settings = (mode_of(namespace), replicas_of(namespace, table));
    (records > 0 || replaces).then_some(Content::Records(Records {
        most: records,
        slice_bytes,
        settings,
        replaces,
    }))
}

/// The records of a namespace in a backup, superseded ones and tombstones included, and their part of its slices,
/// bytes.
fn sizes(backup: &Backup, namespace: NamespaceId) -> (u64, u64) {
    let wanted = BTreeSet::from([namespace]);
    let slices = backup.lines_of(&wanted).flat_map(|line| line.slices);
    let parts = slices.map(|slice| {
        let of_it = slice.records.iter().filter(|(id, _)| *id == namespace.0);
        let records: u64 = of_it.map(|(_, records)| records).sum();
        let bytes = u128::from(slice.len) * u128::from(records);
        let bytes = bytes.checked_div(slice.count().into()).unwrap_or(0);
        (records, u64::try_from(bytes).unwrap_or(slice.len))
    });
    parts.fold((0, 0), |(records, bytes), part| {
        (records + part.0, bytes + part.1)
    })
}

fn mode_of(namespace: &Namespace) -> NamespaceMode {
    match namespace.mode.as_str() {
        "eventual" => NamespaceMode::Eventual,
        "static" => NamespaceMode::Static,
        _ => NamespaceMode::Linearizable,
    }
}

/// Its replicas, but no more than there are nodes.
fn replicas_of(namespace: &Namespace, table: &RoutingTable) -> u32 {
    let nodes = u32::try_from(table.members.len()).unwrap_or(u32::MAX);
    namespace.replicas.min(nodes)
}

fn tell_of_replicas(namespace: &Namespace, into: &str, replicas: u32) {
    let wanted = namespace.replicas;
    if wanted > replicas {
        note(format_args!(
            "`{into}` had {wanted} replicas and gets {replicas}, one for each node"
        ));
    }
}

/// A namespace to restore, and the name that it gets.
type Target<'a> = (&'a Namespace, String);

/// The namespaces to restore, each with the name that it gets, and the names of those that are left out: the
/// slices of a generation without keys fit only a cluster with as many partitions.
fn targets<'a>(
    plan: &'a Plan,
    partitions: u32,
    only: Option<&str>,
    into: Option<&str>,
) -> Result<(Vec<Target<'a>>, Vec<String>), Failure> {
    let wanted = plan.namespaces.iter();
    let wanted = wanted.filter(|it| only.is_none_or(|only| only == it.name));
    let fits = |it: &&Namespace| {
        let generation = it.generation.as_ref();
        plan.partitions == partitions || !generation.is_some_and(built::is_keyless)
    };
    let (wanted, keyless): (Vec<_>, Vec<_>) = wanted.partition(fits);
    let left_out: Vec<String> = keyless.iter().map(|it| format!("`{}`", it.name)).collect();
    if only.is_some()
        && let Some(name) = left_out.first()
    {
        return Err(Failure::Usage(format!(
            "{name} cannot be restored, because its generation keeps no keys, and this cluster has {partitions} \
             partitions instead of {}. Nothing was changed: build it again. `kvctl backup get` reads it",
            plan.partitions
        )));
    }
    let named = wanted
        .into_iter()
        .map(|it| (it, into.unwrap_or(&it.name).to_owned()));
    Ok((named.collect(), left_out))
}

fn is_static(namespace: &Namespace) -> bool {
    namespace.mode == "static"
}

fn show(restored: &Restored, global: &Global, out: &mut Out) -> Result<(), Failure> {
    if global.json() {
        return out.json(restored);
    }
    let rate = restored.records as f64 / restored.seconds.max(1e-6);
    out.line(format!(
        "restored {} ({}) of `{}` into `{}`: {} records/s",
        text::counted(restored.records, "record"),
        text::bytes(restored.payload_bytes),
        restored.namespace,
        restored.into,
        text::count(rate as u64)
    ))
}

/// Whether a namespace may be restored into. One that does not exist may be.
async fn check(
    client: &Client,
    namespace: &Namespace,
    into: &str,
    overwrite: bool,
) -> Result<(), Failure> {
    let table = client.topology().await?;
    let Some(there) = table.namespaces.get(into) else {
        return Ok(());
    };
    if (there.mode == NamespaceMode::Static) != is_static(namespace) {
        let (mode, name) = (there.mode, &namespace.name);
        return Err(Failure::Usage(format!(
            "`{into}` is {mode}, and `{name}` was {}: choose another namespace with --only and --into",
            namespace.mode
        )));
    }
    if overwrite {
        return Ok(());
    }
    if is_static(namespace) {
        return if there.id.is_generation() {
            Err(Failure::NotEmpty(into.to_owned()))
        } else {
            Ok(())
        };
    }
    let mut scan = client.namespace(into).scan(ScanOptions {
        limit: Some(1),
        ..ScanOptions::default()
    });
    match scan.next().await {
        None => Ok(()),
        Some(Err(error)) if error.kind() == ErrorKind::NoSuchNamespace => Ok(()),
        Some(Err(error)) => Err(error.into()),
        Some(Ok(_)) => Err(Failure::NotEmpty(into.to_owned())),
    }
}

/// Creates a namespace that does not exist, with its old settings.
async fn create(client: &Client, namespace: &Namespace, into: &str) -> Result<(), Failure> {
    let table = client.topology().await?;
    if table.namespaces.contains_key(into) {
        return Ok(());
    }
    let replicas = replicas_of(namespace, &table);
    tell_of_replicas(namespace, into, replicas);
    let mode = mode_of(namespace);
    client.create_namespace(into, mode, Some(replicas)).await?;
    Ok(())
}

/// Makes sure that later versions in a namespace are above all of an epoch.
async fn raise(client: &Client, namespace: &str, epoch: Epoch) -> Result<(), Failure> {
    let mut named = Vec::new();
    loop {
        let unconfirmed = client.raise_epoch(namespace, epoch).await?;
        if unconfirmed.is_empty() {
            return Ok(());
        }
        if unconfirmed != named {
            let nodes = text::nodes(&unconfirmed);
            note(format_args!(
                "waiting for {nodes} to learn of the epochs of `{namespace}`: start them, or remove \
                 those that are lost for good"
            ));
            named = unconfirmed;
        }
    }
}

type Rows = mpsc::Receiver<Result<Numbered, ReadError>>;

/// Reads the values of a namespace, partition by partition.
fn read(location: &Location, backup: &Arc<Backup>, namespace: NamespaceId) -> Rows {
    let (sender, rows) = mpsc::channel(AHEAD);
    let (location, backup) = (location.clone(), Arc::clone(backup));
    tokio::spawn(async move {
        if let Err(error) = send(&location, &backup, namespace, &sender).await {
            // The receiver may have failed, too.
            let _ = sender.send(Err(error)).await;
        }
    });
    rows
}

async fn send(
    location: &Location,
    backup: &Backup,
    namespace: NamespaceId,
    rows: &mpsc::Sender<Result<Numbered, ReadError>>,
) -> Result<(), ReadError> {
    let failed = |error| ReadError::Backup(Box::new(error));
    let wanted = BTreeSet::from([namespace]);
    let mut reader = backup.read_partitions(location, backup.lines_of(&wanted));
    let (mut line, mut foreign) = (0, 0);
    while let Some(slices) = reader.next().await.map_err(failed)? {
        for record in slices.records().map_err(failed)? {
            let record = record.map_err(failed)?;
            if record.namespace != namespace {
                continue;
            }
            if slices.is_foreign(&record) {
                foreign += 1;
                continue;
            }
            if let Some(row) = row_of(record) {
                line += 1;
                if rows.send(Ok(Numbered { line, row })).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
    tell_of_foreign(foreign);
    Ok(())
}

/// Says how many records under the digest of another key are left out: they belong to no key.
fn tell_of_foreign(records: u64) {
    if records > 0 {
        let records = text::counted(records, "record");
        note(format_args!(
            "left out {records} under the digest of another key"
        ));
    }
}

fn row_of(record: Record) -> Option<Row> {
    match record.state {
        State::Tombstone => None,
        State::Value {
            value,
            expires_at_ms,
        } => Some(Row {
            key: record.key.into_bytes(),
            value,
            expires_at_ms,
        }),
    }
}

async fn put(client: Client, rows: Rows, url: &str, global: &Global) -> Result<Report, Failure> {
    let options = LoadOptions {
        limits: LIMITS,
        concurrency: CONCURRENCY,
        // No other client writes during a restore.
        retry: retry(RETRY_TIME, global),
    };
    let bar = input::bar(None);
    let storing = move |rows| store(client.clone(), rows, None);
    let on_progress = |report: &Report| bar.set_message(text::count(report.records));
    let stop = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let (report, end) = loading::load(rows, storing, options, stop, on_progress).await;
    bar.finish_and_clear();
    let Some(end) = end else {
        return Ok(report);
    };
    let failure = match end {
        LoadEnd::Input(error) => Failure::Input {
            path: url.to_owned(),
            error,
        },
        LoadEnd::Store(failure) | LoadEnd::Unknown(failure) => failure,
        LoadEnd::Interrupted => Failure::Interrupted,
    };
    let records = text::counted(report.records, "record");
    Err(failure.after(format!(
        "{records} were restored: repeat the restore with --overwrite"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_backup::{Generation, Known, PackWriter, Writing};
    use torc_build::Shape;
    use torc_record::{Ballot, Digest, DigestKey, Key};
    use torc_ring::{Partition, Partitions};

    fn namespace(name: &str, shape: Option<Shape>) -> Namespace {
        Namespace {
            name: name.to_owned(),
            id: NamespaceId::DEFAULT.0,
            mode: shape.map_or("linearizable", |_| "static").to_owned(),
            replicas: 3,
            generation: shape.map(|shape| Generation {
                shape,
                records: 0,
                payload_bytes: 0,
                digest_key: [0; 32],
                digest_id: 1,
            }),
        }
    }

    #[tokio::test]
    async fn a_record_under_the_digest_of_another_key_is_not_restored() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}/backups", dir.path().display());
        let location = Location::open(&url).unwrap();
        let digest_key = DigestKey([7; 32]);
        let record = |key: &'static str, hashed: &str| Record {
            namespace: NamespaceId::DEFAULT,
            digest: Digest::of(&digest_key, NamespaceId::DEFAULT, hashed.as_bytes()),
            key: Key::new(key).unwrap(),
            ballot: Ballot::default(),
            origin: None,
            state: State::Value {
                value: "v".into(),
                expires_at_ms: None,
            },
        };
        let here = Partition(0);
        let cluster = ("cluster".to_owned(), digest_key);
        let namespaces = vec![namespace("default", None)];
        let plan = Plan::new("a".to_owned(), cluster, (1, [here]), namespaces, (1, None));
        let mut writing = Writing::begin(&location, plan).await.unwrap();
        let one = Partitions::new(1).unwrap();
        let mut writer = PackWriter::new(dir.path(), one, Known::default());
        writer.begin(here, Epoch(1));
        let records = [record("own", "own"), record("foreign", "other")];
        writer.push_records(here, &records).unwrap();
        let pace = |_| std::future::ready(());
        let part = writer.finish(&location, "a", pace).await.unwrap();
        writing.take(&part).await.unwrap();
        let backup = Arc::new(writing.finish().await.unwrap());
        let mut rows = read(&location, &backup, NamespaceId::DEFAULT);
        assert_eq!(rows.recv().await.unwrap().unwrap().row.key, "own");
        assert!(rows.recv().await.is_none());
    }

    #[test]
    fn a_restore_leaves_out_what_keeps_no_keys_if_partitions_differ() {
        let seen = Shape::Keyless {
            fingerprint_bits: 16,
            payload_bytes: 0,
        };
        let namespaces = vec![
            namespace("default", None),
            namespace("seen", Some(seen)),
            namespace("words", Some(Shape::Ids)),
        ];
        let cluster = ("cluster".to_owned(), torc_record::DigestKey([7; 32]));
        let plan = Plan::new("a".to_owned(), cluster, (1, []), namespaces, (0, None));
        let (all, left_out) = targets(&plan, 1, None, None).unwrap();
        assert_eq!((all.len(), left_out.len()), (3, 0));
        let (all, left_out) = targets(&plan, 2, None, None).unwrap();
        let all: Vec<_> = all.iter().map(|(_, into)| into.as_str()).collect();
        assert_eq!(
            (&all[..], &left_out[..]),
            (&["default", "words"][..], &["`seen`".to_owned()][..])
        );
        let (one, left_out) = targets(&plan, 2, Some("words"), Some("copy")).unwrap();
        assert_eq!(
            (one[0].0.name.as_str(), one[0].1.as_str()),
            ("words", "copy")
        );
        assert!(left_out.is_empty());
        let refused = targets(&plan, 2, Some("seen"), Some("copy")).unwrap_err();
        assert!(refused.to_string().contains("build it again"), "{refused}");
    }

    #[test]
    fn the_json_is_documented() {
        crate::out::assert_documented(&Restored {
            namespace: String::new(),
            into: String::new(),
            records: 0,
            payload_bytes: 0,
            expired: 0,
            seconds: 0.0,
        });
    }
}
