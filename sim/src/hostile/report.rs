//! The results of a run.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use serde_json::json;
use torc_client::NodeId;

use super::honest::{Seen, Span};
use super::kind::Kind;
use super::outcome::Done;
use super::watch::Memory;

/// Limit on the unexpected outcomes printed per kind.
const MOST_TOLD: usize = 3;
/// Limit on the kinds printed for the latency of the honest operations beside them.
const MOST_BESIDE: usize = 8;
/// A kind beside fewer honest operations has no 99th percentile.
const LEAST_BESIDE: usize = 200;

/// The outcomes of one kind.
#[derive(Debug, Default, Clone)]
pub(super) struct Tally {
    is_slow: bool,
    requests: u64,
    outcomes: BTreeMap<String, u64>,
    expected: u64,
    /// Outcomes that report that the node had no place, when another outcome was expected.
    busy: u64,
    unexpected: u64,
    slowest_ms: u64,
    goes: Vec<Span>,
}

impl Tally {
    fn total(&self) -> u64 {
        self.expected + self.busy + self.unexpected
    }

    /// The share of outcomes that are `busy`, percent.
    fn busy_percent(&self) -> f64 {
        100.0 * self.busy as f64 / self.total().max(1) as f64
    }
}

#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) seed: u64,
    pub(super) rounds: u64,
    pub(super) seconds: f64,
    /// The run counts requests: it does not repeat a request that a busy node refuses.
    pub(super) is_counting: bool,
    /// Every kind of the run, whether or not its turn came.
    pub(super) tallies: BTreeMap<String, Tally>,
    /// Skipped kinds, and why.
    pub(super) skipped: BTreeMap<String, &'static str>,
    /// The first unexpected outcomes of each kind.
    pub(super) unexpected: BTreeMap<String, Vec<String>>,
    /// Other problems.
    pub(super) troubles: Vec<String>,
    pub(super) rest: Seen,
    pub(super) under: Seen,
    pub(super) memory: BTreeMap<NodeId, Memory>,
    pub(super) budget_mib: u64,
    pub(super) p99_ratio: Option<f64>,
    pub(super) kept: Option<PathBuf>,
}

impl Report {
    /// Names the kinds of the run.
    pub(super) fn expect(&mut self, kinds: &[Kind]) {
        let tallies = kinds.iter().map(|kind| {
            let tally = Tally {
                is_slow: kind.is_slow,
                ..Tally::default()
            };
            (kind.name.clone(), tally)
        });
        self.tallies = tallies.collect();
    }

    pub(super) fn note(&mut self, kind: &Kind, done: &Done, took_ms: u64) {
        let Some(tally) = self.tallies.get_mut(&kind.name) else {
            return;
        };
        let outcome = &done.outcome;
        tally.requests += done.requests;
        *tally.outcomes.entry(outcome.to_string()).or_default() += 1;
        tally.slowest_ms = tally.slowest_ms.max(took_ms);
        if kind.expects(outcome) {
            tally.expected += 1;
        } else if self.is_counting && outcome.is_passing() {
            tally.busy += 1;
        } else {
            tally.unexpected += 1;
            let told = self.unexpected.entry(kind.name.clone()).or_default();
            if told.len() < MOST_TOLD {
                told.push(format!("{outcome}, where {} is due", kind.expectation()));
            }
        }
    }

    pub(super) fn note_go(&mut self, kind: &Kind, span: Span) {
        if let Some(tally) = self.tallies.get_mut(&kind.name) {
            tally.goes.push(span);
        }
    }

    /// The kinds beside which the honest client was slowest: name, operations, p99 in ms.
    ///
    /// Several kinds run at a time, so a kind may only have been near the one that was the cause.
    fn slowest_beside(&self) -> Vec<(&String, usize, f64)> {
        let kinds = self.tallies.iter().map(|(name, tally)| {
            let mut goes = tally.goes.clone();
            goes.sort_unstable();
            let (operations, p99) = self.under.beside(&goes);
            (name, operations, p99)
        });
        let mut kinds: Vec<_> = kinds.filter(|it| it.1 >= LEAST_BESIDE).collect();
        kinds.sort_by(|a, b| b.2.total_cmp(&a.2));
        kinds.truncate(MOST_BESIDE);
        kinds
    }

