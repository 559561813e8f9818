//! Injects one fault at a time, each followed by a pause in which the cluster must serve again.
//! Changes of the cluster continue meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use torc_sim::Rng;
use torc_testkit::Signal;

use super::changes::Changes;
use super::fault::Fault;
use super::group::Group;
use super::probes::serves_again;
use super::process::LinkFaults;
use super::report::Report;
use super::{Error, Options};

const HOUR_MS: i64 = 3_600_000;
/// Interval of checks on a change while there are no faults.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Interval of filling a disk again, because nodes also remove files.
const FILL_EVERY: Duration = Duration::from_millis(50);

/// Continues until the time is up, the requested number is reached, or the cluster stops serving.
pub(super) async fn torment(options: &Options, group: &mut Group, report: &mut Report) {
    let changes = match Changes::new(group, options.nodes(), options.seed) {
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
    if options.real_network && faults.contains(&Fault::Addresses) {
        faults.retain(|fault| *fault != Fault::Addresses);
        let why = "a network namespace keeps its address".to_owned();
        report.note_skipped(Fault::Addresses, why);
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
    /// How long to stop a node, if not a few seconds.
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
        self.change_ended(group).await?;
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

    /// Waits until no change is running.
    async fn change_ended(&mut self, group: &mut Group) -> Result<(), String> {
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
            // Losing a second disk before the first node is replaced would lose data.
            self.change_ended(group).await?;
            report.note_kills(1);
            return self.changes.wipe(group).await;
        }
        let runs = |index: &usize| group.processes[*index].kvd.pid().is_ok();
        let running: Vec<_> = (0..group.processes.len()).filter(runs).collect();
        let Some(node) = self.rng.pick(&running) else {
            return Ok(());
        };
        let inflicted = match fault {
            Fault::Kill => self.kill(&[node], group, report).await,
            Fault::KillAll => self.kill(&running, group, report).await,
            Fault::Stop => {
                group.processes[node].signal(Signal::STOP);
                match self.pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => self.wait(200, 5_000).await,
                }
                group.processes[node].signal(Signal::CONT);
                Ok(())
            }
            Fault::Clock => self.set_clock(node, group).await,
            Fault::Rot => self.rot(&running, group),
            Fault::SlowDisk => self.slow_disk(node, group).await,
            Fault::FailedSync => return self.fail_sync(node, group, report).await,
            Fault::OlderCopy => return self.put_back_older(&running, group, report).await,
            Fault::Addresses => self.exchange(&running, group, report),
            Fault::GroupHalves | Fault::GroupOneWay => self.cut_group(fault, node, group).await,
            Fault::Cancel => {
                group.drops_calls.store(true, Ordering::Relaxed);
                self.wait(500, 5_000).await;
                group.drops_calls.store(false, Ordering::Relaxed);
                Ok(())
            }
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
            group.processes[*node].kvd.kill_9();
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

    /// Only one node per run is ahead: two would be a majority.
    async fn set_clock(&mut self, node: usize, group: &mut Group) -> Result<(), Error> {
        let mut others = group.processes.iter().enumerate();
        // Answers of a node that is ahead do not count until time has caught up.
        let is_free = group.replicas >= 3
            && others.all(|(index, process)| index == node || !process.was_ahead);
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

    async fn slow_disk(&mut self, node: usize, group: &Group) -> Result<(), Error> {
        let sync_ms = self.rng.between(20, 500);
        group.processes[node].hurt_disk(&json!({ "sync_ms": sync_ms }))?;
        self.wait(500, 5_000).await;
        group.processes[node].hurt_disk(&json!({}))
    }

    /// The writes that the kernel still had are present after the restart, or lost.
    async fn fail_sync(
        &mut self,
        node: usize,
        group: &mut Group,
        report: &mut Report,
    ) -> Result<(), String> {
        let loses_writes = self.rng.chance(500);
        let told = |error: Error| error.to_string();
        let process = &mut group.processes[node];
        let faults = json!({ "fails_sync": true, "loses_writes": loses_writes });
        process.hurt_disk(&faults).map_err(told)?;
        // Until something is written, which the clients do.
        process.ends_by_itself("although a sync failed").await?;
        process.kvd.kill_9();
        report.note_kills(1);
        process.hurt_disk(&json!({})).map_err(told)?;
        process.start().map_err(told)
    }

    /// Files are in ring order, so no key loses two copies.
    fn rot(&mut self, running: &[usize], group: &Group) -> Result<(), Error> {
        let mut running = running.to_vec();
        for part in [0.0..0.45, 0.55..1.0] {
            let Some(node) = self.rng.pick(&running) else {
                break;
            };
            running.retain(|other| *other != node);
            let rotten = group.processes[node].rot(8, part, &mut self.rng);
            rotten.map_err(Error::io("damaging a disk"))?;
        }
        Ok(())
    }

    /// The group confirms the start that follows the copy, so every node knows of a later start.
    async fn put_back_older(
        &mut self,
        running: &[usize],
        group: &mut Group,
        report: &mut Report,
    ) -> Result<(), String> {
        // A mounted directory cannot be exchanged, and a node that is no member yet may have none.
        let mut movable = running.to_vec();
        movable.retain(|node| {
            let process = &group.processes[*node];
            process.disk.is_none() && process.id.is_some()
        });
        let Some(node) = self.rng.pick(&movable) else {
            return Ok(());
        };
        let told = |error: Error| error.to_string();
        let process = &mut group.processes[node];
        process.kvd.kill_9();
        process.copy_data().map_err(told)?;
        process.start().map_err(told)?;
        serves_again(group).await?;
        self.wait(100, 2_000).await;
        let process = &mut group.processes[node];
        process.kvd.kill_9();
        process.exchange_data().map_err(told)?;
        let refused = process.refuse_older_copy().await;
        process.kvd.kill_9();
        report.note_kills(3);
        refused?;
        process.exchange_data().map_err(told)?;
        process.drop_copy().map_err(told)?;
        process.start().map_err(told)
    }

    fn exchange(
        &mut self,
        running: &[usize],
        group: &mut Group,
        report: &mut Report,
    ) -> Result<(), Error> {
        let Some(one) = self.rng.pick(running) else {
            return Ok(());
        };
        let others: Vec<_> = running.iter().copied().filter(|it| *it != one).collect();
        let Some(other) = self.rng.pick(&others) else {
            return Ok(());
        };
        for node in [one, other] {
            group.processes[node].kvd.kill_9();
        }
        report.note_kills(2);
        if let Ok([one, other]) = group.processes.get_disjoint_mut([one, other]) {
            std::mem::swap(&mut one.kvd.grpc, &mut other.kvd.grpc);
            std::mem::swap(&mut one.kvd.peer, &mut other.kvd.peer);
        }
        group.tell_clients();
        for node in [one, other] {
            group.processes[node].start()?;
        }
        Ok(())
    }

    async fn cut_group(&mut self, fault: Fault, node: usize, group: &Group) -> Result<(), Error> {
        let ids: Vec<Option<u64>> = group.processes.iter().map(|p| Some(p.id?.0)).collect();
        let sides = self.rng.next();
        let is_here = |at: usize| match fault {
            Fault::GroupOneWay => at == node,
            _ => sides >> at & 1 == 1,
        };
        for (at, process) in group.processes.iter().enumerate() {
            if fault == Fault::GroupOneWay && at != node {
                continue;
            }
            let others = ids.iter().enumerate();
            let others = others.filter(|(other, _)| is_here(*other) != is_here(at));
            process.cut_links(&LinkFaults {
                group_drop_to: others.filter_map(|(_, id)| *id).collect(),
                ..LinkFaults::default()
            })?;
        }
        self.wait(500, 8_000).await;
        for process in &group.processes {
            process.cut_links(&LinkFaults::default())?;
        }
        Ok(())
    }

    async fn fill_disk(&mut self, group: &Group) -> Result<(), Error> {
        // A node that starts for the first time needs space, and ends without it.
        let members = group.members().into_iter();
        let disks = members.filter_map(|index| group.processes[index].disk.as_ref());
        let disks: Vec<_> = disks.collect();
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
        let addresses = group.own_addresses();
        let cut = if fault == Fault::Halves {
            self.halves(group)
        } else {
            vec![(node, self.links(fault, node, group))]
        };
        for (node, faults) in &cut {
            group.processes[*node].cut(faults, &addresses)?;
        }
        self.wait(500, 5_000).await;
        for (node, _) in &cut {
            group.processes[*node].cut(&LinkFaults::default(), &addresses)?;
        }
        Ok(())
    }

    /// Some of the nodes neither receive from the others nor reach them.
    fn halves(&mut self, group: &Group) -> Vec<(usize, LinkFaults)> {
        let ids = group.processes.iter().map(|p| p.id.map(|id| id.0));
        let sides: Vec<(Option<u64>, bool)> = ids.map(|id| (id, self.rng.chance(500))).collect();
        let others = sides.iter().filter(|(_, is_here)| !is_here);
        let others: Vec<u64> = others.filter_map(|(id, _)| *id).collect();
        let faults = LinkFaults {
            drop_to: others.clone(),
            drop_from: others,
            ..LinkFaults::default()
        };
        let here = sides
            .iter()
            .enumerate()
            .filter(|(_, (_, is_here))| *is_here);
        here.map(|(node, _)| (node, faults.clone())).collect()
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
