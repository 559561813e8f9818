//! Connections to a node, in plain text or with TLS.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Longer than a handshake with an unoptimised node on a busy machine takes.
const CONNECT_TIME: Duration = Duration::from_secs(20);
/// An address of this machine that belongs to no node. Members need no permits on peer ports, so
/// they are unsuitable.
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 66));

/// How this run connects with TLS. Unset: in plain text.
static TLS: OnceLock<Disguises> = OnceLock::new();

/// The ways of hostile clients to connect with TLS.
#[derive(Debug)]
pub(crate) struct Disguises {
    /// For all kinds but the impostor.
    pub(crate) usual: Arc<ClientConfig>,
    /// With a certificate of another authority.
    pub(crate) impostor: Arc<ClientConfig>,
}

/// A connection, in plain text or not.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}
pub(crate) type Stream = Box<dyn Io>;

/// Makes all later connections with TLS. Only the first call counts.
pub(crate) fn use_tls(disguises: Disguises) {
    let _ = TLS.set(disguises);
}

fn usual() -> Option<&'static Arc<ClientConfig>> {
    TLS.get().map(|disguises| &disguises.usual)
}

/// A connection from the nodes' address, which a peer port does not limit.
pub(crate) async fn connect(to: SocketAddr) -> io::Result<Stream> {
    shaken(connect_bare(to).await?, usual()).await
}

/// A connection from an address that belongs to no node.
pub(crate) async fn connect_as_stranger(to: SocketAddr) -> io::Result<Stream> {
    shaken(connect_bare_as_stranger(to).await?, usual()).await
}

/// A connection with TLS, as the given configuration says; in plain text without one.
pub(crate) async fn connect_with(
    to: SocketAddr,
    config: Option<&Arc<ClientConfig>>,
) -> io::Result<Stream> {
    shaken(connect_bare(to).await?, config).await
}

/// A connection without TLS, even to a node that has it: the kind sends the first bytes itself.
pub(crate) async fn connect_bare(to: SocketAddr) -> io::Result<TcpStream> {
    prompt(within(TcpStream::connect(to)).await?)
}

/// The same from an address that belongs to no node.
pub(crate) async fn connect_bare_as_stranger(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // If that address is unavailable, the nodes' address is used instead.
    let _ = socket.bind(SocketAddr::new(STRANGER, 0));
    prompt(within(socket.connect(to)).await?)
}

/// A connection with TLS; refused if this run has none.
pub(crate) async fn connect_tls(to: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
    let config = usual().ok_or(io::ErrorKind::NotConnected)?;
    shake(connect_bare(to).await?, config).await
}

/// A connection with a certificate of another authority; with `fallback` if the run has no TLS.
pub(crate) async fn connect_impostor(
    to: SocketAddr,
    fallback: &Arc<ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    let config = TLS.get().map_or(fallback, |disguises| &disguises.impostor);
    shake(connect_bare(to).await?, config).await
}

/// Sends bytes. TLS keeps those that the connection did not take at once until it is flushed.
pub(crate) async fn send_all<S: AsyncWrite + Unpin>(
    stream: &mut S,
    bytes: &[u8],
) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

async fn shaken(tcp: TcpStream, config: Option<&Arc<ClientConfig>>) -> io::Result<Stream> {
    match config {
        None => Ok(Box::new(tcp)),
        Some(config) => Ok(Box::new(shake(tcp, config).await?)),
    }
}

async fn shake(tcp: TcpStream, config: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::IpAddress(tcp.peer_addr()?.ip().into());
    within(TlsConnector::from(Arc::clone(config)).connect(name, tcp)).await
}

fn prompt(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn within<T>(connecting: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let connected = tokio::time::timeout(CONNECT_TIME, connecting).await;
    connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
