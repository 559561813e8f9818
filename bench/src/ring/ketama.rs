//! The peer: pingora-ketama, a ring of random points.

use std::net::{Ipv4Addr, SocketAddr};

use pingora_ketama::{Bucket, Continuum};

/// The peer's name in reports.
pub(super) const KETAMA: &str = "pingora-ketama";

/// Nodes that hold a key, at most three, the first of the list first.
pub(super) type Holders = [u16; 3];
/// Marks a missing holder if there are fewer than three nodes.
pub(super) const NOBODY: u16 = u16::MAX;

fn address(node: u16) -> SocketAddr {
    let [high, low] = node.to_be_bytes();
    (Ipv4Addr::new(10, 0, high, low), 7400).into()
}

fn node(address: &SocketAddr) -> u16 {
    match address {
        SocketAddr::V4(address) => {
            let [_, _, high, low] = address.ip().octets();
            u16::from_be_bytes([high, low])
        }
        SocketAddr::V6(_) => NOBODY,
    }
}

/// A ring of equal nodes.
pub(super) fn ring(nodes: u16) -> Continuum {
    let buckets: Vec<Bucket> = (0..nodes)
        .map(|node| Bucket::new(address(node), 1))
        .collect();
    Continuum::new(&buckets)
}

/// The distinct nodes that follow a key; `nodes` is the ring's number of nodes.
pub(super) fn holders(ring: &Continuum, nodes: u16, key: &[u8]) -> Holders {
    let wanted = usize::from(nodes).min(3);
    let mut holders = [NOBODY; 3];
    let mut found = 0;
    for address in ring.node_iter(key) {
        let node = node(address);
        if !holders[..found].contains(&node) {
            holders[found] = node;
            found += 1;
        }
        if found == wanted {
            break;
        }
    }
    holders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_three_distinct_holders_or_as_many_as_there_are_nodes() {
        for (nodes, expected) in [(2, 2), (3, 3), (300, 3)] {
            let ring = ring(nodes);
            let mut holders = holders(&ring, nodes, b"key").to_vec();
            holders.retain(|node| *node != NOBODY);
            holders.sort_unstable();
            holders.dedup();
            assert_eq!(holders.len(), expected);
            assert!(holders.iter().all(|node| *node < nodes));
        }
    }
}
