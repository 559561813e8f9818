//! A file of keyless tables, one per partition with keys.
//!
//! All numbers are little-endian.
//!
//! | part | holds |
//! |---|---|
//! | header | magic `TORCKLS\0`, format (u32), partitions (u32), bytes of a payload (u32), CRC32C of these 20 bytes |
//! | sets | [`KeylessSet`]s, one after the other |
//! | payloads | of the tables in the same order, each in the order of its set's slots |
//! | directory | a row for each table: partition (u32), keys (u32), bytes of its set (u64), CRC32C of set and payloads (u32); then CRC32C of the rows |
//!
//! Sets are kept in memory, and checked when the file is opened; payloads are read from the file.

#![expect(
    clippy::cast_possible_truncation,
    reason = "payloads, tables and rows of a table are fewer than 2^32, and usize has 64 bits"
)]

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use torc_index::KeylessSet;
use torc_record::Digest;
use torc_ring::Partition;

use crate::BuildError;
use crate::manifest::{FileEntry, SliceEntry};
use crate::shape::PackedRow;

const MAGIC: [u8; 8] = *b"TORCKLS\0";
const FORMAT: u32 = 1;
const HEADER_LEN: usize = 24;
const ROW_LEN: usize = 20;
const CRC_LEN: usize = 4;

/// The fixed parameters of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) partitions: u32,
    pub(crate) fingerprint_bits: u32,
    pub(crate) payload_bytes: usize,
}

impl Layout {
    fn header(self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[12..16].copy_from_slice(&self.partitions.to_le_bytes());
        out[16..20].copy_from_slice(&(self.payload_bytes as u32).to_le_bytes());
        let crc = crc32c::crc32c(&out[..20]);
        out[20..].copy_from_slice(&crc.to_le_bytes());
        out
    }
}

/// The written file.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) digest: [u8; 32],
    pub(crate) len: u64,
    pub(crate) directory_at: u64,
    pub(crate) tables: u32,
    pub(crate) slices: Vec<SliceEntry>,
}

