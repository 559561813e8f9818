//! The second pass: turns a bucket's run into files of slices.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use torc_record::{Digest, to_usize};
use torc_ring::Partition;
use torc_store::bulk::{SliceFileInfo, SliceFileWriter};

use crate::BuildError;
use crate::manifest::{FileEntry, SliceEntry};
use crate::plan::{Duplicates, Plan};
use crate::scatter::run_path;
use crate::shape::{PackedRow, Shape};
use crate::sums::Sums;

/// Bytes read at a time.
const BUFFER_LEN: usize = 1 << 20;

/// Paths of a bucket's run and of its files.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    pub(crate) runs: &'a Path,
    pub(crate) dir: &'a Path,
    /// Holds a file until it gets its name. In the file system of `dir`, and used by this build
    /// alone.
    pub(crate) temporary: PathBuf,
}

/// The result for a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gathered {
    pub(crate) files: Vec<FileEntry>,
    /// Sums of the rows left out.
    pub(crate) left_out: Sums,
}

/// Gathers a bucket. When it returns, the files have their names; they are durable once the
/// directory has been synced.
pub(crate) fn gather(
    places: &Places<'_>,
    plan: &Plan,
    bucket: u32,
) -> Result<Gathered, BuildError> {
    let mut gathered = Gathered {
        files: Vec::new(),
        left_out: Sums::default(),
    };
    let run = run_path(places.runs, bucket);
    for range in ranges(&run, plan)? {
        let rows = load(&run, plan, &range)?;
        let file = write(places, plan, &rows, &mut gathered.left_out)?;
        gathered.files.extend(file);
    }
    Ok(gathered)
}

