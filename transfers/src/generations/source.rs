//! Reads slices from where a generation was built: a directory that this node sees, or an object
//! store, whose endpoint and credentials come from the node's own environment.
//!
//! Nothing that is read is trusted: the manifest must have the digest that the topology states, and
//! each slice the digest that the manifest states; then it is verified like one of another node.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::future::pending;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};
use torc_build::{FileEntry, Manifest, Shape, SliceEntry, source_of};
use torc_member::fault::store_fault;
use torc_proto::{Fault, Reason};
use torc_record::to_usize;
use torc_ring::Partition;
use torc_ring::topology::{Counts, Generation, GenerationShape, RoutingTable};
use torc_store::bulk::KeylessLayout;
use torc_store::{Ingest, SliceInfo, StoreError};

#[cfg(feature = "objects")]
use crate::object_fault;
use crate::{Transfers, failed};

/// Bytes that are read and charged to the rate limit at a time.
const PIECE: u64 = 1 << 20;
/// Reads at a time.
const TOGETHER: usize = 8;

/// Space that stays free on the disk.
const SPARE: u64 = 256 << 20;
/// Slices of this many bytes come into force together, in one segment: each segment costs two syncs and an open file.
const TOGETHER_BYTES: u64 = 64 << 20;
/// Or the slices of this time: others wait for an ingest under way, and a source may be slow.
const TOGETHER_TIME: Duration = Duration::from_secs(1);

/// Time for a source to give a piece; a library's own retries are part of it.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for it to give the manifest.
const MANIFEST_TIMEOUT: Duration = Duration::from_secs(600);

/// Reads of a directory at a time: those of a mount that hangs keep no more threads.
const READS: usize = 16;
/// The permits for the reads of each directory that is in use.
static DIRS: Mutex<BTreeMap<PathBuf, Arc<Semaphore>>> = Mutex::new(BTreeMap::new());

/// Ends with the partition of the slices that are in force.
type Publishing = Pin<Box<dyn Future<Output = Result<Partition, StoreError>> + Send>>;

/// The location of a generation's files.
#[derive(Debug, Clone)]
pub enum Source {
    /// With the permits for its reads.
    Dir(PathBuf, Arc<Semaphore>),
    /// With its URL, for messages.
    #[cfg(feature = "objects")]
    Objects(torc_objects::Location, String),
}

impl Source {
    /// Checks a URL without reading or connecting.
    ///
    /// # Errors
    /// `INVALID` if a node could not read from there.
    pub fn check(url: &str) -> Result<(), Fault> {
        Self::open(source_of(url).0).map(drop)
    }

    fn open(base: &str) -> Result<Self, Fault> {
        if let Some(dir) = dir_of(base) {
            let permits = permits_of(&dir);
            return Ok(Self::Dir(dir, permits));
        }
        #[cfg(feature = "objects")]
        {
            let location = torc_objects::Location::open(base);
            location
                .map(|location| Self::Objects(location, base.to_owned()))
                .map_err(|error| object_fault(&error))
        }
        #[cfg(not(feature = "objects"))]
        {
            let message = "this node was built without the feature `objects`: the source of a generation must \
                 be a directory that every node can read, file:///DIR";
            Err(Fault::new(Reason::Invalid, message))
        }
    }

    async fn manifest(&self, name: &str) -> Result<Manifest, Fault> {
        match self {
            Self::Dir(dir, permits) => {
                let (dir, name) = (dir.clone(), name.to_owned());
                let read = read_dir(permits, move || Manifest::read_named(&dir, &name)).await?;
                read.map_err(|error| Fault::new(Reason::NotServing, error.to_string()))
            }
            #[cfg(feature = "objects")]
            Self::Objects(location, base) => {
                let text = location.read(name, Manifest::MAX_LEN).await;
                let text = text.map_err(|error| object_fault(&error))?;
                let text = text.ok_or_else(|| unfit(base, &format!("has no {name}")))?;
                let (base, name) = (PathBuf::from(base), name.to_owned());
                let parsing = spawn_blocking(move || Manifest::parse(&text, &base, &name));
                let parsed = parsing.await.map_err(|_| failed("reading a manifest"))?;
                parsed.map_err(|error| Fault::new(Reason::Corrupt, error.to_string()))
            }
        }
    }

    async fn read(&self, name: &str, range: Range<u64>) -> Result<Bytes, Fault> {
        match self {
            Self::Dir(dir, permits) => {
                let path = dir.join(name);
                read_dir(permits, move || read_file(&path, range)).await?
            }
            #[cfg(feature = "objects")]
            Self::Objects(location, _) => {
                let read = location.read_range(name, range).await;
                read.map_err(|error| object_fault(&error))
            }
        }
    }
}

