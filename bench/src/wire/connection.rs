//! A connection of a text protocol: requests go out, complete answers are counted in.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The length of the complete answer that `bytes` begin with; none if it is not all
/// there yet. An answer that says that something is wrong is an error.
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

    /// Sends requests and waits for as many answers.
    pub(super) async fn exchange(&mut self, requests: &[u8], answers: usize) -> Result<()> {
        self.stream.write_all(requests).await?;
        let mut missing = answers;
        while missing > 0 {
            if let Some(length) = (self.parse)(&self.received)? {
                self.received.advance(length);
                missing -= 1;
            } else {
                let read = self.stream.read_buf(&mut self.received).await?;
                ensure!(read > 0, "the server has hung up");
            }
        }
        Ok(())
    }
}

/// Connections to one server, opened as they are needed.
pub(super) struct Pool {
    address: SocketAddr,
    parse: Parse,
    open: tokio::sync::Mutex<Vec<Connection>>,
}

impl Pool {
    pub(super) fn new(address: SocketAddr, parse: Parse) -> Self {
        Self {
            address,
            parse,
            open: tokio::sync::Mutex::default(),
        }
    }

    /// At least so many connections, locked for as long as they are used.
    pub(super) async fn take(
        &self,
        count: usize,
    ) -> Result<tokio::sync::MutexGuard<'_, Vec<Connection>>> {
        let mut open = self.open.lock().await;
        while open.len() < count {
            open.push(Connection::open(self.address, self.parse).await?);
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
