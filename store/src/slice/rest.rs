//! Reads the part of a slice after its index, from memory or from the file.
//!
//! A get reads one record, with one read. A [`Reader`] reads many records in roughly stored order,
//! short ones by blocks.
//!
//! Bytes that the disk cannot read damage only the records that they belong to.

use std::ops::Range;

use torc_record::to_usize;

use super::Damage;
use crate::fs::FsFile;

const CUT_OFF: Damage = "a slice is cut off";
const READ_ERROR: Damage = "the disk reports an error";

/// Bytes that a reader of many records reads at a time.
const BLOCK_LEN: u64 = 32 << 10;
/// Ring order jumps over several hundred slots at a time; this many blocks cover such jumps if records are short.
const BLOCKS: usize = 8;
/// Longer records than this are read one by one, unless the blocks cover the whole slice: of a block, only one of
/// them would be used before it is replaced.
const SHORT_RECORD: u64 = BLOCK_LEN * BLOCKS as u64 / 256;

/// The bytes of a slice after its index.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rest<'a> {
    Memory(&'a [u8]),
    File {
        file: &'a dyn FsFile,
        /// Their offset in the file.
        at: u64,
        len: u64,
    },
}

/// Whether a reader waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    Wait,
    /// Fails if the bytes are not in the page cache.
    CachedOnly,
}

/// Why bytes were not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    NotCached,
    Damaged(Damage),
}

impl Unread {
    /// The damage, for a reader that waits.
    pub(crate) fn damage(self) -> Damage {
        match self {
            Self::Damaged(what) => what,
            Self::NotCached => READ_ERROR,
        }
    }
}

impl From<Damage> for Unread {
    fn from(what: Damage) -> Self {
        Self::Damaged(what)
    }
}

impl Rest<'_> {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { len, .. } => *len,
        }
    }

    /// Fills `buf` with the bytes from `from` on.
    pub(super) fn read(&self, buf: &mut [u8], from: u64, how: Reading) -> Result<(), Unread> {
        let end = from.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.len()) {
            return Err(Unread::Damaged(CUT_OFF));
        }
        match self {
            Self::Memory(bytes) => {
                buf.copy_from_slice(&bytes[to_usize(from)..][..buf.len()]);
                Ok(())
            }
            Self::File { file, at, .. } => fill(*file, buf, at + from, how),
        }
    }

    /// A copy of `len` bytes from `from` on, no more than exist.
    ///
    /// # Errors
    /// There are fewer bytes, or they are unreadable.
    pub(crate) fn copy(&self, from: u64, len: usize) -> Result<Vec<u8>, Damage> {
        if len as u64 > self.len().saturating_sub(from) {
            return Err(CUT_OFF);
        }
        let mut bytes = vec![0; len];
        self.read(&mut bytes, from, Reading::Wait)
            .map_err(Unread::damage)?;
        Ok(bytes)
    }

    /// The part after the first `len` bytes.
    pub(crate) fn behind(self, len: u64) -> Self {
        match self {
            Self::Memory(bytes) => {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                Self::Memory(bytes.get(len..).unwrap_or_default())
            }
            Self::File { file, at, len: all } => Self::File {
                file,
                at: at + len.min(all),
                len: all.saturating_sub(len),
            },
        }
    }
}

fn fill(file: &dyn FsFile, buf: &mut [u8], at: u64, how: Reading) -> Result<(), Unread> {
    let mut filled = 0;
    while filled < buf.len() {
        let (left, at) = (&mut buf[filled..], at + filled as u64);
        let read = match how {
            Reading::Wait => file.read_at(left, at).map(Some),
            Reading::CachedOnly => file.read_cached_at(left, at),
        };
        match read {
            Ok(Some(0)) => return Err(Unread::Damaged(CUT_OFF)),
            Ok(Some(read)) => filled += read,
            Ok(None) => return Err(Unread::NotCached),
            Err(error) => {
                tracing::debug!(%error, at, "a slice cannot be read");
                return Err(Unread::Damaged(READ_ERROR));
            }
        }
    }
    Ok(())
}

/// Reads `len` bytes of a file; the caller has bounded `len`.
///
/// # Errors
/// They are unreadable.
pub(crate) fn read_file(file: &dyn FsFile, at: u64, len: usize) -> Result<Vec<u8>, Damage> {
    let mut bytes = vec![0; len];
    fill(file, &mut bytes, at, Reading::Wait).map_err(Unread::damage)?;
    Ok(bytes)
}

/// Reads by blocks, and keeps the last ones: 256 KiB.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: Rest<'a>,
    blocks: Vec<Block>,
    /// Counts uses of blocks, to find the least recently used one.
    clock: u64,
    /// The bytes returned last.
    asked: Vec<u8>,
}

