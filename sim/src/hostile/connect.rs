//! Connections to a node.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};

const CONNECT_TIME: Duration = Duration::from_secs(5);
/// An address of this machine that belongs to no node. Members need no permits on peer ports, so
/// they are unsuitable.
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 66));

/// A connection from the nodes' address, which a peer port does not limit.
pub(crate) async fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    within(TcpStream::connect(to)).await
}

/// A connection from an address that belongs to no node.
pub(crate) async fn connect_as_stranger(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // If that address is unavailable, the nodes' address is used instead.
    let _ = socket.bind(SocketAddr::new(STRANGER, 0));
    within(socket.connect(to)).await
}

async fn within(connecting: impl Future<Output = io::Result<TcpStream>>) -> io::Result<TcpStream> {
    let connected = tokio::time::timeout(CONNECT_TIME, connecting).await;
    let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    stream.set_nodelay(true)?;
    Ok(stream)
}
