//! Silent or incomplete connections, up to a node's descriptor limit.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::time::sleep;

use super::super::connect::{connect_as_stranger, connect_bare_as_stranger, send_all};
use super::super::frames::{PREFACE, Wire};
use super::super::grpc::of_io;
use super::super::kind::{Expected, Kind, expect};
use super::super::outcome::{Done, Outcome};
use super::super::target::Shot;
use crate::hostile::DESCRIPTORS;

/// Longer than a node's time limit for a greeting and for HTTP/1 headers.
const GREETING_TIME: Duration = Duration::from_secs(25);
const CLOSED: &[Expected] = &[Expected::Closed];

pub(super) fn all() -> Vec<Kind> {
    vec![
        Kind::new(
            "sockets.silent",
            "a connection without a word",
            CLOSED,
            |shot| hung_up_on(shot, &[]),
        )
        .slow(),
        Kind::new(
            "sockets.half-preface",
            "ten bytes of the greeting",
            CLOSED,
            |shot| hung_up_on(shot, &PREFACE[..10]),
        )
        .slow(),
        Kind::new(
            "sockets.preface-alone",
            "the preface without SETTINGS",
            CLOSED,
            |shot| hung_up_on(shot, PREFACE),
        )
        .slow(),
        Kind::new(
            "sockets.slow-preface",
            "a byte of the greeting a second",
            CLOSED,
            slow_preface,
        )
        .slow(),
        Kind::new(
            "sockets.half-open",
            "a greeting, and the end of the writing side",
            expect::ENDED,
            half_open,
        )
        .slow(),
        Kind::new(
            "sockets.idle",
            "a greeting, and then nothing",
            &[Expected::Open],
            |shot| async move {
                match Wire::open(shot.node().grpc).await {
                    Ok(mut wire) => {
                        sleep(Duration::from_secs(3)).await;
                        wire.ending().await
                    }
                    Err(error) => of_io(&error),
                }
            },
        )
        .slow(),
        Kind::new(
            "sockets.hoard",
            "more silent connections to gRPC than a node may have files open",
            CLOSED,
            |shot| {
                let to = shot.node().grpc;
                hoard(to, DESCRIPTORS as usize + 100)
            },
        )
        .slow(),
        Kind::new(
            "sockets.hoard-http",
            "more silent connections to HTTP than a node may have files open",
            CLOSED,
            |shot| {
                let to = shot.node().http;
                hoard(to, DESCRIPTORS as usize + 100)
            },
        )
        .slow(),
    ]
}

async fn hung_up_on(shot: Shot, first: &[u8]) -> Outcome {
    let mut wire = match Wire::bare(shot.node().grpc).await {
        Ok(wire) => wire,
        Err(error) => return of_io(&error),
    };
    if let Err(outcome) = wire.send(first).await {
        return outcome;
    }
    wire.hangs_up(GREETING_TIME).await
}

async fn slow_preface(shot: Shot) -> Outcome {
    let mut wire = match Wire::bare(shot.node().grpc).await {
        Ok(wire) => wire,
        Err(error) => return of_io(&error),
    };
    for byte in PREFACE {
        if let Err(outcome) = wire.send(&[*byte]).await {
            return outcome;
        }
        sleep(Duration::from_millis(500)).await;
    }
    wire.hangs_up(GREETING_TIME).await
}

async fn half_open(shot: Shot) -> Outcome {
    let mut stream = match connect_as_stranger(shot.node().grpc).await {
        Ok(stream) => stream,
        Err(error) => return of_io(&error),
    };
    let greeting = [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    if let Err(error) = send_all(&mut stream, &greeting).await {
        return of_io(&error);
    }
    let _ = stream.shutdown().await;
    Wire::of(stream).hangs_up(GREETING_TIME).await
}

/// Opens this many silent connections: the node must close each, at once or after its time limit.
async fn hoard(to: SocketAddr, count: usize) -> Done {
    let mut held = Vec::new();
    for opened in 0..count {
        match connect_bare_as_stranger(to).await {
            Ok(stream) => held.push(Wire::of(Box::new(stream))),
            // The node closed this connection at once.
            Err(error) => match of_io(&error) {
                Outcome::Closed => {}
                outcome => {
                    return Done {
                        outcome,
                        requests: opened as u64 + 1,
                    };
                }
            },
        }
    }
    let waiting = held.iter_mut().map(|wire| wire.hangs_up(GREETING_TIME));
    let ends = futures::future::join_all(waiting).await;
    let other = ends.into_iter().find(|end| *end != Outcome::Closed);
    Done {
        outcome: other.unwrap_or(Outcome::Closed),
        requests: count as u64,
    }
}