    /// Derives problems from the figures; the last step.
    pub(super) fn judge(&mut self) {
        for (node, memory) in &self.memory {
            let grown = memory.grown() >> 10;
            if grown > self.budget_mib {
                let budget = self.budget_mib;
                self.troubles.push(format!(
                    "node {node} took {grown} MiB more than at rest, {budget} are allowed"
                ));
            }
        }
        let only_busy = self.only_busy().map(|(name, tally)| {
            let busy = tally.busy;
            format!("{name}: the node was busy all {busy} times")
        });
        let only_busy: Vec<_> = only_busy.collect();
        self.troubles.extend(only_busy);
        let lost = self.rest.lost.iter().chain(&self.under.lost);
        self.troubles
            .extend(lost.map(|lost| format!("lost: {lost}")));
        if self.under.answered() == 0 {
            self.troubles
                .push("the honest client was not served".to_owned());
        }
        if let Some(most) = self.p99_ratio
            && self.ratio() > most
        {
            self.troubles.push(format!(
                "p99 is {:.1} times that at rest, {most} are allowed",
                self.ratio()
            ));
        }
    }

    pub(super) fn is_good(&self) -> bool {
        self.unexpected.is_empty() && self.troubles.is_empty()
    }

    /// The honest client's p99 relative to its p99 at rest.
    fn ratio(&self) -> f64 {
        self.under.percentile_ms(990) / self.rest.percentile_ms(990).max(1e-3)
    }

    fn requests(&self) -> u64 {
        self.tallies.values().map(|tally| tally.requests).sum()
    }

    fn requests_per_second(&self) -> f64 {
        self.requests() as f64 / self.seconds.max(1e-3)
    }

    /// Kinds that were run.
    fn ran(&self) -> impl Iterator<Item = (&String, &Tally)> {
        self.tallies.iter().filter(|(_, tally)| tally.total() > 0)
    }

    /// Kinds that found nothing but a busy node.
    fn only_busy(&self) -> impl Iterator<Item = (&String, &Tally)> {
        let ran = self.ran();
        ran.filter(|(_, tally)| tally.busy == tally.total())
    }

    /// Kinds whose turn did not come.
    fn not_run(&self) -> Vec<&String> {
        let waiting = self.tallies.iter().filter(|(_, tally)| tally.total() == 0);
        waiting.map(|(name, _)| name).collect()
    }

    /// The fast kind with the fewest requests.
    fn fewest(&self) -> Option<(&String, u64)> {
        let fast = self.tallies.iter().filter(|(_, tally)| !tally.is_slow);
        fast.map(|(name, tally)| (name, tally.requests))
            .min_by_key(|(_, requests)| *requests)
    }

    fn lost(&self) -> usize {
        self.rest.lost.len() + self.under.lost.len()
    }

    pub(super) fn print(&self, json: bool) {
        let text = if json { self.to_json() } else { self.to_text() };
        // If the reader has closed the pipe, only the printing ends.
        let _ = writeln!(std::io::stdout(), "{text}");
    }

    fn to_json(&self) -> String {
        let seen = |seen: &Seen| {
            json!({
                "answered": seen.answered(),
                "acknowledged_writes": seen.acknowledged,
                "failed": seen.failed,
                "unknown": seen.unknown,
                "p50_ms": seen.percentile_ms(500),
                "p99_ms": seen.percentile_ms(990),
                "longest_ms": seen.longest_ms(),
            })
        };
        let memory = self.memory.iter().map(|(node, memory)| {
            json!({
                "node": node.0,
                "rest_mib": memory.rest >> 10,
                "peak_mib": memory.peak >> 10,
                "grown_mib": memory.grown() >> 10,
                "last_mib": memory.last >> 10,
            })
        });
        let kinds = self.ran().map(|(name, tally)| (name, &tally.outcomes));
        let unexpected = self.unexpected.iter().map(|(name, told)| {
            let count = self.tallies.get(name).map(|tally| tally.unexpected);
            (name, json!({ "count": count, "told": told }))
        });
        let busy = self.ran().filter(|(_, tally)| tally.busy > 0);
        let busy = busy.map(|(name, tally)| {
            (
                name,
                json!({ "count": tally.busy, "percent": tally.busy_percent() }),
            )
        });
        let fewest = self.fewest();
        let fewest = fewest.map(|(kind, requests)| json!({ "kind": kind, "requests": requests }));
        let beside = self.slowest_beside().into_iter();
        let beside = beside.map(|(kind, operations, p99)| {
            json!({ "kind": kind, "operations": operations, "p99_ms": p99 })
        });
        let object = json!({
            "seed": self.seed,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "requests": self.requests(),
            "requests_per_second": self.requests_per_second(),
            "fewest_of_a_fast_kind": fewest,
            "kinds": kinds.collect::<BTreeMap<_, _>>(),
            "busy": busy.collect::<BTreeMap<_, _>>(),
            "not_run": self.not_run(),
            "skipped": self.skipped,
            "unexpected": unexpected.collect::<BTreeMap<_, _>>(),
            "troubles": self.troubles,
            "lost": self.lost(),
            "rest": seen(&self.rest),
            "under": seen(&self.under),
            "p99_ratio": self.ratio(),
            "slowest_beside": beside.collect::<Vec<_>>(),
            "memory": memory.collect::<Vec<_>>(),
            "budget_mib": self.budget_mib,
            "kept": self.kept,
        });
        object.to_string()
    }

