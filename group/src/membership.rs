//! Keeps the Raft membership equal to the topology's members.
//!
//! Every node runs [`keep_membership`], which acts only while its node leads. It compares
//! topology and membership, takes one step towards the target, and repeats. All state is
//! in the log, so a step may be repeated, and a new leader continues where the last one
//! stopped; it also finishes a half-done change of voters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use openraft::{BasicNode, ChangeMembers};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use torc_proto::Fault;
use torc_ring::NodeId;
use torc_ring::topology::{Member, MemberState, Topology};

use crate::TopologyGroup;
use crate::raft::Metrics;
use crate::running::Running;
use crate::voters::{Candidate, Standing, choose};

/// How often an idle leader compares; also how often it retries to enlist a node.
const TICK: Duration = Duration::from_secs(1);

/// How often it compares while a node is catching up.
const SHORTLY: Duration = Duration::from_millis(50);

/// Time limit for a node to take its number.
const ENLIST_TIMEOUT: Duration = Duration::from_secs(1);

/// Time limit for the commit of a change before the next comparison.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(5);

/// A node counts as answering if it answered within this time; heartbeats are several times as
/// frequent.
const PRESENCE: Duration = Duration::from_secs(2);

/// Log entries that a new voter may lack: they fit one message.
const MAX_LAG: u64 = 100;

/// Assigns a new member its number.
pub trait Enlister: Send + Sync {
    /// Tells the node at `member`'s address that it is `node`. Returns when the node has
    /// stored this durably and started its group. Any leader repeats it until it
    /// succeeds, and perhaps afterwards: it must be idempotent.
    fn enlist<'a>(&'a self, node: NodeId, member: &'a Member) -> BoxFuture<'a, Result<(), Fault>>;
}

/// Keeps the Raft membership equal to the topology's members, and an odd number of them
/// voting, while this node leads. Runs until it is cancelled; every node runs one.
///
/// Wakes on every change of the topology and every second. Idle, it costs nothing.
pub async fn keep_membership(
    group: TopologyGroup,
    enlister: Arc<dyn Enlister>,
    cancel: CancellationToken,
) {
    let mut topology = group.watch();
    let mut keeper = Keeper {
        group,
        enlister,
        reign: None,
    };
    let keep = async {
        loop {
            topology.mark_unchanged();
            let pause = keeper.step().await;
            tokio::select! {
                changed = topology.changed() => if changed.is_err() { return },
                () = sleep(pause) => {}
            }
        }
    };
    cancel.run_until_cancelled(keep).await;
}

struct Keeper {
    group: TopologyGroup,
    enlister: Arc<dyn Enlister>,
    /// `None` while another node leads.
    reign: Option<Reign>,
}

/// A leader's memory while it leads.
struct Reign {
    since: Instant,
    /// See [`GroupOptions::departure_grace_ms`](crate::GroupOptions::departure_grace_ms).
    grace: Duration,
    /// Nodes that could not be enlisted, with the time of the last attempt.
    refused: BTreeMap<NodeId, Instant>,
    /// Former members that are still in the Raft membership.
    departed: BTreeMap<NodeId, Departed>,
}

/// What a leader knows about a former member.
#[derive(Debug, Clone, Copy)]
struct Departed {
    since: Instant,
    /// Last entry of the leader's log at that time; it or an earlier one removed the member.
    index: u64,
    /// When the node had this entry.
    told: Option<Instant>,
    /// It has answered a message that was sent after that.
    knows: bool,
}

impl Departed {
    /// Whether the node need not be in the Raft membership any more.
    fn is_over(&self, grace: Duration, now: Instant) -> bool {
        self.knows
            || self.told.is_some_and(|told| now - told >= grace)
            || now - self.since >= 3 * grace
    }
}

/// One step towards the target.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Make exactly these the voters.
    Vote(BTreeSet<u64>),
    /// Make these learners.
    Add(Vec<NodeId>),
    /// Remove these.
    Drop(BTreeSet<u64>),
    /// Wait for a node that is catching up.
    Wait,
    /// The membership equals the target.
    Rest,
}

impl Keeper {
    /// Takes one step; returns the time until the next.
    async fn step(&mut self) -> Duration {
        let Ok(running) = self.group.running() else {
            return TICK;
        };
        let (true, Some(topology)) = (self.group.is_leader(), self.group.topology()) else {
            self.reign = None;
            return TICK;
        };
        // After the topology: their last entry is none before the one that removed a member.
        let metrics = running.raft.metrics().borrow().clone();
        let now = Instant::now();
        let grace = Duration::from_millis(self.group.inner.options.departure_grace_ms);
        let reign = self.reign.get_or_insert_with(|| Reign::new(now, grace));
        let answered = |node| running.peers.answered(node);
        let call_time = Duration::from_millis(self.group.inner.options.heartbeat_ms);
        reign.note(&topology, &metrics, now, |node| {
            answered(node)?.checked_sub(call_time)
        });
        if !majority_answers(&metrics) {
            return TICK;
        }
        let standings = reign.standings(&self.group, running, &metrics, now);
        match next_step(&topology, &metrics, &standings, reign, now) {
            Step::Vote(voters) => change(running, voters).await,
            Step::Add(nodes) => add(running, &*self.enlister, &topology, &nodes, reign).await,
            Step::Drop(nodes) => change(running, ChangeMembers::RemoveNodes(nodes)).await,
            Step::Wait => SHORTLY,
            Step::Rest => TICK,
        }
    }
}

