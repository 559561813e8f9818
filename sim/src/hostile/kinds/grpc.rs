//! Invalid gRPC: heads, headers and bodies.

use bytes::Bytes;
use prost::Message as _;
use torc_proto::v1;

use super::super::grpc::{Call, Headers, framed};
use super::super::kind::{Expected, Kind, expect};

const GET: &str = "/torc.v1.Kv/Get";
const UNIMPLEMENTED: &[Expected] = &[Expected::Code(tonic::Code::Unimplemented)];
/// For a missing or truncated message, tonic reports INTERNAL, and some readers UNKNOWN.
const NO_MESSAGE: &[Expected] = &[
    Expected::Refused,
    Expected::Code(tonic::Code::Internal),
    Expected::Code(tonic::Code::Unknown),
    Expected::Reset,
];
/// tonic's servers accept any content type as gRPC.
const NOT_GRPC: &[Expected] = MAYBE_READ;
/// If no time is left, tonic reports CANCELLED.
const NO_TIME: &[Expected] = &[
    Expected::Answered,
    Expected::Refused,
    Expected::Code(tonic::Code::Cancelled),
];

fn call(
    name: &str,
    what: &str,
    path: &str,
    expects: &'static [Expected],
    headers: &[(&str, &str)],
    body: Bytes,
) -> Kind {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let headers: Headers = headers.iter().map(owned).collect();
    let path = path.to_owned();
    Kind::call(name, what, expects, move |shot| {
        Call::new(shot.node().grpc, &*path, headers.clone(), body.clone())
    })
}

fn get() -> Bytes {
    let get = v1::GetRequest {
        key: Bytes::from_static(b"hostile/k"),
        ..v1::GetRequest::default()
    };
    get.encode_to_vec().into()
}

pub(super) fn all() -> Vec<Kind> {
    let mut kinds = of_headers();
    kinds.extend(of_bodies());
    kinds
}

fn of_headers() -> Vec<Kind> {
    let one = framed(&get());
    let call = |name, what, path, expects, headers: &[(&str, &str)]| {
        call(name, what, path, expects, headers, one.clone())
    };
    let long = "a".repeat(12_000);
    vec![
        call(
            "grpc.no-service",
            "a service that is not there",
            "/torc.v9.Kv/Get",
            UNIMPLEMENTED,
            &[],
        ),
        call(
            "grpc.no-method",
            "a method that is not there",
            "/torc.v1.Kv/Drop",
            UNIMPLEMENTED,
            &[],
        ),
        call(
            "grpc.odd-path",
            "a path with dots and escapes",
            "/torc.v1.Kv/../%2e%2e/Get",
            UNIMPLEMENTED,
            &[],
        ),
        call(
            "grpc.long-path",
            "a path of 8,000 bytes",
            &format!("/{}", "x".repeat(8_000)),
            UNIMPLEMENTED,
            &[],
        ),
        call(
            "grpc.content-type",
            "a type that is not gRPC's",
            GET,
            NOT_GRPC,
            &[("content-type", "text/html")],
        ),
        call(
            "grpc.json",
            "gRPC with a codec that nobody has",
            GET,
            MAYBE_READ,
            &[("content-type", "application/grpc+json")],
        ),
        call(
            "grpc.timeout-zero",
            "no time at all",
            GET,
            NO_TIME,
            &[("grpc-timeout", "0n")],
        ),
        call(
            "grpc.timeout-longest",
            "the longest time that can be said",
            GET,
            expect::TOLD,
            &[("grpc-timeout", "99999999H")],
        ),
        call(
            "grpc.timeout-garbage",
            "a time that is none",
            GET,
            expect::TOLD,
            &[("grpc-timeout", "-1 day")],
        ),
        call(
            "grpc.timeout-digits",
            "a time of a thousand digits",
            GET,
            expect::TOLD,
            &[("grpc-timeout", &"9".repeat(1_000))],
        ),
        call(
            "grpc.metadata-not-base64",
            "binary metadata that is not base64",
            GET,
            expect::TOLD,
            &[("torc-bin", "%%%")],
        ),
        call(
            "grpc.long-metadata",
            "12,000 bytes of metadata",
            GET,
            expect::TOLD,
            &[("torc-more", &long)],
        ),
        call(
            "grpc.accept-anything",
            "an encoding of answers that nobody has",
            GET,
            expect::TOLD,
            &[("grpc-accept-encoding", "br,xz,zip")],
        ),
    ]
}

const MAYBE_READ: &[Expected] = &[Expected::Answered, Expected::Refused, Expected::Http(415)];

fn of_bodies() -> Vec<Kind> {
    let get = get();
    let whole = framed(&get);
    let two = [&whole[..], &whole[..]].concat();
    let mut flagged = whole.to_vec();
    flagged[0] = 1;
    let mut odd_flag = whole.to_vec();
    odd_flag[0] = 0xff;
    let cut = whole.slice(..whole.len() - 3);
    let behind = [&whole[..], &[0, 0, 0]].concat();
    let zeros = framed(&GZIP_OF_ZEROS).to_vec();
    let bomb = [&[1], &zeros[1..]].concat();
    let gzip = [("grpc-encoding", "gzip")];
    let call = |name, what, expects, headers: &[(&str, &str)], body: Vec<u8>| {
        call(name, what, GET, expects, headers, body.into())
    };
    vec![
        call(
            "grpc.no-body",
            "a call without a message",
            NO_MESSAGE,
            &[],
            Vec::new(),
        ),
        call(
            "grpc.half-head",
            "three bytes of a message's head",
            NO_MESSAGE,
            &[],
            vec![0; 3],
        ),
        call(
            "grpc.half-message",
            "a message that ends early",
            NO_MESSAGE,
            &[],
            cut.to_vec(),
        ),
        call(
            "grpc.two-messages",
            "two messages where one is due",
            ANY_STATUS,
            &[],
            two,
        ),
        call(
            "grpc.more-behind",
            "a message and half a head",
            ANY_STATUS,
            &[],
            behind,
        ),
        call(
            "grpc.compressed-flag",
            "compressed, by no encoding",
            NO_MESSAGE,
            &[],
            flagged,
        ),
        call(
            "grpc.odd-flag",
            "a flag that no release knows",
            NO_MESSAGE,
            &[],
            odd_flag,
        ),
        call(
            "grpc.gzip-bomb",
            "gzip of a run of zeros, unasked",
            NO_MESSAGE,
            &gzip,
            bomb,
        ),
        call(
            "grpc.unknown-encoding",
            "an encoding that nobody has",
            NO_MESSAGE,
            &[("grpc-encoding", "zip")],
            whole.to_vec(),
        ),
    ]
}

const ANY_STATUS: &[Expected] = &[
    Expected::Answered,
    Expected::Refused,
    Expected::Code(tonic::Code::Internal),
    Expected::Code(tonic::Code::Unknown),
];

/// The head of a gzip stream and the beginning of a block. The rest need not be complete, because
/// no node decompresses requests.
const GZIP_OF_ZEROS: [u8; 16] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xed, 0xc1, 1, 1, 0, 0];
