//! Where a key lives and why.

use std::sync::Arc;
use std::time::Instant;

use torc_proto::v1::{ExplainRequest, ExplainResponse, Position};
use torc_proto::{Fault, WireError, member_to_wire, partition_state_to_wire, version_to_wire};
use torc_record::{Digest, Key, NamespaceId, State};
use torc_ring::topology::RoutingTable;
use torc_ring::{Partition, Token};

use crate::kv::find_namespace;
use crate::peers::within;
use crate::shared::{Shared, store_fault};

pub(super) async fn explain(
    shared: &Arc<Shared>,
    request: ExplainRequest,
    deadline: Instant,
) -> Result<ExplainResponse, Fault> {
    let table = shared.routing()?;
    let namespace = find_namespace(&table, &request.namespace)?;
    let key = Key::new(request.key.clone()).map_err(WireError::from)?;
    let digest = Digest::of(&table.digest_key, namespace, key.as_bytes());
    let partition = table.partition_of(&digest);
    let lead = table.state(partition).map(|state| state.lead);
    let here = lead == shared.identity.node();
    if !here && let Some(address) = lead.and_then(|lead| table.address(lead)) {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut client = shared.peers.cluster(address)?;
        let answer = client.explain(within(left, request)).await;
        return answer
            .map(tonic::Response::into_inner)
            .map_err(|status| Fault::from_status(&status));
    }
    let answer = placement(&table, &digest, partition)?;
    held(shared, namespace, &key, &digest, answer)
}

fn placement(
    table: &RoutingTable,
    digest: &Digest,
    partition: Partition,
) -> Result<ExplainResponse, Fault> {
    let state = table
        .state(partition)
        .ok_or(WireError::Field { field: "partition" })?;
    let token = Token::of(digest);
    let successor = table.ring.successor(token);
    let involved = state
        .nodes
        .iter()
        .chain(state.next.iter().flat_map(|next| next.iter()));
    let members = involved.filter_map(|node| table.members.get(node).map(|m| (*node, m)));
    Ok(ExplainResponse {
        digest: digest.0.to_vec().into(),
        token: token.0,
        partition: Some(partition_state_to_wire(partition, state)),
        arc_start: table.partitions.start(partition).0,
        arc_end: table.partitions.end(partition).0,
        nodes: members
            .map(|(id, member)| member_to_wire(id, member))
            .collect(),
        successor: successor.map(|(token, node)| Position {
            token: token.0,
            node: node.0,
        }),
        ..ExplainResponse::default()
    })
}

/// What this node holds of the key.
fn held(
    shared: &Shared,
    namespace: NamespaceId,
    key: &Key,
    digest: &Digest,
    answer: ExplainResponse,
) -> Result<ExplainResponse, Fault> {
    let found = shared.store.get(namespace, digest, key.as_bytes());
    let answered_by = shared.node()?.0;
    let Some(record) = found.map_err(|error| store_fault(&error))? else {
        return Ok(ExplainResponse {
            answered_by,
            ..answer
        });
    };
    let (tombstone, value_bytes) = match &record.state {
        State::Value { value, .. } => (false, value.len() as u64),
        State::Tombstone => (true, 0),
    };
    Ok(ExplainResponse {
        found: true,
        tombstone,
        version: Some(version_to_wire(record.ballot)),
        value_bytes,
        expires_at_ms: record.expires_at_ms().unwrap_or(0),
        answered_by,
        held_in: "overlay".to_owned(),
        ..answer
    })
}
