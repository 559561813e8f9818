//! Where a node may connect because a client said so: not to the machine's own metadata service,
//! nor to what is no single machine.
//!
//! A name is resolved once, and the address that was checked is the one that is connected to: else a name
//! could lead elsewhere the second time. Private networks are allowed, clusters live there.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use torc_proto::{Fault, Reason};

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Amazon's metadata service. Others use link-local addresses.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// The address to connect to for `address`, which a client named.
///
/// # Errors
/// `REFUSED` where nodes never are, OWNER_UNREACHABLE if the name is not known. Nothing was changed.
pub(super) async fn resolve(address: &str) -> Result<SocketAddr, Fault> {
    let unknown = || {
        let message =
            format!("`{address}` is not a HOST:PORT that can be resolved: check the name");
        Fault::new(Reason::OwnerUnreachable, message)
    };
    let resolving = tokio::time::timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host(address));
    let found = resolving.await.map_err(|_| unknown())?;
    let mut found = found.map_err(|_| unknown())?.peekable();
    found.peek().ok_or_else(unknown)?;
    found.find(is_allowed).ok_or_else(|| {
        let message = format!(
            "`{address}` is a link-local, metadata, multicast, broadcast or unspecified address, or has \
             port 0: no node is there, and nothing was changed; name the node's gRPC address"
        );
        Fault::new(Reason::Refused, message)
    })
}

fn is_allowed(address: &SocketAddr) -> bool {
    let is_denied = match address.ip().to_canonical() {
        IpAddr::V4(ip) => {
            ip.octets()[0] == 0 || ip.is_link_local() || ip.is_multicast() || ip.is_broadcast()
        }
        IpAddr::V6(ip) => {
            let is_link_local = ip.segments()[0] & 0xffc0 == 0xfe80;
            ip.is_unspecified() || is_link_local || ip.is_multicast() || ip == METADATA
        }
    };
    address.port() != 0 && !is_denied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn where_no_node_can_be_is_refused_however_it_is_written() {
        for address in [
            "169.254.169.254:80",
            "[::ffff:169.254.169.254]:80",
            "[fe80::1]:7400",
            "[febf::1]:7400",
            "[fd00:ec2::254]:80",
            "224.0.0.1:7400",
            "[ff02::1]:7400",
            "0.0.0.0:7400",
            "0.1.2.3:7400",
            "[::]:7400",
            "255.255.255.255:7400",
            "127.0.0.1:0",
        ] {
            let refused = resolve(address).await.unwrap_err();
            assert_eq!(refused.reason, Reason::Refused, "{address}: {refused}");
        }
        for address in [
            "127.0.0.1:7400",
            "10.0.0.1:7400",
            "[fd00::1]:7400",
            "localhost:7400",
        ] {
            assert!(resolve(address).await.is_ok(), "{address}");
        }
        let unknown = resolve("no port").await.unwrap_err();
        assert_eq!(unknown.reason, Reason::OwnerUnreachable);
    }
}
