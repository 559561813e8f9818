//! Single invalid HTTP/2 frames.

use super::super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PREFACE, PRIORITY,
    PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, Wire, call_headers, frame, head, integer,
    literal, setting,
};
use super::super::grpc::of_io;
use super::super::kind::{Expected, Kind, expect};

const GET: &str = "/torc.v1.Kv/Get";
/// A call with invalid headers is answered or reset.
const TOLD_OR_CUT: &[Expected] = &[
    Expected::Answered,
    Expected::Reset,
    Expected::GoAway,
    Expected::Closed,
];

/// Sends bytes after the greeting.
fn after(
    name: &str,
    what: &str,
    expects: &'static [Expected],
    bytes: impl Fn() -> Vec<u8> + Send + Sync + 'static,
) -> Kind {
    Kind::new(format!("h2.{name}"), what, expects, move |shot| {
        let bytes = bytes();
        async move {
            match Wire::open(shot.node().grpc).await {
                Ok(mut wire) => wire.send_and_end(&bytes).await,
                Err(error) => of_io(&error),
            }
        }
    })
    .light()
}

/// Sends bytes instead of the greeting.
fn instead(name: &str, what: &str, bytes: Vec<u8>) -> Kind {
    Kind::new(format!("h2.{name}"), what, expect::ENDED, move |shot| {
        let bytes = bytes.clone();
        async move {
            match Wire::bare(shot.node().grpc).await {
                Ok(mut wire) => wire.send_and_end(&bytes).await,
                Err(error) => of_io(&error),
            }
        }
    })
    .light()
}

pub(super) fn all() -> Vec<Kind> {
    let mut kinds = greetings();
    kinds.extend(streams());
    kinds.extend(windows_and_settings());
    kinds.extend(headers());
    kinds
}

fn greetings() -> Vec<Kind> {
    let tls = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[0x5a; 200]].concat();
    let mut shifted = PREFACE.to_vec();
    shifted[20] ^= 1;
    shifted.extend([0; 64]);
    vec![
        instead(
            "garbage",
            "bytes that no protocol begins with",
            vec![0xa5; 300],
        ),
        instead(
            "http1",
            "HTTP/1.1 at the door of HTTP/2",
            b"GET / HTTP/1.1\r\nHost: torc\r\nX: yyyyyyyyyyyyyyyyyy\r\n\r\n".to_vec(),
        ),
        instead("tls", "a TLS greeting", tls),
        instead("preface-flipped", "a preface with one bit flipped", shifted),
        instead(
            "no-settings",
            "a first frame that is not SETTINGS",
            [PREFACE, &frame(PING, 0, 0, &[0; 8])].concat(),
        )
        // The h2 crate accepts this.
        .or(expect::BORNE),
    ]
}

fn streams() -> Vec<Kind> {
    use expect::{CUT, ENDED};
    let open = |stream, flags| frame(HEADERS, flags | END_HEADERS, stream, &call_headers(GET));
    vec![
        after("data-on-connection", "DATA on stream 0", ENDED, || {
            frame(DATA, 0, 0, &[1; 10])
        }),
        after(
            "headers-on-connection",
            "HEADERS on stream 0",
            ENDED,
            move || open(0, 0),
        ),
        after(
            "even-stream",
            "a stream of the server's",
            ENDED,
            move || open(2, 0),
        ),
        after(
            "older-stream",
            "a stream below one that was opened",
            ENDED,
            move || [open(9, END_STREAM), open(3, END_STREAM)].concat(),
        ),
        after(
            "data-on-idle",
            "DATA on a stream that was never opened",
            CUT,
            || frame(DATA, 0, 7, &[1; 10]),
        ),
        after(
            "data-on-closed",
            "DATA on a stream that was ended",
            CUT,
            move || [open(1, END_STREAM), frame(DATA, 0, 1, &[1; 10])].concat(),
        ),
        after(
            "reset-idle",
            "RST_STREAM of a stream that was never opened",
            CUT,
            || frame(RST_STREAM, 0, 7, &[0, 0, 0, 8]),
        ),
        after(
            "reset-short",
            "RST_STREAM of three bytes",
            ENDED,
            move || [open(1, 0), frame(RST_STREAM, 0, 1, &[0; 3])].concat(),
        ),
        after("push", "PUSH_PROMISE from a client", ENDED, move || {
            [
                open(1, 0),
                frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
            ]
            .concat()
        }),
        after(
            "padding",
            "padding longer than its frame",
            ENDED,
            move || [open(1, 0), frame(DATA, PADDED, 1, &[200, 1, 2])].concat(),
        ),
        after(
            "priority-self",
            "a stream that depends on itself",
            expect::BORNE,
            || frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 16]),
        ),
        after("goaway-stream", "GOAWAY on a stream", ENDED, || {
            frame(GOAWAY, 0, 1, &[0; 8])
        }),
        after(
            "continuation-alone",
            "CONTINUATION of nothing",
            ENDED,
            || frame(CONTINUATION, END_HEADERS, 1, &[0x83]),
        ),
        after(
            "frame-between",
            "DATA between the parts of a header list",
            ENDED,
            || {
                let headers = frame(HEADERS, 0, 1, &call_headers(GET));
                [headers, frame(DATA, 0, 1, &[1; 10])].concat()
            },
        ),
        after(
            "last-stream",
            "the highest stream there is",
            TOLD_OR_BORNE,
            move || open(0x7fff_ffff, END_STREAM),
        ),
    ]
}

const TOLD_OR_BORNE: &[Expected] = &[
    Expected::Answered,
    Expected::Reset,
    Expected::GoAway,
    Expected::Closed,
    Expected::Open,
];

