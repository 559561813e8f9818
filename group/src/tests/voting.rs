//! The choice of voters, as members join and leave and leaders change.

use std::path::Path;
use std::time::Duration;

use torc_ring::NodeId;
use torc_ring::topology::Command;

use super::cluster::{Cluster, TIMEOUT, options};
use crate::GroupOptions;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn voters_follow_the_members_from_one_to_six_and_back() {
    let mut cluster = Cluster::founded(1).await;
    for (number, voters) in (2..=6).zip([1, 3, 3, 5, 5]) {
        assert_eq!(cluster.grow().await, number);
        cluster.join(1, number).await;
        let members = usize::from(number);
        cluster
            .membership_is("an odd number of voters", |m| {
                m.voters.len() == voters && m.voters.len() + m.learners.len() == members
            })
            .await;
    }
    for (left, voters) in (1..=5).zip([5, 3, 3, 1, 1]) {
        let last = cluster.new_member(6).peer_address;
        cluster.leave(6, left).await;
        cluster
            .all_have("its departure", |t| {
                !t.members().contains_key(&NodeId(left.into()))
            })
            .await;
        cluster.stop(left).await;
        let members = 6 - usize::from(left);
        cluster
            .membership_is("an odd number of voters", |m| {
                m.voters.len() == voters && m.voters.len() + m.learners.len() == members
            })
            .await;
        assert_eq!(cluster.new_member(6).peer_address, last);
    }
    assert_eq!(cluster.group(6).voters(), [NodeId(6)].into());
    assert_eq!(
        cluster
            .group(6)
            .read_current(TIMEOUT)
            .await
            .unwrap()
            .members()
            .len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_finishes_what_the_last_one_began() {
    let mut cluster = Cluster::founded(3).await;
    cluster.membership_becomes(&[1, 2, 3], &[]).await;
    cluster.grow().await;
    cluster.grow().await;
    cluster.enrol(2, 4).await;
    let leader = cluster.leader().await;
    let through = if leader == 2 { 3 } else { 2 };
    cluster.crash(leader);
    cluster.enrol(through, 5).await;
    cluster
        .membership_is("both newcomers", |m| {
            [4, 5]
                .iter()
                .all(|node| m.learners.contains(&NodeId(*node)))
        })
        .await;
    cluster.restart(leader).await;
    cluster.membership_becomes(&[1, 2, 3], &[4, 5]).await;
    cluster
        .all_have("all members", |t| t.members().len() == 5)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_voters_is_finished_after_a_crash_in_its_midst() {
    let mut cluster = Cluster::founded(3).await;
    cluster
        .metrics_of(1, "a change of voters under way", |m| m.voters.len() == 3)
        .await;
    cluster.crash(1);
    cluster.restart(1).await;
    cluster.membership_becomes(&[1, 2, 3], &[]).await;
    let topology = cluster.group(2).read_current(TIMEOUT).await.unwrap();
    assert_eq!(topology.members().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_stays_away_gives_its_place_to_one_that_answers() {
    let soon = GroupOptions {
        voter_lost_after_ms: 500,
        ..options(Path::new(""))
    };
    let mut cluster = Cluster::of(4, soon).await;
    cluster.found(4).await.unwrap();
    cluster
        .membership_is("three voters", |m| {
            m.voters.len() == 3 && m.learners.len() == 1
        })
        .await;
    let voters = cluster.group(1).voters();
    let leader = cluster.leader().await;
    let lost = voters
        .iter()
        .map(|node| node.0 as u8)
        .find(|node| *node != leader)
        .unwrap();
    cluster.crash(lost);
    cluster
        .membership_is("another third voter", |m| {
            m.voters.len() == 3 && !m.voters.contains(&NodeId(lost.into()))
        })
        .await;
    cluster.restart(lost).await;
    let role = cluster.metrics_of(lost, "its new part", |m| {
        m.learners.contains(&NodeId(lost.into()))
    });
    role.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn voters_that_come_back_at_each_others_addresses_are_found() {
    let mut cluster = Cluster::founded(3).await;
    cluster.membership_becomes(&[1, 2, 3], &[]).await;
    let leader = cluster.leader().await;
    let others: Vec<u8> = (1..=3).filter(|number| *number != leader).collect();
    for number in &others {
        cluster.stop(*number).await;
    }
    // The others cannot be elected before they have this, and only what they say tells where they are.
    let member = Command::Enrol(cluster.new_member(leader));
    let alone = cluster
        .group(leader)
        .propose(member, Duration::from_millis(300))
        .await;
    assert!(alone.is_err(), "two of three voters are down");
    cluster.exchange((others[0], others[1])).await;
    cluster.leader().await;
    let topology = cluster.group(leader).read_current(TIMEOUT).await.unwrap();
    assert_eq!(topology.members().len(), 3);
}
