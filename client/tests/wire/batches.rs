//! Batches: every item has its own outcome, at its own index.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use torc_client::{Condition, Error, ErrorKind, MAX_VALUE_LEN, PutOptions};
use torc_proto::{Fault, MAX_BATCH_ITEMS, Reason};

use crate::SOON;
use crate::cluster::Cluster;
use crate::node::Trouble;

fn numbered(count: usize) -> Vec<(Bytes, Bytes)> {
    (0..count)
        .map(|number| {
            (
                format!("key-{number}").into(),
                format!("value-{number}").into(),
            )
        })
        .collect()
}

#[tokio::test]
async fn results_come_in_the_order_of_the_items() {
    let cluster = Cluster::formed(3).await;
    let client = cluster.client().await;
    let records = numbered(200);
    let versions = client.batch_put(records.clone()).await.unwrap();
    let mut keys: Vec<_> = records.iter().map(|(key, _)| key.clone()).collect();
    keys.push("absent".into());
    let values = client.batch_get(keys).await.unwrap();
    assert_eq!((versions.len(), values.len()), (200, 201));
    assert_eq!(values[200], Ok(None));
    for ((version, value), (_, expected)) in versions.iter().zip(&values).zip(&records) {
        let value = value.as_ref().unwrap().as_ref().unwrap();
        assert_eq!(&value.value, expected);
        assert_eq!(value.version, *version.as_ref().unwrap());
    }
    assert_eq!(
        (cluster.seen("batch_put"), cluster.seen("batch_get")),
        (3, 3)
    );
    assert_eq!(cluster.seen("forwarded"), 0);
}

#[tokio::test]
async fn an_empty_batch_costs_nothing() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    assert_eq!(client.batch_get(Vec::<Bytes>::new()).await, Ok(Vec::new()));
    assert_eq!(client.batch_put(numbered(0)).await, Ok(Vec::new()));
    assert_eq!(cluster.seen("batch_get") + cluster.seen("batch_put"), 0);
}

#[tokio::test]
async fn a_batch_of_any_number_is_cut_to_what_a_request_may_hold() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    let records = numbered(2 * MAX_BATCH_ITEMS + 500);
    let versions = client.batch_put(records.clone()).await.unwrap();
    assert!(versions.iter().all(Result::is_ok));
    let keys = records.iter().map(|(key, _)| key.clone());
    let values = client.batch_get(keys).await.unwrap();
    for (value, (_, expected)) in values.into_iter().zip(records) {
        assert_eq!(value.unwrap().unwrap().value, expected);
    }
    assert!(cluster.seen("batch_put") >= 3);
}

#[tokio::test]
async fn what_a_full_answer_leaves_out_is_asked_for_without_a_pause() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    let records = numbered(60);
    client.batch_put(records.clone()).await.unwrap();
    // Two values fit each answer.
    for (number, (key, _)) in records.iter().enumerate() {
        for _ in 0..number / 2 {
            let full = Fault::new(Reason::Overloaded, "the answer is full");
            cluster.nodes[0].refuse(key, full);
        }
    }
    let keys = records.iter().map(|(key, _)| key.clone());
    let client = client.with_deadline(2 * SOON);
    let values = client.batch_get(keys).await.unwrap();
    for (value, (_, expected)) in values.into_iter().zip(records) {
        assert_eq!(value.unwrap().unwrap().value, expected);
    }
    assert_eq!(cluster.seen("batch_get"), 30);
}

#[tokio::test]
async fn the_last_record_of_a_key_stays() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    let key = cluster.key_of(1);
    // The first attempt at the first record is refused: it must still come first.
    let busy = Fault::new(Reason::Overloaded, "slow down");
    cluster.nodes[1].refuse(&key, busy);
    let values = ["one", "two", "three"];
    let records = values.map(|value| (key.clone(), value));
    let versions = client.batch_put(records).await.unwrap();
    let versions: Vec<_> = versions.into_iter().map(Result::unwrap).collect();
    assert!(versions.is_sorted());
    let value = client.get(key).await.unwrap().unwrap();
    assert_eq!(
        (&value.value[..], value.version),
        (&b"three"[..], versions[2])
    );
}

#[tokio::test]
async fn an_items_failure_is_its_own() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    let keys = cluster.keys_of(0, 4);
    cluster.nodes[0].refuse(&keys[1], Fault::new(Reason::Corrupt, "a checksum is wrong"));
    cluster.nodes[0].refuse(&keys[2], Fault::unknown("a replica did not answer"));
    cluster.nodes[0].refuse(&keys[3], Fault::new(Reason::Overloaded, "slow down"));
    let mut records: Vec<_> = keys
        .iter()
        .map(|key| (key.clone(), Bytes::from("value")))
        .collect();
    records.push((Bytes::new(), "value".into()));
    records.push(("long".into(), vec![0; MAX_VALUE_LEN + 1].into()));
    let outcomes = client.batch_put(records).await.unwrap();
    let kinds: Vec<_> = outcomes
        .iter()
        .map(|o| o.as_ref().err().map(Error::kind))
        .collect();
    let expected = [
        None,
        Some(ErrorKind::Corrupt),
        Some(ErrorKind::OutcomeUnknown),
        None,
        Some(ErrorKind::Invalid),
        Some(ErrorKind::Invalid),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(
        cluster.nodes[0].seen("batch_put"),
        2,
        "the overloaded one was sent again"
    );
    assert_eq!(cluster.nodes[0].seen("routed"), 5, "and it alone");
}

