//! HTTP/1 on the port of health and metrics: ambiguous and endless requests.

mod texts;

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};

use super::super::connect::{Stream, connect, send_all};
use super::super::grpc::of_io;
use super::super::kind::{Expected, Kind};
use super::super::outcome::Outcome;
use super::super::target::Shot;

/// After this much silence, no more answers are expected.
const QUIET: Duration = Duration::from_millis(700);
/// Time limit for the first answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Longer than a node's time limit for headers.
const HEAD_TIME: Duration = Duration::from_secs(25);

const REFUSED: &[Expected] = &[Expected::HttpRefused, Expected::Closed];
const FOUND: &[Expected] = &[Expected::Http(200)];
const NOT_FOUND: &[Expected] = &[Expected::Http(404)];
/// Answered once or refused: no part of the request was read as a second one.
const ONCE: &[Expected] = &[Expected::Http(200), Expected::HttpRefused, Expected::Closed];
/// No answer is required yet.
const WAITED_FOR: &[Expected] = &[
    Expected::Open,
    Expected::Closed,
    Expected::Http(200),
    Expected::HttpRefused,
];

/// Sends one request, byte for byte.
fn request(
    name: &str,
    what: &str,
    expects: &'static [Expected],
    bytes: impl Into<Vec<u8>>,
) -> Kind {
    let bytes = bytes.into();
    Kind::new(format!("http.{name}"), what, expects, move |shot| {
        let bytes = bytes.clone();
        async move { send(&shot, &bytes).await }
    })
    .light()
}

/// `GET /healthz` with these headers, and the bytes after them.
fn with(headers: &str, behind: &str) -> String {
    format!("GET /healthz HTTP/1.1\r\nHost: torc\r\n{headers}\r\n{behind}")
}

async fn send(shot: &Shot, bytes: &[u8]) -> Outcome {
    let mut stream = match connect(shot.node().http).await {
        Ok(stream) => stream,
        Err(error) => return of_io(&error),
    };
    // A node may refuse before it has read everything.
    let _ = timeout(ANSWER, send_all(&mut stream, bytes)).await;
    answers(&mut stream).await
}

/// Reads until the node closes the connection or is silent.
async fn answers(stream: &mut Stream) -> Outcome {
    let mut heard = Vec::new();
    let mut buffer = vec![0; 16_384];
    let ended = loop {
        let time = if heard.is_empty() { ANSWER } else { QUIET };
        match timeout(time, stream.read(&mut buffer)).await {
            Ok(Ok(0)) => break Outcome::Closed,
            Ok(Ok(count)) => heard.extend_from_slice(&buffer[..count]),
            Ok(Err(error)) => break of_io(&error),
            Err(_) => break Outcome::Open,
        }
    };
    let heads = heard
        .windows(9)
        .filter(|window| *window == b"HTTP/1.1 " || *window == b"HTTP/1.0 ");
    match heads.count() {
        0 => ended,
        count => Outcome::Http(status(&heard).unwrap_or(0), count),
    }
}

fn status(heard: &[u8]) -> Option<u16> {
    std::str::from_utf8(heard.get(9..12)?).ok()?.parse().ok()
}

pub(super) fn all() -> Vec<Kind> {
    let mut kinds = texts::lengths();
    kinds.extend(texts::lines());
    kinds.extend(targets());
    kinds.extend(slow());
    kinds
}

fn targets() -> Vec<Kind> {
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: torc\r\n\r\n");
    let close = "Connection: close\r\n";
    vec![
        request(
            "absolute",
            "a target with another host",
            FOUND,
            format!("GET http://169.254.169.254/healthz HTTP/1.1\r\nHost: torc\r\n{close}\r\n"),
        ),
        request(
            "connect",
            "CONNECT to somewhere else",
            REFUSED,
            "CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: torc\r\n\r\n",
        ),
        request(
            "asterisk",
            "OPTIONS of the whole server",
            REFUSED,
            "OPTIONS * HTTP/1.1\r\nHost: torc\r\n\r\n",
        ),
        request(
            "traversal",
            "a path that leaves its root",
            NOT_FOUND,
            get("/../../etc/passwd"),
        ),
        request(
            "escapes",
            "a path of escapes",
            NOT_FOUND,
            get("/%2e%2e/%00/%ff"),
        ),
        request(
            "odd-query",
            "a query that no page knows",
            REFUSED,
            get("/hot-keys?window=1s&torc=1"),
        ),
        request(
            "query-garbage",
            "a query of escapes that are none",
            REFUSED,
            get("/hot-keys?window=%zz%"),
        ),
        request(
            "query-window",
            "a window longer than time",
            REFUSED,
            get("/hot-keys?window=99999999999999999999h"),
        ),
        request(
            "query-top",
            "all hot keys there can be",
            ONCE,
            get("/hot-keys?top=4294967295"),
        ),
        request(
            "method",
            "a method that no page has",
            REFUSED,
            "DELETE /status HTTP/1.1\r\nHost: torc\r\n\r\n",
        ),
        request(
            "method-unknown",
            "a method that does not exist",
            REFUSED,
            "TORC /status HTTP/1.1\r\nHost: torc\r\n\r\n",
        ),
        request("two-hosts", "two hosts", ONCE, with("Host: other\r\n", "")),
        request(
            "upgrade",
            "an upgrade to HTTP/2",
            FOUND,
            with(
                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
                "",
            ),
        ),
        request(
            "expect",
            "a body that waits to be asked for",
            WAITED_FOR,
            "POST /healthz HTTP/1.1\r\nHost: torc\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n",
        ),
    ]
}

