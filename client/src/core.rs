//! State that clones of a client share: peers and the known topology.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use torc_proto::v1;
use torc_ring::topology::PartitionState;
use torc_ring::{NodeId, Partition};

use crate::Error;
use crate::hedge::HedgeBudget;
use crate::hot::Hot;
use crate::options::Config;
use crate::peer::{Peer, Peers};
use crate::retry::{Failure, Nature};
use crate::view::{Known, View};

/// Most concurrent hedges beyond the budget.
const LATE_HEDGES: usize = 64;

#[derive(Debug)]
pub(crate) struct Core {
    peers: Peers,
    known: Known,
    turn: AtomicUsize,
    hedge_budget: Mutex<HedgeBudget>,
    late_hedges: Semaphore,
    hot: Hot,
    first_contact: Duration,
}

/// The node of an attempt, and its role.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) peer: Arc<Peer>,
    /// Whether the peer should carry it out itself; else it should forward.
    pub(crate) direct: bool,
    /// Whether it leads the partition.
    pub(crate) leads: bool,
}

impl Core {
    pub(crate) fn new(config: Config) -> Result<Self, Error> {
        Ok(Self {
            hot: Hot::new(config.hot_keys),
            first_contact: config.first_contact,
            peers: Peers::new(config)?,
            known: Known::new(),
            turn: AtomicUsize::new(0),
            hedge_budget: Mutex::default(),
            late_hedges: Semaphore::new(LATE_HEDGES),
        })
    }

