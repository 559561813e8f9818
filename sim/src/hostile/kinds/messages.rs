//! Kinds from the descriptors: for each RPC, requests that are malformed, too long, too deep or
//! too full. New RPCs are covered automatically.

use bytes::Bytes;

use super::super::descriptors::{Field, Holds, Rpc, varint};
use super::super::grpc::{Call, Headers, framed};
use super::super::kind::{Expected, Kind, expect};
use super::super::target::Shot;

/// Elements of a repeated field: many more than any field needs, in at most 1 MiB.
const MANY: usize = 400_000;
/// Bytes of a field: more than any field needs.
const LONG: usize = 2 << 20;
/// Depth of nested groups; prost accepts a hundred.
const DEEP: usize = 100_000;
/// A field number that no message uses.
const UNKNOWN: u64 = 1_000;

pub(super) fn all(rpcs: &[Rpc]) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for rpc in rpcs {
        of_bytes(rpc, &mut kinds);
        for field in &rpc.fields {
            of_field(rpc, field, &mut kinds);
        }
    }
    kinds
}

/// Kinds for any RPC, whatever its fields.
fn of_bytes(rpc: &Rpc, kinds: &mut Vec<Kind>) {
    let mut add = |what: &str, told: &str, expects, body: fn(&mut Shot) -> Vec<u8>| {
        kinds.push(kind(rpc, what, told, expects, move |shot| {
            framed(&body(shot))
        }));
    };
    add("empty", "a message without a field", expect::TOLD, |_| {
        Vec::new()
    });
    add(
        "random",
        "random bytes for a message",
        expect::MALFORMED,
        |shot| {
            let len = shot.rng.between(1, 4_096) as usize;
            // The first byte is a tag with an invalid wire type.
            let mut bytes = shot.bytes(len);
            bytes[0] |= 7;
            bytes
        },
    );
    add(
        "cut",
        "a field that ends before its length",
        expect::MALFORMED,
        |_| {
            let mut bytes = Vec::new();
            varint(&mut bytes, UNKNOWN << 3 | 2);
            varint(&mut bytes, 1_000);
            bytes.extend_from_slice(&[1; 10]);
            bytes
        },
    );
    add(
        "unknown-fields",
        "200,000 fields that no message has",
        expect::TOLD,
        |_| {
            let mut bytes = Vec::new();
            varint(&mut bytes, UNKNOWN << 3);
            bytes.push(1);
            bytes.repeat(200_000)
        },
    );
    add(
        "deep",
        "100,000 groups within each other",
        expect::MALFORMED,
        |_| {
            let mut bytes = Vec::new();
            varint(&mut bytes, UNKNOWN << 3 | 3);
            bytes.repeat(DEEP)
        },
    );
    kinds.push(kind(
        rpc,
        "too-long",
        "a message that announces 4 GiB",
        expect::REFUSED,
        |_| Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]),
    ));
}

/// Sessions and batches answer each operation separately.
fn refusal_of(rpc: &Rpc) -> &'static [Expected] {
    if ["kv.session", "kv.batch-get", "kv.batch-put"].contains(&&*rpc.name) {
        expect::TOLD
    } else {
        expect::REFUSED
    }
}

fn of_field(rpc: &Rpc, field: &Field, kinds: &mut Vec<Kind>) {
    let name = &field.name;
    let mut add = |what: &str, told: String, expects, message: Vec<u8>| {
        let body = framed(&message);
        let what = format!("{what}-{name}");
        kinds.push(kind(rpc, &what, &told, expects, move |_| body.clone()));
    };
    if field.is_repeated {
        let told = format!("400,000 empty elements of `{name}`");
        add("many", told, expect::REFUSED, field.many(MANY));
    }
    match field.holds {
        Holds::Message => {}
        Holds::Bytes => {
            let mut contents = Vec::with_capacity(LONG + 8);
            varint(&mut contents, LONG as u64);
            contents.resize(contents.len() + LONG, b'a');
            let told = format!("2 MiB of `{name}`");
            add("long", told, refusal_of(rpc), field.alone(&contents));
        }
        Holds::Varint => {
            let mut contents = Vec::new();
            varint(&mut contents, u64::MAX);
            let told = format!("the highest number for `{name}`");
            add("highest", told, expect::TOLD, field.alone(&contents));
        }
        Holds::Fixed => {
            let told = format!("the highest number for `{name}`");
            add("highest", told, expect::TOLD, field.alone(&[0xff; 8]));
        }
    }
}

fn kind(
    rpc: &Rpc,
    what: &str,
    told: &str,
    expects: &'static [Expected],
    body: impl Fn(&mut Shot) -> Bytes + Send + Sync + Clone + 'static,
) -> Kind {
    let path = rpc.path.clone();
    // Makes the node read the message.
    let is_between_nodes = path.starts_with("/torc.v1.Replica/");
    let name = format!("{}.{what}", rpc.name);
    Kind::call(
        name,
        format!("{}: {told}", rpc.path),
        expects,
        move |shot| {
            let body = body(shot);
            let names = if is_between_nodes {
                shot.names()
            } else {
                Headers::new()
            };
            Call::new(shot.node().port_of(&path), &*path, names, body)
        },
    )
}
