//! Generations: which commands may follow which, which members are waited for, and which generation
//! is routed.

use std::collections::{BTreeMap, BTreeSet};

use torc_record::{Digest, DigestKey, Epoch, GenerationDigests, Layer, NamespaceId};

use super::replica_tests::{begin, enrol, founded, proposal, run_to_end, write_off};
use super::*;

const NAME: &str = "pages";

pub(super) fn content(topology: &Topology, seed: u8) -> GenerationContent {
    GenerationContent {
        manifest: [seed; 32],
        source: "file:///built".into(),
        records: 10,
        bytes: 100,
        arcs: Arcs::of(topology.partitions(), [Partition(1)]),
        shape: GenerationShape::Values,
    }
}

#[test]
fn ids_are_dense_over_the_arcs_and_impossible_shapes_are_refused() {
    let mut topology = static_cluster();
    let partitions = topology.partitions();
    let some = [(Partition(1), 3), (Partition(4), 7)];
    let counts = Counts::of(partitions, some);
    assert_eq!(Counts::from_bytes(&counts.to_bytes()), Some(counts.clone()));
    let stored = serde_json::to_vec(&counts).unwrap();
    assert_eq!(serde_json::from_slice::<Counts>(&stored).unwrap(), counts);
    let places: Vec<_> = (0..10).map(|id| counts.place(id).unwrap()).collect();
    for (id, (arc, slot)) in (0..).zip(&places) {
        assert_eq!(counts.id(partitions, *arc, *slot), Some(id));
    }
    assert_eq!(places[2], (Partition(1), 2));
    assert_eq!(places[3], (Partition(4), 0));
    assert_eq!(counts.place(10), None);
    assert_eq!(counts.place(u64::MAX), None);
    assert_eq!(Counts::from_bytes(&[0; 7]), None, "cut off");
    let too_many = vec![0; 4 * (Partitions::MAX_COUNT as usize + 1)];
    assert_eq!(Counts::from_bytes(&too_many), None);

    let number = reserve(&mut topology);
    let keyless = |fingerprint_bits, payload_bytes| GenerationShape::Keyless {
        fingerprint_bits,
        payload_bytes,
    };
    let short = GenerationShape::Ids(Counts::from_bytes(&10_u32.to_le_bytes()).unwrap());
    let other_sum = GenerationShape::Ids(Counts::of(partitions, [(Partition(1), 9)]));
    let ids = GenerationShape::Ids(counts);
    let (one, two) = (vec![Partition(1)], vec![Partition(1), Partition(4)]);
    for (shape, arcs, is_possible) in [
        (keyless(0, 0), &two, false),
        (keyless(33, 0), &two, false),
        (keyless(16, 65), &two, false),
        (short, &two, false),
        (other_sum, &one, false),
        (ids.clone(), &one, false),
        (ids, &two, true),
    ] {
        let content = GenerationContent {
            shape,
            arcs: Arcs::of(partitions, arcs.iter().copied()),
            ..content(&topology, 1)
        };
        let command = Command::AttachGeneration { number, content };
        assert_eq!(topology.apply(command).is_ok(), is_possible);
    }
}

fn static_cluster() -> Topology {
    static_cluster_of(3, 3)
}

fn static_cluster_of(replicas: u8, nodes: u8) -> Topology {
    let mut topology = founded(replicas, nodes, 1);
    let new = NewNamespace {
        name: NAME.into(),
        mode: NamespaceMode::Static,
        replicas: None,
    };
    topology.apply(Command::CreateNamespace(new)).unwrap();
    topology
}

fn reserve(topology: &mut Topology) -> u32 {
    let command = Command::ReserveGeneration {
        namespace: NAME.into(),
        merge: false,
        at_ms: 5,
        digests: None,
    };
    match topology.apply(command) {
        Ok(Outcome::Reserved { number }) => number,
        other => panic!("{other:?}"),
    }
}