    /// Recent latencies of gets, and the hedges left. Do not hold the guard across an await.
    pub(crate) fn hedge_budget(&self) -> MutexGuard<'_, HedgeBudget> {
        self.hedge_budget.lock()
    }

    /// Permits for hedges beyond the budget.
    pub(crate) const fn late_hedges(&self) -> &Semaphore {
        &self.late_hedges
    }

    /// Records that another replica answered a get before this one, although it was asked later.
    ///
    /// If this happens often, gets avoid this replica, unless most nodes are slow: then the
    /// cluster is overloaded, and avoiding some nodes would shift their load to the rest.
    pub(crate) fn was_late(&self, peer: &Arc<Peer>) {
        if !peer.was_late() {
            return;
        }
        let peers = self.all_peers(|_| true);
        let is_slow = |other: &&Arc<Peer>| other.is_slow() || Arc::ptr_eq(other, peer);
        let slow = peers.iter().filter(is_slow).count();
        if slow > peers.len() / 2 && peers.len() > 2 {
            for other in &peers {
                other.keeps_up();
            }
        } else {
            peer.fell_behind();
        }
    }

    /// Whether the client has never reached a node, and has tried for longer than `time`.
    pub(crate) fn is_alone_after(&self, time: Duration) -> bool {
        time >= self.first_contact && self.known.view().is_none()
    }

    /// The hot keys known so far.
    pub(crate) fn hot(&self) -> &Hot {
        &self.hot
    }

    /// The topology known now.
    pub(crate) fn view(&self) -> Option<Arc<View>> {
        self.known.view()
    }

    /// Learns of a topology newer than `seen`, asking `first` first.
    pub(crate) async fn refresh(
        &self,
        seen: Option<&Arc<View>>,
        first: Option<&Arc<Peer>>,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let peers = self.all_peers(|peer| first.is_none_or(|first| !Arc::ptr_eq(peer, first)));
        let (mut usable, avoided): (Vec<_>, Vec<_>) = peers
            .into_iter()
            .partition(|peer| peer.is_usable(Nature::Read));
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let start = turn % usable.len().max(1);
        usable.rotate_left(start);
        let candidates: Vec<_> = first
            .into_iter()
            .cloned()
            .chain(usable)
            .chain(avoided)
            .collect();
        self.known
            .refresh(&self.peers, &candidates, seen, deadline)
            .await
    }

    /// The possible targets of an operation on a partition, the best first; never empty.
    ///
    /// The lead, the other replicas, then nodes that can forward. Unusable nodes are left out while
    /// others are usable. `detours` counts the nodes that could not carry the operation out, so it
    /// goes on to the next; `attempt` counts its attempts.
    pub(crate) fn targets(
        &self,
        view: &View,
        state: &PartitionState,
        nature: Nature,
        (detours, attempt): (usize, usize),
    ) -> Vec<Target> {
        let mut replicas = vec![state.lead];
        for node in state
            .nodes
            .iter()
            .chain(state.next.iter().flat_map(|next| next.iter()))
        {
            if !replicas.contains(node) {
                replicas.push(*node);
            }
        }
        let mut targets: Vec<Target> = Vec::new();
        for node in replicas {
            if let Some(peer) = view.peer(node) {
                targets.push(Target {
                    leads: node == state.lead,
                    ..Target::new(peer, true)
                });
            }
        }
        let others =
            self.all_peers(|peer| !targets.iter().any(|target| Arc::ptr_eq(&target.peer, peer)));
        // Advertised addresses may mean nothing here: peers that were reached before go first.
        let (proven, rest): (Vec<_>, Vec<_>) = others.iter().partition(|other| other.was_reached());
        targets.extend(
            proven
                .into_iter()
                .chain(rest)
                .map(|other| Target::new(other, false)),
        );
        let usable: Vec<_> = targets
            .iter()
            .filter(|target| target.peer.is_usable(nature))
            .cloned()
            .collect();
        let (mut targets, turn) = if usable.is_empty() {
            (targets, attempt)
        } else {
            (usable, detours)
        };
        let turn = turn % targets.len();
        targets.rotate_left(turn);
        targets
    }

    /// The first of [`targets`](Self::targets).
    pub(crate) fn first_target(
        &self,
        view: &View,
        state: &PartitionState,
        nature: Nature,
        (detours, attempt): (usize, usize),
    ) -> Target {
        let lead = view
            .peer(state.lead)
            .filter(|lead| detours == 0 && lead.is_usable(nature));
        match lead {
            Some(lead) if nature == Nature::Write || lead.has_room() => Target::to_lead(lead),
            Some(lead) => Self::least_waited_for(view, state, lead),
            None => self
                .targets(view, state, nature, (detours, attempt))
                .swap_remove(0),
        }
    }

    /// The targets that can carry out a get at the same cost, if it is one of many.
    pub(crate) fn able(
        &self,
        view: &View,
        state: &PartitionState,
        tries: (usize, usize),
    ) -> Vec<Target> {
        let mut able = vec![self.first_target(view, state, Nature::Read, tries)];
        if tries == (0, 0) && state.next.is_none() {
            let peers = state.nodes.iter().filter_map(|node| view.peer(*node));
            let is_other = |peer: &&Arc<Peer>| !Arc::ptr_eq(peer, &able[0].peer);
            let can = |peer: &&Arc<Peer>| peer.is_usable(Nature::Read) && peer.has_room();
            let others = peers.filter(is_other).filter(can);
            let others: Vec<_> = others.map(|peer| Target::new(peer, true)).collect();
            able.extend(others);
        }
        able
    }

    /// A number that changes from call to call.
    pub(crate) fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// The target of a get whose lead has no place for it: the replica with the fewest waiting
    /// operations. Otherwise a slightly slower node would collect nearly all requests of an
    /// overloaded client and slow all of them down.
    fn least_waited_for(view: &View, state: &PartitionState, lead: &Arc<Peer>) -> Target {
        let others = state.nodes.iter().filter_map(|node| view.peer(*node));
        let others = others.filter(|peer| peer.is_usable(Nature::Read));
        let least = others.min_by_key(|peer| (!peer.has_room(), peer.waiting()));
        match least {
            Some(peer) if peer.has_room() || peer.waiting() < lead.waiting() => Target {
                leads: Arc::ptr_eq(peer, lead),
                ..Target::new(peer, true)
            },
            _ => Target::to_lead(lead),
        }
    }

    /// The next replica in turn; `None` if there is only one, or none is usable.
    pub(crate) fn next_replica(&self, view: &View, state: &PartitionState) -> Option<Target> {
        let count = state.nodes.len();
        if count < 2 {
            return None;
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let in_turn = (0..count).map(|step| state.nodes[turn.wrapping_add(step) % count]);
        let mut peers = in_turn.filter_map(|node| Some((node, view.peer(node)?)));
        let (node, peer) = peers.find(|(_, peer)| peer.is_usable(Nature::Read))?;
        self.hot.spread();
        Some(Target {
            leads: node == state.lead,
            ..Target::new(peer, true)
        })
    }

    /// A node for a request that any node can answer: first the user's endpoints in
    /// order, then the other members; unusable nodes last.
    pub(crate) fn any_peer(&self, attempt: usize) -> Arc<Peer> {
        let (usable, avoided): (Vec<_>, Vec<_>) = self
            .all_peers(|_| true)
            .into_iter()
            .partition(|peer| peer.is_usable(Nature::Read));
        let all = if usable.is_empty() { avoided } else { usable };
        Arc::clone(&all[attempt % all.len()])
    }

    /// This node if it is usable, else any node, which forwards to it.
    pub(crate) fn towards(&self, view: &View, node: NodeId, attempt: usize) -> Arc<Peer> {
        let usable = |peer: &&Arc<Peer>| peer.is_usable(Nature::Write);
        let direct = view.peer(node).filter(usable).cloned();
        direct.unwrap_or_else(|| self.any_peer(attempt))
    }

    /// The `wanted` seeds, then members, without duplicates.
    fn all_peers(&self, wanted: impl Fn(&Arc<Peer>) -> bool) -> Vec<Arc<Peer>> {
        let seeds = self.peers.seeds();
        let view = self.view();
        let members = view.iter().flat_map(|view| view.peers());
        let more = members.filter(|peer| !seeds.iter().any(|seed| Arc::ptr_eq(seed, peer)));
        seeds
            .iter()
            .chain(more)
            .filter(|peer| wanted(peer))
            .cloned()
            .collect()
    }
}

