//! All kinds.

mod floods;
mod frames;
mod grpc;
mod http;
mod kv;
mod link;
mod messages;
mod names;
mod ports;
mod raft;
mod resp;
mod sockets;
mod streams;
mod tls;

use super::Error;
use super::descriptors::rpcs;
use super::kind::Kind;

/// Every kind, in listing order.
pub(crate) fn all() -> Result<Vec<Kind>, Error> {
    let rpcs = rpcs().map_err(Error::Descriptors)?;
    let mut kinds = messages::all(&rpcs);
    kinds.extend(kv::all());
    kinds.extend(names::all(&rpcs));
    kinds.extend(ports::all(&rpcs));
    kinds.extend(grpc::all());
    kinds.extend(streams::all());
    kinds.extend(frames::all());
    kinds.extend(floods::all());
    kinds.extend(link::all());
    kinds.extend(raft::all());
    kinds.extend(http::all());
    kinds.extend(resp::all());
    kinds.extend(sockets::all());
    kinds.extend(tls::all()?);
    Ok(kinds)
}
