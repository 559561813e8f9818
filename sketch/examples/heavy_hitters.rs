//! The lecture's first exercise: the k-heavy hitters of a stream, in one pass and little memory.
//!
//! ```text
//! cargo run --release -p torc-sketch --example heavy_hitters -- [K]  < words
//! cargo run --release -p torc-sketch --example heavy_hitters -- --judge  < "K, then words"
//! ```
//!
//! Reads words from the standard input, or makes up a stream where there is a terminal, and prints those that make up at
//! least 1/K of them (100 if not told), each with its estimated count. K is at most 100,000.
//!
//! As a judge feeds it: with `--judge` the first word is K, and only the heavy words are printed, one a line, in byte order.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small numbers and figures"
)]

use std::io::{BufRead as _, IsTerminal as _, Write as _, stdin, stdout};

use torc_record::{Digest, DigestKey, NamespaceId};
use torc_sketch::{HeavyHitters, SeedStream, Shape};

/// In the service the key is a secret of the cluster.
const CLUSTER: DigestKey = DigestKey([7; 32]);

type Failure = Box<dyn std::error::Error>;
/// A heavy word comes with its bytes.
type Words = HeavyHitters<Box<[u8]>>;

fn main() -> Result<(), Failure> {
    let arg = std::env::args().nth(1);
    if arg.as_deref() == Some("--judge") {
        return judge();
    }
    let mut heavy = hitters(arg.map_or(Ok(100), |k| k.parse())?)?;
    if stdin().is_terminal() {
        made_up_words().for_each(|word| insert(&mut heavy, word.as_bytes()));
    } else {
        words(|word| {
            insert(&mut heavy, word);
            Ok(())
        })?;
    }
    print(&heavy)?;
    Ok(())
}

fn hitters(k: u32) -> Result<Words, Failure> {
    // With ε = 1/(2k) each reported word has at least half of what makes it heavy, but for 1 in 1,000.
    let shape = Shape::for_error(0.5 / f64::from(k.clamp(1, 100_000)), 0.001)?;
    Ok(HeavyHitters::new(k, shape, 1))
}

fn insert(heavy: &mut Words, word: &[u8]) {
    let digest = Digest::of(&CLUSTER, NamespaceId::DEFAULT, word);
    heavy.insert_with(&digest, 1, || Box::<[u8]>::from(word));
}

/// Goes through the words of the standard input, in one pass and a line of memory.
fn words(mut each: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
    for line in stdin().lock().split(b'\n') {
        let line = line?;
        let mut words = line.split(u8::is_ascii_whitespace);
        words.try_for_each(|word| if word.is_empty() { Ok(()) } else { each(word) })?;
    }
    Ok(())
}

fn judge() -> Result<(), Failure> {
    let mut heavy: Option<Words> = None;
    words(|word| {
        match &mut heavy {
            Some(heavy) => insert(heavy, word),
            None => heavy = Some(hitters(std::str::from_utf8(word)?.parse()?)?),
        }
        Ok(())
    })?;
    let heavy = heavy.ok_or("the input begins with K")?;
    let mut found: Vec<_> = heavy.answer().iter().map(|hitter| hitter.note).collect();
    found.sort_unstable();
    let mut out = stdout().lock();
    for word in found {
        out.write_all(word)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// 100,000 words of which number i is i times rarer than the first.
fn made_up_words() -> impl Iterator<Item = String> {
    let mut random = SeedStream::new(1);
    (0..100_000).map(move |_| {
        let uniform = random.below(1 << 53) as f64 / (1_u64 << 53) as f64;
        format!("word{}", 10_000_f64.powf(uniform) as u32)
    })
}

fn print(heavy: &Words) -> std::io::Result<()> {
    let sketch = heavy.sketch();
    let mut out = stdout().lock();
    for hitter in heavy.answer() {
        let word = String::from_utf8_lossy(hitter.note);
        writeln!(out, "{:>12}  {word}", hitter.estimate)?;
    }
    writeln!(
        out,
        "of {} words; each count is exact or at most {} too high; {} bytes of memory",
        sketch.total(),
        sketch.error_bound(),
        sketch.bytes()
    )
}