fn windows_and_settings() -> Vec<Kind> {
    use expect::{CUT, ENDED};
    let most = [0x7f, 0xff, 0xff, 0xff];
    vec![
        after("frame-too-long", "a frame of 16 MiB", ENDED, || {
            let mut bytes = head(0x00ff_ffff, DATA, 0, 1);
            bytes.resize(100_000, 0);
            bytes
        }),
        after("window-zero", "WINDOW_UPDATE by nothing", ENDED, || {
            frame(WINDOW_UPDATE, 0, 0, &[0; 4])
        }),
        after(
            "window-overflow",
            "WINDOW_UPDATE beyond the highest window",
            ENDED,
            move || {
                [
                    frame(WINDOW_UPDATE, 0, 0, &most),
                    frame(WINDOW_UPDATE, 0, 0, &most),
                ]
                .concat()
            },
        ),
        after(
            "window-idle",
            "WINDOW_UPDATE of a stream that was never opened",
            CUT,
            move || frame(WINDOW_UPDATE, 0, 7, &most),
        ),
        after(
            "settings-window",
            "a window beyond the highest",
            ENDED,
            || frame(SETTINGS, 0, 0, &setting(4, u32::MAX)),
        ),
        after("settings-frame", "frames of no length", ENDED, || {
            frame(SETTINGS, 0, 0, &setting(5, 0))
        }),
        after(
            "settings-push",
            "a setting that is neither 0 nor 1",
            ENDED,
            || frame(SETTINGS, 0, 0, &setting(2, 9)),
        ),
        after("settings-odd", "SETTINGS of seven bytes", ENDED, || {
            frame(SETTINGS, 0, 0, &[0; 7])
        }),
        after("settings-stream", "SETTINGS on a stream", ENDED, || {
            frame(SETTINGS, 0, 3, &[])
        }),
        after("ping-short", "PING of seven bytes", ENDED, || {
            frame(PING, 0, 0, &[0; 7])
        }),
        after("ping-stream", "PING on a stream", ENDED, || {
            frame(PING, 0, 3, &[0; 8])
        }),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn headers() -> Vec<Kind> {
    use expect::{CUT, ENDED};
    let with = |more: fn(&mut Vec<u8>)| {
        let mut block = call_headers(GET);
        more(&mut block);
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)
    };
    vec![
        after("hpack-garbage", "a header list that is none", ENDED, || {
            frame(HEADERS, END_HEADERS, 1, &[0xff; 100])
        }),
        after("hpack-index", "a header beyond both tables", ENDED, || {
            let mut block = Vec::new();
            integer(&mut block, 0x80, 7, 4_000_000);
            frame(HEADERS, END_HEADERS, 1, &block)
        }),
        after(
            "hpack-table",
            "a table larger than was agreed",
            ENDED,
            || {
                let mut block = Vec::new();
                integer(&mut block, 0x20, 5, 1 << 30);
                frame(HEADERS, END_HEADERS, 1, &block)
            },
        ),
        after(
            "hpack-integer",
            "a number of a hundred bytes",
            ENDED,
            || {
                frame(
                    HEADERS,
                    END_HEADERS,
                    1,
                    &[0xff; 1]
                        .iter()
                        .copied()
                        .chain([0x80; 100])
                        .collect::<Vec<_>>(),
                )
            },
        ),
        after(
            "hpack-bomb",
            "a long header, kept and named 10,000 times",
            TOLD_OR_CUT,
            || {
                let mut block = call_headers(GET);
                // Added to the dynamic table, then referenced by its index.
                block.push(0x40);
                integer(&mut block, 0, 7, 1);
                block.push(b'x');
                integer(&mut block, 0, 7, 3_000);
                block.extend([b'y'; 3_000]);
                block.extend([0xbe; 10_000]);
                frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)
            },
        ),
        after(
            "headers-long",
            "15 KiB of headers in one frame, 64 KiB in all",
            TOLD_OR_CUT,
            || {
                let mut block = call_headers(GET);
                literal(&mut block, None, "x", &"y".repeat(64_000));
                let mut frames = frame(HEADERS, 0, 1, &block[..15_000]);
                frames.extend(frame(CONTINUATION, 0, 1, &block[15_000..30_000]));
                frames.extend(frame(CONTINUATION, 0, 1, &block[30_000..45_000]));
                frames.extend(frame(CONTINUATION, END_HEADERS, 1, &block[45_000..60_000]));
                frames
            },
        ),
        after("header-upper", "a header in capitals", CUT, move || {
            with(|block| literal(block, None, "X-Upper", "1"))
        }),
        after("header-connection", "a header of HTTP/1", CUT, move || {
            with(|block| literal(block, None, "connection", "keep-alive"))
        }),
        after(
            "header-pseudo-late",
            "a pseudo-header behind the others",
            CUT,
            move || with(|block| literal(block, None, ":path", "/other")),
        ),
        after(
            "header-pseudo-unknown",
            "a pseudo-header that does not exist",
            CUT,
            || {
                let mut block = Vec::new();
                literal(&mut block, None, ":torc", "1");
                block.extend(call_headers(GET));
                frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)
            },
        ),
        after(
            "header-length",
            "a content-length that is not the body's",
            CUT,
            || {
                let mut block = call_headers(GET);
                literal(&mut block, None, "content-length", "1000");
                [
                    frame(HEADERS, END_HEADERS, 1, &block),
                    frame(DATA, END_STREAM, 1, &[0; 5]),
                ]
                .concat()
            },
        ),
        after(
            "header-newline",
            "a header with a line break in it",
            CUT,
            move || with(|block| literal(block, None, "x", "a\r\nhost: b")),
        ),
        after("no-path", "a call without a path", TOLD_OR_CUT, || {
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x83, 0x86])
        }),
    ]
}
