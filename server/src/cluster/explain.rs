//! Explains where a key lives and why, and what each of its replicas holds.
//!
//! The node asks each replica separately, so it can explain a key while the lead does not
//! answer. This is not a quorum read: versions may differ while a write is in progress or a
//! replica lags behind.

use std::sync::Arc;
use std::time::{Duration, Instant};

use torc_member::fault::store_fault;
use torc_member::peers::{Recipient, within};
use torc_proto::v1::{
    self, ExplainRequest, ExplainResponse, Position, ReplicaRecord, SliceVerdict,
};
use torc_proto::{
    Fault, Reason, WireError, find_namespace, member_to_wire, partition_state_to_wire,
    version_to_wire,
};
use torc_record::{Digest, Key, Locator, State};
use torc_ring::topology::{PartitionState, RoutingTable};
use torc_ring::{NodeId, Partition, Token};
use torc_store::{SliceTrace, StoreError, Verdict};

use super::node::ClusterNode;
use crate::kv::fingerprint_bits;

/// Time for a replica to answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) async fn explain(
    this: &ClusterNode,
    request: ExplainRequest,
    deadline: Instant,
) -> Result<ExplainResponse, Fault> {
    let table = this.member.routing()?;
    let namespace = find_namespace(&table, &request.namespace)?;
    let key = Key::new(request.key.clone()).map_err(WireError::from)?;
    let digest = table.digest(namespace, key.as_bytes());
    let at = Locator {
        digest,
        namespace,
        key,
    };
    let partition = table.partition_of(namespace, &digest);
    let state = table
        .state(partition)
        .ok_or(WireError::Field { field: "partition" })?;
    let mode = table.namespace(&request.namespace).map(|it| it.mode);
    let mode = v1::NamespaceMode::from(mode.unwrap_or_default()).into();
    let here = async || {
        let _place = this.kv.limits.classes.stored.enter_soon().await?;
        let answer = placement(&table, &digest, partition)?;
        let answer = held(this, &at, answer).await?;
        let hot = this.kv.hot.estimate(namespace, &digest).await;
        Ok(ExplainResponse {
            hot,
            mode,
            ..answer
        })
    };
    if request.local {
        return here().await;
    }
    let _place = this.kv.limits.classes.explanations.enter_soon().await?;
    let budget = ASK_TIMEOUT.min(deadline.saturating_duration_since(Instant::now()));
    let asked = involved(state).map(async |node| {
        let answer = if this.member.identity.node() == Some(node) {
            here().await
        } else {
            ask(this, &table, node, &request, budget).await
        };
        (node, answer)
    });
    together(state.lead, futures::future::join_all(asked).await)
}

/// The nodes of both preference lists, without duplicates.
fn involved(state: &PartitionState) -> impl Iterator<Item = NodeId> + '_ {
    let newcomers = state.next.iter().flat_map(|next| next.iter());
    let newcomers = newcomers.filter(|node| !state.nodes.contains(node));
    state.nodes.iter().chain(newcomers).copied()
}

async fn ask(
    this: &ClusterNode,
    table: &RoutingTable,
    node: NodeId,
    request: &ExplainRequest,
    budget: Duration,
) -> Result<ExplainResponse, Fault> {
    let mut client = this.member.peers.cluster(&Recipient::of(table, node)?)?;
    let request = ExplainRequest {
        local: true,
        ..request.clone()
    };
    let answer = client.explain(within(budget, request)).await;
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| Fault::from_status(&status))
}

/// The lead's answer, or else the first successful one, with what every replica holds.
fn together(
    lead: NodeId,
    answers: Vec<(NodeId, Result<ExplainResponse, Fault>)>,
) -> Result<ExplainResponse, Fault> {
    let replicas = answers.iter().map(replica_record).collect();
    let mut best: Result<ExplainResponse, Fault> = Err(Fault::new(
        Reason::OwnerUnreachable,
        "the partition has no replica: report this",
    ));
    for (node, answer) in answers {
        let is_better = node == lead || (answer.is_ok() && best.is_err());
        if is_better && (answer.is_ok() || best.is_err()) {
            best = answer;
        }
    }
    best.map(|answer| ExplainResponse { replicas, ..answer })
}

