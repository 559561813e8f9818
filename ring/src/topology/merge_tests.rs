//! Merges: what a reservation does to epochs, whom it waits for, and what ends it.

use std::collections::BTreeSet;

use torc_record::{Epoch, Layer};

use super::replica_tests::{enrol, founded, proposal};
use super::*;

fn create(topology: &mut Topology, name: &str, mode: NamespaceMode) {
    let new = NewNamespace {
        name: name.into(),
        mode,
        replicas: None,
    };
    topology.apply(Command::CreateNamespace(new)).unwrap();
}

fn reserve(topology: &mut Topology, namespace: &str) -> Result<u32, TopologyError> {
    let namespace = namespace.into();
    let command = Command::ReserveGeneration {
        namespace,
        merge: true,
        at_ms: 5,
        digests: None,
    };
    match topology.apply(command)? {
        Outcome::Reserved { number } => Ok(number),
        other => panic!("{other:?}"),
    }
}

fn raise(topology: &mut Topology, above: u64) -> Result<Outcome, TopologyError> {
    let namespace = "default".into();
    let above = Epoch(above);
    topology.apply(Command::RaiseEpoch { namespace, above })
}

/// The epochs of all partitions, and whether merges are open in them.
fn epochs(topology: &Topology) -> BTreeSet<(Epoch, bool)> {
    let configs = topology.partitions_in_use().map(|p| topology.config(p));
    let configs = configs.map(|config| config.unwrap());
    configs.map(|it| (it.epoch, it.merging)).collect()
}

fn begin_join(topology: &mut Topology) {
    let node = enrol(topology, 4);
    let proposal = proposal(topology, TransitionKind::Join(node), 1);
    topology.apply(Command::Begin(proposal)).unwrap();
}

#[test]
fn a_reservation_is_above_all_earlier_ballots_and_waits_for_every_member() {
    let mut topology = founded(3, 3, 1);
    let before = topology.epoch();
    let number = reserve(&mut topology, "default").unwrap();
    let merge = topology.generation(number).unwrap().clone();
    let epoch = merge.ballot.epoch;
    assert!(epoch > before);
    assert_eq!(epochs(&topology), BTreeSet::from([(epoch, true)]));
    assert_eq!(merge.state, GenerationState::Merging);
    assert_eq!(topology.unconfirmed("default").len(), 3);
    for node in [1, 2, 3].map(NodeId) {
        assert!(topology.must_tell(node, epoch), "{node}");
        topology.apply(Command::Adopted { node, epoch }).unwrap();
    }
    assert!(topology.unconfirmed("default").is_empty());
    let stored = serde_json::to_string(&topology).unwrap();
    let restored: Topology = serde_json::from_str(&stored).unwrap();
    assert_eq!(restored, topology);
}

#[test]
fn partitions_collect_again_after_the_last_merge_of_their_layer() {
    let mut topology = founded(3, 3, 1);
    create(&mut topology, "other", NamespaceMode::Linearizable);
    let first = reserve(&mut topology, "default").unwrap();
    let second = reserve(&mut topology, "other").unwrap();
    let ballot = |topology: &Topology, number| topology.generation(number).unwrap().ballot;
    assert!(ballot(&topology, first) < ballot(&topology, second));
    let drop_one = Command::DropGeneration { number: first };
    topology.apply(drop_one).unwrap();
    assert!(topology.is_merging(Layer::BASE));
    assert!(epochs(&topology).iter().all(|(_, merging)| *merging));
    // Dropping the namespace ends its merge.
    let name = "other".into();
    topology.apply(Command::DropNamespace { name }).unwrap();
    assert!(!topology.is_merging(Layer::BASE));
    assert!(epochs(&topology).iter().all(|(_, merging)| !merging));
}

#[test]
fn nothing_is_reserved_or_raised_while_partitions_move_but_a_merge_may_end() {
    let mut topology = founded(3, 3, 1);
    let number = reserve(&mut topology, "default").unwrap();
    begin_join(&mut topology);
    let busy = |result: Result<_, TopologyError>| {
        assert!(matches!(result, Err(TopologyError::Busy { .. })));
    };
    busy(reserve(&mut topology, "default").map(drop));
    let far = topology.epoch().0 + 7;
    busy(raise(&mut topology, far).map(drop));
    topology.apply(Command::DropGeneration { number }).unwrap();
    let moving = topology.partitions_in_use().filter(|partition| {
        let config = topology.config(*partition).unwrap();
        assert_eq!(config.merging, config.stage != Stage::Stable);
        config.merging
    });
    let moving: Vec<_> = moving.collect();
    assert!(!moving.is_empty());
    let (transition, at_ms) = (topology.transition().unwrap().id, 0);
    topology
        .apply(Command::Abort { transition, at_ms })
        .unwrap();
    assert!(epochs(&topology).iter().all(|(_, merging)| !merging));
}

