//! The second pass: turns a bucket's run into files of slices.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use torc_index::prefetch;
use torc_record::{Digest, to_usize};
use torc_ring::{Partition, Partitions};
use torc_store::bulk::{Placed, SliceFileWriter};

use crate::BuildError;
use crate::manifest::{FileEntry, Gathered, SliceEntry};
use crate::plan::{Duplicates, Plan};
use crate::scatter::run_path;
use crate::shape::{PackedRow, Shape};
use crate::sums::Sums;

/// Bytes read at a time.
const BUFFER_LEN: usize = 1 << 20;
/// Rows whose memory is fetched before they are read, because their order is not that of the memory.
const AHEAD: usize = 16;
/// Memory for a row beside its own bytes: its place in the order, and its parsed form. Decides also which slices
/// share a file.
const ROW_BYTES: u64 = (size_of::<(Digest, usize)>() + size_of::<PackedRow<'_>>()) as u64;

/// Paths of a bucket's run and of its files.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    pub(crate) runs: &'a Path,
    pub(crate) dir: &'a Path,
    /// Holds a file until it gets its name. In the file system of `dir`, and used by this build
    /// alone.
    pub(crate) temporary: PathBuf,
}

/// Gathers a bucket. When it returns, the files have their names; they are durable once the
/// directory has been synced.
pub(crate) fn gather(
    places: &Places<'_>,
    plan: &Plan,
    bucket: u32,
) -> Result<Gathered, BuildError> {
    let mut files = Files {
        plan,
        output: Output::new(places, plan),
        left_out: Sums::default(),
    };
    let mut rows = Vec::new();
    for number in plan.runs_of(bucket) {
        let run = run_path(places.runs, number);
        for (range, len) in ranges(&run, plan)? {
            load(&run, plan, (&range, len), &mut rows)?;
            files.push(&run, &rows)?;
        }
    }
    Ok(Gathered {
        files: files.output.finish()?,
        left_out: files.left_out,
    })
}

/// Partitions of a run, and the length of their rows.
type Range = (RangeInclusive<Partition>, u64);

/// The partitions of a whole run.
const ALL: RangeInclusive<Partition> = Partition(0)..=Partition(u32::MAX);

/// Ranges of a run's partitions that fit into memory each, in order. Empty without a run: it has no rows. The
/// sums reveal the loss of a run.
fn ranges(run: &Path, plan: &Plan) -> Result<Vec<Range>, BuildError> {
    let len = match std::fs::metadata(run) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(BuildError::io("read", run)(error)),
    };
    let most_rows = len / plan.shape.head_len() as u64;
    if len + most_rows * ROW_BYTES <= plan.memory() {
        return Ok(vec![(ALL, len)]);
    }
    let mut sizes = BTreeMap::<Partition, (u64, u64)>::new();
    each(run, plan.shape, |row, _| {
        let partition = plan.target.partition(&row.digest());
        let (len, needed) = sizes.entry(partition).or_default();
        *len += row.len() as u64;
        *needed += row.len() as u64 + ROW_BYTES;
    })?;
    let mut ranges: Vec<(Range, u64)> = Vec::new();
    for (partition, (len, needed)) in sizes {
        if needed > plan.memory() {
            return Err(BuildError::PartitionTooLarge {
                partition: partition.0,
                bytes: needed,
            });
        }
        match ranges.last_mut() {
            Some(((range, held), total)) if *total + needed <= plan.memory() => {
                *range = *range.start()..=partition;
                *held += len;
                *total += needed;
            }
            _ => ranges.push(((partition..=partition, len), needed)),
        }
    }
    Ok(ranges.into_iter().map(|(range, _)| range).collect())
}

/// Replaces `rows` by those of some partitions of a run, concatenated; `len` bytes. Those of a whole run are
/// not validated.
fn load(
    run: &Path,
    plan: &Plan,
    (range, len): (&RangeInclusive<Partition>, u64),
    rows: &mut Vec<u8>,
) -> Result<(), BuildError> {
    rows.clear();
    rows.reserve_exact(to_usize(len));
    if *range == ALL {
        let read = File::open(run).and_then(|file| file.take(len).read_to_end(rows));
        read.map_err(BuildError::io("read", run))?;
        return Ok(());
    }
    each(run, plan.shape, |row, bytes| {
        if range.contains(&plan.target.partition(&row.digest())) {
            rows.extend_from_slice(bytes);
        }
    })
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
    let damaged = damaged(path);
    loop {
        bytes.resize(head_len, 0);
        let mut read = 0;
        while read < head_len {
            match reader.read(&mut bytes[read..]) {
                Ok(0) if read == 0 => return Ok(()),
                Ok(0) => return Err(damaged("a row is cut off")),
                Ok(more) => read += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(BuildError::io("read", path)(error)),
            }
        }
        let len = shape.len_by_head(&bytes).map_err(damaged)?;
        bytes.resize(len, 0);
        let rest = reader.read_exact(&mut bytes[head_len..]);
        rest.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => damaged("a row is cut off"),
            _ => BuildError::io("read", path)(error),
        })?;
        take(shape.row(&bytes).map_err(damaged)?, &bytes);
    }
}

