//! Reserves, attaches, promotes, rolls back, drops and lists generations of static namespaces, and
//! merges into ordinary ones.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use torc_proto::v1::{
    self, AttachGeneration, ChangeGenerationRequest, ChangeGenerationResponse, GenerationKind,
    ListGenerationsRequest, ListGenerationsResponse, change_generation_request::Change,
};
use torc_proto::{Fault, WireError, find_namespace, version_to_wire};
use torc_ring::NodeId;
use torc_ring::topology::{
    Arcs, Command, Counts, Generation, GenerationContent, GenerationShape, GenerationState,
    Outcome, Topology,
};
use torc_telemetry::clock::unix_ms;

use crate::generations::Source;
use crate::shared::Shared;

const ASK_AGAIN: Duration = Duration::from_millis(20);
/// Time for members to learn of a forced promotion.
const FORCED_WAIT: Duration = Duration::from_secs(2);
/// Time reserved for reading the topology and sending the answer before the deadline.
const TO_ANSWER: Duration = Duration::from_millis(200);
/// Time reserved for sending the answer.
const TO_SEND: Duration = Duration::from_millis(50);

pub(super) async fn change(
    shared: &Arc<Shared>,
    request: ChangeGenerationRequest,
    deadline: Instant,
) -> Result<ChangeGenerationResponse, Fault> {
    let missing = || Fault::from(WireError::Field { field: "change" });
    let number = match request.change.ok_or_else(missing)? {
        Change::Reserve(asked) => return reserve(shared, asked, deadline).await,
        Change::Attach(asked) => {
            let number = asked.number;
            let content = content_of(asked)?;
            let command = Command::AttachGeneration { number, content };
            shared.group.propose(command, deadline).await?;
            number
        }
        Change::Promote(asked) => {
            let number = asked.number;
            let command = Command::PromoteGeneration { number };
            shared.group.propose(command, deadline).await?;
            let name = name_of(shared, number)?;
            let heard = heard(shared, &name, asked.force, deadline);
            heard.await.map_err(Fault::after_change)?;
            number
        }
        Change::RollBack(asked) => {
            let namespace = asked.namespace;
            let command = Command::RollBack {
                namespace: namespace.clone(),
            };
            let command = command.once(rand::random());
            shared.group.propose(command, deadline).await?;
            let heard = heard(shared, &namespace, asked.force, deadline);
            heard.await.map_err(Fault::after_change)?;
            let topology = changed(shared, deadline).await?;
            let current = topology.current_generation(&namespace);
            current.map_or(0, |generation| generation.id.number())
        }
        Change::Drop(asked) => {
            let number = asked.number;
            let command = Command::DropGeneration { number }.once(rand::random());
            shared.group.propose(command, deadline).await?;
            number
        }
    };
    let topology = changed(shared, deadline).await?;
    let generation = topology.generation(number);
    Ok(ChangeGenerationResponse {
        generation: generation.map(|generation| to_wire(&topology, generation)),
        digest_key: bytes::Bytes::new(),
    })
}

/// The topology after a change, read while there is time to answer.
async fn changed(shared: &Shared, deadline: Instant) -> Result<Arc<Topology>, Fault> {
    let read = shared.group.read_current(before(deadline, TO_SEND)).await;
    read.map_err(|error| Fault::from(error).after_change())
}

fn before(deadline: Instant, time: Duration) -> Instant {
    deadline.checked_sub(time).unwrap_or(deadline)
}

async fn reserve(
    shared: &Shared,
    v1::ReserveGeneration { namespace, merge }: v1::ReserveGeneration,
    deadline: Instant,
) -> Result<ChangeGenerationResponse, Fault> {
    let command = Command::ReserveGeneration {
        namespace: namespace.clone(),
        merge,
        at_ms: unix_ms(),
    };
    let command = command.once(rand::random());
    let outcome = shared.group.propose(command, deadline).await?;
    let reserved_in = |topology: &Topology| match outcome {
        Outcome::Reserved { number } => topology.generation(number).cloned(),
        _ => None,
    };
    // The caller sees in the answer who has not heard of a merge, and must learn its number.
    let heard = async {
        if merge {
            heard(shared, &namespace, false, deadline).await?;
        }
        changed(shared, deadline).await
    };
    let topology = match heard.await {
        Ok(topology) => topology,
        Err(fault) => {
            let known = shared.group.topology();
            let known = known.filter(|it| reserved_in(it).is_some());
            known.ok_or_else(|| fault.after_change())?
        }
    };
    let reserved = reserved_in(&topology);
    let reserved =
        reserved.ok_or_else(|| Fault::unknown("another request has dropped the new generation"))?;
    let digest_key = topology.routing().digest_key.of_generation(reserved.id);
    Ok(ChangeGenerationResponse {
        generation: Some(to_wire(&topology, &reserved)),
        digest_key: if merge {
            bytes::Bytes::new()
        } else {
            digest_key.0.to_vec().into()
        },
    })
}

pub(super) async fn list(
    shared: &Shared,
    request: &ListGenerationsRequest,
    deadline: Instant,
) -> Result<ListGenerationsResponse, Fault> {
    let topology = shared.group.read_current(deadline).await?;
    if !request.namespace.is_empty() {
        find_namespace(&topology.routing(), &request.namespace)?;
    }
    let wanted =
        |it: &&Generation| request.namespace.is_empty() || it.namespace == request.namespace;
    let generations = topology.generations().filter(wanted);
    Ok(ListGenerationsResponse {
        generations: generations.map(|it| to_wire(&topology, it)).collect(),
    })
}