fn replica_record((node, answer): &(NodeId, Result<ExplainResponse, Fault>)) -> ReplicaRecord {
    let node = node.0;
    match answer {
        Ok(answer) => ReplicaRecord {
            node,
            found: answer.found,
            tombstone: answer.tombstone,
            version: answer.version,
            problem: String::new(),
        },
        Err(fault) => ReplicaRecord {
            node,
            problem: fault.message.clone(),
            ..ReplicaRecord::default()
        },
    }
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
    let members = involved(state).filter_map(|node| Some((node, table.members.get(&node)?)));
    Ok(ExplainResponse {
        digest: digest.0.to_vec().into(),
        token: token.0,
        partition: Some(partition_state_to_wire(state)),
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

/// What this node holds for the key, and where it looked.
async fn held(
    this: &ClusterNode,
    at: &Locator,
    answer: ExplainResponse,
) -> Result<ExplainResponse, Fault> {
    let registers = this.member.registers()?;
    let (store, key, replicas) = (this.kv.store.clone(), at.clone(), Arc::clone(registers));
    let read = tokio::task::spawn_blocking(move || {
        let trace = store.trace(key.borrowed())?;
        match store.get(key.borrowed()) {
            // The verdicts on the slices show which one is damaged.
            Err(StoreError::Damaged { .. }) => Ok((trace, None)),
            // No replica has a slice where the generation has no keys.
            Err(StoreError::NotHeld {
                partition,
                generation,
            }) if replicas.has_generation(partition, generation) => Ok((trace, None)),
            found => Ok((trace, found?)),
        }
    });
    let read = read
        .await
        .map_err(|_| Fault::new(Reason::Internal, "reading the key failed: report this"))?;
    let (trace, found) = read.map_err(|error: StoreError| store_fault(&error))?;
    let answer = ExplainResponse {
        answered_by: this.member.node()?.0,
        slices: trace.slices.iter().map(slice_to_wire).collect(),
        fingerprint_bits: fingerprint_bits(&this.kv, at.namespace),
        ..answer
    };
    let Some(record) = found.and_then(|record| registers.as_read(record)) else {
        return Ok(answer);
    };
    let (tombstone, value_bytes) = match &record.state {
        State::Value { value, .. } => (false, value.len() as u64),
        State::Tombstone => (true, 0),
    };
    let held_in = if trace.memtable.is_some() {
        "memtable"
    } else {
        "slice"
    };
    Ok(ExplainResponse {
        found: true,
        tombstone,
        version: Some(version_to_wire(record.version())),
        value_bytes,
        expires_at_ms: record.expires_at_ms().unwrap_or(0),
        held_in: held_in.to_owned(),
        ..answer
    })
}

fn slice_to_wire(slice: &SliceTrace) -> v1::SliceTrace {
    let (verdict, held) = match slice.verdict {
        Verdict::GateNegative => (SliceVerdict::GateNegative, None),
        Verdict::GateFalsePositive => (SliceVerdict::GateFalsePositive, None),
        Verdict::Holds {
            ballot,
            is_tombstone,
        } => (SliceVerdict::Holds, Some((ballot, is_tombstone))),
        Verdict::Damaged(_) => (SliceVerdict::Damaged, None),
        // A variant from a later release of the store.
        _ => (SliceVerdict::Unspecified, None),
    };
    v1::SliceTrace {
        segment: slice.segment,
        row: slice.row,
        keys: slice.keys,
        bytes: slice.bytes,
        slot: slice.slot.unwrap_or(0) as u64,
        verdict: verdict.into(),
        version: held.map(|(ballot, _)| version_to_wire(ballot)),
        tombstone: held.is_some_and(|(_, is_tombstone)| is_tombstone),
    }
}
