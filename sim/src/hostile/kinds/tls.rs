//! What comes before the end of a TLS handshake. A node without TLS takes it for a wrong greeting.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::super::Error;
use super::super::connect::{connect_bare_as_stranger, connect_impostor, connect_tls};
use super::super::frames::PREFACE;
use super::super::grpc::of_io;
use super::super::kind::{Expected, Kind, expect};
use super::super::outcome::{Done, Outcome};
use super::super::secure::foreign;
use super::super::target::Shot;

/// Longer than a node's time limit for a handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(25);
/// Time limit for a node that does not read.
const STALL: Duration = Duration::from_secs(5);
const CLOSED: &[Expected] = &[Expected::Closed];
/// Connections of one flood.
const FLOOD: u64 = 50;

const HANDSHAKE: u8 = 22;
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;

/// One record of TLS.
fn record(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[kind, 3, 1, len[0], len[1]][..], bytes].concat()
}

/// The first flight of an honest client, as records.
fn hello(config: &Arc<ClientConfig>) -> Vec<u8> {
    let name = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
    let mut bytes = Vec::new();
    if let Ok(mut client) = ClientConnection::new(Arc::clone(config), name) {
        // Writing to a vector does not fail.
        let _ = client.write_tls(&mut bytes);
    }
    bytes
}

/// Sends bytes; the node must close the connection within its time limit.
async fn send(shot: Shot, bytes: Vec<u8>) -> Outcome {
    let mut stream = match connect_bare_as_stranger(shot.node().grpc).await {
        Ok(stream) => stream,
        Err(error) => return of_io(&error),
    };
    // A node may close the connection before it has read everything.
    let _ = timeout(STALL, stream.write_all(&bytes)).await;
    closes(&mut stream).await
}

async fn closes(stream: &mut TcpStream) -> Outcome {
    let until = Instant::now() + HANDSHAKE_TIME;
    let mut buffer = vec![0; 16_384];
    loop {
        match timeout_at(until, stream.read(&mut buffer)).await {
            Ok(Ok(0)) => return Outcome::Closed,
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return of_io(&error),
            Err(_) => return Outcome::Open,
        }
    }
}

fn kind(
    name: &str,
    what: &str,
    bytes: impl Fn(&mut Shot) -> Vec<u8> + Send + Sync + 'static,
) -> Kind {
    Kind::new(format!("tls.{name}"), what, CLOSED, move |mut shot| {
        let bytes = bytes(&mut shot);
        send(shot, bytes)
    })
}

/// A byte of the hello every half second.
async fn trickled(shot: Shot, hello: Vec<u8>) -> Outcome {
    let mut stream = match connect_bare_as_stranger(shot.node().grpc).await {
        Ok(stream) => stream,
        Err(error) => return of_io(&error),
    };
    let end = Instant::now() + HANDSHAKE_TIME;
    for byte in hello {
        if stream.write_all(&[byte]).await.is_err() {
            return Outcome::Closed;
        }
        if Instant::now() > end {
            return Outcome::Open;
        }
        sleep(Duration::from_millis(500)).await;
    }
    closes(&mut stream).await
}

/// Connections that say hello, let the node compute its answer, and go.
async fn flood(shot: Shot, hello: Vec<u8>) -> Done {
    for opened in 1..=FLOOD {
        let greeted = async {
            let mut stream = connect_bare_as_stranger(shot.node().grpc).await?;
            stream.write_all(&hello).await?;
            stream.read(&mut [0; 16]).await
        };
        let outcome = match timeout(STALL, greeted).await {
            Ok(Ok(_)) => continue,
            Ok(Err(error)) => of_io(&error),
            Err(_) => Outcome::Silent,
        };
        if outcome != Outcome::Closed {
            return Done {
                outcome,
                requests: opened,
            };
        }
    }
    Done {
        outcome: Outcome::Closed,
        requests: FLOOD,
    }
}

