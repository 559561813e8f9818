//! Which requests are retried, which never are, and what callers learn.

use std::time::Duration;

use torc_client::{Client, ErrorKind};
use torc_proto::{Fault, Reason};

use crate::SOON;
use crate::cluster::Cluster;
use crate::node::Trouble;

#[tokio::test]
async fn a_put_whose_answer_was_lost_is_sent_once_and_its_outcome_unknown() {
    for trouble in [Trouble::CutBefore, Trouble::CutAfter] {
        let cluster = Cluster::formed(1).await;
        let client = cluster.client().await;
        cluster.nodes[0].trouble("put", trouble.clone());
        let error = client.put("key", "value").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{trouble:?}");
        assert!(error.maybe_applied() && !error.is_retryable());
        assert_eq!(cluster.seen("put"), 1, "{trouble:?}");
        let stored = client.get("key").await.unwrap().is_some();
        assert_eq!(stored, matches!(trouble, Trouble::CutAfter));
    }
}

/// A topology request is not the operation: its failure leaves no write in doubt.
#[tokio::test]
async fn a_put_is_sent_although_the_topology_was_asked_for_in_vain() {
    let cluster = Cluster::formed(1).await;
    let client = Client::builder()
        .endpoints([cluster.endpoint(0)])
        .connect_lazy()
        .unwrap();
    cluster.nodes[0].trouble("topology", Trouble::Stall);
    client.put("key", "value").await.unwrap();
    assert_eq!(cluster.seen("put"), 1);
}

#[tokio::test]
async fn a_delete_whose_answer_was_lost_is_sent_once() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    cluster.nodes[0].trouble("delete", Trouble::CutAfter);
    let error = client.delete("key").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(cluster.seen("delete"), 1);
}

#[tokio::test]
async fn a_put_that_the_node_says_is_in_doubt_is_sent_once() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    let in_doubt = Trouble::Fault(Fault::unknown("a replica did not answer"));
    cluster.nodes[0].trouble("put", in_doubt);
    let error = client.put("key", "value").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(cluster.seen("put"), 1);
}

#[tokio::test]
async fn a_get_whose_answer_was_lost_is_sent_again() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    client.put("key", "value").await.unwrap();
    for trouble in [
        Trouble::CutBefore,
        Trouble::CutAfter,
        Trouble::Fault(Fault::unknown("lost")),
    ] {
        let before = cluster.seen("get");
        cluster.nodes[0].trouble("get", trouble.clone());
        let value = client.get("key").await.unwrap().unwrap();
        assert_eq!(value.value, "value");
        assert_eq!(cluster.seen("get"), before + 2, "{trouble:?}");
    }
}

#[tokio::test]
async fn a_put_that_was_refused_for_now_is_sent_again() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    let overloaded = Fault::new(Reason::Overloaded, "slow down");
    let advice = Duration::from_millis(1);
    let refusals = [
        overloaded.clone(),
        overloaded.retry_after(advice),
        Fault::new(Reason::NotServing, "starting"),
        Fault::new(Reason::NoTopologyLeader, "electing"),
    ];
    for fault in refusals {
        cluster.nodes[0].trouble("put", Trouble::Fault(fault));
    }
    client.put("key", "value").await.unwrap();
    assert_eq!(cluster.seen("put"), 5);
}

#[tokio::test]
async fn a_put_that_a_full_node_refuses_goes_to_another_one() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    let full = Fault::new(Reason::OutOfSpace, "the disk is full");
    for key in cluster.keys_of(0, 2) {
        cluster.nodes[0].trouble("put", Trouble::Fault(full.clone()));
        let before = cluster.nodes[1].seen("put");
        client.put(key, "value").await.unwrap();
        assert_eq!(cluster.nodes[1].seen("put"), before + 1);
    }
}

#[tokio::test]
async fn a_cluster_without_space_is_told_as_such() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await.with_deadline(SOON);
    for _ in 0..200 {
        let full = Fault::new(Reason::OutOfSpace, "the disk is full");
        cluster.nodes[0].trouble("put", Trouble::Fault(full));
    }
    let error = client.put("key", "value").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
    assert!(!error.maybe_applied());
    assert!(error.message().contains("the disk is full"), "{error}");
}

