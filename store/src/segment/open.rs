//! Opening a segment that the manifest names.

use std::path::Path;
use std::sync::Arc;

use torc_ring::Partitions;

use super::slice::{Content, IndexMemory, Segment, SegmentFile, Slice};
use super::table::{self, Row};
use crate::StoreError;
use crate::directory::Directory;
use crate::format::{FileKind, HEADER_LEN, Header, array};
use crate::slice::{Damage, Heads, IndexParts, SliceHeader};

/// Opens a segment: maps it, and reads and checks the indexes of the slices that count.
/// Damage within a slice is the slice's, not an error.
///
/// # Errors
/// [`StoreError::Io`], [`StoreError::NewerFormat`], and [`StoreError::Corrupt`] if nobody
/// can tell any more which slices the segment held.
pub(crate) fn open_segment(
    dir: &Directory,
    file: &SegmentFile,
    is_live: impl Fn(u32) -> bool,
    partitions: Partitions,
) -> Result<Vec<Arc<Slice>>, StoreError> {
    let path = dir.segment_path(file.number);
    let opened = dir
        .fs()
        .open(&path)
        .map_err(StoreError::io("open", &path))?;
    let map = opened.map().map_err(StoreError::io("map", &path))?;
    let bytes = map.bytes();
    if bytes.len() as u64 != file.len || file.table_at > file.len {
        return Err(StoreError::corrupt(
            &path,
            bytes.len() as u64,
            "it has not the length that the manifest says",
        ));
    }
    check_header(bytes, file, partitions, &path)?;
    let rows = rows(bytes, file, partitions, &path)?;
    let live: Vec<(u32, Row)> = (0..file.rows)
        .zip(rows)
        .filter(|(row, _)| is_live(*row))
        .collect();
    let contents: Vec<Result<(SliceHeader, Heads), Damage>> = live
        .iter()
        .map(|(_, row)| check_slice(bytes, row, partitions))
        .collect();
    let parts = live
        .iter()
        .zip(&contents)
        .filter_map(|((_, row), content)| {
            let at = row.at as usize;
            let (header, _) = content.as_ref().ok()?;
            let parts = bytes
                .get(at..)
                .and_then(|slice| IndexParts::of(header, slice));
            Some(parts.unwrap_or_default())
        });
    let (index, places) = IndexMemory::of(parts);
    let segment = Arc::new(Segment::new(file.clone(), path, map.clone(), index));
    let mut places = places.into_iter();
    let slices = live
        .into_iter()
        .zip(contents)
        .map(|((row, place), content)| {
            let content = content.and_then(|(header, heads)| {
                let place = places.next().ok_or("the index of a slice is missing")??;
                Ok(Content {
                    header,
                    heads,
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
                    "a slice is damaged: its partition is refused until it is copied anew"
                );
            }
            Arc::new(slice)
        });
    Ok(slices.collect())
}

/// A header that is damaged is no harm: the manifest knows all that it says.
fn check_header(
    bytes: &[u8],
    file: &SegmentFile,
    partitions: Partitions,
    path: &Path,
) -> Result<(), StoreError> {
    if bytes.len() < HEADER_LEN {
        return Err(StoreError::corrupt(path, 0, "the header is cut off"));
    }
    match Header::decode(FileKind::Segment, &array(bytes, 0), path) {
        Ok(header) if header.number == file.number && header.partitions == partitions.count() => {
            Ok(())
        }
        Ok(_) => Err(StoreError::corrupt(
            path,
            0,
            "it is not the one the manifest names",
        )),
        Err(error @ StoreError::Corrupt { .. }) => {
            tracing::warn!(%error, "the header is not needed");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn rows(
    bytes: &[u8],
    file: &SegmentFile,
    partitions: Partitions,
    path: &Path,
) -> Result<Vec<Row>, StoreError> {
    let table = &bytes[file.table_at as usize..];
    let damage = match table::decode(table, file.number, file.table_at, partitions) {
        Ok(rows) if rows.len() == file.rows as usize => return Ok(rows),
        Ok(_) => "its table is of another length",
        Err(damage) => damage,
    };
    let rows = table::walk(bytes, file.table_at, partitions);
    if rows.len() == file.rows as usize {
        tracing::warn!(file = %path.display(), damage, "the table of a segment was made anew");
        return Ok(rows);
    }
    Err(StoreError::corrupt(path, file.table_at, damage))
}

/// The header of a slice whose index is sound, and the heads of its parts.
fn check_slice(
    bytes: &[u8],
    row: &Row,
    partitions: Partitions,
) -> Result<(SliceHeader, Heads), Damage> {
    let (at, len) = (row.at as usize, row.len as usize);
    let bytes = bytes.get(at..at + len).ok_or("a slice is cut off")?;
    let header = SliceHeader::decode(bytes)?;
    let is_it = header.partition == row.partition
        && header.partitions == partitions
        && header.len() == row.len;
    if !is_it {
        return Err("not the slice that the table says");
    }
    match bytes.get(..header.index_len()) {
        Some(index) if header.fits(index) => Ok((header, Heads::read(&header, index)?)),
        _ => Err("the index of a slice fails its checksum"),
    }
}
