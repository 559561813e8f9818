//! `kvctl build`: builds the whole content of a static namespace, or the first records of another one, from files,
//! on this machine. Contacts nodes only with `--into`.

mod places;
mod progress;
mod rows;
pub(in crate::cmd) mod space;
mod summary;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use torc_build::{
    Build, BuildError, BuildOptions, Duplicates, Manifest, Progress, Published, Shape, Target,
};
use torc_client::{Epoch, Generation, NamespaceMode};
use torc_objects::{Location, ObjectError};

use crate::args;
use crate::cmd::generation::{self, failure};
use crate::failure::Failure;
use crate::format::{Chosen, ChosenValue, Naming, ReadError};
use crate::global::Global;
use crate::input::{self, Input, Source};
use crate::out::{Out, note};
use places::Places;
use progress::Pass;
use space::Sample;
use summary::Built;

const GATE_RATE: f64 = 0.01;
const FINGERPRINT_BITS: u8 = 16;
/// The digest key of builds without a cluster: the same content makes the same slices.
const OFFLINE_KEY: [u8; 32] = *b"torc generation, of no cluster..";

/// Build a generation: immutable, indexed slices of all records of some files
///
/// Reads the files once and sorts on disk, in bounded memory. Writes the manifest last.
/// The same records make the same slices on any machine; the files that hold them also depend on
/// --workers and --memory. After a crash or a kill, repeat the command to continue; only a build
/// of standard input or a pipe starts again. With a URL as --out, it sends the files of the build
/// there; a repeated command sends only those that are missing.
///
/// With --into NAMESPACE, the generation is for that namespace of a cluster; --promote also makes
/// the nodes serve it. With --create, that namespace is a new, ordinary one: clients can use it once
/// the generation is promoted, and then write to it. Without --into you need no cluster: `kvctl
/// generation get DIR KEY` reads it.
///
/// Shows records per second and the time left: a bar on a terminal, else a line every ten seconds.
///
/// Before it begins, it checks the columns of all files and the space on the disk, and writes and
/// removes a small object, `write-probe`, at the URL of --out.
/// It estimates the space from the first rows: that of all rows, once.
///
/// `kvctl load --help` describes the formats. A malformed row ends the build (exit code
/// 2 or 6): correct the file and build into another directory. A build that fails so drops the
/// generation that it reserved. If a repeated command can continue, the generation stays reserved,
/// and kvctl says how to drop it.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// File to read, or `-` for standard input. Of a directory, all .ndjson, .jsonl, .json, .csv,
    /// .tsv, .tab, .parquet, .arrow, .arrows and .feather files are read. A pattern such as
    /// 'crawl/**/part-*.csv', in quotes, stands for all files that match it. A URL
    /// (s3://BUCKET/NAME, gs://BUCKET/NAME, az://CONTAINER/NAME or file:///NAME) stands for the
    /// object, or if there is none, for all such files below it, at all depths. kvctl reads them
    /// without copying them to this machine. Repeat the option for several.
    #[arg(long, value_name = "FILE|DIR|GLOB|URL", required = true)]
    from: Vec<PathBuf>,
    /// Format of the files. Default: by their extensions.
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Source>,
    /// CSV and TSV files have no header, and two columns: key and value.
    #[arg(long, conflicts_with = "key")]
    no_header: bool,
    /// Column, or field of each JSON object, that holds the key. Default: the column names of
    /// `kvctl dump`.
    #[arg(long, value_name = "COLUMN")]
    key: Option<String>,
    /// With --key: column that holds the value. Without --value and --value-json, values are empty.
    #[arg(
        long,
        value_name = "COLUMN",
        requires = "key",
        conflicts_with = "value_json"
    )]
    value: Option<String>,
    /// With --key: columns, separated by commas, whose JSON object becomes the value.
    #[arg(long, value_name = "COLUMN", requires = "key", value_delimiter = ',')]
    value_json: Vec<String>,
    /// Directory to build in, created if missing. Or URL to send the files to after the build:
    /// s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX, if kvctl has the feature `s3`,
    /// `gcs` or `azure`.
    #[arg(long, value_name = "DIR|URL")]
    out: PathBuf,
    /// With a URL: directory to build in; kvctl removes it after sending. Default: NAME.build in the
    /// current directory, where NAME is the last part of the URL. With a directory as --out: build
    /// here, then copy the files to --out and remove this directory.
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// What to keep of each row.
    #[arg(long, value_enum, value_name = "SHAPE", default_value_t = Kept::Values)]
    shape: Kept,
    /// With --shape keyless or set: bits of a key's fingerprint, 1 to 32. An absent key looks
    /// present with probability 2^-N. [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=32))]
    fingerprint_bits: Option<u8>,
    /// With --shape keyless: length of every value, bytes.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=64),
        required_if_eq("shape", "keyless")
    )]
    payload_bytes: Option<u8>,
    /// Which of several rows with the same key to keep.
    #[arg(long, value_enum, value_name = "RULE", default_value_t = Rule::Error)]
    duplicates: Rule,
    /// Memory limit, for example 512MiB or 4GiB; at least 64MiB.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = args::size)]
    memory: u64,
    /// Threads that sort and build.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,
    /// Without a cluster: number of partitions, a power of two.
    #[arg(long, value_name = "N", default_value_t = torc_ring::Partitions::DEFAULT.count(), conflicts_with_all = ["into", "reservation"])]
    partitions: u32,
    /// Static namespace to build for; reserves a generation of it in the cluster.
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "reservation")]
    into: Option<String>,
    /// With --into: create the namespace with these records. Nodes cannot join or leave from --attach to
    /// --promote. The files of the build then hold the cluster's digest key, as backups do.
    #[arg(long, value_enum, value_name = "MODE", requires = "into")]
    create: Option<Created>,
    /// With --create: replicas of each key, 1 to 5. Default: as many as `default` has.
    #[arg(long, value_name = "N", requires = "create", value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: Option<u8>,
    /// File that `kvctl generation reserve` wrote; for builds without access to the cluster.
    #[arg(long, value_name = "FILE")]
    reservation: Option<PathBuf>,
    /// After the build, make the nodes fetch the generation and wait until they hold it.
    #[arg(long, requires = "into")]
    attach: bool,
    /// After the nodes fetched it, make it the current generation. Implies --attach.
    #[arg(long, requires = "into")]
    promote: bool,
    /// With --attach and a directory as --out: URL of the directory as nodes see it, file:///DIR.
    /// Default: the same path as here.
    #[arg(long, value_name = "URL", requires = "into")]
    source: Option<String>,
    /// With --shape values or ids: false positive rate of the Bloom gates, 0.0001 to 0.5.
    /// [default: 0.01]
    #[arg(long, value_name = "SHARE", value_parser = gate_rate)]
    gate_rate: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kept {
    /// Keys and values: exact answers.
    Values,
    /// A fingerprint per key, and values of one length: 2.1 bits of memory per key plus the
    /// fingerprint.
    Keyless,
    /// A fingerprint per key, without values.
    Set,
    /// Keys, each with an id from 0 to n - 1 in place of a value: exact answers.
    Ids,
}

