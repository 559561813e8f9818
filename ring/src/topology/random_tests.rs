//! Any commands in any order: the rules hold after each, and all nodes agree.

use proptest::prelude::*;

use super::replica_tests::{HOLD, exclude, founded, member, proposal, report_all, write_off};
use super::*;
use crate::Weight;
use crate::replicas::Milestone;

/// One step of a random history.
#[derive(Debug, Clone)]
enum Step {
    Enrol(u8),
    Begin(u8, u16, bool),
    Exclude(u16),
    WriteOff(u16),
    Recover(u16),
    Abort,
    Retreat(u16),
    Report(u16, u16, u8),
    ReportAll(u16),
    Namespace(u8),
    Alter(u16, u8, u16),
    Merge(u16),
    EndMerge(u16),
    Raise(u16, u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (4_u8..12).prop_map(Step::Enrol),
        6 => (0_u8..8, any::<u16>(), any::<bool>()).prop_map(|(k, n, f)| Step::Begin(k, n, f)),
        2 => any::<u16>().prop_map(Step::Exclude),
        1 => any::<u16>().prop_map(Step::WriteOff),
        1 => any::<u16>().prop_map(Step::Recover),
        1 => Just(Step::Abort),
        1 => any::<u16>().prop_map(Step::Retreat),
        12 => (any::<u16>(), any::<u16>(), 0_u8..3).prop_map(|(p, n, f)| Step::Report(p, n, f)),
        20 => any::<u16>().prop_map(Step::ReportAll),
        1 => (0_u8..7).prop_map(Step::Namespace),
        3 => (any::<u16>(), 0_u8..7, 0_u16..16).prop_map(|(n, r, p)| Step::Alter(n, r, p)),
        2 => any::<u16>().prop_map(Step::Merge),
        2 => any::<u16>().prop_map(Step::EndMerge),
        1 => (any::<u16>(), 0_u64..2_000).prop_map(|(n, e)| Step::Raise(n, e)),
        1 => Just(Step::Restart),
    ]
}

fn nth<T: Copy>(of: &[T], which: u16) -> T {
    of[usize::from(which) % of.len()]
}

/// The command of a step on this topology, if it has one.
fn command_of(topology: &Topology, step: &Step, zones: u8) -> Vec<Command> {
    let nodes: Vec<_> = topology.members().keys().copied().collect();
    let in_state = |wanted, which| {
        let all = topology.members().iter();
        let fits: Vec<_> = all
            .filter(|(_, m)| m.state == wanted)
            .map(|(n, _)| *n)
            .collect();
        (!fits.is_empty()).then(|| nth(&fits, which))
    };
    let (joining, active) = (MemberState::Joining, MemberState::Active);
    let command = match *step {
        Step::Enrol(number) => Some(Command::Enrol(member(number, zones))),
        Step::Begin(kind, which, force) => {
            let kind = match kind {
                0..=2 => in_state(joining, which).map(TransitionKind::Join),
                3 => in_state(active, which).map(TransitionKind::Leave),
                4 => in_state(joining, which).map(TransitionKind::Leave),
                5 | 6 => in_state(active, which)
                    .zip(in_state(joining, which))
                    .map(|(old, new)| TransitionKind::Replace { old, new }),
                _ => in_state(active, which).map(|node| TransitionKind::Reweight {
                    node,
                    weight: Weight::new(50 + u32::from(which % 200)).unwrap(),
                }),
            };
            kind.map(|kind| {
                Command::Begin(Proposal {
                    force,
                    ..proposal(topology, kind, 1 + u32::from(which % 16))
                })
            })
        }
        Step::Exclude(which) => Some(exclude(nth(&nodes, which))),
        Step::WriteOff(which) => Some(write_off(nth(&nodes, which))),
        Step::Abort => topology.transition().map(|running| Command::Abort {
            transition: running.id,
            at_ms: 5,
        }),
        Step::Retreat(which) => Some(Command::Retreat {
            node: nth(&nodes, which),
        }),
        Step::Report(partition, which, reached_at) => {
            let reached: [fn(Epoch) -> Milestone; 3] = [
                Milestone::Adopted,
                Milestone::Copied,
                Milestone::Snapshotted,
            ];
            let in_use: Vec<_> = topology.partitions_in_use().collect();
            let at = in_use[usize::from(partition) % in_use.len()];
            let config = topology.config(at).unwrap();
            let reports = vec![Report::of(config, reached[usize::from(reached_at)], 4)];
            let node = nth(&nodes, which);
            Some(Command::Report { node, reports })
        }
        Step::Namespace(replicas) => Some(Command::CreateNamespace(NewNamespace {
            name: format!("of-{replicas}"),
            mode: NamespaceMode::Linearizable,
            replicas: Some(replicas),
        })),
        Step::Alter(which, replicas, parallel) => {
            let names = topology.stored.namespaces.keys();
            let names: Vec<&str> = names.map(String::as_str).collect();
            let kind = topology.alteration(nth(&names, which), replicas).unwrap();
            let proposal = proposal(topology, kind, 1 + u32::from(parallel));
            Some(Command::Begin(proposal))
        }
        Step::Merge(which) => {
            let names: Vec<&String> = topology.stored.namespaces.keys().collect();
            Some(Command::ReserveGeneration {
                namespace: nth(&names, which).clone(),
                merge: true,
                at_ms: 6,
                digests: None,
            })
        }
        Step::EndMerge(which) => {
            let open: Vec<u32> = topology.stored.generations.keys().copied().collect();
            let number = (!open.is_empty()).then(|| nth(&open, which));
            number.map(|number| Command::DropGeneration { number })
        }
        Step::Raise(which, above) => {
            let names: Vec<&String> = topology.stored.namespaces.keys().collect();
            Some(Command::RaiseEpoch {
                namespace: nth(&names, which).clone(),
                above: Epoch(above),
            })
        }
        Step::ReportAll(_) | Step::Recover(_) | Step::Restart => None,
    };
    command.into_iter().collect()
}

