//! `kvctl backup create`: makes nodes write parts until none is missing, then writes the manifest.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde::Serialize;
use torc_backup::{
    BackupError, Depth, Generation, Listed, Location, Namespace, Plan, Writing, verify,
};
use torc_build::Shape;
use torc_client::{
    BackupProgress, BackupRequest, Client, GenerationShape, NodeId, Partition, RoutingTable,
};
use torc_objects::ObjectError;
use torc_record::{DigestKey, NamespaceId};
use torc_ring::topology::is_hidden_name;

use crate::args;
use crate::failure::Failure;
use crate::global::Global;
use crate::input;
use crate::out::{Out, note};
use crate::text;

/// Partitions per request. If the node dies, another node repeats them.
const TOGETHER: usize = 256;
/// How long a node may be down, for example for a restart.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(500);
/// The longest silence of a node.
const SILENCE: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where the backups are.
    #[arg(value_name = "URL")]
    url: String,
    /// Continue this unfinished backup.
    #[arg(long, value_name = "NAME", conflicts_with = "full")]
    resume: Option<String>,
    /// Back up only this namespace; repeat the option for several. Such a backup always copies all
    /// records of ordinary namespaces.
    #[arg(long, value_name = "NAMESPACE", conflicts_with_all = ["resume", "full"])]
    only: Vec<String>,
    /// Copy every slice, even if an earlier backup has it. Do this after a verification has failed:
    /// it also replaces damaged packs, if nodes still have the same slices.
    #[arg(long)]
    full: bool,
    /// Bytes per second that each node may write, for example 50MiB: packs on its own disk, and
    /// again when it sends them elsewhere. A slice is written at once, after all of its bytes have
    /// had their time. Default: the node's transfer limit.
    #[arg(long, value_name = "SIZE", value_parser = args::size)]
    rate: Option<u64>,
}

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Outcome {
    name: String,
    slices: u64,
    records: u64,
    bytes: u64,
    copied_bytes: u64,
    known_bytes: u64,
    seconds: f64,
}

pub(super) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    global.refuse_namespace("--only NAMESPACE")?;
    let began = Instant::now();
    let location = Location::open(&args.url)?;
    let client = global.client_within(SILENCE)?;
    let table = client.topology().await?;
    if table.digest_key == DigestKey::WITHHELD {
        let what = "a backup needs the roles `read` and `admin` in every namespace";
        return Err(Failure::OutOfBounds(what.to_owned()));
    }
    let writing = if let Some(name) = &args.resume {
        let writing = Writing::resume(&location, name).await?;
        let here = table.cluster.to_string();
        if writing.plan.cluster != here {
            return Err(Failure::Usage(format!(
                "backup {name} belongs to cluster {}, but this is cluster {here}",
                writing.plan.cluster
            )));
        }
        writing
    } else {
        // Before the plan is there: a node that refuses would end the backup later.
        let checks = table
            .members
            .keys()
            .map(|node| client.check_backup(*node, &args.url));
        let mut refused = join_all(checks).await.into_iter().filter_map(Result::err);
        if let Some(error) = refused.find(|error| !error.is_retryable()) {
            return Err(error.into());
        }
        begin(&client, &location, &table, &args).await?
    };
    let name = writing.plan.name.clone();
    let mut directing = Directing {
        client: &client,
        url: &args.url,
        rate: args.rate,
        writing,
        written: BackupProgress::default(),
    };
    let stop = async {
        // Without a signal handler, Ctrl-C just ends the process.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let done = tokio::select! {
        done = directing.run() => done,
        () = stop => Err(Failure::Interrupted),
    };
    let how = || format!("copied slices stay: continue with `--resume {name}`");
    done.map_err(|failure| failure.after(how()))?;
    let written = directing.written;
    let backup = directing.writing.finish().await;
    let backup = backup.map_err(|error| Failure::from(error).after(how()))?;
    let outcome = Outcome {
        name: backup.plan.name,
        slices: backup.sums.slices,
        records: backup.sums.records,
        bytes: backup.sums.bytes,
        copied_bytes: written.copied_bytes,
        known_bytes: written.known_bytes,
        seconds: began.elapsed().as_secs_f64(),
    };
    show(&outcome, global, out)
}

