//! Builds one minimal perfect hash function out of core, from keys on a disk. Measures time, bits
//! and memory, then looks up every key.
//!
//! Two passes with two threads each: the first scatters digests to 256 buckets on the disk by their
//! leading byte; the second sorts each bucket, which a third thread reads, and builds the functions
//! of its 256 partitions. The result is checked: every key has its own slot. With `--gigahash` the function is
//! the paper's, one per bucket; the number of keys in earlier buckets offsets its slots.

mod function;
mod input;
mod scatter;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

use anyhow::{Result, ensure};
use torc_index::paper::gigahash::Encoding;
use torc_record::Digest;

use crate::options::Options;
use crate::process;
use crate::report::{Metric, Prediction, Report, TORC};
use function::{Function, Method};
use input::{Input, Kind};

/// Threads of each pass.
const THREADS: usize = 2;
/// Buckets, by the first eight bits of a digest.
const BUCKETS: usize = 256;
/// Partitions of a bucket, by the next bits.
const PARTITION_BITS: u32 = 8;
const PARTITIONS: usize = BUCKETS << PARTITION_BITS;
/// Keys per batch of lookups.
const QUERIES: usize = 4_096;
/// Threads of lookups: as many again, because half of them wait for the disk.
const READERS: usize = 2 * THREADS;
/// Bytes of rows that one of them reads together.
const TOGETHER: usize = 32 << 20;

const KEYS: Metric = Metric::new("keys", "millions");
const SCATTER: Metric = Metric::new("scatter", "s");
const BUILD: Metric = Metric::new("sort_and_build", "s");
const TOTAL: Metric = Metric::new("total", "s");
const SIZE: Metric = Metric::new("size", "bits/key");
const PEAK: Metric = Metric::new("peak_memory", "MiB");
const LOOKUPS: Metric = Metric::new("all_lookups", "s");

/// For a billion keys on two cores.
const PREDICTIONS: &[Prediction] = &[
    Prediction {
        case: "digests",
        metric: "total",
        expected: "a billion: 85; at most 90",
    },
    Prediction {
        case: "digests",
        metric: "size",
        expected: "2.11; at most 2.15",
    },
    Prediction {
        case: "digests",
        metric: "peak_memory",
        expected: "600; at most 1024",
    },
    Prediction {
        case: "digests",
        metric: "all_lookups",
        expected: "a billion: 15; at most 23",
    },
    Prediction {
        case: "urls",
        metric: "total",
        expected: "a billion: 150; at most 180",
    },
];

/// What to build from.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Args {
    /// Lines of 64 bytes, which are URLs, instead of digests of 16
    #[arg(long)]
    urls: bool,
    /// The paper's function, by bit vector and by Huffman code, instead of that of slices
    #[arg(long)]
    gigahash: bool,
}

/// # Errors
/// The disk is too small or fails, or a function cannot be built.
pub(crate) fn run(args: Args, options: &Options) -> Result<Report> {
    let mut report = Report::new("bulk", PREDICTIONS);
    let kind = if args.urls { Kind::Urls } else { Kind::Digests };
    let keys = options.records_or(10_000_000);
    let dir = options.scratch()?;
    // Space for the input, and for its digests in the buckets.
    let needed = keys * (kind.row_len() + size_of::<Digest>()) as u64;
    let free = process::free_bytes(dir.path())?;
    ensure!(
        needed + (1 << 30) <= free,
        "{} MiB are needed and {} are free: give fewer --records, or another --dir",
        needed >> 20,
        free >> 20
    );
    let input = Input::create(dir.path(), kind, keys)?;
    let methods = if args.gigahash {
        &[
            Method::GigaHash(Encoding::BitVector),
            Method::GigaHash(Encoding::Huffman),
        ][..]
    } else {
        &[Method::Mphf]
    };
    for _ in 0..options.rounds_or(1) {
        for method in methods {
            measure(&mut report, dir.path(), &input, *method)?;
        }
    }
    report.note(format!(
        "{keys} keys, {THREADS} threads, {PARTITIONS} partitions; every key was looked up and has a slot of its own"
    ));
    Ok(report)
}

fn measure(report: &mut Report, dir: &Path, input: &Input, method: Method) -> Result<()> {
    let case = match method {
        Method::Mphf => input.kind().name().to_owned(),
        Method::GigaHash(_) => format!("{}, {}", input.kind().name(), method.name()),
    };
    let case = case.as_str();
    let started = Instant::now();
    scatter::scatter(dir, input)?;
    let scattered = started.elapsed();
    let parts = build(dir, method)?;
    let built = started.elapsed();
    let views: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let function = Function::view(method, &views)?;
    let peak = process::memory(std::process::id())?.peak_bytes;
    ensure!(
        function.len() as u64 == input.keys(),
        "the function has {} keys",
        function.len()
    );
    let bytes: usize = parts.iter().map(Vec::len).sum();
    let lookups = look_up(input, &function)?;
    check(input, &function)?;
    let keys = input.keys() as f64;
    report.add(case, KEYS, TORC, keys / 1e6);
    report.add(case, SCATTER, TORC, scattered.as_secs_f64());
    report.add(
        case,
        BUILD,
        TORC,
        built.saturating_sub(scattered).as_secs_f64(),
    );
    report.add(case, TOTAL, TORC, built.as_secs_f64());
    report.add(case, SIZE, TORC, bytes as f64 * 8.0 / keys);
    report.add(case, PEAK, TORC, peak as f64 / f64::from(1 << 20));
    report.add(case, LOOKUPS, TORC, lookups);
    Ok(())
}