#[tokio::test]
async fn a_put_that_will_never_succeed_is_sent_once() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    for (reason, kind) in [
        (Reason::Invalid, ErrorKind::Invalid),
        (Reason::Refused, ErrorKind::Refused),
        (Reason::Internal, ErrorKind::Internal),
        (Reason::Corrupt, ErrorKind::Corrupt),
    ] {
        let before = cluster.seen("put");
        let fault = Trouble::Fault(Fault::new(reason, "no"));
        cluster.nodes[0].trouble("put", fault);
        let error = client.put("key", "value").await.unwrap_err();
        assert_eq!((error.kind(), error.maybe_applied()), (kind, false));
        assert_eq!(cluster.seen("put"), before + 1, "{reason:?}");
    }
}

#[tokio::test]
async fn refusals_that_last_end_with_the_refusal_not_with_the_deadline() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await.with_deadline(SOON);
    let fault = Fault::new(Reason::Overloaded, "slow down");
    for _ in 0..200 {
        cluster.nodes[0].trouble("get", Trouble::Fault(fault.clone()));
    }
    let error = client.get("key").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert!(error.message().contains("slow down"), "{error}");
    assert!(cluster.seen("get") > 1);
}

#[tokio::test]
async fn an_advice_to_wait_beyond_the_deadline_ends_the_operation_at_once() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    let fault = Fault::new(Reason::Overloaded, "slow down");
    let advice = Duration::from_secs(3_600);
    cluster.nodes[0].trouble("get", Trouble::Fault(fault.retry_after(advice)));
    let error = client.get("key").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert_eq!(error.retry_after(), Some(advice));
    assert_eq!(cluster.seen("get"), 1);
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_waited_for_until_the_deadline() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await.with_deadline(SOON);
    for _ in 0..100 {
        cluster.nodes[0].trouble("get", Trouble::Stall);
    }
    let error = client.get("key").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadline);
    assert!(!error.maybe_applied());

    cluster.nodes[0].trouble("put", Trouble::Stall);
    let error = client.put("key", "value").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "it was sent");
    assert_eq!(cluster.seen("put"), 1);
}

/// The kernel of a stopped process still accepts connections.
#[tokio::test]
async fn a_put_that_no_connection_took_goes_to_another_node() {
    let cluster = Cluster::formed(2).await;
    let builder = Client::builder().endpoints([cluster.endpoint(1)]);
    let client = builder.connect().await.unwrap();
    cluster.nodes[0].proxy.hold();
    let client = client.with_deadline(2 * SOON);
    client.put(cluster.key_of(0), "value").await.unwrap();
    assert_eq!(cluster.seen("forwarded"), 1);
}

#[tokio::test]
async fn a_put_that_no_connection_took_in_time_changed_nothing_and_is_never_sent() {
    let cluster = Cluster::formed(2).await;
    let builder = Client::builder().endpoints([cluster.endpoint(1)]);
    let client = builder.connect().await.unwrap();
    cluster.nodes[0].proxy.hold();
    for _ in 0..200 {
        let stopping = Fault::new(Reason::NotServing, "stopping");
        cluster.nodes[1].trouble("put", Trouble::Fault(stopping));
    }
    let key = cluster.key_of(0);
    let hurried = client.with_deadline(SOON);
    let error = hurried.put(key.clone(), "late").await.unwrap_err();
    assert!(!error.maybe_applied(), "{error}");
    cluster.nodes[0].proxy.release();
    assert_eq!(client.get(key).await.unwrap(), None);
    assert_eq!(cluster.nodes[0].seen("put"), 0);
}

#[tokio::test]
async fn an_operation_that_is_dropped_leaves_the_client_in_order() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    cluster.nodes[0].trouble("put", Trouble::Stall);
    let seen = async {
        while cluster.seen("put") == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        outcome = client.put("key", "value") => panic!("{outcome:?}"),
        () = seen => {}
    }
    client.put("key", "another").await.unwrap();
    assert_eq!(client.get("key").await.unwrap().unwrap().value, "another");
}

#[tokio::test]
async fn operations_are_futures_that_may_move_between_threads() {
    fn sendable<T: Send>(value: T) -> T {
        value
    }
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    sendable(client.put("key", "value")).await.unwrap();
    sendable(client.get("key")).await.unwrap();
    sendable(client.delete("key")).await.unwrap();
    sendable(client.batch_get(["key"])).await.unwrap();
    sendable(client.batch_put([("key", "value")]))
        .await
        .unwrap();
    sendable(client.status()).await.unwrap();
    drop(sendable(client.scan(torc_client::ScanOptions::default())));
}