fn attach(topology: &mut Topology, number: u32) -> Result<Outcome, TopologyError> {
    let content = content(topology, number as u8);
    topology.apply(Command::AttachGeneration { number, content })
}

pub(super) fn hold(topology: &mut Topology, number: u32) {
    hold_on(topology, &[1, 2, 3], number);
}

fn hold_on(topology: &mut Topology, nodes: &[u64], number: u32) {
    for node in nodes.iter().copied().map(NodeId) {
        let command = holds(topology, node, number);
        topology.apply(command).unwrap();
    }
}

pub(super) fn holds(topology: &Topology, node: NodeId, number: u32) -> Command {
    Command::HoldsGeneration {
        node,
        number,
        epoch: topology.epoch(),
    }
}

fn promote(topology: &mut Topology, number: u32) -> Result<Outcome, TopologyError> {
    topology.apply(Command::PromoteGeneration { number })
}

pub(super) fn all_hear(topology: &mut Topology) {
    let epoch = topology.epoch();
    let members: Vec<_> = topology.members().keys().copied().collect();
    for node in members {
        topology.apply(Command::Adopted { node, epoch }).unwrap();
    }
}

fn promoted(topology: &mut Topology) -> u32 {
    let number = reserve(topology);
    attach(topology, number).unwrap();
    hold(topology, number);
    promote(topology, number).unwrap();
    all_hear(topology);
    number
}

fn routed(topology: &Topology) -> NamespaceId {
    topology.routing().namespaces[NAME].id
}

fn state(topology: &Topology, number: u32) -> GenerationState {
    topology.generation(number).unwrap().state
}

fn roll_back(topology: &mut Topology) -> Result<Outcome, TopologyError> {
    let namespace = NAME.into();
    topology.apply(Command::RollBack { namespace })
}

#[test]
fn a_generation_is_current_only_when_every_replica_has_it() {
    let mut topology = static_cluster();
    assert!(!routed(&topology).is_generation(), "none is current");
    let number = reserve(&mut topology);
    assert_eq!(
        promote(&mut topology, number),
        Err(TopologyError::NotAttached { number })
    );
    attach(&mut topology, number).unwrap();
    let before = topology.epoch();
    attach(&mut topology, number).unwrap();
    assert_eq!(topology.epoch(), before, "the same again");
    hold_on(&mut topology, &[1, 2], number);
    let waiting = vec![NodeId(3)];
    assert_eq!(
        promote(&mut topology, number),
        Err(TopologyError::NotReady { number, waiting })
    );
    hold(&mut topology, number);
    promote(&mut topology, number).unwrap();
    let generation = topology.generation(number).unwrap();
    assert_eq!(routed(&topology), generation.id);
    assert!(generation.has_keys_in(topology.partitions(), Partition(1)));
    assert!(!generation.has_keys_in(topology.partitions(), Partition(2)));
    assert_eq!(topology.unconfirmed(NAME), [1, 2, 3].map(NodeId).into());
}

#[test]
fn a_batch_notices_that_it_would_read_another_generation() {
    let mut topology = static_cluster();
    let names = ["default", NAME, NAME, ""];
    let mut read = ReadGenerations::default();
    promoted(&mut topology);
    assert!(!read.differ(&topology.routing(), names), "the first one");
    assert!(!read.differ(&topology.routing(), names), "the same");
    promoted(&mut topology);
    assert!(!read.differ(&topology.routing(), ["default"]));
    assert!(!read.have_changed());
    assert!(read.differ(&topology.routing(), names));
    assert!(read.have_changed());
    assert!(!read.have_changed(), "it is told once");
    assert!(!read.differ(&topology.routing(), names));
}

