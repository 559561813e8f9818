//! One fault at a time, and a pause in which the cluster must serve again. Changes of the
//! cluster go on meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::ValueEnum;
use tokio::time::Instant;
use torc_sim::Rng;

use super::changes::Changes;
use super::group::Group;
use super::probes::serves_again;
use super::process::LinkFaults;
use super::report::Report;
use super::{Error, Options};

const HOUR_MS: i64 = 3_600_000;
/// How often a change is looked after while there are no faults.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often a disk is filled again: nodes remove files, too.
const FILL_EVERY: Duration = Duration::from_millis(50);

/// What can be done to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Fault {
    /// SIGKILL of one node, and its restart.
    Kill,
    /// SIGKILL of all nodes at a time, and their restart.
    KillAll,
    /// SIGSTOP of one node, and SIGCONT.
    Stop,
    /// One node hears nobody and is heard by nobody.
    Cut,
    /// One node is not heard by another.
    CutOneWay,
    /// One node hears nobody.
    Deaf,
    /// What one node sends is late.
    Delay,
    /// SIGKILL of one node, whose disk is lost: a new node replaces it.
    Wipe,
    /// One node's wall clock is an hour wrong.
    Clock,
    /// One node's disk is full.
    FullDisk,
    /// Nodes join, leave and are replaced, while other faults go on.
    Change,
}

impl Fault {
    /// As in the report.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::KillAll => "kill_all",
            Self::Stop => "stop",
            Self::Cut => "cut",
            Self::CutOneWay => "cut_one_way",
            Self::Deaf => "deaf",
            Self::Delay => "delay",
            Self::Wipe => "wipe",
            Self::Clock => "clock",
            Self::FullDisk => "full_disk",
            Self::Change => "change",
        }
    }

    /// Those that a run is asked for: by name, by their number, or all.
    pub(super) fn chosen(options: &Options) -> Vec<Self> {
        let mut chosen = options.only.clone();
        if chosen.is_empty() && !options.is_counted() {
            return Self::value_variants().to_vec();
        }
        let counted = [
            (options.kills.is_some(), Self::Kill),
            (options.changes.is_some(), Self::Change),
        ];
        let counted = counted
            .into_iter()
            .filter_map(|(is, fault)| is.then_some(fault));
        chosen.extend(counted);
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }
}

/// Goes on until the time is over, what was counted is done, or the cluster does not serve
/// any more.
pub(super) async fn torment(options: &Options, group: &mut Group, report: &mut Report) {
    let changes = match Changes::new(group, options.nodes, options.seed) {
        Ok(changes) => changes,
        Err(error) => return report.note_trouble(error.to_string()),
    };
    let mut faults = Fault::chosen(options);
    let has_changes = faults.contains(&Fault::Change);
    faults.retain(|fault| *fault != Fault::Change);
    if let Some(why) = group.no_small_disks.clone()
        && faults.contains(&Fault::FullDisk)
    {
        faults.retain(|fault| *fault != Fault::FullDisk);
        report.note_skipped(Fault::FullDisk, why);
    }
    let mut nemesis = Nemesis {
        rng: Rng::new(options.seed ^ 0x6e65_6d65),
        pause: options.pause_seconds.map(Duration::from_secs),
        wanted_kills: options.kills,
        wanted_changes: options.changes,
        faults,
        has_changes,
        until: Instant::now() + options.time(),
        changes,
    };
    if let Err(trouble) = nemesis.go_on(group, report).await {
        report.note_trouble(trouble);
    }
    report.note_changes(&nemesis.changes);
}

struct Nemesis {
    rng: Rng,
    /// How long a node is stopped, if not a few seconds.
    pause: Option<Duration>,
    wanted_kills: Option<u64>,
    wanted_changes: Option<u64>,
    faults: Vec<Fault>,
    has_changes: bool,
    until: Instant,
    changes: Changes,
}

impl Nemesis {
    async fn go_on(&mut self, group: &mut Group, report: &mut Report) -> Result<(), String> {
        while Instant::now() < self.until && !self.is_done(report) {
            self.look_after_changes(group).await?;
            let may_kill = self.wanted_kills.is_none_or(|kills| report.kills() < kills);
            let mut faults = self.faults.clone();
            faults.retain(|fault| may_kill || *fault != Fault::Kill);
            let Some(fault) = self.rng.pick(&faults) else {
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            };
            report.note_fault(fault);
            let inflicted = self.inflict(fault, group, report).await;
            inflicted.map_err(|error| format!("{}: {error}", fault.name()))?;
            report.note_ahead(group);
            let served = serves_again(group).await;
            let took = served.map_err(|trouble| format!("after {}: {trouble}", fault.name()))?;
            report.note_recovery(took);
            let most_ms = if self.wanted_kills.is_some() {
                200
            } else {
                1_000
            };
            self.wait(100, most_ms).await;
        }
        self.settle(group).await?;
        report.note_recovery(serves_again(group).await?);
        Ok(())
    }

    fn is_done(&self, report: &Report) -> bool {
        let is_counted = self.wanted_kills.is_some() || self.wanted_changes.is_some();
        let kills = self
            .wanted_kills
            .is_none_or(|kills| report.kills() >= kills);
        let done = self.changes.done_in_order();
        let changes = self.wanted_changes.is_none_or(|changes| done >= changes);
        is_counted && kills && changes
    }

