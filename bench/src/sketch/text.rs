//! Searching and cutting text: records as `bench` stores them, one after the other.

use std::hint::black_box;

use aho_corasick::AhoCorasick;
use anyhow::{Result, ensure};
use fastcdc::v2020::FastCDC;
use torc_sketch::rolling::{ChunkSizes, Chunker, Modulus, Patterns, Searcher};

use super::streams::seconds;
use super::{AHO_CORASICK, FASTCDC};
use crate::records;
use crate::report::{Metric, Report, TORC};

const RATE: Metric = Metric::new("rate", "MB/s");
const MEAN: Metric = Metric::new("mean_chunk", "bytes");
const SHARED: Metric = Metric::new("shared_after_an_insertion", "% of bytes");

/// Smallest, average and largest chunk.
const SIZES: (usize, usize, usize) = (2 << 10, 8 << 10, 64 << 10);

/// One round over about `len` bytes.
pub(super) fn measure(report: &mut Report, round: u64, len: usize) -> Result<()> {
    let text: Vec<u8> = (0..len / records::LEN)
        .flat_map(|i| records::pair(i as u64).value)
        .collect();
    search(
        report,
        round,
        "search for 1 pattern",
        &text,
        &["\"lang\":\"fr\",\"seen\":\"2025-03-07\""],
    )?;
    // Of two lengths; one occurs in each hundredth value. None overlaps another, so that both find the same number.
    let of_two_lengths = [
        "\"status\":404",
        "\"status\":500",
        "03-07\",\"etag\":\"0",
        "03-08\",\"etag\":\"1",
    ];
    search(
        report,
        round,
        "search for 4 patterns",
        &text,
        &of_two_lengths,
    )?;
    cut(report, round, &text)
}

fn search(
    report: &mut Report,
    seed: u64,
    case: &str,
    text: &[u8],
    patterns: &[&str],
) -> Result<()> {
    let compiled = Patterns::new(&Modulus::random(seed), patterns)?;
    let (took, found) = seconds(|| Searcher::find_all(&compiled, text).len());
    report.add(case, RATE, TORC, rate(text, took));
    let peer = AhoCorasick::new(patterns)?;
    let (took, theirs) = seconds(|| peer.find_iter(text).count());
    report.add(case, RATE, AHO_CORASICK, rate(text, took));
    ensure!(
        found == theirs,
        "{found} matches, and the peer found {theirs}"
    );
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

/// How much of `text` is in chunks that the changed text has too.
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