/// Whether `next` is one of the configurations that the rules allow after `config`.
fn is_legal(config: &Config, next: &Config, topology: &Topology) -> bool {
    let at = next.epoch;
    let to = topology.destination(next.partition);
    let in_dead = |node: &NodeId| {
        let in_move = topology.transition().is_some_and(|t| t.dead.contains(node));
        in_move || topology.written_off().contains(node)
    };
    let dead: Vec<_> = config
        .nodes(config.old)
        .filter(|node| in_dead(node) && !to.contains(node))
        .collect();
    let again = |stable: Config| stable.begin(at, &to, &dead).ok();
    let back = Epoch(at.0 - 1);
    let excluded: Vec<_> = next.nodes(next.excluded.without(config.excluded)).collect();
    let steps = [
        config.advance(at, HOLD).ok(),
        config.abort(at, HOLD).ok(),
        config.begin(at, &to, &dead).ok(),
        excluded
            .first()
            .and_then(|node| config.exclude(at, *node).ok()),
        config.abort(back, HOLD).ok().and_then(again),
        config.renew(at, next.merging).ok(),
    ];
    let layer = topology.partitions().layer(next.partition).unwrap();
    let mut steps = steps.into_iter().flatten();
    next.merging == topology.is_merging(layer)
        && steps.any(|step| {
            let merging = next.merging;
            Config { merging, ..step } == *next
        })
}

/// Whether every accept quorum of one epoch intersects every read quorum of the next, so that an
/// acknowledged write stays visible. Checks all votes.
fn quorums_meet(config: &Config, next: &Config) -> bool {
    let votes = |config: &Config, bits: u16, of: &Config| {
        let in_bits = |(i, _): &(usize, &crate::replicas::Member)| bits & (1 << i) != 0;
        let members = config.members.iter().enumerate().filter(in_bits);
        let indexes = members.filter_map(|(_, member)| of.index(member.node));
        indexes.fold(Votes::NONE, |set, index| set.union(Votes::one(index)))
    };
    let all = 0..1_u16 << config.members.len();
    let quorums = all.filter(|bits| config.may_accept(votes(config, *bits, config), HOLD));
    for bits in quorums {
        let accepted = votes(config, bits, next);
        let others = Votes::first(next.members.len()).without(accepted);
        if next.may_read(others, HOLD) {
            return false;
        }
    }
    true
}