    async fn look_after_changes(&mut self, group: &mut Group) -> Result<(), String> {
        let is_idle = self.changes.look_after(group).await?;
        let done = self.changes.done_in_order();
        let are_wanted = self.wanted_changes.is_none_or(|changes| done < changes);
        if is_idle && self.has_changes && are_wanted {
            let begun = self.changes.begin(group);
            begun.map_err(|error| format!("beginning a change: {error}"))?;
        }
        Ok(())
    }

    /// Until no change is under way.
    async fn settle(&mut self, group: &mut Group) -> Result<(), String> {
        while !self.changes.look_after(group).await? {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    async fn wait(&mut self, least_ms: u64, most_ms: u64) {
        let time = Duration::from_millis(self.rng.between(least_ms, most_ms));
        tokio::time::sleep_until(self.until.min(Instant::now() + time)).await;
    }

    async fn inflict(
        &mut self,
        fault: Fault,
        group: &mut Group,
        report: &mut Report,
    ) -> Result<(), String> {
        if fault == Fault::Wipe {
            // Whoever takes a second disk before the first is replaced takes the data.
            self.settle(group).await?;
            report.note_kills(1);
            return self.changes.wipe(group).await;
        }
        let runs = |index: &usize| group.processes[*index].is_started();
        let running: Vec<_> = (0..group.processes.len()).filter(runs).collect();
        let Some(node) = self.rng.pick(&running) else {
            return Ok(());
        };
        let inflicted = match fault {
            Fault::Kill => self.kill(&[node], group, report).await,
            Fault::KillAll => self.kill(&running, group, report).await,
            Fault::Stop => {
                group.processes[node].stop();
                match self.pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => self.wait(200, 5_000).await,
                }
                group.processes[node].go_on();
                Ok(())
            }
            Fault::Clock => self.set_clock(node, group).await,
            Fault::FullDisk => self.fill_disk(group).await,
            _ => self.cut_links(fault, node, group).await,
        };
        inflicted.map_err(|error| error.to_string())
    }

    async fn kill(
        &mut self,
        nodes: &[usize],
        group: &mut Group,
        report: &mut Report,
    ) -> Result<(), Error> {
        for node in nodes {
            group.processes[*node].kill_9();
        }
        report.note_kills(nodes.len());
        let most_ms = if self.wanted_kills.is_some() || nodes.len() > 1 {
            300
        } else {
            3_000
        };
        for node in nodes {
            self.wait(0, most_ms).await;
            group.processes[*node].start()?;
        }
        Ok(())
    }

    /// Two nodes that were ahead would be a majority: of no run more than one is.
    async fn set_clock(&mut self, node: usize, group: &mut Group) -> Result<(), Error> {
        let mut others = group.processes.iter().enumerate();
        let is_free = others.all(|(index, process)| index == node || !process.was_ahead);
        let ahead_ms = if self.rng.chance(500) && is_free {
            group.processes[node].was_ahead = true;
            HOUR_MS
        } else {
            -HOUR_MS
        };
        group.processes[node].shift_clock(ahead_ms)?;
        self.wait(500, 5_000).await;
        group.processes[node].shift_clock(0)
    }

    async fn fill_disk(&mut self, group: &Group) -> Result<(), Error> {
        let disks: Vec<_> = group
            .processes
            .iter()
            .filter_map(|p| p.disk.as_ref())
            .collect();
        let Some(disk) = self.rng.pick(&disks) else {
            return Ok(());
        };
        let time = Duration::from_millis(self.rng.between(1_000, 5_000));
        let until = self.until.min(Instant::now() + time);
        while Instant::now() < until {
            disk.fill().map_err(Error::io("filling a disk"))?;
            tokio::time::sleep(FILL_EVERY).await;
        }
        disk.free().map_err(Error::io("freeing a disk"))
    }

    async fn cut_links(&mut self, fault: Fault, node: usize, group: &Group) -> Result<(), Error> {
        let faults = self.links(fault, node, group);
        group.processes[node].cut_links(&faults)?;
        self.wait(500, 5_000).await;
        group.processes[node].cut_links(&LinkFaults::default())
    }

    fn links(&mut self, fault: Fault, node: usize, group: &Group) -> LinkFaults {
        let mut others = group.processes.iter().collect::<Vec<_>>();
        others.remove(node);
        let others: Vec<u64> = others.iter().filter_map(|p| Some(p.id?.0)).collect();
        let mut faults = LinkFaults::default();
        match fault {
            Fault::Cut => {
                faults.drop_to.clone_from(&others);
                faults.drop_from = others;
            }
            Fault::CutOneWay => faults.drop_to.extend(self.rng.pick(&others)),
            Fault::Delay => {
                let delay_ms = self.rng.between(5, 200);
                let delays = others.into_iter().map(|id| (id.to_string(), delay_ms));
                faults.delay_ms = delays.collect::<BTreeMap<_, _>>();
            }
            _ => faults.drop_from = others,
        }
        faults
    }
}
