//! Reading without trusting the file: no line grows beyond a bound in memory.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{MAX_LINE_LEN, Problem, ReadError};

/// Lines with their numbers, the line end (`\n` or `\r\n`) taken off.
pub(super) struct Lines<R> {
    input: io::BufReader<R>,
    number: u64,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input: io::BufReader::with_capacity(1 << 16, input),
            number: 0,
        }
    }

    /// The next line and its number, counted from 1; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Vec<u8>)>, ReadError> {
        let mut line = Vec::new();
        let limit = MAX_LINE_LEN as u64 + 1;
        self.input
            .by_ref()
            .take(limit)
            .read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        if line.len() > MAX_LINE_LEN {
            return Err(ReadError::Malformed {
                line: self.number,
                problem: Problem::TooLong,
            });
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        }
        if self.number == 1 && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(Some((self.number, line)))
    }
}

/// What some editors put in front of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Input that refuses to be read further than [`MAX_LINE_LEN`] beyond the last place
/// its [`Leash`] was moved to: a quote that is never closed must not swallow the file.
pub(super) struct Leashed<R> {
    input: R,
    read: u64,
    leash: Leash,
}

/// Moves the place from which a [`Leashed`] input may be read on.
#[derive(Clone, Default)]
pub(super) struct Leash(Arc<AtomicU64>);

impl Leash {
    /// Everything before `byte` has been dealt with.
    pub(super) fn move_to(&self, byte: u64) {
        self.0.store(byte, Ordering::Relaxed);
    }
}

impl<R> Leashed<R> {
    pub(super) fn new(input: R) -> (Self, Leash) {
        let leash = Leash::default();
        let leashed = Self {
            input,
            read: 0,
            leash: leash.clone(),
        };
        (leashed, leash)
    }
}

impl<R: Read> Read for Leashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read - self.leash.0.load(Ordering::Relaxed) > MAX_LINE_LEN as u64 {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        let len = self.input.read(buffer)?;
        self.read += len as u64;
        Ok(len)
    }
}
