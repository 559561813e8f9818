//! Keys, values, batches and weights at their limits and one beyond.

use bytes::Bytes;
use torc_client::{MAX_KEY_LEN, MAX_VALUE_LEN};
use torc_proto::v1::{self, condition};
use torc_proto::{MAX_BATCH_ITEMS, MAX_KEY_WEIGHTS};

use super::super::super::kind::{Kind, expect};
use super::super::super::target::LONG_KEY;
use super::{BATCH_GET, BATCH_PUT, GET, HOT, NOT_FOUND, PUT, SKETCH, call, get, put};

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn all() -> Vec<Kind> {
    use expect::{ANSWERED, INVALID};
    let key = |len: usize| vec![b'k'; len];
    let batch = |count| v1::BatchGetRequest {
        items: vec![get("hostile/k"); count],
    };
    let puts = |count| v1::BatchPutRequest {
        items: vec![put("hostile/k", "v"); count],
    };
    let far = v1::Version {
        epoch: u64::MAX,
        time: u64::MAX,
        slot: u32::MAX,
    };
    vec![
        call(
            "kv.key.longest",
            "a key as long as a key may be",
            GET,
            ANSWERED,
            move |_| get(key(MAX_KEY_LEN)),
        ),
        call(
            "kv.key.too-long",
            "a key one byte longer",
            GET,
            INVALID,
            move |_| get(key(MAX_KEY_LEN + 1)),
        ),
        call("kv.key.none", "a put without a key", PUT, INVALID, |_| {
            put("", "v")
        }),
        call(
            "kv.value.longest",
            "a value as long as a value may be",
            PUT,
            ANSWERED,
            |_| put("hostile/longest", vec![7; MAX_VALUE_LEN]),
        ),
        call(
            "kv.value.too-long",
            "a value one byte longer",
            PUT,
            INVALID,
            |_| put("hostile/longest", vec![7; MAX_VALUE_LEN + 1]),
        ),
        call(
            "kv.ttl.longest",
            "a value that expires after the end of time",
            PUT,
            expect::TOLD,
            |_| {
                let ttl_ms = u64::MAX;
                v1::PutRequest {
                    ttl_ms,
                    ..put("hostile/ttl", "v")
                }
            },
        ),
        call(
            "kv.batch-get.most",
            "as many gets as a batch may have",
            BATCH_GET,
            ANSWERED,
            move |_| batch(MAX_BATCH_ITEMS),
        ),
        call(
            "kv.batch-get.too-many-items",
            "one more",
            BATCH_GET,
            INVALID,
            move |_| batch(MAX_BATCH_ITEMS + 1),
        ),
        call(
            "kv.batch-put.most",
            "as many puts of one key as a batch may have",
            BATCH_PUT,
            ANSWERED,
            move |_| puts(MAX_BATCH_ITEMS),
        ),
        call(
            "kv.batch-put.too-many-items",
            "one more",
            BATCH_PUT,
            INVALID,
            move |_| puts(MAX_BATCH_ITEMS + 1),
        ),
        call(
            "kv.batch-get.long-values",
            "a thousand gets of a value of 1 MiB",
            BATCH_GET,
            ANSWERED,
            |_| v1::BatchGetRequest {
                items: vec![get(LONG_KEY); MAX_BATCH_ITEMS],
            },
        ),
        call(
            "kv.namespace.unknown",
            "a namespace that is not there",
            GET,
            NOT_FOUND,
            |_| v1::GetRequest {
                namespace: "nowhere".to_owned(),
                ..get("k")
            },
        ),
        call(
            "kv.enum.unknown",
            "a quorum that no release knows",
            PUT,
            INVALID,
            |_| v1::PutRequest {
                quorum: i32::MAX,
                ..put("hostile/k", "v")
            },
        ),
        call(
            "kv.condition.version-max",
            "a put on condition of the highest version",
            PUT,
            expect::REFUSED,
            move |_| {
                let kind = Some(condition::Kind::IfVersion(far));
                v1::PutRequest {
                    condition: Some(v1::Condition { kind }),
                    ..put("hostile/k", "v")
                }
            },
        ),
        call(
            "cluster.hot-keys.too-many",
            "more hot keys than an answer holds",
            HOT,
            expect::TOLD,
            |_| v1::HotKeysRequest {
                top: 1_001,
                ..v1::HotKeysRequest::default()
            },
        ),
        call(
            "cluster.sketch-keys.too-many-weights",
            "one weight too many",
            SKETCH,
            expect::REFUSED,
            |_| {
                let digest = Bytes::from_static(&[7; 16]);
                let weight = v1::KeyWeight {
                    digest,
                    accesses: 1,
                };
                let namespace = v1::SketchedNamespace {
                    name: String::new(),
                    weights: vec![weight; MAX_KEY_WEIGHTS + 1],
                    ..v1::SketchedNamespace::default()
                };
                v1::SketchKeysRequest {
                    node: 1,
                    passed_on: true,
                    partitions: vec![0],
                    namespaces: vec![namespace],
                }
            },
        ),
    ]
}
