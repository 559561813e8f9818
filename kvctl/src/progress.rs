//! Rates, and the progress of a transition, from the statuses polled while it runs.
//!
//! Pure: the time of each status is an argument.

use std::collections::VecDeque;
use std::time::Duration;

use torc_client::{ChangeKind, ClusterStatus, Transition};

use crate::text;

/// A status's view of one transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sight<'a> {
    /// The node that answered has not heard of it yet.
    NotYet,
    /// It runs.
    Running(&'a Transition),
    /// It ended; with its last figures, unless a later transition has replaced them.
    Ended(Option<&'a Transition>),
}

/// Looks for transition `id` in a status.
pub(crate) fn sight(status: &ClusterStatus, id: u64) -> Sight<'_> {
    let (running, ended) = (&status.transition, &status.last_transition);
    match (running, ended) {
        (Some(running), _) if running.id == id => Sight::Running(running),
        (_, Some(ended)) if ended.id == id => Sight::Ended(Some(ended)),
        (Some(other), _) | (_, Some(other)) if other.id > id => Sight::Ended(None),
        _ => Sight::NotYet,
    }
}

/// How fast a number grows, over the last [`GrowthRate::WINDOW`].
#[derive(Debug, Default)]
pub(crate) struct GrowthRate {
    looks: VecDeque<(Duration, u64)>,
}

impl GrowthRate {
    const WINDOW: Duration = Duration::from_secs(10);

    /// Records the number, at a time since an arbitrary start.
    pub(crate) fn note(&mut self, at: Duration, number: u64) {
        let is_old = |(look, _): &(Duration, u64)| *look + Self::WINDOW <= at;
        // Keep one sample from before the window, so there is always a span.
        while self.looks.len() > 1 && self.looks.get(1).is_some_and(is_old) {
            self.looks.pop_front();
        }
        self.looks.push_back((at, number));
    }

    /// Per second; `None` until two notes are some time apart.
    pub(crate) fn per_s(&self) -> Option<f64> {
        let ((first, from), (last, to)) = (self.looks.front()?, self.looks.back()?);
        let span = last.saturating_sub(*first).as_secs_f64();
        (span > 0.0).then(|| to.saturating_sub(*from) as f64 / span)
    }

    /// Time until it has grown by `left`. `None` when nothing moves or too little is known.
    pub(crate) fn time_left(&self, left: u64) -> Option<Duration> {
        let per_s = self.per_s()?;
        let seconds = match left {
            0 => Some(0.0),
            _ => (per_s > 0.0).then(|| left as f64 / per_s),
        };
        Duration::try_from_secs_f64(seconds?).ok()
    }
}

/// The rate at which a transition moves bytes and partitions.
#[derive(Debug, Default)]
pub(crate) struct ProgressRate {
    bytes: GrowthRate,
    partitions: GrowthRate,
}

impl ProgressRate {
    /// Records a status, at a time since an arbitrary start.
    pub(crate) fn note(&mut self, at: Duration, transition: &Transition) {
        self.bytes.note(at, transition.bytes_moved);
        let partitions = u64::from(transition.partitions_done);
        self.partitions.note(at, partitions);
    }

    /// Bytes per second; `None` until two notes are some time apart.
    pub(crate) fn bytes_per_s(&self) -> Option<f64> {
        self.bytes.per_s()
    }

    /// Time until the transition ends at this rate, by the slower of bytes and
    /// partitions. `None` when nothing moves or too little is known.
    pub(crate) fn time_left(&self, transition: &Transition) -> Option<Duration> {
        let bytes = transition
            .bytes_planned
            .saturating_sub(transition.bytes_moved);
        let partitions = transition
            .partitions_total
            .saturating_sub(transition.partitions_done);
        let bytes = self.bytes.time_left(bytes)?;
        Some(bytes.max(self.partitions.time_left(partitions.into())?))
    }
}

/// The name of a change.
pub(crate) const fn name(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Join => "join",
        ChangeKind::Leave => "removal",
        ChangeKind::Replace => "replacement",
        ChangeKind::Reweight => "re-weighting",
        ChangeKind::Alter => "alteration",
    }
}

