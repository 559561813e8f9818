//! Whom a get asks first: no more replicas than a quorum needs, and of those that answer in time.
//!
//! In a stable partition a get asks a bare quorum: the replica at hand, then those after it in the order of
//! their ids, so that each node has few partners and what goes to them travels together. The others are asked
//! when one of the few is late or refuses, or when they disagree. Who was late is not among the few for a while,
//! twice as long each time. What a quorum proves does not depend on who is in it (R5).
//!
//! While a partition moves everyone is asked: who will be in both quorums is not worth working out.

use std::collections::{BTreeMap, BTreeSet};

use torc_record::Ballot;
use torc_ring::NodeId;
use torc_ring::topology::Stage;

use super::{Coordinator, RegisterOp};
use crate::{Config, Message, Now, Votes};

/// The first time that a replica is left out for being late; doubles up to the longest.
const FIRST_ABSENCE_MS: u64 = 100;
const LONGEST_ABSENCE_MS: u64 = 5_000;

/// Replicas that were late.
#[derive(Debug, Default)]
pub(super) struct Latecomers {
    nodes: BTreeMap<NodeId, Absence>,
    /// Those that nothing is to be expected from, as the caller knows.
    gone: BTreeSet<NodeId>,
}

/// Whether a replica will answer, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Doubt {
    None,
    Late,
    Gone,
}

#[derive(Debug, Clone, Copy)]
struct Absence {
    until_ms: u64,
    ms: u64,
}

impl Latecomers {
    /// No get waits for these as long as others make a quorum. All others are expected to
    /// answer.
    pub(super) fn expect_nothing_of(&mut self, nodes: BTreeSet<NodeId>) {
        self.gone = nodes;
    }

    fn is_out(&self, node: NodeId, now: Now) -> bool {
        let absence = self.nodes.get(&node);
        absence.is_some_and(|absence| now.elapsed_ms < absence.until_ms)
    }

    /// Who was late may be in time; who is gone is not.
    fn doubt(&self, node: NodeId, now: Now) -> Doubt {
        if self.gone.contains(&node) {
            Doubt::Gone
        } else if self.is_out(node, now) {
            Doubt::Late
        } else {
            Doubt::None
        }
    }

    /// It was asked and did not answer in time. Of many gets that wait for it one counts.
    pub(super) fn was_late(&mut self, node: NodeId, now: Now) {
        if self.is_out(node, now) {
            return;
        }
        let before = self.nodes.get(&node).map_or(0, |absence| absence.ms);
        let ms = (before * 2).clamp(FIRST_ABSENCE_MS, LONGEST_ABSENCE_MS);
        let until_ms = now.elapsed_ms.saturating_add(ms);
        self.nodes.insert(node, Absence { until_ms, ms });
    }

    /// It answered a get that asked few. Forgiven is who has been in time for as long as it was left out: one
    /// that stands still now and then answers well in between.
    pub(super) fn was_in_time(&mut self, node: NodeId, now: Now) {
        let absence = self.nodes.get(&node);
        if absence.is_some_and(|it| now.elapsed_ms >= it.until_ms.saturating_add(it.ms)) {
            self.nodes.remove(&node);
        }
    }
}

impl Coordinator {
    /// A bare read quorum, or everyone where that is not worth it.
    pub(super) fn few(&self, now: Now, op: &RegisterOp, config: &Config) -> Votes {
        let all = config.acceptors().without(op.own.silent);
        if config.stage != Stage::Stable || op.attempts > 1 || Self::is_settle(op) {
            return all;
        }
        self.quorum_first(now, config, all)
    }