fn check_stable(topology: &Topology) -> Result<(), TestCaseError> {
    let table = topology.routing();
    let ring_nodes = table.ring.nodes().len();
    for namespace in table.namespaces.values() {
        let replicas = table.layers.replicas(namespace.id.layer());
        prop_assert_eq!(namespace.replicas, replicas);
    }
    if let Some(last) = topology.last_transition()
        && let TransitionKind::Alter { layer, replicas } = last.kind
        && !last.aborted
    {
        prop_assert_eq!(table.layers.replicas(layer), replicas);
    }
    for partition in topology.partitions_in_use() {
        let state = topology.state(partition).unwrap();
        let layer = table.partitions.layer(partition).unwrap();
        let replicas = table.layers.replicas(layer);
        let readers: Vec<_> = state.config.nodes(state.config.readers()).collect();
        prop_assert!(readers.contains(&state.lead), "{state:?}");
        prop_assert!(state.config.check().is_ok());
        if topology.transition().is_none() {
            prop_assert_eq!(state.config.stage, Stage::Stable);
            let distinct: BTreeSet<_> = state.nodes.iter().collect();
            let whole = distinct.len() == ring_nodes.min(usize::from(replicas));
            prop_assert!(whole || !topology.written_off().is_empty());
            prop_assert_eq!(state.nodes.len(), distinct.len());
        }
    }
    Ok(())
}

/// Checks that each partition continues with a set that has all writes, or else with all of its
/// surviving readers, and with no new node unless none survived. Nodes that were excluded before do
/// not count.
fn check_write_off(
    (before, after): (&Topology, &Topology),
    node: NodeId,
) -> Result<(), TestCaseError> {
    let dead = before.written_off() | &BTreeSet::from([node]);
    for partition in after.partitions_in_use() {
        let (old, new) = (before.config(partition), after.config(partition));
        let (Some(old), Some(new)) = (old, new) else {
            continue;
        };
        let readers = |config: &Config| -> BTreeSet<_> { config.nodes(config.readers()).collect() };
        let excluded: BTreeSet<_> = old.nodes(old.excluded).collect();
        let left = &(&readers(old) - &dead) - &excluded;
        if !left.is_empty() && old != new {
            let acceptors: BTreeSet<_> = old.nodes(old.acceptors()).collect();
            prop_assert!(readers(new).is_subset(&acceptors), "{old:?} {new:?}");
            if old.loses_nothing_without(&dead) {
                prop_assert!(new.loses_nothing_without(&dead), "{old:?} {new:?}");
            } else {
                prop_assert!(readers(new).is_superset(&left), "{old:?} {new:?}");
            }
            prop_assert!(new.left_without(&dead).is_none(), "{new:?}");
        }
    }
    Ok(())
}

/// Checks that each partition with a surviving reader has its quorums and no new node, and that the
/// losses are as reported.
fn check_recovery(
    (before, after): (&Topology, &Topology),
    dead: &BTreeSet<NodeId>,
) -> Result<(), TestCaseError> {
    prop_assert!(after.epoch().0 >= before.epoch().0 + (1 << 20));
    prop_assert!(
        after
            .written_off()
            .is_superset(&(dead & &after.members().keys().copied().collect()))
    );
    let told: u32 = before.losses(dead).iter().map(|losses| losses.none).sum();
    let dead = before.written_off() | dead;
    let mut none = 0;
    for partition in before.partitions_in_use() {
        let (Some(old), Some(new)) = (before.config(partition), after.config(partition)) else {
            continue;
        };
        prop_assert!(new.epoch > before.epoch(), "{old:?} {new:?}");
        if old.left_without(&dead).is_some_and(|left| left.is_empty()) {
            none += 1;
        } else if old.left_without(before.written_off()).is_none() {
            prop_assert_eq!(new.left_without(&dead), None, "{:?} {:?}", old, new);
        }
    }
    prop_assert_eq!(told, none);
    Ok(())
}

