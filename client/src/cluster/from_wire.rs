//! Converts and checks answers of the cluster service.

use torc_proto::{digest_from_wire, v1, version_from_wire};
use torc_record::{Epoch, NodeSlot};
use torc_ring::topology::{ClusterId, NamespaceMode};
use torc_ring::{NodeId, Partition, Token, Zone};

use super::{
    Change, ChangeKind, Checked, ClusterStatus, Explanation, Generation, HotEstimate, LayerStatus,
    LoadSample, Losses, Member, MemberState, MissingSlices, NodeShare, NodeStatus, Plan, Position,
    Quorum, RecordKind, ReplicaRecord, SliceTrace, SliceVerdict, Stage, Transition, missing,
};
use crate::answers::moment;
use crate::{Error, ErrorKind};

/// On the wire, 0 means no node.
fn node(id: u64) -> Option<NodeId> {
    (id != 0).then_some(NodeId(id))
}

/// On the wire, 0 means no number of replicas.
fn number(replicas: u32) -> Option<u32> {
    (replicas != 0).then_some(replicas)
}

fn text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

impl ClusterStatus {
    pub(crate) fn from_wire(wire: v1::StatusResponse) -> Result<Self, Error> {
        status(wire).map_err(|error| Error::malformed(error, false))
    }
}

impl Transition {
    /// From an answer that acknowledges a change.
    pub(crate) fn from_wire(wire: Option<&v1::Transition>) -> Result<Self, Error> {
        let wire = wire.ok_or(missing("transition")).and_then(transition);
        wire.map_err(|error| Error::malformed(error, true))
    }
}

impl Change {
    /// `commits`: whether the request was for more than a plan.
    pub(crate) fn from_wire(wire: v1::ChangeResponse, commits: bool) -> Result<Self, Error> {
        if !wire.deferred.is_empty() {
            return Err(Error::new(ErrorKind::Refused, wire.deferred));
        }
        let plan = wire.plan.ok_or(missing("plan")).and_then(plan);
        Ok(Self {
            plan: plan.map_err(|error| Error::malformed(error, commits))?,
            transition: (wire.transition != 0).then_some(wire.transition),
        })
    }
}

impl Explanation {
    pub(crate) fn from_wire(wire: v1::ExplainResponse) -> Result<Self, Error> {
        explanation(wire).map_err(|error| Error::malformed(error, false))
    }
}

fn status(wire: v1::StatusResponse) -> Checked<ClusterStatus> {
    let cluster_id = <[u8; 16]>::try_from(&wire.cluster_id[..]);
    Ok(ClusterStatus {
        cluster_id: ClusterId(cluster_id.map_err(|_| missing("cluster_id"))?),
        epoch: Epoch(wire.epoch),
        feature_level: wire.feature_level,
        answered_by: NodeId(wire.answered_by),
        topology_leader: node(wire.topology_leader),
        partitions: wire.partitions,
        replicas: wire.replicas,
        layers: wire
            .layers
            .into_iter()
            .map(|layer| LayerStatus {
                partitions: layer.partitions,
                replicas: layer.replicas,
            })
            .collect(),
        under_replicated: wire.under_replicated,
        without_quorum: wire.without_quorum,
        generations: wire
            .generations
            .into_iter()
            .map(|it| Generation::from_wire(Some(it)))
            .collect::<Checked<_>>()?,
        nodes: wire
            .nodes
            .into_iter()
            .map(node_status)
            .collect::<Checked<_>>()?,
        transition: wire.transition.as_ref().map(transition).transpose()?,
        last_transition: wire.last_transition.as_ref().map(transition).transpose()?,
    })
}

fn member(wire: v1::Member) -> Checked<Member> {
    let state = MemberState::try_from(wire.state())?;
    let slot = u16::try_from(wire.slot).map_err(|_| missing("slot"))?;
    Ok(Member {
        id: NodeId(wire.id),
        slot: NodeSlot(slot),
        address: wire.address,
        peer_address: wire.peer_address,
        http_address: wire.http_address,
        zone: Zone::new(wire.zone).map_err(|_| missing("zone"))?,
        weight_percent: wire.weight,
        state,
        release: wire.release,
        oldest_level: wire.oldest_level,
        newest_level: wire.newest_level,
    })
}