fn damaged(run: &Path) -> impl Fn(&'static str) -> BuildError + Copy {
    move |what| {
        let error = std::io::Error::new(ErrorKind::InvalidData, what);
        BuildError::io("read", run)(error)
    }
}

/// The rows of a bucket on their way to files.
struct Files<'a> {
    plan: &'a Plan,
    output: Output,
    left_out: Sums,
}

/// A digest, as a number, and the position of its row in a run.
type Position = (u128, usize);

impl Files<'_> {
    /// Adds all rows of some partitions, which follow those before.
    fn push(&mut self, run: &Path, bytes: &[u8]) -> Result<(), BuildError> {
        let mut rows = positions(self.plan, (run, bytes))?;
        // Rows of one key stay in the order of their positions.
        rows.sort_unstable();
        let target = &self.plan.target;
        let partition = |(digest, _): &Position| target.partition(&Digest(digest.to_be_bytes()));
        for rows in rows.chunk_by(|one, other| partition(one) == partition(other)) {
            if let Some(first) = rows.first() {
                let at = partition(first);
                let kept = kept(self.plan, (run, bytes), rows, &mut self.left_out)?;
                self.push_slice(at, &kept)?;
            }
        }
        Ok(())
    }

    fn push_slice(&mut self, partition: Partition, kept: &Kept<'_>) -> Result<(), BuildError> {
        if kept.needed > self.plan.memory() {
            return Err(BuildError::PartitionTooLarge {
                partition: partition.0,
                bytes: kept.needed,
            });
        }
        let plan = self.plan;
        self.output.push(kept.needed, kept.sums, |writer| {
            let placed = write(plan, writer, partition, &kept.rows)?;
            Ok((partition, placed))
        })
    }
}

/// Files of slices, written one after the other.
#[derive(Debug)]
pub(crate) struct Output {
    dir: PathBuf,
    temporary: PathBuf,
    partitions: Partitions,
    gate_rate: f64,
    file_bytes: u64,
    open: Option<OpenFile>,
    files: Vec<FileEntry>,
}

/// A file that is being written.
#[derive(Debug)]
struct OpenFile {
    writer: SliceFileWriter,
    slices: Vec<SliceEntry>,
    sums: Sums,
    /// What its slices count for the limit of a file.
    needed: u64,
}

impl Output {
    pub(crate) fn new(places: &Places<'_>, plan: &Plan) -> Self {
        Self {
            dir: places.dir.to_owned(),
            temporary: places.temporary.clone(),
            partitions: plan.target.partitions,
            gate_rate: plan.gate_rate,
            file_bytes: plan.file_bytes,
            open: None,
            files: Vec::new(),
        }
    }

    /// Adds a slice with these sums, which `write` writes. `needed` counts for the limit of a file.
    pub(crate) fn push(
        &mut self,
        needed: u64,
        sums: Sums,
        write: impl FnOnce(&mut SliceFileWriter) -> Result<(Partition, Placed), BuildError>,
    ) -> Result<(), BuildError> {
        let most = self.file_bytes;
        if self
            .open
            .as_ref()
            .is_some_and(|it| it.needed + needed > most)
        {
            self.close()?;
        }
        let file = match &mut self.open {
            Some(file) => file,
            unopened => unopened.insert(OpenFile {
                writer: SliceFileWriter::create(&self.temporary, self.partitions, self.gate_rate)?,
                slices: Vec::new(),
                sums: Sums::default(),
                needed: 0,
            }),
        };
        let (partition, placed) = write(&mut file.writer)?;
        file.slices.push(SliceEntry {
            partition,
            // A slice has at most 2^30 keys.
            records: u32::try_from(sums.records).unwrap_or(u32::MAX),
            at: placed.at,
            len: placed.len,
            digest: placed.digest,
        });
        file.sums.merge(&sums);
        file.needed += needed;
        Ok(())
    }

    /// Completes the last file, and returns all.
    pub(crate) fn finish(mut self) -> Result<Vec<FileEntry>, BuildError> {
        self.close()?;
        Ok(self.files)
    }

    /// Completes the file that is being written, if any, and names it.
    fn close(&mut self) -> Result<(), BuildError> {
        let Some(OpenFile {
            writer,
            slices,
            sums,
            ..
        }) = self.open.take()
        else {
            return Ok(());
        };
        let (Some(first), Some(last)) = (slices.first(), slices.last()) else {
            return Ok(());
        };
        let info = writer.finish()?;
        let summary = info.summary;
        if (summary.records, summary.payload_bytes, summary.fingerprint)
            != (sums.records, sums.payload_bytes, sums.fingerprint)
        {
            return Err(BuildError::SumsDiffer {
                dir: self.dir.clone(),
                what: "of a file of slices",
            });
        }
        let entry = FileEntry {
            digest: info.digest,
            len: info.len,
            directory_at: info.table_at,
            first_partition: first.partition.0,
            last_partition: last.partition.0,
            slices,
            sums,
        };
        let path = self.dir.join(entry.name());
        std::fs::rename(&self.temporary, &path).map_err(BuildError::io("name", &path))?;
        self.files.push(entry);
        Ok(())
    }
}

