//! The second pass: a bucket's run to files of slices.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::RangeInclusive;
use std::path::Path;

use torc_record::Digest;
use torc_ring::Partition;
use torc_store::bulk::{PackedRecord, SliceFileWriter};

use crate::manifest::SlicesEntry;
use crate::plan::{Duplicates, Plan};
use crate::scatter::run_path;
use crate::sums::Sums;
use crate::{BuildError, RUNS_DIR};

/// Bytes read at a time.
const BUFFER_LEN: usize = 1 << 20;
/// Of the head of a record, with which its length is known.
const HEAD_LEN: usize = 44;

/// What came of a bucket.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) files: Vec<SlicesEntry>,
    /// Rows that do not count.
    pub(crate) left_out: Sums,
}

/// Gathers a bucket. The files have their names when it returns, and are durable once the directory
/// has been synced.
pub(crate) fn gather(dir: &Path, plan: &Plan, bucket: u32) -> Result<Gathered, BuildError> {
    let mut gathered = Gathered {
        files: Vec::new(),
        left_out: Sums::default(),
    };
    for range in ranges(dir, plan, bucket)? {
        let records = load(dir, plan, bucket, &range)?;
        let file = write(dir, plan, bucket, &records, &mut gathered.left_out)?;
        gathered.files.extend(file);
    }
    Ok(gathered)
}

/// Ranges of a bucket's partitions that fit into a file each, in their order.
fn ranges(
    dir: &Path,
    plan: &Plan,
    bucket: u32,
) -> Result<Vec<RangeInclusive<Partition>>, BuildError> {
    let path = run_path(dir, bucket);
    let len = std::fs::metadata(&path).map_err(BuildError::io("read", &path))?;
    if len.len() <= plan.file_bytes {
        return Ok(vec![Partition(0)..=Partition(u32::MAX)]);
    }
    let mut lens = BTreeMap::<Partition, u64>::new();
    each(&path, |record| {
        let partition = plan.target.partition(&record.digest());
        *lens.entry(partition).or_default() += record.bytes().len() as u64;
        Ok(())
    })?;
    let mut ranges: Vec<(RangeInclusive<Partition>, u64)> = Vec::new();
    for (partition, bytes) in lens {
        if bytes > plan.file_bytes {
            return Err(BuildError::PartitionTooLarge {
                partition: partition.0,
                bytes,
            });
        }
        match ranges.last_mut() {
            Some((range, held)) if *held + bytes <= plan.file_bytes => {
                *range = *range.start()..=partition;
                *held += bytes;
            }
            _ => ranges.push((partition..=partition, bytes)),
        }
    }
    Ok(ranges.into_iter().map(|(range, _)| range).collect())
}

/// The records of some partitions of a run, one after the other.
fn load(
    dir: &Path,
    plan: &Plan,
    bucket: u32,
    range: &RangeInclusive<Partition>,
) -> Result<Vec<u8>, BuildError> {
    let path = run_path(dir, bucket);
    let len = std::fs::metadata(&path).map_err(BuildError::io("read", &path))?;
    // As much at most as the ranges were made for.
    let mut records = Vec::with_capacity(len.len().min(plan.file_bytes) as usize);
    each(&path, |record| {
        if range.contains(&plan.target.partition(&record.digest())) {
            records.extend_from_slice(record.bytes());
        }
        Ok(())
    })?;
    Ok(records)
}

