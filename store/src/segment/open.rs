//! Opens a segment that the manifest names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use torc_ring::Partitions;

use torc_record::to_usize;

use super::slice::{Content, IndexMemory, Segment, SegmentFile, Slice};
use super::table::{self, Row};
use crate::bulk::SliceFileInfo;
use crate::directory::Directory;
use crate::format::{FileKind, HEADER_LEN, Header, array};
use crate::fs::FsFile;
use crate::slice::{
    Damage, Heads, IndexParts, Reader, Rest, SLICE_HEADER_LEN, SliceHeader, read_file,
};
use crate::{Seq, StoreError};

/// A page of memory.
const FIRST_READ_LEN: u64 = 4096;

/// Opens a segment: reads and checks the indexes of the live slices. Damage within a slice is
/// recorded there, and is not an error.
///
/// # Errors
/// [`StoreError::Io`], [`StoreError::NewerFormat`], and [`StoreError::Corrupt`] if it is impossible
/// to determine which slices the segment held.
pub(crate) fn open_segment(
    dir: &Directory,
    file: &SegmentFile,
    is_live: impl Fn(u32) -> bool,
    partitions: Partitions,
) -> Result<Vec<Arc<Slice>>, StoreError> {
    let path = dir.segment_path(file.number);
    let opened = dir.fs().open(&path);
    let reader: Arc<dyn FsFile> = Arc::from(opened.map_err(StoreError::io("open", &path))?);
    open_slices(reader, path, file, is_live, partitions)
}

/// Opens a file of slices that was not written by a store.
///
/// # Errors
/// As [`open_segment`].
pub(crate) fn open_slice_file(
    reader: Arc<dyn FsFile>,
    path: &Path,
    partitions: Partitions,
    info: &SliceFileInfo,
) -> Result<Vec<Arc<Slice>>, StoreError> {
    let file = SegmentFile {
        number: 0,
        len: info.len,
        table_at: info.table_at,
        after: Seq(0),
        rows: info.slices,
    };
    open_slices(reader, path.to_owned(), &file, |_| true, partitions)
}

fn open_slices(
    reader: Arc<dyn FsFile>,
    path: PathBuf,
    file: &SegmentFile,
    is_live: impl Fn(u32) -> bool,
    partitions: Partitions,
) -> Result<Vec<Arc<Slice>>, StoreError> {
    let size = reader.size().map_err(StoreError::io("read", &path))?;
    if size != file.len || file.table_at > file.len {
        return Err(StoreError::corrupt(
            &path,
            size,
            "its length differs from the manifest",
        ));
    }
    check_header(&*reader, file, partitions, &path)?;
    let rows = rows(&*reader, file, partitions, &path)?;
    let live: Vec<(u32, Row)> = (0..file.rows)
        .zip(rows)
        .filter(|(row, _)| is_live(*row))
        .collect();
    let contents: Vec<Result<Checked, Damage>> = live
        .iter()
        .map(|(_, row)| check_slice(&*reader, row, partitions))
        .collect();
    let sound = contents.iter().filter_map(|content| content.as_ref().ok());
    let parts = sound.map(|one| IndexParts::of(&one.header, &one.index).unwrap_or_default());
    let (index, places) = IndexMemory::of(parts);
    let segment = Arc::new(Segment::new(file.clone(), path, reader, index));
    let mut places = places.into_iter();
    let slices = live
        .into_iter()
        .zip(contents)
        .map(|((row, place), content)| {
            let content = content.and_then(|one| {
                let place = places.next().ok_or("the index of a slice is missing")??;
                Ok(Content {
                    header: one.header,
                    heads: one.heads,
                    place,
                })
            });
            let damage = content.as_ref().err().copied();
            let slice = Slice::new(Arc::clone(&segment), row, place, content);
            if let Some(what) = damage {
                tracing::error!(
                    file = %segment.path.display(),
                    offset = place.at,
                    partition = place.partition.0,
                    what,
                    "a slice is damaged: this node refuses its keys until other replicas have supplied them, \
                     or they are written again"
                );
            }
            Arc::new(slice)
        });
    Ok(slices.collect())
}

/// A damaged header is harmless, because the manifest has all of its content.
fn check_header(
    reader: &dyn FsFile,
    file: &SegmentFile,
    partitions: Partitions,
    path: &Path,
) -> Result<(), StoreError> {
    let header = match read_file(reader, 0, HEADER_LEN) {
        Ok(bytes) => Header::decode(FileKind::Segment, &array(&bytes, 0), path),
        Err(what) => Err(StoreError::corrupt(path, 0, what)),
    };
    match header {
        Ok(header) if header.number == file.number && header.partitions == partitions.count() => {
            Ok(())
        }
        Ok(_) => Err(StoreError::corrupt(
            path,
            0,
            "it is not the segment in the manifest",
        )),
        Err(error @ StoreError::Corrupt { .. }) => {
            tracing::warn!(%error, "segment header damaged; the manifest has its content");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn rows(
    reader: &dyn FsFile,
    file: &SegmentFile,
    partitions: Partitions,
    path: &Path,
) -> Result<Vec<Row>, StoreError> {
    let len = to_usize(file.len - file.table_at);
    let table = if len == table::len_of(file.rows) {
        read_file(reader, file.table_at, len)
    } else {
        Err("its table is of another length")
    };
    let decoded =
        table.and_then(|table| table::decode(&table, file.number, file.table_at, partitions));
    let damage = match decoded {
        Ok(rows) => return Ok(rows),
        Err(damage) => damage,
    };
    let all = Rest::File {
        file: reader,
        at: 0,
        len: file.table_at,
    };
    let rows = table::walk(Reader::new(all), partitions);
    if rows.len() == file.rows as usize {
        tracing::warn!(file = %path.display(), damage, "rebuilt the table of a segment");
        return Ok(rows);
    }
    Err(StoreError::corrupt(path, file.table_at, damage))
}

/// A slice with a valid index.
struct Checked {
    header: SliceHeader,
    heads: Heads,
    /// Header, gate, MPHF and offsets.
    index: Vec<u8>,
}

fn check_slice(reader: &dyn FsFile, row: &Row, partitions: Partitions) -> Result<Checked, Damage> {
    // Most indexes are short, so one read suffices.
    let first = row.len.min(FIRST_READ_LEN) as usize;
    let index = read_file(reader, row.at, first);
    // The unreadable bytes may be outside the index.
    let index = index.or_else(|_| read_file(reader, row.at, SLICE_HEADER_LEN));
    let mut index = index?;
    let header = SliceHeader::decode(&index)?;
    let is_it = header.partition == row.partition
        && header.partitions == partitions
        && header.len() == row.len;
    if !is_it {
        return Err("not the slice in the table");
    }
    if header.index_len() > index.len() {
        index = read_file(reader, row.at, header.index_len())?;
    }
    index.truncate(header.index_len());
    if !header.fits(&index) {
        return Err("the index of a slice fails its checksum");
    }
    Ok(Checked {
        heads: Heads::read(&header, &index)?,
        header,
        index,
    })
}
