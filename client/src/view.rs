//! The client's topology, and how it fetches a newer one.
//!
//! Invariants:
//! * The topology never goes back to an older one, and never changes its cluster.
//! * However many operations need a newer topology, one at a time fetches it; the
//!   others wait and share the result.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::{Instant, timeout_at};
use torc_proto::{Fault, Reason, merge_topology, v1, wrong_cluster};
use torc_record::DigestKey;
use torc_ring::topology::{ClusterId, PartitionState, RoutingTable};
use torc_ring::{NodeId, Partition};

use crate::peer::attempt::out_of_time;
use crate::peer::topology::fetch_topology;
use crate::peer::{Peer, Peers};
use crate::retry::{Failure, Nature};
use crate::{Error, ErrorKind};

/// Longest wait for one node if others could answer.
const ROUND_TIMEOUT: Duration = Duration::from_secs(1);

/// After this many nodes without a newer topology, assume that there is none.
const ENOUGH_ANSWERS: usize = 3;

/// Most addresses in an error.
pub(crate) const MOST_UNREACHED: usize = 8;

/// A topology and the peers of its members.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) table: Arc<RoutingTable>,
    peers: HashMap<NodeId, Arc<Peer>>,
}

impl View {
    pub(crate) fn of(table: RoutingTable, peers: &Peers) -> Self {
        let members = table.members.iter();
        let addresses = members.map(|(id, member)| (*id, member.identity.address.as_str()));
        let peers = peers.of(addresses).into_iter().collect();
        let table = Arc::new(table);
        Self { table, peers }
    }

    /// Whether the cluster has sent this client the digest key.
    pub(crate) fn tells_digests(&self) -> bool {
        self.table.digest_key != DigestKey::WITHHELD
    }

    /// Whether there are namespaces that this client may not know, which have numbers as names.
    pub(crate) fn hides_namespaces(&self) -> bool {
        let mut names = self.table.namespaces.keys();
        names.any(|name| name.starts_with('#'))
    }

    /// The state of a partition.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] for a partition that the topology does not have.
    pub(crate) fn state(&self, partition: Partition) -> Result<&PartitionState, Error> {
        let unknown = || Error::new(ErrorKind::Internal, format!("no partition {partition}"));
        self.table.state(partition).ok_or_else(unknown)
    }

    /// The peer of a node; `None` if it is not a member or its address is malformed.
    pub(crate) fn peer(&self, node: NodeId) -> Option<&Arc<Peer>> {
        self.peers.get(&node)
    }

    /// Every member that has an address.
    pub(crate) fn peers(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.peers.values()
    }
}

/// The result of the last round.
type Round = Result<(), Fault>;

/// The newest topology known.
#[derive(Debug)]
pub(crate) struct Known {
    view: ArcSwapOption<View>,
    /// Rounds that have ended.
    rounds: AtomicU64,
    /// Held during a round.
    asking: tokio::sync::Mutex<Round>,
}

impl Known {
    pub(crate) fn new() -> Self {
        Self {
            view: ArcSwapOption::empty(),
            rounds: AtomicU64::new(0),
            asking: tokio::sync::Mutex::new(Ok(())),
        }
    }

    /// The current view.
    pub(crate) fn view(&self) -> Option<Arc<View>> {
        self.view.load_full()
    }

    /// Asks `candidates`, in order, for a topology newer than `seen`, until one has it
    /// or all were asked. Returns early if another caller has found one, and shares the
    /// result of a round that was running at the time of the call.
    ///
    /// # Errors
    /// The last fault if no node answered. The current view stays.
    pub(crate) async fn refresh(
        &self,
        peers: &Peers,
        candidates: &[Arc<Peer>],
        seen: Option<&Arc<View>>,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let round = self.rounds.load(Ordering::Acquire);
        let waiting = timeout_at(deadline, self.asking.lock()).await;
        let mut outcome = waiting.map_err(|_| out_of_time())?;
        if self.is_newer_than(seen) {
            return Ok(());
        }
        if self.rounds.load(Ordering::Acquire) != round {
            return outcome.clone().map_err(Failure::sent);
        }
        *outcome = self.ask(peers, candidates, deadline).await;
        self.rounds.fetch_add(1, Ordering::Release);
        outcome.clone().map_err(Failure::sent)
    }

