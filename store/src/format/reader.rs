//! Reads a file frame by frame, through a window of 1 MiB.

use std::path::{Path, PathBuf};

use torc_record::to_usize;

use super::frame::FRAME_MAGIC;
use super::{FRAME_LEN, FileKind, Frame, HEADER_LEN, Header, array};
use crate::StoreError;
use crate::fs::{Fs, FsFile};

const WINDOW_LEN: usize = 1 << 20;
/// The smallest unit that a disk writes atomically.
const SECTOR_BYTES: u64 = 512;

/// An open file with a valid header.
#[derive(Debug)]
pub(crate) struct FrameReader {
    file: Box<dyn FsFile>,
    path: PathBuf,
    header: Header,
    size: u64,
    at: u64,
    window: Window,
}

/// The next item of a file.
#[derive(Debug)]
pub(crate) enum Next<'a> {
    /// A frame, its body and its offset.
    Frame(Frame, &'a [u8], u64),
    /// The end of the file, right after a frame.
    End,
    /// The bytes at the reader's position are not a frame, for this reason.
    Bad(&'static str),
}

impl FrameReader {
    /// Opens a file of this kind and reads its header.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Corrupt`] or [`StoreError::NewerFormat`].
    pub(crate) fn open(fs: &dyn Fs, path: &Path, kind: FileKind) -> Result<Self, StoreError> {
        let file = fs.open(path).map_err(StoreError::io("open", path))?;
        let size = file.size().map_err(StoreError::io("read", path))?;
        let mut window = Window::default();
        let head = window
            .slice(&*file, size, 0, HEADER_LEN)
            .map_err(StoreError::io("read", path))?
            .ok_or_else(|| StoreError::corrupt(path, 0, "the header is cut off"))?;
        let header = Header::decode(kind, &array(head, 0), path)?;
        Ok(Self {
            file,
            path: path.to_owned(),
            header,
            size,
            at: HEADER_LEN as u64,
            window,
        })
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// The offset of the next frame.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self) -> &dyn FsFile {
        &*self.file
    }

    pub(crate) fn corrupt(&self, what: &'static str) -> StoreError {
        StoreError::corrupt(&self.path, self.at, what)
    }

    /// The next frame, with its body checked. Moves past it, but not past bad bytes.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(crate) fn next(&mut self) -> Result<Next<'_>, StoreError> {
        if self.at == self.size {
            return Ok(Next::End);
        }
        let start = self.at;
        let salt = self.header.salt;
        let Some(head) = self.bytes(start, FRAME_LEN)? else {
            return Ok(Next::Bad("a frame is cut off in its head"));
        };
        let frame = match Frame::decode(&array(head, 0), salt) {
            Ok(frame) => frame,
            Err(what) => return Ok(Next::Bad(what)),
        };
        let body_at = start + FRAME_LEN as u64;
        let fits = match self.bytes(body_at, frame.body_len)? {
            Some(body) => frame.fits(body, salt),
            None => return Ok(Next::Bad("a frame is cut off")),
        };
        if !fits {
            return Ok(Next::Bad("the body of a frame fails its checksum"));
        }
        self.at = body_at + frame.body_len as u64;
        let body = self.bytes(body_at, frame.body_len)?.unwrap_or_default();
        Ok(Next::Frame(frame, body, start))
    }

    /// The bytes from an earlier offset to the reader's position.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(crate) fn bytes_since(&mut self, from: u64) -> Result<Vec<u8>, StoreError> {
        let len = to_usize(self.at - from);
        let bytes = self.bytes(from, len)?;
        Ok(bytes.unwrap_or_default().to_vec())
    }

    /// Examines the bytes from the reader's position to the end of the file. The head at the
    /// position itself, whose body may be bad, does not count as a later frame.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub(crate) fn examine_tail(&mut self) -> Result<Tail, StoreError> {
        let mut tail = Tail::default();
        let (start, salt) = (self.at, self.header.salt);
        let mut at = start;
        while at < self.size {
            // A head may cross a window's border, so windows overlap by one head.
            let len = to_usize((self.size - at).min(WINDOW_LEN as u64));
            let bytes = self.bytes(at, len)?.unwrap_or_default();
            if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
                tail.used_bytes = at + last as u64 + 1 - start;
                let own_head = usize::from(at == start);
                tail.has_later_frame |= has_frame_head(&bytes[own_head..], salt);
            }
            if len < WINDOW_LEN {
                break;
            }
            at += (len - FRAME_LEN) as u64;
        }
        tail.was_whole = self.was_whole(tail.used_bytes)?;
        Ok(tail)
    }

    /// Whether the bad frame at the reader's position was once written completely, as far as that
    /// can be known. The parts that an interrupted write left out read as zeros: single sectors, or
    /// everything from some byte on.
    fn was_whole(&mut self, used_bytes: u64) -> Result<bool, StoreError> {
        let (start, salt) = (self.at, self.header.salt);
        let Some(head) = self.bytes(start, FRAME_LEN)? else {
            return Ok(false);
        };
        let len = match Frame::decode(&array(head, 0), salt) {
            Ok(frame) => FRAME_LEN + frame.body_len,
            // The length is unknown, so at least one byte after the head.
            Err(_) => FRAME_LEN + 1,
        };
        let end = start + len as u64;
        if used_bytes < len as u64 {
            return Ok(false);
        }
        let mut at = start;
        while at < end {
            let next = end.min((at / SECTOR_BYTES + 1) * SECTOR_BYTES);
            let sector = self.bytes(at, to_usize(next - at))?.unwrap_or_default();
            if sector.iter().all(|byte| *byte == 0) {
                return Ok(false);
            }
            at = next;
        }
        Ok(true)
    }

    fn bytes(&mut self, at: u64, len: usize) -> Result<Option<&[u8]>, StoreError> {
        self.window
            .slice(&*self.file, self.size, at, len)
            .map_err(StoreError::io("read", &self.path))
    }
}

