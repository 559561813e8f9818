//! Reads slices from the directory where a generation was built.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use futures::future::join_all;
use torc_build::{FileEntry, Manifest, Shape, slices_of};
use torc_proto::{Fault, Reason};
use torc_ring::Partition;
use torc_ring::topology::Generation;
use torc_store::{SealedSlice, Seq, StoreError};

use super::failed;
use crate::shared::{Shared, store_fault};

/// Bytes that are read and charged to the rate limit at a time.
const PIECE: usize = 1 << 20;

type Publishing = Pin<Box<dyn Future<Output = Result<Seq, StoreError>> + Send>>;

/// Ingests the slices of these partitions file by file; all slices of a file come into force
/// together.
pub(super) async fn take(
    shared: &Arc<Shared>,
    generation: &Arc<Generation>,
    wanted: BTreeSet<Partition>,
) -> Result<(), Fault> {
    let (dir, manifest) = {
        let generation = Arc::clone(generation);
        let partitions = shared.settings.partitions;
        let opening = tokio::task::spawn_blocking(move || {
            open(&generation).and_then(|(dir, manifest)| {
                if manifest.target.partitions != partitions {
                    return Err(unfit(&dir, "was built for another number of partitions"));
                }
                Ok((dir, manifest))
            })
        });
        opening.await.map_err(|_| failed("reading a manifest"))??
    };
    let (dir, manifest) = (Arc::new(dir), Arc::new(manifest));
    for place in 0..manifest.files.len() {
        let slices: BTreeSet<_> = manifest.files[place]
            .slices
            .iter()
            .map(|slice| slice.partition)
            .filter(|partition| wanted.contains(partition))
            .collect();
        if slices.is_empty() {
            continue;
        }
        let (shared, dir, manifest) = (Arc::clone(shared), Arc::clone(&dir), Arc::clone(&manifest));
        let runtime = tokio::runtime::Handle::current();
        let reading = tokio::task::spawn_blocking(move || {
            let entry = &manifest.files[place];
            read_file(&shared, &runtime, (&dir, &manifest, entry), &slices)
        });
        let publishing = reading.await.map_err(|_| failed("reading slices"))??;
        for published in join_all(publishing).await {
            published.map_err(|error| store_fault(&error))?;
        }
    }
    Ok(())
}

/// The manifest, if it is the attached one.
fn open(generation: &Generation) -> Result<(PathBuf, Manifest), Fault> {
    let content = generation.content.as_ref();
    let source = content.map(|content| content.source.as_str());
    let dir = source.and_then(|source| source.strip_prefix("file://"));
    let dir = PathBuf::from(dir.unwrap_or_default());
    let manifest = Manifest::read(&dir).map_err(|error| {
        let message = format!(
            "cannot read the source of generation {}: {error}",
            generation.id.number()
        );
        Fault::new(Reason::NotServing, message)
    })?;
    let target = &manifest.target;
    if content.is_none_or(|content| content.manifest != manifest.digest()) {
        return Err(unfit(
            &dir,
            "holds a different generation than the attached one",
        ));
    }
    if (target.namespace, target.ballot) != (generation.id, generation.ballot) {
        return Err(unfit(&dir, "was built for another generation"));
    }
    if manifest.shape != Shape::Values {
        return Err(unfit(
            &dir,
            "is keyless: nodes serve only generations of the shape `values`",
        ));
    }
    Ok((dir, manifest))
}

fn unfit(dir: &Path, what: &str) -> Fault {
    Fault::new(Reason::Refused, format!("{} {what}", dir.display()))
}

/// Reads and verifies slices of a file. The returned ingest puts them in force.
fn read_file(
    shared: &Shared,
    runtime: &tokio::runtime::Handle,
    (dir, manifest, entry): (&Path, &Manifest, &FileEntry),
    wanted: &BTreeSet<Partition>,
) -> Result<Vec<Publishing>, Fault> {
    let slices = slices_of(dir, manifest, entry, wanted);
    let slices = slices.map_err(|error| Fault::new(Reason::Corrupt, error.to_string()))?;
    let key = shared.routing()?.digest_key;
    let mut publishing: Vec<Publishing> = Vec::with_capacity(slices.len());
    for (partition, slice) in slices {
        if shared.cancel.is_cancelled() {
            return Err(Fault::new(Reason::NotServing, "the node is stopping"));
        }
        let ingest = read_slice(shared, runtime, partition, &slice);
        let mut ingest = ingest.map_err(|error| store_fault(&error))?;
        let verified = ingest.verify(Some(&key));
        verified.map_err(|error| store_fault(&error))?;
        publishing.push(Box::pin(ingest.publish()));
    }
    Ok(publishing)
}

fn read_slice(
    shared: &Shared,
    runtime: &tokio::runtime::Handle,
    partition: Partition,
    slice: &SealedSlice,
) -> Result<torc_store::Ingest, StoreError> {
    let info = slice.info()?;
    let mut ingest = shared.store.ingest(partition, &[info])?;
    let mut at = 0;
    while at < info.len {
        let bytes = slice.read(at, PIECE)?;
        at += bytes.len() as u64;
        // Uses the rate limit of transfers between nodes.
        runtime.block_on(shared.throttle.take(bytes.len() as u64));
        shared
            .metrics
            .transfer_received_bytes
            .inc_by(bytes.len() as u64);
        ingest.write(bytes)?;
    }
    shared
        .metrics
        .transfer_received_records
        .inc_by(slice.sizes().0);
    Ok(ingest)
}