    /// The replica at hand, then the others, the most promising first, until they are a read
    /// quorum; all of them if they are none.
    pub(super) fn quorum_first(&self, now: Now, config: &Config, all: Votes) -> Votes {
        let near = self.options.near;
        let rank = |node: NodeId| {
            let is_before = near.is_some_and(|near| node < near);
            (
                Some(node) != near,
                self.late.doubt(node, now),
                is_before,
                node,
            )
        };
        let mut few = Votes::NONE;
        while !config.may_read(few, self.mutations) {
            let left = all.without(few).iter();
            let ranked = left.filter_map(|it| Some((rank(config.members.get(it)?.node), it)));
            match ranked.min() {
                Some((_, index)) => few.insert(index),
                None => return all,
            }
        }
        few
    }

    /// How long the few are waited for before the others are asked: longer than rounds take of late.
    pub(super) fn few_ms(&self) -> u64 {
        let usual = self.round_ms_x8 / 8 * 2;
        usual.clamp(self.options.hedge_ms.max(1), self.options.round_ms.max(1))
    }

    /// Asks those who were not asked. Whoever has not answered is late, if `is_late`.
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
            let late = op.own.few.without(heard);
            let late = late.iter().filter_map(|index| config.members.get(index));
            for member in late {
                self.late.was_late(member.node, now);
            }
        }
        let others = config
            .acceptors()
            .without(op.own.silent)
            .without(op.own.few);
        op.own.few = op.own.few.union(others);
        // Whoever was asked for the value has not brought it: another one may.
        let lacks_value = !heard.covers(op.own.asked);
        let first = others.iter().next().filter(|_| lacks_value);
        op.own.asked = first.map_or(op.own.asked, |first| op.own.asked.union(Votes::one(first)));
        let at = op.at.clone();
        Self::broadcast(&op, config, others, out, |index, tag| Message::Read {
            tag,
            at: at.clone(),
            want_value: Some(index) == first,
            closes: Ballot::default(),
        });
        let enough = config.may_read(op.own.tally.answered, self.mutations);
        let ms = if enough {
            self.few_ms()
        } else {
            self.round_ms(&op)
        };
        self.sleep(now, op, ms);
    }

    /// Whether this round has not asked everyone yet.
    pub(super) fn asked_few(op: &RegisterOp, config: &Config) -> bool {
        !op.own.few.covers(config.acceptors().without(op.own.silent))
    }

    pub(super) fn note_in_time(
        &mut self,
        now: Now,
        op: &RegisterOp,
        config: &Config,
        index: usize,
    ) {
        if let Some(member) = config.members.get(index)
            && Self::asked_few(op, config)
        {
            self.late.was_in_time(member.node, now);
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
    fn who_is_late_again_and_again_is_left_out_for_twice_as_long_each_time() {
        let mut late = Latecomers::default();
        late.was_late(NODE, at(0));
        late.was_late(NODE, at(1));
        assert!(late.is_out(NODE, at(99)), "it was late once");
        assert!(!late.is_out(NODE, at(100)), "and is tried again");
        late.was_late(NODE, at(100));
        assert!(late.is_out(NODE, at(299)));
        late.was_in_time(NODE, at(299));
        assert!(
            late.is_out(NODE, at(299)),
            "an answer to what was asked before says nothing"
        );
        late.was_in_time(NODE, at(499));
        late.was_late(NODE, at(499));
        assert!(
            late.is_out(NODE, at(898)),
            "it was in time for less than it was out"
        );
        late.was_in_time(NODE, at(1_299));
        late.was_late(NODE, at(1_299));
        assert!(!late.is_out(NODE, at(1_399)), "all is forgiven");
        for _ in 0..20 {
            late.was_late(NODE, at(10_000));
            late.nodes.get_mut(&NODE).unwrap().until_ms = 0;
        }
        late.was_late(NODE, at(10_000));
        assert!(!late.is_out(NODE, at(15_000)), "it is tried now and then");
        assert_eq!(late.doubt(NODE, at(14_999)), Doubt::Late);
        late.gone.insert(NODE);
        for ms in [14_999, 15_000] {
            let doubt = late.doubt(NODE, at(ms));
            assert_eq!(doubt, Doubt::Gone, "who is only late is asked before");
        }
    }
}
