//! Join and leave: the plan, shown or begun.
//!
//! The plan that is shown is computed by the very code that will run: the topology's
//! own. Only the leader of the topology group plans, on a topology it knows to be
//! current; every other node passes the request on to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tonic::Request;
use torc_proto::v1::{
    ChangeKind, ChangeResponse, IdentifyRequest, IdentifyResponse, JoinRequest, LeaveRequest,
    NodeShare, Plan, SummarizeRequest,
};
use torc_proto::v1::{EnlistRequest, PartitionSummary};
use torc_proto::{Fault, Reason};
use torc_ring::topology::{
    Command, Incarnation, MemberState, NewMember, Outcome, Proposal, Sizes, Topology,
    TopologyError, TransitionKind,
};
use torc_ring::{NodeId, Partition, TransitionPlan, Weight, Zone};

use crate::clock::unix_ms;
use crate::group::GroupError;
use crate::peers::within;
use crate::shared::{Shared, deadline_of};

/// Partitions in flight at a time when the caller does not say.
const PARALLEL: u32 = 256;
const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(2);
const SUMMARIZE_TIMEOUT: Duration = Duration::from_secs(5);
/// Says that a request was passed on once already.
const PASSED_ON: &str = "torc-passed-on";

pub(super) async fn join(
    shared: &Arc<Shared>,
    request: Request<JoinRequest>,
) -> Result<ChangeResponse, Fault> {
    let deadline = deadline_of(&request);
    if let Some(leader) = leader_elsewhere(shared, &request)? {
        let mut client = shared.peers.cluster(&leader)?;
        let answer = client.join(pass_on(deadline, request.into_inner())).await;
        return answer
            .map(tonic::Response::into_inner)
            .map_err(|s| Fault::from_status(&s));
    }
    let request = request.into_inner();
    let newcomer = identify(shared, &request.address).await?;
    let topology = shared.group.read_current(deadline).await?;
    check_newcomer(shared, &topology, &request.address, &newcomer)?;
    let member = new_member(&request.address, &newcomer)?;
    if let Some(answer) = settled_join(&topology, &member, &request.address) {
        return Ok(answer);
    }
    if request.plan_only {
        let mut rehearsal = Topology::clone(&topology);
        let node = enrolled(&rehearsal.apply(Command::Enrol(member)).map_err(refused)?)?;
        let kind = TransitionKind::Join(node);
        let (plan, _) = describe(shared, &rehearsal, kind, &request.address).await?;
        let based_on_epoch = topology.epoch().0;
        let plan = Some(Plan {
            based_on_epoch,
            ..plan
        });
        return Ok(ChangeResponse {
            plan,
            transition: 0,
        });
    }
    let outcome = shared
        .group
        .propose(Command::Enrol(member), deadline)
        .await?;
    let node = enrolled(&outcome)?;
    enlist(shared, &topology, node, &request.address, &newcomer).await?;
    begin(
        shared,
        TransitionKind::Join(node),
        &request.address,
        request.parallel,
        deadline,
    )
    .await
}

/// The answer when the node is a member already, or its join is under way.
fn settled_join(topology: &Topology, member: &NewMember, address: &str) -> Option<ChangeResponse> {
    let (id, known) = topology.member_by_incarnation(member.incarnation)?;
    let kind = TransitionKind::Join(id);
    let running = topology.transition().filter(|running| running.kind == kind);
    let transition = running.map_or(0, |running| running.id);
    let settled = running.is_some() || known.state == MemberState::Active;
    let plan = Some(settled_plan(topology, kind, address));
    settled.then_some(ChangeResponse { plan, transition })
}

pub(super) async fn leave(
    shared: &Arc<Shared>,
    request: Request<LeaveRequest>,
) -> Result<ChangeResponse, Fault> {
    let deadline = deadline_of(&request);
    if let Some(leader) = leader_elsewhere(shared, &request)? {
        let mut client = shared.peers.cluster(&leader)?;
        let answer = client.leave(pass_on(deadline, request.into_inner())).await;
        return answer
            .map(tonic::Response::into_inner)
            .map_err(|s| Fault::from_status(&s));
    }
    let request = request.into_inner();
    let topology = shared.group.read_current(deadline).await?;
    let node = NodeId(request.node);
    let kind = TransitionKind::Leave(node);
    let member = topology.members().get(&node);
    let address = member
        .map(|member| member.identity.address.clone())
        .unwrap_or_default();
    if let Some(running) = topology.transition()
        && running.kind == kind
    {
        let plan = Some(settled_plan(&topology, kind, &address));
        return Ok(ChangeResponse {
            plan,
            transition: running.id,
        });
    }
    if request.plan_only {
        let (plan, _) = describe(shared, &topology, kind, &address).await?;
        return Ok(ChangeResponse {
            plan: Some(plan),
            transition: 0,
        });
    }
    begin(shared, kind, &address, request.parallel, deadline).await
}

