//! Ports for servers.
//!
//! Below the range from which the system assigns ports: such a port may go to another program's
//! outgoing connection between the check and the server's bind.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// Number of ports tried so far.
static TRIED: AtomicU32 = AtomicU32::new(0);

/// An unused address on this machine, a different one on each call.
///
/// # Errors
/// [`io::ErrorKind::AddrNotAvailable`] if all are in use.
pub fn free_address() -> io::Result<SocketAddr> {
    free_run(1).map(|port| (Ipv4Addr::LOCALHOST, port).into())
}

/// The first of `count` consecutive unused ports on this machine, different ones on each call.
///
/// # Errors
/// [`io::ErrorKind::AddrNotAvailable`] if there are none.
pub fn free_run(count: u16) -> io::Result<u16> {
    let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let mut runs = (0..COUNT).filter_map(|_| next(count));
    let found = runs.find(|first| (*first..first + count).all(is_free));
    found.ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

/// The next run; `None` if it would extend beyond the last port. Processes that start at the same
/// time begin at different ports.
fn next(count: u16) -> Option<u16> {
    let start = std::process::id().wrapping_mul(97);
    let tried = TRIED.fetch_add(count.into(), Ordering::Relaxed);
    let offset = u16::try_from(start.wrapping_add(tried) % u32::from(COUNT)).ok()?;
    (offset + count <= COUNT).then_some(FIRST + offset)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn ports_are_free_and_given_once() {
        let first = free_address().unwrap();
        assert!(TcpListener::bind(first).is_ok());
        let run = free_run(3).unwrap();
        assert!(
            !(run..run + 3).contains(&first.port()),
            "may not be in use yet"
        );
        let taken = TcpListener::bind(free_address().unwrap()).unwrap();
        let taken = taken.local_addr().unwrap().port();
        for _ in 0..10 {
            let run = free_run(5).unwrap();
            assert!(!(run..run + 5).contains(&taken));
        }
    }
}
