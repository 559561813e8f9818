//! The results of a run.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use serde_json::json;
use torc_client::NodeId;

use super::honest::Seen;
use super::kind::{Kind, Outcome};
use super::watch::Memory;

/// Limit on the unexpected outcomes printed per kind.
const MOST_TOLD: usize = 3;

/// The outcomes of one kind.
#[derive(Debug, Default, Clone)]
pub(super) struct Tally {
    pub(super) outcomes: BTreeMap<String, u64>,
    pub(super) slowest_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) seed: u64,
    pub(super) rounds: u64,
    pub(super) seconds: f64,
    pub(super) tallies: BTreeMap<String, Tally>,
    /// Skipped kinds, and why.
    pub(super) skipped: BTreeMap<String, &'static str>,
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
    pub(super) fn note(&mut self, kind: &Kind, outcome: &Outcome, took_ms: u64) {
        let tally = self.tallies.entry(kind.name.clone()).or_default();
        *tally.outcomes.entry(outcome.to_string()).or_default() += 1;
        tally.slowest_ms = tally.slowest_ms.max(took_ms);
        if !kind.expects(outcome) {
            let told = self.unexpected.entry(kind.name.clone()).or_default();
            if told.len() < MOST_TOLD {
                told.push(format!("{outcome}, where {} is due", kind.expectation()));
            }
        }
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
        let outcomes = self
            .tallies
            .values()
            .flat_map(|tally| tally.outcomes.values());
        outcomes.sum()
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
        let kinds = self.tallies.iter();
        let kinds: BTreeMap<_, _> = kinds.map(|(name, tally)| (name, &tally.outcomes)).collect();
        let object = json!({
            "seed": self.seed,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "requests": self.requests(),
            "kinds": kinds,
            "skipped": self.skipped,
            "unexpected": self.unexpected,
            "troubles": self.troubles,
            "lost": self.lost(),
            "rest": seen(&self.rest),
            "under": seen(&self.under),
            "p99_ratio": self.ratio(),
            "memory": memory.collect::<Vec<_>>(),
            "budget_mib": self.budget_mib,
            "kept": self.kept,
        });
        object.to_string()
    }

    fn to_text(&self) -> String {
        let mut lines = vec![format!("{:<46}{:>9}  outcomes", "kind", "slowest")];
        for (name, tally) in &self.tallies {
            let outcomes = tally.outcomes.iter();
            let outcomes: Vec<_> = outcomes
                .map(|(what, count)| format!("{count} {what}"))
                .collect();
            let mark = if self.unexpected.contains_key(name) {
                "  NOT AS IT SHOULD BE"
            } else {
                ""
            };
            lines.push(format!(
                "{name:<46}{:>6} ms  {}{mark}",
                tally.slowest_ms,
                outcomes.join(", ")
            ));
        }
        lines.push(format!(
            "{} kinds, {} requests in {} rounds, {:.0} s, seed {}",
            self.tallies.len(),
            self.requests(),
            self.rounds,
            self.seconds,
            self.seed
        ));
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
        for (name, outcomes) in &self.unexpected {
            lines.push(format!("unexpected: {name}: {}", outcomes.join("; ")));
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
