//! Searches and cuts text: concatenated records, as `bench` stores them.

use std::hint::black_box;

use anyhow::{Result, ensure};
use fastcdc::v2020::FastCDC;
use torc_sketch::rolling::{ChunkSizes, Chunker, Modulus};
use torc_sketch::search::{Budget, Finder, Method};

use super::streams::seconds;
use super::{AHO_CORASICK, FASTCDC};
use crate::records;
use crate::report::{Metric, Report, TORC};

const RATE: Metric = Metric::new("rate", "MB/s");
const MADE: Metric = Metric::new("made_ready_in", "ms");
const MEAN: Metric = Metric::new("mean_chunk", "bytes");
const SHARED: Metric = Metric::new("shared_after_an_insertion", "% of bytes");

const METHODS: [(Method, &str); 3] = [
    (Method::Memmem, "memmem"),
    (Method::Automaton, AHO_CORASICK),
    (Method::Hashes, "rolling hashes"),
];

/// Smallest, average and largest chunk.
const SIZES: (usize, usize, usize) = (2 << 10, 8 << 10, 64 << 10);

/// One round over about `len` bytes.
pub(super) fn measure(report: &mut Report, round: u64, len: usize) -> Result<()> {
    let text: Vec<u8> = (0..len / records::LEN)
        .flat_map(|i| records::pair(i as u64).value)
        .collect();
    for (case, patterns) in searches() {
        search(report, round, &case, &text, &patterns)?;
    }
    cut(report, round, &text)
}

/// Search patterns: parts of values that occur in few or no values, with the given number and
/// length.
fn searches() -> Vec<(String, Vec<Vec<u8>>)> {
    let text = |parts: &[&str]| parts.iter().map(|it| it.as_bytes().to_vec()).collect();
    // Two lengths; one pattern occurs in each hundredth value.
    let four = [
        "\"status\":404",
        "\"status\":500",
        "03-07\",\"etag\":\"0",
        "03-08\",\"etag\":\"1",
    ];
    let mut searches = vec![
        (
            "search for 1 pattern".to_owned(),
            text(&["\"lang\":\"fr\",\"seen\":\"2025-03-07\""]),
        ),
        ("search for 4 patterns".to_owned(), text(&four)),
    ];
    // From within values of records outside the text: as similar to it as possible.
    let unseen = |number: u64, len: usize| -> Vec<u8> {
        let first = 4_000_000_000 + 1_000 * number;
        let values = (first..).flat_map(|index| records::pair(index).value);
        values.skip(40).take(len).collect()
    };
    for (count, len) in [(8, 32), (16, 32), (64, 32), (64, 1_024), (64, 16 << 10)] {
        let patterns = (0..count).map(|number| unseen(number, len)).collect();
        searches.push((
            format!("search for {count} patterns of {len} bytes"),
            patterns,
        ));
    }
    let lengths = (0..64).map(|number| unseen(number, 16 + 2 * number as usize));
    searches.push((
        "search for 64 patterns of 64 lengths".to_owned(),
        lengths.collect(),
    ));
    searches
}

/// Searches by each method.
fn search(
    report: &mut Report,
    seed: u64,
    case: &str,
    text: &[u8],
    patterns: &[Vec<u8>],
) -> Result<()> {
    let modulus = Modulus::random(seed);
    let served = Finder::new(&modulus, patterns)?.method();
    let mut counts = Vec::new();
    for (method, subject) in METHODS {
        let (made, finder) = seconds(|| Finder::by(method, &modulus, patterns));
        let mut finder = finder?;
        let (took, found) =
            seconds(|| finder.find(text, usize::MAX - 1, &mut Budget::new(|| true)));
        report.add(case, RATE, subject, rate(text, took));
        report.add(case, MADE, subject, 1e3 * made);
        if method == served {
            report.add(case, RATE, TORC, rate(text, took));
            report.add(case, MADE, TORC, 1e3 * made);
        }
        counts.push(found.unwrap_or_default().first.len());
    }
    counts.dedup();
    ensure!(counts.len() == 1, "{case}: {counts:?} matches, by method");
    Ok(())
}

fn cut(report: &mut Report, seed: u64, text: &[u8]) -> Result<()> {
    const CASE: &str = "content-defined chunks of 8 KiB";
    let sizes = ChunkSizes::new(SIZES.0, SIZES.1, SIZES.2)?;
    let chunker = Chunker::new(&Modulus::random(seed), sizes);
    let (took, ours) = seconds(|| ends(chunker.clone(), text));
    report.add(CASE, RATE, TORC, rate(text, took));
    let (took, theirs) = seconds(|| ends_by_peer(text));
    report.add(CASE, RATE, FASTCDC, rate(text, took));
    report.add(CASE, MEAN, TORC, text.len() as f64 / ours.len() as f64);
    report.add(CASE, MEAN, FASTCDC, text.len() as f64 / theirs.len() as f64);

    let changed = [
        &text[..text.len() / 2],
        b"inserted",
        &text[text.len() / 2..],
    ]
    .concat();
    let again = ends(chunker, &changed);
    report.add(CASE, SHARED, TORC, shared(&ours, text, &again, &changed));
    report.add(
        CASE,
        SHARED,
        FASTCDC,
        shared(&theirs, text, &ends_by_peer(&changed), &changed),
    );
    Ok(())
}

fn ends(mut chunker: Chunker, text: &[u8]) -> Vec<usize> {
    let (mut ends, mut start) = (Vec::new(), 0);
    while let Some(len) = chunker.next_boundary(&text[start..]) {
        start += len;
        ends.push(start);
    }
    ends.extend(chunker.finish().map(|_| text.len()));
    black_box(ends)
}

fn ends_by_peer(text: &[u8]) -> Vec<usize> {
    let chunks = FastCDC::new(text, SIZES.0, SIZES.1, SIZES.2);
    black_box(chunks.map(|chunk| chunk.offset + chunk.length).collect())
}

/// The share of `text` in chunks that the changed text contains too.
fn shared(ends: &[usize], text: &[u8], changed_ends: &[usize], changed: &[u8]) -> f64 {
    let kept: std::collections::HashSet<&[u8]> = chunks(changed_ends, changed).collect();
    let shared = chunks(ends, text).filter(|chunk| kept.contains(chunk));
    100.0 * shared.map(<[u8]>::len).sum::<usize>() as f64 / text.len() as f64
}

fn chunks<'a>(ends: &'a [usize], text: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends).map(|(start, &end)| &text[start..end])
}

fn rate(text: &[u8], seconds: f64) -> f64 {
    text.len() as f64 / 1e6 / seconds
}
