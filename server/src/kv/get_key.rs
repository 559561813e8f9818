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

use super::node::KvNode;
use super::request::generation_of;

/// Time for another node to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

pub(super) async fn get(
    node: &Arc<KvNode>,
    request: GetKeyRequest,
    deadline: Instant,
) -> Result<GetKeyResponse, Fault> {
    let table = node.member.routing()?;
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
        let _reader = node.limits.readers.acquire().await;
        node.member.registers()?.key_in(partition, id, slot).await
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
            let answer = elsewhere(node, &table, partition, request, deadline).await;
            answer.ok_or_else(|| store_fault(&error))
        }
    }
}

/// The first answer of another replica.
async fn elsewhere(
    node: &KvNode,
    table: &RoutingTable,
    partition: Partition,
    request: GetKeyRequest,
    deadline: Instant,
) -> Option<GetKeyResponse> {
    let registers = node.member.registers().ok()?;
    let state = table.state(partition)?;
    let members = state.config.members.iter().map(|member| member.node);
    let is_other = |replica: &_| node.member.identity.node() != Some(*replica);
    let mut replicas: Vec<_> = members.filter(is_other).collect();
    replicas.sort_by_key(|it| (registers.is_out_of_reach(*it), *it != state.lead));
    for replica in replicas {
        let left = deadline.saturating_duration_since(Instant::now());
        let recipient = node.member.recipient(replica);
        let client = recipient.and_then(|to| node.member.peers.kv(&to));
        let Ok(mut client) = client else { continue };
        let asked = within(left.min(TIMEOUT), request.clone());
        match client.get_key(asked).await {
            Ok(answer) => return Some(answer.into_inner()),
            Err(status) => {
                tracing::debug!(node = %replica, %status, "a replica did not return a key");
            }
        }
    }
    None
}