fn node_status(wire: v1::NodeStatus) -> Checked<NodeStatus> {
    Ok(NodeStatus {
        member: member(wire.member.ok_or(missing("member"))?)?,
        reachable: wire.reachable,
        ready: wire.ready,
        voter: wire.voter,
        version: wire.version,
        uptime_ms: wire.uptime_ms,
        epoch: Epoch(wire.epoch),
        partitions: wire.partitions,
        leads: wire.leads,
        records: wire.records,
        tombstones: wire.tombstones,
        payload_bytes: wire.payload_bytes,
        log_bytes: wire.log_bytes,
        rss_bytes: wire.rss_bytes,
        problem: text(wire.problem),
        damaged_slices: wire.damaged_slices,
        disk_full: wire.disk_full,
        sealed_keys: wire.sealed_keys,
        index_bytes: wire.index_bytes,
        certificate_ends_at_ms: (wire.certificate_ends_at_ms > 0)
            .then_some(wire.certificate_ends_at_ms),
        clock_ms: wire.clock_ms,
        free_bytes: wire.free_bytes,
        memtable_bytes: wire.memtable_bytes,
        memtable_limit_bytes: wire.memtable_limit_bytes,
        mphf_bytes: wire.mphf_bytes,
        gate_bytes: wire.gate_bytes,
        offset_bytes: wire.offset_bytes,
        header_bytes: wire.header_bytes,
        slices: wire.slices,
        most_slices: wire.most_slices,
        slice_bytes: wire.slice_bytes,
        flushes: wire.flushes,
        compactions: wire.compactions,
        exposed: wire.exposed,
        out_of_reach: wire.out_of_reach.into_iter().map(NodeId).collect(),
        backing_up: wire.backing_up,
        missing_slices: wire
            .missing_slices
            .into_iter()
            .map(missing_slices)
            .collect(),
        load: wire.load.into_iter().map(load_sample).collect(),
        heat: wire.heat,
    })
}

fn missing_slices(wire: v1::MissingSlices) -> MissingSlices {
    MissingSlices {
        generation: wire.generation,
        problem: wire.problem,
    }
}

fn load_sample(wire: v1::LoadSample) -> LoadSample {
    let request = |kind: usize| wire.requests.get(kind).copied().unwrap_or(0);
    LoadSample {
        from_ms: wire.from_ms,
        requests: std::array::from_fn(request),
        faults: wire.faults,
        get_times: wire.get_times,
        write_times: wire.write_times,
        received_bytes: wire.received_bytes,
    }
}

fn slice_trace(wire: v1::SliceTrace) -> Checked<SliceTrace> {
    let verdict = match wire.verdict() {
        v1::SliceVerdict::GateNegative => SliceVerdict::GateNegative,
        v1::SliceVerdict::GateFalsePositive => SliceVerdict::GateFalsePositive,
        v1::SliceVerdict::Holds => SliceVerdict::Holds,
        v1::SliceVerdict::Damaged => SliceVerdict::Damaged,
        v1::SliceVerdict::Unspecified => SliceVerdict::Unknown,
    };
    Ok(SliceTrace {
        segment: wire.segment,
        row: wire.row,
        keys: wire.keys,
        bytes: wire.bytes,
        slot: wire.slot,
        verdict,
        version: wire.version.as_ref().map(version_from_wire).transpose()?,
        tombstone: wire.tombstone,
    })
}

fn change_kind(kind: v1::ChangeKind) -> Checked<ChangeKind> {
    match kind {
        v1::ChangeKind::Join => Ok(ChangeKind::Join),
        v1::ChangeKind::Leave => Ok(ChangeKind::Leave),
        v1::ChangeKind::Replace => Ok(ChangeKind::Replace),
        v1::ChangeKind::Reweight => Ok(ChangeKind::Reweight),
        v1::ChangeKind::Alter => Ok(ChangeKind::Alter),
        v1::ChangeKind::Unspecified => Err(missing("kind")),
    }
}

fn transition(wire: &v1::Transition) -> Checked<Transition> {
    Ok(Transition {
        id: wire.id,
        kind: change_kind(wire.kind())?,
        node: node(wire.node),
        replaced: node(wire.replaced),
        namespaces: wire.namespaces.clone(),
        replicas_after: number(wire.replicas_after),
        aborted: wire.aborted,
        dead: wire.dead.iter().copied().map(NodeId).collect(),
        partitions_total: wire.partitions_total,
        partitions_done: wire.partitions_done,
        partitions_active: wire.partitions_active,
        bytes_moved: wire.bytes_moved,
        records_moved: wire.records_moved,
        bytes_planned: wire.bytes_planned,
        records_planned: wire.records_planned,
        started_at_ms: wire.started_at_ms,
        ended_at_ms: moment(wire.ended_at_ms),
    })
}

