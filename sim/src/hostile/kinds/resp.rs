//! Requests to the port of Redis clients that announce large sizes, never end, or cost much more
//! than their length.

use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::super::connect::{connect_as_stranger, send_all};
use super::super::grpc::of_io;
use super::super::kind::{Expected, Kind};
use super::super::outcome::Outcome;
use super::super::target::Shot;

/// Time limit for an answer, and for a node that does not read.
const ANSWER: Duration = Duration::from_secs(10);
/// After this much silence, no more answers are expected.
const QUIET: Duration = Duration::from_millis(700);
const CLOSED: &[Expected] = &[Expected::Closed];
const OPEN: &[Expected] = &[Expected::Open];
const BORNE: &[Expected] = &[Expected::Open, Expected::Closed, Expected::Stalled];

fn kind(
    name: &str,
    what: &str,
    expects: &'static [Expected],
    bytes: impl Fn() -> Vec<u8> + Send + Sync + 'static,
) -> Kind {
    Kind::new(format!("resp.{name}"), what, expects, move |shot| {
        let bytes = bytes();
        async move { send(&shot, &bytes).await }
    })
}

/// Sends bytes and reads the answers; the outcome is whether the connection stays open.
async fn send(shot: &Shot, bytes: &[u8]) -> Outcome {
    let stream = match connect_as_stranger(shot.node().resp).await {
        Ok(stream) => stream,
        Err(error) => return of_io(&error),
    };
    let (mut reader, mut writer) = tokio::io::split(stream);
    let sending = timeout(ANSWER, send_all(&mut writer, bytes));
    let reading = async {
        let mut buffer = vec![0; 64 << 10];
        let mut time = ANSWER;
        loop {
            match timeout(time, reader.read(&mut buffer)).await {
                Ok(Ok(0)) => break Outcome::Closed,
                Ok(Ok(_)) => time = QUIET,
                Ok(Err(error)) => break of_io(&error),
                Err(_) => break Outcome::Open,
            }
        }
    };
    // The node may close the connection before it has read everything.
    tokio::join!(sending, reading).1
}

/// Sends bytes without reading answers.
async fn unread(shot: Shot, again: Vec<u8>, times: usize) -> Outcome {
    let mut stream = match connect_as_stranger(shot.node().resp).await {
        Ok(stream) => stream,
        Err(error) => return of_io(&error),
    };
    for _ in 0..times {
        match timeout(Duration::from_secs(2), send_all(&mut stream, &again)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return of_io(&error),
            Err(_) => return Outcome::Stalled,
        }
    }
    Outcome::Open
}

pub(super) fn all() -> Vec<Kind> {
    let text = |text: &'static str| move || text.as_bytes().to_vec();
    vec![
        kind(
            "bulk-bomb",
            "an argument of 512 MiB is announced",
            CLOSED,
            text("*2\r\n$3\r\nGET\r\n$536870912\r\n"),
        ),
        kind(
            "array-bomb",
            "a million arguments are announced",
            CLOSED,
            text("*1048576\r\n"),
        ),
        kind(
            "negative",
            "an argument of a negative length",
            CLOSED,
            text("*2\r\n$3\r\nGET\r\n$-5\r\n"),
        ),
        kind(
            "nested",
            "an array within an array, a thousand deep",
            CLOSED,
            || b"*1\r\n".repeat(1_000),
        ),
        kind(
            "endless-line",
            "a line of a megabyte without an end",
            CLOSED,
            || vec![b'a'; 1 << 20],
        ),
        kind(
            "large-unfinished",
            "15 MiB of a request of 16, and then nothing",
            OPEN,
            || [&b"*2\r\n$3\r\nGET\r\n$16000000\r\n"[..], &vec![7; 15 << 20]].concat(),
        )
        .slow(),
        kind(
            "empty-arguments",
            "200 requests of 2,000 empty arguments",
            BORNE,
            || {
                let request = [&b"*2000\r\n"[..], &b"$0\r\n\r\n".repeat(2_000)].concat();
                request.repeat(200)
            },
        ),
        kind("pattern", "a pattern of a thousand stars", OPEN, || {
            let pattern = "a*".repeat(1_000) + "b";
            format!("SCAN 0 COUNT 10000 MATCH {pattern}\r\n").into_bytes()
        }),
        kind("random", "random bytes behind a star", BORNE, || {
            [&b"*3\r\n$3\r\nSET\r\n$9\r\n"[..], &[0xff; 40_000]].concat()
        }),
        Kind::new(
            "resp.unread",
            "20,000 gets of a long value whose answers nobody reads",
            &[Expected::Stalled, Expected::Closed, Expected::Open],
            |shot| unread(shot, b"GET hostile/long\r\n".repeat(100), 200),
        )
        .slow(),
    ]
}
