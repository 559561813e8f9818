//! Hot keys of several nodes: each access at one of them, ten snapshots each, sent as bytes,
//! combined into one answer.

use std::collections::HashMap;

use anyhow::{Context as _, Result};
use torc_record::Digest;
use torc_sketch::hot_keys::{
    HotAnswer, HotKeys, HotKeysOptions, Interval, IntervalLimits, NodeWindow, hottest,
};

use super::heavy::{Truth, name};
use super::shape;
use super::streams::{Stream, digest, seconds};
use crate::report::{Metric, Report, TORC};

const NODES: usize = 5;
const SNAPSHOTS: u64 = 10;
const ENCODED: Metric = Metric::new("interval", "KiB");
const ANSWER: Metric = Metric::new("answer", "ms");
const BELOW: Metric = Metric::new("below_bound", "keys");

/// One round.
pub(super) fn measure(report: &mut Report, mut stream: Stream, accesses: u64) -> Result<()> {
    let case = format!("{}: {NODES} nodes", stream.kind.name());
    let options = HotKeysOptions::usual(1);
    let mut nodes: Vec<HotKeys> = (0..NODES).map(|_| HotKeys::new(&options, 0)).collect();
    let mut sent: Vec<Vec<Vec<u8>>> = vec![Vec::new(); NODES];
    let (mut counted, mut next_snapshot) = (0_u64, accesses / SNAPSHOTS);
    let exact = stream.for_each_block(accesses, |block| {
        for digest in &block.digests {
            counted += 1;
            // The node is chosen at random, independently of the key.
            let node = (counted.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % NODES;
            nodes[node].record(digest, || name(digest));
            if counted == next_snapshot {
                next_snapshot += accesses / SNAPSHOTS;
                send_all(&mut nodes, &mut sent, counted);
            }
        }
    });
    send_all(&mut nodes, &mut sent, accesses);
    let bytes: usize = sent.iter().flatten().map(Vec::len).sum();
    let intervals: usize = sent.iter().map(Vec::len).sum();
    report.add(
        &case,
        ENCODED,
        TORC,
        bytes as f64 / intervals as f64 / 1024.0,
    );
    let (took, answer) = seconds(|| answer(&sent));
    report.add(&case, ANSWER, TORC, took * 1e3);
    compare(report, &case, &exact, &answer?);
    Ok(())
}

fn send_all(nodes: &mut [HotKeys], sent: &mut [Vec<Vec<u8>>], now_ms: u64) {
    for (node, sent) in nodes.iter_mut().zip(sent) {
        let mut bytes = Vec::new();
        node.snapshot(now_ms).encode(&mut bytes);
        sent.push(bytes);
    }
}

/// The work of the coordinating node: decodes, merges and queries.
fn answer(sent: &[Vec<Vec<u8>>]) -> Result<HotAnswer> {
    let limits = IntervalLimits {
        counters: shape()?.counters(),
        candidates: 1 << 16,
    };
    let mut windows = Vec::new();
    for (node, intervals) in (0..).zip(sent) {
        let mut intervals = intervals
            .iter()
            .map(|bytes| Interval::decode(bytes, &limits));
        let mut interval = intervals.next().context("a node without an interval")??;
        for next in intervals {
            interval.merge(next?)?;
        }
        windows.push(NodeWindow { node, interval });
    }
    hottest(&windows)?.context("no nodes")
}

fn compare(report: &mut Report, case: &str, exact: &[u64], answer: &HotAnswer) {
    let truth = Truth::new(exact);
    let by_digest: HashMap<Digest, u64> = (0..exact.len() as u64)
        .map(|key| (digest(key), key))
        .collect();
    let key_of = |digest: &Digest| by_digest.get(digest).copied();
    let reported = answer
        .keys
        .iter()
        .map(|key| (key_of(&key.digest), key.estimate));
    truth.compare(report, case, TORC, reported);
    // Each reported key has at least N/k - εN accesses, except with probability δ.
    let least = truth.threshold.saturating_sub(answer.error_bound);
    let counts = answer
        .keys
        .iter()
        .filter_map(|key| key_of(&key.digest))
        .map(|key| exact[key as usize]);
    report.add(
        case,
        BELOW,
        TORC,
        counts.filter(|&count| count < least).count() as f64,
    );
}