fn permits_of(dir: &Path) -> Arc<Semaphore> {
    let mut all = DIRS.lock();
    all.retain(|_, permits| Arc::strong_count(permits) > 1);
    let permits = all.entry(dir.to_owned());
    Arc::clone(permits.or_insert_with(|| Arc::new(Semaphore::new(READS))))
}

/// Reads a directory, once there is a permit.
async fn read_dir<T: Send + 'static>(
    permits: &Arc<Semaphore>,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Fault> {
    // Keeps the permits in use, too.
    let permit = Arc::clone(permits).acquire_owned().await;
    let permit = permit.map_err(|_| failed("reading a directory"))?;
    let reading = spawn_blocking(move || {
        let _permit = permit;
        read()
    });
    reading.await.map_err(|_| failed("reading a directory"))
}

/// Ends a read that takes too long.
async fn in_time<T>(
    limit: Duration,
    reading: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let late = |_| {
        let message = format!("no answer within {limit:?}");
        Fault::new(Reason::NotServing, message)
    };
    let read = tokio::time::timeout(limit, reading).await;
    read.map_err(late)?
}

/// The directory that a URL names.
fn dir_of(url: &str) -> Option<PathBuf> {
    let url = url::Url::parse(url).ok()?;
    let is_plain = url.scheme() == "file" && url.query().is_none() && url.fragment().is_none();
    url.to_file_path().ok().filter(|_| is_plain)
}

fn read_file(path: &Path, range: Range<u64>) -> Result<Bytes, Fault> {
    let mut bytes = vec![0; to_usize(range.end - range.start)];
    let file = File::open(path);
    let read = file.and_then(|file| file.read_exact_at(&mut bytes, range.start));
    read.map_err(|error| {
        let reason = match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::UnexpectedEof => Reason::Corrupt,
            _ => Reason::NotServing,
        };
        Fault::new(reason, format!("cannot read {}: {error}", path.display()))
    })?;
    Ok(bytes.into())
}

/// Ingests the slices of these partitions file by file. A damaged slice does not hold up the others.
pub(super) async fn take(
    transfers: &Arc<Transfers>,
    generation: &Arc<Generation>,
    mut wanted: BTreeSet<Partition>,
) -> Result<(), Fault> {
    let url = super::source_of(generation);
    let (base, name) = source_of(url);
    let source = Source::open(base)?;
    let manifest = in_time(MANIFEST_TIMEOUT, source.manifest(name)).await?;
    check(&manifest, generation, url)?;
    if manifest.target.partitions != transfers.partitions {
        return Err(unfit(url, "was built for another number of partitions"));
    }
    if generation.creates.is_some() {
        let held = held_already(transfers, &manifest, &wanted).await?;
        transfers.fetches.add(generation.id, held.iter().copied());
        wanted.retain(|partition| !held.contains(partition));
    }
    let lens = manifest.slices();
    let lens = lens.filter(|slice| wanted.contains(&slice.partition));
    let needed = lens.map(|slice| slice.len).fold(0, u64::saturating_add);
    check_space(needed, transfers.store.stats().free_bytes)?;
    let listed: BTreeSet<_> = manifest.slices().map(|slice| slice.partition).collect();
    let fetch = Fetch {
        transfers,
        generation,
        source,
        spool: Semaphore::new(1),
    };
    let mut why = wanted.difference(&listed).next().map(|partition| {
        let what = format!("has no slice of partition {partition}, contrary to what was attached");
        unfit(url, &what)
    });
    for entry in &manifest.files {
        let slices = entry.slices.iter().copied();
        let slices = slices.filter(|slice| wanted.contains(&slice.partition));
        let runs = SliceEntry::runs(slices, PIECE);
        let (publishing, fault) = fetch.file(entry, runs).await;
        for published in join_all(publishing).await {
            let partition = published.map_err(|error| store_fault(&error))?;
            if generation.creates.is_some() {
                transfers.fetches.add(generation.id, [partition]);
            }
        }
        let fault = fault.map(|fault| Fault {
            message: format!("{base}: {}", fault.message),
            ..fault
        });
        match fault {
            Some(fault) if fault.reason != Reason::Corrupt => return Err(fault),
            fault => why = why.or(fault),
        }
    }
    why.map_or(Ok(()), Err)
}

