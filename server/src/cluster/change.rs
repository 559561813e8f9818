//! Plans, starts and aborts joins, leaves, replacements, reweights and alterations.
//!
//! Only the leader of the topology group plans, on a topology that it knows to be current;
//! every other node forwards the request to it. A refusal comes before anything is
//! committed: the leader first applies the change to a copy of the topology.
//!
//! A leaving node takes part in the change. If it does not answer, the change would block,
//! so the caller must declare it dead for good: from then on, the cluster ignores it.

use std::time::Instant;

use tonic::Request;
use torc_group::GroupError;
use torc_proto::v1::{
    AbortRequest, AbortResponse, AlterNamespaceRequest, ChangeResponse, IdentifyResponse,
    JoinRequest, LeaveRequest, ReplaceRequest, ReweightRequest,
};
use torc_proto::{Fault, Reason, transition_to_wire};
use torc_ring::topology::{
    Command, MemberState, NewMember, Outcome, Topology, TopologyError, TransitionKind,
};
use torc_ring::{NodeId, Weight};
use torc_telemetry::clock::unix_ms;

use super::leader::{leader_elsewhere, pass_on};
use super::newcomer::{check_newcomer, enlist, enrolled, identify, new_member};
use super::node::ClusterNode;
use super::plan::{RequestedChange, describe, plan_outline, refused, rehearse};
use super::target::resolve;
use crate::call::deadline_of;

pub(super) async fn join(
    this: &ClusterNode,
    request: Request<JoinRequest>,
) -> Result<ChangeResponse, Fault> {
    let deadline = deadline_of(&request);
    if let Some(leader) = leader_elsewhere(this, &request)? {
        let mut client = this.member.peers.cluster(&leader)?;
        return answered(client.join(pass_on(deadline, request.into_inner())).await);
    }
    let request = request.into_inner();
    let coming = Coming {
        address: request.address,
        plan_only: request.plan_only,
        parallel: request.parallel,
        force: false,
        dead: None,
    };
    coming.carry_out(this, TransitionKind::Join, deadline).await
}

pub(super) async fn replace(
    this: &ClusterNode,
    request: Request<ReplaceRequest>,
) -> Result<ChangeResponse, Fault> {
    let deadline = deadline_of(&request);
    if let Some(leader) = leader_elsewhere(this, &request)? {
        let mut client = this.member.peers.cluster(&leader)?;
        return answered(
            client
                .replace(pass_on(deadline, request.into_inner()))
                .await,
        );
    }
    let request = request.into_inner();
    let old = NodeId(request.old);
    if !request.dead && !request.plan_only {
        check_answers(this, old).await?;
    }
    let coming = Coming {
        address: request.address,
        plan_only: request.plan_only,
        parallel: request.parallel,
        force: request.force,
        dead: request.dead.then_some(old),
    };
    let kind = |new| TransitionKind::Replace { old, new };
    coming.carry_out(this, kind, deadline).await
}

/// A node that is to be added.
struct Coming {
    address: String,
    plan_only: bool,
    parallel: u32,
    force: bool,
    dead: Option<NodeId>,
}

impl Coming {
    async fn carry_out(
        self,
        this: &ClusterNode,
        kind: impl Fn(NodeId) -> TransitionKind,
        deadline: Instant,
    ) -> Result<ChangeResponse, Fault> {
        let newcomer = identify(this, &self.address).await?;
        // The whole cluster would connect to this address.
        resolve(&newcomer.peer_address).await?;
        let topology = this.group.read_current(deadline).await?;
        check_newcomer(this, &topology, &self.address, &newcomer)?;
        let member = new_member(&self.address, &newcomer)?;
        let mut rehearsal = Topology::clone(&topology);
        let node = enrolled(
            &rehearsal
                .apply(Command::Enrol(member.clone()))
                .map_err(refused)?,
        )?;
        let requested = RequestedChange {
            kind: kind(node),
            address: self.address.clone(),
            parallel: self.parallel,
            force: self.force,
            dead: self.dead,
            alone: None,
        };
        if is_there_already(&topology, &member, requested.kind) {
            return Ok(nothing_to_do(&topology, &requested));
        }
        if let Some(answer) =
            under_way(this, &topology, &requested, self.plan_only, deadline).await?
        {
            return Ok(answer);
        }
        if self.plan_only {
            let (plan, _) = describe(this, &rehearsal, &requested).await?;
            let based_on_epoch = topology.epoch().0;
            return Ok(only_planned(torc_proto::v1::Plan {
                based_on_epoch,
                ..plan
            }));
        }
        if let Some(answer) = write_off_at_once(this, &topology, &requested, deadline).await? {
            return Ok(answer);
        }
        rehearse(&rehearsal, &requested)?;
        let outcome = this.group.propose(Command::Enrol(member), deadline).await?;
        let node = enrolled(&outcome)?;
        enlist(this, &topology, node, &newcomer).await?;
        let kind = kind(node);
        begin(this, RequestedChange { kind, ..requested }, deadline).await
    }
}

