//! A proxy in front of an object store: it loses requests and answers, repeats requests, cuts answers
//! off, and is slow.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

const UNAVAILABLE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// What happens to a request depends on its number alone.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    troubles: Arc<AtomicU64>,
    /// Its own threads, as tests block theirs.
    runtime: Option<Runtime>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Proxy {
    pub(crate) fn start(store: SocketAddr) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let troubles = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&troubles);
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            for number in 0_u64.. {
                let Ok((client, _)) = listener.accept().await else {
                    return;
                };
                let counted = Arc::clone(&counted);
                // A client that hangs up is no failure of the proxy.
                tokio::spawn(async move { serve(client, store, number, &counted).await.ok() });
            }
        });
        Self {
            address,
            troubles,
            runtime: Some(runtime),
        }
    }

    /// Requests that did not simply pass.
    pub(crate) fn troubles(&self) -> u64 {
        self.troubles.load(Ordering::Relaxed)
    }
}

/// One request of a connection, which ends with it.
async fn serve(
    mut client: TcpStream,
    store: SocketAddr,
    number: u64,
    troubles: &AtomicU64,
) -> std::io::Result<()> {
    let request = request(&mut client).await?;
    if matches!(number % 13, 2 | 4 | 6 | 8 | 10) {
        troubles.fetch_add(1, Ordering::Relaxed);
    }
    match number % 13 {
        2 => return client.write_all(UNAVAILABLE).await,
        4 => {
            // Carried out, and the answer is lost.
            answer(store, &request).await?;
            return client.write_all(UNAVAILABLE).await;
        }
        6 => {
            answer(store, &request).await?;
        }
        8 => tokio::time::sleep(Duration::from_millis(300)).await,
        10 => {
            let answer = answer(store, &request).await?;
            return client.write_all(&answer[..answer.len() / 2]).await;
        }
        _ => {}
    }
    let answer = answer(store, &request).await?;
    client.write_all(&answer).await
}

/// A whole request, which asks the store to close the connection after its answer.
async fn request(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let head_len = loop {
        if client.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_len]).to_ascii_lowercase();
    let len = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let len: usize = len.map_or(0, |len| len.trim().parse().unwrap());
    while bytes.len() < head_len + len {
        if client.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    let first_line = bytes.windows(2).position(|window| window == b"\r\n");
    let first_line = first_line.unwrap_or_default() + 2;
    bytes.splice(first_line..first_line, *b"Connection: close\r\n");
    Ok(bytes)
}

async fn answer(store: SocketAddr, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut store = TcpStream::connect(store).await?;
    store.write_all(request).await?;
    let mut answer = Vec::new();
    store.read_to_end(&mut answer).await?;
    Ok(answer)
}