/// Refuses to fill the disk, which clients' writes need. `free` is `None` if the system does not tell.
fn check_space(needed: u64, free: Option<u64>) -> Result<(), Fault> {
    let left = free.map(|free| free.saturating_sub(SPARE));
    let Some(left) = left.filter(|left| *left < needed) else {
        return Ok(());
    };
    let mib = |bytes: u64| bytes >> 20;
    let message = format!(
        "the slices need {} MiB of this node's disk, and {} MiB can be used: free space, or drop the generation",
        mib(needed),
        mib(left)
    );
    Err(Fault::new(Reason::OutOfSpace, message))
}

/// The partitions whose slice this node holds from before a restart: those that were not merged with others
/// since. Others are fetched again, which changes nothing.
async fn held_already(
    transfers: &Transfers,
    manifest: &Manifest,
    wanted: &BTreeSet<Partition>,
) -> Result<BTreeSet<Partition>, Fault> {
    let slices = manifest.slices();
    let slices: Vec<_> = slices
        .filter(|slice| wanted.contains(&slice.partition))
        .copied()
        .collect();
    let store = transfers.store.clone();
    let looking = spawn_blocking(move || {
        let is_held = |slice: &&SliceEntry| {
            let sealed = store.sealed(slice.partition);
            let held = sealed.into_iter().flat_map(|sealed| sealed.slices);
            let mut infos = held.filter_map(|it| it.info().ok());
            infos.any(|info| info.digest == slice.digest)
        };
        let held = slices.iter().filter(is_held);
        held.map(|slice| slice.partition).collect()
    });
    looking.await.map_err(|_| failed("looking for slices"))
}

/// Whether the manifest is the attached one, and of a generation that nodes can serve.
fn check(manifest: &Manifest, generation: &Generation, url: &str) -> Result<(), Fault> {
    let content = generation.content.as_ref();
    let target = &manifest.target;
    if content.is_none_or(|content| content.manifest != manifest.digest()) {
        return Err(unfit(
            url,
            "holds a different generation than the attached one",
        ));
    }
    if (target.namespace, target.ballot) != (generation.id, generation.ballot) {
        return Err(unfit(url, "was built for another generation"));
    }
    if content.is_some_and(|content| content.shape != shape_of(manifest)) {
        return Err(unfit(url, "has another shape than the attached generation"));
    }
    Ok(())
}

/// The shape as the topology has it.
fn shape_of(manifest: &Manifest) -> GenerationShape {
    match manifest.shape {
        Shape::Values => GenerationShape::Values,
        Shape::Keyless {
            fingerprint_bits,
            payload_bytes,
        } => GenerationShape::Keyless {
            fingerprint_bits,
            payload_bytes,
        },
        Shape::Ids => {
            let slices = manifest.slices();
            let counts = slices.map(|slice| (slice.partition, slice.records));
            GenerationShape::Ids(Counts::of(manifest.target.partitions, counts))
        }
    }
}

fn unfit(url: &str, what: &str) -> Fault {
    Fault::new(Reason::Refused, format!("{url} {what}"))
}

/// Fetches slices of a generation from its source.
struct Fetch<'a> {
    transfers: &'a Arc<Transfers>,
    generation: &'a Generation,
    source: Source,
    /// A permit to write a slice to a temporary file: one at a time, as they may be long.
    spool: Semaphore,
}