fn show(outcome: &Outcome, global: &Global, out: &mut Out) -> Result<(), Failure> {
    if global.json() {
        return out.json(outcome);
    }
    out.line(format!(
        "backup {}: {} ({}) in {}, {} of it copied, in {}",
        outcome.name,
        text::counted(outcome.records, "record"),
        text::bytes(outcome.bytes),
        text::counted(outcome.slices, "slice"),
        text::bytes(outcome.copied_bytes),
        text::duration(Duration::from_secs_f64(outcome.seconds))
    ))
}

/// The current generations of static namespaces, by the ids that the table has for their namespaces.
async fn generations(
    client: &Client,
    table: &RoutingTable,
) -> Result<BTreeMap<NamespaceId, Generation>, Failure> {
    let all = client.generations(None).await?.into_iter();
    let described = all.filter_map(|it| {
        let shape = match it.shape? {
            GenerationShape::Values => Shape::Values,
            GenerationShape::Keyless {
                fingerprint_bits,
                payload_bytes,
            } => Shape::Keyless {
                fingerprint_bits,
                payload_bytes,
            },
            GenerationShape::Ids => Shape::Ids,
        };
        let digests = table.digests_of(it.id);
        let generation = Generation {
            shape,
            records: it.records,
            payload_bytes: it.payload_bytes,
            digest_key: digests.key.0,
            digest_id: digests.id.0,
        };
        Some((it.id, generation))
    });
    Ok(described.collect())
}

/// The namespaces to back up. Not by the current generations: another may have been promoted since.
fn namespaces(
    table: &RoutingTable,
    args: &Args,
    generations: &BTreeMap<NamespaceId, Generation>,
) -> Result<Vec<Namespace>, Failure> {
    let is_wanted =
        |name: &String| !is_hidden_name(name) && (args.only.is_empty() || args.only.contains(name));
    let wanted = table.namespaces.iter().filter(|(name, _)| is_wanted(name));
    let described = wanted.map(|(name, it)| {
        let generation = generations.get(&it.id).cloned();
        if it.id.is_generation() && generation.is_none() {
            return Err(Failure::OutOfBounds(format!(
                "generation {} of `{name}` was dropped while the backup began, and nothing was written: \
                 repeat the command",
                it.id.number()
            )));
        }
        Ok(Namespace {
            name: name.clone(),
            id: it.id.0,
            mode: it.mode.to_string(),
            replicas: u32::from(it.replicas),
            generation,
        })
    });
    described.collect()
}

async fn begin(
    client: &Client,
    location: &Location,
    table: &RoutingTable,
    args: &Args,
) -> Result<Writing, Failure> {
    let unknown = args
        .only
        .iter()
        .find(|name| !table.namespaces.contains_key(*name));
    if let Some(name) = unknown {
        return Err(Failure::Usage(format!(
            "no namespace `{name}`: see `kvctl namespace list`"
        )));
    }
    let cluster = table.cluster.to_string();
    let base = if args.full {
        None
    } else {
        base(location, &cluster, &args.only).await?
    };
    let namespaces = namespaces(table, args, &generations(client, table).await?)?;
    let layers = namespaces.iter().map(|it| NamespaceId(it.id).layer());
    let layers: BTreeSet<_> = layers.collect();
    let begun_ms = text::now_ms();
    let digits = text::timestamp(begun_ms);
    let name = digits.replace([':', '.'], "-");
    let plan = Plan::new(
        name,
        (cluster.clone(), table.digest_key),
        (
            table.partitions.count(),
            table
                .layers
                .partitions(table.partitions)
                .filter(|partition| {
                    let layer = table.partitions.layer(*partition);
                    args.only.is_empty() || layer.is_some_and(|layer| layers.contains(&layer))
                }),
        ),
        namespaces,
        (begun_ms, base),
    );
    let plan = if args.only.is_empty() {
        plan
    } else {
        plan.only()
    };
    Ok(Writing::begin(location, plan).await?)
}

