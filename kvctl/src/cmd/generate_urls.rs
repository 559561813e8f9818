//! `kvctl generate-urls`: writes a test data set, the same on every machine.
//!
//! Record `i` is a pure function of (seed, i), so a data set is a prefix of every
//! larger one of its seed. A golden test pins the output, because users compare data
//! sets of different releases. Host names are under the domains that RFC 2606 reserves
//! for examples.

use std::fmt::Write as _;
use std::path::PathBuf;

use bytes::Bytes;

use crate::failure::Failure;
use crate::format::{Format, Row};
use crate::out::Out;

/// Write a data set of URL keys with small JSON values; the same seed makes the same bytes
///
/// Keys are unique and unordered; key and value have 132 bytes on average. Lines look
/// as `dump` writes them, so after a load, the sorted data set equals the sorted dump:
///
/// `kvctl generate-urls --count 1000000 > urls.ndjson && kvctl load urls.ndjson`
/// `kvctl dump | sort | cmp - <(sort urls.ndjson)`
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Number of records.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(..=1_u64 << 32))]
    count: u64,
    /// Seed of the data set.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Format of the output.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Ndjson)]
    format: Format,
    /// Write to this file instead of standard output.
    #[arg(long = "to", value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, out: &mut Out) -> Result<(), Failure> {
    let Some(path) = &args.file else {
        return out.write(|writer| write(args, writer));
    };
    let written = std::fs::File::create(path).and_then(|file| {
        let mut writer = std::io::BufWriter::with_capacity(1 << 16, file);
        write(args, &mut writer)?;
        std::io::Write::flush(&mut writer)
    });
    written.map_err(|source| Failure::file("write", path, source))
}

fn write(args: &Args, out: &mut impl std::io::Write) -> std::io::Result<()> {
    args.format.write_header(out)?;
    for index in 0..args.count {
        args.format.write_row(&record(args.seed, index), out)?;
    }
    Ok(())
}

/// `SplitMix64` (Steele, Lea and Flood 2014).
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// The generator of item `index` of a seed.
    pub(super) fn of(seed: u64, index: u64) -> Self {
        let mut of_seed = Self(seed);
        Self(of_seed.next() ^ index.wrapping_mul(0xd134_2543_de82_ef95))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, by multiplication: the bias is under 2^-32 for the
    /// small bounds used here.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        (((self.next() >> 32) * bound) >> 32).min(bound.saturating_sub(1))
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }
}

/// A record: a URL, and what a crawler might keep about it.
fn record(seed: u64, index: u64) -> Row {
    let mut random = Random::of(seed, index);
    let key = url(&mut random, scattered(seed, index));
    let value = page(&mut random);
    Row {
        key: Bytes::from(key),
        value: Bytes::from(value),
        expires_at_ms: None,
    }
}

/// A number for an index below 2^32 that no other index of the seed has: each step (addition, xor
/// with a shift, multiplication by an odd number) is invertible.
fn scattered(seed: u64, index: u64) -> u32 {
    let mut z = (index as u32).wrapping_add((seed ^ (seed >> 32)) as u32);
    z = (z ^ (z >> 16)).wrapping_mul(0x85eb_ca6b);
    z = (z ^ (z >> 13)).wrapping_mul(0xc2b2_ae35);
    z ^ (z >> 16)
}

const HOSTS: [&str; 16] = [
    "www", "news", "blog", "shop", "docs", "wiki", "forum", "media", "cdn", "img", "static", "api",
    "archive", "mail", "maps", "data",
];
const DOMAINS: [&str; 3] = ["example.com", "example.org", "example.net"];
const WORDS: [&str; 32] = [
    "about", "article", "autumn", "bridge", "camera", "city", "coast", "coffee", "download",
    "garden", "gallery", "guide", "history", "island", "journal", "kitchen", "lesson", "library",
    "market", "mountain", "music", "ocean", "painting", "people", "recipe", "report", "review",
    "river", "season", "story", "travel", "winter",
];
const ENDINGS: [&str; 4] = ["", "", ".html", "/"];
const TYPES: [&str; 5] = [
    "text/html",
    "text/html",
    "text/html",
    "image/jpeg",
    "application/json",
];
const LANGUAGES: [&str; 8] = ["en", "en", "de", "fr", "es", "ja", "pt", "zh"];

fn url(random: &mut Random, id: u32) -> String {
    let scheme = if random.below(20) == 0 {
        "http"
    } else {
        "https"
    };
    let host = random.pick(&HOSTS);
    let mut url = format!(
        "{scheme}://{host}{}.{}",
        random.below(100),
        random.pick(&DOMAINS)
    );
    let sections = if random.below(4) == 0 { 2 } else { 1 };
    for _ in 0..sections {
        url.push('/');
        url.push_str(random.pick(&WORDS));
    }
    // Writing to a String cannot fail.
    let _ = write!(
        url,
        "/{}-{id:08x}{}",
        random.pick(&WORDS),
        random.pick(&ENDINGS)
    );
    url
}

fn page(random: &mut Random) -> String {
    let status = match random.below(100) {
        0..90 => 200,
        90..95 => 301,
        95..99 => 404,
        _ => 500,
    };
    let (kind, language) = (random.pick(&TYPES), random.pick(&LANGUAGES));
    let magnitude = 8 + random.below(10);
    let bytes = 200 + random.below(1 << magnitude);
    let (month, day) = (1 + random.below(12), 1 + random.below(28));
    format!(
        r#"{{"status":{status},"type":"{kind}","bytes":{bytes},"lang":"{language}","seen":"2025-{month:02}-{day:02}"}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn text(count: u64, seed: u64) -> String {
        let args = Args {
            count,
            seed,
            format: Format::Ndjson,
            file: None,
        };
        let mut out = Vec::new();
        write(&args, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// FNV-1a, 64 bits.
    fn fingerprint(text: &str) -> u64 {
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_for_ever() {
        let lines = text(10_000, 1);
        let first = r#"{"key":"https://data4.example.net/recipe/music/coffee-514e28b7","value":"{\"status\":200,\"type\":\"image/jpeg\",\"bytes\":601,\"lang\":\"zh\",\"seen\":\"2025-09-10\"}"}"#;
        assert_eq!(lines.lines().next(), Some(first));
        assert_eq!(fingerprint(&lines), 310_374_658_190_247_485);
        assert_ne!(text(10, 1), text(10, 2));
    }

    #[test]
    fn a_data_set_is_the_beginning_of_a_larger_one() {
        assert!(text(100, 7).starts_with(&text(10, 7)));
    }

    #[test]
    fn keys_are_unique() {
        let keys: HashSet<Bytes> = (0..50_000).map(|index| record(3, index).key).collect();
        assert_eq!(keys.len(), 50_000);
        let ids: HashSet<u32> = (0..1 << 16)
            .chain((1 << 32) - (1 << 16)..1 << 32)
            .map(|i| scattered(9, i))
            .collect();
        assert_eq!(ids.len(), 1 << 17);
    }

    #[test]
    fn key_and_value_have_132_bytes_on_average_and_values_are_json() {
        let records: Vec<Row> = (0..20_000).map(|index| record(1, index)).collect();
        let bytes: usize = records
            .iter()
            .map(|row| row.key.len() + row.value.len())
            .sum();
        let average = bytes as f64 / records.len() as f64;
        assert!((131.5..132.5).contains(&average), "{average}");
        for row in &records[..100] {
            serde_json::from_slice::<serde_json::Value>(&row.value).unwrap();
        }
    }
}
