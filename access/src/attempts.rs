//! Rate limits for unauthenticated attempts, by address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use parking_lot::Mutex;

/// Attempts allowed at once, and then per second.
const BURST: f64 = 20.0;
const A_SECOND: f64 = 1.0;
/// Limit on the addresses remembered.
const MOST: usize = 1_024;

/// The remaining attempts of each address.
#[derive(Debug, Default)]
pub struct Attempts(Mutex<HashMap<IpAddr, (f64, Instant)>>);

impl Attempts {
    /// Whether `from` may make another attempt. O(1); O(addresses) when the table is full.
    pub fn may(&self, from: IpAddr, now: Instant) -> bool {
        let room = |(room, at): (f64, Instant)| {
            let since = now.saturating_duration_since(at).as_secs_f64();
            (room + since * A_SECOND).min(BURST)
        };
        let mut known = self.0.lock();
        let from = subject(from);
        if !known.contains_key(&from) && known.len() >= MOST {
            known.retain(|_, of| room(*of) < BURST);
            if known.len() >= MOST {
                return false;
            }
        }
        let of = known.entry(from).or_insert((BURST, now));
        let left = room(*of);
        let may = left >= 1.0;
        *of = (if may { left - 1.0 } else { left }, now);
        may
    }
}

/// An IPv6 host commonly has a /64 network, so the limit applies to its prefix.
fn subject(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_address_has_its_own_room_which_comes_back() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let made = |from: &str, now| {
            let from = from.parse().unwrap();
            (0..100).filter(|_| attempts.may(from, now)).count()
        };
        assert_eq!(made("10.0.0.1", now), 20);
        assert_eq!(made("10.0.0.2", now), 20);
        assert_eq!(made("2001:db8::1", now), 20);
        assert_eq!(made("2001:db8::2", now), 0, "the same network");
        assert_eq!(made("::ffff:10.0.0.1", now), 0, "the same address");
        assert_eq!(made("10.0.0.1", now + Duration::from_secs(3)), 3);
    }

    #[test]
    fn so_many_addresses_are_remembered_and_no_more() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let from = |n: u32| IpAddr::V4((0x0a00_0000 + n).into());
        for n in 0..2 * MOST as u32 {
            assert_eq!(attempts.may(from(n), now), n < MOST as u32);
        }
        assert_eq!(attempts.0.lock().len(), MOST);
        let later = now + Duration::from_secs(60);
        assert!(attempts.may(from(5_000), later), "the others are forgotten");
    }
}