fn plan(wire: v1::Plan) -> Checked<Plan> {
    let share = |share: v1::NodeShare| NodeShare {
        node: NodeId(share.node),
        partitions_before: share.partitions_before,
        partitions_after: share.partitions_after,
        bytes_in: share.bytes_in,
        bytes_out: share.bytes_out,
    };
    let losses = |losses: v1::Losses| Losses {
        replicas: losses.replicas,
        majority: losses.majority,
        minority: losses.minority,
        none: losses.none,
    };
    Ok(Plan {
        based_on_epoch: Epoch(wire.based_on_epoch),
        kind: change_kind(wire.kind())?,
        node: node(wire.node),
        replaced: node(wire.replaced),
        partitions_moved: wire.partitions_moved,
        minimum_moved: wire.minimum_moved,
        bytes: wire.bytes,
        records: wire.records,
        peak_to_mean_before: wire.peak_to_mean_before,
        peak_to_mean_after: wire.peak_to_mean_after,
        shares: wire.shares.into_iter().map(share).collect(),
        losses: wire.losses.into_iter().map(losses).collect(),
        lost_with: wire.lost_with.into_iter().map(NodeId).collect(),
        waits_for: (wire.waits_for != 0).then_some(wire.waits_for),
        namespaces: wire.namespaces,
        replicas_before: number(wire.replicas_before),
        replicas_after: number(wire.replicas_after),
        address: wire.address,
    })
}

const fn kind(found: bool, tombstone: bool) -> RecordKind {
    match (found, tombstone) {
        (_, true) => RecordKind::Tombstone,
        (true, false) => RecordKind::Value,
        (false, false) => RecordKind::Nothing,
    }
}

fn replica_record(wire: v1::ReplicaRecord) -> Checked<ReplicaRecord> {
    let version = wire.version.as_ref().map(version_from_wire).transpose()?;
    let problem = text(wire.problem);
    Ok(ReplicaRecord {
        node: NodeId(wire.node),
        holds: problem.is_none().then(|| kind(wire.found, wire.tombstone)),
        version,
        problem,
    })
}

/// The quorums of a stage: to read, and to accept. Any replica of a static namespace answers, and none
/// accepts a write.
fn quorums(
    mode: NamespaceMode,
    stage: Stage,
    old: &[NodeId],
    new: &[NodeId],
) -> (Quorum, Vec<Quorum>) {
    if mode == NamespaceMode::Static {
        let of = if stage == Stage::WriteBothReadNew {
            new
        } else {
            old
        };
        let (needed, of) = (1, of.to_vec());
        return (Quorum { needed, of }, Vec::new());
    }
    let (old, new) = (Quorum::majority_of(old), Quorum::majority_of(new));
    match stage {
        Stage::Stable | Stage::Copying => (old.clone(), vec![old]),
        Stage::WriteBothReadOld => (old.clone(), vec![old, new]),
        Stage::WriteBothReadNew => (new.clone(), vec![old, new]),
    }
}

fn excluded(config: &v1::Config) -> Vec<NodeId> {
    let members = (0..).zip(&config.members);
    let is_in = |index: u32| config.excluded.checked_shr(index).unwrap_or(0) & 1 == 1;
    let excluded = members.filter(|(index, _)| is_in(*index));
    excluded.map(|(_, member)| NodeId(member.node)).collect()
}