fn name_of(shared: &Shared, number: u32) -> Result<String, Fault> {
    let topology = shared.group.topology();
    let generation = topology.as_ref().and_then(|it| it.generation(number));
    let name = generation.map(|generation| generation.namespace.clone());
    name.ok_or_else(|| Fault::unknown("another request has dropped the generation"))
}

/// Waits until no member acts on a topology from before a namespace's last switch, or until shortly
/// before the deadline. If `forced`, then stops waiting for the rest. Returns the members that may
/// still do so: answer from an older generation, or write in an earlier epoch.
pub(super) async fn heard(
    shared: &Shared,
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
    let unheard = loop {
        let read = shared.group.read_current(before(deadline, TO_SEND));
        let unheard = match (read.await, known) {
            (Ok(topology), _) => topology.unheard(namespace),
            // The group has lost its leader: report the members that had not heard at the last read.
            (Err(_), Some(unheard)) => break unheard,
            (Err(error), None) => return Err(error.into()),
        };
        if unheard.is_empty() {
            return Ok(unheard);
        }
        if Instant::now() + ASK_AGAIN >= until {
            break unheard;
        }
        known = Some(unheard);
        tokio::time::sleep(ASK_AGAIN).await;
    };
    if forced {
        let namespace = namespace.to_owned();
        let command = Command::StopWaiting { namespace };
        shared.group.propose(command, deadline).await?;
    }
    Ok(unheard)
}

fn content_of(asked: AttachGeneration) -> Result<GenerationContent, Fault> {
    let manifest = <[u8; 32]>::try_from(&asked.manifest[..]);
    let manifest = manifest.map_err(|_| Fault::from(WireError::Field { field: "manifest" }))?;
    Source::check(&asked.source)?;
    let shape = asked.shape.unwrap_or_default();
    Ok(GenerationContent {
        shape: shape_from_wire(&shape)?,
        manifest,
        source: asked.source,
        records: asked.records,
        bytes: asked.payload_bytes,
        arcs: Arcs::from_bytes(asked.arcs.to_vec()),
    })
}

fn shape_from_wire(wire: &v1::GenerationShape) -> Result<GenerationShape, Fault> {
    let bad = |field| Fault::from(WireError::Field { field });
    let kind = GenerationKind::try_from(wire.kind).map_err(|_| bad("kind"))?;
    Ok(match kind {
        GenerationKind::Unspecified => GenerationShape::Values,
        GenerationKind::Keyless => GenerationShape::Keyless {
            fingerprint_bits: u8::try_from(wire.fingerprint_bits)
                .map_err(|_| bad("fingerprint_bits"))?,
            payload_bytes: u8::try_from(wire.payload_bytes).map_err(|_| bad("payload_bytes"))?,
        },
        GenerationKind::Ids => {
            let counts = Counts::from_bytes(&wire.counts);
            GenerationShape::Ids(counts.ok_or_else(|| bad("counts"))?)
        }
    })
}

fn shape_to_wire(shape: &GenerationShape) -> v1::GenerationShape {
    let (kind, fingerprint_bits, payload_bytes) = match shape {
        GenerationShape::Values => (GenerationKind::Unspecified, 0, 0),
        GenerationShape::Keyless {
            fingerprint_bits,
            payload_bytes,
        } => (GenerationKind::Keyless, *fingerprint_bits, *payload_bytes),
        GenerationShape::Ids(_) => (GenerationKind::Ids, 0, 0),
    };
    v1::GenerationShape {
        kind: kind.into(),
        fingerprint_bits: fingerprint_bits.into(),
        payload_bytes: payload_bytes.into(),
        counts: bytes::Bytes::new(),
    }
}

pub(super) fn to_wire(topology: &Topology, generation: &Generation) -> v1::Generation {
    let state = match generation.state {
        GenerationState::Reserved => v1::GenerationState::Reserved,
        GenerationState::Attached => v1::GenerationState::Attached,
        GenerationState::Current => v1::GenerationState::Current,
        GenerationState::Previous(_) => v1::GenerationState::Previous,
        GenerationState::RolledBack => v1::GenerationState::RolledBack,
        GenerationState::Merging => v1::GenerationState::Merging,
    };
    let ids = |nodes: BTreeSet<NodeId>| nodes.into_iter().map(|node| node.0).collect::<Vec<_>>();
    let content = generation.content.as_ref();
    let switches = matches!(
        generation.state,
        GenerationState::Current | GenerationState::Merging
    );
    v1::Generation {
        number: generation.id.number(),
        namespace: generation.namespace.clone(),
        id: generation.id.0,
        version: Some(version_to_wire(generation.ballot)),
        state: state.into(),
        manifest: content.map_or_else(Default::default, |it| it.manifest.to_vec().into()),
        source: content.map_or_else(String::new, |it| it.source.clone()),
        records: content.map_or(0, |it| it.records),
        payload_bytes: content.map_or(0, |it| it.bytes),
        not_ready: if generation.is_held() {
            ids(topology.not_ready(generation))
        } else {
            Vec::new()
        },
        unheard: if switches {
            ids(topology.unheard(&generation.namespace))
        } else {
            Vec::new()
        },
        partitions: topology.partitions().count(),
        shape: generation.shape().map(shape_to_wire),
    }
}