/// Plans on the current topology and begins; plans again when it has changed meanwhile.
async fn begin(
    shared: &Arc<Shared>,
    kind: TransitionKind,
    address: &str,
    parallel: u32,
    deadline: Instant,
) -> Result<ChangeResponse, Fault> {
    loop {
        let topology = shared.group.read_current(deadline).await?;
        let (plan, planned) = describe(shared, &topology, kind, address).await?;
        let proposal = Proposal {
            kind,
            based_on: topology.epoch(),
            parallel: if parallel == 0 { PARALLEL } else { parallel },
            planned,
            at_ms: unix_ms(),
        };
        match shared
            .group
            .propose(Command::Begin(proposal), deadline)
            .await
        {
            Ok(Outcome::Begun { transition }) => {
                return Ok(ChangeResponse {
                    plan: Some(plan),
                    transition,
                });
            }
            Ok(_) => {
                return Err(Fault::new(
                    Reason::Internal,
                    "an unexpected outcome: report this",
                ));
            }
            Err(GroupError::Refused(TopologyError::StalePlan { .. })) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The leader's address, unless this node leads.
fn leader_elsewhere<T>(shared: &Shared, request: &Request<T>) -> Result<Option<String>, Fault> {
    if shared.group.is_leader() {
        return Ok(None);
    }
    let no_leader = || {
        Fault::new(
            Reason::NoTopologyLeader,
            "the topology group has no leader now: try again",
        )
        .retry_after(Duration::from_millis(300))
    };
    if request.metadata().contains_key(PASSED_ON) {
        return Err(no_leader());
    }
    let table = shared.routing()?;
    let leader = shared.group.leader().ok_or_else(no_leader)?;
    table
        .address(leader)
        .map(str::to_owned)
        .map(Some)
        .ok_or_else(no_leader)
}

fn pass_on<T>(deadline: Instant, message: T) -> Request<T> {
    let mut request = within(deadline.saturating_duration_since(Instant::now()), message);
    request
        .metadata_mut()
        .insert(PASSED_ON, tonic::metadata::MetadataValue::from_static("1"));
    request
}

async fn identify(shared: &Shared, address: &str) -> Result<IdentifyResponse, Fault> {
    let mut client = shared.peers.replica(address)?;
    let answer = client
        .identify(within(IDENTIFY_TIMEOUT, IdentifyRequest {}))
        .await;
    answer.map(tonic::Response::into_inner).map_err(|status| {
        let message = format!(
            "no Torc node answers at {address} ({}): start it first",
            status.message()
        );
        Fault::new(Reason::OwnerUnreachable, message)
    })
}

fn check_newcomer(
    shared: &Shared,
    topology: &Topology,
    address: &str,
    newcomer: &IdentifyResponse,
) -> Result<(), Fault> {
    let refuse = |message: String| Err(Fault::new(Reason::Refused, message));
    let (ours, theirs) = (shared.settings.partitions.count(), newcomer.partitions);
    if theirs != ours {
        return refuse(format!(
            "the node at {address} was started with --partitions {theirs}, this cluster has {ours}: \
             start it with an empty data directory and --partitions {ours}"
        ));
    }
    if newcomer.cluster_id.is_empty() {
        if newcomer.empty {
            return Ok(());
        }
        return refuse(format!(
            "the node at {address} holds records: start it with an empty data directory"
        ));
    }
    if newcomer.cluster_id[..] != topology.cluster().0 {
        return refuse(format!(
            "the node at {address} belongs to another cluster: start it with an empty data directory"
        ));
    }
    if topology.members().contains_key(&NodeId(newcomer.node)) {
        return Ok(());
    }
    refuse(format!(
        "the node at {address} has left this cluster: start it with an empty data directory"
    ))
}

fn new_member(address: &str, newcomer: &IdentifyResponse) -> Result<NewMember, Fault> {
    let malformed = |what: &str| {
        Fault::new(
            Reason::Invalid,
            format!("the node at {address} sent a malformed {what}"),
        )
    };
    let incarnation = <[u8; 16]>::try_from(&newcomer.incarnation[..]);
    Ok(NewMember {
        incarnation: Incarnation(incarnation.map_err(|_| malformed("incarnation"))?),
        address: newcomer.address.clone(),
        http_address: newcomer.http_address.clone(),
        zone: Zone::new(newcomer.zone.clone()).map_err(|_| malformed("zone"))?,
        weight: Weight::new(newcomer.weight).map_err(|_| malformed("weight"))?,
    })
}

async fn enlist(
    shared: &Shared,
    topology: &Topology,
    node: NodeId,
    address: &str,
    newcomer: &IdentifyResponse,
) -> Result<(), Fault> {
    let request = EnlistRequest {
        cluster_id: topology.cluster().0.to_vec().into(),
        node: node.0,
        incarnation: newcomer.incarnation.clone(),
    };
    let mut client = shared.peers.replica(address)?;
    let answer = client.enlist(within(IDENTIFY_TIMEOUT, request)).await;
    // What the member table says now is repaired by asking again: nothing is in doubt.
    answer.map(drop).map_err(|status| Fault {
        maybe_applied: false,
        ..Fault::from_status(&status)
    })
}

fn enrolled(outcome: &Outcome) -> Result<NodeId, Fault> {
    match outcome {
        Outcome::Enrolled { node, .. } => Ok(*node),
        Outcome::Done | Outcome::Begun { .. } => Err(Fault::new(
            Reason::Internal,
            "an unexpected outcome: report this",
        )),
    }
}

fn refused(error: TopologyError) -> Fault {
    Fault::from(GroupError::Refused(error))
}

/// The plan of a change that is done or under way: nothing more is to be planned.
fn settled_plan(topology: &Topology, kind: TransitionKind, address: &str) -> Plan {
    Plan {
        based_on_epoch: topology.epoch().0,
        kind: kind_to_wire(kind).into(),
        node: kind.node().0,
        address: address.to_owned(),
        ..Plan::default()
    }
}

fn kind_to_wire(kind: TransitionKind) -> ChangeKind {
    match kind {
        TransitionKind::Join(_) => ChangeKind::Join,
        TransitionKind::Leave(_) => ChangeKind::Leave,
    }
}

/// The plan of a change, with what it would move as of now.
async fn describe(
    shared: &Shared,
    topology: &Topology,
    kind: TransitionKind,
    address: &str,
) -> Result<(Plan, Sizes), Fault> {
    let plan = topology.plan(&kind).map_err(refused)?;
    let sizes = partition_sizes(shared, topology, &plan).await?;
    let mut shares = node_shares(topology, &plan);
    let mut total = Sizes::default();
    for planned in &plan.moves {
        let size = sizes.get(&planned.partition).copied().unwrap_or_default();
        for node in planned.gained() {
            total += size;
            shares.entry(node).or_default().bytes_in += size.bytes;
        }
        if let Some(source) = planned.from.primary() {
            shares.entry(source).or_default().bytes_out += size.bytes;
        }
    }
    let described = Plan {
        based_on_epoch: topology.epoch().0,
        kind: kind_to_wire(kind).into(),
        node: kind.node().0,
        address: address.to_owned(),
        partitions_moved: plan.moves.len() as u32,
        bytes: total.bytes,
        records: total.records,
        shares: shares
            .into_iter()
            .map(|(id, s)| NodeShare { node: id.0, ..s })
            .collect(),
        peak_to_mean_before: plan.balance_before.replica_peak_to_mean,
        peak_to_mean_after: plan.balance_after.replica_peak_to_mean,
        minimum_moved: plan.minimum_replicas,
    };
    Ok((described, total))
}

/// Partitions each node holds before and after.
fn node_shares(topology: &Topology, plan: &TransitionPlan) -> BTreeMap<NodeId, NodeShare> {
    let mut shares: BTreeMap<NodeId, NodeShare> = BTreeMap::new();
    for partition in topology.partitions().iter() {
        for node in topology.state(partition).nodes.iter() {
            let share = shares.entry(*node).or_default();
            share.partitions_before += 1;
            share.partitions_after += 1;
        }
    }
    for planned in &plan.moves {
        for node in planned.gained() {
            shares.entry(node).or_default().partitions_after += 1;
        }
        for node in planned.lost() {
            let share = shares.entry(node).or_default();
            share.partitions_after = share.partitions_after.saturating_sub(1);
        }
    }
    shares
}

/// What the moving partitions hold, asked of the nodes that lead them.
async fn partition_sizes(
    shared: &Shared,
    topology: &Topology,
    plan: &TransitionPlan,
) -> Result<BTreeMap<Partition, Sizes>, Fault> {
    let moving: BTreeSet<Partition> = plan.moves.iter().map(|planned| planned.partition).collect();
    let sources: BTreeSet<NodeId> = plan
        .moves
        .iter()
        .filter_map(|planned| planned.from.primary())
        .collect();
    let asked = sources
        .into_iter()
        .map(|source| summaries_of(shared, topology, source));
    let mut sizes = BTreeMap::new();
    for (source, summaries) in futures::future::try_join_all(asked).await? {
        for summary in summaries {
            let partition = Partition(summary.partition);
            let leads = || topology.state(partition).lead == source;
            if moving.contains(&partition) && leads() {
                let size = Sizes {
                    records: summary.records,
                    bytes: summary.payload_bytes,
                };
                sizes.insert(partition, size);
            }
        }
    }
    Ok(sizes)
}

async fn summaries_of(
    shared: &Shared,
    topology: &Topology,
    node: NodeId,
) -> Result<(NodeId, Vec<PartitionSummary>), Fault> {
    let member = topology.members().get(&node);
    let address = member
        .map(|member| member.identity.address.clone())
        .unwrap_or_default();
    let mut client = shared.peers.replica(&address)?;
    let request = within(
        SUMMARIZE_TIMEOUT,
        SummarizeRequest {
            partitions: Vec::new(),
        },
    );
    let answer = client.summarize(request).await.map_err(|status| {
        let message = format!(
            "node {node} does not tell what it holds ({})",
            status.message()
        );
        Fault::new(Reason::OwnerUnreachable, message)
    })?;
    Ok((node, answer.into_inner().summaries))
}
