//! Agreement, through crashes, restarts and silence.

use std::path::Path;
use std::time::Duration;

use torc_ring::NodeId;
use torc_ring::topology::{Command, Topology, TopologyError};

use super::cluster::{Cluster, TIMEOUT, options};
use crate::wire::{Answer, Ask, Question};
use crate::{GroupError, GroupOptions, GroupRole};

fn relocate(node: u8, address: &str) -> Command {
    Command::Relocate {
        node: NodeId(u64::from(node)),
        address: format!("client-{node}.invalid:1"),
        peer_address: address.to_owned(),
        http_address: String::new(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_founders_agree_and_all_vote() {
    let cluster = Cluster::founded(3).await;
    cluster.membership_becomes(&[1, 2, 3], &[]).await;
    assert_eq!(cluster.leader().await, 1);
    cluster
        .all_have("the founding", |t| t.members().len() == 3)
        .await;
    let first = cluster.group(1).topology();
    for number in [2, 3] {
        assert_eq!(
            cluster.group(number).topology(),
            first,
            "equal on node {number}"
        );
        assert_eq!(cluster.group(number).metrics().role, GroupRole::Follower);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_takes_over_when_the_leader_dies() {
    let mut cluster = Cluster::founded(3).await;
    cluster.grow().await;
    cluster.membership_becomes(&[1, 2, 3], &[]).await;
    let old = cluster.leader().await;
    cluster.crash(old);
    let survivor = if old == 2 { 3 } else { 2 };
    cluster.enrol(survivor, 4).await;
    let new = cluster.leader().await;
    assert_ne!(new, old);
    cluster
        .all_have("the member that was enrolled", |t| t.members().len() == 4)
        .await;
    cluster.restart(old).await;
    cluster
        .all_have("what it missed", |t| t.members().len() == 4)
        .await;
}

/// Such a command took up the log of every member, up to 8 MiB each, before the topology refused it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_no_topology_accepts_does_not_enter_the_log() {
    let cluster = Cluster::founded(3).await;
    cluster.membership_becomes(&[1, 2, 3], &[]).await;
    let leader = cluster.leader().await;
    let last = || cluster.group(leader).metrics().last_log_index.unwrap();
    let before = last();
    let refused = Command::DropNamespace {
        name: "x".repeat(1 << 20),
    };
    let ask = Ask::Commit(refused.clone());
    for number in [1, 2, 3] {
        let answer = cluster
            .group(number)
            .propose(refused.clone(), TIMEOUT)
            .await;
        let error = answer.unwrap_err();
        let is_refused = |it: &_| matches!(it, TopologyError::Setting { .. });
        assert!(
            matches!(&error, GroupError::Refused(it) if is_refused(it)),
            "{error}"
        );
        // A node of another build may send it anyway.
        let question = Question {
            ask: ask.clone(),
            within_ms: 60_000,
            hops: 1,
        };
        let answer = cluster.group(number).answer(question).await.unwrap();
        assert!(
            matches!(&answer, Answer::Applied(Err(it)) if is_refused(it)),
            "{answer:?}"
        );
    }
    // An election meanwhile would add one.
    assert!(last() < before + 6);
}

fn copy_files(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_of_the_leader_does_not_lead_on() {
    // Prevents another election before the node is back.
    let patient = GroupOptions {
        election_timeout_ms: (1_500, 3_000),
        ..options(Path::new(""))
    };
    let mut cluster = Cluster::of(3, patient).await;
    cluster.found(3).await.unwrap();
    cluster.membership_becomes(&[1, 2, 3], &[]).await;
    let old = cluster.leader().await;
    cluster.crash(old);
    let copy = tempfile::tempdir().unwrap();
    copy_files(cluster.dir(old), copy.path());
    cluster.restart(old).await;
    let other = if old == 2 { 3 } else { 2 };
    let command = Command::Relocate {
        node: NodeId(u64::from(other)),
        address: "client.invalid:1".to_owned(),
        peer_address: cluster.new_member(other).peer_address,
        http_address: "127.0.0.1:1".to_owned(),
    };
    cluster.propose(other, command).await;
    let is_told = |t: &Topology| {
        let members = t.members().values();
        let told = members.filter(|it| it.identity.http_address == "127.0.0.1:1");
        told.count() == 1
    };
    cluster.all_have("what was agreed", is_told).await;
    cluster.crash(old);
    copy_files(copy.path(), cluster.dir(old));
    cluster.restart(old).await;
    cluster
        .all_have("what was agreed after the copy", is_told)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_begins_with_the_topology_that_was_seen_before() {
    let mut cluster = Cluster::founded(3).await;
    cluster.membership_becomes(&[1, 2, 3], &[]).await;
    cluster.grow().await;
    cluster.enrol(2, 4).await;
    cluster
        .all_have("the member that was enrolled", |t| t.members().len() == 4)
        .await;
    let seen: Vec<_> = (1..=4)
        .map(|number| cluster.group(number).topology())
        .collect();
    for number in 1..=4 {
        cluster.crash(number);
    }
    for number in (1..=4).rev() {
        cluster.restart(number).await;
        let known = cluster.group(number).topology();
        assert_eq!(
            known,
            seen[usize::from(number) - 1],
            "node {number}, before any message"
        );
    }
    let address = cluster.new_member(4).peer_address;
    cluster.propose(3, relocate(4, &address)).await;
    assert_eq!(
        cluster.group(3).read_current(TIMEOUT).await.ok(),
        seen[0],
        "nothing was lost"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_proposes_and_reads_what_is_current() {
    let mut cluster = Cluster::founded(3).await;
    cluster.grow().await;
    cluster.grow().await;
    cluster.enrol(1, 4).await;
    cluster.membership_becomes(&[1, 2, 3], &[4]).await;
    cluster.all_have("itself", |t| t.members().len() == 4).await;
    let learner = cluster.group(4);
    assert!(!learner.is_leader());
    cluster.enrol(4, 5).await;
    for number in 1..=4 {
        let topology = cluster.group(number).read_current(TIMEOUT).await.unwrap();
        assert_eq!(
            topology.members().len(),
            5,
            "node {number} reads what node 4 wrote before"
        );
    }
    let nobody = Command::Retreat { node: NodeId(77) };
    assert!(learner.propose(nobody, TIMEOUT).await.is_ok());
    let refused = learner.propose(relocate(77, "127.0.0.1:1"), TIMEOUT).await;
    let unknown = TopologyError::UnknownNode { node: NodeId(77) };
    assert_eq!(
        refused,
        Err(GroupError::Refused(unknown)),
        "as the leader said it"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_nothing_is_promised() {
    let mut cluster = Cluster::founded(3).await;
    cluster.membership_becomes(&[1, 2, 3], &[]).await;
    let leader = cluster.leader().await;
    let followers: Vec<u8> = (1..=3).filter(|number| *number != leader).collect();
    for follower in &followers {
        cluster.crash(*follower);
    }
    let address = cluster.new_member(3).peer_address;
    let group = cluster.group(leader);
    let short = Duration::from_millis(300);
    let open = group.propose(relocate(3, &address), short).await;
    assert_eq!(
        open,
        Err(GroupError::Unavailable),
        "it is in the log, so it may happen yet"
    );
    let read = group.read_current(short).await;
    assert_eq!(
        read,
        Err(GroupError::NoLeader),
        "a read leaves nothing open"
    );
    cluster.crash(leader);
    cluster.restart(followers[0]).await;
    let alone = cluster
        .group(followers[0])
        .propose(relocate(3, &address), short)
        .await;
    let expected = [Err(GroupError::NoLeader), Err(GroupError::Unavailable)];
    assert!(expected.contains(&alone), "{alone:?}");
    cluster.restart(leader).await;
    cluster.propose(leader, relocate(3, &address)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_far_behind_catches_up_by_snapshot() {
    let often = GroupOptions {
        snapshot_every: 5,
        keep_entries: 0,
        ..options(Path::new(""))
    };
    let mut cluster = Cluster::of(4, often).await;
    cluster.found(3).await.unwrap();
    cluster.membership_becomes(&[1, 2, 3], &[]).await;
    cluster.crash(3);
    let address = cluster.new_member(2).peer_address;
    for round in 0..30 {
        let command = Command::Relocate {
            node: NodeId(2),
            address: "client.invalid:1".to_owned(),
            peer_address: address.clone(),
            http_address: format!("127.0.0.1:{round}"),
        };
        cluster.propose(2, command).await;
    }
    let cut = cluster
        .metrics_of(1, "a log that was cut off", |m| m.purged >= Some(20))
        .await;
    cluster.enrol(1, 4).await;
    cluster
        .metrics_of(4, "a snapshot", |m| m.snapshot >= cut.purged)
        .await;
    cluster.restart(3).await;
    cluster
        .metrics_of(3, "a snapshot", |m| m.snapshot >= cut.purged)
        .await;
    cluster
        .all_have("all members", |t| t.members().len() == 4)
        .await;
    let topology = cluster.group(1).read_current(TIMEOUT).await.ok();
    for number in [3, 4] {
        assert_eq!(
            cluster.group(number).read_current(TIMEOUT).await.ok(),
            topology
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_found_where_it_moved_to() {
    let mut cluster = Cluster::founded(3).await;
    cluster.membership_becomes(&[1, 2, 3], &[]).await;
    let follower = if cluster.leader().await == 2 { 3 } else { 2 };
    cluster.crash(follower);
    let address = cluster.move_away(follower).await;
    let moved = relocate(follower, &address);
    cluster.propose(follower, moved).await;
    let there = |t: &torc_ring::topology::Topology| {
        t.members()
            .values()
            .any(|member| member.identity.peer_address == address)
    };
    cluster.all_have("the new address", there).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_moved_finds_a_leader_that_it_never_heard_of() {
    let mut cluster = Cluster::founded(3).await;
    cluster.grow().await;
    cluster.enrol(1, 4).await;
    cluster.membership_becomes(&[1, 2, 3], &[4]).await;
    cluster
        .all_have("all members", |t| t.members().len() == 4)
        .await;
    cluster.crash(4);
    let known = cluster.leader().await;
    cluster.crash(known);
    assert_ne!(cluster.leader().await, known);
    let address = cluster.move_away(4).await;
    cluster.propose(4, relocate(4, &address)).await;
    cluster
        .all_have("the new address", |t| {
            t.members()[&NodeId(4)].identity.peer_address == address
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_stops_the_group_and_says_so() {
    let cluster = Cluster::founded(1).await;
    let group = cluster.group(1);
    assert_eq!(group.failed(), None);
    group.inner.store.close();
    let address = cluster.new_member(1).peer_address;
    let failed = group.propose(relocate(1, &address), TIMEOUT).await;
    assert!(
        matches!(failed, Err(GroupError::Failed { .. })),
        "{failed:?}"
    );
    assert!(
        group.failed().is_some_and(|why| why.contains("closed")),
        "{:?}",
        group.failed()
    );
}
