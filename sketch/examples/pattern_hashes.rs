//! The lecture's sketch of patterns: of many strings to look for only the hashes are kept, under two primes.
//!
//! ```text
//! cargo run --release -p torc-sketch --example pattern_hashes -- PATTERNS  < text
//! ```
//!
//! PATTERNS is a file with a pattern a line. Prints the offset of each occurrence and the line of the pattern, both from 0; and to the standard
//! error what was kept and how probable it is that some occurrence is none.

use std::io::{Read as _, Write as _, stderr, stdin, stdout};

use torc_sketch::rolling::{HashedPatterns, Moduli};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let file = std::env::args()
        .nth(1)
        .ok_or("a file of patterns is needed")?;
    // Drawn at random by a service whose texts come from strangers.
    let moduli = Moduli::random(1, 2)?;
    let hashed = HashedPatterns::new(&moduli, &lines(&file)?)?;
    let mut text = Vec::new();
    stdin().lock().read_to_end(&mut text)?;
    let mut out = stdout().lock();
    for candidate in hashed.find(&text) {
        writeln!(out, "{} {}", candidate.start, candidate.pattern)?;
    }
    writeln!(
        stderr(),
        "{} patterns in {} bytes; some occurrence is none with probability {:.1e} at most",
        hashed.count(),
        hashed.bytes(),
        hashed.false_match_bound(text.len())
    )?;
    Ok(())
}

fn lines(file: &str) -> Result<Vec<String>, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    Ok(text.lines().map(str::to_owned).collect())
}
