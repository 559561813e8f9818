//! One run: faults and load, then healing, then checks.

use torc_record::{Ballot, Record};
use torc_replication::{Mutations, OutOfReach};
use torc_ring::topology::Stage;

use crate::check::{Verdict, check, check_by_configurations};
use crate::history::{KeyHistory, Operation, Seen};
use crate::profile::{Faults, Profile};
use crate::rng::Rng;
use crate::trace::Trace;
use crate::workload::{NOBODY, PlannedCall, is_eventual};
use crate::world::{Counts, HEALED_CLOCK_MS, World};

/// Simulated time within which a healed cluster must converge and answer.
const TIMEOUT_US: u64 = 1_500_000;
/// One in this many runs is also judged by the second checker.
const SECOND_OPINION: u64 = 16;
/// What a run violated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// No order explains a key's history.
    NotLinearizable {
        /// The key.
        key: usize,
        /// The clients' observations.
        history: KeyHistory,
    },
    /// The two checkers disagree, so one of them is wrong.
    CheckersDisagree {
        /// The key.
        key: usize,
        /// The clients' observations.
        history: KeyHistory,
    },
    /// Another impossible result: of a key in an `eventual` namespace, or of a scan.
    Broken {
        /// The key.
        key: usize,
        /// The problem.
        what: String,
    },
    /// A version changed without a write.
    Renamed {
        /// The key.
        key: usize,
    },
    /// After healing, replicas stayed different, or the cluster was stuck.
    NotConverged {
        /// What was missing.
        what: String,
    },
}

/// The result of a run.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The violation, if any.
    pub violation: Option<Violation>,
    /// Client operations, the last reads included.
    pub operations: u64,
    /// Keys whose check was abandoned.
    pub undecided: u64,
    /// Operations answered after one round.
    pub fast: u64,
    /// Operations answered.
    pub answered: u64,
    /// Operations with unknown outcome.
    pub unknown: u64,
    /// Faults by name.
    pub faults: Counts,
    /// Hash of all events.
    pub hash: u64,
    /// Their text, if requested.
    pub trace: Vec<String>,
}

/// Runs a seed of a profile.
#[must_use]
pub fn run(seed: u64, profile: Profile, mutations: Mutations, trace: Trace) -> Report {
    let mut rng = Rng::new(seed);
    let faults = profile.draw(&mut rng);
    run_with(seed, faults, mutations, rng, trace)
}

/// Runs a seed with these faults, drawing everything else from `rng`.
#[must_use]
pub fn run_with(seed: u64, faults: Faults, mutations: Mutations, rng: Rng, trace: Trace) -> Report {
    let mut world = World::new(seed, faults, mutations, rng, trace);
    while !world.workload.is_over() {
        if !world.step() {
            break;
        }
    }
    world.heal();
    let mut violation = world.converge();
    if violation.is_none() {
        world.look_at_ledgers();
    }
    world.workload.finish();
    if let Some((key, what)) = world.workload.broken.take() {
        violation = Some(Violation::Broken { key, what });
    }
    if let Some(key) = world.workload.renamed {
        violation.get_or_insert(Violation::Renamed { key });
    }
    let undecided = judge(seed, &world, &mut violation);
    let Counts(mut faults) = world.counts;
    faults.insert("moved", world.group.moves);
    faults.insert("aborted", world.group.aborts);
    faults.insert("excluded", world.group.excluded);
    Report {
        violation,
        operations: world.workload.issued,
        undecided,
        fast: world.workload.fast,
        answered: world.workload.answered,
        unknown: world.workload.unknown,
        faults: Counts(faults),
        hash: world.trace.hash(),
        trace: world.trace.lines().to_vec(),
    }
}

/// Checks every key; returns the number of abandoned checks.
fn judge(seed: u64, world: &World, violation: &mut Option<Violation>) -> u64 {
    let mut undecided = 0;
    for (key, history) in world.workload.histories.iter().enumerate() {
        let verdict = check(history);
        undecided += u64::from(verdict == Verdict::Undecided);
        let history = || history.clone();
        if verdict == Verdict::Violation {
            // Takes precedence over a violation found by convergence.
            *violation = Some(Violation::NotLinearizable {
                key,
                history: history(),
            });
        }
        if seed.is_multiple_of(SECOND_OPINION) && verdict != Verdict::Undecided {
            let second = check_by_configurations(&history());
            if second != Verdict::Undecided && second != verdict {
                *violation = Some(Violation::CheckersDisagree {
                    key,
                    history: history(),
                });
            }
        }
    }
    undecided
}