fn check_step(before: &Topology, after: &Topology) -> Result<(), TestCaseError> {
    prop_assert!(before.epoch() <= after.epoch());
    let mut router_sees = false;
    for partition in after.partitions_in_use() {
        let new = after.state(partition).unwrap();
        let Some(old) = before.state(partition) else {
            prop_assert_eq!(new.config.epoch, after.epoch(), "its layer came now");
            continue;
        };
        prop_assert_eq!(
            old.config == new.config,
            old.config.epoch == new.config.epoch
        );
        prop_assert!(old.changed <= new.changed && new.changed <= after.epoch());
        let changed = !old.same_placement(&new) || old.config != new.config;
        prop_assert_eq!(changed, old.changed != new.changed, "{:?} {:?}", old, new);
        router_sees |= changed;
        if old.config != new.config {
            prop_assert!(new.config.epoch > before.epoch());
            // A node that leaves with the last move is no longer a member, and so is not written
            // off.
            let dead = before.written_off() | after.written_off();
            let left = old.config.left_without(&dead);
            let goes_on = left.is_some_and(|left| {
                let next = old.config.go_on_with(new.config.epoch, &left);
                left.is_empty() || next.ok().as_ref() == Some(&*new.config)
            });
            let legal = goes_on || is_legal(&old.config, &new.config, after);
            prop_assert!(legal, "{old:?} {new:?}");
            let meet = goes_on || quorums_meet(&old.config, &new.config);
            prop_assert!(meet, "{old:?} {new:?}");
        }
    }
    prop_assert!(!router_sees || before.epoch() < after.epoch());
    Ok(())
}

/// Checks that a transition ends when all members report except the written-off ones. While there
/// are such members, a transition that moves the ring may wait for data on its way to them, and any
/// transition may wait for a node that was excluded but not written off.
fn check_ends(mut topology: Topology) -> Result<(), TestCaseError> {
    let dead: Vec<_> = topology.written_off().iter().copied().collect();
    let running = topology.transition();
    let is_alteration = running.is_some_and(|it| it.kind.alters().is_some() && it.dead.is_empty());
    if !dead.is_empty() && !is_alteration {
        return Ok(());
    }
    for _ in 0..2_000 {
        if topology.transition().is_none() {
            return check_stable(&topology);
        }
        report_all(&mut topology, &dead);
    }
    prop_assert!(false, "it does not end: {:?}", topology.transition());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Any commands, in any order, with restarts from the stored form in between.
    #[test]
    fn random_commands_keep_the_rules(
        replicas in 1_u8..=5,
        nodes in 1_u8..=5,
        zones in 1_u8..=3,
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut topology = founded(replicas, nodes, zones);
        let mut other = topology.clone();
        for step in steps {
            if let Step::Restart = step {
                let json = serde_json::to_string(&topology).unwrap();
                let read = serde_json::from_str(&json);
                prop_assert!(read.is_ok(), "{:?}: {}", read, json);
                topology = read.unwrap();
                prop_assert_eq!(&topology, &other);
            }
            let before = topology.clone();
            if let Step::ReportAll(which) = step {
                let nodes: Vec<_> = topology.members().keys().copied().collect();
                let silent = if which % 3 == 0 { vec![nth(&nodes, which)] } else { vec![] };
                // Nodes report one at a time, so that each report is a command to check by itself.
                for node in nodes.iter().filter(|node| !silent.contains(node)) {
                    let quiet: Vec<_> = nodes.iter().filter(|n| *n != node).copied().collect();
                    let before = topology.clone();
                    report_all(&mut topology, &quiet);
                    report_all(&mut other, &quiet);
                    check_step(&before, &topology)?;
                }
            }
            if let Step::Recover(which) = step {
                let nodes = topology.members().keys();
                let dead = nodes.filter(|node| which >> (node.0 % 16) & 1 == 1).copied().collect();
                topology.recover(&dead, 6).unwrap();
                other.recover(&dead, 6).unwrap();
                check_recovery((&before, &topology), &dead)?;
            }
            for command in command_of(&before, &step, zones) {
                let written_off = match &command {
                    Command::WriteOff { node, .. } => Some(*node),
                    _ => None,
                };
                let outcome = topology.apply(command.clone());
                prop_assert_eq!(&outcome, &other.apply(command));
                if outcome.is_err() {
                    prop_assert_eq!(&before, &topology, "a refusal changes nothing");
                }
                if let Some(node) = written_off {
                    check_write_off((&before, &topology), node)?;
                } else {
                    check_step(&before, &topology)?;
                }
            }
            check_stable(&topology)?;
            prop_assert_eq!(&topology, &other, "the same commands, the same topology");
        }
        check_ends(topology)?;
    }
}
