//! Clusters whose partitions have three replicas, as a client in any language sees them:
//! real nodes, real sockets.
#![allow(missing_docs)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;

use common::{Servers, entries_of, until, value_of};
use std::time::Duration;

use tonic::{Code, Request};
use torc_proto::v1::{
    Condition, Consistency, CreateNamespaceRequest, DeleteRequest, ExplainRequest, GetRequest,
    NamespaceMode, PutRequest, Route, StatusRequest, Version, condition,
};
use torc_proto::{Fault, Reason};

/// What these tests ask of the nodes.
impl Servers {
    /// The index of the node that leads a key's partition.
    async fn lead_of(&self, key: &str) -> usize {
        let lead = self.explain(key).await.partition.unwrap().lead;
        usize::try_from(lead).unwrap() - 1
    }

    async fn explain(&self, key: &str) -> torc_proto::v1::ExplainResponse {
        let request = ExplainRequest {
            key: key.to_owned().into(),
            ..ExplainRequest::default()
        };
        let answer = self.cluster(0).await.explain(request).await;
        answer.unwrap().into_inner()
    }

    /// Cuts or heals a node's links, and waits until it has read that.
    async fn cut_links(&self, index: usize, faults: &str) {
        self.link_faults(index, faults);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

fn get(key: &str) -> GetRequest {
    GetRequest {
        key: key.to_owned().into(),
        ..GetRequest::default()
    }
}

fn put(key: &str, value: &str) -> PutRequest {
    let (key, value) = (key.to_owned().into(), value.to_owned().into());
    PutRequest {
        key,
        value,
        ..PutRequest::default()
    }
}

fn only(kind: condition::Kind) -> Condition {
    Condition { kind: Some(kind) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_hold_at_every_node_and_an_unmet_one_changes_nothing() {
    let servers = Servers::start().await;
    for (index, key) in ["a", "b", "c"].into_iter().enumerate() {
        let mut kv = servers.kv(index).await;
        let mut other = servers.kv((index + 1) % 3).await;
        let if_absent = |value| PutRequest {
            condition: Some(only(condition::Kind::IfAbsent(true))),
            ..put(key, value)
        };
        let first = kv.put(if_absent("1")).await.unwrap().into_inner();
        let version = first.version.unwrap();
        let again = other.put(if_absent("2")).await.unwrap_err();
        assert_eq!(again.code(), Code::FailedPrecondition);
        assert_eq!(Fault::from_status(&again).reason, Reason::ConditionNotMet);
        let if_version = |version, value| PutRequest {
            condition: Some(only(condition::Kind::IfVersion(version))),
            ..put(key, value)
        };
        let old = Version {
            time: version.time - 1,
            ..version
        };
        let unmet = other.put(if_version(old, "3")).await.unwrap_err();
        assert_eq!(unmet.code(), Code::FailedPrecondition);
        assert_eq!(value_of(&mut kv, get(key)).await.as_deref(), Some("1"));
        // A read that had to settle the key has written it anew: then the version is another.
        until(
            "the condition holds for the version that is there",
            async || {
                let held = kv
                    .get(get(key))
                    .await
                    .unwrap()
                    .into_inner()
                    .version
                    .unwrap();
                other.put(if_version(held, "4")).await.is_ok()
            },
        )
        .await;
        assert_eq!(value_of(&mut kv, get(key)).await.as_deref(), Some("4"));
        let delete = DeleteRequest {
            key: key.to_owned().into(),
            condition: Some(only(condition::Kind::IfVersion(version))),
            ..DeleteRequest::default()
        };
        let unmet = kv.delete(delete).await.unwrap_err();
        assert_eq!(unmet.code(), Code::FailedPrecondition);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_expires_and_a_stale_get_is_answered_by_whoever_is_asked() {
    let servers = Servers::start().await;
    let mut kv = servers.kv(0).await;
    let short = PutRequest {
        ttl_ms: 1_500,
        ..put("short", "v")
    };
    kv.put(short).await.unwrap();
    kv.put(put("long", "v")).await.unwrap();
    let stale = |key| GetRequest {
        consistency: Consistency::Stale.into(),
        ..get(key)
    };
    for index in 0..3 {
        let mut kv = servers.kv(index).await;
        until("every replica holds the value", async || {
            value_of(&mut kv, stale("long")).await.as_deref() == Some("v")
        })
        .await;
    }
    until("the value has expired", async || {
        value_of(&mut kv, get("short")).await.is_none()
    })
    .await;
    for index in 0..3 {
        let mut kv = servers.kv(index).await;
        assert_eq!(value_of(&mut kv, stale("short")).await, None);
        assert_eq!(value_of(&mut kv, stale("nowhere")).await, None);
    }
    // Cut off, a node has what it has.
    for index in 0..3 {
        servers.cut_links(index, r#"{"drop_to": [1, 2, 3]}"#).await;
    }
    assert_eq!(value_of(&mut kv, stale("long")).await.as_deref(), Some("v"));
    let mut fresh = Request::new(get("long"));
    fresh.set_timeout(Duration::from_millis(500));
    assert!(kv.get(fresh).await.is_err(), "no quorum, no answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_was_sent_and_not_answered_is_unknown_and_one_that_never_began_is_not() {
    let servers = Servers::start().await;
    let lead = servers.lead_of("k").await;
    let mut kv = servers.kv(lead).await;
    // Warm, so that the next write is one round of accepts.
    for value in ["1", "2", "3"] {
        kv.put(put("k", value)).await.unwrap();
    }
    assert!(
        servers
            .metric(
                lead,
                "torc_register_operations_total{kind=\"write\",path=\"fast\"}"
            )
            .await
            > 0
    );
    servers.cut_links(lead, r#"{"drop_from": [1, 2, 3]}"#).await;
    let timed = |request: PutRequest| {
        let mut request = Request::new(request);
        request.set_timeout(Duration::from_millis(800));
        request
    };
    let sent = Fault::from_status(&kv.put(timed(put("k", "4"))).await.unwrap_err());
    assert!(sent.maybe_applied, "{sent:?}");
    let cold = PutRequest {
        condition: Some(only(condition::Kind::IfAbsent(true))),
        ..put("cold", "1")
    };
    let mut elsewhere = cold.clone();
    for number in 0.. {
        elsewhere.key = format!("cold-{number}").into();
        let key = String::from_utf8(elsewhere.key.to_vec()).unwrap();
        if servers.lead_of(&key).await == lead {
            break;
        }
    }
    let never = Fault::from_status(&kv.put(timed(elsewhere)).await.unwrap_err());
    let only_prepared = never.reason == Reason::OwnerUnreachable;
    assert_eq!(never.maybe_applied, !only_prepared, "{never:?}");
    until("one is counted as unknown", async || {
        let sent = kv.put(timed(put("k", "4"))).await;
        assert!(sent.is_err(), "{sent:?}");
        servers.metric(lead, "torc_register_unknown_total").await > 0
    })
    .await;
    servers.cut_links(lead, "{}").await;
    let mut other = servers.kv((lead + 1) % 3).await;
    let now = value_of(&mut other, get("k")).await;
    assert!(matches!(now.as_deref(), Some("3" | "4")), "{now:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_two_namespaces_do_not_meet() {
    let servers = Servers::start().await;
    let create = |mode: NamespaceMode| CreateNamespaceRequest {
        name: "urls".into(),
        mode: mode.into(),
        replicas: 0,
    };
    let mut cluster = servers.cluster(1).await;
    let mut kv = servers.kv(2).await;
    let in_urls = |request: PutRequest| PutRequest {
        namespace: "urls".into(),
        ..request
    };
    let unknown = Fault::from_status(&kv.put(in_urls(put("k", "x"))).await.unwrap_err());
    assert_eq!(unknown.reason, Reason::NoSuchNamespace);
    assert!(unknown.message.contains("kvctl namespace create urls"));

    for _ in 0..2 {
        let created = cluster.create_namespace(create(NamespaceMode::Unspecified));
        let created = created.await.unwrap().into_inner().namespace.unwrap();
        assert_eq!((created.id, created.replicas), (2, 3), "again is harmless");
    }
    kv.put(put("k", "default")).await.unwrap();
    let mine = GetRequest {
        namespace: "urls".into(),
        ..get("k")
    };
    assert_eq!(value_of(&mut kv, mine.clone()).await, None);
    kv.put(in_urls(put("k", "urls"))).await.unwrap();
    for index in 0..3 {
        let mut kv = servers.kv(index).await;
        assert_eq!(value_of(&mut kv, mine.clone()).await.unwrap(), "urls");
        assert_eq!(value_of(&mut kv, get("k")).await.unwrap(), "default");
        let entries = entries_of(&mut kv, "urls").await;
        assert_eq!(entries, [("k".to_owned(), "urls".to_owned())]);
    }
    let delete = DeleteRequest {
        namespace: "urls".into(),
        key: "k".into(),
        ..DeleteRequest::default()
    };
    assert!(kv.delete(delete).await.unwrap().into_inner().existed);
    assert_eq!(value_of(&mut kv, get("k")).await.unwrap(), "default");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_explained_by_all_its_replicas_and_a_missing_node_is_counted() {
    let mut servers = Servers::start().await;
    let put = servers.kv(0).await.put(put("k", "v")).await.unwrap();
    let version = put.into_inner().version;
    until("every replica holds it", async || {
        let explained = servers.explain("k").await;
        explained.replicas.len() == 3 && explained.replicas.iter().all(|it| it.version == version)
    })
    .await;
    let explained = servers.explain("k").await;
    let lead = explained.partition.unwrap().lead;
    assert_eq!(explained.answered_by, lead);
    let local = StatusRequest { local: true };
    let status = async |request: StatusRequest| {
        let mut cluster = servers.cluster(0).await;
        cluster.status(request).await.unwrap().into_inner()
    };
    assert_eq!(status(local).await.under_replicated, None);
    let all = status(StatusRequest::default()).await;
    assert_eq!(
        (all.under_replicated, all.without_quorum),
        (Some(0), Some(0))
    );

    servers.nodes.pop().unwrap().stop().await.unwrap();
    let mut cluster = servers.cluster(0).await;
    let status = cluster.status(StatusRequest::default()).await.unwrap();
    let status = status.into_inner();
    assert_eq!(
        (status.under_replicated, status.without_quorum),
        (Some(64), Some(0)),
        "all 64 partitions had a replica there, and two of three are a quorum"
    );
    let explained = servers.explain("k").await;
    let missing = explained.replicas.iter().find(|it| it.node == 3).unwrap();
    assert!(!missing.problem.is_empty());
    assert!(
        explained.found,
        "another one answers for the lead if it must"
    );
}

/// Found by a hundred joins, leaves and replacements: a node that hears of a topology before it has a place in it
/// told its registers only of what changed afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_joined_coordinates_partitions_that_it_holds_no_copy_of() {
    let mut servers = Servers::start().await;
    servers.join().await;
    let mut elsewhere = 0;
    for number in 0..100 {
        let key = format!("key-{number}");
        // What it did not hear of it never heard of; a lead may still be on the move.
        until("it writes", async || {
            let explained = servers.explain(&key).await;
            let partition = explained.partition.unwrap();
            let put = PutRequest {
                key: key.clone().into(),
                value: key.clone().into(),
                digest: explained.digest,
                route: Some(Route {
                    partition: partition.partition,
                    epoch: partition.epoch,
                }),
                ..PutRequest::default()
            };
            let mut put = Request::new(put);
            put.set_timeout(Duration::from_secs(5));
            let is_written = servers.kv(3).await.put(put).await.is_ok();
            elsewhere += usize::from(is_written && !partition.nodes.contains(&4));
            is_written
        })
        .await;
        let got = servers.kv(0).await.get(get(&key)).await.unwrap();
        assert_eq!(got.into_inner().value, key);
    }
    assert!(elsewhere > 0, "some partitions are none of its own");
}
