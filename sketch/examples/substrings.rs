//! The lecture's three rules of rolling hashes, one program each: prefix, substring, concatenation.
//!
//! ```text
//! cargo run --release -p torc-sketch --example substrings -- prefix A B     # how much of two files agrees
//! cargo run --release -p torc-sketch --example substrings -- repeat A       # the longest string that A has twice
//! cargo run --release -p torc-sketch --example substrings -- concat A B …   # the hash of all files in a row, from the hash of each
//! ```
//!
//! `prefix` finds the first difference by binary search over hashes of prefixes; `repeat` searches the length and compares the hashes of all
//! substrings of that length; `concat` hashes each file by itself, as machines that have one each would, and prints the hash of each and of the whole.

use std::collections::HashMap;
use std::io::{Write as _, stdout};

use torc_sketch::rolling::{Fingerprint, Modulus, PrefixHashes};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    // Drawn at random by a service whose texts come from strangers.
    let modulus = Modulus::random(1);
    let mut out = stdout().lock();
    match args.as_slice() {
        ["prefix", a, b] => {
            let common = common_prefix(&modulus, &read(a)?, &read(b)?);
            writeln!(out, "{common}")?;
        }
        ["repeat", a] => {
            let text = read(a)?;
            let (first, second, len) = longest_repeat(&modulus, &text);
            let repeated = String::from_utf8_lossy(&text[first..first + len]);
            writeln!(out, "{len} bytes at {first} and {second}: {repeated:?}")?;
        }
        ["concat", files @ ..] => {
            let mut whole = Fingerprint::EMPTY;
            for file in files {
                let part = Fingerprint::of(&modulus, &read(file)?);
                writeln!(out, "{:014x} {:>10}  {file}", part.hash(), part.len())?;
                whole = whole.concat(&modulus, &part);
            }
            writeln!(out, "{:014x} {:>10}  all", whole.hash(), whole.len())?;
        }
        _ => return Err("say `prefix A B`, `repeat A` or `concat A B …`".into()),
    }
    Ok(())
}

/// The largest of `0..=most` for which `holds`, if it holds up to there and for 0.
fn largest(most: usize, mut holds: impl FnMut(usize) -> bool) -> usize {
    let (mut least, mut most) = (0, most);
    while least < most {
        let middle = least + (most - least).div_ceil(2);
        if holds(middle) {
            least = middle;
        } else {
            most = middle - 1;
        }
    }
    least
}

fn common_prefix(modulus: &Modulus, a: &[u8], b: &[u8]) -> usize {
    let (of_a, of_b) = (PrefixHashes::new(modulus, a), PrefixHashes::new(modulus, b));
    largest(a.len().min(b.len()), |len| {
        of_a.substring(0..len) == of_b.substring(0..len)
    })
}

/// Both places and the length. The bytes are compared, so the answer is right; only by a collision it could be too short.
fn longest_repeat(modulus: &Modulus, text: &[u8]) -> (usize, usize, usize) {
    let hashes = PrefixHashes::new(modulus, text);
    let mut found = (0, 0, 0);
    largest(text.len().saturating_sub(1), |len| {
        let mut seen = HashMap::new();
        for start in 0..=text.len() - len {
            let Some(hash) = hashes.substring(start..start + len) else {
                break;
            };
            let first = *seen.entry(hash).or_insert(start);
            if first < start && text[first..first + len] == text[start..start + len] {
                found = (first, start, len);
                return true;
            }
        }
        false
    });
    found
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program, not the crate: it reads the files it is told to"
)]
fn read(file: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| format!("{file}: {error}").into())
}
