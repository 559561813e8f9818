//! Eventual namespaces of a cluster with three replicas, as clients in any language see them: real
//! nodes, real sockets.

use crate::common::{Servers, entries_of, settings, timed, until, value_of};
use futures::StreamExt as _;

use tonic::transport::Channel;
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::{
    BatchGetRequest, BatchPutRequest, Condition, Consistency, CreateNamespaceRequest,
    DeleteRequest, DeleteResponse, ExplainRequest, GetRequest, NamespaceMode, PutRequest, Quorum,
    SessionRequest, condition, get_result, put_result, session_request, session_response,
};
use torc_proto::{Fault, Reason};
use torc_server::Node;

const CUT_OFF: &str = r#"{"drop_to": [1, 2, 3], "drop_from": [1, 2, 3]}"#;
const HEALED: &str = "{}";

/// Three nodes, with an eventual namespace `logs`.
async fn with_logs() -> Servers {
    let servers = Servers::start().await;
    let logs = CreateNamespaceRequest {
        name: "logs".into(),
        mode: NamespaceMode::Eventual.into(),
        replicas: 0,
    };
    let created = servers.cluster(1).await.create_namespace(logs).await;
    let created = created.unwrap().into_inner().namespace.unwrap();
    assert_eq!(created.mode(), NamespaceMode::Eventual);
    for index in 0..3 {
        let mut kv = servers.kv(index).await;
        until("every node knows the namespace", async || {
            kv.get(get("none")).await.is_ok()
        })
        .await;
    }
    servers
}

/// Helpers of these tests.
impl Servers {
    /// A key of `logs` whose partition this node leads.
    async fn key_led_by(&self, index: usize) -> String {
        let mut cluster = self.cluster(0).await;
        for number in 0.. {
            let key = format!("k{number}");
            let request = ExplainRequest {
                namespace: "logs".into(),
                key: key.clone().into(),
                ..ExplainRequest::default()
            };
            let answer = cluster.explain(request).await.unwrap().into_inner();
            if answer.partition.unwrap().lead == index as u64 + 1 {
                return key;
            }
        }
        unreachable!("some key is led by each node")
    }

    /// Cuts a node's links to the others; returns once that is in effect.
    async fn cut_off(&self, index: usize, key: &str) {
        self.link_faults(index, CUT_OFF);
        let mut kv = self.kv(index).await;
        until("the node is cut off", async || {
            let all = GetRequest {
                quorum: Quorum::All.into(),
                ..get(key)
            };
            kv.get(timed(all)).await.is_err()
        })
        .await;
    }

    /// Waits until every replica itself holds this value of a key.
    async fn all_hold(&self, key: &str, value: Option<&str>) {
        for index in 0..3 {
            let mut kv = self.kv(index).await;
            until("every replica holds the newest", async || {
                let held = value_of(&mut kv, stale(key)).await;
                held.as_deref() == value
            })
            .await;
        }
    }
}

fn get(key: &str) -> GetRequest {
    GetRequest {
        namespace: "logs".into(),
        key: key.to_owned().into(),
        ..GetRequest::default()
    }
}

fn get_from(key: &str, quorum: Quorum) -> GetRequest {
    GetRequest {
        quorum: quorum.into(),
        ..get(key)
    }
}

/// Requests what the called node itself holds, if anything.
fn stale(key: &str) -> GetRequest {
    GetRequest {
        consistency: Consistency::Stale.into(),
        ..get_from(key, Quorum::One)
    }
}

fn put(key: &str, value: &str) -> PutRequest {
    PutRequest {
        namespace: "logs".into(),
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        ..PutRequest::default()
    }
}

fn put_to(key: &str, value: &str, quorum: Quorum) -> PutRequest {
    PutRequest {
        quorum: quorum.into(),
        ..put(key, value)
    }
}

async fn keys_of(kv: &mut KvClient<Channel>, namespace: &str) -> Vec<String> {
    let entries = entries_of(kv, namespace).await.into_iter();
    entries.map(|(key, _)| key).collect()
}