#[tokio::test]
async fn records_of_a_batch_may_have_conditions_and_expire() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    client.put("taken", "value").await.unwrap();
    let options = PutOptions {
        condition: Some(Condition::IfAbsent),
        ttl: Some(Duration::from_secs(60)),
        ..PutOptions::default()
    };
    let at = PutOptions {
        expires_at_ms: Some(u64::MAX / 2),
        ..PutOptions::default()
    };
    let records = ["taken", "free"].map(|key| (key, "new", options));
    let records = records.into_iter().chain([("at", "new", at)]);
    let outcomes = client.batch_put_with(records).await.unwrap();
    let error = outcomes[0].as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConditionNotMet);
    assert!(outcomes[1].is_ok());
    let value = client.get("free").await.unwrap().unwrap();
    assert!(value.expires_at_ms.is_some());
    let value = client.get("at").await.unwrap().unwrap();
    assert_eq!(value.expires_at_ms, at.expires_at_ms);
    assert_eq!(client.get("taken").await.unwrap().unwrap().value, "value");
}

#[tokio::test]
async fn items_whose_partition_moved_are_sent_to_where_it_is() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    let records = numbered(50);
    client.batch_put(records.clone()).await.unwrap();
    cluster.hand_all(0, 1);
    let keys = records.iter().map(|(key, _)| key.clone());
    let values = client.batch_get(keys).await.unwrap();
    for (value, (_, expected)) in values.into_iter().zip(records) {
        assert_eq!(value.unwrap().unwrap().value, expected);
    }
    assert_eq!(cluster.seen("topology"), 2);
}

#[tokio::test]
async fn a_batch_of_puts_whose_answer_was_lost_is_sent_once() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await;
    cluster.nodes[0].trouble("batch_put", Trouble::CutAfter);
    let lost: HashSet<_> = cluster.keys_of(0, 10).into_iter().collect();
    let mut records: Vec<_> = lost.iter().map(|key| (key.clone(), "value")).collect();
    records.extend(cluster.keys_of(1, 10).into_iter().map(|key| (key, "value")));
    let outcomes = client.batch_put(records.clone()).await.unwrap();
    for ((key, _), outcome) in records.iter().zip(outcomes) {
        let unknown = outcome.map_err(|error| error.kind()) == Err(ErrorKind::OutcomeUnknown);
        assert_eq!(unknown, lost.contains(key), "the other node's are stored");
    }
    assert_eq!(cluster.nodes[0].seen("batch_put"), 1);
}

#[tokio::test]
async fn a_batch_of_gets_whose_answer_was_lost_is_sent_again() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    client.put("key", "value").await.unwrap();
    cluster.nodes[0].trouble("batch_get", Trouble::CutAfter);
    let values = client.batch_get(["key", "absent"]).await.unwrap();
    assert_eq!(values[0].as_ref().unwrap().as_ref().unwrap().value, "value");
    assert_eq!(values[1], Ok(None));
    assert_eq!(cluster.seen("batch_get"), 2);
}

#[tokio::test]
async fn one_node_that_is_down_fails_its_own_items_only() {
    let cluster = Cluster::formed(2).await;
    cluster.nodes[1].set_up(false);
    cluster.nodes[1].proxy.close().await;
    let client = cluster.client().await.with_deadline(SOON);
    let (mine, theirs) = (cluster.keys_of(0, 5), cluster.keys_of(1, 5));
    let keys = mine.iter().chain(&theirs).cloned();
    let values = client.batch_get(keys).await.unwrap();
    for value in &values[..5] {
        assert_eq!(value, &Ok(None));
    }
    for value in &values[5..] {
        let error = value.as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}

#[tokio::test]
async fn a_stalled_node_leaves_the_outcome_of_its_own_items_open() {
    let cluster = Cluster::formed(2).await;
    let client = cluster.client().await.with_deadline(SOON);
    cluster.nodes[1].trouble("batch_put", Trouble::Stall);
    let keys = [cluster.key_of(0), cluster.key_of(1)];
    let outcomes = client
        .batch_put(keys.map(|key| (key, "value")))
        .await
        .unwrap();
    assert!(outcomes[0].is_ok());
    let error = outcomes[1].as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(cluster.nodes[1].seen("batch_put"), 1);
}

#[tokio::test]
async fn answers_longer_than_a_message_are_asked_for_in_parts() {
    let cluster = Cluster::formed(1).await;
    let client = cluster.client().await;
    let records: Vec<_> = (0..20_u8)
        .map(|number| {
            (
                Bytes::from(vec![number]),
                Bytes::from(vec![number; MAX_VALUE_LEN]),
            )
        })
        .collect();
    let versions = client.batch_put(records.clone()).await.unwrap();
    assert!(versions.iter().all(Result::is_ok));
    let keys = records.iter().map(|(key, _)| key.clone());
    let values = client.batch_get(keys).await.unwrap();
    for (value, (_, expected)) in values.into_iter().zip(records) {
        assert_eq!(value.unwrap().unwrap().value, expected);
    }
    assert!(cluster.seen("batch_get") >= 3, "20 at once do not fit");
}
