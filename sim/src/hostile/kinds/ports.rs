//! Calls to the wrong port: forged messages of nodes to the client port, and client requests to the
//! peer port.

use bytes::Bytes;
use tonic::Code;

use super::super::descriptors::Rpc;
use super::super::grpc::{Call, Headers};
use super::super::kind::{Expected, Kind};
use super::super::target::is_of_nodes;

const DENIED: &[Expected] = &[Expected::Code(Code::PermissionDenied)];
/// Served on both ports.
const IDENTIFY: &str = "/torc.v1.Replica/Identify";

pub(super) fn all(rpcs: &[Rpc]) -> Vec<Kind> {
    let rpcs = rpcs.iter().filter(|rpc| rpc.path != IDENTIFY);
    rpcs.map(|rpc| {
        let (path, of_nodes) = (rpc.path.clone(), is_of_nodes(&rpc.path));
        let port = if of_nodes { "clients" } else { "peers" };
        let name = format!("ports.{}.{port}", rpc.name);
        Kind::call(
            name,
            format!("{path}: on the port of {port}"),
            DENIED,
            move |shot| {
                let node = shot.node();
                let (to, names) = if of_nodes {
                    (node.grpc, shot.names())
                } else {
                    (node.peer, Headers::new())
                };
                Call::new(to, &*path, names, Bytes::from_static(&[0; 5]))
            },
        )
    })
    .collect()
}