#[test]
fn a_switch_waits_for_every_member_that_can_still_answer() {
    let mut topology = static_cluster();
    let old = promoted(&mut topology);
    assert_eq!(topology.unconfirmed(NAME), BTreeSet::new());
    let number = reserve(&mut topology);
    attach(&mut topology, number).unwrap();
    hold(&mut topology, number);
    let before = topology.epoch();
    promote(&mut topology, number).unwrap();
    for (node, epoch) in [(1, topology.epoch()), (2, before)] {
        let node = NodeId(node);
        topology.apply(Command::Adopted { node, epoch }).unwrap();
    }
    assert_eq!(topology.unconfirmed(NAME), [2, 3].map(NodeId).into());
    assert!(topology.must_tell(NodeId(2), topology.epoch()));
    assert!(!topology.must_tell(NodeId(2), before));
    let drop_old = Command::DropGeneration { number: old };
    let refused = topology.apply(drop_old.clone());
    assert!(matches!(refused, Err(TopologyError::Unconfirmed { .. })));
    // A member that joined later starts with the current generation.
    enrol(&mut topology, 4);
    assert_eq!(topology.unconfirmed(NAME), [2, 3].map(NodeId).into());
    let lost = Command::WriteOff {
        node: NodeId(3),
        at_ms: 0,
    };
    topology.apply(lost).unwrap();
    assert_eq!(topology.unconfirmed(NAME), [2].map(NodeId).into());
    let namespace = NAME.to_owned();
    topology.apply(Command::StopWaiting { namespace }).unwrap();
    assert_eq!(topology.unconfirmed(NAME), BTreeSet::new());
    topology.apply(drop_old).unwrap();
    assert_eq!(topology.generation(old), None);
}

/// A node sends a command again if its first leader fails before it answers.
#[test]
fn what_the_log_has_twice_is_applied_once() {
    let mut topology = static_cluster();
    let one = promoted(&mut topology);
    let two = promoted(&mut topology);
    promoted(&mut topology);
    let namespace = || NAME.to_owned();
    let twice = |topology: &mut Topology, command: Command, request| {
        let command = command.once(request);
        let outcome = topology.apply(command.clone());
        assert!(outcome.is_ok(), "{outcome:?}");
        let stored = serde_json::to_string(topology).unwrap();
        let mut restored: Topology = serde_json::from_str(&stored).unwrap();
        assert_eq!(restored.apply(command.clone()), outcome);
        assert_eq!(&restored, topology);
        outcome.unwrap()
    };
    let command = Command::RollBack {
        namespace: namespace(),
    };
    twice(&mut topology, command.clone(), 1);
    assert_eq!(state(&topology, two), GenerationState::Current);
    all_hear(&mut topology);
    let reserve = Command::ReserveGeneration {
        namespace: namespace(),
        merge: false,
        at_ms: 5,
        digests: None,
    };
    let Outcome::Reserved { number } = twice(&mut topology, reserve, 2) else {
        panic!("not reserved");
    };
    twice(&mut topology, Command::DropGeneration { number }, 3);
    twice(&mut topology, command.clone(), 4);
    assert_eq!(state(&topology, one), GenerationState::Current);
    let refused = topology.apply(command.clone().once(5));
    assert!(matches!(refused, Err(TopologyError::NothingBefore { .. })));
    let nested = command.once(6).once(7);
    assert!(matches!(
        topology.apply(nested),
        Err(TopologyError::Setting { .. })
    ));
    twice(
        &mut topology,
        Command::DropNamespace { name: namespace() },
        8,
    );
}

