//! Parses requests.
//!
//! A request is an array of bulk strings, or a line (an inline command). Requests do not nest.
//!
//! It checks a count or length before it allocates, and reserves nothing for announced data. A
//! parser holds the bytes that have arrived, and 32 bytes per argument.

use bytes::{Buf as _, Bytes, BytesMut};

use crate::error::ProtocolError;
use crate::inline;

/// Longest line: a header, or an inline command.
const LONGEST_LINE: usize = 64 << 10;
/// Longest header of an array or a bulk string: `*`, a number of 64 bits, `\r\n`.
const LONGEST_HEADER: usize = 32;
/// Shorter arguments are copied: a kept argument would otherwise keep the whole buffer with which
/// it arrived.
const SHARED_FROM: usize = 32 << 10;
/// Initial capacity for arguments.
const USUAL_ARGUMENTS: usize = 8;

/// Limits of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most arguments, the command's name included.
    pub arguments: usize,
    /// Most bytes of all arguments.
    pub bytes: usize,
}

impl Limits {
    /// For clients that have not authenticated, as in Redis.
    pub const UNAUTHENTICATED: Self = Self {
        arguments: 10,
        bytes: 16 << 10,
    };
}

impl Default for Limits {
    /// A thousand keys with their values, as in a batch of the native interface, and some words; 16 MiB.
    fn default() -> Self {
        Self {
            arguments: 2_048,
            bytes: 16 << 20,
        }
    }
}

/// The arguments of a request, the command's name first. Never empty.
pub type Request = Vec<Bytes>;

/// Parses requests from a buffer to which received bytes are appended.
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    /// Arguments of the current request.
    arguments: Request,
    /// Their total length, bytes.
    bytes: usize,
    /// Arguments still missing; 0: between requests.
    left: usize,
    /// Length of the argument whose header was parsed.
    len: Option<usize>,
    /// Bytes at the start of the buffer without a line feed.
    searched: usize,
}

impl Parser {
    /// A parser for one connection.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            arguments: Vec::new(),
            bytes: 0,
            left: 0,
            len: None,
            searched: 0,
        }
    }

    /// Sets the limits of the current request and of those after it.
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Whether a request has started but is incomplete, given the rest of the buffer.
    #[must_use]
    pub fn is_amid(&self, buffer: &BytesMut) -> bool {
        self.left > 0 || !buffer.is_empty()
    }

    /// Bytes of the current request, not counting those in the buffer.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.bytes
    }

    /// Missing bytes of the current argument, as far as known.
    #[must_use]
    pub fn lacks(&self, buffer: &BytesMut) -> usize {
        self.len
            .map_or(0, |len| (len + 2).saturating_sub(buffer.len()))
    }

    /// The next request, if it is complete.
    ///
    /// # Errors
    /// [`ProtocolError`]; the parser must not be used afterwards.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Request>, ProtocolError> {
        loop {
            if self.left > 0 {
                if !self.argument(buffer)? {
                    return Ok(None);
                }
                if self.left == 0 {
                    self.bytes = 0;
                    return Ok(Some(std::mem::take(&mut self.arguments)));
                }
                continue;
            }
            let Some(first) = buffer.first() else {
                return Ok(None);
            };
            if *first != b'*' {
                let longest = LONGEST_LINE.min(self.limits.bytes);
                let error = ProtocolError::LongLine;
                let Some((line, rest)) = self.line(buffer, longest, error)? else {
                    return Ok(None);
                };
                let arguments = inline::split(&buffer[..line], self.limits.arguments)?;
                buffer.advance(rest);
                if !arguments.is_empty() {
                    return Ok(Some(arguments));
                }
                // An empty line is not a request.
                continue;
            }
            let error = ProtocolError::ArgumentCount;
            let Some(count) = self.number(buffer, error)? else {
                return Ok(None);
            };
            // Empty and null arrays are not requests either.
            let Ok(count @ 1..) = usize::try_from(count) else {
                continue;
            };
            if count > self.limits.arguments {
                return Err(error);
            }
            self.left = count;
            self.arguments = Vec::with_capacity(count.min(USUAL_ARGUMENTS));
        }
    }

    /// Takes an argument if it is complete.
    fn argument(&mut self, buffer: &mut BytesMut) -> Result<bool, ProtocolError> {
        let len = match self.len {
            Some(len) => len,
            None => match self.header(buffer)? {
                Some(len) => len,
                None => return Ok(false),
            },
        };
        self.len = Some(len);
        if buffer.len() < len + 2 {
            return Ok(false);
        }
        if &buffer[len..len + 2] != b"\r\n" {
            return Err(ProtocolError::ArgumentEnd);
        }
        let argument = if len < SHARED_FROM {
            let copy = Bytes::copy_from_slice(&buffer[..len]);
            buffer.advance(len);
            copy
        } else {
            buffer.split_to(len).freeze()
        };
        buffer.advance(2);
        self.arguments.push(argument);
        self.bytes += len;
        self.left -= 1;
        self.len = None;
        Ok(true)
    }

    /// The length of the next argument.
    fn header(&mut self, buffer: &mut BytesMut) -> Result<Option<usize>, ProtocolError> {
        if let Some(other) = buffer.first().filter(|first| **first != b'$') {
            return Err(ProtocolError::ExpectedArgument(char::from(*other)));
        }
        let error = ProtocolError::ArgumentLength;
        let Some(len) = self.number(buffer, error)? else {
            return Ok(None);
        };
        let len = usize::try_from(len).ok();
        let len = len.filter(|len| *len <= self.limits.bytes).ok_or(error)?;
        if self.bytes + len > self.limits.bytes {
            let most = self.limits.bytes;
            return Err(ProtocolError::LongRequest { most });
        }
        Ok(Some(len))
    }

    /// Takes a header, if it is complete: a letter, then a number.
    fn number(
        &mut self,
        buffer: &mut BytesMut,
        error: ProtocolError,
    ) -> Result<Option<i64>, ProtocolError> {
        let Some((line, rest)) = self.line(buffer, LONGEST_HEADER, error)? else {
            return Ok(None);
        };
        let number = number(&buffer[1..line]).ok_or(error)?;
        buffer.advance(rest);
        Ok(Some(number))
    }

    /// The length of the next line without its end (`\n` or `\r\n`), and with it, if it is
    /// complete.
    fn line(
        &mut self,
        buffer: &BytesMut,
        longest: usize,
        too_long: ProtocolError,
    ) -> Result<Option<(usize, usize)>, ProtocolError> {
        let until = buffer.len().min(longest);
        let from = self.searched.min(until);
        let Some(at) = buffer[from..until].iter().position(|byte| *byte == b'\n') else {
            if buffer.len() >= longest {
                return Err(too_long);
            }
            self.searched = until;
            return Ok(None);
        };
        self.searched = 0;
        let end = from + at;
        let line = end - usize::from(end > 0 && buffer[end - 1] == b'\r');
        Ok(Some((line, end + 1)))
    }
}

