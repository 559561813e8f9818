//! Topologies on the wire: whole, or only what changed after a known epoch.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use torc_record::{DigestKey, Epoch, GenerationDigests, NamespaceId, NodeSlot};
use torc_ring::topology::{
    ClusterId, Incarnation, Layers, Levels, Member, MemberState, Namespace, NamespaceMode,
    NewMember, PartitionState, Release, RoutingTable, Stage,
};
use torc_ring::{NodeId, Partition, Partitions, PreferenceList, Ring, Token, Weight, Zone};

use crate::config::{config_from_wire, config_to_wire};
use crate::convert::WireError;
use crate::v1;

const fn misfit(why: &'static str) -> WireError {
    WireError::Topology { why }
}

/// A routing table for a client that knows the topology of epoch `known`: partitions
/// that did not change since are left out.
#[must_use]
pub fn topology_to_wire(table: &RoutingTable, known: Epoch) -> v1::Topology {
    let changed = table.states.iter().filter(|state| state.changed > known);
    v1::Topology {
        cluster_id: Bytes::copy_from_slice(&table.cluster.0),
        digest_key: Bytes::copy_from_slice(&table.digest_key.0),
        epoch: table.epoch.0,
        feature_level: table.feature_level,
        partitions: table.partitions.count(),
        replicas: table.replicas().into(),
        members: table
            .members
            .iter()
            .map(|(id, member)| member_to_wire(*id, member))
            .collect(),
        ring: table
            .ring
            .iter()
            .map(|(token, node)| v1::Position {
                token: token.0,
                node: node.0,
            })
            .collect(),
        changed: changed.map(partition_state_to_wire).collect(),
        namespaces: table
            .namespaces
            .iter()
            .map(|(name, namespace)| {
                let digests = table.restored.get(&namespace.id);
                v1::Namespace {
                    digest_key: digests.map_or_else(Bytes::new, |it| it.key.0.to_vec().into()),
                    digest_id: digests.map_or(0, |it| it.id.0),
                    ..namespace_to_wire(name, *namespace)
                }
            })
            .collect(),
        authorities: table.authorities.clone(),
    }
}

/// One namespace.
#[must_use]
pub fn namespace_to_wire(name: &str, namespace: Namespace) -> v1::Namespace {
    v1::Namespace {
        id: namespace.id.0,
        name: name.to_owned(),
        mode: v1::NamespaceMode::from(namespace.mode).into(),
        replicas: namespace.replicas.into(),
        digest_key: Bytes::new(),
        digest_id: 0,
    }
}

/// One member.
#[must_use]
pub fn member_to_wire(id: NodeId, member: &Member) -> v1::Member {
    v1::Member {
        id: id.0,
        slot: member.slot.0.into(),
        address: member.identity.address.clone(),
        peer_address: member.identity.peer_address.clone(),
        http_address: member.identity.http_address.clone(),
        zone: member.identity.zone.to_string(),
        weight: member.identity.weight.percent(),
        state: v1::MemberState::from(member.state).into(),
        release: member.identity.release.version.clone(),
        oldest_level: member.identity.release.levels.oldest,
        newest_level: member.identity.release.levels.newest,
    }
}

/// One partition.
#[must_use]
pub fn partition_state_to_wire(state: &PartitionState) -> v1::PartitionState {
    let ids = |list: &PreferenceList| list.iter().map(|node| node.0).collect();
    v1::PartitionState {
        partition: state.config.partition.0,
        epoch: state.config.epoch.0,
        stage: v1::Stage::from(state.config.stage).into(),
        lead: state.lead.0,
        nodes: ids(&state.nodes),
        next_nodes: state.next.as_ref().map(ids).unwrap_or_default(),
        changed: state.changed.0,
        config: Some(config_to_wire(&state.config)),
    }
}

/// The routing table that a node sent, given the one known before (if any), which
/// supplies the partitions left out.
///
/// # Errors
/// [`WireError`] when something is missing or contradicts itself; `known` stays valid.
pub fn merge_topology(
    known: Option<&RoutingTable>,
    wire: v1::Topology,
) -> Result<RoutingTable, WireError> {
    let partitions = Partitions::new(wire.partitions).map_err(|_| misfit("partition count"))?;
    let cluster = ClusterId(fixed(&wire.cluster_id, "cluster_id")?);
    let known = known.filter(|table| table.cluster == cluster && table.partitions == partitions);
    let replicas = u8::try_from(wire.replicas).map_err(|_| misfit("replicas"))?;
    let restored = wire.namespaces.iter().filter_map(|it| {
        let digests = digests_from_wire(&it.digest_key, it.digest_id).transpose()?;
        Some(digests.map(|digests| (NamespaceId(it.id), digests)))
    });
    let restored = restored.collect::<Result<_, _>>()?;
    let namespaces = wire
        .namespaces
        .into_iter()
        .map(|namespace| namespace_from_wire(namespace, replicas))
        .collect::<Result<_, _>>()?;
    let layers = Layers::of(replicas, &namespaces).ok_or(misfit("replicas of a layer"))?;
    Ok(RoutingTable {
        cluster,
        digest_key: match &wire.digest_key[..] {
            [] => DigestKey::WITHHELD,
            told => DigestKey(fixed(told, "digest_key")?),
        },
        epoch: Epoch(wire.epoch),
        feature_level: wire.feature_level,
        partitions,
        layers,
        members: wire
            .members
            .into_iter()
            .map(member_from_wire)
            .collect::<Result<_, _>>()?,
        ring: ring_from_wire(&wire.ring, partitions)?,
        states: merge_states(known, (partitions, layers), &wire.changed)?,
        namespaces,
        generations: BTreeMap::new(),
        restored,
        authorities: wire.authorities,
    })
}