#[test]
fn what_was_rolled_back_has_to_be_attached_anew() {
    let mut topology = static_cluster();
    assert_eq!(
        roll_back(&mut topology),
        Err(TopologyError::NothingBefore { name: NAME.into() })
    );
    let one = promoted(&mut topology);
    let two = promoted(&mut topology);
    let three = promoted(&mut topology);
    roll_back(&mut topology).unwrap();
    assert_eq!(state(&topology, three), GenerationState::RolledBack);
    assert_eq!(state(&topology, two), GenerationState::Current);
    assert_eq!(
        topology.unconfirmed(NAME).len(),
        3,
        "a switch like any other"
    );
    all_hear(&mut topology);
    let refused = promote(&mut topology, three);
    assert_eq!(refused, Err(TopologyError::NotAttached { number: three }));
    let other = content(&topology, 77);
    let refused = topology.apply(Command::AttachGeneration {
        number: three,
        content: other,
    });
    assert_eq!(refused, Err(TopologyError::OtherContent { number: three }));
    // Nodes that hold its slices would not see that they are of another shape.
    let reshaped = GenerationContent {
        shape: GenerationShape::Keyless {
            fingerprint_bits: 8,
            payload_bytes: 0,
        },
        ..content(&topology, three as u8)
    };
    let refused = topology.apply(Command::AttachGeneration {
        number: three,
        content: reshaped,
    });
    assert_eq!(refused, Err(TopologyError::OtherContent { number: three }));
    attach(&mut topology, three).unwrap();
    assert!(matches!(
        promote(&mut topology, three),
        Err(TopologyError::NotReady { .. })
    ));
    roll_back(&mut topology).unwrap();
    assert_eq!(state(&topology, one), GenerationState::Current);
    let refused = topology.apply(Command::DropGeneration { number: one });
    assert_eq!(refused, Err(TopologyError::GenerationInUse { number: one }));
}

/// Records from before a lost log may still be on disk: if their ids were assigned again, nodes
/// would find these records under a new meaning.
#[test]
fn no_id_that_a_lost_log_may_have_given_is_given_after_a_recovery() {
    let mut topology = static_cluster();
    let mut lost = topology.clone();
    let number = reserve(&mut lost);
    let other = |name: &str| {
        Command::CreateNamespace(NewNamespace {
            name: name.into(),
            mode: NamespaceMode::Linearizable,
            replicas: None,
        })
    };
    lost.apply(other("one")).unwrap();
    topology.recover(&BTreeSet::new(), 1).unwrap();
    assert!(reserve(&mut topology) > number);
    topology.apply(other("two")).unwrap();
    let (lost, now) = (lost.routing(), topology.routing());
    assert_ne!(lost.namespaces["one"].id, now.namespaces["two"].id);
}

#[test]
fn only_static_namespaces_have_generations_and_numbers_are_given_once() {
    let mut topology = static_cluster();
    let command = Command::ReserveGeneration {
        namespace: "default".into(),
        merge: false,
        at_ms: 0,
        digests: None,
    };
    let name = "default".to_owned();
    assert_eq!(
        topology.apply(command),
        Err(TopologyError::NotStatic { name })
    );
    let one = reserve(&mut topology);
    topology
        .apply(Command::DropGeneration { number: one })
        .unwrap();
    let two = reserve(&mut topology);
    assert_ne!(one, two);
    assert_eq!(
        attach(&mut topology, one),
        Err(TopologyError::UnknownGeneration { number: one })
    );
    let ballots: BTreeSet<Epoch> = topology.generations().map(|it| it.ballot.epoch).collect();
    assert_eq!(ballots.len(), 1);
    for _ in topology.generations().count()..MAX_GENERATIONS {
        reserve(&mut topology);
    }
    let command = Command::ReserveGeneration {
        namespace: NAME.into(),
        merge: false,
        at_ms: 0,
        digests: None,
    };
    let refused = topology.apply(command);
    assert_eq!(refused, Err(TopologyError::TooManyGenerations));
    let bytes = serde_json::to_vec(&topology).unwrap();
    assert_eq!(
        serde_json::from_slice::<Topology>(&bytes).unwrap(),
        topology
    );
}

