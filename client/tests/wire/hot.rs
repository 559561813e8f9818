//! Gets of hot keys share requests, and none returns an older value because of that.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use futures::{FutureExt as _, poll};
use tokio::sync::Semaphore;
use torc_client::{Client, ErrorKind};

use crate::SOON;
use crate::cluster::Cluster;
use crate::node::Trouble;

/// A cluster, a client that has learned that a key is hot, and this key with a value.
async fn hot() -> (Cluster, Client, Bytes) {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    let key = cluster.key_of(1);
    cluster.nodes[1].set_hot();
    client.put(key.clone(), "old").await.unwrap();
    client.get(key.clone()).await.unwrap();
    assert_eq!(client.hot_gets().hints, 1);
    (cluster, client, key)
}

/// Waits until this many gets have arrived at the node that leads the key.
async fn arrived(cluster: &Cluster, gets: usize) {
    while cluster.nodes[1].seen("get") < gets {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_write_acknowledged_before_a_get_began_is_seen_though_an_older_get_is_under_way() {
    let (cluster, client, key) = hot().await;
    let permits = Arc::new(Semaphore::new(0));
    cluster.nodes[1].trouble("get", Trouble::Late(Arc::clone(&permits)));
    let first = tokio::spawn({
        let (client, key) = (client.clone(), key.clone());
        async move { client.get(key).await }
    });
    arrived(&cluster, 2).await;
    client.put(key.clone(), "new").await.unwrap();
    let mut later: Vec<_> = (0..5).map(|_| client.get(key.clone()).boxed()).collect();
    for get in &mut later {
        assert!(poll!(get).is_pending(), "it waits for the next request");
    }
    permits.add_permits(1);
    assert_eq!(first.await.unwrap().unwrap().unwrap().value, "old");
    for value in join_all(later).await {
        assert_eq!(value.unwrap().unwrap().value, "new");
    }
    assert_eq!(
        cluster.nodes[1].seen("get"),
        3,
        "the five that waited shared one request"
    );
    assert_eq!(client.hot_gets().coalesced, 4);
}

#[tokio::test]
async fn gets_that_wait_for_one_that_is_not_answered_end_by_their_own_deadlines() {
    let (cluster, client, key) = hot().await;
    let permits = Arc::new(Semaphore::new(0));
    for node in &cluster.nodes {
        for _ in 0..100 {
            node.trouble("get", Trouble::Late(Arc::clone(&permits)));
        }
    }
    let first = tokio::spawn({
        let (client, key) = (client.clone(), key.clone());
        async move { client.get(key).await }
    });
    arrived(&cluster, 2).await;
    let hasty = client.with_deadline(SOON);
    let late = hasty.get(key.clone()).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Deadline);
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    permits.add_permits(100);
    let value = client.get(key).await.unwrap().unwrap();
    assert_eq!(value.value, "old", "who waits goes on when it is dropped");
}

#[tokio::test]
async fn gets_of_a_batch_are_told_too_and_a_client_that_does_not_care_sends_every_get() {
    let (cluster, client, key) = hot().await;
    let more = cluster.keys_of(1, 3);
    for key in &more {
        client.put(key.clone(), "value").await.unwrap();
    }
    for value in client.batch_get(more).await.unwrap() {
        assert!(value.unwrap().is_some());
    }
    assert_eq!(client.hot_gets().hints, 1 + 3);

    let builder = Client::builder().endpoints([cluster.endpoint(0)]);
    let careless = builder.mitigate_hot_keys(false).connect().await.unwrap();
    let before = cluster.nodes[1].seen("get");
    let gets = (0..8).map(|_| careless.get(key.clone()));
    for value in join_all(gets).await {
        value.unwrap();
    }
    assert_eq!(cluster.nodes[1].seen("get") - before, 8);
    assert_eq!(careless.hot_gets(), torc_client::HotGets::default());
}
