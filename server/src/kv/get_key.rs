//! Finds the key with an id, in a static namespace that numbers its keys.
//!
//! The id names partition and slot, by the counts in the topology. Every replica of the partition has
//! the key. A node that is not one asks the replicas.

use std::sync::Arc;
use std::time::{Duration, Instant};

use torc_member::fault::store_fault;
use torc_member::peers::within;
use torc_proto::v1::{GetKeyRequest, GetKeyResponse};
use torc_proto::{Fault, Reason, version_to_wire};
use torc_ring::Partition;
use torc_ring::topology::{GenerationShape, RoutingTable};

use super::request::generation_of;
use crate::shared::Shared;

/// Time for another node to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

pub(super) async fn get(
    shared: &Arc<Shared>,
    request: GetKeyRequest,
    deadline: Instant,
) -> Result<GetKeyResponse, Fault> {
    let table = shared.member.routing()?;
    let id = generation_of(&table, &request.namespace, request.generation)?;
    let generation = table.generations.get(&id);
    let shape = generation.and_then(|generation| generation.shape());
    let (Some(generation), Some(GenerationShape::Ids(counts))) = (generation, shape) else {
        let message = format!(
            "the keys of `{}` have no ids: build its content with `--shape ids`",
            request.namespace
        );
        return Err(Fault::new(Reason::Invalid, message));
    };
    let Some((arc, slot)) = counts.place(request.id) else {
        return Ok(GetKeyResponse::default());
    };
    let partition = table.partitions.in_layer(id.layer(), arc);
    let held = {
        // Fails only if the semaphore is closed, which never happens.
        let _reader = shared.limits.readers.acquire().await;
        shared.member.registers()?.key_in(partition, id, slot).await
    };
    match held {
        Ok(Some(key)) => Ok(GetKeyResponse {
            found: true,
            key: key.into_bytes(),
            version: Some(version_to_wire(generation.ballot)),
        }),
        Ok(None) => {
            let message = "a slice has fewer keys than its generation says: report this";
            Err(Fault::new(Reason::Corrupt, message))
        }
        Err(error) if request.local => Err(store_fault(&error)),
        Err(error) => {
            let request = GetKeyRequest {
                generation: id.0,
                local: true,
                ..request
            };
            let answer = elsewhere(shared, &table, partition, request, deadline).await;
            answer.ok_or_else(|| store_fault(&error))
        }
    }
}

/// The first answer of another replica.
async fn elsewhere(
    shared: &Shared,
    table: &RoutingTable,
    partition: Partition,
    request: GetKeyRequest,
    deadline: Instant,
) -> Option<GetKeyResponse> {
    let registers = shared.member.registers().ok()?;
    let state = table.state(partition)?;
    let members = state.config.members.iter().map(|member| member.node);
    let is_other = |node: &_| shared.member.identity.node() != Some(*node);
    let mut nodes: Vec<_> = members.filter(is_other).collect();
    nodes.sort_by_key(|node| (registers.is_out_of_reach(*node), *node != state.lead));
    for node in nodes {
        let left = deadline.saturating_duration_since(Instant::now());
        let recipient = shared.member.recipient(node);
        let client = recipient.and_then(|to| shared.member.peers.kv(&to));
        let Ok(mut client) = client else { continue };
        let asked = within(left.min(TIMEOUT), request.clone());
        match client.get_key(asked).await {
            Ok(answer) => return Some(answer.into_inner()),
            Err(status) => tracing::debug!(%node, %status, "a replica did not return a key"),
        }
    }
    None
}
