//! Chooses the voters.
//!
//! Their number is odd, because an even number survives no more failures than the odd
//! number below it; at most five, because every voter costs a message and a disk write
//! per change. They are spread over zones, so the loss of a zone costs as few votes as
//! possible; within a zone, present voters stay, so the choice is stable. A node that
//! answers replaces a voter that has long been silent; a node that does not answer gets
//! no vote.
//!
//! Joining and leaving members also vote if there were fewer than three voters otherwise:
//! replacing one of three must not leave the topology on a single disk.

use std::collections::{BTreeMap, BTreeSet};

use torc_ring::topology::MemberState;
use torc_ring::{NodeId, Zone};

/// Most members that vote.
const MAX_VOTERS: usize = 5;
/// This many members vote, if there are that many, whatever their state.
const SAFE_VOTERS: usize = 3;

/// A node's presence as the leader knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Answers, and has the log.
    Ready,
    /// Has recently stopped answering, or lags behind.
    Late,
    /// Has not answered for a long time.
    Lost,
}

/// A member of the cluster.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) node: NodeId,
    pub(crate) state: MemberState,
    pub(crate) zone: Zone,
    pub(crate) leads: bool,
    pub(crate) votes: bool,
    pub(crate) standing: Standing,
}

/// Chooses the voters of all members; empty if none can vote. O(n) per voter.
pub(crate) fn choose(members: &[Candidate]) -> BTreeSet<NodeId> {
    let mut pool: Vec<&Candidate> = members
        .iter()
        .filter(|c| c.votes || c.standing == Standing::Ready)
        .collect();
    let is_active = |c: &&&Candidate| c.state == MemberState::Active;
    let active = pool.iter().filter(is_active).count();
    let size = largest_odd(active.max(pool.len().min(SAFE_VOTERS)).min(MAX_VOTERS));
    let mut zones: BTreeMap<&Zone, usize> = BTreeMap::new();
    let mut chosen = BTreeSet::new();
    while chosen.len() < size {
        let best = pool.iter().enumerate().min_by_key(|(_, c)| {
            let votes_there = zones.get(&c.zone).copied().unwrap_or(0);
            (
                c.standing == Standing::Lost,
                rank(c.state),
                votes_there,
                !c.leads,
                !c.votes,
                c.node,
            )
        });
        let Some(at) = best.map(|(at, _)| at) else {
            break;
        };
        let best = pool.swap_remove(at);
        *zones.entry(&best.zone).or_default() += 1;
        chosen.insert(best.node);
    }
    chosen
}

/// Staying members come first.
const fn rank(state: MemberState) -> u8 {
    match state {
        MemberState::Active => 0,
        MemberState::Joining => 1,
        MemberState::Leaving => 2,
    }
}

