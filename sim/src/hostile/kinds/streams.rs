//! Calls that start correctly and then misbehave: slow, unread, abandoned.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tokio::time::{sleep, timeout};
use torc_proto::v1::{self, session_request};

use super::super::frames::{
    DATA, END_HEADERS, END_STREAM, HEADERS, Wire, call_headers, frame, setting,
};
use super::super::grpc::{Connection, framed, framed_message, of_io, push};
use super::super::kind::{Kind, expect};
use super::super::outcome::Outcome;
use super::super::target::{LONG_KEY, Shot};

const GET: &str = "/torc.v1.Kv/Get";
const SCAN: &str = "/torc.v1.Kv/Scan";
const SESSION: &str = "/torc.v1.Kv/Session";
const BATCH_PUT: &str = "/torc.v1.Kv/BatchPut";
const BATCH_GET: &str = "/torc.v1.Kv/BatchGet";
/// Time for which a connection is left unchanged.
const HOLD: Duration = Duration::from_secs(2);
/// The HTTP/2 setting for the window of a stream.
const WINDOW: u16 = 4;

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn all() -> Vec<Kind> {
    vec![
        Kind::new(
            "slow.body",
            "a message that comes a byte at a time",
            expect::BORNE,
            slow_body,
        )
        .slow(),
        Kind::new(
            "slow.reader",
            "a scan of which a byte is read at a time",
            expect::BORNE,
            |shot| {
                unread(
                    shot,
                    1,
                    1,
                    SCAN,
                    framed_message(&v1::ScanRequest::default()),
                )
            },
        )
        .slow(),
        Kind::new(
            "unread.scan",
            "50 scans that nobody reads",
            expect::BORNE,
            |shot| {
                unread(
                    shot,
                    0,
                    50,
                    SCAN,
                    framed_message(&v1::ScanRequest::default()),
                )
            },
        )
        .slow(),
        Kind::new(
            "unread.gets",
            "32 values of 1 MiB that nobody reads",
            expect::BORNE,
            |shot| unread(shot, 0, 32, GET, long_get()),
        )
        .slow(),
        Kind::new(
            "unread.trickle",
            "32 values of 1 MiB that are read a byte at a time",
            expect::BORNE,
            |shot| unread(shot, 1, 32, GET, long_get()),
        )
        .slow(),
        Kind::new(
            "unread.batches",
            "8 batches of long values that nobody reads",
            expect::BORNE,
            |shot| unread(shot, 0, 8, BATCH_GET, long_batch()),
        )
        .slow(),
        Kind::new(
            "unread.session",
            "1,000 operations of a session whose answers nobody reads",
            expect::BORNE,
            |shot| unread(shot, 0, 1, SESSION, operations(1_000)),
        )
        .slow(),
        Kind::new(
            "unread.trickled-gets",
            "1,000 values of 1 MiB on a connection, of each a byte read",
            expect::BORNE,
            |shot| unread(shot, 1, 1_000, GET, long_get()),
        )
        .slow(),
        Kind::new(
            "unfinished.messages",
            "16 messages of 1 MiB that lack their last byte",
            expect::BORNE,
            |shot| unfinished(shot, 16, 1 << 20),
        )
        .slow(),
        Kind::new(
            "unfinished.announced",
            "500 messages that announce 16 MiB and send nothing",
            expect::BORNE,
            announced,
        )
        .slow(),
        Kind::new(
            "unfinished.many-messages",
            "64 messages of 15 MiB that lack their last byte",
            expect::BORNE,
            |shot| unfinished(shot, 64, 15 << 20),
        )
        .slow(),
        Kind::new(
            "abandoned.scan",
            "scans that are given up after their first page",
            expect::ANSWERED,
            abandoned_scans,
        )
        .slow(),
        Kind::new(
            "abandoned.session",
            "sessions that are given up with all in flight",
            expect::ANSWERED,
            abandoned_sessions,
        ),
        Kind::new(
            "abandoned.connection",
            "a connection that ends with 100 calls in flight",
            expect::ANSWERED,
            abandoned_connection,
        ),
        Kind::new(
            "half-closed.session",
            "a session without an operation",
            expect::ANSWERED,
            |shot| async move {
                match Connection::open(shot.node().grpc).await {
                    Ok(connection) => {
                        connection
                            .call(SESSION, &Vec::new(), Bytes::new())
                            .await
                            .outcome
                    }
                    Err(outcome) => outcome,
                }
            },
        ),
    ]
}

fn long_get() -> Bytes {
    framed_message(&v1::GetRequest {
        key: Bytes::from_static(LONG_KEY.as_bytes()),
        ..v1::GetRequest::default()
    })
}

fn long_batch() -> Bytes {
    let get = v1::GetRequest {
        key: Bytes::from_static(LONG_KEY.as_bytes()),
        ..v1::GetRequest::default()
    };
    framed_message(&v1::BatchGetRequest {
        items: vec![get; 8],
    })
}

fn operations(count: u64) -> Bytes {
    let mut all = Vec::new();
    for id in 0..count {
        let get = v1::GetRequest {
            key: Bytes::from_static(b"hostile/k"),
            ..v1::GetRequest::default()
        };
        let request = v1::SessionRequest {
            id,
            operation: Some(session_request::Operation::Get(get)),
            timeout_ms: 1_000,
            ..v1::SessionRequest::default()
        };
        all.extend_from_slice(&framed(&request.encode_to_vec()));
    }
    all.into()
}

