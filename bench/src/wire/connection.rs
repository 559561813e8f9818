//! A connection of a text protocol: sends requests and counts complete answers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::closed_loop::{Sample, latencies};

/// The length of the complete answer at the start of `bytes`; `None` if it is incomplete. Returns
/// an error if the answer reports one.
pub(super) type Parse = fn(bytes: &[u8]) -> Result<Option<usize>>;

pub(super) struct Connection {
    stream: TcpStream,
    received: BytesMut,
    parse: Parse,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr, parse: Parse) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            received: BytesMut::with_capacity(1 << 16),
            parse,
        })
    }

    /// Sends requests and waits for the same number of answers.
    pub(super) async fn exchange(&mut self, requests: &[u8], answers: usize) -> Result<()> {
        self.stream.write_all(requests).await?;
        let mut missing = answers;
        while missing > 0 {
            if self.answered()? {
                missing -= 1;
            } else {
                self.receive().await?;
            }
        }
        Ok(())
    }

    /// Sends requests and waits for exactly these answers.
    pub(super) async fn exchange_for(&mut self, requests: &[u8], answers: &[u8]) -> Result<()> {
        self.stream.write_all(requests).await?;
        let mut missing = answers;
        while !missing.is_empty() {
            self.receive().await?;
            let (expected, later) = missing.split_at(missing.len().min(self.received.len()));
            let received = &self.received[..expected.len()];
            if received != expected {
                bail!(
                    "another answer than expected: {}",
                    different(&self.received, expected)
                );
            }
            self.received.advance(expected.len());
            missing = later;
        }
        Ok(())
    }

    /// Keeps a fixed number of requests in flight: sends one for every answer. `push` appends a
    /// request.
    pub(super) async fn keep_in_flight(
        &mut self,
        in_flight: usize,
        time: Duration,
        mut push: impl FnMut(&mut Vec<u8>),
    ) -> Result<Sample> {
        let mut latencies_ns = latencies()?;
        let mut requests = Vec::new();
        let started = Instant::now();
        let end = started + time;
        let mut sent = VecDeque::with_capacity(in_flight);
        let mut to_send = in_flight;
        while to_send > 0 || !sent.is_empty() {
            requests.clear();
            (0..to_send).for_each(|_| push(&mut requests));
            sent.extend(std::iter::repeat_n(Instant::now(), to_send));
            self.stream.write_all(&requests).await?;
            self.receive().await?;
            to_send = 0;
            let now = Instant::now();
            while self.answered()? {
                let sent = sent.pop_front().context("an answer to nothing")?;
                latencies_ns.saturating_record((now - sent).as_nanos() as u64);
                to_send += usize::from(now < end);
            }
        }
        Ok(Sample {
            operations: latencies_ns.len(),
            took: started.elapsed(),
            latencies_ns,
        })
    }

    /// Consumes an answer if it is complete.
    fn answered(&mut self) -> Result<bool> {
        let length = (self.parse)(&self.received)?;
        self.received.advance(length.unwrap_or(0));
        Ok(length.is_some())
    }

    async fn receive(&mut self) -> Result<()> {
        let read = self.stream.read_buf(&mut self.received).await?;
        ensure!(read > 0, "the server has hung up");
        Ok(())
    }
}

/// The line of `received` that differs first.
fn different(received: &[u8], expected: &[u8]) -> String {
    let pairs = received.iter().zip(expected);
    let same = pairs.take_while(|(one, other)| one == other).count();
    let start = received[..same].iter().rposition(|byte| *byte == b'\n');
    let line = &received[start.map_or(0, |at| at + 1)..];
    let end = line_end(line).unwrap_or(line.len());
    line[..end].escape_ascii().to_string()
}

/// Connections, as many to each server, opened on demand.
pub(super) struct Pool {
    addresses: Vec<SocketAddr>,
    parse: Parse,
    open: tokio::sync::Mutex<Vec<Connection>>,
}

impl Pool {
    pub(super) fn new(addresses: Vec<SocketAddr>, parse: Parse) -> Self {
        Self {
            addresses,
            parse,
            open: tokio::sync::Mutex::default(),
        }
    }

    /// At least the given number of connections, locked while they are in use.
    pub(super) async fn take(
        &self,
        count: usize,
    ) -> Result<tokio::sync::MutexGuard<'_, Vec<Connection>>> {
        let mut open = self.open.lock().await;
        let missing = self.addresses.iter().cycle().skip(open.len());
        for address in missing.take(count.saturating_sub(open.len())) {
            open.push(Connection::open(*address, self.parse).await?);
        }
        Ok(open)
    }
}

/// The position behind the first line feed.
pub(super) fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_differs_is_told() {
        let differs = |received: &[u8]| different(received, b"+OK\r\n$3\r\nabc\r\n");
        assert_eq!(differs(b"-ERR no\r\n"), r"-ERR no\r\n");
        assert_eq!(differs(b"+OK\r\n$-1\r\n+OK\r\n"), r"$-1\r\n");
        assert_eq!(differs(b"+OK\r\n$3\r\nabd"), "abd");
    }
}
