//! Namespaces that are created with records: when they get their name, and what is refused meanwhile.

use torc_record::{Epoch, NamespaceId};

use super::generation_tests::{all_hear, content, hold, holds};
use super::replica_tests::{begin, enrol, founded, proposal, run_to_end};
use super::*;
use crate::NodeId;

fn new(name: &str) -> NewNamespace {
    NewNamespace {
        name: name.into(),
        mode: NamespaceMode::Linearizable,
        replicas: None,
    }
}

fn ask(
    topology: &mut Topology,
    new: NewNamespace,
    (above, replaces): (u64, bool),
) -> Result<u32, TopologyError> {
    let command = Command::ReserveNamespace {
        new,
        above: Epoch(above),
        replaces,
    };
    match topology.apply(command)? {
        Outcome::Reserved { number } => Ok(number),
        other => panic!("{other:?}"),
    }
}

fn attach(topology: &mut Topology, number: u32) -> Result<Outcome, TopologyError> {
    let content = content(topology, 1);
    topology.apply(Command::AttachGeneration { number, content })
}

fn promote(topology: &mut Topology, number: u32) -> Result<Outcome, TopologyError> {
    topology.apply(Command::PromoteGeneration { number })
}

fn drop_it(topology: &mut Topology, number: u32) -> Result<Outcome, TopologyError> {
    topology.apply(Command::DropGeneration { number })
}

fn id_of(topology: &Topology, name: &str) -> Option<NamespaceId> {
    topology.routing().namespace(name).map(|it| it.id)
}

#[test]
fn a_namespace_gets_its_name_when_all_replicas_hold_its_records() {
    let mut topology = founded(3, 3, 1);
    let number = ask(&mut topology, new("urls"), (0, false)).unwrap();
    let reserved = topology.generation(number).unwrap().clone();
    assert!(!reserved.id.is_generation());
    assert_eq!(reserved.id.number(), number);
    let hidden = |topology: &Topology| {
        let table = topology.routing();
        let known = table.namespaces.values().any(|it| it.id == reserved.id);
        (known, table.namespace("urls").is_none())
    };
    assert_eq!(hidden(&topology), (true, true));
    // Nobody can use its name, whichever way it is written.
    for name in ["urls", &format!("+{}", reserved.id.0)] {
        assert_eq!(id_of(&topology, name), None, "{name}");
        let name = name.to_owned();
        let dropped = topology.apply(Command::DropNamespace { name });
        assert!(matches!(
            dropped,
            Err(TopologyError::UnknownNamespace { .. })
        ));
    }
    let coming = TopologyError::NamespaceIsComing {
        name: "urls".into(),
        number,
    };
    let created = topology.apply(Command::CreateNamespace(new("urls")));
    assert_eq!(created, Err(coming.clone()));
    assert_eq!(ask(&mut topology, new("urls"), (0, true)), Err(coming));

    assert_eq!(
        promote(&mut topology, number),
        Err(TopologyError::NotAttached { number })
    );
    attach(&mut topology, number).unwrap();
    for node in [1, 2] {
        let held = holds(&topology, NodeId(node), number);
        topology.apply(held).unwrap();
    }
    let waiting = vec![NodeId(3)];
    assert_eq!(
        promote(&mut topology, number),
        Err(TopologyError::NotReady { number, waiting })
    );
    hold(&mut topology, number);
    assert_eq!(hidden(&topology), (true, true));
    promote(&mut topology, number).unwrap();
    assert_eq!(id_of(&topology, "urls"), Some(reserved.id));
    assert_eq!(topology.unconfirmed("urls").len(), 3);
    all_hear(&mut topology);
    assert!(topology.unconfirmed("urls").is_empty());
    // A lost answer: the same again. Members no longer fetch anything, and nothing else is left.
    promote(&mut topology, number).unwrap();
    assert!(topology.routing().generations.is_empty());
    drop_it(&mut topology, number).unwrap();
    assert_eq!(topology.generations().count(), 0);
    assert_eq!(id_of(&topology, "urls"), Some(reserved.id));
    assert!(topology.sweeps().is_empty());
}

