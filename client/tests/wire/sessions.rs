//! Operations on single keys share streams.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use tokio::sync::Semaphore;
use torc_client::ErrorKind;

use crate::SOON;
use crate::cluster::Cluster;
use crate::node::Trouble;

#[tokio::test]
async fn operations_of_a_node_share_one_session() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    for key in cluster.keys_of(0, 5) {
        client.put(key.clone(), "value").await.unwrap();
        client.get(key.clone()).await.unwrap();
        client.delete(key).await.unwrap();
    }
    let keys = cluster.keys_of(0, 20);
    for found in join_all(keys.into_iter().map(|key| client.get(key))).await {
        assert_eq!(found, Ok(None));
    }
    assert_eq!(cluster.seen("session"), 1);
    assert_eq!(cluster.seen("get"), 25);
}

#[tokio::test]
async fn more_than_a_session_is_filled_with_go_over_other_connections() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    let keys = cluster.keys_of(0, 200);
    for stored in join_all(keys.into_iter().map(|key| client.put(key, "value"))).await {
        stored.unwrap();
    }
    assert!(cluster.seen("session") > 1);
    assert_eq!(cluster.seen("put"), 200);
}

#[tokio::test]
async fn after_a_farewell_operations_come_on_another_session_and_none_is_lost() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    let key = cluster.key_of(0);
    client.put(key.clone(), "0").await.unwrap();
    assert_eq!(cluster.seen("session"), 1);
    cluster.nodes[0].farewell.notify_waiters();
    let mut puts = 1;
    while cluster.seen("session") == 1 {
        client.put(key.clone(), puts.to_string()).await.unwrap();
        puts += 1;
    }
    assert_eq!(cluster.seen("put"), puts, "each was sent once");
}

#[tokio::test]
async fn what_a_closing_node_has_not_read_is_carried_out_elsewhere_and_nothing_twice() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    let keys = cluster.keys_of(0, 6);
    let permits = Arc::new(Semaphore::new(0));
    let late = Trouble::Late(Arc::clone(&permits));
    cluster.nodes[0].trouble("put", late);
    let put = |key: &Bytes| {
        let (client, key) = (client.clone(), key.clone());
        tokio::spawn(async move { client.put(key, "value").await })
    };
    let read = put(&keys[0]);
    while cluster.nodes[0].seen("put") == 0 {
        tokio::task::yield_now().await;
    }
    cluster.nodes[0].closing.notify_waiters();
    let unread: Vec<_> = keys[1..].iter().map(put).collect();
    tokio::task::yield_now().await;
    permits.add_permits(1);
    read.await.unwrap().unwrap();
    for put in unread {
        put.await.unwrap().unwrap();
    }
    assert_eq!(cluster.seen("put"), 6, "each came once");
    assert_eq!(cluster.seen("forwarded"), 5, "by way of the other node");
}

#[tokio::test]
async fn a_stalled_operation_holds_up_no_other_of_its_session() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    let key = cluster.key_of(0);
    client.put(key.clone(), "value").await.unwrap();
    cluster.nodes[0].trouble("put", Trouble::Stall);
    let impatient = client.with_deadline(SOON);
    let stalled = impatient.put(key.clone(), "stalled");
    let others = async {
        for _ in 0..10 {
            client.get(key.clone()).await.unwrap();
        }
    };
    let (stalled, ()) = futures::join!(stalled, others);
    assert_eq!(stalled.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(cluster.seen("session"), 1);
}

#[tokio::test]
async fn an_operation_whose_caller_no_longer_waits_is_cancelled_once_it_was_sent() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    let key = cluster.key_of(0);
    client.put(key.clone(), "value").await.unwrap();
    assert_eq!(cluster.seen("cancel"), 0, "it was answered");
    let permits = Arc::new(Semaphore::new(0));
    cluster.nodes[0].trouble("put", Trouble::Late(Arc::clone(&permits)));
    let abandoned = tokio::spawn({
        let (client, key) = (client.clone(), key.clone());
        async move { client.put(key, "abandoned").await }
    });
    while cluster.seen("put") == 1 {
        tokio::task::yield_now().await;
    }
    abandoned.abort();
    while cluster.seen("cancel") == 0 {
        tokio::task::yield_now().await;
    }
    client.get(key).await.unwrap();
    assert_eq!(cluster.seen("cancel"), 1);
    assert_eq!(cluster.seen("session"), 1);
}