/// A number in a header: an optional sign and digits, nothing else.
fn number(text: &[u8]) -> Option<i64> {
    let (digits, sign) = match text.split_first() {
        Some((b'-', digits)) => (digits, -1),
        _ => (text, 1),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let add = |sum: i64, digit: &u8| {
        digit
            .is_ascii_digit()
            .then(|| sum * 10 + i64::from(digit - b'0'))
    };
    digits.iter().try_fold(0, add).map(|number| sign * number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn all(bytes: &[u8]) -> (Vec<Request>, Option<ProtocolError>) {
        in_pieces(bytes, bytes.len().max(1), Limits::default())
    }

    /// The parsed requests when the given number of bytes arrives at a time.
    fn in_pieces(
        bytes: &[u8],
        piece: usize,
        limits: Limits,
    ) -> (Vec<Request>, Option<ProtocolError>) {
        let (mut parser, mut buffer) = (Parser::new(limits), BytesMut::new());
        let mut requests = Vec::new();
        for piece in bytes.chunks(piece) {
            buffer.extend_from_slice(piece);
            loop {
                match parser.next(&mut buffer) {
                    Ok(Some(request)) => requests.push(request),
                    Ok(None) => break,
                    Err(error) => return (requests, Some(error)),
                }
            }
            assert!(parser.held() <= limits.bytes);
            assert!(parser.arguments.capacity() <= 2 * parser.arguments.len().max(USUAL_ARGUMENTS));
        }
        (requests, None)
    }

    fn encode(requests: &[Vec<Vec<u8>>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for request in requests {
            bytes.extend(format!("*{}\r\n", request.len()).bytes());
            for argument in request {
                bytes.extend(format!("${}\r\n", argument.len()).bytes());
                bytes.extend(argument);
                bytes.extend(b"\r\n");
            }
        }
        bytes
    }

    #[test]
    fn arrays_and_lines_are_requests_and_empty_ones_are_none() {
        let (requests, error) =
            all(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n\r\n*0\r\n*-1\r\nPING 'a b' \"\\x41\\n\"\r\n");
        assert_eq!(error, None);
        let expected: [&[&[u8]]; 2] = [&[b"GET", b"a"], &[b"PING", b"a b", b"A\n"]];
        assert_eq!(requests, expected);
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_by_its_header_alone() {
        let cases: [(&[u8], ProtocolError); 13] = [
            (b"*2049\r\n", ProtocolError::ArgumentCount),
            (b"*99999999999999999999\r\n", ProtocolError::ArgumentCount),
            (b"*x\r\n", ProtocolError::ArgumentCount),
            (b"*1\r\n$16777217\r\n", ProtocolError::ArgumentLength),
            (b"*1\r\n$-1\r\n", ProtocolError::ArgumentLength),
            (b"*1\r\n$+1\r\n", ProtocolError::ArgumentLength),
            (
                b"*1\r\n$9223372036854775807\r\n",
                ProtocolError::ArgumentLength,
            ),
            (b"*1\r\n:1\r\n", ProtocolError::ExpectedArgument(':')),
            (b"*1\r\n*1\r\n", ProtocolError::ExpectedArgument('*')),
            (b"*1\r\n$1\r\nabc", ProtocolError::ArgumentEnd),
            (
                b"*00000000000000000000000000000001",
                ProtocolError::ArgumentCount,
            ),
            (b"PING \"a\r\n", ProtocolError::Quotes),
            (
                b"*3\r\n$1\r\na\r\n$1\r\nb\r\n$16777215\r\n",
                ProtocolError::LongRequest { most: 16 << 20 },
            ),
        ];
        for (bytes, expected) in cases {
            let (requests, error) = all(bytes);
            assert!(requests.is_empty());
            assert_eq!(error, Some(expected), "{}", bytes.escape_ascii());
        }
        let line = vec![b'a'; LONGEST_LINE];
        assert_eq!(all(&line).1, Some(ProtocolError::LongLine));
    }

    #[test]
    fn limits_hold_from_the_next_request_on() {
        let (mut parser, mut buffer) = (
            Parser::new(Limits::UNAUTHENTICATED),
            BytesMut::from("*1\r\n$16384\r\n"),
        );
        buffer.extend([b'a'; 16 << 10]);
        buffer.extend(b"\r\n*11\r\n");
        assert!(parser.next(&mut buffer).unwrap().is_some());
        let refused = parser.next(&mut buffer.clone()).unwrap_err();
        assert_eq!(refused, ProtocolError::ArgumentCount);
        parser.set_limits(Limits::default());
        assert_eq!(parser.next(&mut buffer), Ok(None));
        for (bytes, expected) in [
            ("*1\r\n$16385\r\n".to_owned(), ProtocolError::ArgumentLength),
            ("a".repeat(16 << 10), ProtocolError::LongLine),
        ] {
            let refused = in_pieces(bytes.as_bytes(), bytes.len(), Limits::UNAUTHENTICATED).1;
            assert_eq!(refused, Some(expected));
        }
    }

    #[test]
    fn nothing_is_reserved_for_what_was_only_announced() {
        let (mut parser, mut buffer) = (Parser::new(Limits::default()), BytesMut::new());
        buffer.extend_from_slice(b"*2048\r\n$16777216\r\n");
        assert_eq!(parser.next(&mut buffer), Ok(None));
        assert!(parser.arguments.capacity() <= USUAL_ARGUMENTS && buffer.capacity() < 4_096);
        assert_eq!((parser.lacks(&buffer), parser.held()), ((16 << 20) + 2, 0));
        assert!(parser.is_amid(&buffer));
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_requests_or_an_error(
            bytes: Vec<u8>, piece in 1_usize..9,
        ) {
            in_pieces(&bytes, piece, Limits { arguments: 5, bytes: 64 });
        }

        #[test]
        fn bytes_of_the_protocol_end_in_requests_or_an_error(
            bytes in "[*$0-9a\\-\r\n \"']{0,80}", piece in 1_usize..9,
        ) {
            let limits = Limits { arguments: 5, bytes: 64 };
            let whole = in_pieces(bytes.as_bytes(), bytes.len().max(1), limits);
            prop_assert_eq!(in_pieces(bytes.as_bytes(), piece, limits), whole);
        }

        #[test]
        fn what_was_encoded_is_parsed_however_it_arrives(
            requests in vec(vec(vec(any::<u8>(), 0..20), 0..5), 0..5), piece in 1_usize..50,
        ) {
            let requests: Vec<_> = requests.into_iter().filter(|it| !it.is_empty()).collect();
            let bytes = encode(&requests);
            let (parsed, error) = in_pieces(&bytes, piece, Limits::default());
            prop_assert_eq!(error, None);
            prop_assert_eq!(parsed, requests);
        }
    }
}