fn delete(key: &str) -> DeleteRequest {
    DeleteRequest {
        want_existed: true,
        namespace: "logs".into(),
        key: key.to_owned().into(),
        ..DeleteRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_writer_wins_at_every_node_and_both_modes_live_side_by_side() {
    let servers = with_logs().await;
    let linear = |key: &str| GetRequest {
        namespace: String::new(),
        ..get(key)
    };
    let mut first = servers.kv(0).await;
    let registered = PutRequest {
        namespace: String::new(),
        ..put("a", "register")
    };
    first.put(registered).await.unwrap();
    for (round, quorum) in [Quorum::Unspecified, Quorum::Majority, Quorum::All]
        .into_iter()
        .enumerate()
    {
        for index in 0..3 {
            let mut kv = servers.kv(index).await;
            let value = format!("{round} by {index}");
            kv.put(put_to("a", &value, quorum)).await.unwrap();
            let mut other = servers.kv((index + 1) % 3).await;
            let read = value_of(&mut other, get("a")).await;
            assert_eq!(read, Some(value), "written and read by majorities");
        }
    }
    servers.all_hold("a", Some("2 by 2")).await;
    let read = value_of(&mut first, linear("a")).await;
    assert_eq!(read.as_deref(), Some("register"), "another namespace's key");

    first.put(put("b", "b")).await.unwrap();
    assert_eq!(keys_of(&mut first, "logs").await, ["a", "b"]);
    assert_eq!(keys_of(&mut first, "").await, ["a"]);
    let gone = first.delete(delete("a")).await.unwrap().into_inner();
    let again = first.delete(delete("a")).await.unwrap().into_inner();
    assert_eq!((gone.existed, again.existed), (true, false));
    let time_of = |deleted: &DeleteResponse| deleted.version.unwrap().time;
    assert!(time_of(&again) > time_of(&gone), "a tombstone of its own");
    servers.all_hold("a", None).await;
    for index in 0..3 {
        let mut kv = servers.kv(index).await;
        assert_eq!(value_of(&mut kv, get("a")).await, None);
        assert_eq!(keys_of(&mut kv, "logs").await, ["b"]);
        assert!(value_of(&mut kv, linear("a")).await.is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_sessions_and_times_to_live_work_as_elsewhere() {
    let servers = with_logs().await;
    let mut kv = servers.kv(0).await;
    let keys: Vec<_> = (0..40).map(|number| format!("key-{number}")).collect();
    let items = keys.iter().map(|key| put_to(key, key, Quorum::Majority));
    let items = items.collect();
    let batch = kv.batch_put(BatchPutRequest { items }).await.unwrap();
    for result in batch.into_inner().results {
        let outcome = result.outcome.unwrap();
        assert!(matches!(outcome, put_result::Outcome::Ok(_)), "{outcome:?}");
    }
    let items = keys.iter().map(|key| get_from(key, Quorum::Majority));
    let items = items.collect();
    let batch = kv.batch_get(BatchGetRequest { items }).await.unwrap();
    for (result, key) in batch.into_inner().results.into_iter().zip(&keys) {
        let Some(get_result::Outcome::Ok(got)) = result.outcome else {
            panic!("{result:?}");
        };
        assert_eq!(got.value, key.as_bytes());
    }

    let operations = [
        session_request::Operation::Get(get("key-1")),
        session_request::Operation::Delete(delete("key-2")),
        session_request::Operation::Put(put("key-3", "new")),
    ];
    let requests = operations.into_iter().enumerate();
    let requests = requests.map(|(id, operation)| SessionRequest {
        id: id as u64,
        operation: Some(operation),
        ..SessionRequest::default()
    });
    let requests = futures::stream::iter(requests.collect::<Vec<_>>());
    let mut session = kv.session(requests).await.unwrap().into_inner();
    let mut answers = 0;
    while let Some(answer) = session.next().await {
        let outcome = answer.unwrap().outcome.unwrap();
        let is_fault = matches!(outcome, session_response::Outcome::Fault(_));
        assert!(!is_fault, "{outcome:?}");
        answers += 1;
    }
    assert_eq!(answers, 3);
    assert_eq!(value_of(&mut kv, get("key-2")).await, None);
    assert_eq!(
        value_of(&mut kv, get("key-3")).await.as_deref(),
        Some("new")
    );

    let short = PutRequest {
        ttl_ms: 1_500,
        ..put("short", "v")
    };
    kv.put(short).await.unwrap();
    until("the value has expired", async || {
        value_of(&mut kv, get("short")).await.is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_replica_alone_serves_who_asks_no_more_and_tells_the_others_later() {
    let servers = with_logs().await;
    let key = servers.key_led_by(0).await;
    let mut alone = servers.kv(0).await;
    alone
        .put(put_to(&key, "before", Quorum::All))
        .await
        .unwrap();
    servers.cut_off(0, &key).await;
    let one = put_to(&key, "alone", Quorum::One);
    alone.put(one).await.unwrap();
    let read = value_of(&mut alone, get_from(&key, Quorum::One)).await;
    assert_eq!(read.as_deref(), Some("alone"));
    let unread = alone.get(timed(get(&key))).await;
    assert!(unread.is_err(), "one is no majority: {unread:?}");
    let mut other = servers.kv(1).await;
    let read = value_of(&mut other, stale(&key)).await;
    assert_eq!(read.as_deref(), Some("before"), "nobody could be told");

    let refused = alone.put(timed(put(&key, "open"))).await.unwrap_err();
    let refused = Fault::from_status(&refused);
    // Unless the others already count as out of reach, it is stored at one replica.
    let last = if refused.maybe_applied {
        "open"
    } else {
        "alone"
    };
    until("what the others missed is kept for them", async || {
        servers.metric(0, "torc_hints_held").await >= 2
    })
    .await;
    servers.link_faults(0, HEALED);
    servers.all_hold(&key, Some(last)).await;
    until("no hint is left", async || {
        servers.metric(0, "torc_hints_held").await == 0
    })
    .await;
    assert!(servers.metric(0, "torc_hints_sent_total").await >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_survive_the_restart_of_who_keeps_them() {
    let mut servers = with_logs().await;
    let key = servers.key_led_by(0).await;
    servers.cut_off(0, &key).await;
    let mut alone = servers.kv(0).await;
    alone.put(put_to(&key, "v", Quorum::One)).await.unwrap();
    drop(alone);
    until("what the others missed is kept for them", async || {
        servers.metric(0, "torc_hints_held").await == 2
    })
    .await;
    servers.nodes.remove(0).stop().await.unwrap();
    let settings = settings(servers.dir.path().join("1"));
    let again = Node::start(settings.check().unwrap()).await.unwrap();
    servers.nodes.insert(0, again);
    servers.formed().await;
    until("the hints are there again", async || {
        servers.metric(0, "torc_hints_held").await == 2
    })
    .await;
    servers.link_faults(0, HEALED);
    servers.all_hold(&key, Some("v")).await;
    until("no hint is left", async || {
        servers.metric(0, "torc_hints_held").await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_of_all_leaves_all_with_the_newest_version() {
    let servers = with_logs().await;
    let key = servers.key_led_by(1).await;
    let mut kv = servers.kv(1).await;
    kv.put(put_to(&key, "old", Quorum::All)).await.unwrap();
    servers.cut_off(2, &key).await;
    kv.put(put(&key, "new")).await.unwrap();
    let mut behind = servers.kv(2).await;
    let held = value_of(&mut behind, stale(&key)).await;
    assert_eq!(held.as_deref(), Some("old"));
    servers.link_faults(2, HEALED);
    until("all replicas answer", async || {
        let all = kv.get(timed(get_from(&key, Quorum::All))).await;
        all.is_ok_and(|got| &got.into_inner().value[..] == b"new")
    })
    .await;
    servers.all_hold(&key, Some("new")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_mode_does_not_promise_is_refused() {
    let servers = with_logs().await;
    let mut kv = servers.kv(0).await;
    let if_absent = || {
        let kind = Some(condition::Kind::IfAbsent(true));
        Some(Condition { kind })
    };
    let conditional = PutRequest {
        condition: if_absent(),
        ..put("k", "v")
    };
    let refused = Fault::from_status(&kv.put(conditional.clone()).await.unwrap_err());
    assert_eq!(refused.reason, Reason::Invalid);
    assert!(
        refused.message.contains("does not support conditions"),
        "{refused:?}"
    );
    let items = vec![conditional, put("k", "v")];
    let batch = kv.batch_put(BatchPutRequest { items }).await.unwrap();
    let results = batch.into_inner().results;
    let is_fault = |at: usize| matches!(results[at].outcome, Some(put_result::Outcome::Fault(_)));
    assert!(is_fault(0) && !is_fault(1), "{results:?}");
    let conditional = DeleteRequest {
        want_existed: true,
        condition: if_absent(),
        ..delete("k")
    };
    let refused = Fault::from_status(&kv.delete(conditional).await.unwrap_err());
    assert_eq!(refused.reason, Reason::Invalid);
    let linearizable = GetRequest {
        consistency: Consistency::Linearizable.into(),
        ..get("k")
    };
    let refused = Fault::from_status(&kv.get(linearizable).await.unwrap_err());
    assert_eq!(refused.reason, Reason::Invalid);
    let unknown = GetRequest {
        quorum: 77,
        ..get("k")
    };
    let refused = Fault::from_status(&kv.get(unknown).await.unwrap_err());
    assert_eq!(refused.reason, Reason::Invalid);

    for quorum in [Quorum::One, Quorum::Majority, Quorum::All] {
        let linear = GetRequest {
            namespace: String::new(),
            ..get_from("k", quorum)
        };
        let refused = Fault::from_status(&kv.get(linear).await.unwrap_err());
        assert_eq!(refused.reason, Reason::Invalid);
        assert!(refused.message.contains("linearizable"), "{refused:?}");
    }
}