/// Ranges of a run's partitions that fit into one file each, in order. Empty for a bucket without
/// rows, which has no run; the sums reveal the loss of a run.
fn ranges(run: &Path, plan: &Plan) -> Result<Vec<RangeInclusive<Partition>>, BuildError> {
    let len = match std::fs::metadata(run) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(BuildError::io("read", run)(error)),
    };
    if len <= plan.file_bytes {
        return Ok(vec![Partition(0)..=Partition(u32::MAX)]);
    }
    let mut lens = BTreeMap::<Partition, u64>::new();
    each(run, plan.shape, |row, _| {
        let partition = plan.target.partition(&row.digest());
        *lens.entry(partition).or_default() += row.len() as u64;
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

/// The rows of some partitions of a run, concatenated.
fn load(run: &Path, plan: &Plan, range: &RangeInclusive<Partition>) -> Result<Vec<u8>, BuildError> {
    let len = std::fs::metadata(run).map_err(BuildError::io("read", run))?;
    // At most the amount for which the ranges were chosen.
    let mut rows = Vec::with_capacity(to_usize(len.len().min(plan.file_bytes)));
    each(run, plan.shape, |row, bytes| {
        if range.contains(&plan.target.partition(&row.digest())) {
            rows.extend_from_slice(bytes);
        }
    })?;
    Ok(rows)
}

/// Reads a run row by row.
fn each(
    path: &Path,
    shape: Shape,
    mut take: impl FnMut(PackedRow<'_>, &[u8]),
) -> Result<(), BuildError> {
    let head_len = shape.head_len();
    let file = File::open(path).map_err(BuildError::io("open", path))?;
    let mut reader = BufReader::with_capacity(BUFFER_LEN, file);
    let mut bytes = Vec::new();
    let damaged = |what: &'static str| {
        let error = std::io::Error::new(std::io::ErrorKind::InvalidData, what);
        BuildError::io("read", path)(error)
    };
    loop {
        bytes.resize(head_len, 0);
        let mut read = 0;
        while read < head_len {
            match reader.read(&mut bytes[read..]) {
                Ok(0) if read == 0 => return Ok(()),
                Ok(0) => return Err(damaged("a row is cut off")),
                Ok(more) => read += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(BuildError::io("read", path)(error)),
            }
        }
        let len = shape.len_by_head(&bytes).map_err(damaged)?;
        bytes.resize(len, 0);
        let rest = reader.read_exact(&mut bytes[head_len..]);
        rest.map_err(BuildError::io("read", path))?;
        take(shape.row(&bytes).map_err(damaged)?, &bytes);
    }
}

/// Writes the file of some rows; `None` if there are no rows.
fn write(
    places: &Places<'_>,
    plan: &Plan,
    bytes: &[u8],
    left_out: &mut Sums,
) -> Result<Option<FileEntry>, BuildError> {
    let Places { dir, temporary, .. } = places;
    let mut sums = Sums::default();
    let rows = sorted(plan, bytes, &mut sums, left_out)?;
    let partition = |row: &PackedRow<'_>| plan.target.partition(&row.digest());
    let tables = rows.chunk_by(|one, other| partition(one) == partition(other));
    let tables: Vec<Table<'_>> = tables
        .filter_map(|rows| Some((partition(rows.first()?), rows)))
        .collect();
    let (Some((first, _)), Some((last, _))) = (tables.first(), tables.last()) else {
        return Ok(None);
    };
    let (info, slices) = slices(dir, temporary, plan, &tables, &sums)?;
    let entry = FileEntry {
        digest: info.digest,
        len: info.len,
        directory_at: info.table_at,
        slices,
        first_partition: first.0,
        last_partition: last.0,
        sums,
    };
    let path = dir.join(entry.name());
    std::fs::rename(temporary, &path).map_err(BuildError::io("name", &path))?;
    Ok(Some(entry))
}

/// The rows of a partition, in ring order.
type Table<'a> = (Partition, &'a [PackedRow<'a>]);

/// Writes a slice for each partition.
fn slices(
    dir: &Path,
    path: &Path,
    plan: &Plan,
    tables: &[Table<'_>],
    sums: &Sums,
) -> Result<(SliceFileInfo, Vec<SliceEntry>), BuildError> {
    let target = &plan.target;
    let mut writer = SliceFileWriter::create(path, target.partitions, plan.gate_rate)?;
    let mut slices = Vec::with_capacity(tables.len());
    for (partition, rows) in tables {
        let placed = if let Some(layout) = plan.shape.keyless() {
            let rows = rows.iter().filter_map(|row| match row {
                PackedRow::Keyless { digest, payload } => Some((*digest, *payload)),
                PackedRow::Record(_) => None,
            });
            let of = (target.namespace, target.ballot);
            writer.push_keyless(*partition, of, layout, &rows.collect::<Vec<_>>())?
        } else {
            let records = rows.iter().filter_map(|row| match row {
                PackedRow::Record(record) => Some(*record),
                PackedRow::Keyless { .. } => None,
            });
            let records: Vec<_> = records.collect();
            match plan.shape {
                Shape::Ids => writer.push_numbered(*partition, &records)?,
                Shape::Values | Shape::Keyless { .. } => writer.push(*partition, &records)?,
            }
        };
        slices.push(SliceEntry {
            partition: *partition,
            // A slice has at most 2^30 keys.
            records: u32::try_from(rows.len()).unwrap_or(u32::MAX),
            at: placed.at,
            len: placed.len,
            digest: placed.digest,
        });
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
    Ok((info, slices))
}

/// The rows to keep, in ring order; adds up the sums of all rows and of those left out.
fn sorted<'a>(
    plan: &Plan,
    bytes: &'a [u8],
    sums: &mut Sums,
    left_out: &mut Sums,
) -> Result<Vec<PackedRow<'a>>, BuildError> {
    let mut rows: Vec<(Digest, usize)> = Vec::new();
    let mut at = 0;
    // All rows were validated when they were read.
    while let Some(row) = bytes.get(at..).and_then(|rest| plan.shape.row(rest).ok()) {
        sums.merge(&row.sums());
        rows.push((row.digest(), at));
        at += row.len();
    }
    // Rows of one key stay in the order of their positions.
    rows.sort_unstable();
    let mut kept: Vec<PackedRow<'a>> = Vec::with_capacity(rows.len());
    for (digest, at) in rows {
        let Some(row) = bytes.get(at..).and_then(|rest| plan.shape.row(rest).ok()) else {
            continue;
        };
        let Some(before) = kept.last_mut().filter(|it| it.digest() == digest) else {
            kept.push(row);
            continue;
        };
        if before.key() != row.key() {
            return Err(BuildError::SameDigest {
                one: text(*before),
                other: text(row),
            });
        }
        let goes = match plan.duplicates {
            Duplicates::Error => return Err(BuildError::Duplicate { key: text(row) }),
            Duplicates::First => row,
            Duplicates::Last => std::mem::replace(before, row),
        };
        let gone = goes.sums();
        sums.take_away(&gone);
        left_out.merge(&gone);
    }
    Ok(kept)
}

/// The key of a row, as text.
fn text(row: PackedRow<'_>) -> String {
    match row.key() {
        Some(key) => String::from_utf8_lossy(key).into_owned(),
        None => format!("of the digest {}", row.digest()),
    }
}
