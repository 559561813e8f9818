//! Restricts the addresses to which a client may make a node connect: no metadata services, and
//! only addresses of single machines.
//!
//! The node resolves a name once and connects to the address that it checked: a second resolution
//! could give another address. Private networks are allowed, because clusters live there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use torc_proto::{Fault, Reason};

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);
/// The limit of DNS.
const MOST_OF_A_HOST: usize = 253;
/// Metadata services whose addresses are not link-local: those of Alibaba, Oracle and Azure, and
/// those of Amazon and Google.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// The address to connect to for `address`, which a client supplied.
///
/// # Errors
/// `INVALID` if it is not an address, `REFUSED` for addresses that no node can have,
/// `OWNER_UNREACHABLE` if the name is unknown. Nothing was changed.
pub(super) async fn resolve(address: &str) -> Result<SocketAddr, Fault> {
    let is_host_port = address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && host.len() <= MOST_OF_A_HOST && port.parse::<u16>().is_ok()
    });
    if !is_host_port {
        let message = format!("`{address}` is not HOST:PORT: use the node's gRPC or peer address");
        return Err(Fault::new(Reason::Invalid, message));
    }
    let unknown = || {
        let message = format!("`{address}` cannot be resolved: check the name");
        Fault::new(Reason::OwnerUnreachable, message)
    };
    let resolving = tokio::time::timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host(address));
    let found = resolving.await.map_err(|_| unknown())?;
    let mut found = found.map_err(|_| unknown())?.peekable();
    found.peek().ok_or_else(unknown)?;
    found.find(is_allowed).ok_or_else(|| {
        let message = format!(
            "`{address}` is a link-local, metadata, multicast, broadcast or unspecified address, or has \
             port 0, where no node can be, and nothing was changed: use the node's gRPC or peer address"
        );
        Fault::new(Reason::Refused, message)
    })
}

fn is_allowed(address: &SocketAddr) -> bool {
    let is_denied = match address.ip().to_canonical() {
        IpAddr::V4(ip) => {
            let is_special = ip.is_link_local() || ip.is_multicast() || ip.is_broadcast();
            ip.octets()[0] == 0 || is_special || METADATA_V4.contains(&ip)
        }
        IpAddr::V6(ip) => {
            let is_link_local = ip.segments()[0] & 0xffc0 == 0xfe80;
            ip.is_unspecified() || is_link_local || ip.is_multicast() || METADATA_V6.contains(&ip)
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
            "[fd20:ce::254]:80",
            "168.63.129.16:80",
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
        for address in [
            "",
            "no port",
            ":7400",
            "host:70000",
            &format!("{}:1", "h".repeat(254)),
        ] {
            let refused = resolve(address).await.unwrap_err();
            assert_eq!(refused.reason, Reason::Invalid, "{address}");
        }
    }
}
