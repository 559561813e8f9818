//! Members and foundings for tests.

use std::collections::BTreeMap;

use torc_record::{DigestKey, Epoch};
use torc_ring::replicas::Milestone;
use torc_ring::topology::{
    ClusterId, Command, Founding, Incarnation, NewMember, Release, Report, Stage, Topology,
};
use torc_ring::{NodeId, Partitions, Weight, Zone};

pub(crate) fn member(number: u8, address: &str) -> NewMember {
    NewMember {
        incarnation: Incarnation([number; 16]),
        address: format!("client-{number}.invalid:1"),
        peer_address: address.to_owned(),
        http_address: String::new(),
        zone: Zone::default(),
        weight: Weight::NORMAL,
        release: Release::ours(),
    }
}

/// A small cluster of `nodes`, with one replica.
pub(crate) fn founding(nodes: u8) -> Founding {
    Founding {
        cluster: ClusterId([9; 16]),
        digest_key: DigestKey([1; 32]),
        partitions: Partitions::new(16).unwrap(),
        replicas: 1,
        positions: 2,
        members: (1..=nodes)
            .map(|n| member(n, &format!("127.0.0.1:{n}")))
            .collect(),
    }
}

type Reached = fn(Epoch) -> Milestone;

/// The next reports of the nodes for a running transition; empty if none is running.
pub(crate) fn next_reports(topology: &Topology) -> Vec<Command> {
    let mut of_node: BTreeMap<NodeId, Vec<Report>> = BTreeMap::new();
    for partition in topology.partitions().iter() {
        let state = topology.state(partition).unwrap();
        let old = state.nodes[0];
        let new = state.next.as_ref().map_or(old, |next| next[0]);
        let reached: Vec<(NodeId, Reached)> = match state.config.stage {
            Stage::Copying => vec![(new, Milestone::Copied)],
            Stage::WriteBothReadOld => {
                vec![(old, Milestone::Adopted), (new, Milestone::Snapshotted)]
            }
            Stage::WriteBothReadNew => vec![(old, Milestone::Adopted)],
            Stage::Stable => vec![],
        };
        for (node, reached) in reached {
            let report = Report::of(&state.config, reached, 2);
            of_node.entry(node).or_default().push(report);
        }
    }
    of_node
        .into_iter()
        .map(|(node, reports)| Command::Report { node, reports })
        .collect()
}