fn explanation(wire: v1::ExplainResponse) -> Checked<Explanation> {
    let mode = wire.mode().into();
    let partition = wire.partition.ok_or(missing("partition"))?;
    let successor = wire.successor.ok_or(missing("successor"))?;
    let holds = kind(wire.found, wire.tombstone);
    let stage = Stage::try_from(partition.stage())?;
    let old: Vec<_> = partition.nodes.iter().copied().map(NodeId).collect();
    let new: Vec<_> = partition.next_nodes.iter().copied().map(NodeId).collect();
    let (read_quorum, accept_quorums) = quorums(mode, stage, &old, &new);
    let version = wire.version.as_ref().map(version_from_wire).transpose()?;
    Ok(Explanation {
        digest: digest_from_wire(&wire.digest)?.ok_or(missing("digest"))?,
        token: Token(wire.token),
        arc_start: Token(wire.arc_start),
        arc_end: Token(wire.arc_end),
        successor: Position {
            token: Token(successor.token),
            node: NodeId(successor.node),
        },
        epoch: Epoch(partition.epoch),
        stage,
        read_quorum,
        accept_quorums,
        excluded: partition.config.as_ref().map(excluded).unwrap_or_default(),
        replicas: wire
            .replicas
            .into_iter()
            .map(replica_record)
            .collect::<Checked<_>>()?,
        lead: NodeId(partition.lead),
        partition: Partition(partition.partition),
        nodes: old,
        next_nodes: new,
        members: wire.nodes.into_iter().map(member).collect::<Checked<_>>()?,
        answered_by: NodeId(wire.answered_by),
        version: version.filter(|_| holds != RecordKind::Nothing),
        holds,
        value_bytes: wire.value_bytes,
        expires_at_ms: moment(wire.expires_at_ms),
        held_in: text(wire.held_in),
        fingerprint_bits: wire.fingerprint_bits,
        slices: wire
            .slices
            .into_iter()
            .map(slice_trace)
            .collect::<Checked<_>>()?,
        hot: wire.hot.map(HotEstimate::from),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire_member() -> v1::Member {
        v1::Member {
            id: 7,
            slot: 3,
            address: "10.0.0.7:7400".into(),
            peer_address: "10.0.0.7:7500".into(),
            http_address: "10.0.0.7:7480".into(),
            zone: "eu-1".into(),
            weight: 100,
            state: v1::MemberState::Active.into(),
            release: "0.2.0".into(),
            oldest_level: 1,
            newest_level: 2,
        }
    }

    fn wire_explanation() -> v1::ExplainResponse {
        v1::ExplainResponse {
            digest: vec![0xab; 16].into(),
            token: 0xabab_abab_abab_abab,
            partition: Some(v1::PartitionState {
                partition: 5,
                epoch: 9,
                stage: v1::Stage::Copying.into(),
                lead: 7,
                nodes: vec![7],
                next_nodes: vec![8],
                ..v1::PartitionState::default()
            }),
            arc_end: u64::MAX,
            nodes: vec![wire_member()],
            successor: Some(v1::Position {
                token: u64::MAX,
                node: 7,
            }),
            found: true,
            version: Some(v1::Version {
                epoch: 9,
                time: 10,
                slot: 3,
            }),
            value_bytes: 4,
            answered_by: 7,
            held_in: "slice".into(),
            slices: vec![v1::SliceTrace {
                segment: 3,
                row: 17,
                keys: 2_400,
                bytes: 400_000,
                slot: 1_999,
                verdict: v1::SliceVerdict::Holds.into(),
                version: Some(v1::Version {
                    epoch: 9,
                    time: 10,
                    slot: 3,
                }),
                tombstone: false,
            }],
            hot: Some(v1::HotEstimate {
                from_ms: 1_000,
                to_ms: 61_000,
                accesses: 500,
                estimate: 20,
                error_bound: 2,
            }),
            replicas: vec![
                v1::ReplicaRecord {
                    node: 7,
                    found: true,
                    version: Some(v1::Version {
                        epoch: 9,
                        time: 10,
                        slot: 3,
                    }),
                    ..v1::ReplicaRecord::default()
                },
                v1::ReplicaRecord {
                    node: 8,
                    problem: "no answer".into(),
                    ..v1::ReplicaRecord::default()
                },
            ],
            ..Default::default()
        }
    }

    /// The field names, units and forms that scripts rely on.
    #[test]
    fn an_explanation_in_json_is_as_documented() {
        let explanation = Explanation::from_wire(wire_explanation()).unwrap();
        let expected = serde_json::json!({
            "digest": "ab".repeat(16),
            "token": "abababababababab",
            "partition": 5,
            "arc_start": "0000000000000000",
            "arc_end": "ffffffffffffffff",
            "successor": { "token": "ffffffffffffffff", "node": 7 },
            "epoch": 9,
            "stage": "copying",
            "lead": 7,
            "nodes": [7],
            "next_nodes": [8],
            "members": [{
                "id": 7, "slot": 3, "address": "10.0.0.7:7400",
                "peer_address": "10.0.0.7:7500", "http_address": "10.0.0.7:7480", "zone": "eu-1",
                "weight_percent": 100, "state": "active", "release": "0.2.0",
                "oldest_level": 1, "newest_level": 2
            }],
            "answered_by": 7,
            "holds": "value",
            "version": "9.10.3",
            "value_bytes": 4,
            "expires_at_ms": null,
            "held_in": "slice",
            "fingerprint_bits": 0,
            "slices": [{
                "segment": 3, "row": 17, "keys": 2400, "bytes": 400_000, "slot": 1999,
                "verdict": "holds", "version": "9.10.3", "tombstone": false,
            }],
            "hot": {
                "from_ms": 1000, "to_ms": 61_000, "accesses": 500,
                "estimate": 20, "error_bound": 2
            },
            "read_quorum": { "needed": 1, "of": [7] },
            "accept_quorums": [{ "needed": 1, "of": [7] }],
            "excluded": [],
            "replicas": [
                { "node": 7, "holds": "value", "version": "9.10.3", "problem": null },
                { "node": 8, "holds": null, "version": null, "problem": "no answer" },
            ],
        });
        assert_eq!(serde_json::to_value(explanation).unwrap(), expected);
    }

    #[test]
    fn a_status_in_json_is_as_documented() {
        let status = ClusterStatus::from_wire(v1::StatusResponse {
            cluster_id: vec![1; 16].into(),
            epoch: 4,
            feature_level: 1,
            answered_by: 7,
            topology_leader: 0,
            nodes: vec![v1::NodeStatus {
                member: Some(wire_member()),
                reachable: true,
                records: 12,
                damaged_slices: 2,
                ..Default::default()
            }],
            transition: Some(v1::Transition {
                id: 4,
                kind: v1::ChangeKind::Join.into(),
                node: 8,
                ..Default::default()
            }),
            last_transition: None,
            partitions: 4096,
            replicas: 1,
            under_replicated: Some(3),
            without_quorum: None,
            generations: Vec::new(),
            layers: vec![v1::LayerStatus {
                partitions: 4096,
                replicas: 1,
            }],
        });
        let json = serde_json::to_value(status.unwrap()).unwrap();
        assert_eq!(json["cluster_id"], "01".repeat(16));
        assert_eq!(json["topology_leader"], serde_json::Value::Null);
        assert_eq!(json["feature_level"], 1);
        let layers = serde_json::json!([{ "partitions": 4096, "replicas": 1 }]);
        assert_eq!(json["layers"], layers);
        assert_eq!(json["nodes"][0]["id"], 7, "the member's fields lie flat");
        assert_eq!(json["nodes"][0]["records"], 12);
        assert_eq!(json["nodes"][0]["damaged_slices"], 2);
        assert_eq!(json["nodes"][0]["problem"], serde_json::Value::Null);
        assert_eq!(json["transition"]["kind"], "join");
        assert_eq!(json["transition"]["ended_at_ms"], serde_json::Value::Null);
    }

    #[test]
    fn a_plan_of_a_node_without_id_has_none() {
        let plan = v1::Plan {
            kind: v1::ChangeKind::Join.into(),
            address: "10.0.0.9:7400".into(),
            ..Default::default()
        };
        let wire = v1::ChangeResponse {
            plan: Some(plan),
            ..Default::default()
        };
        let change = Change::from_wire(wire, false).unwrap();
        assert_eq!((change.plan.node, change.transition), (None, None));
        assert_eq!(change.plan.replicas_after, None);
    }

    #[test]
    fn a_change_that_has_not_begun_is_refused_in_the_words_of_the_node() {
        let wire = v1::ChangeResponse {
            deferred: "declared node 3 dead: repeat this command".into(),
            ..Default::default()
        };
        let refused = Change::from_wire(wire, true).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Refused);
        assert!(
            refused.to_string().contains("repeat this command"),
            "{refused}"
        );
    }

    #[test]
    fn an_alteration_names_its_namespaces_and_no_node() {
        let wire = v1::Transition {
            id: 9,
            kind: v1::ChangeKind::Alter.into(),
            namespaces: vec!["default".into(), "urls".into()],
            replicas_after: 3,
            ..Default::default()
        };
        let json = serde_json::to_value(Transition::from_wire(Some(&wire)).unwrap()).unwrap();
        assert_eq!(json["kind"], "alter");
        assert_eq!(json["node"], serde_json::Value::Null);
        assert_eq!(json["namespaces"], serde_json::json!(["default", "urls"]));
        assert_eq!(json["replicas_after"], 3);
    }

    #[test]
    fn answers_that_lack_what_they_must_have_are_malformed() {
        let bad = [
            v1::ExplainResponse {
                partition: None,
                ..wire_explanation()
            },
            v1::ExplainResponse {
                digest: vec![0; 15].into(),
                ..wire_explanation()
            },
            v1::ExplainResponse {
                successor: None,
                ..wire_explanation()
            },
        ];
        for wire in bad {
            let error = Explanation::from_wire(wire).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal);
        }
        let lost = Change::from_wire(v1::ChangeResponse::default(), true).unwrap_err();
        assert!(lost.maybe_applied(), "the change was committed");
    }
}
