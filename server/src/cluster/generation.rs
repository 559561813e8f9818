//! Reserves, attaches, promotes, rolls back, drops and lists generations of static namespaces, first
//! records of ordinary ones, and merges into these.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use torc_proto::v1::{
    self, AttachGeneration, ChangeGenerationRequest, ChangeGenerationResponse,
    ListGenerationsRequest, ListGenerationsResponse, change_generation_request::Change,
};
use torc_proto::{
    Fault, WireError, digests_from_wire, find_namespace, generation_shape_from_wire,
    generation_to_wire,
};
use torc_record::Epoch;
use torc_ring::NodeId;
use torc_ring::topology::{Arcs, Command, Generation, GenerationContent, Outcome, Topology};
use torc_telemetry::clock::unix_ms;
use torc_transfers::generations::Source;

use super::new_namespace;
use super::node::ClusterNode;

const ASK_AGAIN: Duration = Duration::from_millis(20);
/// Time for members to learn of a forced promotion.
const FORCED_WAIT: Duration = Duration::from_secs(2);
/// Time reserved for reading the topology and sending the answer before the deadline.
const TO_ANSWER: Duration = Duration::from_millis(200);
/// Time reserved for sending the answer.
const TO_SEND: Duration = Duration::from_millis(50);

pub(super) async fn change(
    this: &ClusterNode,
    request: ChangeGenerationRequest,
    deadline: Instant,
) -> Result<ChangeGenerationResponse, Fault> {
    let missing = || Fault::from(WireError::Field { field: "change" });
    let number = match request.change.ok_or_else(missing)? {
        Change::Reserve(asked) => return reserve(this, asked, deadline).await,
        Change::ReserveNamespace(asked) => return reserve_namespace(this, asked, deadline).await,
        Change::Attach(asked) => {
            let number = asked.number;
            let content = content_of(asked)?;
            let command = Command::AttachGeneration { number, content };
            this.group.propose(command, deadline).await?;
            number
        }
        Change::Promote(asked) => {
            let number = asked.number;
            let command = Command::PromoteGeneration { number };
            this.group.propose(command, deadline).await?;
            let name = name_of(this, number)?;
            let heard = heard(this, &name, asked.force, deadline);
            heard.await.map_err(Fault::after_change)?;
            number
        }
        Change::RollBack(asked) => {
            let namespace = asked.namespace;
            let command = Command::RollBack {
                namespace: namespace.clone(),
            };
            let command = command.once(rand::random());
            this.group.propose(command, deadline).await?;
            let heard = heard(this, &namespace, asked.force, deadline);
            heard.await.map_err(Fault::after_change)?;
            let topology = changed(this, deadline).await?;
            let current = topology.current_generation(&namespace);
            current.map_or(0, |generation| generation.id.number())
        }
        Change::Drop(asked) => {
            let number = asked.number;
            let command = Command::DropGeneration { number }.once(rand::random());
            this.group.propose(command, deadline).await?;
            number
        }
    };
    let topology = changed(this, deadline).await?;
    let generation = topology.generation(number);
    Ok(ChangeGenerationResponse {
        generation: generation.map(|generation| generation_to_wire(&topology, generation)),
        digest_key: bytes::Bytes::new(),
    })
}

/// The topology after a change, read while there is time to answer.
async fn changed(this: &ClusterNode, deadline: Instant) -> Result<Arc<Topology>, Fault> {
    let read = this.group.read_current(before(deadline, TO_SEND)).await;
    read.map_err(|error| Fault::from(error).after_change())
}

fn before(deadline: Instant, time: Duration) -> Instant {
    deadline.checked_sub(time).unwrap_or(deadline)
}

async fn reserve(
    this: &ClusterNode,
    asked: v1::ReserveGeneration,
    deadline: Instant,
) -> Result<ChangeGenerationResponse, Fault> {
    let digests = digests_from_wire(&asked.digest_key, asked.digest_id)?;
    let v1::ReserveGeneration {
        namespace, merge, ..
    } = asked;
    if merge && digests.is_some() {
        let field = "digest_key";
        return Err(WireError::Field { field }.into());
    }
    let command = Command::ReserveGeneration {
        namespace: namespace.clone(),
        merge,
        at_ms: unix_ms(),
        digests,
    };
    let command = command.once(rand::random());
    let outcome = this.group.propose(command, deadline).await?;
    // The caller sees in the answer who has not heard of a merge, and must learn its number.
    let heard = async {
        if merge {
            heard(this, &namespace, false, deadline).await?;
        }
        changed(this, deadline).await
    };
    let topology = match heard.await {
        Ok(topology) => topology,
        Err(fault) => {
            let known = this.group.topology();
            let known = known.filter(|it| reserved_in(it, &outcome).is_some());
            known.ok_or_else(|| fault.after_change())?
        }
    };
    let mut response = reservation(&topology, &outcome)?;
    if merge {
        response.digest_key = bytes::Bytes::new();
    }
    Ok(response)
}