impl Fetch<'_> {
    /// Fetches slices of a file, until the source fails. Returns what puts them in force, and the first fault.
    async fn file(
        &self,
        entry: &FileEntry,
        runs: Vec<Vec<SliceEntry>>,
    ) -> (Vec<Publishing>, Option<Fault>) {
        let name = entry.name();
        let fetching = runs.into_iter().map(|run| self.run(&name, run));
        let mut fetching = futures::stream::iter(fetching).buffer_unordered(TOGETHER);
        let (mut publishing, mut why) = (Vec::new(), None);
        let mut verified = Verified::default();
        loop {
            let next = tokio::select! {
                next = fetching.next() => next,
                () = verified.wait() => {
                    verified.publish(&mut publishing);
                    continue;
                }
            };
            let Some((fetched, fault)) = next else {
                break;
            };
            verified.add(fetched);
            if verified.is_enough() {
                verified.publish(&mut publishing);
            }
            if fault
                .as_ref()
                .is_some_and(|it| it.reason != Reason::Corrupt)
            {
                why = fault;
                break;
            }
            why = why.or(fault);
        }
        verified.publish(&mut publishing);
        (publishing, why)
    }

    /// Fetches and verifies the slices of a run, until the source fails.
    async fn run(&self, name: &str, run: Vec<SliceEntry>) -> (Vec<Ingest>, Option<Fault>) {
        let mut whole = None;
        if let [first, .., last] = run[..] {
            let range = first.at..last.at.saturating_add(last.len);
            match self.read(name, range).await {
                Ok(bytes) => whole = Some((first.at, bytes)),
                // The file is too short, but its first slices may be intact: read each one separately.
                Err(fault) if fault.reason == Reason::Corrupt => {}
                Err(fault) => return (Vec::new(), Some(fault)),
            }
        }
        let (mut verified, mut why) = (Vec::new(), None);
        for slice in run {
            let ready = whole.as_ref().map(|(from, bytes)| {
                let at = to_usize(slice.at - from);
                bytes.slice(at..at + to_usize(slice.len))
            });
            let fetched = self.slice(name, slice, ready).await;
            match fetched.map_err(|fault| of_slice(name, slice, fault)) {
                Ok(fetched) => verified.push(fetched),
                Err(fault) if fault.reason == Reason::Corrupt => why = why.or(Some(fault)),
                Err(fault) => return (verified, Some(fault)),
            }
        }
        (verified, why)
    }

    /// Reads a piece, within the rate limit of transfers between nodes.
    async fn read(&self, name: &str, range: Range<u64>) -> Result<Bytes, Fault> {
        self.transfers.throttle.take(range.end - range.start).await;
        in_time(READ_TIMEOUT, self.source.read(name, range)).await
    }

    /// Fetches and verifies a slice, whose bytes may be `ready`.
    async fn slice(
        &self,
        name: &str,
        slice: SliceEntry,
        ready: Option<Bytes>,
    ) -> Result<Ingest, Fault> {
        let is_long = ready.is_none() && slice.len > PIECE;
        let _spool = if is_long {
            Some(self.spool.acquire().await)
        } else {
            None
        };
        let fetched = match ready {
            Some(bytes) => Fetched::Whole(bytes),
            None if is_long => Fetched::Spooled(self.spooled(name, slice).await?),
            None => {
                let end = slice.at.saturating_add(slice.len);
                Fetched::Whole(self.read(name, slice.at..end).await?)
            }
        };
        let infos = [SliceInfo {
            len: slice.len,
            digest: slice.digest,
        }];
        let ingest = self.transfers.store.ingest(slice.partition, &infos);
        let mut ingest = ingest.map_err(|error| store_fault(&error))?;
        let mut at = 0;
        loop {
            let table = self.transfers.member.routing()?;
            self.is_wanted(&table)?;
            let len = PIECE.min(slice.len - at);
            let bytes = fetched.piece(at, len).await?;
            self.transfers.metrics.received_bytes.inc_by(len);
            at += len;
            let (is_all, key) = (at == slice.len, table.digest_key);
            ingest = self
                .transfers
                .ingest(move || {
                    ingest.write(bytes)?;
                    if is_all {
                        ingest.verify(Some(&key))?;
                    }
                    Ok(ingest)
                })
                .await?;
            if is_all {
                break;
            }
        }
        let records = ingest.records();
        let (keyless, is_numbered) = match self.generation.shape() {
            Some(GenerationShape::Keyless {
                fingerprint_bits,
                payload_bytes,
            }) => {
                let layout = KeylessLayout {
                    fingerprint_bits: *fingerprint_bits,
                    payload_bytes: *payload_bytes,
                };
                (Some(layout), false)
            }
            Some(GenerationShape::Ids(_)) => (None, true),
            Some(GenerationShape::Values) | None => (None, false),
        };
        let of = (self.generation.id, self.generation.ballot);
        if records != u64::from(slice.records) || !ingest.is_of(of, keyless, is_numbered) {
            let message = "it does not hold what the manifest says";
            return Err(Fault::new(Reason::Corrupt, message));
        }
        let metrics = &self.transfers.metrics;
        metrics.received_records.inc_by(records);
        Ok(ingest)
    }

    /// Reads a slice into a file without a name.
    async fn spooled(&self, name: &str, slice: SliceEntry) -> Result<Arc<File>, Fault> {
        let spool = tempfile::tempfile_in(&self.transfers.data_dir);
        let file = Arc::new(spool.map_err(|error| spool_fault(&error))?);
        let read = |at: u64| {
            let from = slice.at.saturating_add(at);
            let len = PIECE.min(slice.len - at);
            self.read(name, from..from.saturating_add(len))
        };
        let starts = (0..slice.len).step_by(to_usize(PIECE));
        let mut reading = futures::stream::iter(starts.map(read)).buffered(TOGETHER);
        let mut at = 0;
        while let Some(bytes) = reading.next().await {
            self.is_wanted(&*self.transfers.member.routing()?)?;
            let (file, bytes) = (Arc::clone(&file), bytes?);
            let (from, len) = (at, bytes.len() as u64);
            let writing = spawn_blocking(move || file.write_all_at(&bytes, from));
            let written = writing.await.map_err(|_| failed("writing a slice"))?;
            written.map_err(|error| spool_fault(&error))?;
            at += len;
        }
        Ok(file)
    }

    fn is_wanted(&self, table: &RoutingTable) -> Result<(), Fault> {
        if table.generations.contains_key(&self.generation.id) {
            return Ok(());
        }
        Err(Fault::new(Reason::Refused, "the generation was dropped"))
    }
}

