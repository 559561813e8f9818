//! Waiting for what other programs do, by polling.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Time limit for a condition, which detects a hang, not slowness.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// The time until the next poll: ever longer, because polls take time from what they wait for.
pub(crate) fn pause(waited: Duration) -> Duration {
    (waited / 50).clamp(Duration::from_millis(5), Duration::from_millis(500))
}

/// Waits until a condition holds.
///
/// # Panics
/// If it does not hold within [`TIMEOUT`].
pub async fn until(what: &str, condition: impl AsyncFnMut() -> bool) {
    until_or(what, condition, String::new).await;
}

/// Waits until a condition holds.
///
/// # Panics
/// If it does not hold within [`TIMEOUT`]. The message ends with what `seen` returns.
pub async fn until_or(
    what: &str,
    mut condition: impl AsyncFnMut() -> bool,
    seen: impl FnOnce() -> String,
) {
    let begun = Instant::now();
    while !condition().await {
        let waited = begun.elapsed();
        assert!(waited < TIMEOUT, "waited in vain until {what}; {}", seen());
        tokio::time::sleep(pause(waited)).await;
    }
}

/// A plain HTTP GET; returns status and body.
///
/// # Errors
/// The server does not answer with HTTP/1.1.
pub async fn http_get(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|text| text.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no HTTP response: {head}")))?;
    Ok((status, body.to_owned()))
}