/// How the digests of a generation are computed; `None` if no key is named.
///
/// # Errors
/// [`WireError`]: the key has not 32 bytes.
pub fn digests_from_wire(key: &[u8], id: u32) -> Result<Option<GenerationDigests>, WireError> {
    if key.is_empty() {
        return Ok(None);
    }
    let key = DigestKey(fixed(key, "digest_key")?);
    let id = NamespaceId(id);
    Ok(Some(GenerationDigests { key, id }))
}

fn namespace_from_wire(wire: v1::Namespace, cluster: u8) -> Result<(String, Namespace), WireError> {
    let mode = NamespaceMode::from(wire.mode());
    let replicas = u8::try_from(wire.replicas).map_err(|_| misfit("replicas"))?;
    let namespace = Namespace {
        id: NamespaceId(wire.id),
        mode,
        replicas: if replicas == 0 { cluster } else { replicas },
    };
    Ok((wire.name, namespace))
}

fn merge_states(
    known: Option<&RoutingTable>,
    (partitions, layers): (Partitions, Layers),
    changed: &[v1::PartitionState],
) -> Result<Vec<PartitionState>, WireError> {
    let mut states = BTreeMap::new();
    for wire in changed {
        let partition = Partition(wire.partition);
        if layers.index(partitions, partition).is_none() {
            return Err(misfit("a partition out of range"));
        }
        states.insert(partition, state_from_wire(wire)?);
    }
    let pick = |partition: Partition| {
        let before = || known.and_then(|table| table.state(partition)).cloned();
        states
            .remove(&partition)
            .or_else(before)
            .ok_or(misfit("a partition is missing"))
    };
    layers.partitions(partitions).map(pick).collect()
}

fn state_from_wire(wire: &v1::PartitionState) -> Result<PartitionState, WireError> {
    let stage = Stage::try_from(wire.stage())?;
    let list = |ids: &[u64]| {
        let ids: Vec<_> = ids.iter().copied().map(NodeId).collect();
        PreferenceList::from(&ids[..])
    };
    let epoch = Epoch(wire.epoch);
    let config = config_from_wire((Partition(wire.partition), epoch, stage), wire)?;
    Ok(PartitionState {
        changed: epoch.max(Epoch(wire.changed)),
        config: Arc::new(config),
        lead: NodeId(wire.lead),
        nodes: list(&wire.nodes),
        next: (stage != Stage::Stable).then(|| list(&wire.next_nodes)),
    })
}

fn member_from_wire(wire: v1::Member) -> Result<(NodeId, Member), WireError> {
    let state = MemberState::try_from(wire.state())?;
    let slot = u16::try_from(wire.slot).map_err(|_| WireError::Field { field: "slot" })?;
    let identity = NewMember {
        incarnation: Incarnation([0; 16]),
        address: wire.address,
        peer_address: wire.peer_address,
        http_address: wire.http_address,
        zone: Zone::new(wire.zone).map_err(|_| WireError::Field { field: "zone" })?,
        weight: Weight::new(wire.weight).map_err(|_| WireError::Field { field: "weight" })?,
        release: Release {
            version: wire.release,
            levels: Levels {
                oldest: wire.oldest_level,
                newest: wire.newest_level,
            },
        },
    };
    Ok((
        NodeId(wire.id),
        Member {
            slot: NodeSlot(slot),
            state,
            identity,
        },
    ))
}

fn ring_from_wire(positions: &[v1::Position], partitions: Partitions) -> Result<Ring, WireError> {
    let mut ring = Ring::default();
    for position in positions {
        ring.insert(Token(position.token), NodeId(position.node))
            .map_err(|_| misfit("two nodes on one position"))?;
    }
    ring.check_borders(partitions)
        .map_err(|_| misfit("a position within a partition"))?;
    Ok(ring)
}

fn fixed<const N: usize>(bytes: &[u8], field: &'static str) -> Result<[u8; N], WireError> {
    <[u8; N]>::try_from(bytes).map_err(|_| WireError::Field { field })
}