/// New keys again and again, with no request between.
async fn key_updates(shot: Shot) -> Outcome {
    let mut stream = match connect_tls(shot.node().grpc).await {
        Ok(stream) => stream,
        Err(error) => return of_io(&error),
    };
    for _ in 0..2_000 {
        if stream.get_mut().1.refresh_traffic_keys().is_err() {
            return Outcome::Closed;
        }
        match timeout(STALL, stream.flush()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return of_io(&error),
            Err(_) => return Outcome::Stalled,
        }
    }
    Outcome::Open
}

/// A certificate of another authority.
async fn impostor(shot: Shot, fallback: Arc<ClientConfig>) -> Outcome {
    let mut stream = match connect_impostor(shot.node().grpc, &fallback).await {
        Ok(stream) => stream,
        Err(error) => return of_io(&error),
    };
    // With TLS 1.3 the node refuses after the client's last flight.
    match timeout(STALL, stream.read(&mut [0; 16])).await {
        Ok(Ok(0)) => Outcome::Closed,
        Ok(Ok(_)) => Outcome::Wrong("the node answered".to_owned()),
        Ok(Err(error)) => of_io(&error),
        Err(_) => Outcome::Open,
    }
}

pub(super) fn all() -> Result<Vec<Kind>, Error> {
    let config = foreign()?;
    let hello = hello(&config);
    let of_hello = |make: fn(&[u8]) -> Vec<u8>| {
        let bytes = make(&hello);
        move |_: &mut Shot| bytes.clone()
    };
    let (trickling, flooding) = (hello.clone(), hello.clone());
    Ok(vec![
        kind("garbage", "4 KiB of random bytes", |shot| shot.bytes(4_096)),
        kind(
            "half-hello",
            "the first half of a hello",
            of_hello(|hello| hello[..hello.len() / 2].to_vec()),
        )
        .slow(),
        kind(
            "long-record",
            "a record of 65,535 bytes",
            of_hello(|_| [&[HANDSHAKE, 3, 1, 0xff, 0xff][..], &[1; 65_535]].concat()),
        ),
        kind(
            "long-hello",
            "a hello that announces 16 MiB, and a megabyte of it",
            of_hello(|_| {
                let first = [&[1, 0xff, 0xff, 0xff][..], &[0; 8_000]].concat();
                let more = record(HANDSHAKE, &[0; 16_000]).repeat(64);
                [record(HANDSHAKE, &first), more].concat()
            }),
        ),
        kind(
            "empty-records",
            "100,000 records without a byte",
            of_hello(|_| record(HANDSHAKE, &[]).repeat(100_000)),
        ),
        kind(
            "one-byte-records",
            "a hello in records of one byte, and no more",
            of_hello(|hello| {
                let body = hello.get(5..).unwrap_or_default();
                body.iter()
                    .flat_map(|byte| record(HANDSHAKE, &[*byte]))
                    .collect()
            }),
        )
        .slow(),
        kind(
            "cipher-changes",
            "a hello, and 100,000 changes of the cipher",
            of_hello(|hello| {
                let changes = record(CHANGE_CIPHER_SPEC, &[1]).repeat(100_000);
                [hello, &changes].concat()
            }),
        ),
        kind(
            "warnings",
            "100,000 warnings",
            of_hello(|_| record(ALERT, &[1, 90]).repeat(100_000)),
        ),
        kind(
            "two-hellos",
            "a second hello instead of a certificate",
            of_hello(|hello| [hello, hello].concat()),
        ),
        Kind::new(
            "tls.plain-text",
            "HTTP/2 without TLS",
            expect::BORNE,
            |shot| send(shot, [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat()),
        )
        .slow(),
        Kind::new(
            "tls.trickled-hello",
            "a byte of the hello every half second",
            CLOSED,
            move |shot| trickled(shot, trickling.clone()),
        )
        .slow(),
        Kind::new(
            "tls.hello-flood",
            "50 connections that say hello, wait for the node's part of the handshake, and go",
            CLOSED,
            move |shot| flood(shot, flooding.clone()),
        ),
        Kind::new(
            "tls.key-updates",
            "2,000 changes of keys",
            expect::BORNE,
            key_updates,
        ),
        Kind::new(
            "tls.impostor",
            "a certificate of another authority",
            CLOSED,
            move |shot| impostor(shot, Arc::clone(&config)),
        ),
    ])
}