async fn reserve_namespace(
    this: &ClusterNode,
    asked: v1::ReserveNamespace,
    deadline: Instant,
) -> Result<ChangeGenerationResponse, Fault> {
    let command = Command::ReserveNamespace {
        new: new_namespace::checked(asked.namespace.unwrap_or_default())?,
        above: Epoch(asked.above),
        replaces: asked.replaces,
    };
    let command = command.once(rand::random());
    let outcome = this.group.propose(command, deadline).await?;
    reservation(&*changed(this, deadline).await?, &outcome)
}

fn reserved_in<'a>(topology: &'a Topology, outcome: &Outcome) -> Option<&'a Generation> {
    match outcome {
        Outcome::Reserved { number } => topology.generation(*number),
        _ => None,
    }
}

fn reservation(topology: &Topology, outcome: &Outcome) -> Result<ChangeGenerationResponse, Fault> {
    let reserved = reserved_in(topology, outcome);
    let reserved =
        reserved.ok_or_else(|| Fault::unknown("another request has dropped the new generation"))?;
    Ok(ChangeGenerationResponse {
        generation: Some(generation_to_wire(topology, reserved)),
        digest_key: topology.digests_of(reserved).key.0.to_vec().into(),
    })
}

pub(super) async fn list(
    this: &ClusterNode,
    request: &ListGenerationsRequest,
    deadline: Instant,
) -> Result<ListGenerationsResponse, Fault> {
    let topology = this.group.read_current(deadline).await?;
    let wanted =
        |it: &&Generation| request.namespace.is_empty() || it.namespace == request.namespace;
    let generations: Vec<_> = topology.generations().filter(wanted).collect();
    // One that waits for its first records has no name yet.
    if generations.is_empty() && !request.namespace.is_empty() {
        find_namespace(&topology.routing(), &request.namespace)?;
    }
    let generations = generations.into_iter();
    Ok(ListGenerationsResponse {
        generations: generations
            .map(|it| generation_to_wire(&topology, it))
            .collect(),
    })
}

fn name_of(this: &ClusterNode, number: u32) -> Result<String, Fault> {
    let topology = this.group.topology();
    let generation = topology.as_ref().and_then(|it| it.generation(number));
    let name = generation.map(|generation| generation.namespace.clone());
    name.ok_or_else(|| Fault::unknown("another request has dropped the generation"))
}

/// Waits until no member acts on a topology from before a namespace's last switch, or until shortly
/// before the deadline. If `forced`, then stops waiting for the rest. Returns the members that may
/// still do so: answer from an older generation, or write in an earlier epoch.
pub(super) async fn heard(
    this: &ClusterNode,
    namespace: &str,
    forced: bool,
    deadline: Instant,
) -> Result<BTreeSet<NodeId>, Fault> {
    let to_answer = before(deadline, TO_ANSWER);
    let until = if forced {
        to_answer.min(Instant::now() + FORCED_WAIT)
    } else {
        to_answer
    };
    let mut known = None;
    let unconfirmed = loop {
        let read = this.group.read_current(before(deadline, TO_SEND));
        let unconfirmed = match (read.await, known) {
            (Ok(topology), _) => topology.unconfirmed(namespace),
            // The group has lost its leader: report the members that had not heard at the last read.
            (Err(_), Some(unconfirmed)) => break unconfirmed,
            (Err(error), None) => return Err(error.into()),
        };
        if unconfirmed.is_empty() {
            return Ok(unconfirmed);
        }
        if Instant::now() + ASK_AGAIN >= until {
            break unconfirmed;
        }
        known = Some(unconfirmed);
        tokio::time::sleep(ASK_AGAIN).await;
    };
    if forced {
        let namespace = namespace.to_owned();
        let command = Command::StopWaiting { namespace };
        this.group.propose(command, deadline).await?;
    }
    Ok(unconfirmed)
}

fn content_of(asked: AttachGeneration) -> Result<GenerationContent, Fault> {
    let manifest = <[u8; 32]>::try_from(&asked.manifest[..]);
    let manifest = manifest.map_err(|_| Fault::from(WireError::Field { field: "manifest" }))?;
    Source::check(&asked.source)?;
    let shape = asked.shape.unwrap_or_default();
    Ok(GenerationContent {
        shape: generation_shape_from_wire(&shape)?,
        manifest,
        source: asked.source,
        records: asked.records,
        bytes: asked.payload_bytes,
        arcs: Arcs::from_bytes(asked.arcs.to_vec()),
    })
}
