//! The results of a run, and the files of a failed run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use torc_sim::check::{Verdict, check, check_by_configurations};

use super::changes::Changes;
use super::fault::Fault;
use super::group::Group;
use super::recorder::{Recorded, Recorder, Tally};
use super::{Error, Mode, Options, eventual};

/// The findings of a run.
pub(super) struct Report {
    seed: u64,
    minutes: f64,
    nodes: usize,
    faults: BTreeMap<&'static str, u64>,
    /// Faults that were impossible here, and why.
    skipped: BTreeMap<&'static str, String>,
    kills: u64,
    changes: BTreeMap<&'static str, u64>,
    slowest_change: Duration,
    longest_unavailability: Duration,
    deadline: Duration,
    begun: Instant,
    tally: Tally,
    keys: usize,
    undecided: usize,
    violations: Vec<Recorded>,
    /// Problems other than those in clients' histories.
    troubles: Vec<String>,
    slowest_recovery: Duration,
    /// Nodes whose clocks were ahead, by number.
    were_ahead: BTreeSet<u32>,
    convergence: Option<Duration>,
    /// With `--generations`: those promoted, and the answers of reads.
    generations: Option<(u64, u64)>,
    kept: Option<PathBuf>,
}

impl Report {
    pub(super) fn new(options: &Options, group: &Group) -> Self {
        Self {
            seed: options.seed,
            minutes: 0.0,
            nodes: group.processes.len(),
            faults: BTreeMap::new(),
            skipped: BTreeMap::new(),
            kills: 0,
            changes: BTreeMap::new(),
            slowest_change: Duration::ZERO,
            longest_unavailability: Duration::ZERO,
            deadline: options.deadline(),
            begun: Instant::now(),
            tally: Tally::default(),
            keys: 0,
            undecided: 0,
            violations: Vec::new(),
            troubles: Vec::new(),
            slowest_recovery: Duration::ZERO,
            were_ahead: BTreeSet::new(),
            convergence: None,
            generations: None,
            kept: None,
        }
    }

    pub(super) fn note_fault(&mut self, fault: Fault) {
        *self.faults.entry(fault.name()).or_default() += 1;
    }

    pub(super) fn note_skipped(&mut self, fault: Fault, why: String) {
        self.skipped.insert(fault.name(), why);
    }

    /// Counts killed processes.
    pub(super) fn note_kills(&mut self, count: usize) {
        self.kills += count as u64;
    }

    pub(super) const fn kills(&self) -> u64 {
        self.kills
    }

    pub(super) fn note_changes(&mut self, changes: &Changes) {
        self.changes.clone_from(changes.done());
        self.slowest_change = changes.slowest();
    }

    /// Notes that the faults have ended.
    pub(super) fn note_end(&mut self, recorder: &Recorder) {
        self.minutes = self.begun.elapsed().as_secs_f64() / 60.0;
        self.longest_unavailability = recorder.longest_unavailability();
    }

    pub(super) fn note_trouble(&mut self, trouble: String) {
        self.troubles.push(trouble);
    }

    pub(super) fn note_recovery(&mut self, took: Duration) {
        self.slowest_recovery = self.slowest_recovery.max(took);
    }

    pub(super) fn note_ahead(&mut self, group: &Group) {
        let ahead = group.processes.iter().filter(|process| process.was_ahead);
        self.were_ahead.extend(ahead.map(|process| process.number));
    }

    pub(super) fn note_convergence(&mut self, took: Duration) {
        self.convergence = Some(took);
    }

    pub(super) fn note_generations(&mut self, promoted: u64, answers: u64, wrong: Vec<String>) {
        self.generations = Some((promoted, answers));
        self.troubles.extend(wrong);
    }

    pub(super) fn is_good(&self) -> bool {
        self.violations.is_empty() && self.troubles.is_empty()
    }

    /// Checks every key's history, with both checkers if the keys are registers.
    pub(super) async fn judge(&mut self, (keys, tally): (Vec<Recorded>, Tally), mode: Mode) {
        self.tally = tally;
        self.keys = keys.len();
        let judging = tokio::task::spawn_blocking(move || {
            let verdicts = keys.into_iter().map(|key| match mode {
                Mode::Linearizable => (verdict(&key), key),
                Mode::Eventual => (eventual::verdict(&key), key),
            });
            let wrong = verdicts.filter(|(verdict, _)| *verdict != Verdict::Linearizable);
            wrong.collect::<Vec<_>>()
        });
        match judging.await {
            Ok(wrong) => {
                let is_violation = |(verdict, _): &(Verdict, _)| *verdict == Verdict::Violation;
                let (violations, undecided): (Vec<_>, Vec<_>) =
                    wrong.into_iter().partition(is_violation);
                self.violations = violations.into_iter().map(|(_, key)| key).collect();
                self.undecided = undecided.len();
            }
            Err(panic) => self.note_trouble(format!("a checker gave up: {panic}")),
        }
    }

    /// Keeps logs, data and the histories of the failed keys.
    pub(super) fn keep(&mut self, group: &mut Group, within: Option<&Path>) -> Result<(), Error> {
        let Some(kept) = group.keep() else {
            return Ok(());
        };
        let histories = kept.join("violations.txt");
        let mut file = File::create(histories).map_err(Error::io("keeping histories"))?;
        for key in &self.violations {
            let write = writeln!(file, "{}", readable(key));
            write.map_err(Error::io("keeping histories"))?;
        }
        self.kept = Some(match within {
            None => kept,
            Some(within) => moved(&kept, within, self.seed).map_err(Error::io("keeping a run"))?,
        });
        Ok(())
    }