#[test]
fn only_linearizable_namespaces_take_merges_and_a_merge_has_no_content() {
    let mut topology = founded(3, 3, 1);
    create(&mut topology, "recent", NamespaceMode::Eventual);
    let refused = reserve(&mut topology, "recent");
    assert!(matches!(
        refused,
        Err(TopologyError::NotLinearizable { .. })
    ));
    let refused = reserve(&mut topology, "nothing");
    assert!(matches!(
        refused,
        Err(TopologyError::UnknownNamespace { .. })
    ));
    let number = reserve(&mut topology, "default").unwrap();
    let content = GenerationContent {
        manifest: [1; 32],
        source: "file:///built".into(),
        records: 1,
        bytes: 1,
        arcs: Arcs::of(topology.partitions(), [Partition(0)]),
        shape: GenerationShape::Values,
    };
    let commands = [
        Command::AttachGeneration { number, content },
        Command::PromoteGeneration { number },
    ];
    for command in commands {
        let refused = topology.apply(command);
        assert_eq!(refused, Err(TopologyError::IsMerge { number }));
    }
    assert!(
        topology.routing().generations.is_empty(),
        "nodes hold no slice of it"
    );
}

#[test]
fn a_raised_epoch_is_above_the_given_one_and_raised_once() {
    let mut topology = founded(3, 3, 1);
    raise(&mut topology, 1_000).unwrap();
    assert_eq!(epochs(&topology), BTreeSet::from([(Epoch(1_001), false)]));
    assert_eq!(topology.unconfirmed("default").len(), 3);
    let once = topology.clone();
    raise(&mut topology, 1_000).unwrap();
    raise(&mut topology, 3).unwrap();
    assert_eq!(topology, once);
    let refused = raise(&mut topology, u64::MAX);
    assert!(matches!(refused, Err(TopologyError::Setting { .. })));
    assert_eq!(topology, once);
}

/// The second restore went on although the first one had raised the epoch without its members.
#[test]
fn whoever_finds_the_epoch_raised_waits_for_every_member_too() {
    let mut topology = founded(3, 3, 1);
    create(&mut topology, "other", NamespaceMode::Linearizable);
    raise(&mut topology, 1_000).unwrap();
    let raised = epochs(&topology);
    let (namespace, above) = ("other".into(), Epoch(1_000));
    let other = Command::RaiseEpoch { namespace, above };
    topology.apply(other.clone()).unwrap();
    assert_eq!(epochs(&topology), raised);
    assert_eq!(topology.unconfirmed("other").len(), 3);
    let once = topology.clone();
    topology.apply(other).unwrap();
    assert_eq!(topology, once, "it waits already");
    let epoch = topology.epoch();
    for node in [1, 2, 3].map(NodeId) {
        topology.apply(Command::Adopted { node, epoch }).unwrap();
    }
    assert!(topology.unconfirmed("other").is_empty() && topology.is_above("other", Epoch(1_000)));
}

/// A recovery could name an epoch that a lost raise had named before.
#[test]
fn a_recovery_is_above_every_raise_that_may_be_lost() {
    let recovered = |mut topology: Topology| {
        topology
            .recover(&BTreeSet::from([NodeId(2), NodeId(3)]), 0)
            .unwrap();
        topology.epoch()
    };
    let far = 5_000_000;
    let mut topology = founded(3, 3, 1);
    let survivor = recovered(topology.clone());
    raise(&mut topology, far).unwrap();
    assert!(topology.epoch() < survivor);
    assert!(!topology.is_above("default", Epoch(far)), "in steps");
    // The survivor has not heard of the first step, and another namespace hides nothing of that.
    create(&mut topology, "other", NamespaceMode::Linearizable);
    let hear = |topology: &mut Topology, nodes: &[u64]| {
        let epoch = topology.epoch();
        for node in nodes.iter().copied().map(NodeId) {
            topology.apply(Command::Adopted { node, epoch }).unwrap();
        }
    };
    hear(&mut topology, &[2, 3]);
    for namespace in ["default", "other", "default", "other"] {
        let (namespace, above) = (namespace.to_owned(), Epoch(far));
        let command = Command::RaiseEpoch { namespace, above };
        topology.apply(command).unwrap();
        hear(&mut topology, &[2, 3]);
        assert!(topology.epoch() < survivor, "{}", topology.epoch());
    }
    assert_eq!(topology.unconfirmed("other"), BTreeSet::from([NodeId(1)]));
    for _ in 0..10 {
        hear(&mut topology, &[1, 2, 3]);
        raise(&mut topology, far).unwrap();
    }
    assert!(topology.is_above("default", Epoch(far)));
}
