//! Clusters whose partitions have three replicas, as clients in any language see them: real nodes,
//! real sockets.

use crate::common::{Servers, entries_of, settings, until, value_of};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::join_all;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use torc_proto::v1::cluster_client::ClusterClient;
use torc_proto::v1::kv_client::KvClient;
use torc_proto::v1::{
    BatchGetRequest, BatchPutRequest, Cancel, Condition, Consistency, CreateNamespaceRequest,
    DeleteRequest, ExplainRequest, GetRequest, MaintenanceRequest, NamespaceMode, PutRequest,
    Route, ScanRequest, ScanResponse, SessionRequest, StatusRequest, Version, condition,
    get_result, put_result, session_request, session_response,
};
use torc_proto::{Fault, Reason};
use torc_record::{
    Ballot, Digest, Epoch, HybridTime, Key, NamespaceId, NodeSlot, Record, ReplicaBatch, State,
};
use torc_ring::{Partitions, Token};
use torc_server::Node;
use torc_server::config::RawSettings;
use torc_store::{Store, StoreOptions};

/// Helpers of these tests.
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

    /// Cuts or heals a node's links, and waits until the node has applied that.
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

/// A write whose condition does not hold fails with that reason. On a busy machine, two nodes may
/// coordinate the key alternately; then the first writer may be unable to tell, and the write is
/// retried.
async fn unmet(mut write: impl AsyncFnMut() -> Result<(), Status>) {
    until("the condition is told to be unmet", async || {
        let status = write().await.unwrap_err();
        let reason = Fault::from_status(&status).reason;
        if reason == Reason::ConditionNotMet {
            assert_eq!(status.code(), Code::FailedPrecondition);
            return true;
        }
        assert_eq!(reason, Reason::OutcomeUnknown, "{status}");
        false
    })
    .await;
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
        unmet(async || other.put(if_absent("2")).await.map(drop)).await;
        let if_version = |version, value| PutRequest {
            condition: Some(only(condition::Kind::IfVersion(version))),
            ..put(key, value)
        };
        let old = Version {
            time: version.time - 1,
            ..version
        };
        unmet(async || other.put(if_version(old, "3")).await.map(drop)).await;
        assert_eq!(value_of(&mut kv, get(key)).await.as_deref(), Some("1"));
        // A read that had to reconcile the key has written it again, with another version.
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
            want_existed: true,
            key: key.to_owned().into(),
            condition: Some(only(condition::Kind::IfVersion(version))),
            ..DeleteRequest::default()
        };
        unmet(async || kv.delete(delete.clone()).await.map(drop)).await;
        assert_eq!(value_of(&mut kv, get(key)).await.as_deref(), Some("4"));
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
    // A node that is cut off returns what it holds.
    for index in 0..3 {
        servers.cut_links(index, r#"{"drop_to": [1, 2, 3]}"#).await;
    }
    assert_eq!(value_of(&mut kv, stale("long")).await.as_deref(), Some("v"));
    let mut fresh = Request::new(get("long"));
    fresh.set_timeout(Duration::from_millis(500));
    assert!(kv.get(fresh).await.is_err(), "no quorum, no answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_that_expired_and_that_nobody_reads_are_collected() {
    let servers = Servers::start().await;
    let mut kv = servers.kv(0).await;
    let records = async |index| servers.metric(index, "torc_store_records ").await;
    for number in 0..20 {
        let short = PutRequest {
            ttl_ms: 300,
            ..put(&format!("short-{number}"), "v")
        };
        kv.put(short).await.unwrap();
    }
    kv.put(put("long", "v")).await.unwrap();
    for index in 0..3 {
        until("every replica has each of them", async || {
            records(index).await == 21
        })
        .await;
    }
    for index in 0..3 {
        until("what has expired is gone", async || {
            records(index).await == 1
        })
        .await;
    }
    assert_eq!(value_of(&mut kv, get("long")).await.as_deref(), Some("v"));
}

/// As on a machine with far too much to do. A node gave such a write five seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_ends_a_write_whose_replicas_answer_late() {
    let mut servers = Servers::start().await;
    let lead = servers.lead_of("k").await;
    let mut kv = servers.kv(lead).await;
    servers.cut_links(lead, r#"{"drop_to": [1, 2, 3]}"#).await;
    // So long that its bytes are counted.
    let mut write = Request::new(put("k", &"v".repeat(100_000)));
    write.set_timeout(Duration::from_secs(60));
    let writing = tokio::spawn(async move { kv.put(write).await });
    until("the write is under way", async || {
        servers.metric(lead, "torc_in_flight_bytes ").await > 0
    })
    .await;
    let stopping = tokio::spawn(servers.nodes.remove(lead).stop());
    tokio::time::sleep(Duration::from_secs(7)).await;
    servers.link_faults(lead, "{}");
    writing.await.unwrap().unwrap();
    stopping.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_was_sent_and_not_answered_is_unknown_and_one_that_never_began_is_not() {
    let servers = Servers::start().await;
    let lead = servers.lead_of("k").await;
    let mut kv = servers.kv(lead).await;
    // Makes the key warm, so that the next write is one round of accepts.
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
        want_existed: true,
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
    let local = StatusRequest {
        local: true,
        ..StatusRequest::default()
    };
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

/// Found by a hundred joins, leaves and replacements: a node that knew a topology before it had a
/// place in it told its registers only of later changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_joined_coordinates_partitions_that_it_holds_no_copy_of() {
    let mut servers = Servers::start().await;
    servers.join().await;
    let mut elsewhere = 0;
    for number in 0..100 {
        let key = format!("key-{number}");
        // It has never heard of partitions that did not change; a lead may still be moving.
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

/// A get may write, so a digest of another key would store that key's value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_digest_of_another_key_is_refused_by_every_door_and_plants_nothing() {
    const WRITERS: usize = 16;
    const READERS: usize = 8;
    let servers = Servers::start().await;
    let digest = servers.explain("k2").await.digest;
    let wrong = GetRequest {
        digest: digest.clone(),
        ..get("k1")
    };
    let refused = |fault: &Fault| {
        assert_eq!(fault.reason, Reason::DigestMismatch, "{fault}");
        assert!(!fault.maybe_applied);
    };
    let writers = (0..WRITERS).map(|writer| {
        let servers = &servers;
        async move {
            let mut kv = servers.kv(writer % 3).await;
            for number in 0..20 {
                // If two nodes write one key at the same time, it may stay unknown which one did.
                let written = kv.put(put("k2", &format!("{writer}-{number}"))).await;
                assert!(
                    written.map_or_else(|it| Fault::from_status(&it).maybe_applied, |_| true),
                    "a right digest is not refused"
                );
            }
        }
    });
    let readers = (0..READERS).map(|reader| {
        let (servers, wrong) = (&servers, &wrong);
        async move {
            let mut kv = servers.kv(reader % 3).await;
            for _ in 0..50 {
                refused(&Fault::from_status(
                    &kv.get(wrong.clone()).await.unwrap_err(),
                ));
            }
        }
    });
    futures::join!(join_all(writers), join_all(readers));

    let mut kv = servers.kv(0).await;
    let stale = GetRequest {
        consistency: Consistency::Stale.into(),
        ..wrong.clone()
    };
    refused(&Fault::from_status(&kv.get(stale).await.unwrap_err()));
    let delete = DeleteRequest {
        want_existed: true,
        key: "k1".into(),
        digest: digest.clone(),
        ..DeleteRequest::default()
    };
    refused(&Fault::from_status(
        &kv.delete(delete.clone()).await.unwrap_err(),
    ));
    let write = PutRequest {
        digest: digest.clone(),
        ..put("k1", "v")
    };
    refused(&Fault::from_status(
        &kv.put(write.clone()).await.unwrap_err(),
    ));
    let items = vec![wrong.clone(), get("k2")];
    let answer = kv.batch_get(BatchGetRequest { items }).await.unwrap();
    let [first, second] = <[_; 2]>::try_from(answer.into_inner().results).unwrap();
    let Some(get_result::Outcome::Fault(fault)) = first.outcome else {
        panic!("{first:?}");
    };
    refused(&fault.into());
    assert!(matches!(second.outcome, Some(get_result::Outcome::Ok(_))));
    let items = vec![write.clone()];
    let answer = kv.batch_put(BatchPutRequest { items }).await.unwrap();
    let Some(put_result::Outcome::Fault(fault)) = answer.into_inner().results.remove(0).outcome
    else {
        panic!("a batched put was not refused");
    };
    refused(&fault.into());
    for operation in [
        session_request::Operation::Get(wrong),
        session_request::Operation::Put(write),
        session_request::Operation::Delete(delete),
    ] {
        let message = SessionRequest {
            id: 1,
            operation: Some(operation),
            ..SessionRequest::default()
        };
        let mut answers = kv.session(tokio_stream::iter([message])).await.unwrap();
        let answer = answers.get_mut().message().await.unwrap().unwrap();
        let Some(session_response::Outcome::Fault(fault)) = answer.outcome else {
            panic!("{answer:?}");
        };
        refused(&fault.into());
    }
    let cursor = [&digest[..], b"k1"].concat().into();
    let scan = ScanRequest {
        after: cursor,
        ..ScanRequest::default()
    };
    refused(&Fault::from_status(&kv.scan(scan).await.unwrap_err()));

    assert_eq!(value_of(&mut kv, get("k1")).await, None);
    let keys: Vec<_> = entries_of(&mut kv, "default").await;
    assert_eq!(keys.len(), 1, "only k2 was ever put: {keys:?}");
}

/// A record that no client could have put.
fn planted(key: &str, digest: [u8; 16], value_len: usize) -> Record {
    Record {
        namespace: NamespaceId::DEFAULT,
        digest: Digest(digest),
        key: Key::new(key.to_owned()).unwrap(),
        ballot: Ballot {
            epoch: Epoch(1),
            time: HybridTime(1),
            slot: NodeSlot(0),
        },
        origin: None,
        state: State::Value {
            value: vec![7; value_len].into(),
            expires_at_ms: None,
        },
    }
}

/// The store of a stopped node.
fn store_of(servers: &Servers, number: usize) -> (Store, Partitions) {
    let mut options = StoreOptions::new(servers.dir.path().join(number.to_string()).join("store"));
    options.partitions = Partitions::new(64).unwrap();
    let partitions = options.partitions;
    (Store::open(options).unwrap().0, partitions)
}

async fn plant(servers: &Servers, number: usize, records: &[Record]) {
    let (store, partitions) = store_of(servers, number);
    for record in records {
        let batch = ReplicaBatch {
            records: vec![record.clone()],
            ..ReplicaBatch::default()
        };
        let partition = partitions.holding(record.namespace, Token::of(&record.digest));
        let (done, durable) = tokio::sync::oneshot::channel();
        store.apply_many([(partition, batch)], |_| done.send(()).unwrap());
        durable.await.unwrap();
    }
    store.close().await.unwrap();
}

/// The pages of a scan with this limit; 0 is none.
async fn pages(kv: &mut KvClient<Channel>, after: Bytes, limit: u64) -> Vec<ScanResponse> {
    let request = ScanRequest {
        after,
        limit,
        ..ScanRequest::default()
    };
    let pages = kv.scan(request).await.unwrap().into_inner();
    pages.map(Result::unwrap).collect().await
}

fn keys_in(pages: &[ScanResponse]) -> Vec<Bytes> {
    let entries = pages.iter().flat_map(|page| &page.entries);
    entries.map(|entry| entry.key.clone()).collect()
}

/// It can only be on a disk or come from a peer, because every door checks digests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_under_the_digest_of_another_key_is_in_no_scan_and_spreads_nowhere() {
    const KEYS: usize = 8;
    let mut servers = Servers::start().await;
    let mut kv = servers.kv(0).await;
    let mut digests = Vec::new();
    for number in 0..KEYS {
        let key = format!("key-{number}");
        kv.put(put(&key, "v")).await.unwrap();
        digests.push(<[u8; 16]>::try_from(&servers.explain(&key).await.digest[..]).unwrap());
    }
    let mut addresses = Vec::new();
    for node in servers.nodes.drain(..) {
        addresses.push((node.grpc_addr(), node.peer_addr()));
        node.stop().await.unwrap();
    }
    let next = |[digest @ .., _]: [u8; 16], last| {
        let mut next = [last; 16];
        next[..15].copy_from_slice(&digest);
        next
    };
    let one = planted("one", next(digests[2], 255), 9);
    let everywhere = [
        planted("same", digests[0], 9),
        // A page ends with each of them.
        planted("long", next(digests[1], 254), 1 << 20),
        planted("longer", next(digests[1], 255), 1 << 20),
    ];
    for number in 1..=3 {
        plant(&servers, number, &everywhere).await;
    }
    plant(&servers, 1, std::slice::from_ref(&one)).await;
    for (number, (grpc, peer)) in (1..).zip(addresses) {
        let raw = RawSettings {
            grpc_addr: Some(grpc),
            peer_addr: Some(peer),
            ..settings(servers.dir.path().join(number.to_string()))
        };
        let node = Node::start(raw.check().unwrap()).await.unwrap();
        servers.nodes.push(node);
    }
    servers.formed().await;

    let mut kv = servers.kv(0).await;
    let whole = pages(&mut kv, Bytes::new(), 0).await;
    let all = keys_in(&whole);
    let mut sorted = all.clone();
    sorted.sort_unstable();
    let put: Vec<_> = (0..KEYS).map(|number| format!("key-{number}")).collect();
    assert_eq!(sorted, put);
    assert!(
        servers
            .metric(0, "torc_register_foreign_digests_total")
            .await
            >= 4
    );
    for (at, page) in whole.iter().enumerate() {
        let rest = pages(&mut kv, page.cursor.clone(), 0).await;
        assert_eq!(keys_in(&rest), keys_in(&whole[at + 1..]), "after page {at}");
    }
    let (mut each, mut after) = (Vec::new(), Bytes::new());
    while each.len() < KEYS {
        let page = pages(&mut kv, after, 1).await;
        each.extend(keys_in(&page));
        after = page.last().unwrap().cursor.clone();
    }
    assert_eq!(each, all);

    for node in servers.nodes.drain(..) {
        node.stop().await.unwrap();
    }
    let held = [1, 2, 3].map(|number| store_of(&servers, number).0.get(one.locator()).unwrap());
    assert_eq!(held, [Some(one), None, None]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_join_of_unsealed_records_moves_is_what_was_planned() {
    joins_as_planned(false).await;
}

/// Slices are moved as they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_join_of_sealed_records_moves_is_what_was_planned() {
    joins_as_planned(true).await;
}

async fn joins_as_planned(is_sealed: bool) {
    const COUNT: u64 = 300;
    let mut servers = Servers::start().await;
    let mut kv = servers.kv(0).await;
    for number in 0..COUNT {
        let stored = kv.put(put(&format!("key-{number}"), "value")).await;
        assert!(stored.is_ok(), "{stored:?}");
    }
    let mut cluster = servers.cluster(0).await;
    let status = async |cluster: &mut ClusterClient<Channel>| {
        let status = cluster.status(StatusRequest::default()).await;
        status.map(Response::into_inner).unwrap_or_default()
    };
    until("every replica has every record", async || {
        let nodes = status(&mut cluster).await.nodes;
        nodes.len() == 3 && nodes.iter().all(|node| node.records == COUNT)
    })
    .await;
    for index in 0..3 * usize::from(is_sealed) {
        let mut node = servers.cluster(index).await;
        let flushed = node.flush(MaintenanceRequest::default()).await;
        assert!(flushed.is_ok(), "{flushed:?}");
    }
    let plan = servers.join().await;
    assert!(
        plan.records > 0 && plan.bytes > 10 * plan.records,
        "{plan:?}"
    );
    let last = status(&mut cluster).await.last_transition;
    let last = last.unwrap_or_default();
    let planned = (plan.records, plan.bytes);
    assert_eq!((last.records_planned, last.bytes_planned), planned);
    assert_eq!((last.records_moved, last.bytes_moved), planned);
}

/// A page from the beginning of the partition would end before the position.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_from_within_a_partition_of_several_pages_never_goes_back() {
    let servers = Servers::start().await;
    let mut kv = servers.kv(0).await;
    let mut keys = Vec::new();
    let first = servers.explain("0").await.partition.unwrap().partition;
    for number in 0.. {
        let key = number.to_string();
        let explained = servers.explain(&key).await;
        if explained.partition.unwrap().partition == first {
            keys.push((explained.digest, key));
        }
        if keys.len() == 8 {
            break;
        }
    }
    // Two or three fill a page.
    let value = "v".repeat(400 << 10);
    for (_, key) in &keys {
        kv.put(put(key, &value)).await.unwrap();
    }
    keys.sort();
    for (at, (digest, _)) in keys.iter().enumerate() {
        let request = ScanRequest {
            after: digest.slice(..8),
            ..ScanRequest::default()
        };
        let mut pages = kv.scan(request).await.unwrap().into_inner();
        let (mut found, mut cursor) = (Vec::new(), digest.slice(..8));
        while let Some(page) = pages.message().await.unwrap() {
            assert!(cursor <= page.cursor, "the scan went back");
            cursor = page.cursor;
            found.extend(page.entries.into_iter().map(|entry| entry.key));
        }
        let expected: Vec<_> = keys[at..].iter().map(|(_, key)| key.as_bytes()).collect();
        assert_eq!(found, expected, "from record {at}");
    }
}

const DISK_FAULTS: &str = "disk.json";

/// Nodes whose syncs [`slow_disks`] slows down.
async fn with_disk_faults() -> Servers {
    let dir = tempfile::tempdir().unwrap();
    let faults = dir.path().join(DISK_FAULTS);
    let with_faults = |settings| RawSettings {
        test_disk_faults: Some(faults.clone()),
        ..settings
    };
    Servers::start_with(dir, with_faults).await
}

fn slow_disks(servers: &Servers, sync_ms: u64) {
    let (dir, faults) = (servers.dir.path(), format!(r#"{{"sync_ms": {sync_ms}}}"#));
    std::fs::write(dir.join("new.json"), faults).unwrap();
    std::fs::rename(dir.join("new.json"), dir.join(DISK_FAULTS)).unwrap();
}

/// The first batch took nearly all permits for operations, and the get waited behind the second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_get_does_not_wait_behind_batches() {
    const WRITES: usize = 1_000;
    let servers = with_disk_faults().await;
    let lead = servers.lead_of("written").await;
    let mut kv = servers.kv(lead).await;
    let mut number = 0;
    let read = loop {
        let key = format!("read{number}");
        if servers.lead_of(&key).await == lead {
            break key;
        }
        number += 1;
    };
    kv.put(put(&read, "v")).await.unwrap();
    let batch = BatchPutRequest {
        items: vec![put("written", &"w".repeat(100)); WRITES],
    };
    let bytes = prost::Message::encoded_len(&batch) as u64;
    slow_disks(&servers, 20_000);
    let batches: Vec<_> = (0..2)
        .map(|_| {
            let (mut kv, batch) = (kv.clone(), batch.clone());
            tokio::spawn(async move { kv.batch_put(batch).await })
        })
        .collect();
    until("both batches have arrived", async || {
        servers.metric(lead, "torc_in_flight_bytes").await >= 2 * bytes
    })
    .await;
    // Behind the batches it would wait longer.
    let mut request = Request::new(get(&read));
    request.set_timeout(Duration::from_secs(10));
    let found = kv.get(request).await.unwrap().into_inner();
    assert_eq!(found.value, "v");
    assert!(batches.iter().all(|batch| !batch.is_finished()));
}

/// A session has a number of gets at other nodes at a time. When it was a number of all nodes, for
/// all sessions, those at a node that did not answer took all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sessions_get_does_not_wait_for_a_node_that_others_wait_for() {
    const WAITING: u64 = 256;
    let servers = Servers::start().await;
    let mut keys = [None, None, None];
    for number in 0.. {
        let key = format!("k{number}");
        let lead = servers.lead_of(&key).await;
        keys[lead].get_or_insert(key);
        if keys.iter().all(Option::is_some) {
            break;
        }
    }
    let [_, at_the_lost, at_the_other] = keys.map(Option::unwrap);
    for key in [&at_the_lost, &at_the_other] {
        servers.kv(0).await.put(put(key, "v")).await.unwrap();
    }
    servers.cut_links(1, r#"{"drop_from": [1, 2, 3]}"#).await;
    let message = |(id, key): (u64, &str)| SessionRequest {
        id,
        operation: Some(session_request::Operation::Get(get(key))),
        ..SessionRequest::default()
    };
    let waiting = (1..=WAITING).map(|id| (id, at_the_lost.as_str()));
    let all: Vec<_> = waiting
        .chain([(WAITING + 1, at_the_other.as_str())])
        .map(message)
        .collect();
    let mut kv = servers.kv(0).await;
    let answers = kv.session(tokio_stream::iter(all)).await.unwrap();
    let first = answers.into_inner().message().await.unwrap().unwrap();
    assert_eq!(first.id, WAITING + 1, "{first:?}");
    assert!(
        matches!(&first.outcome, Some(session_response::Outcome::Get(_))),
        "{first:?}"
    );
}

/// The put would end as unknown after five seconds. It is cancelled where it runs, or where it was forwarded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_its_caller_cancels_ends_without_an_answer() {
    let servers = Servers::start().await;
    let mut key = "k0".to_owned();
    for number in 1.. {
        if servers.lead_of(&key).await == 1 {
            break;
        }
        key = format!("k{number}");
    }
    for index in [1, 0] {
        // On a busy machine it may end first, because its lead has found that no other replica answers.
        let mut again = 0..5;
        while !ends_unanswered(&servers, index, &key).await {
            assert!(again.next().is_some(), "it is answered, node {index}");
        }
    }
}

/// Puts a key that cannot be put, cancels that, and returns whether there was no answer to it.
async fn ends_unanswered(servers: &Servers, index: usize, key: &str) -> bool {
    servers.cut_links(1, r#"{"drop_from": [1, 3]}"#).await;
    let (requests, sent) = tokio::sync::mpsc::unbounded_channel();
    let sent = tokio_stream::wrappers::UnboundedReceiverStream::new(sent);
    let send = |id, operation| {
        let message = SessionRequest {
            id,
            operation: Some(operation),
            timeout_ms: 60_000,
            ..SessionRequest::default()
        };
        requests.send(message).unwrap();
    };
    let local = || {
        session_request::Operation::Get(GetRequest {
            consistency: Consistency::Stale.into(),
            ..get("other")
        })
    };
    send(1, session_request::Operation::Put(put(key, "cancelled")));
    send(2, local());
    let answers = servers.kv(index).await.session(sent).await.unwrap();
    let mut answers = answers.into_inner();
    let mut answered = vec![answers.message().await.unwrap().unwrap().id];
    send(1, session_request::Operation::Cancel(Cancel {}));
    send(3, local());
    drop(requests);
    while let Some(answer) = answers.message().await.unwrap() {
        answered.push(answer.id);
    }
    servers.cut_links(1, "{}").await;
    let mut lead = servers.kv(1).await;
    let request = || put(key, "after");
    until("the key can be put", async || {
        lead.put(request()).await.is_ok()
    })
    .await;
    assert_eq!(
        value_of(&mut lead, get(key)).await.as_deref(),
        Some("after")
    );
    answered.contains(&2) && answered.contains(&3) && !answered.contains(&1)
}

/// Clocks reserve their readings 200 ms ahead: with slower disks, each reservation had passed
/// before it was durable, and no write was ever acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disks_that_take_longer_than_clocks_reserve_are_slow_and_no_more() {
    let servers = with_disk_faults().await;
    slow_disks(&servers, 300);
    for index in 0..3 {
        let mut kv = servers.kv(index).await;
        for number in 0..3 {
            let key = format!("k{index}{number}");
            let put = PutRequest {
                key: key.clone().into(),
                value: "v".into(),
                ..PutRequest::default()
            };
            kv.put(put).await.unwrap();
            let get = GetRequest {
                key: key.into(),
                ..GetRequest::default()
            };
            assert_eq!(value_of(&mut kv, get).await.as_deref(), Some("v"));
        }
    }
}
