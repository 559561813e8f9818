//! The minimal quorum: a get first asks only as many replicas as a read quorum needs.
//!
//! In a stable partition, a get asks the local replica, then those after it in the order of their
//! ids, so that each node has few partners and messages to them share frames. It asks the others if
//! a member of the quorum is late or refuses, or if the answers disagree. A late replica becomes
//! suspect: gets leave it out for a while, twice as long each time. A quorum's proof does not
//! depend on which members it has (R5).
//!
//! While a partition moves, gets ask all replicas: a minimum for two quorums is not worth
//! computing.

use std::collections::{BTreeMap, BTreeSet};

use torc_record::Ballot;
use torc_ring::NodeId;
use torc_ring::topology::Stage;

use super::{Coordinator, RegisterOp};
use crate::{Config, Message, Now, Votes};

/// How long gets leave out a late replica; doubles up to the maximum.
const FIRST_BACKOFF_MS: u64 = 100;
const LONGEST_BACKOFF_MS: u64 = 5_000;

/// Replicas that gets leave out while others form a quorum.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Late replicas.
    late: BTreeMap<NodeId, Backoff>,
    /// Replicas that the caller reports as unreachable.
    unreachable: BTreeSet<NodeId>,
}

/// How likely a replica is to answer, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Suspicion {
    None,
    Late,
    Unreachable,
}

#[derive(Debug, Clone, Copy)]
struct Backoff {
    until_ms: u64,
    ms: u64,
}

impl Suspects {
    /// Gets do not wait for these while others form a quorum. All others are expected to answer.
    pub(super) fn set_unreachable(&mut self, nodes: BTreeSet<NodeId>) {
        self.unreachable = nodes;
    }

    fn is_backing_off(&self, node: NodeId, now: Now) -> bool {
        let backoff = self.late.get(&node);
        backoff.is_some_and(|backoff| now.elapsed_ms < backoff.until_ms)
    }

    /// A late replica may answer in time; an unreachable one will not.
    fn suspicion(&self, node: NodeId, now: Now) -> Suspicion {
        if self.unreachable.contains(&node) {
            Suspicion::Unreachable
        } else if self.is_backing_off(node, now) {
            Suspicion::Late
        } else {
            Suspicion::None
        }
    }

    /// Records that a replica did not answer in time. Concurrent gets count as one.
    pub(super) fn was_late(&mut self, node: NodeId, now: Now) {
        if self.is_backing_off(node, now) {
            return;
        }
        let before = self.late.get(&node).map_or(0, |backoff| backoff.ms);
        let ms = (before * 2).clamp(FIRST_BACKOFF_MS, LONGEST_BACKOFF_MS);
        let until_ms = now.elapsed_ms.saturating_add(ms);
        self.late.insert(node, Backoff { until_ms, ms });
    }

    /// Records a timely answer. Resets the backoff once the replica has been timely for as long as
    /// it was left out, because a node that stalls repeatedly answers well in between.
    pub(super) fn was_in_time(&mut self, node: NodeId, now: Now) {
        let backoff = self.late.get(&node);
        if backoff.is_some_and(|it| now.elapsed_ms >= it.until_ms.saturating_add(it.ms)) {
            self.late.remove(&node);
        }
    }
}

impl Coordinator {
    /// A minimal read quorum, or all replicas if that does not pay.
    pub(super) fn minimal_quorum(&self, now: Now, op: &RegisterOp, config: &Config) -> Votes {
        let all = config.acceptors().without(op.own.silent);
        if config.stage != Stage::Stable || op.attempts > 1 || Self::is_reconcile(op) {
            return all;
        }
        self.quorum_first(now, config, all)
    }

    /// The local replica, then the others, least suspect first, until they form a read quorum; all
    /// of them if they never do.
    pub(super) fn quorum_first(&self, now: Now, config: &Config, all: Votes) -> Votes {
        let near = self.options.near;
        let rank = |node: NodeId| {
            let is_before = near.is_some_and(|near| node < near);
            (
                Some(node) != near,
                self.suspects.suspicion(node, now),
                is_before,
                node,
            )
        };
        let mut quorum = Votes::NONE;
        while !config.may_read(quorum, self.mutations) {
            let left = all.without(quorum).iter();
            let ranked = left.filter_map(|it| Some((rank(config.members.get(it)?.node), it)));
            match ranked.min() {
                Some((_, index)) => quorum.insert(index),
                None => return all,
            }
        }
        quorum
    }

