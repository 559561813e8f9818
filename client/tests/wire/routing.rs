//! Operations go to the lead, by a topology that is kept up to date.

use std::sync::Arc;
use std::time::Duration;

use torc_client::{Client, Condition, Consistency, ErrorKind, GetOptions, PutOptions};
use torc_record::{Epoch, NamespaceId};
use torc_ring::replicas::Config;

use crate::SOON;
use crate::cluster::{Cluster, namespace};

#[tokio::test]
async fn what_is_put_is_got_and_what_is_deleted_is_gone() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    for node in [0, 1] {
        let key = cluster.key_of(node);
        assert_eq!(client.get(key.clone()).await, Ok(None));
        let version = client.put(key.clone(), "value").await.unwrap();
        let value = client.get(key.clone()).await.unwrap().unwrap();
        assert_eq!((&value.value[..], value.version), (&b"value"[..], version));
        assert_eq!(value.expires_at_ms, None);
        let deleted = client.delete(key.clone()).await.unwrap();
        assert!(deleted.existed && deleted.version > version);
        assert!(!client.delete(key.clone()).await.unwrap().existed);
        assert_eq!(client.get(key).await, Ok(None));
    }
}

#[tokio::test]
async fn every_operation_goes_straight_to_the_lead() {
    let cluster = Cluster::formed(3).await;
    let client = cluster.client().await;
    for node in 0..3 {
        for key in cluster.keys_of(node, 5) {
            client.put(key.clone(), "value").await.unwrap();
            client.get(key).await.unwrap();
        }
        assert_eq!(cluster.nodes[node].seen("routed"), 10);
    }
    assert_eq!(cluster.seen("forwarded"), 0);
    assert_eq!(cluster.seen("topology"), 1, "the topology was fetched once");
}

#[tokio::test]
async fn a_stale_epoch_is_cured_by_one_fetch_of_the_topology() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    let key = cluster.key_of(0);
    client.put(key.clone(), "before").await.unwrap();
    cluster.hand(cluster.partition_of(&key), 1);

    assert_eq!(
        client.get(key.clone()).await.unwrap().unwrap().value,
        "before"
    );
    assert_eq!(cluster.nodes[0].seen("get"), 1, "it was refused once");
    assert_eq!(cluster.seen("topology"), 2);
    assert_eq!(client.known_topology().unwrap().epoch, Epoch(2));

    client.put(key, "after").await.unwrap();
    assert_eq!(
        cluster.nodes[1].seen("put"),
        1,
        "the next one goes there at once"
    );
    assert_eq!(cluster.seen("topology"), 2);
}

#[tokio::test]
async fn a_put_refused_for_its_epoch_is_sent_again() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    let key = cluster.key_of(0);
    cluster.hand(cluster.partition_of(&key), 1);
    client.put(key.clone(), "value").await.unwrap();
    assert_eq!(
        (cluster.nodes[0].seen("put"), cluster.nodes[1].seen("put")),
        (1, 1)
    );
}

#[tokio::test]
async fn a_hundred_operations_with_a_stale_epoch_share_one_fetch() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    cluster.hand_all(0, 1);
    let keys = cluster.keys_of(1, 100);
    let gets = keys.into_iter().map(|key| client.get(key));
    for outcome in futures::future::join_all(gets).await {
        assert_eq!(outcome, Ok(None));
    }
    assert_eq!(cluster.seen("topology"), 2);
}

#[tokio::test]
async fn a_node_that_is_behind_does_not_take_the_client_back() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    let old = cluster.table();
    cluster.hand_all(0, 1);
    client.topology().await.unwrap();
    let newest = client.known_topology().unwrap().epoch;
    for node in &cluster.nodes {
        node.adopt(old.clone());
    }
    assert_eq!(client.topology().await.unwrap().epoch, newest);
}

