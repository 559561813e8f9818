//! The status as JSON.

use serde_json::{Value, json};
use torc_proto::v1::{
    self, ChangeKind, GenerationKind, GenerationState, NodeStatus, StatusResponse,
};
use torc_proto::version_from_wire;
use torc_ring::topology::{ClusterId, MemberState};

/// The status of a cluster, with the fields that `kvctl status --output json` prints.
#[must_use]
pub fn to_json(status: &StatusResponse) -> Value {
    let cluster = <[u8; 16]>::try_from(&status.cluster_id[..])
        .map(ClusterId)
        .ok();
    json!({
        "cluster_id": cluster.map(|id| id.to_string()),
        "epoch": status.epoch,
        "feature_level": status.feature_level,
        "answered_by": status.answered_by,
        "topology_leader": status.topology_leader,
        "partitions": status.partitions,
        "replicas": status.replicas,
        "layers": status.layers.iter().copied().map(layer_json).collect::<Vec<_>>(),
        "under_replicated": status.under_replicated,
        "without_quorum": status.without_quorum,
        "generations": status.generations.iter().map(generation_json).collect::<Vec<_>>(),
        "nodes": status.nodes.iter().map(node_json).collect::<Vec<_>>(),
        "transition": status.transition.as_ref().map(transition_json),
        "last_transition": status.last_transition.as_ref().map(transition_json),
    })
}

fn layer_json(layer: v1::LayerStatus) -> Value {
    json!({"partitions": layer.partitions, "replicas": layer.replicas})
}

fn node_json(node: &NodeStatus) -> Value {
    let member = node.member.clone().unwrap_or_default();
    let state = MemberState::try_from(member.state());
    let state = state.map_or_else(|_| "unknown".to_owned(), |state| state.to_string());
    let mut fields = stored_json(node);
    let others = json!({
        "id": member.id,
        "slot": member.slot,
        "address": member.address,
        "peer_address": member.peer_address,
        "http_address": member.http_address,
        "zone": member.zone,
        "weight_percent": member.weight,
        "state": state,
        "reachable": node.reachable,
        "ready": node.ready,
        "voter": node.voter,
        "version": node.version,
        "release": member.release,
        "oldest_level": member.oldest_level,
        "newest_level": member.newest_level,
        "uptime_ms": node.uptime_ms,
        "epoch": node.epoch,
        "partitions": node.partitions,
        "leads": node.leads,
        "records": node.records,
        "tombstones": node.tombstones,
        "payload_bytes": node.payload_bytes,
        "log_bytes": node.log_bytes,
        "rss_bytes": node.rss_bytes,
        "problem": node.problem,
        "damaged_slices": node.damaged_slices,
        "disk_full": node.disk_full,
        "sealed_keys": node.sealed_keys,
        "certificate_ends_at_ms": (node.certificate_ends_at_ms > 0).then_some(node.certificate_ends_at_ms),
    });
    if let (Value::Object(fields), Value::Object(others)) = (&mut fields, others) {
        fields.extend(others);
    }
    fields
}

/// The figures of a node's store, and which nodes reach it.
fn stored_json(node: &NodeStatus) -> Value {
    json!({
        "index_bytes": node.index_bytes,
        "clock_ms": node.clock_ms,
        "free_bytes": node.free_bytes,
        "memtable_bytes": node.memtable_bytes,
        "memtable_limit_bytes": node.memtable_limit_bytes,
        "mphf_bytes": node.mphf_bytes,
        "gate_bytes": node.gate_bytes,
        "offset_bytes": node.offset_bytes,
        "header_bytes": node.header_bytes,
        "slices": node.slices,
        "most_slices": node.most_slices,
        "slice_bytes": node.slice_bytes,
        "flushes": node.flushes,
        "compactions": node.compactions,
        "exposed": node.exposed,
        "out_of_reach": node.out_of_reach,
        "backing_up": node.backing_up,
        "missing_slices": node.missing_slices.iter().map(missing_json).collect::<Vec<_>>(),
    })
}

fn missing_json(missing: &v1::MissingSlices) -> Value {
    json!({"generation": missing.generation, "problem": missing.problem})
}

fn generation_json(generation: &v1::Generation) -> Value {
    let state = match generation.state() {
        GenerationState::Reserved => "reserved",
        GenerationState::Attached => "attached",
        GenerationState::Current => "current",
        GenerationState::Previous => "previous",
        GenerationState::RolledBack => "rolled_back",
        GenerationState::Merging => "merging",
        GenerationState::Unspecified => "unknown",
    };
    let shape = generation.shape.as_ref();
    let version = generation.version.as_ref();
    let version = version.and_then(|version| version_from_wire(version).ok());
    let manifest = generation.manifest.iter().map(|byte| format!("{byte:02x}"));
    let manifest: String = manifest.collect();
    json!({
        "number": generation.number,
        "namespace": generation.namespace,
        "id": generation.id,
        "version": version.map(|version| version.to_string()),
        "state": state,
        "creates": generation.creates,
        "manifest": manifest,
        "source": generation.source,
        "records": generation.records,
        "payload_bytes": generation.payload_bytes,
        "shape": shape.map(shape_json),
        "false_positive_rate": shape.map_or(0.0, false_positive_rate),
        "not_ready": generation.not_ready,
        "unconfirmed": generation.unconfirmed,
    })
}

fn false_positive_rate(shape: &v1::GenerationShape) -> f64 {
    match shape.kind() {
        GenerationKind::Keyless => 0.5_f64.powf(f64::from(shape.fingerprint_bits)),
        GenerationKind::Unspecified | GenerationKind::Ids => 0.0,
    }
}

fn shape_json(shape: &v1::GenerationShape) -> Value {
    match shape.kind() {
        GenerationKind::Unspecified => json!({ "kind": "values" }),
        GenerationKind::Keyless => json!({
            "kind": "keyless",
            "fingerprint_bits": shape.fingerprint_bits,
            "payload_bytes": shape.payload_bytes,
        }),
        GenerationKind::Ids => json!({ "kind": "ids" }),
    }
}

fn transition_json(transition: &v1::Transition) -> Value {
    let kind = match transition.kind() {
        ChangeKind::Join => "join",
        ChangeKind::Leave => "leave",
        ChangeKind::Replace => "replace",
        ChangeKind::Reweight => "reweight",
        ChangeKind::Alter => "alter",
        ChangeKind::Unspecified => "unknown",
    };
    json!({
        "id": transition.id,
        "kind": kind,
        "node": (transition.node != 0).then_some(transition.node),
        "replaced": (transition.replaced != 0).then_some(transition.replaced),
        "partitions_total": transition.partitions_total,
        "partitions_done": transition.partitions_done,
        "partitions_active": transition.partitions_active,
        "bytes_moved": transition.bytes_moved,
        "records_moved": transition.records_moved,
        "bytes_planned": transition.bytes_planned,
        "records_planned": transition.records_planned,
        "started_at_ms": transition.started_at_ms,
        "ended_at_ms": transition.ended_at_ms,
        "aborted": transition.aborted,
        "dead": transition.dead,
        "namespaces": transition.namespaces,
        "replicas_after": (transition.replicas_after != 0).then_some(transition.replicas_after),
    })
}
