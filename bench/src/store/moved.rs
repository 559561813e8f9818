//! Moves slices from one store to another in one process, byte for byte as between nodes: measures
//! the processor time of each stage, without a network.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::executor::block_on;
use futures::future::try_join_all;
use torc_ring::{Partition, Partitions};
use torc_store::{Ingest, SealedSlice, SliceInfo, Store, StoreOptions};

use super::say;
use super::torc::CLUSTER;
use crate::process;

/// Bytes of a message between nodes.
const MESSAGE: usize = 1 << 17;
/// Partitions that are published together.
const TOGETHER: usize = 64;
const MIB: f64 = 1_048_576.0;

/// The time of the stages.
#[derive(Debug, Default)]
struct Spent {
    bytes: u64,
    records: u64,
    read: Duration,
    write: Duration,
    verify: Duration,
    /// Elapsed time: other threads do the work, and wait for the disk.
    publish: Duration,
}

/// Moves all slices of the store in a directory into a new store beside it.
pub(super) fn measure(dir: &Path) -> Result<()> {
    let (from, _) = Store::open(StoreOptions::new(dir))?;
    let mut options = StoreOptions::new(dir.with_extension("moved"));
    // Measures only the move.
    options.auto_compact = false;
    let (to, _) = Store::open(options)?;
    let mut spent = Spent::default();
    let partitions: Vec<Partition> = Partitions::DEFAULT.iter().collect();
    for some in partitions.chunks(TOGETHER) {
        let mut ingests = Vec::new();
        for partition in some {
            ingests.extend(receive(&from, &to, *partition, &mut spent)?);
        }
        let started = Instant::now();
        block_on(try_join_all(ingests.into_iter().map(Ingest::publish)))?;
        spent.publish += started.elapsed();
    }
    tell(&spent)?;
    anyhow::ensure!(
        to.stats().records == from.stats().records,
        "records are missing"
    );
    block_on(to.close())?;
    Ok(block_on(from.close())?)
}

/// The slices of a partition, written and verified; `None` if it has no slices.
fn receive(
    from: &Store,
    to: &Store,
    partition: Partition,
    spent: &mut Spent,
) -> Result<Option<Ingest>> {
    let sealed = from.sealed(partition)?;
    if sealed.slices.is_empty() {
        return Ok(None);
    }
    let infos = sealed.slices.iter().map(SealedSlice::info);
    let infos: Vec<SliceInfo> = infos.collect::<Result<_, _>>()?;
    let mut ingest = to.ingest(partition, &infos)?;
    for (slice, SliceInfo { len, .. }) in sealed.slices.iter().zip(infos) {
        let (records, _) = slice.sizes();
        let mut at = 0;
        while at < len {
            let bytes = timed(&mut spent.read, || slice.read(at, MESSAGE))?;
            anyhow::ensure!(!bytes.is_empty(), "a slice ends too early");
            at += bytes.len() as u64;
            timed(&mut spent.write, || ingest.write(bytes))?;
        }
        spent.bytes += len;
        spent.records += records;
    }
    timed(&mut spent.verify, || ingest.verify(Some(&CLUSTER)))?;
    Ok(Some(ingest))
}

/// Adds the processor time of `work`.
fn timed<T>(spent: &mut Duration, work: impl FnOnce() -> T) -> T {
    let begun = process::cpu_time_of_this_thread();
    let done = work();
    *spent += process::cpu_time_since(begun);
    done
}

fn tell(spent: &Spent) -> Result<()> {
    let mib = spent.bytes as f64 / MIB;
    let records = (spent.records > 0).then_some(spent.records as f64);
    let records = records.context("nothing was moved")?;
    say("moved", mib)?;
    for (name, stage) in [
        ("read_cpu", spent.read),
        ("write_cpu", spent.write),
        ("verify_cpu", spent.verify),
        ("publish_elapsed", spent.publish),
    ] {
        say(name, mib / stage.as_secs_f64().max(1e-9))?;
    }
    say(
        "verify_per_record",
        spent.verify.as_secs_f64() * 1e9 / records,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::engine::Engine as _;
    use crate::store::torc::Torc;

    #[test]
    fn a_store_moves_into_another_whole() {
        let dir = tempfile::tempdir().unwrap();
        let store = Torc::open(&dir.path().join("store")).unwrap();
        let pairs = (0..500).map(crate::records::pair).collect();
        store.put_many(pairs).unwrap();
        store.settle().unwrap();
        let to = StoreOptions::new(dir.path().join("other"));
        let (to, _) = Store::open(to).unwrap();
        let mut spent = Spent::default();
        for partition in Partitions::DEFAULT.iter() {
            let ingest = receive(store.torc().unwrap(), &to, partition, &mut spent).unwrap();
            if partition.0 < 3 {
                let published = ingest.map(|ingest| block_on(ingest.publish()));
                assert!(published.is_none_or(|outcome| outcome.is_ok()));
            }
        }
        assert_eq!(spent.records, 500, "every record is in some slice");
        assert!(spent.verify > Duration::ZERO);
    }
}
