//! Floods of small frames that cost a client less than a careless node.

use super::super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PRIORITY, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, Wire, call_headers, frame, setting,
};
use super::super::grpc::of_io;
use super::super::kind::{Expected, Kind, expect};
use super::super::outcome::{Done, Outcome};
use super::super::target::Shot;

const GET: &str = "/torc.v1.Kv/Get";
const SESSION: &str = "/torc.v1.Kv/Session";
const BORNE_OR_ANSWERED: &[Expected] = &[
    Expected::Answered,
    Expected::Open,
    Expected::Stalled,
    Expected::Reset,
    Expected::GoAway,
    Expected::Closed,
];

/// A beginning, followed by the same bytes repeatedly.
fn flood(
    name: &str,
    what: &str,
    expects: &'static [Expected],
    (begin, again, times): (Vec<u8>, Vec<u8>, usize),
) -> Kind {
    Kind::new(format!("flood.{name}"), what, expects, move |shot| {
        let bytes = [&begin[..], &again.repeat(times)].concat();
        async move { send(&shot, bytes).await }
    })
}

async fn send(shot: &Shot, bytes: Vec<u8>) -> Outcome {
    match Wire::open(shot.node().grpc).await {
        Ok(mut wire) => wire.send_and_end(&bytes).await,
        Err(error) => of_io(&error),
    }
}

