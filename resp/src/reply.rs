//! Replies, and their bytes in both versions of the protocol.

use bytes::{BufMut as _, Bytes, BytesMut};

/// A version of the protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Version {
    /// The initial version of a connection.
    #[default]
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A short text without line ends.
    Simple(&'static str),
    /// An error, whose first word is its kind. Line ends become spaces.
    Error(String),
    /// A whole number.
    Integer(i64),
    /// Bytes.
    Bulk(Bytes),
    /// Nothing.
    Null,
    /// Several replies.
    Array(Vec<Reply>),
    /// Names and values; in RESP2 an array of both in turn.
    Map(Vec<(Reply, Reply)>),
    /// Several replies without a meaningful order; in RESP2 an array.
    Set(Vec<Reply>),
    /// A text for people; in RESP2 a bulk string.
    Text(String),
}

impl Reply {
    /// Done.
    pub const OK: Self = Self::Simple("OK");

    /// A value, or null.
    #[must_use]
    pub fn of(value: Option<Bytes>) -> Self {
        value.map_or(Self::Null, Self::Bulk)
    }

    /// A text as bytes.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Bulk(text.into().into())
    }

    /// A count.
    #[must_use]
    pub fn len(count: usize) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Appends the head of an array's encoding, and returns its elements, to be encoded one after the other.
    /// `None` for all other replies.
    pub fn encode_head(&self, out: &mut BytesMut) -> Option<&[Self]> {
        let Self::Array(replies) = self else {
            return None;
        };
        head(out, b'*', replies.len());
        Some(replies)
    }

    /// Appends its encoding.
    pub fn encode(&self, version: Version, out: &mut BytesMut) {
        let is_new = version == Version::Resp3;
        match self {
            Self::Simple(text) => line(out, b'+', text.bytes()),
            Self::Error(text) => line(out, b'-', text.bytes().map(visible)),
            Self::Integer(number) => {
                out.put_u8(b':');
                if *number < 0 {
                    out.put_u8(b'-');
                }
                digits(out, number.unsigned_abs());
            }
            Self::Bulk(bytes) => bulk(out, b'$', bytes),
            Self::Null if is_new => out.put_slice(b"_\r\n"),
            Self::Null => out.put_slice(b"$-1\r\n"),
            Self::Array(replies) => each(version, out, b'*', replies),
            Self::Set(replies) => each(version, out, if is_new { b'~' } else { b'*' }, replies),
            Self::Map(pairs) => {
                let (kind, times) = if is_new { (b'%', 1) } else { (b'*', 2) };
                head(out, kind, pairs.len() * times);
                for (name, value) in pairs {
                    name.encode(version, out);
                    value.encode(version, out);
                }
            }
            Self::Text(text) if is_new => {
                head(out, b'=', text.len() + 4);
                out.put_slice(b"txt:");
                out.put_slice(text.as_bytes());
                out.put_slice(b"\r\n");
            }
            Self::Text(text) => bulk(out, b'$', text.as_bytes()),
        }
    }
}

impl From<i64> for Reply {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

fn visible(byte: u8) -> u8 {
    if byte == b'\r' || byte == b'\n' {
        b' '
    } else {
        byte
    }
}

fn line(out: &mut BytesMut, kind: u8, text: impl Iterator<Item = u8>) {
    out.put_u8(kind);
    out.extend(text);
    out.put_slice(b"\r\n");
}

fn bulk(out: &mut BytesMut, kind: u8, bytes: &[u8]) {
    out.reserve(bytes.len() + 16);
    head(out, kind, bytes.len());
    out.put_slice(bytes);
    out.put_slice(b"\r\n");
}

fn each(version: Version, out: &mut BytesMut, kind: u8, replies: &[Reply]) {
    head(out, kind, replies.len());
    for reply in replies {
        reply.encode(version, out);
    }
}

fn head(out: &mut BytesMut, kind: u8, count: usize) {
    out.put_u8(kind);
    digits(out, count as u64);
}

/// Appends a number and the end of the line.
fn digits(out: &mut BytesMut, mut number: u64) {
    let mut text = [0; 22];
    let mut at = text.len() - 2;
    text[at..].copy_from_slice(b"\r\n");
    loop {
        at -= 1;
        text[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.put_slice(&text[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(reply: &Reply, version: Version) -> String {
        let mut out = BytesMut::new();
        reply.encode(version, &mut out);
        out.escape_ascii().to_string()
    }

    #[test]
    fn replies_have_their_form_in_each_version() {
        let pair = (Reply::text("a"), Reply::Integer(-1));
        let cases = [
            (Reply::OK, r"+OK\r\n", r"+OK\r\n"),
            (
                Reply::Error("ERR a\r\nb".into()),
                r"-ERR a  b\r\n",
                r"-ERR a  b\r\n",
            ),
            (Reply::Integer(0), r":0\r\n", r":0\r\n"),
            (
                Reply::Integer(i64::MIN),
                r":-9223372036854775808\r\n",
                r":-9223372036854775808\r\n",
            ),
            (
                Reply::Bulk("a\n".into()),
                r"$2\r\na\n\r\n",
                r"$2\r\na\n\r\n",
            ),
            (Reply::Null, r"$-1\r\n", r"_\r\n"),
            (
                Reply::Array(vec![Reply::Null]),
                r"*1\r\n$-1\r\n",
                r"*1\r\n_\r\n",
            ),
            (
                Reply::Map(vec![pair]),
                r"*2\r\n$1\r\na\r\n:-1\r\n",
                r"%1\r\n$1\r\na\r\n:-1\r\n",
            ),
            (Reply::Set(vec![]), r"*0\r\n", r"~0\r\n"),
            (
                Reply::Text("ab".into()),
                r"$2\r\nab\r\n",
                r"=6\r\ntxt:ab\r\n",
            ),
        ];
        for (reply, old, new) in cases {
            assert_eq!(bytes(&reply, Version::Resp2), old);
            assert_eq!(bytes(&reply, Version::Resp3), new);
        }
    }

    proptest! {
        #[test]
        fn numbers_are_written_as_they_are(number: i64) {
            prop_assert_eq!(bytes(&number.into(), Version::Resp2), format!(r":{number}\r\n"));
        }
    }
}