/// Writes the slice of a partition.
fn write(
    plan: &Plan,
    writer: &mut SliceFileWriter,
    partition: Partition,
    rows: &[PackedRow<'_>],
) -> Result<Placed, BuildError> {
    let target = &plan.target;
    if let Some(layout) = plan.shape.keyless() {
        let rows = rows.iter().filter_map(|row| match row {
            PackedRow::Keyless { digest, payload } => Some((*digest, *payload)),
            PackedRow::Record(_) => None,
        });
        let of = (target.namespace, target.ballot);
        return Ok(writer.push_keyless(partition, of, layout, &rows.collect::<Vec<_>>())?);
    }
    let records = rows.iter().filter_map(|row| match row {
        PackedRow::Record(record) => Some(*record),
        PackedRow::Keyless { .. } => None,
    });
    let records: Vec<_> = records.collect();
    Ok(match plan.shape {
        Shape::Ids => writer.push_numbered(partition, &records)?,
        Shape::Values | Shape::Keyless { .. } => writer.push(partition, &records)?,
    })
}

/// The digests and positions of all rows.
fn positions(plan: &Plan, (run, bytes): (&Path, &[u8])) -> Result<Vec<Position>, BuildError> {
    let damaged = damaged(run);
    // Counted first: a growing list takes up to three times its length.
    let (mut count, mut at) = (0, 0);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        at += plan.shape.len_by_head(rest).map_err(damaged)?;
        count += 1;
    }
    let mut rows = Vec::with_capacity(count);
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let row = plan.shape.row(rest).map_err(damaged)?;
        rows.push((u128::from_be_bytes(row.digest().0), at));
        at += row.len();
    }
    Ok(rows)
}

/// The rows of a partition to keep, in ring order.
struct Kept<'a> {
    rows: Vec<PackedRow<'a>>,
    sums: Sums,
    /// What all rows of the partition count for the limit of a file.
    needed: u64,
}

/// The rows of a partition to keep. Adds up the sums of those left out.
fn kept<'a>(
    plan: &Plan,
    (run, bytes): (&Path, &'a [u8]),
    rows: &[Position],
    left_out: &mut Sums,
) -> Result<Kept<'a>, BuildError> {
    let mut kept = Kept {
        rows: Vec::with_capacity(rows.len()),
        sums: Sums::default(),
        needed: 0,
    };
    for (number, (_, at)) in rows.iter().enumerate() {
        if let Some((_, later)) = rows.get(number + AHEAD) {
            for line in [0, 64, 128] {
                prefetch(bytes, later + line);
            }
        }
        let row = plan.shape.row(&bytes[*at..]).map_err(damaged(run))?;
        kept.needed += row.len() as u64 + ROW_BYTES;
        let Some(before) = kept
            .rows
            .last_mut()
            .filter(|it| it.digest() == row.digest())
        else {
            kept.sums.merge(&row.sums());
            kept.rows.push(row);
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
        kept.sums.merge(&row.sums());
        let gone = goes.sums();
        kept.sums.take_away(&gone);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BuildOptions;
    use crate::target::Target;

    #[test]
    fn ranges_leave_room_for_more_than_the_bytes_of_short_rows() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        let shape = Shape::Keyless {
            fingerprint_bits: 8,
            payload_bytes: 0,
        };
        let options = BuildOptions {
            shape,
            ..BuildOptions::default()
        };
        let mut plan = options.plan_of(Target::offline([7; 32]), 1);
        let mut rows = Vec::new();
        for key in 0..10_000_u32 {
            let key = key.to_le_bytes().to_vec().into();
            let packed = shape.pack(&plan.target, (key, "".into(), None), &mut rows);
            packed.unwrap();
        }
        std::fs::write(&run, &rows).unwrap();
        plan.file_bytes = rows.len() as u64;
        let ranges = ranges(&run, &plan).unwrap();
        assert!(ranges.len() > 3, "16 bytes a row are the least of it");
        let mut read = 0;
        for (range, len) in ranges {
            let mut rows = Vec::new();
            load(&run, &plan, (&range, len), &mut rows).unwrap();
            assert_eq!(rows.len() as u64, len);
            assert_eq!(rows.capacity(), rows.len(), "reserved exactly");
            assert!(len + len / 16 * ROW_BYTES <= plan.file_bytes);
            read += rows.len();
        }
        assert_eq!(read, rows.len());
    }
    #[test]
    fn a_row_that_is_cut_off_anywhere_is_named_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        let mut row = Vec::new();
        let target = Target::offline([7; 32]);
        let packed = Shape::Values.pack(
            &target,
            ("a key".into(), "its value".into(), None),
            &mut row,
        );
        packed.unwrap();
        for len in 1..row.len() {
            std::fs::write(&run, &row[..len]).unwrap();
            let error = each(&run, Shape::Values, |_, _| ()).unwrap_err();
            assert!(
                error.to_string().contains("a row is cut off"),
                "{len}: {error}"
            );
        }
    }
}
