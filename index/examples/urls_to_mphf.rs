//! Your URLs, or any other lines, to a minimal perfect hash function.
//!
//! ```text
//! cargo run --release -p torc-index --example urls_to_mphf -- build FILE [--gigahash]  < urls
//! cargo run --release -p torc-index --example urls_to_mphf -- look-up FILE [--gigahash]  < urls
//! ```
//!
//! `build` reads lines, of which the same may come twice, and writes their function to FILE. `look-up` prints the slot of each line, which is its own among
//! the lines that the function was built of; another line gets some slot, too. With `--gigahash` it is the function of the paper.

#![allow(clippy::cast_precision_loss, reason = "small numbers and figures")]

use std::io::{BufRead as _, Write as _, stdin, stdout};

use torc_index::paper::gigahash::{GigaHash, Settings};
use torc_index::{Mphf, PerfectHash};
use torc_record::{Digest, DigestKey, NamespaceId};

type Failure = Box<dyn std::error::Error>;

/// In the service the key is a secret of the cluster. What builds and what looks up need the same.
const CLUSTER: DigestKey = DigestKey([7; 32]);

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let lines = || stdin().lock().split(b'\n');
    match args.as_slice() {
        ["build", file, kind @ ..] => {
            let digests: Result<Vec<Digest>, _> = lines().map(digest).collect();
            build(file, digests?, is_giga(kind)?)
        }
        ["look-up", file, kind @ ..] => {
            let bytes = read(file)?;
            if is_giga(kind)? {
                look_up(&GigaHash::view(&bytes)?, lines().map(digest))
            } else {
                look_up(&Mphf::view(&bytes)?, lines().map(digest))
            }
        }
        _ => Err("say `build FILE` or `look-up FILE`, and `--gigahash` for that function".into()),
    }
}

fn is_giga(kind: &[&str]) -> Result<bool, Failure> {
    match kind {
        [] => Ok(false),
        ["--gigahash"] => Ok(true),
        _ => Err(format!("what is {kind:?}?").into()),
    }
}

fn digest(line: std::io::Result<Vec<u8>>) -> std::io::Result<Digest> {
    Ok(Digest::of(&CLUSTER, NamespaceId::DEFAULT, &line?))
}

/// Functions are built of digests in order, each once.
fn build(file: &str, mut digests: Vec<Digest>, is_giga: bool) -> Result<(), Failure> {
    digests.sort_unstable();
    digests.dedup();
    let bytes = if is_giga {
        GigaHash::build(&digests, Settings::default())?
    } else {
        Mphf::build(&digests, 1)?
    };
    write(file, &bytes)?;
    let bits = 8.0 * bytes.len() as f64 / digests.len().max(1) as f64;
    let mut out = stdout().lock();
    writeln!(out, "{} lines, {bits:.2} bits each", digests.len())?;
    Ok(())
}

fn look_up(
    function: &impl PerfectHash,
    digests: impl Iterator<Item = std::io::Result<Digest>>,
) -> Result<(), Failure> {
    let mut out = stdout().lock();
    for digest in digests {
        writeln!(out, "{}", function.slot(&digest?))?;
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program, not the crate: it reads the file it is told to"
)]
fn read(file: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| format!("{file}: {error}").into())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program, not the crate: it writes the file it is told to"
)]
fn write(file: &str, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(file, bytes).map_err(|error| format!("{file}: {error}").into())
}
