//! Combines the hot keys of several nodes.

#![expect(clippy::cast_precision_loss, reason = "a share for reports")]

use torc_record::Digest;

use super::interval::{Interval, estimate};
use super::key_name::KeyName;
use crate::count_min::CombineError;

/// One node's accesses in the requested window.
#[derive(Debug, Clone)]
pub struct NodeWindow {
    /// The node's id.
    pub node: u64,
    /// Its intervals, merged.
    pub interval: Interval,
}

/// A hot key.
#[derive(Debug, Clone, PartialEq)]
pub struct HotKey {
    /// The digest by which it is counted.
    pub digest: Digest,
    /// Its name for display.
    pub name: KeyName,
    /// Its accesses: at most this, and at least this minus [`HotAnswer::error_bound`] with
    /// probability 1 - δ.
    pub estimate: u64,
    /// The estimate as a fraction of all accesses.
    pub share: f64,
    /// The nodes where it is a candidate, each with its estimate there; largest first.
    pub nodes: Vec<(u64, u64)>,
    /// Whether it was not hot in the previous window, if known.
    pub is_new: Option<bool>,
}

/// A key with more than half of all accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Majority {
    /// The key.
    pub digest: Digest,
    /// Whether it has more than half even if the estimate is too high by the error bound.
    pub is_certain: bool,
}

/// The hot keys of a window, from [`hottest`].
#[derive(Debug, Clone, PartialEq)]
pub struct HotAnswer {
    /// The sum of all nodes, with the candidates that are heavy in it.
    pub window: Interval,
    /// εN: an estimate exceeds the truth by more with probability at most [`HotAnswer::delta`].
    pub error_bound: u64,
    /// δ.
    pub delta: f64,
    /// Every key with at least this many accesses is in the answer: N/k, unless a node lacked
    /// memory for candidates.
    pub complete_from: u64,
    /// The key with most of the accesses, if there is one.
    pub majority: Option<Majority>,
    /// Heaviest first; equal ones by digest. Each has at least N/k.
    pub keys: Vec<HotKey>,
}

/// Adds up the nodes' windows and estimates the candidates of all. `None` if there are no nodes.
///
/// Takes 1 ns per node and counter, and about 100 ns per node and hot key.
///
/// # Errors
/// [`CombineError`] if the nodes' sketches have different shapes or seeds.
pub fn hottest(windows: &[NodeWindow]) -> Result<Option<HotAnswer>, CombineError> {
    let mut intervals = windows.iter().map(|window| window.interval.clone());
    let Some(mut window) = intervals.next() else {
        return Ok(None);
    };
    intervals.try_for_each(|interval| window.merge(interval))?;
    let mut keys: Vec<HotKey> = window
        .candidates
        .iter()
        .map(|candidate| HotKey {
            digest: candidate.digest,
            name: candidate.name.clone(),
            estimate: estimate(&window.counts, &candidate.digest),
            share: share(estimate(&window.counts, &candidate.digest), window.total()),
            nodes: nodes_of(windows, &candidate.digest),
            is_new: None,
        })
        .collect();
    keys.sort_unstable_by_key(|key| (std::cmp::Reverse(key.estimate), key.digest));
    Ok(Some(HotAnswer {
        error_bound: window.counts.error_bound(),
        delta: window.counts.shape().delta(),
        complete_from: window.threshold().saturating_add(window.missed),
        majority: majority(&window),
        keys,
        window,
    }))
}

fn share(estimate: u64, total: u64) -> f64 {
    if total == 0 {
        return 0.0;
    }
    (estimate as f64 / total as f64).min(1.0)
}

fn nodes_of(windows: &[NodeWindow], digest: &Digest) -> Vec<(u64, u64)> {
    let is_candidate = |window: &&NodeWindow| {
        window
            .interval
            .candidates
            .binary_search_by_key(digest, |candidate| candidate.digest)
            .is_ok()
    };
    let with_estimate =
        |window: &NodeWindow| (window.node, estimate(&window.interval.counts, digest));
    let mut nodes: Vec<_> = windows
        .iter()
        .filter(is_candidate)
        .map(with_estimate)
        .collect();
    nodes.sort_unstable_by_key(|&(node, estimate)| (std::cmp::Reverse(estimate), node));
    nodes
}

/// The counter gives the only possible majority key; the sketch tells whether it is one.
fn majority(window: &Interval) -> Option<Majority> {
    let digest = window.majority()?;
    let (estimate, total) = (estimate(&window.counts, &digest), window.total());
    let surely = estimate.saturating_sub(window.counts.error_bound());
    (estimate > total / 2).then_some(Majority {
        digest,
        is_certain: surely > total / 2,
    })
}

impl HotAnswer {
    /// Marks the keys that were not hot in `previous`, the merged window before this one.
    ///
    /// # Errors
    /// [`CombineError`] if `previous` has another shape or seed; nothing was marked.
    pub fn compare(&mut self, previous: &Interval) -> Result<(), CombineError> {
        self.window.counts.check_combines_with(&previous.counts)?;
        let threshold = previous.threshold().max(1);
        for key in &mut self.keys {
            key.is_new = Some(estimate(&previous.counts, &key.digest) < threshold);
        }
        Ok(())
    }
}
