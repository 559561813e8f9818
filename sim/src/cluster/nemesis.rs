//! One fault at a time, and a pause in which the cluster must serve again.

use std::time::Duration;

use clap::ValueEnum;
use tokio::time::Instant;
use torc_sim::Rng;
use torc_sim::history::Kind;

use super::group::Group;
use super::process::LinkFaults;
use super::recorder::{Answer, Recorder};
use super::report::Report;
use super::wire::{Ask, Wire};
use super::{Error, Options};

/// How long every node may take to serve again once a fault is over.
const RECOVERY: Duration = Duration::from_secs(30);

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
}

impl Fault {
    const ALL: [Self; 7] = [
        Self::Kill,
        Self::KillAll,
        Self::Stop,
        Self::Cut,
        Self::CutOneWay,
        Self::Deaf,
        Self::Delay,
    ];

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
        }
    }
}

/// Goes on until the time is over, or the cluster does not serve any more.
pub(super) async fn torment(
    options: &Options,
    group: &mut Group,
    until: Instant,
    report: &mut Report,
) {
    let mut nemesis = Nemesis {
        rng: Rng::new(options.seed ^ 0x6e65_6d65),
        longest_stop_ms: if options.minutes >= 10.0 {
            60_000
        } else {
            5_000
        },
        faults: match &options.only[..] {
            [] => Fault::ALL.to_vec(),
            only => only.to_vec(),
        },
        until,
    };
    while Instant::now() < until {
        let Some(fault) = nemesis.rng.pick(&nemesis.faults) else {
            return;
        };
        report.note_fault(fault);
        if let Err(error) = nemesis.inflict(fault, group).await {
            return report.note_trouble(format!("{}: {error}", fault.name()));
        }
        match serves_again(group).await {
            Ok(took) => report.note_recovery(took),
            Err(trouble) => {
                return report.note_trouble(format!("after {}: {trouble}", fault.name()));
            }
        }
        nemesis.wait(100, 1_000).await;
    }
}

struct Nemesis {
    rng: Rng,
    longest_stop_ms: u64,
    faults: Vec<Fault>,
    until: Instant,
}

impl Nemesis {
    async fn wait(&mut self, least_ms: u64, most_ms: u64) {
        let time = Duration::from_millis(self.rng.between(least_ms, most_ms));
        tokio::time::sleep_until(self.until.min(Instant::now() + time)).await;
    }

    async fn inflict(&mut self, fault: Fault, group: &mut Group) -> Result<(), Error> {
        let count = group.processes.len();
        let node = self.rng.below(count as u64) as usize;
        match fault {
            Fault::Kill => {
                group.processes[node].kill_9();
                self.wait(0, 3_000).await;
                group.processes[node].start()
            }
            Fault::KillAll => {
                for process in &mut group.processes {
                    process.kill_9();
                }
                for process in &mut group.processes {
                    self.wait(0, 300).await;
                    process.start()?;
                }
                Ok(())
            }
            Fault::Stop => {
                group.processes[node].stop();
                self.wait(200, self.longest_stop_ms).await;
                group.processes[node].go_on();
                Ok(())
            }
            Fault::Cut | Fault::CutOneWay | Fault::Deaf | Fault::Delay => {
                let faults = self.links(fault, node, group);
                group.processes[node].cut_links(&faults)?;
                self.wait(500, 5_000).await;
                group.processes[node].cut_links(&LinkFaults::default())
            }
        }
    }

    fn links(&mut self, fault: Fault, node: usize, group: &Group) -> LinkFaults {
        let ids = group.ids.iter().map(|id| id.0);
        let others: Vec<u64> = ids.filter(|id| *id != group.ids[node].0).collect();
        let mut faults = LinkFaults::default();
        match fault {
            Fault::Cut => {
                faults.drop_to.clone_from(&others);
                faults.drop_from = others;
            }
            Fault::CutOneWay => faults.drop_to.extend(self.rng.pick(&others)),
            Fault::Deaf => faults.drop_from = others,
            Fault::Delay => {
                let delay_ms = self.rng.between(5, 200);
                let delays = others.into_iter().map(|id| (id.to_string(), delay_ms));
                faults.delay_ms = delays.collect();
            }
            Fault::Kill | Fault::KillAll | Fault::Stop => {}
        }
        faults
    }
}

/// Waits until each node has carried out a write of some keys; how long that took.
pub(super) async fn serves_again(group: &mut Group) -> Result<Duration, String> {
    let begun = Instant::now();
    let wire = Wire::new(group).map_err(|error| error.to_string())?;
    let probes = Recorder::default();
    for node in 0..group.processes.len() {
        for slot in 0..8 {
            while !is_served(&wire, &probes, node, slot).await {
                if let Some(ended) = group.processes[node].has_ended() {
                    return Err(format!("node {} ended by itself: {ended}", node + 1));
                }
                if begun.elapsed() > RECOVERY {
                    let (node, after) = (node + 1, begun.elapsed());
                    return Err(format!("node {node} wrote nothing within {after:?}"));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    Ok(begun.elapsed())
}

async fn is_served(wire: &Wire, probes: &Recorder, node: usize, slot: u64) -> bool {
    if wire.library().known_topology().is_none() && wire.library().topology().await.is_err() {
        return false;
    }
    let key = probes.key_of(slot);
    let mut begun = probes.begin(key, String::new(), Kind::Put);
    begun.name = format!("probe/{slot}");
    let ask = Ask {
        begun,
        version: None,
    };
    matches!(wire.ask_node(node, &ask).await, Answer::Written(_))
}