/// Sends frames that open so many streams, and counts those that the node has handled for sure.
async fn send_streams(shot: &Shot, bytes: Vec<u8>, streams: u32) -> Done {
    let mut wire = match Wire::open(shot.node().grpc).await {
        Ok(wire) => wire,
        Err(error) => return of_io(&error).into(),
    };
    let outcome = wire.send_and_end(&bytes).await;
    let handled = match (&outcome, wire.last_stream()) {
        // Streams of clients have odd numbers.
        (_, Some(last)) if last < 2 * streams => last.div_ceil(2),
        (Outcome::Open | Outcome::Grpc(_) | Outcome::Reset(_), _) => streams,
        // How many were read is not known.
        _ => 1,
    };
    Done {
        outcome,
        requests: u64::from(handled.max(1)),
    }
}

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn all() -> Vec<Kind> {
    use expect::{BORNE, ENDED};
    let none = Vec::new;
    let open = |path: &str| frame(HEADERS, END_HEADERS, 1, &call_headers(path));
    let window = |by: u32| frame(WINDOW_UPDATE, 0, 0, &by.to_be_bytes());
    vec![
        flood(
            "settings",
            "50,000 SETTINGS, unread",
            BORNE,
            (none(), frame(SETTINGS, 0, 0, &setting(4, 65_535)), 50_000),
        ),
        flood(
            "settings-table",
            "20,000 changes of the header table",
            BORNE,
            (
                none(),
                [
                    frame(SETTINGS, 0, 0, &setting(1, 0)),
                    frame(SETTINGS, 0, 0, &setting(1, 4_096)),
                ]
                .concat(),
                10_000,
            ),
        ),
        flood(
            "ping",
            "50,000 PINGs, unread",
            BORNE,
            (none(), frame(PING, 0, 0, &[7; 8]), 50_000),
        ),
        flood(
            "window",
            "50,000 WINDOW_UPDATEs by one",
            BORNE,
            (none(), window(1), 50_000),
        ),
        flood(
            "priority",
            "50,000 PRIORITYs of one stream",
            BORNE,
            (none(), frame(PRIORITY, 0, 9, &[0, 0, 0, 1, 16]), 50_000),
        ),
        flood(
            "unknown",
            "50,000 frames of a type that does not exist",
            BORNE,
            (none(), frame(0xfa, 0, 0, &[1; 4]), 50_000),
        ),
        flood(
            "goaway",
            "10,000 GOAWAYs",
            BORNE,
            (none(), frame(GOAWAY, 0, 0, &[0; 8]), 10_000),
        ),
        flood(
            "continuation",
            "a header list of 5,000 frames without an end",
            ENDED,
            (
                frame(HEADERS, 0, 1, &call_headers(GET)),
                frame(CONTINUATION, 0, 1, &[0, 1, b'x', 1, b'y']),
                5_000,
            ),
        ),
        flood(
            "continuation-empty",
            "50,000 empty frames of a header list",
            ENDED,
            (
                frame(HEADERS, 0, 1, &call_headers(GET)),
                frame(CONTINUATION, 0, 1, &[]),
                50_000,
            ),
        ),
        flood(
            "empty-data",
            "50,000 frames of a body with nothing in them",
            BORNE_OR_ANSWERED,
            (open(SESSION), frame(DATA, 0, 1, &[]), 50_000),
        ),
        flood(
            "small-data",
            "50,000 frames of a body with a byte each",
            BORNE_OR_ANSWERED,
            (open(SESSION), frame(DATA, 0, 1, &[0]), 50_000),
        ),
        Kind::new(
            "flood.rapid-reset",
            "2,000 calls, each given up at once",
            ENDED,
            rapid_reset,
        ),
        Kind::new(
            "flood.reset-of-answers",
            "2,000 calls that reset what the node would refuse",
            BORNE_OR_ANSWERED,
            made_to_reset,
        ),
        Kind::new(
            "flood.streams",
            "3,000 streams that never end, twelve times as many as there may be",
            BORNE_OR_ANSWERED,
            |shot| async move {
                let headers = call_headers(GET);
                let all =
                    (0..3_000).map(|call| frame(HEADERS, END_HEADERS, 2 * call + 1, &headers));
                send_streams(&shot, all.collect::<Vec<_>>().concat(), 3_000).await
            },
        ),
        Kind::new(
            "flood.gets",
            "2,000 calls without waiting for answers, the node's table of headers unused",
            BORNE_OR_ANSWERED,
            |shot| async move {
                let headers = call_headers(GET);
                let call = |call: u32| {
                    let stream = 2 * call + 1;
                    let body = frame(DATA, END_STREAM, stream, &[0, 0, 0, 0, 3, 0x12, 1, b'k']);
                    [frame(HEADERS, END_HEADERS, stream, &headers), body].concat()
                };
                let all = (0..2_000).map(call).collect::<Vec<_>>().concat();
                send_streams(&shot, all, 2_000).await
            },
        ),
        Kind::new(
            "flood.beyond-window",
            "24 MiB to a call that reads one message",
            BORNE_OR_ANSWERED,
            beyond_window,
        ),
        Kind::new(
            "flood.connections",
            "100 connections, each closed after its greeting",
            expect::BORNE,
            |shot| async move {
                for opened in 0..99 {
                    if let Err(error) = Wire::open(shot.node().grpc).await {
                        let outcome = of_io(&error);
                        return Done {
                            outcome,
                            requests: opened + 1,
                        };
                    }
                }
                Done {
                    outcome: send(&shot, Vec::new()).await,
                    requests: 100,
                }
            },
        ),
    ]
}

async fn rapid_reset(shot: Shot) -> Done {
    let headers = call_headers(GET);
    let mut all = Vec::new();
    for call in 0..2_000 {
        let stream = 2 * call + 1;
        all.extend(frame(HEADERS, END_HEADERS, stream, &headers));
        all.extend(frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
    }
    send_streams(&shot, all, 2_000).await
}

/// Invalid streams that the node itself must reset ("MadeYouReset").
async fn made_to_reset(shot: Shot) -> Done {
    let headers = call_headers(GET);
    let mut all = Vec::new();
    for call in 0..2_000 {
        let stream = 2 * call + 1;
        all.extend(frame(HEADERS, END_HEADERS, stream, &headers));
        all.extend(frame(WINDOW_UPDATE, 0, stream, &[0; 4]));
    }
    send_streams(&shot, all, 2_000).await
}

async fn beyond_window(shot: Shot) -> Outcome {
    let mut all = frame(
        HEADERS,
        END_HEADERS,
        1,
        &call_headers("/grpc.health.v1.Health/Watch"),
    );
    all.extend(frame(DATA, 0, 1, &[0; 5]));
    for _ in 0..24 * 64 {
        all.extend(frame(DATA, 0, 1, &[0; 16_384]));
    }
    send(&shot, all).await
}
