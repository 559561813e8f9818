//! Dropped namespaces: what is routed, which members are waited for, and when they are forgotten.

use std::collections::BTreeSet;

use torc_record::NamespaceId;

use super::replica_tests::{begin, enrol, founded, report_all, run_to_end};
use super::*;

fn create(topology: &mut Topology, name: &str, mode: NamespaceMode, replicas: Option<u8>) {
    let name = name.into();
    let new = NewNamespace {
        name,
        mode,
        replicas,
    };
    topology.apply(Command::CreateNamespace(new)).unwrap();
}

fn drop_it(topology: &mut Topology, name: &str) -> Result<Outcome, TopologyError> {
    topology.apply(Command::DropNamespace { name: name.into() })
}

fn swept(topology: &mut Topology, nodes: &[u64], namespace: NamespaceId) {
    for node in nodes.iter().copied().map(NodeId) {
        let epoch = topology.epoch();
        swept_in(topology, node, namespace, epoch);
    }
}

fn swept_in(topology: &mut Topology, node: NodeId, namespace: NamespaceId, epoch: Epoch) {
    let command = Command::Swept {
        node,
        namespace,
        epoch,
    };
    topology.apply(command).unwrap();
}

fn with_urls() -> (Topology, NamespaceId) {
    let mut topology = founded(3, 3, 1);
    create(&mut topology, "urls", NamespaceMode::Linearizable, None);
    let id = topology.namespace("urls").unwrap().id;
    (topology, id)
}

/// Stores the topology and restores it, as a node does with its disk.
fn stored_again(topology: &Topology) -> Topology {
    let json = serde_json::to_string(topology).unwrap();
    serde_json::from_str(&json).unwrap()
}

#[test]
fn a_dropped_namespace_loses_its_name_at_once_and_is_forgotten_when_all_have_swept() {
    let (mut topology, id) = with_urls();
    drop_it(&mut topology, "urls").unwrap();
    let dropped = dropped_name(id);
    let table = topology.routing();
    assert_eq!(table.namespace_id("urls"), None);
    assert_eq!(
        table.namespace_id(&dropped),
        Some(id),
        "nodes need its mode"
    );
    assert_eq!(topology.unconfirmed(&dropped), [1, 2, 3].map(NodeId).into());
    let epoch = topology.epoch();
    for node in [1, 2, 3].map(NodeId) {
        topology.apply(Command::Adopted { node, epoch }).unwrap();
    }
    assert_eq!(topology.unconfirmed(&dropped), BTreeSet::new());
    swept(&mut topology, &[1, 3, 3], id);
    assert!(topology.sweeps().contains_key(&id), "node 2 has not");
    let mut topology = stored_again(&topology);
    swept(&mut topology, &[2], id);
    assert!(topology.sweeps().is_empty());
    assert_eq!(topology.routing().namespace_id(&dropped), None);
    assert!(
        id.number() < topology.next_namespace(),
        "nodes tell it from one that they do not know yet"
    );
    // A late report about a namespace that is already forgotten.
    swept(&mut topology, &[2], id);
}

#[test]
fn the_name_can_be_given_again_and_the_id_is_another() {
    let (mut topology, id) = with_urls();
    drop_it(&mut topology, "urls").unwrap();
    create(&mut topology, "urls", NamespaceMode::Eventual, None);
    let again = topology.namespace("urls").unwrap();
    assert_ne!(again.id, id);
    assert_eq!(topology.sweeps().len(), 1);
}

#[test]
fn some_namespaces_cannot_be_dropped() {
    let (mut topology, id) = with_urls();
    let before = topology.epoch();
    assert_eq!(
        drop_it(&mut topology, "default"),
        Err(TopologyError::DefaultStays)
    );
    drop_it(&mut topology, "urls").unwrap();
    for name in ["urls", &dropped_name(id)] {
        let unknown = TopologyError::UnknownNamespace { name: name.into() };
        assert_eq!(drop_it(&mut topology, name), Err(unknown));
    }
    assert_eq!(topology.epoch().0, before.0 + 1);
    let altered = topology.alteration(&dropped_name(id), 2);
    assert!(altered.is_err(), "{altered:?}");
}

