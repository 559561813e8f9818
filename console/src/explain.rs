//! An explanation as JSON, with the fields of `kvctl explain` except `members` and `excluded`.

use serde_json::{Value, json};
use torc_proto::v1::{
    ExplainResponse, NamespaceMode, ReplicaRecord, SliceTrace, SliceVerdict, Stage, Version,
};
use torc_proto::{digest_from_wire, version_from_wire};
use torc_ring::Token;

pub(super) fn to_json(answer: &ExplainResponse) -> Value {
    let partition = answer.partition.clone().unwrap_or_default();
    let digest = digest_from_wire(&answer.digest).ok().flatten();
    let stage = partition.stage();
    let (old, new) = (majority(&partition.nodes), majority(&partition.next_nodes));
    let (read, accept) = match stage {
        Stage::WriteBothReadOld => (&old, vec![&old, &new]),
        Stage::WriteBothReadNew => (&new, vec![&old, &new]),
        _ => (&old, vec![&old]),
    };
    let one = json!({ "needed": 1, "of": read["of"] });
    let (read, accept) = match answer.mode() {
        // Any replica answers, and none accepts a write.
        NamespaceMode::Static => (&one, Vec::new()),
        _ => (read, accept),
    };
    let held_in = Some(&answer.held_in).filter(|held_in| !held_in.is_empty());
    json!({
        "digest": digest.map(|digest| digest.to_string()),
        "token": Token(answer.token).to_string(),
        "partition": partition.partition,
        "arc_start": Token(answer.arc_start).to_string(),
        "arc_end": Token(answer.arc_end).to_string(),
        "successor": answer.successor.map(|it| json!({ "token": Token(it.token).to_string(), "node": it.node })),
        "epoch": partition.epoch,
        "stage": stage_name(stage),
        "lead": partition.lead,
        "nodes": partition.nodes,
        "next_nodes": partition.next_nodes,
        "read_quorum": read,
        "accept_quorums": accept,
        "answered_by": answer.answered_by,
        "holds": kind(answer.found, answer.tombstone),
        "version": answer.version.as_ref().filter(|_| answer.found).and_then(version),
        "value_bytes": answer.value_bytes,
        "expires_at_ms": (answer.expires_at_ms > 0).then_some(answer.expires_at_ms),
        "held_in": held_in,
        "fingerprint_bits": answer.fingerprint_bits,
        "slices": answer.slices.iter().map(slice_json).collect::<Vec<_>>(),
        "hot": answer.hot.map(|hot| json!({
            "from_ms": hot.from_ms,
            "to_ms": hot.to_ms,
            "accesses": hot.accesses,
            "estimate": hot.estimate,
            "error_bound": hot.error_bound,
        })),
        "replicas": answer.replicas.iter().map(replica_json).collect::<Vec<_>>(),
    })
}

fn majority(nodes: &[u64]) -> Value {
    json!({ "needed": nodes.len() / 2 + 1, "of": nodes })
}

const fn stage_name(stage: Stage) -> Option<&'static str> {
    match stage {
        Stage::Stable => Some("stable"),
        Stage::Copying => Some("copying"),
        Stage::WriteBothReadOld => Some("write_both_read_old"),
        Stage::WriteBothReadNew => Some("write_both_read_new"),
        Stage::Unspecified => None,
    }
}

fn version(version: &Version) -> Option<String> {
    version_from_wire(version).ok().map(|it| it.to_string())
}

const fn kind(found: bool, tombstone: bool) -> &'static str {
    match (found, tombstone) {
        (_, true) => "tombstone",
        (true, false) => "value",
        (false, false) => "nothing",
    }
}

fn slice_json(slice: &SliceTrace) -> Value {
    let verdict = match slice.verdict() {
        SliceVerdict::GateNegative => "gate_negative",
        SliceVerdict::GateFalsePositive => "gate_false_positive",
        SliceVerdict::Holds => "holds",
        SliceVerdict::Damaged => "damaged",
        SliceVerdict::Unspecified => "unknown",
    };
    json!({
        "segment": slice.segment,
        "row": slice.row,
        "keys": slice.keys,
        "bytes": slice.bytes,
        "slot": slice.slot,
        "verdict": verdict,
        "version": slice.version.as_ref().and_then(version),
        "tombstone": slice.tombstone,
    })
}

fn replica_json(replica: &ReplicaRecord) -> Value {
    let problem = Some(&replica.problem).filter(|problem| !problem.is_empty());
    json!({
        "node": replica.node,
        "holds": problem.is_none().then(|| kind(replica.found, replica.tombstone)),
        "version": replica.version.as_ref().and_then(version),
        "problem": problem,
    })
}