    fn is_newer_than(&self, seen: Option<&Arc<View>>) -> bool {
        match (self.view(), seen) {
            (Some(now), Some(seen)) => now.table.epoch > seen.table.epoch,
            (now, None) => now.is_some(),
            (None, Some(_)) => false,
        }
    }

    async fn ask(&self, peers: &Peers, candidates: &[Arc<Peer>], deadline: Instant) -> Round {
        let mut failed: Option<Fault> = None;
        let mut unreached = Vec::new();
        let mut answers = 0;
        for peer in candidates {
            let before = self.view();
            match self.ask_one(peers, peer, before.as_ref(), deadline).await {
                Ok(()) if self.is_newer_than(before.as_ref()) => return Ok(()),
                Ok(()) => answers += 1,
                Err(fault) => {
                    if fault.reason == Reason::OwnerUnreachable {
                        unreached.push(fault.message.clone());
                    }
                    failed = Some(match failed.take() {
                        Some(earlier) => more_useful(earlier, fault),
                        None => fault,
                    });
                }
            }
            if answers == ENOUGH_ANSWERS || Instant::now() >= deadline {
                break;
            }
        }
        match failed {
            Some(mut fault) if answers == 0 => {
                if fault.reason == Reason::OwnerUnreachable {
                    unreached.truncate(MOST_UNREACHED);
                    fault.message = unreached.join("; ");
                }
                Err(fault)
            }
            _ => Ok(()),
        }
    }

    async fn ask_one(
        &self,
        peers: &Peers,
        peer: &Arc<Peer>,
        before: Option<&Arc<View>>,
        deadline: Instant,
    ) -> Round {
        let deadline = deadline.min(Instant::now() + ROUND_TIMEOUT);
        let known_epoch = before.map_or(0, |view| view.table.epoch.0);
        let wire = fetch_topology(peer, known_epoch, deadline).await?;
        let table = match adopt(before, wire) {
            Ok(table) => table,
            Err(Misfit::Stranger(found)) => return Err(self.stranger(peer, found)),
            Err(Misfit::Incomplete) => {
                let whole = fetch_topology(peer, 0, deadline).await?;
                let contradicts = "a node sent a topology that contradicts itself";
                adopt(before, whole).map_err(|_| Fault::new(Reason::Internal, contradicts))?
            }
        };
        if let Some(table) = table {
            self.publish(peers, table);
        }
        Ok(())
    }

    fn stranger(&self, peer: &Peer, found: ClusterId) -> Fault {
        let ours = self.view().map(|view| view.table.cluster);
        let fault = wrong_cluster(
            format_args!("the node at {peer}"),
            found,
            ours.unwrap_or(found),
        );
        peer.is_a_strangers(&fault);
        fault
    }

    fn publish(&self, peers: &Peers, table: RoutingTable) {
        tracing::debug!(epoch = %table.epoch, members = table.members.len(), "new topology");
        peers.belong_to(table.cluster);
        self.view.store(Some(Arc::new(View::of(table, peers))));
    }
}

/// Of two faults the later one, unless only the earlier one is temporary.
fn more_useful(earlier: Fault, later: Fault) -> Fault {
    let may_retry = |fault: &Fault| Failure::sent(fault.clone()).may_retry(Nature::Read);
    if may_retry(&earlier) && !may_retry(&later) {
        earlier
    } else {
        later
    }
}

/// Why a topology was not adopted.
enum Misfit {
    /// It is a difference to an unknown topology: fetch the whole one.
    Incomplete,
    /// It belongs to another cluster.
    Stranger(ClusterId),
}

/// The topology to adopt; `None` if it is not newer than the current one.
fn adopt(before: Option<&Arc<View>>, wire: v1::Topology) -> Result<Option<RoutingTable>, Misfit> {
    let known = before.map(|view| view.table.as_ref());
    if let Some(known) = known {
        let cluster = <[u8; 16]>::try_from(&wire.cluster_id[..]);
        let cluster = ClusterId(cluster.map_err(|_| Misfit::Incomplete)?);
        if cluster != known.cluster {
            return Err(Misfit::Stranger(cluster));
        }
        if wire.epoch <= known.epoch.0 {
            return Ok(None);
        }
    }
    let merged = merge_topology(known, wire).map_err(|error| {
        tracing::warn!(%error, "a topology that does not fit");
        Misfit::Incomplete
    })?;
    Ok(Some(merged))
}