/// The newest backup of a cluster with all of these namespaces, unless one of its packs is missing or cut off.
async fn base(
    location: &Location,
    cluster: &str,
    only: &[String],
) -> Result<Option<String>, Failure> {
    let earlier = super::readable(location).await?;
    let has = |plan: &Plan, name: &String| plan.namespaces.iter().any(|it| it.name == *name);
    let has_them =
        |plan: &Plan| !plan.only || !only.is_empty() && only.iter().all(|name| has(plan, name));
    let of_this =
        |it: &&Listed| it.plan.cluster == cluster && it.sums.is_some() && has_them(&it.plan);
    for listed in earlier.iter().rev().filter(of_this) {
        let name = &listed.plan.name;
        match verify(location, name, Depth::Names, || ()).await {
            Ok(_) => return Ok(Some(name.clone())),
            Err(error @ BackupError::Location(ObjectError::Damaged { .. })) => note(format_args!(
                "backup {name} is damaged, so this one does not build on it: {error}"
            )),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

struct Directing<'a> {
    client: &'a Client,
    url: &'a str,
    rate: Option<u64>,
    writing: Writing,
    written: BackupProgress,
}

/// The outcome of one node's request.
struct Asked {
    parts: Vec<(String, BackupProgress)>,
    failed: Option<torc_client::Error>,
}

impl Directing<'_> {
    /// Asks until no partition is missing, or until there was no progress for [`PROGRESS_TIMEOUT`].
    async fn run(&mut self) -> Result<(), Failure> {
        let bar = input::bytes_bar(None);
        let mut progressed = Instant::now();
        let mut failed = BTreeSet::new();
        loop {
            let missing = self.writing.missing();
            if missing.is_empty() {
                bar.finish_and_clear();
                return Ok(());
            }
            let table = self.client.topology().await?;
            let by_node = by_writer(&table, &missing, &failed);
            let asking = by_node
                .into_iter()
                .map(async |(node, partitions)| (node, self.ask(node, &partitions, &bar).await));
            let (mut last, mut refused) = (None, None);
            for (node, asked) in join_all(asking).await {
                for (part, counts) in asked.parts {
                    self.writing.take(&part).await?;
                    self.written.copied_bytes += counts.copied_bytes;
                    self.written.known_bytes += counts.known_bytes;
                    progressed = Instant::now();
                }
                match asked.failed {
                    // The parts of the other nodes are taken before it ends.
                    Some(error) if !error.is_retryable() => refused = Some(error),
                    Some(error) => {
                        failed.insert(node);
                        last = Some(error);
                    }
                    None => drop(failed.remove(&node)),
                }
            }
            if let Some(error) = refused {
                return Err(error.into());
            }
            if let Some(error) = last {
                if progressed.elapsed() > PROGRESS_TIMEOUT {
                    return Err(error.into());
                }
                note(format_args!("{error}; retrying"));
                tokio::time::sleep(PAUSE).await;
                // Nodes that failed a while ago may have recovered.
                if failed.len() >= table.members.len() {
                    failed.clear();
                }
            }
        }
    }

    /// Makes a node write parts, one after the other, until one fails.
    async fn ask(
        &self,
        node: NodeId,
        partitions: &[Partition],
        bar: &indicatif::ProgressBar,
    ) -> Asked {
        let mut asked = Asked {
            parts: Vec::new(),
            failed: None,
        };
        for partitions in partitions.chunks(TOGETHER) {
            let request = BackupRequest {
                url: self.url.to_owned(),
                name: self.writing.plan.name.clone(),
                partitions: partitions.to_vec(),
                bytes_per_second: self.rate,
            };
            let told = RefCell::new(BackupProgress::default());
            let on_progress = |progress: BackupProgress| {
                let before = told.replace(progress);
                bar.inc(progress.copied_bytes - before.copied_bytes.min(progress.copied_bytes));
            };
            match self.client.write_backup(node, request, on_progress).await {
                Ok(part) => asked.parts.push(part),
                Err(error) => {
                    asked.failed = Some(error);
                    break;
                }
            }
        }
        asked
    }
}

/// Assigns each partition to a writer: its lead, or another replica if the lead has failed.
fn by_writer(
    table: &RoutingTable,
    partitions: &BTreeSet<Partition>,
    failed: &BTreeSet<NodeId>,
) -> BTreeMap<NodeId, Vec<Partition>> {
    let mut writers: BTreeMap<NodeId, Vec<Partition>> = BTreeMap::new();
    for partition in partitions {
        let Some(state) = table.state(*partition) else {
            continue;
        };
        let members = state.config.members.iter().map(|member| member.node);
        let mut writers_of = [state.lead].into_iter().chain(members);
        let writer = writers_of.find(|node| !failed.contains(node));
        let writer = writer.unwrap_or(state.lead);
        writers.entry(writer).or_default().push(*partition);
    }
    writers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_is_documented() {
        crate::out::assert_documented(&Outcome {
            name: String::new(),
            slices: 0,
            records: 0,
            bytes: 0,
            copied_bytes: 0,
            known_bytes: 0,
            seconds: 0.0,
        });
    }
}
