//! `Replica.Link` from outsiders: stolen greetings, and frames that are truncated, repeated, out of
//! order or about unknown objects.
//!
//! Without authentication, a node cannot detect a greeting forged from public facts. So it serves an
//! outsider's streams in a member's name beside the member's own, and ends the quietest if there are
//! too many.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use torc_client::NodeId;
use torc_proto::link::{LinkHello, MAX_BATCH_ENVELOPES, MAX_BATCH_LEN};
use torc_proto::v1::envelope::{self, Message};
use torc_proto::v1::{self, Version};
use torc_ring::topology::{Boot, ClusterId, Incarnation, Levels};

use super::super::descriptors::varint;
use super::super::grpc::{self, Call, Connection, Headers, framed, framed_message, push};
use super::super::kind::{Expected, Kind, expect};
use super::super::outcome::Outcome;
use super::super::target::Shot;

const LINK: &str = "/torc.v1.Replica/Link";
const KEY: &[u8] = b"hostile/link";
/// Time for the node to pass on what was sent.
const HOLD: Duration = Duration::from_millis(300);

/// A greeting, immediately followed by frames; the outcome is how the stream ends.
fn stream(
    name: &str,
    what: &str,
    expects: &'static [Expected],
    say: impl Fn(&mut Shot) -> (Option<LinkHello>, Vec<Bytes>) + Send + Sync + 'static,
) -> Kind {
    Kind::call(format!("link.{name}"), what, expects, move |shot| {
        let (hello, frames) = say(shot);
        let mut body = Vec::new();
        if let Some(hello) = hello {
            body.push(framed_message(&hello.to_wire()));
        }
        body.extend(frames.into_iter().map(|envelopes| {
            framed_message(&v1::LinkRequest {
                hello: None,
                envelopes,
            })
        }));
        let body = Bytes::from(body.concat());
        Call::new(shot.node().peer, LINK, Headers::new(), body)
    })
}

pub(super) fn all() -> Vec<Kind> {
    let mut kinds = greetings();
    kinds.extend(frames());
    kinds
}

/// The frames after such a greeting are never read.
fn greeting(
    name: &str,
    what: &str,
    expects: &'static [Expected],
    change: impl Fn(&mut LinkHello, &Shot) + Send + Sync + 'static,
) -> Kind {
    stream(name, what, expects, move |shot| {
        let mut hello = shot.hello();
        change(&mut hello, shot);
        (Some(hello), vec![batch(&[read(shot)])])
    })
}

const REFUSED: &[Expected] = &[Expected::Code(tonic::Code::FailedPrecondition)];
const UNKNOWN: &[Expected] = &[
    Expected::Code(tonic::Code::FailedPrecondition),
    Expected::Code(tonic::Code::Unavailable),
];

fn greetings() -> Vec<Kind> {
    vec![
        greeting("wrong-cluster", "a greeting from another cluster", REFUSED, |hello, _| {
            hello.cluster = ClusterId([0xee; 16]);
        }),
        greeting("wrong-target", "a greeting for another node", REFUSED, |hello, _| {
            hello.target = hello.node;
        }),
        greeting("from-itself", "a greeting in the node's own name", REFUSED, |hello, shot| {
            hello.node = shot.node().id;
        }),
        greeting("no-member", "a greeting from a node that is no member", UNKNOWN, |hello, _| {
            hello.node = NodeId(u64::MAX);
        }),
        greeting("wrong-incarnation", "a member's name with another data directory", REFUSED, |hello, _| {
            hello.incarnation = Incarnation([0xee; 16]);
        }),
        greeting("older-start", "a member's name and a start that is over", REFUSED, |hello, _| {
            hello.boot = Boot::default();
        }),
        greeting("wrong-levels", "a member's name at levels that do not exist yet", REFUSED, |hello, _| {
            hello.levels = Levels {
                oldest: u32::MAX,
                newest: u32::MAX,
            };
        }),
        stream("no-greeting", "frames without a greeting", expect::INVALID, |shot| {
            (None, vec![batch(&[read(shot)])])
        }),
        Kind::new("link.silent", "a stream without a word", expect::REFUSED, |shot| async move {
            let connection = match Connection::open(shot.node().peer).await {
                Ok(connection) => connection,
                Err(outcome) => return outcome,
            };
            match connection.begin(LINK, &Vec::new(), false).await {
                Ok((response, _stream)) => grpc::read(response).await.outcome,
                Err(outcome) => outcome,
            }
        })
        .slow(),
        greeting("later-start", "a member's name and a start that is still to come", expect::TOLD, |hello, _| {
            hello.boot.number = u64::MAX;
        })
        .known("a start that a stranger claims is believed, and the member itself is refused from then on; \
                with TLS only a node may"),
    ]
}

