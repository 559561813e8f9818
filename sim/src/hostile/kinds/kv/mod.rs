//! Operations at their limits and beyond, with wrong digests and routes.

mod bounds;

use bytes::Bytes;
use prost::Message;
use torc_proto::v1::{self, session_request};

use super::super::grpc::{Call, Headers, framed_message};
use super::super::kind::{Expected, Kind, expect};
use super::super::target::Shot;

const GET: &str = "/torc.v1.Kv/Get";
const PUT: &str = "/torc.v1.Kv/Put";
const DELETE: &str = "/torc.v1.Kv/Delete";
const BATCH_GET: &str = "/torc.v1.Kv/BatchGet";
const BATCH_PUT: &str = "/torc.v1.Kv/BatchPut";
const SCAN: &str = "/torc.v1.Kv/Scan";
const SESSION: &str = "/torc.v1.Kv/Session";
const SKETCH: &str = "/torc.v1.Cluster/SketchKeys";
const HOT: &str = "/torc.v1.Cluster/HotKeys";

const NOT_FOUND: &[Expected] = &[Expected::Code(tonic::Code::NotFound)];

/// A kind that sends one message; its outcome is the status of the answer.
fn call<M: Message>(
    name: &str,
    what: &str,
    path: &'static str,
    expects: &'static [Expected],
    message: impl Fn(&Shot) -> M + Send + Sync + 'static,
) -> Kind {
    Kind::call(name, what, expects, move |shot| {
        let body = framed_message(&message(shot));
        Call::new(shot.node().grpc, path, Headers::new(), body)
    })
}

fn get(key: impl Into<Bytes>) -> v1::GetRequest {
    v1::GetRequest {
        key: key.into(),
        ..v1::GetRequest::default()
    }
}

fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> v1::PutRequest {
    v1::PutRequest {
        key: key.into(),
        value: value.into(),
        ..v1::PutRequest::default()
    }
}

pub(super) fn all() -> Vec<Kind> {
    let mut kinds = bounds::all();
    kinds.extend(scans());
    kinds.extend(foreign());
    kinds.extend(sessions());
    kinds
}

fn scans() -> Vec<Kind> {
    use expect::{ANSWERED, INVALID};
    let searching = |patterns: Vec<Bytes>| v1::ScanRequest {
        contains: patterns,
        keys_only: true,
        ..v1::ScanRequest::default()
    };
    let pattern = |len: usize| Bytes::from(vec![b'p'; len]);
    vec![
        call(
            "kv.scan.most-patterns",
            "as many patterns as a scan may have",
            SCAN,
            ANSWERED,
            move |_| searching(vec![pattern(3); 64]),
        ),
        call(
            "kv.scan.too-many-patterns",
            "one more",
            SCAN,
            INVALID,
            move |_| searching(vec![pattern(3); 65]),
        ),
        call(
            "kv.scan.longest-pattern",
            "a pattern as long as it may be",
            SCAN,
            ANSWERED,
            move |_| searching(vec![pattern(65_536)]),
        ),
        call(
            "kv.scan.too-long-pattern",
            "a pattern one byte longer",
            SCAN,
            INVALID,
            move |_| searching(vec![pattern(65_537)]),
        ),
        call(
            "kv.scan.no-pattern",
            "an empty pattern",
            SCAN,
            INVALID,
            move |_| searching(vec![Bytes::new()]),
        ),
        call(
            "kv.scan.cursor-garbage",
            "a position that no node gave",
            SCAN,
            INVALID,
            |_| {
                let after = Bytes::from_static(&[0xff; 300]);
                v1::ScanRequest {
                    after,
                    ..v1::ScanRequest::default()
                }
            },
        ),
    ]
}