/// Verified slices that wait to be put in force together.
#[derive(Default)]
struct Verified {
    ingests: Vec<Ingest>,
    since: Option<Instant>,
}

impl Verified {
    fn add(&mut self, ingests: Vec<Ingest>) {
        self.ingests.extend(ingests);
        if !self.ingests.is_empty() {
            self.since.get_or_insert_with(Instant::now);
        }
    }

    fn is_enough(&self) -> bool {
        self.ingests.iter().map(Ingest::bytes).sum::<u64>() >= TOGETHER_BYTES
    }

    /// Waits until they have waited long enough: forever if there are none.
    async fn wait(&self) {
        match self.since {
            Some(since) => sleep_until(since + TOGETHER_TIME).await,
            None => pending().await,
        }
    }

    fn publish(&mut self, publishing: &mut Vec<Publishing>) {
        let ingests = self.ingests.drain(..);
        publishing.extend(ingests.map(|ingest| -> Publishing {
            let partition = ingest.partition();
            let published = ingest.publish();
            Box::pin(async move { published.await.map(|_| partition) })
        }));
        self.since = None;
    }
}

fn of_slice(name: &str, slice: SliceEntry, mut fault: Fault) -> Fault {
    let partition = slice.partition;
    fault.message = format!(
        "{name}: the slice of partition {partition}: {}",
        fault.message
    );
    fault
}

/// A slice as it was read. Others wait for an ingest under way, so it is read before its ingest begins.
enum Fetched {
    Whole(Bytes),
    Spooled(Arc<File>),
}

impl Fetched {
    async fn piece(&self, at: u64, len: u64) -> Result<Bytes, Fault> {
        match self {
            Self::Whole(bytes) => Ok(bytes.slice(to_usize(at)..to_usize(at + len))),
            Self::Spooled(file) => {
                let file = Arc::clone(file);
                let reading = spawn_blocking(move || {
                    let mut bytes = vec![0; to_usize(len)];
                    file.read_exact_at(&mut bytes, at).map(|()| bytes.into())
                });
                let read = reading.await.map_err(|_| failed("reading a slice"))?;
                read.map_err(|error| spool_fault(&error))
            }
        }
    }
}

fn spool_fault(error: &std::io::Error) -> Fault {
    let reason = match error.kind() {
        std::io::ErrorKind::StorageFull => Reason::OutOfSpace,
        _ => Reason::NotServing,
    };
    let message = format!("a temporary file in the data directory: {error}");
    Fault::new(reason, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_that_would_fill_the_disk_are_not_fetched() {
        assert!(check_space(1 << 30, None).is_ok());
        assert!(check_space(1 << 30, Some((1 << 30) + SPARE)).is_ok());
        let refused = check_space(1 << 30, Some(1 << 30)).unwrap_err();
        assert_eq!(refused.reason, Reason::OutOfSpace);
        assert!(refused.message.contains("need 1024 MiB"), "{refused}");
        assert!(check_space(1, Some(0)).is_err());
    }

    #[test]
    fn a_file_url_names_a_directory_as_in_any_other_program() {
        for (url, wanted) in [
            ("file:///gen", Some("/gen")),
            ("file:///my%20gen%233", Some("/my gen#3")),
            ("file:///my gen", Some("/my gen")),
            ("file:///a~b%2520", Some("/a~b%20")),
            ("file:///gen#3", None),
            ("file:///gen?3", None),
            ("file://host/gen", None),
            ("/gen", None),
            ("s3://bucket/gen", None),
        ] {
            assert_eq!(dir_of(url), wanted.map(PathBuf::from), "{url}");
        }
    }
}
