//! Requests for a different cluster or node, for each service.

use bytes::Bytes;
use tonic::Code;
use torc_proto::{CLUSTER_HEADER, NODE_HEADER};

use super::super::descriptors::Rpc;
use super::super::grpc::{Call, Headers};
use super::super::kind::{Expected, Kind, expect};
use super::super::target::Shot;

const WRONG: &[Expected] = &[Expected::Code(Code::FailedPrecondition)];

/// Services that find the recipient in the message itself.
const SAYS_IT_ITSELF: [&str; 1] = ["/torc.v1.TopologyGroup/"];

pub(super) fn all(rpcs: &[Rpc]) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for rpc in rpcs {
        if SAYS_IT_ITSELF
            .iter()
            .any(|prefix| rpc.path.starts_with(prefix))
        {
            continue;
        }
        let (name, path) = (&rpc.name, &rpc.path);
        kinds.push(call(
            format!("names.{name}.cluster"),
            format!("{path}: meant for another cluster"),
            path,
            WRONG,
            |shot| {
                let mut names = shot.names();
                names[0].1 = "f".repeat(32);
                names
            },
        ));
        kinds.push(call(
            format!("names.{name}.node"),
            format!("{path}: meant for another node"),
            path,
            WRONG,
            |shot| {
                let mut names = shot.names();
                names[1].1 = shot.other().id.to_string();
                names
            },
        ));
    }
    for method in ["CopySlices", "Summarize"] {
        let path = format!("/torc.v1.Replica/{method}");
        kinds.push(call(
            format!("names.replica.{}.none", method.to_lowercase()),
            format!("{path}: meant for nobody"),
            &path,
            expect::INVALID,
            |_| Headers::new(),
        ));
    }
    kinds.push(call(
        "names.garbage".to_owned(),
        "names that are none".to_owned(),
        "/torc.v1.Kv/Get",
        WRONG,
        |_| {
            vec![
                (CLUSTER_HEADER.to_owned(), "~".repeat(4_000)),
                (NODE_HEADER.to_owned(), "-1".to_owned()),
            ]
        },
    ));
    kinds
}

fn call(
    name: String,
    what: String,
    path: &str,
    expects: &'static [Expected],
    names: impl Fn(&Shot) -> Headers + Send + Sync + 'static,
) -> Kind {
    let path = path.to_owned();
    Kind::call(name, what, expects, move |shot| {
        let body = Bytes::from_static(&[0; 5]);
        Call::new(shot.node().port_of(&path), &*path, names(shot), body)
    })
}
