//! The lecture's dynamic string: edits, with the hash of any substring at any time.
//!
//! ```text
//! cargo run --release -p torc-sketch --example edit -- [FILE]  < commands
//! ```
//!
//! Begins with the bytes of FILE or with nothing, and reads commands, one a line. Places are bytes from 0, ends are exclusive.
//!
//! ```text
//! insert AT TEXT          puts TEXT in before the byte AT
//! delete START END        takes bytes out
//! hash START END          prints the hash of a substring
//! common AT OTHER         prints how many bytes from AT on are those from OTHER on
//! order A B C D           prints whether bytes A to B are less than, equal to or greater than bytes C to D
//! len                     prints the length
//! print                   prints the string
//! ```

use std::io::{BufRead as _, Write as _, stdin, stdout};
use std::ops::Range;

use torc_sketch::lecture::DynamicString;
use torc_sketch::rolling::Modulus;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    // Drawn at random by a service whose texts come from strangers.
    let modulus = Modulus::random(1);
    let start = std::env::args()
        .nth(1)
        .map_or(Ok(Vec::new()), |f| read(&f))?;
    let mut string = DynamicString::of(&modulus, 1, &start);
    let mut out = stdout().lock();
    for (number, line) in stdin().lock().lines().enumerate() {
        let answer = run(&mut string, &line?);
        let answer = answer.map_err(|error| format!("line {}: {error}", number + 1))?;
        if let Some(answer) = answer {
            writeln!(out, "{answer}")?;
        }
    }
    Ok(())
}

/// Runs a command; what it prints, if anything.
fn run(string: &mut DynamicString, line: &str) -> Result<Option<String>, Failure> {
    let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
    if command == "insert" {
        let (at, text) = rest.split_once(' ').ok_or("insert AT TEXT")?;
        string.insert(at.parse()?, text.as_bytes())?;
        return Ok(None);
    }
    let places: Result<Vec<usize>, _> = rest.split_whitespace().map(str::parse).collect();
    Ok(match (command, places?.as_slice()) {
        ("delete", &[start, end]) => {
            string.delete(start..end)?;
            None
        }
        ("hash", &[start, end]) => {
            let hash = string.fingerprint(start..end).ok_or("beyond the end")?;
            Some(format!("{:014x}", hash.hash()))
        }
        ("common", &[at, other]) => Some(string.common_prefix(at, string, other)?.to_string()),
        ("order", &[a, b, c, d]) => Some(order(string, a..b, c..d)?.to_owned()),
        ("len", []) => Some(string.len().to_string()),
        ("print", []) => Some(String::from_utf8_lossy(&string.bytes()).into_owned()),
        _ => return Err(format!("no such command: {line:?}").into()),
    })
}

fn order(
    string: &DynamicString,
    a: Range<usize>,
    b: Range<usize>,
) -> Result<&'static str, Failure> {
    let common = string.common_prefix(a.start, string, b.start)?;
    let of = |range: Range<usize>| {
        let at = range.start + common.min(range.len());
        if at < range.end {
            string.byte(at)
        } else {
            None
        }
    };
    Ok(match of(a).cmp(&of(b)) {
        std::cmp::Ordering::Less => "less",
        std::cmp::Ordering::Equal => "equal",
        std::cmp::Ordering::Greater => "greater",
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program, not the crate: it reads the file it is told to"
)]
fn read(file: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| format!("{file}: {error}").into())
}