    fn to_text(&self) -> String {
        let mut lines = vec![format!(
            "{:<46}{:>9}{:>10}  outcomes",
            "kind", "slowest", "requests"
        )];
        for (name, tally) in self.ran() {
            let outcomes = tally.outcomes.iter();
            let outcomes: Vec<_> = outcomes
                .map(|(what, count)| format!("{count} {what}"))
                .collect();
            let busy = if tally.busy > 0 {
                format!("  ({:.1} % busy)", tally.busy_percent())
            } else {
                String::new()
            };
            let mark = if self.unexpected.contains_key(name) {
                "  NOT AS IT SHOULD BE"
            } else {
                ""
            };
            lines.push(format!(
                "{name:<46}{:>6} ms{:>10}  {}{busy}{mark}",
                tally.slowest_ms,
                tally.requests,
                outcomes.join(", ")
            ));
        }
        lines.push(format!(
            "{} kinds, {} requests in {} rounds, {:.0} s ({:.0} per second), seed {}",
            self.ran().count(),
            self.requests(),
            self.rounds,
            self.seconds,
            self.requests_per_second(),
            self.seed
        ));
        if let Some((name, requests)) = self.fewest() {
            lines.push(format!(
                "fewest requests of a fast kind: {requests}, {name}"
            ));
        }
        for (what, seen) in [("at rest", &self.rest), ("meanwhile", &self.under)] {
            lines.push(format!(
                "honest client {what}: {} answered, p50 {:.1} ms, p99 {:.1} ms, longest {:.0} ms, {} failed, {} unknown",
                seen.answered(),
                seen.percentile_ms(500),
                seen.percentile_ms(990),
                seen.longest_ms(),
                seen.failed,
                seen.unknown
            ));
        }
        lines.push(format!(
            "p99 beside rest: {:.1}; acknowledged writes lost: {}",
            self.ratio(),
            self.lost()
        ));
        let beside = self.slowest_beside().into_iter();
        let beside = beside
            .map(|(kind, operations, p99)| format!("{kind} {p99:.1} ms ({operations} operations)"));
        lines.push(format!(
            "slowest p99 beside: {}",
            beside.collect::<Vec<_>>().join(", ")
        ));
        for (node, memory) in &self.memory {
            lines.push(format!(
                "node {node}: {} MiB at rest, {} at most, {} at the end",
                memory.rest >> 10,
                memory.peak >> 10,
                memory.last >> 10
            ));
        }
        for (name, why) in &self.skipped {
            lines.push(format!("left out: {name}: {why}"));
        }
        let not_run = self.not_run();
        if !not_run.is_empty() {
            let names: Vec<_> = not_run.iter().map(|name| name.as_str()).collect();
            lines.push(format!("not run, the run was over: {}", names.join(", ")));
        }
        for (name, outcomes) in &self.unexpected {
            let count = self.tallies.get(name).map_or(0, |tally| tally.unexpected);
            lines.push(format!(
                "unexpected: {name}: {count}: {}",
                outcomes.join("; ")
            ));
        }
        lines.extend(
            self.troubles
                .iter()
                .map(|trouble| format!("wrong: {trouble}")),
        );
        if let Some(kept) = &self.kept {
            lines.push(format!("kept in {}", kept.display()));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::super::kind::expect;
    use super::super::outcome::Outcome;
    use super::*;

    #[test]
    fn a_kind_that_finds_only_a_busy_node_fails_a_run_of_requests() {
        let kind = Kind::new("kind", "", expect::ANSWERED, |_| async { Outcome::Closed });
        let mut report = Report {
            is_counting: true,
            ..Report::default()
        };
        report.expect(std::slice::from_ref(&kind));
        report.note(&kind, &Outcome::Grpc(Code::Unavailable).into(), 1);
        assert!(report.unexpected.is_empty(), "a node may be busy");
        assert!(report.only_busy().next().is_some(), "but not always");
        report.note(&kind, &Outcome::Grpc(Code::Ok).into(), 1);
        assert!(report.only_busy().next().is_none());
        assert_eq!(report.requests(), 2, "a refusal is a request");
    }
}