#[derive(Debug)]
struct Block {
    number: u64,
    last_used: u64,
    /// Empty if some of them are unreadable.
    bytes: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(rest: Rest<'a>) -> Self {
        Self {
            rest,
            blocks: Vec::new(),
            clock: 0,
            asked: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.rest.len()
    }

    /// The bytes of a range; the caller has bounded its length.
    ///
    /// # Errors
    /// Some of them are unreadable.
    pub(crate) fn bytes(&mut self, range: Range<u64>) -> Result<&[u8], Damage> {
        let len = range.end.checked_sub(range.start).ok_or(CUT_OFF)?;
        if range.end > self.rest.len() {
            return Err(CUT_OFF);
        }
        if let Rest::Memory(bytes) = self.rest {
            return Ok(&bytes[to_usize(range.start)..to_usize(range.end)]);
        }
        let mut asked = std::mem::take(&mut self.asked);
        asked.clear();
        let mut at = range.start;
        let has_use = len <= SHORT_RECORD || self.rest.len() <= BLOCK_LEN * BLOCKS as u64;
        while at < range.end && len <= BLOCK_LEN && has_use {
            let block = self.block(at / BLOCK_LEN);
            let from = (at % BLOCK_LEN) as usize;
            let until = block.len().min(from + to_usize(range.end - at));
            let Some(piece) = block.get(from..until).filter(|piece| !piece.is_empty()) else {
                break;
            };
            asked.extend_from_slice(piece);
            at += piece.len() as u64;
        }
        // The range is not read by blocks, or its block has unreadable bytes.
        let is_whole = asked.len() as u64 == len;
        asked.resize(to_usize(len), 0);
        self.asked = asked;
        if !is_whole {
            let read = self.rest.read(&mut self.asked, range.start, Reading::Wait);
            read.map_err(Unread::damage)?;
        }
        Ok(&self.asked)
    }

    fn block(&mut self, number: u64) -> &[u8] {
        self.clock += 1;
        let known = self.blocks.iter().position(|one| one.number == number);
        let place = known.unwrap_or_else(|| self.load(number));
        let block = &mut self.blocks[place];
        block.last_used = self.clock;
        &block.bytes
    }

    /// Reads a block in place of the least recently used one.
    fn load(&mut self, number: u64) -> usize {
        let place = if self.blocks.len() < BLOCKS {
            self.blocks.push(Block {
                number,
                last_used: 0,
                bytes: Vec::new(),
            });
            self.blocks.len() - 1
        } else {
            let uses = self.blocks.iter().map(|one| one.last_used).enumerate();
            uses.min_by_key(|(_, used)| *used).map_or(0, |(at, _)| at)
        };
        let block = &mut self.blocks[place];
        block.number = number;
        let from = number * BLOCK_LEN;
        let len = self.rest.len().saturating_sub(from).min(BLOCK_LEN);
        block.bytes.resize(len as usize, 0);
        let read = self.rest.read(&mut block.bytes, from, Reading::Wait);
        if read.is_err() {
            block.bytes.clear();
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::fs::Fs;
    use crate::testing::CrashFs;

    #[test]
    fn a_reader_gives_every_range_and_only_bad_sectors_are_lost() {
        let content: Vec<u8> = (0..20 * BLOCK_LEN + 77)
            .map(|at| (at % 251) as u8)
            .collect();
        let fs = CrashFs::new();
        let path = Path::new("/f");
        fs.put_file(path, &content);
        let file = fs.open(path).unwrap();
        let (at, len) = (100, content.len() as u64 - 100);
        let file = &*file;
        let rest = Rest::File { file, at, len };
        let bad = 5 * BLOCK_LEN + 1000..5 * BLOCK_LEN + 1512;
        fs.break_sectors(path, bad.start + at..bad.end + at);
        let mut reader = Reader::new(rest);
        // Forwards and backwards, with a stride that does not divide the block length.
        let starts: Vec<u64> = (0..len).step_by(701).collect();
        for from in starts.iter().chain(starts.iter().rev()).copied() {
            for range in [0, 1, 500, 40_000].map(|more| from..len.min(from + more)) {
                let is_lost = !range.is_empty() && range.start < bad.end && bad.start < range.end;
                let (first, last) = (range.start + at, range.end + at);
                match reader.bytes(range) {
                    Ok(bytes) => assert_eq!(bytes, &content[first as usize..last as usize]),
                    Err(what) => assert!(is_lost && what == READ_ERROR, "{first}: {what}"),
                }
            }
        }
        assert_eq!(reader.bytes(len..len + 1), Err(CUT_OFF));
        assert!(reader.blocks.len() <= BLOCKS);
    }

    /// A file that counts the bytes that are read of it.
    #[derive(Debug)]
    struct Counted {
        len: u64,
        read: AtomicU64,
    }

    impl FsFile for Counted {
        fn read_at(&self, buf: &mut [u8], _: u64) -> std::io::Result<usize> {
            self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
            Ok(buf.len())
        }

        fn size(&self) -> std::io::Result<u64> {
            Ok(self.len)
        }

        fn write_all_at(&self, _: &[u8], _: u64) -> std::io::Result<()> {
            Err(std::io::ErrorKind::ReadOnlyFilesystem.into())
        }

        fn preallocate(&self, _: u64) -> std::io::Result<()> {
            Err(std::io::ErrorKind::ReadOnlyFilesystem.into())
        }

        fn set_len(&self, _: u64) -> std::io::Result<()> {
            Err(std::io::ErrorKind::ReadOnlyFilesystem.into())
        }

        fn sync_data(&self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Ring order is that of digests, and slots are those of a hash function.
    #[test]
    fn records_in_any_order_are_read_about_once_if_they_are_long_or_the_slice_is_short() {
        for (records, record_len, most) in [
            (2_000, 120, 2),
            (40, 6_000, 2),
            (2_000, 1_100, 1),
            (2_000, 4_096, 1),
            (300, 30_000, 1),
        ] {
            let file = Counted {
                len: records * record_len,
                read: AtomicU64::new(0),
            };
            let rest = Rest::File {
                file: &file,
                at: 0,
                len: file.len,
            };
            let mut reader = Reader::new(rest);
            let mut slot = 0;
            for _ in 0..records {
                slot = (slot + 1_009) % records;
                let from = slot * record_len;
                reader.bytes(from..from + record_len).unwrap();
            }
            let read = file.read.into_inner();
            let all = records * record_len;
            assert!(read <= most * all, "{records} x {record_len}: {read}");
        }
    }
}