/// Whether the node is a member already and the node that it replaces is gone.
fn is_there_already(topology: &Topology, member: &NewMember, kind: TransitionKind) -> bool {
    let known = topology.member_by_incarnation(member.incarnation);
    let is_active = known.is_some_and(|(_, known)| known.state == MemberState::Active);
    let goes = kind
        .removes()
        .filter(|old| topology.members().contains_key(old));
    is_active && goes.is_none()
}

pub(super) async fn leave(
    this: &ClusterNode,
    request: Request<LeaveRequest>,
) -> Result<ChangeResponse, Fault> {
    let deadline = deadline_of(&request);
    if let Some(leader) = leader_elsewhere(this, &request)? {
        let mut client = this.member.peers.cluster(&leader)?;
        return answered(client.leave(pass_on(deadline, request.into_inner())).await);
    }
    let request = request.into_inner();
    let node = NodeId(request.node);
    let topology = this.group.read_current(deadline).await?;
    let requested = RequestedChange {
        kind: TransitionKind::Leave(node),
        address: address_of(&topology, node),
        parallel: request.parallel,
        force: request.force,
        dead: request.dead.then_some(node),
        alone: None,
    };
    if let Some(answer) =
        under_way(this, &topology, &requested, request.plan_only, deadline).await?
    {
        return Ok(answer);
    }
    if request.plan_only {
        let (plan, _) = describe(this, &topology, &requested).await?;
        return Ok(only_planned(plan));
    }
    if let Some(answer) = write_off_at_once(this, &topology, &requested, deadline).await? {
        return Ok(answer);
    }
    rehearse(&topology, &requested)?;
    let member = topology.members().get(&node);
    if !request.dead && member.is_some_and(|member| member.state != MemberState::Joining) {
        check_answers(this, node).await?;
    }
    begin(this, requested, deadline).await
}

pub(super) async fn reweight(
    this: &ClusterNode,
    request: Request<ReweightRequest>,
) -> Result<ChangeResponse, Fault> {
    let deadline = deadline_of(&request);
    if let Some(leader) = leader_elsewhere(this, &request)? {
        let mut client = this.member.peers.cluster(&leader)?;
        return answered(
            client
                .reweight(pass_on(deadline, request.into_inner()))
                .await,
        );
    }
    let request = request.into_inner();
    let node = NodeId(request.node);
    let weight = Weight::new(request.weight)
        .map_err(|error| Fault::new(Reason::Invalid, error.to_string()))?;
    let topology = this.group.read_current(deadline).await?;
    let requested = RequestedChange {
        kind: TransitionKind::Reweight { node, weight },
        address: address_of(&topology, node),
        parallel: request.parallel,
        force: false,
        dead: None,
        alone: None,
    };
    if let Some(answer) =
        under_way(this, &topology, &requested, request.plan_only, deadline).await?
    {
        return Ok(answer);
    }
    let member = topology.members().get(&node);
    if topology.transition().is_none() && member.is_some_and(|m| m.identity.weight == weight) {
        return Ok(nothing_to_do(&topology, &requested));
    }
    if request.plan_only {
        let (plan, _) = describe(this, &topology, &requested).await?;
        return Ok(only_planned(plan));
    }
    begin(this, requested, deadline).await
}

/// Changes the number of replicas of a namespace and of the others in its layer.
pub(super) async fn alter(
    this: &ClusterNode,
    request: Request<AlterNamespaceRequest>,
) -> Result<ChangeResponse, Fault> {
    let deadline = deadline_of(&request);
    if let Some(leader) = leader_elsewhere(this, &request)? {
        let mut client = this.member.peers.cluster(&leader)?;
        let request = pass_on(deadline, request.into_inner());
        return answered(client.alter_namespace(request).await);
    }
    let request = request.into_inner();
    let name = match request.namespace.as_str() {
        "" => "default".to_owned(),
        name => name.to_owned(),
    };
    let replicas = u8::try_from(request.replicas).unwrap_or(u8::MAX);
    let topology = this.group.read_current(deadline).await?;
    let requested = RequestedChange {
        kind: topology.alteration(&name, replicas).map_err(refused)?,
        address: String::new(),
        parallel: request.parallel,
        force: false,
        dead: None,
        alone: (!request.with_all).then_some(name),
    };
    if let Some(answer) =
        under_way(this, &topology, &requested, request.plan_only, deadline).await?
    {
        return Ok(answer);
    }
    if is_altered_already(&topology, requested.kind) {
        return Ok(nothing_to_do(&topology, &requested));
    }
    if request.plan_only {
        let (plan, _) = describe(this, &topology, &requested).await?;
        return Ok(only_planned(plan));
    }
    begin(this, requested, deadline).await
}

/// Whether the layer already has that number of replicas and no change of it is under way.
fn is_altered_already(topology: &Topology, kind: TransitionKind) -> bool {
    let TransitionKind::Alter { layer, replicas } = kind else {
        return false;
    };
    let running = topology.transition();
    let changes = running.is_some_and(|it| it.kind.alters() == Some(layer));
    topology.replicas_in(layer) == replicas && !changes
}