#[tokio::test]
async fn only_what_changed_travels_and_the_rest_is_kept() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    cluster.hand(cluster.partition_of(&cluster.key_of(0)), 1);
    let mut known = (*client.topology().await.unwrap()).clone();
    let table = cluster.table();
    // The history of partitions is not sent.
    for (known, state) in known.states.iter_mut().zip(&table.states) {
        let settled = state.config.settled.clone();
        known.config = Arc::new(Config {
            settled,
            ..(*known.config).clone()
        });
    }
    assert_eq!(known, table);
}

#[tokio::test]
async fn another_cluster_behind_the_endpoint_is_refused() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    cluster.change(|table| table.cluster.0 = [6; 16]);
    cluster.form();
    // Until its deadline, a node of the cluster may come back to the endpoint.
    let client = client.with_deadline(SOON);
    let refused = client.topology().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert_eq!(client.known_topology().unwrap().cluster.0, [5; 16]);
}

#[tokio::test]
async fn a_cluster_that_is_being_formed_is_waited_for() {
    let cluster = Cluster::unformed(1).await;
    let builder = Client::builder().endpoints([cluster.endpoint(0)]);
    let (client, ()) = tokio::join!(builder.deadline(Duration::from_secs(60)).connect(), async {
        while cluster.seen("topology") < 2 {
            tokio::task::yield_now().await;
        }
        cluster.form();
    });
    assert_eq!(client.unwrap().get("key").await, Ok(None));
}

#[tokio::test]
async fn a_cluster_that_is_never_formed_is_unavailable() {
    let cluster = Cluster::unformed(1).await;
    let builder = Client::builder()
        .endpoints([cluster.endpoint(0)])
        .deadline(SOON);
    let error = builder.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("belongs to no cluster"), "{error}");
    assert!(error.is_retryable());
}

#[tokio::test]
async fn namespaces_are_apart_and_unknown_ones_an_error_until_they_exist() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    let other = client.namespace("other");
    let error = other.get("key").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSuchNamespace);
    assert_eq!(cluster.seen("get"), 0);

    cluster.change(|table| {
        table
            .namespaces
            .insert("other".to_owned(), namespace(NamespaceId(2)));
    });
    cluster.form();
    other.put("key", "other's").await.unwrap();
    assert_eq!(client.get("key").await, Ok(None));
    assert_eq!(other.get("key").await.unwrap().unwrap().value, "other's");
}

#[tokio::test]
async fn a_condition_that_does_not_hold_changes_nothing() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    let put = |condition| {
        let options = PutOptions {
            condition: Some(condition),
            ttl: Some(Duration::from_secs(5)),
            ..PutOptions::default()
        };
        client.put_with("key", "value", options)
    };
    let first = put(Condition::IfAbsent).await.unwrap();
    let error = put(Condition::IfAbsent).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConditionNotMet);
    assert!(!error.maybe_applied() && !error.is_retryable());
    let second = put(Condition::IfVersion(first)).await.unwrap();
    assert!(second > first);
    let stale = Some(Condition::IfVersion(first));
    let error = client.delete_with("key", stale).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConditionNotMet);
    let options = GetOptions {
        consistency: Consistency::Stale,
    };
    let value = client.get_with("key", options).await.unwrap().unwrap();
    assert_eq!(value.version, second);
    assert!(value.expires_at_ms.is_some());
}

#[tokio::test]
async fn what_is_out_of_bounds_costs_no_round_trip() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    let long_key = vec![0; torc_client::MAX_KEY_LEN + 1];
    let long_value = vec![0; torc_client::MAX_VALUE_LEN + 1];
    let errors = [
        client.get("").await.unwrap_err(),
        client.get(long_key.clone()).await.unwrap_err(),
        client.put("", "value").await.unwrap_err(),
        client.put("key", long_value).await.unwrap_err(),
        client.delete(long_key).await.unwrap_err(),
        client.explain("").await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let sent = ["get", "put", "delete", "explain"].map(|name| cluster.seen(name));
    assert_eq!(sent, [0; 4]);
}