/// A sender that greets as a member is accepted until the stream ends, or until busier ones replace
/// it.
const HEARD: &[Expected] = &[
    Expected::Answered,
    Expected::Refused,
    Expected::Code(tonic::Code::Unavailable),
];

#[expect(clippy::too_many_lines, reason = "a table")]
fn frames() -> Vec<Kind> {
    let as_member = |name: &str, what: &str, expects, frames: fn(&mut Shot) -> Vec<Bytes>| {
        stream(name, what, expects, move |shot| {
            (Some(shot.hello()), frames(shot))
        })
    };
    vec![
        as_member(
            "replayed-frame",
            "one frame ten times over",
            HEARD,
            |shot| vec![batch(&[read(shot), accept(shot, 3), prepare(shot, 5)]); 10],
        ),
        as_member(
            "reordered-frames",
            "frames in the opposite order",
            HEARD,
            |shot| {
                (1..20)
                    .rev()
                    .map(|at| batch(&[accept(shot, at), prepare(shot, at)]))
                    .collect()
            },
        ),
        as_member(
            "unasked-answers",
            "answers to questions that nobody asked",
            HEARD,
            |shot| {
                let mut unasked = about(shot, Message::Accepted(envelope::Empty {}));
                (unasked.operation, unasked.round) = (u64::MAX, u64::MAX);
                let mut later = about(shot, Message::LaterEpoch(envelope::Empty {}));
                (later.operation, later.round) = (u64::MAX, u64::MAX);
                vec![batch(&[unasked, later]); 10]
            },
        ),
        as_member(
            "cut-frame",
            "a frame that ends before its length",
            REFUSED_OR_REPLACED,
            |shot| {
                let whole = batch(&[read(shot)]);
                vec![whole.slice(..whole.len() - 3)]
            },
        ),
        as_member("random-frame", "frames of random bytes", HEARD, |shot| {
            (0..20)
                .map(|_| {
                    let part = shot.bytes(60);
                    let mut bytes = Vec::new();
                    varint(&mut bytes, part.len() as u64);
                    bytes.extend(part);
                    bytes.into()
                })
                .collect()
        }),
        as_member(
            "too-many-envelopes",
            "one message more than a frame may hold",
            REFUSED_OR_REPLACED,
            |_| vec![Bytes::from(vec![0; MAX_BATCH_ENVELOPES + 1])],
        ),
        as_member(
            "too-long-frame",
            "a frame one byte longer than it may be",
            REFUSED_OR_REPLACED,
            |_| vec![Bytes::from(vec![0xff; MAX_BATCH_LEN + 1])],
        ),
        as_member(
            "no-partition",
            "messages about partitions that are not there",
            HEARD,
            |shot| {
                let mut none = read(shot);
                none.partition = u32::MAX;
                vec![batch(&[none])]
            },
        ),
        as_member(
            "far-epoch",
            "messages of an epoch near the highest",
            HEARD,
            |shot| {
                let mut far = read(shot);
                far.epoch = u64::MAX;
                vec![batch(&[far])]
            },
        ),
        as_member(
            "far-ballot",
            "a promise asked for a ballot near the highest",
            HEARD,
            |shot| {
                let ballot = Version {
                    epoch: u64::MAX,
                    time: u64::MAX,
                    slot: u32::from(u16::MAX),
                };
                let (key, ballot) = (Some(key(shot)), Some(ballot));
                vec![batch(&[about(
                    shot,
                    Message::Prepare(envelope::Prepare {
                        key,
                        ballot,
                        doubted: None,
                    }),
                )])]
            },
        ),
        Kind::new(
            "link.slow-frame",
            "a frame that comes a byte at a time",
            HEARD,
            slow_frame,
        )
        .slow(),
    ]
}

