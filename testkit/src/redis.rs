//! A small client of the Redis protocol for tests, which shares no code with the server.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Detects a hang, not slowness.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A reply, in either version of the protocol.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `+`.
    Simple(String),
    /// `-`.
    Error(String),
    /// `:`.
    Int(i64),
    /// `$`.
    Bulk(Vec<u8>),
    /// A null; true in the form of RESP2.
    Nil(bool),
    /// `*`.
    Array(Vec<Self>),
    /// `%` or `~`.
    Other(char, Vec<Self>),
    /// `=`.
    Verbatim(Vec<u8>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(text) => write!(f, "+{text}"),
            Self::Error(text) => write!(f, "-{text}"),
            Self::Int(number) => write!(f, ":{number}"),
            Self::Bulk(bytes) | Self::Verbatim(bytes) => write!(f, "{}", bytes.escape_ascii()),
            Self::Nil(_) => write!(f, "nil"),
            Self::Array(values) | Self::Other(_, values) => {
                let values: Vec<_> = values.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", values.join(" "))
            }
        }
    }
}

impl Value {
    /// The elements of an array.
    ///
    /// # Panics
    /// If it is not an array.
    #[must_use]
    pub fn items(self) -> Vec<Self> {
        match self {
            Self::Array(values) | Self::Other(_, values) => values,
            other => panic!("no array: {other}"),
        }
    }

    /// # Panics
    /// If it is not a number.
    #[must_use]
    pub fn number(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => panic!("no number: {other}"),
        }
    }

    /// Whether it is an error.
    #[must_use]
    pub const fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

/// A connection.
pub struct Redis<S = TcpStream> {
    stream: S,
    input: BytesMut,
}

impl Redis {
    /// # Panics
    /// If the address refuses connections.
    pub async fn connect(to: SocketAddr) -> Self {
        Self::over(TcpStream::connect(to).await.unwrap())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Redis<S> {
    /// Uses an existing connection.
    pub fn over(stream: S) -> Self {
        let input = BytesMut::new();
        Self { stream, input }
    }

    /// # Panics
    /// If the connection has ended.
    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Sends a command without waiting for its reply.
    pub async fn send(&mut self, words: &[&[u8]]) {
        self.send_bytes(&encode(words)).await;
    }

    /// Sends a command; `None` if the connection has ended.
    pub async fn try_send(&mut self, words: &[&[u8]]) -> Option<()> {
        let sent = self.stream.write_all(&encode(words)).await;
        sent.ok()
    }

    /// Sends a command of words separated by spaces; returns its reply.
    pub async fn call(&mut self, command: &str) -> Value {
        let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
        self.call_words(&words).await
    }

    /// Sends a command; returns its reply.
    pub async fn call_words(&mut self, words: &[&[u8]]) -> Value {
        self.send(words).await;
        self.receive().await
    }

    /// Sends a command; returns its reply as a line.
    pub async fn told(&mut self, command: &str) -> String {
        self.call(command).await.to_string()
    }

    /// The next reply.
    ///
    /// # Panics
    /// If the connection ends before the reply, or no reply arrives in time.
    pub async fn receive(&mut self) -> Value {
        let received = timeout(TIMEOUT, self.try_receive()).await;
        received.expect("no reply").expect("the connection ended")
    }

    /// The first byte that arrives; `None` if the connection has ended.
    pub async fn try_receive_bytes(&mut self) -> Option<u8> {
        match timeout(TIMEOUT, self.stream.read_u8()).await {
            Ok(Ok(byte)) => Some(byte),
            _ => None,
        }
    }

    /// The next reply; `None` if the connection has ended.
    pub async fn try_receive(&mut self) -> Option<Value> {
        loop {
            if let Some((value, len)) = parse(&self.input) {
                self.input.advance(len);
                return Some(value);
            }
            match self.stream.read_buf(&mut self.input).await {
                Ok(1..) => {}
                _ => return None,
            }
        }
    }
}

/// A command's bytes.
#[must_use]
pub fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend_from_slice(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// A value and its length, if it is complete.
fn parse(bytes: &[u8]) -> Option<(Value, usize)> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let (kind, line) = (*bytes.first()?, &bytes[1..end]);
    let text = String::from_utf8_lossy(line).into_owned();
    let at = end + 2;
    let value = match kind {
        b'+' => Value::Simple(text),
        b'-' => Value::Error(text),
        b':' => Value::Int(text.parse().unwrap()),
        b'_' => Value::Nil(false),
        b'$' | b'=' => {
            let Ok(len) = text.parse::<usize>() else {
                return Some((Value::Nil(true), at));
            };
            let bulk = bytes.get(at..at + len + 2)?;
            assert_eq!(&bulk[len..], b"\r\n");
            let bulk = bulk[..len].to_vec();
            let value = if kind == b'$' {
                Value::Bulk(bulk)
            } else {
                Value::Verbatim(bulk)
            };
            return Some((value, at + len + 2));
        }
        b'*' | b'%' | b'~' => {
            let times = if kind == b'%' { 2 } else { 1 };
            let count = times * text.parse::<usize>().unwrap();
            let (mut values, mut at) = (Vec::new(), at);
            for _ in 0..count {
                let (value, len) = parse(&bytes[at..])?;
                values.push(value);
                at += len;
            }
            let value = if kind == b'*' {
                Value::Array(values)
            } else {
                Value::Other(kind.into(), values)
            };
            return Some((value, at));
        }
        other => panic!("no reply begins with {other}"),
    };
    Some((value, at))
}
