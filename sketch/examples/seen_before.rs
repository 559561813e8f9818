//! Three more of the lecture's applications, each of which asks a Bloom filter whether something was there before.
//!
//! ```text
//! cargo run --release -p torc-sketch --example seen_before -- archive FILE …    # Venti: store each chunk once
//! cargo run --release -p torc-sketch --example seen_before -- limit N < mails   # Exim: N recipients a sender
//! cargo run --release -p torc-sketch --example seen_before -- unread READ < new # Medium: leave out what was read
//! ```
//!
//! * `archive` cuts files where their content says and stores a chunk under its digest. What the filter has not seen is new, and the index
//!   on the disk need not be read; where it may have, the index decides. Prints how often that was.
//! * `limit` reads lines of a sender and a recipient, and lets a mail pass unless it is to more than N different recipients of one sender. A
//!   recipient counts once for a sender, by a filter instead of a list. It may take a new recipient for an old one, and so lets
//!   a few too many pass; it stops nobody too early.
//! * `unread` reads a file of what was read and lines of what might be recommended. A few that were not read are left out, too; none
//!   that was read is shown.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead as _, Write as _, stdin, stdout};

use torc_record::{Digest, DigestKey, NamespaceId};
use torc_sketch::bloom::GrowingBloom;
use torc_sketch::rolling::{ChunkSizes, Chunker, Modulus};

type Failure = Box<dyn std::error::Error>;

/// In the service the key is a secret of the cluster.
const CLUSTER: DigestKey = DigestKey([7; 32]);
/// Of wrong answers.
const RATE: f64 = 0.01;
/// Keys of a filter before it grows.
const FIRST: u64 = 1_000;

fn digest(of: &[u8]) -> Digest {
    Digest::of(&CLUSTER, NamespaceId::DEFAULT, of)
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["archive", files @ ..] if !files.is_empty() => archive(files),
        ["limit", most] => limit(most.parse()?),
        ["unread", read] => unread(read),
        _ => Err("say archive FILE …, limit N, or unread READ".into()),
    }
}

fn archive(files: &[&str]) -> Result<(), Failure> {
    let sizes = ChunkSizes::new(2 << 10, 8 << 10, 64 << 10)?;
    let chunker = Chunker::new(&Modulus::random(1), sizes);
    let mut seen = GrowingBloom::new(FIRST, RATE)?;
    // Stands for the index on the disk.
    let mut index: HashSet<Digest> = HashSet::new();
    let (mut chunks, mut reads, mut stored, mut bytes) = (0_u64, 0_u64, 0_u64, 0_u64);
    for file in files {
        let text = contents(file)?;
        for chunk in cut(chunker.clone(), &text) {
            chunks += 1;
            bytes += chunk.len() as u64;
            let score = digest(chunk);
            if seen.may_contain(&score) {
                reads += 1;
                if index.contains(&score) {
                    continue;
                }
            }
            seen.insert(&score);
            index.insert(score);
            stored += chunk.len() as u64;
        }
    }
    writeln!(
        stdout(),
        "{chunks} chunks of {bytes} bytes: {} stored with {stored} bytes, the index was read {reads} times",
        index.len()
    )?;
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program may read files; the library does not"
)]
fn contents(file: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| format!("{file}: {error}").into())
}

fn cut(mut chunker: Chunker, text: &[u8]) -> Vec<&[u8]> {
    let (mut chunks, mut rest) = (Vec::new(), text);
    while let Some(len) = chunker.next_boundary(rest) {
        let (chunk, after) = rest.split_at(len);
        chunks.push(chunk);
        rest = after;
    }
    if !rest.is_empty() {
        chunks.push(rest);
    }
    chunks
}

fn limit(most: u64) -> Result<(), Failure> {
    let mut pairs = GrowingBloom::new(FIRST, RATE)?;
    let mut recipients: HashMap<String, u64> = HashMap::new();
    let mut out = stdout().lock();
    for line in stdin().lock().lines() {
        let line = line?;
        let Some((sender, recipient)) = line.split_once(' ') else {
            return Err(format!("no sender and recipient: {line}").into());
        };
        let count = recipients.entry(sender.to_owned()).or_default();
        let pair = digest(line.as_bytes());
        let passes = pairs.may_contain(&pair) || *count < most;
        if passes && pairs.insert(&pair) {
            *count += 1;
        }
        let verdict = if passes { "pass" } else { "defer" };
        writeln!(out, "{verdict} {sender} {recipient}")?;
    }
    Ok(())
}

fn unread(read: &str) -> Result<(), Failure> {
    let read = std::fs::read_to_string(read)?;
    let mut seen = GrowingBloom::new(FIRST, RATE)?;
    for article in read.lines() {
        seen.insert(&digest(article.as_bytes()));
    }
    let mut out = stdout().lock();
    for article in stdin().lock().lines() {
        let article = article?;
        if !seen.may_contain(&digest(article.as_bytes())) {
            writeln!(out, "{article}")?;
        }
    }
    Ok(())
}
