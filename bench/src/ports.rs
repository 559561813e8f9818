//! Ports for servers.
//!
//! Below the range from which the system hands out ports by itself: one of those may go
//! to somebody's outgoing connection between the moment it was found free and the moment
//! the server binds it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};

const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

/// How many ports were tried.
static TRIED: AtomicU32 = AtomicU32::new(0);

/// An address on this machine that nobody listens on, another one each time.
///
/// # Errors
/// All are taken.
pub(crate) fn free_address() -> Result<SocketAddr> {
    let free = |address: &SocketAddr| TcpListener::bind(address).is_ok();
    let found = (0..COUNT).map(|_| next()).find(free);
    found.context("there is no free port")
}

/// Runs that begin at the same time begin at different ports.
fn next() -> SocketAddr {
    let start = std::process::id().wrapping_mul(97);
    let port = FIRST + start.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed)) % COUNT;
    (Ipv4Addr::LOCALHOST, port as u16).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_free_and_given_once() {
        let first = free_address().unwrap();
        let second = free_address().unwrap();
        assert_ne!(first, second, "the first may not be in use yet");
        // A process that another test is starting holds our sockets until it is another program.
        while let Err(error) = TcpListener::bind(first) {
            assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}