impl Reign {
    const fn new(since: Instant, grace: Duration) -> Self {
        Self {
            since,
            grace,
            refused: BTreeMap::new(),
            departed: BTreeMap::new(),
        }
    }

    /// `asked` is the earliest time at which the last message that a node has answered was sent.
    fn note(
        &mut self,
        topology: &Topology,
        metrics: &Metrics,
        now: Instant,
        asked: impl Fn(NodeId) -> Option<Instant>,
    ) {
        let members = topology.members();
        self.refused.retain(|node, _| members.contains_key(node));
        let nodes = metrics
            .membership_config
            .nodes()
            .map(|(node, _)| NodeId(*node));
        let gone: BTreeSet<NodeId> = nodes.filter(|node| !members.contains_key(node)).collect();
        self.departed.retain(|node, _| gone.contains(node));
        for node in gone {
            let departed = self.departed.entry(node).or_insert(Departed {
                since: now,
                index: metrics.last_log_index.unwrap_or(0),
                told: None,
                knows: false,
            });
            if matched(metrics, node).is_some_and(|matched| matched >= departed.index) {
                let told = *departed.told.get_or_insert(now);
                departed.knows |= asked(node).is_some_and(|asked| asked > told);
            }
        }
    }

    fn standings(
        &self,
        group: &TopologyGroup,
        running: &Running,
        metrics: &Metrics,
        now: Instant,
    ) -> BTreeMap<NodeId, Standing> {
        let lost_after = Duration::from_millis(group.inner.options.voter_lost_after_ms);
        let of = |node: NodeId| {
            let answered = running.peers.answered(node);
            let silent = now - answered.unwrap_or(self.since).max(self.since);
            if node == running.node
                || (answered.is_some() && silent < PRESENCE && caught_up(metrics, node))
            {
                Standing::Ready
            } else if silent < lost_after {
                Standing::Late
            } else {
                Standing::Lost
            }
        };
        metrics
            .membership_config
            .nodes()
            .map(|(node, _)| (NodeId(*node), of(NodeId(*node))))
            .collect()
    }
}

/// Whether a majority answered recently, so a change can be committed.
fn majority_answers(metrics: &Metrics) -> bool {
    let presence = PRESENCE.as_millis();
    metrics
        .millis_since_quorum_ack
        .is_some_and(|silent| u128::from(silent) < presence)
}

/// The last log entry that a node is known to have.
fn matched(metrics: &Metrics, node: NodeId) -> Option<u64> {
    let of_all = metrics.replication.as_ref()?;
    Some(of_all.get(&node.0).copied()??.index)
}

fn caught_up(metrics: &Metrics, node: NodeId) -> bool {
    let last = metrics.last_log_index.unwrap_or(0);
    matched(metrics, node).is_some_and(|matched| last.saturating_sub(matched) <= MAX_LAG)
}

/// The next step. Votes come first, because they decide how many failures the group survives.
fn next_step(
    topology: &Topology,
    metrics: &Metrics,
    standings: &BTreeMap<NodeId, Standing>,
    reign: &Reign,
    now: Instant,
) -> Step {
    let membership = metrics.membership_config.membership();
    let voting: BTreeSet<u64> = membership.voter_ids().collect();
    let standing = |node: &NodeId| standings.get(node).copied().unwrap_or(Standing::Lost);
    let candidates: Vec<Candidate> = topology
        .members()
        .iter()
        .map(|(node, member)| Candidate {
            node: *node,
            state: member.state,
            zone: member.identity.zone.clone(),
            leads: node.0 == metrics.id,
            votes: voting.contains(&node.0),
            standing: standing(node),
        })
        .collect();
    let voters: BTreeSet<u64> = choose(&candidates).into_iter().map(|node| node.0).collect();
    let half_way = membership.get_joint_config().len() > 1;
    if !voters.is_empty() && (half_way || voters != voting) {
        return Step::Vote(voters);
    }
    let tried = |node: &NodeId| {
        reign
            .refused
            .get(node)
            .is_some_and(|last| now - *last < TICK)
    };
    let absent = |node: &&NodeId| membership.get_node(&node.0).is_none() && !tried(node);
    let missing: Vec<NodeId> = topology.members().keys().filter(absent).copied().collect();
    if !missing.is_empty() {
        return Step::Add(missing);
    }
    let departed = reign.departed.iter();
    let over =
        departed.filter(|(node, it)| it.is_over(reign.grace, now) && !voting.contains(&node.0));
    let gone: BTreeSet<u64> = over.map(|(node, _)| node.0).collect();
    if !gone.is_empty() {
        return Step::Drop(gone);
    }
    let coming = candidates
        .iter()
        .any(|c| c.state == MemberState::Active && !c.votes && c.standing == Standing::Late);
    if coming { Step::Wait } else { Step::Rest }
}