#[test]
fn a_member_that_takes_over_a_lost_partition_is_not_ready_until_it_says_so() {
    let mut topology = static_cluster_of(1, 2);
    let number = reserve(&mut topology);
    let content = GenerationContent {
        arcs: Arcs::of(topology.partitions(), topology.partitions().iter()),
        ..content(&topology, 1)
    };
    let attach = Command::AttachGeneration { number, content };
    topology.apply(attach).unwrap();
    let (lost, left) = (NodeId(1), NodeId(2));
    hold_on(&mut topology, &[1, 2], number);
    topology.apply(write_off(lost)).unwrap();
    let late = holds(&topology, left, number);
    let ready = |topology: &Topology| topology.generation(number).unwrap().ready.clone();
    assert!(ready(&topology).contains(&left), "it has lost nothing");
    begin(&mut topology, TransitionKind::Leave(lost), 100);
    assert!(topology.transition().is_none(), "nothing is left to copy");
    assert!(!ready(&topology).contains(&left));
    // It held all that it had to when it sent this.
    topology.apply(late).unwrap();
    let waiting = vec![left];
    assert_eq!(
        promote(&mut topology, number),
        Err(TopologyError::NotReady { number, waiting })
    );
    hold_on(&mut topology, &[2], number);
    promote(&mut topology, number).unwrap();
}

#[test]
fn a_switch_does_not_wait_for_a_member_that_was_removed() {
    let mut topology = static_cluster();
    let number = reserve(&mut topology);
    attach(&mut topology, number).unwrap();
    hold(&mut topology, number);
    promote(&mut topology, number).unwrap();
    let epoch = topology.epoch();
    for node in [1, 2].map(NodeId) {
        topology.apply(Command::Adopted { node, epoch }).unwrap();
    }
    let leave = Proposal {
        force: true,
        ..proposal(&topology, TransitionKind::Leave(NodeId(3)), 100)
    };
    topology.apply(Command::Begin(leave)).unwrap();
    run_to_end(&mut topology, &[]);
    assert!(topology.stored.switches.is_empty());
}

/// A generation that is restored without its keys has the digests that it had.
#[test]
fn restored_digests_are_routed_while_the_generation_is_current() {
    let mut topology = static_cluster();
    let key = DigestKey([9; 32]);
    let digests = |number| GenerationDigests {
        key,
        id: NamespaceId::generation(Layer::BASE, number),
    };
    let reserve_with = |topology: &mut Topology, digests| {
        topology.apply(Command::ReserveGeneration {
            namespace: NAME.into(),
            merge: false,
            at_ms: 5,
            digests: Some(digests),
        })
    };
    let outcome = reserve_with(&mut topology, digests(77));
    let Ok(Outcome::Reserved { number }) = outcome else {
        panic!("{outcome:?}");
    };
    attach(&mut topology, number).unwrap();
    hold(&mut topology, number);
    assert!(topology.routing().restored.is_empty());
    promote(&mut topology, number).unwrap();
    let (id, table) = (routed(&topology), topology.routing());
    assert_eq!(table.restored, BTreeMap::from([(id, digests(77))]));
    let wanted = Digest::with(&key, digests(77).id, b"a");
    assert_eq!(table.digest(id, b"a"), wanted);
    let others = NamespaceId::DEFAULT;
    let plain = Digest::of(&table.digest_key, others, b"a");
    assert_eq!(table.digest(others, b"a"), plain);
    let bytes = serde_json::to_vec(&topology).unwrap();
    let read: Topology = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(read, topology);

    // By equal digests, members could not tell them apart.
    let refused = reserve_with(&mut topology, digests(77));
    assert_eq!(refused, Err(TopologyError::SameDigests { number }));
    all_hear(&mut topology);
    let newer = promoted(&mut topology);
    assert!(topology.routing().restored.is_empty());
    let derived = topology.routing().digests_of(routed(&topology));
    let refused = reserve_with(&mut topology, derived);
    assert_eq!(refused, Err(TopologyError::SameDigests { number: newer }));
    topology.apply(Command::DropGeneration { number }).unwrap();
    reserve_with(&mut topology, digests(77)).unwrap();
    reserve_with(&mut topology, digests(78)).unwrap();
}