impl World {
    /// Repairs links, clocks and processes; lost data stays lost.
    fn heal(&mut self) {
        self.healing = true;
        self.cut_until = Default::default();
        for node in 0..self.nodes.len() {
            self.nodes[node].clock_error_ms = HEALED_CLOCK_MS;
            self.nodes[node].slow_until_us = 0;
            self.nodes[node].full_until_us = 0;
            self.nodes[node].no_group_until_us = 0;
            self.coordinate(node, |process, _, _| {
                process.coordinator.on_peers(&OutOfReach::default());
            });
            self.schedule(1_000, crate::event::Event::Start { node });
        }
        self.trace.note(self.us, || "healed".to_owned());
    }

    /// Runs until all replicas hold the same, then reads every key on every node.
    fn converge(&mut self) -> Option<Violation> {
        let end = self.us + TIMEOUT_US;
        if let Some(what) = self.run_until(end, Self::difference) {
            return Some(Violation::NotConverged { what });
        }
        let began = self.moment;
        for node in 0..self.nodes.len() {
            if self.nodes[node].is_up() {
                let keys = 0..self.workload.keys.len();
                let gets = keys
                    .map(|key| PlannedCall::get(&self.workload, key))
                    .collect();
                self.ask(NOBODY, node, gets, 1_000);
            }
        }
        let up: Vec<_> = (0..self.nodes.len())
            .filter(|n| self.nodes[*n].is_up())
            .collect();
        if let Some(node) = self.rng.pick(&up) {
            self.begin_scan(NOBODY, node, 1_000);
        }
        let waiting = |world: &Self| (world.waiting() > 0).then(|| "an operation".to_owned());
        if let Some(what) = self.run_until(self.us + TIMEOUT_US, waiting) {
            return Some(Violation::NotConverged { what });
        }
        let last = |history: &KeyHistory| {
            let unanswered = |get: &Operation| get.call > began && get.seen == Seen::Unknown;
            history.operations.iter().any(unanswered)
        };
        if self.workload.histories.iter().any(last) {
            let what = "a read after healing failed".to_owned();
            return Some(Violation::NotConverged { what });
        }
        None
    }

    fn run_until(&mut self, end: u64, missing: impl Fn(&Self) -> Option<String>) -> Option<String> {
        let mut looked = 0;
        loop {
            if self.us >= looked {
                looked = self.us + 5_000;
                let what = missing(self)?;
                if self.us > end {
                    return Some(what);
                }
            }
            if !self.step() {
                return Some("nothing happens any more".to_owned());
            }
        }
    }

    /// Checks the ledgers with the content of the replicas, which are equal.
    fn look_at_ledgers(&mut self) {
        let config = &self.group.config;
        let members = config.members.iter();
        let disks = members.filter_map(|m| Some(&self.nodes[self.index(m.node)?].disk));
        let Some(disk) = disks.max_by_key(|disk| disk.meta.collected) else {
            return;
        };
        let Faults {
            wipe,
            dead,
            resize,
            corrupt,
            ..
        } = self.faults;
        // Whether no fault can have lost the only copy of a version.
        let keeps_all = wipe == 0 && dead == 0 && resize == 0 && corrupt == 0;
        let ms = self.told_ms();
        let held = disk.records(disk.meta.collected);
        let held: Vec<_> = held.filter(|r| is_eventual(r.namespace)).cloned().collect();
        for (key, at) in self.workload.keys.iter().enumerate() {
            if is_eventual(at.namespace) {
                let held = held
                    .iter()
                    .find(|r| r.digest == at.digest && r.key == at.key);
                self.workload.ledgers[key].held_in_the_end(held, ms, keeps_all);
            }
        }
    }

    /// What keeps the replicas from being equal.
    fn difference(&self) -> Option<String> {
        if self.awaits_creation() {
            return Some("a node does not know the new namespace".to_owned());
        }
        let config = &self.group.config;
        if config.stage != Stage::Stable {
            return Some(format!("the move is in {:?}", config.stage));
        }
        let mut disks = Vec::new();
        for member in &config.members {
            let node = &self.nodes[self.index(member.node)?];
            if node.gone || !node.is_up() {
                return Some(format!("node {} is down", node.id));
            }
            if node.disk.meta.epoch != config.epoch {
                return Some(format!("node {} is in an older epoch", node.id));
            }
            if !node.disk.is_readable() {
                return Some(format!("node {} has an unreadable record", node.id));
            }
            disks.push(&node.disk);
        }
        let watermarks = disks.iter().map(|disk| disk.meta.collected);
        let collected = watermarks.max().unwrap_or_else(Ballot::default);
        let equal =
            |pair: &[&crate::disk::Disk]| pair[0].records(collected).eq(pair[1].records(collected));
        let same = disks.windows(2).all(equal);
        // No client reads it any more, so it must disappear by itself.
        let has_expired = |record: &Record| record.expires_at_ms().is_some();
        if same && disks[0].records(collected).any(has_expired) {
            return Some("a value that has expired is left".to_owned());
        }
        (!same).then(|| "replicas hold different records".to_owned())
    }
}
