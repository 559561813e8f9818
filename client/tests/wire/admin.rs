//! Operations on the cluster.

use torc_client::{AlterOptions, ChangeKind, Client, ErrorKind, GoOptions, NamespaceMode, NodeId};
use torc_proto::{Fault, Reason};

use crate::SOON;
use crate::cluster::Cluster;
use crate::node::Trouble;
use crate::proxy::Proxy;

#[tokio::test]
async fn any_node_tells_the_status_and_the_first_endpoint_is_asked_first() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    let status = client.status().await.unwrap();
    assert_eq!(status.answered_by, NodeId(1));
    assert_eq!(status.cluster_id, cluster.table().cluster);

    cluster.nodes[0].proxy.close().await;
    let status = client.status().await.unwrap();
    assert_eq!(status.answered_by, NodeId(2), "a member takes over");
}

#[tokio::test]
async fn a_silent_node_does_not_take_the_whole_time_of_a_question_to_any_node() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await.with_deadline(3 * SOON);
    cluster.nodes[0].trouble("status", Trouble::Stall);
    let status = client.status().await.unwrap();
    assert_eq!(status.answered_by, NodeId(2));
}

/// What a caller may spawn on a runtime of any kind.
fn can_be_spawned<F: Future + Send>(future: F) {
    drop(future);
}

#[tokio::test]
async fn calls_can_be_spawned() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    can_be_spawned(client.status());
    can_be_spawned(client.flush(None));
    can_be_spawned(client.join("127.0.0.1:1", None));
    can_be_spawned(client.drop_namespace("n"));
    can_be_spawned(client.tokens());
    can_be_spawned(client.get("k"));
    can_be_spawned(client.batch_get(["k"]));
}

#[tokio::test]
async fn a_node_that_belongs_to_no_cluster_is_passed_over() {
    let (lonely, cluster) = (Cluster::unformed(1).await, Cluster::formed(1).await);
    let endpoints = [lonely.endpoint(0), cluster.endpoint(0)];
    let client = Client::builder()
        .endpoints(endpoints)
        .connect_lazy()
        .unwrap();
    assert_eq!(
        client.status().await.unwrap().cluster_id,
        cluster.table().cluster
    );
    assert_eq!(lonely.seen("status"), 1);
}

#[tokio::test]
async fn an_explanation_names_digest_partition_and_lead() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    let key = cluster.key_of(1);
    let explanation = client.explain(key.clone()).await.unwrap();
    assert_eq!(explanation.partition, cluster.partition_of(&key));
    assert_eq!(explanation.lead, NodeId(2));
    assert_eq!(explanation.token.0, explanation.digest.high());
}

#[tokio::test]
async fn a_join_is_planned_and_then_committed() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    let plan = client.plan_join("10.0.0.9:7400").await.unwrap();
    assert_eq!((plan.kind, plan.node), (ChangeKind::Join, None));
    assert_eq!(
        (&plan.address[..], plan.partitions_moved),
        ("10.0.0.9:7400", 3)
    );
    let change = client.join("10.0.0.9:7400", Some(4)).await.unwrap();
    assert_eq!((change.plan, change.transition), (plan, Some(7)));
}

#[tokio::test]
async fn a_join_whose_answer_was_lost_is_asked_for_again() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    cluster.nodes[0].trouble("join", Trouble::CutAfter);
    let change = client.join("10.0.0.9:7400", None).await.unwrap();
    assert_eq!(change.transition, Some(7));
    assert_eq!(cluster.seen("join"), 2);
}

#[tokio::test]
async fn a_leave_whose_answer_was_lost_is_not_asked_for_again() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    cluster.nodes[0].trouble("leave", Trouble::CutAfter);
    let error = client.leave(NodeId(1), None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(cluster.seen("leave"), 1);
    assert_eq!(
        client.leave(NodeId(1), None).await.unwrap().transition,
        Some(8)
    );
}

#[tokio::test]
async fn a_change_that_is_refused_says_so_once() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    let busy = Fault::new(Reason::Refused, "a transition is running");
    cluster.nodes[0].trouble("join", Trouble::Fault(busy));
    let error = client.join("10.0.0.9:7400", None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    let error = client.plan_leave(NodeId(99)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSuchNode);
    assert_eq!((cluster.seen("join"), cluster.seen("leave")), (1, 1));
}

#[tokio::test]
async fn a_group_without_a_leader_is_asked_again_through_another_node() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    let electing = Fault::new(Reason::NoTopologyLeader, "electing");
    cluster.nodes[0].trouble("join", Trouble::Fault(electing));
    client.join("10.0.0.9:7400", None).await.unwrap();
    let seen = cluster.nodes.iter().map(|node| node.seen("join"));
    assert_eq!(seen.collect::<Vec<_>>(), [1, 1]);
}

#[tokio::test]
async fn a_client_that_never_connected_can_still_ask() {
    let proxy = Proxy::closed("127.0.0.1:1".parse().unwrap());
    let cluster = Cluster::formed(1).await;
    let endpoints = [proxy.address.to_string(), cluster.endpoint(0)];
    let client = Client::builder()
        .endpoints(endpoints)
        .connect_lazy()
        .unwrap();
    assert!(client.known_topology().is_none());
    assert_eq!(client.status().await.unwrap().answered_by, NodeId(1));
}

const METHODS: [&str; 5] = [
    "replace",
    "reweight",
    "alter_namespace",
    "abort",
    "create_namespace",
];

#[tokio::test]
async fn changes_that_may_be_asked_for_again_are_asked_again_when_the_answer_was_lost() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    for method in METHODS {
        cluster.nodes[0].trouble(method, Trouble::Fault(Fault::unknown("lost")));
    }
    let options = GoOptions::default();
    let change = client.replace(NodeId(1), "10.0.0.9:7400", options).await;
    let change = change.unwrap();
    assert_eq!(
        (change.transition, change.plan.replaced),
        (Some(9), Some(NodeId(1)))
    );
    let change = client.reweight(NodeId(2), 150, None).await.unwrap();
    assert_eq!(change.transition, Some(10));
    let options = AlterOptions::default();
    let change = client.alter_namespace("urls", 3, options).await.unwrap();
    assert_eq!((change.transition, change.plan.node), (Some(11), None));
    assert_eq!(change.plan.replicas_after, Some(3));
    let back = client.abort(9).await.unwrap();
    assert_eq!((back.id, back.aborted), (9, true));
    let linearizable = NamespaceMode::Linearizable;
    let created = client.create_namespace("urls", linearizable, None).await;
    assert_eq!(created.unwrap().mode, linearizable);
    for method in METHODS {
        let seen: usize = cluster.nodes.iter().map(|node| node.seen(method)).sum();
        assert_eq!(seen, 2, "{method}");
    }
    let plan = client.plan_reweight(NodeId(2), 150).await.unwrap();
    assert_eq!(plan.kind, ChangeKind::Reweight);
    let namespaces = client.namespaces().await.unwrap();
    assert_eq!(namespaces[0].name, "default");
}
