//! Requests with ambiguous lengths or lines.

use super::super::super::kind::Kind;
use super::{ONCE, REFUSED, WAITED_FOR, request, with};

/// A request that a proxy might not recognise.
const SMUGGLED: &str = "GET /ring HTTP/1.1\r\nHost: torc\r\n\r\n";

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn lengths() -> Vec<Kind> {
    let post = |headers: &str, body: &str| {
        format!("POST /healthz HTTP/1.1\r\nHost: torc\r\n{headers}\r\n{body}")
    };
    let chunked = "Transfer-Encoding: chunked\r\n";
    let hidden = format!("0\r\n\r\n{SMUGGLED}");
    vec![
        request(
            "get-te-cl",
            "chunks and a length, of a page that is there",
            ONCE,
            with(&format!("{chunked}Content-Length: 60\r\n"), &hidden),
        ),
        request(
            "get-body",
            "a page with a body that looks like a request",
            ONCE,
            with(&format!("Content-Length: {}\r\n", SMUGGLED.len()), SMUGGLED),
        ),
        request(
            "two-lengths",
            "two lengths that differ",
            REFUSED,
            post("Content-Length: 5\r\nContent-Length: 40\r\n", SMUGGLED),
        ),
        request(
            "length-list",
            "two lengths in one header",
            REFUSED,
            post("Content-Length: 5, 40\r\n", SMUGGLED),
        ),
        request(
            "te-cl",
            "chunks and a length that hides a request behind them",
            ONCE,
            post(
                &format!("{chunked}Content-Length: 60\r\n"),
                &format!("0\r\n\r\n{SMUGGLED}"),
            ),
        ),
        request(
            "cl-te",
            "a length and chunks that hide a request behind them",
            ONCE,
            post(
                &format!("Content-Length: 60\r\n{chunked}"),
                &format!("0\r\n\r\n{SMUGGLED}"),
            ),
        ),
        request(
            "te-te",
            "two codings, of which one is none",
            REFUSED,
            post(
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n",
                &format!("0\r\n\r\n{SMUGGLED}"),
            ),
        ),
        request(
            "te-identity",
            "a coding that was abolished",
            REFUSED,
            post("Transfer-Encoding: identity\r\n", SMUGGLED),
        ),
        request(
            "te-odd",
            "a coding with a tab before it",
            ONCE,
            post(
                "Transfer-Encoding:\x0bchunked\r\n",
                &format!("0\r\n\r\n{SMUGGLED}"),
            ),
        ),
        request(
            "te-http10",
            "chunks in HTTP/1.0",
            ONCE,
            format!("POST /healthz HTTP/1.0\r\n{chunked}\r\n0\r\n\r\n{SMUGGLED}"),
        ),
        request(
            "length-negative",
            "a length below zero",
            REFUSED,
            post("Content-Length: -1\r\n", ""),
        ),
        request(
            "length-plus",
            "a length with a sign",
            REFUSED,
            post("Content-Length: +5\r\n", "12345"),
        ),
        request(
            "length-hex",
            "a length in base 16",
            REFUSED,
            post("Content-Length: 0x10\r\n", ""),
        ),
        request(
            "length-overflow",
            "a length beyond 64 bits",
            REFUSED,
            post("Content-Length: 99999999999999999999999\r\n", ""),
        ),
        request(
            "length-highest",
            "the highest length there is, and no body",
            WAITED_FOR,
            post("Content-Length: 18446744073709551613\r\n", ""),
        ),
        request(
            "chunk-overflow",
            "a chunk beyond 64 bits",
            ONCE,
            post(chunked, "fffffffffffffffff\r\n"),
        ),
        request(
            "chunk-garbage",
            "a chunk whose length is none",
            ONCE,
            post(chunked, "zz\r\n\r\n"),
        ),
        request(
            "chunk-extension",
            "64 KiB behind the length of a chunk",
            ONCE,
            post(
                chunked,
                &format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(65_536)),
            ),
        ),
        request(
            "chunk-trailers",
            "a thousand trailers",
            ONCE,
            post(chunked, &format!("0\r\n{}\r\n", "t: v\r\n".repeat(1_000))),
        ),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn lines() -> Vec<Kind> {
    let many: Vec<String> = (0..1_000)
        .map(|header| format!("h{header}: v\r\n"))
        .collect();
    let many = many.concat();
    vec![
        request(
            "bare-cr",
            "a line that ends with CR alone",
            REFUSED,
            "GET /healthz HTTP/1.1\rHost: torc\r\r",
        ),
        request(
            "bare-lf",
            "lines that end with LF alone",
            ONCE,
            "GET /healthz HTTP/1.1\nHost: torc\n\n",
        ),
        request(
            "folded",
            "a header that goes on in the next line",
            REFUSED,
            with("X: a\r\n b\r\n", ""),
        ),
        request(
            "space-before-colon",
            "a space before the colon",
            REFUSED,
            with("Content-Length : 5\r\n", ""),
        ),
        request(
            "no-colon",
            "a header without a colon",
            REFUSED,
            with("garbage\r\n", ""),
        ),
        request(
            "nul",
            "a zero byte in a header",
            REFUSED,
            with("X: a\0b\r\n", ""),
        ),
        request(
            "many-headers",
            "a thousand headers",
            REFUSED,
            with(&many, ""),
        ),
        request(
            "long-header",
            "a header of 1 MiB",
            REFUSED,
            with(&format!("X: {}\r\n", "x".repeat(1 << 20)), ""),
        ),
        request(
            "endless-headers",
            "8 MiB of headers without an end",
            REFUSED,
            with(&"x: y\r\n".repeat(1_400_000), ""),
        ),
        request(
            "long-line",
            "a target of 1 MiB",
            REFUSED,
            format!(
                "GET /{} HTTP/1.1\r\nHost: torc\r\n\r\n",
                "x".repeat(1 << 20)
            ),
        ),
        request(
            "garbage",
            "bytes that no protocol begins with",
            REFUSED,
            [0xa5_u8; 300].to_vec(),
        ),
        request(
            "tls",
            "a TLS greeting",
            REFUSED,
            [&[0x16, 3, 1, 2, 0, 1, 0][..], &[0x5a; 200]].concat(),
        ),
        request(
            "http2",
            "the preface of HTTP/2",
            REFUSED,
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ),
        request(
            "version-9",
            "HTTP/9.9",
            REFUSED,
            "GET /healthz HTTP/9.9\r\nHost: torc\r\n\r\n",
        ),
        request(
            "http09",
            "a request without a version",
            REFUSED,
            "GET /healthz\r\n\r\n",
        ),
        request(
            "blank-lines",
            "a thousand empty lines before a request",
            ONCE,
            format!("{}{}", "\r\n".repeat(1_000), with("", "")),
        ),
    ]
}
