//! Ports for servers.
//!
//! Below the range from which the system hands out ports by itself: one of those may go
//! to somebody's outgoing connection between the moment it was found free and the moment
//! the server binds it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// How many ports were tried.
static TRIED: AtomicU32 = AtomicU32::new(0);

/// An address on this machine that nobody listens on, another one each time.
///
/// # Errors
/// [`io::ErrorKind::AddrNotAvailable`]: all are taken.
pub fn free_address() -> io::Result<SocketAddr> {
    free_run(1).map(|port| (Ipv4Addr::LOCALHOST, port).into())
}

/// The first of `count` consecutive ports on this machine that nobody listens on, others each
/// time.
///
/// # Errors
/// [`io::ErrorKind::AddrNotAvailable`]: there are none.
pub fn free_run(count: u16) -> io::Result<u16> {
    let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let mut runs = (0..COUNT).filter_map(|_| next(count));
    let found = runs.find(|first| (*first..first + count).all(is_free));
    found.ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

/// The next run; none where it would reach beyond the last port. Processes that begin at the same
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