#[test]
fn every_write_is_above_the_records_and_these_above_a_given_epoch() {
    let mut topology = founded(3, 3, 1);
    let number = ask(&mut topology, new("low"), (0, false)).unwrap();
    let version = topology.generation(number).unwrap().ballot;
    let epochs = |topology: &Topology| {
        let states = topology.routing().states;
        states.iter().map(|it| it.config.epoch).min().unwrap()
    };
    assert!(version.epoch <= epochs(&topology));
    assert_eq!((version.time.0, version.slot.0), (0, 0));

    let number = ask(&mut topology, new("high"), (1_000, false)).unwrap();
    let version = topology.generation(number).unwrap().ballot;
    assert_eq!(version.epoch, Epoch(1_001));
    attach(&mut topology, number).unwrap();
    hold(&mut topology, number);
    let too_low = TopologyError::EpochTooLow {
        name: "high".into(),
        above: Epoch(1_000),
    };
    assert_eq!(promote(&mut topology, number), Err(too_low));
    let raise = Command::RaiseEpoch {
        namespace: "high".into(),
        above: Epoch(1_000),
    };
    topology.apply(raise).unwrap();
    assert!(topology.is_above("high", Epoch(1_000)));
    promote(&mut topology, number).unwrap();
    assert!(version.epoch <= epochs(&topology));
    let impossible = ask(&mut topology, new("no"), (u64::MAX, false));
    assert!(matches!(impossible, Err(TopologyError::Setting { .. })));
}

#[test]
fn nothing_moves_while_members_fetch_the_records() {
    let mut topology = founded(3, 4, 1);
    let joining = enrol(&mut topology, 9);
    let join = proposal(&topology, TransitionKind::Join(joining), 16);
    let number = ask(&mut topology, new("urls"), (0, false)).unwrap();
    attach(&mut topology, number).unwrap();
    let creating = TopologyError::IsCreating { number };
    let again = Proposal {
        based_on: topology.epoch(),
        ..join
    };
    assert_eq!(
        topology.apply(Command::Begin(again.clone())),
        Err(creating.clone())
    );
    assert_eq!(
        topology
            .plan(&TransitionKind::Join(joining), false)
            .unwrap_err(),
        creating
    );
    // Once the creation is dropped, nodes can join again.
    drop_it(&mut topology, number).unwrap();
    let number = ask(&mut topology, new("urls"), (0, false)).unwrap();
    begin(&mut topology, TransitionKind::Join(joining), 16);
    let busy = attach(&mut topology, number);
    assert!(matches!(busy, Err(TopologyError::Busy { .. })), "{busy:?}");
    run_to_end(&mut topology, &[]);
    attach(&mut topology, number).unwrap();
}

#[test]
fn a_dropped_creation_is_swept_and_never_gets_its_name() {
    let mut topology = founded(3, 3, 1);
    let number = ask(&mut topology, new("urls"), (0, false)).unwrap();
    let id = topology.generation(number).unwrap().id;
    attach(&mut topology, number).unwrap();
    drop_it(&mut topology, number).unwrap();
    assert_eq!(id_of(&topology, "urls"), None);
    assert!(topology.sweeps().contains_key(&id));
    assert_eq!(
        promote(&mut topology, number),
        Err(TopologyError::UnknownGeneration { number })
    );
    let json = serde_json::to_string(&topology).unwrap();
    let mut read: Topology = serde_json::from_str(&json).unwrap();
    let another = ask(&mut read, new("urls"), (0, false)).unwrap();
    assert!(another > number);
    // Other namespaces and generations never get its numbers.
    read.apply(Command::CreateNamespace(new("other"))).unwrap();
    let other = id_of(&read, "other").unwrap();
    assert!(other.number() > another);
}

#[test]
fn a_creation_takes_the_place_of_another_namespace_only_if_it_may() {
    let mut topology = founded(3, 3, 1);
    let exists = TopologyError::NamespaceExists {
        name: "default".into(),
    };
    assert_eq!(ask(&mut topology, new("default"), (0, false)), Err(exists));
    let before = id_of(&topology, "default").unwrap();
    let number = ask(&mut topology, new("default"), (0, true)).unwrap();
    let after = topology.generation(number).unwrap().id;
    attach(&mut topology, number).unwrap();
    hold(&mut topology, number);
    assert_eq!(id_of(&topology, "default"), Some(before), "still in use");
    promote(&mut topology, number).unwrap();
    assert_eq!(id_of(&topology, "default"), Some(after));
    assert!(topology.sweeps().contains_key(&before));

    // A creation may replace a namespace that does not exist.
    let number = ask(&mut topology, new("urls"), (0, true)).unwrap();
    attach(&mut topology, number).unwrap();
    hold(&mut topology, number);
    promote(&mut topology, number).unwrap();
    assert!(id_of(&topology, "urls").is_some());
    let of_static = NewNamespace {
        mode: NamespaceMode::Static,
        ..new("pages")
    };
    topology
        .apply(Command::CreateNamespace(of_static.clone()))
        .unwrap();
    assert!(ask(&mut topology, new("pages"), (0, true)).is_err());
    assert!(ask(&mut topology, of_static, (0, false)).is_err());
}