#[test]
fn the_last_namespace_of_a_layer_stays_until_another_comes() {
    let mut topology = founded(3, 3, 1);
    create(&mut topology, "one", NamespaceMode::Linearizable, Some(1));
    let layers = topology.routing().layers;
    let one = topology.namespace("one").unwrap();
    drop_it(&mut topology, "one").unwrap();
    swept(&mut topology, &[1, 2, 3], one.id);
    assert!(topology.sweeps().is_empty());
    let mut topology = stored_again(&topology);
    assert_eq!(topology.routing().layers, layers);
    let dropped = dropped_name(one.id);
    assert_eq!(topology.namespace(&dropped), Some(one));
    assert!(topology.namespaces_in(one.id.layer()).is_empty());
    create(&mut topology, "two", NamespaceMode::Linearizable, Some(1));
    assert_eq!(topology.namespace(&dropped), None);
    assert_eq!(topology.routing().layers, layers);
    assert!(topology.check_alone("two").is_ok());
}

#[test]
fn a_change_of_who_leads_makes_all_sweep_anew() {
    let (mut topology, id) = with_urls();
    drop_it(&mut topology, "urls").unwrap();
    swept(&mut topology, &[1, 2], id);
    let at_ms = 5;
    let node = NodeId(2);
    topology.apply(Command::WriteOff { node, at_ms }).unwrap();
    assert_eq!(topology.sweeps()[&id], BTreeSet::new());
    swept(&mut topology, &[1, 3], id);
    assert!(topology.sweeps().is_empty(), "nobody waits for the dead");
}

#[test]
fn nothing_is_forgotten_while_partitions_move() {
    let (mut topology, id) = with_urls();
    let (node, at_ms) = (enrol(&mut topology, 4), 5);
    drop_it(&mut topology, "urls").unwrap();
    begin(&mut topology, TransitionKind::Join(node), 8);
    report_all(&mut topology, &[]);
    swept(&mut topology, &[1, 2, 3, node.0], id);
    assert!(topology.sweeps().contains_key(&id));
    let during = topology.epoch();
    let transition = topology.transition().unwrap().id;
    let abort = Command::Abort { transition, at_ms };
    topology.apply(abort).unwrap();
    run_to_end(&mut topology, &[]);
    assert_eq!(
        topology.sweeps()[&id],
        BTreeSet::new(),
        "a member may lead partitions again that it has swept without"
    );
    for node in [NodeId(1), NodeId(2), NodeId(3), node] {
        swept_in(&mut topology, node, id, during);
    }
    assert!(
        topology.sweeps().contains_key(&id),
        "reports of before the abort ended"
    );
    swept(&mut topology, &[1, 2, 3, node.0], id);
    assert!(topology.sweeps().is_empty());
}

#[test]
fn a_static_namespace_goes_with_its_generations() {
    let mut topology = founded(3, 3, 1);
    create(&mut topology, "pages", NamespaceMode::Static, None);
    let namespace = "pages".to_owned();
    let reserve = Command::ReserveGeneration {
        namespace,
        merge: false,
        at_ms: 5,
        digests: None,
    };
    topology.apply(reserve).unwrap();
    let id = topology.namespace("pages").unwrap().id;
    drop_it(&mut topology, "pages").unwrap();
    assert_eq!(topology.generations().count(), 0);
    assert!(topology.sweeps().is_empty(), "nodes drop slices themselves");
    assert_eq!(topology.namespace(&dropped_name(id)), None);
    let unconfirmed = topology.unconfirmed(&dropped_name(id));
    assert_eq!(unconfirmed, [1, 2, 3].map(NodeId).into());
}