const REFUSED_OR_REPLACED: &[Expected] = &[
    Expected::Code(tonic::Code::InvalidArgument),
    Expected::Code(tonic::Code::Unavailable),
];

async fn slow_frame(shot: Shot) -> Outcome {
    let connection = match Connection::open(shot.node().peer).await {
        Ok(connection) => connection,
        Err(outcome) => return outcome,
    };
    let (response, mut stream) = match connection.begin(LINK, &Vec::new(), false).await {
        Ok(begun) => begun,
        Err(outcome) => return outcome,
    };
    let hello = framed_message(&shot.hello().to_wire());
    let frame = framed(&[0x12, 4, 3, 0x28, 0x01, 0x02]);
    let mut bytes: Vec<Bytes> = vec![hello];
    bytes.extend(frame.chunks(1).map(Bytes::copy_from_slice));
    for piece in bytes {
        if push(&mut stream, piece).await.is_err() {
            break;
        }
        tokio::time::sleep(HOLD / 10).await;
    }
    // Busier streams may have replaced it meanwhile.
    let _ = stream.send_data(Bytes::new(), true);
    grpc::read(response).await.outcome
}

/// Encodes envelopes as a frame.
fn batch(envelopes: &[v1::Envelope]) -> Bytes {
    let mut bytes = Vec::new();
    for envelope in envelopes {
        let envelope = envelope.encode_to_vec();
        varint(&mut bytes, envelope.len() as u64);
        bytes.extend(envelope);
    }
    bytes.into()
}

/// A message about the partition of [`KEY`], in its epoch.
fn about(shot: &Shot, message: Message) -> v1::Envelope {
    let route = shot.target.route_of(KEY);
    v1::Envelope {
        partition: route.partition,
        epoch: route.epoch,
        operation: 1 << 60,
        round: 1,
        message: Some(message),
        ..v1::Envelope::default()
    }
}

fn key(shot: &Shot) -> envelope::Key {
    let digest = u128::from_be_bytes(shot.target.digest_of(KEY).0);
    envelope::Key {
        namespace: 0,
        digest_high: (digest >> 64) as u64,
        digest_low: digest as u64,
        key: Bytes::from_static(KEY),
    }
}

/// An old ballot of this epoch.
fn old(shot: &Shot, time: u64) -> Version {
    Version {
        epoch: shot.target.route_of(KEY).epoch,
        time,
        slot: 0,
    }
}

fn read(shot: &Shot) -> v1::Envelope {
    let read = envelope::Read {
        key: Some(key(shot)),
        want_value: true,
        closes: None,
    };
    about(shot, Message::Read(read))
}

fn prepare(shot: &Shot, time: u64) -> v1::Envelope {
    let prepare = envelope::Prepare {
        key: Some(key(shot)),
        ballot: Some(old(shot, time)),
        doubted: Some(old(shot, time)),
    };
    about(shot, Message::Prepare(prepare))
}

fn accept(shot: &Shot, time: u64) -> v1::Envelope {
    let record = envelope::Record {
        key: Some(key(shot)),
        version: Some(old(shot, time)),
        value: Some(envelope::Value {
            expires_at_ms: None,
            bytes: Some(Bytes::from_static(b"replayed")),
        }),
        origin: None,
    };
    let accept = envelope::Accept {
        record: Some(record),
        next: None,
    };
    about(shot, Message::Accept(accept))
}