/// The bytes after the last valid frame of a file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tail {
    /// A later frame of this file starts in them, so everything before that frame was once
    /// complete.
    pub(crate) has_later_frame: bool,
    /// Bytes up to the last nonzero one.
    pub(crate) used_bytes: u64,
    /// An interrupted write cannot leave such bytes, so the frame was complete and damaged later.
    /// False if that is unknown.
    pub(crate) was_whole: bool,
}

fn has_frame_head(bytes: &[u8], salt: u32) -> bool {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == FRAME_MAGIC[0]) {
        rest = &rest[at..];
        if let Some(head) = rest.first_chunk::<FRAME_LEN>()
            && Frame::decode(head, salt).is_ok()
        {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

/// The part of a file that was read last.
#[derive(Debug, Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// `len` bytes from `at`; `None` if the file ends before them.
    fn slice(
        &mut self,
        file: &dyn FsFile,
        size: u64,
        at: u64,
        len: usize,
    ) -> std::io::Result<Option<&[u8]>> {
        if at > size || len as u64 > size - at {
            return Ok(None);
        }
        let held = self.start..self.start + self.bytes.len() as u64;
        if at < held.start || at + len as u64 > held.end {
            let wanted = to_usize((len.max(WINDOW_LEN) as u64).min(size - at));
            self.start = at;
            self.bytes.resize(wanted, 0);
            read_exact(file, &mut self.bytes, at).inspect_err(|_| self.bytes.clear())?;
        }
        let from = to_usize(at - self.start);
        Ok(self.bytes.get(from..from + len))
    }
}

fn read_exact(file: &dyn FsFile, mut buf: &mut [u8], mut at: u64) -> std::io::Result<()> {
    while !buf.is_empty() {
        let read = file.read_at(buf, at)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        buf = &mut buf[read..];
        at += read as u64;
    }
    Ok(())
}