/// The mode of a namespace that is created with records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Created {
    /// Every read sees the newest acknowledged write of its key.
    Linearizable,
    /// The last writer wins.
    Eventual,
}

impl From<Created> for NamespaceMode {
    fn from(created: Created) -> Self {
        match created {
            Created::Linearizable => Self::Linearizable,
            Created::Eventual => Self::Eventual,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Rule {
    /// Fail and name the key.
    Error,
    /// The first row.
    First,
    /// The last row.
    Last,
}

fn gate_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok();
    let rate = rate.filter(|rate| (0.0001..=0.5).contains(rate));
    rate.ok_or_else(|| "use a rate from 0.0001 to 0.5".to_owned())
}

pub(crate) async fn run(args: &Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    let Places { work, url } = Places::of(args)?;
    check(args, url.is_some())?;
    if let Some(url) = &url {
        probe(url).await?;
    }
    let inputs = Inputs::of(args)?;
    let is_known = inputs.is_known();
    let options = options(args, &inputs);
    let needed = inputs
        .len()
        .and_then(|len| inputs.sample.row_bytes(len, &options));
    if let Some(needed) = needed {
        space::check(&work, needed)?;
    }
    let (target, reserved) = target(args, &work, global).await?;
    let mut built = match build(args, &work, inputs, (target, options)) {
        Ok(built) => built,
        Err(unbuilt) => {
            if let Some(number) = reserved {
                release(number, &unbuilt, &work, &target, global).await;
            }
            return Err(*unbuilt.failure);
        }
    };
    // The build had it until now.
    let lock = torc_build::lock(&work).map_err(failure)?;
    if let Some(url) = &url {
        built.sent = Some(send(&work, url, is_known).await?);
    }
    built.print(&work, global, out)?;
    if args.attach || args.promote {
        let client = global.client()?;
        let source = match built.sent.as_deref().or(args.source.as_deref()) {
            Some(source) => source.to_owned(),
            None => generation::url_of(&work)?,
        };
        generation::is_not_rolled_back(&client, &built.manifest).await?;
        let attached = generation::attach(&client, &built.manifest, source).await?;
        if args.promote {
            generation::promote(&client, attached.number, false).await?;
        }
    }
    if url.is_some() {
        places::remove(&work)?;
    }
    drop(lock);
    Ok(())
}

/// Refuses options that would have no effect.
fn check(args: &Args, is_sent: bool) -> Result<(), Failure> {
    let has_fingerprints = matches!(args.shape, Kept::Keyless | Kept::Set);
    let rules = [
        (
            args.source.is_some() && is_sent,
            "--source is for builds in a directory: nodes read the URL of --out",
        ),
        (
            args.source.is_some() && !args.attach && !args.promote,
            "--source needs --attach or --promote",
        ),
        (
            args.fingerprint_bits.is_some() && !has_fingerprints,
            "--fingerprint-bits needs --shape keyless or set",
        ),
        (
            args.payload_bytes.is_some() && args.shape != Kept::Keyless,
            "--payload-bytes needs --shape keyless",
        ),
        (
            args.create.is_some() && args.shape != Kept::Values,
            "--create needs --shape values",
        ),
        (
            args.gate_rate.is_some() && has_fingerprints,
            "--gate-rate needs --shape values or ids: slices without keys have no Bloom gate",
        ),
    ];
    match rules.into_iter().find(|(is_broken, _)| *is_broken) {
        Some((_, message)) => Err(Failure::Usage(message.to_owned())),
        None => Ok(()),
    }
}

/// The files to read.
struct Inputs {
    files: Vec<(Input, Source)>,
    /// `None` for standard input and pipes.
    lens: Vec<Option<u64>>,
    sample: Sample,
}

impl Inputs {
    /// Fails if a file cannot be opened, lacks a column, or begins with a bad header or row: nothing has
    /// been built then.
    fn of(args: &Args) -> Result<Self, Failure> {
        let (mut files, mut lens, mut sample) = (Vec::new(), Vec::new(), Sample::default());
        for file in input::files(&args.from)? {
            let len = file.len()?;
            let format = Source::of(file.path(), args.format)?;
            if len.is_some() {
                let bar = ProgressBar::hidden();
                let mut rows = format.rows(&file, naming(args), &bar)?;
                match rows.next() {
                    None => {}
                    Some(Ok(first)) => sample.add(first, rows, &bar),
                    Some(Err(error)) => {
                        let path = file.shown();
                        return Err(Failure::Input { path, error });
                    }
                }
            }
            files.push((file, format));
            lens.push(len);
        }
        let has_header =
            |(_, format): &(Input, Source)| matches!(format, Source::Csv | Source::Tsv);
        if args.no_header && !files.iter().any(has_header) {
            let message = "--no-header needs a CSV or TSV file";
            return Err(Failure::Usage(message.to_owned()));
        }
        Ok(Self {
            files,
            lens,
            sample,
        })
    }

    /// Whether a repeated command reads the same rows. Standard input and pipes may have others.
    fn is_known(&self) -> bool {
        !self.lens.contains(&None)
    }

    /// Their total length, if it is known.
    fn len(&self) -> Option<u64> {
        self.lens.iter().copied().sum()
    }

    /// Describes the files as they are now: a build continues only with the same files.
    fn describe(&self, args: &Args) -> String {
        let one = |((file, _), len): (&(Input, Source), &Option<u64>)| {
            let (file, version) = (file.shown(), file.version());
            format!("{file} of {len:?} bytes, changed at {version}")
        };
        let files: Vec<String> = self.files.iter().zip(&self.lens).map(one).collect();
        let (format, naming) = (args.format, naming(args));
        format!("{}; {format:?}, {naming:?}", files.join("; "))
    }
}

/// Shows that files can be sent to a location, before hours of building.
async fn probe(url: &str) -> Result<(), Failure> {
    let written = Location::open(url)?.probe().await;
    written.map_err(|error| Failure::Stopped {
        what: Box::new(error.into()),
        done: format!("nothing was built: kvctl must be able to write to {url}"),
    })
}

/// Sends the files of a build, the manifest last. Returns the manifest's URL.
async fn send(work: &Path, url: &str, is_known: bool) -> Result<String, Failure> {
    let len = Manifest::read(work).map_err(failure)?.file_bytes();
    let bar = input::bytes_bar(Some(len));
    let sent = Published::publish(work, url, |bytes| bar.inc(bytes)).await;
    bar.finish_and_clear();
    let continues = |error| Failure::Stopped {
        what: Box::new(failure(error)),
        done: if is_known {
            format!(
                "the build is complete in {}: repeat the command to send the rest",
                work.display()
            )
        } else {
            format!("remove {} and build again", work.display())
        },
    };
    Ok(sent.map_err(continues)?.url().to_owned())
}

/// Why there is no generation.
struct Unbuilt {
    failure: Box<Failure>,
    /// Whether a repeated command can succeed: with the plan that the directory has, or with other content of a
    /// pipe.
    is_repeatable: bool,
}

impl From<Failure> for Unbuilt {
    fn from(failure: Failure) -> Self {
        Self {
            failure: Box::new(failure),
            is_repeatable: true,
        }
    }
}

/// Whether a malformed row, or a file that has changed, ended the reading. Then only other files can be built.
fn is_bad_input(failure: &Failure) -> bool {
    match failure {
        Failure::Input { error, .. } => {
            let has_changed = matches!(error.of_object(), Some(ObjectError::Damaged { .. }));
            has_changed || matches!(error, ReadError::Bad(_))
        }
        Failure::Stopped { what, .. } => is_bad_input(what),
        _ => false,
    }
}

/// Drops a reservation, unless a repeated command can use it. A cluster has at most 256 generations.
async fn release(number: u32, unbuilt: &Unbuilt, work: &Path, target: &Target, global: &Global) {
    let has_plan = Build::target_of(work).is_ok_and(|begun| begun.as_ref() == Some(target));
    let drop_it = format!("`kvctl generation drop {number}`");
    if unbuilt.is_repeatable && has_plan {
        note(format_args!(
            "generation {number} stays reserved for the same command; if you do not repeat it, run {drop_it}"
        ));
        return;
    }
    let dropped = async {
        global
            .client()?
            .drop_generation(number)
            .await
            .map_err(Failure::from)
    };
    match dropped.await {
        Ok(()) => note(format_args!(
            "dropped the reservation of generation {number}: nothing was built for it"
        )),
        Err(error) => note(format_args!(
            "generation {number} is still reserved, and nothing was built for it: run {drop_it} ({error})"
        )),
    }
}

/// Builds in a directory, or takes the generation that was built there from the same files, if their
/// content is known.
fn build(
    args: &Args,
    dir: &Path,
    inputs: Inputs,
    (target, options): (Target, BuildOptions),
) -> Result<Built, Unbuilt> {
    let is_known = inputs.is_known();
    let len = inputs.len();
    let started = Instant::now();
    let mut build = match Build::create(dir, target, options) {
        Err(BuildError::Complete { .. }) if is_known => {
            let manifest = Manifest::read(dir).map_err(failure)?;
            let taken = manifest.records + manifest.duplicates;
            let built = Built::of(dir, manifest, taken, (Duration::ZERO, Duration::ZERO));
            return Ok(built?);
        }
        build => build.map_err(failure)?,
    };
    let taken = build.rows_taken();
    if !build.has_all_rows() {
        let keeps_values = matches!(args.shape, Kept::Values | Kept::Keyless);
        let read = rows::read(&mut build, inputs.files, len, &naming(args), keeps_values);
        read.map_err(|failure| Unbuilt {
            // A pipe may have other rows the next time.
            is_repeatable: !is_known || !is_bad_input(&failure),
            failure: Box::new(failure),
        })?;
    }
    let read_for = started.elapsed();
    let (records, mut pass) = (build.rows_taken(), None);
    let manifest = build.finish(|progress| {
        if let Progress::Gathered { done, of } = progress {
            let pass = pass.get_or_insert_with(|| Pass::begin("building", Some(of.into())));
            pass.bar().set_position(done.into());
            let built = u128::from(records) * u128::from(done) / u128::from(of.max(1));
            let built = u64::try_from(built).unwrap_or(records);
            pass.show(&format!("{done} of {of} buckets"), built);
        }
    });
    if let Some(pass) = pass {
        pass.end();
    }
    let manifest = manifest.map_err(|error| {
        let is_of_rows = matches!(
            error,
            BuildError::Duplicate { .. } | BuildError::SameDigest { .. }
        );
        Unbuilt {
            failure: Box::new(failure(error)),
            is_repeatable: !is_known || !is_of_rows,
        }
    })?;
    Ok(Built::of(
        dir,
        manifest,
        taken,
        (read_for, started.elapsed()),
    )?)
}

fn options(args: &Args, inputs: &Inputs) -> BuildOptions {
    let options = BuildOptions {
        source: inputs.describe(args),
        resume: inputs.is_known(),
        shape: shape(args),
        duplicates: match args.duplicates {
            Rule::Error => Duplicates::Error,
            Rule::First => Duplicates::First,
            Rule::Last => Duplicates::Last,
        },
        gate_rate: args.gate_rate.unwrap_or(GATE_RATE),
        memory: args.memory,
        workers: usize::from(args.workers),
        ..BuildOptions::default()
    };
    // Without a sample: each row takes 44 bytes besides its key and value.
    let expected = |len: u64| {
        let sampled = inputs.sample.row_bytes(len, &options);
        sampled.unwrap_or(len.saturating_mul(3) / 2)
    };
    BuildOptions {
        expected_bytes: inputs.len().map(expected),
        ..options
    }
}

fn naming(args: &Args) -> Naming {
    let Some(key) = &args.key else {
        return Naming::of(!args.no_header);
    };
    let value = match &args.value {
        Some(name) => ChosenValue::Column(name.clone()),
        None if args.value_json.is_empty() => ChosenValue::Empty,
        None => ChosenValue::Json(args.value_json.clone()),
    };
    let key = key.clone();
    Naming::Chosen(Arc::new(Chosen { key, value }))
}

fn shape(args: &Args) -> Shape {
    let keyless = |payload_bytes| Shape::Keyless {
        fingerprint_bits: args.fingerprint_bits.unwrap_or(FINGERPRINT_BITS),
        payload_bytes,
    };
    match args.shape {
        Kept::Values => Shape::Values,
        Kept::Keyless => keyless(args.payload_bytes.unwrap_or_default()),
        Kept::Set => keyless(0),
        Kept::Ids => Shape::Ids,
    }
}

/// The target of the build, and the number of its generation if this run reserved it. A build that continues
/// keeps its target.
async fn target(
    args: &Args,
    work: &Path,
    global: &Global,
) -> Result<(Target, Option<u32>), Failure> {
    let begun = Build::target_of(work).map_err(failure)?;
    if let Some(path) = &args.reservation {
        return Ok((Target::read(path).map_err(failure)?, None));
    }
    if let Some(namespace) = &args.into {
        let client = global.client()?;
        if let Some(begun) = begun {
            let all = client.generations(Some(namespace)).await?;
            let is_it = |it: &Generation| it.id == begun.namespace && it.version == begun.ballot;
            if all.iter().any(is_it) {
                return Ok((begun, None));
            }
            let (dir, what) = (work.to_owned(), "target");
            return Err(failure(BuildError::OtherPlan { dir, what }));
        }
        let reserved = match args.create {
            None => client.reserve_generation(namespace).await?,
            Some(mode) => {
                let settings = (mode.into(), args.replicas.map(u32::from));
                let reserving = client.reserve_namespace(namespace, settings, Epoch(0), false);
                reserving.await?
            }
        };
        let number = reserved.generation.number;
        note(format_args!(
            "reserved generation {number} of `{namespace}`"
        ));
        return Ok((generation::target_of(&reserved), Some(number)));
    }
    if let Some(begun) = begun.filter(|begun| !begun.is_offline()) {
        return Ok((begun, None));
    }
    let partitions = torc_ring::Partitions::new(args.partitions);
    let partitions = partitions.map_err(|error| Failure::Usage(error.to_string()))?;
    let target = Target {
        partitions,
        ..Target::offline(OFFLINE_KEY)
    };
    Ok((target, None))
}
