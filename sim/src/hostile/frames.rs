//! HTTP/2 frames written by hand, because no library would send them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout, timeout_at};

use super::connect::{Stream, connect, send_all};
use super::grpc::of_io;
use super::outcome::Outcome;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Frame types.
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

// Flags.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
const ACK: u8 = 1;

/// A node that reads nothing for this time has stopped reading.
const STALL: Duration = Duration::from_secs(2);
/// Time limit for an answer from a node that must process a flood, on a slow machine.
const ANSWER: Duration = Duration::from_secs(12);
/// Time for which an event of a stream may follow one of its connection.
const AFTERWORD: Duration = Duration::from_millis(500);

/// A frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = head(payload.len() as u32, kind, flags, stream);
    bytes.extend_from_slice(payload);
    bytes
}

/// The head of a frame with any payload.
pub(crate) fn head(len: u32, kind: u8, flags: u8, stream: u32) -> Vec<u8> {
    let mut bytes = len.to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes
}

/// A setting as encoded in a SETTINGS frame.
pub(crate) fn setting(id: u16, value: u32) -> Vec<u8> {
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend_from_slice(&value.to_be_bytes());
    bytes
}

/// The headers of a call, in uncompressed HPACK.
pub(crate) fn call_headers(path: &str) -> Vec<u8> {
    // POST and http are in the static table; the others are literals with names from that table.
    let mut block = vec![0x83, 0x86];
    literal(&mut block, Some(4), "", path);
    literal(&mut block, Some(1), "", "torc");
    literal(&mut block, Some(31), "", "application/grpc");
    literal(&mut block, None, "te", "trailers");
    block
}

/// A literal that is not added to the dynamic table.
pub(crate) fn literal(block: &mut Vec<u8>, index: Option<u8>, name: &str, value: &str) {
    if let Some(index) = index {
        integer(block, 0, 4, u64::from(index));
    } else {
        block.push(0);
        integer(block, 0, 7, name.len() as u64);
        block.extend_from_slice(name.as_bytes());
    }
    integer(block, 0, 7, value.len() as u64);
    block.extend_from_slice(value.as_bytes());
}

/// An HPACK integer (RFC 7541, 5.1).
pub(crate) fn integer(block: &mut Vec<u8>, flags: u8, bits: u32, value: u64) {
    let most = (1_u64 << bits) - 1;
    if value < most {
        return block.push(flags | value as u8);
    }
    block.push(flags | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        block.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}

/// A connection and the bytes received on it.
pub(crate) struct Wire {
    tcp: Stream,
    heard: Vec<u8>,
    last_stream: Option<u32>,
}

impl Wire {
    /// Connects and sends a greeting.
    pub(crate) async fn open(to: SocketAddr) -> io::Result<Self> {
        Self::greet(to, &[]).await
    }

    /// Connects and sends a greeting with these settings.
    pub(crate) async fn greet(to: SocketAddr, settings: &[u8]) -> io::Result<Self> {
        let mut wire = Self::bare(to).await?;
        let mut greeting = PREFACE.to_vec();
        greeting.extend(frame(SETTINGS, 0, 0, settings));
        greeting.extend(frame(SETTINGS, ACK, 0, &[]));
        send_all(&mut wire.tcp, &greeting).await?;
        Ok(wire)
    }

    /// Connects without a greeting.
    pub(crate) async fn bare(to: SocketAddr) -> io::Result<Self> {
        Ok(Self::of(connect(to).await?))
    }

    pub(crate) fn of(tcp: Stream) -> Self {
        Self {
            tcp,
            heard: Vec::new(),
            last_stream: None,
        }
    }

    /// The last stream that the node handled, as its GOAWAY says.
    pub(crate) const fn last_stream(&self) -> Option<u32> {
        self.last_stream
    }

    /// Sends while the node reads; otherwise returns how the connection ended.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), Outcome> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let writing = async {
                let count = self.tcp.write(rest).await?;
                self.tcp.flush().await.map(|()| count)
            };
            match timeout(STALL, writing).await {
                Ok(Ok(count)) if count > 0 => rest = &rest[count..],
                Ok(Ok(_)) => return Err(Outcome::Closed),
                Ok(Err(error)) => return Err(of_io(&error)),
                Err(_) => return Err(Outcome::Stalled),
            }
        }
        Ok(())
    }

    /// Sends, and returns how the connection ended, or that it is still open.
    pub(crate) async fn send_and_end(&mut self, bytes: &[u8]) -> Outcome {
        match self.send(bytes).await {
            Err(Outcome::Stalled) => Outcome::Stalled,
            // Reads what the node sent before it closed the connection.
            _ => self.ending().await,
        }
    }

    /// How the connection or one of its streams ends, or whether it is still alive.
    pub(crate) async fn ending(&mut self) -> Outcome {
        self.ending_within(ANSWER).await
    }

    pub(crate) async fn ending_within(&mut self, time: Duration) -> Outcome {
        // The answer to this ping follows all that was sent, and shows that the node continues.
        let ping = *b"are here";
        let ping_frame = frame(PING, 0, 0, &ping);
        let sent = timeout(STALL, send_all(&mut self.tcp, &ping_frame)).await;
        if sent.is_err() {
            return Outcome::Stalled;
        }
        let mut until = Instant::now() + time;
        let mut answered = Outcome::Silent;
        let mut ended: Option<Outcome> = None;
        loop {
            while let Some((kind, flags, payload)) = self.next_frame() {
                match kind {
                    GOAWAY => {
                        let last = payload.get(..4).and_then(|last| last.try_into().ok());
                        self.last_stream = last.map(u32::from_be_bytes);
                        let code = payload.get(4..8).and_then(|code| code.try_into().ok());
                        return Outcome::GoAway(code.map_or(u32::MAX, u32::from_be_bytes));
                    }
                    RST_STREAM => {
                        let code = payload.get(..4).and_then(|code| code.try_into().ok());
                        ended = Some(Outcome::Reset(code.map_or(u32::MAX, u32::from_be_bytes)));
                    }
                    HEADERS => ended = ended.or(Some(Outcome::Grpc(tonic::Code::Ok))),
                    // An answer on a stream may follow the ping's.
                    PING if flags & ACK != 0 && payload == ping => {
                        until = until.min(Instant::now() + AFTERWORD);
                        answered = Outcome::Open;
                    }
                    _ => {}
                }
            }
            let mut buffer = vec![0; 16_384];
            match timeout_at(until, self.tcp.read(&mut buffer)).await {
                Ok(Ok(0)) => return ended.unwrap_or(Outcome::Closed),
                Ok(Ok(count)) => self.heard.extend_from_slice(&buffer[..count]),
                Ok(Err(error)) => return ended.unwrap_or_else(|| of_io(&error)),
                Err(_) => return ended.unwrap_or(answered),
            }
        }
    }

    /// Whether the node closes the connection within `time`; sends nothing meanwhile.
    pub(crate) async fn hangs_up(&mut self, time: Duration) -> Outcome {
        let until = Instant::now() + time;
        let mut buffer = vec![0; 16_384];
        loop {
            match timeout_at(until, self.tcp.read(&mut buffer)).await {
                Ok(Ok(0)) => return Outcome::Closed,
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return of_io(&error),
                Err(_) => return Outcome::Silent,
            }
        }
    }

    fn next_frame(&mut self) -> Option<(u8, u8, Vec<u8>)> {
        let head = self.heard.get(..9)?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let payload = self.heard.get(9..9 + len)?.to_vec();
        self.heard.drain(..9 + len);
        Some((kind, flags, payload))
    }
}
