//! The peer of a join: the same bytes over a plain connection.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use tempfile::TempDir;

use super::{BANDWIDTH, MIB, TIME};
use crate::report::Report;

const CHUNK: usize = 256 << 10;

/// Copies the given number of bytes from memory: to memory, to a file, and to a file that is synced
/// at the end; returns the duration of the last copy.
pub(super) fn measure(
    report: &mut Report,
    case: &str,
    bytes: u64,
    scratch: &TempDir,
) -> Result<Duration> {
    let mut add = |name, took: Duration| {
        let seconds = took.as_secs_f64();
        report.add(case, TIME, name, seconds);
        report.add(case, BANDWIDTH, name, bytes as f64 / MIB / seconds);
    };
    add("tcp copy", copy(bytes, io::sink(), |_| Ok(()))?);
    let path = scratch.path().join("copy");
    let unsynced = copy(bytes, File::create_new(&path)?, |_| Ok(()))?;
    add("tcp copy to file", unsynced);
    std::fs::remove_file(&path)?;
    let synced = copy(bytes, File::create_new(&path)?, File::sync_data)?;
    add("tcp copy to disk", synced);
    std::fs::remove_file(&path)?;
    Ok(synced)
}

/// Sends bytes from another thread to this one; returns the time until they are finished.
fn copy<W: Write>(
    bytes: u64,
    mut to: W,
    finish: impl Fn(&W) -> io::Result<()>,
) -> Result<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let started = Instant::now();
    let sender = std::thread::spawn(move || send(address, bytes));
    let (mut from, _) = listener.accept()?;
    let mut chunk = vec![0; CHUNK];
    let mut received = 0;
    loop {
        let length = from.read(&mut chunk)?;
        if length == 0 {
            break;
        }
        to.write_all(&chunk[..length])?;
        received += length as u64;
    }
    finish(&to)?;
    let took = started.elapsed();
    sender
        .join()
        .map_err(|_| anyhow!("the sender panicked"))??;
    ensure!(received == bytes, "{received} bytes of {bytes} arrived");
    Ok(took)
}

fn send(address: std::net::SocketAddr, bytes: u64) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    let chunk = vec![7; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let length = left.min(CHUNK as u64);
        stream.write_all(&chunk[..length as usize])?;
        left -= length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives() {
        let mut received = Vec::new();
        copy(CHUNK as u64 + 17, &mut received, |_| Ok(())).unwrap();
        assert_eq!(received.len(), CHUNK + 17);
        assert!(received.iter().all(|byte| *byte == 7));
    }
}