    /// How long to wait for the minimal quorum before asking the others: longer than recent rounds.
    pub(super) fn widen_after_ms(&self) -> u64 {
        let usual = self.round_ms_x8 / 8 * 2;
        usual.clamp(self.options.hedge_ms.max(1), self.options.round_ms.max(1))
    }

    /// Asks the replicas that were not asked yet. Those that have not answered are late, if `is_late`.
    pub(super) fn widen(
        &mut self,
        now: Now,
        mut op: Box<RegisterOp>,
        config: &std::sync::Arc<Config>,
        is_late: bool,
        out: &mut Vec<super::Intent>,
    ) {
        let heard = op.own.tally.answered.union(op.own.tally.refused);
        if is_late {
            let late = op.own.asked.without(heard);
            let late = late.iter().filter_map(|index| config.members.get(index));
            for member in late {
                self.suspects.was_late(member.node, now);
            }
        }
        let others = config
            .acceptors()
            .without(op.own.silent)
            .without(op.own.asked);
        op.own.asked = op.own.asked.union(others);
        // The replica asked for the value has not sent it: ask another one.
        let lacks_value = !heard.covers(op.own.asked_value);
        let first = others.iter().next().filter(|_| lacks_value);
        op.own.asked_value = first.map_or(op.own.asked_value, |first| {
            op.own.asked_value.union(Votes::one(first))
        });
        let at = op.at.clone();
        Self::broadcast(&op, config, others, out, |index, tag| Message::Read {
            tag,
            at: at.clone(),
            want_value: Some(index) == first,
            closes: Ballot::default(),
        });
        let enough = config.may_read(op.own.tally.answered, self.mutations);
        let ms = if enough {
            self.widen_after_ms()
        } else {
            self.round_ms(&op)
        };
        self.sleep(now, op, ms);
    }

    /// Whether this round has asked only the minimal quorum.
    pub(super) fn asked_minimal(op: &RegisterOp, config: &Config) -> bool {
        !op.own
            .asked
            .covers(config.acceptors().without(op.own.silent))
    }

    pub(super) fn note_in_time(
        &mut self,
        now: Now,
        op: &RegisterOp,
        config: &Config,
        index: usize,
    ) {
        if let Some(member) = config.members.get(index)
            && Self::asked_minimal(op, config)
        {
            self.suspects.was_in_time(member.node, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(7);

    fn at(elapsed_ms: u64) -> Now {
        Now {
            elapsed_ms,
            ..Now::default()
        }
    }

    #[test]
    fn a_replica_that_is_late_repeatedly_is_left_out_twice_as_long_each_time() {
        let mut suspects = Suspects::default();
        suspects.was_late(NODE, at(0));
        suspects.was_late(NODE, at(1));
        assert!(suspects.is_backing_off(NODE, at(99)), "it was late once");
        assert!(
            !suspects.is_backing_off(NODE, at(100)),
            "and is tried again"
        );
        suspects.was_late(NODE, at(100));
        assert!(suspects.is_backing_off(NODE, at(299)));
        suspects.was_in_time(NODE, at(299));
        assert!(
            suspects.is_backing_off(NODE, at(299)),
            "an answer to what was asked before says nothing"
        );
        suspects.was_in_time(NODE, at(499));
        suspects.was_late(NODE, at(499));
        assert!(
            suspects.is_backing_off(NODE, at(898)),
            "it was in time for less than it was out"
        );
        suspects.was_in_time(NODE, at(1_299));
        suspects.was_late(NODE, at(1_299));
        assert!(
            !suspects.is_backing_off(NODE, at(1_399)),
            "the backoff is reset"
        );
        for _ in 0..20 {
            suspects.was_late(NODE, at(10_000));
            suspects.late.get_mut(&NODE).unwrap().until_ms = 0;
        }
        suspects.was_late(NODE, at(10_000));
        assert!(
            !suspects.is_backing_off(NODE, at(15_000)),
            "it is tried now and then"
        );
        assert_eq!(suspects.suspicion(NODE, at(14_999)), Suspicion::Late);
        suspects.unreachable.insert(NODE);
        for ms in [14_999, 15_000] {
            let suspicion = suspects.suspicion(NODE, at(ms));
            assert_eq!(
                suspicion,
                Suspicion::Unreachable,
                "a replica that is only late is asked before"
            );
        }
    }
}
