//! The faults that a run can inject.

use clap::ValueEnum;

use super::Options;

/// A fault to inject into a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Fault {
    /// SIGKILL of one node, and its restart.
    Kill,
    /// SIGKILL of all nodes at once, and their restart.
    KillAll,
    /// SIGSTOP of one node, and SIGCONT.
    Stop,
    /// One node receives nothing, and its messages reach no node.
    Cut,
    /// One node's messages do not reach another node.
    CutOneWay,
    /// One node receives nothing.
    Deaf,
    /// The cluster is cut in two.
    Halves,
    /// One node's messages are late.
    Delay,
    /// SIGKILL of one node, whose disk is lost: a new node replaces it.
    Wipe,
    /// One node's wall clock is an hour wrong.
    Clock,
    /// One node's disk is full.
    FullDisk,
    /// Every sync of one node's disk takes long.
    SlowDisk,
    /// A sync of one node's disk fails and loses the writes: the node must exit.
    FailedSync,
    /// Sectors of two nodes rot.
    Rot,
    /// A node starts with a copy of its data directory from before its last start, and must refuse
    /// it; then it starts with its own.
    OlderCopy,
    /// Two nodes are killed and restarted at each other's address.
    Addresses,
    /// The topology group is cut in halves.
    GroupHalves,
    /// One node's calls of the topology group reach no node.
    GroupOneWay,
    /// Clients drop their calls.
    Cancel,
    /// Nodes join, leave and are replaced, while other faults continue.
    Change,
}

impl Fault {
    /// Its name in the report.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::KillAll => "kill_all",
            Self::Stop => "stop",
            Self::Cut => "cut",
            Self::CutOneWay => "cut_one_way",
            Self::Deaf => "deaf",
            Self::Halves => "halves",
            Self::Delay => "delay",
            Self::Wipe => "wipe",
            Self::Clock => "clock",
            Self::FullDisk => "full_disk",
            Self::SlowDisk => "slow_disk",
            Self::FailedSync => "failed_sync",
            Self::Rot => "rot",
            Self::OlderCopy => "older_copy",
            Self::Addresses => "addresses",
            Self::GroupHalves => "group_halves",
            Self::GroupOneWay => "group_one_way",
            Self::Cancel => "cancel",
            Self::Change => "change",
        }
    }

    /// Whether a copy of every record survives it.
    const fn is_survived_by(self, replicas: u8) -> bool {
        !matches!(self, Self::Wipe | Self::Rot) || replicas >= 3
    }

    /// The faults that a run injects: those requested by name, those for `--kills` or `--changes`,
    /// or all.
    pub(super) fn chosen(options: &Options) -> Vec<Self> {
        let mut chosen = options.only.clone();
        if chosen.is_empty() && !options.is_counted() {
            let all = Self::value_variants().iter();
            return all
                .filter(|it| it.is_survived_by(options.replicas))
                .copied()
                .collect();
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
