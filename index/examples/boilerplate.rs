//! The essay's own problem: which lines of an e-book are boilerplate?
//!
//! ```text
//! cargo run --release -p torc-index --example boilerplate -- BOILERPLATE [BITS]  < book
//! ```
//!
//! BOILERPLATE is a file of lines that are known. Prints the lines of the book that are not among them; and to the standard error what the table takes that
//! knows them without holding them. A line of the book is taken for boilerplate wrongly with probability 2^-BITS (16).

use std::io::{BufRead as _, Write as _, stderr, stdin, stdout};

use torc_index::KeylessSet;
use torc_record::{Digest, DigestKey, NamespaceId};

type Failure = Box<dyn std::error::Error>;

/// In the service the key is a secret of the cluster.
const CLUSTER: DigestKey = DigestKey([7; 32]);

fn digest(line: &[u8]) -> Digest {
    Digest::of(&CLUSTER, NamespaceId::DEFAULT, line.trim_ascii())
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let known = args.next().ok_or("a file of boilerplate lines is needed")?;
    let bits: u32 = args.next().map_or(Ok(16), |bits| bits.parse())?;
    let known = std::fs::read_to_string(&known).map_err(|error| format!("{known}: {error}"))?;
    let mut digests: Vec<Digest> = known.lines().map(|line| digest(line.as_bytes())).collect();
    digests.sort_unstable();
    digests.dedup();
    let bytes = KeylessSet::build(&digests, bits, 1)?;
    let table = KeylessSet::view(&bytes)?;

    let (mut out, mut dropped) = (stdout().lock(), 0_u64);
    for line in stdin().lock().split(b'\n') {
        let line = line?;
        if table.contains(&digest(&line)) {
            dropped += 1;
        } else {
            out.write_all(&line)?;
            out.write_all(b"\n")?;
        }
    }
    writeln!(
        stderr(),
        "{dropped} lines dropped; {} known lines of {} bytes in {} bytes; a line is dropped wrongly with probability {:.1e}",
        table.len(),
        known.len(),
        bytes.len(),
        table.rate()
    )?;
    Ok(())
}