/// The largest odd number that is not above `n`; 0 for 0.
const fn largest_odd(n: usize) -> usize {
    n.saturating_sub(1 - n % 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidate(node: u64, zone: &str, votes: bool, standing: Standing) -> Candidate {
        let zone = Zone::new(zone).unwrap();
        Candidate {
            node: NodeId(node),
            state: MemberState::Active,
            zone,
            leads: false,
            votes,
            standing,
        }
    }

    fn ready(nodes: impl IntoIterator<Item = u64>) -> Vec<Candidate> {
        nodes
            .into_iter()
            .map(|node| candidate(node, "a", false, Standing::Ready))
            .collect()
    }

    fn nodes(of: impl IntoIterator<Item = u64>) -> BTreeSet<NodeId> {
        of.into_iter().map(NodeId).collect()
    }

    #[test]
    fn the_number_of_voters_is_the_largest_odd_one_up_to_five() {
        let sizes: Vec<usize> = (0..=9).map(|n| choose(&ready(1..=n)).len()).collect();
        assert_eq!(sizes, [0, 1, 1, 3, 3, 5, 5, 5, 5, 5]);
    }

    #[test]
    fn while_one_of_three_is_replaced_three_vote() {
        let mut members = ready(1..=4);
        members[0].state = MemberState::Leaving;
        members[0].standing = Standing::Lost;
        for member in &mut members[..3] {
            member.votes = true;
        }
        members[3].state = MemberState::Joining;
        members[3].standing = Standing::Late;
        assert_eq!(
            choose(&members),
            nodes([1, 2, 3]),
            "the newcomer is not ready"
        );
        members[3].standing = Standing::Ready;
        assert_eq!(choose(&members), nodes([2, 3, 4]));
        let mut many = ready(1..=6);
        many[5].state = MemberState::Joining;
        many[4].state = MemberState::Leaving;
        assert_eq!(choose(&many), nodes([1, 2, 3]), "four are active");
    }

    #[test]
    fn who_votes_already_goes_on_voting() {
        let mut active = ready(1..=6);
        for at in [1, 3, 5] {
            active[at].votes = true;
        }
        assert!(choose(&active).is_superset(&nodes([2, 4, 6])));
        active.truncate(4);
        assert_eq!(
            choose(&active),
            nodes([1, 2, 4]),
            "node 6 left, so the lowest number follows"
        );
    }

    #[test]
    fn nobody_gets_a_vote_who_does_not_answer() {
        let mut active = ready(1..=3);
        active[0].votes = true;
        active[2].standing = Standing::Late;
        assert_eq!(
            choose(&active),
            nodes([1]),
            "two votes would bear no more than one"
        );
        active[2].standing = Standing::Ready;
        assert_eq!(choose(&active), nodes([1, 2, 3]));
    }

    #[test]
    fn a_lost_voter_is_replaced_only_by_a_node_that_answers() {
        let mut active = ready(1..=3);
        for c in &mut active {
            c.votes = true;
        }
        active[1].standing = Standing::Lost;
        assert_eq!(choose(&active), nodes([1, 2, 3]), "there is nobody else");
        active.extend(ready([4]));
        assert_eq!(choose(&active), nodes([1, 3, 4]));
        active[1].standing = Standing::Late;
        assert_eq!(
            choose(&active),
            nodes([1, 2, 3]),
            "a short silence costs nobody the vote"
        );
    }

    #[test]
    fn voters_are_spread_over_zones_and_the_leader_stays() {
        let mut active: Vec<_> = [(1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "c"), (6, "c")]
            .map(|(node, zone)| candidate(node, zone, node <= 3, Standing::Ready))
            .into();
        active.truncate(5);
        active[1].leads = true;
        active.remove(0);
        assert_eq!(
            choose(&active),
            nodes([2, 4, 5]),
            "one in every zone, node 2 for its zone"
        );
    }

    fn standing() -> impl Strategy<Value = Standing> {
        prop_oneof![
            Just(Standing::Ready),
            Just(Standing::Late),
            Just(Standing::Lost)
        ]
    }

    fn active() -> impl Strategy<Value = Vec<Candidate>> {
        let one = (0..4_u8, any::<bool>(), standing());
        prop::collection::vec(one, 0..12).prop_map(|all| {
            let numbered = (1..).zip(all);
            numbered
                .map(|(node, (zone, votes, standing))| {
                    candidate(node, &format!("z{zone}"), votes, standing)
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn the_choice_is_odd_and_stable_and_takes_nobody_new_who_is_away(mut active in active()) {
            let chosen = choose(&active);
            let can = active.iter().filter(|c| c.votes || c.standing == Standing::Ready).count();
            prop_assert_eq!(chosen.len(), largest_odd(can.min(5)));
            for c in &active {
                let newcomer = chosen.contains(&c.node) && !c.votes;
                prop_assert!(!newcomer || c.standing == Standing::Ready, "{:?}", c);
            }
            for c in &mut active {
                c.votes = chosen.contains(&c.node);
            }
            prop_assert_eq!(choose(&active), chosen, "asked again, the answer is the same");
        }

        #[test]
        fn every_zone_has_a_voter_if_there_are_enough(mut active in active()) {
            for c in &mut active {
                c.standing = Standing::Ready;
            }
            let chosen = choose(&active);
            let zones: BTreeSet<&Zone> = active.iter().map(|c| &c.zone).collect();
            let with_votes: BTreeSet<&Zone> =
                active.iter().filter(|c| chosen.contains(&c.node)).map(|c| &c.zone).collect();
            prop_assert_eq!(with_votes.len(), zones.len().min(chosen.len()));
        }
    }
}