/// Writes the tables of some rows, which must be in the order of their digests, without duplicates,
/// and syncs the file.
pub(crate) fn write(
    path: &Path,
    layout: Layout,
    tables: &[(Partition, &[PackedRow<'_>])],
) -> Result<Written, BuildError> {
    let mut bytes = layout.header().to_vec();
    let (mut payloads, mut directory) = (Vec::new(), Vec::new());
    for (partition, rows) in tables {
        let digests: Vec<Digest> = rows.iter().map(|row| row.digest()).collect();
        // Depends on the content alone, so that every machine builds the same file.
        let set = KeylessSet::build(&digests, layout.fingerprint_bits, 0);
        let set = set.map_err(|error| BuildError::io("build", path)(io::Error::other(error)))?;
        let from = payloads.len();
        if layout.payload_bytes > 0 {
            payloads.resize(from + rows.len() * layout.payload_bytes, 0);
            place(&set, rows, layout.payload_bytes, &mut payloads[from..]);
        }
        let crc = crc32c::crc32c_append(crc32c::crc32c(&set), &payloads[from..]);
        directory.extend_from_slice(&partition.0.to_le_bytes());
        directory.extend_from_slice(&(rows.len() as u32).to_le_bytes());
        directory.extend_from_slice(&(set.len() as u64).to_le_bytes());
        directory.extend_from_slice(&crc.to_le_bytes());
        bytes.extend_from_slice(&set);
    }
    let crc = crc32c::crc32c(&directory);
    directory.extend_from_slice(&crc.to_le_bytes());
    let parts = [&bytes[..], &payloads, &directory];
    let written = File::create(path).and_then(|mut file| {
        for part in parts {
            file.write_all(part)?;
        }
        file.sync_all()
    });
    written.map_err(BuildError::io("write", path))?;
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    let directory_at = (bytes.len() + payloads.len()) as u64;
    Ok(Written {
        digest: *hasher.finalize().as_bytes(),
        len: directory_at + directory.len() as u64,
        directory_at,
        tables: tables.len() as u32,
        slices: Vec::new(),
    })
}

/// Puts payloads into the slots of their keys.
fn place(set: &[u8], rows: &[PackedRow<'_>], payload_bytes: usize, into: &mut [u8]) {
    // A set that was just built is valid.
    let Ok(set) = KeylessSet::view(set) else {
        return;
    };
    for row in rows {
        let slot = set.find(&row.digest());
        if let (PackedRow::Keyless { payload, .. }, Some(slot)) = (row, slot) {
            let at = slot * payload_bytes;
            into[at..at + payload_bytes].copy_from_slice(payload);
        }
    }
}

#[derive(Debug)]
struct Table {
    partition: u32,
    keys: u32,
    set: Vec<u8>,
    payloads_at: u64,
    /// Number of keys in earlier tables.
    first: u64,
    crc: u32,
}

/// An open file of tables, with its sets in memory.
#[derive(Debug)]
pub(crate) struct KeylessFile {
    path: PathBuf,
    file: File,
    payload_bytes: usize,
    /// In the order of their partitions.
    tables: Vec<Table>,
}

impl KeylessFile {
    pub(crate) fn open(path: &Path, layout: Layout, entry: &FileEntry) -> Result<Self, BuildError> {
        let opened = Self::read(path, layout, entry);
        opened.map_err(BuildError::io("read", path))
    }

    fn read(path: &Path, layout: Layout, entry: &FileEntry) -> io::Result<Self> {
        let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let mut file = File::open(path)?;
        if file.metadata()?.len() != entry.len {
            return Err(damaged("it has not the length that the manifest says"));
        }
        let mut header = [0; HEADER_LEN];
        file.read_exact(&mut header)?;
        if header != layout.header() {
            return Err(damaged("it is not the file that the manifest names"));
        }
        let directory_len = (u64::from(entry.tables) * ROW_LEN as u64) + CRC_LEN as u64;
        if entry.directory_at.checked_add(directory_len) != Some(entry.len) {
            return Err(damaged(
                "its directory has not the length that the manifest says",
            ));
        }
        let mut directory = vec![0; directory_len as usize];
        file.read_exact_at(&mut directory, entry.directory_at)?;
        let (rows, crc) = directory.split_at(directory.len() - CRC_LEN);
        if crc32c::crc32c(rows).to_le_bytes() != crc {
            return Err(damaged("its directory fails its checksum"));
        }
        let mut tables = Vec::with_capacity(entry.tables as usize);
        file.seek(SeekFrom::Start(HEADER_LEN as u64))?;
        let (mut left, mut first) = (entry.directory_at - HEADER_LEN as u64, 0);
        for row in rows.chunks_exact(ROW_LEN) {
            let [partition, keys, low, high, crc] = words(row);
            let set_len = u64::from(low) | u64::from(high) << 32;
            let payload_len = u64::from(keys) * layout.payload_bytes as u64;
            left = set_len
                .checked_add(payload_len)
                .and_then(|len| left.checked_sub(len))
                .ok_or_else(|| damaged("its tables are longer than it is"))?;
            let mut set = vec![0; set_len as usize];
            file.read_exact(&mut set)?;
            let holds = KeylessSet::view(&set).map(|set| set.len());
            if holds.ok() != Some(keys as usize) {
                return Err(damaged("a table in it is none"));
            }
            tables.push(Table {
                partition,
                keys,
                set,
                payloads_at: 0,
                first,
                crc,
            });
            first += u64::from(keys);
        }
        let mut at = file.stream_position()?;
        for table in &mut tables {
            table.payloads_at = at;
            at += u64::from(table.keys) * layout.payload_bytes as u64;
        }
        if at != entry.directory_at || !tables.is_sorted_by_key(|table| table.partition) {
            return Err(damaged("its tables are not where its directory says"));
        }
        let opened = Self {
            path: path.to_owned(),
            file,
            payload_bytes: layout.payload_bytes,
            tables,
        };
        if layout.payload_bytes == 0 {
            // Needs no further reads, so it costs little.
            opened.check()?;
        }
        Ok(opened)
    }

    /// The number of a key in this file, and its payload.
    pub(crate) fn find(
        &self,
        partition: Partition,
        digest: &Digest,
    ) -> Result<Option<(u64, Bytes)>, BuildError> {
        let table = self
            .tables
            .binary_search_by_key(&partition.0, |it| it.partition);
        let Some(table) = table.ok().and_then(|at| self.tables.get(at)) else {
            return Ok(None);
        };
        let set = KeylessSet::view(&table.set);
        let Some(slot) = set.ok().and_then(|set| set.find(digest)) else {
            return Ok(None);
        };
        let mut payload = vec![0; self.payload_bytes];
        let at = table.payloads_at + slot as u64 * self.payload_bytes as u64;
        let read = self.file.read_exact_at(&mut payload, at);
        read.map_err(BuildError::io("read", &self.path))?;
        Ok(Some((table.first + slot as u64, payload.into())))
    }

    /// Reads the whole file: whether sets and payloads are unchanged.
    pub(crate) fn verify(&self) -> Result<(), BuildError> {
        self.check().map_err(BuildError::io("read", &self.path))
    }

    fn check(&self) -> io::Result<()> {
        for table in &self.tables {
            let mut payloads = vec![0; table.keys as usize * self.payload_bytes];
            self.file.read_exact_at(&mut payloads, table.payloads_at)?;
            if crc32c::crc32c_append(crc32c::crc32c(&table.set), &payloads) != table.crc {
                let what = format!(
                    "the table of partition {} fails its checksum",
                    table.partition
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        Ok(())
    }

    pub(crate) fn index_bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.set.len() as u64).sum()
    }
}

/// The words of a directory row.
fn words(row: &[u8]) -> [u32; ROW_LEN / 4] {
    let mut words = [0; ROW_LEN / 4];
    for (word, bytes) in words.iter_mut().zip(row.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}