fn slow() -> Vec<Kind> {
    let ended = &[Expected::Closed, Expected::HttpRefused];
    vec![
        Kind::new(
            "http.slow-headers",
            "a header a second",
            ended,
            |shot| async move {
                let mut stream = match connect(shot.node().http).await {
                    Ok(stream) => stream,
                    Err(error) => return of_io(&error),
                };
                let _ = send_all(&mut stream, b"GET /healthz HTTP/1.1\r\nHost: torc\r\n").await;
                for _ in 0..HEAD_TIME.as_secs() {
                    sleep(Duration::from_secs(1)).await;
                    if send_all(&mut stream, b"x: y\r\n").await.is_err() {
                        return Outcome::Closed;
                    }
                }
                answers(&mut stream).await
            },
        )
        .slow(),
        Kind::new(
            "http.silent",
            "a connection without a word",
            ended,
            |shot| async move {
                let mut stream = match connect(shot.node().http).await {
                    Ok(stream) => stream,
                    Err(error) => return of_io(&error),
                };
                let mut buffer = vec![0; 1_024];
                match timeout(HEAD_TIME, stream.read(&mut buffer)).await {
                    Ok(Ok(0)) => Outcome::Closed,
                    Ok(Ok(_)) => Outcome::Http(status(&buffer).unwrap_or(0), 1),
                    Ok(Err(error)) => of_io(&error),
                    Err(_) => Outcome::Silent,
                }
            },
        )
        .slow(),
        Kind::new(
            "http.slow-body",
            "a body that comes a byte at a time",
            WAITED_FOR,
            |shot| async move {
                let mut stream = match connect(shot.node().http).await {
                    Ok(stream) => stream,
                    Err(error) => return of_io(&error),
                };
                let _ = send_all(
                    &mut stream,
                    b"POST /status HTTP/1.1\r\nHost: torc\r\nContent-Length: 9999\r\n\r\n",
                )
                .await;
                for _ in 0..20 {
                    sleep(Duration::from_millis(100)).await;
                    if send_all(&mut stream, b"x").await.is_err() {
                        break;
                    }
                }
                answers(&mut stream).await
            },
        )
        .slow(),
        Kind::new(
            "http.unread",
            "400,000 requests whose answers nobody reads",
            &[Expected::Stalled, Expected::Closed],
            |shot| async move {
                let mut stream = match connect(shot.node().http).await {
                    Ok(stream) => stream,
                    Err(error) => return of_io(&error),
                };
                let requests = "GET /metrics HTTP/1.1\r\nHost: torc\r\n\r\n".repeat(400_000);
                match timeout(2 * ANSWER, send_all(&mut stream, requests.as_bytes())).await {
                    Ok(Ok(())) => Outcome::Wrong("all was read, and nothing answered".to_owned()),
                    Ok(Err(error)) => of_io(&error),
                    Err(_) => Outcome::Stalled,
                }
            },
        )
        .slow(),
        Kind::new(
            "http.half-closed",
            "a request, and the end of the writing side",
            ONCE,
            |shot| async move {
                let mut stream = match connect(shot.node().http).await {
                    Ok(stream) => stream,
                    Err(error) => return of_io(&error),
                };
                let _ = send_all(&mut stream, with("", "").as_bytes()).await;
                let _ = stream.shutdown().await;
                answers(&mut stream).await
            },
        ),
    ]
}