/// A running transition in one line, without its name.
pub(crate) fn figures(transition: &Transition, rate: &ProgressRate) -> String {
    let mut parts = vec![
        format!(
            "{} of {}",
            text::count(transition.partitions_done.into()),
            text::counted(transition.partitions_total.into(), "partition"),
        ),
        format!(
            "{} of {}",
            text::bytes(transition.bytes_moved),
            // Writes during the transition move too, so more than planned can move.
            text::bytes(transition.bytes_planned.max(transition.bytes_moved)),
        ),
    ];
    let bytes_per_s = rate.bytes_per_s().map(|rate| text::bytes(rate as u64));
    parts.extend(bytes_per_s.map(|rate| format!("{rate}/s")));
    let left = rate.time_left(transition);
    parts.extend(left.map(|left| format!("{} left", text::duration(left))));
    if transition.aborted {
        parts.insert(0, "rolling back".to_owned());
    }
    parts.join(", ")
}

/// A transition that ended, in one line.
pub(crate) fn ended(transition: &Transition) -> String {
    let took = transition
        .ended_at_ms
        .map(|end| end.saturating_sub(transition.started_at_ms))
        .map_or_else(String::new, |ms| {
            format!(" in {}", text::duration(Duration::from_millis(ms)))
        });
    format!(
        "{} of {} {}{took}: {}, {} in {}",
        name(transition.kind),
        who(transition),
        if transition.aborted {
            "aborted"
        } else {
            "done"
        },
        text::counted(transition.partitions_done.into(), "partition"),
        text::bytes(transition.bytes_moved),
        text::counted(transition.records_moved, "record"),
    )
}

/// The nodes or namespaces that a transition changes.
pub(crate) fn who(transition: &Transition) -> String {
    match (transition.node, transition.replaced) {
        (Some(node), Some(old)) => format!("node {old} by node {node}"),
        (Some(node), None) => format!("node {node}"),
        (None, _) => {
            let replicas = transition.replicas_after.unwrap_or_default();
            altered(&transition.namespaces, replicas)
        }
    }
}