/// Builds the functions of all parts, in order. One thread reads the next bucket meanwhile.
fn build(dir: &Path, method: Method) -> Result<Vec<Vec<u8>>> {
    let parts: Vec<Mutex<Vec<Vec<u8>>>> = (0..BUCKETS).map(|_| Mutex::default()).collect();
    let (send, buckets) = mpsc::sync_channel(1);
    let (give_back, spare) = mpsc::channel();
    let buckets = Arc::new(Mutex::new(buckets));
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            for bucket in 0..BUCKETS {
                let mut bytes = spare.try_recv().unwrap_or_default();
                scatter::take_bucket(dir, bucket, &mut bytes)?;
                // Fails once all workers have.
                if send.send((bucket, bytes)).is_err() {
                    break;
                }
            }
            anyhow::Ok(())
        });
        let work = |_| {
            let (buckets, give_back) = (Arc::clone(&buckets), give_back.clone());
            let parts = &parts;
            scope.spawn(move || {
                let (mut sorted, mut group) = (Vec::new(), Vec::new());
                loop {
                    let next = buckets.lock().ok().and_then(|next| next.recv().ok());
                    let Some((bucket, bytes)) = next else {
                        return anyhow::Ok(());
                    };
                    scatter::sort(&bytes, &mut sorted, &mut group);
                    let _ = give_back.send(bytes);
                    let built = method.build(&sorted)?;
                    if let Ok(mut part) = parts[bucket].lock() {
                        *part = built;
                    }
                }
            })
        };
        let workers: Vec<_> = (0..THREADS).map(work).collect();
        drop(buckets);
        for thread in workers.into_iter().chain([reader]) {
            let ended = thread.join();
            ended.map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        anyhow::Ok(())
    })?;
    let parts = parts
        .into_iter()
        .map(|part| part.into_inner().unwrap_or_default());
    Ok(parts.flatten().collect())
}

/// Looks up all keys. Returns the time in seconds, including reading.
fn look_up(input: &Input, function: &Function<'_>) -> Result<f64> {
    let sum = AtomicU64::new(0);
    let started = Instant::now();
    each_slots(input, function, |slots| {
        let part = slots.iter().map(|slot| u64::from(*slot)).sum();
        sum.fetch_add(part, Ordering::Relaxed);
        Ok(())
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let keys = input.keys();
    ensure!(
        sum.into_inner() == keys * (keys - 1) / 2,
        "the slots are not those of all keys"
    );
    Ok(seconds)
}

/// Checks that every key has its own slot.
fn check(input: &Input, function: &Function<'_>) -> Result<()> {
    let words = function.len().div_ceil(64);
    let taken: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
    each_slots(input, function, |slots| {
        for slot in slots {
            let (word, bit) = (*slot as usize / 64, 1 << (slot % 64));
            let before = taken[word].fetch_or(bit, Ordering::Relaxed);
            ensure!(before & bit == 0, "slot {slot} has two keys");
        }
        Ok(())
    })
}

/// Passes on the slots of all keys, some thousand at a time. Millions of keys are read together and
/// arranged by bucket, so that the functions of a bucket are in the cache while they are asked.
fn each_slots(
    input: &Input,
    function: &Function<'_>,
    take: impl Fn(&[u32]) -> Result<()> + Sync,
) -> Result<()> {
    let arranged: Vec<_> = (0..READERS).map(|_| Mutex::new(Vec::new())).collect();
    let at_once = TOGETHER / input.kind().row_len();
    input.each_part(READERS, at_once, |thread, digests| {
        // Each thread has its own value, so the lock is never contended.
        let mut arranged = arranged[thread]
            .lock()
            .map_err(|_| anyhow::anyhow!("a thread panicked"))?;
        arranged.resize(digests.len(), Digest([0; 16]));
        let bucket = |digest: &Digest| usize::from(digest.0[0]);
        scatter::arrange(digests.iter().copied(), &mut arranged, BUCKETS, bucket);
        let mut slots = Vec::with_capacity(QUERIES);
        arranged.chunks(QUERIES).try_for_each(|digests| {
            slots.clear();
            function.slots(digests, &mut slots);
            take(&slots)
        })
    })
}