impl Target {
    fn new(peer: &Arc<Peer>, direct: bool) -> Self {
        Self {
            peer: Arc::clone(peer),
            direct,
            leads: false,
        }
    }

    fn to_lead(peer: &Arc<Peer>) -> Self {
        Self {
            leads: true,
            ..Self::new(peer, true)
        }
    }

    /// The route to send, so the node can check that it serves the partition.
    pub(crate) fn route(&self, view: &View, partition: Partition) -> Option<v1::Route> {
        let epoch = view.table.state(partition)?.config.epoch.0;
        let partition = partition.0;
        self.direct.then_some(v1::Route { partition, epoch })
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.direct == other.direct && Arc::ptr_eq(&self.peer, &other.peer)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use torc_ring::topology::{ClusterId, Founding, Incarnation, NewMember, Release, Topology};
    use torc_ring::{Partitions, Weight, Zone};

    use super::*;

    fn address(number: u8) -> String {
        format!("127.0.0.1:{number}")
    }

    /// A client of three nodes with three replicas, before its first request.
    fn core_and_view() -> (Core, View) {
        let seeds = (1..=3).map(address).collect();
        let core = Core::new(Config {
            seeds,
            connect_timeout: Duration::from_secs(1),
            first_contact: Duration::MAX,
            channels: 1,
            hot_keys: false,
            tls: None,
            token: None,
        });
        let core = core.unwrap();
        let member = |number| NewMember {
            incarnation: Incarnation([number; 16]),
            address: address(number),
            peer_address: address(number),
            http_address: String::new(),
            zone: Zone::new("z").unwrap(),
            weight: Weight::NORMAL,
            release: Release::ours(),
        };
        let topology = Topology::found(Founding {
            cluster: ClusterId([9; 16]),
            digest_key: torc_record::DigestKey([1; 32]),
            partitions: Partitions::new(64).unwrap(),
            replicas: 3,
            positions: 4,
            members: (1..=3).map(member).collect(),
        });
        let table = topology.unwrap().routing();
        let view = View::of(table, &core.peers);
        (core, view)
    }

    fn late_for_long(core: &Core, peer: &Arc<Peer>) {
        for _ in 0..3 {
            core.was_late(peer);
        }
    }

    #[tokio::test]
    async fn gets_avoid_one_slow_node_and_none_where_most_are_slow() {
        let (core, _) = core_and_view();
        let peers = core.all_peers(|_| true);
        let slow = || peers.iter().filter(|peer| peer.is_slow()).count();
        late_for_long(&core, &peers[0]);
        assert!(peers[0].is_slow());
        assert_eq!(slow(), 1);
        late_for_long(&core, &peers[1]);
        assert_eq!(slow(), 0, "the cluster is overloaded");
        late_for_long(&core, &peers[1]);
        assert!(peers[1].is_slow() && slow() == 1);
    }

    #[tokio::test]
    async fn a_get_whose_lead_has_no_place_goes_to_the_replica_with_the_fewest_waiting() {
        let (core, view) = core_and_view();
        let state = view.state(Partition(0)).unwrap();
        let lead = view.peer(state.lead).unwrap();
        let first = |nature| core.first_target(&view, state, nature, (0, 0));
        assert!(first(Nature::Read).leads);

        let places = lead.take_places();
        let target = first(Nature::Read);
        assert!(!target.leads && target.direct && !Arc::ptr_eq(&target.peer, lead));
        assert!(first(Nature::Write).leads, "writes stay with their lead");
        let others = core.all_peers(|peer| !Arc::ptr_eq(peer, lead));
        let taken: Vec<_> = others.iter().map(|peer| peer.take_places()).collect();
        assert!(
            first(Nature::Read).leads,
            "no replica has a place, and no get waits yet"
        );
        drop(taken);
        drop(places);
        assert!(first(Nature::Read).leads);
    }
}