pub(super) async fn abort(
    this: &ClusterNode,
    request: AbortRequest,
    deadline: Instant,
) -> Result<AbortResponse, Fault> {
    let topology = this.group.read_current(deadline).await?;
    let ended = topology.last_transition().filter(|last| last.aborted);
    if let Some(ended) = ended.filter(|last| last.id == request.transition) {
        return Ok(AbortResponse {
            transition: Some(transition_to_wire(ended)),
        });
    }
    let number = match (request.transition, topology.transition()) {
        (0, Some(running)) => running.id,
        (0, None) => return Err(refused(TopologyError::NoTransition)),
        (number, _) => number,
    };
    let command = Command::Abort {
        transition: number,
        at_ms: unix_ms(),
    };
    this.group.propose(command, deadline).await?;
    let read = this.group.read_current(deadline).await;
    let topology = read.map_err(|error| Fault::from(error).after_change())?;
    let both = [topology.transition(), topology.last_transition()];
    let aborted = both.into_iter().flatten().find(|it| it.id == number);
    Ok(AbortResponse {
        transition: aborted.map(transition_to_wire),
    })
}

/// Plans on the current topology and begins; plans again if the topology has changed meanwhile.
async fn begin(
    this: &ClusterNode,
    requested: RequestedChange,
    deadline: Instant,
) -> Result<ChangeResponse, Fault> {
    loop {
        let topology = this.group.read_current(deadline).await?;
        rehearse(&topology, &requested)?;
        let (plan, planned) = describe(this, &topology, &requested).await?;
        let proposal = requested.proposal(&topology, planned);
        let begun = this.group.propose(Command::Begin(proposal), deadline).await;
        match begun {
            Ok(Outcome::Begun { transition }) => {
                let declared = declare_dead(this, &requested, deadline).await;
                declared.map_err(Fault::after_change)?;
                return Ok(ChangeResponse {
                    plan: Some(plan),
                    transition,
                    deferred: String::new(),
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

/// The answer if exactly this change is under way.
async fn under_way(
    this: &ClusterNode,
    topology: &Topology,
    requested: &RequestedChange,
    plan_only: bool,
    deadline: Instant,
) -> Result<Option<ChangeResponse>, Fault> {
    let running = topology.transition();
    let Some(running) = running.filter(|it| it.kind == requested.kind && !it.aborted) else {
        return Ok(None);
    };
    if !plan_only {
        declare_dead(this, requested, deadline).await?;
    }
    Ok(Some(ChangeResponse {
        plan: Some(plan_outline(topology, requested)),
        transition: running.id,
        deferred: String::new(),
    }))
}

async fn declare_dead(
    this: &ClusterNode,
    requested: &RequestedChange,
    deadline: Instant,
) -> Result<(), Fault> {
    let Some(node) = requested.dead else {
        return Ok(());
    };
    let declaration = requested.declaration(node);
    match this.group.propose(declaration, deadline).await {
        // Nothing had to move: the node is no longer a member.
        Ok(_)
        | Err(GroupError::Refused(
            TopologyError::NoTransition | TopologyError::UnknownNode { .. },
        )) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Writes the node off without waiting for the running change, which may itself be waiting for that
/// node. Returns the answer then: the requested change has not begun.
async fn write_off_at_once(
    this: &ClusterNode,
    topology: &Topology,
    requested: &RequestedChange,
    deadline: Instant,
) -> Result<Option<ChangeResponse>, Fault> {
    let (Some(node), true, Some(running)) =
        (requested.dead, requested.force, topology.transition())
    else {
        return Ok(None);
    };
    declare_dead(this, requested, deadline).await?;
    let deferred = format!(
        "declared node {node} dead: no partition waits for it any more. Transition {} continues \
         without it: repeat this command when it has ended",
        running.id
    );
    Ok(Some(ChangeResponse {
        deferred,
        ..nothing_to_do(topology, requested)
    }))
}

async fn check_answers(this: &ClusterNode, node: NodeId) -> Result<(), Fault> {
    let table = this.member.routing()?;
    let Some(address) = table.peer_address(node) else {
        return Err(refused(TopologyError::UnknownNode { node }));
    };
    let answer = identify(this, address).await.ok();
    let is_it = |it: &IdentifyResponse| it.node == node.0 && it.cluster_id[..] == table.cluster.0;
    answer.filter(is_it).map(drop).ok_or_else(|| {
        let message = format!(
            "node {node} ({address}) does not answer, so the change would block: restart it, or \
             declare it dead for good with `--dead`"
        );
        Fault::new(Reason::Refused, message)
    })
}

fn address_of(topology: &Topology, node: NodeId) -> String {
    let member = topology.members().get(&node);
    member.map_or_else(String::new, |member| member.identity.address.clone())
}

fn only_planned(plan: torc_proto::v1::Plan) -> ChangeResponse {
    ChangeResponse {
        plan: Some(plan),
        transition: 0,
        deferred: String::new(),
    }
}

fn nothing_to_do(topology: &Topology, requested: &RequestedChange) -> ChangeResponse {
    only_planned(plan_outline(topology, requested))
}

fn answered(
    answer: Result<tonic::Response<ChangeResponse>, tonic::Status>,
) -> Result<ChangeResponse, Fault> {
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| Fault::from_status(&status))
}