/// Namespaces and their new number of replicas.
pub(crate) fn altered(namespaces: &[String], replicas: u32) -> String {
    let names: Vec<String> = namespaces.iter().map(|name| format!("`{name}`")).collect();
    format!("{} to {}", names.join(", "), text::replicas(replicas))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use torc_record::Epoch;
    use torc_ring::NodeId;
    use torc_ring::topology::ClusterId;

    pub(crate) fn transition(id: u64, partitions_done: u32, bytes_moved: u64) -> Transition {
        Transition {
            id,
            kind: ChangeKind::Join,
            node: Some(NodeId(4)),
            replaced: None,
            namespaces: Vec::new(),
            replicas_after: None,
            aborted: false,
            dead: Vec::new(),
            partitions_total: 100,
            partitions_done,
            partitions_active: 4,
            bytes_moved,
            records_moved: bytes_moved / 100,
            bytes_planned: 10 << 20,
            records_planned: 100_000,
            started_at_ms: 1_000,
            ended_at_ms: None,
        }
    }

    fn status(running: Option<Transition>, ended: Option<Transition>) -> ClusterStatus {
        ClusterStatus {
            cluster_id: ClusterId([0; 16]),
            epoch: Epoch(1),
            feature_level: 1,
            answered_by: NodeId(1),
            topology_leader: None,
            partitions: 4096,
            replicas: 1,
            layers: Vec::new(),
            under_replicated: Some(0),
            without_quorum: Some(0),
            generations: Vec::new(),
            nodes: Vec::new(),
            transition: running,
            last_transition: ended,
        }
    }

    #[test]
    fn a_transition_is_over_when_it_or_a_later_one_ended_or_a_later_one_runs() {
        let t = |id| Some(transition(id, 0, 0));
        assert!(matches!(sight(&status(t(5), t(4)), 5), Sight::Running(_)));
        assert!(matches!(
            sight(&status(None, t(5)), 5),
            Sight::Ended(Some(_))
        ));
        assert!(matches!(
            sight(&status(t(6), t(5)), 5),
            Sight::Ended(Some(_))
        ));
        assert_eq!(sight(&status(t(7), t(6)), 5), Sight::Ended(None));
        assert_eq!(sight(&status(t(7), None), 5), Sight::Ended(None));
        assert_eq!(sight(&status(None, t(6)), 5), Sight::Ended(None));
    }

    #[test]
    fn a_node_that_lags_behind_does_not_make_it_over() {
        let t = |id| Some(transition(id, 0, 0));
        assert_eq!(sight(&status(None, None), 5), Sight::NotYet);
        assert_eq!(sight(&status(t(4), t(3)), 5), Sight::NotYet);
    }

    fn rate(looks: &[(u64, u32, u64)]) -> ProgressRate {
        let mut rate = ProgressRate::default();
        for &(s, partitions, bytes) in looks {
            rate.note(Duration::from_secs(s), &transition(1, partitions, bytes));
        }
        rate
    }

    #[test]
    fn one_look_gives_no_rate() {
        let rate = rate(&[(0, 1, 1000)]);
        assert_eq!(rate.bytes_per_s(), None);
        assert_eq!(rate.time_left(&transition(1, 1, 1000)), None);
    }

    #[test]
    fn the_rate_is_of_the_last_ten_seconds() {
        let mib = 1 << 20;
        let rate = rate(&[(0, 0, 0), (100, 10, mib), (110, 20, 3 * mib)]);
        assert_eq!(rate.bytes_per_s(), Some(2.0 * mib as f64 / 10.0));
    }

    #[test]
    fn what_is_slower_decides_the_time_left() {
        let mib = 1 << 20;
        let by_bytes = rate(&[(0, 0, 0), (10, 90, mib)]);
        let left = by_bytes.time_left(&transition(1, 90, mib));
        assert_eq!(left, Some(Duration::from_secs(90)));
        let by_partitions = rate(&[(0, 0, 0), (10, 10, 9 * mib)]);
        let left = by_partitions.time_left(&transition(1, 10, 9 * mib));
        assert_eq!(left, Some(Duration::from_secs(90)));
    }

    #[test]
    fn a_standstill_has_no_time_left_and_more_than_planned_is_no_error() {
        let still = rate(&[(0, 5, 1000), (10, 5, 1000)]);
        assert_eq!(still.time_left(&transition(1, 5, 1000)), None);
        let over = rate(&[(0, 0, 0), (10, 100, 20 << 20)]);
        assert_eq!(
            over.time_left(&transition(1, 100, 20 << 20)),
            Some(Duration::ZERO)
        );
    }

    #[test]
    fn progress_and_end_are_one_line_each() {
        let rate = rate(&[(0, 0, 0), (10, 50, 5 << 20)]);
        assert_eq!(
            figures(&transition(1, 50, 5 << 20), &rate),
            "50 of 100 partitions, 5.00 MiB of 10.0 MiB, 512 KiB/s, 10.0 s left"
        );
        let done = Transition {
            ended_at_ms: Some(13_500),
            ..transition(1, 100, 10 << 20)
        };
        assert_eq!(
            ended(&done),
            "join of node 4 done in 12.5 s: 100 partitions, 10.0 MiB in 104,857 records"
        );
        let back = Transition {
            kind: ChangeKind::Replace,
            replaced: Some(NodeId(2)),
            aborted: true,
            ..transition(1, 100, 10 << 20)
        };
        assert!(
            ended(&back).starts_with("replacement of node 2 by node 4 aborted: 100 partitions")
        );
        let altered = Transition {
            kind: ChangeKind::Alter,
            node: None,
            namespaces: vec!["default".into(), "urls".into()],
            replicas_after: Some(3),
            ..done
        };
        assert!(
            ended(&altered)
                .starts_with("alteration of `default`, `urls` to 3 replicas done in 12.5 s")
        );
        assert!(figures(&back, &rate).starts_with("rolling back, 100 of 100 partitions"));
    }
}