    pub(super) fn print(&self, json: bool) {
        let text = if json { self.to_json() } else { self.to_text() };
        // If the reader has closed the pipe, only the printing ends.
        let _ = writeln!(std::io::stdout(), "{text}");
    }

    fn unknown_share(&self) -> f64 {
        self.tally.unknown as f64 / (self.tally.operations as f64).max(1.0)
    }

    fn to_json(&self) -> String {
        let object = json!({
            "seed": self.seed,
            "minutes": self.minutes,
            "nodes": self.nodes,
            "operations": self.tally.operations,
            "answered": self.tally.answered,
            "written": self.tally.written,
            "conditions_unmet": self.tally.unmet,
            "failed": self.tally.failed,
            "unknown": self.tally.unknown,
            "unknown_share": self.unknown_share(),
            "keys": self.keys,
            "violations": self.violations.len(),
            "undecided": self.undecided,
            "troubles": self.troubles,
            "slowest_recovery_ms": self.slowest_recovery.as_millis() as u64,
            "convergence_ms": self.convergence.map(|took| took.as_millis() as u64),
            "longest_unavailability_ms": self.longest_unavailability.as_millis() as u64,
            "deadline_ms": self.deadline.as_millis() as u64,
            "library_failed": self.tally.library_failed,
            "library_unknown": self.tally.library_unknown,
            "generations": self.generations.map(|(promoted, _)| promoted),
            "generation_answers": self.generations.map(|(_, answers)| answers),
            "kills": self.kills,
            "changes": self.changes,
            "slowest_change_ms": self.slowest_change.as_millis() as u64,
            "faults": self.faults,
            "skipped": self.skipped,
            "were_ahead": self.were_ahead,
            "kept": self.kept,
        });
        object.to_string()
    }

    fn to_text(&self) -> String {
        let tally = &self.tally;
        let mut lines = vec![
            format!(
                "{} operations on {} keys of {} nodes: {} violations, {} undecided",
                tally.operations,
                self.keys,
                self.nodes,
                self.violations.len(),
                self.undecided
            ),
            format!(
                "{} reads answered, {} writes acknowledged, {} conditions not met, {} failed, \
                 {} unknown ({:.2} %)",
                tally.answered,
                tally.written,
                tally.unmet,
                tally.failed,
                tally.unknown,
                100.0 * self.unknown_share()
            ),
            format!(
                "{} kills, {} acknowledged writes, {}",
                self.kills,
                tally.written,
                match self.violations.len() {
                    0 => "0 lost".to_owned(),
                    wrong => format!("{wrong} keys with a history that cannot be"),
                }
            ),
            format!(
                "the library, told to end within {:?}: {} operations failed, {} unknown",
                self.deadline, tally.library_failed, tally.library_unknown
            ),
            format!(
                "slowest recovery {:.1?}, longest time without any answer {:.1?}",
                self.slowest_recovery, self.longest_unavailability
            ),
        ];
        if !self.changes.is_empty() {
            let changes = self.changes.iter();
            let changes: Vec<_> = changes
                .map(|(name, count)| format!("{count} {name}"))
                .collect();
            let slowest = self.slowest_change;
            lines.push(format!(
                "changes: {}; slowest {slowest:.1?}",
                changes.join(", ")
            ));
        }
        if let Some(took) = self.convergence {
            lines.push(format!("all replicas equal after {took:.1?}"));
        }
        if let Some((promoted, answers)) = self.generations {
            lines.push(format!(
                "{promoted} generations promoted, {answers} answers from them"
            ));
        }
        let faults = self.faults.iter();
        lines.extend(faults.map(|(name, count)| format!("  {name:<12}{count:>8}")));
        let ahead = self.were_ahead.iter();
        lines.extend(ahead.map(|number| {
            format!(
                "node {number}'s clock was an hour ahead: nothing is asked of it but what \
                 the others and clients of the library are answered without it"
            )
        }));
        let skipped = self.skipped.iter();
        lines.extend(skipped.map(|(name, why)| format!("  not here: {name} ({why})")));
        lines.extend(
            self.troubles
                .iter()
                .map(|trouble| format!("trouble: {trouble}")),
        );
        if let Some(kept) = &self.kept {
            lines.push(format!(
                "logs, data and histories are kept in {}",
                kept.display()
            ));
        }
        lines.join("\n")
    }
}

/// A violation if either checker finds one; undecided only if both are.
fn verdict(key: &Recorded) -> Verdict {
    let history = key.to_check();
    match (check(&history), check_by_configurations(&history)) {
        (Verdict::Violation, _) | (_, Verdict::Violation) => Verdict::Violation,
        (Verdict::Undecided, other) | (other, _) => other,
    }
}

/// A key's history, one operation per line.
fn readable(key: &Recorded) -> String {
    let mut lines = vec![format!("key {}", key.name)];
    for (operation, by) in key.history.operations.iter().zip(&key.by) {
        let ret = match operation.ret {
            u64::MAX => "never".to_owned(),
            ret => ret.to_string(),
        };
        let (kind, seen, call) = (operation.kind, operation.seen, operation.call);
        lines.push(format!("{call:>10} to {ret:<10} {kind:?}: {seen:?}, {by}"));
    }
    lines.join("\n")
}

/// Moves a run to a directory, which is created if necessary; returns the new path.
fn moved(kept: &Path, within: &Path, seed: u64) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(within)?;
    let to = within.join(format!("cluster-seed-{seed}"));
    std::fs::rename(kept, &to)?;
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_kept_where_no_directory_is_yet() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        std::fs::create_dir(&run).unwrap();
        let kept = moved(&run, &dir.path().join("not/there/yet"), 7).unwrap();
        assert!(kept.is_dir() && kept.ends_with("not/there/yet/cluster-seed-7"));
    }
}