/// Reads a run, a record after the other.
fn each(
    path: &Path,
    mut take: impl FnMut(PackedRecord<'_>) -> Result<(), BuildError>,
) -> Result<(), BuildError> {
    let file = File::open(path).map_err(BuildError::io("open", path))?;
    let mut reader = BufReader::with_capacity(BUFFER_LEN, file);
    let mut bytes = Vec::new();
    let damaged = |what: &'static str| {
        let error = std::io::Error::new(std::io::ErrorKind::InvalidData, what);
        BuildError::io("read", path)(error)
    };
    loop {
        bytes.resize(HEAD_LEN, 0);
        let mut read = 0;
        while read < HEAD_LEN {
            match reader.read(&mut bytes[read..]) {
                Ok(0) if read == 0 => return Ok(()),
                Ok(0) => return Err(damaged("a record is cut off")),
                Ok(more) => read += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(BuildError::io("read", path)(error)),
            }
        }
        let len = PackedRecord::len_by_head(&bytes).map_err(damaged)?;
        bytes.resize(len, 0);
        let rest = reader.read_exact(&mut bytes[HEAD_LEN..]);
        rest.map_err(BuildError::io("read", path))?;
        take(PackedRecord::at_start_of(&bytes).map_err(damaged)?)?;
    }
}

/// Writes the slices of some records; none if there is none.
fn write(
    dir: &Path,
    plan: &Plan,
    bucket: u32,
    bytes: &[u8],
    left_out: &mut Sums,
) -> Result<Option<SlicesEntry>, BuildError> {
    let temporary = dir.join(RUNS_DIR).join(format!("{bucket:05}.slices"));
    let mut sums = Sums::default();
    let records = sorted(plan, bytes, &mut sums, left_out)?;
    let (Some(first), Some(last)) = (records.first(), records.last()) else {
        return Ok(None);
    };
    let partition = |record: &PackedRecord<'_>| plan.target.partition(&record.digest());
    let (first, last) = (partition(first), partition(last));
    let mut writer = SliceFileWriter::create(&temporary, plan.target.partitions, plan.gate_rate)?;
    for slice in records.chunk_by(|one, other| partition(one) == partition(other)) {
        if let Some(first) = slice.first() {
            writer.push(partition(first), slice)?;
        }
    }
    let info = writer.finish()?;
    let summary = info.summary;
    if (summary.records, summary.payload_bytes, summary.fingerprint)
        != (sums.records, sums.payload_bytes, sums.fingerprint)
    {
        return Err(BuildError::SumsDiffer {
            dir: dir.to_owned(),
            what: "of a file of slices",
        });
    }
    let entry = SlicesEntry {
        digest: info.digest,
        len: info.len,
        table_at: info.table_at,
        slices: info.slices,
        first_partition: first.0,
        last_partition: last.0,
        sums,
    };
    let path = dir.join(entry.name());
    std::fs::rename(&temporary, &path).map_err(BuildError::io("name", &path))?;
    Ok(Some(entry))
}

/// The records that count, in ring order; what they come to, and what the others do.
fn sorted<'a>(
    plan: &Plan,
    bytes: &'a [u8],
    sums: &mut Sums,
    left_out: &mut Sums,
) -> Result<Vec<PackedRecord<'a>>, BuildError> {
    let mut records: Vec<(Digest, PackedRecord<'a>)> = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        // Checked when it was read.
        let Ok(record) = PackedRecord::at_start_of(rest) else {
            break;
        };
        rest = &rest[record.bytes().len()..];
        sums.add(record);
        records.push((record.digest(), record));
    }
    // Rows of one key stay in their order, which is that of their places.
    records.sort_unstable_by_key(|(digest, record)| (*digest, record.bytes().as_ptr()));
    let mut kept: Vec<PackedRecord<'a>> = Vec::with_capacity(records.len());
    for (digest, record) in records {
        let Some(before) = kept.last_mut().filter(|it| it.digest() == digest) else {
            kept.push(record);
            continue;
        };
        let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        if before.key() != record.key() {
            return Err(BuildError::SameDigest {
                one: text(before.key()),
                other: text(record.key()),
            });
        }
        let goes = match plan.duplicates {
            Duplicates::Error => {
                return Err(BuildError::Duplicate {
                    key: text(record.key()),
                });
            }
            Duplicates::First => record,
            Duplicates::Last => std::mem::replace(before, record),
        };
        sums.take_away(goes);
        left_out.add(goes);
    }
    Ok(kept)
}