/// Enlists new members and makes those that answer learners.
async fn add(
    running: &Running,
    enlister: &dyn Enlister,
    topology: &Topology,
    nodes: &[NodeId],
    reign: &mut Reign,
) -> Duration {
    let members = nodes
        .iter()
        .filter_map(|node| Some((*node, topology.members().get(node)?)));
    let enlisted = join_all(members.map(|(node, member)| async move {
        let done = timeout(ENLIST_TIMEOUT, enlister.enlist(node, member)).await;
        let done = done.unwrap_or_else(|_| Err(Fault::unknown("it did not answer in time")));
        (node, BasicNode::new(&member.identity.peer_address), done)
    }));
    let mut learners = BTreeMap::new();
    for (node, address, done) in enlisted.await {
        let Err(fault) = done else {
            reign.refused.remove(&node);
            learners.insert(node.0, address);
            continue;
        };
        let address = &address.addr;
        if reign.refused.insert(node, Instant::now()).is_none() {
            tracing::warn!(%node, address, %fault, "cannot enlist a new member yet; retrying");
        } else {
            tracing::debug!(%node, address, %fault, "cannot enlist a new member yet");
        }
    }
    if learners.is_empty() {
        return Duration::ZERO;
    }
    change(running, ChangeMembers::AddNodes(learners)).await
}

/// Changes the membership; returns the time until the next step.
async fn change(running: &Running, to: impl Into<ChangeMembers<u64, BasicNode>>) -> Duration {
    let to = to.into();
    tracing::info!(change = ?to, "changing the topology group's membership");
    let changed = timeout(CHANGE_TIMEOUT, running.raft.change_membership(to, true)).await;
    match changed {
        Ok(Ok(_)) => Duration::ZERO,
        Ok(Err(error)) => {
            tracing::info!(%error, "could not change the topology group's membership yet; retrying");
            SHORTLY
        }
        Err(_) => SHORTLY,
    }
}

#[cfg(test)]
mod tests {
    use openraft::{CommittedLeaderId, LogId, Membership, StoredMembership};

    use super::*;
    use crate::tests::fixture::founding;

    /// Figures of leader 1, in whose membership are four nodes.
    fn figures(last: u64, matched_by_4: u64) -> Metrics {
        let log_id = |index| LogId::new(CommittedLeaderId::new(1, 1), index);
        let voters = BTreeSet::from([1, 2, 3]);
        let nodes: BTreeMap<u64, BasicNode> =
            (1..=4).map(|id| (id, BasicNode::default())).collect();
        let membership =
            StoredMembership::new(Some(log_id(1)), Membership::new(vec![voters], nodes));
        let mut metrics = Metrics::new_initial(1);
        metrics.last_log_index = Some(last);
        metrics.membership_config = Arc::new(membership);
        metrics.replication = Some(BTreeMap::from([(4, Some(log_id(matched_by_4)))]));
        metrics
    }

    /// A node that was restarting when it was removed once lost its last chance to hear of it after a
    /// second. On a busy machine, a second was not enough to hear that its removal was committed.
    #[test]
    fn a_former_member_stays_until_it_knows_that_it_was_removed() {
        let members = Topology::found(founding(3)).unwrap();
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let step = |reign: &mut Reign, metrics: &Metrics, now, asked: Option<Instant>| {
            reign.note(&members, metrics, now, |_| asked);
            let of_all = (1..=3).map(|node| (NodeId(node), Standing::Ready));
            next_step(&members, metrics, &of_all.collect(), reign, now)
        };

        let mut reign = Reign::new(begun, Duration::from_secs(5));
        let rests = |reign: &mut Reign, metrics: &Metrics, now, asked| {
            assert_eq!(step(reign, metrics, now, asked), Step::Rest);
        };
        let drops = |reign: &mut Reign, metrics: &Metrics, now, asked, why| {
            let dropped = Step::Drop(BTreeSet::from([4]));
            assert_eq!(step(reign, metrics, now, asked), dropped, "{why}");
        };
        rests(&mut reign, &figures(9, 7), begun, None);
        rests(&mut reign, &figures(10, 8), after(10), Some(after(9)));
        rests(&mut reign, &figures(10, 9), after(10), Some(after(9)));
        rests(&mut reign, &figures(10, 9), after(12), Some(after(9)));
        drops(
            &mut reign,
            &figures(10, 9),
            after(12),
            Some(after(11)),
            "it knows",
        );

        let mut reign = Reign::new(begun, Duration::from_secs(5));
        rests(&mut reign, &figures(9, 9), begun, None);
        drops(
            &mut reign,
            &figures(9, 9),
            after(5),
            None,
            "it has the entry",
        );

        let mut reign = Reign::new(begun, Duration::from_secs(5));
        rests(&mut reign, &figures(9, 7), begun, None);
        drops(&mut reign, &figures(9, 7), after(15), None, "it is gone");
    }
}