fn foreign() -> Vec<Kind> {
    use expect::INVALID;
    let digest = Bytes::from_static(&[7; 16]);
    let (of_get, of_put, of_delete) = (digest.clone(), digest.clone(), digest);
    vec![
        call(
            "digest.foreign-get",
            "a get with another key's digest",
            GET,
            INVALID,
            move |_| v1::GetRequest {
                digest: of_get.clone(),
                ..get("hostile/k")
            },
        ),
        call(
            "digest.foreign-put",
            "a put with another key's digest",
            PUT,
            INVALID,
            move |_| v1::PutRequest {
                digest: of_put.clone(),
                ..put("hostile/k", "v")
            },
        ),
        call(
            "digest.foreign-delete",
            "a delete with another key's digest",
            DELETE,
            INVALID,
            move |_| v1::DeleteRequest {
                key: Bytes::from_static(b"hostile/k"),
                digest: of_delete.clone(),
                ..v1::DeleteRequest::default()
            },
        ),
        call("digest.short", "a digest of 15 bytes", GET, INVALID, |_| {
            let digest = Bytes::from_static(&[7; 15]);
            v1::GetRequest {
                digest,
                ..get("hostile/k")
            }
        }),
        call(
            "route.past-epoch",
            "a route of an epoch that is over",
            GET,
            expect::TOLD,
            |shot| {
                let route = v1::Route {
                    epoch: 0,
                    ..shot.target.route_of(b"hostile/k")
                };
                v1::GetRequest {
                    route: Some(route),
                    ..get("hostile/k")
                }
            },
        ),
        call(
            "route.far-epoch",
            "a route of an epoch near the highest",
            GET,
            expect::TOLD,
            |shot| {
                let route = v1::Route {
                    epoch: u64::MAX,
                    ..shot.target.route_of(b"hostile/k")
                };
                v1::GetRequest {
                    route: Some(route),
                    ..get("hostile/k")
                }
            },
        ),
        call(
            "route.no-partition",
            "a route to a partition that is not there",
            GET,
            expect::REFUSED,
            |_| {
                let route = v1::Route {
                    partition: u32::MAX,
                    epoch: 1,
                };
                v1::GetRequest {
                    route: Some(route),
                    ..get("hostile/k")
                }
            },
        ),
    ]
}

/// Sends operations on a session and counts the answers.
fn session(
    name: &str,
    what: &str,
    operations: impl Fn(&Shot) -> Vec<v1::SessionRequest> + Send + Sync + 'static,
) -> Kind {
    Kind::call(name, what, expect::ANSWERED, move |shot| {
        let operations = operations(shot);
        on_a_session(shot, &operations).with_answers(operations.len())
    })
}

fn on_a_session(shot: &Shot, messages: &[v1::SessionRequest]) -> Call {
    let body: Vec<Bytes> = messages.iter().map(framed_message).collect();
    let body = Bytes::from(body.concat());
    Call::new(shot.node().grpc, SESSION, Headers::new(), body)
}

/// Most of the operations are not answered.
fn cancelled(
    shot: &Shot,
    of: impl Fn(u64, session_request::Operation) -> v1::SessionRequest,
) -> Call {
    let cancel = |id| of(id, session_request::Operation::Cancel(v1::Cancel {}));
    let messages = (0..100).flat_map(|id| {
        let put = session_request::Operation::Put(put("hostile/k", "v"));
        [of(id, put), cancel(id), cancel(id), cancel(id + 1)]
    });
    on_a_session(shot, &messages.collect::<Vec<_>>())
}

fn sessions() -> Vec<Kind> {
    let of = |id, operation| v1::SessionRequest {
        id,
        operation: Some(operation),
        timeout_ms: 5_000,
        ..v1::SessionRequest::default()
    };
    vec![
        session(
            "kv.session.one-id",
            "a hundred operations under one number",
            move |_| vec![of(7, session_request::Operation::Get(get("hostile/k"))); 100],
        ),
        session(
            "kv.session.no-operation",
            "a hundred messages without an operation",
            |_| vec![v1::SessionRequest::default(); 100],
        ),
        Kind::call(
            "kv.session.cancels",
            "a hundred operations that are cancelled twice, and cancellations of none",
            expect::ANSWERED,
            move |shot| cancelled(shot, of),
        ),
        session(
            "kv.session.foreign-digests",
            "a hundred puts with other keys' digests",
            move |_| {
                let digest = Bytes::from_static(&[9; 16]);
                let put = v1::PutRequest {
                    digest,
                    ..put("hostile/k", "v")
                };
                (0..100)
                    .map(|id| of(id, session_request::Operation::Put(put.clone())))
                    .collect()
            },
        ),
        session(
            "kv.session.burst",
            "3,000 gets at once, three times as many as are carried out",
            move |_| {
                (0..3_000)
                    .map(|id| of(id, session_request::Operation::Get(get("hostile/k"))))
                    .collect()
            },
        ),
    ]
}