async fn slow_body(shot: Shot) -> Outcome {
    let mut wire = match Wire::open(shot.node().grpc).await {
        Ok(wire) => wire,
        Err(error) => return of_io(&error),
    };
    let mut begun = frame(HEADERS, END_HEADERS, 1, &call_headers(BATCH_PUT));
    begun.extend(frame(DATA, 0, 1, &[0, 0, 0x10, 0, 0]));
    if let Err(outcome) = wire.send(&begun).await {
        return outcome;
    }
    for _ in 0..20 {
        sleep(HOLD / 20).await;
        if let Err(outcome) = wire.send(&frame(DATA, 0, 1, &[0x0a])).await {
            return outcome;
        }
    }
    wire.ending().await
}

/// This many calls on a connection whose streams may receive this many bytes, held for a while.
async fn unread(shot: Shot, window: u32, calls: u32, path: &str, body: Bytes) -> Outcome {
    let settings = setting(WINDOW, window);
    let mut wire = match Wire::greet(shot.node().grpc, &settings).await {
        Ok(wire) => wire,
        Err(error) => return of_io(&error),
    };
    let headers = call_headers(path);
    for call in 0..calls {
        let stream = 2 * call + 1;
        let mut request = frame(HEADERS, END_HEADERS, stream, &headers);
        let mut pieces = body.chunks(16_384).peekable();
        while let Some(piece) = pieces.next() {
            let flags = if pieces.peek().is_none() {
                END_STREAM
            } else {
                0
            };
            request.extend(frame(DATA, flags, stream, piece));
        }
        if let Err(outcome) = wire.send(&request).await {
            return outcome;
        }
    }
    sleep(HOLD).await;
    match wire.ending().await {
        // The answers have begun, and the node continues to serve.
        Outcome::Grpc(_) => Outcome::Open,
        other => other,
    }
}

/// This many messages of this length, each without its last byte.
async fn unfinished(shot: Shot, count: usize, len: usize) -> Outcome {
    let connection = match Connection::open(shot.node().grpc).await {
        Ok(connection) => connection,
        Err(outcome) => return outcome,
    };
    let mut message = vec![0];
    message.extend_from_slice(&(len as u32).to_be_bytes());
    message.resize(len + 4, 0x0a);
    let message = Bytes::from(message);
    let mut held = Vec::new();
    for _ in 0..count {
        let (response, mut stream) = match connection.begin(BATCH_PUT, &Vec::new(), false).await {
            Ok(begun) => begun,
            Err(outcome) => return outcome,
        };
        match timeout(2 * HOLD, push(&mut stream, message.clone())).await {
            Ok(Ok(())) => held.push((response, stream)),
            Ok(Err(error)) => return super::super::grpc::of_h2(&error),
            Err(_) => return Outcome::Stalled,
        }
    }
    sleep(HOLD / 2).await;
    Outcome::Open
}

async fn announced(shot: Shot) -> Outcome {
    let mut wire = match Wire::open(shot.node().grpc).await {
        Ok(wire) => wire,
        Err(error) => return of_io(&error),
    };
    let headers = call_headers(BATCH_PUT);
    let mut all = Vec::new();
    for call in 0..500 {
        let stream = 2 * call + 1;
        all.extend(frame(HEADERS, END_HEADERS, stream, &headers));
        all.extend(frame(DATA, 0, stream, &[0, 0x01, 0, 0, 0]));
    }
    if let Err(outcome) = wire.send(&all).await {
        return outcome;
    }
    sleep(HOLD / 2).await;
    wire.ending().await
}

async fn abandoned_scans(shot: Shot) -> Outcome {
    let body = framed_message(&v1::ScanRequest::default());
    for _ in 0..10 {
        let connection = match Connection::open(shot.node().grpc).await {
            Ok(connection) => connection,
            Err(outcome) => return outcome,
        };
        let begun = connection.begin(SCAN, &Vec::new(), false).await;
        let (response, mut stream) = match begun {
            Ok(begun) => begun,
            Err(outcome) => return outcome,
        };
        if stream.send_data(body.clone(), true).is_ok()
            && let Ok(response) = response.await
        {
            // A page, or a refusal for lack of permits.
            let _ = response.into_body().data().await;
        }
        stream.send_reset(h2::Reason::CANCEL);
    }
    alive(&shot).await
}

async fn abandoned_sessions(shot: Shot) -> Outcome {
    for _ in 0..5 {
        let connection = match Connection::open(shot.node().grpc).await {
            Ok(connection) => connection,
            Err(outcome) => return outcome,
        };
        match connection.begin(SESSION, &Vec::new(), false).await {
            Ok((_, mut stream)) => {
                let _ = push(&mut stream, operations(200)).await;
                stream.send_reset(h2::Reason::CANCEL);
            }
            Err(outcome) => return outcome,
        }
    }
    alive(&shot).await
}

async fn abandoned_connection(shot: Shot) -> Outcome {
    let mut wire = match Wire::open(shot.node().grpc).await {
        Ok(wire) => wire,
        Err(error) => return of_io(&error),
    };
    let (headers, body) = (call_headers(GET), long_get());
    let mut all = Vec::new();
    for call in 0..100 {
        let stream = 2 * call + 1;
        all.extend(frame(HEADERS, END_HEADERS, stream, &headers));
        all.extend(frame(DATA, END_STREAM, stream, &body));
    }
    // Dropping it unread sends a reset to the node.
    let _ = wire.send(&all).await;
    drop(wire);
    alive(&shot).await
}

/// Whether the node answers another client.
async fn alive(shot: &Shot) -> Outcome {
    let body = framed_message(&v1::GetRequest {
        key: Bytes::from_static(b"hostile/k"),
        ..v1::GetRequest::default()
    });
    match Connection::open(shot.node().grpc).await {
        Ok(connection) => connection.call(GET, &Vec::new(), body).await.outcome,
        Err(outcome) => outcome,
    }
}
