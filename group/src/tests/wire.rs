//! The gRPC service: which requests it serves and which it refuses.

use tonic::Request;
use torc_proto::v1::RaftMessage;
use torc_proto::v1::topology_group_client::TopologyGroupClient;
use torc_proto::{Fault, Reason};
use torc_ring::NodeId;
use torc_ring::topology::{Boot, ClusterId, Command};

use super::cluster::Cluster;
use super::fixture::founding;
use crate::raft::TypeConfig;
use crate::wire::{Answer, Ask, Envelope, Question, decode, encode};

/// Asks the node for a read index, in an envelope of this cluster and recipient.
async fn ask(
    cluster: &Cluster,
    number: u8,
    of: ClusterId,
    to: u64,
    hops: u8,
) -> Result<Answer, Fault> {
    let body = Question {
        ask: Ask::ReadIndex,
        within_ms: 60_000,
        hops,
    };
    let envelope = Envelope {
        cluster: of,
        to: NodeId(to),
        known: None,
        from: NodeId(9),
        boot: Boot::default(),
        at: String::new(),
        body,
    };
    let message = encode(&envelope).unwrap();
    send(cluster, number, message).await
}

async fn send(cluster: &Cluster, number: u8, message: RaftMessage) -> Result<Answer, Fault> {
    let address = cluster.new_member(number).peer_address;
    let mut client = TopologyGroupClient::connect(format!("http://{address}"))
        .await
        .unwrap();
    let answer = client.propose(Request::new(message)).await;
    Ok(decode(
        answer
            .map_err(|status| Fault::from_status(&status))?
            .get_ref(),
    )
    .unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_answers_only_what_is_meant_for_it() {
    let cluster = Cluster::of(2, super::cluster::options(std::path::Path::new(""))).await;
    let ours = founding(1).cluster;
    let early = ask(&cluster, 1, ours, 1, 0).await.unwrap_err();
    assert_eq!(
        early.reason,
        Reason::NotServing,
        "it is no member yet: {early}"
    );
    cluster.found(1).await.unwrap();
    let answer = ask(&cluster, 1, ours, 1, 0).await;
    assert!(
        matches!(answer, Ok(Answer::ReadIndex(Some(_)))),
        "{answer:?}"
    );
    let other_node = ask(&cluster, 1, ours, 2, 0).await.unwrap_err();
    assert_eq!(other_node.reason, Reason::NotServing, "{other_node}");
    let other_cluster = ask(&cluster, 1, ClusterId([7; 16]), 1, 0)
        .await
        .unwrap_err();
    assert_eq!(other_cluster.reason, Reason::NotServing, "{other_cluster}");
    let garbage = RaftMessage {
        json: b"garbage".to_vec().into(),
    };
    let garbage = send(&cluster, 1, garbage).await.unwrap_err();
    assert_eq!(garbage.reason, Reason::Invalid, "{garbage}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_handed_on_once_and_no_more() {
    let cluster = Cluster::founded(3).await;
    cluster.membership_becomes(&[1, 2, 3], &[]).await;
    let leader = cluster.leader().await;
    let follower = if leader == 2 { 3 } else { 2 };
    let ours = founding(1).cluster;
    let handed_on = ask(&cluster, follower, ours, follower.into(), 1).await;
    assert!(
        matches!(handed_on, Ok(Answer::ReadIndex(Some(_)))),
        "{handed_on:?}"
    );
    let stuck = ask(&cluster, follower, ours, follower.into(), 0).await;
    let expected = NodeId(leader.into());
    assert!(
        matches!(stuck, Ok(Answer::NotLeader(Some(node))) if node == expected),
        "{stuck:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_term_near_the_largest_ends_no_elections() {
    let mut cluster = Cluster::founded(3).await;
    cluster.membership_becomes(&[1, 2, 3], &[]).await;
    let leader = cluster.leader().await;
    let forger: u8 = if leader == 2 { 3 } else { 2 };
    for number in [1_u8, 2, 3] {
        let vote = openraft::Vote::new_committed(u64::MAX, u64::from(forger));
        let envelope = Envelope {
            cluster: founding(1).cluster,
            to: NodeId(number.into()),
            known: None,
            from: NodeId(forger.into()),
            boot: Boot::default(),
            at: String::new(),
            body: openraft::raft::AppendEntriesRequest::<TypeConfig> {
                vote,
                prev_log_id: None,
                entries: Vec::new(),
                leader_commit: None,
            },
        };
        let address = cluster.new_member(number).peer_address;
        let client = TopologyGroupClient::connect(format!("http://{address}"));
        let message = encode(&envelope).unwrap();
        let refused = client.await.unwrap().append_entries(message).await;
        let fault = Fault::from_status(&refused.unwrap_err());
        assert_eq!(fault.reason, Reason::Invalid, "{fault}");
    }
    cluster.crash(leader);
    let other = if leader == 1 { 2 } else { 1 };
    let command = Command::Relocate {
        node: NodeId(other.into()),
        address: "client.invalid:1".to_owned(),
        peer_address: cluster.new_member(other).peer_address,
        http_address: "127.0.0.1:1".to_owned(),
    };
    cluster.propose(other, command).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_speaks_in_another_nodes_name() {
    let cluster = Cluster::founded(3).await;
    cluster.membership_becomes(&[1, 2, 3], &[]).await;
    let leader = cluster.leader().await;
    let other: u8 = if leader == 2 { 3 } else { 2 };
    // The leader gets messages in its own name, from itself and from another node, and one in a third
    // node's name.
    for (from, in_the_name_of) in [(leader, leader), (other, leader), (other, 9)] {
        let envelope = Envelope {
            cluster: founding(1).cluster,
            to: NodeId(leader.into()),
            known: None,
            from: NodeId(from.into()),
            boot: Boot::default(),
            at: String::new(),
            body: openraft::raft::AppendEntriesRequest::<TypeConfig> {
                vote: openraft::Vote::new_committed(1 << 40, in_the_name_of.into()),
                prev_log_id: None,
                entries: Vec::new(),
                leader_commit: None,
            },
        };
        let address = cluster.new_member(leader).peer_address;
        let client = TopologyGroupClient::connect(format!("http://{address}"));
        let message = encode(&envelope).unwrap();
        let refused = client.await.unwrap().append_entries(message).await;
        let fault = Fault::from_status(&refused.unwrap_err());
        assert_eq!(fault.reason, Reason::Invalid, "{fault}");
    }
    assert_eq!(cluster.leader().await, leader, "nobody has heard it");
}
